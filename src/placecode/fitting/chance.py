"""Is there anything to be found at all? What trained models make of channels that have nothing to do with each other.

Every channel of the test samples is shifted by itself, round and round, by a random number of samples: what it is like
over time stays, what it has to do with the others is gone. The models, trained once and for all, are asked again. If
they predict the true samples no better than shifted ones, they have learned nothing about how channels belong
together. Nothing was chosen on these samples, so that chance comes below 0.05 once in twenty times.
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
    rng = np.random.default_rng(seed)
    local = task.bind(stack.members).to(stack.flat.device, stack.flat.dtype)
    device, count = stack.flat.device, len(stack.members)
    least, most, values = ASKED
    total = len(task.splits["test"])
    asked = min(total, most, max(least, values // task.tokens))
    rows = torch.arange(asked, device=device) * (total // asked)
    true = local.raw("test", rows)  # (r, n)
    dice = local.dice("test", rows[None]).view(asked, task.tokens)
    share = torch.full((asked,), float(stack.members[0].hidden), dtype=torch.float64, device=device)
    shifts = torch.from_numpy(rng.integers(asked, size=(draws + 1, task.tokens))).to(device)
    shifts[0] = 0
    together = max(1, len(portions(stack, task, most * draws)[0]) // asked)
    errors = []
    for start in range(0, draws + 1, together):
        by = shifts[start : start + together]  # (draws, n)
        places = (torch.arange(asked, device=device)[:, None] + by[:, None]) % asked  # (draws, r, n)
        shifted = true.expand(len(by), -1, -1).gather(1, places)
        inputs, targets = (each.flatten(0, 1) for each in local.ask(shifted, dice, share))  # (draws * r, n, ...)
        outputs = stack(inputs.expand(count, *inputs.shape))
        wrong = local.metrics(outputs, targets.expand(count, *targets.shape))["mse"].double()
        errors.append(wrong.view(count, len(by), asked).mean((0, 2)).cpu())
    found = torch.cat(errors).numpy()
    null = found[1:]
    return Chance(float(found[0]), null, float((1 + (null <= found[0]).sum()) / (1 + draws)))
