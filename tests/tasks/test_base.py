"""What every task inherits from `Task`."""

import pytest
import torch

from placecode.models.member import Member
from placecode.training.trainer import evaluate, stack_for


@pytest.mark.parametrize("readout", ["last", "token"])
@pytest.mark.parametrize("count", [1, 15, 100])
def test_first_keeps_the_first_examples_of_every_split(make_task, readout, count) -> None:
    task = make_task(readout=readout)
    few = task.first(count)
    for name, split in task.splits.items():
        short = few.splits[name]
        assert len(short) == min(count, len(split))
        assert torch.equal(short.inputs, split.inputs[:count]) and torch.equal(short.targets, split.targets[:count])
        assert short.conditions == split.conditions[:count]
    assert (few.tokens, few.features, few.outputs, few.readout) == (6, 3, task.outputs, readout)
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 22, "test": 10}  # unchanged


def test_first_examples_have_the_same_loss(make_task) -> None:
    task = make_task().to("cpu")
    stack = stack_for([Member(width=8, layers=1, heads=2)], task)
    alone = [evaluate(stack, task.first(count), "test")["all", "loss"][0] for count in (1, 2)]
    answers = stack(task.splits["test"].inputs[:2])
    losses = torch.nn.functional.cross_entropy(answers, task.splits["test"].targets[:2], reduction="none")
    assert alone == pytest.approx([losses[0].item(), losses.mean().item()], abs=1e-6)
