"""Compare attention maps (matrices of attention weights) with a reference, such as the ideal map for a grid of tokens.

All functions accept any leading axes (members, blocks, heads, ...) and return one result for each index along them. If
a map contains NaN or infinity (a member that diverged), its result is NaN, and other results are not affected.

>>> ideal = ideal_map([(0, 0), (0, 1), (1, 0), (1, 1)])
>>> maps = np.full((5, 4, 1, 4, 4), 0.25) + 0.1 * (ideal - 0.25)  # (e, l, h, n, n)
>>> cosine(maps, ideal).shape, bool(np.allclose(correlation(maps, ideal), 1))
((5, 4, 1), True)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placecode.arrays import Array
from placecode.errors import must_be


def ideal_map(positions: npt.ArrayLike) -> Array:
    """Return the ideal attention map: each token attends equally to all tokens that share a coordinate with it.

    On a grid these are the tokens of the same row or column, including the token itself.

    Parameters
    ----------
    positions : array-like, shape (n, axes)
        True coordinates of the tokens.

    Returns
    -------
    ndarray, shape (n, n)
        Rows sum to 1.
    """
    points = np.asarray(positions)
    if points.ndim != 2:
        raise must_be("positions", "an array (tokens, axes)", points.shape)
    shared = (points[:, None] == points).any(axis=-1)  # (n, n)
    return np.asarray(shared / shared.sum(axis=-1, keepdims=True))


def cosine(maps: npt.ArrayLike, reference: npt.ArrayLike) -> Array:
    """Compute the cosine similarity of attention maps with a reference map.

    It is high even without structure: uniform attention has a cosine similarity of 0.66 with the ideal map of a 4 x 4
    grid. `correlation` corrects for this.

    Parameters
    ----------
    maps, reference : array-like, shape (..., n, n)

    Returns
    -------
    ndarray, shape (...)
        From 0 to 1, because attention weights are not negative.
    """
    return _cosine(*_pair(maps, reference))


def correlation(maps: npt.ArrayLike, reference: npt.ArrayLike) -> Array:
    """Compute Pearson's correlation of attention maps with a reference map, over all n * n attention weights.

    Each row of a map sums to 1, so the mean weight is 1 / n. The correlation is the cosine similarity after 1 / n is
    subtracted from all weights.

    Parameters
    ----------
    maps, reference : array-like, shape (..., n, n)

    Returns
    -------
    ndarray, shape (...)
        From -1 to 1. NaN if one of the maps is uniform.
    """
    a, b = _pair(maps, reference)
    uniform = 1 / a.shape[-1]
    return _cosine(_without_rounding(a - uniform, a), _without_rounding(b - uniform, b))


def _pair(maps: npt.ArrayLike, reference: npt.ArrayLike) -> tuple[Array, Array]:
    """Return maps and reference as float64, with NaN for infinite values, after a check that their sizes are equal."""
    a, b = np.asarray(maps, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    if min(a.ndim, b.ndim) < 2 or a.shape[-2:] != b.shape[-2:]:
        raise must_be("maps", f"an array of maps as large as the reference, {b.shape[-2:]}", a.shape)
    return np.where(np.isfinite(a), a, np.nan), np.where(np.isfinite(b), b, np.nan)


def _without_rounding(difference: Array, maps: Array) -> Array:
    """Return `difference`, which is maps - 1 / n, (..., n, n), with zeros for maps that are uniform up to rounding.

    Attention is computed in float32, so differences below its precision are rounding errors.
    """
    small = np.linalg.norm(difference, axis=(-2, -1)) <= 1e-6 * np.linalg.norm(maps, axis=(-2, -1))
    return np.where(small[..., None, None], 0.0, difference)


def _cosine(a: Array, b: Array) -> Array:
    """Return the cosine similarity of two arrays of maps, (..., n, n) -> (...). It is NaN where either map is all
    zeros."""
    product = (a * b).sum(axis=(-2, -1))
    size = np.linalg.norm(a, axis=(-2, -1)) * np.linalg.norm(b, axis=(-2, -1))
    return np.asarray(np.clip(product / np.where(size == 0, np.nan, size), -1.0, 1.0))
