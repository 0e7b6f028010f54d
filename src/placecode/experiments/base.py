"""The contract of a study: a task, members, measurements and claims under a name.

A study is a frozen dataclass. Its fields are everything that shapes a result: each has a help text, is settable on the
command line and is recorded in the run. `scales` holds the settings of each scale; fields a user gives win over them.
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
from placecode.experiments.sweeps import Axis, axes_of, combinations, crossed, studies_by_data
from placecode.models.encoder import Stack
from placecode.models.member import Member
from placecode.runs.read import Run
from placecode.tasks.base import Task
from placecode.tasks.several import Several

SCALES = ("quick", "paper")


def setting(default: Any, help: str) -> Any:
    """A field of a study: its default and the sentence that explains it."""
    return dataclasses.field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Study:
    """Base class of studies."""

    name: ClassVar[str]
    about: ClassVar[str]
    """One line for `placecode studies`."""
    scales: ClassVar[Mapping[str, Mapping[str, Any]]]

    instead: ClassVar[Mapping[str, str]] = {}
    """Fields that have no say in this study, since it goes through several values of them: in the field named here."""

    older: ClassVar[Mapping[str, Any]] = {}
    """Values of settings in runs from before the setting existed, where its default means something else."""

    @classmethod
    def at(cls, scale: str, **given: Any) -> Self:
        """The study at a scale, with the fields that are given on top."""
        if scale not in SCALES:
            raise one_of("scale", SCALES, scale)
        for name in given:
            if name in cls.instead:
                raise must_be(name, f"left out of {cls.name}, which goes through {cls.instead[name]}", given[name])
        return cls(**{**cls.scales[scale], **given})

    def fields(self) -> dict[str, Any]:
        """Every field as plain values, for the record."""
        return {name: _plain(getattr(self, name)) for name in self.recorded()}

    @classmethod
    def recorded(cls) -> list[str]:
        """The names of the fields that are settings: all but data that is handed over as it is."""
        return [field.name for field in dataclasses.fields(cls) if "help" in field.metadata]

    def task(self) -> Task:
        """The data."""
        raise NotImplementedError

    sweep: tuple[str, ...] = setting(
        (), "one more field to sweep, such as heads=1,2,4; crossed with all else, and can be given several times"
    )

    @property
    def axes(self) -> list[Axis]:
        """The fields that `sweep` adds to the study's own sweep."""
        return axes_of(self, self.sweep)

    def data(self) -> Task:
        """The data of all members: `task`, or several of them where an axis changes the data."""
        if all(axis.of_member for axis in self.axes):
            return self.task()
        tasks = {name: study.task() for name, study in studies_by_data(self, self.axes).items()}
        if any(isinstance(task, Several) for task in tasks.values()):
            raise must_be("sweep", f"of fields of the model for {self.name}, which has several data sets", self.sweep)
        return Several(tasks)

    def plan(self) -> list[Member]:
        """The study's own members, in an order that is part of the study. Those without a label are named by their
        encoding."""
        raise NotImplementedError

    def members(self) -> list[Member]:
        """All members, each with its label: those of `plan`, once for every combination of the axes of `sweep`.
        `--members i:j` cuts this list."""
        members = [member if member.label else replace(member, label=label_of(member)) for member in self.plan()]
        return crossed(members, self.axes) if self.sweep else members

    def lines(self, run: Run) -> pd.DataFrame:
        """The finished members of the sweep with the panel and the line of a figure over sigma in which each is drawn:
        a line for every combination of the axes of `sweep`."""
        members = done(run)
        members = members[(members["role"] == "swept") & members["sigma"].notna()]
        size = len(self.plan())
        labels = [label for label, _ in combinations(self.axes)]
        return members.assign(panel="", line=[labels[number // size] for number in members["member"]])

    def training_steps(self, task: Task) -> int:
        """Training steps of every member."""
        raise NotImplementedError

    @property
    def rest_epochs(self) -> int:
        """After how many epochs in a row with a training loss of exactly 0 a member stops; 0: never."""
        return 0

    def evaluate_at(self, task: Task) -> Sequence[int]:
        """Steps after which all splits are evaluated, besides the first and the last."""
        return ()

    def analyse(self, stack: Stack, task: Task) -> list[dict[str, Any]]:
        """Rows (member in the stack, block, analysis, target, value) of a stack, before and after training."""
        return []

    def rehearse(self, stack: Stack, task: Task) -> None:
        """As `analyse`, to see whether it can be done and what it takes of a GPU; may be quicker."""
        self.analyse(stack, task)

    def arrays(self, stack: Stack, task: Task) -> dict[str, Tensor]:
        """Arrays (e, ...) of a stack, before and after training, by name: for `compare`, and to keep for figures."""
        return {}

    passing: ClassVar[tuple[str, ...]] = ()
    """Names of arrays that are too large to keep: `compare` sees them, the run folder does not."""

    def compare(
        self, members: pd.DataFrame, arrays: Mapping[str, Tensor], shapes: Mapping[str, Mapping[str, Any]], step: int
    ) -> list[dict[str, Any]]:
        """Rows of the analysis table that take several members, or the start and the end, to tell.

        `members` is the table of all members of the run, `arrays` hold NAME_start/i and NAME_end/i of member i,
        `shapes` has that of each data set, by the name that is a member's `data`, and `step` is the last one. Pieces of
        a study are compared again when they are merged.
        """
        return []

    exchanges: ClassVar[bool] = False
    """Whether `exchange` measures anything: stacks are built once more for it."""

    def exchange(
        self, stack: Stack, task: Task, numbers: Sequence[int], members: pd.DataFrame, arrays: Mapping[str, Tensor]
    ) -> list[dict[str, Any]]:
        """Rows as of `analyse`, of a trained stack, that take the PEs of other members: `numbers` are its own members,
        `members` and `arrays` those of the whole run, as for `compare`. Pieces of a study know their own members alone.
        """
        return []

    def baselines(self, task: Task, members: Sequence[Member]) -> list[dict[str, Any]]:
        """Rows (world, baseline, split, condition, metric, value): what others make of the data of these members."""
        return []

    def data_arrays(self, task: Task, members: Sequence[Member]) -> dict[str, Tensor]:
        """Arrays about the data of these members, NAME/i for world i, to keep for figures."""
        return {}

    metric: ClassVar[str] = "accuracy"
    """What tables are about."""

    claims: ClassVar[Sequence[Claim]] = ()
    """What the paper says of this study, as checks."""

    def findings(self, run: Run) -> list[Finding]:
        """What a run says of every claim; nothing where `sweep` adds axes that the claims know nothing of."""
        return [] if self.sweep else [claim.check(run) for claim in self.claims]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
