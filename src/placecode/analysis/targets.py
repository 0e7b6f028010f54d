"""Compute target arrangements to compare learned PEs with, from the true coordinates of the tokens.

A target has one vector per token, like a PE. Targets for a grid differ in what they say about it:

- "one-hot": which tokens are in the same row or the same column, but not the order of rows and columns.
- "grid": distances only.
- "2d-fixed": rows, columns and distances. It is the paper's target, the sinusoidal encoding of row and column.
- "2d-fixed rotated": a control. It must give the same results as "2d-fixed", as measures do not depend on rotations.
- "relation": which tokens share a row or a column, which is what attention requires.

>>> cells = np.stack(np.divmod(np.arange(16), 4), axis=1)  # row and column of each token, (n, k)
>>> {name: target.shape[1] for name, target in targets(cells, 160).items()}
{'2d-fixed': 160, '2d-fixed rotated': 160, 'one-hot': 8, 'grid': 2, 'relation': 16}
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placecode.analysis.places import checked_positions
from placecode.arrays import Array, BoolArray
from placecode.encodings import sinusoid


def targets(positions: npt.ArrayLike, width: int, seed: int = 0) -> dict[str, Array]:
    """Return arrangements of the tokens to compare PEs with, by name. Each is an array with one vector per token.

    Parameters
    ----------
    positions : array-like, shape (n, k)
        True coordinates of n tokens, such as row and column.
    width : int
        Number of features of "2d-fixed".
    seed : int
        Seed of the random rotation.

    Returns
    -------
    dict of str to ndarray, shape (n, features)
        - "2d-fixed": the sinusoidal encoding of the coordinates (`encodings.sinusoid`). With three, it is "3d-fixed".
        - "2d-fixed rotated": the same, multiplied by a random orthogonal matrix.
        - "one-hot": one feature per row and one per column, 1 for the tokens in it and 0 for others.
        - "grid": the coordinates.
        - "relation": n features. Feature j of token i is 1 if i and j share a coordinate or are the same, otherwise 0.
    """
    points = checked_positions(positions)
    fixed = sinusoid(points, width)
    rotation, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(width, width)))
    name = f"{points.shape[1]}d-fixed"
    return {
        name: fixed,
        f"{name} rotated": fixed @ rotation,
        "one-hot": np.concatenate([axis[:, None] == np.unique(axis) for axis in points.T], axis=1).astype(np.float64),
        "grid": points,
        "relation": _shared(points).astype(np.float64),
    }


def related(positions: npt.ArrayLike) -> BoolArray:
    """Return, for every two different tokens, whether they share at least one coordinate, such as the row.

    Parameters
    ----------
    positions : array-like, shape (n, k)
        True coordinates of the tokens.

    Returns
    -------
    ndarray of bool, shape (n, n)
        The diagonal is False.

    Examples
    --------
    >>> related([[0, 0], [0, 1], [1, 1]]).astype(int).tolist()
    [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    """
    points = checked_positions(positions)
    return _shared(points) & ~np.eye(len(points), dtype=bool)


def _shared(points: Array) -> BoolArray:
    """Return, for every two tokens, whether they share a coordinate, (n, k) -> (n, n). The diagonal is True."""
    return np.asarray((points[:, None] == points).any(axis=-1))
