"""Base class of experiments with a transformer. Members (models) and tasks (data) are made from its settings."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from placecode.experiments.base import Experiment
from placecode.models.member import Member, ModelSettings, grid
from placecode.settings import setting, settings_of, sweep_over
from placecode.tasks.base import Task
from placecode.tasks.collection import TaskCollection


@dataclass(frozen=True)
class ModelExperiment(Experiment, ModelSettings):
    """Base class of experiments with a transformer: the settings of the model and of its training, and the seeds."""

    seeds: tuple[int, ...] = sweep_over(tuple(range(15)), "seeds of each setting: a number of them, or a list a,b,c")
    evaluations: int = setting(40, "number of times all splits are evaluated during training", least=1)
    data_seed: int = setting(0, "seed of the data", least=0)
    output_gain: float = setting(
        1.0, "factor of the outputs: large values lead to lazy, small ones to rich learning", above=0
    )

    task_class: ClassVar[type[Task]]
    """Class of the task. The arguments of its constructor get their values from the fields of the experiment with the
    same names."""

    def data_sets(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the data sets by name, each as the arguments of the task that differ from the settings of the
        experiment, such as {"noise=1": {"noise": 1.0}}. Empty if there is a single data set."""
        return {}

    def task(self) -> Task:
        tasks = {name: self.make_task(**changes) for name, changes in self.data_sets().items()}
        return TaskCollection(tasks) if tasks else self.make_task()

    def make_task(self, **changes: Any) -> Task:
        """Return a task whose arguments are the settings of the experiment, except for those in `changes`."""
        arguments = (*inspect.signature(self.task_class).parameters, *settings_of(self.task_class.settings_class))
        values = {name: getattr(self, name) for name in arguments if hasattr(self, name)}
        return self.task_class(**{**values, "seed": self.data_seed, **changes})

    def spec(self, **changes: Any) -> Member:
        """Return a member whose fields are the settings of the experiment, except for those in `changes`."""
        names = {field.name for field in fields(Member)} & {field.name for field in fields(self)}
        shared = {name: getattr(self, name) for name in names}
        return Member(**{**shared, **changes})

    def moments(self, length: int) -> list[int]:
        """Return the steps or epochs, from 1 to `length`, after which all splits are evaluated. They are closer
        together at the start, where learning curves are steep."""
        moments = np.round(length * (np.arange(1, self.evaluations + 1) / self.evaluations) ** 1.5)
        return sorted({int(moment) for moment in moments if moment > 0})

    def over_sigmas(self, sigmas: Sequence[float], **changes: Any) -> list[Member]:
        """Return a member for every sigma in `sigmas` and every seed of the experiment, sorted by sigma, then by seed.
        `changes` are values of other fields, the same for all members."""
        return grid(self.spec(**changes), sigma=sigmas, seed=self.seeds)
