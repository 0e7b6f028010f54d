"""Base class of experiments. An experiment is a question with a name: a task, members (models to train),
measurements and claims.

An experiment is a frozen dataclass. Its fields are all settings that affect a result: its own, and those of its task
and of its models, which it inherits (`placecode.settings`). Every setting has a help text, is a flag of the command
line and is recorded in the run. `scales` holds a quick and a paper-size set of values; `--scale` chooses one of them.
Values from the user override both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import pandas as pd
from torch import Tensor

from placecode.errors import must_be, one_of
from placecode.experiments.claims import Claim, Finding
from placecode.experiments.reading import finished_members
from placecode.experiments.specs import encoding_label
from placecode.experiments.sweeps import Axis, axes_of, combinations, crossed, data_sets
from placecode.models.encoder import Stack
from placecode.models.member import Member
from placecode.runs.read import Run
from placecode.settings import Settings, setting, settings_of
from placecode.tasks.base import Task
from placecode.tasks.collection import TaskCollection

SCALES = ("quick", "paper")
"""Names of the two sizes of every experiment: "quick" is a demonstration on a CPU, "paper" is the full size."""


@dataclass(frozen=True)
class Experiment(Settings):
    """Base class of experiments. Subclasses define `task`, `plan` and `training_steps`, and what they measure."""

    name: ClassVar[str]
    about: ClassVar[str]
    """One line that describes the experiment, for `placecode experiments`."""
    scales: ClassVar[Mapping[str, Mapping[str, Any]]]
    """The settings of the experiment at each size in `SCALES`, as values by field. Fields that are not listed keep
    their defaults."""

    swept_by: ClassVar[Mapping[str, str]] = {}
    """Fields that this experiment sweeps, mapped to the field that lists their values. The user cannot set them."""

    legacy_defaults: ClassVar[Mapping[str, Any]] = {}
    """Values of settings for runs that were made before these settings existed, where the default would be wrong."""

    @classmethod
    def from_scale(cls, scale: str, **fields: Any) -> Self:
        """Return the experiment at a scale, one of `SCALES`. Values in `fields` override those of the scale."""
        if scale not in SCALES:
            raise one_of("scale", SCALES, scale)
        for name, value in fields.items():
            if name in cls.swept_by:
                raise must_be(name, f"left out of {cls.name}, which sweeps {cls.swept_by[name]}", value)
        return cls(**{**cls.scales[scale], **fields})

    def fields(self) -> dict[str, Any]:
        """Return all settings as plain values by name, for the record of a run."""
        values = {name: getattr(self, name) for name in self.recorded()}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def recorded(cls) -> list[str]:
        """Return the names of the settings. Fields without a help text hold data and are not recorded."""
        return settings_of(cls)

    def task(self) -> Task:
        """Return the data that members are trained and evaluated on."""
        raise NotImplementedError

    sweep: tuple[str, ...] = setting(
        (), "one more field to sweep, such as heads=1,2,4; crossed with everything else; can be repeated"
    )

    @property
    def axes(self) -> list[Axis]:
        """The fields and values that the setting `sweep` adds to the experiment; empty without it."""
        return axes_of(self, self.sweep)

    def build_task(self) -> Task:
        """Return the data of all members: `task` or, if values in `sweep` change the data, a `TaskCollection` with
        one task for each combination of these values."""
        if all(axis.of_member for axis in self.axes):
            return self.task()
        tasks = {name: replace(self, sweep=(), **values).task() for name, values in data_sets(self.axes).items()}
        if any(isinstance(task, TaskCollection) for task in tasks.values()):
            raise must_be("sweep", f"of fields of the model for {self.name}, which has several data sets", self.sweep)
        return TaskCollection(tasks)

    def plan(self) -> list[Member]:
        """Return the members of the experiment in a fixed order. `members` then repeats them for the values in `sweep`,
        and gives those without a label the name of their encoding."""
        raise NotImplementedError

    def members(self) -> list[Member]:
        """Return all members with their labels: those of `plan`, once for every combination of the values in `sweep`.
        `--members i:j` is a slice of this list."""
        members = []
        for member in self.plan():
            label = member.label or encoding_label(member.encoding, member.sigma, member.options)
            members.append(replace(member, label=label))
        return crossed(members, self.axes) if self.sweep else members

    def describe_data(self, data: str) -> str:
        """Return the name of a data set for figures."""
        return data

    def lines(self, run: Run) -> pd.DataFrame:
        """Return the finished members of the sweep over sigma. The columns `panel` and `line` say where the figure over
        sigma shows them. Every combination of the values in `sweep` is one line."""
        members = finished_members(run)
        members = members[(members["role"] == "swept") & members["sigma"].notna()]
        size = len(self.plan())
        labels = [label for label, _ in combinations(self.axes)]
        return members.assign(panel="", line=[labels[number // size] for number in members["member"]])

    def training_steps(self, task: Task) -> int:
        """Return the number of training steps of every member."""
        raise NotImplementedError

    zero_loss_patience = 0
    """Number of consecutive epochs with a training loss of exactly 0 after which a member stops. 0: never."""

    def evaluate_at(self, task: Task) -> Sequence[int]:
        """Return the steps after which all splits are evaluated, in addition to the first and the last step."""
        return ()

    def analyse(self, stack: Stack, task: Task) -> list[dict[str, Any]]:
        """Measure all members of a stack, before and after training. Return rows (member in the stack, block, analysis,
        target, value) of the analysis table."""
        return []

    def trial_analysis(self, stack: Stack, task: Task) -> None:
        """Run `analyse`, or a faster version of it, to test that it works and how much GPU memory it needs."""
        self.analyse(stack, task)

    def arrays(self, stack: Stack, task: Task) -> dict[str, Tensor]:
        """Return arrays (e, ...) by name for the e members of a stack, before and after training. `compare` and figures
        use them."""
        return {}

    temporary_arrays: ClassVar[tuple[str, ...]] = ()
    """Names of arrays that are too large to keep. `compare` gets them, but they are not written to the run folder."""

    def compare(
        self, members: pd.DataFrame, arrays: Mapping[str, Tensor], shapes: Mapping[str, Mapping[str, Any]], step: int
    ) -> list[dict[str, Any]]:
        """Return rows of the analysis table that need several members, or both the start and the end of training.

        `members` is the table of all members of the run. `arrays` has the arrays NAME_start/i and NAME_end/i of member
        i. `shapes` has the shape of each data set, by `Member.data`. `step` is the last step. `compare` is called again
        when runs of parts of an experiment are merged.
        """
        return []

    @property
    def swaps_pes(self) -> bool:
        """Whether the experiment implements `measure_pe_swaps`. If so, its stacks are built again after training."""
        return type(self).measure_pe_swaps is not Experiment.measure_pe_swaps

    def measure_pe_swaps(
        self, stack: Stack, task: Task, numbers: Sequence[int], members: pd.DataFrame, arrays: Mapping[str, Tensor]
    ) -> list[dict[str, Any]]:
        """Measure a trained stack with PEs of other members, and return rows like those of `analyse`.

        `numbers` are the numbers of the stack's members in the run. `members` and `arrays` are those of the whole run,
        as in `compare`: with `--members`, only some members of the experiment.
        """
        return []

    def baselines(self, task: Task, members: Sequence[Member]) -> list[dict[str, Any]]:
        """Return rows (world, baseline, split, condition, metric, value) with the results of other methods on the data
        of these members. A world is the data of one seed: one simulated data set, or one split of the people."""
        return []

    def data_arrays(self, task: Task, members: Sequence[Member]) -> dict[str, Tensor]:
        """Return arrays that describe the data of these members, for figures. The names end in "/i" for world i."""
        return {}

    metric: ClassVar[str] = "accuracy"
    """Name of the metric that tables show."""

    claims: ClassVar[Sequence[Claim]] = ()
    """Statements that a run of the experiment is checked against."""

    def findings(self, run: Run) -> list[Finding]:
        """Return the verdicts of a run on all claims. The list is empty with a `sweep`, which claims do not cover."""
        return [] if self.sweep else [claim.check(run) for claim in self.claims]
