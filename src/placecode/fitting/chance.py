"""Is there anything to be found at all? What trained models make of channels that have nothing to do with each other.

Every channel of the test samples is shifted by itself, round and round within each group or block, by a random number
of samples: what it is like over time and in each group stays, what it has to do with the others is gone. The models,
trained once and for all, are asked again. If they predict the true samples no better than shifted ones, they have
learned nothing about how channels belong together. Nothing was chosen on these samples, so that chance comes below 0.05
once in twenty times.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from placecode.encoder import Stack
from placecode.tasks.table import Table
from placecode.training import portions

Array = npt.NDArray[np.float64]

ASKED = (60, 400, 30_000)
"""Test samples that are shifted: at least, at most, and in between so many values of channels."""
SHORTEST = 5
"""Samples of a group or block, on average, from which on it is shifted within itself."""


class Chance(NamedTuple):
    """The error on the true samples, those on shifted ones, and how often these are as low, the true ones counted in:
    of all channels together, and of each, (n,)."""

    error: float
    shifted: Array
    p: float
    channels: Array


@torch.no_grad()
def question_errors(stack: Stack, task: Table, split: str) -> Array:
    """The squared error of every member in every question of a part, (e, N)."""
    local = task.bind(stack.members).to(stack.flat.device, stack.flat.dtype)
    count, found = len(stack.members), []
    for part in portions(stack, task, task.rows(split)):
        rows = torch.arange(part.start, part.stop, device=stack.flat.device).expand(count, -1)
        inputs, targets = local.batch(split, rows)
        found.append(local.metrics(stack(inputs), targets)["mse"].double().cpu())
    return np.asarray(torch.cat(found, dim=1).numpy())


@torch.no_grad()
def against_chance(stack: Stack, task: Table, draws: int, seed: int = 0) -> Chance:
    """How often channels that are shifted against each other are predicted as well as true ones, by the mean member.

    The same channels are hidden in the same questions, whatever the shift.
    """
    rng = np.random.default_rng(seed)
    local = task.bind(stack.members).to(stack.flat.device, stack.flat.dtype)
    device, count = stack.flat.device, len(stack.members)
    least, most, values = ASKED
    total = len(task.splits["test"])
    asked = min(total, most, max(least, values // task.tokens))
    rows = torch.arange(asked, device=device) * total // asked
    pieces = np.zeros(asked, dtype=np.int64)
    if task.pieces is not None:
        own = task.pieces[task.splits["test"].targets[rows.cpu()].numpy()]
        if len(np.unique(own)) * SHORTEST <= asked:  # shorter ones leave nothing to shift
            order = np.argsort(own, kind="stable")  # those of a piece side by side
            pieces, rows = own[order], rows[torch.from_numpy(order).to(device)]
    ordered = local.raw("test", rows)  # (r, n)
    dice = local.dice("test", rows[None]).view(asked, task.tokens)
    share = torch.full((asked,), float(stack.members[0].hidden), dtype=torch.float64, device=device)
    start, length, place = (torch.from_numpy(each).to(device) for each in _runs(pieces))  # (r,) each
    shifts = torch.from_numpy(rng.random((draws + 1, int(pieces.max()) + 1, task.tokens)))[:, pieces].to(device)
    shifts[0] = 0  # (draws, r, n): those of a piece are the same
    together = max(1, len(portions(stack, task, most * draws)[0]) // asked)
    errors, by_channel = [], []
    for begin in range(0, draws + 1, together):
        moved = (shifts[begin : begin + together] * length[:, None]).long()
        places = start[:, None] + (place[:, None] + moved) % length[:, None]  # (draws, r, n)
        shifted = ordered.expand(len(moved), -1, -1).gather(1, places)
        inputs, targets = (each.flatten(0, 1) for each in local.ask(shifted, dice, share))  # (draws * r, n, ...)
        outputs = stack(inputs.expand(count, *inputs.shape))
        wrong, marked = local.wrong(outputs, targets.expand(count, *targets.shape))  # (e, draws * r, n)
        wrong, marked = (each.double().view(count, len(moved), asked, -1) for each in (wrong, marked))
        errors.append((wrong.sum(3) / marked.sum(3).clamp(min=1)).mean((0, 2)).cpu())
        by_channel.append((wrong.sum((0, 2)) / marked.sum((0, 2)).clamp(min=1)).cpu())
    found, each = torch.cat(errors).numpy(), torch.cat(by_channel).numpy()
    p, channels = ((1 + (one[1:] <= one[0]).sum(axis=0)) / (1 + draws) for one in (found, each))
    return Chance(float(found[0]), found[1:], float(p), np.asarray(channels))


def _runs(pieces: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], ...]:
    """Of every sample, sorted by piece: where its piece begins, how long it is, and which of it this one is."""
    _, first, counts = np.unique(pieces, return_index=True, return_counts=True)
    start, length = np.repeat(first, counts), np.repeat(counts, counts)
    return start, length, np.arange(len(pieces)) - start
