"""Progress of a run, tables of results, and help texts."""

import io
import math
import statistics
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.made_up_masked import STRANGE, made_up
from rich.console import Console
from rich.table import Table
from scipy import stats

from placecode import cli, experiments
from placecode.analysis.stats import Interval
from placecode.cli import display
from placecode.cli.doctor import Check
from placecode.execution.progress import Event
from placecode.execution.settings import DEFAULT_STACK_SIZE
from placecode.experiments.channels.network import NetworkSigma
from placecode.experiments.claims import OURS, PAPER, Claim, compare, judge
from placecode.models.member import Member
from placecode.runs.summary import summarize
from placecode.settings import declarations, settings_of
from placecode.training.trainer import Progress
from placecode.version import VERSION


def event(step: int, loss: float = 1.0, stack: int = 0, accuracy: float | None = None) -> Event:
    row = {"member": 0, "step": step, "split": "train", "condition": "all", "metric": "accuracy", "value": accuracy}
    others = [{**row, "condition": "Binary", "value": 9.0}, {**row, "metric": "loss", "value": 9.0}]
    rows = () if accuracy is None else (row, {**row, "member": 1, "value": accuracy + 0.1}, *others)
    return Event(stack, 2, 2, Progress(step, loss, rows), 100)


Printed = Callable[[Table], list[list[str]]]


class Clock:
    """A clock that replaces time.monotonic; its time is set by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(display.time, "monotonic", lambda: self.now)


def shown(events: list[tuple[float, Event]], clock: Clock) -> list[str]:
    """Return the lines that are printed to a file for events at these times, in seconds."""
    stream = io.StringIO()
    with display.progress(Console(file=stream, width=30)) as notify:
        for seconds, item in events:
            clock.now = 1000.0 + seconds
            notify(item)
    return stream.getvalue().splitlines()


def test_lines_at_evaluations_and_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [
        (0, event(0, math.nan, accuracy=0.2)),
        (2, event(10)),  # too soon after the line before
        (5, event(50, accuracy=0.6)),
        (16, event(80)),
        (20, event(100, accuracy=0.9)),
        (30, event(50, 0.5, stack=1, accuracy=0.3)),
    ]
    assert shown(events, Clock(monkeypatch)) == [
        "stack 1/2  step 0/100  accuracy train 0.25",
        "stack 1/2  step 50/100  loss 1.000  accuracy train 0.65  15 seconds left",
        "stack 1/2  step 80/100  loss 1.000  24 seconds left",
        "stack 1/2  step 100/100  loss 1.000  accuracy train 0.95  20 seconds left",
        "stack 2/2  step 50/100  loss 0.500  accuracy train 0.35  10 seconds left",
    ]


def test_steps_of_an_earlier_process_do_not_count_as_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a resumed run, the first stack is finished; the second continues at step 50 with 1 step per second."""
    events = [(0, event(100, math.nan)), (0, event(50, math.nan, stack=1)), (10, event(60, stack=1, accuracy=0.5))]
    assert shown(events, Clock(monkeypatch))[-1].endswith("  40 seconds left")


def test_a_bar_on_a_terminal() -> None:
    stream = io.StringIO()
    with display.progress(Console(file=stream, force_terminal=True, width=140)) as notify:
        notify(event(0, math.nan, accuracy=0.2))
        notify(event(30, stack=1, accuracy=0.6))  # in parallel with the first stack
        notify(event(100))
        notify(event(60, stack=1))
    printed = stream.getvalue()
    assert "2 members, stack 2 of 2" in printed and "160/200" in printed and "nan" not in printed
    assert "loss 1.000  accuracy train 0.65" in printed  # the accuracy stays until the next evaluation


def fake(**groups: tuple[dict[str, Any], list[float | None]]) -> SimpleNamespace:
    """Return a run with the summary of settings, each given by its fields and OOD accuracies (None: diverged)."""
    rows = []
    for fields, values in groups.values():
        alive = [value for value in values if value is not None]
        mean = statistics.mean(alive) if alive else None
        numbers = {"mean": mean, "std": statistics.stdev(alive) if len(alive) > 1 else None, "n": len(alive)}
        numbers["diverged"] = len(values) - len(alive)
        row = {**fields, "split": "ood", "condition": "all", "metric": "accuracy", **numbers}
        rows += [row, {**row, "condition": "Binary", "mean": 0.111}, {**row, "metric": "loss", "mean": 0.222}]
        rows += [{**row, "split": "train", "mean": mean and 1.0, "std": 0.0}]
        rows += [{**row, "split": "analysis", "metric": "norm", "mean": 0.333}]
    return SimpleNamespace(summary=rows, experiment="s", config={"scale": "quick"})


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([0.5], "0.50"),
        ([0.5, 0.5], "0.50 ± 0.00"),
        ([0.90, 0.92, 0.97], "0.93 ± 0.09"),
        ([0.0, 1.0], "0.50 ± 6.35"),
        ([0.5, None], "0.50"),
        ([None], "-"),
    ],
)
def test_accuracies_have_half_of_students_interval(values: list[float | None], text: str, printed: Printed) -> None:
    head, row = printed(display.results_table(fake(a=({"encoding": "learned", "sigma": 0.2}, values))))
    cells = dict(zip(head, row, strict=True))
    assert cells["ood"] == text
    assert (cells["seeds"], cells["diverged"]) == (str(len(values) - values.count(None)), str(values.count(None)))


def test_every_setting_has_a_row_and_fields_that_differ_a_column(printed: Printed) -> None:
    """A field that an encoding does not have is a dash; a field that none has is no column."""
    usual = {"dropout_at_evaluation": False, "axes": None, "pe_learning_rate": None}
    run = fake(
        a=({"encoding": "learned", "sigma": 0.2, **usual}, [0.9, 0.9]),
        b=({"encoding": "sinusoid", "sigma": None, **usual, "dropout_at_evaluation": True, "axes": 2}, [0.8, None]),
    )
    head, *rows = printed(display.results_table(run))
    assert head == ["encoding", "sigma", "dropout at evaluation", "axes", "train", "ood", "seeds", "diverged"]
    assert rows == [
        ["learned", "0.2", "False", "-", "1.00 ± 0.00", "0.90 ± 0.00", "2", "0"],
        ["sinusoid", "-", "True", "2", "1.00", "0.80", "1", "1"],
    ]


def test_claims_have_verdicts_interval_and_margin(printed: Printed) -> None:
    def finding(interval: Interval, margin: float, way: str, note: str = "", **more: Any) -> display.Finding:
        settings = {"label": PAPER, **more, "margin": margin, "measure": lambda run: interval, "way": way}
        claim = Claim("an-id", "More [bold] than less.", **settings)
        number = compare(interval, claim.published)
        return display.Finding(claim, judge(interval, margin, way), number, interval, "run", note)

    large, small, words = Interval(0.6, 0.5, 0.7), Interval(0.01, -0.03, 0.05), "More [bold] than less."
    findings = [
        finding(large, 0.3, "above", published=0.58),
        finding(large, 0.25, "below", published=0.4),
        finding(small, 0.04, "within", remark="asked [later]"),
        finding(small, 0.06, "within", label=OURS),
        finding(Interval(math.nan, math.nan, math.nan), -0.05, "above", "the run has no [such] members"),
    ]
    assert printed(display.claims_table(findings))[1:] == [
        ["an-id", "paper", "reproduced", "match (0.58)", "+0.600", "+0.500 to +0.700", "> 0.3", words],
        ["an-id", "paper", "not reproduced", "no match (0.4)", "+0.600", "+0.500 to +0.700", "< 0.25", words],
        ["an-id", "paper", "undecided", "-", "+0.010", "-0.030 to +0.050", "± 0.04", f"{words} (asked [later])"],
        ["an-id", "our question", "yes", "-", "+0.010", "-0.030 to +0.050", "± 0.06", words],
        ["an-id", "paper", "undecided", "-", "-", "-", "> -0.05", f"{words} (the run has no [such] members)"],
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 seconds"), (99, "99 seconds"), (100, "2 minutes"), (5999, "100 minutes"), (6000, "1.7 hours")],
)
def test_duration_in_words(seconds: float, text: str) -> None:
    assert display.duration(seconds) == text


def test_install_lines_keep_their_brackets(printed: Printed) -> None:
    """[brain] is an extra to install and must not be read as a style by rich."""
    advice = "missing nilearn; pip install 'placecode[brain]'"
    checks = [Check("extra brain", advice, False), Check("Python", "3")]
    assert printed(display.doctor_table(checks))[1:] == [["--", "extra brain", advice], ["ok", "Python", "3"]]


COMMANDS = ["", "experiments", "run", "run lst-sigma", "fit", "recommend", "merge", "slim", "report", "claims", "runs"]


@pytest.mark.parametrize("command", [*COMMANDS, "bench", "doctor"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main([*command.split(), "--help"])
    printed = capsys.readouterr().out
    assert done.value.code == 0 and printed.startswith("usage: placecode") and "==SUPPRESS==" not in printed


def test_the_help_of_an_experiment_explains_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["run", "lst-sigma", "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    experiment = experiments.lookup("lst-sigma")
    for name in settings_of(experiment):
        assert f"--{name.replace('_', '-')}" in printed
        assert declarations(experiment)[name].help in printed
    assert f"{DEFAULT_STACK_SIZE['cpu']} on cpu, {DEFAULT_STACK_SIZE['cuda']} on cuda" in printed


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"placecode {VERSION}\n"


CONDITIONS = ("hidden 0.5", "hidden 0.9")
PLACES = [f"test, {condition}" for condition in CONDITIONS]
NEAR = {("neighbor_agreement", "labels"): (lambda m: 0.2, lambda m: 0.6)}
BASELINES = {
    ("linear", "test", "hidden 0.5", "mse"): {0: 0.75, 1: 0.77},
    ("linear", "test", "hidden 0.9", "mse"): {0: 0.9, 1: 0.96},
    ("ridge", "test", "hidden 0.5", "mse"): {0: 0.7},
    ("fc", "analysis", "labels", "neighbor_agreement"): {0: 0.9, 1: 1.0},
}


def value(member: Member, condition: str) -> float:
    """Return an error that differs between all settings, and is higher by 1 at the larger mask ratio."""
    start = 0.5 if condition == "hidden 0.5" else 1.5
    return start + (member.sigma or 0) / 10 + 0.01 * member.seed**2 + member.mask_ratio / 1000 + len(member.data) / 100


def table_of(experiment: Any, metric: str = "mse", **changes: Any) -> Table:
    errors = {condition: lambda m, c=condition: value(m, c) for condition in CONDITIONS}
    run = made_up(experiment, **{"errors": errors, "analyses": NEAR, "baselines": BASELINES, **changes})
    run.summary = summarize(experiment.name, run.members, run.metrics, run.analysis, run.baselines)["rows"]
    return display.results_table(run, metric)


def mean_and_half(values: list[float]) -> str:
    """Format the mean and the half-width of its 95% interval, computed by scipy."""
    half = stats.sem(values) * stats.t.ppf(0.975, len(values) - 1)
    return f"{np.mean(values):.3f} ± {half:.3f}"


def test_held_out_errors_have_a_column_per_condition(printed: Printed) -> None:
    experiment = NetworkSigma.from_scale("paper", sigmas=(0.01, 2.0), seeds=(0, 1, 2))
    head, *rows = printed(table_of(experiment))
    assert head == ["encoding", "sigma", *PLACES, "seeds", "diverged"]
    for row, sigma in zip(rows[:2], (0.01, 2.0), strict=True):
        members = [member for member in experiment.members() if member.sigma == sigma]
        cells = [mean_and_half([value(member, condition) for member in members]) for condition in CONDITIONS]
        assert row == ["learned", f"{sigma:g}", *cells, "3", "0"]
    assert f"{STRANGE:.3f}" not in str(rows)  # errors on training data, and before training


def test_baselines_that_predict_have_rows_below(printed: Printed) -> None:
    assert printed(table_of(NetworkSigma.from_scale("paper", sigmas=(0.01,), seeds=(0, 1))))[2:] == [
        ["baseline:linear", "-", mean_and_half([0.75, 0.77]), mean_and_half([0.9, 0.96]), "2", "0"],
        ["baseline:ridge", "-", "0.700", "-", "1", "0"],  # fitted in one world, and not at the other mask ratio
    ]


def test_a_single_seed_has_a_bare_mean_and_lost_ones_a_dash(printed: Printed) -> None:
    experiment = NetworkSigma.from_scale("paper", sigmas=(0.01, 0.5, 2.0), seeds=(0, 1))
    gone = {(0.5, 1), (2.0, 0), (2.0, 1)}
    rows = printed(table_of(experiment, baselines={}, diverged=lambda m: (m.sigma, m.seed) in gone))[1:]
    assert [row[-2:] for row in rows] == [["2", "0"], ["1", "1"], ["0", "2"]]
    alone = next(member for member in experiment.members() if (member.sigma, member.seed) == (0.5, 0))
    assert rows[1][2:4] == [f"{value(alone, condition):.3f}" for condition in CONDITIONS]
    assert rows[2][2:4] == ["-", "-"]


def test_where_conditions_are_pooled_their_parts_have_no_columns(printed: Printed) -> None:
    """With a row of the condition "all", the columns are the splits, with two digits."""
    experiment = NetworkSigma.from_scale("paper", sigmas=(0.01,), seeds=(0, 1))
    run = made_up(experiment, {"all": lambda m: 0.5, "easy": lambda m: 0.1}, {})
    run.summary = summarize("s", run.members, run.metrics, run.analysis, None)["rows"]
    head, row = printed(display.results_table(run, "mse"))
    assert head == ["encoding", "sigma", "train", "test", "seeds", "diverged"]
    assert row == ["learned", "0.01", "0.12 ± 0.00", "0.50 ± 0.00", "2", "0"]
