"""Masked prediction of channels, the base of five tasks: the model predicts hidden channels from the visible ones.

A token is a channel (a brain region, a pixel, a column of a table). Its features are the values of the channel in a
window of time points, and a mark, which is 1 if the channel is hidden. Hidden values are replaced by zero, the mean of
standardized data. The loss is the mean squared error of the hidden channels.

In training, the hidden channels are drawn at random in every step, from the seed of the member (model). At
evaluation, the hidden channels do not depend on the member, so that all members predict the same values. Every example
is evaluated once for each fraction of hidden channels in `eval_mask_ratios`. Each such pair of example and fraction is
a row of the evaluation. Metrics (`Masked.metrics`) are averaged over examples, separately for each fraction. The
averages have a condition that names the fraction, such as "hidden 0.5".
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from placecode import random
from placecode.data.atlases import Partition
from placecode.errors import must_be
from placecode.tasks.base import MemberLike, Split, Task
from placecode.validation import whole_number

MAX_TRAINING_EXAMPLES = 2048  # maximum number of examples of the split "train" that are evaluated


@dataclass(frozen=True)
class Recordings(Split):
    """A split with T time points (or samples) of n channels in g worlds (independent data sets).

    `inputs`, (g, T, n), are the values of all recordings, concatenated along time. An example is a window of time
    points, and `targets`, (N,), are the indices of the time points at which the N examples begin. No window crosses
    from one recording into the next.
    """

    def __len__(self) -> int:
        return len(self.targets)


def join_recordings(parts: Sequence[np.ndarray], window: int = 1) -> Recordings:
    """Concatenate recordings along time, and return them as one split.

    Parameters
    ----------
    parts : sequence of ndarray, shape (g, T, n) or (T, n)
        T time points of n channels, in g worlds (independent data sets) or in one. T may differ between recordings.
    window : int
        Number of time points of an example. No window crosses from one recording into the next.

    Returns
    -------
    Recordings
    """
    arrays = [np.asarray(part, dtype=np.float32) for part in parts]
    arrays = [array if array.ndim == 3 else array[None] for array in arrays]
    ends = np.cumsum([array.shape[1] for array in arrays])
    starts = [np.arange(end - array.shape[1], end - window + 1) for end, array in zip(ends, arrays, strict=True)]
    return Recordings(torch.from_numpy(np.concatenate(arrays, axis=1)), torch.from_numpy(np.concatenate(starts)))


class Masked(Task):
    """Base class of tasks in which a model predicts hidden channels from visible ones.

    There may be several worlds (independent realizations of the data). A member (model) with seed s uses world s modulo
    the number of worlds. A confidence interval over seeds therefore includes the variation between worlds.

    Parameters
    ----------
    splits : mapping of str to Recordings
        Splits of the data by name. One of them is "train".
    window : int
        Number of time points of an example.
    eval_mask_ratios : sequence of float
        Fractions of hidden channels at evaluation. The fraction in training is the field `mask_ratio` of a member.
    seed : int
        Seed of the hidden channels at evaluation.
    """

    readout = "token"
    pooled = False
    stochastic_batches = True
    options: Mapping[str, Any] = {}
    """Settings of the data, which are added to the dict that `describe` returns."""
    partner: np.ndarray | None = None
    """Index of the mirror region of each brain region, (n,), -1 if it has none; None if channels are not regions."""
    partitions: Mapping[str, Partition] = {}
    """Known networks of brain regions, with which PEs are compared, by name of the partition, such as "yeo7"."""

    def __init__(
        self,
        splits: Mapping[str, Recordings],
        window: int = 1,
        eval_mask_ratios: Sequence[float] = (0.5, 0.9),
        seed: int = 0,
    ) -> None:
        tokens = splits["train"].inputs.shape[-1]
        whole_number("window", window, 1)
        for ratio in eval_mask_ratios:
            masked_count(ratio, tokens)
        if not eval_mask_ratios or len(set(eval_mask_ratios)) < len(eval_mask_ratios):
            raise must_be(
                "eval_mask_ratios", "different shares of hidden channels, one at least", tuple(eval_mask_ratios)
            )
        self.splits, self.window, self.outputs = dict(splits), window, window
        self.eval_mask_ratios = tuple(float(ratio) for ratio in eval_mask_ratios)
        self.conditions = tuple(f"hidden {ratio:g}" for ratio in self.eval_mask_ratios)
        self.seed = int(seed)
        self._evaluation_keys = {name: random.keys_for([seed], f"hidden in {name}") for name in splits}
        self._keys = self._world = self._count = self._ramp = torch.empty(0)

    @property
    def tokens(self) -> int:
        return int(self.splits["train"].inputs.shape[-1])

    @property
    def features(self) -> int:
        return self.window + 1

    @property
    def worlds(self) -> int:
        return int(self.splits["train"].inputs.shape[0])

    def to(self, device: torch.device | str, dtype: torch.dtype = torch.float32) -> Self:
        moved = super().to(device, dtype)
        moved._evaluation_keys = {name: key.to(device) for name, key in self._evaluation_keys.items()}
        return moved

    def first(self, count: int) -> Self:
        short = copy.copy(self)
        short.splits = {name: replace(split, targets=split.targets[:count]) for name, split in self.splits.items()}
        return short

    def bind(self, members: Sequence[MemberLike]) -> Self:
        """Return a copy of the task for the members of a stack (models that are trained together).

        In its batches, each member has its own world, random numbers and number of hidden channels.
        """
        bound = copy.copy(self)
        device = self.splits["train"].inputs.device
        seeds = [member.seed for member in members]
        bound._keys = random.keys_for(seeds, "hidden").to(device)
        bound._world = torch.tensor([seed % self.worlds for seed in seeds], device=device)
        bound._count = torch.tensor([masked_count(member.mask_ratio, self.tokens) for member in members], device=device)
        bound._ramp = torch.tensor([max(member.ramp, 1) for member in members], device=device)
        return bound

    def examples(self, split: str) -> int:
        """Return the number of examples of a split that are evaluated: all, or at most the first 2048 of "train"."""
        return min(len(self.splits[split]), MAX_TRAINING_EXAMPLES) if split == "train" else len(self.splits[split])

    def row_count(self, split: str) -> int:
        """Return the number of rows of an evaluation: each example once for each of the `eval_mask_ratios`."""
        return self.examples(split) * len(self.eval_mask_ratios)

    def row_conditions(self, split: str) -> Sequence[str]:
        """Return the condition of each row of an evaluation: its fraction of hidden channels, such as "hidden 0.5"."""
        return [name for name in self.conditions for _ in range(self.examples(split))]

    def batch(self, split: str, rows: Tensor, step: int | Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of a batch, with some channels hidden. The task must be bound to members (`bind`).

        Parameters
        ----------
        split : str
        rows : Tensor of int64, shape (e, b)
            In training, indices of examples. At evaluation, indices of pairs of an example and a fraction of hidden
            channels, below `row_count`.
        step : int or Tensor, optional
            Training step. Together with the settings of the member, it determines the hidden channels. None at
            evaluation.

        Returns
        -------
        inputs : Tensor, shape (e, b, n, w + 1)
            The values in a window of w time points, zero if the channel is hidden, then the mark, 1 if it is hidden.
        targets : Tensor, shape (e, b, n, w + 1)
            The true values, then the same mark.
        """
        values = self.values(split, rows % self.examples(split) if step is None else rows)  # (e, b, n, w)
        e, b, n, _ = values.shape
        if step is None:
            mask_scores = self.mask_scores(split, rows).view(e, b, n)
            counts_by_ratio = [masked_count(ratio, n) for ratio in self.eval_mask_ratios]
            counts = torch.tensor(counts_by_ratio, device=rows.device)[rows // self.examples(split)]  # (e, b)
        else:
            mask_scores = random.bits(self._keys, step, b * n).view(e, b, n)
            ramp_step = torch.minimum(self._ramp, torch.zeros_like(self._ramp) + step + 1)
            counts = (1 + (self._count - 1) * ramp_step // self._ramp)[:, None].expand(e, b)
        # hide the `counts` channels with the lowest random numbers
        threshold = mask_scores.sort(dim=-1).values.gather(-1, (counts - 1)[..., None])
        mark = (mask_scores <= threshold).to(values.dtype)[..., None]
        return torch.cat([values * (1 - mark), mark], -1), torch.cat([values, mark], -1)

    def mask_scores(self, split: str, rows: Tensor) -> Tensor:
        """Return a random integer for each channel of each row of an evaluation, (e, b * n).

        `rows`, (e, b), are the indices of the rows. The channels with the lowest integers of a row are hidden. The
        integers do not depend on the member.
        """
        index = rows[..., None] * self.tokens + torch.arange(self.tokens, device=rows.device)  # (e, b, n)
        return random.bits_at(self._evaluation_keys[split].expand(len(rows)), 0, index.flatten(1))

    def values(self, split: str, rows: Tensor) -> Tensor:
        """Return the values of all channels, (e, b, n, w), in windows of w time points, for examples `rows`, (e, b)."""
        data = self.splits[split]
        times = data.targets[rows][..., None] + torch.arange(self.window, device=rows.device)
        return data.inputs[self._world[:, None, None], times].mT

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Compute the mean squared error of the hidden values of a batch, (e,), one number per member."""
        errors, mark = self._errors(outputs, targets)
        return errors.sum((1, 2, 3)) / (mark.sum((1, 2, 3)) * self.window)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Compute "mse", the mean squared error of the hidden values, for each member and row, (e, b)."""
        errors, mark = self._errors(outputs, targets)
        return {"mse": errors.sum((2, 3)) / (mark.sum((2, 3)) * self.window)}

    @staticmethod
    def _errors(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return squared errors, (e, b, n, w), 0 for visible channels, and a mark, (e, b, n, 1), 1 for hidden ones."""
        mark = targets[..., -1:]
        return (outputs - targets[..., :-1]).square() * mark, mark

    def describe(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        for split in self.splits.values():
            digest.update(split.inputs.cpu().numpy().tobytes())
            digest.update(split.targets.cpu().numpy().tobytes())
        return {
            "task": self.name,
            "tokens": self.tokens,
            "worlds": self.worlds,
            "window": self.window,
            "eval_mask_ratios": list(self.eval_mask_ratios),
            "seed": self.seed,
            "counts": {name: len(split) for name, split in self.splits.items()},
            "names": list(self.token_names),
            "labels": None if self.labels is None else self.labels.tolist(),
            "sha256": digest.hexdigest(),
            **self.options,
        }


def masked_count(ratio: float, tokens: int) -> int:
    """Return how many of `tokens` channels are hidden if the fraction is `ratio`: at least one, never all.

    >>> masked_count(0.5, 10), masked_count(0.99, 10)
    (5, 9)
    """
    if not 0 < ratio < 1:
        raise must_be("the share of hidden channels", "a number above 0 and below 1", ratio)
    return min(max(1, round(ratio * tokens)), tokens - 1)
