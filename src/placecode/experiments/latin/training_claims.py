"""Claims on the experiments lst-frozen (frozen PEs) and lst-slingshot (spikes of the loss due to rounding errors).

Margins were set before the runs with the loss of the paper's authors, which applies log-softmax twice. Earlier runs had
shown the accuracy of frozen PEs at epoch 200, and of some models with each loss. Margins are 0.05 for accuracies that
are said to be about equal, 0.02 for one that is said to change no more (as in the authors' training logs), and 0
for claims on the sign of a difference. The margin for the claim on where the PE is added is half of the difference in
the earlier runs.
"""

from __future__ import annotations

from functools import partial

from placecode.analysis import stats
from placecode.analysis.stats import Interval
from placecode.experiments.claims import Claim, our_claim, paper_claim, reviewer_claim
from placecode.experiments.latin.claims import FROM_LOGS, TRAINING_SPEED_CLAIMS
from placecode.experiments.latin.effects import LARGE, late_gain
from placecode.experiments.latin.knob_claims import EQUAL_MARGIN, accuracy_difference, sigma_effect_difference
from placecode.experiments.reading import MAX_SETTLED_CHANGE, Columns, mean_over_sigmas
from placecode.experiments.sweeps import data_name
from placecode.runs.read import Run

USUAL_SIGMAS = (0.1, 0.2, 0.5, 1.0, 1.5, 2.0)
"""The sigmas of lst-frozen that are not very small."""
TINY_SIGMAS = (0.01, 0.05)
"""The very small sigmas of lst-frozen."""
LEARNED = {"learn": True, "start": "normal", "placement": "every"}
"""Column values that select the members of lst-frozen with a learned PE in every block."""
FROZEN = {**LEARNED, "learn": False}
"""Column values that select the members whose PE is frozen at its random initial values."""
DONOR_SIZE = {**FROZEN, "start": "donor-size"}
"""Column values that select the members whose PE is a frozen random one. It is scaled to the norm that the PE of
another member, the donor, has after training."""
AT_INPUT = {**LEARNED, "placement": "input"}
"""Column values that select the members with a learned PE that is added only at the input."""


FROZEN_CLAIMS: tuple[Claim, ...] = (
    reviewer_claim(
        "learning-is-not-needed",
        "With sigma from 0.1 to 2, OOD accuracy is about the same (within 0.05) whether the PE is learned or frozen at "
        "its random start.",
        partial(accuracy_difference, LEARNED, FROZEN, USUAL_SIGMAS),
        EQUAL_MARGIN,
        "within",
    ),
    *(
        our_claim(
            f"learning-helps-at-{sigma:g}",
            f"At sigma {sigma:g}, a learned PE has a higher OOD accuracy than one that is frozen at its start.",
            partial(accuracy_difference, LEARNED, FROZEN, (sigma,)),
        )
        for sigma in TINY_SIGMAS
    ),
    *(
        our_claim(
            f"size-is-what-is-learned-at-{sigma:g}",
            f"At sigma {sigma:g}, frozen random vectors of the size that the learned PE ends with do about as well "
            "(within 0.05) as the learned PE.",
            partial(accuracy_difference, DONOR_SIZE, LEARNED, (sigma,)),
            EQUAL_MARGIN,
            "within",
        )
        for sigma in TINY_SIGMAS
    ),
    reviewer_claim(
        "input-alone-shrinks-the-effect",
        "The effect of sigma (OOD accuracy at 0.2 minus that at 2.0) is larger by more than 0.22 with the PE in every "
        "block than at the input alone.",
        partial(sigma_effect_difference, LEARNED, AT_INPUT, LARGE),
        0.22,
    ),
    *TRAINING_SPEED_CLAIMS,
)
"""Claims on the experiment lst-frozen."""


# ------------------------------------------------------------------------------------------------ lst-slingshot


ONE_LOG_SOFTMAX, TWO_LOG_SOFTMAX = ({"data": data_name({"log_softmax": times}), "learn": True} for times in (1, 2))
"""Column values that select the members of lst-slingshot with a learned PE, and with a loss that applies log-softmax
once or twice."""
ONE_LOG_SOFTMAX_FROZEN = {**ONE_LOG_SOFTMAX, "learn": False}
"""Column values that select the members with one log-softmax and a frozen PE."""


def mean_late_gain(columns: Columns, sigma: float, run: Run) -> Interval:
    """Return the mean over seeds of the late gain (OOD accuracy at the end minus that at epoch 200) of the members with
    these column values at one sigma."""
    return stats.interval(mean_over_sigmas(run, late_gain(run), [sigma], **columns))


SLINGSHOT_SIGMAS = (0.2, 1.0, 2.0)
"""The sigmas of lst-slingshot."""
SLINGSHOT_CLAIMS: tuple[Claim, ...] = (
    *(
        paper_claim(
            f"settled-by-200-at-{sigma:g}",
            f"With two log-softmax, OOD accuracy at sigma {sigma:g} changes by less than 0.02 after epoch 200.",
            partial(mean_late_gain, TWO_LOG_SOFTMAX, sigma),
            MAX_SETTLED_CHANGE,
            "within",
            remark=FROM_LOGS,
        )
        for sigma in SLINGSHOT_SIGMAS
    ),
    *(
        our_claim(
            f"slingshots-raise-accuracy-at-{sigma:g}",
            f"At sigma {sigma:g}, OOD accuracy rises more after epoch 200 with one log-softmax than with two.",
            partial(accuracy_difference, ONE_LOG_SOFTMAX, TWO_LOG_SOFTMAX, [sigma], values=late_gain),
        )
        for sigma in SLINGSHOT_SIGMAS
    ),
    *(
        our_claim(
            f"slingshots-raise-frozen-at-{sigma:g}",
            f"With one log-softmax and a frozen PE, OOD accuracy at sigma {sigma:g} rises after epoch 200.",
            partial(mean_late_gain, ONE_LOG_SOFTMAX_FROZEN, sigma),
        )
        for sigma in SLINGSHOT_SIGMAS
    ),
)
"""Claims on the experiment lst-slingshot."""
