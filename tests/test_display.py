"""What is shown while a run goes on, and its tables."""

from __future__ import annotations

import doctest
import io
import math

import pytest
from rich.console import Console

from placecode import display
from placecode.doctor import Finding
from placecode.engines.local import Event
from placecode.training import Progress


def test_examples_in_the_module_hold() -> None:
    assert doctest.testmod(display).failed == 0
    assert doctest.testmod(display).attempted > 0


def event(step: int, loss: float = 1.0, stack: int = 0, accuracy: float | None = None) -> Event:
    row = {"member": 0, "step": step, "split": "train", "condition": "all", "metric": "accuracy", "value": accuracy}
    others = [{**row, "condition": "Binary", "value": 9.0}, {**row, "metric": "loss", "value": 9.0}]
    rows = () if accuracy is None else (row, {**row, "member": 1, "value": accuracy + 0.1}, *others)
    return Event(stack, 2, 2, Progress(step, loss, rows), 100)


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


def test_what_an_earlier_process_has_done_does_not_count_as_speed(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize(
    ("values", "text"),
    [([0.5], "0.50"), ([0.5, 0.5], "0.50 ± 0.00"), ([0.90, 0.92, 0.97], "0.93 ± 0.09"), ([0.0, 1.0], "0.50 ± 6.35")],
)
def test_spread_is_half_of_students_interval(values: list[float], text: str) -> None:
    assert display.spread(values) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 seconds"), (99, "99 seconds"), (100, "2 minutes"), (5999, "100 minutes"), (6000, "1.7 hours")],
)
def test_duration_in_words(seconds: float, text: str) -> None:
    assert display.duration(seconds) == text


def test_install_lines_keep_their_brackets() -> None:
    """To the printer, [brain] is a style; to pip, it is what to install."""
    stream = io.StringIO()
    findings = [
        Finding("extra brain", "missing nilearn; pip install 'placecode[brain]'", False),
        Finding("Python", "3"),
    ]
    Console(file=stream, width=100).print(display.doctor_table(findings))
    lines = stream.getvalue().splitlines()
    assert any("│ -- │ extra brain │ missing nilearn; pip install 'placecode[brain]' │" in line for line in lines)
    assert any("│ ok │ Python " in line for line in lines)
