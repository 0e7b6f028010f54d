"""Splits of a table's samples into train, validation and test, for samples that may be correlated in time.

Neighbouring samples are not independent. Samples are therefore divided into blocks of consecutive samples, and whole
blocks are held out. At both ends of a held-out block, samples that may be correlated with training samples are left
out. If samples belong to groups (people, days) and there are enough groups, whole groups are held out instead.

>>> splits = split_samples(1_000, seed=0)
>>> {name: len(rows) for name, rows in splits.items()}
{'train': 600, 'validation': 200, 'test': 200, 'first half': 300, 'second half': 300}
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]
"""Indices of samples (rows of the table)."""

BLOCKS = 20
"""Number of blocks into which the samples are divided, if there are that many samples. Of every five blocks, one is for
validation and one for testing."""
MIN_GROUPS = 5  # smallest number of groups for which whole groups are held out
MAX_AUTOCORRELATION = 0.1  # samples count as independent from the lag at which the autocorrelation is smaller
AUTOCORRELATION_SAMPLES = 2_000  # maximum number of samples from which autocorrelation is estimated
HALVES = ("first half", "second half")  # names of the two halves of the training samples
MIN_HALF_FRACTION = 0.05
"""If a half of the training samples that consists of whole groups has less than this fraction of all samples, the
training samples are divided in the middle instead."""


def split_samples(count: int, groups: npt.ArrayLike | None = None, gap: int = 0, seed: int = 0) -> dict[str, Rows]:
    """Split samples into train, validation and test, and the training samples into two halves.

    Returns the sorted indices of the samples in "train", "validation", "test", "first half" and "second half". `count`
    is the number of samples, and `groups` is the group of each sample, (count,), or None.

    With `MIN_GROUPS` groups or more, whole groups are held out, and the halves of the training samples consist of
    whole groups. If one group contains nearly all training samples, they are divided in the middle instead. With fewer
    groups, blocks of consecutive samples are held out (see `exchange_blocks`). At each end of a held-out block, `gap`
    samples are left out, at most a quarter of the block.
    """
    rng = np.random.default_rng(seed)
    blocks = exchange_blocks(count, groups)
    by_group = has_enough_groups(groups)
    splits = _assign_groups(blocks, rng) if by_group else _assign_blocks(len(blocks), rng)
    parts: dict[str, list[Rows]] = {name: [] for name in ("train", "validation", "test", *HALVES)}
    sizes = dict.fromkeys(HALVES, 0)
    for block, split in zip(blocks, splits, strict=True):
        if split == "train":
            half = min(HALVES, key=lambda name: sizes[name])
            parts[half].append(block)
            sizes[half] += len(block)
        trim = 0 if by_group or split == "train" else min(gap, len(block) // 4)
        parts[split].append(block[trim : len(block) - trim])
    if by_group and min(sizes.values()) < MIN_HALF_FRACTION * count:
        halves = np.array_split(_joined(parts["train"]), 2)  # one group has nearly all training samples
        parts |= {name: [half] for name, half in zip(HALVES, halves, strict=True)}
    return {name: _joined(rows) for name, rows in parts.items()}


def _joined(rows: list[Rows]) -> Rows:
    """Return the indices of several arrays as one sorted array."""
    return np.sort(np.concatenate(rows)) if rows else np.zeros(0, np.int64)


def has_enough_groups(groups: npt.ArrayLike | None) -> bool:
    """Return whether there are at least `MIN_GROUPS` different groups, so that whole groups can be held out."""
    return groups is not None and len(np.unique(np.asarray(groups))) >= MIN_GROUPS


def exchange_blocks(count: int, groups: npt.ArrayLike | None = None) -> list[Rows]:
    """Divide `count` samples into blocks of samples that may depend on each other; return the indices in each block.

    All samples of a block belong to the same split. `groups` is the group of each sample, (count,), or None. With
    `MIN_GROUPS` groups or more, each group is a block. Otherwise, a block consists of consecutive samples of one group.
    If samples of different groups alternate, the groups are ignored, so that neighbours in time stay together.
    """
    codes = np.zeros(count, dtype=np.int64) if groups is None else np.asarray(groups, dtype=np.int64)
    by_group = has_enough_groups(groups)
    if not by_group and np.count_nonzero(np.diff(codes)) >= len(np.unique(codes)):
        codes = np.zeros(count, dtype=np.int64)
    order = np.argsort(codes, kind="stable")  # one sort for all groups: there may be as many groups as samples
    rows_by_group = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if count else []
    return rows_by_group if by_group else [block for rows in rows_by_group for block in _blocks(rows, count)]


def autocorrelation_length(values: npt.ArrayLike) -> int:
    """Return the number of samples over which the channels of a table, (T, n), are correlated in time.

    It is the smallest lag at which the absolute autocorrelation, averaged over channels, is below
    `MAX_AUTOCORRELATION` or below the chance level for the number of samples. It is 0 for independent samples. Only the
    first `AUTOCORRELATION_SAMPLES` samples are used. Values may be NaN.

    >>> noise = np.random.default_rng(0).normal(size=(2000, 5))
    >>> autocorrelation_length(noise), autocorrelation_length(np.cumsum(noise, axis=0)) > 100
    (0, True)
    """
    table = np.asarray(values, dtype=np.float64)[:AUTOCORRELATION_SAMPLES]
    present = ~np.isnan(table)
    mean = np.where(present, table, 0.0).sum(axis=0) / np.maximum(present.sum(axis=0), 1)
    centred = np.where(present, table - mean, 0.0)
    power = (centred**2).sum(axis=0)
    centred = centred[:, power > 0]
    if centred.size == 0:
        return 0
    size = 2 * len(centred)
    spectrum = np.fft.rfft(centred, n=size, axis=0)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, n=size, axis=0)[: len(centred) // 2]  # (lags, n)
    correlation = np.abs(covariance / covariance[0]).mean(axis=1)
    below = np.flatnonzero(correlation < max(MAX_AUTOCORRELATION, 2 / np.sqrt(len(centred))))
    lag = int(below[0]) if len(below) else len(correlation)
    return lag if lag > 1 else 0


def _blocks(rows: Rows, count: int) -> list[Rows]:
    """Divide the samples `rows` of a group into consecutive blocks of nearly equal size.

    The number of blocks is `BLOCKS` times the group's share of all `count` samples, but at least five (or the number of
    samples, if the group has fewer than five).
    """
    blocks = max(5, round(BLOCKS * len(rows) / count))
    return np.array_split(rows, min(blocks, len(rows)))


def _assign_blocks(count: int, rng: np.random.Generator) -> list[str]:
    """Return the split of each of `count` consecutive blocks, "train", "validation" or "test".

    Of every five blocks, one is assigned to validation and one to test, at random. Blocks that remain at the end are
    for training. If there are fewer than five blocks in total, the last two are for validation and test.
    """
    splits: list[str] = []
    five = ["train", "train", "train", "validation", "test"]
    while len(splits) + 5 <= count:
        splits += [five[index] for index in rng.permutation(5)]
    return splits + ["train"] * (count - len(splits)) if splits else five[5 - count :]


def _assign_groups(groups: list[Rows], rng: np.random.Generator) -> list[str]:
    """Return the split of each group: "train", "validation" or "test", with about 60, 20 and 20% of all samples.

    `groups` has one array per group, with the indices of its samples. The largest groups are assigned first, and groups
    of equal size in random order. Each group is assigned to the split that still lacks the largest fraction of its
    intended number of samples.
    """
    total = sum(map(len, groups))
    missing = {"train": 0.6 * total, "validation": 0.2 * total, "test": 0.2 * total}
    target = dict(missing)
    order = rng.permutation(len(groups))
    splits = [""] * len(groups)
    for index in sorted(order, key=lambda i: -len(groups[i])):
        split = max(missing, key=lambda name: missing[name] / target[name])
        splits[index] = split
        missing[split] -= len(groups[index])
    return splits
