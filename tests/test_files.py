"""Files are written whole or not at all, whatever happens on the way."""

import errno
import hashlib
import json
import os
import threading
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save

from placecode import files


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_written_piece_by_piece_has_its_name_at_the_end_or_never(tmp_path) -> None:
    path = tmp_path / "a.bin"
    files.write_bytes(path, b"first")
    with files.open_atomic(path) as stream:
        stream.write(b"one ")
        stream.write(b"two")
        assert path.read_bytes() == b"first" and len(names(tmp_path)) == 2
    assert path.read_bytes() == b"one two" and names(tmp_path) == ["a.bin"]
    assert files.sha256(path) == hashlib.sha256(b"one two").hexdigest()

    def interrupted() -> None:
        with files.open_atomic(path) as stream:
            stream.write(b"three")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"one two" and names(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, call, failure) -> None:
    path = tmp_path / "a.bin"
    files.write_bytes(path, b"old")

    def fail(*arguments: object) -> None:
        raise failure

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(type(failure)):
        files.write_bytes(path, b"new, and longer")
    with pytest.raises(type(failure)):
        files.write_bytes(tmp_path / "never-there-before", b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_process_killed_while_writing_leaves_the_old_file_and_a_remnant_that_is_swept(tmp_path, call) -> None:
    path = tmp_path / "a.bin"
    files.write_bytes(path, b"old")
    child = os.fork()
    if child == 0:
        try:
            setattr(os, call, lambda *arguments: os._exit(9))
            files.write_bytes(path, b"new" * 1000)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert path.read_bytes() == b"old"
    (remnant,) = set(tmp_path.iterdir()) - {path}
    assert files.is_temporary(remnant)
    files.remove_temporary_files(tmp_path)
    assert names(tmp_path) == ["a.bin"]


def test_sweeping_takes_nothing_of_the_users(tmp_path) -> None:
    theirs = ["a.bin", ".hidden", "notes.part", ".a.bin.part", ".a.bin.12345678", ".a.bin.1234567g.part", "a.0123.part"]
    for name in theirs:
        (tmp_path / name).touch()
    files.remove_temporary_files(tmp_path)
    assert names(tmp_path) == sorted(theirs)
    files.remove_temporary_files(tmp_path / "no such folder")


def test_a_reader_never_sees_half_a_file(tmp_path) -> None:
    path = tmp_path / "a.bin"
    contents = {b"a" * 300_000, b"b" * 500_000}
    files.write_bytes(path, b"a" * 300_000)
    read_contents: set[bytes] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            read_contents.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(20):
        for content in contents:
            files.write_bytes(path, content)
    done.set()
    reader.join()
    assert read_contents <= contents


def test_json_that_no_other_program_could_read_is_refused(tmp_path) -> None:
    path = tmp_path / "a.json"
    files.write_json(path, {"mean": 0.1 + 0.2, "std": None})
    assert json.loads(path.read_text()) == {"mean": 0.1 + 0.2, "std": None}
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.write_json(path, {"mean": float("nan")})
    assert json.loads(path.read_text())["std"] is None
    assert names(tmp_path) == ["a.json"]


def test_json_has_a_line_for_each_list_of_plain_values_and_each_row(tmp_path) -> None:
    value = {"sizes": [1, 2], "none": [], "task": {"b": [[0.5, None], []], 2: {}}, "rows": [{"n": 1, "of": "a"}]}
    files.write_json(tmp_path / "a.json", value)
    assert (tmp_path / "a.json").read_text().splitlines() == [
        "{",
        '  "sizes": [1, 2],',
        '  "none": [],',
        '  "task": {',
        '    "b": [',
        "      [0.5, null],",
        "      []",
        "    ],",
        '    "2": {}',
        "  },",
        '  "rows": [',
        '    {"n": 1, "of": "a"}',
        "  ]",
        "}",
    ]
    for plain in (3, "text", [], {}, [[]], {"rows": ()}):
        files.write_json(tmp_path / "b.json", plain)
        assert json.loads((tmp_path / "b.json").read_text()) == json.loads(json.dumps(plain))


TABLES = {
    "plain": {"member": [0, 1], "value": [0.1, float("nan")], "split": ["train", "test"], "learn": [True, False]},
    "missing": {"donor": pd.array([1, None], dtype="Int64"), "options": ["{}", None], "ramp": [2**62 + 1, 0]},
    "zeros": {"value": [-0.0, 5e-324]},
    "empty": {
        "step": pd.Series([], dtype="int64"),
        "value": pd.Series([], dtype=float),
        "split": pd.Series([], dtype=str),
    },
    "without columns": {},
}


@pytest.mark.parametrize("table", [pd.DataFrame(columns) for columns in TABLES.values()], ids=TABLES)
def test_tables_come_back_as_they_were(table: pd.DataFrame, tmp_path) -> None:
    assert files.write_table(tmp_path / "a.parquet", table) == files.sha256(tmp_path / "a.parquet")
    again = pd.read_parquet(tmp_path / "a.parquet")
    pd.testing.assert_frame_equal(again, table, check_exact=True, check_column_type=bool(len(table.columns)))
    for name in table.select_dtypes("float").columns:
        assert again[name].to_numpy().tobytes() == table[name].to_numpy().tobytes()


HALVES = torch.tensor([0.0, -0.0, 1 / 3, 65504.0, 6e-8, float("inf"), float("nan")]).half()
ROWS = torch.arange(6).reshape(2, 3)  # rows of one storage, as the members of a stack are
TENSORS = {
    "none": {},
    "twelve": {str(i): torch.randn(2) for i in range(12)},
    "types": {
        "b": torch.ones(5, dtype=torch.bool),
        "half/1": torch.randn(3, 5).half(),
        "half/0": HALVES,
        "\u00e9": torch.arange(3),
        "f": torch.randn(3),
        "z": torch.randn(2, dtype=torch.float64),
    },
    "shapes": {"empty": torch.zeros(0, 3), "one": torch.tensor(3.0), "a/1": torch.randn(3, 4)},
    "views": {"turned": torch.arange(12.0).reshape(3, 4).T, "0": ROWS[:1], "1": ROWS[1:]},
}


@pytest.mark.parametrize("tensors", TENSORS.values(), ids=TENSORS)
def test_arrays_are_written_as_the_library_would(tensors, tmp_path) -> None:
    path, plain = tmp_path / "a.safetensors", {name: tensor.clone().contiguous() for name, tensor in tensors.items()}
    written = files.write_tensors(path, tensors)
    assert path.read_bytes() == save(plain)
    assert written == hashlib.sha256(save(plain)).hexdigest()
    for name, array in load_file(path).items():
        torch.testing.assert_close(array, tensors[name], rtol=0, atol=0, equal_nan=True)


def test_types_that_are_not_written_are_named(tmp_path) -> None:
    with pytest.raises(TypeError, match=r"of a type that is not written: \{'a': torch\.bfloat16\}"):
        files.write_tensors(tmp_path / "a", {"a": torch.zeros(2, dtype=torch.bfloat16), "b": torch.zeros(2)})
    assert names(tmp_path) == []


def test_what_counts_as_a_full_disk() -> None:
    full = [number for number in errno.errorcode if files.is_full_disk(OSError(number, "said"))]
    assert sorted(full) == sorted([errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
