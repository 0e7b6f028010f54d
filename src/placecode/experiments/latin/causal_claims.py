"""Claims on lst-causal: is the learned PE a cause of generalization? Each manipulation of the PE has a control.

Margins were set before the run, by the rules of `knob_claims`: zero for "helps at all", half of the published
difference between sigma 0.2 and 2.0 for an effect as large as that of sigma, 0.05 for "about equal". Controls that
differ in rounding only must stay within 0.02, and those with other random numbers within 0.05. An earlier run had
already shown that a frozen PE does as well as a learned one. All differences are paired by seed. The size of a PE is
its root mean square. A donor is a model whose PE is copied into another. In claim ids, a master is a donor that is
trained by SGD. Masters were added after the first results: PEs of donors trained by Adam hardly learn an arrangement.
"""

from __future__ import annotations

from functools import partial

from placecode.analysis import stats
from placecode.experiments.claims import Claim, EffectFunction, our_claim, reviewer_claim
from placecode.experiments.latin import interventions
from placecode.experiments.latin.causal_effects import (
    BY_RATE,
    FIXED,
    NONE,
    SGD_DONOR,
    TRUE_START,
    TWIN,
    TWIN_AGAIN,
    manipulation_difference,
    manipulation_values,
    size_effect,
    swap_effect,
)
from placecode.experiments.latin.effects import LARGE, SMALL, SMALL_SIGMAS, difference
from placecode.experiments.latin.knob_claims import EQUAL_MARGIN, HALF_PUBLISHED_EFFECT
from placecode.experiments.reading import analysis_values, early_accuracy

ROUNDING = 0.02
"""Margin for controls that differ in rounding only."""
CONTROL = "a control: must do nothing"
"""Remark on claims about controls, manipulations that must not change accuracy."""
later_claim = partial(reviewer_claim, remark="asked after the first answers were known")
"""Function that makes the claims that were added when the first results of lst-causal were known."""


def control(id: str, statement: str, measure: EffectFunction, margin: float = ROUNDING) -> Claim:
    """Return a claim that a manipulation has no effect: the interval of its effect lies between -margin and margin."""
    return our_claim(id, statement, measure, margin, "within", remark=CONTROL)


CAUSAL_CLAIMS: tuple[Claim, ...] = (
    reviewer_claim(
        "training-the-pe-is-not-needed",
        "A PE frozen at its random start generalizes about as well as a learned one (within 0.05), mean over sizes 0.1 "
        "to 0.5.",
        partial(manipulation_difference, "learned", "random, frozen", SMALL_SIGMAS),
        EQUAL_MARGIN,
        "within",
        remark="known from an earlier run",
    ),
    reviewer_claim(
        "transplant-helps",
        "A new model does better with a donor's learned PE than with the donor's untrained PE, both frozen.",
        partial(manipulation_difference, "donor's, frozen", "untrained donor's, frozen", SMALL_SIGMAS),
    ),
    reviewer_claim(
        "transplant-speeds-up",
        "With a donor's learned PE it also does better after a quarter of the training.",
        partial(
            manipulation_difference, "donor's, frozen", "untrained donor's, frozen", SMALL_SIGMAS, values=early_accuracy
        ),
    ),
    reviewer_claim(
        "arrangement-of-the-transplant-helps",
        "A donor's PE does better than the same PE with its cells in random order, both frozen.",
        partial(manipulation_difference, "donor's, frozen", "donor's shuffled, frozen", SMALL_SIGMAS),
    ),
    reviewer_claim(
        "rows-and-columns-help",
        "A PE made of a random vector for each row and each column does better than a random PE of the same size, both "
        "frozen.",
        partial(manipulation_difference, "rows and columns, frozen", "random, frozen", SMALL_SIGMAS),
    ),
    reviewer_claim(
        "rows-and-columns-speed-up",
        "A PE of rows and columns also does better after a quarter of the training.",
        partial(
            manipulation_difference, "rows and columns, frozen", "random, frozen", SMALL_SIGMAS, values=early_accuracy
        ),
    ),
    reviewer_claim(
        "2d-fixed-helps",
        "2d-fixed does better than a random PE of the same size, both frozen.",
        partial(manipulation_difference, "true, frozen", "random, frozen", SMALL_SIGMAS),
    ),
    reviewer_claim(
        "starting-at-the-truth-helps",
        "A PE that starts at 2d-fixed and is trained does better than one that starts at random.",
        partial(manipulation_difference, "true, learned on", "learned", SMALL_SIGMAS),
    ),
    reviewer_claim(
        "size-spoils-a-learned-pe",
        "A donor's PE of sigma 0.2 loses half of the published difference when it is rescaled to size 2.0.",
        partial(size_effect, "donor's of 0.2 rescaled, frozen"),
        HALF_PUBLISHED_EFFECT,
    ),
    reviewer_claim(
        "size-mends-a-learned-pe",
        "A donor's PE of sigma 2.0 gains as much when it is rescaled to size 0.2.",
        partial(size_effect, "donor's of 2.0 rescaled, frozen"),
        HALF_PUBLISHED_EFFECT,
    ),
    reviewer_claim(
        "rows-and-columns-rescue-a-large-size",
        "At size 2.0 a PE of rows and columns does better than a random PE by half of the published difference.",
        partial(manipulation_difference, "rows and columns, frozen", "random, frozen", [LARGE]),
        HALF_PUBLISHED_EFFECT,
    ),
    later_claim(
        "masters-learned",
        "Donors trained by SGD from a tiny start have learned rows and columns: the RSA of their PEs with the relation "
        "of cells is above 0.4.",
        lambda run: stats.interval(manipulation_values(run, SGD_DONOR, None, analysis_values(run, "rsa", "relation"))),
        0.4,
    ),
    later_claim(
        "what-masters-learned-helps",
        "A new model does better with such a donor's PE than with the same PE with its cells in random order, both "
        "frozen and of the same size, mean over sizes 0.1 to 0.5.",
        partial(manipulation_difference, "master's, frozen", "master's shuffled, frozen", SMALL_SIGMAS),
    ),
    later_claim(
        "what-masters-learned-helps-at-1.0",
        "It also does better at size 1.0.",
        partial(manipulation_difference, "master's, frozen", "master's shuffled, frozen", [1.0]),
    ),
    later_claim(
        "what-masters-learned-beats-random",
        "It does better with it than with a random frozen PE of the same size, mean over sizes 0.1 to 0.5.",
        partial(manipulation_difference, "master's, frozen", "random, frozen", SMALL_SIGMAS),
    ),
    later_claim(
        "size-spoils-what-masters-learned",
        "Such a PE, too, loses half of the published difference at size 2.0 compared with 0.2.",
        partial(size_effect, "master's, frozen"),
        HALF_PUBLISHED_EFFECT,
    ),
    later_claim(
        "centring-helps-2d-fixed",
        "2d-fixed minus its mean over the cells does better than 2d-fixed of the same size, both frozen.",
        partial(manipulation_difference, "true centred, frozen", "true, frozen", SMALL_SIGMAS),
    ),
    later_claim(
        "centred-2d-fixed-beats-random",
        "2d-fixed minus its mean over the cells does better than a random PE of the same size, both frozen.",
        partial(manipulation_difference, "true centred, frozen", "random, frozen", SMALL_SIGMAS),
    ),
    later_claim(
        "sgd-needs-a-learned-pe",
        "With SGD a learned PE generalizes better than a random frozen one, mean over sizes 0.1 to 0.5.",
        partial(manipulation_difference, "learned, by SGD", "random, frozen, by SGD", SMALL_SIGMAS),
    ),
    later_claim(
        "sgd-minds-size",
        "With SGD, too, accuracy is higher at size 0.2 than at 2.0 by half of the published difference.",
        partial(size_effect, "learned, by SGD"),
        HALF_PUBLISHED_EFFECT,
    ),
    reviewer_claim(
        "a-trained-model-needs-what-its-pe-learned",
        "A trained model of sigma 0.1 or 0.2 loses accuracy when its PE is reset to its start.",
        partial(swap_effect, "learned", SMALL_SIGMAS[:2], interventions.START),
    ),
    reviewer_claim(
        "a-trained-model-needs-its-own-pe",
        "A trained model of sigma 0.2 loses half of the published difference when it gets the PE of another seed.",
        partial(swap_effect, "learned", [SMALL], interventions.OTHER_SEED),
        HALF_PUBLISHED_EFFECT,
    ),
    reviewer_claim(
        "swapped-small-for-large",
        "It loses as much with the PE of sigma 2.0.",
        partial(swap_effect, "learned", [SMALL], interventions.OTHER_SIGMA),
        HALF_PUBLISHED_EFFECT,
    ),
    reviewer_claim(
        "swapped-large-for-small",
        "A trained model of sigma 2.0 does no better with the PE of sigma 0.2 (it gains less than 0.05).",
        partial(swap_effect, "learned", [LARGE], interventions.OTHER_SIGMA),
        -EQUAL_MARGIN,
    ),
    control(
        "control-freezing",
        "A PE with a learning rate of zero gives the same accuracy as a frozen one.",
        lambda run: difference(manipulation_values(run, BY_RATE), manipulation_values(run, "random, frozen", [SMALL])),
    ),
    control(
        "control-starting-at-the-truth",
        "A PE frozen at the true start, at its own size, gives the same accuracy as 2d-fixed.",
        partial(manipulation_difference, TRUE_START, FIXED, None),
    ),
    control(
        "control-transplant",
        "A model that gets its own untrained PE by a transplant has the same accuracy as without the transplant.",
        partial(manipulation_difference, TWIN_AGAIN, TWIN, None),
    ),
    control(
        "control-transplant-of-another",
        "A donor's untrained PE does as well as the model's own random PE.",
        partial(manipulation_difference, "untrained donor's, frozen", "random, frozen", SMALL_SIGMAS),
        EQUAL_MARGIN,
    ),
    control(
        "control-rescaling-a-donor",
        "A donor's PE of sigma 0.2, rescaled to size 0.2, does as well as without rescaling.",
        partial(manipulation_difference, "donor's of 0.2 rescaled, frozen", "donor's, frozen", [SMALL]),
        EQUAL_MARGIN,
    ),
    control(
        "control-shuffling",
        "A trained model whose PE is shuffled together with the cells loses nothing.",
        partial(swap_effect, "learned", SMALL_SIGMAS, interventions.WITH_CELLS),
    ),
    control(
        "control-swapping",
        "A trained model whose PE is exchanged for itself loses nothing.",
        partial(swap_effect, "learned", SMALL_SIGMAS, interventions.ITSELF),
    ),
    control(
        "control-rescaling",
        "A trained model whose PE is multiplied by 1 loses nothing.",
        partial(swap_effect, "learned", SMALL_SIGMAS, interventions.times(1.0)),
    ),
    control(
        "control-putting-back",
        "A trained model whose PE was frozen loses nothing when it is reset to its start.",
        partial(swap_effect, "random, frozen", SMALL_SIGMAS, interventions.START),
    ),
    control(
        "control-ablating",
        "A model that was trained without a PE loses nothing when the PE is removed.",
        partial(swap_effect, NONE, None, interventions.NOTHING),
    ),
)
"""Claims on the experiment lst-causal."""
