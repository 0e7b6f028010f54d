"""Is there anything to be found at all? What trained models make of channels that have nothing to do with each other.

Every channel of the test samples is shifted by itself, round and round within each group or block, by a random number
of samples: what it is like over time and in each group stays, what it has to do with the others is gone, and missing
values stay where they are. The models, trained once and for all, are asked again: how much better are they than
guessing the means? If they are no better on the true samples than on shifted ones, they have learned nothing about how
channels belong together. Nothing was chosen on these samples, so that chance comes below 0.05 once in twenty times.

Of a single channel it is asked whether it has anything to do with the others, as they are: then it alone is shifted.
Do the others tell of it? Since a hidden channel is not seen by its own prediction, that takes no further look of the
models. Or does it tell of others? A square tells nothing of its root, but is told by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from placecode.models.encoder import Stack
from placecode.tasks.table import Table
from placecode.training.trainer import portions

Array = npt.NDArray[np.float64]

ASKED = (60, 400, 30_000)
"""Test samples that are shifted: at least, at most, and in between so many values of channels."""
OF_EACH = (200, 20_000, 400_000)
"""The same, where one channel is shifted at a time."""
HIDINGS = 4
"""How often a sample is asked about at most, with others of its channels hidden, where there are few samples."""
TURNS, TOGETHER = 39, 16
"""Shifts of a channel by which it is told whether it tells of others; and channels that are shifted at once to begin
with."""
SHORTEST, LONG = 5, 20
"""Samples of a group or block, on average, from which on it is shifted within itself; and how many are asked of each
where only some groups are."""


class Chance(NamedTuple):
    """How much lower the error is than that of guessing the means, on the true samples and on shifted ones; and how
    often these have as much, the true ones counted in."""

    gain: float
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
    shifts = Shifts(ordered, pieces, draws, seed)
    together = max(1, len(portions(stack, task, asked * (draws + 1))[0]) // asked)
    gains = []
    for begin in range(0, draws + 1, together):
        shifted = shifts.of(slice(begin, begin + together))  # (draws, r, n)
        inputs, targets = (each.flatten(0, 1) for each in local.ask(shifted, dice, share))  # (draws * r, n, ...)
        outputs = stack(inputs.expand(count, *inputs.shape))
        targets = targets.expand(count, *targets.shape)
        error, guessed = (local.metrics(each, targets)["mse"] for each in (outputs, torch.zeros_like(outputs)))
        gains.append((guessed - error).double().view(count, -1, asked).mean((0, 2)).cpu())
    found = torch.cat(gains).numpy()
    return Chance(float(found[0]), found[1:], float((1 + (found[1:] >= found[0]).sum()) / (1 + draws)))


@torch.no_grad()
def channels_against_chance(stack: Stack, task: Table, draws: int, seed: int = 0) -> Array:
    """How often each channel is predicted as well, by the members' mean, where it is shifted against all others,
    (n,)."""
    local = task.bind(stack.members).to(stack.flat.device, stack.flat.dtype)
    rows, pieces = _asked(task, OF_EACH)
    rows = rows.to(stack.flat.device)
    times = min(HIDINGS, max(1, OF_EACH[2] // (len(rows) * task.tokens)))
    ordered = local.raw("test", rows)
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
    told = torch.cat(predicted).view(times, len(rows), task.tokens, -1) * local.used
    asked = torch.cat(hidden).view(times, len(rows), task.tokens)
    # (told - true)^2 less true^2, summed over what was asked: told^2 is the same for all shifts
    weight = (asked[..., None] * told).sum(0)  # (r, n, w)
    fixed = (asked[..., None] * told.square()).sum((0, 1, 3)).double()  # (n,)
    shifts = Shifts(ordered, pieces, draws, seed)
    gains = []
    for draw in range(draws + 1):
        true, _ = local.standard(shifts.of(slice(draw, draw + 1))[0])
        gains.append((2 * (weight * true).double().sum((0, 2)) - fixed).cpu())
    found = torch.stack(gains).numpy()  # (draws + 1, n)
    return np.asarray((1 + (found[1:] >= found[0]).sum(axis=0)) / (1 + draws))


@torch.no_grad()
def tells_of_others(stack: Stack, task: Table, channels: Sequence[int], most: int, seed: int = 0) -> list[int]:
    """Those of some channels without which the others are predicted worse: of TURNS shifts of this channel alone, none
    leaves as much gain over guessing the others' means, which by chance happens once in TURNS + 1 times.

    Channels are first shifted TOGETHER, and asked one by one only where that is noticed; a group or channel is given up
    at the first shift that does as well. So few shifts are tried of those that tell nothing. After `most` shifts no
    further one is asked: the order is random, so that none is favoured for its column.
    """
    local = task.bind(stack.members).to(stack.flat.device, stack.flat.dtype)
    rows, pieces = _asked(task, ASKED)
    rows = rows.to(stack.flat.device)
    ordered = local.raw("test", rows)
    dice = local.dice("test", rows[None]).view(len(rows), task.tokens)
    share = torch.full((len(rows),), float(stack.members[0].hidden), dtype=torch.float64, device=rows.device)
    shifts = Shifts(ordered, pieces, TURNS, seed)
    tried = 0

    def gain(samples: Tensor, of: list[int]) -> float:
        """Of the other channels, where one of these is shown."""
        others = torch.ones(task.tokens, dtype=torch.bool, device=rows.device)
        others[of] = False
        found = 0.0
        for part in portions(stack, task, len(rows)):
            at = slice(part.start, part.stop)
            inputs, targets = local.ask(samples[at], dice[at], share[at])
            outputs = stack(inputs.expand(len(stack.members), *inputs.shape))
            targets = targets.expand(len(stack.members), *targets.shape)
            (wrong, _), (guessed, _) = (local.wrong(each, targets) for each in (outputs, torch.zeros_like(outputs)))
            shown = (inputs[:, of, -1] == 0).any(1).to(wrong.dtype)[:, None]
            found += float(((guessed - wrong) * shown * others).double().sum())
        return found

    def noticed(of: list[int]) -> bool:
        """Whether every shift of these channels leaves less gain."""
        nonlocal tried
        if tried >= most:
            return False
        true = gain(ordered, of)
        for turn in range(1, TURNS + 1):
            moved = ordered.clone()
            moved[:, of] = shifts.of(slice(turn, turn + 1))[0][:, of]
            tried += 1
            if gain(moved, of) >= true:
                return False
        return True

    found: list[int] = []
    order = [channels[i] for i in np.random.default_rng(seed).permutation(len(channels))]
    for begin in range(0, len(order), TOGETHER):
        group = order[begin : begin + TOGETHER]
        if len(group) == 1 or noticed(group):
            found += [channel for channel in group if noticed([channel])]
    return sorted(found)


def answers(task: Table, draws: int) -> int:
    """How many answers of a model it takes, about: those to shifted samples, and those by which channels are told."""
    times = task.tokens if task.tokens < TOGETHER else 2 * task.tokens // TOGETHER
    return (draws + 1 + times) * len(_asked(task, ASKED)[0]) + len(_asked(task, OF_EACH)[0])


class Shifts:
    """Random shifts of every channel of samples (r, n), round and round within its pieces, which lie side by side; the
    first is none. What is missing stays where it is, and the values that are known go round among their places."""

    def __init__(self, ordered: Tensor, pieces: npt.NDArray[np.int64], draws: int, seed: int) -> None:
        self._ordered = ordered
        device, channels = ordered.device, ordered.shape[1]
        known = ~ordered.isnan()
        _, self._of, counts = np.unique(pieces, return_inverse=True, return_counts=True)
        ends = torch.from_numpy(np.cumsum(counts)).to(device) - 1
        upto = known.cumsum(0)  # (r, n): how many are known up to each, itself counted in
        before = torch.cat([torch.zeros_like(upto[:1]), upto[ends[:-1]]])  # (pieces, n): before each piece begins
        of = torch.from_numpy(self._of).to(device)
        self._first, self._length = before[of], (upto[ends] - before)[of].clamp(min=1)
        self._place = (upto - 1 - self._first).clamp(min=0)
        self._rows = torch.arange(len(pieces), device=device)[:, None].expand(-1, channels)
        self._where = known
        self._order = torch.sort((~known).to(torch.uint8), dim=0, stable=True).indices  # those that are known, in order
        self._turns = np.random.default_rng(seed).random((draws + 1, len(counts), channels))
        self._turns[0] = 0

    def of(self, draws: slice) -> Tensor:
        """The samples as these draws have them, (draws, r, n)."""
        turns = torch.from_numpy(self._turns[draws][:, self._of]).to(self._ordered.device)
        places = self._first + (self._place + (turns * self._length).long()) % self._length
        rows = self._order.expand(len(turns), -1, -1).gather(1, places.clamp(max=len(self._order) - 1))
        return self._ordered.expand(len(turns), -1, -1).gather(1, torch.where(self._where, rows, self._rows))


def _asked(task: Table, bounds: tuple[int, int, int]) -> tuple[Tensor, npt.NDArray[np.int64]]:
    """Test samples that are asked about, spread over all of them, and the piece that each is from, (r,) both; those of
    a piece side by side.

    Where groups are so many that too few samples of each could be asked, only some are, LONG ones. Groups that are very
    short leave nothing to shift within: then they are one piece.
    """
    least, most, values = bounds
    count = min(most, max(least, values // task.tokens))
    rows = np.arange(len(task.splits["test"]))
    own = np.zeros_like(rows) if task.pieces is None else task.pieces[task.splits["test"].targets.cpu().numpy()]
    order = np.argsort(own, kind="stable")
    names, sizes = np.unique(own, return_counts=True)
    if sizes.mean() < SHORTEST:
        own = np.zeros_like(rows)
    elif len(names) * SHORTEST > count:
        some = max(1, count // int(min(sizes.mean(), LONG)))
        order = order[np.isin(own[order], names[np.arange(some) * len(names) // some])]
    asked = min(len(order), count)
    order = order[np.arange(asked) * len(order) // asked]
    return torch.from_numpy(rows[order]), own[order]
