"""The pages of experiments on brains: figures and sentences on known brain networks in PEs, and on preprocessing.

The sentences are in templates/brain-networks.j2 and templates/brain-variants.j2. A variant is one way to preprocess the
recordings; each is a data set of the run. A world is one split of the people into training and test.
"""

from __future__ import annotations

import contextlib
from importlib.util import find_spec
from itertools import product
from typing import Any

import pandas as pd

from placecode.analysis.stats import interval
from placecode.errors import INSTALL
from placecode.experiments.channels import known_networks
from placecode.experiments.channels.brain_networks import (
    ALPHA,
    FIGURE_MEASURES,
    LARGE,
    MEASURE_NAMES,
    PARTITION_NAMES,
    SMALL,
    VARIANT_MEASURES,
    by_split,
    connectivity_values,
    network_coverage_text,
    partitions_in,
    sigma_effect_in_variant,
    variants,
)
from placecode.experiments.claims import NotInRun
from placecode.experiments.measures import MeasureKey
from placecode.experiments.reading import analysis_values, finished_members, select
from placecode.reports import figures, wording
from placecode.reports.pages.base import ReportFigure, report_figure, run_name
from placecode.reports.pages.masked import MaskedPage, run_tables
from placecode.runs.read import Run
from placecode.tasks.brain import DEFAULT_PARTITIONS

NULLS = {"_p": "shuffled labels", "_smooth_p": "maps as smooth"}
"""Names of null hypotheses in sentences, by the suffix of the analysis with the p values, such as "modularity_p"."""
BASELINES = {"fc": "functional connectivity", known_networks.CENTRED_FC: "the same, centred"}
"""The baselines (measures of the recordings) that sentences compare PEs with, and their names in sentences."""


class BrainPage(MaskedPage):
    """The page of experiments on human fMRI."""

    measures = (
        ("mirror_agreement", "partner"),
        ("coordinate_agreement", "positions"),
        ("modularity", "best"),
        *((measure, target) for target in DEFAULT_PARTITIONS for measure in ("modularity", "segregation")),
        ("fc_correlation", "fc"),
        ("moved_relative", "start"),
        ("stability", "other seeds"),
    )

    def sentences(self) -> list[str]:
        lines = super().sentences()
        if find_spec("nilearn") is None:
            lines.append(f"The regions are not drawn on a brain because nilearn is not installed: {INSTALL}.")
        return lines


class BrainSigmaPage(BrainPage):
    """The page of brain-sigma, which adds known networks of the brain."""

    def figures(self) -> list[ReportFigure]:
        first, *others = super().figures()
        return [first, *network_figures(self.run), *others]

    def sentences(self) -> list[str]:
        return [*super().sentences(), *network_sentences(self.run)]


class BrainPreprocessingPage(BrainPage):
    """The page of brain-preprocessing. It adds to `BrainPage` the measures of each variant of the preprocessing."""

    def figures(self) -> list[ReportFigure]:
        return [*variant_figures(self.run), *super().figures()]

    def sentences(self) -> list[str]:
        return [*variant_sentences(self.run), *super().sentences()]

    def lead(self) -> list[str]:
        return variant_sentences(self.run) or super().lead()


class BrainTransferPage(BrainPage):
    """The page of brain-transfer."""

    measures = (
        ("mirror_agreement", "partner"),
        ("fc_correlation", "fc"),
        ("moved_relative", "start"),
        ("stability", "other seeds"),
        ("stability", "other data"),
    )


def network_figures(run: Run) -> list[ReportFigure]:
    """Draw modularity and segregation of known networks against sigma. Return no figure if the run measured none."""
    titles = {name: f"{PARTITION_NAMES[name]} networks" for name in partitions_in(run)}
    if not set(run.analysis["target"]) & set(titles):
        return []
    data = run_tables(run)
    figure = figures.networks_by_sigma(
        data.members, data.analysis, run.baselines, data.name, titles, note=network_coverage_text(run)
    )
    return [report_figure("masked.networks", figure)]


def variant_figures(run: Run) -> list[ReportFigure]:
    """Draw how well PEs show known networks and mirror regions, by preprocessing and sigma. Return no figure if the run
    has no such measures."""
    rows: list[tuple[Any, ...]] = []
    levels: list[tuple[Any, ...]] = []
    present = [measure for measure in FIGURE_MEASURES if _has(run, measure)]
    for measure, variant in product(present, variants(run)):
        key, values = (VARIANT_MEASURES[measure], variant or "recordings"), analysis_values(run, *measure)
        for sigma in sorted(finished_members(run)["sigma"].unique()):
            with contextlib.suppress(NotInRun):
                by_world = by_split(run, variant, values, sigma)
                rows += [(*key, float(value), sigma, world) for world, value in by_world.items()]
        levels += [(*key, value) for value in connectivity_values(run, variant, measure)]
    if not rows:
        return []
    columns = ["measure", "variant", "value"]
    figure = figures.measures_by_variant(
        pd.DataFrame(rows, columns=[*columns, "sigma", "seed"]),
        pd.DataFrame(levels, columns=columns),
        run_name(run),
        [VARIANT_MEASURES[measure] for measure in present],
        note="functional connectivity: centred over regions as PEs are, except for mirror regions",
    )
    return [report_figure("masked.preprocessing", figure)]


def _has(run: Run, measure: MeasureKey) -> bool:
    """Return whether the run has values of a measure (analysis, target)."""
    try:
        return bool(len(analysis_values(run, *measure)))
    except NotInRun:
        return False


def network_sentences(run: Run) -> list[str]:
    """Return sentences on known networks in functional connectivity and in PEs at the smallest and largest sigma."""
    partitions = partitions_in(run)
    sigmas = sorted(finished_members(run)["sigma"].dropna().unique())
    if not partitions or not sigmas:
        return []
    smallest_and_largest = dict.fromkeys((sigmas[0], sigmas[-1]))
    measures = []
    for target, (analysis, name) in product(partitions, MEASURE_NAMES.items()):
        if _has(run, (analysis, target)):
            at_sigmas = [_at_sigma(run, analysis, target, sigma) for sigma in smallest_and_largest]
            levels = {
                baseline_name: sum(values) / len(values)
                for baseline, baseline_name in BASELINES.items()
                if (values := connectivity_values(run, variants(run)[0], (analysis, target), baseline))
            }
            measures.append(
                {"title": PARTITION_NAMES[target], "name": name, "sigmas": at_sigmas, "connectivity": levels}
            )
    return wording.sentences("brain-networks", coverage=network_coverage_text(run), measures=measures)


def _at_sigma(run: Run, analysis: str, target: str, sigma: float) -> dict[str, Any]:
    """Return a dict about a measure at one sigma in the first variant: "sigma", "value" (mean and interval over splits
    of the people), and "above", a list of (null hypothesis, number of models with p <= ALPHA, number of models)."""
    variant = variants(run)[0]
    above = []
    for suffix, null in NULLS.items():
        if _has(run, (f"{analysis}{suffix}", target)):
            values = analysis_values(run, f"{analysis}{suffix}", target)
            p_values = select(run, values, data=variant, sigma=sigma).dropna()
            above.append((null, int((p_values <= ALPHA).sum()), len(p_values)))
    value = interval(by_split(run, variant, analysis_values(run, analysis, target), sigma))
    return {"sigma": sigma, "value": value, "above": above}


def variant_sentences(run: Run) -> list[str]:
    """Return sentences on each measure at sigma SMALL minus that at sigma LARGE, for all variants."""
    measures = []
    for measure, name in VARIANT_MEASURES.items():
        differences = {}
        for variant in variants(run):
            with contextlib.suppress(NotInRun):
                differences[variant or "recordings"] = sigma_effect_in_variant(run, variant, measure)
        if differences:
            higher = sum(difference.low > 0 for difference in differences.values())
            lower = sum(difference.high < 0 for difference in differences.values())
            measures.append({"name": name, "higher": higher, "lower": lower, "variants": differences})
    return wording.sentences("brain-variants", measures=measures, small=SMALL, large=LARGE)
