"""Cause or trace? The manipulations of lst-causal by name, and claims about them, each with its control.

Margins were set before the run, by the rules of `knob_claims`: none (zero) for "helps at all", half of the published
difference for an effect as large as that of sigma, 0.05 for "about equal". Controls that differ in nothing but rounding
must stay within 0.02, those that are a matter of chance (another random draw) within 0.05. That a PE which is never
trained does as well was known from an earlier run with frozen PEs. Differences are taken seed by seed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from placecode.analysis import stats
from placecode.analysis.stats import Interval
from placecode.experiments.claims import OURS, REVIEWERS, Claim, NotInRun
from placecode.experiments.latin import interventions
from placecode.experiments.latin.claims import LARGE, SMALL, difference
from placecode.experiments.latin.knob_claims import EQUAL, HALF
from placecode.experiments.reading import accuracy, by_seed, early_accuracy, measured, planned
from placecode.runs.read import Run

DONORS = 1000
"""What the seed of a donor has more than that of the model it gives its PE to."""
TWINS = 2000
"""What the seeds of the control of transplants have more: models that get their own untrained PE from themselves."""
MASTERS = 3000
"""What the seeds of donors have more that are trained so that their PE learns the arrangement: by SGD, from a tiny
start."""
SMALLS = (0.1, 0.2, 0.5)
"""The sizes at which models generalize; effects of arrangement are means over these."""
TRUE_SIZE = 0.5**0.5
"""The root mean square of sines and cosines: at this size the start "true" is 2d-fixed itself."""
ROUNDING = 0.02
CONTROL = "a control: must do nothing"
LATER = "asked after the first answers were known"

KINDS: dict[str, dict[str, Any]] = {
    "learned": {},
    "random, frozen": {"learn": False},
    "true, frozen": {"start": "true", "learn": False},
    "true, learned on": {"start": "true"},
    "rows and columns, frozen": {"start": "axes", "learn": False},
    "rows and columns, learned on": {"start": "axes"},
    "untrained donor's, frozen": {"start": "before", "learn": False, "donor": "own"},
    "donor's, frozen": {"start": "taken", "learn": False, "donor": "own"},
    "donor's, learned on": {"start": "taken", "donor": "own"},
    "donor's shuffled, frozen": {"start": "shuffled", "learn": False, "donor": "own"},
    "donor's of 0.2 rescaled, frozen": {"start": "rescaled", "learn": False, "donor": SMALL},
    "donor's of 2.0 rescaled, frozen": {"start": "rescaled", "learn": False, "donor": LARGE},
}
"""What is done to the PE before training, at every size: the fields of a member; `donor` is the sigma of the donor."""
LATER_KINDS: dict[str, dict[str, Any]] = {
    "master's, frozen": {"start": "rescaled", "learn": False, "donor": MASTERS},
    "master's shuffled, frozen": {"start": "rescaled-shuffled", "learn": False, "donor": MASTERS},
    "true centred, frozen": {"start": "centred", "learn": False},
    "learned, by SGD": {"optimizer": "sgd"},
    "random, frozen, by SGD": {"learn": False, "optimizer": "sgd"},
}
"""The same, asked once the first were answered: donors by Adam had learned little. Masters' PEs are brought to each
size."""
BY_RATE, TRUE_START, FIXED, NONE = "frozen by its step size", "2d-fixed as a start", "2d-fixed", "no PE"
MASTER, DONOR, TWIN, TWIN_AGAIN = "master", "donor", "twin, frozen", "twin's own untrained one, transplanted"


def kind_of(members: pd.DataFrame) -> list[str]:
    """What was done to the PE of each member."""
    told = ["member", "seed", "sigma", "encoding", "options", "start", "learn", "optimizer"]
    told += ["pe_learning_rate", "origin"]
    rows = [dict(zip(told, row, strict=True)) for row in zip(*(members[name].tolist() for name in told), strict=True)]
    donors = {row["member"]: MASTERS if row["seed"] >= MASTERS else row["sigma"] for row in rows}
    return [_kind(row, donors) for row in rows]


def _kind(row: Mapping[str, Any], donors: Mapping[int, float]) -> str:
    if row["encoding"] != "learned":
        return FIXED if json.loads(row["options"]).get("axes") == 2 else NONE
    if row["seed"] >= MASTERS:
        return MASTER
    if row["seed"] >= TWINS:
        return TWIN if row["start"] == "normal" else TWIN_AGAIN
    if row["seed"] >= DONORS:
        return DONOR
    if row["pe_learning_rate"] == 0:
        return BY_RATE
    if row["start"] == "true" and np.isclose(row["sigma"], TRUE_SIZE) and not row["learn"]:
        return TRUE_START
    scaled = row["start"].startswith("rescaled")  # else the start says whose PE it is
    own = (row["start"], row["learn"], row["optimizer"] == "sgd", donors[row["origin"]] if scaled else None)
    for name, given in {**KINDS, **LATER_KINDS}.items():
        start, by_sgd = given.get("start", "normal"), given.get("optimizer") == "sgd"
        if own == (start, given.get("learn", True), by_sgd, given["donor"] if scaled and "donor" in given else None):
            return name
    raise ValueError(f"member {row['member']} is of no kind of lst-causal")


def of(run: Run, kind: str, sigmas: Sequence[float] | None = None, values: pd.Series | None = None) -> pd.Series:
    """Held-out accuracy (or other values) by seed, the mean over those of these sizes that the run has; None for kinds
    that have a single size."""
    rows = run.members.assign(kind=kind_of(run.members))
    rows = rows[(rows["state"] == "done") & (rows["kind"] == kind)]
    rows = rows.assign(value=rows["member"].map(accuracy(run) if values is None else values))
    if rows.empty:
        raise NotInRun(f"the run has no finished members of the kind {kind}")
    if sigmas is None:
        return pd.Series(rows.set_index("seed")["value"])
    table = by_seed(rows)
    wanted = planned(run, sigmas)
    if missing := [sigma for sigma in wanted if sigma not in table.columns]:
        raise NotInRun(f"the run has no finished members of the kind {kind} with sigma {missing[0]:g}")
    return pd.Series(table[wanted].dropna().mean(axis="columns"))


def between(one: str, other: str, sigmas: Sequence[float], run: Run) -> Interval:
    """Accuracy with one kind of PE less that with another, at the same sizes."""
    return difference(of(run, one, sigmas), of(run, other, sigmas))


def early(one: str, other: str, sigmas: Sequence[float], run: Run) -> Interval:
    """The same after a quarter of the training."""
    values = early_accuracy(run)
    return difference(of(run, one, sigmas, values), of(run, other, sigmas, values))


def sizes(kind: str, run: Run) -> Interval:
    """What the small size is worth over the large one, the arrangement being the same."""
    return difference(of(run, kind, [SMALL]), of(run, kind, [LARGE]))


def twins(one: str, other: str, one_sigma: float | None, other_sigma: float | None, run: Run) -> Interval:
    """Two ways of the same: what they differ in is rounding."""
    at = [None if sigma is None else [sigma] for sigma in (one_sigma, other_sigma)]
    return difference(of(run, one, at[0]), of(run, other, at[1]))


def exchanged(kind: str, sigmas: Sequence[float] | None, name: str, run: Run) -> Interval:
    """What a trained model loses when its PE is exchanged."""
    values = measured(run, interventions.ACCURACY_WITH, name)
    return difference(of(run, kind, sigmas), of(run, kind, sigmas, values))


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
