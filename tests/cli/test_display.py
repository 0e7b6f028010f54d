"""What is shown while a run goes on, its tables, and help."""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from placecode import cli, experiments
from placecode.analysis.stats import Interval
from placecode.cli import display
from placecode.cli.doctor import Finding
from placecode.execution import local
from placecode.execution.local import Event
from placecode.experiments.claims import OURS, PAPER, Claim, compare, judge
from placecode.settings import help_of
from placecode.training.trainer import Progress
from placecode.version import VERSION


def event(step: int, loss: float = 1.0, stack: int = 0, accuracy: float | None = None) -> Event:
    row = {"member": 0, "step": step, "split": "train", "condition": "all", "metric": "accuracy", "value": accuracy}
    others = [{**row, "condition": "Binary", "value": 9.0}, {**row, "metric": "loss", "value": 9.0}]
    rows = () if accuracy is None else (row, {**row, "member": 1, "value": accuracy + 0.1}, *others)
    return Event(stack, 2, 2, Progress(step, loss, rows), 100)


Printed = Callable[[Table], list[list[str]]]


class Clock:
    """Seconds that pass when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(display.time, "monotonic", lambda: self.now)


def shown(events: list[tuple[float, Event]], clock: Clock) -> list[str]:
    """The lines that a console which is no terminal gets for events at these seconds."""
    stream = io.StringIO()
    with display.progress(Console(file=stream, width=30)) as notify:
        for seconds, each in events:
            clock.now = 1000.0 + seconds
            notify(each)
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
    """A resumed run: the first stack is there at once; the second went on at step 50 and makes 1 step a second."""
    events = [(0, event(100, math.nan)), (0, event(50, math.nan, stack=1)), (10, event(60, stack=1, accuracy=0.5))]
    assert shown(events, Clock(monkeypatch))[-1].endswith("  40 seconds left")


def test_a_bar_on_a_terminal() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=140)
    with display.progress(console) as notify:
        notify(event(0, math.nan, accuracy=0.2))
        notify(event(30, stack=1, accuracy=0.6))  # side by side
        notify(event(100))
        notify(event(60, stack=1))
    printed = stream.getvalue()
    assert "2 members, stack 2 of 2" in printed
    assert "160/200" in printed
    assert "loss 1.000  accuracy train 0.65" in printed  # the accuracy stays until the next evaluation
    assert "nan" not in printed


def fake(**groups: tuple[dict[str, Any], list[float | None]]) -> SimpleNamespace:
    """A run with the summary of these settings: their fields, and OOD accuracies, None for diverged."""
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
    return SimpleNamespace(summary=rows, study="s", config={"scale": "quick"})


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


def test_every_setting_has_a_row_with_what_sets_it_apart(printed: Printed) -> None:
    """A column for each field that members differ in; what an encoding has not is a dash; what none has, no column."""
    none = {"pe_learning_rate": None}
    run = fake(
        a=({"encoding": "learned", "sigma": 0.2, "dropout_at_evaluation": False, "axes": None, **none}, [0.9, 0.9]),
        b=({"encoding": "learned", "sigma": 2.0, "dropout_at_evaluation": False, "axes": None, **none}, [0.4, 0.4]),
        c=({"encoding": "sinusoid", "sigma": None, "dropout_at_evaluation": True, "axes": 2, **none}, [0.8, None]),
    )
    head, *rows = printed(display.results_table(run))
    assert head == ["encoding", "sigma", "dropout at evaluation", "axes", "train", "ood", "seeds", "diverged"]
    assert rows == [
        ["learned", "0.2", "False", "-", "1.00 ± 0.00", "0.90 ± 0.00", "2", "0"],
        ["learned", "2", "False", "-", "1.00 ± 0.00", "0.40 ± 0.00", "2", "0"],
        ["sinusoid", "-", "True", "2", "1.00", "0.80", "1", "1"],
    ]


def test_claims_have_verdicts_interval_and_margin(printed: Printed) -> None:
    def found(interval: Interval, margin: float, way: str, note: str = "", **more: Any) -> display.Finding:
        settings = {"label": PAPER, **more, "margin": margin, "measure": lambda run: interval, "way": way}
        claim = Claim("an-id", "More [bold] than less.", **settings)
        number = compare(interval, claim.published)
        return display.Finding(claim, judge(interval, margin, way), number, interval, "run", note)

    findings = [
        found(Interval(0.6, 0.5, 0.7), 0.3, "above", published=0.58),
        found(Interval(0.6, 0.5, 0.7), 0.25, "below", published=0.4),
        found(Interval(0.01, -0.03, 0.05), 0.04, "within", remark="asked [later]"),
        found(Interval(0.01, -0.03, 0.05), 0.06, "within", label=OURS),
        found(Interval(math.nan, math.nan, math.nan), -0.05, "above", "the run has no [such] members"),
    ]
    head, *rows = printed(display.claims_table(findings))
    words = "More [bold] than less."
    columns = ["claim", "label", "direction", "number (published)", "effect", "95% interval", "margin", "statement"]
    assert head == columns
    assert rows == [
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
    """To the printer, [brain] is a style; to pip, it is what to install."""
    advice = "missing nilearn; pip install 'placecode[brain]'"
    findings = [Finding("extra brain", advice, False), Finding("Python", "3")]
    assert printed(display.doctor_table(findings))[1:] == [["--", "extra brain", advice], ["ok", "Python", "3"]]


COMMANDS = ["", "studies", "run", "run lst-sigma", "fit", "recommend", "merge", "slim", "report", "claims", "runs"]


@pytest.mark.parametrize("command", [*COMMANDS, "bench", "doctor"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main([*command.split(), "--help"])
    printed = capsys.readouterr().out
    assert done.value.code == 0 and printed.startswith("usage: placecode") and "==SUPPRESS==" not in printed


def test_help_of_a_study_explains_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["run", "lst-sigma", "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    study = experiments.lookup("lst-sigma")
    for name in study.recorded():
        assert f"--{name.replace('_', '-')}" in printed
        assert help_of(study, name) in printed
    assert f"{local.DEFAULT_STACK_SIZE['cpu']} on cpu, {local.DEFAULT_STACK_SIZE['cuda']} on cuda" in printed


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"placecode {VERSION}\n"
