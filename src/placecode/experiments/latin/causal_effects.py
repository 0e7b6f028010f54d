"""The manipulations of the PE in lst-causal by name, and functions that return their effects on accuracy, paired by
seed.

The size of a PE is its root mean square. A transplant copies the PE of one model, the donor, into another model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from placecode.analysis.stats import Interval
from placecode.experiments.claims import NotInRun
from placecode.experiments.latin import interventions
from placecode.experiments.latin.effects import LARGE, SMALL, difference
from placecode.experiments.reading import (
    accuracy,
    analysis_values,
    by_seed,
    early_accuracy,
    finished_members,
    swept_sigmas,
)
from placecode.runs.read import Run

MASTER = "master"
"""Label of donors whose PEs learn the arrangement: they are trained by SGD from a tiny start."""
SMALLS = (0.1, 0.2, 0.5)
"""The sizes at which models generalize. Effects of the arrangement are means over these sizes."""
LEARNED = "learned"
"""Label of the members with a random start and a learned PE, the usual case."""
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
"""Fields of the members of each kind, by label. Each kind is trained at every size. `donor` is the sigma of the donor
whose PE is copied ("own": the sigma of the member itself)."""
LATER_KINDS: dict[str, dict[str, Any]] = {
    "master's, frozen": {"start": "rescaled", "learn": False, "donor": MASTER},
    "master's shuffled, frozen": {"start": "rescaled-shuffled", "learn": False, "donor": MASTER},
    "true centred, frozen": {"start": "centred", "learn": False},
    "learned, by SGD": {"optimizer": "sgd"},
    "random, frozen, by SGD": {"learn": False, "optimizer": "sgd"},
}
"""Kinds that were added after the first results had shown that donors trained by Adam learn little. The PEs of masters
are rescaled to each size."""
BY_RATE, TRUE_START, FIXED, NONE = "frozen by its step size", "2d-fixed as a start", "2d-fixed", "no PE"
"""Labels of controls: frozen by a learning rate of zero; started and frozen at the true arrangement; 2d-fixed; no
PE."""
DONOR, TWIN, TWIN_AGAIN = "donor", "twin, frozen", "twin's own untrained one, transplanted"
"""Labels of donors and twins. A twin has a frozen random PE; its copy gets that PE by a transplant and must do the
same."""


def of(run: Run, kind: str, sigmas: Sequence[float] | None = None, values: pd.Series | None = None) -> pd.Series:
    """Return the OOD accuracy of one kind by seed, as the mean over those of `sigmas` that the run sweeps.

    `sigmas` is None for kinds with a single size. `values` by member, if given, replace the accuracy. Raise NotInRun if
    the run has no finished members of the kind at one of the sizes.
    """
    rows = finished_members(run)
    rows = rows[rows["label"] == kind]
    rows = rows.assign(value=rows["member"].map(accuracy(run) if values is None else values))
    if rows.empty:
        raise NotInRun(f"the run has no finished members of the kind {kind}")
    if sigmas is None:
        return pd.Series(rows.set_index("seed")["value"])
    table = by_seed(rows)
    selected = swept_sigmas(run, sigmas)
    if missing := [sigma for sigma in selected if sigma not in table.columns]:
        raise NotInRun(f"the run has no finished members of the kind {kind} with sigma {missing[0]:g}")
    return pd.Series(table[selected].dropna().mean(axis="columns"))


def between(a: str, b: str, sigmas: Sequence[float], run: Run) -> Interval:
    """Return the OOD accuracy of kind `a` minus that of kind `b`, at the same sizes."""
    return difference(of(run, a, sigmas), of(run, b, sigmas))


def early(a: str, b: str, sigmas: Sequence[float], run: Run) -> Interval:
    """Return the same difference as `between`, with the accuracies after a quarter of the training."""
    values = early_accuracy(run)
    return difference(of(run, a, sigmas, values), of(run, b, sigmas, values))


def sizes(kind: str, run: Run) -> Interval:
    """Return the OOD accuracy of a kind at the small size minus that at the large size, with the same arrangement."""
    return difference(of(run, kind, [SMALL]), of(run, kind, [LARGE]))


def twins(a: str, b: str, sigma: float | None, run: Run) -> Interval:
    """Return the OOD accuracy of kind `a`, which has a single size, minus that of kind `b`. Both compute the same up to
    rounding, so the difference should be about 0. `sigma` is that of `b` (None: it has a single size too)."""
    return difference(of(run, a), of(run, b, None if sigma is None else [sigma]))


def exchanged(kind: str, sigmas: Sequence[float] | None, name: str, run: Run) -> Interval:
    """Return the OOD accuracy of trained models minus their accuracy with the replacement PE `name`."""
    values = analysis_values(run, interventions.ACCURACY_WITH, name)
    return difference(of(run, kind, sigmas), of(run, kind, sigmas, values))
