"""Run folders that are created, resumed, cleared and locked: nothing is lost or mixed."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from helpers.folders import contents

from placecode.errors import BadInput
from placecode.runs.read import FORMAT, Run
from placecode.runs.write import Folder

CONFIG: dict[str, Any] = {"format": FORMAT, "experiment": "s", "scale": "quick"}
CONFIG |= {"fields": {"epochs": 1, "sigmas": [0.1]}}
CONFIG |= {"precision": "high", "device": "cpu", "stack": 2, "members": "0:1", "total": 1, "shape": {"tokens": 2}}
CONFIG |= {"task": {"sha256": "a"}}
MODES: list[dict[str, bool]] = [{}, {"resume": True}, {"force": True}]


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    with Folder.open(path, CONFIG) as folder:
        (folder.checkpoints / "stack-000.json").write_text("{}")
    return path


def rejected(path: Path, config: dict[str, Any], **mode: bool) -> str:
    """Assert that opening the folder fails and changes no file; return the error message."""
    before = contents(path)
    with pytest.raises(BadInput) as error, Folder.open(path, config, **mode):
        pass
    assert contents(path) == before
    return str(error.value)


def test_new_empty_and_nested_folders_are_created(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "new", tmp_path / "a" / "b" / "c"):
        with Folder.open(path, CONFIG) as folder:
            assert json.loads((path / "config.json").read_text()) == CONFIG
            assert not folder.finished


def test_an_existing_run_is_kept_or_deleted_only_on_request(unfinished: Path) -> None:
    message = "it holds an unfinished run of s (--resume continues it, --force starts again)"
    assert message in rejected(unfinished, CONFIG)
    assert "it holds s, and this is t" in rejected(unfinished, {**CONFIG, "experiment": "t"}, resume=True)
    with Folder.open(unfinished, CONFIG, resume=True) as folder:
        assert (folder.checkpoints / "stack-000.json").exists()
    (unfinished / "notes.txt").write_text("the user's")
    with Folder.open(unfinished, {**CONFIG, "experiment": "t"}, force=True) as folder:
        assert not (folder.checkpoints / "stack-000.json").exists()
    assert json.loads((unfinished / "config.json").read_text())["experiment"] == "t"
    assert (unfinished / "notes.txt").read_text() == "the user's"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"fields": {"epochs": 2, "sigmas": [0.1]}}, "epochs was 1, now 2"),
        ({"fields": {"epochs": 1}}, "sigmas was [0.1], now None"),
        ({"precision": "bf16", "stack": 3}, "precision was 'high', now 'bf16'; stack was 2, now 3"),
        ({"fields": {"epochs": 1, "sigmas": [0.5] * 1000}}, f"sigmas was [0.1], now [{'0.5, ' * 11}0.5, ..."),
        # entries that follow from a setting are not listed too
        ({"members": "0:2", "total": 2, "task": {"sha256": "b"}}, "members was '0:1', now '0:2'"),
    ],
)
def test_resume_names_the_settings_that_changed(unfinished: Path, change: dict[str, Any], text: str) -> None:
    assert f"changed: {text} (--force starts again)" in rejected(unfinished, {**CONFIG, **change}, resume=True)


def test_only_finished_runs_of_an_older_format_are_resumed(unfinished: Path) -> None:
    (unfinished / "config.json").write_text(json.dumps({**CONFIG, "format": FORMAT - 1}))
    assert f"is of format {FORMAT - 1}" in rejected(unfinished, CONFIG, resume=True)
    assert "--resume" not in rejected(unfinished, CONFIG)
    (unfinished / "summary.json").write_text("{}")
    with Folder.open(unfinished, CONFIG, resume=True) as folder:
        assert folder.finished
    assert "precision was" in rejected(unfinished, {**CONFIG, "precision": "bf16"}, resume=True)


@pytest.mark.parametrize("mode", MODES)
def test_folders_of_other_programs_are_not_changed(tmp_path: Path, mode: dict[str, bool]) -> None:
    (tmp_path / "a.txt").write_text("mine")
    assert "must be new, empty or a run folder; it holds other files" in rejected(tmp_path, CONFIG, **mode)
    assert "must be a folder; it is a file" in rejected(tmp_path / "a.txt", CONFIG, **mode)
    assert "must be writable; it is not (Not a directory)" in rejected(tmp_path / "a.txt" / "b", CONFIG, **mode)
    for text in ('{"model_type": "bert"}', "[1, 2]", "null", '{"format": 6}'):
        (tmp_path / "config.json").write_text(text)
        assert "must be a run folder of format 1 to 5" in rejected(tmp_path, CONFIG, **mode)


@pytest.mark.parametrize(
    "leftovers", [["checkpoints/"], ["checkpoints/lock", ".config.json.0123abcd.part", "figures/"]]
)
def test_leftovers_of_a_process_that_was_killed_while_it_started(tmp_path: Path, leftovers: list[str]) -> None:
    for name in leftovers:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).touch()
    with Folder.open(tmp_path, CONFIG, resume=True):
        assert not list(tmp_path.glob(".*.part")) and (tmp_path / "config.json").is_file()


@pytest.fixture
def holder(unfinished: Path) -> Iterator[None]:
    """Another process that has locked the folder."""
    (ready, say), (wait, go) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with Folder.open(unfinished, CONFIG, resume=True):
                os.write(say, b"x")
                os.close(go)
                os.read(wait, 1)
            os._exit(0)
        finally:
            os._exit(1)
    os.read(ready, 1)
    yield
    os.close(go)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for number in (ready, say, wait):
        os.close(number)


@pytest.mark.usefixtures("holder")
@pytest.mark.parametrize("mode", MODES[1:])
def test_a_folder_that_another_process_has_locked(unfinished: Path, mode: dict[str, bool]) -> None:
    assert "must not be in use; another process is writing to it" in rejected(unfinished, CONFIG, **mode)


def test_a_file_system_without_locks(unfinished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(37, "No locks available")))
    with Folder.open(unfinished, CONFIG, resume=True) as folder:
        assert folder.path == unfinished


def test_a_process_that_is_killed_while_it_clears_the_folder(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After any number of deletions, --force works again, and the rest does not look like a finished run."""
    config = Run(copy).config
    (copy / "figures").mkdir()
    (copy / "figures" / "accuracy.png").touch()
    unlink, left = Path.unlink, [0]

    def die(path: Path, missing_ok: bool = False) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise SystemExit
        unlink(path, missing_ok=missing_ok)

    for count in range(1, 8):
        left[0] = count
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", die)
            with pytest.raises(SystemExit), Folder.open(copy, config, force=True):
                pass
        assert not Run(copy).finished
    with Folder.open(copy, config, force=True):
        assert {path.name for path in copy.iterdir()} == {"config.json", "checkpoints", "figures"}


def test_resuming_a_finished_run_deletes_forgotten_checkpoints_only(copy: Path) -> None:
    before = contents(copy)
    (copy / "checkpoints").mkdir()
    (copy / "checkpoints" / "stack-000.json").write_text("{}")
    with Folder.open(copy, Run(copy).config, resume=True) as folder:
        assert folder.finished
    assert contents(copy) == before and not (copy / "checkpoints").exists()
