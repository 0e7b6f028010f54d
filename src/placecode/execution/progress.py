"""What happens during a run, for the display and for the run's diary."""

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
    """The run was asked to stop; it is saved and can be resumed."""


class WorkerFailed(Exception):
    """A worker process has died; what the others have done is saved, and the run can be resumed. One sentence."""


@dataclass(frozen=True)
class Event:
    """What happens during a run: stack `stack` (from 0) of `stacks`, how many members it has, and where it stands."""

    stack: int
    stacks: int
    members: int
    progress: Progress
    steps: int

    def stopped(self) -> str:
        """How many members have stopped early, in words; empty where none has."""
        count = self.progress.stopped
        return f"{count} of {self.members} stopped; " if count else ""

    def means(self) -> str:
        """The first metric, its mean over members in each split of the event's evaluation, in words; empty where there
        was none. By condition where all of them together mean nothing."""
        rows = self.progress.rows
        pooled = any(row["condition"] == "all" for row in rows)
        values: dict[str, list[float]] = {}
        for row in rows:
            if row["metric"] == rows[0]["metric"] and (not pooled or row["condition"] == "all"):
                place = row["split"] if pooled else f"{row['split']} ({row['condition']})"
                own = values.setdefault(place, [])
                own += [] if math.isnan(row["value"]) else [row["value"]]  # a member that diverged
        parts = [f"{place} {sum(found) / len(found):.2f}" if found else f"{place} -" for place, found in values.items()]
        return f"{rows[0]['metric']} {', '.join(parts)}" if parts else ""


Notify = Callable[[Event], None]
Stop = Callable[[], bool]


class Log:
    """The diary of a run, log.txt: a line with its time for whatever happened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, line: str) -> None:
        with contextlib.suppress(OSError), open(self.path, "a") as stream:  # a full disk is told by what matters
            stream.write(f"{datetime.now():%Y-%m-%d %H:%M:%S} {line}\n")


class Reporter:
    """Tells the diary and whoever listens how far each stack is. Stacks that train side by side take turns."""

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
