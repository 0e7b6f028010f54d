"""Base class of experiments. An experiment is a question with a name: a task, members (models to train), measurements
and claims.

An experiment is a frozen dataclass. Its fields are all settings that affect a result. The settings of its task (data)
and of its models are inherited from other dataclasses (`placecode.settings`). Every setting has a help text, is a flag
of the command line, and is recorded in config.json of the run, the folder with the results.

An experiment can be run at two scales (sizes), "quick" and "paper", chosen by `--scale`. Its class, such as
`latin.squares.LstSigma` for lst-sigma, lists the settings of both in `scales`. Values from the user override them. (The
initial scale of a PE, a positional encoding, is another thing: it is called sigma.)
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
    """Base class of experiments. Subclasses define the data (`task`), the members (`plan`), the length of training
    (`training_steps`), and what is measured."""

    name: ClassVar[str]
    about: ClassVar[str]
    """One line that describes the experiment, for `placecode experiments`."""
    scales: ClassVar[Mapping[str, Mapping[str, Any]]]
    """Settings by scale, such as {"quick": {"epochs": 40}, "paper": {}}. Fields that are not listed keep their
    defaults."""

    swept_by: ClassVar[Mapping[str, str]] = {}
    """Fields that this experiment sweeps, mapped to the field that lists their values, as in {"heads": "head_counts"}.
    The user cannot set the swept fields."""

    legacy_defaults: ClassVar[Mapping[str, Any]] = {}
    """Values of settings for runs that were made before these settings existed, where the default would be wrong."""

    @classmethod
    def from_scale(cls, scale: str, **fields: Any) -> Self:
        """Return the experiment with the settings of a scale, one of `SCALES`. Values in `fields` override them."""
        if scale not in SCALES:
            raise one_of("scale", SCALES, scale)
        for name, value in fields.items():
            if name in cls.swept_by:
                raise must_be(name, f"left out of {cls.name}, which sweeps {cls.swept_by[name]}", value)
        return cls(**{**cls.scales[scale], **fields})

    def fields(self) -> dict[str, Any]:
        """Return the values of all settings by name, with tuples as lists, for config.json of a run. In `sweep`, fields
        have their present names, even if the user gave former ones."""
        values = {name: getattr(self, name) for name in settings_of(type(self))}
        axes = zip(self.axes, self.sweep, strict=True)
        values["sweep"] = [f"{axis.name}={text.partition('=')[2]}" for axis, text in axes]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def task(self) -> Task:
        """Return the data that members are trained and evaluated on."""
        raise NotImplementedError

    sweep: tuple[str, ...] = setting(
        (), "one more field to sweep, such as heads=1,2,4; crossed with everything else; can be repeated"
    )

    @property
    def axes(self) -> list[Axis]:
        """The fields that the user sweeps in addition (`--sweep heads=1,2`), with their values. Usually empty."""
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
        """Return the members of the experiment in a fixed order, without those that `sweep` adds. The label of a
        member can be left empty; the method `members` then sets it."""
        raise NotImplementedError

    def members(self) -> list[Member]:
        """Return all members: those of `plan`, once for every combination of the values in `sweep`. A member without a
        label gets the name of its encoding as label. The option `--members i:j` trains a slice of this list."""
        members = []
        for member in self.plan():
            label = member.label or encoding_label(member.encoding, member.sigma, member.options)
            members.append(replace(member, label=label))
        return crossed(members, self.axes) if self.sweep else members

    def describe_data(self, data: str) -> str:
        """Return the text that figures show for the data set named `data` (a value of `Member.data`)."""
        return data

    def lines(self, run: Run) -> pd.DataFrame:
        """Return the table of the members to draw in figures with sigma on the x axis: those that finished, have a
        sigma and have the role "swept". The columns `panel` and `line` name the panel and the line on which a member is
        drawn. By default there is one panel, with a line for every combination of the values in `sweep`."""
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
        """Return the training steps after which all splits are evaluated, besides before and after training."""
        return ()

    def analyse(self, stack: Stack, task: Task) -> list[dict[str, Any]]:
        """Measure all members of a stack (models that are trained together), and return rows of the analysis table.

        Called twice for every stack: with the parameters before and after training. A row has the keys member (index in
        the stack), block (index of a block, -1 for all blocks, or -2 for the PE averaged over blocks), analysis (name
        of the measure), target (a detail of the measure, such as the encoding that the PE is compared with; can be
        empty) and value.
        """
        return []

    def trial_analysis(self, stack: Stack, task: Task) -> None:
        """Run `analyse`, or a faster version of it, before training starts, to test that it works and how much GPU
        memory it needs."""
        self.analyse(stack, task)

    def arrays(self, stack: Stack, task: Task) -> dict[str, Tensor]:
        """Return arrays (members, ...) by name, with one row for each member of the stack. Called before and after
        training, like `analyse`. The run keeps the arrays for `compare` and for figures."""
        return {}

    temporary_arrays: ClassVar[tuple[str, ...]] = ()
    """Names of arrays that are too large to keep. `compare` gets them, but they are not written to the run folder."""

    def compare(
        self, members: pd.DataFrame, arrays: Mapping[str, Tensor], shapes: Mapping[str, Mapping[str, Any]], step: int
    ) -> list[dict[str, Any]]:
        """Return rows of the analysis table that need several members, or both the start and the end of training.

        Called once when all stacks are analysed, and again when runs of parts of an experiment are merged. `members` is
        the table of all members of the run. `arrays` has the PE of member i before and after training ("pe_start/i" and
        "pe_end/i") and, with keys of the same form, what the method `arrays` returned. `shapes` maps the name of each
        data set (`Member.data`) to its sizes, such as the number of tokens, and its token positions. `step` is the last
        training step.
        """
        return []

    @property
    def swaps_pes(self) -> bool:
        """Whether the experiment implements `measure_pe_swaps`. If so, this method is called for each trained stack,
        once the arrays of all stacks are known."""
        return type(self).measure_pe_swaps is not Experiment.measure_pe_swaps

    def measure_pe_swaps(
        self, stack: Stack, task: Task, numbers: Sequence[int], members: pd.DataFrame, arrays: Mapping[str, Tensor]
    ) -> list[dict[str, Any]]:
        """Measure trained members again with other PEs, such as those of other members. Return rows as `analyse` does.

        `numbers` are the numbers of the stack's members in the run. `members` and `arrays` are those of all members of
        the run, as in `compare`. A run with `--members` lacks some members of the experiment.
        """
        return []

    def baselines(self, task: Task, members: Sequence[Member]) -> list[dict[str, Any]]:
        """Return the results of other methods, such as linear regression, on the data of these members. Rows have the
        keys world (index of a data set: a simulated one, or one split of the people into training and test), baseline
        (name of the method), split, condition (subset of the examples, such as "hidden 0.5"), metric and value."""
        return []

    def data_arrays(self, task: Task, members: Sequence[Member]) -> dict[str, Tensor]:
        """Return arrays by name that describe the data of these members, for figures. A name such as "fc/2" ends in the
        index of the data set: a simulated one, or one split of the people into training and test."""
        return {}

    metric: ClassVar[str] = "accuracy"
    """Name of the metric that tables of results show."""

    claims: ClassVar[Sequence[Claim]] = ()
    """Statements that a run of the experiment is checked against."""

    def findings(self, run: Run) -> list[Finding]:
        """Return the verdicts of a run on all claims. The list is empty with a `sweep`, which claims do not cover."""
        return [] if self.sweep else [claim.check(run) for claim in self.claims]
