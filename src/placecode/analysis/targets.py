"""Target arrangements to compare learned PEs with, computed from the true coordinates of the tokens.

They contain different information on a grid. "one-hot" contains equality of rows and columns, but no order. "grid"
contains distances only. "2d-fixed" contains both, and is the paper's target. "relation" contains which tokens share a
row or a column, as attention requires. The rotated target is a control: measures of arrangement do not depend on
rotations.

>>> cells = np.stack(np.divmod(np.arange(16), 4), axis=1)  # row and column of each token, (n, k)
>>> {name: target.shape[1] for name, target in targets(cells, 160).items()}
{'2d-fixed': 160, '2d-fixed rotated': 160, 'one-hot': 8, 'grid': 2, 'relation': 16}
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placecode.analysis.places import checked
from placecode.encodings import sinusoid

Array = npt.NDArray[np.float64]


def targets(positions: npt.ArrayLike, width: int, seed: int = 0) -> dict[str, Array]:
    """Return the target arrangements.

    Parameters
    ----------
    positions : array-like, shape (n, k)
        True coordinates of the tokens.
    width : int
        Number of features of the sinusoids.
    seed : int
        Seed of the random rotation.

    Returns
    -------
    dict of str to ndarray, shape (n, features)
        "2d-fixed" (or 1d, 3d, ..., by the number of coordinates): `encodings.sinusoid`. "2d-fixed rotated": the same
        times a random orthogonal matrix. "one-hot": one feature per row and per column. "grid": the coordinates.
        "relation": one feature per token, 1 for tokens that share a coordinate with it, including itself.
    """
    points = checked(positions)
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


def related(positions: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Return which different tokens share at least one coordinate, such as a row or a column.

    Parameters
    ----------
    positions : array-like, shape (n, k)

    Returns
    -------
    ndarray of bool, shape (n, n)

    Examples
    --------
    >>> related([[0, 0], [0, 1], [1, 1]]).astype(int).tolist()
    [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    """
    points = checked(positions)
    return _shared(points) & ~np.eye(len(points), dtype=bool)


def _shared(points: Array) -> npt.NDArray[np.bool_]:
    """Return which tokens share a coordinate, (n, n)."""
    return np.asarray((points[:, None] == points).any(axis=-1))
