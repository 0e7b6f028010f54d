"""Accuracy of a trained model when its PE is exchanged for another and all other weights stay.

Some exchanges must change nothing and are controls: the PE for itself, times one, or shuffled together with its cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from placecode.analysis import geometry
from placecode.encodings import sinusoid
from placecode.experiments.measures import Rows, rows
from placecode.models.encoder import Stack
from placecode.tasks.base import Task
from placecode.training.trainer import evaluate

ACCURACY_WITH = "accuracy_with"
ITSELF, NOTHING, MEAN, START = "itself", "nothing", "its mean", "its start"
SHUFFLED, WITH_CELLS, TRUE = "shuffled", "shuffled with its cells", "the true one, own size"
OTHER_SIGMA, OTHER_SIGMA_SIZED, OTHER_SEED = (
    "that of the other sigma",
    "that of the other sigma, own size",
    "another seed's",
)
FACTORS = (0.5, 0.8, 1.0, 1.25, 2.0)

Array = np.ndarray


def times(factor: float) -> str:
    return f"times {factor:g}"


def sized(pe: Array, like: Array) -> Array:
    """A PE rescaled to the norm of another. Zeros stay zeros."""
    size = float(geometry.norm(pe))
    return pe if size == 0 else pe * (float(geometry.norm(like)) / size)


def within_member(start: Array, end: Array, positions: Array, order: Sequence[int]) -> dict[str, Array]:
    """The exchanges that need no other member: PEs (l, n, d) by name."""
    true = np.broadcast_to(sinusoid(positions, end.shape[-1]), end.shape)
    return {
        ITSELF: end,
        NOTHING: np.zeros_like(end),
        MEAN: np.broadcast_to(end.mean(axis=1, keepdims=True), end.shape),
        START: start,
        SHUFFLED: end[:, order],
        WITH_CELLS: end[:, order],
        TRUE: sized(true, end),
        **{times(factor): factor * end for factor in FACTORS},
    }


def order_of(tokens: int, seed: int = 0) -> list[int]:
    """A random order of the tokens. The last token, from which the answer is read, keeps its place."""
    return [*np.random.default_rng(seed).permutation(tokens - 1).tolist(), tokens - 1]


@torch.no_grad()
def accuracies(stack: Stack, task: Task, exchanges: Sequence[Mapping[str, Array]], order: Sequence[int]) -> Rows:
    """Rows with the accuracy of every member with each of its exchanges. The stack is restored afterwards."""
    vectors = stack.encoding.vectors()
    assert vectors is not None
    original = vectors.detach().clone()
    result: Rows = []
    for name in dict.fromkeys(name for pes in exchanges for name in pes):
        for member, pes in enumerate(exchanges):
            if name in pes:
                vectors.data[member] = torch.from_numpy(np.ascontiguousarray(pes[name])).to(original)
        local = (_reordered(task, order) if name == WITH_CELLS else task).to(stack.flat.device, stack.flat.dtype)
        values = evaluate(stack, local, "ood")["all", "accuracy"]
        vectors.data.copy_(original)
        every = rows(ACCURACY_WITH, values, target=name)
        result += [row for row, pes in zip(every, exchanges, strict=True) if name in pes]
    return result


def _reordered(task: Task, order: Sequence[int]) -> Task:
    """The task with the tokens of its held-out examples in another order."""
    held_out = task.splits["ood"]
    reordered = task.first(1)
    reordered.splits = {**reordered.splits, "ood": replace(held_out, inputs=held_out.inputs[:, list(order)])}
    return reordered
