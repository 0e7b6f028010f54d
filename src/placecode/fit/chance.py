"""Permutation tests: do the channels of a table depend on each other?

The null hypothesis is that the channels are independent. To sample from it, each channel of the test samples is shifted
circularly by a random number of samples within each block, which is a group of samples or a stretch of consecutive
samples (`TableTask.exchange_blocks`). This keeps the autocorrelation of the channel, its values in each block and the
positions of missing values, and removes its dependence on the other channels. The trained models then predict hidden
channels of the shifted samples. The statistic is the gain: the error of predicting the means minus the error of the
models. The p-value is the share of shifts whose gain is at least that on the true samples, where the true samples count
as one of the shifts. The test samples were not used to choose anything, so p <= 0.05 occurs in 5% of tables without
structure.

A single channel is tested twice by shifting this channel alone. First, do the other channels predict it? The prediction
of a hidden channel does not depend on its values, so this test needs no further forward passes. Second, does the
channel help to predict the others? x**2 can be predicted from x but not the reverse, so both directions are tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from placecode.arrays import Array
from placecode.models.encoder import Stack
from placecode.tasks.table import TableTask
from placecode.training.trainer import portions

SAMPLES_OF_TABLE_TEST = (60, 400, 30_000)
"""Minimum and maximum number of test samples in tests that need a forward pass for every shift. The third number is the
number of values (samples x channels) to aim at between both limits."""
SAMPLES_OF_CHANNEL_TEST = (200, 20_000, 400_000)
"""The same three numbers for `channel_p_values`, which needs no forward pass for a shift."""
MAX_MASKS_PER_SAMPLE = 4
"""Maximum number of times that a sample is used (each time with other hidden channels) if there are few samples."""
CHANNEL_SHIFTS = 39
"""Number of circular shifts in the permutation test of whether one channel helps to predict the others."""
CHANNELS_PER_GROUP = 16
"""Number of channels that `predictive_channels` first shifts together, to save time."""
MIN_BLOCK_LENGTH = 5
"""Minimum mean number of test samples per block. With fewer, shifts are not confined to blocks."""
SAMPLES_PER_BLOCK = 20
"""Maximum number of samples per block if there are so many blocks that only some of them are used."""


class GainTest(NamedTuple):
    """Result of the permutation test of all channels, whose statistic is the gain."""

    gain: float
    """Error of predicting the means minus the error of the models, on the true samples."""
    shifted: Array
    """The gain on the shifted samples, (draws,)."""
    p: float
    """P-value: (1 + number of shifts whose gain is at least that on the true samples) / (1 + draws)."""


@torch.no_grad()
def sample_errors(stack: Stack, task: TableTask, split: str) -> Array:
    """Return the mean squared error of each of e members (models) on each of N masked samples of a split, (e, N)."""
    local = task.bind(stack.members).to(stack.flat.device, stack.flat.dtype)
    count, errors = len(stack.members), []
    for part in portions(stack, task, task.row_count(split)):
        rows = torch.arange(part.start, part.stop, device=stack.flat.device).expand(count, -1)
        inputs, targets = local.batch(split, rows)
        errors.append(local.metrics(stack(inputs), targets)["mse"].double().cpu())
    return np.asarray(torch.cat(errors, dim=1).numpy())


class _TestSamples:
    """Test samples for a permutation test, and the predictions of a stack (models that are trained together) for them.

    `values` (r, n) are r samples of n channels, and `blocks` (r,) is the block of each sample. The argument `bounds` is
    SAMPLES_OF_TABLE_TEST or SAMPLES_OF_CHANNEL_TEST.
    """

    def __init__(self, stack: Stack, task: TableTask, bounds: tuple[int, int, int]) -> None:
        self.stack, self.task = stack, task.bind(stack.members).to(stack.flat.device, stack.flat.dtype)
        rows, self.blocks = _test_rows(task, bounds)
        self.rows = rows.to(stack.flat.device)
        self.values = self.task.raw_values("test", self.rows)

    def mask_scores(self, repetition: int = 0) -> Tensor:
        """Return random integers (r, n), different in every repetition. Channels with the lowest ones are hidden."""
        numbers = self.rows + repetition * len(self.task.splits["test"])
        return self.task.mask_scores("test", numbers[None]).view(self.values.shape)

    def predict(self, values: Tensor, mask_scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Hide channels of samples, `values` (..., n), and predict them: those with the lowest `mask_scores`, (..., n).

        Returns inputs (b, n, w + 1), outputs (e, b, n, w) and targets (e, b, n, w + 1), for e members, b samples in
        all, n channels and w values per channel (1, or the number of categories). The last value of an input is 1 if
        the channel is hidden or missing, and the last value of a target is 1 if it is hidden.
        """
        mask_ratio = torch.full(values.shape[:-1], float(self.stack.members[0].mask_ratio), dtype=torch.float64)
        masked = self.task.hide(values, mask_scores, mask_ratio.to(values.device))
        inputs, targets = (part.flatten(0, -3) for part in masked)
        count = len(self.stack.members)
        return inputs, self.stack(inputs.expand(count, *inputs.shape)), targets.expand(count, *targets.shape)


@torch.no_grad()
def against_chance(stack: Stack, task: TableTask, draws: int, seed: int = 0) -> GainTest:
    """Test whether the channels of a table depend on each other.

    In each of `draws` repetitions, every channel is shifted along the samples by a different random amount, which
    destroys dependence between channels. The gain (see `GainTest`) on the true samples, averaged over members, is
    compared with the gains on the shifted ones. The same channels of the same samples are hidden every time.
    """
    samples = _TestSamples(stack, task, SAMPLES_OF_TABLE_TEST)
    count, mask_scores = len(samples.values), samples.mask_scores()
    shifts = Shifts(samples.values, samples.blocks, draws, seed)
    batch = max(1, len(portions(stack, task, count * (draws + 1))[0]) // count)
    batches = []
    for begin in range(0, draws + 1, batch):
        _, outputs, targets = samples.predict(shifts.shifted(slice(begin, begin + batch)), mask_scores)
        error, mean_error = (
            samples.task.metrics(output, targets)["mse"] for output in (outputs, torch.zeros_like(outputs))
        )
        batches.append((mean_error - error).double().view(len(outputs), -1, count).mean((0, 2)).cpu())
    gains = torch.cat(batches).numpy()
    return GainTest(float(gains[0]), gains[1:], float(_p_values(gains)))


def _p_values(gains: Array) -> Array:
    """Return the p-values (...) of permutation tests from their gains (draws + 1, ...).

    The first gain is that on the true samples. The p-value is the share of gains, including the first, that are at
    least as large as the first.
    """
    return np.asarray((1 + (gains[1:] >= gains[0]).sum(axis=0)) / len(gains))


@torch.no_grad()
def channel_p_values(stack: Stack, task: TableTask, draws: int, seed: int = 0) -> Array:
    """Test for each of n channels whether the other channels predict it, and return the p-values (n,).

    `draws` is the number of shifts. The true values of each channel are shifted, while its predictions, averaged over
    the members, stay the same.
    """
    samples = _TestSamples(stack, task, SAMPLES_OF_CHANNEL_TEST)
    values, local = samples.values, samples.task
    repetitions = min(MAX_MASKS_PER_SAMPLE, max(1, SAMPLES_OF_CHANNEL_TEST[2] // values.numel()))
    predicted, hidden = [], []
    for repetition in range(repetitions):
        mask_scores = samples.mask_scores(repetition)
        for part in portions(stack, task, len(values)):
            at = slice(part.start, part.stop)
            _, outputs, targets = samples.predict(values[at], mask_scores[at])
            predicted.append(outputs.mean(0))
            hidden.append(targets[0, ..., -1])
    predictions = torch.cat(predicted).view(repetitions, *values.shape, -1) * local.used
    scored = torch.cat(hidden).view(repetitions, *values.shape)
    # gain = true^2 - (prediction - true)^2, summed over hidden values; prediction^2 is the same for all shifts
    weight = (scored[..., None] * predictions).sum(0)  # (r, n, w)
    constant = (scored[..., None] * predictions.square()).sum((0, 1, 3)).double()  # (n,)
    shifts = Shifts(values, samples.blocks, draws, seed)
    gains = []
    for draw in range(draws + 1):
        true, _ = local.standardize(shifts.shifted(slice(draw, draw + 1))[0])
        gains.append((2 * (weight * true).double().sum((0, 2)) - constant).cpu())
    return _p_values(torch.stack(gains).numpy())


@torch.no_grad()
def predictive_channels(
    stack: Stack, task: TableTask, channels: Sequence[int], max_shifts: int, seed: int = 0
) -> list[int]:
    """Return those of `channels` (indices) that help to predict other channels, in increasing order.

    A channel passes if each of CHANNEL_SHIFTS shifts of this channel lowers the gain on the other channels. A channel
    that does not help passes with probability 1 / (CHANNEL_SHIFTS + 1).

    To save time, CHANNELS_PER_GROUP channels are shifted together first, and tested one by one only if the group
    passes. A test ends at the first shift that does not lower the gain. Once `max_shifts` shifts have been tried, no
    further tests are started, and the remaining channels are not returned. Channels are tested in random order, so that
    the order of the columns does not determine which of them remain.
    """
    samples = _TestSamples(stack, task, SAMPLES_OF_TABLE_TEST)
    true_values, mask_scores = samples.values, samples.mask_scores()
    shifts = Shifts(true_values, samples.blocks, CHANNEL_SHIFTS, seed)
    shifts_tried = 0

    def gain(values: Tensor, tested: list[int]) -> float:
        """Return the gain on all channels except `tested`, summed over samples in which one of `tested` is visible."""
        others = torch.ones(task.tokens, dtype=torch.bool, device=values.device)
        others[tested] = False
        total = 0.0
        for part in portions(stack, task, len(values)):
            at = slice(part.start, part.stop)
            inputs, outputs, targets = samples.predict(values[at], mask_scores[at])
            errors, mean_errors = (
                samples.task.squared_errors(output, targets)[0] for output in (outputs, torch.zeros_like(outputs))
            )
            visible = (inputs[:, tested, -1] == 0).any(1).to(errors.dtype)[:, None]
            total += float(((mean_errors - errors) * visible * others).double().sum())
        return total

    def passes(tested: list[int]) -> bool:
        """Return whether every shift of these channels lowers the gain; False if `max_shifts` shifts have been
        tried."""
        nonlocal shifts_tried
        if shifts_tried >= max_shifts:
            return False
        true_gain = gain(true_values, tested)
        for draw in range(1, CHANNEL_SHIFTS + 1):
            shifted = true_values.clone()
            shifted[:, tested] = shifts.shifted(slice(draw, draw + 1))[0][:, tested]
            shifts_tried += 1
            if gain(shifted, tested) >= true_gain:
                return False
        return True

    predictive: list[int] = []
    order = [channels[i] for i in np.random.default_rng(seed).permutation(len(channels))]
    for begin in range(0, len(order), CHANNELS_PER_GROUP):
        group = order[begin : begin + CHANNELS_PER_GROUP]
        if len(group) == 1 or passes(group):
            predictive += [channel for channel in group if passes([channel])]
    return sorted(predictive)


def count_predictions(task: TableTask, draws: int) -> int:
    """Estimate how many samples each model must predict in the permutation tests of a fit, to estimate their time.

    `draws` is the number of random shifts in the test of the whole table.
    """
    shifts = task.tokens if task.tokens < CHANNELS_PER_GROUP else 2 * task.tokens // CHANNELS_PER_GROUP
    table_samples, channel_samples = (
        len(_test_rows(task, bounds)[0]) for bounds in (SAMPLES_OF_TABLE_TEST, SAMPLES_OF_CHANNEL_TEST)
    )
    return (draws + 1 + shifts) * table_samples + channel_samples


class Shifts:
    """Random circular shifts of every channel within each block of samples.

    `ordered` (r, n) are the samples, with the samples of one block next to each other, and `blocks` (r,) is the block
    of each sample. Missing values keep their positions, and the known values of a channel move along the known
    positions. Draw 0 is the unshifted table, and draws 1 to `draws` are shifted.
    """

    def __init__(self, ordered: Tensor, blocks: npt.NDArray[np.int64], draws: int, seed: int) -> None:
        self._ordered = ordered
        device, channels = ordered.device, ordered.shape[1]
        known = ~ordered.isnan()
        _, self._block_of, counts = np.unique(blocks, return_inverse=True, return_counts=True)
        ends = torch.from_numpy(np.cumsum(counts)).to(device) - 1
        known_count = known.cumsum(0)  # (r, n): number of known values up to and including each row
        before = torch.cat([torch.zeros_like(known_count[:1]), known_count[ends[:-1]]])  # (blocks, n): before the block
        block_of = torch.from_numpy(self._block_of).to(device)
        self._first, self._length = before[block_of], (known_count[ends] - before)[block_of].clamp(min=1)
        self._place = (known_count - 1 - self._first).clamp(min=0)
        self._rows = torch.arange(len(blocks), device=device)[:, None].expand(-1, channels)
        self._known = known
        self._order = torch.sort((~known).to(torch.uint8), dim=0, stable=True).indices  # rows of known values first
        self._offsets = np.random.default_rng(seed).random((draws + 1, len(counts), channels))
        self._offsets[0] = 0

    def shifted(self, draws: slice) -> Tensor:
        """Return the shifted samples of a slice of the draws, (draws, r, n)."""
        offsets = torch.from_numpy(self._offsets[draws][:, self._block_of]).to(self._ordered.device)
        places = self._first + (self._place + (offsets * self._length).long()) % self._length
        rows = self._order.expand(len(offsets), -1, -1).gather(1, places.clamp(max=len(self._order) - 1))
        return self._ordered.expand(len(offsets), -1, -1).gather(1, torch.where(self._known, rows, self._rows))


def _test_rows(task: TableTask, bounds: tuple[int, int, int]) -> tuple[Tensor, npt.NDArray[np.int64]]:
    """Choose r test samples at regular intervals, and return their indices in the split (r,) and their blocks (r,).

    They are sorted by block, a series of samples that depend on each other. Tests shift samples within blocks. `bounds`
    limits r; it is SAMPLES_OF_TABLE_TEST or SAMPLES_OF_CHANNEL_TEST. If r is too small for MIN_BLOCK_LENGTH samples of
    every block, only some blocks are used. About SAMPLES_PER_BLOCK samples of each of them are chosen, or all samples
    of a block that has fewer. If blocks have fewer than MIN_BLOCK_LENGTH samples on average, there is too little to
    shift within them, and all samples form one block.
    """
    min_samples, max_samples, values = bounds
    count = min(max_samples, max(min_samples, values // task.tokens))
    rows = np.arange(len(task.splits["test"]))
    blocks = np.zeros_like(rows)
    if task.exchange_blocks is not None:
        blocks = task.exchange_blocks[task.splits["test"].targets.cpu().numpy()]
    order = np.argsort(blocks, kind="stable")
    names, sizes = np.unique(blocks, return_counts=True)
    if sizes.mean() < MIN_BLOCK_LENGTH:
        blocks = np.zeros_like(rows)
    elif len(names) * MIN_BLOCK_LENGTH > count:
        block_count = max(1, count // int(min(sizes.mean(), SAMPLES_PER_BLOCK)))
        order = order[np.isin(blocks[order], names[np.arange(block_count) * len(names) // block_count])]
    chosen = min(len(order), count)
    order = order[np.arange(chosen) * len(order) // chosen]
    return torch.from_numpy(rows[order]), blocks[order]
