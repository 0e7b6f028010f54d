"""Members that stop early: they have settled, are at rest, or have done their own number of epochs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from placecode.errors import BadInput
from placecode.execution.where import Where
from placecode.models.member import Member
from placecode.tasks.latin_squares import LatinSquares
from placecode.tasks.network import Network
from placecode.training.running import Running, fingerprints
from placecode.training.trainer import Trainer, stack_for

PUZZLES = LatinSquares(per_class=8, heldout=3, distance=0.5)
EPOCH = 6
"""Steps of an epoch: 21 training puzzles, 4 at a time."""
LOOK = 9
"""Epochs between two looks at who has settled: at least 50 steps."""


def small(**fields: Any) -> Member:
    defaults = {"width": 16, "layers": 1, "expansion": 2, "batch": 4, "learning_rate": 3e-3}
    return Member(**{**defaults, **fields})


def quick(**fields: Any) -> Member:
    """A member whose gradients become exactly 0 soon: a gain of 1000 makes the probabilities of wrong answers 0."""
    return small(**{"gain": 1000.0, "learning_rate": 1e-2, **fields})


def slow(**fields: Any) -> Member:
    return small(**{"seed": 1, **fields})


def trained(
    members: list[Member], epochs: int, device: str = "cpu", **how: Any
) -> tuple[Trainer, list[dict[str, Any]]]:
    trainer = Trainer(stack_for(members, PUZZLES, device), PUZZLES, epochs * EPOCH, **how)
    return trainer, [row for progress in trainer.run() for row in progress.rows]


def bits(values: Tensor) -> Tensor:
    return values.contiguous().view(torch.int32)


def step_by_step(members: list[Member], epochs: int, device: str = "cpu") -> Tensor:
    """The parameters after all of the epochs, none of which is left out: nobody looks who has settled."""
    running = Running(stack_for(members, PUZZLES, device), PUZZLES, epochs * EPOCH)
    for step in range(epochs * EPOCH):
        running.update(step)
    return running.stack.flat


def test_an_epoch_has_six_steps() -> None:
    assert Trainer(stack_for([small()], PUZZLES), PUZZLES, 1).steps_per_epoch == EPOCH


def test_a_settled_stack_is_bit_for_bit_what_the_full_length_gives() -> None:
    members = [quick(), quick(seed=1, learning_rate=0.0), quick(seed=2)]
    epochs = 180
    trainer, rows = trained(members, epochs, evaluate_at=range(0, epochs * EPOCH, 10 * EPOCH))
    settled = trainer.outcome()["settled_epoch"].tolist()
    assert settled[1] == 2 * LOOK and all(2 * LOOK < epoch < epochs for epoch in (settled[0], settled[2]))
    assert trainer.step == trainer.steps and trainer.stopped.all()
    assert torch.equal(bits(trainer.stack.flat), bits(step_by_step(members, epochs)))
    steps = {row["step"] for row in rows}
    assert steps == {0, *range(10 * EPOCH, epochs * EPOCH + 1, 10 * EPOCH)}  # those after the end too
    ends = {
        (row["split"], row["metric"], row["condition"], row["member"], row["value"])
        for row in rows
        if row["step"] == epochs * EPOCH
    }
    now = list(trainer.evaluate())
    assert ends == {(row["split"], row["metric"], row["condition"], row["member"], row["value"]) for row in now}


@pytest.mark.parametrize("precision", ["high", "highest"])
def test_on_a_gpu_too_a_settled_stack_is_bit_for_bit_what_the_full_length_gives(precision: str, cuda: str) -> None:
    """Of members that learn until their gradients are exactly 0, which takes a larger gain than on a CPU. When a member
    leaves the stack, the others may round differently."""
    epochs, members = 400, [quick(seed=seed, gain=1e5) for seed in (0, 2)]
    with Where(cuda, precision).arithmetic():
        for member in members:
            trainer, _ = trained([member], epochs, cuda)
            assert 2 * LOOK < trainer.outcome()["settled_epoch"].tolist()[0] < epochs
            assert torch.equal(bits(trainer.stack.flat), bits(step_by_step([member], epochs, cuda)))
        trainer, _ = trained(members, epochs, cuda)
        settled = trainer.outcome()["settled_epoch"]
        first = settled == settled[settled > 0].min()
        assert torch.equal(bits(trainer.stack.flat[first]), bits(step_by_step(members, epochs, cuda)[first]))


def test_members_that_have_not_settled_go_on_to_the_end() -> None:
    members = [quick(), slow(), quick(seed=2)]
    trainer, _ = trained(members, 180)
    assert trainer.outcome()["settled_epoch"].tolist()[1] == -1
    assert len(trainer.running.stack.members) == 1  # the others have left
    whole = step_by_step(members, 180)
    assert torch.equal(bits(trainer.stack.flat[[0, 2]]), bits(whole[[0, 2]]))
    torch.testing.assert_close(trainer.stack.flat[1], whole[1], rtol=0, atol=1e-3)
    assert (trainer.stack.flat[1] - step_by_step(members, 170)[1]).abs().max() > 1e-3  # it did train on


def test_a_member_that_moves_in_one_bit_has_not_settled() -> None:
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


def test_a_member_is_at_rest_after_so_many_epochs_without_a_loss() -> None:
    members = [quick(), slow()]
    trainer, _ = trained(members, 130, rest=5)
    outcome = trainer.outcome()
    rested, never = outcome["rested_epoch"].tolist()
    assert 5 < rested < 115 and never == -1
    assert outcome["settled_epoch"].tolist() == [-1, -1]
    running = Running(stack_for(members, PUZZLES), PUZZLES, 130 * EPOCH)
    losses = torch.stack([running.update(step) for step in range(rested * EPOCH)]).view(rested, EPOCH, 2)
    quiet = (losses == 0).all(1)[:, 0].tolist()
    assert quiet[-5:] == [True] * 5
    assert all(not all(quiet[first : first + 5]) for first in range(rested - 5))  # and not before
    assert torch.equal(bits(trainer.stack.flat[0]), bits(running.stack.flat[0]))


def test_without_rest_nobody_stops_for_a_loss_of_zero() -> None:
    trainer, _ = trained([quick()], 115)
    assert trainer.running.quiet_epochs.item() > 3
    assert trainer.outcome()["rested_epoch"].tolist() == [-1]


def test_a_member_with_fewer_epochs_of_its_own_stops_there() -> None:
    members = [slow(last_epoch=3), slow(seed=2)]
    trainer, rows = trained(members, 8, evaluate_at=[3 * EPOCH])
    assert torch.equal(bits(trainer.stack.flat[0]), bits(step_by_step(members, 3)[0]))
    losses = {
        (row["step"], row["member"]): row["value"]
        for row in rows
        if (row["split"], row["metric"], row["condition"]) == ("train", "loss", "all")
    }
    assert losses[3 * EPOCH, 0] == losses[8 * EPOCH, 0] != losses[0, 0]
    assert losses[3 * EPOCH, 1] != losses[8 * EPOCH, 1]
    assert trainer.stopped.tolist() == [True, False]


@pytest.mark.parametrize("last", [0, -1, 1.5, True, "3"])
def test_bad_numbers_of_epochs_are_refused(last: Any) -> None:
    with pytest.raises(BadInput, match=r"^last_epoch must be a whole number of at least 1"):
        small(last_epoch=last)
    with pytest.raises(BadInput, match=r"^last_epoch must be left out with a cooldown"):
        small(last_epoch=3, cooldown=0.5)
    with pytest.raises(BadInput, match=r"^rest must be a whole number of at least 0"):
        Trainer(stack_for([small()], PUZZLES), PUZZLES, 5, rest=-1)


@pytest.mark.parametrize("stop", [3, 4 * EPOCH, 40 * EPOCH + 2, 125 * EPOCH])
def test_interrupted_and_resumed_as_if_never_interrupted(stop: int) -> None:
    """Before anyone has stopped, and after some have, in the middle of an epoch too."""
    members = [quick(), slow(last_epoch=30), quick(seed=2), slow(seed=3), slow(seed=4)]
    unbroken, first, second = (Trainer(stack_for(members, PUZZLES), PUZZLES, 130 * EPOCH, rest=5) for _ in range(3))
    for _ in unbroken.run():
        pass
    while first.step < stop:
        first.update()
    second.load({name: value.clone() for name, value in first.state().items()}, first.step)
    if stop > 30 * EPOCH:
        assert len(second.running.stack.members) < len(members)
    for _ in second.run():
        pass
    one, two = unbroken.state(), second.state()
    assert one.keys() == two.keys()
    for name in one:
        assert torch.equal(one[name], two[name]), name
    assert unbroken.outcome()["rested_epoch"].tolist() == second.outcome()["rested_epoch"].tolist()


def test_a_state_from_before_anyone_stopped_can_be_loaded_after_it() -> None:
    members = [quick(), slow()]
    trainer = Trainer(stack_for(members, PUZZLES), PUZZLES, 130 * EPOCH, rest=5)
    start = {name: value.clone() for name, value in trainer.state().items()}
    for _ in trainer.run():
        pass
    once = trainer.state()
    assert len(trainer.running.stack.members) == 1
    trainer.load(start, 0)
    assert len(trainer.running.stack.members) == 2 and trainer.running.stack is trainer.stack
    for _ in trainer.run():
        pass
    assert all(torch.equal(value, once[name]) for name, value in trainer.state().items())


class TestWhyAMemberDiverged:
    """The check that found it is part of the state."""

    def cause(self, trainer: Trainer) -> list[int]:
        return trainer.outcome()["cause"].tolist()

    def test_loss(self) -> None:
        trainer = Trainer(stack_for([small(), small(seed=1)], PUZZLES), PUZZLES, 3)
        trainer.stack.answer.bias.data[1] = torch.nan
        trainer.update()
        assert self.cause(trainer) == [0, 1] and trainer.diverged_at.tolist() == [-1, 1]

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
        trainer.running.check_parameters(0)
        assert self.cause(trainer) == [0, 3]

    def test_those_who_leave_a_stack_are_looked_at_first(self) -> None:
        """One has parameters that are not finite when its own epochs are over."""
        members = [small(last_epoch=2), small(seed=1), small(seed=2)]
        trainer = Trainer(stack_for(members, PUZZLES), PUZZLES, 5 * EPOCH)
        for _ in range(2 * EPOCH - 1):
            trainer.update()
        trainer.running.optimizer.rate[0] = torch.inf
        trainer.update()
        assert len(trainer.running.stack.members) == 2
        assert self.cause(trainer) == [3, 0, 0]
        assert trainer.diverged_at.tolist() == [2 * EPOCH, -1, -1]

    def test_overflow_of_float16_is_known_from_a_gradient_that_is_too_large(self) -> None:
        """Where the step is finite when it is taken again, it was float16; a norm that overflows is none."""
        trainer = Trainer(stack_for([small(), small(seed=1, gain=1e25)], PUZZLES), PUZZLES, 3)
        running = trainer.running
        running.stack.halves = True  # as on a GPU
        trainer.update()
        assert self.cause(trainer) == [0, 2]
        running.cause[0], running.alive[0], running.diverged_at[0] = 2, False, 1  # had it overflown there
        running.explain()
        assert self.cause(trainer) == [4, 2]


@pytest.mark.parametrize("what", ["dropout", "masks"])
def test_nobody_settles_in_training_with_random_numbers(what: str, make_task: Any) -> None:
    """An epoch without a change does not mean that the next one brings none."""
    if what == "dropout":
        trainer, _ = trained([small(dropout=0.1, learning_rate=0.0)], 40)
    else:
        task = make_task(readout="token")
        task.drawn_anew = True
        trainer = Trainer(stack_for([small(learning_rate=0.0)], task), task, 40 * 6)
        for _ in trainer.run():
            pass
    assert trainer.outcome()["settled_epoch"].tolist() == [-1]


def test_a_stack_whose_members_have_all_diverged_ends() -> None:
    trainer = Trainer(stack_for([small(), small(seed=1)], PUZZLES), PUZZLES, 5 * EPOCH, evaluate_at=[3 * EPOCH])
    trainer.stack.answer.bias.data[:] = torch.nan
    steps = [progress.step for progress in trainer.run()]
    assert steps == [0, 5 * EPOCH] and trainer.diverged_at.tolist() == [1, 1]


def test_smaller_stacks_of_masked_prediction_train_as_alone() -> None:
    """Members live in worlds of their own: their data must stay theirs."""
    task = Network(nodes=8, clusters=2, train=200, test=50, worlds=3)
    members = [small(seed=seed, hidden=0.5, last_epoch=1 if seed == 1 else None) for seed in range(3)]
    trainer = Trainer(stack_for(members, task, dtype=torch.float64), task, 200)
    assert trainer.steps_per_epoch < 150
    for _ in trainer.run():
        pass
    assert len(trainer.running.stack.members) == 2
    alone = Trainer(stack_for(members[2:], task, dtype=torch.float64), task, 200)
    for _ in alone.run():
        pass
    torch.testing.assert_close(trainer.stack.flat[2], alone.stack.flat[0], rtol=0, atol=1e-9)
