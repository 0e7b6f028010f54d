"""The interface of a task: data, loss, metrics, and the true positions of the tokens if they are known.

A task does not depend on models. Its batches have a leading member axis, because each member of a stack has its own
order of the examples. Losses and metrics keep this axis, so that members do not affect each other.

Shapes: e members, b examples per batch, n tokens, f features, N examples.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Split:
    """The N examples of one split of the data."""

    inputs: Tensor
    """Shape (N, n, f)."""
    targets: Tensor
    """Shape (N, ...)."""
    conditions: tuple[str, ...] | None = None
    """Name of the condition of each example, if there are conditions."""

    def __len__(self) -> int:
        return len(self.inputs)

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Split:
        """Return the split on another device. Floating-point tensors are converted to `dtype`."""
        targets = self.targets.to(device)
        return replace(
            self,
            inputs=self.inputs.to(device, dtype),
            targets=targets.to(dtype) if targets.is_floating_point() else targets,
        )


class Pupil(Protocol):
    """The properties of a member that a task may use."""

    @property
    def seed(self) -> int: ...

    @property
    def hidden(self) -> float: ...

    @property
    def ramp(self) -> int: ...


class Task:
    """Base class of tasks. Subclasses set the attributes and implement `loss`, `metrics` and `describe`."""

    name: str
    """Name of the task in records of runs."""
    readout: str
    """Tokens from which outputs are computed: the "last", the "mean" over all, or every "token" by itself."""
    outputs: int
    """Number of outputs."""
    splits: Mapping[str, Split]
    """Splits of the data by name. One of them is "train"."""
    positions: np.ndarray | None = None
    """True coordinates of the tokens, (n, k), if they are known."""
    labels: np.ndarray | None = None
    """True groups of the tokens, (n,), if they are known."""
    token_names: tuple[str, ...] = ()
    """Names of the tokens."""
    conditions: tuple[str, ...] = ()
    """Names of the conditions in the order of reports. If empty, they are sorted."""
    pooled: bool = True
    """Whether to report a mean over all conditions ("all")."""
    drawn_anew: bool = False
    """Whether training examples are random, so that an example differs each time it is read."""

    @property
    def worlds(self) -> int:
        """Number of worlds, independent realizations or splits of the data. Seed s uses world s modulo this number."""
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
        return moved

    def first(self, count: int) -> Self:
        """Return a copy of the task with the first `count` examples of every split, for short tests."""
        short = copy.copy(self)
        short.splits = {
            name: Split(split.inputs[:count], split.targets[:count], split.conditions and split.conditions[:count])
            for name, split in self.splits.items()
        }
        return short

    def describe(self) -> dict[str, Any]:
        """Describe the data for the record of a run.

        Returns
        -------
        dict of str to value
            Plain values, including a hash of the data.
        """
        raise NotImplementedError

    def part(self, data: str) -> Task:
        """Return the data set for members with this `Member.data`. By default there is only one."""
        return self

    def bind(self, members: Sequence[Pupil]) -> Self:
        """Return a copy of the task for the members of a stack. By default the data do not depend on the member."""
        return self

    def rows(self, split: str) -> int:
        """Return the number of evaluated rows of a split."""
        return len(self.splits[split])

    def condition(self, split: str) -> Sequence[str] | None:
        """Return the condition of each evaluated row, or None if there are no conditions."""
        return self.splits[split].conditions

    def batch(self, split: str, rows: Tensor, step: int | Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the examples of a batch.

        Parameters
        ----------
        split : str
        rows : Tensor of int64, shape (e, b)
            Indices of the examples of each member.
        step : int or Tensor, optional
            Training step, which selects the random numbers of random examples. None at evaluation.

        Returns
        -------
        inputs : Tensor, shape (e, b, n, f)
        targets : Tensor, shape (e, b, ...)
        """
        data = self.splits[split]
        return data.inputs[rows], data.targets[rows]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Compute the mean loss of each member.

        Parameters
        ----------
        outputs : Tensor, shape (e, b, o) or (e, b, n, o)
        targets : Tensor, shape (e, b, ...)

        Returns
        -------
        Tensor, shape (e,)
        """
        raise NotImplementedError

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Compute the metrics of each member and example, such as accuracy or squared error.

        All numbers of an evaluation come from here: the trainer averages these values over the examples of each
        condition (`placecode.training.trainer.evaluate`).

        Parameters
        ----------
        outputs : Tensor, shape (e, b, o) or (e, b, n, o)
        targets : Tensor, shape (e, b, ...)

        Returns
        -------
        dict of str to Tensor, shape (e, b)
        """
        raise NotImplementedError
