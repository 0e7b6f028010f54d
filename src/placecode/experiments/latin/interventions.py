"""Measure the OOD accuracy of a trained model with its PE replaced by another, and all other weights unchanged.

The experiment lst-causal does this. Some replacements must not change accuracy and are controls: the PE itself, the PE
times one, and the PE shuffled together with the cells. Results are rows of the analysis `accuracy_with`, with the name
of the replacement as target. The size of a PE is its root mean square.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from placecode.analysis import geometry
from placecode.encodings import sinusoid
from placecode.experiments.measures import Rows, analysis_rows
from placecode.models.encoder import Stack
from placecode.tasks.base import Task
from placecode.training.trainer import evaluate

ACCURACY_WITH = "accuracy_with"
"""Name of these results in the column `analysis` of the analysis table."""
ITSELF, NOTHING, MEAN, START = "itself", "nothing", "its mean", "its start"
"""Names of replacements of a PE: itself, zeros, its mean over the cells, its initial values."""
SHUFFLED, WITH_CELLS, TRUE = "shuffled", "shuffled with its cells", "the true one, own size"
"""Names of replacements of a PE: its cells shuffled, its cells shuffled together with the cells of the puzzles, the
true arrangement (2d-fixed) rescaled to the size of the replaced PE."""
OTHER_SIGMA, OTHER_SIGMA_SIZED = "that of the other sigma", "that of the other sigma, own size"
"""Names of replacements of a PE: the PE of a model with the other sigma (2.0 for models with 0.2, and the reverse), as
it is or rescaled to the size of the replaced PE."""
OTHER_SEED = "another seed's"
"""Name of a replacement of a PE: the PE of a model with another seed."""
FACTORS = (0.5, 0.8, 1.0, 1.25, 2.0)
"""Factors by which the PE of a trained model is multiplied."""

Array = np.ndarray


def times(factor: float) -> str:
    """Return the name of the replacement of a PE by a multiple of it."""
    return f"times {factor:g}"


def rescaled_like(pe: Array, other: Array) -> Array:
    """Return `pe` rescaled to the size of `other`. A PE of zeros is returned unchanged."""
    size = float(geometry.norm(pe))
    return pe if size == 0 else pe * (float(geometry.norm(other)) / size)


def own_replacements(start: Array, end: Array, positions: Array, order: Sequence[int]) -> dict[str, Array]:
    """Return the replacements of a PE that need no other model, by name. `start` and `end` are the PE before and after
    training. They and all replacements have shape (blocks, tokens, features). `positions`, (tokens, 2), has the row and
    column of each cell. `order` is the order of the cells in a shuffled PE."""
    true = np.broadcast_to(sinusoid(positions, end.shape[-1]), end.shape)
    return {
        ITSELF: end,
        NOTHING: np.zeros_like(end),
        MEAN: np.broadcast_to(end.mean(axis=1, keepdims=True), end.shape),
        START: start,
        SHUFFLED: end[:, order],
        WITH_CELLS: end[:, order],
        TRUE: rescaled_like(true, end),
        **{times(factor): factor * end for factor in FACTORS},
    }


def shuffled_order(tokens: int) -> list[int]:
    """Return a random order of the tokens, the same in every call. The last token, from which the model computes the
    answer, stays last."""
    return [*np.random.default_rng(0).permutation(tokens - 1).tolist(), tokens - 1]


@torch.no_grad()
def accuracy_rows(stack: Stack, task: Task, replacements: Sequence[Mapping[str, Array]], order: Sequence[int]) -> Rows:
    """Return rows with the OOD accuracy of every member of a stack with each of its replacement PEs. The PEs of the
    stack are restored afterwards.

    `replacements` has a dict for each member: its replacement PEs by name. `order` is the order of the cells in the
    replacement `WITH_CELLS`, a control: the cells of the examples are then put into the same order.
    """
    vectors = stack.encoding.vectors()
    assert vectors is not None
    original = vectors.detach().clone()
    result: Rows = []
    for name in dict.fromkeys(name for pes in replacements for name in pes):
        for member, pes in enumerate(replacements):
            if name in pes:
                vectors.data[member] = torch.from_numpy(np.ascontiguousarray(pes[name])).to(original)
        local = (_reordered(task, order) if name == WITH_CELLS else task).to(stack.flat.device, stack.flat.dtype)
        values = evaluate(stack, local, "ood")["all", "accuracy"]
        vectors.data.copy_(original)
        by_member = analysis_rows(ACCURACY_WITH, values, target=name)
        result += [row for row, pes in zip(by_member, replacements, strict=True) if name in pes]
    return result


def _reordered(task: Task, order: Sequence[int]) -> Task:
    """Return a copy of the task with the tokens of its OOD examples in the order `order`. The other splits keep one
    example each."""
    held_out = task.splits["ood"]
    reordered = task.first(1)
    reordered.splits = {**reordered.splits, "ood": replace(held_out, inputs=held_out.inputs[:, list(order)])}
    return reordered
