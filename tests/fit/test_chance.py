"""Is there anything to be found? Shifts keep every channel as it is, and chance is as rare as its p-value says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from placecode.fit import chance
from placecode.fit.chance import against_chance, channel_p_values, predictive_channels, question_errors
from placecode.models.encoder import Stack
from placecode.models.member import Member, grid
from placecode.tasks.table import Table, tables
from placecode.training.trainer import Trainer, evaluate, portions, stack_for

SMALL: dict[str, Any] = {"width": 8, "layers": 1, "heads": 1, "batch": 32, "hidden": 0.3, "learning_rate": 1e-2}


def trained(
    values: np.ndarray, steps: int, seeds: tuple[int, ...] = (0,), groups: np.ndarray | None = None, **given: Any
) -> tuple[Stack, Table]:
    task = tables(values.astype(np.float32), groups=groups)["all"]
    stack = stack_for(grid(Member(**{**SMALL, **given}, encoding="learned", sigma=0.1), seed=seeds), task)
    trainer = Trainer(stack, task, steps)
    for _ in range(steps):
        trainer.update()
    return stack, task


def dependent(samples: int = 400, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(samples, 1)) + 0.3 * rng.normal(size=(samples, 6))


def test_chance_is_as_rare_as_it_says() -> None:
    """Independent noise, some of it with a memory, models that have overlearned it: p below 0.1 in a tenth of cases."""
    below, every = 0, []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        values = rng.normal(size=(120, 5))
        if seed % 2:
            for step in range(1, len(values)):
                values[step] += 0.9 * values[step - 1]
        stack, task = trained(values, 6, seeds=(seed,))
        every.append(against_chance(stack, task, 19, seed).p)
        below += every[-1] <= 0.1
    assert below <= 11  # 4 are expected, more than 11 less than once in a thousand times
    assert 0.35 < np.mean(every) < 0.7 and min(every) >= 0.05


def test_levels_that_groups_have_are_no_dependence() -> None:
    """Each group has a level, the same in all channels, and nothing else in common; shifts across groups would take
    that for structure."""
    who = np.repeat(np.arange(10), 20)
    within, across, channels = [], [], []
    for seed in range(24):
        rng = np.random.default_rng(seed)
        values = rng.normal(size=(200, 5)) + 2 * rng.normal(size=(10, 1))[who]
        stack, task = trained(values, 40, seeds=(seed,), groups=who)
        found = against_chance(stack, task, 19, seed)
        within.append(found.p)
        channels.append(channel_p_values(stack, task, 19, seed))
        task.pieces = None
        across.append(against_chance(stack, task, 19, seed).p)
    assert sum(p <= 0.1 for p in within) <= 8  # 2.4 are expected, more than 8 once in a thousand times
    assert 0.35 < np.mean(within) < 0.75 and np.mean(across) < np.mean(within) - 0.1
    assert np.mean(np.array(channels) <= 0.1) < 0.25 and 0.4 < np.mean(channels) < 0.65


@pytest.mark.parametrize(("shortest", "stays"), [(5, True), (1_000, False)])
def test_shifts_stay_within_groups_unless_these_are_short(
    shortest: int, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values whose whole part is the number of the group, in no order: each stays where its group is."""
    monkeypatch.setattr(chance, "MIN_PIECE_LENGTH", shortest)
    rng = np.random.default_rng(0)
    who = rng.integers(12, size=300)
    stack, task = trained(who[:, None] + 0.4 * rng.random((300, 6)), 0, groups=who)
    plain, seen = Table.ask, list[torch.Tensor]()

    def ask(self: Table, raw: torch.Tensor, dice: torch.Tensor, share: torch.Tensor) -> Any:
        seen.append(raw)
        return plain(self, raw, dice, share)

    monkeypatch.setattr(Table, "ask", ask)
    against_chance(stack, task, 7)
    raw = torch.cat(seen)
    assert (raw[1:] != raw[0]).float().mean() > 0.5  # something was shifted
    assert torch.equal(raw[1:].floor(), raw[:1].floor().expand_as(raw[1:])) == stays


def test_a_channel_of_its_own_is_told_from_those_that_depend() -> None:
    """Six channels that depend on each other, and one that does not: it is taken for one of them as rarely as is
    said."""
    others, every = [], []
    for seed in range(30):
        rng = np.random.default_rng(1_000 + seed)
        values = np.concatenate([dependent(300, seed), rng.normal(size=(300, 1))], axis=1)
        if seed % 2:
            for step in range(1, len(values)):
                values[step] += 0.8 * values[step - 1]
        stack, task = trained(values, 60, seeds=(seed,))
        *seen, alone = channel_p_values(stack, task, 19, seed)
        others += seen
        every.append(alone)
    assert np.mean(others) < 0.07
    assert np.sum(np.array(every) <= 0.1) <= 9  # 3 are expected, more than 9 less than once in a thousand times
    assert 0.35 < np.mean(every) < 0.7


def test_a_weak_dependence_is_seen_where_there_are_many_samples() -> None:
    """Less than a tenth of each channel can be told from the others."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(8_000, 1)) + 3 * rng.normal(size=(8_000, 8))
    stack, task = trained(values, 300)
    assert (channel_p_values(stack, task, 39) == 1 / 40).all()


def test_a_channel_that_tells_but_is_not_told_is_found_by_what_it_tells() -> None:
    """Four numbers and their sizes without a sign: these are told by the numbers, the numbers by nobody."""
    values = np.random.default_rng(0).normal(size=(4_000, 4))
    both = np.concatenate([values, np.abs(values)], axis=1)
    stack, task = trained(both, 1_500, width=16, layers=2, batch=64, learning_rate=3e-3)
    told = channel_p_values(stack, task, 39)
    assert (told[4:] == 1 / 40).all() and (told[:4] > 0.05).sum() >= 3
    assert predictive_channels(stack, task, range(4), most=1_000) == [0, 1, 2, 3]
    assert len(predictive_channels(stack, task, range(4), most=50)) == 1  # 39 shifts for all together, 39 for one


def test_few_shifts_are_spent_on_many_channels_that_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 channels of their own are given up in three groups; one that tells is found among them all the same."""
    alone = np.random.default_rng(0).normal(size=(1_000, 40))
    stack, task = trained(np.concatenate([alone, dependent(1_000)[:, :3]], axis=1), 1_000)
    passes = 0

    def counted(self: Stack, *given: object, **more: object) -> torch.Tensor:
        nonlocal passes
        passes += 1
        return forward(self, *given, **more)

    forward = Stack.forward
    monkeypatch.setattr(Stack, "forward", counted)
    found = predictive_channels(stack, task, range(41), most=10_000)
    assert 40 in found and len(found) <= 4
    passes = 0
    assert len(predictive_channels(stack, task, range(40), most=10_000)) <= 3
    parts = len(portions(stack, task, len(chance._test_rows(task, chance.SAMPLES_OF_TABLE_TEST)[0])))
    assert passes / parts < 2 * 40  # one by one, each would take two at least: as it is, and shifted once


def test_a_channel_of_its_own_seldom_seems_to_tell_of_others() -> None:
    found = 0
    for seed in range(20):
        rng = np.random.default_rng(1_000 + seed)
        values = np.concatenate([dependent(200, seed), rng.normal(size=(200, 1))], axis=1)
        stack, task = trained(values, 40, seeds=(seed,))
        found += len(predictive_channels(stack, task, [6], 1_000, seed))
    assert found <= 4  # one half is expected, more than four less than once in a thousand times


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_a_single_channel_is_shifted_alone(missing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: the same predictions, held against the channel turned round in each block."""
    values = dependent()
    values[np.random.default_rng(1).random(values.shape) < missing] = np.nan
    stack, task = trained(values, 5, seeds=(0, 1))
    monkeypatch.setattr(chance, "MAX_MASKS_PER_SAMPLE", 1)
    rows = torch.arange(len(task.splits["test"]))
    local = task.bind(stack.members)
    raw = task.raw("test", rows)
    dice = task.dice("test", rows[None]).view(len(rows), 6)
    inputs, targets = local.ask(raw, dice, torch.full((len(rows),), 0.3, dtype=torch.float64))
    told = stack(inputs.expand(2, *inputs.shape)).mean(0)[..., 0].detach().numpy()
    assert task.pieces is not None
    own = task.pieces[task.splits["test"].targets]
    turns = np.random.default_rng(3).random((20, len(np.unique(own)), 6))
    true, _ = task.standard(raw)
    gains = np.zeros((20, 6))
    for draw in range(20):
        for channel in range(6):
            shown, known = true[:, channel, 0].numpy().copy(), ~raw[:, channel].isnan().numpy()
            for place, piece in enumerate(np.unique(own)):
                here = (own == piece) & known
                shown[here] = np.roll(shown[here], -int(turns[draw, place, channel] * here.sum()) if draw else 0)
            asked = targets[:, channel, -1].bool().numpy()
            assert known[asked].all()
            gains[draw, channel] = (shown[asked] ** 2 - (told[:, channel] - shown)[asked] ** 2).sum()
    expected = (1 + (gains[1:] >= gains[0]).sum(axis=0)) / 20
    np.testing.assert_allclose(channel_p_values(stack, task, 19, seed=3), expected)


def test_a_dependence_that_was_learned_gives_the_least_p() -> None:
    stack, task = trained(dependent(), 60)
    found = against_chance(stack, task, 39)
    assert found.p == 1 / 40 and found.gain > found.shifted.max() and len(found.shifted) == 39
    untrained, _ = trained(dependent(), 0)
    assert against_chance(untrained, task, 39).p > 1 / 40


def test_the_p_value_counts_the_true_samples_in() -> None:
    stack, task = trained(dependent(), 0)
    found = against_chance(stack, task, 19, seed=3)
    assert found.p == (1 + (found.shifted >= found.gain).sum()) / 20
    assert against_chance(stack, task, 19, seed=3).p == found.p
    assert not np.array_equal(against_chance(stack, task, 19, seed=4).shifted, found.shifted)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_a_shift_keeps_what_each_channel_is_like(missing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every channel of a shifted table is the true one, round and round in each block; what is missing stays where it
    is, and the same ones are hidden."""
    values = dependent()
    values[np.random.default_rng(1).random(values.shape) < missing] = np.nan
    stack, task = trained(values, 0)
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    plain = Table.ask

    def ask(self: Table, raw: torch.Tensor, dice: torch.Tensor, share: torch.Tensor) -> Any:
        seen.append((raw, plain(self, raw, dice, share)[1][..., -1]))
        return plain(self, raw, dice, share)

    monkeypatch.setattr(Table, "ask", ask)
    found = against_chance(stack, task, 7)
    raw, asked = (torch.cat(each) for each in zip(*seen, strict=True))
    many = len(task.splits["test"])
    assert raw.shape == (8, many, 6) and many >= 78 and np.isfinite(found.shifted).all()
    true = raw[0].numpy()
    assert task.pieces is not None
    own = task.pieces[task.splits["test"].targets]
    assert len(np.unique(own)) == 4
    np.testing.assert_array_equal(true, values[task.splits["test"].targets].astype(np.float32))
    for draw in raw[1:].numpy():
        for piece in np.unique(own):
            known = ~np.isnan(true)
            assert np.array_equal(known, ~np.isnan(draw))
            by = [
                next(k for k in range(many) if np.array_equal(np.roll(t[here], -k), d[here]))
                for t, d, here in zip(true.T, draw.T, (known & (own == piece)[:, None]).T, strict=True)
            ]
            assert len(set(by)) > 1  # against each other
    assert (asked == asked[0]).all() and not asked[torch.isnan(raw)].any()


def test_many_test_samples_are_thinned_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chance, "SAMPLES_OF_TABLE_TEST", (10, 30, 1_000))
    stack, task = trained(dependent(1_000), 0)
    rows = torch.arange(30) * len(task.splits["test"]) // 30
    inputs, targets = task.bind(stack.members).ask(
        task.raw("test", rows), task.dice("test", rows[None]).view(30, 6), torch.full((30,), 0.3, dtype=torch.float64)
    )
    outputs = stack(inputs[None])
    error, guessed = (task.metrics(each, targets[None])["mse"].mean() for each in (outputs, torch.zeros_like(outputs)))
    assert against_chance(stack, task, 3).gain == pytest.approx((guessed - error).item(), rel=1e-4)


def test_of_many_groups_whole_ones_are_asked() -> None:
    """1,000 groups of 20 samples: more than can be asked, but each is long enough to shift within."""
    values = np.random.default_rng(0).normal(size=(20_000, 5))
    task = tables(values.astype(np.float32), groups=np.repeat(np.arange(1_000), 20))["all"]
    rows, pieces = chance._test_rows(task, (60, 400, 30_000))
    assert len(rows) == 400 and len(np.unique(rows)) == 400
    names, sizes = np.unique(pieces, return_counts=True)
    assert len(names) == 20 and (sizes == 20).all() and (np.diff(pieces) >= 0).all()
    assert task.pieces is not None
    np.testing.assert_array_equal(task.pieces[task.splits["test"].targets[rows]], pieces)
    pairs = tables(values.astype(np.float32), groups=np.repeat(np.arange(10_000), 2))["all"]
    rows, pieces = chance._test_rows(pairs, (60, 400, 30_000))  # two samples leave nothing to shift
    assert len(rows) == 400 and not pieces.any()


def test_levels_of_many_groups_are_no_dependence_either() -> None:
    who = np.repeat(np.arange(300), 20)
    found = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        values = rng.normal(size=(6_000, 5)) + 2 * rng.normal(size=(300, 1))[who]
        stack, task = trained(values, 40, seeds=(seed,), groups=who)
        found.append(against_chance(stack, task, 19, seed).p)
    assert np.mean(found) > 0.3 and sum(p <= 0.05 for p in found) <= 3


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_missing_values_neither_hide_a_dependence_nor_make_one(missing: float) -> None:
    own, others = [], []
    for seed in range(10):
        rng = np.random.default_rng(100 + seed)
        values = np.concatenate([dependent(300, seed), rng.normal(size=(300, 3))], axis=1)
        values[rng.random(values.shape) < missing] = np.nan
        stack, task = trained(values, 80, seeds=(seed,))
        found = channel_p_values(stack, task, 19, seed)
        others += list(found[:6])
        own += list(found[6:])
    assert np.mean(np.array(others) <= 0.05) > 0.8
    assert 0.35 < np.mean(own) < 0.65 and np.mean(np.array(own) <= 0.1) < 0.25


def test_errors_of_questions_are_those_of_evaluation() -> None:
    stack, task = trained(dependent(), 3, seeds=(0, 5))
    found = question_errors(stack, task, "validation")
    assert found.shape == (2, task.rows("validation"))
    told = evaluate(stack, task.bind(stack.members), "validation")["hidden 0.3", "mse"]
    np.testing.assert_allclose(found.mean(axis=1), told, rtol=1e-6)
