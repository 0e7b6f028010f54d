"""A table of a user's own, samples x channels: some channels are hidden, and a model predicts them from the rest.

>>> values = np.random.default_rng(0).normal(size=(1_000, 6)).astype("float32")
>>> task = tables(values)["all"]
>>> task.tokens, {name: len(split) for name, split in task.splits.items()}
(6, {'train': 600, 'validation': 200, 'test': 200})

Values may be missing (NaN): a missing value is shown as a hidden one is, and nobody is asked for it. A channel may be a
category: its token has a number for each value that it can take, 1 or 0, centred and scaled such that guessing how
often each occurs has an error of 1, as guessing the mean of a number has. The table may be mapped from a file: samples
are read when they are asked for, and standardized then.

There are three tasks on the same table, "all" its training samples, and either half of them: what two halves agree on
does not hang on single samples.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from placecode import random
from placecode.data.cells import listed
from placecode.errors import BadInput
from placecode.tasks.base import Pupil
from placecode.tasks.masked import Masked, Recordings
from placecode.tasks.splits import SEEN, cut, memory_of, split_samples, whole_groups

Values = npt.NDArray[np.float32]

PARTS = ("all", "first half", "second half")
HELD_OUT = ("validation", "test")
CHUNK = 1 << 22
"""Values that are read at once."""
ASKED = (200, 1_000, 100_000)
"""Examples of a held-out part that are evaluated: at least, at most, and in between so many values of channels."""
OF_TRAINING = 200
"""Examples of the training part that are evaluated."""
UNLIKELY = 20
"""Bits that a sample must have beyond those by which two of all samples are the same by themselves."""
LEAST = 2
"""Samples of each part."""
CONSTANT = (
    "it does not vary in the training samples",
    "they do not vary in the training samples",
)
TINY = (
    "it varies too little for its size, which may be taken off first",
    "they vary too little for their size, which may be taken off first",
)
"""Why a channel is left out, or several are."""
SAME = 1e-7
"""A channel whose standard deviation is a smaller share of its size is constant, but for rounding."""


@dataclass(frozen=True)
class Columns:
    """The channels that say anything: which columns of the table they are, and how they are standardized.

    `width` numbers make up a token, more than one where there are categories. `shift` and `scale` are (n, width): of a
    number its mean and standard deviation over the training samples, of a category how often each value occurs, and the
    root of its variance. `used` (n, width) says which numbers of a token mean anything.
    """

    kept: npt.NDArray[np.int64]
    levels: npt.NDArray[np.int64]
    shift: Values
    scale: Values

    @property
    def width(self) -> int:
        return int(self.shift.shape[1])

    @property
    def used(self) -> npt.NDArray[np.bool_]:
        return np.arange(self.width) < np.maximum(self.levels, 1)[:, None]


class Table(Masked):
    """Masked prediction on a table (T, m) of which `columns` are kept, with these `parts` of its samples.

    What is hidden is drawn among the values that are not missing, so that every question asks something.
    """

    name = "table"
    memory: int = 0
    """For how many samples channels remember their past."""
    pieces: npt.NDArray[np.int64] | None = None
    """Of every sample of the table, the number of its group or block, or of its group within a block; -1 for none."""

    def __init__(
        self,
        values: Values,
        columns: Columns,
        parts: Mapping[str, npt.NDArray[np.int64]],
        ratios: Sequence[float] = (0.3,),
        seed: int = 0,
    ) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # nothing is written
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
        least, most, values = ASKED
        top = OF_TRAINING if split == "train" else min(most, max(least, values // self.tokens))
        return min(len(self.splits[split]), top)

    def batch(self, split: str, rows: Tensor, step: int | Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Inputs (e, b, n, w + 1): the values, zero where hidden or missing, and the mark of both. Targets alike, but
        marked is only what is hidden."""
        if step is None:
            questions, asked = rows, self.examples(split)
            share = torch.tensor(self.ratios, device=rows.device, dtype=torch.float64)[rows // asked]  # (e, b)
            rows = rows % asked * len(self.splits[split]) // asked  # spread over all of them
        else:
            share = self._share[:, None].expand(rows.shape)
        dice = (
            self.dice(split, questions) if step is None else random.bits(self._keys, step, rows.shape[1] * self.tokens)
        )
        return self.ask(self.raw(split, rows), dice.view(*rows.shape, self.tokens), share)

    def dice(self, split: str, questions: Tensor) -> Tensor:
        """What decides which channels are hidden in questions (e, b) of evaluation, (e, b * n): the same for all."""
        places = questions[..., None] * self.tokens + torch.arange(self.tokens, device=questions.device)
        return random.bits_at(self._asked[split].expand(len(questions)), 0, places.flatten(1))

    def ask(self, raw: Tensor, dice: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        """Samples (..., n) as inputs and targets, with this share of the values that are known hidden, one at least and
        never all: those with the lowest dice."""
        values, known = self.standard(raw)
        dice = torch.where(known, dice, torch.iinfo(dice.dtype).max)
        count = known.sum(-1)
        many = torch.minimum((share * count).round().clamp(min=1), (count - 1).clamp(min=1)).long()
        bar = dice.sort(dim=-1).values.gather(-1, (many - 1)[..., None])
        hidden = (dice <= bar) & known
        shown = (known & ~hidden).to(values.dtype)[..., None]
        return torch.cat([values * shown, 1 - shown], -1), torch.cat([values, hidden.to(values.dtype)[..., None]], -1)

    def raw(self, split: str, rows: Tensor) -> Tensor:
        """Examples (...) of a part as they are in the table, the kept channels: (..., n)."""
        data = self.splits[split]
        return data.inputs[0][data.targets[rows]][..., self._kept]

    def standard(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Values (..., n) of the kept channels as numbers (..., n, w), 0 where missing; and which are not."""
        known = ~raw.isnan()
        value = raw.nan_to_num()[..., None]
        if self.columns.width > 1:
            levels = torch.arange(self.columns.width, device=raw.device)
            value = torch.where(self._levels[:, None] > 0, (value == levels).to(raw.dtype), value)
        value = (value - self._shift) / self._scale
        return value * (self.used & known[..., None]).to(raw.dtype), known

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        errors, asked = self.wrong(outputs, targets)
        return errors.sum((1, 2)) / asked.sum((1, 2)).clamp(min=1)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        errors, asked = self.wrong(outputs, targets)
        return {"mse": errors.sum(2) / asked.sum(2).clamp(min=1)}

    def wrong(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Squared errors of what was hidden, a value for each channel, and which were, both (e, b, n)."""
        asked = targets[..., -1]
        return ((outputs - targets[..., :-1]).square() * self.used).sum(-1) * asked, asked

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
        """A hash of the table's values and of which sample is for what."""
        found = hashlib.sha256()
        values = self.splits["train"].inputs[0].cpu().numpy()
        for part in _chunks(values):
            found.update(np.ascontiguousarray(part).tobytes())
        for split in self.splits.values():
            found.update(split.targets.cpu().numpy().tobytes())
        return found.hexdigest()


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
    """The three tasks on a table (T, m), by name: "all", "first half" and "second half" of its training samples.

    `labels` (m,) and `positions` (m, axes) are what is known of the columns; channels that are left out, since they
    never vary or are always missing, are left out of those too, with a warning. The halves share the table and what is
    held out.
    """
    called = tuple(names) if names is not None else tuple(f"channel {i + 1}" for i in range(values.shape[1]))
    usable = _usable(values)
    codes = None if groups is None else np.asarray(groups)[usable]
    few = usable[:: max(1, len(usable) // SEEN)] if codes is not None else usable
    memory = max(memory_of(values[usable[:SEEN]]), memory_of(values[few[:SEEN]]))
    if codes is not None and not whole_groups(codes):  # samples of one group may be some way apart
        for code in np.unique(codes):
            own = np.flatnonzero(codes == code)[:SEEN]
            apart = (own[-1] - own[0]) / max(len(own) - 1, 1)
            memory = max(memory, round(apart * memory_of(values[usable[own]])))
    parts = split_samples(len(usable), codes, memory, seed)
    parts = {name: usable[rows] for name, rows in parts.items()}
    pieces = np.full(len(values), -1, dtype=np.int64)
    for number, piece in enumerate(cut(len(usable), codes)):
        pieces[usable[piece]] = number
    if codes is not None:
        _, own = np.unique(codes, return_inverse=True)
        pieces[usable] = pieces[usable] * (own.max() + 1) + own
    _enough(parts, len(values), len(usable))
    columns = _columns(values, parts["train"], called, categories or {})
    _warn_of_copies(values, parts, columns)
    if len(columns.kept) < values.shape[1]:  # samples that are known in channels alone that say nothing ask nothing
        usable = _usable(values, columns.kept)
        parts = {name: np.intersect1d(rows, usable) for name, rows in parts.items()}
        _enough(parts, len(values), len(usable))
    made = {}
    for name in PARTS:
        rows = {"train": parts["train" if name == "all" else name], **{part: parts[part] for part in HELD_OUT}}
        task = Table(values, columns, rows, ratios, seed)
        task.token_names = tuple(called[i] for i in columns.kept)
        task.memory, task.pieces = memory, pieces
        task.labels = None if labels is None else np.asarray(labels)[columns.kept]
        task.positions = None if positions is None else np.asarray(positions, dtype=np.float64)[columns.kept]
        made[name] = task
    return made


def _enough(parts: Mapping[str, npt.NDArray[np.int64]], samples: int, usable: int) -> None:
    fewest = min(len(parts[name]) for name in ("train", *HELD_OUT))
    if fewest < LEAST:
        raise BadInput(
            f"the table must have enough samples to learn from and to hold out, {LEAST} of each at least; of "
            f"its {samples}, {usable} can be used and {fewest} are left for one of them."
        )


def _usable(values: Values, kept: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int64]:
    """The samples in which two channels at least are known, of these: with fewer there is nothing to ask."""
    of = slice(None) if kept is None else kept
    known = np.concatenate([(~np.isnan(part[:, of])).sum(axis=1) for part in _chunks(values)])
    return np.flatnonzero(known >= min(2, values.shape[1] if kept is None else len(kept)))


def _columns(
    values: Values, train: npt.NDArray[np.int64], names: Sequence[str], categories: Mapping[int, Sequence[str]]
) -> Columns:
    """What is to be known of the columns, from their training samples, read piece by piece."""
    count = values.shape[1]
    levels = np.array([len(categories.get(i, ())) for i in range(count)], dtype=np.int64)
    seen, total, squares = (np.zeros(count) for _ in range(3))
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    middle, times = np.zeros(count), np.zeros((count, int(levels.max(initial=0)) or 1))
    for part in _chunks(values, train):
        known = ~np.isnan(part)
        if not seen.any():  # so that squares of large numbers do not swallow what varies
            middle = np.nanmean(np.where(known.any(axis=0), part, 0.0).astype(np.float64), axis=0)
        apart = np.where(known, part - middle, 0.0)
        seen += known.sum(axis=0)
        total += apart.sum(axis=0)
        squares += (apart**2).sum(axis=0)
        low, high = np.fmin(low, np.fmin.reduce(part, axis=0)), np.fmax(high, np.fmax.reduce(part, axis=0))
        for column in np.flatnonzero(levels):
            codes = part[known[:, column], column].astype(np.int64)
            times[column] += np.bincount(codes, minlength=times.shape[1])
    mean = total / np.maximum(seen, 1)
    deviation = np.sqrt(np.maximum(squares / np.maximum(seen, 1) - mean**2, 0.0))
    mean += middle
    varies = (seen > 1) & (deviation > SAME * np.maximum(np.abs(mean), 1e-30))
    share = times / np.maximum(times.sum(axis=1, keepdims=True), 1)
    varies = np.where(levels > 0, (times > 0).sum(axis=1) > 1, varies)
    little = ~varies & (levels == 0) & (high > low)
    if not varies.any():
        small = f", or {TINY[1][5:]}" if little.any() else ""
        raise BadInput(
            f"at least one channel must vary; all of them are constant or missing{small} in the training samples."
        )
    _warn_of(np.flatnonzero(~varies & ~little), names, CONSTANT)
    _warn_of(np.flatnonzero(little), names, TINY)
    kept = np.flatnonzero(varies)
    width = max(int(levels[kept].max(initial=0)), 1)
    shift, scale = np.zeros((len(kept), width)), np.ones((len(kept), width))
    for place, column in enumerate(kept):
        if levels[column]:
            own = share[column][: levels[column]]
            shift[place, : len(own)], scale[place] = own, np.sqrt((own * (1 - own)).sum())
        else:
            shift[place, 0], scale[place] = mean[column], deviation[column]
    return Columns(kept, levels[kept], shift.astype(np.float32), scale.astype(np.float32))


def _warn_of(columns: npt.NDArray[np.int64], names: Sequence[str], why: tuple[str, str]) -> None:
    """Say which channels are left out, if any are; `why` has the words for one and for several."""
    if len(columns):
        some = "a channel is" if len(columns) == 1 else "channels are"
        reason = why[min(len(columns), 2) - 1]
        warnings.warn(f"{some} left out, since {reason}: {listed(names[i] for i in columns)}", stacklevel=4)


def _warn_of_copies(values: Values, parts: Mapping[str, npt.NDArray[np.int64]], columns: Columns) -> None:
    """Samples that are held out and occur among those to learn from as well, each value the same to the last bit.

    Where channels take few values, samples repeat by themselves; that is no copy.
    """
    few = values[parts["train"][:SEEN]][:, columns.kept]
    shares = [np.unique(column, return_counts=True)[1] / len(column) for column in few.T]
    bits = -sum(float((share * np.log2(share)).sum()) for share in shares)
    if bits < 2 * np.log2(len(values)) + UNLIKELY:
        return
    train = _marks(values, parts["train"], columns.kept)
    held_out = np.concatenate([parts[name] for name in HELD_OUT])
    again = int(np.isin(_marks(values, held_out, columns.kept), train).sum())
    if again:
        warnings.warn(
            f"{again:,} of {len(held_out):,} held-out samples occur among those to learn from as well: what was "
            "learned by heart looks like structure; leave copies out, or give each with its copies a group of its own",
            stacklevel=4,
        )


def _marks(values: Values, rows: npt.NDArray[np.int64], kept: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """A number for each of these samples, the same for the same values and hardly ever for others, (r,)."""
    odd = np.random.default_rng(0).integers(1 << 63, size=len(kept), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    found = []
    for part in _chunks(values, rows):
        bits = np.ascontiguousarray(part[:, kept], dtype=np.float32).view(np.uint32).astype(np.uint64)
        bits ^= bits >> np.uint64(15)
        found.append((bits * odd).sum(axis=1, dtype=np.uint64))
    return np.concatenate(found)


def _chunks(values: Values, rows: npt.NDArray[np.int64] | None = None) -> Iterator[Values]:
    """A table piece by piece, all of it or these rows."""
    size = max(1, CHUNK // max(values.shape[1], 1))
    count = len(values) if rows is None else len(rows)
    for start in range(0, count, size):
        part = slice(start, start + size)
        yield np.asarray(values[part] if rows is None else values[rows[part]])
