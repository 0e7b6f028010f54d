"""The Latin squares task: its rule for the splits, its data from seed, folder and cache, its loss."""

import json
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from placecode.data.puzzle_files import FILE_NAMES, HELDOUT_FILE, read_puzzles
from placecode.data.puzzles import CLASSES, Cells, Puzzles, classify, draw, solve
from placecode.errors import BadInput
from placecode.tasks import latin_squares
from placecode.tasks.base import Split
from placecode.tasks.latin_squares import LatinSquares, draw_distinct, first_puzzles, make_puzzles, split_by_class

PUBLISHED = Path(__file__).parents[2].parent / "shared/data/latin_squares"
needs_published = pytest.mark.skipif(not PUBLISHED.exists(), reason="the published puzzles are not here")
SMALL: dict[str, Any] = {"heldout": 9, "per_class": 30}


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp() / "cache"  # also that of the examples in docstrings


@pytest.fixture(autouse=True)
def cache(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test touches the user's own cache."""
    monkeypatch.setenv("PLACECODE_CACHE", str(shared_cache))
    return shared_cache


@pytest.fixture(scope="module")
def task(shared_cache: Path) -> Iterator[LatinSquares]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLACECODE_CACHE", str(shared_cache))
        yield LatinSquares(per_class=600)  # a fifth of the default


def cells_of(split: Split) -> Cells:
    """Return the cells, (N, n*n), that the inputs of a split encode."""
    values = torch.cat([torch.zeros_like(split.inputs[..., :1]) + 0.5, split.inputs], dim=-1).argmax(dim=-1)
    return values.numpy().astype(np.uint8)


def as_sets(cells: Cells) -> list[frozenset[tuple[int, int]]]:
    return [frozenset((at, cell) for at, cell in enumerate(puzzle) if cell) for puzzle in cells.tolist()]


def least_distance(cells: Cells, others: Cells) -> Fraction:
    """Return the smallest Jaccard distance between two sets of puzzles, computed with sets and fractions."""
    held = as_sets(others)
    shares = {(len(a & b), len(a) + len(b)) for a in as_sets(cells) for b in held}
    return 1 - max(Fraction(both, total - both) for both, total in shares)


def all_squares() -> Cells:
    """Return the 576 Latin squares of order 4, (576, 16), from all ways to stack four permutations."""
    rows = np.array(list(permutations((1, 2, 3, 4))))
    apart = (rows[:, None] != rows[None]).all(axis=2)
    numbers = np.array([np.indices((24,) * 4).reshape(4, -1)[i] for i in range(4)])
    fits = np.all([apart[numbers[i], numbers[j]] for i, j in combinations(range(4), 2)], axis=0)
    return rows[numbers[:, fits]].transpose(1, 0, 2).reshape(-1, 16).astype(np.uint8)


def wrong_answers(cells: Cells, solutions: np.ndarray, squares: Cells) -> int:
    """Return how many puzzles have no completion among `squares`, or one whose target is not the solution."""
    wrong = 0
    for puzzle, solution in zip(cells, solutions, strict=True):
        clues = (puzzle > 0) & (puzzle < 5)
        answers = squares[(squares[:, clues] == puzzle[clues]).all(axis=1)][:, puzzle == 5]
        wrong += not len(answers) or bool((answers != solution).any())
    return wrong


@needs_published
def test_published_puzzles_have_our_classes_and_solutions() -> None:
    squares = all_squares()
    assert squares.shape == (576, 16)
    total = 0
    for name in FILE_NAMES:
        puzzles, _ = read_puzzles(PUBLISHED / name, 4)  # refuses a wrong class or solution
        classes, solutions = classify(puzzles.cells)
        assert (classes == puzzles.classes).all() and (solutions == puzzles.solutions).all()
        assert wrong_answers(puzzles.cells, puzzles.solutions, squares) == 0
        assert wrong_answers(puzzles.cells[:50], puzzles.solutions[:50] % 4 + 1, squares) == 50
        total += len(puzzles)
    assert total == 9108


@needs_published
def test_published_puzzles_make_a_task() -> None:
    task, again, other_seed = (LatinSquares(puzzles=PUBLISHED, seed=seed) for seed in (0, 0, 1))
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 8100, "test": 900, "ood": 108}
    assert set(Counter(task.splits["train"].conditions).values()) == {2700}
    assert same_data(task, again) and not same_data(task, other_seed)
    assert torch.equal(task.splits["ood"].inputs, other_seed.splits["ood"].inputs)
    assert task.describe()["source"] == str(PUBLISHED)
    first = cells_of(task.splits["ood"])[0]
    assert "".join(map(str, first)) == "0040405210200030" and task.splits["ood"].targets[0] == 0


@needs_published
def test_the_published_distance_is_checked(tmp_path) -> None:
    with pytest.raises(BadInput, match=r"train_binary.csv, line \d+, and .*human_puzzles.csv, line \d+: their Jaccard"):
        LatinSquares(puzzles=PUBLISHED, distance=0.82)
    for name in FILE_NAMES:
        (tmp_path / name).write_bytes((PUBLISHED / name).read_bytes())
    first = (tmp_path / "train_binary.csv").read_text().splitlines()[1]
    with (tmp_path / HELDOUT_FILE).open("a") as file:
        file.write(first + "\n")
    with pytest.raises(BadInput, match=r"train_binary.csv, line 2, and .*human_puzzles.csv, line 110: .* is 0.000\.$"):
        LatinSquares(puzzles=tmp_path)


def test_splits_are_balanced_one_hot_and_without_repeats(task) -> None:
    for name, count in {"train": 540, "test": 60, "ood": 36}.items():
        split = task.splits[name]
        assert split.inputs.shape == (3 * count, 16, 5) and split.inputs.dtype == torch.float32
        assert split.inputs.is_contiguous() and set(split.inputs.flatten().tolist()) == {0.0, 1.0}
        assert set(split.targets.tolist()) == {0, 1, 2, 3} and split.targets.dtype == torch.int64
        assert (split.inputs[..., 4].sum(dim=1) == 1).all()  # one target in a puzzle
        assert Counter(split.conditions) == dict.fromkeys(CLASSES, count)
    puzzles = [puzzle for split in task.splits.values() for puzzle in as_sets(cells_of(split))]
    assert len(set(puzzles)) == len(puzzles) == 1908 and task.positions is not None and task.labels is None
    assert task.positions.tolist() == [[r, c] for r in range(4) for c in range(4)]
    assert task.token_names[:5] == ("r1c1", "r1c2", "r1c3", "r1c4", "r2c1")
    record = json.loads(json.dumps(task.describe()))
    assert record["counts"]["train"] == dict.fromkeys(CLASSES, 540) and record["source"] == "drawn"
    assert task.to("cpu", torch.float64).describe() == task.describe()


def test_only_ood_puzzles_are_far_from_training(task) -> None:
    train, test, validation = (cells_of(task.splits[name]) for name in ("train", "test", "ood"))
    assert least_distance(train, validation) > Fraction(4, 5)
    assert least_distance(test, validation) > Fraction(4, 5)
    assert least_distance(test[:20], train) < Fraction(1, 2)  # the twin: nothing keeps these apart


def givens_of(split: Split, condition: str) -> np.ndarray:
    cells = cells_of(split)[np.array(split.conditions) == condition]
    return np.array([np.count_nonzero(puzzle) - 1 for puzzle in cells])


def test_givens_are_in_the_published_ranges(task) -> None:
    for condition, (fewest, most) in zip(CLASSES, latin_squares.HELDOUT_GIVENS, strict=True):
        assert set(range(3, 10)) <= set(givens_of(task.splits["train"], condition)) <= set(range(3, 12))
        counts = Counter(givens_of(task.splits["ood"], condition).tolist())
        assert set(counts) == set(range(fewest, most + 1)) and max(counts.values()) - min(counts.values()) <= 1


def same_data(first: LatinSquares, second: LatinSquares) -> bool:
    return all(
        torch.equal(a.inputs, b.inputs) and torch.equal(a.targets, b.targets) and a.conditions == b.conditions
        for a, b in ((first.splits[name], second.splits[name]) for name in ("train", "test", "ood"))
    )


def test_the_same_seed_gives_the_same_data(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PLACECODE_CACHE", str(tmp_path))
    first, cached = LatinSquares(seed=3, **SMALL), LatinSquares(seed=3, **SMALL)
    monkeypatch.setenv("PLACECODE_CACHE", str(tmp_path / "elsewhere"))
    again, other_seed = LatinSquares(seed=3, **SMALL), LatinSquares(seed=4, **SMALL)
    assert same_data(first, cached) and same_data(first, again)
    assert first.describe() == cached.describe() == again.describe() != other_seed.describe()
    assert not torch.equal(first.splits["ood"].inputs, other_seed.splits["ood"].inputs)


def test_seed_zero_has_the_known_hash() -> None:
    """If this fails on purpose, raise `VERSION`: caches on users' disks hold the old puzzles."""
    assert latin_squares.VERSION == 1
    digest = "9b94d445213a6e86442781290de732771a225c090d85930da76dedeebd76f0bc"
    assert LatinSquares(seed=0, **SMALL).describe()["sha256"] == digest


def test_the_cache_is_used_and_is_a_folder_of_puzzles(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PLACECODE_CACHE", str(tmp_path))
    task = LatinSquares(seed=5, **SMALL)
    (folder,) = tmp_path.iterdir()
    monkeypatch.setattr(latin_squares, "make_puzzles", None)  # calling it would fail
    assert same_data(LatinSquares(seed=5, **SMALL), task)
    assert same_data(LatinSquares(seed=5, puzzles=folder), task)
    (folder / HELDOUT_FILE).write_text("damaged")
    with pytest.raises(TypeError):
        LatinSquares(seed=5, **SMALL)


def test_each_option_has_its_own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PLACECODE_CACHE", str(tmp_path))
    changes: list[dict[str, Any]] = [{}, {"seed": 8}, {"heldout": 12}, {"per_class": 31}, {"distance": 0.7}]
    digests = {LatinSquares(**{"seed": 7, **SMALL, **change}).describe()["sha256"] for change in changes}
    assert len(digests) == len(list(tmp_path.iterdir())) == len(changes)


def test_fewer_training_puzzles_are_a_subset_of_more() -> None:
    """The first puzzles of each class are used. Other splits and earlier records do not change."""
    full = LatinSquares(seed=0, **SMALL)
    cells, kinds = cells_of(full.splits["train"]), np.array(full.splits["train"].conditions)
    assert "train" not in full.describe()
    before: set[bytes] = set()
    for count, shares in ((3, (1, 1, 1)), (10, (4, 3, 3)), (np.int64(11), (4, 4, 3)), (81, (27, 27, 27))):
        task = LatinSquares(seed=0, train=count, **SMALL)
        chosen = np.zeros(len(cells), dtype=bool)
        for kind, share in zip(CLASSES, shares, strict=True):
            chosen[np.flatnonzero(kinds == kind)[:share]] = True
        assert torch.equal(task.splits["train"].inputs, full.splits["train"].inputs[torch.from_numpy(chosen)])
        assert torch.equal(task.splits["train"].targets, full.splits["train"].targets[torch.from_numpy(chosen)])
        assert task.splits["train"].conditions == tuple(kinds[chosen])
        for name in ("test", "ood"):
            assert torch.equal(task.splits[name].inputs, full.splits[name].inputs)
        record = json.loads(json.dumps(task.describe()))
        assert record["train"] == count and list(record["counts"]["train"].values()) == list(shares)
        puzzles = {row.tobytes() for row in cells_of(task.splits["train"])}
        assert before < puzzles and len(puzzles) == count
        before = puzzles
    assert same_data(task, full)
    classes = np.array([2, 0, 0, 1, 0, 2, 0, 2])  # a class with too few puzzles leaves its share to the others
    assert [first_puzzles(classes, count).tolist() for count in (3, 6)] == [[0, 1, 3], [0, 1, 2, 3, 4, 5]]


def test_a_folder_too_small_to_split_is_refused(tmp_path) -> None:
    for name, condition, puzzle, solution in (
        ("train_binary.csv", "Binary", "1235000000000000", 4),
        ("train_ternary.csv", "Ternary", "1205000000030000", 4),
        ("train_quaternary.csv", "Quaternary", "1205003000000000", 3),
        (HELDOUT_FILE, "Binary", "0000000000004235", 1),
    ):
        (tmp_path / name).write_text(f"ID,LST_num,condition,puzzles,solutions\n0,,{condition},{puzzle},{solution}\n")
    with pytest.raises(BadInput, match=r"must have at least 2 Binary puzzles to split into train and test; got 1\.$"):
        LatinSquares(puzzles=tmp_path)


def test_a_rule_that_cannot_be_met_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(latin_squares, "MAX_DRAWS", 1 << 17)
    rng = np.random.default_rng(0)
    with pytest.raises(BadInput, match=r"lower heldout, per_class or distance\.$"):
        make_puzzles(rng, 4, 108, 3000, 0.95)
    with pytest.raises(BadInput, match=r"lower heldout\.$"):
        draw_distinct(rng, 4, (500_000, 0, 0), (3, 3))
    assert len(make_puzzles(rng, 4, 9, 30, 0.8)[0]) == 90


@pytest.mark.parametrize("order", [4, 5, 6])
def test_every_solution_and_class_is_right_in_all_orders(order) -> None:
    task = LatinSquares(order=order, heldout=9, per_class=20)
    assert (task.outputs, task.tokens, task.features) == (order, order**2, order + 1)
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 54, "test": 6, "ood": 9}
    cells = {name: cells_of(split) for name, split in task.splits.items()}
    for name, split in task.splits.items():
        assert [{int(target) + 1} for target in split.targets] == [solve(puzzle) for puzzle in cells[name]]
        assert [CLASSES[index] for index in classify(cells[name])[0]] == list(split.conditions or ())
    assert least_distance(np.concatenate([cells["train"], cells["test"]]), cells["ood"]) > Fraction(4, 5)


def test_stratify_takes_a_tenth_of_each_class() -> None:
    puzzles = draw(np.random.default_rng(0), 4, 3_000, (3, 11))
    numbered = Puzzles(puzzles.cells, puzzles.classes, np.arange(len(puzzles)))  # the row as a name tag
    train, test = split_by_class(np.random.default_rng(0), numbered)
    assert sorted([*train.solutions, *test.solutions]) == list(range(len(puzzles)))
    for index, count in enumerate(np.bincount(puzzles.classes)):
        assert np.count_nonzero(test.classes == index) == round(count / 10)
    again, _ = split_by_class(np.random.default_rng(0), numbered)
    other_seed, _ = split_by_class(np.random.default_rng(1), numbered)
    assert (again.solutions == train.solutions).all() and (other_seed.solutions != train.solutions).any()


def test_loss_equals_the_cross_entropy_of_each_member(task) -> None:
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(3, 7, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(4, (3, 7), generator=generator)
    losses = task.loss(outputs, targets)
    expected = torch.stack([cross_entropy(o, t) for o, t in zip(outputs, targets, strict=True)])
    torch.testing.assert_close(losses, expected)
    (gradient,) = torch.autograd.grad(losses[1], outputs)
    assert gradient[1].abs().sum() > 0 and gradient[[0, 2]].abs().sum() == 0


def test_metrics_of_each_member_and_puzzle(task) -> None:
    outputs = torch.zeros(2, 3, 4)
    outputs[0, 0, 2] = outputs[0, 1, 1] = outputs[1, 2, 3] = 5.0
    targets = torch.tensor([[2, 0, 0], [1, 1, 3]])
    metrics = task.metrics(outputs, targets)
    assert metrics["accuracy"].tolist() == [[1, 0, 1], [0, 0, 1]]  # a tie goes to the first symbol
    assert metrics["loss"].shape == (2, 3)
    torch.testing.assert_close(metrics["loss"].mean(dim=1), task.loss(outputs, targets))
    torch.testing.assert_close(metrics["loss"][0, 2], torch.tensor(4.0).log())
