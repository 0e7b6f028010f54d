"""Masked prediction: tokens are channels, some channels are hidden, and the model predicts them from the others.

The features of a token are the values of a channel in a window of time points and a mark, which is 1 if the channel is
hidden. Hidden values are replaced by zero, the mean of standardized data. The loss is computed for hidden channels
only.

In training, the hidden channels are drawn anew in every step, from the seed of the member. At evaluation they depend on
the example only, so that all members predict the same values. Every example is evaluated with several fractions of
hidden channels, and results are reported for each fraction.
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
from placecode.errors import must_be
from placecode.tasks.base import Pupil, Split, Task
from placecode.validation import whole_number

MAX_TRAINING_EXAMPLES = 2048  # maximum number of training examples that are evaluated


@dataclass(frozen=True)
class Recordings(Split):
    """Recordings of n channels in g worlds.

    `inputs` has shape (g, T, n). `targets`, (N,), are the time points at which a window can begin without crossing from
    one recording into the next.
    """

    def __len__(self) -> int:
        return len(self.targets)


def recordings(parts: Sequence[np.ndarray], window: int = 1) -> Recordings:
    """Concatenate recordings in time.

    Parameters
    ----------
    parts : sequence of ndarray, shape (g, T, n) or (T, n)
    window : int
        Number of time points of an example. No window crosses from one recording into the next.

    Returns
    -------
    Recordings
    """
    arrays = [np.asarray(part if np.ndim(part) == 3 else np.asarray(part)[None], dtype=np.float32) for part in parts]
    ends = np.cumsum([array.shape[1] for array in arrays])
    starts = [np.arange(end - array.shape[1], end - window + 1) for end, array in zip(ends, arrays, strict=True)]
    return Recordings(torch.from_numpy(np.concatenate(arrays, axis=1)), torch.from_numpy(np.concatenate(starts)))


class Masked(Task):
    """Base class of masked prediction.

    There may be several worlds, independent realizations of the data. A member with seed s uses world s modulo their
    number. A confidence interval over seeds therefore includes the variation between worlds.

    Parameters
    ----------
    splits : mapping of str to Recordings
        One of them is "train".
    window : int
        Number of time points of an example.
    ratios : sequence of float
        Fractions of hidden channels at evaluation. The fraction in training is `Member.hidden`.
    seed : int
        Seed of the hidden channels at evaluation.
    """

    readout = "token"
    pooled = False
    drawn_anew = True
    options: Mapping[str, Any] = {}
    """Settings of the data for the record of a run."""

    def __init__(
        self, splits: Mapping[str, Recordings], window: int = 1, ratios: Sequence[float] = (0.5, 0.9), seed: int = 0
    ) -> None:
        tokens = splits["train"].inputs.shape[-1]
        whole_number("window", window, 1)
        for ratio in ratios:
            hidden_of(ratio, tokens)
        if not ratios or len(set(ratios)) < len(ratios):
            raise must_be("ratios", "different shares of hidden channels, one at least", tuple(ratios))
        self.splits, self.window, self.outputs = dict(splits), window, window
        self.ratios = tuple(float(ratio) for ratio in ratios)
        self.conditions = tuple(f"hidden {ratio:g}" for ratio in self.ratios)
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
        for name in ("_keys", "_world", "_count", "_ramp"):
            setattr(moved, name, getattr(self, name).to(device))
        return moved

    def first(self, count: int) -> Self:
        short = copy.copy(self)
        short.splits = {name: replace(split, targets=split.targets[:count]) for name, split in self.splits.items()}
        return short

    def bind(self, members: Sequence[Pupil]) -> Self:
        """Return a copy with the world, the fraction of hidden channels, the ramp and the random keys of members."""
        bound = copy.copy(self)
        device = self.splits["train"].inputs.device
        seeds = [member.seed for member in members]
        bound._keys = random.keys_for(seeds, "hidden").to(device)
        bound._world = torch.tensor([seed % self.worlds for seed in seeds], device=device)
        bound._count = torch.tensor([hidden_of(member.hidden, self.tokens) for member in members], device=device)
        bound._ramp = torch.tensor([max(member.ramp, 1) for member in members], device=device)
        return bound

    def examples(self, split: str) -> int:
        """Return the number of evaluated examples of a split. Of a long training set, only the first are evaluated."""
        return min(len(self.splits[split]), MAX_TRAINING_EXAMPLES) if split == "train" else len(self.splits[split])

    def rows(self, split: str) -> int:
        """Return the number of evaluated rows of a split: every example with every fraction of hidden channels."""
        return self.examples(split) * len(self.ratios)

    def condition(self, split: str) -> Sequence[str]:
        return [name for name in self.conditions for _ in range(self.examples(split))]

    def batch(self, split: str, rows: Tensor, step: int | Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the examples of a batch.

        Parameters
        ----------
        split : str
        rows : Tensor of int64, shape (e, b)
            In training, indices of examples. At evaluation, indices of pairs of fraction and example, see `rows`.
        step : int or Tensor, optional
            Training step, which determines the hidden channels together with the member's seed. None at evaluation.

        Returns
        -------
        inputs : Tensor, shape (e, b, n, w + 1)
            The values, zero if hidden, and the mark.
        targets : Tensor, shape (e, b, n, w + 1)
            The true values and the mark.
        """
        if step is None:
            questions, (ratio_index, rows) = rows, (rows // self.examples(split), rows % self.examples(split))
        values = self.values(split, rows)  # (e, b, n, w)
        e, b, n, _ = values.shape
        if step is None:
            dice = self.dice(split, questions).view(e, b, n)
            hidden = torch.tensor([hidden_of(ratio, n) for ratio in self.ratios], device=rows.device)
            counts = hidden[ratio_index]  # (e, b)
        else:
            dice = random.bits(self._keys, step, b * n).view(e, b, n)
            ramp_step = torch.minimum(self._ramp, torch.zeros_like(self._ramp) + step + 1)
            counts = (1 + (self._count - 1) * ramp_step // self._ramp)[:, None].expand(e, b)
        # hide the channels with the lowest random numbers
        threshold = dice.sort(dim=-1).values.gather(-1, (counts - 1)[..., None])
        mark = (dice <= threshold).to(values.dtype)[..., None]
        return torch.cat([values * (1 - mark), mark], -1), torch.cat([values, mark], -1)

    def dice(self, split: str, questions: Tensor) -> Tensor:
        """Return random numbers, (e, b * n), for questions, (e, b), at evaluation. They are equal for all members."""
        index = questions[..., None] * self.tokens + torch.arange(self.tokens, device=questions.device)  # (e, b, n)
        return random.bits_at(self._evaluation_keys[split].expand(len(questions)), 0, index.flatten(1))

    def values(self, split: str, rows: Tensor) -> Tensor:
        """Return the windows of all channels, (e, b, n, w), of the examples `rows`, (e, b)."""
        data = self.splits[split]
        times = data.targets[rows][..., None] + torch.arange(self.window, device=rows.device)
        return data.inputs[self._world[:, None, None], times].mT

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Compute the mean squared error of the hidden values, (e,)."""
        errors, mark = self._errors(outputs, targets)
        return errors.sum((1, 2, 3)) / (mark.sum((1, 2, 3)) * self.window)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Compute `mse`, the mean squared error of the hidden values of each row, (e, b)."""
        errors, mark = self._errors(outputs, targets)
        return {"mse": errors.sum((2, 3)) / (mark.sum((2, 3)) * self.window)}

    @staticmethod
    def _errors(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the squared errors, (e, b, n, w), zero for visible channels, and the mark, (e, b, n, 1)."""
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
            "ratios": list(self.ratios),
            "seed": self.seed,
            "counts": {name: len(split) for name, split in self.splits.items()},
            "names": list(self.token_names),
            "labels": None if self.labels is None else self.labels.tolist(),
            "sha256": digest.hexdigest(),
            **self.options,
        }


def hidden_of(ratio: float, tokens: int) -> int:
    """Return the number of hidden channels for a fraction of them: at least one, and never all.

    >>> hidden_of(0.5, 10), hidden_of(0.99, 10)
    (5, 9)
    """
    if not 0 < ratio < 1:
        raise must_be("the share of hidden channels", "a number above 0 and below 1", ratio)
    return min(max(1, round(ratio * tokens)), tokens - 1)
