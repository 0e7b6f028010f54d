"""The section of docs/reproduction.md on what the outcome on channels hangs on. `masked_sections.py` puts it in."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import small_sections
from masked_tables import Runs, chance, less_linear, paired, twins_table
from synergy_tables import models, tally
from wording import apart_from_zero, flipped, grid, number, picture, say, told

from placecode.analysis.stats import Interval
from placecode.figures import SIGMA
from placecode.runs import Run
from placecode.studies.masked_claims import MIRROR, NEIGHBOURS, SAME, SHIFTED, error, over
from placecode.studies.reading import at_sigma, done, measured
from placecode.studies.specs import named

RUNS = {
    "network-encodings": "every encoding on the networks, 5 seeds",
    "brain-encodings": "every encoding on the five people, 5 seeds",
    "synergy-encodings": "every encoding on 30 channels that no pairwise measure can see, 5 seeds",
    "network-sigma-window": "networks, five time points to a token: 3 sigmas x 5 seeds",
    "brain-sigma-window": "brains, five time points to a token: 3 sigmas x 5 seeds",
    "brain-mask": "brains, 15 to 90% hidden in training and in test: 3 sigmas x 5 seeds",
    **small_sections.RUNS,
}
PICTURES = {"brain-mask": ("errors",), "synergy-encodings": ("encodings",)}
ENCODINGS = ("network-encodings", "brain-encodings", "synergy-encodings")
LEARNED = "learned, sigma 0.2"
MIDDLE = ("relative", "rotary")
ALONE = ("none", "alibi", "causal-none")
SHARES = (0.15, 0.5, 0.75, 0.9)


def in_short(runs: Runs) -> Iterator[str]:
    fewer, random = gap(runs["brain-mask"], 0.9, 0.15, 0.01, 2.0), random_less_learned(runs)
    other = small_sections.to_fewer(runs)
    yield say(
        fewer.high < 0 < other.low,
        "**Small sigmas do generalize to fewer hidden channels than in training, on brains**: trained with 90% "
        f"hidden and tested with 15%, models of 0.01 are ahead of those of 2.0 by {told(flipped(fewer))}. On "
        f"networks, by small models, they are not: {told(flipped(other))}.",
    )
    yield say(
        random[0].high < 0.01 and random[1].high < 0.03 and not apart_from_zero(random[2]),
        "**To predict, a channel needs a name, learned or not**: frozen random vectors less learned PEs of 0.2 are "
        f"{told(random[0], digits=3)} in error on networks, {told(random[1], digits=3)} on brains and "
        f"{told(random[2])} where no correlation can see. What only learning at a small sigma gives is the map.",
    )


def choices(runs: Runs) -> Iterator[str]:
    yield "## What the outcome on channels hangs on"
    yield from encodings(runs)
    yield from shares(runs)
    yield from windows(runs)
    yield from small_sections.small_models(runs)


# ------------------------------------------------------------------------------------------------------ encodings


def encodings(runs: Runs) -> Iterator[str]:
    yield "### Other encodings"
    trained = {"network-encodings": SAME, "brain-encodings": SAME, "synergy-encodings": "hidden 0.3"}
    near = {name: MIRROR if "brain" in name else NEIGHBOURS for name in ENCODINGS}
    names = list(dict.fromkeys(each for name in ENCODINGS for each in _named(runs[name])["name"]))
    rows = []
    for name in sorted(names, key=lambda each: not each.startswith("learned")):
        cells = []
        for run in ENCODINGS:
            cells += [_mean(runs[run], error(runs[run], trained[run]), name)]
            cells += [_mean(runs[run], measured(runs[run], *near[run]), name)]
        rows.append((name, *cells))
    header = [words for what in ("network", "brain", "synergy") for words in (f"{what}: error", f"{what}: nearest")]
    yield grid(("encoding", *header), rows)
    yield (
        "Held-out error with as many hidden as in training, and how often the nearest channel in the encoding is of "
        "the same cluster, the mirror region, or of the same group; empty where an encoding was not run there, or "
        "gives a channel no vector of its own. 5 seeds. Nodes and channels are in random order, regions in that of "
        "the atlas."
    )
    yield picture("synergy-encodings", "encodings", "Every encoding where no correlation can see", "5 seeds.")
    brain, syn = (runs[name] for name in ENCODINGS[1:])
    random = random_less_learned(runs)
    nameless = {run: [less(runs[run], trained[run], each, LEARNED) for each in ALONE] for run in ENCODINGS}
    between = {run: [less(runs[run], trained[run], each, LEARNED) for each in MIDDLE] for run in ENCODINGS[:2]}
    few = [(name, runs[name]) for name in ("network-encodings", "synergy-encodings")]
    again, here = (
        tally(models(runs[name]).query("encoding == 'learned' and sigma == 0.2 and seed < 5"))
        for name in ("synergy-sigma", "synergy-encodings")
    )
    wider = less(syn, "hidden 0.3", "random, sigma 1", "random, sigma 0.2")
    yield say(
        all(each.low > 0.05 for gaps in nameless.values() for each in gaps)
        and all(_at(run, error(run, trained[name]), each).mean > 0.95 for name, run in few for each in ALONE)
        and all(each.low > 0 for gaps in between.values() for each in gaps)
        and 0 < random[0].low < random[0].high < 0.01
        and 0 < random[1].low < random[1].high < 0.03
        and not apart_from_zero(random[2])
        and wider.low > 0
        and _at(syn, measured(syn, *NEIGHBOURS), "random, sigma 0.2").mean < 0.1,
        "**To predict, a channel needs a name; it need not be a learned one.** Encodings by which a model can "
        f"hardly tell channels apart, or not at all ({', '.join(ALONE)}), predict next to nothing on networks and "
        "synergy, and on brains far less, what all regions share. Those that know but distances in the order of the "
        f"channels ({' and '.join(MIDDLE)}) are behind learned PEs of 0.2 by {told(between['network-encodings'][0])} "
        f"and {told(between['network-encodings'][1])} on networks. Frozen random vectors come close: less learned at "
        f"0.2 they cost {told(random[0], digits=3)} on networks, {told(random[1], digits=3)} on brains (both of "
        f"sigma 1), and on synergy, with the same sigma of 0.2, {told(random[2])}, undecided. There the scale "
        f"decides for frozen vectors too: 1 less 0.2 is {told(wider)}. What only learning at a small sigma gives is "
        "the map.",
    )
    yield say(
        (str(again), str(here)) == ("5 of 5", "3 of 5"),
        f"How much chance there is in synergy at batches of 128: of the same five learned models of 0.2 {again} end "
        f"at the least error in `synergy-sigma` and {here} here, for rounding alone, since they were stacked with "
        "other neighbours.",
    )
    pairs = _at(brain, measured(brain, *MIRROR), "1d-fixed")
    yield say(
        pairs.mean > 0.4,
        f"(1d-fixed has the mirror region nearest for {pairs.mean:.0%}, since the atlas lists it next to its twin: "
        "that is known before training, and no finding.)",
    )


def random_less_learned(runs: Runs) -> list[Interval]:
    """The error of frozen random vectors less that of PEs learned from 0.2, on networks, brains and synergy."""
    net, brain, syn = (runs[name] for name in ENCODINGS)
    return [
        less(net, SAME, "random, sigma 1", LEARNED),
        less(brain, SAME, "random, sigma 1", LEARNED),
        less(syn, "hidden 0.3", "random, sigma 0.2", LEARNED),
    ]


def _named(run: Run) -> pd.DataFrame:
    rows = named(done(run))
    return rows.assign(name=rows["name"].str.replace(SIGMA, "sigma"))


def _at(run: Run, values: pd.Series, name: str) -> Interval:
    rows = _named(run)
    rows = rows[rows["name"] == name]
    return over(run, pd.Series(rows["member"].map(values).to_numpy(), index=rows["seed"]))


def _mean(run: Run, values: pd.Series, name: str) -> str:
    rows = _named(run)
    found = rows.loc[rows["name"] == name, "member"].map(values).dropna()
    return number(found.mean()) if len(found) else ""


def less(run: Run, condition: str, one: str, other: str) -> Interval:
    """Error of one encoding less that of another, by seed."""
    rows = _named(run).assign(value=lambda table: table["member"].map(error(run, condition)))
    table = rows.pivot(index="seed", columns="name", values="value")
    return over(run, pd.Series(table[one] - table[other]))


# ------------------------------------------------------------------------------------- hidden channels, and windows


def shares(runs: Runs) -> Iterator[str]:
    run = runs["brain-mask"]
    yield "### How much is hidden, in training and in test"
    rows = []
    for trained in SHARES:
        for sigma in (0.01, 0.2, 2.0):
            own = _trained(run, trained, sigma)
            near = number(over(run, _of(own, measured(run, *MIRROR))).mean)
            errors = [number(over(run, _of(own, error(run, f"hidden {share:g}"))).mean) for share in SHARES]
            rows.append((f"{trained:.0%}", f"{sigma:g}", near, *errors))
    header = ("hidden in training", "sigma", "nearest region is the mirror region")
    yield grid((*header, *(f"error, {share:.0%} hidden" for share in SHARES)), rows)
    yield f"Brains, 5 seeds, one for each person held out. Chance for the mirror region: {chance(run, MIRROR):.3f}."
    yield picture("brain-mask", "errors", "Error by what is hidden in training", "A map for each share in test.")
    fewer = [gap(run, 0.9, share, 0.01, 2.0) for share in (0.15, 0.5, 0.75)]
    same = [gap(run, share, share, 0.01, 2.0) for share in SHARES]
    best = [gap(run, trained, trained, sigma, 0.2) for trained in SHARES for sigma in (0.01, 2.0)]
    more = [gap(run, trained, 0.9, 0.01, 2.0) for trained in (0.15, 0.5, 0.75)]
    yield say(
        all(each.high < 0 for each in fewer)
        and not any(apart_from_zero(each) for each in (*same, *more))
        and all(each.mean > 0 for each in best)
        and sum(each.low > 0 for each in best) == 7,
        "**Structure hangs on sigma at every share**, and 0.2 has the lowest error at every share that is tested as "
        "it was trained (of eight leads over 0.01 and 2.0 all but that over 2.0 at 90% are decided). **Where small "
        "sigmas generalize is to fewer hidden regions than in training**: of models trained with 90% hidden, those "
        f"of 0.01 are ahead of those of 2.0 by {told(flipped(fewer[0]))} with 15% hidden, {told(flipped(fewer[1]))} "
        f"with 50% and {told(flipped(fewer[2]))} with 75%. To more hidden ones, as the paper tests, no difference "
        "between the two is decided.",
    )


def _trained(run: Run, share: float, sigma: float) -> pd.DataFrame:
    rows = done(run)
    return rows[(rows["hidden"] == share) & (rows["sigma"] == sigma)]


def _of(rows: pd.DataFrame, values: pd.Series) -> pd.Series:
    return pd.Series(rows["member"].map(values).to_numpy(), index=rows["seed"])


def gap(run: Run, trained: float, tested: float, one: float, other: float) -> Interval:
    """Error at a sigma less that at another, of models trained with a share of the channels hidden and tested with
    another share."""
    values = error(run, f"hidden {tested:g}")
    return over(run, _of(_trained(run, trained, one), values) - _of(_trained(run, trained, other), values))


def windows(runs: Runs) -> Iterator[str]:
    yield "### Five time points to a token"
    for name, measures in (
        ("network-sigma", {NEIGHBOURS: "nearest node in the same cluster", ("ari", "labels"): "ARI of k-means"}),
        ("brain-sigma", {MIRROR: "nearest region is the mirror region"}),
    ):
        short, long = runs[name], runs[f"{name}-window"]
        yield f"{name.split('-')[0].capitalize()}s, the same five seeds of both:"
        yield twins_table(short, long, measures, (SAME, SHIFTED), "window", "time points")
    net, brain = runs["network-sigma-window"], runs["brain-sigma-window"]
    short = runs["network-sigma"]
    lost = over(net, _drop(net, short, NEIGHBOURS, 0.01))
    leads = [paired(each, SAME, sigma, 0.2) for each in (net, brain) for sigma in (0.01, 2.0)]
    behind = over(net, less_linear(net, 0.2, SAME))
    ahead = over(brain, less_linear(brain, 0.2, SAME))
    yield say(
        lost.high < 0
        and all(each.low > 0 for each in leads)
        and behind.low > 0
        and ahead.high < 0
        and max(paired(short, SAME, sigma, 0.2).high for sigma in (0.01, 2.0)) < 0.01
        and mean_at(net, NEIGHBOURS, 0.01) > 0.75 > 0.25 > mean_at(net, NEIGHBOURS, 2.0)
        and mean_at(brain, MIRROR, 0.01) > 0.5 > 0.05 > mean_at(brain, MIRROR, 2.0),
        "**With windows structure hangs on sigma as before, and on networks the error does more.** With half hidden "
        f"0.2 is ahead of 0.01 by {told(leads[0], digits=3)} and of 2.0 by {told(leads[1], digits=3)} on networks, "
        f"by {told(leads[2], digits=3)} and {told(leads[3], digits=3)} on brains. Clusters show a little less at "
        f"0.01 than with single time points, {told(lost)}. A linear predictor of all five time points is still ahead "
        f"of 0.2 on networks, by {told(behind, digits=3)}; on brains it is behind, by "
        f"{told(flipped(ahead), digits=3)}, perhaps since it has 25 times as many numbers to learn from the same "
        "people.",
    )


def mean_at(run: Run, what: tuple[str, str], sigma: float) -> float:
    return over(run, at_sigma(run, measured(run, *what), sigma)).mean


def _drop(long: Run, short: Run, what: tuple[str, str], sigma: float) -> pd.Series:
    return (at_sigma(long, measured(long, *what), sigma) - at_sigma(short, measured(short, *what), sigma)).dropna()
