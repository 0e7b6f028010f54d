"""Permutation tests: shifts keep each channel as it is, and p-values of independent channels are uniform."""

from typing import Any

import numpy as np
import pytest
import torch

from placecode.fit import chance
from placecode.fit.chance import against_chance, channel_p_values, predictive_channels, sample_errors
from placecode.models.encoder import Stack
from placecode.models.member import Member, grid
from placecode.tasks.table import TableTask, table_tasks
from placecode.training.trainer import Trainer, evaluate, stack_for

SMALL: dict[str, Any] = {"width": 8, "layers": 1, "heads": 1, "batch": 32, "mask_ratio": 0.3, "learning_rate": 1e-2}

PredictedSamples = list[tuple[torch.Tensor, torch.Tensor]]
"""Samples (..., n) whose hidden channels were predicted, with a mark where values are hidden."""


def trained(values, steps, seeds=(0,), groups=None, **fields) -> tuple[Stack, TableTask]:
    task = table_tasks(values.astype(np.float32), groups=groups)["all"]
    stack = stack_for(grid(Member(**{**SMALL, **fields}, encoding="learned", sigma=0.1), seed=seeds), task)
    trainer = Trainer(stack, task, steps)
    for _ in range(steps):
        trainer.update()
    return stack, task


def dependent(samples: int = 400, seed: int = 0) -> np.ndarray:
    """Return six channels with a common source."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(samples, 1)) + 0.3 * rng.normal(size=(samples, 6))


@pytest.fixture
def predicted_samples(monkeypatch: pytest.MonkeyPatch) -> PredictedSamples:
    """A list to which the samples and hidden channels of every prediction are appended."""
    calls: PredictedSamples = []
    plain = TableTask.hide

    def hide(self: TableTask, raw: torch.Tensor, mask_scores: torch.Tensor, share: torch.Tensor) -> Any:
        inputs, targets = plain(self, raw, mask_scores, share)
        calls.append((raw, targets[..., -1]))
        return inputs, targets

    monkeypatch.setattr(TableTask, "hide", hide)
    return calls


def with_memory(values: np.ndarray, factor: float) -> np.ndarray:
    """Return autocorrelated values: each sample plus `factor` times the previous one."""
    for step in range(1, len(values)):
        values[step] += factor * values[step - 1]
    return values


def test_p_values_of_independent_channels_are_uniform() -> None:
    """White and autocorrelated noise, and models that overfit it: p is below 0.1 in a tenth of cases."""
    p_values = []
    for seed in range(40):
        values = np.random.default_rng(seed).normal(size=(120, 5))
        stack, task = trained(with_memory(values, 0.9) if seed % 2 else values, 6, seeds=(seed,))
        p_values.append(against_chance(stack, task, 19, seed).p)
    assert sum(p <= 0.1 for p in p_values) <= 11  # 4 are expected, more than 11 less than once in a thousand times
    assert 0.35 < np.mean(p_values) < 0.7 and min(p_values) >= 0.05


def test_levels_that_groups_have_are_no_dependence() -> None:
    """Each group has a level, the same in all channels, and nothing else in common; shifts across groups would take
    that for structure."""
    who = np.repeat(np.arange(10), 20)
    within, across, channels = [], [], []
    for seed in range(24):
        rng = np.random.default_rng(seed)
        values = rng.normal(size=(200, 5)) + 2 * rng.normal(size=(10, 1))[who]
        stack, task = trained(values, 40, seeds=(seed,), groups=who)
        within.append(against_chance(stack, task, 19, seed).p)
        channels.append(channel_p_values(stack, task, 19, seed))
        task.exchange_blocks = None
        across.append(against_chance(stack, task, 19, seed).p)
    assert sum(p <= 0.1 for p in within) <= 8  # 2.4 are expected, more than 8 once in a thousand times
    assert 0.35 < np.mean(within) < 0.75 and np.mean(across) < np.mean(within) - 0.1
    assert np.mean(np.array(channels) <= 0.1) < 0.25 and 0.4 < np.mean(channels) < 0.65


@pytest.mark.parametrize(("shortest", "stays"), [(5, True), (1_000, False)])
def test_shifts_stay_within_groups_unless_these_are_short(shortest, stays, monkeypatch, predicted_samples) -> None:
    """The integer part of each value is the number of its group, so a shift within groups does not change it."""
    monkeypatch.setattr(chance, "MIN_BLOCK_LENGTH", shortest)
    rng = np.random.default_rng(0)
    who = rng.integers(12, size=300)
    stack, task = trained(who[:, None] + 0.4 * rng.random((300, 6)), 0, groups=who)
    against_chance(stack, task, 7)
    raw = torch.cat([samples for samples, _ in predicted_samples])
    assert (raw[1:] != raw[0]).float().mean() > 0.5  # something was shifted
    assert torch.equal(raw[1:].floor(), raw[:1].floor().expand_as(raw[1:])) == stays


def test_an_independent_channel_differs_from_dependent_ones() -> None:
    """Six channels that depend on each other, and one that does not, whose p-values are uniform."""
    dependent_p, independent_p = [], []
    for seed in range(30):
        rng = np.random.default_rng(1_000 + seed)
        values = np.concatenate([dependent(300, seed), rng.normal(size=(300, 1))], axis=1)
        stack, task = trained(with_memory(values, 0.8) if seed % 2 else values, 60, seeds=(seed,))
        *others, alone = channel_p_values(stack, task, 19, seed)
        dependent_p += others
        independent_p.append(alone)
    assert np.mean(dependent_p) < 0.07
    assert sum(p <= 0.1 for p in independent_p) <= 9  # 3 are expected, more than 9 less than once in a thousand times
    assert 0.35 < np.mean(independent_p) < 0.7


def test_a_weak_dependence_is_found_with_many_samples() -> None:
    """Less than a tenth of the variance of a channel can be explained by the others."""
    rng = np.random.default_rng(0)
    stack, task = trained(rng.normal(size=(8_000, 1)) + 3 * rng.normal(size=(8_000, 8)), 300)
    assert (channel_p_values(stack, task, 39) == 1 / 40).all()


def test_channels_that_only_predict_others_are_found() -> None:
    """Four numbers and their absolute values: a number predicts its absolute value, but not the reverse."""
    values = np.random.default_rng(0).normal(size=(4_000, 4))
    both = np.concatenate([values, np.abs(values)], axis=1)
    stack, task = trained(both, 1_000, width=16, layers=2, batch=64, learning_rate=3e-3)
    p_values = channel_p_values(stack, task, 39)
    assert (p_values[4:] == 1 / 40).all() and (p_values[:4] > 0.05).sum() >= 3
    assert predictive_channels(stack, task, range(4), max_shifts=1_000) == [0, 1, 2, 3]
    assert len(predictive_channels(stack, task, range(4), max_shifts=50)) == 1  # 39 shifts for all together, 39 for one


def test_an_independent_channel_rarely_seems_to_predict_others() -> None:
    result = 0
    for seed in range(20):
        rng = np.random.default_rng(1_000 + seed)
        values = np.concatenate([dependent(200, seed), rng.normal(size=(200, 1))], axis=1)
        stack, task = trained(values, 40, seeds=(seed,))
        result += len(predictive_channels(stack, task, [6], 1_000, seed))
    assert result <= 4  # one half is expected, more than four less than once in a thousand times


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_a_single_channel_is_shifted_alone(missing, monkeypatch) -> None:
    """Compare with p-values computed in a loop, from the same predictions and shifts of a channel within blocks."""
    values = dependent()
    values[np.random.default_rng(1).random(values.shape) < missing] = np.nan
    stack, task = trained(values, 5, seeds=(0, 1))
    monkeypatch.setattr(chance, "MAX_MASKS_PER_SAMPLE", 1)
    rows = torch.arange(len(task.splits["test"]))
    local = task.bind(stack.members)
    raw = task.raw_values("test", rows)
    mask_scores = task.mask_scores("test", rows[None]).view(len(rows), 6)
    inputs, targets = local.hide(raw, mask_scores, torch.full((len(rows),), 0.3, dtype=torch.float64))
    predicted = stack(inputs.expand(2, *inputs.shape)).mean(0)[..., 0].detach().numpy()
    blocks = task.exchange_blocks[task.splits["test"].targets]
    turns = np.random.default_rng(3).random((20, len(np.unique(blocks)), 6))
    true, _ = task.standardize(raw)
    gains = np.zeros((20, 6))
    for draw in range(20):
        for channel in range(6):
            shifted, known = true[:, channel, 0].numpy().copy(), ~raw[:, channel].isnan().numpy()
            for place, block in enumerate(np.unique(blocks)):
                here = (blocks == block) & known
                shifted[here] = np.roll(shifted[here], -int(turns[draw, place, channel] * here.sum()) if draw else 0)
            hidden = targets[:, channel, -1].bool().numpy()
            assert known[hidden].all()
            gains[draw, channel] = (shifted[hidden] ** 2 - (predicted[:, channel] - shifted)[hidden] ** 2).sum()
    expected = (1 + (gains[1:] >= gains[0]).sum(axis=0)) / 20
    np.testing.assert_allclose(channel_p_values(stack, task, 19, seed=3), expected)


def test_learned_dependence_has_the_smallest_p_value() -> None:
    stack, task = trained(dependent(), 60)
    result = against_chance(stack, task, 39)
    assert result.p == 1 / 40 and result.gain > result.shifted.max() and len(result.shifted) == 39
    untrained, _ = trained(dependent(), 0)
    assert against_chance(untrained, task, 39).p > 1 / 40


def test_the_p_value_counts_the_true_samples_in() -> None:
    stack, task = trained(dependent(), 0)
    result = against_chance(stack, task, 19, seed=3)
    assert result.p == (1 + (result.shifted >= result.gain).sum()) / 20
    assert against_chance(stack, task, 19, seed=3).p == result.p
    assert not np.array_equal(against_chance(stack, task, 19, seed=4).shifted, result.shifted)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_a_shift_keeps_each_channel_as_it_is(missing, predicted_samples) -> None:
    """Each channel is shifted circularly in each block. Missing values stay, and the same values are hidden."""
    values = dependent()
    values[np.random.default_rng(1).random(values.shape) < missing] = np.nan
    stack, task = trained(values, 0)
    result = against_chance(stack, task, 7)
    raw, hidden = (torch.cat(parts) for parts in zip(*predicted_samples, strict=True))
    count = len(task.splits["test"])
    assert raw.shape == (8, count, 6) and count >= 78 and np.isfinite(result.shifted).all()
    true = raw[0].numpy()
    blocks = task.exchange_blocks[task.splits["test"].targets]
    assert len(np.unique(blocks)) == 4
    np.testing.assert_array_equal(true, values[task.splits["test"].targets].astype(np.float32))
    for draw in raw[1:].numpy():
        for block in np.unique(blocks):
            known = ~np.isnan(true)
            assert np.array_equal(known, ~np.isnan(draw))
            by = [
                next(k for k in range(count) if np.array_equal(np.roll(t[here], -k), d[here]))
                for t, d, here in zip(true.T, draw.T, (known & (blocks == block)[:, None]).T, strict=True)
            ]
            assert len(set(by)) > 1  # against each other
    assert (hidden == hidden[0]).all() and not hidden[torch.isnan(raw)].any()


def test_many_test_samples_are_thinned_out(monkeypatch) -> None:
    monkeypatch.setattr(chance, "SAMPLES_OF_TABLE_TEST", (10, 30, 1_000))
    stack, task = trained(dependent(1_000), 0)
    rows = torch.arange(30) * len(task.splits["test"]) // 30
    inputs, targets = task.bind(stack.members).hide(
        task.raw_values("test", rows),
        task.mask_scores("test", rows[None]).view(30, 6),
        torch.full((30,), 0.3, dtype=torch.float64),
    )
    outputs = stack(inputs[None])
    error, guessed = (task.metrics(y, targets[None])["mse"].mean() for y in (outputs, torch.zeros_like(outputs)))
    assert against_chance(stack, task, 3).gain == pytest.approx((guessed - error).item(), rel=1e-4)


def test_of_many_groups_whole_ones_are_used() -> None:
    """1,000 groups of 20 samples: too many to use all, but each is long enough to shift within."""
    values = np.random.default_rng(0).normal(size=(20_000, 5))
    task = table_tasks(values.astype(np.float32), groups=np.repeat(np.arange(1_000), 20))["all"]
    rows, blocks = chance._test_rows(task, (60, 400, 30_000))
    assert len(rows) == 400 and len(np.unique(rows)) == 400
    names, sizes = np.unique(blocks, return_counts=True)
    assert len(names) == 20 and (sizes == 20).all() and (np.diff(blocks) >= 0).all()
    np.testing.assert_array_equal(task.exchange_blocks[task.splits["test"].targets[rows]], blocks)
    pairs = table_tasks(values.astype(np.float32), groups=np.repeat(np.arange(10_000), 2))["all"]
    rows, blocks = chance._test_rows(pairs, (60, 400, 30_000))  # two samples leave nothing to shift
    assert len(rows) == 400 and not blocks.any()


def test_missing_values_neither_hide_nor_create_a_dependence() -> None:
    independent_p, dependent_p = [], []
    for seed in range(10):
        rng = np.random.default_rng(100 + seed)
        values = np.concatenate([dependent(300, seed), rng.normal(size=(300, 3))], axis=1)
        values[rng.random(values.shape) < 0.4] = np.nan
        stack, task = trained(values, 80, seeds=(seed,))
        p_values = channel_p_values(stack, task, 19, seed)
        dependent_p += list(p_values[:6])
        independent_p += list(p_values[6:])
    assert np.mean(np.array(dependent_p) <= 0.05) > 0.8
    assert 0.35 < np.mean(independent_p) < 0.65 and np.mean(np.array(independent_p) <= 0.1) < 0.25


def test_errors_of_questions_are_those_of_evaluation() -> None:
    stack, task = trained(dependent(), 3, seeds=(0, 5))
    result = sample_errors(stack, task, "validation")
    assert result.shape == (2, task.row_count("validation"))
    expected = evaluate(stack, task.bind(stack.members), "validation")["hidden 0.3", "mse"]
    np.testing.assert_allclose(result.mean(axis=1), expected, rtol=1e-6)
