"""Claims on lst-frozen (frozen PEs) and lst-slingshot (slingshots: late spikes of the training loss, due to rounding).

All margins were set before these experiments were run with the loss of the paper's authors, but after earlier runs that
had shown the accuracy of frozen PEs at epoch 200, and of some models with each loss. Margins are 0.05 for accuracies
that are claimed to be about equal, and 0.02 for an accuracy that is claimed to change no more (as in the authors'
logs). They are half of the difference in the earlier runs for the effect of where the PE is added, and 0 for claims on
the sign of a difference. The late gain is the OOD accuracy at the end of training minus that at epoch 200.
"""

from __future__ import annotations

from functools import partial

import pandas as pd

from placecode.analysis import stats
from placecode.analysis.stats import Interval
from placecode.experiments.claims import Claim, our_claim, paper_claim, reviewer_claim
from placecode.experiments.latin.claims import LOGS, TRAINING
from placecode.experiments.latin.effects import EARLY as EARLY
from placecode.experiments.latin.effects import LARGE, accuracy_at_early, difference
from placecode.experiments.latin.knob_claims import EQUAL, between, worth_between
from placecode.experiments.reading import accuracy, mean_over_sigmas
from placecode.experiments.sweeps import data_name
from placecode.runs.read import Run

SETTLED = 0.02
"""Largest change of accuracy that counts as no change."""
USUAL = (0.1, 0.2, 0.5, 1.0, 1.5, 2.0)
"""Sigmas of lst-frozen that are not very small."""
TINY = (0.01, 0.05)
"""The very small sigmas of lst-frozen."""
LEARNED = {"learn": True, "start": "normal", "placement": "every"}
"""Columns of the members with a learned PE in every block. FROZEN, SIZED and AT_INPUT are the other kinds of
lst-frozen."""
FROZEN = {**LEARNED, "learn": False}
SIZED = {**FROZEN, "start": "sized"}
AT_INPUT = {**LEARNED, "placement": "input"}


FROZEN_CLAIMS: tuple[Claim, ...] = (
    reviewer_claim(
        "learning-is-not-needed",
        "With sigma from 0.1 to 2, OOD accuracy is about the same (within 0.05) whether the PE is learned or frozen at "
        "its random start.",
        partial(between, LEARNED, FROZEN, USUAL),
        EQUAL,
        "within",
    ),
    *(
        our_claim(
            f"learning-helps-at-{sigma:g}",
            f"At sigma {sigma:g}, a learned PE has a higher OOD accuracy than one that is frozen at its start.",
            partial(between, LEARNED, FROZEN, (sigma,)),
        )
        for sigma in TINY
    ),
    *(
        our_claim(
            f"size-is-what-is-learned-at-{sigma:g}",
            f"At sigma {sigma:g}, frozen random vectors of the size that the learned PE ends with do about as well "
            "(within 0.05) as the learned PE.",
            partial(between, SIZED, LEARNED, (sigma,)),
            EQUAL,
            "within",
        )
        for sigma in TINY
    ),
    reviewer_claim(
        "input-alone-shrinks-the-effect",
        "The effect of sigma (OOD accuracy at 0.2 minus that at 2.0) is larger by more than 0.22 with the PE in every "
        "block than at the input alone.",
        partial(worth_between, LEARNED, AT_INPUT, LARGE),
        0.22,
    ),
    *TRAINING,
)
"""Claims on lst-frozen."""


# ------------------------------------------------------------------------------------------------ lst-slingshot


def late_gain(run: Run) -> pd.Series:
    """Return the late gain, the OOD accuracy at the end minus that at epoch 200, by member."""
    early = accuracy_at_early(run)
    return accuracy(run) - early


def gains_of(run: Run, count: int, sigma: float, learn: bool = True) -> pd.Series:
    """Return the late gains by seed of the members at one sigma whose loss applies log-softmax `count` times (1 or 2),
    with a learned or frozen PE."""
    return mean_over_sigmas(run, late_gain(run), [sigma], data=data_name({"log_softmax": count}), learn=learn)


def one_against_two(sigma: float, run: Run) -> Interval:
    """Return the late gain with one log-softmax minus that with two, at one sigma."""
    return difference(gains_of(run, 1, sigma), gains_of(run, 2, sigma))


def gain_with(count: int, sigma: float, learn: bool, run: Run) -> Interval:
    """Return the mean late gain of the members that `gains_of` selects."""
    return stats.interval(gains_of(run, count, sigma, learn).to_numpy())


SIGMAS = (0.2, 1.0, 2.0)
"""The sigmas of lst-slingshot."""
SLINGSHOT_CLAIMS: tuple[Claim, ...] = (
    *(
        paper_claim(
            f"settled-by-200-at-{sigma:g}",
            f"With two log-softmax, OOD accuracy at sigma {sigma:g} changes by less than 0.02 after epoch 200.",
            partial(gain_with, 2, sigma, True),
            SETTLED,
            "within",
            remark=LOGS,
        )
        for sigma in SIGMAS
    ),
    *(
        our_claim(
            f"slingshots-raise-accuracy-at-{sigma:g}",
            f"At sigma {sigma:g}, OOD accuracy rises more after epoch 200 with one log-softmax than with two.",
            partial(one_against_two, sigma),
        )
        for sigma in SIGMAS
    ),
    *(
        our_claim(
            f"slingshots-raise-frozen-at-{sigma:g}",
            f"With one log-softmax and a frozen PE, OOD accuracy at sigma {sigma:g} rises after epoch 200.",
            partial(gain_with, 1, sigma, False),
        )
        for sigma in SIGMAS
    ),
)
"""Claims on lst-slingshot."""
