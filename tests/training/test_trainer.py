"""Training of a stack: members are independent, divergence affects no other, and training can be resumed."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from helpers.training.members import same_bits, same_state, small
from torch import Tensor

from placecode import encodings
from placecode.errors import BadInput
from placecode.models.encoder import Stack
from placecode.models.member import OPTIMIZERS, Member
from placecode.training.active_stack import ActiveStack
from placecode.training.trainer import Trainer, evaluate, stack_for, steps_per_epoch

ADDITIVE = ("none", "sinusoid", "random", "learned")
STEPS = 20


def neighbours(name: str, optimizer: str, count: int) -> list[Member]:
    """Members of all sorts that fit into one stack with `name`: other encodings, rates, decays, clipping."""
    names = ADDITIVE if name in ADDITIVE else (name,)
    return [
        small(
            encoding=names[i % len(names)],
            seed=100 + i,
            optimizer=optimizer,
            sigma=(0.1, 1.0, 2.0)[i % 3],
            learning_rate=(1e-3, 1e-2, 1e-4)[i % 3],
            pe_learning_rate=(None, 1e-2)[i % 2],
            weight_decay=(0.0, 0.1)[i % 2],
            pe_weight_decay=(None, 0.3, 0.0)[i % 3],
            output_gain=(1.0, 0.1, 3.0)[i % 3],
            clip=(None, 0.5, 1.0)[i % 3],
        )
        for i in range(count)
    ]


def train(stack: Stack, task, steps: int) -> Trainer:
    trainer = Trainer(stack, task, steps=steps)
    for _ in range(steps):
        trainer.update()
    return trainer


# Invariant 1: a member's numbers do not depend on its neighbours


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, torch.float64) for name in encodings.names()), ("learned", torch.float32)], ids=str
)
def test_alone_among_3_and_among_30(name: str, optimizer: str, dtype: torch.dtype, tiny_task, device: str) -> None:
    """In float64 the weights agree to 1e-9, in float32 the outputs to 1e-5."""
    member = small(encoding=name, optimizer=optimizer, seed=3, weight_decay=0.01, pe_weight_decay=0.1, output_gain=2.0)
    alone = stack_for([member], tiny_task, device, dtype)
    start = alone.flat.clone()
    train(alone, tiny_task, STEPS)
    assert (alone.flat - start).abs().max() > 1e-3  # there is something to agree on
    x = tiny_task.splits["test"].inputs.to(device, dtype)
    for count, place in ((3, 1), (30, 17)):
        members = neighbours(name, optimizer, count - 1)
        members.insert(place, member)
        stack = stack_for(members, tiny_task, device, dtype)
        assert train(stack, tiny_task, STEPS).outcome()["alive"].all()
        if dtype == torch.float64:
            torch.testing.assert_close(stack.flat[place], alone.flat[0], rtol=0, atol=1e-9)
        outputs = stack(x.expand(count, *x.shape))
        torch.testing.assert_close(outputs[place], alone(x), rtol=0, atol=1e-5)
        assert (outputs[place - 1] - alone(x)).abs().max() > 1e-2  # a neighbour is another model


def test_dropout_keeps_members_apart(tiny_task) -> None:
    members = [small(dropout=rate, seed=seed) for seed, rate in enumerate((0.1, 0.5, 0.3))]
    together = stack_for(members, tiny_task, dtype=torch.float64)
    train(together, tiny_task, 10)
    for i, member in enumerate(members):
        alone = stack_for([member], tiny_task, dtype=torch.float64)
        train(alone, tiny_task, 10)
        torch.testing.assert_close(together.flat[i], alone.flat[0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("readout", ["last", "mean", "token"])
def test_a_member_trains_like_a_single_model_in_a_plain_loop(readout: str, make_task) -> None:
    """Rows, loss, gradient and step, compared with torch's optimizer on one model."""
    task = make_task(readout=readout).to("cpu", torch.float64)
    members = [small(seed=seed, weight_decay=0.1, optimizer="adamw") for seed in range(2)]
    stack = stack_for(members, task, dtype=torch.float64)
    trainer, single = Trainer(stack, task, steps=15), stack.member(1)
    optimizer = torch.optim.AdamW(single.parameters(), lr=1e-3, weight_decay=0.1)
    data = task.splits["train"]
    for step in range(15):
        rows = trainer.active.batch_indices(step)[1]
        outputs, targets = single(data.inputs[rows]), data.targets[rows]
        loss = F.mse_loss(outputs, targets) if readout == "token" else F.cross_entropy(outputs, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert trainer.update()[1].item() == pytest.approx(loss.item(), abs=1e-10)
    torch.testing.assert_close(stack.flat[1], single.flat[0], rtol=0, atol=1e-10)


def test_training_learns(tiny_task) -> None:
    stack = stack_for([small(learning_rate=1e-2, batch=22)], tiny_task)
    before = evaluate(stack, tiny_task.to("cpu"), "train")
    train(stack, tiny_task, 100)
    after = evaluate(stack, tiny_task.to("cpu"), "train")
    assert after["all", "loss"][0] < 0.5 * before["all", "loss"][0]


@pytest.mark.parametrize("name", ["none", "sinusoid", "random", "learned", "relative"])
def test_a_pe_that_does_not_learn_never_moves(name: str, tiny_task) -> None:
    members = [small(encoding=name, learn=learn, weight_decay=0.1) for learn in (True, False)]
    stack = stack_for(members, tiny_task)
    start = stack.flat.clone()
    train(stack, tiny_task, 5)
    moved = (stack.flat != start)[:, stack.encoding_columns :].any(1).tolist()
    assert moved == [name in ("learned", "relative"), False]
    assert (stack.flat != start)[:, : stack.encoding_columns].any(1).all()


# Invariant 4: divergence


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_nan_in_one_member_changes_no_bit_of_the_others(optimizer: str, tiny_task, device: str) -> None:
    members = [small(optimizer=optimizer, seed=seed, clip=1.0, weight_decay=0.01) for seed in range(4)]
    hit, quiet = (Trainer(stack_for(members, tiny_task, device), tiny_task, steps=20) for _ in range(2))
    others, victim = [0, 1, 3], 2
    for step in range(20):
        if step == 7:
            hit.stack.embedding.weight.data[victim, 1, 1] = math.nan
            planted = hit.stack.flat[victim].clone()
        losses, expected = hit.update(), quiet.update()
        assert same_bits(losses[others], expected[others])
        assert hit.outcome()["alive"].tolist() == [True, True, step < 7, True]
    assert hit.outcome()["diverged_at"].tolist() == [
        -1,
        -1,
        8,
        -1,
    ]  # the number of the step that found it, counted from 1
    assert quiet.outcome()["diverged_at"].tolist() == [-1] * 4
    assert same_bits(hit.stack.flat[others], quiet.stack.flat[others])
    assert same_bits(hit.stack.flat[victim], planted)
    assert planted.isnan().sum() == 1
    for name, value in hit.active.optimizer.state.items():
        assert same_bits(value[others], quiet.active.optimizer.state[name][others])
    assert hit.state()["diverged_at"].tolist() == [-1, -1, 8, -1]


def test_a_member_that_diverges_in_the_last_step_is_marked(tiny_task) -> None:
    """There is no further loss."""
    steps = 3
    trainer = Trainer(stack_for([small(optimizer="sgd"), small(optimizer="sgd")], tiny_task), tiny_task, steps=steps)
    for _ in range(steps - 1):
        trainer.update()
    trainer.active.optimizer.rate[1] = 1e38
    trainer.active.optimizer.state["velocity"][1] = 1e10
    *_, last = trainer.run()
    assert not trainer.stack.flat[1].isfinite().all()
    assert last.step == steps
    assert trainer.outcome()["alive"].tolist() == [True, False]
    assert trainer.outcome()["diverged_at"].tolist() == [-1, steps]


# Batches


class TestOrder:
    def trainer(self, task, seeds: tuple[int, ...] = (0, 1, 0), batch: int = 4) -> Trainer:
        return Trainer(stack_for([small(seed=seed, batch=batch) for seed in seeds], task), task, steps=100)

    def epoch(self, trainer: Trainer, number: int) -> Tensor:
        first = number * trainer.steps_per_epoch
        return torch.cat([trainer.active.batch_indices(first + i) for i in range(trainer.steps_per_epoch)], dim=1)

    def test_every_example_once_per_epoch(self, tiny_task) -> None:
        trainer = self.trainer(tiny_task)
        assert trainer.steps_per_epoch == 6
        for number in range(3):
            rows = self.epoch(trainer, number)
            assert torch.equal(rows.sort(dim=1).values, torch.arange(22).expand(3, -1))

    def test_the_last_smaller_batch_is_used(self, tiny_task) -> None:
        trainer = self.trainer(tiny_task)
        assert [trainer.active.batch_indices(step).shape[1] for step in range(7)] == [4, 4, 4, 4, 4, 2, 4]
        batches = []
        batch = trainer.task.batch
        trainer.task.batch = lambda split, rows, step: (batches.append((split, rows.clone())), batch(split, rows))[1]
        for _ in range(7):
            trainer.update()
        assert [rows.shape for _, rows in batches] == [(3, 4)] * 5 + [(3, 2)] + [(3, 4)]
        assert all(torch.equal(rows, trainer.active.batch_indices(step)) for step, (_, rows) in enumerate(batches))
        assert {split for split, _ in batches} == {"train"}

    def test_order_differs_between_seeds_and_between_epochs(self, tiny_task) -> None:
        trainer = self.trainer(tiny_task)
        first, second = self.epoch(trainer, 0), self.epoch(trainer, 1)
        assert not torch.equal(first[0], first[1])
        assert torch.equal(first[0], first[2])  # the same seed sees the same order
        assert not torch.equal(first[0], second[0])
        assert not torch.equal(first[0], torch.arange(22))

    def test_order_does_not_depend_on_the_way_there(self, tiny_task) -> None:
        forward, jumping = self.trainer(tiny_task), self.trainer(tiny_task)
        rows = {step: forward.active.batch_indices(step) for step in range(20)}
        for step in (19, 3, 7, 0, 13):
            assert torch.equal(jumping.active.batch_indices(step), rows[step])

    def test_a_batch_larger_than_the_data_is_all_of_it(self, tiny_task) -> None:
        trainer = self.trainer(tiny_task, batch=100)
        assert trainer.steps_per_epoch == 1
        assert trainer.active.batch_indices(5).shape == (3, 22)

    @pytest.mark.parametrize(
        ("examples", "batch", "steps"), [(8100, 128, 64), (128, 128, 1), (129, 128, 2), (1, 128, 1)]
    )
    def test_steps_per_epoch(self, examples: int, batch: int, steps: int) -> None:
        assert steps_per_epoch(examples, batch) == steps  # the paper's 64: 63 of 128 and one of 36


class TestRun:
    def test_evaluates_before_between_and_at_the_end(self, tiny_task) -> None:
        trainer = Trainer(stack_for([small()], tiny_task), tiny_task, steps=7, evaluate_at=[2, 5, 5, 0, 7, 99, -3])
        events = [event for event in trainer.run() if event.rows]
        assert [event.step for event in events] == [0, 2, 5, 7]
        assert all(row["step"] == event.step for event in events for row in event.rows)
        assert math.isnan(events[0].loss)
        assert events[1].loss > 0
        assert trainer.step == 7
        assert list(trainer.run()) == []

    def test_evaluating_does_not_change_training(self, tiny_task) -> None:
        often, never = (
            Trainer(stack_for([small(dropout=0.1)], tiny_task), tiny_task, steps=9, evaluate_at=at)
            for at in (range(9), ())
        )
        for trainer in (often, never):
            for _ in trainer.run():
                pass
        assert same_state(often.state(), never.state())

    def test_no_steps(self, tiny_task) -> None:
        trainer = Trainer(stack_for([small()], tiny_task), tiny_task, steps=0)
        assert [event.step for event in trainer.run()] == [0]

    @pytest.mark.parametrize("name", ["steps", "zero_loss_patience"])
    def test_negative_numbers_are_rejected(self, name: str, tiny_task) -> None:
        with pytest.raises(BadInput) as error:
            Trainer(stack_for([small()], tiny_task), tiny_task, **{"steps": 1, name: -1})
        assert (error.value.name, error.value.given) == (name, -1)


def test_the_rate_falls_linearly_during_cooldown(tiny_task) -> None:
    """Length of each step of SGD without momentum, relative to a step without cooldown from the same state."""
    steps, members = 12, [small(optimizer="sgd", momentum=0.0, cooldown=share) for share in (0.0, 0.5, 0.25)]
    cooling = Trainer(stack_for(members, tiny_task, dtype=torch.float64), tiny_task, steps=steps)
    plain_members = [small(optimizer="sgd", momentum=0.0)] * 3
    expected = {0: [1.0] * 12, 1: [1.0] * 6 + [k / 6 for k in range(6, 0, -1)], 2: [1.0] * 9 + [1.0, 2 / 3, 1 / 3]}
    for step in range(steps):
        plain = Trainer(stack_for(plain_members, tiny_task, dtype=torch.float64), tiny_task, steps=steps)
        plain.load(cooling.state(), step=step)
        before = cooling.stack.flat.clone()
        cooling.update()
        plain.update()
        lengths = [(trainer.stack.flat - before).norm(dim=1) for trainer in (cooling, plain)]
        ratios = (lengths[0] / lengths[1]).tolist()
        assert ratios == pytest.approx([expected[i][step] for i in range(3)], abs=1e-6)


# Invariants 2 and 3: same spec, same bits; resume


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ["learned", "relative", "rotary"])
def test_the_same_spec_gives_the_same_bits(name: str, optimizer: str, tiny_task, device: str) -> None:
    fields = {"encoding": name, "optimizer": optimizer, "dropout": 0.1}
    members = [small(seed=seed, **fields) for seed in range(3)]
    once, twice = (train(stack_for(members, tiny_task, device), tiny_task, 15) for _ in range(2))
    assert same_state(once.state(), twice.state())
    reseeded = train(stack_for([small(seed=seed, **fields) for seed in (0, 1, 9)], tiny_task, device), tiny_task, 15)
    assert not same_state(once.state(), reseeded.state())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("stop", [0, 8, 12])
def test_a_resumed_training_gives_the_same_bits(optimizer: str, stop: int, tiny_task, device: str) -> None:
    """In the middle of an epoch of 6 steps, and at its end; with dropout, a cooldown and a member that has diverged."""
    members = [small(optimizer=optimizer, seed=seed, dropout=0.2, cooldown=0.5) for seed in range(3)]

    def start() -> Trainer:
        trainer = Trainer(stack_for(members, tiny_task, device), tiny_task, steps=20)
        trainer.stack.answer.bias.data[1, 0] = math.inf
        return trainer

    unbroken, first = start(), start()
    for _ in range(20):
        unbroken.update()
    for _ in range(stop):
        first.update()
    saved = first.state()
    copies = {name: value.clone() for name, value in saved.items()}
    first.update()  # what happens after the saving does not reach the saved
    assert same_state(saved, copies)
    second = start()
    second.load(saved, step=stop)
    for _ in range(20 - stop):
        second.update()
    assert second.step == 20
    assert same_state(second.state(), unbroken.state())
    assert unbroken.outcome()["alive"].tolist() == [True, False, True]
    assert unbroken.outcome()["diverged_at"].tolist() == [-1, 1, -1]
    wrong = start()
    wrong.load(saved, step=stop + 1)  # the negative twin: the step matters
    for _ in range(19 - stop):
        wrong.update()
    assert not same_state(wrong.state(), unbroken.state())


def test_state_is_whole_and_stays_on_the_device(tiny_task, device: str) -> None:
    trainer = train(stack_for([small()], tiny_task, device), tiny_task, 1)
    state = trainer.state()
    assert set(state) == {"flat", "optimizer.first", "optimizer.second", "runs", *ActiveStack.STATUS_VECTORS}
    assert all(value.device.type == device for value in state.values())


@pytest.mark.parametrize(
    ("members", "dtype"),
    [
        ([small(), small(seed=1), small(seed=2)], torch.float32),
        ([small(width=12), small(width=12)], torch.float32),
        ([small(optimizer="sgd"), small(optimizer="sgd")], torch.float32),
        ([small(encoding="rotary"), small(encoding="rotary")], torch.float32),
        ([small(), small(seed=1)], torch.float64),
    ],
    ids=["more members", "wider", "another optimizer", "another encoding", "another precision"],
)
def test_the_state_of_another_stack_is_rejected(members: list[Member], dtype: torch.dtype, tiny_task) -> None:
    trainer = train(stack_for([small(), small(seed=1)], tiny_task), tiny_task, 2)
    before = trainer.state()
    another = Trainer(stack_for(members, tiny_task, dtype=dtype), tiny_task, steps=5)
    with pytest.raises(BadInput, match=r"^the checkpoint must hold the state of this stack"):
        trainer.load(another.state(), step=1)
    missing = {name: value for name, value in before.items() if name != "alive"}
    with pytest.raises(BadInput, match=r"^the checkpoint must hold the state of this stack"):
        trainer.load(missing, step=1)
    assert same_state(trainer.state(), before)  # nothing was half loaded
    assert trainer.step == 2
