"""The part of docs/reproduction.md on known networks of the brain and on preprocessing."""

from __future__ import annotations

from collections.abc import Iterator

from latin_tables import Findings
from wording import grid, number, picture, plain, say, told

from placecode.analysis.stats import Interval
from placecode.experiments.channels.brain_networks import (
    BY_VARIANT,
    LARGE,
    MIRROR,
    SMALL,
    Measure,
    by_split,
    connectivity,
    falls,
    variants,
)
from placecode.experiments.claims import HOLDS
from placecode.experiments.reading import done, measured
from placecode.runs.read import Run

RUN = "brain-preprocessing"
ABOUT = "the same people, recordings preprocessed in six ways: 4 sigmas x 5 seeds"
PICTURES = ("preprocessing",)
SHOWN: tuple[Measure, ...] = (
    ("modularity", "yeo7"),
    ("modularity", "cole-anticevic"),
    ("segregation", "yeo7"),
    ("segregation", "cole-anticevic"),
    MIRROR,
)


def in_short(run: Run, found: Findings) -> str:
    """The section in two sentences."""
    networks = found["yeo7-modularity-falls"]
    return say(
        all(finding.direction == HOLDS for finding in found.values())
        and below_connectivity(run, ("modularity", "yeo7")),
        "**True**: PEs of small sigma show known functional networks of the brain, PEs of large "
        f"sigma do not. Modularity of the Yeo-7 networks is higher at sigma {SMALL:g} than at {LARGE:g} by "
        f"{plain(networks.found)} or more in each of six ways to preprocess the recordings. Functional connectivity "
        "shows them better.",
    )


def section(run: Run, found: Findings) -> Iterator[str]:
    fields = run.config["fields"]
    yield "### Preprocessing"
    yield (
        "The same models on recordings that are preprocessed in six ways, "
        f"{len(fields['seeds'])} seeds, one for each split of the people (three splits where two people are left out)."
    )
    for measure in (("modularity", "yeo7"), MIRROR):
        yield table(run, measure)
    yield picture(
        *(RUN, "preprocessing", "Measures by variant of the preprocessing"),
        "Diamonds: functional connectivity of the same recordings, centred over regions as PEs are (for mirror regions "
        "as it is).",
    )
    yield from conclusions(run, found)


def table(run: Run, measure: Measure) -> str:
    """A measure by variant: at every sigma, the difference between the ends, and in functional connectivity."""
    values, sigmas = measured(run, *measure), run.config["fields"]["sigmas"]
    rows = []
    for variant in variants(run):
        means = [number(by_split(run, variant, values, sigma).mean()) for sigma in sigmas]
        beside = connectivity(run, variant, measure)
        level = number(sum(beside) / len(beside)) if beside else ""
        rows.append((variant, *means, told(falls(run, variant, measure)), level))
    header = (BY_VARIANT[measure], *(f"sigma {sigma:g}" for sigma in sigmas))
    return grid((*header, f"{SMALL:g} minus {LARGE:g}", "functional connectivity"), rows)


def by_variant(run: Run, measure: Measure) -> dict[str, Interval]:
    return {variant: falls(run, variant, measure) for variant in variants(run)}


def beyond_chance(run: Run, measure: Measure, ending: str, sigma: float) -> tuple[int, int]:
    """How many models of a sigma have p at most 0.05 against a null, and how many there are."""
    values = measured(run, f"{measure[0]}{ending}", measure[1])
    chances = values.loc[done(run).query("sigma == @sigma")["member"]]
    return int((chances <= 0.05).sum()), len(chances)


def below_connectivity(run: Run, measure: Measure) -> bool:
    """Whether the mean of the small sigma is below that of functional connectivity in every variant."""
    values = measured(run, *measure)
    levels = {variant: connectivity(run, variant, measure) for variant in variants(run)}
    return all(by_split(run, name, values, SMALL).mean() < sum(each) / len(each) for name, each in levels.items())


def conclusions(run: Run, found: Findings) -> Iterator[str]:
    networks = [measure for measure in SHOWN if measure != MIRROR]
    tests = [
        beyond_chance(run, measure, ending, sigma)
        for measure in networks
        for ending in ("_p", "_smooth_p")
        for sigma in (SMALL, 0.1)
    ]
    at_large = [beyond_chance(run, measure, ending, LARGE) for measure in networks for ending in ("_p", "_smooth_p")]
    yield say(
        all(finding.direction == HOLDS for finding in found.values())
        and all(low / total > 0.8 for low, total in tests)
        and all(low / total < 0.25 for low, total in at_large)
        and all(below_connectivity(run, measure) for measure in networks),
        f"**PEs of small sigma show known networks, PEs of sigma {LARGE:g} do not.** At {SMALL:g} and 0.1, modularity "
        "and segregation of either atlas lie above shuffled labels, and above surrogate maps with the same spatial "
        f"autocorrelation, in {min(low for low, _ in tests)} to {tests[0][1]} of {tests[0][1]} models (p at most "
        f"0.05). At {LARGE:g} they do in {min(low for low, _ in at_large)} to {max(low for low, _ in at_large)}; the "
        "six variants share their random starts, so one start by chance counts six times. Functional connectivity, "
        "centred as PEs are, shows the networks better in every variant.",
    )
    changes = {measure: by_variant(run, measure) for measure in SHOWN}
    none, *_, everything, fewer = variants(run)
    yeo, mirror = ({name: each.mean for name, each in changes[key].items()} for key in (("modularity", "yeo7"), MIRROR))
    yield say(
        all(each.low > 0 for own in changes.values() for each in own.values())
        and everything == "all three"
        and (min(yeo, key=yeo.__getitem__), max(yeo, key=yeo.__getitem__)) == (none, everything)
        and {*sorted(mirror, key=mirror.__getitem__)[:2]} == {everything, fewer}
        and abs(mirror[everything] - mirror[fewer]) < 0.005
        and abs(yeo[fewer] - yeo[none]) < 0.01
        and max(mirror.values()) - mirror[none] < 0.01,
        "**Preprocessing does not change the answer**: in all six variants every measure is higher at "
        f"{SMALL:g} than at {LARGE:g}, with the whole interval above 0. It changes the size: the difference in Yeo-7 "
        f"modularity is {yeo[none]:.2f} without preprocessing and {yeo[everything]:.2f} with all three steps, and that "
        f"in mirror regions {mirror[none]:.2f} and {mirror[everything]:.2f}. Without the two people who have little "
        f"autocorrelation, mirror regions are fewer too ({mirror[fewer]:.2f}), and networks as clear "
        f"({yeo[fewer]:.2f}).",
    )
