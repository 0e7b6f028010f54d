"""A task made of several data sets of one kind, for example with different noise. Each model is trained on one."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Self

from placecode.errors import BadInput
from placecode.tasks.base import Task
from placecode.validation import choice


class Several(Task):
    """A collection of tasks for one experiment. Every member of the experiment is trained on one of them.

    The attributes `name`, `readout`, `outputs`, `splits`, `pooled` and `conditions` are those of the first task.
    `tokens` is the largest number of tokens of all tasks.

    Parameters
    ----------
    parts : mapping of str to Task
        The tasks by name. `Member.data` is the name of the task on which a member is trained.
    """

    def __init__(self, parts: Mapping[str, Task]) -> None:
        if not parts:
            raise BadInput("an experiment must have at least one data set; got none.")
        self.parts = dict(parts)
        first = next(iter(self.parts.values()))
        self.name, self.readout, self.outputs, self.splits = first.name, first.readout, first.outputs, first.splits
        self.pooled, self.conditions = first.pooled, first.conditions

    @property
    def tokens(self) -> int:
        return max(task.tokens for task in self.parts.values())

    def part(self, data: str) -> Task:
        return self.parts[choice("data", data, self.parts)]

    def first(self, count: int) -> Self:
        short = copy.copy(self)
        short.parts = {name: task.first(count) for name, task in self.parts.items()}
        return short

    def describe(self) -> dict[str, Any]:
        return {"task": self.name, "parts": {name: task.describe() for name, task in self.parts.items()}}
