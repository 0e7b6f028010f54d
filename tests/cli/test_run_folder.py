"""The run folder on the command line: overwriting, resuming, damaged files and a full disk."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from helpers.folders import full_after, same_files
from helpers.small_runs import TINY_RUN as RUN
from helpers.training.tiny_runs import RESULTS

from placecode import cli
from placecode.data.puzzle_files import write_folder
from placecode.runs.read import FORMAT, Run
from placecode.tasks.latin_squares import make_puzzles

Refuse = Callable[..., str]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, and one that was stopped in its second stack by a full disk. Tests copy them."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "publish", lambda page: page.run.path / "report.html")
        assert cli.main([*RUN, "--out", str(folder / "finished")]) == 0
        patch.setattr(os, "fsync", full_after(7))
        assert cli.main([*RUN, "--out", str(folder / "unfinished")]) == 2
    assert (folder / "unfinished" / "checkpoints" / "stack-000.json").is_file()
    return folder


@pytest.fixture
def finished(runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs / "finished", tmp_path / "finished"))


@pytest.fixture
def unfinished(runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs / "unfinished", tmp_path / "unfinished"))


def change_config(folder: Path, **values: object) -> None:
    (folder / "config.json").write_text(json.dumps({**json.loads((folder / "config.json").read_text()), **values}))


def test_a_run_is_not_overwritten_without_force(refuse: Refuse, finished: Path, unfinished: Path) -> None:
    assert refuse(*RUN, "--out", str(finished)).endswith("a finished run of lst-sigma (--force overwrites it).")
    reason = "an unfinished run of lst-sigma (--resume continues it, --force starts again)."
    assert refuse(*RUN, "--out", str(unfinished)).endswith(reason)


def test_a_folder_that_refuses_the_first_file(refuse: Refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.setattr(Path, "mkdir", Mock(side_effect=PermissionError(13, "Permission denied")))
    for out in ("there", "new"):
        assert refuse(*RUN, "--out", out) == f"the output folder {out} must be writable; it is not (Permission denied)."


def test_a_damaged_config(refuse: Refuse, unfinished: Path) -> None:
    file = unfinished / "config.json"
    file.write_bytes(file.read_bytes()[:-30])
    for more in ([], ["--resume"], ["--force"]):
        assert refuse(*RUN, "--out", str(unfinished), *more) == f"{file} is damaged: it is not JSON."
    file.write_text('{"format": 1}')
    assert refuse(*RUN, "--out", str(unfinished), "--resume") == f"{file} is damaged: it has no experiment."
    assert refuse("report", str(unfinished)) == f"{file} is damaged: it has no experiment."


def test_resume_with_other_puzzles_of_the_same_name(refuse: Refuse, puzzles: Path) -> None:
    words = [*RUN, "--puzzles", str(puzzles), "--out", "out"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", full_after(7))
        assert cli.main(words) == 2
    write_folder(puzzles, *make_puzzles(np.random.default_rng(1), 4, 9, 20, 0.5))
    assert "changed: task.sha256 was '" in refuse(*words, "--resume")


def test_resume_with_changed_settings(refuse: Refuse, finished: Path, unfinished: Path) -> None:
    changed = "--resume must use the settings of the run; changed: "
    sentence = refuse(*RUN, "--out", str(finished), "--resume", "--scale", "paper")
    assert sentence.startswith(f"{changed}scale was 'quick', now 'paper'")
    assert refuse(*RUN, "--out", str(unfinished), "--resume", "--clip", "1").startswith(f"{changed}clip was None")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


def test_force_replaces_a_damaged_checkpoint(refuse: Refuse, unfinished: Path, runs: Path, no_report: None) -> None:
    file = unfinished / "checkpoints" / "stack-000-8.safetensors"
    cut(file)
    assert refuse(*RUN, "--out", str(unfinished), "--resume").startswith(f"the checkpoint {file} is damaged")
    assert cli.main([*RUN, "--out", str(unfinished), "--force"]) == 0
    assert same_files(unfinished, runs / "finished", *RESULTS)


def test_a_real_limit_on_the_size_of_files(tmp_path: Path, no_report: None, environment: dict[str, str]) -> None:
    """The operating system limits the size of a file: a checkpoint of one member fits, the weights of all do not."""
    pytest.importorskip("resource")
    words, unlimited, out = [*RUN, "--stack", "1", "--out"], tmp_path / "whole", tmp_path / "out"
    assert cli.main([*words, str(unlimited)]) == 0
    limit = (unlimited / "weights.safetensors").stat().st_size - 1
    script = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit},) * 2)\n"
    script += f"import sys; from placecode import cli; sys.exit(cli.main({[*words, str(out)]!r}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.returncode == 2, done.stderr
    assert "it is full (File too large)" in done.stderr and done.stderr.count("\n") == 1
    assert not Run(out).finished
    assert len(list(out.glob("checkpoints/*.json"))) == 4
    assert cli.main([*words, str(out), "--resume"]) == 0
    assert same_files(out, unlimited, *RESULTS)


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), 2, "the disk must have space for the results"),
        (PermissionError(errno.EACCES, "Permission denied", "report.html"), 1, "[Errno 13] Permission denied"),
    ],
    ids=["full disk", "another error"],
)
def test_errors_of_the_system_elsewhere_than_in_a_run(
    error: OSError, code: int, sentence: str, finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(cli, "publish", Mock(side_effect=error))
    assert cli.main(["report", str(finished)]) == code
    assert capsys.readouterr().err.startswith(f"placecode: {sentence}")


def test_reports_of_unfinished_unknown_and_damaged_runs(refuse: Refuse, finished: Path, unfinished: Path) -> None:
    assert "the run is not finished; continue it with 'placecode run " in refuse("report", str(unfinished))
    change_config(unfinished, format=FORMAT - 1)
    assert "only the version of placecode that began it can continue it" in refuse("report", str(unfinished))
    fields = Run(finished).config["fields"]
    change_config(finished, fields={**fields, "temperature": 1.0})
    assert refuse("report", str(finished)).endswith("it also has temperature.")
    change_config(finished, fields=fields, experiment="lst-future")
    assert refuse("report", str(finished)).endswith("; got 'lst-future'.")
    change_config(finished, experiment="lst-sigma")
    cut(finished / "metrics.parquet")
    assert refuse("report", str(finished)) == f"{finished / 'metrics.parquet'} is damaged: it is not a Parquet table."
