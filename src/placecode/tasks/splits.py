"""Which samples are learned from and which are held out, where neighbours in time may be alike.

Samples are cut into blocks that follow each other, and whole blocks are held out: a sample next to one that was learned
from is no new one. Between them lies a gap as long as samples remember each other. Where samples come in groups
(people, days), whole groups are held out if there are enough of them.

>>> parts = split_samples(1_000, seed=0)
>>> {name: len(rows) for name, rows in parts.items()}
{'train': 600, 'validation': 200, 'test': 200, 'first half': 300, 'second half': 300}
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]

BLOCKS = 20
"""Blocks that samples are cut into, if there are that many samples; of every five, one is for validation, one for
test."""
FEWEST_GROUPS = 5
"""Groups from which on whole ones are held out."""
FORGOTTEN = 0.1
"""The correlation of a channel with its own past below which a sample counts as a new one."""
SEEN = 2_000
"""Samples by which that is told."""
HALVES = ("first half", "second half")
LEAST_HALF = 0.05
"""The share of all samples below which a half that is made up of whole groups is too small to learn from."""


def split_samples(count: int, groups: npt.ArrayLike | None = None, gap: int = 0, seed: int = 0) -> dict[str, Rows]:
    """The samples of each part, in their order: train, validation and test, and the two halves of train.

    `groups` (count,) are codes. With FEWEST_GROUPS of them or more, whole groups are held out and make up the halves
    (unless one of them is nearly all of train, which is then cut in two); with fewer, blocks are, each within one
    group unless samples of several groups alternate. `gap` samples at either end of a block that is held out are left
    out of it, at most a quarter of the block at either end.
    """
    rng = np.random.default_rng(seed)
    pieces = cut(count, groups)
    gap = 0 if whole_groups(groups) else gap
    kinds = _dealt_by_size(pieces, rng) if whole_groups(groups) else _dealt(len(pieces), rng)
    parts: dict[str, list[Rows]] = {name: [] for name in ("train", "validation", "test", *HALVES)}
    sizes = dict.fromkeys(HALVES, 0)
    for piece, kind in zip(pieces, kinds, strict=True):
        trim = min(gap, len(piece) // 4)
        parts[kind].append(piece if kind == "train" else piece[trim : len(piece) - trim])
        if kind == "train":
            half = min(HALVES, key=lambda name: sizes[name])
            parts[half].append(piece)
            sizes[half] += len(piece)
    if whole_groups(groups) and min(len(_joined(parts[half])) for half in HALVES) < LEAST_HALF * count:
        halves = np.array_split(_joined(parts["train"]), 2)  # one group is nearly all there is to learn from
        parts |= {name: [half] for name, half in zip(HALVES, halves, strict=True)}
    return {name: _joined(each) for name, each in parts.items()}


def _joined(rows: list[Rows]) -> Rows:
    return np.sort(np.concatenate(rows)) if rows else np.zeros(0, np.int64)


def whole_groups(groups: npt.ArrayLike | None) -> bool:
    """Whether there are enough groups for whole ones to be held out."""
    return groups is not None and len(np.unique(np.asarray(groups))) >= FEWEST_GROUPS


def cut(count: int, groups: npt.ArrayLike | None = None) -> list[Rows]:
    """The samples in pieces that stay together: the groups, if there are enough of them, else blocks within each.

    Where samples of a few groups alternate, blocks are cut across them: what is next to each other in time stays
    together, whosever it is.
    """
    codes = np.zeros(count, dtype=np.int64) if groups is None else np.asarray(groups, dtype=np.int64)
    if not whole_groups(groups) and np.count_nonzero(np.diff(codes)) >= len(np.unique(codes)):
        codes = np.zeros(count, dtype=np.int64)
    order = np.argsort(codes, kind="stable")  # once for all groups, of which there may be as many as samples
    own = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if count else []
    return own if whole_groups(groups) else [block for rows in own for block in _blocks(rows, count)]


def memory_of(values: npt.ArrayLike) -> int:
    """For how many samples the channels of a table (T, n) remember their past: the least lag at which their mean
    absolute correlation with it falls below FORGOTTEN, or below what so few samples have by chance. 0 for samples that
    have nothing to do with each other.

    >>> noise = np.random.default_rng(0).normal(size=(2000, 5))
    >>> memory_of(noise), memory_of(np.cumsum(noise, axis=0)) > 100
    (0, True)
    """
    table = np.asarray(values, dtype=np.float64)[:SEEN]
    known = ~np.isnan(table)
    middle = np.where(known, table, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    centred = np.where(known, table - middle, 0.0)
    power = (centred**2).sum(axis=0)
    centred = centred[:, power > 0]
    if centred.size == 0:
        return 0
    size = 2 * len(centred)
    spectrum = np.fft.rfft(centred, n=size, axis=0)
    past = np.fft.irfft(np.abs(spectrum) ** 2, n=size, axis=0)[: len(centred) // 2]
    strength = np.abs(past / past[0]).mean(axis=1)
    below = np.flatnonzero(strength < max(FORGOTTEN, 2 / np.sqrt(len(centred))))
    lag = int(below[0]) if len(below) else len(strength)
    return lag if lag > 1 else 0


def _blocks(rows: Rows, count: int) -> list[Rows]:
    """Samples cut into blocks as equal as can be: BLOCKS for all samples together, five at least for these."""
    wanted = max(5, round(BLOCKS * len(rows) / count))
    return [block for block in np.array_split(rows, min(wanted, len(rows))) if len(block)]


def _dealt(pieces: int, rng: np.random.Generator) -> list[str]:
    """What each of the pieces is for: of every five that follow each other, one validates and one tests; of fewer than
    five, the last ones do."""
    kinds: list[str] = []
    five = ["train", "train", "train", "validation", "test"]
    while len(kinds) + 5 <= pieces:
        kinds += [five[place] for place in rng.permutation(5)]
    return kinds + ["train"] * (pieces - len(kinds)) if kinds else five[5 - pieces :]


def _dealt_by_size(pieces: list[Rows], rng: np.random.Generator) -> list[str]:
    """What each of the groups is for, the largest first: for the part that lacks most of its share of the samples."""
    total = sum(map(len, pieces))
    lacking = {"train": 0.6 * total, "validation": 0.2 * total, "test": 0.2 * total}
    wanted = dict(lacking)
    order = rng.permutation(len(pieces))
    kinds = [""] * len(pieces)
    for place in sorted(order, key=lambda i: -len(pieces[i])):
        kind = max(lacking, key=lambda name: lacking[name] / wanted[name])
        kinds[place] = kind
        lacking[kind] -= len(pieces[place])
    return kinds
