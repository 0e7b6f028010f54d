"""Training with the GPU implementation: against the reference, in bfloat16, and as captured graphs."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="the kernels need Triton")

from helpers.training.members import same_bits, same_state

from placecode.execution.where import Where
from placecode.models.encoder import Stack
from placecode.models.member import Member
from placecode.tasks.base import Task
from placecode.training.trainer import Trainer, evaluate, stack_for

pytestmark = [
    pytest.mark.usefixtures("exact_products", "bfloat16_products"),
    pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning"),  # NaN that is meant
]


def small(**fields: Any) -> Member:
    defaults = {"width": 6, "layers": 2, "expansion": 2, "batch": 2, "sigma": 0.5, "learning_rate": 1e-2}
    return Member(**{**defaults, **fields})


@pytest.fixture
def task(make_task) -> Task:
    """2 x 2 cells, 5 examples: batches of 2, 2 and 1."""
    return make_task(rows=2, columns=2, train=5, test=3)


def train(stack: Stack, task: Task, steps: int) -> list[Tensor]:
    """Train and return the losses of all steps."""
    trainer = Trainer(stack, task, steps=steps)
    losses = [trainer.update() for _ in range(steps)]
    assert trainer.alive.all()
    return losses


def answers(stack: Stack, task: Task) -> Tensor:
    x = task.splits["test"].inputs.to(stack.flat)
    with torch.no_grad():
        return stack(x.expand(len(stack.members), *x.shape))


@pytest.mark.parametrize(
    "fields",
    [
        {"heads": 1, "optimizer": "adamw", "weight_decay": 0.1, "pe_weight_decay": 2.0, "clip": 1.0, "cooldown": 0.5},
        {"heads": 2, "encoding": "relative", "dropout": 0.2, "optimizer": "sgd", "gain": 2.0},
    ],
    ids=str,
)
def test_training_is_that_of_the_reference(fields, task, kernel_device) -> None:
    """Over more than an epoch, with a smaller last batch, and with evaluation at the end."""
    members = [small(seed=seed, sigma=sigma, **fields) for seed, sigma in enumerate((0.1, 1.0))]
    fast, plain = (stack_for(members, task, kernel_device, fast=way) for way in (True, False))
    start, here = answers(plain, task), task.to(kernel_device)
    for ours, theirs in zip(train(fast, task, 5), train(plain, task, 5), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)
    result, expected = answers(fast, task), answers(plain, task)
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-4)
    assert (expected - start).abs().amax((1, 2)).min() > 0.05  # they went somewhere
    expected = evaluate(plain, here, "test")
    for key, ours in evaluate(fast, here, "test").items():
        assert ours == pytest.approx(expected[key], abs=1e-4)


def test_gradients_of_two_passes_after_training(task, kernel_device) -> None:
    fast, plain = (stack_for([small()], task, kernel_device, fast=way) for way in (True, False))
    for stack in (fast, plain):
        Trainer(stack, task, steps=3).update()
    plain.flat.copy_(fast.flat)
    x = task.splits["test"].inputs.to(fast.flat)
    for stack in (fast, plain):
        (stack(x[:2]).square().sum() + stack(x[2:]).sum()).backward()
    for ours, theirs in zip(fast.ordered, plain.ordered, strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("precision", ["highest", "tf32", "high", "bf16"])
@pytest.mark.parametrize(
    "fields",
    [
        {"heads": 1, "dropout": 0.2, "cooldown": 0.5, "clip": 1.0},
        {"heads": 2, "encoding": "rotary", "optimizer": "sgd"},
        {"heads": 2, "encoding": "relative", "optimizer": "adamw", "weight_decay": 0.1},
    ],
    ids=str,
)
def test_captured_steps_have_the_same_bits(fields, precision, task, cuda) -> None:
    """Over several epochs with a smaller last batch, and with a member that diverges."""
    members = [small(seed=seed, **fields) for seed in range(3)]
    captured, stepwise = (Trainer(stack_for(members, task, cuda, fast=True), task, steps=15) for _ in range(2))
    stepwise.running._captured.WARM_STEPS = 10**9
    with Where(cuda, precision).arithmetic():
        for step in range(15):
            if step == 8:
                for trainer in (captured, stepwise):
                    trainer.stack.answer.bias.data[1] = math.nan
            assert same_bits(captured.update(), stepwise.update()), step
    assert sorted(captured.running._captured.graphs) == [1, 2] and not stepwise.running._captured.graphs
    assert same_state(captured.state(), stepwise.state()) and captured.diverged_at.tolist() == [-1, 9, -1]


@pytest.mark.parametrize("stop", [4, 6, 11])
def test_a_captured_training_can_be_resumed(stop, task, cuda) -> None:
    """Within an epoch of 3 steps and at its end, before and after graphs are captured."""
    members = [small(seed=seed, dropout=0.2, cooldown=0.5) for seed in range(2)]
    unbroken, first, second = (Trainer(stack_for(members, task, cuda, fast=True), task, steps=15) for _ in range(3))
    for _ in range(15):
        unbroken.update()
    for _ in range(stop):
        first.update()
    second.load(first.state(), step=stop)
    for _ in range(15 - stop):
        second.update()
    assert same_state(second.state(), unbroken.state())
    first.load(Trainer(stack_for(members, task, cuda, fast=True), task, steps=15).state(), step=0)  # back to the start
    for _ in range(15):
        first.update()
    assert same_state(first.state(), unbroken.state())


def test_losses_of_captured_steps_are_copies(task, cuda) -> None:
    """A graph writes to the same memory every time."""
    trainer = Trainer(stack_for([small(batch=5)], task, cuda, fast=True), task, steps=9)
    losses = [trainer.update() for _ in range(9)]
    assert len({value.item() for value in losses}) == 9


def test_a_step_that_synchronizes_is_not_captured(cuda, tiny_task) -> None:
    """A user-defined task may read a value during the step. This must not stop training."""

    class Asking(type(tiny_task)):  # type: ignore[misc]
        def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
            losses = super().loss(outputs, targets)
            assert losses.sum().item() > 0
            return losses

    task = Asking()
    asking, quiet = (stack_for([small(batch=8)], kind, cuda) for kind in (task, tiny_task))
    with pytest.warns(UserWarning, match="cannot be captured"):
        train(asking, task, 12)
    train(quiet, tiny_task, 12)
    torch.testing.assert_close(asking.flat, quiet.flat, rtol=0, atol=1e-5)


def test_members_that_continue_in_a_smaller_stack(task, kernel_device) -> None:
    """One member leaves after its last epoch, of 3 steps. The others continue with these kernels."""
    members = [small(layers=1), small(layers=1, seed=1, last_epoch=1), small(layers=1, seed=2)]
    trainer = Trainer(stack_for(members, task, kernel_device, fast=True), task, steps=5)
    for _ in trainer.run():
        pass
    assert len(trainer.running.stack.members) == 2 and trainer.running.stack.fast
    assert trainer.running.stack.halves == trainer.stack.halves
    short, long = (stack_for(members, task, kernel_device, fast=True) for _ in range(2))
    plain = Trainer(long, task, steps=5)
    plain.running._last_epochs.fill_(9)  # no member stops
    for step in range(5):
        plain.update()
        if step == 2:
            short.flat.copy_(long.flat)
    assert same_bits(trainer.stack.flat[1], short.flat[1])
    torch.testing.assert_close(trainer.stack.flat[[0, 2]], long.flat[[0, 2]], rtol=1e-4, atol=1e-5)
    assert (long.flat[[0, 2]] - short.flat[[0, 2]]).abs().max() > 1e-3
