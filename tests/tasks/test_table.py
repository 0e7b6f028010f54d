"""A table of the user as a task: missing values, standardization, categories, held-out samples, training."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from placecode.errors import BadInput
from placecode.models.member import Member, grid
from placecode.tasks import columns
from placecode.tasks.table import DATA_SETS, HELD_OUT_SPLITS, TableTask, table_tasks
from placecode.training.trainer import Trainer, evaluate, stack_for

SMALL: dict[str, Any] = {"width": 8, "layers": 1, "heads": 2, "batch": 16, "encoding": "learned"}


def numbers(samples: int = 400, channels: int = 6, missing: float = 0.0, seed: int = 0) -> np.ndarray:
    """Return channels with different means and scales and a common source, and a fraction of missing values."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(samples, channels)) + rng.normal(size=(samples, 1))
    values = values * 10.0 ** rng.integers(-2, 3, size=channels) + rng.normal(size=channels)
    values[rng.random(values.shape) < missing] = np.nan
    return values.astype(np.float32)


def mixed(samples: int = 600, seed: int = 0) -> tuple[np.ndarray, dict[int, tuple[str, ...]]]:
    """Return three numerical columns and two categorical ones, with four and with two values."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(samples, 5)).astype(np.float32)
    values[:, 1] = rng.choice(4, p=[0.5, 0.3, 0.15, 0.05], size=samples)
    values[:, 3] = values[:, 0] > 0.3
    return values, {1: ("a", "b", "c", "d"), 3: ("no", "yes")}


def evaluated(task: TableTask, split: str = "test", hidden: float = 0.3) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the inputs and targets of all rows of an evaluation, both (b, n, w + 1)."""
    inputs, targets = task.bind([Member(mask_ratio=hidden)]).batch(split, torch.arange(task.row_count(split))[None])
    return inputs[0], targets[0]


def test_missing_values_are_neither_shown_nor_predicted() -> None:
    values = numbers(missing=0.3)
    for task in table_tasks(values).values():
        for split in ("train", "validation", "test"):
            inputs, targets = evaluated(task, split)
            rows = np.arange(task.examples(split)) * len(task.splits[split]) // task.examples(split)
            absent = torch.from_numpy(np.isnan(values))[task.splits[split].targets[rows]]
            assert not inputs.isnan().any() and not targets.isnan().any()
            assert (inputs[..., -1][absent] == 1).all() and (inputs[..., 0][absent] == 0).all()
            assert (targets[..., -1][absent] == 0).all()
            assert ((targets[..., -1] == 1) == ((inputs[..., -1] == 1) & ~absent)).all()


@pytest.mark.parametrize("step", [None, 3])
def test_inputs_do_not_depend_on_hidden_values(step) -> None:
    values = numbers(missing=0.1)
    task = table_tasks(values)["all"].bind([Member(mask_ratio=0.5)])
    rows = torch.arange(40)[None]
    inputs, targets = task.batch("train", rows, step)
    changed = values.copy()
    is_training = np.isin(np.arange(len(values)), task.splits["train"].targets)
    chosen = rows[0] if step is not None else rows[0] * len(task.splits["train"]) // task.examples("train")
    samples = task.splits["train"].targets[chosen]
    hidden = np.zeros(values.shape, dtype=bool)
    hidden[samples] = targets[0, ..., -1].numpy() > 0
    assert hidden.sum() > 50 and is_training[samples].all()
    changed[hidden] = 1e4
    other = TableTask(changed, task.columns, {name: split.targets.numpy() for name, split in task.splits.items()})
    unchanged, _ = other.bind([Member(mask_ratio=0.5)]).batch("train", rows, step)
    assert torch.equal(unchanged, inputs)
    changed[~np.isnan(values) & ~hidden] += 1  # and they do on what is shown
    assert not torch.equal(other.bind([Member(mask_ratio=0.5)]).batch("train", rows, step)[0], inputs)


@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.99])
def test_the_share_counts_known_values(share) -> None:
    task = table_tasks(numbers(missing=0.3), eval_mask_ratios=(share,))["all"]
    inputs, targets = evaluated(task, "test", share)
    hidden = targets[..., -1].sum(1)
    present = hidden + (inputs[..., -1] == 0).sum(1)
    expected = torch.minimum((share * present.double()).round().clamp(min=1), present - 1)
    assert (hidden == expected).all() and (hidden >= 1).all() and (hidden < present).all()
    assert len(present.unique()) > 2  # samples with more and with less


def test_samples_with_fewer_than_two_values_are_not_used() -> None:
    values = numbers(300)
    values[::3, 1:], values[1::3] = np.nan, np.nan
    for split in table_tasks(values)["all"].splits.values():
        assert (split.targets % 3 == 2).all()
    values = numbers(400)  # in every second sample, only constant channels and one other are known
    values[:, 4:] = 7.0
    values[::2, :3] = np.nan
    with pytest.warns(UserWarning, match="left out"):
        task = table_tasks(values)["all"]
    for split in task.splits:
        assert (evaluated(task, split)[1][..., -1].sum(1) >= 1).all()
        assert (task.splits[split].targets % 2 == 1).all()


def test_numbers_are_standardized_over_the_training_samples() -> None:
    values = numbers(missing=0.2)
    task = table_tasks(values)["all"]
    result, present = task.standardize(task.raw_values("train", torch.arange(len(task.splits["train"]))))
    train = values[task.splits["train"].targets].astype(np.float64)
    np.testing.assert_allclose(task.columns.shift[:, 0], np.nanmean(train, axis=0), rtol=1e-5)
    np.testing.assert_allclose(task.columns.scale[:, 0], np.nanstd(train, axis=0), rtol=1e-5)
    expected = (train - np.nanmean(train, axis=0)) / np.nanstd(train, axis=0)
    np.testing.assert_allclose(result[..., 0], np.nan_to_num(expected), atol=1e-4)
    assert (present.numpy() == ~np.isnan(train)).all()


def test_numbers_beside_a_large_offset_are_standardized() -> None:
    task = table_tasks((1e6 + 4 * np.random.default_rng(0).normal(size=(500, 6))).astype(np.float32))["all"]
    standard, _ = task.standardize(task.raw_values("train", torch.arange(len(task.splits["train"]))))
    np.testing.assert_allclose(standard.double().std(0, correction=0), 1, rtol=1e-3)
    np.testing.assert_allclose(standard.double().mean(0), 0, atol=0.01)


def test_statistics_are_the_same_piece_by_piece(monkeypatch) -> None:
    values, categories = mixed()
    at_once = table_tasks(values, categories=categories)["all"].columns
    monkeypatch.setattr(columns, "VALUES_PER_CHUNK", 35)
    piecewise = table_tasks(values, categories=categories)["all"].columns
    np.testing.assert_allclose(at_once.shift, piecewise.shift, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(at_once.scale, piecewise.scale, rtol=1e-6)


def test_predicting_the_mean_has_an_error_of_one() -> None:
    values, categories = mixed()
    task = table_tasks(values, categories=categories)["all"]
    assert (task.features, task.outputs) == (5, 4)
    true, _ = task.standardize(task.raw_values("train", torch.arange(len(task.splits["train"]))))
    targets = torch.cat([true, torch.ones_like(true[..., :1])], -1)[None]  # all is asked, zero is the guess
    for channel in range(5):
        only = targets.clone()
        only[..., -1] = 0
        only[..., channel, -1] = 1
        assert task.metrics(torch.zeros_like(true)[None], only)["mse"].mean().item() == pytest.approx(1, abs=1e-4)


def test_the_order_of_category_codes_does_not_matter() -> None:
    values, categories = mixed()
    task = table_tasks(values, categories=categories)["all"]
    turned = values.copy()
    turned[:, 1] = 3 - values[:, 1]
    turned_task = table_tasks(turned, categories={1: ("d", "c", "b", "a"), 3: ("no", "yes")})["all"]
    inputs, turned_inputs = evaluated(task)[0], evaluated(turned_task)[0]
    assert torch.allclose(inputs[:, 1, :4], turned_inputs[:, 1, :4].flip(-1), atol=1e-6)
    assert torch.equal(inputs[:, [0, 2, 3, 4]], turned_inputs[:, [0, 2, 3, 4]])


def test_loss_and_metrics_equal_a_plain_computation() -> None:
    values, categories = mixed()
    values[::7, 2] = np.nan
    task = table_tasks(values, categories=categories)["all"]
    _, targets = evaluated(task)
    guess = torch.randn(2, *targets[..., :-1].shape, generator=torch.Generator().manual_seed(0))
    both = targets.expand(2, *targets.shape)
    levels, totals, per_row = [1, 4, 1, 2, 1], np.zeros((2, 2)), np.zeros((2, len(targets)))
    for member in range(2):
        for row in range(len(targets)):
            wrong, count = 0.0, 0
            for channel in range(5):
                if targets[row, channel, -1]:
                    kept = slice(0, levels[channel])
                    gap = guess[member, row, channel, kept] - targets[row, channel, kept]
                    wrong, count = wrong + float((gap**2).sum()), count + 1
            per_row[member, row] = wrong / count
            totals[member] += wrong, count
    np.testing.assert_allclose(task.metrics(guess, both)["mse"], per_row, rtol=1e-4)
    np.testing.assert_allclose(task.loss(guess, both), totals[:, 0] / totals[:, 1], rtol=1e-4)


@pytest.mark.parametrize("columns", [[2], [0, 2]])
@pytest.mark.parametrize("constant", [3.0, np.nan])
def test_constant_channels_are_left_out(columns, constant) -> None:
    values = numbers()
    values[:, columns] = constant
    with pytest.warns(UserWarning, match="left out"):
        parts = table_tasks(values, names=list("abcdef"), labels=np.arange(6), positions=np.arange(12).reshape(6, 2))
    remaining = [i for i in range(6) if i not in columns]
    for task in parts.values():
        assert task.token_names == tuple("abcdef"[i] for i in remaining)
        assert task.tokens == len(remaining) and task.describe()["left out"] == columns
        assert task.labels.tolist() == remaining and (task.positions[:, 0] / 2).tolist() == remaining


def test_categories_of_one_value_and_channels_lost_in_float32_are_left_out() -> None:
    values, categories = mixed()
    values[:, 3] = 1
    with pytest.warns(UserWarning, match="'channel 4'"):
        assert table_tasks(values, categories=categories)["all"].columns.indices.tolist() == [0, 1, 2, 4]
    values = numbers().astype(np.float64)
    values[:, 2] = 1e8 + 8 * (np.arange(len(values)) % 2)  # the step of float32 there
    with pytest.warns(UserWarning, match="varies too little for its size"):
        assert table_tasks(values.astype(np.float32))["all"].columns.indices.tolist() == [0, 1, 3, 4, 5]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.ones((100, 5)), "at least one channel must vary; all of them are constant or missing in the"),
        (np.tile(1e8 + 8 * (np.arange(100) % 2), (6, 1)).T, "or vary too little for their size"),
        *((numbers(samples), f"of its {samples}, ") for samples in (1, 4, 7)),
    ],
)
def test_tables_too_small_or_constant_are_refused(values, words) -> None:
    with pytest.raises(BadInput, match=words):
        table_tasks(values.astype(np.float32))


@pytest.mark.parametrize("kind", ["numbers", "missing", "bytes"])
def test_copies_of_training_samples_in_held_out_samples_give_a_warning(kind) -> None:
    unique = numbers(300, missing=0.2 if kind == "missing" else 0.0)
    if kind == "bytes":
        unique = np.random.default_rng(0).integers(256, size=(300, 8)).astype(np.float32)
    doubled = np.concatenate([unique, unique[::-1]])
    with pytest.warns(UserWarning, match="held-out samples also occur in the training samples") as caught:
        parts = table_tasks(doubled)["all"].splits
    training_rows = {row.tobytes() for row in doubled[parts["train"].targets.numpy()]}
    held_out = [doubled[parts[part].targets.numpy()] for part in HELD_OUT_SPLITS]
    copies = sum(row.tobytes() in training_rows for rows in held_out for row in rows)
    assert str(caught[0].message).startswith(f"{copies} of ") and copies > 50
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table_tasks(unique)
        table_tasks(doubled, groups=np.concatenate([np.arange(300), np.arange(300)[::-1]]))  # copies share a group
        table_tasks(np.random.default_rng(0).integers(3, size=(600, 4)).astype(np.float32))  # counts repeat by chance


def test_memory_of_alternating_groups_is_longer() -> None:
    slow = np.random.default_rng(0).normal(size=(3_000, 4))
    for step in range(3, 3_000):
        slow[step] += 0.9 * slow[step - 3]  # each of three groups remembers its own past
    single = table_tasks(slow[::3].astype(np.float32))["all"].autocorrelation_length
    interleaved = table_tasks(slow.astype(np.float32), groups=np.arange(3_000) % 3)["all"].autocorrelation_length
    assert single > 10 and 2 * single < interleaved < 8 * single


def test_a_piece_is_of_one_group_even_where_a_block_is_of_several() -> None:
    groups = np.arange(400) % 3
    task = table_tasks(numbers(), groups=groups)["all"]
    for block in np.unique(task.exchange_blocks):
        rows = np.flatnonzero(task.exchange_blocks == block)
        assert len(set(groups[rows])) == 1 and len(rows) == rows.max() // 3 - rows.min() // 3 + 1
    assert len(np.unique(task.exchange_blocks)) == 60


def test_halves_share_held_out_samples_and_standardization() -> None:
    parts = table_tasks(numbers(), groups=np.arange(400) // 40, seed=5)
    assert tuple(parts) == DATA_SETS
    full, first, second = (parts[name] for name in DATA_SETS)
    assert full.columns is first.columns is second.columns
    for split in ("validation", "test"):
        assert torch.equal(evaluated(full, split)[0], evaluated(first, split)[0])
        assert torch.equal(evaluated(full, split)[1], evaluated(second, split)[1])
    both = torch.cat([first.splits["train"].targets, second.splits["train"].targets]).sort().values
    assert torch.equal(both, full.splits["train"].targets)
    assert len({task.digest for task in parts.values()}) == 3


def test_evaluated_samples_are_spread_over_the_part() -> None:
    task = table_tasks(numbers(20_000))["all"]
    assert [task.examples(split) for split in ("train", "validation", "test")] == [200, 1000, 1000]
    _, targets = task.bind([Member(mask_ratio=0.3)]).batch("test", torch.arange(1000)[None])
    rows = task.splits["test"].targets[torch.arange(1000) * (len(task.splits["test"]) // 1000)]
    expected, _ = task.standardize(task.splits["test"].inputs[0][rows])
    assert torch.equal(targets[0, ..., :-1], expected) and rows.max() > 18_000


def test_a_memory_mapped_table_gives_the_same_batches(tmp_path) -> None:
    values = numbers(missing=0.1)
    np.save(tmp_path / "t.npy", values)
    mapped = np.load(tmp_path / "t.npy", mmap_mode="r")
    members = [Member(mask_ratio=0.3, seed=2)]
    in_memory, on_disk = (table_tasks(table)["all"].bind(members) for table in (values, mapped))
    assert in_memory.digest == on_disk.digest
    assert table_tasks(values + 1)["all"].digest != in_memory.digest != table_tasks(values, seed=1)["all"].digest
    for split, step in (("train", 5), ("test", None)):
        batches = (task.batch(split, torch.arange(60)[None], step) for task in (in_memory, on_disk))
        assert all(torch.equal(a, b) for a, b in zip(*batches, strict=True))


def losses(task: TableTask, members: list[Member], steps: int = 12, **how: Any) -> torch.Tensor:
    trainer = Trainer(stack_for(members, task, **how), task, steps)
    return torch.stack([trainer.update().double() for _ in range(steps)])


@pytest.mark.parametrize("kind", ["numbers", "mixed"])
def test_the_fast_step_equals_autograd(kind, exact_products) -> None:
    values, categories = mixed() if kind == "mixed" else (numbers(missing=0.2), {})
    task = table_tasks(values, categories=categories)["all"]
    members = grid(Member(**SMALL, mask_ratio=0.4), sigma=(0.05, 0.5), seed=(0, 1))
    by_hand, plain = losses(task, members), losses(task, members, fast=False)
    exact = losses(task, members, dtype=torch.float64, fast=False)
    assert Trainer(stack_for(members, task), task, 1).active.cpu_step is not None
    np.testing.assert_allclose(by_hand, exact, rtol=2e-4)
    np.testing.assert_allclose(plain, exact, rtol=2e-4)
    idle = losses(task, [replace(member, learning_rate=1e-9, pe_learning_rate=None) for member in members])
    assert (abs(idle / exact - 1).amax(0) > 2e-3).all()  # steps that had done nothing would show


def test_members_do_not_depend_on_their_neighbours() -> None:
    task = table_tasks(numbers(missing=0.2))["all"]
    members = [Member(**SMALL, seed=0, mask_ratio=0.3), Member(**SMALL, seed=7, mask_ratio=0.6)]
    np.testing.assert_allclose(losses(task, members[1:])[:, 0], losses(task, members)[:, 1], rtol=1e-4)
    one, two = (task.bind([member]).batch("train", torch.arange(9)[None], 1)[0] for member in members)
    assert not torch.equal(one, two)  # other seeds hide other channels
    assert torch.equal(*(task.bind([member]).batch("test", torch.arange(9)[None])[0] for member in members))


def test_evaluation_reports_the_share_of_hidden_channels() -> None:
    task = table_tasks(numbers(missing=0.2), eval_mask_ratios=(0.3,))["all"]
    member = Member(**SMALL, mask_ratio=0.3)
    stack = stack_for([member], task)
    result = evaluate(stack, task.bind([member]), "test")
    inputs, targets = evaluated(task)
    by_hand = task.metrics(stack(inputs[None]), targets[None])["mse"].mean()
    assert list(result) == [("hidden 0.3", "mse")]
    assert result["hidden 0.3", "mse"] == [pytest.approx(by_hand.item(), rel=1e-5)]
