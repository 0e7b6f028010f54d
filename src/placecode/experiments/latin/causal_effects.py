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
from placecode.experiments.reading import accuracy, analysis_values, early_accuracy, finished_members, mean_over_sigmas
from placecode.runs.read import Run

SGD_DONOR = "master"
"""Label of donors whose PEs learn the arrangement: they are trained by SGD from a tiny start."""
SMALL_SIGMAS = (0.1, 0.2, 0.5)
"""The sizes at which models generalize. Effects of the arrangement are means over these sizes."""
LEARNED = "learned"
"""Label of the members with a random start and a learned PE, the usual case."""
MANIPULATIONS: dict[str, dict[str, Any]] = {
    LEARNED: {},
    "random, frozen": {"learn": False},
    "true, frozen": {"start": "true", "learn": False},
    "true, learned on": {"start": "true"},
    "rows and columns, frozen": {"start": "axes", "learn": False},
    "rows and columns, learned on": {"start": "axes"},
    "untrained donor's, frozen": {"start": "donor-untrained", "learn": False, "donor": "own"},
    "donor's, frozen": {"start": "donor", "learn": False, "donor": "own"},
    "donor's, learned on": {"start": "donor", "donor": "own"},
    "donor's shuffled, frozen": {"start": "shuffled", "learn": False, "donor": "own"},
    "donor's of 0.2 rescaled, frozen": {"start": "rescaled", "learn": False, "donor": SMALL},
    "donor's of 2.0 rescaled, frozen": {"start": "rescaled", "learn": False, "donor": LARGE},
}
"""Fields of the members of each kind, by label. Each kind is trained at every size. `donor` is the sigma of the donor
whose PE is copied ("own": the sigma of the member itself)."""
LATER_MANIPULATIONS: dict[str, dict[str, Any]] = {
    "master's, frozen": {"start": "rescaled", "learn": False, "donor": SGD_DONOR},
    "master's shuffled, frozen": {"start": "rescaled-shuffled", "learn": False, "donor": SGD_DONOR},
    "true centred, frozen": {"start": "centred", "learn": False},
    "learned, by SGD": {"optimizer": "sgd"},
    "random, frozen, by SGD": {"learn": False, "optimizer": "sgd"},
}
"""Kinds that were added after the first results had shown that donors trained by Adam learn little. The PEs of
donors trained by SGD are rescaled to each size."""
BY_RATE, TRUE_START, FIXED, NONE = "frozen by its step size", "2d-fixed as a start", "2d-fixed", "no PE"
"""Labels of controls: frozen by a learning rate of zero; started and frozen at the true arrangement; 2d-fixed; no
PE."""
DONOR, TWIN, TWIN_AGAIN = "donor", "twin, frozen", "twin's own untrained one, transplanted"
"""Labels of donors and twins. A twin has a frozen random PE; its copy gets that PE by a transplant and must do the
same."""


def manipulation_values(
    run: Run, label: str, sigmas: Sequence[float] | None = None, values: pd.Series | None = None
) -> pd.Series:
    """Return the final OOD accuracy (or other `values`, indexed by member) of the members with this label by seed.

    It is the mean over `sigmas`. They are None for labels whose members all have one size. Raise NotInRun if the run
    has no finished members with the label at one of the sigmas.
    """
    values = accuracy(run) if values is None else values
    if sigmas is not None:
        return mean_over_sigmas(run, values, sigmas, label=label)
    rows = finished_members(run)
    rows = rows[rows["label"] == label]
    if rows.empty:
        raise NotInRun(f"the run has no finished members with the label {label}")
    return pd.Series(rows["member"].map(values).to_numpy(), index=rows["seed"])


def manipulation_difference(a: str, b: str, sigmas: Sequence[float], run: Run) -> Interval:
    """Return the OOD accuracy of kind `a` minus that of kind `b`, at the same sizes."""
    return difference(manipulation_values(run, a, sigmas), manipulation_values(run, b, sigmas))


def early_manipulation_difference(a: str, b: str, sigmas: Sequence[float], run: Run) -> Interval:
    """Return the same difference as `manipulation_difference`, with the accuracies after a quarter of the training."""
    values = early_accuracy(run)
    return difference(manipulation_values(run, a, sigmas, values), manipulation_values(run, b, sigmas, values))


def size_effect(kind: str, run: Run) -> Interval:
    """Return the OOD accuracy of a kind at the small size minus that at the large size, with the same arrangement."""
    return difference(manipulation_values(run, kind, [SMALL]), manipulation_values(run, kind, [LARGE]))


def twin_difference(a: str, b: str, sigma: float | None, run: Run) -> Interval:
    """Return the OOD accuracy of kind `a`, which has a single size, minus that of kind `b`. Both compute the same up to
    rounding, so the difference should be about 0. `sigma` is that of `b` (None: it has a single size too)."""
    return difference(manipulation_values(run, a), manipulation_values(run, b, None if sigma is None else [sigma]))


def swap_effect(kind: str, sigmas: Sequence[float] | None, name: str, run: Run) -> Interval:
    """Return the OOD accuracy of trained models minus their accuracy with the replacement PE `name`."""
    values = analysis_values(run, interventions.ACCURACY_WITH, name)
    return difference(manipulation_values(run, kind, sigmas), manipulation_values(run, kind, sigmas, values))
