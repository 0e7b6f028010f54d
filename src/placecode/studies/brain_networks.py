"""What runs on brains say of known networks, and whether preprocessing changes it: claims, figures and sentences.

A variant is a data set of a run: the same recordings, preprocessed in another way. Each world is one split of the
people. Seeds of one split are averaged first, and every interval is over splits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pandas as pd

from placecode import figures
from placecode.analysis import stats
from placecode.analysis.stats import Interval
from placecode.claims import OURS, PAPER, REVIEWERS, Claim, NotInRun
from placecode.runs import Run, shape_of
from placecode.studies import known_networks
from placecode.studies.base import Shown
from placecode.studies.latin_figures import run_name
from placecode.studies.masked_claims import less_baseline, structure_between
from placecode.studies.masked_figures import tables
from placecode.studies.reading import done, measured

Measure = tuple[str, str]
SMALL, LARGE = 0.01, 2.0
"""The sigmas that claims compare."""
ALPHA = 0.05
TITLES = {"yeo7": "Yeo-7", "yeo17": "Yeo-17", "cole-anticevic": "Cole-Anticevic"}
WORDS = {
    "modularity": "modularity Q",
    "segregation": "segregation",
    "neighbor_agreement": "share of regions whose nearest one is in the same network",
}
MIRROR: Measure = ("mirror_agreement", "partner")
BY_VARIANT: dict[Measure, str] = {
    ("modularity", "yeo7"): "modularity Q of the Yeo-7 networks",
    ("modularity", "cole-anticevic"): "modularity Q of the Cole-Anticevic networks",
    ("segregation", "yeo7"): "segregation of the Yeo-7 networks",
    ("segregation", "cole-anticevic"): "segregation of the Cole-Anticevic networks",
    MIRROR: "share of regions whose nearest one is the mirror region",
}
"""The measures of which it is asked whether preprocessing changes them."""
DRAWN = (("modularity", "yeo7"), ("modularity", "cole-anticevic"), ("segregation", "yeo7"), MIRROR)


# ---------------------------------------------------------------------------------------------- reading a run


def partitions_in(run: Run) -> dict[str, dict[str, Any]]:
    """What a run records of the known networks of its regions, by name; the same for all variants."""
    task = run.config["task"]
    first = next(iter(task["parts"].values())) if "parts" in task else task
    return dict(first.get("partitions", {}))


def labelled(run: Run) -> str:
    """How many regions have a network, and how far away the atlas parcel is that gave them its network."""
    parts = []
    for name, known in partitions_in(run).items():
        regions = f"{known['labelled']} of {len(known['labels'])} regions have a {TITLES[name]} network"
        near, far = known["median_distance"], known["largest_distance"]
        parts.append(f"{regions} (nearest parcel: median {near:.1f} mm, at most {far:.1f} mm)")
    return "; ".join(parts)


def variants(run: Run) -> list[str]:
    """The data sets of a run, in order."""
    return list(dict.fromkeys(run.members["data"]))


def by_split(run: Run, variant: str, values: pd.Series, sigma: float) -> pd.Series:
    """Values of the members of a variant and a sigma, by split of the people."""
    rows = done(run)
    rows = rows[(rows["data"] == variant) & (rows["sigma"] == sigma)]
    kept = rows.assign(value=rows["member"].map(values)).dropna(subset=["value"])
    if kept.empty:
        raise NotInRun(f"the run has no finished members with sigma {sigma:g}" + (f" and {variant}" if variant else ""))
    return pd.Series(kept.groupby(kept["seed"] % shape_of(run.config, variant)["worlds"])["value"].mean())


def falls(run: Run, variant: str, measure: Measure, small: float = SMALL, large: float = LARGE) -> Interval:
    """A measure at the small sigma minus that at the large sigma, in one variant; positive if it falls with sigma."""
    values = measured(run, *measure)
    change = (by_split(run, variant, values, small) - by_split(run, variant, values, large)).dropna()
    return stats.interval(change.to_numpy())


def falls_in_every_variant(analysis: str, target: str, run: Run) -> Interval:
    """`falls` of the variant in which it is least certain: the one with the lowest lower confidence limit."""
    every = [falls(run, variant, (analysis, target)) for variant in variants(run)]
    return min(every, key=lambda interval: (interval.low == interval.low, interval.low))


CLAIMS: tuple[Claim, ...] = tuple(
    Claim(
        id,
        f"In every variant of the preprocessing the {words} is higher at sigma {SMALL:g} than at {LARGE}.",
        label,
        0.0,
        partial(falls_in_every_variant, *measure),
        own_data=label == PAPER,
    )
    for id, label, measure, words in (
        ("yeo7-modularity-falls", PAPER, ("modularity", "yeo7"), BY_VARIANT["modularity", "yeo7"]),
        (
            "cole-anticevic-modularity-falls",
            PAPER,
            ("modularity", "cole-anticevic"),
            BY_VARIANT["modularity", "cole-anticevic"],
        ),
        ("yeo7-segregation-falls", PAPER, ("segregation", "yeo7"), BY_VARIANT["segregation", "yeo7"]),
        ("mirrors-fall", OURS, MIRROR, BY_VARIANT[MIRROR]),
    )
)
"""Does preprocessing change the sign? The margin is 0, and was set before any run."""

OVER_SIGMA: tuple[Claim, ...] = (
    *(
        Claim(
            f"{target}-{name}-falls-with-sigma",
            f"The {BY_VARIANT[name, target]} in the PE is higher at sigma {SMALL:g} than at {LARGE}.",
            PAPER,
            0.0,
            partial(structure_between, name, target, SMALL, LARGE),
            own_data=True,
        )
        for name in ("modularity", "segregation")
        for target in ("yeo7", "cole-anticevic")
    ),
    Claim(
        "beats-connectivity-on-networks",
        f"The PE at sigma {SMALL:g} has a higher {BY_VARIANT['modularity', 'yeo7']} than functional connectivity that "
        "is centred as PEs are.",
        REVIEWERS,
        0.0,
        partial(less_baseline, known_networks.CENTRED, "modularity", "yeo7", SMALL, analysis=("modularity", "yeo7")),
    ),
)
"""What the paper says of known networks, and what its reviewers asked. Margins were set before any full-scale run."""


# ---------------------------------------------------------------------------------------------------- figures


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


def connectivity(run: Run, variant: str, measure: Measure, baseline: str = "") -> list[float]:
    """A measure of functional connectivity, split by split: centred as PEs are where that was measured."""
    rows = run.baselines
    rows = rows[(rows["data"] == variant) & (rows["split"] == "analysis")]
    rows = rows[(rows["metric"] == measure[0]) & (rows["condition"] == measure[1])].dropna(subset=["value"])
    names = set(rows["baseline"])
    chosen = baseline or (known_networks.CENTRED if known_networks.CENTRED in names else "fc")
    return [float(value) for value in rows.loc[rows["baseline"] == chosen, "value"]]


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
