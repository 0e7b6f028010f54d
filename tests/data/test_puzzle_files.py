"""Puzzle files: written and read, bad files refused with their line, and the cache."""

import os
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from helpers.refusal import sentence

from placecode.data import puzzle_files
from placecode.data.puzzle_files import FILE_NAMES, HASHES_FILE, HELDOUT_FILE, cache_folder, read_folder, read_puzzles
from placecode.data.puzzles import CLASSES, Puzzles, are_farther, draw, first_occurrences, join
from placecode.errors import BadInput

HEADER = "ID,LST_num,condition,puzzles,solutions"
GOOD = "0,,Binary,1235000000000000,4"


def some_puzzles(seed: int, order: int = 4, givens: tuple[int, int] = (3, 11)) -> Puzzles:
    """Return a few distinct puzzles, ordered by class."""
    puzzles = draw(np.random.default_rng(seed), order, 200, givens)
    puzzles = puzzles[first_occurrences(puzzles.cells)]
    return join([puzzles[puzzles.classes == index] for index in range(len(CLASSES))])


HELDOUT = some_puzzles(1)[::10]
TRAINING = some_puzzles(0)
TRAINING = TRAINING[are_farther(TRAINING.cells, HELDOUT.cells, 0.8)]


def same(first: Puzzles, second: Puzzles) -> bool:
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in vars(first))


def refusal(path: Path, order: int = 4, condition: str | None = None) -> str:
    """Return the error message for a file, without its path."""
    message = sentence(read_puzzles, path, order, condition)
    assert message.startswith(str(path)) and message.endswith(".")
    return message.removeprefix(str(path))


@pytest.mark.parametrize(("order", "givens"), [(4, (3, 11)), (5, (5, 17)), (6, (20, 25))])
def test_written_puzzles_are_read_back(tmp_path, order, givens) -> None:
    written = some_puzzles(0, order, givens)
    assert len(written) > 20
    path = tmp_path / "p.csv"
    path.write_text(puzzle_files.to_csv(written))
    read, lines = read_puzzles(path, order)
    assert same(read, written) and lines.tolist() == list(range(2, len(written) + 2))
    assert puzzle_files.to_csv(read) == path.read_text()


@pytest.mark.parametrize(
    "text",
    [
        f"{HEADER}\n{GOOD}\n",
        f"{HEADER}\n{GOOD}",  # no newline at the end
        f"{HEADER}\r\n\r\n{GOOD}\r\n",  # as a spreadsheet writes it, with an empty line
        f"\ufeff{HEADER}\n{GOOD}\n",  # and with a byte-order mark
        f"{HEADER},remark\n{GOOD},a good one\n",
        'solutions,puzzles,condition\n4,"1235000000000000",Binary\n',
        f"{HEADER}\n0,7, Binary , 1235000000000000 , 4 \n",
    ],
)
def test_variants_of_a_good_file_are_read_alike(tmp_path, text) -> None:
    path = tmp_path / "näme with space.csv"
    path.write_bytes(text.encode())
    puzzles, _ = read_puzzles(path, 4, "Binary")
    assert puzzles.cells.tolist() == [[1, 2, 3, 5] + [0] * 12]
    assert (puzzles.classes.tolist(), puzzles.solutions.tolist()) == ([0], [4])


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("1,,Binary,123500000000000,4", "has 16 digits; got 15"),
        ("1,,Binary,,4", "has 16 digits; got 0"),
        ("1,,Binary,1235000000000006,4", "digits 0 to 5; got '6'."),
        ("1,,Binary,1.235E+15,4", "digits 0 to 5; got '.'."),
        ("1,,Binary,123500000000000²,4", "digits 0 to 5; got '²'."),
        ("1,,Binary,1230000000000000,4", "one target, 5; got 0."),
        ("1,,Binary,1235000000000005,4", "one target, 5; got 2."),
        ("1,,Binary,1135000000000000,4", "symbol 1 twice in row 1."),
        ("1,,Binary,1235020000000000,4", "symbol 2 twice in column 2."),
        ("1,,Binary,1235000000000004,4", "no completion"),
        ("1,,Binary,1205000000000000,4", "the target can be 3 or 4."),
        ("1,,Binary,1235000000000000,3", "is 4; got '3'."),
        ("1,,Binary,1235000000000000,", "is 4; got ''."),
        ("1,,binary,1235000000000000,4", "got 'binary'."),
        ("1,,Ternary,1235000000000001,4", "the puzzle is Binary; got condition 'Ternary'."),
        ("1,,Binary,1205000000030000,4", "the puzzle is Ternary; got condition 'Binary'."),
        ("1,,Binary,1205003000000000,3", "the puzzle is Quaternary; got condition 'Binary'."),
        ("1,,Binary,1235000000000000", "must have 5 values; got 4."),
        ("1,,Binary,1235000000000000,4", "the same as in line 2."),
        # one solution, but no single step to it: row 3 must be filled before a 1 is excluded from the end of row 1
        ("1,,Quaternary,4500001034000000,1", "not solvable in one step"),
        ('1,,"Binary,1235000000000000,4', "is not a row of a CSV file"),
    ],
)
def test_bad_rows_are_refused_with_their_line(tmp_path, row, words) -> None:
    path = tmp_path / "p.csv"
    path.write_text(f"{HEADER}\n{GOOD}\n{row}\n", encoding="utf-8")
    message = refusal(path)
    assert message.startswith(", line 3: ") and words in message


def test_bad_conditions_orders_and_paths_are_refused(tmp_path) -> None:
    path = tmp_path / "p.csv"
    path.write_text(f"{HEADER}\n\n{GOOD}\n\n")  # empty lines count
    assert refusal(path, condition="Ternary").startswith(", line 3: the file is for Ternary puzzles")
    assert refusal(path, order=5).startswith(", line 3: a puzzle of order 5 has 25 digits; got 16")
    path.write_text(f"{HEADER}\n0,,{'x' * 5000},1235000000000000,4\n")
    assert len(refusal(path)) < 200
    assert "No such file" in refusal(tmp_path / "none.csv") and "Is a directory" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (HEADER.encode() + b"\n\n", "no puzzles"),
        (GOOD.encode(), "missing: condition,"),
        (b"ID,LST_num,condition,puzzles\n", "missing: solutions"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "byte 0 is not."),
        (HEADER.encode() + b"\n0,,Bin\xe4ry,1235000000000000,4\n", "byte 45 is not."),
        (HEADER.encode() + b"\n\x00\x00", "zero byte."),
    ],
)
def test_files_without_a_table_of_puzzles_are_refused(tmp_path, content, words) -> None:
    path = tmp_path / "p.csv"
    path.write_bytes(content)
    assert words in refusal(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a valid folder in the published layout, and return its path."""
    path = tmp_path / "puzzles"
    puzzle_files.write_folder(path, TRAINING, HELDOUT)
    return path


def test_a_folder_is_read_class_by_class(folder) -> None:
    assert all(len(part[part.classes == index]) for part in (TRAINING, HELDOUT) for index in range(3))
    training, heldout = read_folder(folder, 4, 0.8)
    assert same(training, TRAINING) and same(heldout, HELDOUT)
    assert sorted(os.listdir(folder)) == sorted([*FILE_NAMES, HASHES_FILE])


def test_a_missing_file_is_named(folder) -> None:
    (folder / FILE_NAMES[2]).unlink()
    with pytest.raises(BadInput, match=rf"missing: {FILE_NAMES[2]}\.$"):
        read_folder(folder, 4, 0.8)


def test_a_training_puzzle_near_a_heldout_one_is_refused(folder) -> None:
    first, second = folder / "train_ternary.csv", folder / HELDOUT_FILE
    first.write_text(f"{HEADER}\n0,,Ternary,1205000000030000,4\n1,,Ternary,4350000000100000,2\n")
    second.write_text(f"{HEADER}\n0,,Binary,0000000000004235,1\n1,,Binary,4351000000000000,2\n")
    (folder / "train_binary.csv").write_text(f"{HEADER}\n0,,Binary,0000123500000000,4\n")
    (folder / "train_quaternary.csv").write_text(f"{HEADER}\n0,,Quaternary,0100500000100001,1\n")
    with pytest.raises(BadInput, match=r"train_ternary.csv, line 3, and .*human_puzzles.csv, line 3: .* it is 0.400"):
        read_folder(folder, 4, 0.8)
    read_folder(folder, 4, 0.39)


class Maker:
    """Function that makes the same two sets of puzzles in every call, and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> tuple[Puzzles, Puzzles]:
        self.calls += 1
        return TRAINING, HELDOUT


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLACECODE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fetch(make: Maker) -> tuple[Puzzles, Puzzles]:
    return puzzle_files.load_or_make("key", 4, 0.8, make)


def test_cached_puzzles_are_read_back(cache) -> None:
    make = Maker()
    first, second = fetch(make), fetch(make)
    assert make.calls == 1 and all(same(a, b) for a, b in zip(first, second, strict=True))
    assert not list(cache.rglob("*.part"))
    puzzle_files.load_or_make("other key", 4, 0.8, make)
    assert make.calls == 2


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        (HELDOUT_FILE, "cut"),
        (FILE_NAMES[0], "changed"),
        (FILE_NAMES[1], "gone"),
        (HASHES_FILE, "gone"),
        (HASHES_FILE, "binary"),
    ],
)
def test_a_damaged_cache_is_replaced(cache, name, damage) -> None:
    make = Maker()
    fetch(make)
    path = cache / "key" / name
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes({"cut": content[:-20], "changed": content[:-2] + b"9\n", "binary": b"\xff\x00"}[damage])
    training, heldout = fetch(make)
    assert make.calls == 2 and same(training, TRAINING) and same(heldout, HELDOUT)
    assert path.read_bytes() == content
    fetch(make)
    assert make.calls == 2  # mended


def test_bad_puzzles_in_the_cache_are_replaced_whatever_their_hash(cache) -> None:
    make = Maker()
    fetch(make)
    flipped = Puzzles(TRAINING.cells, TRAINING.classes, TRAINING.solutions % 4 + 1)
    puzzle_files.write_folder(cache / "key", flipped, HELDOUT)
    training, _ = fetch(make)
    assert make.calls == 2 and same(training, TRAINING)


def test_a_cache_that_cannot_be_written_is_ignored(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PLACECODE_CACHE", str(tmp_path / "file"))
    make = Maker()
    for calls in (1, 2):
        assert same(fetch(make)[0], TRAINING) and make.calls == calls
    for name in ("PLACECODE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError("Could not determine home directory.")))
    assert same(fetch(make)[0], TRAINING) and make.calls == 3


def test_a_full_disk_leaves_no_partial_file(cache, monkeypatch) -> None:
    make = Maker()
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", Mock(side_effect=OSError("No space left on device")))
        assert same(fetch(make)[0], TRAINING)
    assert os.listdir(cache / "key") == []
    fetch(make)
    assert make.calls == 2


def test_the_cache_is_in_the_first_folder_that_is_set(monkeypatch) -> None:
    variables = {"PLACECODE_CACHE": ("/a", "/a"), "XDG_CACHE_HOME": ("/b", "/b/placecode")}
    for name, value in (*((name, value) for name, (value, _) in variables.items()), ("HOME", "/c")):
        monkeypatch.setenv(name, value)
    for name, (_, folder) in variables.items():
        assert cache_folder() == Path(folder)
        monkeypatch.delenv(name)
    assert cache_folder() == Path("/c/.cache/placecode")
