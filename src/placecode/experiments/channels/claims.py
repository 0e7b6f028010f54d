"""What the paper says about structure in PEs of masked prediction, and what we say, as claims.

Margins were set before any run at full scale, from the prototype and from runs at quick scale, which are known: for
single numbers what was asked for beforehand (neighbours at the smallest and the largest sigma); for differences between
sigmas half of the prototype's; 0.02 for errors that are said to be equal; and none, that is zero, for "better at all".
A seed has its own network or its own draw of channels, so every interval is over seeds and worlds at once. On brains a
world is a split of the people: seeds of the same split are averaged first, and the interval is over splits, whose
people to learn from overlap; where there is a single split, it is over seeds, and says nothing of other people.

The paper's networks and people are not ours, so its claims are either found on our data or not; no number of it is
compared.
"""

from __future__ import annotations

from functools import partial

import pandas as pd

from placecode.analysis import stats
from placecode.analysis.stats import Interval
from placecode.experiments.claims import OURS, PAPER, REVIEWERS, Claim, NotInRun
from placecode.experiments.reading import at_sigma, chance_in, done, measured, swept
from placecode.runs.read import Run


def over(run: Run, values: pd.Series) -> Interval:
    """The mean of values by seed with its interval: over worlds, seeds of one averaged first; over seeds if all are in
    the same."""
    kept, worlds = values.dropna(), worlds_of(run)
    if kept.empty:
        raise NotInRun("the run has no seed that finished at all that is compared")
    if worlds > 1:
        kept = kept.groupby(kept.index.to_numpy() % worlds).mean()
    return stats.interval(kept.to_numpy())


def worlds_of(run: Run) -> int:
    return int(run.config["shape"]["worlds"])


def structure_at(analysis: str, target: str, sigma: float, run: Run) -> Interval:
    return over(run, at_sigma(run, measured(run, analysis, target), sigma))


def structure_between(analysis: str, target: str, small: float, large: float, run: Run) -> Interval:
    values = measured(run, analysis, target)
    return over(run, at_sigma(run, values, small) - at_sigma(run, values, large))


def gained(analysis: str, target: str, sigma: float, run: Run) -> Interval:
    """After less before training."""
    values = measured(run, analysis, target) - measured(run, analysis, target, "start")
    return over(run, at_sigma(run, values, sigma))


def error(run: Run, condition: str, split: str = "test") -> pd.Series:
    """Error at the last step, by member."""
    trained, usual = run.config["fields"]["hidden"], 0.3 if run.config["study"].startswith("synergy") else 0.5
    if trained != usual:
        raise NotInRun(f"members were trained with {trained:g} hidden, and not with {usual:g}")
    rows = run.metrics[(run.metrics["metric"] == "mse") & (run.metrics["condition"] == condition)]
    rows = rows[(rows["split"] == split) & (rows["step"] == rows["step"].max())]
    if rows.empty:
        raise NotInRun(f"the run has no {split} error with {condition}")
    return pd.Series(rows.set_index("member")["value"])


def error_between(condition: str, small: float, large: float, run: Run) -> Interval:
    values = error(run, condition)
    return over(run, at_sigma(run, values, small) - at_sigma(run, values, large))


def less_baseline(
    name: str, metric: str, condition: str, sigma: float, run: Run, analysis: tuple[str, str] | None = None
) -> Interval:
    """Members of a sigma less a baseline in their own world: an error, or with `analysis` a measure of structure."""
    rows = run.baselines
    rows = rows[(rows["baseline"] == name) & (rows["metric"] == metric) & (rows["condition"] == condition)]
    rows = rows[rows["split"].isin(["test", "analysis"])]
    if rows.empty:
        raise NotInRun(f"the run has no {metric} of the baseline {name}")
    by_world = rows.set_index("world")["value"]
    values = at_sigma(run, measured(run, *analysis) if analysis else error(run, condition), sigma)
    worlds = worlds_of(run)
    theirs = pd.Series([by_world.get(int(seed) % worlds, float("nan")) for seed in values.index], index=values.index)
    return over(run, values - theirs)


def baseline_beyond_chance(name: str, run: Run) -> Interval:
    """By how much the nearest channel by a pairwise measure is of the same group more often than a random one.

    One that sees no link at all, as the graphical lasso may, has no nearest channel: that is chance. (This was decided
    when the first run at full scale was known: in 14 of its 15 worlds there is none.)
    """
    rows = run.baselines
    rows = rows[(rows["baseline"] == name) & (rows["metric"] == "neighbor_agreement")]
    if rows.empty:
        raise NotInRun(f"the run has no structure of the baseline {name}")
    chance = chance_in(run.config["task"])[NEIGHBOURS]
    return stats.interval(rows["value"].fillna(chance).to_numpy() - chance)


def beyond_best(condition: str, sigma: float, run: Run) -> Interval:
    """Error less the best that anyone can reach."""
    best = run.config["task"].get("best_mse", {}).get(condition)
    if best is None:
        raise NotInRun(f"the least possible error with {condition} is not known")
    return over(run, at_sigma(run, error(run, condition), sigma) - best)


def best_sigma_is_small(condition: str, most: float, run: Run) -> Interval:
    """Mean error over sigmas up to `most` less that over larger ones, paired by seed."""
    table = swept(run).assign(value=lambda rows: rows["member"].map(error(run, condition)))
    small, large = (
        table[part].groupby("seed")["value"].mean() for part in (table["sigma"] <= most, table["sigma"] > most)
    )
    return over(run, small - large)


def of_second_half(condition: str, sigma: float, start: str, learn: bool, run: Run) -> pd.Series:
    """Error by seed of the members of brain-transfer that learned from the second half, by how their PE came about."""
    rows = done(run)
    rows = rows[(rows["data"] == "second half") & (rows["sigma"] == sigma)]
    rows = rows[(rows["start"] == start) & (rows["learn"] == learn)]
    if rows.empty:
        raise NotInRun(f"the run has no finished members of the second half with sigma {sigma:g} and start {start}")
    return pd.Series(rows["member"].map(error(run, condition)).to_numpy(), index=rows["seed"])


Kind = tuple[float, str, bool]
"""Sigma, start, and whether the PE is trained."""


def transfer(condition: str, one: Kind, other: Kind, run: Run) -> Interval:
    return over(run, of_second_half(condition, *one, run) - of_second_half(condition, *other, run))


def halves_agree(small: float, large: float, run: Run) -> Interval:
    """How alike PEs of two halves of the people are, from other seeds: at a small sigma less at a large one."""
    values, rows = measured(run, "stability", "other data"), done(run)
    rows = rows[(rows["data"] == "second half") & rows["learn"] & (rows["start"] == "normal")]
    table = rows.assign(value=rows["member"].map(values)).pivot(index="sigma", columns="seed", values="value")
    if not {small, large} <= set(table.index):
        raise NotInRun(f"the run has no finished members with sigma {small:g} and {large:g}")
    return over(run, pd.Series(table.loc[small]) - pd.Series(table.loc[large]))


SAME, SHIFTED = "hidden 0.5", "hidden 0.9"
NEIGHBOURS = ("neighbor_agreement", "labels")

BEATS_LINEAR = Claim(
    "beats-linear",
    "At sigma 0.2 the error is below that of the best linear predictor.",
    REVIEWERS,
    0.0,
    partial(less_baseline, "linear", "mse", SAME, 0.2),
    "below",
)


def predictions(channels: str, whom: str) -> tuple[Claim, ...]:
    """That small sigmas predict better, with as many channels hidden as in training, which reviewers asked for, and
    with more, as in the paper."""
    return tuple(
        Claim(
            f"small-sigma-predicts-better{ending}",
            f"Small sigmas (up to 0.5) predict{whom} better than larger ones, with {how} hidden {than} in training.",
            label,
            0.0,
            partial(best_sigma_is_small, condition, 0.5),
            "below",
            own_data=True,
        )
        for ending, condition, how, than, label in (
            ("", SAME, f"as many {channels}", "as", REVIEWERS),
            ("-shifted", SHIFTED, f"more {channels}", "than", PAPER),
        )
    )


NETWORK: tuple[Claim, ...] = (
    Claim(
        "small-sigma-shows-clusters",
        "At sigma 0.01 the nearest node in the PE is of the same cluster for 80% or more.",
        PAPER,
        0.8,
        partial(structure_at, *NEIGHBOURS, 0.01),
        own_data=True,
    ),
    Claim(
        "large-sigma-shows-none",
        "At sigma 2.0 it is for 35% or less (chance: 20%).",
        PAPER,
        0.35,
        partial(structure_at, *NEIGHBOURS, 2.0),
        "below",
        own_data=True,
    ),
    Claim(
        "clusters-fall-with-sigma",
        "The nearest node in the PE is of the same cluster more often at sigma 0.01 than at 2.0 (prototype: by 0.78).",
        PAPER,
        0.39,
        partial(structure_between, *NEIGHBOURS, 0.01, 2.0),
        own_data=True,
    ),
    Claim(
        "clusters-are-learned",
        "At sigma 0.01 clusters show after training more than before it.",
        OURS,
        0.39,
        partial(gained, *NEIGHBOURS, 0.01),
    ),
    Claim(
        "modularity-falls-with-sigma",
        "The signed modularity of the PE is higher at 0.01 than at 2.0.",
        PAPER,
        0.0,
        partial(structure_between, "modularity", "labels", 0.01, 2.0),
        own_data=True,
    ),
    *predictions("nodes", ""),
    Claim(
        "error-hardly-moves",
        "The error at 0.01 is that at 2.0 within 0.02, with as many nodes hidden as in training.",
        OURS,
        0.02,
        partial(error_between, SAME, 0.01, 2.0),
        "within",
    ),
    BEATS_LINEAR,
    Claim(
        "beats-correlation",
        "The PE at sigma 0.01 shows clusters better than plain correlation does.",
        REVIEWERS,
        0.0,
        partial(less_baseline, "fc", "neighbor_agreement", "labels", 0.01, analysis=NEIGHBOURS),
    ),
)

SYNERGY: tuple[Claim, ...] = (
    Claim(
        "groups-are-found",
        "At sigma 0.2 the nearest channel in the PE is of the same group for 90% or more.",
        OURS,
        0.9,
        partial(structure_at, *NEIGHBOURS, 0.2),
    ),
    Claim(
        "large-sigma-finds-none",
        "At sigma 2.0 it is for 40% or less.",
        OURS,
        0.4,
        partial(structure_at, *NEIGHBOURS, 2.0),
        "below",
    ),
    Claim(
        "error-is-the-least-possible",
        "At sigma 0.2 the error is within 0.02 of the least that anyone can reach.",
        OURS,
        0.02,
        partial(beyond_best, "hidden 0.3", 0.2),
        "below",
    ),
    Claim(
        "error-hangs-on-sigma",
        "The error at 0.2 is lower than at 2.0 (prototype: by 0.49).",
        OURS,
        -0.24,
        partial(error_between, "hidden 0.3", 0.2, 2.0),
        "below",
    ),
    *(
        Claim(
            f"blind-{name.replace(' ', '-')}",
            f"By {words} the nearest channel is of the same group no more often than a random one.",
            OURS,
            0.1,
            partial(baseline_beyond_chance, name),
            "below",
        )
        for name, words in (
            ("fc", "correlation"),
            ("mutual information", "mutual information"),
            ("partial correlation", "partial correlation"),
        )
    ),
)

MIRROR = ("mirror_agreement", "partner")

BRAIN: tuple[Claim, ...] = (
    Claim(
        "small-sigma-shows-mirrors",
        "At sigma 0.01 the nearest region in the PE is the mirror region for 30% or more.",
        OURS,
        0.3,
        partial(structure_at, *MIRROR, 0.01),
    ),
    Claim(
        "large-sigma-shows-none",
        "At sigma 2.0 it is for 5% or less (chance: 1%).",
        OURS,
        0.05,
        partial(structure_at, *MIRROR, 2.0),
        "below",
    ),
    Claim(
        "connectivity-falls-with-sigma",
        "Similarity of PEs goes with functional connectivity more at 0.01 than at 2.0 (prototype: by 0.42).",
        PAPER,
        0.21,
        partial(structure_between, "fc_correlation", "fc", 0.01, 2.0),
        own_data=True,
    ),
    Claim(
        "modularity-falls-with-sigma",
        "The best partition of the PE has a higher modularity at 0.01 than at 2.0.",
        PAPER,
        0.0,
        partial(structure_between, "modularity", "best", 0.01, 2.0),
        own_data=True,
    ),
    *predictions("regions", " held-out people"),
    BEATS_LINEAR,
    Claim(
        "beats-correlation",
        "The PE at sigma 0.01 shows mirror regions better than functional connectivity does.",
        REVIEWERS,
        0.0,
        partial(less_baseline, "fc", "mirror_agreement", "partner", 0.01, analysis=MIRROR),
    ),
)

OWN, TAKEN, SHUFFLED, RANDOM = ("normal", True), ("taken", False), ("shuffled", False), ("normal", False)

TRANSFER: tuple[Claim, ...] = (
    Claim(
        "another-half-serves-as-well",
        "A PE learned at sigma 0.01 from other people and frozen serves as well as one's own: errors within 0.02.",
        REVIEWERS,
        0.02,
        partial(transfer, SAME, (0.01, *TAKEN), (0.01, *OWN)),
        "within",
    ),
    Claim(
        "another-half-beats-shuffled",
        "It serves better than the same PE with its regions shuffled.",
        REVIEWERS,
        0.0,
        partial(transfer, SAME, (0.01, *TAKEN), (0.01, *SHUFFLED)),
        "below",
    ),
    Claim(
        "another-half-beats-random",
        "It serves better than a random PE of sigma 0.5, frozen.",
        REVIEWERS,
        0.0,
        partial(transfer, SAME, (0.01, *TAKEN), (0.5, *RANDOM)),
        "below",
    ),
    Claim(
        "large-sigma-has-nothing-to-give",
        "At sigma 2.0 shuffling another's PE costs nothing: errors within 0.02.",
        REVIEWERS,
        0.02,
        partial(transfer, SAME, (2.0, *SHUFFLED), (2.0, *TAKEN)),
        "within",
    ),
    Claim(
        "halves-agree",
        "PEs from two halves of the people, of other seeds, are more alike at sigma 0.01 than at 2.0.",
        REVIEWERS,
        0.0,
        partial(halves_agree, 0.01, 2.0),
    ),
)
