"""Measure how well similarities of PEs agree with known networks of the brain, and compare the measures with chance.

A task can have `partitions`: known groups of its n channels, by name ("yeo7", "cole-anticevic" for brains). In tables
of a run, this name is the target of a measure. There are three measures: signed modularity Q*, system segregation (Chan
et al., 2014, with cosines instead of Fisher's z, and negative ones set to 0), and the fraction of labelled channels
whose most similar channel is in the same network. There are two null distributions: labels shuffled over the labelled
channels, and random maps with the same spatial autocorrelation (Moran spectral randomization). For each, tables have a
z score, a p value, and the range that holds 95% of the draws, as measures whose names have these endings:

| ending | null distribution |
|---|---|
| _z, _p, _low, _high | shuffled labels |
| _smooth_z, _smooth_p, _smooth_low, _smooth_high | maps with the same smoothness in space |

Functional connectivity, the correlations of the regions, is measured twice: as it is (`fc`), and centred as PEs are
(`CENTRED_FC`). All regions share a signal, so plain correlations are nearly all positive, and their modularity is low
for that reason alone. Arrays (e,) and (e, n, n) have an entry for each of e members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from placecode.analysis import modules, nulls
from placecode.experiments.measures import MeasureKey
from placecode.tasks.masked import Masked

MEASURES: Mapping[str, Callable[..., np.ndarray]] = {
    "modularity": modules.modularity,
    "segregation": modules.segregation,
    "neighbor_agreement": modules.neighbor_agreement,
}
"""The measures of agreement with a partition, by name."""
CENTRED_FC = "centred fc"
"""Name of the baseline to compare PEs with: correlations of the channels, centred over channels as PEs are."""


def network_measures(similarity: np.ndarray, task: Masked, draws: int = 0) -> dict[MeasureKey, np.ndarray]:
    """Return the agreement of similarities, (e members, n, n), with every known partition by all three `MEASURES`:
    arrays (e,) by (analysis, target). If `draws` is not 0, also compare them with that many random orders of the
    labels."""
    result: dict[MeasureKey, np.ndarray] = {}
    for target, labels in partition_labels(task).items():
        for name, measure in MEASURES.items():
            result[name, target] = measure(similarity, labels)
            if draws:
                result |= null_columns((name, target), nulls.label_null(measure, similarity, labels, draws))
    return result


def smooth_null(similarity: np.ndarray, task: Masked, draws: int) -> dict[MeasureKey, np.ndarray]:
    """Compare the `MEASURES` of similarities, (e members, n, n), with those of random maps that are as smooth in space.
    Return the results in the form of `null_columns`. Empty if the task has no partitions or no positions of
    channels."""
    measures = measure_functions(task)
    if not measures or task.positions is None:
        return {}
    by_text = {str(name): measure for name, measure in measures.items()}
    chances = nulls.smooth_nulls(by_text, similarity, task.positions, draws)
    result: dict[MeasureKey, np.ndarray] = {}
    for name in measures:
        result |= null_columns(name, chances[str(name)], "_smooth")
    return result


def measure_functions(task: Masked) -> dict[MeasureKey, Callable[[np.ndarray], np.ndarray]]:
    """Return functions of similarities (..., n, n), one per measure and partition, by analysis and target."""
    return {
        (name, target): partial(measure, labels=labels)
        for target, labels in partition_labels(task).items()
        for name, measure in MEASURES.items()
    }


def null_columns(name: MeasureKey, chance: nulls.NullTest, ending: str = "") -> dict[MeasureKey, Any]:
    """Return z, p, low and high of the test of a measure by their names in tables, such as ("modularity_smooth_z",
    "yeo7"). `name` is the analysis and target of the measure. `ending` is "" or, for random maps, "_smooth"."""
    analysis, target = name
    parts = {"z": chance.z, "p": chance.p, "low": chance.low, "high": chance.high}
    return {(f"{analysis}{ending}_{part}", target): values for part, values in parts.items()}


def partition_labels(task: Masked) -> dict[str, np.ndarray]:
    """Return the labels (n,) of every partition of a task, with -1 for a channel without a network."""
    return {name: partition.labels for name, partition in task.partitions.items()}
