"""Claims on known brain networks, such as Yeo-7: do PEs show them, and does preprocessing change this?

A variant is a data set of a run: the same recordings with another preprocessing. A split divides the people into
training and held-out people. Seeds of one split are averaged first, and every interval is over splits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd

from placecode.analysis import stats
from placecode.analysis.stats import Interval
from placecode.experiments.channels import known_networks
from placecode.experiments.channels.claims import MIRROR, minus_baseline, paper_claim_on_other_data
from placecode.experiments.claims import Claim, NotInRun, our_claim, reviewer_claim
from placecode.experiments.measures import MeasureKey
from placecode.experiments.reading import analysis_values, select, sigma_difference
from placecode.runs.read import Run, shape_of

SMALL, LARGE = 0.01, 2.0
"""The two sigmas that claims compare."""
ALPHA = 0.05
"""Largest p value that counts as significant."""
PARTITION_NAMES = {"yeo7": "Yeo-7", "yeo17": "Yeo-17", "cole-anticevic": "Cole-Anticevic"}
"""Names in figures of the known partitions of the brain into networks."""
MEASURE_NAMES = {
    "modularity": "modularity Q",
    "segregation": "segregation",
    "neighbor_agreement": "share of regions whose nearest one is in the same network",
}
"""Names of the measures in figures."""
VARIANT_MEASURES: dict[MeasureKey, str] = {
    ("modularity", "yeo7"): "modularity Q of the Yeo-7 networks",
    ("modularity", "cole-anticevic"): "modularity Q of the Cole-Anticevic networks",
    ("segregation", "yeo7"): "segregation of the Yeo-7 networks",
    ("segregation", "cole-anticevic"): "segregation of the Cole-Anticevic networks",
    MIRROR: "share of regions whose nearest one is the mirror region",
}
"""Names in figures and claims of the measures that are compared between variants, by analysis and target."""
FIGURE_MEASURES = (("modularity", "yeo7"), ("modularity", "cole-anticevic"), ("segregation", "yeo7"), MIRROR)
"""The measures in the figure that compares variants, as pairs of analysis and target."""


# ---------------------------------------------------------------------------------------------- reading a run


def partitions_in(run: Run) -> dict[str, dict[str, Any]]:
    """Return the known partitions of the regions of a run into networks, by name: for each, what `Partition.describe`
    wrote to config.json. They are the same for all variants. Empty if no networks are known."""
    task = run.config["task"]
    first = next(iter(task["parts"].values())) if "parts" in task else task
    return dict(first.get("partitions", {}))


def network_coverage_text(run: Run) -> str:
    """Return a text that says, for each partition, how many regions have a network, and how far these regions are from
    the atlas parcel that gives the network."""
    parts = []
    for name, partition in partitions_in(run).items():
        regions = f"{partition['labelled']} of {len(partition['labels'])} regions"
        near, far = partition["median_distance"], partition["largest_distance"]
        distances = f"(nearest parcel: median {near:.1f} mm, at most {far:.1f} mm)"
        parts.append(f"{regions} have a {PARTITION_NAMES[name]} network {distances}")
    return "; ".join(parts)


def variants(run: Run) -> list[str]:
    """Return the variants of a run, which are the names of its data sets, in the order of its members."""
    return list(dict.fromkeys(run.members["data"]))


def by_split(run: Run, variant: str, values: pd.Series, sigma: float) -> pd.Series:
    """Return the values of the members with this variant and sigma, averaged for each split of the people. `values` is
    indexed by member. Raise NotInRun if there are no such members."""
    which = f"members with sigma {sigma:g}" + (f" and {variant}" if variant else "")
    selected = select(run, values, which, data=variant, sigma=sigma).dropna()
    if selected.empty:
        raise NotInRun(f"the run has no finished {which}")
    return selected.groupby(selected.index % shape_of(run.config, variant)["worlds"]).mean()


def sigma_effect_in_variant(run: Run, variant: str, measure: MeasureKey) -> Interval:
    """Return a measure at sigma `SMALL` minus that at `LARGE` in one variant, with its interval over splits."""
    values = analysis_values(run, *measure)
    return stats.interval(by_split(run, variant, values, SMALL) - by_split(run, variant, values, LARGE))


def smallest_effect_of_variants(analysis: str, target: str, run: Run) -> Interval:
    """Return the effect of sigma on the measure (`analysis`, `target`) in one variant of the preprocessing: the one
    whose interval has the lowest lower limit. If that limit is above 0, so are those of all variants. If a variant has
    no interval, its effect is returned."""
    intervals = [sigma_effect_in_variant(run, variant, (analysis, target)) for variant in variants(run)]
    return min(intervals, key=lambda interval: (not math.isnan(interval.low), interval.low))


def _in_every_variant(claim: Callable[..., Claim], id: str, measure: MeasureKey) -> Claim:
    """Return the claim `id`, that a measure is higher at sigma `SMALL` than at `LARGE` in every variant. `claim` is the
    constructor, such as `our_claim`."""
    change = f"the {VARIANT_MEASURES[measure]} is higher at sigma {SMALL} than at {LARGE}"
    statement = f"In every variant of the preprocessing {change}."
    return claim(id, statement, partial(smallest_effect_of_variants, *measure))


CLAIMS: tuple[Claim, ...] = (
    _in_every_variant(paper_claim_on_other_data, "yeo7-modularity-falls", ("modularity", "yeo7")),
    _in_every_variant(paper_claim_on_other_data, "cole-anticevic-modularity-falls", ("modularity", "cole-anticevic")),
    _in_every_variant(paper_claim_on_other_data, "yeo7-segregation-falls", ("segregation", "yeo7")),
    _in_every_variant(our_claim, "mirrors-fall", MIRROR),
)
"""Claims on brain-preprocessing: in every variant, sigma changes a measure in the same direction. The margin is 0, and
was set before any run."""


def structure_effect(analysis: str, target: str, run: Run) -> Interval:
    """Return the measure (`analysis`, `target`) of structure in the PE at sigma `SMALL` minus that at `LARGE`, in a run
    with one variant."""
    return sigma_difference(run, analysis_values(run, analysis, target), SMALL, LARGE)


OVER_SIGMA: tuple[Claim, ...] = (
    *(
        paper_claim_on_other_data(
            f"{target}-{name}-falls-with-sigma",
            f"The {VARIANT_MEASURES[name, target]} in the PE is higher at sigma {SMALL} than at {LARGE}.",
            partial(structure_effect, name, target),
        )
        for name in ("modularity", "segregation")
        for target in ("yeo7", "cole-anticevic")
    ),
    reviewer_claim(
        "beats-connectivity-on-networks",
        f"The PE at sigma {SMALL} has a higher {VARIANT_MEASURES['modularity', 'yeo7']} than functional connectivity "
        "that is centred as PEs are.",
        partial(minus_baseline, known_networks.CENTRED_FC, ("modularity", "yeo7"), SMALL),
    ),
)
"""Claims of the paper on known networks, and questions of its reviewers, for brain-sigma. Margins were set before any
run at the scale "paper"."""


def connectivity_values(run: Run, variant: str, measure: MeasureKey, baseline: str = "") -> list[float]:
    """Return a measure of functional connectivity (the correlations of regions) in one variant: one value per split of
    the people.

    `baseline` is the name of the connectivity in the table of baselines. By default it is the centred connectivity
    (`known_networks.CENTRED_FC`) if the run has this measure of it, otherwise the plain one.
    """
    rows = run.baselines
    rows = rows[(rows["data"] == variant) & (rows["split"] == "analysis")]
    rows = rows[(rows["metric"] == measure[0]) & (rows["condition"] == measure[1])].dropna(subset=["value"])
    names = set(rows["baseline"])
    chosen = baseline or (known_networks.CENTRED_FC if known_networks.CENTRED_FC in names else "fc")
    return [float(value) for value in rows.loc[rows["baseline"] == chosen, "value"]]
