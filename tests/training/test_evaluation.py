"""Evaluation of a stack: the metrics of every member, split and condition."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.training.members import same_state, small

from placecode.training import trainer as training
from placecode.training.trainer import Trainer, evaluate, stack_for


def test_evaluation_of_a_diverged_member_does_not_disturb_the_others(tiny_task) -> None:
    members = [small(seed=seed) for seed in range(3)]
    stack, task = stack_for(members, tiny_task), tiny_task.to("cpu")
    clean = evaluate(stack, task, "test")
    stack.flat[1] = math.nan
    broken = evaluate(stack, task, "test")
    for key in clean:
        assert [broken[key][i] for i in (0, 2)] == [clean[key][i] for i in (0, 2)]
    assert math.isnan(broken["all", "loss"][1])


@pytest.mark.parametrize("values", [1, 2 * 6 * 8, 5 * 2 * 6 * 8 - 1, 5 * 2 * 6 * 8, 10**9])
@pytest.mark.parametrize("examples", [0, 1, 9, 10, 22])
def test_portions_hold_every_example_once_and_no_more_than_fits(
    values: int, examples: int, tiny_task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "MAX_EVALUATION_VALUES", values)
    stack = stack_for([small(), small(seed=1)], tiny_task)
    parts = training.portions(stack, tiny_task, examples)
    assert [example for part in parts for example in part] == list(range(examples))
    most = max(1, values // (2 * 6 * 8))  # members x tokens x features
    assert all(1 <= len(part) <= most for part in parts)
    assert all(len(part) == most for part in parts[:-1])


@pytest.mark.parametrize("fields", [{}, {"dropout": 0.3, "dropout_at_evaluation": True}])
def test_evaluation_does_not_depend_on_portions(fields: dict, tiny_task, monkeypatch: pytest.MonkeyPatch) -> None:
    task = tiny_task.to("cpu", torch.float64)
    stack = stack_for([small(seed=seed, **fields) for seed in range(2)], task, dtype=torch.float64)
    expected = evaluate(stack, task, "train")
    for values in (1, 3 * 2 * 6 * 8, 1000):
        monkeypatch.setattr(training, "MAX_EVALUATION_VALUES", values)
        for key, means in evaluate(stack, task, "train").items():
            assert means == pytest.approx(expected[key], abs=1e-12)


MEMBERS = [small(seed=seed, sigma=1.0) for seed in range(3)]


def test_evaluation_equals_a_computation_by_hand(tiny_task) -> None:
    task = tiny_task.to("cpu", torch.float64)
    stack = stack_for(MEMBERS, task, dtype=torch.float64)
    for split in ("train", "test"):
        result, data = evaluate(stack, task, split), task.splits[split]
        keys = {(condition, metric) for condition in ("all", "clear", "near") for metric in ("accuracy", "loss")}
        assert set(result) == keys
        for i in range(3):
            single = stack.member(i)
            sums = dict.fromkeys(keys, 0.0)
            counts = dict.fromkeys(("all", "clear", "near"), 0)
            for x, target, condition in zip(data.inputs, data.targets, data.conditions, strict=True):
                scores = single(x[None])[0]
                loss = -torch.log(scores.exp() / scores.exp().sum())[target].item()
                right = float(max(range(3), key=lambda c, s=scores: s[c].item()) == target.item())
                for name in ("all", condition):
                    counts[name] += 1
                    sums[name, "accuracy"] += right
                    sums[name, "loss"] += loss
            assert counts["clear"] > 0
            assert counts["near"] > 0
            for condition, metric in keys:
                expected = sums[condition, metric] / counts[condition]
                assert result[condition, metric][i] == pytest.approx(expected, abs=1e-12)


def test_evaluation_is_deterministic_and_leaves_the_trainer_as_it_was(tiny_task) -> None:
    trainer = Trainer(stack_for(MEMBERS, tiny_task), tiny_task, steps=5)
    trainer.update()
    before = trainer.state()
    assert list(trainer.evaluate()) == list(trainer.evaluate())
    assert same_state(trainer.state(), before)


def test_evaluation_ignores_training_dropout(tiny_task) -> None:
    task = tiny_task.to("cpu")
    plain = evaluate(stack_for(MEMBERS, task), task, "test")
    dropping = [small(seed=seed, sigma=1.0, dropout=0.5) for seed in range(3)]
    assert evaluate(stack_for(dropping, task), task, "test") == plain
    always = [small(seed=seed, sigma=1.0, dropout=0.5, dropout_at_evaluation=True) for seed in range(3)]
    assert evaluate(stack_for(always, task), task, "test") != plain


def test_evaluation_numbers_per_token_and_no_conditions(make_task) -> None:
    task = make_task(readout="token").to("cpu", torch.float64)
    data = task.splits["test"]
    task.splits = {"test": type(data)(data.inputs, data.targets), "train": data}
    stack = stack_for(MEMBERS, task, dtype=torch.float64)
    result = evaluate(stack, task, "test")
    assert set(result) == {("all", "mse")}
    expected = (stack.member(1)(data.inputs) - data.targets).square().mean().item()
    assert result["all", "mse"][1] == pytest.approx(expected, abs=1e-12)


def test_evaluation_rows_of_a_trainer(tiny_task) -> None:
    trainer = Trainer(stack_for(MEMBERS, tiny_task), tiny_task, steps=5)
    rows = list(trainer.evaluate())
    assert len(rows) == 3 * 2 * 3 * 2  # members, splits, conditions, metrics
    assert set(rows[0]) == {"member", "step", "split", "condition", "metric", "value"}
    values = {(row["member"], row["split"], row["condition"], row["metric"]): row["value"] for row in rows}
    expected = evaluate(trainer.stack, trainer.task, "test")["near", "loss"]
    assert [values[i, "test", "near", "loss"] for i in range(3)] == expected
