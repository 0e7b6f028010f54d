"""Pixels in random order as channels: what is to be found is the picture that they were cut from.

A channel is a pixel of a small patch, a sample is a patch. Nobody says which pixel lies where; but pixels that lie next
to each other are alike, so the grid is in the data, and every reader can see whether a map has found it.

`source="photos"`: two photographs that scikit-learn brings along, in patches from everywhere. `source="digits"`: its
1,797 handwritten digits of 8 x 8 pixels, few samples of which most pixels are empty: the hard case.

>>> task = Pixels(train=500, test=100, worlds=2)
>>> {name: tuple(split.inputs.shape) for name, split in task.splits.items()}, task.positions.shape
({'train': (2, 500, 100), 'test': (2, 100, 100)}, (100, 2))
>>> values, names, positions, strips = table(samples=50)
>>> values.shape, len(names), positions.shape, strips.shape
((50, 100), 100, (100, 2), (50,))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from placecode.errors import BadInput, must_be, one_of
from placecode.tasks.masked import Masked, recordings
from placecode.tasks.network import standardize
from placecode.validation import flag, whole_number

SOURCES = ("photos", "digits")
GREY = (0.299, 0.587, 0.114)
"""How bright red, green and blue look."""
STRIPS, HELD_OUT = 8, 2
"""A photograph is cut into so many vertical strips of equal width, of which so many are held out."""
LEAST_TRAIN = 10
"""Samples to learn from: with fewer, no baseline can be fitted."""
VARIES = 0.05
"""A pixel of the digits is left out if fewer samples than this share differ from its most common value."""
FLOWER = (slice(75, 365), slice(160, 450))
"""Where the flower is in its photograph: rows and columns."""
DIGIT = 8
"""Rows and columns of a digit."""


class Pixels(Masked):
    """`worlds` draws of patches of `size` x `size` pixels, every `stride`-th pixel of a photograph; or of digits.

    Photographs are grey. Each is cut into 8 vertical strips, of which every world holds out 2 of its own; a patch lies
    at a random place and never crosses from strips to learn from into those held out, so that no pixel of a picture is
    seen in both. Of digits, `train` and `test` are different samples, drawn anew for every world; pixels that nearly
    never vary (fewer than 5% of all samples differ from the most common value) are left out, the same in all worlds,
    and `size` and `stride` have no say.

    All are standardized by the mean and standard deviation of the training values. Pixels come in random order if
    `shuffled`, else row by row, of which a fixed positional encoding can make use. `positions` (n, 2) are the row and
    the column of every channel, counted from 0, and "pixel 3,7" is the name of the one in row 3 and column 7; order and
    positions are the same in all worlds.
    """

    name = "pixels"

    def __init__(
        self,
        source: str = "photos",
        size: int = 10,
        stride: int = 4,
        train: int = 20_000,
        test: int = 2_000,
        ratios: Sequence[float] = (0.5, 0.9),
        shuffled: bool = True,
        worlds: int = 1,
        seed: int = 0,
    ) -> None:
        _check(source, size, stride, shuffled)
        whole_number("train", train, LEAST_TRAIN)
        whole_number("test", test, 1)
        whole_number("worlds", worlds, 1)
        whole_number("seed", seed, 0)
        order, data = np.random.SeedSequence(seed).spawn(2)
        rngs = [np.random.default_rng(child) for child in data.spawn(worlds)]  # world k whatever their number
        cells, samples = _source(source, size, stride)
        if shuffled:
            cells = np.random.default_rng(order).permutation(cells)
        pairs = [samples.split(rng, train, test) for rng in rngs]
        raw = (np.stack([pair[part] for pair in pairs])[..., cells] for part in (0, 1))
        parts = dict(zip(("train", "test"), standardize(*raw), strict=True))
        super().__init__({name: recordings([part]) for name, part in parts.items()}, 1, ratios, seed)

        self.positions = _grid(cells, samples.columns)
        self.token_names = _names(self.positions)
        self.options: dict[str, Any] = {
            "source": source,
            **({"size": int(size), "stride": int(stride)} if source == "photos" else {}),
            "train": int(train),
            "test": int(test),
            "shuffled": shuffled,
            "positions": self.positions.tolist(),
        }

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), **self.options}


def table(
    source: str = "photos",
    size: int = 10,
    stride: int = 4,
    samples: int = 5_000,
    shuffled: bool = True,
    seed: int = 0,
) -> tuple[np.ndarray, tuple[str, ...], np.ndarray, np.ndarray]:
    """The same pixels as a table to be written to a file: values (T, n) as they are in the pictures, the names of the
    columns, the true positions (n, 2), row and column, and for each row the number of its strip (T,).

    Each patch lies within one of eight strips of a photograph, so that rows of other strips share no pixel with it:
    whoever holds something out should hold out whole strips. Digits have none in common, and come in eight parts.
    """
    _check(source, size, stride, shuffled)
    whole_number("samples", samples, 2 * LEAST_TRAIN)
    whole_number("seed", seed, 0)
    order, data = np.random.SeedSequence(seed).spawn(2)
    cells, drawn = _source(source, size, stride)
    if shuffled:
        cells = np.random.default_rng(order).permutation(cells)
    values, strips = drawn.by_strip(np.random.default_rng(data.spawn(1)[0]), samples)
    positions = _grid(cells, drawn.columns)
    return values[:, cells], _names(positions), positions, strips


class Photos:
    """Patches of photographs, from strips to learn from and from strips held out."""

    def __init__(self, pictures: Sequence[np.ndarray], size: int, stride: int) -> None:
        self.pictures, self.columns = list(pictures), size
        self.offsets = stride * np.arange(size)
        self.extent = int(self.offsets[-1]) + 1
        room = min(min(picture.shape[0], picture.shape[1] // STRIPS) for picture in self.pictures)
        if self.extent > room:
            spans = "such that (size - 1) * stride + 1, the pixels that a patch spans, is"
            raise must_be("size and stride", f"{spans} at most {room}, the width of a strip", (size, stride))

    def split(self, rng: np.random.Generator, train: int, test: int) -> tuple[np.ndarray, np.ndarray]:
        """Patches (T, size * size), row by row of each, from strips to learn from and from those held out."""
        held = [held_out(rng, picture.shape[1]) for picture in self.pictures]
        return self.draw(rng, [~each for each in held], train), self.draw(rng, held, test)

    def by_strip(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Patches (T, size * size), each within a strip, and the number of the strip of each, (T,)."""
        widths = [picture.shape[1] for picture in self.pictures]
        strips = [np.arange(width) * STRIPS // width == strip for width in widths for strip in range(STRIPS)]
        share = np.bincount(rng.integers(len(strips), size=count), minlength=len(strips))
        values, numbers = [], np.repeat(np.arange(len(strips)), share)
        for number, columns in enumerate(strips):
            only = Photos([self.pictures[number // STRIPS]], self.columns, int(self.offsets[1] - self.offsets[0]))
            values.append(only.draw(rng, [columns], int(share[number])))
        order = rng.permutation(count)
        return np.concatenate(values)[order], numbers[order]

    def draw(self, rng: np.random.Generator, allowed: Sequence[np.ndarray], count: int) -> np.ndarray:
        """Patches at random places of a random picture, all of whose columns are allowed."""
        which = rng.integers(len(self.pictures), size=count)
        drawn = np.empty((count, len(self.offsets) ** 2))
        for number, (picture, columns) in enumerate(zip(self.pictures, allowed, strict=True)):
            own = np.flatnonzero(which == number)
            top = rng.integers(picture.shape[0] - self.extent + 1, size=len(own))
            left = rng.choice(starts(columns, self.extent), size=len(own))
            rows, across = (place[:, None] + self.offsets for place in (top, left))  # (own, size)
            drawn[own] = picture[rows[:, :, None], across[:, None, :]].reshape(len(own), -1)
        return drawn


class Digits:
    """Handwritten digits, some to learn from and others held out."""

    columns = DIGIT

    def __init__(self, values: np.ndarray) -> None:
        self.values = values  # (T, 64)

    def split(self, rng: np.random.Generator, train: int, test: int) -> tuple[np.ndarray, np.ndarray]:
        most = len(self.values)
        if train + test > most:
            raise must_be("train and test", f"at most {most} together, as many as there are digits", (train, test))
        own = self.values[rng.permutation(most)[: train + test]]
        return own[:train], own[train:]

    def by_strip(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        return self.split(rng, count, 0)[0], rng.integers(STRIPS, size=count)


def held_out(rng: np.random.Generator, width: int) -> np.ndarray:
    """Which columns of a picture are held out, (width,): two of eight strips."""
    return np.isin(np.arange(width) * STRIPS // width, rng.choice(STRIPS, size=HELD_OUT, replace=False))


def starts(allowed: np.ndarray, extent: int) -> np.ndarray:
    """The columns at which a patch may begin so that all that it spans are allowed, from (width,).

    >>> starts(np.array([True, True, True, False, True, True]), 2).tolist()
    [0, 1, 4]
    """
    return np.flatnonzero(np.convolve(allowed.astype(int), np.ones(extent, dtype=int), mode="valid") == extent)


def varying(values: np.ndarray) -> np.ndarray:
    """Which channels of (T, n) do vary: the numbers of those that differ from their most common value often enough."""
    common = [np.unique(column, return_counts=True)[1].max() / len(column) for column in values.T]
    return np.flatnonzero(1 - np.array(common) >= VARIES)


def photographs() -> list[np.ndarray]:
    """The two photographs that scikit-learn brings along, grey, (427, 640) from 0 to 1 each: china and flower."""
    try:
        from sklearn.datasets import load_sample_images  # type: ignore[import-untyped, unused-ignore]

        images = load_sample_images().images
    except ImportError as missing:
        needed = "scikit-learn" if "sklearn" in str(missing.name) else "pillow"
        raise BadInput(f"The source photos needs {needed}, which is not installed: pip install {needed}.") from None
    return [np.asarray(image, dtype=np.float64) @ GREY / 255 for image in images]


def digits() -> np.ndarray:
    """The digits that scikit-learn brings along, (1797, 64) from 0 to 16, row by row."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        needed = "scikit-learn"
        raise BadInput(f"The source digits needs {needed}, which is not installed: pip install {needed}.") from None
    return np.asarray(load_digits().data, dtype=np.float64)


def picture(source: str) -> np.ndarray:
    """A picture from 0 to 1 to be laid over the whole grid, so that a map of pixels can be judged by eye: the flower,
    square; or a digit."""
    if source == "digits":
        return np.asarray(digits()[0].reshape(DIGIT, DIGIT) / 16)
    return np.asarray(photographs()[1][FLOWER])


def _source(source: str, size: int, stride: int) -> tuple[np.ndarray, Photos | Digits]:
    """The numbers of the pixels that are channels, and what samples are drawn from."""
    if source == "digits":
        values = digits()
        return varying(values), Digits(values)
    return np.arange(size**2), Photos(photographs(), size, stride)


def _grid(cells: np.ndarray, columns: int) -> np.ndarray:
    return np.stack(np.divmod(cells, columns), axis=1).astype(np.float64)


def _names(positions: np.ndarray) -> tuple[str, ...]:
    return tuple(f"pixel {row:g},{column:g}" for row, column in positions)


def _check(source: str, size: int, stride: int, shuffled: bool) -> None:
    if source not in SOURCES:
        raise one_of("source", SOURCES, source)
    whole_number("size", size, 2)
    whole_number("stride", stride, 1)
    flag("shuffled", shuffled)
