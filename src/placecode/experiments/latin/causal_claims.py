"""Cause or trace? The manipulations of lst-causal by name, and claims about them, each with its control.

Margins were set before the run, by the rules of `knob_claims`: none (zero) for "helps at all", half of the published
difference for an effect as large as that of sigma, 0.05 for "about equal". Controls that differ in nothing but rounding
must stay within 0.02, those that are a matter of chance (another random draw) within 0.05. That a PE which is never
trained does as well was known from an earlier run with frozen PEs. Differences are taken seed by seed.
"""

from __future__ import annotations

from functools import partial

from placecode.analysis import stats
from placecode.experiments.claims import OURS, REVIEWERS, Claim
from placecode.experiments.latin import interventions
from placecode.experiments.latin.causal_effects import (
    BY_RATE,
    FIXED,
    MASTER,
    NONE,
    SMALLS,
    TRUE_START,
    TWIN,
    TWIN_AGAIN,
    between,
    early,
    exchanged,
    of,
    sizes,
    twins,
)
from placecode.experiments.latin.effects import LARGE, SMALL
from placecode.experiments.latin.knob_claims import EQUAL, HALF
from placecode.experiments.reading import measured

ROUNDING = 0.02
CONTROL = "a control: must do nothing"
LATER = "asked after the first answers were known"


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "training-the-pe-is-not-needed",
        "A PE frozen at its random start generalizes about as well as a learned one (within 0.05), mean over sizes 0.1 "
        "to 0.5.",
        REVIEWERS,
        EQUAL,
        partial(between, "learned", "random, frozen", SMALLS),
        "within",
        remark="known from an earlier run",
    ),
    Claim(
        "transplant-helps",
        "A fresh model does better with a donor's learned PE than with the donor's untrained one, both frozen.",
        REVIEWERS,
        0.0,
        partial(between, "donor's, frozen", "untrained donor's, frozen", SMALLS),
    ),
    Claim(
        "transplant-speeds-up",
        "With a donor's learned PE it does better after a quarter of the training.",
        REVIEWERS,
        0.0,
        partial(early, "donor's, frozen", "untrained donor's, frozen", SMALLS),
    ),
    Claim(
        "arrangement-of-the-transplant-helps",
        "A donor's PE does better than the same with its cells in random order, both frozen.",
        REVIEWERS,
        0.0,
        partial(between, "donor's, frozen", "donor's shuffled, frozen", SMALLS),
    ),
    Claim(
        "rows-and-columns-help",
        "A PE made of a random vector for each row and each column does better than a random one of the same size, "
        "both frozen.",
        REVIEWERS,
        0.0,
        partial(between, "rows and columns, frozen", "random, frozen", SMALLS),
    ),
    Claim(
        "rows-and-columns-speed-up",
        "A PE of rows and columns does so after a quarter of the training.",
        REVIEWERS,
        0.0,
        partial(early, "rows and columns, frozen", "random, frozen", SMALLS),
    ),
    Claim(
        "2d-fixed-helps",
        "2d-fixed does better than a random PE of the same size, both frozen.",
        REVIEWERS,
        0.0,
        partial(between, "true, frozen", "random, frozen", SMALLS),
    ),
    Claim(
        "starting-at-the-truth-helps",
        "A PE that starts at 2d-fixed and is learned on does better than one that starts at random.",
        REVIEWERS,
        0.0,
        partial(between, "true, learned on", "learned", SMALLS),
    ),
    Claim(
        "size-spoils-a-learned-pe",
        "A donor's PE of sigma 0.2 loses half of the published difference when it is made as large as 2.0.",
        REVIEWERS,
        HALF,
        partial(sizes, "donor's of 0.2 rescaled, frozen"),
    ),
    Claim(
        "size-mends-a-learned-pe",
        "A donor's PE of sigma 2.0 gains as much when it is made as small as 0.2.",
        REVIEWERS,
        HALF,
        partial(sizes, "donor's of 2.0 rescaled, frozen"),
    ),
    Claim(
        "rows-and-columns-rescue-a-large-size",
        "At size 2.0 a PE of rows and columns does better than a random one by half of the published difference.",
        REVIEWERS,
        HALF,
        partial(between, "rows and columns, frozen", "random, frozen", [LARGE]),
    ),
    Claim(
        "masters-learned",
        "Donors trained by SGD from a tiny start have learned rows and columns: the RSA of their PEs with the relation "
        "of cells is above 0.4.",
        REVIEWERS,
        0.4,
        lambda run: stats.interval(of(run, MASTER, None, measured(run, "rsa", "relation")).to_numpy()),
        remark=LATER,
    ),
    Claim(
        "what-masters-learned-helps",
        "A fresh model does better with such a donor's PE than with the same, its cells in random order, both frozen "
        "and brought to the same size, mean over sizes 0.1 to 0.5.",
        REVIEWERS,
        0.0,
        partial(between, "master's, frozen", "master's shuffled, frozen", SMALLS),
        remark=LATER,
    ),
    Claim(
        "what-masters-learned-helps-at-1.0",
        "So it does at size 1.0.",
        REVIEWERS,
        0.0,
        partial(between, "master's, frozen", "master's shuffled, frozen", [1.0]),
        remark=LATER,
    ),
    Claim(
        "what-masters-learned-beats-random",
        "It does better with it than with a random PE of the same size, frozen, mean over sizes 0.1 to 0.5.",
        REVIEWERS,
        0.0,
        partial(between, "master's, frozen", "random, frozen", SMALLS),
        remark=LATER,
    ),
    Claim(
        "size-spoils-what-masters-learned",
        "Such a PE, too, loses half of the published difference when it is made as large as 2.0 instead of 0.2.",
        REVIEWERS,
        HALF,
        partial(sizes, "master's, frozen"),
        remark=LATER,
    ),
    Claim(
        "centring-helps-2d-fixed",
        "2d-fixed less its mean over the cells does better than 2d-fixed of the same size, both frozen.",
        REVIEWERS,
        0.0,
        partial(between, "true centred, frozen", "true, frozen", SMALLS),
        remark=LATER,
    ),
    Claim(
        "centred-2d-fixed-beats-random",
        "2d-fixed less its mean over the cells does better than a random PE of the same size, both frozen.",
        REVIEWERS,
        0.0,
        partial(between, "true centred, frozen", "random, frozen", SMALLS),
        remark=LATER,
    ),
    Claim(
        "sgd-needs-a-learned-pe",
        "By SGD a learned PE generalizes better than one frozen at random, mean over sizes 0.1 to 0.5.",
        REVIEWERS,
        0.0,
        partial(between, "learned, by SGD", "random, frozen, by SGD", SMALLS),
        remark=LATER,
    ),
    Claim(
        "sgd-minds-size",
        "By SGD, too, size 0.2 is worth half of the published difference over 2.0.",
        REVIEWERS,
        HALF,
        partial(sizes, "learned, by SGD"),
        remark=LATER,
    ),
    Claim(
        "a-trained-model-needs-what-its-pe-learned",
        "A trained model of sigma 0.1 or 0.2 loses accuracy when its PE is put back to its start.",
        REVIEWERS,
        0.0,
        partial(exchanged, "learned", SMALLS[:2], interventions.START),
    ),
    Claim(
        "a-trained-model-needs-its-own-pe",
        "A trained model of sigma 0.2 loses half of the published difference when it gets the PE of another seed.",
        REVIEWERS,
        HALF,
        partial(exchanged, "learned", [SMALL], interventions.OTHER_SEED),
    ),
    Claim(
        "swapped-small-for-large",
        "So it does with the PE of sigma 2.0.",
        REVIEWERS,
        HALF,
        partial(exchanged, "learned", [SMALL], interventions.OTHER_SIGMA),
    ),
    Claim(
        "swapped-large-for-small",
        "A trained model of sigma 2.0 does no better with the PE of sigma 0.2 (it gains less than 0.05).",
        REVIEWERS,
        -EQUAL,
        partial(exchanged, "learned", [LARGE], interventions.OTHER_SIGMA),
    ),
    Claim(
        "control-freezing",
        "A PE frozen by a step size of zero is one that is frozen.",
        OURS,
        ROUNDING,
        partial(twins, BY_RATE, "random, frozen", None, SMALL),
        "within",
        remark=CONTROL,
    ),
    Claim(
        "control-starting-at-the-truth",
        "A PE frozen at the true start, at its own size, is 2d-fixed.",
        OURS,
        ROUNDING,
        partial(twins, TRUE_START, FIXED, None, None),
        "within",
        remark=CONTROL,
    ),
    Claim(
        "control-transplant",
        "A model that gets its own untrained PE by a transplant is the model that has it.",
        OURS,
        ROUNDING,
        partial(twins, TWIN_AGAIN, TWIN, None, None),
        "within",
        remark=CONTROL,
    ),
    Claim(
        "control-transplant-of-another",
        "A donor's untrained PE does as well as one's own random one.",
        OURS,
        EQUAL,
        partial(between, "untrained donor's, frozen", "random, frozen", SMALLS),
        "within",
        remark=CONTROL,
    ),
    Claim(
        "control-rescaling-a-donor",
        "A donor's PE of sigma 0.2, brought to the size 0.2, does as well as it is.",
        OURS,
        EQUAL,
        partial(between, "donor's of 0.2 rescaled, frozen", "donor's, frozen", [SMALL]),
        "within",
        remark=CONTROL,
    ),
    Claim(
        "control-shuffling",
        "A trained model whose PE is shuffled together with the cells loses nothing.",
        OURS,
        ROUNDING,
        partial(exchanged, "learned", SMALLS, interventions.WITH_CELLS),
        "within",
        remark=CONTROL,
    ),
    Claim(
        "control-swapping",
        "A trained model whose PE is exchanged for itself loses nothing.",
        OURS,
        ROUNDING,
        partial(exchanged, "learned", SMALLS, interventions.ITSELF),
        "within",
        remark=CONTROL,
    ),
    Claim(
        "control-rescaling",
        "A trained model whose PE is multiplied by 1 loses nothing.",
        OURS,
        ROUNDING,
        partial(exchanged, "learned", SMALLS, interventions.times(1.0)),
        "within",
        remark=CONTROL,
    ),
    Claim(
        "control-putting-back",
        "A trained model whose PE was frozen loses nothing when it is put back to its start.",
        OURS,
        ROUNDING,
        partial(exchanged, "random, frozen", SMALLS, interventions.START),
        "within",
        remark=CONTROL,
    ),
    Claim(
        "control-ablating",
        "A model that was trained without a PE loses nothing when it is taken away.",
        OURS,
        ROUNDING,
        partial(exchanged, NONE, None, interventions.NOTHING),
        "within",
        remark=CONTROL,
    ),
)
