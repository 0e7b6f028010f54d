"""Members that stop early: they settle, keep a loss of 0, reach their last epoch or diverge."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers.training.members import same_bits, same_state
from torch import Tensor

from placecode.errors import BadInput
from placecode.execution.settings import ExecutionSettings
from placecode.models.member import Member
from placecode.tasks.latin_squares import LatinSquares
from placecode.tasks.network import Network
from placecode.training.active_stack import ActiveStack, fingerprints
from placecode.training.trainer import Trainer, stack_for

PUZZLES = LatinSquares(per_class=8, heldout=3, distance=0.5)
EPOCH = 6
"""Steps of an epoch: 21 training puzzles, 4 at a time."""
LOOK = 9
"""Epochs between two checks for settled members: at least 50 steps."""


def small(**fields: Any) -> Member:
    defaults = {"width": 16, "layers": 1, "expansion": 2, "batch": 4, "learning_rate": 3e-3}
    return Member(**{**defaults, **fields})


def quick(**fields: Any) -> Member:
    """A member whose gradients soon become exactly 0: with this gain the probabilities of wrong answers are 0."""
    return small(**{"output_gain": 1000.0, "learning_rate": 1e-2, **fields})


def slow(**fields: Any) -> Member:
    return small(**{"seed": 1, **fields})


def trained(
    members: list[Member], epochs: int, device: str = "cpu", **how: Any
) -> tuple[Trainer, list[dict[str, Any]]]:
    trainer = Trainer(stack_for(members, PUZZLES, device), PUZZLES, epochs * EPOCH, **how)
    return trainer, [row for progress in trainer.run() for row in progress.rows]


def step_by_step(members: list[Member], epochs: int, device: str = "cpu") -> Tensor:
    """The parameters after all epochs, without a check for settled members."""
    active = ActiveStack(stack_for(members, PUZZLES, device), PUZZLES, epochs * EPOCH)
    for step in range(epochs * EPOCH):
        active.update(step)
    return active.stack.flat


def test_training_ends_when_all_members_have_settled() -> None:
    members, epochs = [small(learning_rate=0.0), small(seed=1, learning_rate=0.0)], 40
    trainer, rows = trained(members, epochs, evaluate_at=range(0, epochs * EPOCH, 10 * EPOCH))
    assert trainer.steps_per_epoch == EPOCH
    assert trainer.outcome()["settled_epoch"].tolist() == [2 * LOOK] * 2
    assert trainer.step == trainer.steps and trainer.stopped.all()
    assert {row["step"] for row in rows} == set(range(0, epochs * EPOCH + 1, 10 * EPOCH))  # also after the end
    assert rows[-len(rows) // 5 :] == list(trainer.evaluate())


def test_settled_members_have_the_bits_of_the_full_length_and_the_others_continue() -> None:
    members, epochs = [quick(), slow(), quick(seed=2)], 180
    trainer, _ = trained(members, epochs)
    outcome = trainer.outcome()
    settled = outcome["settled_epoch"].tolist()
    assert settled[1] == -1 and all(2 * LOOK < epoch < epochs for epoch in (settled[0], settled[2]))
    assert outcome["zero_loss_epoch"].tolist() == [-1] * 3  # by default, a loss of zero stops no member
    assert len(trainer.active.stack.members) == 1
    active = ActiveStack(stack_for(members, PUZZLES), PUZZLES, epochs * EPOCH)
    for step in range(epochs * EPOCH):
        if step == (epochs - 10) * EPOCH:
            earlier = active.stack.flat[1].clone()
        active.update(step)
    assert same_bits(trainer.stack.flat[[0, 2]], active.stack.flat[[0, 2]])
    torch.testing.assert_close(trainer.stack.flat[1], active.stack.flat[1], rtol=0, atol=1e-3)
    assert (trainer.stack.flat[1] - earlier).abs().max() > 1e-3  # it did continue


@pytest.mark.parametrize("precision", ["high", "highest"])
def test_settled_members_have_the_bits_of_the_full_length_on_a_gpu(precision: str, cuda: str) -> None:
    """Gradients of 0 take a larger gain than on a CPU. When a member leaves, the others may round differently."""
    epochs, members = 400, [quick(seed=seed, output_gain=1e5) for seed in (0, 2)]
    with ExecutionSettings(cuda, precision).arithmetic():
        for member in members:
            trainer, _ = trained([member], epochs, cuda)
            assert 2 * LOOK < trainer.outcome()["settled_epoch"].tolist()[0] < epochs
            assert same_bits(trainer.stack.flat, step_by_step([member], epochs, cuda))
        trainer, _ = trained(members, epochs, cuda)
        settled = trainer.outcome()["settled_epoch"]
        first = settled == settled[settled > 0].min()
        assert same_bits(trainer.stack.flat[first], step_by_step(members, epochs, cuda)[first])


def test_fingerprints_differ_if_one_bit_differs() -> None:
    flat = torch.randn(3, 200_000)
    before = fingerprints(flat)
    assert torch.equal(before, fingerprints(flat.clone()))
    flat[1, 123_456] = torch.nextafter(flat[1, 123_456], torch.tensor(9.0))
    assert (fingerprints(flat) == before).tolist() == [True, False, True]
    flat[2, [5, 6]] = flat[2, [6, 5]]  # the same numbers at other places
    assert (fingerprints(flat) == before).tolist() == [True, False, False]
    flat[0, :3] = flat[0, :3].view(torch.int32).add(torch.tensor([1, -2, 1], dtype=torch.int32)).view(torch.float32)
    assert fingerprints(flat)[0] != before[0]
    zeros = torch.zeros(2, 4)
    zeros[1, 2] = -0.0
    assert fingerprints(zeros)[0] != fingerprints(zeros)[1]


def test_a_member_stops_after_a_number_of_epochs_with_zero_loss() -> None:
    members = [quick(), slow()]
    trainer, _ = trained(members, 130, zero_loss_patience=5)
    outcome = trainer.outcome()
    stopped, never = outcome["zero_loss_epoch"].tolist()
    assert 5 < stopped < 115 and never == -1
    assert outcome["settled_epoch"].tolist() == [-1, -1]
    active = ActiveStack(stack_for(members, PUZZLES), PUZZLES, 130 * EPOCH)
    losses = torch.stack([active.update(step) for step in range(stopped * EPOCH)]).view(stopped, EPOCH, 2)
    quiet = (losses == 0).all(1)[:, 0].tolist()
    assert quiet[-5:] == [True] * 5
    assert all(not all(quiet[first : first + 5]) for first in range(stopped - 5))  # and not before
    assert same_bits(trainer.stack.flat[0], active.stack.flat[0])


def test_a_member_stops_at_its_last_epoch() -> None:
    members = [slow(last_epoch=3), slow(seed=2)]
    trainer, rows = trained(members, 8, evaluate_at=[3 * EPOCH])
    assert same_bits(trainer.stack.flat[0], step_by_step(members, 3)[0])
    losses = {
        (row["step"], row["member"]): row["value"]
        for row in rows
        if (row["split"], row["metric"], row["condition"]) == ("train", "loss", "all")
    }
    assert losses[3 * EPOCH, 0] == losses[8 * EPOCH, 0] != losses[0, 0]
    assert losses[3 * EPOCH, 1] != losses[8 * EPOCH, 1]
    assert trainer.stopped.tolist() == [True, False]


@pytest.mark.parametrize("last", [0, -1, 1.5, True, "3"])
def test_invalid_last_epochs_are_rejected(last: Any) -> None:
    with pytest.raises(BadInput, match=r"^last_epoch must be a whole number of at least 1"):
        small(last_epoch=last)
    with pytest.raises(BadInput, match=r"^last_epoch must be left out with a cooldown"):
        small(last_epoch=3, cooldown=0.5)


def run_to_end(trainer: Trainer) -> Trainer:
    for _ in trainer.run():
        pass
    return trainer


def five() -> Trainer:
    members = [quick(), slow(last_epoch=30), quick(seed=2), slow(seed=3), slow(seed=4)]
    return Trainer(stack_for(members, PUZZLES), PUZZLES, 130 * EPOCH, zero_loss_patience=5)


@pytest.fixture(scope="module")
def unbroken() -> Trainer:
    return run_to_end(five())


@pytest.mark.parametrize("stop", [3, 40 * EPOCH + 2, 125 * EPOCH])
def test_a_resumed_training_gives_the_same_bits(stop: int, unbroken: Trainer) -> None:
    """Before and after members have stopped, also within an epoch."""
    first, second = five(), five()
    while first.step < stop:
        first.update()
    second.load({name: value.clone() for name, value in first.state().items()}, first.step)
    assert (len(second.active.stack.members) < 5) == (stop > 30 * EPOCH)
    run_to_end(second)
    assert same_state(second.state(), unbroken.state())


def test_an_earlier_state_can_be_loaded_after_members_have_stopped() -> None:
    trainer = Trainer(stack_for([slow(last_epoch=1), slow(seed=2)], PUZZLES), PUZZLES, 3 * EPOCH)
    start = {name: value.clone() for name, value in trainer.state().items()}
    once = run_to_end(trainer).state()
    assert len(trainer.active.stack.members) == 1
    trainer.load(start, 0)
    assert len(trainer.active.stack.members) == 2 and trainer.active.stack is trainer.stack
    assert same_state(run_to_end(trainer).state(), once)


class TestCauseOfDivergence:
    """The check that detected it is part of the state."""

    def cause(self, trainer: Trainer) -> list[int]:
        return trainer.outcome()["cause"].tolist()

    def test_loss(self) -> None:
        trainer = Trainer(stack_for([small(), small(seed=1)], PUZZLES), PUZZLES, 3)
        trainer.stack.answer.bias.data[1] = torch.nan
        trainer.update()
        assert self.cause(trainer) == [0, 1] and trainer.outcome()["diverged_at"].tolist() == [-1, 1]

    def test_gradient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        trainer = Trainer(stack_for([small(), small(seed=1)], PUZZLES, fast=False), PUZZLES, 3)
        plain = trainer.stack.gradients

        def spoiled(loss: Tensor, out: Tensor) -> None:
            plain(loss, out)
            out[0, 3] = torch.inf

        monkeypatch.setattr(trainer.stack, "gradients", spoiled)
        trainer.update()
        assert self.cause(trainer) == [2, 0]

    def test_parameters(self) -> None:
        trainer = Trainer(stack_for([small(), small(seed=1)], PUZZLES), PUZZLES, 3)
        trainer.stack.flat[1, 0] = torch.inf
        trainer.active.check_parameters(0)
        assert self.cause(trainer) == [0, 3]

    def test_members_that_leave_a_stack_are_checked_first(self) -> None:
        """The parameters of one are not finite after its last epoch."""
        members = [small(last_epoch=2), small(seed=1), small(seed=2)]
        trainer = Trainer(stack_for(members, PUZZLES), PUZZLES, 5 * EPOCH)
        for _ in range(2 * EPOCH - 1):
            trainer.update()
        trainer.active.optimizer.rate[0] = torch.inf
        trainer.update()
        assert len(trainer.active.stack.members) == 2
        assert self.cause(trainer) == [3, 0, 0]
        assert trainer.outcome()["diverged_at"].tolist() == [2 * EPOCH, -1, -1]

    def test_overflow_in_float16_and_too_large_gradients(self) -> None:
        """If the step is finite when it is repeated, float16 overflowed. A norm that overflows again is not that."""
        trainer = Trainer(stack_for([small(), small(seed=1, output_gain=1e25)], PUZZLES), PUZZLES, 3)
        active = trainer.active
        active.stack.allows_float16 = True  # as on a GPU
        trainer.update()
        assert self.cause(trainer) == [0, 2]
        active.cause[0], active.alive[0], active.diverged_at[0] = 2, False, 1  # had it overflown there
        active.find_float16_overflow()
        assert self.cause(trainer) == [4, 2]


@pytest.mark.parametrize("what", ["dropout", "masks"])
def test_no_member_settles_in_training_with_random_numbers(what: str, make_task: Any) -> None:
    """An epoch without a change does not mean that the next one has none."""
    if what == "dropout":
        trainer, _ = trained([small(dropout=0.1, learning_rate=0.0)], 40)
    else:
        task = make_task(readout="token")
        task.stochastic_batches = True
        trainer = run_to_end(Trainer(stack_for([small(learning_rate=0.0)], task), task, 40 * 6))
    assert trainer.outcome()["settled_epoch"].tolist() == [-1]


def test_a_stack_whose_members_have_all_diverged_ends() -> None:
    trainer = Trainer(stack_for([small(), small(seed=1)], PUZZLES), PUZZLES, 5 * EPOCH, evaluate_at=[3 * EPOCH])
    trainer.stack.answer.bias.data[:] = torch.nan
    steps = [progress.step for progress in trainer.run()]
    assert steps == [0, 5 * EPOCH] and trainer.outcome()["diverged_at"].tolist() == [1, 1]


def test_smaller_stacks_of_masked_prediction_train_as_alone() -> None:
    """Every member keeps the data of its world."""
    task = Network(nodes=8, clusters=2, train=200, test=50, worlds=3)
    members = [small(seed=seed, mask_ratio=0.5, last_epoch=1 if seed == 1 else None) for seed in range(3)]
    trainer, alone = (
        run_to_end(Trainer(stack_for(chosen, task, dtype=torch.float64), task, 70)) for chosen in (members, members[2:])
    )
    assert len(trainer.active.stack.members) == 2 and trainer.steps_per_epoch < 60
    torch.testing.assert_close(trainer.stack.flat[2], alone.stack.flat[0], rtol=0, atol=1e-9)
