"""Training with the GPU implementation: against the reference, in bfloat16, and as captured graphs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="the kernels need Triton")

from helpers.training.members import same_bits, same_state

from placecode.execution.settings import ExecutionSettings
from placecode.models.encoder import Stack
from placecode.models.member import Member
from placecode.tasks.base import Task
from placecode.training import trainer as training
from placecode.training.trainer import Trainer, evaluate, stack_for

pytestmark = [
    pytest.mark.usefixtures("exact_products", "bfloat16_products"),
    pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning"),  # tests use NaN on purpose
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
    assert trainer.outcome()["alive"].all()
    return losses


def answers(stack: Stack, task: Task) -> Tensor:
    x = task.splits["test"].inputs.to(stack.flat)
    with torch.no_grad():
        return stack(x.expand(len(stack.members), *x.shape))


@pytest.mark.parametrize(
    "fields",
    [
        {"heads": 1, "optimizer": "adamw", "weight_decay": 0.1, "pe_weight_decay": 2.0, "clip": 1.0, "cooldown": 0.5},
        {"heads": 2, "encoding": "relative", "dropout": 0.2, "optimizer": "sgd", "output_gain": 2.0},
    ],
    ids=str,
)
def test_training_is_that_of_the_reference(fields: dict[str, Any], task, kernel_device) -> None:
    """Training takes more than an epoch, with a smaller last batch. Evaluation is compared too."""
    members = [small(seed=seed, sigma=sigma, **fields) for seed, sigma in enumerate((0.1, 1.0))]
    fast, plain = (stack_for(members, task, kernel_device, fast=is_fast) for is_fast in (True, False))
    start, device_task = answers(plain, task), task.to(kernel_device)
    for actual, expected_loss in zip(train(fast, task, 5), train(plain, task, 5), strict=True):
        torch.testing.assert_close(actual, expected_loss, rtol=0, atol=1e-4)
    outputs, expected = answers(fast, task), answers(plain, task)
    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-4)
    assert (expected - start).abs().amax((1, 2)).min() > 0.05  # training has changed the outputs
    expected = evaluate(plain, device_task, "test")
    for key, actual in evaluate(fast, device_task, "test").items():
        assert actual == pytest.approx(expected[key], abs=1e-4)


def test_evaluation_does_not_depend_on_the_portions(task, kernel_device, monkeypatch) -> None:
    """Dropout masks depend on the example. Results are compared with the reference."""
    members = [small(seed=seed, dropout=0.5, dropout_at_evaluation=True) for seed in range(2)]
    fast, plain = (stack_for(members, task, kernel_device, fast=is_fast) for is_fast in (True, False))
    task = task.to(kernel_device)
    expected = evaluate(plain, task, "test")
    for values in (10**6, 100 if kernel_device == "cpu" else 2):
        monkeypatch.setattr(training, "MAX_EVALUATION_VALUES", values)
        for key, actual in evaluate(fast, task, "test").items():
            assert actual == pytest.approx(expected[key], abs=1e-5)


def test_a_member_trains_alone_as_in_a_stack_of_three(task, kernel_device) -> None:
    member = small(seed=3, weight_decay=0.01, pe_weight_decay=0.2, output_gain=2.0)
    alone = stack_for([member], task, kernel_device, fast=True)
    together = stack_for([small(seed=1, encoding="sinusoid"), member, small(clip=0.1)], task, kernel_device, fast=True)
    train(alone, task, 2)
    train(together, task, 2)
    torch.testing.assert_close(answers(together, task)[1], answers(alone, task)[0], rtol=0, atol=1e-5)
    assert (answers(together, task)[0] - answers(alone, task)[0]).abs().max() > 1e-2  # its neighbour differs


@pytest.mark.parametrize("heads", [1, 2])
def test_a_nan_in_one_member_changes_no_bit_of_the_others(heads: int, task, kernel_device) -> None:
    """The member itself keeps its bits. A frozen PE does not change, and gaps between parameters stay zero."""
    members = [small(heads=heads, layers=1, weight_decay=0.1, seed=seed, learn=seed != 2) for seed in range(3)]
    diverging, quiet = (Trainer(stack_for(members, task, kernel_device, fast=True), task, steps=9) for _ in range(2))
    start, columns, others = diverging.stack.flat.clone(), diverging.stack.encoding_columns, [0, 2]
    for step in range(2):
        if step == 1:
            diverging.stack.blocks[0].up.weight.data[1, 1, 1] = math.nan
            with_nan = diverging.stack.flat[1].clone()
        losses, expected = diverging.update(), quiet.update()
        assert same_bits(losses[others], expected[others])
        assert diverging.outcome()["alive"].tolist() == [True, step < 1, True]
    assert diverging.outcome()["diverged_at"].tolist() == [-1, 2, -1] and quiet.outcome()["alive"].all()
    assert same_bits(diverging.stack.flat[others], quiet.stack.flat[others])
    assert same_bits(diverging.stack.flat[1], with_nan) and with_nan.isnan().sum() == 1
    for name, value in diverging.active.optimizer.state.items():
        assert same_bits(value[others], quiet.active.optimizer.state[name][others])
    moved = (quiet.stack.flat != start)[:, columns:].any(1).tolist()
    assert moved == [True, True, False]
    gaps = torch.ones_like(start)
    for view in quiet.stack.views(gaps):
        view.zero_()
    assert gaps.any() and not quiet.stack.flat[gaps == 1].any()
    assert quiet.stack.sink is None  # destinations are valid for one step


def test_gradients_of_two_passes_after_training(task, kernel_device) -> None:
    fast, plain = (stack_for([small()], task, kernel_device, fast=is_fast) for is_fast in (True, False))
    for stack in (fast, plain):
        Trainer(stack, task, steps=3).update()
    plain.flat.copy_(fast.flat)
    x = task.splits["test"].inputs.to(fast.flat)
    for stack in (fast, plain):
        (stack(x[:2]).square().sum() + stack(x[2:]).sum()).backward()
    for actual, expected in zip(fast.ordered, plain.ordered, strict=True):
        torch.testing.assert_close(actual.grad, expected.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fields", [{"heads": 1}, {"heads": 2, "encoding": "alibi"}], ids=str)
def test_bfloat16_trains_close_to_float32(fields: dict[str, Any], task, kernel_device) -> None:
    members = [small(seed=1, **fields)]
    half, plain = (stack_for(members, task, kernel_device, fast=is_fast) for is_fast in (True, False))
    start, expected = answers(plain, task), train(plain, task, 4)
    with torch.autocast(kernel_device, torch.bfloat16, cache_enabled=False):
        losses = train(half, task, 4)
        outputs = answers(half, task)
    assert half.flat.dtype == torch.float32
    assert not same_bits(losses[0].float(), expected[0].float())
    for actual, expected_loss in zip(losses, expected, strict=True):
        torch.testing.assert_close(actual.float(), expected_loss, rtol=0, atol=0.1)
    reference = answers(plain, task)
    assert (outputs.float() - reference).norm() < 0.3 * (reference - start).norm()


# ---- captured graphs ------------------------------------------------------------------------------------------------


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
def test_captured_steps_have_the_same_bits(fields: dict[str, Any], precision: str, task, cuda: str) -> None:
    """Epochs have a smaller last batch, and one member diverges."""
    members = [small(seed=seed, **fields) for seed in range(3)]
    captured, uncaptured = (Trainer(stack_for(members, task, cuda, fast=True), task, steps=15) for _ in range(2))
    uncaptured.active._graphed_step.WARM_UP_STEPS = 10**9
    with ExecutionSettings(cuda, precision).arithmetic():
        for step in range(15):
            if step == 8:
                for trainer in (captured, uncaptured):
                    trainer.stack.answer.bias.data[1] = math.nan
            assert same_bits(captured.update(), uncaptured.update()), step
    assert sorted(captured.active._graphed_step.graphs) == [1, 2] and not uncaptured.active._graphed_step.graphs
    assert same_state(captured.state(), uncaptured.state())
    assert captured.outcome()["diverged_at"].tolist() == [-1, 9, -1]


@pytest.mark.parametrize("stop", [4, 6, 11])
def test_a_captured_training_can_be_resumed(stop: int, task, cuda: str) -> None:
    """It is stopped within an epoch of 3 steps and at its end, before and after graphs are captured."""
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
    first.load(Trainer(stack_for(members, task, cuda, fast=True), task, steps=15).state(), step=0)  # from the start
    for _ in range(15):
        first.update()
    assert same_state(first.state(), unbroken.state())


def test_losses_of_captured_steps_are_copies(task, cuda: str) -> None:
    """A graph writes to the same memory every time."""
    trainer = Trainer(stack_for([small(batch=5)], task, cuda, fast=True), task, steps=9)
    losses = [trainer.update() for _ in range(9)]
    assert len({value.item() for value in losses}) == 9


def test_a_step_that_synchronizes_is_not_captured(cuda: str, tiny_task) -> None:
    """A user-defined task may read a value from the GPU during a step, which a graph cannot do."""

    class SynchronizingTask(type(tiny_task)):  # type: ignore[misc]
        def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
            losses = super().loss(outputs, targets)
            assert losses.sum().item() > 0
            return losses

    task = SynchronizingTask()
    synchronizing, quiet = (stack_for([small(batch=8)], t, cuda) for t in (task, tiny_task))
    with pytest.warns(UserWarning, match="cannot be captured"):
        train(synchronizing, task, 12)
    train(quiet, tiny_task, 12)
    torch.testing.assert_close(synchronizing.flat, quiet.flat, rtol=0, atol=1e-5)


def test_members_that_continue_in_a_smaller_stack(task, kernel_device) -> None:
    """One member leaves after its last epoch, of 3 steps. The others continue with these kernels."""
    members = [small(layers=1), small(layers=1, seed=1, last_epoch=1), small(layers=1, seed=2)]
    trainer = Trainer(stack_for(members, task, kernel_device, fast=True), task, steps=5)
    for _ in trainer.run():
        pass
    assert len(trainer.active.stack.members) == 2 and trainer.active.stack.fast
    assert trainer.active.stack.allows_float16 == trainer.stack.allows_float16
    short, long = (stack_for(members, task, kernel_device, fast=True) for _ in range(2))
    plain = Trainer(long, task, steps=5)
    plain.active._last_epochs.fill_(9)  # no member stops
    for step in range(5):
        plain.update()
        if step == 2:
            short.flat.copy_(long.flat)
    assert same_bits(trainer.stack.flat[1], short.flat[1])
    torch.testing.assert_close(trainer.stack.flat[[0, 2]], long.flat[[0, 2]], rtol=1e-4, atol=1e-5)
    assert (long.flat[[0, 2]] - short.flat[[0, 2]]).abs().max() > 1e-3
