"""`Task`, the base class of all tasks: data, loss, metrics, and the true positions of the tokens if they are known.

A task does not depend on models. A member is a model to train, and a stack is a group of members that are trained
together. Batches have a leading axis for the members of a stack, because members with different seeds read the examples
in a different order. Losses and metrics keep this axis, so that members do not affect each other.

Shapes: e members, b examples per batch, n tokens, f features, o outputs, N examples.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from placecode.settings import Settings


@dataclass(frozen=True)
class Split:
    """The N examples of one split of the data, such as "train"."""

    inputs: Tensor
    """Features of all tokens of all examples, (N, n, f)."""
    targets: Tensor
    """Correct outputs, (N, ...)."""
    conditions: tuple[str, ...] | None = None
    """Condition of each example, (N,), or None. A condition is the name of a subset of examples, such as a class of
    puzzles. Metrics are averaged over each subset separately."""

    def __len__(self) -> int:
        return len(self.inputs)

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Split:
        """Return a copy of the split on `device`, with floating-point tensors converted to `dtype`."""
        targets = self.targets.to(device)
        return replace(
            self,
            inputs=self.inputs.to(device, dtype),
            targets=targets.to(dtype) if targets.is_floating_point() else targets,
        )


class MemberLike(Protocol):
    """Protocol of a member (`models.member.Member`, which tasks must not import) with the fields that tasks use."""

    @property
    def seed(self) -> int: ...

    @property
    def mask_ratio(self) -> float: ...

    @property
    def ramp(self) -> int: ...


class Task:
    """Base class of tasks. Subclasses set the attributes and implement `loss`, `metrics` and `describe`."""

    name: str
    """Name of the task, recorded in config.json of a run."""
    readout: str
    """Tokens from which the model computes outputs: "last" (the last token), "mean" (the mean over all tokens) or
    "token" (outputs for each token)."""
    outputs: int
    """Number of outputs, o, per example, or per token if `readout` is "token"."""
    settings_class: type[Settings] = Settings
    """Class of the settings. Its fields are keyword arguments of the task."""
    splits: Mapping[str, Split]
    """Splits of the data by name. One of them is "train"."""
    positions: np.ndarray | None = None
    """True coordinates of the n tokens in k dimensions, (n, k), or None if they are not known."""
    labels: np.ndarray | None = None
    """True group of each token, (n,), or None if the groups are not known."""
    token_names: tuple[str, ...] = ()
    """Names of the tokens, (n,), or empty if they have none."""
    conditions: tuple[str, ...] = ()
    """Names of the conditions (subsets of examples, see `Split`) in the order in which reports show them. If empty, the
    conditions that occur in the data are shown in alphabetical order."""
    pooled: bool = True
    """Whether metrics are also averaged over all examples. This mean is recorded with the condition "all"."""
    stochastic_batches: bool = False
    """Whether training batches depend on random numbers, so that an example differs each time it is read."""

    @property
    def worlds(self) -> int:
        """Number of worlds: independent realizations of the data, or different splits of the same data.

        A member with seed s is trained on world s modulo this number.
        """
        return 1

    @property
    def tokens(self) -> int:
        """Number of tokens, n."""
        return self.splits["train"].inputs.shape[1]

    @property
    def features(self) -> int:
        """Number of input features per token, f."""
        return self.splits["train"].inputs.shape[2]

    def to(self, device: torch.device | str, dtype: torch.dtype = torch.float32) -> Self:
        """Return a copy of the task with its tensors on `device`, and floating-point data in `dtype`."""
        moved = copy.copy(self)
        moved.splits = {name: split.to(device, dtype) for name, split in self.splits.items()}
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(moved, name, value.to(device))
        return moved

    def first(self, count: int) -> Self:
        """Return a copy of the task with only the first `count` examples of every split, for short tests."""
        short = copy.copy(self)
        short.splits = {
            name: Split(split.inputs[:count], split.targets[:count], split.conditions and split.conditions[:count])
            for name, split in self.splits.items()
        }
        return short

    def describe(self) -> dict[str, Any]:
        """Return a description of the data, which becomes "task" in config.json of a run.

        Returns
        -------
        dict of str to value
            Values that JSON can represent, such as the settings, the number of examples and a hash of the data.
        """
        raise NotImplementedError

    def for_data_set(self, name: str) -> Task:
        """Return the task for members whose field `data` is `name`. By default, return this task.

        Only `TaskCollection`, which contains several tasks, returns another task: the one named `name`.
        """
        return self

    def bind(self, members: Sequence[MemberLike]) -> Self:
        """Return a task that makes batches for the members of one stack. By default, return this task unchanged.

        A task whose batches depend on the members returns a copy that stores what it needs, for example their seeds.
        """
        return self

    def row_count(self, split: str) -> int:
        """Return the number of rows of an evaluation on `split`. A row is one evaluation of one example.

        By default there is one row for each example. A task may evaluate an example several times, in several rows.
        """
        return len(self.splits[split])

    def row_conditions(self, split: str) -> Sequence[str] | None:
        """Return the condition of each row of an evaluation on `split` (see `row_count`), or None.

        A condition is the name of a subset of the rows, such as a class of puzzles. Metrics are averaged over each
        subset separately.
        """
        return self.splits[split].conditions

    def batch(self, split: str, rows: Tensor, step: int | Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of a batch.

        Parameters
        ----------
        split : str
        rows : Tensor of int64, shape (e, b)
            In training, indices of b examples for each of the e members. At evaluation, indices of rows (see
            `row_count`).
        step : int or Tensor, optional
            Training step, used only if training batches are random (`stochastic_batches`). None at evaluation.

        Returns
        -------
        inputs : Tensor, shape (e, b, n, f)
        targets : Tensor, shape (e, b, ...)
        """
        data = self.splits[split]
        return data.inputs[rows], data.targets[rows]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Compute the mean loss of each member over a batch.

        Parameters
        ----------
        outputs : Tensor, shape (e, b, o), or (e, b, n, o) if `readout` is "token"
        targets : Tensor, shape (e, b, ...)

        Returns
        -------
        Tensor, shape (e,)
        """
        raise NotImplementedError

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Compute the metrics of each member for each example of a batch.

        Every evaluation averages the metrics over the examples of each condition (see `Split.conditions`). The means
        are written to metrics.parquet in the run folder, with the keys of the returned dict in the column `metric`.

        Parameters
        ----------
        outputs : Tensor, shape (e, b, o), or (e, b, n, o) if `readout` is "token"
            The o outputs of each model, from one token or from each of the n tokens.
        targets : Tensor, shape (e, b, ...)

        Returns
        -------
        dict of str to Tensor, shape (e, b)
            Name and values of each metric.
        """
        raise NotImplementedError
