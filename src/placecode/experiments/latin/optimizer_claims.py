"""Claims on lst-optimizer and lst-decay: remarks of the paper, and questions beyond it.

Margins follow the rules of `knob_claims`, and were set before the runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd

from placecode.analysis import stats
from placecode.analysis.stats import Interval
from placecode.experiments.claims import Claim, NotInRun, paper_claim, reviewer_claim
from placecode.experiments.latin.effects import LARGE, SMALL, difference
from placecode.experiments.latin.knob_claims import EQUAL, HALF, Columns, between, of
from placecode.experiments.reading import accuracy, finished_members
from placecode.runs.read import Run

DECAYING = ("all", "rest", "pe")
"""Weights that decay: all, all but the PE ("rest"), or the PE alone."""


def decaying(part: str, amount: float) -> dict[str, float]:
    """Return the fields `weight_decay` and `pe_weight_decay` of a member with a decay of `amount` on a part of its
    weights, one of `DECAYING`."""
    return {"weight_decay": 0.0 if part == "pe" else amount, "pe_weight_decay": 0.0 if part == "rest" else amount}


def middle(values: Sequence[float]) -> float:
    """Return the usual one of several learning rates: the middle one, or the lower of the two in the middle."""
    return sorted(values)[(len(values) - 1) // 2]


# ---------------------------------------------------------------------------------------------------- weight decay


def strongest(run: Run) -> float:
    """Return the largest weight decay of the run, which claims are about. It was set to 3 before the run: with adamw
    and a learning rate of 1e-4, a weight without a gradient then shrinks to a fiftieth in 200 epochs. With a decay of
    0.1 it would only shrink to nine tenths."""
    return float(max(run.config["fields"]["decays"]))


def true_positions(run: Run, amount: float, values: pd.Series | None = None) -> pd.Series:
    """Return the OOD accuracy, or other `values` by member, of the 2d-fixed members with a weight decay of `amount`, by
    seed."""
    rows = finished_members(run)
    rows = rows[(rows["role"] == "reference") & (rows["weight_decay"] == amount)]
    if rows.empty:
        raise NotInRun(f"the run has no finished 2d-fixed members with weight decay {amount:g}")
    selected = rows["member"].map(accuracy(run) if values is None else values)
    return pd.Series(selected.to_numpy(), index=rows["seed"])


def gap_to_truth(run: Run, amount: float) -> pd.Series:
    """Return the OOD accuracy of 2d-fixed minus that of the learned PE at sigma 0.2, by seed, both with a weight decay
    of `amount` on all weights."""
    return true_positions(run, amount) - of(run, [SMALL], **decaying("all", amount))


def lifted(part: str, sigma: float, run: Run) -> Interval:
    """Return the OOD accuracy at one sigma with the strongest decay on a part of the weights minus that without
    decay."""
    return between(decaying(part, strongest(run)), decaying("all", 0.0), [sigma], run)


DECAY: tuple[Claim, ...] = (
    paper_claim(
        "decay-matches-2d-fixed",
        "With the strongest decay of the run the learned PE at sigma 0.2 is about as good as 2d-fixed (within 0.05; "
        "published: both 0.99).",
        lambda run: stats.interval(gap_to_truth(run, strongest(run)).dropna().to_numpy()),
        EQUAL,
        "within",
        published=0.0,
        tolerance=0.01,
    ),
    paper_claim(
        "there-is-a-gap-to-close",
        "Without weight decay, 2d-fixed is more accurate than the learned PE at sigma 0.2.",
        lambda run: stats.interval(gap_to_truth(run, 0.0).dropna().to_numpy()),
    ),
    paper_claim(
        "decay-closes-the-gap",
        "With that decay, the learned PE at sigma 0.2 is closer to 2d-fixed than without, paired by seed.",
        lambda run: difference(gap_to_truth(run, 0.0).abs(), gap_to_truth(run, strongest(run)).abs()),
    ),
    paper_claim(
        "decay-reaches-0.97",
        "With that decay on all weights the learned PE at sigma 0.2 is above 0.97 (published: 0.99).",
        lambda run: stats.interval(of(run, [SMALL], **decaying("all", strongest(run))).to_numpy()),
        0.97,
        published=0.99,
        tolerance=0.005,
    ),
    reviewer_claim(
        "decay-lifts-2d-fixed",
        "That decay makes 2d-fixed more accurate.",
        lambda run: difference(true_positions(run, strongest(run)), true_positions(run, 0.0)),
    ),
    *(
        reviewer_claim(
            f"decay-on-{part}-lifts",
            f"That decay on {words} raises accuracy at sigma 0.2.",
            partial(lifted, part, SMALL),
        )
        for part, words in (("all", "all weights"), ("rest", "all but the PE"), ("pe", "the PE alone"))
    ),
    reviewer_claim(
        "decay-on-pe-rescues-large-sigma",
        "That decay on the PE alone raises accuracy at sigma 2.0 by half of the published difference.",
        partial(lifted, "pe", LARGE),
        HALF,
    ),
)
"""Claims on lst-decay."""

# --------------------------------------------------------------------------------------------------------- optimizer

TINY = (0.01, 0.05, 0.1)
"""The sigmas at which the paper found that Adam does worse than SGD."""


def usual(optimizer: str, run: Run) -> dict[str, Any]:
    """Return the columns of the members with an optimizer at its usual learning rate and with no other change."""
    fields = run.config["fields"]
    rate = middle(fields["sgd_rates" if optimizer == "sgd" else "rates"])
    columns = {"optimizer": optimizer, "learning_rate": rate, "pe_learning_rate": None}
    return columns if optimizer == "sgd" else {**columns, "epsilon": fields["epsilon"]}


def dip(run: Run, columns: Columns) -> pd.Series:
    """Return the accuracy at sigma 0.2 minus the mean over the tiny sigmas, by seed."""
    return of(run, [SMALL], **columns) - of(run, TINY, **columns)


def dips(optimizer: str, run: Run) -> Interval:
    """Return the mean of `dip` over seeds for an optimizer at its usual learning rate."""
    return stats.interval(dip(run, usual(optimizer, run)).dropna().to_numpy())


def pe_rate(factor: float, run: Run) -> Interval:
    """Return how the accuracy of Adam at the tiny sigmas changes if the learning rate of the PE is `factor` times that
    of the other weights."""
    rate = factor * middle(run.config["fields"]["rates"])
    return between({**usual("adam", run), "pe_learning_rate": rate}, usual("adam", run), TINY, run)


OPTIMIZER: tuple[Claim, ...] = (
    paper_claim(
        "adam-dips",
        "Adam generalizes worse at sigma 0.01, 0.05 and 0.1 (their mean) than at 0.2.",
        partial(dips, "adam"),
    ),
    paper_claim(
        "sgd-does-not-dip",
        "SGD with momentum does not: at these sigmas it is about as good as at 0.2 (within 0.05).",
        partial(dips, "sgd"),
        EQUAL,
        "within",
    ),
    paper_claim(
        "adam-dips-more-than-sgd",
        "From sigma 0.2 to those below, the accuracy of Adam falls more than that of SGD.",
        lambda run: difference(dip(run, usual("adam", run)), dip(run, usual("sgd", run))),
    ),
    paper_claim(
        "sgd-beats-adam-at-tiny-sigma",
        "At those sigmas SGD generalizes better than Adam, both at their usual learning rate.",
        lambda run: between(usual("sgd", run), usual("adam", run), TINY, run),
    ),
    reviewer_claim(
        "slow-pe-mends-adam",
        "A learning rate of the PE of a tenth of the others' raises the accuracy of Adam there.",
        partial(pe_rate, 0.1),
    ),
    reviewer_claim(
        "fast-pe-harms-adam",
        "A learning rate of the PE of ten times the others' lowers it there.",
        partial(pe_rate, 10.0),
        way="below",
    ),
    reviewer_claim(
        "epsilon-mends-adam",
        "A large epsilon (1e-4), which makes Adam's steps depend on the size of the gradient as SGD's do, raises it "
        "there.",
        lambda run: between({**usual("adam", run), "epsilon": 1e-4}, usual("adam", run), TINY, run),
    ),
)
"""Claims on lst-optimizer."""
