"""The command line: what each command prints and writes, and how its arguments are read."""

import html
import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.folders import same_files
from helpers.small_runs import TINY_RUN as RUN
from helpers.training.tiny_runs import RESULTS

from placecode import cli, experiments
from placecode.cli import flags, reporting
from placecode.execution import local
from placecode.execution.progress import WorkerFailed
from placecode.execution.settings import DEFAULT_STACK_SIZE, ExecutionSettings
from placecode.runs import read as runs
from placecode.runs.read import Run


def cells(printed: str) -> list[list[str]]:
    """Return the cells of a printed table, row by row."""
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in printed.splitlines() if line[:1] == "│"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> tuple[Path, str]:
    """A run made by the command line, with its report, and what it printed. No test changes it."""
    folder = tmp_path_factory.mktemp("runs")
    command = [sys.executable, "-m", "placecode.cli", *RUN, "--out", "first"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return folder / "first", done.stdout


def test_run_prints_the_accuracies_and_the_path_of_the_report(ran: tuple[Path, str]) -> None:
    run, printed = Run(ran[0]), ran[1]
    assert "Accuracy, mean ± 95% interval over seeds (lst-sigma, quick)" in printed
    for sigma, members in (("0.1", [0, 1]), ("2", [2, 3])):
        (row,) = (row for row in cells(printed) if row[:2] == ["learned", sigma])
        final = run.metrics.query("step == 8 and condition == 'all' and metric == 'accuracy'")
        final = final[final["member"].isin(members)].groupby("split")["value"].mean()
        accuracies = [f"{final[split]:.2f}" for split in ("train", "test", "ood")]
        assert [cell.split(" ±")[0] for cell in row[2:5]] == accuracies and row[5:] == ["2", "0"]
    assert printed.splitlines()[-1] == "Report: first/report.html"
    assert "\x1b" not in printed and "nan" not in printed  # no colours where there is no terminal


def test_run_leaves_the_summary_the_report_and_the_figures(ran: tuple[Path, str]) -> None:
    of_others = {"baselines.parquet", "fit.json", "fit.safetensors", "map.csv"}
    assert {path.name for path in ran[0].iterdir()} == {*runs.FILES, "figures"} - of_others
    assert json.loads((ran[0] / "summary.json").read_text())["experiment"] == "lst-sigma"
    figures = "accuracy curves similarity token-maps geometry attention noise classes errors"
    assert {path.stem for path in (ran[0] / "figures").iterdir()} == set(figures.split())
    page = (ran[0] / "report.html").read_text()
    claims = {claim.id: html.escape(claim.statement) in page for claim in experiments.lookup("lst-sigma").claims}
    assert claims["all-fit-training"] and not claims["small-sigma-generalizes"]  # there is no sigma of 0.2
    assert "<svg" in page and "placecode run lst-sigma --scale quick" in page


def test_the_experiment_may_come_after_options_and_names_the_default_folder(no_report: None) -> None:
    assert cli.main(["run", "--memory", "0.5", "--workers", "1", *RUN[1:], "--members", "0:1"]) == 0
    assert Run("runs/lst-sigma-quick").finished
    assert cli.main(["run", "--out", "lst-sigma", *RUN[1:], "--members", "0:1"]) == 0
    assert Run("lst-sigma").experiment == "lst-sigma"


def test_diverged_members_are_reported(no_report: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*RUN, "--optimizer", "sgd", "--learning-rate", "1e30", "--out", "a"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"│ +learned │ +0\.1 │ +- │ +- │ +- │ +0 │ +2 │", printed)
    assert "4 of 4 members diverged" in printed
    assert cli.main(["runs", "."]) == 0
    assert "done, 4 diverged" in capsys.readouterr().out


def test_references_have_a_row(no_report: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*RUN, "--references", "0.0,0.1", "--out", "a"]) == 0
    settings = [row[:3] for row in cells(capsys.readouterr().out)]
    assert settings[:2] == [["learned", "0.1", "0"], ["learned", "2", "0"]]
    assert settings[2:] == [["sinusoid", "-", "0"], ["sinusoid", "-", "0.1"]]
    assert cli.main([*RUN, "--references", "0.0", "--members", "4:6", "--out", "b"]) == 0  # only the references
    assert "only references" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["--seeds", "3"], "seeds", (0, 1, 2)),
        (["--seeds", "5,7"], "seeds", (5, 7)),
        (["--seeds", "4,"], "seeds", (4,)),
        (["--seeds", "5", "7"], "seeds", (5, 7)),
        (["--sigmas", "0.1,", "0.2"], "sigmas", (0.1, 0.2)),
        (["--sigmas", "3"], "sigmas", (3.0,)),
        (["--epochs", "7"], "epochs", 7),
        (["--clip", "1e-1"], "clip", 0.1),
        (["--puzzles", "some/where"], "puzzles", "some/where"),
        (["--references", ""], "references", ()),
        (["--dropout-at-evaluation"], "dropout_at_evaluation", True),
        (["--no-dropout-at-evaluation"], "dropout_at_evaluation", False),
    ],
)
def test_settings_are_read(words: list[str], field: str, value: object) -> None:
    command = ["run", "lst-sigma", *words]
    arguments = cli._parser(command).parse_args(command)
    assert flags.settings(arguments, experiments.lookup("lst-sigma")) == {field: value}


@pytest.mark.parametrize(
    "words",
    [
        "--seeds 4, --sigmas 0.1 --references 0.1 --stack 3",
        "--scale paper --precision highest --references 0.0,0.1 --noise= --members 1:3 --dropout 0.1"
        " --dropout-at-evaluation --clip 0.5 --pe-learning-rate 1e-05",
    ],
)
def test_command_in_the_report_repeats_the_run(tmp_path: Path, no_report: None, words: str) -> None:
    assert cli.main([*RUN, *words.split(), "--out", "a"]) == 0
    first = Run("a")
    command = shlex.split(reporting.command_of(first, experiments.experiment_of(first)))
    assert command[0] == "placecode"
    assert cli.main([*command[1:], "--out", "b"]) == 0
    assert Run("b").config == first.config
    assert same_files(Path("a"), Path("b"), *RESULTS)


def test_command_in_the_report_omits_defaults_of_the_scale(ran: tuple[Path, str]) -> None:
    run = Run(ran[0])
    usual = experiments.lookup("lst-sigma").from_scale("quick")
    run.config |= {"fields": usual.fields(), "stack": DEFAULT_STACK_SIZE["cpu"], "members": "0:18", "total": 18}
    assert reporting.command_of(run, usual) == "placecode run lst-sigma --scale quick --device cpu --precision high"


LONGER = [*RUN, "--epochs", "30", "--evaluations", "15"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A longer run that was not interrupted."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "publish", lambda page: page.run.path / "report.html")
        assert cli.main([*LONGER, "--out", str(folder)]) == 0
    return folder


def test_ctrl_c_saves_and_the_printed_command_continues(
    tmp_path: Path, uninterrupted: Path, no_report: None, environment: dict[str, str]
) -> None:
    """After Ctrl-C in the middle of a run, the printed command completes it to the bytes of an uninterrupted run."""
    words = [*LONGER, "--out", "broken", "--force"]
    command, pipe = [sys.executable, "-m", "placecode.cli", *words], subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)
    assert process.stdout is not None
    for line in process.stdout:
        if re.match(r"stack 1/2  step \d\d", line):
            process.send_signal(signal.SIGINT)
            break
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    message, command = err.splitlines()
    assert message == "Stopped and saved. Continue with:" and not Run("broken").finished
    again = shlex.split(command)
    assert again == ["placecode", *(word for word in words if word != "--force"), "--resume"]
    assert cli.main(again[1:]) == 0
    assert same_files(Path("broken"), uninterrupted, *RESULTS)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_for_a_stop(number: signal.Signals) -> None:
    with cli.stop_on_signals() as stopped:
        assert not stopped()
        signal.raise_signal(number)
        assert stopped()


def test_second_ctrl_c_stops_immediately(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def execute(*arguments: object, **named: object) -> None:
        signal.raise_signal(signal.SIGINT)  # stop and save
        signal.raise_signal(signal.SIGINT)  # stop at once

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(local, "execute", execute)
    assert cli.main([*RUN, "--out", "a"]) == 130
    assert capsys.readouterr().err == "Stopped immediately. --resume continues from the last checkpoint.\n"
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_dead_worker_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def execute(*arguments: object, execution: ExecutionSettings, **named: object) -> None:
        assert (execution.workers, execution.memory) == (3, 0.5)
        raise WorkerFailed("worker 1 of 3 has failed [x].")

    monkeypatch.setattr(local, "execute", execute)
    assert cli.main([*RUN, "--workers", "3", "--memory", "0.5", "--out", "a"]) == 1
    assert capsys.readouterr().err == "placecode: worker 1 of 3 has failed [x].\n"


def test_experiments_lists_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["experiments"]) == 0
    printed = capsys.readouterr().out
    rows = cells(printed)
    abouts = {name: experiment.about for name, experiment in experiments.EXPERIMENTS.items()}
    assert [(row[0], row[1]) for row in rows] == list(abouts.items())
    assert rows[0][0] == "lst-sigma" and rows[0][2:] == ["18", "330"]  # members at quick and at paper scale
    assert "placecode run EXPERIMENT [--scale quick|paper]" in printed
    assert cli.main(["studies"]) == 0 and capsys.readouterr().out == printed  # the former name of the command


def test_dry_run_says_what_it_would_take_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*RUN, "--out", "a", "--dry-run"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == "lst-sigma: 4 members in 2 stacks, 8 steps each, on cpu, precision high."
    assert re.fullmatch(r"Estimated time for training: \d+ seconds; memory: \d+\.\d GiB\.", second)
    assert list(tmp_path.iterdir()) == []
    assert cli.main([*RUN, "--members", "0:1", "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("lst-sigma: 1 member in 1 stack, 8 steps each")


def test_runs_lists_finished_and_unfinished_ones_side_by_side(
    ran: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs" / "deep [bold]").mkdir(parents=True)
    (tmp_path / "runs" / "done").symlink_to(ran[0])
    config = json.loads((ran[0] / "config.json").read_text())
    (tmp_path / "runs" / "deep [bold]" / "config.json").write_text(json.dumps({**config, "members": "0:2"}))
    damaged = tmp_path / "runs" / "damaged"
    damaged.mkdir()
    (damaged / "config.json").write_text(json.dumps(config))
    (damaged / "summary.json").write_text("{}")
    assert cli.main(["runs", str(ran[0].parent)]) == 0
    assert cli.main(["runs"]) == 0
    printed = capsys.readouterr().out
    numbers = [row["mean"] for row in Run(ran[0]).summary if row["split"] == "ood"][:1]
    (line,) = (line for line in printed.splitlines() if str(ran[0]) in line)
    for cell in ("│ lst-sigma  │", "│ quick │", "│ 0:4 of 4 │", "│ done ", "│ cpu ", f"│ 0.1: {numbers[0]:.2f}  2: "):
        assert cell in line
    (line,) = (line for line in printed.splitlines() if "runs/deep [bold] " in line)
    assert "│ 0:2 of 4 │ unfinished │" in line
    assert re.search(r"runs/damaged +│ lst-sigma  │ quick │ 0:4 of 4 │ damaged ", printed)


def test_merge_joins_pieces_and_counts_members(
    ran: tuple[Path, str], tmp_path: Path, no_report: None, capsys: pytest.CaptureFixture[str]
) -> None:
    for cut in ("0:2", "3:4"):
        assert cli.main([*RUN, "--members", cut, "--out", cut[0]]) == 0
    capsys.readouterr()
    assert cli.main(["merge", "0", "3", "--out", "some"]) == 0
    assert capsys.readouterr().out.startswith("3 of 4 members of lst-sigma are in some.\n")
    some = Run("some")
    words = shlex.split(reporting.command_of(some, experiments.experiment_of(some)))  # its members have a gap
    assert cli.main([*words[1:], "--out", "again"]) == 0
    assert Run("again").config == some.config and Run("again").members.equals(some.members)
    assert cli.main([*RUN, "--members", "2:4", "--out", "23"]) == 0
    capsys.readouterr()
    assert cli.main(["merge", "23", "0", "--out", "all"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "4 of 4 members of lst-sigma are in all."
    assert same_files(Path("all"), ran[0], *RESULTS)
