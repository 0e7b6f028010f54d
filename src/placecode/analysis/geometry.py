"""Geometry of a positional encoding (PE) without a target: size, change in training, dimension and maps.

All functions accept leading axes (members, steps, ...) and return one result per entry. (n, d) is a single block.
Entries that are not finite (members that diverged) give NaN and do not affect other entries.

>>> pe = np.random.default_rng(0).normal(size=(5, 4, 16, 32))  # (e, l, n, d)
>>> norm(pe).shape, moved(pe, 2 * pe).relative.shape, effective_dimension(pe).shape, mds(pe).places.shape
((5,), (5,), (5,), (5, 16, 2))
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import orthogonal_procrustes

from placecode.analysis.alignment import Array, side_by_side
from placecode.errors import must_be


class Moved(NamedTuple):
    """Change of a PE in training, arrays of shape (...)."""

    absolute: Array
    """Frobenius norm of the difference."""
    relative: Array
    """The same, divided by the Frobenius norm before training."""


class Map(NamedTuple):
    """A map of tokens on a few axes."""

    places: Array
    """Coordinates of the tokens, (..., n, axes)."""
    stress: Array
    """Kruskal's stress-1, (...)."""


def norm(pe: npt.ArrayLike) -> Array:
    """Return the root mean square of all entries, (..., l, n, d) -> (...). Before training it is about sigma."""
    return np.asarray(np.sqrt((_finite(pe) ** 2).mean(axis=(-2, -1))))


def moved(start: npt.ArrayLike, end: npt.ArrayLike) -> Moved:
    """Compute the distance between two PEs, for example before and after training.

    The length of an Adam step hardly depends on the size of the PE, so large PEs change little in relative terms.

    Parameters
    ----------
    start, end : array-like, shape (..., l, n, d) or (n, d)

    Returns
    -------
    Moved
        `relative` is NaN if `start` is zero.
    """
    before, after = _finite(start), _finite(end)
    if before.shape != after.shape:
        raise must_be("end", f"an array of the shape of the start, {np.shape(start)}", np.shape(end))
    distance = np.linalg.norm(after - before, axis=(-2, -1))
    return Moved(distance, _ratio(distance, np.linalg.norm(before, axis=(-2, -1))))


def effective_dimension(pe: npt.ArrayLike) -> Array:
    """Compute the participation ratio (sum v)^2 / sum v^2 of the variances v along the principal axes.

    k equal variances, and no others, give k. It is invariant to scaling and rotation.

    Parameters
    ----------
    pe : array-like, shape (..., l, n, d) or (n, d)

    Returns
    -------
    ndarray, shape (...)
        From 1 to n - 1. NaN if all tokens are equal.
    """
    tokens = _centred(pe)
    gram = tokens @ np.swapaxes(tokens, -1, -2)  # its eigenvalues are n v; both sums can be read from the matrix
    return _ratio(np.trace(gram, axis1=-2, axis2=-1) ** 2, (gram**2).sum(axis=(-2, -1)))


def mds(pe: npt.ArrayLike, axes: int = 2, steps: int = 300) -> Map:
    """Metric multidimensional scaling of the euclidean distances between tokens, with blocks concatenated.

    SMACOF starts from classical scaling. The map is centred, and the axis with the largest variance is the first. The
    token with the largest absolute coordinate on an axis is on the positive side.

    Parameters
    ----------
    pe : array-like, shape (..., l, n, d) or (n, d)
    axes : int
    steps : int
        Number of SMACOF iterations.

    Returns
    -------
    Map
        Kruskal's stress-1, sqrt(sum (map - true)^2 / sum map^2), is 0 for a perfect map, and about 0.37 for 16 random
        tokens. NaN if all tokens are equal.
    """
    tokens = _centred(pe)
    true = _distances(tokens)
    places = principal_points(tokens @ np.swapaxes(tokens, -1, -2), axes)
    for _ in range(steps):  # Guttman transform
        distances = _distances(places)
        # no contribution from tokens that coincide on the map
        ratio = np.divide(true, distances, out=np.zeros_like(true), where=distances > 1e-9 * true)
        places = (ratio.sum(axis=-1, keepdims=True) * places - ratio @ places) / places.shape[-2]
    places = principal_points(places @ np.swapaxes(places, -1, -2), axes)
    distances = _distances(places)
    stress = np.sqrt(_ratio(((distances - true) ** 2).sum(axis=(-2, -1)), (distances**2).sum(axis=(-2, -1))))
    return Map(np.where(np.isnan(stress)[..., None, None], np.nan, places), stress)


def turned(places: npt.ArrayLike, onto: npt.ArrayLike) -> Array:
    """Centre a map, and rotate and reflect it onto another map, for visual comparison.

    Parameters
    ----------
    places, onto : array-like, shape (n, axes)

    Returns
    -------
    ndarray, shape (n, axes)
        A map with NaN is returned unchanged.
    """
    source, target = (np.asarray(points, dtype=np.float64) for points in (places, onto))
    if source.ndim != 2 or source.shape != target.shape:
        raise must_be("places and onto", "two maps of one shape (tokens, axes)", (source.shape, target.shape))
    if not (np.isfinite(source).all() and np.isfinite(target).all()):
        return source
    source, target = source - source.mean(0), target - target.mean(0)
    rotation, _ = orthogonal_procrustes(source, target)
    return np.asarray(source @ rotation)


def _finite(pe: npt.ArrayLike) -> Array:
    """Concatenate blocks, (..., l, n, d) -> (..., n, l * d). Entries with values that are not finite become NaN."""
    tokens = side_by_side(pe)
    return np.where(np.isfinite(tokens).all(axis=(-2, -1), keepdims=True), tokens, np.nan)


def _centred(pe: npt.ArrayLike) -> Array:
    """Concatenate blocks and centre tokens. Zeros if tokens are all equal."""
    tokens = _finite(pe)
    centred = tokens - tokens.mean(axis=-2, keepdims=True)
    rounding = np.linalg.norm(tokens, axis=(-2, -1), keepdims=True) * tokens.shape[-2] * 1e-15
    return np.where(np.linalg.norm(centred, axis=(-2, -1), keepdims=True) > rounding, centred, 0.0)


def _ratio(above: Array, below: Array) -> Array:
    """Divide elementwise. NaN for division by zero."""
    return np.asarray(above / np.where(below == 0, np.nan, below))


def principal_points(products: Array, axes: int) -> Array:
    """Return points with these inner products on their first principal axes, (..., n, n) -> (..., n, axes).

    The largest absolute coordinate on an axis is positive. Missing axes are zero, as are those of negative eigenvalues.
    """
    squares, directions = np.linalg.eigh(products)  # (..., n), (..., n, n), ascending
    points = (directions * np.sqrt(np.maximum(squares, 0.0))[..., None, :])[..., ::-1][..., :axes]
    size = np.abs(points)
    first = (size >= 0.999999 * size.max(axis=-2, keepdims=True)).argmax(axis=-2)  # ties are not decided by rounding
    points = points * np.where(np.take_along_axis(points, first[..., None, :], axis=-2) < 0, -1.0, 1.0)
    return np.pad(points, [(0, 0)] * (points.ndim - 1) + [(0, axes - points.shape[-1])])


def _distances(tokens: Array) -> Array:
    """Compute pairwise distances, (..., n, d) -> (..., n, n), by feature to avoid an array (..., n, n, d)."""
    squares = np.zeros((*tokens.shape[:-1], tokens.shape[-2]))
    for feature in np.moveaxis(tokens, -1, 0):
        squares += (feature[..., :, None] - feature[..., None, :]) ** 2
    return np.sqrt(squares)
