"""Checkpoints are loaded as they were saved, damaged ones are rejected, and one is complete at any moment."""

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch
from helpers.folders import full_after

from placecode.errors import BadInput
from placecode.execution import checkpoints

NAME = "stack-000"


def content(step: int) -> tuple[dict[str, torch.Tensor], pd.DataFrame]:
    state = {"flat": torch.arange(6.0).reshape(2, 3) + step, "alive": torch.tensor([True, False])}
    return state, pd.DataFrame({"member": [0, 1], "step": step, "split": "train", "value": [0.1, float("inf")]})


def save(folder: Path, step: int, name: str = NAME) -> None:
    checkpoints.save(folder, name, step, *content(step))


def assert_saved(folder: Path, step: int, name: str = NAME) -> None:
    saved, (state, metrics) = checkpoints.load(folder, name), content(step)
    assert saved is not None and saved[0] == step == checkpoints.verify(folder, name)
    assert saved[1].keys() == state.keys()
    for key, value in state.items():
        torch.testing.assert_close(saved[1][key], value, rtol=0, atol=0)
    pd.testing.assert_frame_equal(saved[2], metrics)


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def files_of(step: int, name: str = NAME) -> set[str]:
    return {f"{name}-{step}.parquet", f"{name}-{step}.safetensors", f"{name}.json"}


def test_a_checkpoint_replaces_the_previous_one_of_its_stack(tmp_path: Path) -> None:
    assert checkpoints.load(tmp_path, NAME) is checkpoints.verify(tmp_path, NAME) is None
    save(tmp_path, 3, "stack-001")
    for step in (0, 7, 19):
        save(tmp_path, step)
        assert_saved(tmp_path, step)
    assert_saved(tmp_path, 3, "stack-001")
    assert files(tmp_path) == files_of(19) | files_of(3, "stack-001")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def alter_step(path: Path) -> None:
    pointer = json.loads(path.read_text())
    path.write_text(json.dumps({**pointer, "step": pointer["step"] + 1}))


def alter_hash(path: Path) -> None:
    path.write_text(path.read_text().replace('.parquet": "', '.parquet": "0', 1))


DAMAGES = ((cut, "cut short"), (flip, "altered"), (Path.unlink, "missing"))


@pytest.mark.parametrize(
    ("suffix", "damage", "reason"),
    [
        *(("-5.safetensors", damage, reason) for damage, reason in DAMAGES),
        *(("-5.parquet", damage, reason) for damage, reason in DAMAGES),
        (".json", cut, "cannot be read"),
        (".json", lambda path: path.write_bytes(b"\xff\xfe\x00"), "cannot be read"),
        (".json", lambda path: path.write_text("[]"), "cannot be read"),
        (".json", lambda path: path.write_text('{"step": 5}'), "cannot be read"),
        (".json", alter_step, "altered"),
        (".json", alter_hash, "altered"),
    ],
)
def test_damaged_files_are_rejected(tmp_path: Path, suffix: str, damage: Callable[[Path], object], reason: str) -> None:
    save(tmp_path, 5)
    damage(tmp_path / f"{NAME}{suffix}")
    for read in (checkpoints.load, checkpoints.verify):
        with pytest.raises(BadInput, match=f"{NAME}{suffix} is damaged, .*{reason}.* --force"):
            read(tmp_path, NAME)


@pytest.mark.parametrize("write", [1, 2, 3])
def test_a_full_disk_keeps_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: int) -> None:
    save(tmp_path, 5)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_after(write - 1))
        with pytest.raises(OSError, match="No space left"):
            save(tmp_path, 9)
    assert_saved(tmp_path, 5)
    assert {path.name for path in tmp_path.iterdir()} == files_of(5)
    save(tmp_path, 9)
    assert_saved(tmp_path, 9)


@pytest.mark.parametrize(
    ("call", "count"), [*itertools.product(["fsync", "replace"], [1, 2, 3]), ("unlink", 1), ("unlink", 2)]
)
def test_one_complete_checkpoint_remains_when_the_process_is_killed(tmp_path: Path, call: str, count: int) -> None:
    """A save syncs and renames 3 files in this order, then deletes 2 of the previous checkpoint."""
    save(tmp_path, 5)
    child = os.fork()
    if child == 0:
        original, remaining = getattr(os, call), [count]

        def die(*arguments: object, **named: object) -> object:
            remaining[0] -= 1
            return original(*arguments, **named) if remaining[0] else os._exit(9)

        try:
            setattr(os, call, die)
            save(tmp_path, 9)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert_saved(tmp_path, 9 if call == "unlink" else 5)
    save(tmp_path, 11)
    assert_saved(tmp_path, 11)
    assert files(tmp_path) == files_of(11)
