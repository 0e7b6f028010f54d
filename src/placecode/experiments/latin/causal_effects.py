"""The manipulations of lst-causal by name, and their effects, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from placecode.analysis.stats import Interval
from placecode.experiments.claims import NotInRun
from placecode.experiments.latin import interventions
from placecode.experiments.latin.effects import LARGE, SMALL, difference
from placecode.experiments.reading import accuracy, by_seed, done, early_accuracy, measured, planned
from placecode.runs.read import Run

DONORS = 1000
"""Offset from a model's seed to its donor's."""


TWINS = 2000
"""Offset of the seeds of the control of transplants: models that get the untrained PE of a copy of themselves."""


MASTERS = 3000
"""Offset of the seeds of donors whose PE learns the arrangement: trained by SGD, from a tiny start."""


SMALLS = (0.1, 0.2, 0.5)
"""The sizes at which models generalize; effects of arrangement are means over these."""


TRUE_SIZE = 0.5**0.5
"""The root mean square of sines and cosines: at this size the start "true" is 2d-fixed itself."""


LEARNED = "learned"
KINDS: dict[str, dict[str, Any]] = {
    LEARNED: {},
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


def of(run: Run, kind: str, sigmas: Sequence[float] | None = None, values: pd.Series | None = None) -> pd.Series:
    """Held-out accuracy (or other values) by seed, the mean over those of these sizes that the run has; None for kinds
    that have a single size."""
    rows = done(run)
    rows = rows[rows["label"] == kind]
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
    """Accuracy with one kind of PE minus that with another, at the same sizes."""
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
