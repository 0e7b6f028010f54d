"""Describe the geometry of a positional encoding (PE): size, change in training, dimension, and 2-D maps of its tokens.

A PE has shape (l, n, d): blocks, tokens and features, or (n, d) for a single block. All functions accept any leading
axes (members, steps, ...) and return one result for each index along them. If a PE contains NaN or infinity (a member
that diverged), its result is NaN, and the results of other PEs are not affected.

>>> pe = np.random.default_rng(0).normal(size=(5, 4, 16, 32))  # (e, l, n, d)
>>> norm(pe).shape, moved(pe, 2 * pe).relative.shape, effective_dimension(pe).shape, mds(pe).places.shape
((5,), (5,), (5,), (5, 16, 2))
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import orthogonal_procrustes

from placecode.analysis.alignment import side_by_side
from placecode.arrays import Array
from placecode.errors import must_be


class Moved(NamedTuple):
    """Change of a PE in training, as `moved` returns it. Each array has one value per PE, shape (...)."""

    absolute: Array
    """Frobenius norm of the difference between the PEs before and after training."""
    relative: Array
    """Frobenius norm of the difference, divided by the Frobenius norm of the PE before training."""


class Map(NamedTuple):
    """A map of the tokens in a few dimensions, as `mds` returns it."""

    places: Array
    """Coordinates of the tokens, (..., n, axes)."""
    stress: Array
    """Kruskal's stress-1, the error of the distances on the map, (...)."""


def norm(pe: npt.ArrayLike) -> Array:
    """Return the root mean square of all values of a PE, (..., l, n, d) -> (...). Before training it is about sigma."""
    return np.asarray(np.sqrt((_finite(pe) ** 2).mean(axis=(-2, -1))))


def moved(start: npt.ArrayLike, end: npt.ArrayLike) -> Moved:
    """Compute the change of a PE from `start` to `end`, such as in training: the norm of the difference.

    Steps of Adam have about the same length for small and large PEs, so the relative change of large PEs is small.

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
    """Compute the effective number of dimensions in which the tokens vary (participation ratio).

    It is (sum v)^2 / sum v^2, with the variances v along the principal axes. If k variances are equal and all others
    are zero, it is k. Scaling and rotation do not change it.

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
    """Compute a map of the tokens by metric multidimensional scaling of their euclidean distances.

    Blocks are concatenated. The SMACOF algorithm starts from classical scaling. The map is centred, and its first axis
    has the largest variance. On each axis, the token with the largest absolute coordinate is on the positive side.

    Parameters
    ----------
    pe : array-like, shape (..., l, n, d) or (n, d)
    axes : int
        Number of dimensions of the map.
    steps : int
        Number of SMACOF iterations.

    Returns
    -------
    Map
        Kruskal's stress-1 is sqrt(sum (m - t)^2 / sum m^2), with distances m on the map and t between the PEs. It is 0
        for a perfect map, and about 0.37 for 16 random tokens. Map and stress are NaN if all tokens are equal.
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


def align_map(places: npt.ArrayLike, onto: npt.ArrayLike) -> Array:
    """Return a map centred, rotated and reflected so that it is as close as possible to another map.

    Use it to compare two maps visually. The map is not scaled.

    Parameters
    ----------
    places, onto : array-like, shape (n, axes)
        The map to rotate, and the map to compare it with.

    Returns
    -------
    ndarray, shape (n, axes)
        `places` is returned unchanged if one of the maps contains NaN or infinity.
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
    """Return PEs with concatenated blocks, (..., l, n, d) -> (..., n, l * d), all NaN if any value is not finite."""
    tokens = side_by_side(pe)
    return np.where(np.isfinite(tokens).all(axis=(-2, -1), keepdims=True), tokens, np.nan)


def _centred(pe: npt.ArrayLike) -> Array:
    """Return PEs with concatenated blocks, centred over tokens, (..., n, l * d). Zeros if all tokens are equal."""
    tokens = _finite(pe)
    centred = tokens - tokens.mean(axis=-2, keepdims=True)
    rounding = np.linalg.norm(tokens, axis=(-2, -1), keepdims=True) * tokens.shape[-2] * 1e-15
    return np.where(np.linalg.norm(centred, axis=(-2, -1), keepdims=True) > rounding, centred, 0.0)


def _ratio(numerator: Array, denominator: Array) -> Array:
    """Return numerator / denominator elementwise, or NaN where the denominator is zero."""
    return np.asarray(numerator / np.where(denominator == 0, np.nan, denominator))


def principal_points(products: Array, axes: int) -> Array:
    """Return coordinates of points on their first `axes` principal axes, (..., n, n) -> (..., n, axes).

    `products` are the inner products of all pairs of points. On each axis, the coordinate with the largest absolute
    value is positive. Coordinates are zero on axes of negative eigenvalues, and on axes beyond the number of points.
    """
    squares, directions = np.linalg.eigh(products)  # (..., n), (..., n, n), ascending
    points = (directions * np.sqrt(np.maximum(squares, 0.0))[..., None, :])[..., ::-1][..., :axes]
    size = np.abs(points)
    first = (size >= 0.999999 * size.max(axis=-2, keepdims=True)).argmax(axis=-2)  # ties are not decided by rounding
    points = points * np.where(np.take_along_axis(points, first[..., None, :], axis=-2) < 0, -1.0, 1.0)
    return np.pad(points, [(0, 0)] * (points.ndim - 1) + [(0, axes - points.shape[-1])])


def _distances(tokens: Array) -> Array:
    """Return euclidean distances of all pairs of tokens, (..., n, d) -> (..., n, n).

    Features are added one by one, which avoids an array of shape (..., n, n, d).
    """
    squares = np.zeros((*tokens.shape[:-1], tokens.shape[-2]))
    for feature in np.moveaxis(tokens, -1, 0):
        squares += (feature[..., :, None] - feature[..., None, :]) ** 2
    return np.sqrt(squares)
