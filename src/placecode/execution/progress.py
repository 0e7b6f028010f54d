"""Report the progress of a run to a callback (such as a progress bar) and to the file log.txt."""

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
    """Raised when the user has stopped a run. Its state is saved, and it can be resumed."""


class WorkerFailed(Exception):
    """Raised when a worker process ended unexpectedly. The others have saved their state: the run can be resumed."""


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
    """Number of training steps of every member."""

    def stopped(self) -> str:
        """Return a text that says how many members have stopped early, or an empty text if none has."""
        count = self.progress.stopped
        return f"{count} of {self.members} stopped" if count else ""

    def means(self) -> str:
        """Return a text with the mean of the first metric over members for each split.

        An example is "accuracy train 0.98, test 0.85". The text is empty if there was no evaluation at this step. If
        the task has no metrics over all examples (condition "all"), there is one mean for each split and condition
        (subset of examples).
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
"""Function that is called whenever a stack makes progress."""
Stop = Callable[[], bool]
"""Function that is called regularly during training and returns whether to stop."""


class Log:
    """A function that appends a line with a timestamp to the file log.txt of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, line: str) -> None:
        # a full disk is reported when results are written, not here
        with contextlib.suppress(OSError), open(self.path, "a") as stream:
            stream.write(f"{datetime.now():%Y-%m-%d %H:%M:%S} {line}\n")


class Reporter:
    """A function that reports the progress of a stack to the callback `notify`, and evaluations also to the log.

    `sizes` has the number of members of each stack, and `steps` is the number of training steps. Several threads may
    call it at the same time.
    """

    def __init__(self, sizes: list[int], steps: int, notify: Notify, log: Log) -> None:
        self.sizes, self.steps, self.notify, self.log = sizes, steps, notify, log
        self.lock = threading.Lock()

    def __call__(self, stack: int, progress: Progress) -> None:
        event = Event(stack, len(self.sizes), self.sizes[stack], progress, self.steps)
        with self.lock:
            if progress.rows:
                position = f"stack {stack + 1}/{event.stacks}, step {progress.step}/{self.steps}"
                loss = "" if math.isnan(progress.loss) else f"loss {progress.loss:.4f}"
                self.log(f"{position}: {'; '.join(filter(None, (loss, event.stopped(), event.means())))}")
            self.notify(event)
