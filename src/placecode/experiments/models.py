"""The base class of studies with a transformer: the paper's model and training as settings, and members made from
them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from placecode.errors import must_be
from placecode.experiments.base import Study, setting, sweep_over
from placecode.models.member import Member, grid
from placecode.tasks.base import Task
from placecode.tasks.several import Several
from placecode.validation import real_number, whole_number


@dataclass(frozen=True)
class ModelStudy(Study):
    """A study with the settings of the model, its training, and the seeds."""

    seeds: tuple[int, ...] = sweep_over(tuple(range(15)), "seeds of each setting: a number of them, or a list a,b,c")
    evaluations: int = setting(40, "number of times all splits are evaluated during training")
    data_seed: int = setting(0, "seed of the data")
    placement: str = setting("every", "where the encoding acts: in every block, or at the input only")
    width: int = setting(160, "features per token")
    layers: int = setting(4, "transformer blocks")
    heads: int = setting(1, "attention heads")
    expansion: int = setting(4, "hidden units of the MLP, as a multiple of the width")
    norm: str = setting("post", "layer norm after (post) or before (pre) attention and MLP")
    output_gain: float = setting(1.0, "factor of the outputs: large values lead to lazy, small ones to rich learning")
    optimizer: str = setting("adam", "adam, adamw or sgd")
    learning_rate: float = setting(1e-4, "learning rate")
    pe_learning_rate: float | None = setting(None, "learning rate of the PE, if it differs")
    weight_decay: float = setting(0.0, "weight decay")
    pe_weight_decay: float | None = setting(None, "weight decay of the PE, if it differs")
    clip: float | None = setting(None, "maximum norm of a member's gradient")
    cooldown: float = setting(0.0, "fraction of the steps, at the end, in which the learning rate falls to zero")
    momentum: float = setting(0.9, "momentum of sgd")
    beta1: float = setting(0.9, "decay rate of adam's first moment")
    beta2: float = setting(0.999, "decay rate of adam's second moment")
    epsilon: float = setting(1e-8, "added to the square root of adam's second moment")
    batch: int = setting(128, "examples per step")

    task_class: ClassVar[type[Task]]
    """Class of the task. Its arguments are taken from the fields of the study with the same names."""

    def __post_init__(self) -> None:
        for each in fields(self):
            if "least" in each.metadata:
                self._all_different(each.name, each.metadata["least"])
        self._whole("evaluations", 1)
        self._whole("data_seed", 0)
        real_number("output_gain", self.output_gain, above=0)

    def _whole(self, name: str, least: int) -> None:
        """Raise `BadInput` if a field is not a whole number of at least `least`."""
        whole_number(name, getattr(self, name), least)

    def _all_different(self, name: str, least: int) -> None:
        """Raise `BadInput` if a field lists fewer than `least` values, or a value twice."""
        values = getattr(self, name)
        if len(values) < least:
            raise must_be(name, "at least one", list(values))
        if len(set(values)) < len(values):
            raise must_be(name, "all different", list(values))

    def data_sets(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the data sets of the study: by name, the arguments of the task in which they differ. It is empty for a
        single data set."""
        return {}

    def task(self) -> Task:
        tasks = {name: self.make_task(**changes) for name, changes in self.data_sets().items()}
        return Several(tasks) if tasks else self.make_task()

    def make_task(self, **changes: Any) -> Task:
        """Return the task with the settings of the study and these changes."""
        names = [name for name in inspect.signature(self.task_class).parameters if hasattr(self, name)]
        settings = {name: getattr(self, name) for name in names}
        return self.task_class(**{**settings, "seed": self.data_seed, **changes})

    def spec(self, **changes: Any) -> Member:
        """Return a member with the settings of the study and these changes."""
        names = [each.name for each in fields(self) if each.name in Member.__dataclass_fields__]
        shared = {name: getattr(self, name) for name in names}
        # some studies have a field `gain` with another meaning: the gain at the nodes of a simulated network
        return Member(**{**shared, "gain": self.output_gain, **changes})

    def over_sigmas(self, sigmas: Sequence[float], **changes: Any) -> list[Member]:
        """Return members with these sigmas and all seeds of the study: sigma by sigma, and seed by seed within each
        sigma."""
        return grid(self.spec(**changes), sigma=sigmas, seed=self.seeds)
