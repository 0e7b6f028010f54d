"""The contract of a study: a task, members, measurements and claims under one name.

A study is a frozen dataclass. Its fields are all settings that affect a result. Every field has a help text, is a flag
of the command line and is recorded in the run. `scales` has the settings of each scale; values from the user win.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import pandas as pd
from torch import Tensor

from placecode.errors import must_be, one_of
from placecode.experiments.claims import Claim, Finding
from placecode.experiments.reading import done
from placecode.experiments.specs import label_of
from placecode.experiments.sweeps import Axis, axes_of, combinations, crossed, data_sets
from placecode.models.encoder import Stack
from placecode.models.member import Member
from placecode.runs.read import Run
from placecode.tasks.base import Task
from placecode.tasks.several import Several

SCALES = ("quick", "paper")


def setting(default: Any, help: str) -> Any:
    """A field of a study: its default value and its help text."""
    return dataclasses.field(default=default, metadata={"help": help})


def sweep_over(default: tuple[Any, ...], help: str, least: int = 1) -> Any:
    """A field that lists the values of a sweep: at least `least` of them, all different."""
    return dataclasses.field(default=default, metadata={"help": help, "least": least})


@dataclass(frozen=True)
class Study:
    """Base class of studies."""

    name: ClassVar[str]
    about: ClassVar[str]
    """One line for `placecode studies`."""
    scales: ClassVar[Mapping[str, Mapping[str, Any]]]

    swept_by: ClassVar[Mapping[str, str]] = {}
    """Fields that this study sweeps, mapped to the field that lists their values. They cannot be set."""

    older: ClassVar[Mapping[str, Any]] = {}
    """Values of settings in runs that are older than the setting, where its default has another meaning."""

    @classmethod
    def at(cls, scale: str, **given: Any) -> Self:
        """The study at a scale. Fields in `given` override those of the scale."""
        if scale not in SCALES:
            raise one_of("scale", SCALES, scale)
        for name in given:
            if name in cls.swept_by:
                raise must_be(name, f"left out of {cls.name}, which sweeps {cls.swept_by[name]}", given[name])
        return cls(**{**cls.scales[scale], **given})

    def fields(self) -> dict[str, Any]:
        """All settings as plain values, for the record of a run."""
        values = {name: getattr(self, name) for name in self.recorded()}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def recorded(cls) -> list[str]:
        """Names of the fields that are settings. Fields without a help text hold data."""
        return [field.name for field in dataclasses.fields(cls) if "help" in field.metadata]

    def task(self) -> Task:
        """The data."""
        raise NotImplementedError

    sweep: tuple[str, ...] = setting(
        (), "one more field to sweep, such as heads=1,2,4; crossed with everything else; can be repeated"
    )

    @property
    def axes(self) -> list[Axis]:
        """The axes that `sweep` adds to the study."""
        return axes_of(self, self.sweep)

    def data(self) -> Task:
        """The data of all members: `task`, or one task per combination of the axes of `sweep` that change the data."""
        if all(axis.of_member for axis in self.axes):
            return self.task()
        tasks = {name: replace(self, sweep=(), **values).task() for name, values in data_sets(self.axes).items()}
        if any(isinstance(task, Several) for task in tasks.values()):
            raise must_be("sweep", f"of fields of the model for {self.name}, which has several data sets", self.sweep)
        return Several(tasks)

    def plan(self) -> list[Member]:
        """The members of the study without `sweep`, in a fixed order. Members without a label are labelled by their
        encoding."""
        raise NotImplementedError

    def members(self) -> list[Member]:
        """All members with their labels: those of `plan`, once for every combination of the axes of `sweep`.
        `--members i:j` is a slice of this list."""
        members = [member if member.label else replace(member, label=label_of(member)) for member in self.plan()]
        return crossed(members, self.axes) if self.sweep else members

    def lines(self, run: Run) -> pd.DataFrame:
        """The finished members of the sweep, with the `panel` and the `line` of the figure over sigma in which they are
        drawn. Every combination of the axes of `sweep` is one line."""
        members = done(run)
        members = members[(members["role"] == "swept") & members["sigma"].notna()]
        size = len(self.plan())
        labels = [label for label, _ in combinations(self.axes)]
        return members.assign(panel="", line=[labels[number // size] for number in members["member"]])

    def training_steps(self, task: Task) -> int:
        """Number of training steps of every member."""
        raise NotImplementedError

    @property
    def rest_epochs(self) -> int:
        """Number of consecutive epochs with a training loss of exactly 0 after which a member stops. 0: never."""
        return 0

    def evaluate_at(self, task: Task) -> Sequence[int]:
        """Steps after which all splits are evaluated, in addition to the first and the last."""
        return ()

    def analyse(self, stack: Stack, task: Task) -> list[dict[str, Any]]:
        """Rows (member in the stack, block, analysis, target, value) of a stack, before and after training."""
        return []

    def rehearse(self, stack: Stack, task: Task) -> None:
        """Run `analyse`, or a faster version of it, to test that it works and how much GPU memory it needs."""
        self.analyse(stack, task)

    def arrays(self, stack: Stack, task: Task) -> dict[str, Tensor]:
        """Arrays (e, ...) by name of a stack, before and after training. `compare` and figures use them."""
        return {}

    passing: ClassVar[tuple[str, ...]] = ()
    """Names of arrays that are too large to keep. `compare` sees them, but they are not in the run folder."""

    def compare(
        self, members: pd.DataFrame, arrays: Mapping[str, Tensor], shapes: Mapping[str, Mapping[str, Any]], step: int
    ) -> list[dict[str, Any]]:
        """Rows of the analysis table that need several members, or both the start and the end.

        `members` is the table of all members of the run. `arrays` has NAME_start/i and NAME_end/i of member i. `shapes`
        has the shape of each data set, by `Member.data`. `step` is the last step. When pieces of a study are merged,
        this is called again.
        """
        return []

    exchanges: ClassVar[bool] = False
    """Whether the study has an `exchange`. The stacks are built a second time for it."""

    def exchange(
        self, stack: Stack, task: Task, numbers: Sequence[int], members: pd.DataFrame, arrays: Mapping[str, Tensor]
    ) -> list[dict[str, Any]]:
        """Rows like those of `analyse` for a trained stack, which need the PEs of other members.

        `numbers` are the members of the stack. `members` and `arrays` are those of the whole run, as in `compare`. A
        piece of a study has its own members only.
        """
        return []

    def baselines(self, task: Task, members: Sequence[Member]) -> list[dict[str, Any]]:
        """Rows (world, baseline, split, condition, metric, value) of other methods on the data of these members."""
        return []

    def data_arrays(self, task: Task, members: Sequence[Member]) -> dict[str, Tensor]:
        """Arrays about the data of these members for figures: NAME/i for world i."""
        return {}

    metric: ClassVar[str] = "accuracy"
    """The metric in tables."""

    claims: ClassVar[Sequence[Claim]] = ()
    """The statements that a run of the study is checked against."""

    def findings(self, run: Run) -> list[Finding]:
        """The verdicts of a run on all claims. None if `sweep` adds axes, which the claims do not cover."""
        return [] if self.sweep else [claim.check(run) for claim in self.claims]
