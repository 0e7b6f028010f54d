"""Results of other methods (baselines) on the same data as the members (models), as rows of a run's baselines table.

Predictors, such as linear regression, are scored on the same hidden channels as the members. Measures of the data, such
as the correlations of the channels, are analysed like the PEs, so that the report can show both beside each other.

A world is one data set: a simulated one, or one split of the people into training and held-out people. A member with
seed s uses world s modulo the number of worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from placecode.analysis import alignment, baselines, connectivity, modules, partitions, places
from placecode.experiments.channels import known_networks, structure
from placecode.experiments.measures import MeasureKey
from placecode.models.member import Member
from placecode.tasks.masked import Masked

PREDICTORS: dict[str, Callable[[], baselines.Predictor]] = {
    "linear": baselines.Linear,
    "ridge": baselines.Ridge,
    "pca": baselines.Pca,
    "trees": baselines.Trees,
}
"""Predictors of hidden channels, by name."""
SLOW = ("ridge", "trees")
"""Names of the slow predictors. Within a world, they are fitted once for every value of `Member.mask_ratio`."""
MATRICES: dict[str, Callable[[Any], np.ndarray]] = {
    "fc": connectivity.correlation,
    "mutual information": connectivity.mutual_information,
    "partial correlation": connectivity.partial_correlation,
}
"""Pairwise measures by name: functions of the training values (T samples, n channels) that return a matrix (n, n)."""


def baseline_rows(
    task: Masked, members: Sequence[Member], names: Sequence[str], slow_worlds: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Yield rows for every world (data set) that `members` use: the errors of the baselines `names` at each fraction of
    hidden channels, and the structure that they show in the data. Slow predictors are fitted only in `slow_worlds`."""
    first = {(member.seed % task.worlds, member.mask_ratio): member for member in reversed(members)}
    fractions = sorted({fraction for _, fraction in first})  # of channels hidden in training
    for world in sorted({world for world, _ in first}):
        values = structure.training_values(task, world)
        for name in (name for name in names if name in PREDICTORS and (name not in SLOW or world in slow_worlds)):
            for fraction in fractions if name in SLOW else fractions[:1]:
                if (world, fraction) in first:
                    several = name in SLOW and len(fractions) > 1
                    label = f"{name}, trained with {fraction:g} hidden" if several else name
                    for row in _error_rows(name, task, first[world, fraction], values):
                        yield {"world": world, "baseline": label, **row}
        for row in _structure_rows(task, values, names):
            yield {"world": world, "split": "analysis", **row}


def data_arrays(task: Masked, members: Sequence[Member]) -> dict[str, Tensor]:
    """Return the correlation matrix of the channels (functional connectivity, "fc") in each world (data set), by names
    such as "fc/0". Figures compare it with the similarity of the PEs."""
    worlds = sorted({member.seed % task.worlds for member in members})
    matrices = {f"fc/{world}": connectivity.correlation(structure.training_values(task, world)) for world in worlds}
    return {name: torch.from_numpy(matrix).float() for name, matrix in matrices.items()}


def _error_rows(name: str, task: Masked, member: Member, values: np.ndarray) -> Iterator[dict[str, Any]]:
    """Fit the predictor `name` to the training values of a world, (T samples, n channels). Yield its error on each
    held-out split, for each fraction of hidden channels at evaluation. `member` is any member trained in this world
    with the fraction of hidden channels to use in the fit."""
    if task.window > 1:
        starts = task.splits["train"].targets.cpu().numpy()  # no window crosses from one recording into the next
        values = np.stack([values[starts + i] for i in range(task.window)], axis=-1)
    fitted = PREDICTORS[name]().fit(values, seed=member.seed, share=member.mask_ratio)
    bound = task.bind([member])
    for split in task.splits:
        if split == "train":
            continue
        inputs, targets = (x[0].double().numpy() for x in bound.batch(split, torch.arange(task.row_count(split))[None]))
        true, hidden = targets[..., :-1], inputs[..., -1] > 0
        errors = baselines.errors(fitted.predict(np.where(hidden[..., None], np.nan, true), hidden), true, hidden)
        conditions = np.array(task.row_conditions(split))
        for condition in task.conditions:
            value = float(errors[conditions == condition].mean())
            yield {"split": split, "condition": condition, "metric": "mse", "value": value}


def _structure_rows(task: Masked, values: np.ndarray, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield rows (baseline, condition, metric, value) with the structure of the channels, such as known groups or
    positions, that the baselines `names` show in the training values of a world, (T samples, n channels)."""
    for name in (name for name in names if name in MATRICES):
        matrix = MATRICES[name](values)
        yield from _measure_rows(name, _matrix_structure(matrix, task))
        if name == "fc":
            yield from _network_rows(matrix, task)
    fc = connectivity.correlation(values)
    if "spectral" in names and task.labels is not None:
        groups = connectivity.spectral_clusters(fc, len(np.unique(task.labels[task.labels >= 0])))
        scores = {("ari", "labels"): partitions.ari, ("ami", "labels"): partitions.ami}
        yield from _measure_rows("spectral", {name: [score(groups, task.labels)] for name, score in scores.items()})
    axes = min(8, task.tokens - 1)
    if "pca of channels" in names:
        yield from _measure_rows(
            "pca of channels", _embedding_structure(connectivity.pca_embedding(values, axes), task)
        )
    if "mds of fc" in names:
        yield from _measure_rows("mds of fc", _embedding_structure(connectivity.mds_embedding(fc, axes), task))


def _measure_rows(baseline: str, measured: Mapping[MeasureKey, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row for each measure of a baseline. `measured` maps (analysis, target) to an array with one value."""
    for (metric, target), values in measured.items():
        yield {"baseline": baseline, "condition": target, "metric": metric, "value": float(values[0])}


def _network_rows(correlations: np.ndarray, task: Masked) -> Iterator[dict[str, Any]]:
    """Yield rows on how well functional connectivity (the correlations of brain regions) shows known networks.

    For plain correlations, these are only the comparisons with random maps of the same smoothness in space
    (`_matrix_structure` computes the rest). For correlations that are centred, as PEs are, these are all measures.
    """
    centred = modules.centred(correlations)[None]
    yield from _measure_rows("fc", known_networks.smooth_null(correlations[None], task, structure.SLOW_DRAWS))
    smooth = known_networks.smooth_null(centred, task, structure.SLOW_DRAWS)
    yield from _measure_rows(
        known_networks.CENTRED_FC, smooth | known_networks.network_measures(centred, task, structure.DRAWS)
    )


def _matrix_structure(matrix: np.ndarray, task: Masked, placed: np.ndarray | None = None) -> structure.Values:
    """Measure how well a similarity matrix of n channels, (n, n) or (1, n, n), shows the known structure of channels,
    as done for PEs. `placed`, (n, axes), are the positions that the method gives the channels on a map; if None,
    they are computed from the matrix."""
    result = structure.structure_measures(matrix.reshape(1, *matrix.shape[-2:]), task)
    fit = ("procrustes_r2", "positions")
    if fit in result and task.positions is not None:
        axes = task.positions.shape[1]
        flat = structure.flat_map(matrix, axes) if placed is None else placed[:, :axes]
        result[fit] = np.array([places.procrustes_r2(flat, task.positions)])
    return result


def _embedding_structure(placed: np.ndarray, task: Masked) -> structure.Values:
    """Measure how well a method that gives each of n channels a position, `placed` (n, axes), shows the known structure
    of the channels (see `_matrix_structure`)."""
    return _matrix_structure(alignment.token_similarity(placed), task, placed)
