"""Tables of PEs as arrays: brought to a scale, and from one grid of tokens onto another.

>>> four, five = (np.stack(np.divmod(np.arange(n * n), n), axis=1) for n in (4, 5))
>>> resized(four[None, :, :1], four, five)[0, ::5, 0]  # a PE that is the row of its cell, on the first column of five
array([0.  , 0.75, 1.5 , 2.25, 3.  ])
"""

from __future__ import annotations

import numpy as np

from placecode.errors import must_be


def root_mean_square(pe: np.ndarray) -> float:
    """The size of a PE: the root mean square of all its entries."""
    return float(np.sqrt(np.mean(np.square(pe))))


def scaled(pe: np.ndarray, sigma: float) -> np.ndarray:
    """The same arrangement, such that the root mean square of all entries is sigma; zeros stay zeros."""
    size = root_mean_square(pe)
    return pe if size == 0 else np.asarray(pe * (sigma / size))


def is_grid(positions: np.ndarray | None) -> bool:
    """Whether tokens fill a rectangle: two coordinates, at least two values of each, a token at every pair of them."""
    if positions is None or positions.ndim != 2 or positions.shape[1] != 2:
        return False
    sides = [len(np.unique(axis)) for axis in positions.T]
    return min(sides) > 1 and len(positions) == np.prod(sides) == len(np.unique(positions, axis=0))


def resized(pe: np.ndarray, positions: np.ndarray, onto: np.ndarray) -> np.ndarray:
    """A PE (l, n, d) of tokens on one grid, for tokens on another: (l, m, d), positions (n, 2) and onto (m, 2).

    Linear along each axis, between the two nearest rows and columns; the corners of one grid are those of the other.
    """
    for name, places in (("positions", positions), ("onto", onto)):
        if not is_grid(places):
            raise must_be(name, "a full grid of rows and columns", places.shape)
    (rows, row), (columns, column) = (np.unique(axis, return_inverse=True) for axis in positions.T)
    grid = np.empty((len(pe), len(rows), len(columns), pe.shape[-1]))
    grid[:, row, column] = pe
    by_row, by_column = (_shares(old, new) for old, new in zip((rows, columns), onto.T, strict=True))
    return np.asarray(np.einsum("ma,mb,labd->lmd", by_row, by_column, grid))


def _shares(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """What each of the old coordinates gives to the new ones, (m, a), once their ends lie on its ends."""
    span = old[-1] - old[0]
    places = old[0] + (new - new.min()) * span / (new.max() - new.min())  # in this order: exact for whole numbers
    return np.stack([np.interp(places, old, each) for each in np.eye(len(old))], axis=1)
