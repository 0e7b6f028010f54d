"""Masked prediction of the pixels of small images, in random order. Does a learned PE show where each pixel is?

A channel is a pixel of a small image patch, and a sample is a patch. The positions of the pixels are not part of the
data. Neighbouring pixels are correlated, so a model can infer the grid from them. A map of its learned positional
encoding (PE) can be compared with the grid by eye.

`source="photos"` uses patches of the two photographs that are part of scikit-learn. `source="digits"` uses the 1,797
handwritten digits of scikit-learn, of 8 x 8 pixels. Digits are harder, because there are few samples and most pixels
are empty.

>>> task = Pixels(train=500, test=100, worlds=2)
>>> {name: tuple(split.inputs.shape) for name, split in task.splits.items()}, task.positions.shape
({'train': (2, 500, 100), 'test': (2, 100, 100)}, (100, 2))
>>> values, names, positions, strips = sample_table(samples=50)
>>> values.shape, len(names), positions.shape, strips.shape
((50, 100), 100, (100, 2), (50,))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from placecode.errors import BadInput, must_be
from placecode.settings import Settings, setting
from placecode.tasks.masked import Masked
from placecode.tasks.simulated import MIN_TRAINING_SAMPLES, channel_order, split_seed, standardized_splits
from placecode.validation import whole_number

SOURCES = ("photos", "digits")
GREY = (0.299, 0.587, 0.114)  # weights of red, green and blue in the grey value of a pixel
STRIPS, HELD_OUT_STRIPS = 8, 2  # number of vertical strips of a photograph, and number of strips that are held out
MIN_VARYING_FRACTION = 0.05
"""A pixel of the digits is left out if less than this fraction of the samples has another value than its most frequent
one."""
FLOWER = (slice(75, 365), slice(160, 450))  # rows and columns of the flower in its photograph
N_DIGIT_IMAGES = 1797  # number of digits in scikit-learn's data set
DIGIT_SIDE = 8  # number of rows and columns of a digit


@dataclass(frozen=True, kw_only=True)
class PixelsSettings(Settings):
    """Settings of the pixels of image patches or digits."""

    source: str = setting("photos", "photos or digits", choices=SOURCES)
    size: int = setting(10, "rows and columns of a patch of photographs", least=2)
    stride: int = setting(4, "distance of the pixels of a patch in the photograph", least=1)
    train: int = setting(
        20_000,
        f"patches to train on; of the {N_DIGIT_IMAGES} digits, at most those that are not held out",
        least=MIN_TRAINING_SAMPLES,
    )
    test: int = setting(
        2_000, "held-out patches from other parts of the photographs; of the digits, at most a quarter", least=1
    )
    shuffled: bool = setting(True, "pixels in random order; else row by row, which a fixed encoding could use")


class Pixels(Masked):
    """Masked prediction of the pixels of image patches or digits.

    Photographs are converted to grey and divided into 8 vertical strips, 2 of which are held out. The held-out strips
    are drawn anew for every world. Patches have random positions. No patch overlaps both training and held-out strips,
    so no pixel of a photograph is in both splits. Digits are split at random in every world. In digits, pixels whose
    value rarely varies are left out.

    Data are standardized with the mean and standard deviation of the training values.

    Parameters
    ----------
    eval_mask_ratios : sequence of float
        Fractions of hidden channels at evaluation.
    worlds : int
        Number of independent draws of the data. The order of the pixels is the same in all of them. Seed s of a member
        uses world s modulo this number.
    seed : int
        Seed of the samples, the order of the pixels, and the hidden pixels at evaluation.
    **settings
        Fields of `PixelsSettings`.

    Attributes
    ----------
    positions : ndarray, shape (n, 2)
        Row and column of each pixel, counted from 0. The name "pixel 3,7" means row 3 and column 7.
    """

    name = "pixels"
    settings_class = PixelsSettings

    def __init__(
        self, eval_mask_ratios: Sequence[float] = (0.5, 0.9), worlds: int = 1, seed: int = 0, **settings: Any
    ) -> None:
        chosen = PixelsSettings(**settings)
        cells, images, rngs = _set_up(chosen, worlds, seed)
        pairs = [images.split(rng, chosen.train, chosen.test) for rng in rngs]
        train_values, test_values = (np.stack(part)[..., cells] for part in zip(*pairs, strict=True))
        super().__init__(standardized_splits(train_values, test_values), 1, eval_mask_ratios, seed)

        self.positions = _grid(cells, images.columns)
        self.token_names = _names(self.positions)
        unused = () if chosen.source == "photos" else ("size", "stride")
        self.options = {name: value for name, value in vars(chosen).items() if name not in unused}
        self.options["positions"] = self.positions.tolist()


def sample_table(
    source: str = "photos", size: int = 10, stride: int = 4, samples: int = 5_000, shuffled: bool = True, seed: int = 0
) -> tuple[np.ndarray, tuple[str, ...], np.ndarray, np.ndarray]:
    """Return the samples as a table with one column per pixel, for example to write it to a file.

    A patch lies within one strip of a photograph, so patches of different strips have no pixel in common. Users of the
    table should hold out whole strips. Digits have no strips, and are divided into eight parts at random instead.

    Parameters
    ----------
    source, size, stride, shuffled, seed
        Fields of `PixelsSettings`, and the seed of the samples and of the order of the pixels.
    samples : int
        Number of samples, T.

    Returns
    -------
    values : ndarray, shape (T, n)
        Values as in the images, not standardized.
    names : tuple of str
        Names of the columns.
    positions : ndarray, shape (n, 2)
        True row and column of each pixel.
    strips : ndarray of int, shape (T,)
        Number of the strip (or part, for digits) of each sample.
    """
    whole_number("samples", samples, 2 * MIN_TRAINING_SAMPLES)
    chosen = PixelsSettings(source=source, size=size, stride=stride, shuffled=shuffled)
    cells, images, (rng,) = _set_up(chosen, 1, seed)
    values, strips = images.by_strip(rng, samples)
    positions = _grid(cells, images.columns)
    return values[:, cells], _names(positions), positions, strips


class Photos:
    """Source of random patches of photographs. `pictures` are the photographs, arrays (height, width).

    A patch has `size` x `size` pixels, which are `stride` pixels apart in the photograph. It must not be wider than one
    of the eight vertical strips of a photograph.
    """

    def __init__(self, pictures: Sequence[np.ndarray], size: int, stride: int) -> None:
        self.pictures, self.columns, self.stride = list(pictures), size, stride
        self.offsets = stride * np.arange(size)
        self.extent = int(self.offsets[-1]) + 1
        limit = min(min(picture.shape[0], picture.shape[1] // STRIPS) for picture in self.pictures)
        if self.extent > limit:
            spans = "such that (size - 1) * stride + 1, the pixels that a patch spans, is"
            raise must_be("size and stride", f"{spans} at most {limit}, the width of a strip", (size, stride))

    def split(self, rng: np.random.Generator, train: int, test: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw training patches, (train, size^2), and test patches, (test, size^2), from different strips."""
        test_columns = [choose_held_out_columns(rng, picture.shape[1]) for picture in self.pictures]
        train_columns = [~columns for columns in test_columns]
        return self.draw(rng, train_columns, train), self.draw(rng, test_columns, test)

    def by_strip(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw patches, (count, size^2), each within one strip, and return them with the strip of each, (count,).

        Strips are numbered from 0, those of the second photograph after those of the first.
        """
        widths = [picture.shape[1] for picture in self.pictures]
        strips = [np.arange(width) * STRIPS // width == strip for width in widths for strip in range(STRIPS)]
        counts = np.bincount(rng.integers(len(strips), size=count), minlength=len(strips))
        values, numbers = [], np.repeat(np.arange(len(strips)), counts)
        for number, columns in enumerate(strips):
            photo = Photos([self.pictures[number // STRIPS]], self.columns, self.stride)
            values.append(photo.draw(rng, [columns], int(counts[number])))
        order = rng.permutation(count)
        return np.concatenate(values)[order], numbers[order]

    def draw(self, rng: np.random.Generator, allowed: Sequence[np.ndarray], count: int) -> np.ndarray:
        """Draw patches, (count, size^2), at random positions of random pictures.

        `allowed` has one mask, (width,), for each picture. Patches lie only in columns where it is True.
        """
        picture_index = rng.integers(len(self.pictures), size=count)
        patches = np.empty((count, len(self.offsets) ** 2))
        for number, (picture, allowed_columns) in enumerate(zip(self.pictures, allowed, strict=True)):
            index = np.flatnonzero(picture_index == number)
            top = rng.integers(picture.shape[0] - self.extent + 1, size=len(index))
            left = rng.choice(patch_starts(allowed_columns, self.extent), size=len(index))
            rows, columns = (corner[:, None] + self.offsets for corner in (top, left))  # (patches, size)
            patches[index] = picture[rows[:, :, None], columns[:, None, :]].reshape(len(index), -1)
        return patches


class Digits:
    """Source of random handwritten digits. `values`, (T, 64), are the pixels of the T digits from which it draws."""

    columns = DIGIT_SIDE

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def split(self, rng: np.random.Generator, train: int, test: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw digits for training, (train, 64), and for testing, (test, 64). No digit is drawn twice."""
        total = len(self.values)
        if train + test > total:
            raise must_be("train and test", f"at most {total} together, as many as there are digits", (train, test))
        sample = self.values[rng.permutation(total)[: train + test]]
        return sample[:train], sample[train:]

    def by_strip(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw digits, (count, 64), and for each a random number from 0 to 7 in place of a strip, (count,)."""
        return self.split(rng, count, 0)[0], rng.integers(STRIPS, size=count)


def choose_held_out_columns(rng: np.random.Generator, width: int) -> np.ndarray:
    """Choose two of eight vertical strips of a picture at random, and return a mask of their columns, (width,)."""
    return np.isin(np.arange(width) * STRIPS // width, rng.choice(STRIPS, size=HELD_OUT_STRIPS, replace=False))


def patch_starts(allowed: np.ndarray, extent: int) -> np.ndarray:
    """Return the indices of the columns at which a patch of `extent` columns, all of them allowed, can begin.

    `allowed`, (width,), is a mask of the columns of the picture.

    >>> patch_starts(np.array([True, True, True, False, True, True]), 2).tolist()
    [0, 1, 4]
    """
    return np.flatnonzero(np.convolve(allowed.astype(int), np.ones(extent, dtype=int), mode="valid") == extent)


def varying_pixels(values: np.ndarray) -> np.ndarray:
    """Return the indices of the pixels that are not nearly the same in all T images, `values` (T, n).

    These pixels differ from their most frequent value in at least a fraction `MIN_VARYING_FRACTION` of the images.
    """
    most_common = [np.unique(column, return_counts=True)[1].max() / len(column) for column in values.T]
    return np.flatnonzero(1 - np.array(most_common) >= MIN_VARYING_FRACTION)


def photographs() -> list[np.ndarray]:
    """Return the photographs of scikit-learn, china and flower, as grey values from 0 to 1, (427, 640) each."""
    try:
        from sklearn.datasets import load_sample_images  # type: ignore[import-untyped, unused-ignore]

        images = load_sample_images().images
    except ImportError as missing:
        raise _missing("photos", "scikit-learn" if "sklearn" in str(missing.name) else "pillow") from None
    return [np.asarray(image, dtype=np.float64) @ GREY / 255 for image in images]


def _missing(source: str, package: str) -> BadInput:
    """Return the exception for a source whose package is not installed."""
    return BadInput(f"The source {source} needs {package}, which is not installed: pip install {package}.")


def digits() -> np.ndarray:
    """Return the handwritten digits of scikit-learn, (1797, 64), with values from 0 to 16."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise _missing("digits", "scikit-learn") from None
    return np.asarray(load_digits().data, dtype=np.float64)


def picture(source: str) -> np.ndarray:
    """Return an example image with values from 0 to 1, (rows, columns): a flower for "photos", otherwise a digit."""
    if source == "digits":
        return np.asarray(digits()[0].reshape(DIGIT_SIDE, DIGIT_SIDE) / 16)
    return np.asarray(photographs()[1][FLOWER])


def _set_up(
    settings: PixelsSettings, worlds: int, seed: int
) -> tuple[np.ndarray, Photos | Digits, list[np.random.Generator]]:
    """Return the index of the pixel that each channel shows, (n,), the source of images, and a generator per world."""
    order_seed, world_seeds = split_seed(worlds, seed)
    images = Digits(digits()) if settings.source == "digits" else Photos(photographs(), settings.size, settings.stride)
    cells = varying_pixels(images.values) if isinstance(images, Digits) else np.arange(settings.size**2)
    cells = cells[channel_order(len(cells), settings.shuffled, order_seed)]
    return cells, images, [np.random.default_rng(world_seed) for world_seed in world_seeds]


def _grid(cells: np.ndarray, columns: int) -> np.ndarray:
    """Return the row and column, (n, 2), of the pixels with the indices `cells` in images with `columns` columns."""
    return np.stack(np.divmod(cells, columns), axis=1).astype(np.float64)


def _names(positions: np.ndarray) -> tuple[str, ...]:
    """Return the names of pixels, such as "pixel 3,7", from their rows and columns, (n, 2)."""
    return tuple(f"pixel {row:g},{column:g}" for row, column in positions)
