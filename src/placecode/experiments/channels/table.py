"""The experiment on a user's table: train learned PEs with a few initial scales sigma to predict its hidden channels.

Channels are columns of the table. Some models are trained on all training samples and some on either half of them:
results on which they agree can be trusted. `placecode fit` and `LearnedPositions` run this experiment.
`placecode.fit.fitting` then chooses sigma and collects the results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from torch import Tensor

from placecode.errors import one_of
from placecode.experiments.channels import structure
from placecode.experiments.measures import pe_vectors, size_measures
from placecode.experiments.models import ModelExperiment
from placecode.models.encoder import Stack
from placecode.models.member import Member, grid
from placecode.settings import setting, sweep_over
from placecode.tasks.base import Task
from placecode.tasks.collection import TaskCollection
from placecode.tasks.table import DATA_SETS, TableTask

EFFORTS = ("auto", "quick", "thorough")
"""Values of `effort`, which sets the size of the models, the length of training, and the number of seeds and sigmas."""
MAX_ATTENTION_CHANNELS = 300
"""Largest number of channels for which attention maps are kept."""


@dataclass(frozen=True)
class TableExperiment(ModelExperiment):
    """Train learned PEs with a few initial scales sigma on a user's table (the experiment fit)."""

    name = "fit"
    about = "a map of the channels of a table"
    metric = "mse"

    file: str = setting("", "the table")
    groups: str = setting("", "group of each sample, such as its subject or day: a column name or a file")
    labels: str = setting("", "known groups of the channels: a CSV file with name,label")
    positions: str = setting("", "known positions of the channels: a CSV file with name,x,y or name,x,y,z")
    names: str = setting("", "names of the channels: a text file with one name per line")
    key: str = setting("", "name of the array in a .npz, .mat or .h5 file")
    sigmas: tuple[float, ...] = sweep_over((0.01, 0.05, 0.2), "scales of the PE at the start; one is chosen", least=0)
    seeds: tuple[int, ...] = sweep_over((0, 1), "seeds that are trained on all training samples")
    halves: int = setting(
        1, "number of additional seeds that are trained on each half of the training samples", least=0
    )
    steps: int = setting(2000, "training steps", least=1)
    evaluations: int = 4
    mask_ratio: float = setting(0.3, "fraction of the channels that are hidden", above=0, below=1)
    width: int = 32
    layers: int = 2
    expansion: int = 2
    learning_rate: float = 2e-3
    pe_learning_rate: float | None = 6e-3
    cooldown: float = 0.4
    batch: int = 32
    neighbors: int = setting(4, "number of nearest channels that count as neighbours", least=1)
    draws: int = setting(199, "number of random circular shifts of the channels in the permutation test", least=19)

    tables: Mapping[str, TableTask] = field(default_factory=dict, repr=False, compare=False)
    """The tasks on the table, by name (`DATA_SETS`): with all training samples, and with either half of them. They are
    data, so they are not recorded as a setting."""

    scales = {
        "quick": {},
        "thorough": {
            "sigmas": (0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
            "seeds": (0, 1, 2, 3),
            "halves": 2,
            "steps": 8000,
            "width": 64,
            "layers": 3,
            "cooldown": 0.5,
            "learning_rate": 1e-3,
            "pe_learning_rate": 3e-3,
        },
    }

    @staticmethod
    def effort_on(device: str, effort: str) -> str:
        """Return "quick" or "thorough". The effort "auto" is thorough on a GPU and quick on a CPU."""
        if effort not in EFFORTS:
            raise one_of("effort", EFFORTS, effort)
        return ("thorough" if device == "cuda" else "quick") if effort == "auto" else effort

    @classmethod
    def settings_for_effort(cls, effort: str, channels: int, **fields: Any) -> dict[str, Any]:
        """Return the settings, by name, for a table with this number of channels. With more channels, there are fewer
        examples per batch and, with the effort "quick", fewer steps. Values in `fields` override these settings. If
        `fields` has a learning rate but not one for the PE, the PE gets three times this rate."""
        settings = dict(cls.scales[effort])
        if effort == "quick":
            settings |= {"batch": min(max(3200 // channels, 8), 64), "steps": 3000 if channels <= 60 else 2000}
        else:
            settings |= {"batch": min(max(16_000 // channels, 32), 512)}
        if "learning_rate" in fields:
            settings["pe_learning_rate"] = 3 * fields["learning_rate"]
        return {**settings, **fields}

    def task(self) -> Task:
        return TaskCollection(self.tables)

    def plan(self) -> list[Member]:
        """Return for each sigma the members trained on all training samples, followed by `halves` members with other
        seeds for each half of these samples."""
        first = max(self.seeds) + 1
        members = []
        for sigma in self.sigmas:
            members += self.over_sigmas([sigma], data=DATA_SETS[0])
            for i, half in enumerate(DATA_SETS[1:]):
                begin = first + i * self.halves
                members += grid(self.spec(sigma=sigma, data=half), seed=range(begin, begin + self.halves))
        return members

    def training_steps(self, task: Task) -> int:
        return self.steps

    def evaluate_at(self, task: Task) -> Sequence[int]:
        return [round(self.steps * (i / self.evaluations)) for i in range(1, self.evaluations)]

    def analyse(self, stack: Stack, task: Task) -> list[dict[str, Any]]:
        pe = pe_vectors(stack)
        assert pe is not None
        return size_measures(pe)

    def arrays(self, stack: Stack, task: Task) -> dict[str, Tensor]:
        assert isinstance(task, TableTask)
        if task.tokens > MAX_ATTENTION_CHANNELS:
            return {}
        return {"attention": structure.attention_maps(stack, task).mean((1, 2), keepdim=True)}

    def compare(
        self, members: pd.DataFrame, arrays: Mapping[str, Tensor], shapes: Mapping[str, Mapping[str, Any]], step: int
    ) -> list[dict[str, Any]]:
        return list(structure.pe_change_and_stability(members, arrays, 1, step))
