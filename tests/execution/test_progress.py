"""What is told of an evaluation: one metric, by split, and by condition where those are never to be mixed."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

from placecode.execution.progress import Event, Log, Reporter
from placecode.training.trainer import Progress

SPLITS, CONDITIONS = ("train", "test"), ("hidden 0.5", "hidden 0.9")


def event(*rows: dict[str, Any]) -> Event:
    return Event(0, 1, 2, Progress(10, 0.5, rows), 100)


def row(member: int, split: str, condition: str, value: float, metric: str = "mse") -> dict[str, Any]:
    return {"member": member, "step": 10, "split": split, "condition": condition, "metric": metric, "value": value}


def evaluation(lost: tuple[int, ...] = (), members: int = 2) -> list[dict[str, Any]]:
    """Member 0 has 0.1 to 0.4 in the four places, member 1 the same and 0.2 more."""
    places = list(itertools.product(SPLITS, CONDITIONS))
    return [
        row(member, *place, math.nan if member in lost else 0.1 * (i + 1) + 0.2 * member)
        for member in range(members)
        for i, place in enumerate(places)
    ]


def test_means_over_members_stand_by_split_and_condition() -> None:
    assert event(*evaluation()).means() == (
        "mse train (hidden 0.5) 0.20, train (hidden 0.9) 0.30, test (hidden 0.5) 0.40, test (hidden 0.9) 0.50"
    )


def test_the_first_metric_alone_is_told() -> None:
    others = [row(member, "test", "hidden 0.5", 9.0, "loss") for member in (0, 1)]
    assert event(*evaluation(), *others).means() == event(*evaluation()).means()


def test_where_conditions_are_pooled_the_whole_is_told() -> None:
    rows = [row(member, split, "all", 0.5 + 0.1 * member) for member in (0, 1) for split in SPLITS]
    assert event(*rows, *evaluation()).means() == "mse train 0.55, test 0.55"


def test_without_an_evaluation_nothing_is_told() -> None:
    assert event().means() == ""


def test_a_member_that_diverged_does_not_hide_the_others() -> None:
    assert event(*evaluation(lost=(1,))).means() == (
        "mse train (hidden 0.5) 0.10, train (hidden 0.9) 0.20, test (hidden 0.5) 0.30, test (hidden 0.9) 0.40"
    )


def test_the_diary_has_a_line_for_every_evaluation_and_the_listener_every_event(tmp_path: Path) -> None:
    heard: list[Event] = []
    report = Reporter([2, 1], 100, heard.append, Log(tmp_path / "log.txt"))
    report(0, Progress(0, math.nan, tuple(evaluation())))
    report(0, Progress(10, 0.5, ()))
    report(1, Progress(100, 0.25, (row(0, "test", "hidden 0.5", 0.75),)))
    lines = [line[20:] for line in (tmp_path / "log.txt").read_text().splitlines()]  # after the time
    assert lines == [
        f"stack 1/2, step 0/100: {event(*evaluation()).means()}",
        "stack 2/2, step 100/100: loss 0.2500; mse test (hidden 0.5) 0.75",
    ]
    assert [(each.stack, each.stacks, each.members, each.progress.step) for each in heard] == [
        *((0, 2, 2, 0), (0, 2, 2, 10), (1, 2, 1, 100)),
    ]
