"""Checkpoints: what was saved comes back exactly; what was cut short or altered never does."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch

from placecode.errors import BadInput
from placecode.execution import checkpoints

NAME = "stack-000"


def content(step: int) -> tuple[dict[str, torch.Tensor], pd.DataFrame]:
    state = {"flat": torch.arange(6.0).reshape(2, 3) + step, "alive": torch.tensor([True, False])}
    metrics = pd.DataFrame({"member": [0, 1], "step": step, "split": "train", "value": [0.1, float("inf")]})
    return state, metrics


def save(folder: Path, step: int, name: str = NAME) -> None:
    state, metrics = content(step)
    checkpoints.save(folder, name, step, state, metrics)


def assert_holds(folder: Path, step: int, name: str = NAME) -> None:
    found = checkpoints.load(folder, name)
    assert found is not None
    state, metrics = content(step)
    assert found[0] == step
    assert set(found[1]) == set(state)
    for key, value in state.items():
        assert torch.equal(found[1][key], value)
        assert found[1][key].dtype == value.dtype
    pd.testing.assert_frame_equal(found[2], metrics)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def files_of(step: int, name: str = NAME) -> list[str]:
    return [f"{name}-{step}.parquet", f"{name}-{step}.safetensors", f"{name}.json"]


def test_there_is_none_until_one_is_saved(tmp_path: Path) -> None:
    assert checkpoints.load(tmp_path, NAME) is None
    assert checkpoints.verify(tmp_path, NAME) is None
    save(tmp_path, 0)
    assert_holds(tmp_path, 0)
    assert checkpoints.verify(tmp_path, NAME) == 0
    assert checkpoints.load(tmp_path, "stack-001") is None


def test_a_later_one_replaces_the_earlier_and_no_other_stacks(tmp_path: Path) -> None:
    save(tmp_path, 3, "stack-001")
    for step in (0, 7, 19):
        save(tmp_path, step)
    assert_holds(tmp_path, 19)
    assert_holds(tmp_path, 3, "stack-001")
    assert names(tmp_path) == sorted(files_of(19) + files_of(3, "stack-001"))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("suffix", [".safetensors", ".parquet"])
@pytest.mark.parametrize(
    ("damage", "how"),
    [
        (cut, "it was cut short or altered"),
        (empty, "it was cut short or altered"),
        (flip, "it was cut short or altered"),
        (remove, "it is missing"),
    ],
)
def test_a_damaged_file_is_never_believed(
    tmp_path: Path, suffix: str, damage: Callable[[Path], None], how: str
) -> None:
    save(tmp_path, 5)
    file = tmp_path / f"{NAME}-5{suffix}"
    damage(file)
    with pytest.raises(BadInput) as error:
        checkpoints.load(tmp_path, NAME)
    assert str(error.value) == f"the checkpoint {file} is damaged, {how}; start the run again with --force."
    with pytest.raises(BadInput, match="is damaged"):
        checkpoints.verify(tmp_path, NAME)


def alter_step(path: Path) -> None:
    pointer = json.loads(path.read_text())
    path.write_text(json.dumps({**pointer, "step": pointer["step"] + 1}))


def alter_hash(path: Path) -> None:
    path.write_text(path.read_text().replace('.parquet": "', '.parquet": "0', 1))


@pytest.mark.parametrize(
    ("damage", "how"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-20]), "it cannot be read"),
        (empty, "it cannot be read"),
        (lambda path: path.write_bytes(b"\xff\xfe\x00"), "it cannot be read"),
        (lambda path: path.write_text("[]"), "it cannot be read"),
        (lambda path: path.write_text("null"), "it cannot be read"),
        (lambda path: path.write_text('{"step": 5}'), "it cannot be read"),
        (alter_step, "it was altered"),
        (alter_hash, "it was altered"),
    ],
)
def test_a_damaged_pointer_is_never_believed(tmp_path: Path, damage: Callable[[Path], None], how: str) -> None:
    save(tmp_path, 5)
    file = tmp_path / f"{NAME}.json"
    damage(file)
    with pytest.raises(BadInput) as error:
        checkpoints.load(tmp_path, NAME)
    assert str(error.value) == f"the checkpoint {file} is damaged, {how}; start the run again with --force."


@pytest.mark.parametrize("write", [1, 2, 3])
def test_a_disk_that_fills_up_keeps_the_one_before_and_leaves_no_half_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: int
) -> None:
    save(tmp_path, 5)
    left = [write]
    fsync = os.fsync

    def fail(number: int) -> None:
        left[0] -= 1
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(number)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space left"):
            save(tmp_path, 9)
    assert_holds(tmp_path, 5)
    assert names(tmp_path) == sorted(files_of(5))
    save(tmp_path, 9)
    assert_holds(tmp_path, 9)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("call", "count"), [*((call, i) for call in ("fsync", "replace") for i in (1, 2, 3)), ("unlink", 1), ("unlink", 2)]
)
def test_killed_at_any_moment_one_whole_checkpoint_remains(tmp_path: Path, when: str, call: str, count: int) -> None:
    """The calls of a save, in order: 3 files are synced and renamed, then 2 of the earlier one removed."""
    save(tmp_path, 5)
    child = os.fork()
    if child == 0:
        usual, left = getattr(os, call), [count]

        def die(*arguments: object, **named: object) -> object:
            left[0] -= 1
            if left[0] == 0 and when == "before":
                os._exit(9)
            found = usual(*arguments, **named)
            if left[0] == 0:
                os._exit(9)
            return found

        try:
            setattr(os, call, die)
            save(tmp_path, 9)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    pointed_at_new = call == "unlink" or (call, count, when) == ("replace", 3, "after")
    assert_holds(tmp_path, 9 if pointed_at_new else 5)
    save(tmp_path, 11)
    assert_holds(tmp_path, 11)
    assert [name for name in names(tmp_path) if not name.startswith(".")] == sorted(files_of(11))
