"""Statistics of a user's table: mean and standard deviation of each column, columns that do not vary, copied samples.

`tasks/table.py` standardizes the channels with them. The table may be a memory-mapped file, so all functions read it in
chunks of rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placecode.data.cells import quoted
from placecode.errors import BadInput
from placecode.tasks.splits import AUTOCORRELATION_SAMPLES

Values = npt.NDArray[np.float32]

VALUES_PER_CHUNK = 1 << 22  # maximum number of values that are read at once
MIN_EXTRA_BITS = 20
"""Margin, in bits, that prevents false warnings of copied samples. Copies are searched only if the entropy of a sample
exceeds by this margin the entropy at which one pair of samples of the table is expected to be equal by chance."""
TOO_LITTLE = "vary too little for their size, which may be taken off first"
"""Part of messages about channels with a standard deviation that is tiny relative to the mean."""
MIN_RELATIVE_DEVIATION = 1e-7
"""A numerical channel counts as constant if its standard deviation is at most this fraction of its absolute mean,
because such a variation can be due to rounding."""


@dataclass(frozen=True)
class Columns:
    """The n channels of a table, which are the columns that vary, and the numbers that standardize their values.

    In each sample, a numerical channel has one value, and a categorical channel has a one-hot vector. Both are padded
    to `width` values, the length of the longest vector. A standardized value is (value - shift) / scale.
    """

    indices: npt.NDArray[np.int64]  # index of each channel among the columns of the table, (n,)
    levels: npt.NDArray[np.int64]  # number of different values of a categorical channel, 0 for a numerical one, (n,)
    shift: Values
    """Mean of a numerical channel, or frequency of each value of a categorical one, in training samples, (n, width)."""
    scale: Values
    """Standard deviation of each channel in training samples, (n, width). For a categorical channel, this is the square
    root of the sum of the variances of all elements of the one-hot vector."""

    @property
    def width(self) -> int:
        """Number of values of a token: 1 if all channels are numerical, otherwise the largest number of categories."""
        return int(self.shift.shape[1])

    @property
    def used(self) -> npt.NDArray[np.bool_]:
        """Mask of the values of each token, (n, width), which is False where a value is only padding."""
        return np.arange(self.width) < np.maximum(self.levels, 1)[:, None]


def column_statistics(
    values: Values, train: npt.NDArray[np.int64], names: Sequence[str], categories: Mapping[int, Sequence[str]]
) -> Columns:
    """Return the columns of a table that vary in the training samples, with their means and standard deviations.

    Warns about the other columns, which are left out. `train` are the indices of the training samples. The other
    parameters are those of `table.table_tasks`. Raises `BadInput` if no column varies.
    """
    count = values.shape[1]
    levels = np.array([len(categories.get(i, ())) for i in range(count)], dtype=np.int64)
    present_counts, total, squares = (np.zeros(count) for _ in range(3))
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    offset, level_counts = np.zeros(count), np.zeros((count, int(levels.max(initial=0)) or 1))
    for part in chunks(values, train):
        present = ~np.isnan(part)
        if not present_counts.any():  # subtract a first mean, so that the squares of large numbers keep their precision
            offset = np.nanmean(np.where(present.any(axis=0), part, 0.0).astype(np.float64), axis=0)
        deviations = np.where(present, part - offset, 0.0)
        present_counts += present.sum(axis=0)
        total += deviations.sum(axis=0)
        squares += (deviations**2).sum(axis=0)
        low, high = np.fmin(low, np.fmin.reduce(part, axis=0)), np.fmax(high, np.fmax.reduce(part, axis=0))
        for column in np.flatnonzero(levels):
            codes = part[present[:, column], column].astype(np.int64)
            level_counts[column] += np.bincount(codes, minlength=level_counts.shape[1])
    mean = total / np.maximum(present_counts, 1)
    deviation = np.sqrt(np.maximum(squares / np.maximum(present_counts, 1) - mean**2, 0.0))
    mean += offset
    varies = (present_counts > 1) & (deviation > MIN_RELATIVE_DEVIATION * np.maximum(np.abs(mean), 1e-30))
    frequencies = level_counts / np.maximum(level_counts.sum(axis=1, keepdims=True), 1)
    varies = np.where(levels > 0, (level_counts > 0).sum(axis=1) > 1, varies)
    too_little = ~varies & (levels == 0) & (high > low)
    if not varies.any():
        small = f", or {TOO_LITTLE}" if too_little.any() else ""
        raise BadInput(
            f"at least one channel must vary; all of them are constant or missing{small} in the training samples."
        )
    constant = np.flatnonzero(~varies & ~too_little)
    singular, plural = "it does not vary in the training samples", "they do not vary in the training samples"
    _warn_left_out(constant, names, singular, plural)
    singular, plural = "it varies too little for its size, which may be taken off first", f"they {TOO_LITTLE}"
    _warn_left_out(np.flatnonzero(too_little), names, singular, plural)
    indices = np.flatnonzero(varies)
    width = max(int(levels[indices].max(initial=0)), 1)
    shift, scale = np.zeros((len(indices), width)), np.ones((len(indices), width))
    for index, column in enumerate(indices):
        if levels[column]:
            p = frequencies[column][: levels[column]]
            shift[index, : len(p)], scale[index] = p, np.sqrt((p * (1 - p)).sum())
        else:
            shift[index, 0], scale[index] = mean[column], deviation[column]
    return Columns(indices, levels[indices], shift.astype(np.float32), scale.astype(np.float32))


def _warn_left_out(columns: npt.NDArray[np.int64], names: Sequence[str], singular: str, plural: str) -> None:
    """Warn that `columns` (indices) are left out. `singular` and `plural` are the reason, for one column or several."""
    if len(columns):
        text = f"a channel is left out, since {singular}"
        if len(columns) > 1:
            text = f"channels are left out, since {plural}"
        warnings.warn(f"{text}: {quoted(names[i] for i in columns)}", stacklevel=4)


def usable_samples(values: Values, columns: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int64]:
    """Return the sorted indices of the samples with at least two values that are not missing.

    In other samples, no value can be predicted from another. Only values in `columns` (indices) are counted, by default
    in all columns. If there is only one column, one value is enough.
    """
    selection, width = (slice(None), values.shape[1]) if columns is None else (columns, len(columns))
    counts = np.concatenate([(~np.isnan(part[:, selection])).sum(axis=1) for part in chunks(values)])
    return np.flatnonzero(counts >= min(2, width))


def warn_of_copies(
    values: Values, train: npt.NDArray[np.int64], held_out: npt.NDArray[np.int64], columns: Columns
) -> None:
    """Warn if held-out samples are bitwise equal to training samples.

    `train` and `held_out` are indices of samples. There is no warning if channels have so few different values that
    samples can be equal by chance (see `MIN_EXTRA_BITS`).
    """
    sample = values[train[:AUTOCORRELATION_SAMPLES]][:, columns.indices]
    frequencies = [np.unique(column, return_counts=True)[1] / len(column) for column in sample.T]
    bits = -sum(float((p * np.log2(p)).sum()) for p in frequencies)
    if bits < 2 * np.log2(len(values)) + MIN_EXTRA_BITS:
        return
    train_hashes = _hashes(values, train, columns.indices)
    copies = int(np.isin(_hashes(values, held_out, columns.indices), train_hashes).sum())
    if copies:
        warnings.warn(
            f"{copies:,} of {len(held_out):,} held-out samples also occur in the training samples, so memorized "
            "samples look like structure; remove the copies, or put each sample and its copies into one group",
            stacklevel=4,
        )


def _hashes(values: Values, rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash for each of the r samples `rows`, (r,), of the values in `columns`. Both are indices."""
    odd = np.random.default_rng(0).integers(1 << 63, size=len(columns), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    hashes = []
    for part in chunks(values, rows):
        bits = np.ascontiguousarray(part[:, columns], dtype=np.float32).view(np.uint32).astype(np.uint64)
        bits ^= bits >> np.uint64(15)
        hashes.append((bits * odd).sum(axis=1, dtype=np.uint64))
    return np.concatenate(hashes)


def chunks(values: Values, rows: npt.NDArray[np.int64] | None = None) -> Iterator[Values]:
    """Yield samples of a table in chunks of t rows and m columns, (t, m), each of at most `VALUES_PER_CHUNK` values.

    `rows` are the indices of the samples, by default all.
    """
    size = max(1, VALUES_PER_CHUNK // max(values.shape[1], 1))
    count = len(values) if rows is None else len(rows)
    for start in range(0, count, size):
        part = slice(start, start + size)
        yield np.asarray(values[part] if rows is None else values[rows[part]])
