"""Progress of a run, for the display and for the file log.txt."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from placecode.training.trainer import Progress


class Interrupted(Exception):
    """The run was stopped by the user. Its state is saved and it can be resumed."""


class WorkerFailed(Exception):
    """A worker process ended unexpectedly. The state of the others is saved and the run can be resumed."""


@dataclass(frozen=True)
class Event:
    """Progress of one stack."""

    stack: int
    """Index of the stack, from 0."""
    stacks: int
    """Number of stacks of the run."""
    members: int
    """Number of members of the stack."""
    progress: Progress
    steps: int
    """Total number of training steps."""

    def stopped(self) -> str:
        """Describe how many members have stopped early; empty if none has."""
        count = self.progress.stopped
        return f"{count} of {self.members} stopped; " if count else ""

    def means(self) -> str:
        """Describe the mean over members of the first metric for each split, e.g. "accuracy train 0.98, test 0.85".

        Empty if the event has no evaluation. If the task has no condition "all", the means are given by condition.
        """
        rows = self.progress.rows
        pooled = any(row["condition"] == "all" for row in rows)
        values: dict[str, list[float]] = {}
        for row in rows:
            if row["metric"] == rows[0]["metric"] and (not pooled or row["condition"] == "all"):
                label = row["split"] if pooled else f"{row['split']} ({row['condition']})"
                finite = values.setdefault(label, [])
                finite += [] if math.isnan(row["value"]) else [row["value"]]  # NaN: the member diverged
        means = [
            f"{label} {sum(finite) / len(finite):.2f}" if finite else f"{label} -" for label, finite in values.items()
        ]
        return f"{rows[0]['metric']} {', '.join(means)}" if means else ""


Notify = Callable[[Event], None]
Stop = Callable[[], bool]


class Log:
    """Append lines with a timestamp to the file log.txt of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, line: str) -> None:
        # a full disk is reported when results are written, not here
        with contextlib.suppress(OSError), open(self.path, "a") as stream:
            stream.write(f"{datetime.now():%Y-%m-%d %H:%M:%S} {line}\n")


class Reporter:
    """Report the progress of stacks of these sizes to the log and to a callback. Safe to call from several threads."""

    def __init__(self, sizes: list[int], steps: int, notify: Notify, log: Log) -> None:
        self.sizes, self.steps, self.notify, self.log = sizes, steps, notify, log
        self.lock = threading.Lock()

    def __call__(self, stack: int, progress: Progress) -> None:
        event = Event(stack, len(self.sizes), self.sizes[stack], progress, self.steps)
        with self.lock:
            if progress.rows:
                place = f"stack {stack + 1}/{event.stacks}, step {progress.step}/{self.steps}"
                loss = f"loss {progress.loss:.4f}; " if progress.step else ""
                self.log(f"{place}: {loss}{event.stopped()}{event.means()}")
            self.notify(event)
