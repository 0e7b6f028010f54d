"""Summaries of evaluations in progress reports and in the log."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from placecode.execution.progress import Event, Log, Reporter
from placecode.training.trainer import Progress

Row = dict[str, Any]


def row(member: int, split: str, condition: str, value: float, metric: str = "mse") -> Row:
    return {"member": member, "step": 10, "split": split, "condition": condition, "metric": metric, "value": value}


def means(rows: list[Row]) -> str:
    return Event(0, 1, 2, Progress(10, 0.5, tuple(rows)), 100).means()


ROWS = [row(m, split, "hidden 0.5", x + 0.2 * m) for m in (0, 1) for split, x in (("train", 0.1), ("test", 0.3))]
POOLED = [row(m, split, "all", 0.5 + 0.1 * m) for m in (0, 1) for split in ("train", "test")]


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([], ""),
        (ROWS, "mse train (hidden 0.5) 0.20, test (hidden 0.5) 0.40"),
        ([*ROWS[:1], row(0, "train", "hidden 0.9", 0.9)], "mse train (hidden 0.5) 0.10, train (hidden 0.9) 0.90"),
        ([*ROWS, row(0, "test", "hidden 0.5", 9.0, "loss")], "mse train (hidden 0.5) 0.20, test (hidden 0.5) 0.40"),
        ([*POOLED, *ROWS], "mse train 0.55, test 0.55"),
        ([row(0, "test", "all", 0.25), row(1, "test", "all", math.nan)], "mse test 0.25"),  # NaN: it diverged
        ([row(0, "test", "all", math.nan)], "mse test -"),
    ],
)
def test_means_over_members(rows: list[Row], text: str) -> None:
    """Of the first metric, by split, and by condition if conditions are not pooled."""
    assert means(rows) == text


def test_the_log_has_a_line_for_every_evaluation_and_the_callback_gets_every_event(tmp_path: Path) -> None:
    events: list[Event] = []
    report = Reporter([2, 1], 100, events.append, Log(tmp_path / "log.txt"))
    report(0, Progress(0, math.nan, tuple(ROWS)))
    report(0, Progress(10, 0.5, ()))
    report(1, Progress(100, 0.25, (row(0, "test", "hidden 0.5", 0.75),)))
    lines = [line[20:] for line in (tmp_path / "log.txt").read_text().splitlines()]  # after the time
    assert lines == [
        f"stack 1/2, step 0/100: {means(ROWS)}",
        "stack 2/2, step 100/100: loss 0.2500; mse test (hidden 0.5) 0.75",
    ]
    summary = [(event.stack, event.stacks, event.members, event.progress.step) for event in events]
    assert summary == [(0, 2, 2, 0), (0, 2, 2, 10), (1, 2, 1, 100)]
