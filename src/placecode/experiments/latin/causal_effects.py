"""The manipulations of the PE in lst-causal, and their effects on OOD accuracy. A manipulation is named by the label of
the members (models) that are trained with it. A donor is a model whose PE is copied into another model (a transplant).

The size of a PE is its root mean square. All effects are differences paired by seed, with an interval over seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from placecode.analysis.stats import Interval
from placecode.experiments.latin import interventions
from placecode.experiments.latin.effects import LARGE, SMALL, difference
from placecode.experiments.reading import ValuesFunction, accuracy, analysis_values, mean_over_sigmas, select
from placecode.runs.read import Run

SGD_DONOR = "master"
"""Label of the donors that are trained by SGD from a tiny initial PE, so that it learns an arrangement."""
LEARNED = "learned"
"""Label of the members without a manipulation: their PE starts at random and is learned."""
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
"""The manipulations: fields of the members by label. Members with each label are trained at every size. `donor` is the
sigma of the donor whose PE is copied ("own": the same sigma as the member's), or SGD_DONOR."""
LATER_MANIPULATIONS: dict[str, dict[str, Any]] = {
    "master's, frozen": {"start": "rescaled", "learn": False, "donor": SGD_DONOR},
    "master's shuffled, frozen": {"start": "rescaled-shuffled", "learn": False, "donor": SGD_DONOR},
    "true centred, frozen": {"start": "centred", "learn": False},
    "learned, by SGD": {"optimizer": "sgd"},
    "random, frozen, by SGD": {"learn": False, "optimizer": "sgd"},
}
"""Manipulations that were added when the first results had shown that donors trained by Adam learn little. "Master's"
says that the PE is copied from a donor trained by SGD (SGD_DONOR)."""
BY_RATE, TRUE_START, FIXED, NONE = "frozen by its step size", "2d-fixed as a start", "2d-fixed", "no PE"
"""Labels of controls: a random PE that is frozen by a learning rate of zero; a frozen PE with the values of 2d-fixed;
the encoding 2d-fixed; no PE."""
DONOR, TWIN, TWIN_AGAIN = "donor", "twin, frozen", "twin's own untrained one, transplanted"
"""Labels of donors that are trained by Adam, and of twins: controls with a frozen random PE (TWIN), and models of the
same seed that get this PE by a transplant (TWIN_AGAIN) and must have the same accuracy."""


def manipulation_values(
    run: Run, label: str, sigmas: Sequence[float] | None = None, values: pd.Series | None = None
) -> pd.Series:
    """Return the final OOD accuracy (or other `values`, indexed by member) of the members with this label, by seed.

    It is averaged over the members with each of `sigmas`. With None, sigma is ignored: use it if the label has one
    member per seed. Raise NotInRun if the run has no finished members with the label, or none at one of the sigmas.
    """
    values = accuracy(run) if values is None else values
    if sigmas is not None:
        return mean_over_sigmas(run, values, sigmas, label=label)
    return select(run, values, f"members with the label {label}", label=label)


def manipulation_difference(
    a: str, b: str, sigmas: Sequence[float] | None, run: Run, values: ValuesFunction = accuracy
) -> Interval:
    """Return the final OOD accuracy (or other values) with label `a` minus that with label `b`. Both are averaged over
    `sigmas`, as in `manipulation_values`."""
    by_member = values(run)
    return difference(manipulation_values(run, a, sigmas, by_member), manipulation_values(run, b, sigmas, by_member))


def size_effect(label: str, run: Run) -> Interval:
    """Return the OOD accuracy of the members with a label at size 0.2 minus that at size 2.0."""
    return difference(manipulation_values(run, label, [SMALL]), manipulation_values(run, label, [LARGE]))


def swap_effect(label: str, sigmas: Sequence[float] | None, replacement: str, run: Run) -> Interval:
    """Return the OOD accuracy of the trained members with a label minus their accuracy when the PE is exchanged for
    `replacement`, one of the names in `interventions`."""
    values = analysis_values(run, interventions.ACCURACY_WITH, replacement)
    return difference(manipulation_values(run, label, sigmas), manipulation_values(run, label, sigmas, values))
