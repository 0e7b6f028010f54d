"""Do tokens attend to the tokens that matter to them? Attention maps beside the map that the arrangement suggests.

Every function takes leading axes (members, blocks, heads, ...) and gives one result per entry. What is not finite (a
member that diverged) gives NaN, never an exception, so that its neighbours are still measured.

>>> ideal = ideal_map([(0, 0), (0, 1), (1, 0), (1, 1)])
>>> maps = np.full((5, 4, 1, 4, 4), 0.25) + 0.1 * (ideal - 0.25)  # (e, l, h, n, n)
>>> cosine(maps, ideal).shape, bool(np.allclose(correlation(maps, ideal), 1))
((5, 4, 1), True)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placecode.errors import must_be

Array = npt.NDArray[np.float64]


def ideal_map(positions: npt.ArrayLike) -> Array:
    """Attention spread evenly over the tokens that share a coordinate, (n, axes) -> (n, n), rows summing to 1.

    On a grid those are the tokens of the same row or column; a token shares its place with itself, and counts.
    """
    places = np.asarray(positions)
    if places.ndim != 2:
        raise must_be("positions", "an array (tokens, axes)", places.shape)
    shared = (places[:, None] == places).any(axis=-1)  # (n, n)
    return np.asarray(shared / shared.sum(axis=-1, keepdims=True))


def cosine(maps: npt.ArrayLike, reference: npt.ArrayLike) -> Array:
    """Cosine of maps laid out as vectors, (..., n, n) and (..., n, n) -> (...), from 0 to 1 for attention.

    High without any structure: uniform attention has 0.66 with the ideal map of a 4 x 4 grid. `correlation` has not.
    """
    return _cosine(*_pair(maps, reference))


def correlation(maps: npt.ArrayLike, reference: npt.ArrayLike) -> Array:
    """The same with 1 / n taken off every entry of both, (..., n, n) and (..., n, n) -> (...), from -1 to 1.

    What is left is where a token looks more, or less, than it would at random. Rows of attention sum to 1, so this is
    Pearson's correlation of the entries. NaN where attention is uniform, and nothing is left.
    """
    own, true = _pair(maps, reference)
    uniform = 1 / own.shape[-1]
    return _cosine(_beyond_rounding(own - uniform, own), _beyond_rounding(true - uniform, true))


def _pair(maps: npt.ArrayLike, reference: npt.ArrayLike) -> tuple[Array, Array]:
    own, true = np.asarray(maps, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    if min(own.ndim, true.ndim) < 2 or own.shape[-2:] != true.shape[-2:]:
        raise must_be("maps", f"an array of maps as large as the reference, {true.shape[-2:]}", own.shape)
    return np.where(np.isfinite(own), own, np.nan), np.where(np.isfinite(true), true, np.nan)


def _beyond_rounding(rest: Array, whole: Array) -> Array:
    """Zeros where the rest is no more than the rounding of float32, in which attention is computed."""
    small = np.linalg.norm(rest, axis=(-2, -1)) <= 1e-6 * np.linalg.norm(whole, axis=(-2, -1))
    return np.where(small[..., None, None], 0.0, rest)


def _cosine(own: Array, true: Array) -> Array:
    both = (own * true).sum(axis=(-2, -1))
    size = np.linalg.norm(own, axis=(-2, -1)) * np.linalg.norm(true, axis=(-2, -1))
    return np.asarray(np.clip(both / np.where(size == 0, np.nan, size), -1.0, 1.0))
