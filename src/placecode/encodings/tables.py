"""Rescale arrays of positional encodings (PEs), and interpolate them from one grid of tokens to another.

>>> four, five = (np.stack(np.divmod(np.arange(n * n), n), axis=1) for n in (4, 5))
>>> resized(four[None, :, :1], four, five)[0, ::5, 0]  # the PE is the row index; shown in the first column of 5 x 5
array([0.  , 0.75, 1.5 , 2.25, 3.  ])
"""

from __future__ import annotations

import numpy as np

from placecode.errors import must_be


def root_mean_square(pe: np.ndarray) -> float:
    """Return the root mean square of all entries of a PE."""
    return float(np.sqrt(np.mean(np.square(pe))))


def scaled(pe: np.ndarray, sigma: float) -> np.ndarray:
    """Return a PE rescaled to a root mean square of sigma. A PE of zeros is returned unchanged."""
    size = root_mean_square(pe)
    return pe if size == 0 else np.asarray(pe * (sigma / size))


def is_grid(positions: np.ndarray | None) -> bool:
    """Return whether tokens form a complete rectangular grid with at least two rows and two columns.

    `positions` are the coordinates of the tokens, (n, k), or None. The result is False if they are None or k is not 2.
    """
    if positions is None or positions.ndim != 2 or positions.shape[1] != 2:
        return False
    sides = [len(np.unique(axis)) for axis in positions.T]
    return min(sides) > 1 and len(positions) == np.prod(sides) == len(np.unique(positions, axis=0))


def resized(pe: np.ndarray, positions: np.ndarray, onto: np.ndarray) -> np.ndarray:
    """Return a PE interpolated linearly from a grid of n tokens to one of m tokens: (l, n, d) -> (l, m, d).

    The PE has d features per token in each of l blocks. `positions`, (n, 2), has the row and column of each token of
    the old grid, and `onto`, (m, 2), of the new grid. Grids are stretched so that their corners coincide.
    """
    for name, points in (("positions", positions), ("onto", onto)):
        if not is_grid(points):
            raise must_be(name, "a full grid of rows and columns", points.shape)
    (rows, row), (columns, column) = (np.unique(axis, return_inverse=True) for axis in positions.T)
    grid = np.empty((len(pe), len(rows), len(columns), pe.shape[-1]))
    grid[:, row, column] = pe
    by_row, by_column = (_weights(old, new) for old, new in zip((rows, columns), onto.T, strict=True))
    return np.asarray(np.einsum("ma,mb,labd->lmd", by_row, by_column, grid))


def _weights(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return the matrix, (m, a), that interpolates values at `a` coordinates `old` linearly to m coordinates `new`.

    The coordinates `new` are first shifted and scaled to the range of `old`.
    """
    span = old[-1] - old[0]
    points = old[0] + (new - new.min()) * span / (new.max() - new.min())  # this order is exact for whole numbers
    return np.stack([np.interp(points, old, unit) for unit in np.eye(len(old))], axis=1)
