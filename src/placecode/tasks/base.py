"""The contract of a task: data, what counts as right, and the true arrangement of the tokens if one is known.

A task knows no models. It hands out batches with a leading member axis, because every member of a stack draws its own
rows, and it judges outputs with that same axis, so that a member's loss never mixes with its neighbours'.
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
    """N examples: `inputs` (N, n, f), `targets` (N, ...), and for each example the name of its condition, if any."""

    inputs: Tensor
    targets: Tensor
    conditions: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Split:
        """The same examples elsewhere: inputs in `dtype`; targets too when they are numbers, not classes."""
        targets = self.targets.to(device)
        return replace(
            self,
            inputs=self.inputs.to(device, dtype),
            targets=targets.to(dtype) if targets.is_floating_point() else targets,
        )


class Pupil(Protocol):
    """What a task may know of a member."""

    @property
    def seed(self) -> int: ...

    @property
    def hidden(self) -> float: ...

    @property
    def ramp(self) -> int: ...


class Task:
    """Base class of tasks. Subclasses fill in the fields in `__init__` and define `loss` and `metrics`.

    `readout` is how an answer is read: "last" (from the last token), "mean" (over tokens) or "token" (one per token).
    `positions` (n, k) are the true coordinates of the tokens, `labels` (n,) their true groups; None where unknown.
    """

    name: str
    readout: str
    outputs: int
    splits: Mapping[str, Split]
    positions: np.ndarray | None = None
    labels: np.ndarray | None = None
    token_names: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    """The names of the conditions in the order in which to report them; sorted where not given."""
    pooled: bool = True
    """Whether a mean over all conditions ("all") means anything."""
    drawn_anew: bool = False
    """Whether a row of the training split may look different every time it is read."""

    @property
    def worlds(self) -> int:
        """Data of the same kind, drawn or split anew: a member with seed s lives in world s modulo their number."""
        return 1

    @property
    def tokens(self) -> int:
        return self.splits["train"].inputs.shape[1]

    @property
    def features(self) -> int:
        return self.splits["train"].inputs.shape[2]

    def to(self, device: torch.device | str, dtype: torch.dtype = torch.float32) -> Self:
        """A copy of the task whose tensors live on `device`."""
        moved = copy.copy(self)
        moved.splits = {name: split.to(device, dtype) for name, split in self.splits.items()}
        return moved

    def first(self, count: int) -> Self:
        """A copy of the task with the first `count` examples of every split: enough to try something out."""
        short = copy.copy(self)
        short.splits = {
            name: Split(split.inputs[:count], split.targets[:count], split.conditions and split.conditions[:count])
            for name, split in self.splits.items()
        }
        return short

    def describe(self) -> dict[str, Any]:
        """What the data are, for the record of a run: plain values, a hash of the data among them."""
        raise NotImplementedError

    def part(self, data: str) -> Task:
        """The data set that members with this `data` are trained on; all on the same unless it says otherwise."""
        return self

    def bind(self, members: Sequence[Pupil]) -> Self:
        """The task as the members of a stack meet it; the same for all unless it says otherwise."""
        return self

    def rows(self, split: str) -> int:
        """How many rows of a split are evaluated."""
        return len(self.splits[split])

    def condition(self, split: str) -> Sequence[str] | None:
        """The condition of each of these rows; None where a split has none."""
        return self.splits[split].conditions

    def batch(self, split: str, rows: Tensor, step: int | Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Inputs (e, b, n, f) and targets (e, b, ...) of the rows (e, b) that each member asks for.

        `step` is given in training alone, where a row may look different every time.
        """
        data = self.splits[split]
        return data.inputs[rows], data.targets[rows]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of each member, (e,), from outputs (e, b, o) and targets (e, b, ...)."""
        raise NotImplementedError

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Named measures, one value per member and example, (e, b); their means over a condition are reported."""
        raise NotImplementedError
