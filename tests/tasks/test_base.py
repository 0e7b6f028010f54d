"""The contract of a task: what every task can do without a word of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from placecode.models.member import Member
from placecode.training.trainer import evaluate, stack_for


@pytest.mark.parametrize("readout", ["last", "token"])
@pytest.mark.parametrize("count", [1, 2, 10, 15, 100])
def test_the_first_examples_of_every_split(make_task: Any, readout: str, count: int) -> None:
    task = make_task(readout=readout)
    few = task.first(count)
    assert set(few.splits) == {"train", "test"}
    for name, split in task.splits.items():
        short = few.splits[name]
        assert len(short) == min(count, len(split))
        assert torch.equal(short.inputs, split.inputs[:count])
        assert torch.equal(short.targets, split.targets[:count])
        assert short.conditions == split.conditions[:count]
    assert (few.tokens, few.features, few.outputs, few.readout) == (6, 3, task.outputs, readout)
    assert few.positions is task.positions
    assert few.token_names == task.token_names
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 22, "test": 10}  # untouched


def test_examples_without_conditions_have_none_among_the_first(make_task: Any) -> None:
    task = make_task()
    task.splits = {name: type(split)(split.inputs, split.targets) for name, split in task.splits.items()}
    assert task.first(3).splits["train"].conditions is None


def test_the_first_examples_are_judged_as_before(make_task: Any) -> None:
    task = make_task().to("cpu")
    stack = stack_for([Member(width=8, layers=1, heads=2)], task)
    alone = [evaluate(stack, task.first(count), "test")["all", "loss"][0] for count in (1, 2)]
    answers = stack(task.splits["test"].inputs[:2])
    losses = torch.nn.functional.cross_entropy(answers, task.splits["test"].targets[:2], reduction="none")
    assert alone == pytest.approx([losses[0].item(), losses.mean().item()], abs=1e-6)
