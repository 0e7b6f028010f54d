"""Is there anything to be found at all? What trained models make of channels that have nothing to do with each other.

Every channel of the test samples is shifted by itself, round and round within each group or block, by a random number
of samples: what it is like over time and in each group stays, what it has to do with the others is gone. The models,
trained once and for all, are asked again. If they predict the true samples no better than shifted ones, they have
learned nothing about how channels belong together. Nothing was chosen on these samples, so that chance comes below 0.05
once in twenty times.

Of a single channel it is asked whether it has anything to do with the others, as they are: then it alone is shifted,
and since a hidden channel is not seen by its own prediction, that takes no further look of the models.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from placecode.encoder import Stack
from placecode.tasks.table import Table
from placecode.training import portions

Array = npt.NDArray[np.float64]

ASKED = (60, 400, 30_000)
"""Test samples that are shifted: at least, at most, and in between so many values of channels."""
OF_EACH = (200, 20_000, 400_000)
"""The same, where one channel is shifted at a time."""
HIDINGS = 4
"""How often a sample is asked about at most, with others of its channels hidden, where there are few samples."""
SHORTEST = 5
"""Samples of a group or block, on average, from which on it is shifted within itself."""


class Chance(NamedTuple):
    """The error on the true samples, those on shifted ones, and how often these are as low, the true ones counted
    in."""

    error: float
    shifted: Array
    p: float


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
    local = task.bind(stack.members).to(stack.flat.device, stack.flat.dtype)
    count = len(stack.members)
    rows, pieces = _asked(task, ASKED)
    asked = len(rows)
    rows = rows.to(stack.flat.device)
    ordered = local.raw("test", rows)  # (r, n)
    dice = local.dice("test", rows[None]).view(asked, task.tokens)
    share = torch.full((asked,), float(stack.members[0].hidden), dtype=torch.float64, device=rows.device)
    shifts = Shifts(pieces, task.tokens, draws, seed, rows.device)
    together = max(1, len(portions(stack, task, asked * (draws + 1))[0]) // asked)
    errors = []
    for begin in range(0, draws + 1, together):
        shifted = shifts.of(ordered, slice(begin, begin + together))  # (draws, r, n)
        inputs, targets = (each.flatten(0, 1) for each in local.ask(shifted, dice, share))  # (draws * r, n, ...)
        outputs = stack(inputs.expand(count, *inputs.shape))
        error = local.metrics(outputs, targets.expand(count, *targets.shape))["mse"]  # (e, draws * r)
        errors.append(error.double().view(count, -1, asked).mean((0, 2)).cpu())
    found = torch.cat(errors).numpy()
    return Chance(float(found[0]), found[1:], float((1 + (found[1:] <= found[0]).sum()) / (1 + draws)))


@torch.no_grad()
def channels_against_chance(stack: Stack, task: Table, draws: int, seed: int = 0) -> Array:
    """How often each channel is predicted as well, by the members' mean, where it is shifted against all others,
    (n,)."""
    local = task.bind(stack.members).to(stack.flat.device, stack.flat.dtype)
    rows, pieces = _asked(task, OF_EACH)
    rows = rows.to(stack.flat.device)
    times = min(HIDINGS, max(1, OF_EACH[2] // (len(rows) * task.tokens)))
    ordered = local.raw("test", rows)
    values, known = local.standard(ordered)  # (r, n, w), (r, n)
    predicted, hidden = [], []
    for time in range(times):
        questions = rows + time * len(task.splits["test"])
        dice = local.dice("test", questions[None]).view(len(rows), task.tokens)
        for part in portions(stack, task, len(rows)):
            at = slice(part.start, part.stop)
            share = torch.full((len(part),), float(stack.members[0].hidden), dtype=torch.float64, device=rows.device)
            inputs, targets = local.ask(ordered[at], dice[at], share)
            predicted.append(stack(inputs.expand(len(stack.members), *inputs.shape)).mean(0))
            hidden.append(targets[..., -1])
    told = torch.cat(predicted).view(times, *values.shape)
    asked = torch.cat(hidden).view(times, *known.shape)
    shifts = Shifts(pieces, task.tokens, draws, seed, rows.device)
    errors = []
    for draw in range(draws + 1):
        true, there = local.standard(shifts.of(ordered, slice(draw, draw + 1))[0]) if draw else (values, known)
        counted = asked * there
        wrong = ((told - true).square() * local.used).sum(-1) * counted
        errors.append((wrong.double().sum((0, 1)) / counted.double().sum((0, 1)).clamp(min=1)).cpu())
    found = torch.stack(errors).numpy()  # (draws + 1, n)
    never = (asked.sum((0, 1)) == 0).cpu().numpy()  # of these nothing is known
    return np.asarray(np.where(never, 1.0, (1 + (found[1:] <= found[0]).sum(axis=0)) / (1 + draws)))


class Shifts:
    """Random shifts of every channel, round and round within its pieces; the first is none."""

    def __init__(
        self, pieces: npt.NDArray[np.int64], channels: int, draws: int, seed: int, device: torch.device
    ) -> None:
        rng = np.random.default_rng(seed)
        _, first, self._of, counts = np.unique(pieces, return_index=True, return_inverse=True, return_counts=True)
        self._turns = rng.random((draws + 1, len(first), channels))
        self._turns[0] = 0
        self._start, self._length = (
            torch.from_numpy(each[self._of]).to(device)[:, None] for each in (first, counts)
        )  # (r, 1)
        self._place = torch.arange(len(pieces), device=device)[:, None] - self._start

    def of(self, ordered: Tensor, draws: slice) -> Tensor:
        """Samples (r, n), those of a piece side by side, as these draws have them, (draws, r, n)."""
        turns = torch.from_numpy(self._turns[draws][:, self._of]).to(ordered.device)
        places = self._start + (self._place + (turns * self._length).long()) % self._length
        return ordered.expand(len(turns), -1, -1).gather(1, places)


def _asked(task: Table, bounds: tuple[int, int, int]) -> tuple[Tensor, npt.NDArray[np.int64]]:
    """Test samples that are asked about, spread over all of them, and the piece that each is from, (r,) both; those of
    a piece side by side."""
    least, most, values = bounds
    total = len(task.splits["test"])
    asked = min(total, most, max(least, values // task.tokens))
    rows = torch.arange(asked) * total // asked
    if task.pieces is not None:
        own = task.pieces[task.splits["test"].targets.cpu()[rows].numpy()]
        if len(np.unique(own)) * SHORTEST <= asked:  # shorter ones leave nothing to shift
            order = np.argsort(own, kind="stable")
            return rows[torch.from_numpy(order)], own[order]
    return rows, np.zeros(asked, dtype=np.int64)
