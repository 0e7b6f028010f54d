"""Arrangements that a learned PE may be held against, made from the true coordinates of the tokens.

What they say about a grid differs. "one-hot": same row or same column, and no order. "grid": how far apart, and nothing
else. "2d-fixed": both, and the paper's yardstick. "relation": which tokens share a row or a column, the way attention
would need it. The rotated one is a control: a measure of arrangement gives it the same value as the other.

>>> cells = np.stack(np.divmod(np.arange(16), 4), axis=1)  # row and column of each token, (n, k)
>>> {name: target.shape[1] for name, target in targets(cells, 160).items()}
{'2d-fixed': 160, '2d-fixed rotated': 160, 'one-hot': 8, 'grid': 2, 'relation': 16}
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placecode.encodings import sinusoid
from placecode.errors import must_be

Array = npt.NDArray[np.float64]


def targets(positions: npt.ArrayLike, width: int, seed: int = 0) -> dict[str, Array]:
    """Named targets (n, features) for tokens at `positions` (n, k); `width` is that of the sinusoids.

    "2d-fixed" (or 1d, 3d, ...: by the number of coordinates) are the sinusoids of `encodings.sinusoid`, and "2d-fixed
    rotated" the same times a random orthogonal matrix drawn from the seed. "one-hot" has a feature for each row and
    each column, "grid" the coordinates themselves, "relation" a feature for each token: 1 for the tokens that share a
    coordinate with it, and for itself.
    """
    places = _places(positions)
    fixed = sinusoid(places, width)
    rotation, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(width, width)))
    name = f"{places.shape[1]}d-fixed"
    return {
        name: fixed,
        f"{name} rotated": fixed @ rotation,
        "one-hot": np.concatenate([axis[:, None] == np.unique(axis) for axis in places.T], axis=1).astype(np.float64),
        "grid": places,
        "relation": _shared(places).astype(np.float64),
    }


def related(positions: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Which different tokens share at least one coordinate (a row, a column, ...), (n, k) -> (n, n).

    >>> related([[0, 0], [0, 1], [1, 1]]).astype(int).tolist()
    [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    """
    places = _places(positions)
    return _shared(places) & ~np.eye(len(places), dtype=bool)


def _shared(places: Array) -> npt.NDArray[np.bool_]:
    return np.asarray((places[:, None] == places).any(axis=-1))


def _places(positions: npt.ArrayLike) -> Array:
    places = np.array(positions, dtype=np.float64)
    if places.ndim != 2 or 0 in places.shape or not np.isfinite(places).all():
        raise must_be("positions", "finite numbers, (tokens, coordinates)", places.shape)
    return places
