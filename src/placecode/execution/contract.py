"""What `execution` needs of an experiment: which members (models) to train, on which task, and what to analyse.

`placecode.experiments.base.Experiment`, the base class of all experiments, implements this and documents every method.
Experiments import `execution`, so `execution` cannot import `Experiment`. Instead, this protocol lists the attributes
and methods of `Experiment` that execution uses. Any object that has them can be executed. What `Experiment` has in
addition (scales, claims, figures) is not needed.

Execution writes the rows of `analyse`, `measure_pe_swaps` and `compare` to analysis.parquet, those of `baselines` to
baselines.parquet, and the arrays of `arrays` and `data_arrays` to arrays.safetensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import pandas as pd
from torch import Tensor

from placecode.models.encoder import Stack
from placecode.models.member import Member
from placecode.tasks.base import Task


class ExperimentProtocol(Protocol):
    """Attributes and methods that an experiment needs to be executed. `Experiment` implements and documents them."""

    name: ClassVar[str]
    temporary_arrays: ClassVar[tuple[str, ...]]

    @property
    def swaps_pes(self) -> bool: ...
    @property
    def zero_loss_patience(self) -> int: ...
    def fields(self) -> dict[str, Any]: ...
    def build_task(self) -> Task: ...
    def members(self) -> list[Member]: ...
    def training_steps(self, task: Task) -> int: ...
    def evaluate_at(self, task: Task) -> Sequence[int]: ...
    def trial_analysis(self, stack: Stack, task: Task) -> None: ...
    def analyse(self, stack: Stack, task: Task) -> list[dict[str, Any]]: ...
    def arrays(self, stack: Stack, task: Task) -> dict[str, Tensor]: ...
    def compare(
        self, members: pd.DataFrame, arrays: Mapping[str, Tensor], shapes: Mapping[str, Mapping[str, Any]], step: int
    ) -> list[dict[str, Any]]: ...
    def measure_pe_swaps(
        self, stack: Stack, task: Task, numbers: Sequence[int], members: pd.DataFrame, arrays: Mapping[str, Tensor]
    ) -> list[dict[str, Any]]: ...
    def baselines(self, task: Task, members: Sequence[Member]) -> list[dict[str, Any]]: ...
    def data_arrays(self, task: Task, members: Sequence[Member]) -> dict[str, Tensor]: ...
