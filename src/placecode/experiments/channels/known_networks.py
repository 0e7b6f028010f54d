"""Do PEs agree with known networks of the brain? Measures, and what chance gives, for every partition of a task.

A task may have `partitions`, known groups of its channels by name (of a brain: yeo7, cole-anticevic). The name is the
target of a measure in the tables of a run. Three measures: signed modularity Q*, system segregation (Chan et al., 2014,
with cosines instead of Fisher's z, and negative ones set to 0), and the share of labelled channels whose nearest one
belongs to the same network. Two nulls: labels shuffled over the labelled channels, and surrogate maps with the same
spatial autocorrelation (Moran spectral randomization), called maps as smooth in space. Each has a z, a p, and
the range that holds 95% of its draws:

| ending | null |
|---|---|
| _z, _p, _low, _high | shuffled labels |
| _smooth_z, _smooth_p, _smooth_low, _smooth_high | maps as smooth in space |

Functional connectivity is measured twice: as it is (`fc`), and centred as PEs are (`CENTRED`). All regions share a
signal, so that plain correlations are nearly all positive, and their modularity is low for that reason alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from placecode.analysis import modules, nulls
from placecode.tasks.masked import Masked

MEASURES: Mapping[str, Callable[..., np.ndarray]] = {
    "modularity": modules.modularity,
    "segregation": modules.segregation,
    "neighbor_agreement": modules.neighbor_agreement,
}
CENTRED = "centred fc"
"""The baseline to compare PEs with: correlations of the channels, centred over channels as PEs are."""
Name = tuple[str, str]
"""An analysis and its target, the name of a partition."""


def measured(similar: np.ndarray, task: Masked, draws: int = 0) -> dict[Name, np.ndarray]:
    """Measures of similarities (e, n, n) against every partition; with `draws`, also against shuffled labels.

    Returns
    -------
    dict of ndarray, shape (e,)
        By analysis and target; empty for a task without partitions.
    """
    found: dict[Name, np.ndarray] = {}
    for target, labels in labels_of(task).items():
        for name, measure in MEASURES.items():
            found[name, target] = measure(similar, labels)
            if draws:
                found |= named((name, target), nulls.label_null(measure, similar, labels, draws))
    return found


def beyond_smooth(similar: np.ndarray, task: Masked, draws: int) -> dict[Name, np.ndarray]:
    """The same measures against maps as smooth in space; empty without partitions or positions."""
    asked = statistics(task)
    if not asked or task.positions is None:
        return {}
    chances = nulls.smooth_nulls({str(name): each for name, each in asked.items()}, similar, task.positions, draws)
    found: dict[Name, np.ndarray] = {}
    for name in asked:
        found |= named(name, chances[str(name)], "_smooth")
    return found


def statistics(task: Masked) -> dict[Name, Callable[[np.ndarray], np.ndarray]]:
    """Each measure of each partition as a function of similarities (..., n, n)."""
    return {
        (name, target): partial(measure, labels=labels)
        for target, labels in labels_of(task).items()
        for name, measure in MEASURES.items()
    }


def named(name: Name, chance: nulls.Chance, ending: str = "") -> dict[Name, Any]:
    """What chance gives, by the names that it has in tables."""
    analysis, target = name
    parts = {"z": chance.z, "p": chance.p, "low": chance.low, "high": chance.high}
    return {(f"{analysis}{ending}_{part}", target): values for part, values in parts.items()}


def labels_of(task: Masked) -> dict[str, np.ndarray]:
    """The labels (n,) of every partition of a task, -1 for a channel without a network."""
    return {name: partition.labels for name, partition in getattr(task, "partitions", {}).items()}
