"""What other methods make of the same data: their errors, and the structure that pairwise measures show.

Every baseline answers the questions that the members were asked. Pairwise methods are measured by the same measures as
the PEs, so that a map of channels is never shown without the one that a correlation matrix gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from placecode.analysis import baselines, connectivity, modules, partitions, places
from placecode.experiments.channels import known_networks, structure
from placecode.experiments.measures import ALL_BLOCKS
from placecode.models.member import Member
from placecode.tasks.masked import Masked

PREDICTORS: dict[str, Callable[[], baselines.Predictor]] = {
    "linear": baselines.Linear,
    "ridge": baselines.Ridge,
    "pca": baselines.Pca,
    "trees": baselines.Trees,
}


SLOW = ("ridge", "trees")


LIKE_MEMBERS = ("ridge", "trees")
"""Fitted to examples with as many hidden channels as members are trained with."""


MATRICES: dict[str, Callable[[Any], np.ndarray]] = {
    "fc": connectivity.correlation,
    "mutual information": connectivity.mutual_information,
    "partial correlation": connectivity.partial_correlation,
}


OF_STRUCTURE = {"split": "analysis", "condition": "labels"}


def of_data(
    task: Masked, members: Sequence[Member], wanted: Sequence[str], slow: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Every baseline in the worlds of these members: errors at every share of hidden channels, and structure. Those
    that take long, in the worlds `slow` alone."""
    pupils = {(member.seed % task.worlds, member.hidden): member for member in reversed(members)}
    shares = sorted({share for _, share in pupils})
    for world in sorted({world for world, _ in pupils}):
        values = structure.training_values(task, world)
        spec = {"world": world}
        for name in (name for name in wanted if name in PREDICTORS and (name not in SLOW or world in slow)):
            for share in shares if name in LIKE_MEMBERS else shares[:1]:
                if (world, share) in pupils:
                    told = (
                        f"{name}, trained with {share:g} hidden" if name in LIKE_MEMBERS and len(shares) > 1 else name
                    )
                    found = _errors(name, task, pupils[world, share], values)
                    yield from ({**spec, "baseline": told, **row} for row in found)
        for name in (name for name in wanted if name in MATRICES):
            matrix = MATRICES[name](values)
            yield from ({**spec, "baseline": name, **row} for row in _structure(matrix, task))
            if name == "fc":
                yield from ({**spec, **row} for row in _networks(matrix, task))
        if "spectral" in wanted and task.labels is not None:
            count = len(np.unique(task.labels[task.labels >= 0]))
            groups = connectivity.spectral_clusters(connectivity.correlation(values), count)
            for metric, score in (("ari", partitions.ari), ("ami", partitions.ami)):
                value = float(score(groups, task.labels))
                yield {**spec, "baseline": "spectral", **OF_STRUCTURE, "metric": metric, "value": value}
        k = min(8, task.tokens - 1)
        for name in ("pca of channels", "mds of fc"):
            if name in wanted:
                fc = connectivity.correlation(values)
                placed = connectivity.mds_embedding(fc, k) if "mds" in name else connectivity.pca_embedding(values, k)
                similar = modules.similarities(placed[None])[ALL_BLOCKS]
                yield from ({**spec, "baseline": name, **row} for row in _structure(similar, task, placed))


def data_arrays(task: Masked, members: Sequence[Member]) -> dict[str, Tensor]:
    """The correlation matrix of the channels, world by world: to be shown beside the PEs."""
    worlds = sorted({member.seed % task.worlds for member in members})
    found = {f"fc/{world}": connectivity.correlation(structure.training_values(task, world)) for world in worlds}
    return {name: torch.from_numpy(matrix).float() for name, matrix in found.items()}


def _errors(name: str, task: Masked, pupil: Member, values: np.ndarray) -> Iterator[dict[str, Any]]:
    if task.window > 1:
        starts = task.splits["train"].targets.cpu().numpy()  # no window crosses from one recording into the next
        values = np.stack([values[starts + i] for i in range(task.window)], axis=-1)
    fitted = PREDICTORS[name]().fit(values, seed=pupil.seed, share=pupil.hidden)
    met = task.bind([pupil])
    for split in task.splits:
        if split == "train":
            continue
        inputs, targets = (x[0].double().numpy() for x in met.batch(split, torch.arange(task.rows(split))[None]))
        true, hidden = targets[..., :-1], inputs[..., -1] > 0
        each = baselines.errors(fitted.predict(np.where(hidden[..., None], np.nan, true), hidden), true, hidden)
        conditions = np.array(task.condition(split))
        for condition in task.conditions:
            value = float(each[conditions == condition].mean())
            yield {"split": split, "condition": condition, "metric": "mse", "value": value}


def _networks(correlations: np.ndarray, task: Masked) -> Iterator[dict[str, Any]]:
    """Known networks in functional connectivity: against maps as smooth, and all once more in centred correlations,
    which are those to compare PEs with."""
    centred = modules.centred(correlations)[None]
    smooth = {
        name: known_networks.beyond_smooth(each, task, structure.SLOW_DRAWS)
        for name, each in (("fc", correlations[None]), (known_networks.CENTRED, centred))
    }
    smooth[known_networks.CENTRED] |= known_networks.measured(centred, task, structure.DRAWS)
    for name, found in smooth.items():
        for (metric, target), values in found.items():
            row = {"split": "analysis", "condition": target, "metric": metric, "value": float(values[0])}
            yield {"baseline": name, **row}


def _structure(matrix: np.ndarray, task: Masked, placed: np.ndarray | None = None) -> Iterator[dict[str, Any]]:
    """What a matrix of channels says; `placed` is where a method has put them by itself, its widest axes first."""
    found = structure.measured(matrix.reshape(1, *matrix.shape[-2:]), task)
    fit = ("procrustes_r2", "positions")
    if fit in found and task.positions is not None:
        axes = task.positions.shape[1]
        own = structure.flat_map(matrix, axes) if placed is None else placed[:, :axes]
        found[fit] = np.array([places.procrustes_r2(own, task.positions)])
    for (metric, target), values in found.items():
        yield {"split": "analysis", "condition": target, "metric": metric, "value": float(values[0])}
