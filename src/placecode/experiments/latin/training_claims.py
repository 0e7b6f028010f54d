"""Claims on lst-frozen and lst-slingshot. All margins were set before these studies were run with the authors' loss.

Frozen PEs at epoch 200 and some models of either loss were known from earlier runs. Margins: 0.05 for accuracies that
are said to be about equal, 0.02 for "does not change any more" (the authors' logs), half of the earlier difference for
the effect of where the PE is added, and 0 for claims on the sign alone.
"""

from __future__ import annotations

from functools import partial

import pandas as pd

from placecode.analysis import stats
from placecode.analysis.stats import Interval
from placecode.experiments.claims import OURS, PAPER, REVIEWERS, Claim, NotInRun
from placecode.experiments.latin.claims import LOGS, TRAINING
from placecode.experiments.latin.effects import LARGE, SMALL, difference
from placecode.experiments.reading import accuracy, swept
from placecode.experiments.reading import where as of_members
from placecode.runs.read import Run

EARLY = 200
"""The epoch that accuracy at the end is compared with."""
EQUAL, SETTLED = 0.05, 0.02
USUAL = tuple(sigma for sigma in (0.1, 0.2, 0.5, 1.0, 1.5, 2.0))
"""Sigmas of lst-frozen that are not very small."""
LEARNED = {"learn": True, "start": "normal", "placement": "every"}
FROZEN = {**LEARNED, "learn": False}
SIZED = {**FROZEN, "start": "sized"}
AT_INPUT = {**LEARNED, "placement": "input"}


def gap(one: dict[str, object], other: dict[str, object], sigmas: tuple[float, ...], run: Run) -> Interval:
    """OOD accuracy of one kind of PE minus that of another, the mean over sigmas, paired by seed."""
    right = accuracy(run)
    return difference(of_members(run, right, sigmas, **one), of_members(run, right, sigmas, **other))


def less_at_input(run: Run) -> Interval:
    """By how much the effect of sigma (0.2 minus 2.0) is larger with the PE in every block than at the input alone."""
    right = accuracy(run)
    every, alone = (
        of_members(run, right, (SMALL,), **kind) - of_members(run, right, (LARGE,), **kind)
        for kind in (LEARNED, AT_INPUT)
    )
    return difference(every, alone)


FROZEN_CLAIMS: tuple[Claim, ...] = (
    Claim(
        "learning-is-not-needed",
        "With sigma from 0.1 to 2, OOD accuracy is about the same (within 0.05) whether the PE is learned or frozen at "
        "its random start.",
        REVIEWERS,
        EQUAL,
        partial(gap, LEARNED, FROZEN, USUAL),
        "within",
    ),
    *(
        Claim(
            f"learning-helps-at-{sigma:g}",
            f"At sigma {sigma:g}, a learned PE has a higher OOD accuracy than one that is frozen at its start.",
            OURS,
            0.0,
            partial(gap, LEARNED, FROZEN, (sigma,)),
        )
        for sigma in (0.01, 0.05)
    ),
    *(
        Claim(
            f"size-is-what-is-learned-at-{sigma:g}",
            f"At sigma {sigma:g}, frozen random vectors of the size that the learned PE ends with do about as well "
            "(within 0.05) as the learned PE.",
            OURS,
            EQUAL,
            partial(gap, SIZED, LEARNED, (sigma,)),
            "within",
        )
        for sigma in (0.01, 0.05)
    ),
    Claim(
        "input-alone-shrinks-the-effect",
        "The effect of sigma (OOD accuracy at 0.2 minus that at 2.0) is larger by more than 0.22 with the PE in every "
        "block than at the input alone.",
        REVIEWERS,
        0.22,
        less_at_input,
    ),
    *TRAINING,
)


# ------------------------------------------------------------------------------------------------ lst-slingshot


def late_gain(run: Run) -> pd.Series:
    """OOD accuracy at the end minus that at epoch 200, by member."""
    epochs, last = run.config["fields"]["epochs"], int(run.metrics["step"].max())
    if epochs <= EARLY:
        raise NotInRun(f"the run ends at epoch {epochs}")
    return accuracy(run) - accuracy(run, step=last // epochs * EARLY)


def gains_of(run: Run, times: int, sigma: float, learn: bool = True) -> pd.Series:
    """Late gains by seed of the members with so many log-softmax."""
    rows = swept(run)
    rows = rows[(rows["data"] == f"log_softmax={times}") & (rows["sigma"] == sigma) & (rows["learn"] == learn)]
    if rows.empty:
        raise NotInRun(f"the run has no finished members with {times} log-softmax and sigma {sigma:g}")
    return rows.set_index("seed")["member"].map(late_gain(run))


def one_against_two(sigma: float, run: Run) -> Interval:
    return difference(gains_of(run, 1, sigma), gains_of(run, 2, sigma))


def gain_with(times: int, sigma: float, learn: bool, run: Run) -> Interval:
    return stats.interval(gains_of(run, times, sigma, learn).dropna().to_numpy())


SLINGSHOT_CLAIMS: tuple[Claim, ...] = (
    *(
        Claim(
            f"settled-by-200-at-{sigma:g}",
            f"With two log-softmax, OOD accuracy at sigma {sigma:g} changes by less than 0.02 after epoch 200.",
            PAPER,
            SETTLED,
            partial(gain_with, 2, sigma, True),
            "within",
            remark=LOGS,
        )
        for sigma in (0.2, 1.0, 2.0)
    ),
    *(
        Claim(
            f"slingshots-raise-accuracy-at-{sigma:g}",
            f"At sigma {sigma:g}, OOD accuracy rises more after epoch 200 with one log-softmax than with two.",
            OURS,
            0.0,
            partial(one_against_two, sigma),
        )
        for sigma in (0.2, 1.0, 2.0)
    ),
    *(
        Claim(
            f"slingshots-raise-frozen-at-{sigma:g}",
            f"With one log-softmax and a frozen PE, OOD accuracy at sigma {sigma:g} rises after epoch 200.",
            OURS,
            0.0,
            partial(gain_with, 1, sigma, False),
        )
        for sigma in (0.2, 1.0, 2.0)
    ),
)
