"""Masked prediction: what is shown, what is hidden, from whom, and what counts."""

import numpy as np
import pytest
import torch
from helpers.refusal import refused

from placecode.errors import BadInput
from placecode.models.member import Member
from placecode.tasks.collection import TaskCollection
from placecode.tasks.masked import MAX_TRAINING_EXAMPLES, Masked, join_recordings
from placecode.training.trainer import Trainer, stack_for

N, T = 6, 40


class Numbers(Masked):
    """Task whose values encode their origin: 1000 world + 10 time + channel / 10."""

    name = "numbers"

    def __init__(
        self, worlds: int = 1, window: int = 1, eval_mask_ratios: tuple[float, ...] = (0.5, 0.9), n: int = N
    ) -> None:
        world, time, channel = np.ogrid[:worlds, :T, :n]
        values = 1000 * world + 10 * time + channel
        parts = {"train": [values[:, :25], values[:, 25:]], "test": [values]}
        splits = {name: join_recordings(recordings, window) for name, recordings in parts.items()}
        super().__init__(splits, window, eval_mask_ratios)


def members(*seeds: int, **fields: object) -> list[Member]:
    return [Member(**{"width": 8, "layers": 1, "batch": 8, "seed": seed, **fields}) for seed in seeds]


def rows(task: Masked, split: str, e: int = 1) -> torch.Tensor:
    return torch.arange(task.row_count(split)).expand(e, -1)


def test_hidden_values_are_zero_and_marked() -> None:
    task = Numbers().bind(members(0))
    for step in (None, 0):
        indices = rows(task, "train") if step is None else torch.arange(T).expand(1, -1)
        inputs, targets = task.batch("train", indices, step)
        mark = inputs[..., 1].bool()
        assert torch.equal(inputs[..., 1], targets[..., 1]) and (inputs[..., 0][mark] == 0).all()
        assert torch.equal(inputs[..., 0][~mark], targets[..., 0][~mark])
        assert torch.equal(targets[0, :T, :, 0], 10.0 * torch.arange(T)[:, None] + torch.arange(N))


def test_evaluation_hides_every_share_alike_for_all_members() -> None:
    task = Numbers().bind(members(0, 1, mask_ratio=0.2))
    inputs, _ = task.batch("test", rows(task, "test", 2))
    hidden = inputs[..., 1].sum(-1)
    assert (hidden[:, :T] == 3).all() and (hidden[:, T:] == 5).all() and torch.equal(inputs[0], inputs[1])
    assert [list(task.row_conditions("test")).count(name) for name in ("hidden 0.5", "hidden 0.9")] == [T, T]
    portion = torch.arange(7, 19).expand(2, -1)  # in whatever portions
    assert torch.equal(task.batch("test", portion)[0], inputs[:, 7:19])
    training_inputs, _ = task.batch("train", rows(task, "train", 2))
    assert not torch.equal(training_inputs[..., 1], inputs[..., 1])  # another split, other hidden channels


def test_training_hides_new_channels_at_every_step() -> None:
    stacked = [*members(0, 1, mask_ratio=0.5), *members(0, mask_ratio=0.17)]
    task = Numbers().bind(stacked)
    indices = torch.arange(8).expand(3, -1)
    first, second = (task.batch("train", indices, step)[0][..., 1] for step in (0, 1))
    assert [set(marks.sum(-1).tolist()) for marks in first] == [{3.0}, {3.0}, {1.0}]
    assert not torch.equal(first, second) and not torch.equal(first[0], first[1])
    assert ((first[2] == 1) <= (first[0] == 1)).all()  # the same seed draws the same order, and hides fewer of it
    alone = Numbers().bind(stacked[1:2]).batch("train", indices[:1], torch.tensor(0))[0][..., 1]
    assert torch.equal(alone[0], first[1])


def test_every_channel_is_hidden_equally_often() -> None:
    task = Numbers().bind(members(*range(50)))
    shares = torch.stack([task.batch("train", torch.arange(T).expand(50, -1), step)[0][..., 1] for step in range(4)])
    assert (shares.mean((0, 1, 2)) - 0.5).abs().max() < 5 * 0.5 / (4 * 50 * T) ** 0.5


def test_windows_stay_within_a_recording() -> None:
    task = Numbers(window=3)
    assert task.splits["train"].targets.tolist() == [*range(23), *range(25, 38)]
    assert task.bind(members(0)).values("train", torch.tensor([[0, 23]]))[0, 1, 2].tolist() == [252.0, 262.0, 272.0]
    assert (task.features, task.outputs, len(task.splits["train"])) == (4, 3, 36)


def test_the_seed_of_a_member_chooses_its_world() -> None:
    values = Numbers(worlds=3).bind(members(0, 2, 4)).values("test", torch.zeros(3, 1, dtype=torch.int64))
    assert values[:, 0, 0, 0].tolist() == [0.0, 2000.0, 1000.0]


def test_only_hidden_channels_count_in_the_loss() -> None:
    task = Numbers(window=2).bind(members(0))
    inputs, targets = task.batch("test", rows(task, "test"))
    mark = inputs[..., -1:]
    right = targets[..., :-1]
    assert task.loss(right + 5 * (1 - mark), targets).item() == 0
    assert task.loss(right + 2 * mark, targets).item() == pytest.approx(4)
    wrong = right.clone()
    wrong[0, 0, :, 0] += 3 * mark[0, 0, :, 0]  # one of two values of the window, in one example
    result = task.metrics(wrong, targets)["mse"]
    assert result.shape == inputs.shape[:2]
    assert result[0, 0].item() == pytest.approx(4.5) and result[0, 1:].abs().max() == 0


def test_evaluation_of_long_training_sets_is_limited() -> None:
    long = Numbers()
    data = join_recordings([np.zeros((1, MAX_TRAINING_EXAMPLES + 9, N))])
    long.splits = {"train": data, "test": data}
    assert long.row_count("train") == 2 * MAX_TRAINING_EXAMPLES
    assert long.row_count("test") == 2 * len(data) == len(long.row_conditions("test"))


def test_a_ramp_hides_from_one_channel_to_the_full_share() -> None:
    """Five of six in the end: 1 + 4 (step + 1) / 10, rounded down, until step 9."""
    task = Numbers().bind([*members(0, 0, mask_ratio=0.9), *members(0, 1, mask_ratio=0.9, ramp=10)])
    indices = torch.arange(T).expand(4, -1)
    counts = []
    for step in range(12):
        inputs, targets = task.batch("train", indices, step)
        count = inputs[..., 1].sum(-1)  # (e, b)
        assert (count == count[:, :1]).all()
        counts.append(count[:, 0].int().tolist())
        in_a_graph = task.batch("train", indices, torch.tensor(step))
        assert torch.equal(in_a_graph[0], inputs) and torch.equal(in_a_graph[1], targets)
        assert torch.equal(inputs[0], inputs[2]) == (step >= 9)  # then as if there had been none
    plain, same, ramped, other = zip(*counts, strict=True)
    assert plain == same == (5,) * 12 and ramped == other == (1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 5, 5)


def test_a_member_trains_alike_alone_and_in_a_stack() -> None:
    task = Numbers(worlds=2)
    scaled = {name: join_recordings([split.inputs.numpy() / 1000]) for name, split in task.splits.items()}
    task.splits = scaled
    stacked = [*members(0, 1, 2), *members(1, mask_ratio=0.2, sigma=1.0)]
    stack = stack_for(stacked, task, dtype=torch.float64)
    stack_trainer = Trainer(stack, task, 8)
    lone_trainer = Trainer(stack_for(stacked[3:], task, dtype=torch.float64), task, 8)
    for _ in range(8):
        stack_losses, lone_losses = stack_trainer.update(), lone_trainer.update()
    assert stack_losses[3].item() == pytest.approx(lone_losses.item(), abs=1e-9)
    assert (stack.flat[3] - lone_trainer.stack.flat[0]).abs().max() < 1e-9


def test_every_member_has_its_data_set() -> None:
    task = TaskCollection({"small": Numbers(), "large": Numbers(n=9)})
    assert [task.for_data_set(name).tokens for name in ("small", "large")] == [6, 9]
    assert task.first(2).for_data_set("large").row_count("test") == 4
    assert set(task.describe()["parts"]) == {"small", "large"}
    error = refused(task.for_data_set, "other")
    assert (error.name, error.given) == ("data", "other")
    with pytest.raises(BadInput, match="at least one data set"):
        TaskCollection({})
    with pytest.raises(BadInput, match="the same shape"):
        stack_for([*members(0, data="small"), *members(0, data="large")], Numbers())
