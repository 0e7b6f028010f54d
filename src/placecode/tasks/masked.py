"""Masked prediction: tokens are channels, some are hidden, and a model predicts them from the rest.

A token is the value of a channel at one time, or a short window of values, and a mark that says whether it is hidden.
Hidden values are shown as zero, the mean of standardized data. The loss counts hidden channels alone.

In training every member hides other channels in every example, drawn from its own seed (`random`). At evaluation the
hidden channels belong to the example, so that all members answer the same questions. Every example is evaluated at
several shares of hidden channels, and results are reported for each of them.
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

MOST_OF_TRAINING = 2048
"""Examples of the training set that are evaluated."""


@dataclass(frozen=True)
class Recordings(Split):
    """Recordings of n channels in g worlds: `inputs` (g, T, n), and `targets` (N,), the times at which a window may
    begin: those from which it does not cross from one recording into the next."""

    def __len__(self) -> int:
        return len(self.targets)


def recordings(parts: Sequence[np.ndarray], window: int = 1) -> Recordings:
    """Recordings (g, T, n) or (T, n) one after the other, with the windows that lie within one of them."""
    arrays = [np.asarray(part if np.ndim(part) == 3 else np.asarray(part)[None], dtype=np.float32) for part in parts]
    ends = np.cumsum([array.shape[1] for array in arrays])
    starts = [np.arange(end - array.shape[1], end - window + 1) for end, array in zip(ends, arrays, strict=True)]
    return Recordings(torch.from_numpy(np.concatenate(arrays, axis=1)), torch.from_numpy(np.concatenate(starts)))


class Masked(Task):
    """Base class of masked prediction. Subclasses hand over `splits` of Recordings, "train" among them.

    `ratios` are the shares of hidden channels at evaluation. A member's own share in training is `Member.hidden`. There
    may be several worlds, data of the same kind drawn anew: a member with seed s lives in world s modulo their number,
    so that an interval over seeds is one over worlds too.
    """

    readout = "token"
    pooled = False
    drawn_anew = True

    def __init__(
        self, splits: Mapping[str, Recordings], window: int = 1, ratios: Sequence[float] = (0.5, 0.9), seed: int = 0
    ) -> None:
        tokens = splits["train"].inputs.shape[-1]
        if not isinstance(window, int) or window < 1:
            raise must_be("window", "a whole number of at least 1", window)
        for ratio in ratios:
            hidden_of(ratio, tokens)
        if not ratios or len(set(ratios)) < len(ratios):
            raise must_be("ratios", "different shares of hidden channels, one at least", tuple(ratios))
        self.splits, self.window, self.outputs = dict(splits), window, window
        self.ratios = tuple(float(ratio) for ratio in ratios)
        self.conditions = tuple(f"hidden {ratio:g}" for ratio in self.ratios)
        self.seed = int(seed)
        self._asked = {name: random.keys_for([seed], f"hidden in {name}") for name in splits}
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
        moved._asked = {name: key.to(device) for name, key in self._asked.items()}
        for name in ("_keys", "_world", "_count", "_ramp"):
            setattr(moved, name, getattr(self, name).to(device))
        return moved

    def first(self, count: int) -> Self:
        short = copy.copy(self)
        short.splits = {name: replace(split, targets=split.targets[:count]) for name, split in self.splits.items()}
        return short

    def bind(self, members: Sequence[Pupil]) -> Self:
        """The task as these members meet it: each with its own world, its own share of hidden channels, from when on,
        and its own draws of them."""
        bound = copy.copy(self)
        device = self.splits["train"].inputs.device
        seeds = [member.seed for member in members]
        bound._keys = random.keys_for(seeds, "hidden").to(device)
        bound._world = torch.tensor([seed % self.worlds for seed in seeds], device=device)
        bound._count = torch.tensor([hidden_of(member.hidden, self.tokens) for member in members], device=device)
        bound._ramp = torch.tensor([max(member.ramp, 1) for member in members], device=device)
        return bound

    def examples(self, split: str) -> int:
        """How many examples of a split are evaluated: of a long training set the first ones tell enough."""
        return min(len(self.splits[split]), MOST_OF_TRAINING) if split == "train" else len(self.splits[split])

    def rows(self, split: str) -> int:
        """How many questions a split holds at evaluation: every example, at every share of hidden channels."""
        return self.examples(split) * len(self.ratios)

    def condition(self, split: str) -> Sequence[str]:
        return [name for name in self.conditions for _ in range(self.examples(split))]

    def batch(self, split: str, rows: Tensor, step: int | Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Inputs (e, b, n, w + 1): the values, zero where hidden, and the mark. Targets alike, nothing hidden.

        `step` is given in training: rows are examples, and it decides with the member's seed which channels are hidden.
        At evaluation rows are questions, see `rows`.
        """
        if step is None:
            questions, (kind, rows) = rows, (rows // self.examples(split), rows % self.examples(split))
        values = self.values(split, rows)  # (e, b, n, w)
        e, b, n, _ = values.shape
        if step is None:
            places = questions[..., None] * n + torch.arange(n, device=rows.device)
            dice = random.bits_at(self._asked[split].expand(e), 0, places.flatten(1)).view(e, b, n)
            counts = torch.tensor([hidden_of(ratio, n) for ratio in self.ratios], device=rows.device)[kind]  # (e, b)
        else:
            dice = random.bits(self._keys, step, b * n).view(e, b, n)
            grown = torch.minimum(self._ramp, torch.zeros_like(self._ramp) + step + 1)
            counts = (1 + (self._count - 1) * grown // self._ramp)[:, None].expand(e, b)
        bar = dice.sort(dim=-1).values.gather(-1, (counts - 1)[..., None])
        mark = (dice <= bar).to(values.dtype)[..., None]
        return torch.cat([values * (1 - mark), mark], -1), torch.cat([values, mark], -1)

    def values(self, split: str, rows: Tensor) -> Tensor:
        """The windows of all channels that begin at these examples (e, b): (e, b, n, w)."""
        data = self.splits[split]
        times = data.targets[rows][..., None] + torch.arange(self.window, device=rows.device)
        return data.inputs[self._world[:, None, None], times].mT

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean squared error of what was hidden, (e,)."""
        errors, mark = self._errors(outputs, targets)
        return errors.sum((1, 2, 3)) / (mark.sum((1, 2, 3)) * self.window)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """`mse` of what was hidden, for each member and question, (e, b)."""
        errors, mark = self._errors(outputs, targets)
        return {"mse": errors.sum((2, 3)) / (mark.sum((2, 3)) * self.window)}

    @staticmethod
    def _errors(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
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
        }


def hidden_of(ratio: float, tokens: int) -> int:
    """How many of the channels a share of hidden ones means: one at least, and never all."""
    if not 0 < ratio < 1:
        raise must_be("the share of hidden channels", "a number above 0 and below 1", ratio)
    return min(max(1, round(ratio * tokens)), tokens - 1)
