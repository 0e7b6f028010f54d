"""Masked prediction on a table of samples and channels provided by the user.

>>> values = np.random.default_rng(0).normal(size=(1_000, 6)).astype("float32")
>>> task = tables(values)["all"]
>>> task.tokens, {name: len(split) for name, split in task.splits.items()}
(6, {'train': 600, 'validation': 200, 'test': 200})

Values may be missing (NaN). Inputs represent a missing value like a hidden one, but it is never predicted. A channel
may be categorical. Its token is then a one-hot vector, centred and scaled so that predicting the frequency of each
value has an error of 1, like predicting the mean of a number. The table may be a memory-mapped file. Samples are read
and standardized when they are needed.

There are three tasks on one table: with "all" training samples, and with the first or the second half of them. Results
that agree between the halves do not depend on single samples.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from placecode import random
from placecode.errors import BadInput
from placecode.tasks.base import Pupil
from placecode.tasks.columns import Columns, Values, chunks, column_statistics, usable_samples, warn_of_copies
from placecode.tasks.masked import Masked, Recordings
from placecode.tasks.splits import AUTOCORRELATION_SAMPLES, autocorrelation_length, cut, split_samples, whole_groups

PARTS = ("all", "first half", "second half")
"""Names of the three tasks on a table, which differ in their training samples."""
HELD_OUT = ("validation", "test")
MIN_EXAMPLES, MAX_EXAMPLES = 200, 1_000  # range of the number of evaluated examples of a held-out split
EVALUATED_VALUES = 100_000  # number of values, examples times channels, to evaluate within that range
TRAINING_EXAMPLES = 200  # number of evaluated examples of the training split
MIN_SAMPLES = 2  # smallest number of samples in each split


class Table(Masked):
    """Masked prediction on a table of values, (T, m). Only values that are not missing are hidden.

    `columns` are the n channels, and `parts` the indices of the samples of each split.
    """

    name = "table"
    memory: int = 0
    """Autocorrelation length of the channels, in samples."""
    pieces: npt.NDArray[np.int64] | None = None
    """Index of the group or block of each sample, (T,), or of its group within a block. -1 for unusable samples."""

    def __init__(
        self,
        values: Values,
        columns: Columns,
        parts: Mapping[str, npt.NDArray[np.int64]],
        ratios: Sequence[float] = (0.3,),
        seed: int = 0,
    ) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # it is only read
            data = torch.from_numpy(values)[None]
        splits = {name: Recordings(data, torch.from_numpy(rows)) for name, rows in parts.items()}
        super().__init__(splits, 1, ratios, seed)
        self.columns, self.outputs = columns, columns.width
        self._kept = torch.from_numpy(columns.kept)
        self._levels = torch.from_numpy(columns.levels)
        self._shift, self._scale = torch.from_numpy(columns.shift), torch.from_numpy(columns.scale)
        self.used = torch.from_numpy(columns.used)

    @property
    def tokens(self) -> int:
        return len(self.columns.kept)

    @property
    def features(self) -> int:
        return self.columns.width + 1

    def to(self, device: torch.device | str, dtype: torch.dtype = torch.float32) -> Self:
        moved = super().to(device, dtype)
        for name in ("_kept", "_levels", "used", "_share"):
            setattr(moved, name, getattr(self, name).to(device))
        for name in ("_shift", "_scale"):
            setattr(moved, name, getattr(self, name).to(device, dtype))
        return moved

    def bind(self, members: Sequence[Pupil]) -> Self:
        bound = super().bind(members)
        shares = [member.hidden for member in members]
        bound._share = torch.tensor(shares, device=self._kept.device, dtype=torch.float64)
        return bound

    _share: Tensor = torch.empty(0)

    def examples(self, split: str) -> int:
        held_out = min(MAX_EXAMPLES, max(MIN_EXAMPLES, EVALUATED_VALUES // self.tokens))
        return min(len(self.splits[split]), TRAINING_EXAMPLES if split == "train" else held_out)

    def batch(self, split: str, rows: Tensor, step: int | Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the examples of a batch, as in `Masked.batch`.

        Inputs, (e, b, n, w + 1), are the values, zero if hidden or missing, and a mark, which is 1 if hidden or
        missing. Targets have the same shape: the true values and a mark, which is 1 if hidden.
        """
        if step is None:
            examples, dice = self.examples(split), self.dice(split, rows)
            share = torch.tensor(self.ratios, device=rows.device, dtype=torch.float64)[rows // examples]  # (e, b)
            rows = rows % examples * len(self.splits[split]) // examples  # evenly spaced in the split
        else:
            share = self._share[:, None].expand(rows.shape)
            dice = random.bits(self._keys, step, rows.shape[1] * self.tokens)
        return self.ask(self.raw(split, rows), dice.view(*rows.shape, self.tokens), share)

    def ask(self, raw: Tensor, dice: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        """Hide channels of samples, (..., n), with the lowest random numbers, at least one and never all known ones.

        `share`, (...), is the fraction of the known values to hide. Returns inputs and targets, (..., n, w + 1), as in
        `batch`.
        """
        values, known = self.standard(raw)
        dice = torch.where(known, dice, torch.iinfo(dice.dtype).max)
        known_count = known.sum(-1)
        hidden_count = torch.minimum((share * known_count).round().clamp(min=1), (known_count - 1).clamp(min=1)).long()
        threshold = dice.sort(dim=-1).values.gather(-1, (hidden_count - 1)[..., None])
        hidden = (dice <= threshold) & known
        shown = (known & ~hidden).to(values.dtype)[..., None]
        return torch.cat([values * shown, 1 - shown], -1), torch.cat([values, hidden.to(values.dtype)[..., None]], -1)

    def raw(self, split: str, rows: Tensor) -> Tensor:
        """Return the channels of examples `rows`, (...), as in the table: (..., n)."""
        data = self.splits[split]
        return data.inputs[0][data.targets[rows]][..., self._kept]

    def standard(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Standardize samples, (..., n): values, (..., n, w), zero if missing, and whether they are known, (..., n)."""
        known = ~raw.isnan()
        value = raw.nan_to_num()[..., None]
        if self.columns.width > 1:
            levels = torch.arange(self.columns.width, device=raw.device)
            value = torch.where(self._levels[:, None] > 0, (value == levels).to(raw.dtype), value)
        value = (value - self._shift) / self._scale
        return value * (self.used & known[..., None]).to(raw.dtype), known

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        errors, hidden = self.wrong(outputs, targets)
        return errors.sum((1, 2)) / hidden.sum((1, 2)).clamp(min=1)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        errors, hidden = self.wrong(outputs, targets)
        return {"mse": errors.sum(2) / hidden.sum(2).clamp(min=1)}

    def wrong(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return squared errors, (e, b, n), zero for visible channels, and a mark, (e, b, n), 1 for hidden ones."""
        hidden = targets[..., -1]
        return ((outputs - targets[..., :-1]).square() * self.used).sum(-1) * hidden, hidden

    def describe(self) -> dict[str, Any]:
        return {
            "task": self.name,
            "tokens": self.tokens,
            "left out": [
                int(i) for i in np.setdiff1d(np.arange(self.splits["train"].inputs.shape[-1]), self.columns.kept)
            ],
            "categories": int((self.columns.levels > 0).sum()),
            "ratios": list(self.ratios),
            "seed": self.seed,
            "counts": {name: len(split) for name, split in self.splits.items()},
            "names": list(self.token_names),
            "labels": None if self.labels is None else self.labels.tolist(),
            "sha256": self.digest,
        }

    @cached_property
    def digest(self) -> str:
        """SHA-256 hash of the values of the table and of the samples of each split."""
        digest = hashlib.sha256()
        values = self.splits["train"].inputs[0].cpu().numpy()
        for part in chunks(values):
            digest.update(np.ascontiguousarray(part).tobytes())
        for split in self.splits.values():
            digest.update(split.targets.cpu().numpy().tobytes())
        return digest.hexdigest()


def tables(
    values: Values,
    *,
    names: Sequence[str] | None = None,
    categories: Mapping[int, Sequence[str]] | None = None,
    groups: npt.ArrayLike | None = None,
    labels: npt.ArrayLike | None = None,
    positions: npt.ArrayLike | None = None,
    ratios: Sequence[float] = (0.3,),
    seed: int = 0,
) -> dict[str, Table]:
    """Return three tasks on a table, with "all" training samples, the "first half" and the "second half" of them.

    `values`, (T, m), has NaN for missing values and codes for categories. `categories` are the values of categorical
    columns, `groups` the group of each sample, and `labels` and `positions` known groups and positions of the columns.
    The tasks share the table and the held-out samples. Columns that do not vary or are always missing are left out,
    with a warning.
    """
    column_names = tuple(names) if names is not None else tuple(f"channel {i + 1}" for i in range(values.shape[1]))
    usable = usable_samples(values)
    codes = None if groups is None else np.asarray(groups)[usable]
    spaced = usable[:: max(1, len(usable) // AUTOCORRELATION_SAMPLES)] if codes is not None else usable
    memory = max(autocorrelation_length(values[rows[:AUTOCORRELATION_SAMPLES]]) for rows in (usable, spaced))
    if codes is not None and not whole_groups(codes):  # samples of one group may be far apart in the table
        for code in np.unique(codes):
            members = np.flatnonzero(codes == code)[:AUTOCORRELATION_SAMPLES]
            spacing = (members[-1] - members[0]) / max(len(members) - 1, 1)
            memory = max(memory, round(spacing * autocorrelation_length(values[usable[members]])))
    parts = split_samples(len(usable), codes, memory, seed)
    parts = {name: usable[rows] for name, rows in parts.items()}
    pieces = np.full(len(values), -1, dtype=np.int64)
    for number, piece in enumerate(cut(len(usable), codes)):
        pieces[usable[piece]] = number
    if codes is not None:
        _, group_index = np.unique(codes, return_inverse=True)
        pieces[usable] = pieces[usable] * (group_index.max() + 1) + group_index
    _check_sizes(parts, len(values), len(usable))
    columns = column_statistics(values, parts["train"], column_names, categories or {})
    warn_of_copies(values, parts["train"], np.concatenate([parts[name] for name in HELD_OUT]), columns)
    if len(columns.kept) < values.shape[1]:  # samples with fewer than two values in the remaining channels are unusable
        usable = usable_samples(values, columns.kept)
        parts = {name: np.intersect1d(rows, usable) for name, rows in parts.items()}
        _check_sizes(parts, len(values), len(usable))
    tasks = {}
    for name in PARTS:
        rows = {"train": parts["train" if name == "all" else name], **{part: parts[part] for part in HELD_OUT}}
        task = Table(values, columns, rows, ratios, seed)
        task.token_names = tuple(column_names[i] for i in columns.kept)
        task.memory, task.pieces = memory, pieces
        task.labels = None if labels is None else np.asarray(labels)[columns.kept]
        task.positions = None if positions is None else np.asarray(positions, dtype=np.float64)[columns.kept]
        tasks[name] = task
    return tasks


def _check_sizes(parts: Mapping[str, npt.NDArray[np.int64]], samples: int, usable: int) -> None:
    """Raise `BadInput` if a split has too few samples."""
    fewest = min(len(parts[name]) for name in ("train", *HELD_OUT))
    if fewest < MIN_SAMPLES:
        raise BadInput(
            f"the table must have enough samples to learn from and to hold out, {MIN_SAMPLES} of each at least; of "
            f"its {samples}, {usable} can be used and {fewest} are left for one of them."
        )
