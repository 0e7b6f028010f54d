"""Figures and sentences on known networks in PEs of brain regions, and on what preprocessing changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from placecode.analysis import stats
from placecode.analysis.stats import Interval
from placecode.experiments.channels import known_networks
from placecode.experiments.channels.brain_networks import (
    ALPHA,
    BY_VARIANT,
    DRAWN,
    LARGE,
    SMALL,
    TITLES,
    WORDS,
    Measure,
    by_split,
    connectivity,
    falls,
    labelled,
    partitions_in,
    variants,
)
from placecode.experiments.claims import NotInRun
from placecode.experiments.reading import done, measured
from placecode.reports import figures
from placecode.reports.pages.base import Shown
from placecode.reports.pages.latin_figures import run_name
from placecode.reports.pages.masked_figures import tables
from placecode.runs.read import Run


def over_sigma(run: Run) -> list[Shown]:
    """Modularity and segregation of known networks against sigma; nothing where no networks are known."""
    known = partitions_in(run)
    if not known or not set(run.analysis["target"]) & set(known):
        return []
    seen = tables(run)
    titles = {name: f"{TITLES[name]} networks" for name in known}
    return [
        Shown(
            "networks",
            "Known networks",
            "Do PEs of regions of one known network resemble each other? Points above both bands do more than shuffled "
            "labels and more than maps that are as smooth in space. Lines: functional connectivity, without any model. "
            "The centred one is that to compare with: a signal that all regions share lowers the other.",
            figures.networks_by_sigma(
                seen.members, seen.analysis, run.baselines, seen.name, titles, note=labelled(run)
            ),
        )
    ]


def over_variants(run: Run) -> list[Shown]:
    """Measures by variant of the preprocessing and sigma."""
    rows, levels = [], []
    present = [measure for measure in DRAWN if _has(run, measure)]
    for measure in present:
        name, values = BY_VARIANT[measure], measured(run, *measure)
        for variant in variants(run):
            for sigma in sorted(done(run)["sigma"].unique()):
                try:
                    found = by_split(run, variant, values, sigma)
                except NotInRun:
                    continue
                rows += [_row(name, variant, value, sigma=sigma, seed=world) for world, value in found.items()]
            levels += [_row(name, variant, value) for value in connectivity(run, variant, measure)]
    if not rows:
        return []
    return [
        Shown(
            "preprocessing",
            "Preprocessing",
            "Does the way in which recordings are preprocessed change what PEs show? In every row small sigmas should "
            "lie to the right of large ones. Diamonds: functional connectivity of the same recordings, centred over "
            "regions as PEs are; for mirror regions as it is.",
            figures.measures_by_variant(
                pd.DataFrame(rows),
                pd.DataFrame(levels, columns=["measure", "variant", "value"]),
                run_name(run),
                {BY_VARIANT[measure]: BY_VARIANT[measure] for measure in present},
                note="functional connectivity: centred over regions as PEs are, but for mirror regions",
            ),
        )
    ]


def _row(measure: str, variant: str, value: float, **more: Any) -> dict[str, Any]:
    return {"measure": measure, "variant": variant or "recordings", "value": float(value), **more}


def _has(run: Run, measure: Measure) -> bool:
    try:
        return bool(len(measured(run, *measure)))
    except NotInRun:
        return False


# ------------------------------------------------------------------------------------------------------ words


def sentences_on_networks(run: Run) -> Iterator[str]:
    """Known networks in the PEs of the smallest and the largest sigma, beside functional connectivity."""
    known = partitions_in(run)
    sigmas = sorted(done(run)["sigma"].dropna().unique())
    if not known or not sigmas:
        return
    yield f"{labelled(run)}."
    for target in known:
        for analysis, words in WORDS.items():
            if not _has(run, (analysis, target)):
                continue
            ends = [_at(run, analysis, target, sigma) for sigma in dict.fromkeys((sigmas[0], sigmas[-1]))]
            levels = ""
            for baseline, told in (("fc", "functional connectivity"), (known_networks.CENTRED, "the same, centred")):
                beside = connectivity(run, variants(run)[0], (analysis, target), baseline)
                levels += f"; {told} {sum(beside) / len(beside):.2f}" if beside else ""
            yield f"{TITLES[target]}, {words}: {'; '.join(ends)}{levels}."


def _at(run: Run, analysis: str, target: str, sigma: float) -> str:
    variant = variants(run)[0]
    found = stats.interval(by_split(run, variant, measured(run, analysis, target), sigma).to_numpy())
    rows = done(run)
    own = rows.loc[(rows["data"] == variant) & (rows["sigma"] == sigma), "member"]
    beyond = []
    for ending, null in (("_p", "shuffled labels"), ("_smooth_p", "maps as smooth")):
        if _has(run, (f"{analysis}{ending}", target)):
            chances = own.map(measured(run, f"{analysis}{ending}", target)).dropna()
            beyond.append(f"above {null} in {int((chances <= ALPHA).sum())} of {len(chances)} models")
    return f"{_worded(found)} at sigma {sigma:g}" + (f" ({', '.join(beyond)})" if beyond else "")


def sentences_on_variants(run: Run) -> Iterator[str]:
    """By how much each measure is higher at the small sigma than at the large one, variant by variant."""
    for measure, words in BY_VARIANT.items():
        found: dict[str, Interval] = {}
        for variant in variants(run):
            try:
                found[variant or "recordings"] = falls(run, variant, measure)
            except NotInRun:
                continue
        if found:
            yield (
                f"The {words} is higher at sigma {SMALL:g} than at {LARGE} beyond doubt in "
                f"{sum(each.low > 0 for each in found.values())} of {len(found)} variants, and lower in "
                f"{sum(each.high < 0 for each in found.values())}: {_by_variant(found)}."
            )


def _by_variant(found: Mapping[str, Interval]) -> str:
    return "; ".join(f"{variant} {_worded(each, '+')}" for variant, each in found.items())


def _worded(found: Interval, sign: str = "") -> str:
    bounds = f" (95% CI {found.low:.2f} to {found.high:.2f})" if found.low == found.low else ""
    return f"{found.mean:{sign}.2f}{bounds}"
