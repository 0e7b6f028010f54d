"""`placecode fit`: a table of any format in, a map and a report out; stopped, resumed, forced and refused."""

import errno
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from helpers.folders import same_files
from helpers.table_data import write

from placecode import cli
from placecode.cli import reporting
from placecode.data.tables import files as table_files
from placecode.execution import local
from placecode.experiments import experiment_of
from placecode.experiments.channels.table import TableExperiment
from placecode.runs import read as runs
from placecode.runs.read import Run

TINY = ["--steps", "20", "--width", "8", "--layers", "1", "--draws", "19", "--device", "cpu", "--sigma", "0.05,0.2"]
TINY += ["--batch", "16"]
SHORT = [*TINY, "--sigma", "0.05", "--steps", "2", "--seeds", "1"]
NAMES = ["<b>a</b>", "b & c", "d", "$e$", "f", "g"]
LABELS = ["one", "one", "two", "two", "<i>", "<i>"]
PRODUCTS = {"fit.json", "fit.safetensors", "map.csv"}

Refuse = Callable[..., str]


def summary_of(folder: Path | str) -> dict[str, Any]:
    """Return the content of summary.json."""
    return dict(json.loads((Path(folder) / "summary.json").read_text()))


def frame(samples: int = 200) -> pd.DataFrame:
    """Return three pairs of channels; the channels of a pair are nearly equal."""
    rng = np.random.default_rng(0)
    source = rng.normal(size=(samples, 3)).repeat(2, axis=1)
    return pd.DataFrame(source + 0.2 * rng.normal(size=(samples, 6)), columns=NAMES)


def files(folder: Path) -> list[str]:
    """Write a table and the known positions and groups of its channels; return the options that name these files."""
    frame().to_csv(folder / "t.csv", index=False)
    places = pd.DataFrame({"name": NAMES, "x": [0, 1, 5, 6, 9, 10.5], "y": [0, 0, 1, 1, 4, 4]})
    places.to_csv(folder / "places.csv", index=False)
    pd.DataFrame({"name": NAMES, "label": LABELS}).to_csv(folder / "labels.csv", index=False)
    return ["--positions", str(folder / "places.csv"), "--labels", str(folder / "labels.csv")]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> tuple[Path, str]:
    """A fit made by the command line, with its report, and what it printed. No test changes it."""
    folder = tmp_path_factory.mktemp("fits")
    options = files(folder)
    code = "import sys; from placecode.fit.fitting import others; others.find_spec = lambda name: None; "
    code += "from placecode.cli import main; sys.exit(main())"
    words = ["fit", "t.csv", *options, *TINY, "--steps", "200", "--learning-rate", "0.005", "--out", "first"]
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "first", done.stdout


def test_fit_leaves_a_run_folder_with_the_map(fitted: tuple[Path, str]) -> None:
    assert {path.name for path in fitted[0].iterdir()} == {*runs.FILES, "figures"} - {"baselines.parquet"}
    assert {path.stem for path in (fitted[0] / "figures").iterdir()} == {"map", "methods", "sigma"}
    table = pd.read_csv(fitted[0] / "map.csv")
    assert table["name"].tolist() == NAMES and table["label"].tolist() == LABELS
    assert {"x", "y", "module", "confidence", "neighbor_1", "neighbor_1_confidence"} <= set(table.columns)


def test_summary_has_verdict_errors_and_baselines(fitted: tuple[Path, str]) -> None:
    summary, scores = summary_of(fitted[0]), {"procrustes_r2", "neighbor_agreement", "ari"}
    assert {*scores, "rows", "experiment"} <= set(summary)
    assert summary["verdict"] == "structure found" and summary["p_value"] == 0.05 and summary["sigma"] in (0.05, 0.2)
    assert summary["heldout_mse"] < 0.9 * summary["mean_mse"] and summary["neighbor_agreement"] > 0.5
    assert set(summary["baselines"]) == {"correlation", "pca", "graphical lasso"}
    assert all({"heldout_mse", *scores} <= set(baseline) for baseline in summary["baselines"].values())
    assert summary["linear_mse"] == summary["baselines"]["correlation"]["heldout_mse"]


def findings(printed: str) -> list[str]:
    """Return the lines that a command prints at the end."""
    return [line for line in printed.splitlines() if not line.startswith("stack ") and not line.endswith(" ...")]


def test_verdict_is_first_and_names_are_escaped_in_the_report(fitted: tuple[Path, str]) -> None:
    summary, lines = summary_of(fitted[0]), findings(fitted[1])
    assert lines[0].startswith("Structure found") and f"p = {summary['p_value']:.3g}" in lines[0]
    assert f"held-out error {summary['heldout_mse']:.3f}" in lines[0]
    assert lines[-2:] == ["Map: first/map.csv", "Report: first/report.html"]
    page = (fitted[0] / "report.html").read_text()
    assert lines[0].split(" (p = ")[0] in page
    assert "<b>a</b>" not in page and "<i>" not in page  # names are escaped
    assert re.search(r"&lt;b&gt;a|\\u003cb\\u003ea|\\u003cb>a", page)


def test_other_commands_work_on_a_fit(fitted: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    before = (fitted[0] / "report.html").read_bytes()
    assert cli.main(["report", str(fitted[0])]) == 0
    assert (fitted[0] / "report.html").read_bytes() == before
    capsys.readouterr()
    assert cli.main(["runs", str(fitted[0].parent)]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "│ fit" in line)
    assert "done" in line and re.search(r"30% hidden: 0\.05: \d\.\d\d +0\.2: \d\.\d\d", line)
    assert cli.main(["claims", str(fitted[0])]) == 0
    assert capsys.readouterr().out == f"{fitted[0]}: there are no claims about fit.\n"


def test_the_command_in_the_report_makes_the_same_fit_again(
    fitted: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_report: None
) -> None:
    first = Run(fitted[0])
    monkeypatch.chdir(fitted[0].parent)
    words = shlex.split(reporting.command_of(first, experiment_of(first)))
    assert words[:2] == ["placecode", "fit"]
    assert cli.main([*words[1:], "--out", str(tmp_path / "again")]) == 0
    assert Run(tmp_path / "again").config == first.config
    assert same_files(tmp_path / "again", fitted[0], "weights.safetensors")


def test_learning_rate_of_the_pe_is_three_times_the_other_by_default(fitted: tuple[Path, str]) -> None:
    run = Run(fitted[0])
    experiment = experiment_of(run)
    assert isinstance(experiment, TableExperiment)
    assert (experiment.learning_rate, experiment.pe_learning_rate) == (0.005, 0.015)
    words = reporting.command_of(run, experiment).split()
    assert "--learning-rate" in words and "--pe-learning-rate" not in words
    words = reporting.command_of(run, replace(experiment, pe_learning_rate=0.006)).split()
    assert words[words.index("--pe-learning-rate") + 1] == "0.006"


@pytest.fixture(scope="module")
def plain_error(tmp_path_factory: pytest.TempPathFactory) -> float:
    """The held-out error of a fit of `frame(100)` as an array."""
    folder = tmp_path_factory.mktemp("plain")
    np.save(folder / "t.npy", frame(100).to_numpy(dtype=np.float32))
    assert cli.main(["fit", str(folder / "t.npy"), *SHORT, "--out", str(folder / "run")]) == 0
    return float(summary_of(folder / "run")["heldout_mse"])


@pytest.mark.parametrize("name", ["semicolons.csv", "t.parquet", "t.h5"])
def test_every_format_gives_the_same_fit(name: str, tmp_path: Path, plain_error: float, no_report: None) -> None:
    write(tmp_path / name, frame(100).astype(np.float32).set_axis(list("abcdef"), axis=1))
    assert cli.main(["fit", name, *SHORT, *(["--key", "rest/series"] if name == "t.h5" else [])]) == 0
    out = Path("runs") / f"fit-{Path(name).stem}"
    expected = [f"channel {i}" for i in range(1, 7)] if name == "t.h5" else list("abcdef")
    assert pd.read_csv(out / "map.csv")["name"].tolist() == expected
    assert summary_of(out)["heldout_mse"] == pytest.approx(plain_error, rel=1e-4)  # rounding of texts aside
    assert not list(tmp_path.glob(".placecode-*"))


def test_groups_names_and_categories_are_read(tmp_path: Path, no_report: None) -> None:
    table = frame()
    table["wind"] = np.random.default_rng(0).choice(["west", "east", "north"], len(table))
    table["who"] = [f"p{i // 25}" for i in range(len(table))]
    table.to_csv("t.csv", index=False)
    names = [f"k{i}" for i in range(1, 8)]
    (tmp_path / "names.txt").write_text("\n".join(names))
    words = ["--groups", "who", "--names", "names.txt", "--seeds", "7,3", "--halves", "0"]
    assert cli.main(["fit", "t.csv", *SHORT, *words, "--out", "a"]) == 0
    assert pd.read_csv("a/map.csv")["name"].tolist() == names
    fields = Run("a").config["fields"]
    assert (fields["groups"], fields["names"]) == ("who", "names.txt")
    assert Run("a").members["seed"].tolist() == [7, 3]
    assert "categories" in summary_of("a")["left_out"]["graphical lasso"]


def test_a_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert cli.main(["fit", "t.csv", *TINY, "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("fit: 8 members in ")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.fixture
def copied(fitted: tuple[Path, str], tmp_path: Path) -> tuple[Path, list[str]]:
    """A copy of the finished fit, which a test may change, and the arguments of its command."""
    for name in ("t.csv", "places.csv", "labels.csv"):
        shutil.copy(fitted[0].parent / name, tmp_path / name)
    out = Path(shutil.copytree(fitted[0], tmp_path / "first"))
    fields = Run(out).config["fields"]
    words = ["fit", "t.csv", "--positions", fields["positions"], "--labels", fields["labels"], *TINY]
    return out, [*words, "--steps", "200", "--learning-rate", "0.005", "--out", "first"]


def test_finished_fit_is_not_overwritten_without_force(
    copied: tuple[Path, list[str]], fitted: tuple[Path, str], no_report: None, capsys: pytest.CaptureFixture[str]
) -> None:
    out, words = copied
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in out.rglob("*") if path.is_file()}
    assert cli.main([*words, "--resume"]) == 0
    assert capsys.readouterr().out.splitlines() == findings(fitted[1])
    assert cli.main(words) == 2
    assert "it holds a finished run of fit" in capsys.readouterr().err
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in before} == before


@pytest.mark.parametrize("lost", [PRODUCTS, {"map.csv"}])
def test_fit_killed_before_its_verdict_resumes_to_the_same_bytes(
    lost: set[str], copied: tuple[Path, list[str]], fitted: tuple[Path, str], no_report: None
) -> None:
    """Training was finished, but the results were not yet written, or only in part, or not yet to the summary."""
    out, words = copied
    for name in lost:
        (out / name).unlink()
    summary = summary_of(out)
    (out / "summary.json").write_text(json.dumps({name: summary[name] for name in ("experiment", "step", "rows")}))
    assert cli.main([*words, "--resume"]) == 0
    assert same_files(out, fitted[0], *PRODUCTS, "summary.json")


def test_a_report_of_a_fit_without_a_verdict_says_so(copied: tuple[Path, list[str]], refuse: Refuse) -> None:
    (copied[0] / "fit.json").unlink()
    assert refuse("report", "first").startswith("first must hold a finished fit")


def test_force_fits_again(copied: tuple[Path, list[str]], no_report: None) -> None:
    out, words = copied
    before = (out / "map.csv").read_bytes()
    assert cli.main([*words, "--force", "--steps", "5", "--data-seed", "1"]) == 0
    assert Run(out).config["fields"]["steps"] == 5 and (out / "map.csv").read_bytes() != before
    assert json.loads((out / "fit.json").read_text())["heldout_mse"] == summary_of(out)["heldout_mse"]


def test_ctrl_c_saves_and_the_printed_command_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_report: None, capsys: pytest.CaptureFixture[str]
) -> None:
    files(tmp_path)
    words = ["fit", "t.csv", *TINY, "--steps", "60", "--evaluations", "6"]
    assert cli.main([*words, "--out", "whole"]) == 0
    original, main_thread = local.execute, threading.main_thread().ident
    assert main_thread is not None

    def execute(*arguments: Any, notify: Callable[[Any], None], **named: Any) -> Run:
        interrupted = False

        def interrupt(event: Any) -> None:
            nonlocal interrupted
            notify(event)
            if event.progress.step and not interrupted:
                interrupted = True
                signal.pthread_kill(main_thread, signal.SIGINT)  # a terminal interrupts the main thread, too
                time.sleep(0.3)

        return original(*arguments, notify=interrupt, **named)

    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(local, "execute", execute)
        assert cli.main([*words, "--out", "broken", "--force"]) == 130
    message, command = capsys.readouterr().err.splitlines()
    assert message == "Stopped and saved. Continue with:" and not Run("broken").finished
    assert not list(tmp_path.glob(".placecode-*"))
    again = shlex.split(command)
    assert again == ["placecode", *words, "--out", "broken", "--resume"]
    assert cli.main(again[1:]) == 0
    assert same_files(Path("broken"), Path("whole"), *PRODUCTS, "summary.json", "weights.safetensors")


def test_a_table_larger_than_memory_goes_through_the_disk_or_is_refused(
    refuse: Refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_report: None
) -> None:
    """Values may use a quarter of the memory. A text file is converted on the disk; a .npz file cannot be."""
    values = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)
    pd.DataFrame(values, columns=list("abcdef")).to_csv("t.csv", index=False)
    np.savez("t.npz", series=values)
    assert cli.main(["fit", "t.csv", *SHORT, "--out", "roomy"]) == 0
    monkeypatch.setattr(table_files, "available_memory", lambda: 4 * 1_000)
    assert cli.main(["fit", "t.csv", *SHORT, "--out", "tight"]) == 0
    assert Path("roomy/map.csv").read_bytes() == Path("tight/map.csv").read_bytes()
    assert not list(tmp_path.glob(".placecode-*"))
    assert "t.npz" in refuse("fit", "t.npz", *TINY)


def test_a_folder_must_be_writable(refuse: Refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files(tmp_path)
    denied = OSError(errno.EACCES, os.strerror(errno.EACCES), "a/.placecode-1")
    monkeypatch.setattr(tempfile, "mkdtemp", Mock(side_effect=denied))
    assert refuse("fit", "t.csv", *TINY, "--out", "a/b").startswith("the output folder a/b must be writable")


def test_another_table_or_other_labels_are_not_resumed(refuse: Refuse, copied: tuple[Path, list[str]]) -> None:
    shutil.copy("labels.csv", "others.csv")
    changed = "--resume must use the settings of the run; changed: "
    assert refuse(*copied[1], "--labels", "others.csv", "--resume").startswith(f"{changed}labels was ")
    table = pd.read_csv("t.csv")
    table.iloc[3, 2] += 1
    table.to_csv("t.csv", index=False)
    assert refuse(*copied[1], "--resume").startswith(changed)
