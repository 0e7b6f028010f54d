"""`TaskCollection`: several tasks for one experiment, for example with different noise. Each model trains on one."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Self

from placecode.errors import BadInput
from placecode.tasks.base import Task
from placecode.validation import choice


class TaskCollection(Task):
    """Several tasks of one kind for one experiment. The field `data` of a model names the task on which it is trained.

    The attributes `name`, `readout`, `outputs`, `splits`, `pooled` and `conditions` are those of the first task.
    `tokens` is the largest number of tokens in any task.

    Parameters
    ----------
    tasks : mapping of str to Task
        The tasks by name.
    """

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        if not tasks:
            raise BadInput("an experiment must have at least one data set; got none.")
        self.tasks = dict(tasks)
        first = next(iter(self.tasks.values()))
        self.name, self.readout, self.outputs, self.splits = first.name, first.readout, first.outputs, first.splits
        self.pooled, self.conditions = first.pooled, first.conditions

    @property
    def tokens(self) -> int:
        return max(task.tokens for task in self.tasks.values())

    def for_data_set(self, name: str) -> Task:
        return self.tasks[choice("data", name, self.tasks)]

    def first(self, count: int) -> Self:
        short = copy.copy(self)
        short.tasks = {name: task.first(count) for name, task in self.tasks.items()}
        return short

    def describe(self) -> dict[str, Any]:
        return {"task": self.name, "parts": {name: task.describe() for name, task in self.tasks.items()}}
