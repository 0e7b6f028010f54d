"""Masked prediction on a user's table: rows are samples, and the model predicts hidden columns from visible ones.

>>> values = np.random.default_rng(0).normal(size=(1_000, 6)).astype("float32")
>>> task = table_tasks(values)["all"]
>>> task.tokens, {name: len(split) for name, split in task.splits.items()}
(6, {'train': 600, 'validation': 200, 'test': 200})

Values may be missing (NaN). In the inputs, a missing value looks like a hidden one, but it is not part of the loss. A
channel may be categorical. Its token is then a one-hot vector, centred and scaled. It is scaled such that always
predicting the frequencies of its words has a mean squared error of 1, like always predicting the mean of a numerical
channel. The table may be a memory-mapped file. Samples are read and standardized when they are needed.

`table_tasks` returns three tasks on one table: with "all" training samples, and with the first or the second half of
them. A result that agrees between the halves does not depend on single samples.
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
from placecode.tasks.base import MemberLike
from placecode.tasks.columns import Columns, Values, chunks, column_statistics, usable_samples, warn_of_copies
from placecode.tasks.masked import Masked, Recordings
from placecode.tasks.splits import (
    AUTOCORRELATION_SAMPLES,
    autocorrelation_length,
    exchange_blocks,
    has_enough_groups,
    split_samples,
)

DATA_SETS = ("all", "first half", "second half")
"""Names of the three tasks on a table, which differ in their training samples. They are values of `Member.data`."""
HELD_OUT_SPLITS = ("validation", "test")  # splits that are not used for training
MIN_EXAMPLES, MAX_EXAMPLES = 200, 1_000  # limits of the number of examples of a held-out split that are evaluated
EVALUATED_VALUES = 100_000  # number of values (examples times channels) to evaluate, within these limits
MAX_TRAINING_EXAMPLES = 200  # maximum number of examples of the training split that are evaluated
MIN_SAMPLES = 2  # smallest number of samples in each split


class TableTask(Masked):
    """Masked prediction on a user's table. Missing values are never hidden. `table_tasks` creates the tasks.

    `values`, (T, m), is the table of T samples and m columns, as in `table_tasks`. `columns` says which n of its
    columns are channels, and how they are standardized. `rows_by_split` has the indices of the samples in each split.
    `eval_mask_ratios` and `seed` are parameters of `Masked`.
    """

    name = "table"
    autocorrelation_length: int = 0
    """Number of samples over which channels are correlated in time, see `splits.autocorrelation_length`."""
    exchange_blocks: npt.NDArray[np.int64] | None = None
    """Index of the block to which each sample belongs, (T,), -1 for unusable samples. Samples of a block may depend on
    each other. Permutation tests shift samples within blocks only. A block is a group or a stretch of consecutive
    samples (`splits.exchange_blocks`). A stretch that contains several groups is divided into one block per group."""

    def __init__(
        self,
        values: Values,
        columns: Columns,
        rows_by_split: Mapping[str, npt.NDArray[np.int64]],
        eval_mask_ratios: Sequence[float] = (0.3,),
        seed: int = 0,
    ) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # it is only read
            data = torch.from_numpy(values)[None]
        splits = {name: Recordings(data, torch.from_numpy(rows)) for name, rows in rows_by_split.items()}
        super().__init__(splits, 1, eval_mask_ratios, seed)
        self.columns, self.outputs = columns, columns.width
        self._indices = torch.from_numpy(columns.indices)
        self._levels = torch.from_numpy(columns.levels)
        self._shift, self._scale = torch.from_numpy(columns.shift), torch.from_numpy(columns.scale)
        self.used = torch.from_numpy(columns.used)

    @property
    def tokens(self) -> int:
        return len(self.columns.indices)

    @property
    def features(self) -> int:
        return self.columns.width + 1

    def to(self, device: torch.device | str, dtype: torch.dtype = torch.float32) -> Self:
        moved = super().to(device, dtype)
        moved._shift, moved._scale = self._shift.to(device, dtype), self._scale.to(device, dtype)
        return moved

    def bind(self, members: Sequence[MemberLike]) -> Self:
        bound = super().bind(members)
        mask_ratios = [member.mask_ratio for member in members]
        bound._mask_ratio = torch.tensor(mask_ratios, device=self._indices.device, dtype=torch.float64)
        return bound

    _mask_ratio: Tensor = torch.empty(0)  # fraction of the values to hide in training, for each member, (e,)

    def examples(self, split: str) -> int:
        """Return the number of examples of a split that are evaluated. They are evenly spaced in the split."""
        limit = min(MAX_EXAMPLES, max(MIN_EXAMPLES, EVALUATED_VALUES // self.tokens))
        return min(len(self.splits[split]), MAX_TRAINING_EXAMPLES if split == "train" else limit)

    def batch(self, split: str, rows: Tensor, step: int | Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of a batch, with some channels hidden. The parameters are those of `Masked.batch`.

        Inputs, (e, b, n, w + 1), are the w values of each token, zero if hidden or missing, then a mark, which is 1 if
        hidden or missing. Targets, (e, b, n, w + 1), are the true values, then a mark, which is 1 if hidden.
        """
        if step is None:
            examples, mask_scores = self.examples(split), self.mask_scores(split, rows)
            mask_ratios = torch.tensor(self.eval_mask_ratios, device=rows.device, dtype=torch.float64)
            mask_ratio = mask_ratios[rows // examples]  # (e, b)
            rows = rows % examples * len(self.splits[split]) // examples  # evenly spaced in the split
        else:
            mask_ratio = self._mask_ratio[:, None].expand(rows.shape)
            mask_scores = random.bits(self._keys, step, rows.shape[1] * self.tokens)
        return self.hide(self.raw_values(split, rows), mask_scores.view(*rows.shape, self.tokens), mask_ratio)

    def hide(self, raw: Tensor, mask_scores: Tensor, mask_ratio: Tensor) -> tuple[Tensor, Tensor]:
        """Hide some of the n channels of samples, and return inputs and targets, (..., n, w + 1), as in `batch`.

        `raw`, (..., n), are samples as in the table. `mask_ratio`, (...), is the fraction of each sample's values to
        hide, not counting missing ones. At least one is hidden, and never all if there are two or more. `mask_scores`,
        (..., n), are random integers. The channels with the lowest scores are hidden.
        """
        values, present = self.standardize(raw)
        mask_scores = torch.where(present, mask_scores, torch.iinfo(mask_scores.dtype).max)
        count = present.sum(-1)
        hidden_count = torch.minimum((mask_ratio * count).round().clamp(min=1), (count - 1).clamp(min=1)).long()
        threshold = mask_scores.sort(dim=-1).values.gather(-1, (hidden_count - 1)[..., None])
        hidden = (mask_scores <= threshold) & present
        visible = (present & ~hidden).to(values.dtype)[..., None]
        inputs = torch.cat([values * visible, 1 - visible], -1)
        return inputs, torch.cat([values, hidden.to(values.dtype)[..., None]], -1)

    def raw_values(self, split: str, rows: Tensor) -> Tensor:
        """Return the values of examples as in the table, (..., n): NaN if missing, codes for categorical channels.

        `rows`, (...), are indices of the examples in the split.
        """
        data = self.splits[split]
        return data.inputs[0][data.targets[rows]][..., self._indices]

    def standardize(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Standardize samples with the means and standard deviations of the training samples.

        `raw`, (..., n), are samples as in the table. Returns the w values of each token, (..., n, w), zero if missing,
        and whether each channel is present (not missing), (..., n). w is 1 unless there are categorical channels.
        """
        present = ~raw.isnan()
        value = raw.nan_to_num()[..., None]
        if self.columns.width > 1:
            levels = torch.arange(self.columns.width, device=raw.device)
            value = torch.where(self._levels[:, None] > 0, (value == levels).to(raw.dtype), value)
        value = (value - self._shift) / self._scale
        return value * (self.used & present[..., None]).to(raw.dtype), present

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Compute the mean squared error of the hidden channels of a batch, (e,), one number per member."""
        errors, hidden = self.squared_errors(outputs, targets)
        return errors.sum((1, 2)) / hidden.sum((1, 2)).clamp(min=1)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Compute "mse", the mean squared error of the hidden channels, for each member and row, (e, b)."""
        errors, hidden = self.squared_errors(outputs, targets)
        return {"mse": errors.sum(2) / hidden.sum(2).clamp(min=1)}

    def squared_errors(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the squared error of each channel, (e, b, n), zero if it is not hidden, and a mark, (e, b, n).

        The mark is 1 if the channel is hidden. The error of a categorical channel is summed over its one-hot vector.
        """
        hidden = targets[..., -1]
        return ((outputs - targets[..., :-1]).square() * self.used).sum(-1) * hidden, hidden

    def describe(self) -> dict[str, Any]:
        width = self.splits["train"].inputs.shape[-1]
        return {
            "task": self.name,
            "tokens": self.tokens,
            "left out": np.setdiff1d(np.arange(width), self.columns.indices).tolist(),
            "categories": int((self.columns.levels > 0).sum()),
            "eval_mask_ratios": list(self.eval_mask_ratios),
            "seed": self.seed,
            "counts": {name: len(split) for name, split in self.splits.items()},
            "names": list(self.token_names),
            "labels": None if self.labels is None else self.labels.tolist(),
            "sha256": self.digest,
        }

    @cached_property
    def digest(self) -> str:
        """SHA-256 hash of the values of the table and of the indices of the samples in each split."""
        digest = hashlib.sha256()
        values = self.splits["train"].inputs[0].cpu().numpy()
        for part in chunks(values):
            digest.update(np.ascontiguousarray(part).tobytes())
        for split in self.splits.values():
            digest.update(split.targets.cpu().numpy().tobytes())
        return digest.hexdigest()


def table_tasks(
    values: Values,
    *,
    names: Sequence[str] | None = None,
    categories: Mapping[int, Sequence[str]] | None = None,
    groups: npt.ArrayLike | None = None,
    labels: npt.ArrayLike | None = None,
    positions: npt.ArrayLike | None = None,
    eval_mask_ratios: Sequence[float] = (0.3,),
    seed: int = 0,
) -> dict[str, TableTask]:
    """Split a table, and return three tasks on it by name: "all", "first half" and "second half".

    The tasks differ in their training samples, and share the table and the held-out samples. Columns that do not vary
    or are always missing are left out, with a warning. Raises `BadInput` if there are too few samples.

    Parameters
    ----------
    values : ndarray of float32, shape (T, m)
        T samples of m columns, NaN if missing. Categories are codes, counted from 0.
    names : sequence of str, length m, optional
        Names of the columns.
    categories : mapping of int to sequence of str, optional
        Words of each categorical column, in the order of their codes, by index of the column.
    groups : array-like, shape (T,), optional
        Group (person, day) of each sample.
    labels : array-like of int, shape (m,), optional
        Known group of each column (not of samples).
    positions : array-like, shape (m, 2) or (m, 3), optional
        Known position of each column.
    eval_mask_ratios : sequence of float
        Fractions of hidden channels at evaluation.
    seed : int
        Seed of the splits and of the hidden channels at evaluation.
    """
    column_names = tuple(names) if names is not None else tuple(f"channel {i + 1}" for i in range(values.shape[1]))
    usable = usable_samples(values)
    codes = None if groups is None else np.asarray(groups)[usable]
    spaced = usable[:: max(1, len(usable) // AUTOCORRELATION_SAMPLES)] if codes is not None else usable
    length = max(autocorrelation_length(values[rows[:AUTOCORRELATION_SAMPLES]]) for rows in (usable, spaced))
    if codes is not None and not has_enough_groups(codes):  # samples of one group may be far apart in the table
        for code in np.unique(codes):
            members = np.flatnonzero(codes == code)[:AUTOCORRELATION_SAMPLES]
            spacing = (members[-1] - members[0]) / max(len(members) - 1, 1)
            length = max(length, round(spacing * autocorrelation_length(values[usable[members]])))
    parts = {name: usable[rows] for name, rows in split_samples(len(usable), codes, length, seed).items()}
    block_of = np.full(len(values), -1, dtype=np.int64)
    for index, rows in enumerate(exchange_blocks(len(usable), codes)):
        block_of[usable[rows]] = index
    if codes is not None:
        _, group_index = np.unique(codes, return_inverse=True)
        block_of[usable] = block_of[usable] * (group_index.max() + 1) + group_index
    _check_sizes(parts, len(values), len(usable))
    columns = column_statistics(values, parts["train"], column_names, categories or {})
    warn_of_copies(values, parts["train"], np.concatenate([parts[name] for name in HELD_OUT_SPLITS]), columns)
    if len(columns.indices) < values.shape[1]:  # samples need two values in the channels that remain
        usable = usable_samples(values, columns.indices)
        parts = {name: np.intersect1d(rows, usable) for name, rows in parts.items()}
        _check_sizes(parts, len(values), len(usable))
    tasks = {}
    for name in DATA_SETS:
        training_rows = parts["train" if name == "all" else name]
        rows_by_split = {"train": training_rows, **{split: parts[split] for split in HELD_OUT_SPLITS}}
        task = TableTask(values, columns, rows_by_split, eval_mask_ratios, seed)
        task.token_names = tuple(column_names[i] for i in columns.indices)
        task.autocorrelation_length, task.exchange_blocks = length, block_of
        task.labels = None if labels is None else np.asarray(labels)[columns.indices]
        task.positions = None if positions is None else np.asarray(positions, dtype=np.float64)[columns.indices]
        tasks[name] = task
    return tasks


def _check_sizes(parts: Mapping[str, npt.NDArray[np.int64]], samples: int, usable: int) -> None:
    """Raise `BadInput` if a split has too few samples. `usable` of the `samples` samples of the table can be used."""
    fewest = min(len(parts[name]) for name in ("train", *HELD_OUT_SPLITS))
    if fewest < MIN_SAMPLES:
        raise BadInput(
            f"the table must have enough samples to learn from and to hold out, {MIN_SAMPLES} of each at least; of "
            f"its {samples}, {usable} can be used and {fewest} are left for one of them."
        )
