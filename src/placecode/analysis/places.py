"""Compare a learned arrangement of tokens with their known positions in space, such as pixels or brain regions.

The argument `similarity` is a matrix of similarities of tokens, (n, n), of a PE or of data, as in `modules`.

>>> grid = np.stack(np.divmod(np.arange(9), 3), axis=1)  # a square of 3 x 3
>>> near = neighbors_in_space(grid)
>>> near.sum(axis=1).tolist()  # 2 neighbours of a corner, 3 at an edge, 4 in the middle
[2, 3, 2, 3, 4, 3, 2, 3, 2]
>>> round(procrustes_r2(5 * grid[:, ::-1] + 1, grid), 6)  # reflected, scaled and shifted
1.0
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import minimum_spanning_tree, shortest_path

from placecode.analysis.geometry import principal_points
from placecode.analysis.modules import symmetrize
from placecode.arrays import Array, BoolArray
from placecode.errors import must_be

SAME_PLACE = 1e-9
"""Two points count as equal if their distance is at most this fraction of the largest distance."""
BALL_TOLERANCE = 1e-9
"""A point counts as on the surface of a ball if it is outside by at most this fraction, because of rounding."""
CHUNK_VALUES = 2_000_000
"""Maximum number of values in a temporary array of `neighbors_in_space`, which limits memory use."""


def neighbors_in_space(positions: npt.ArrayLike) -> BoolArray:
    """Return, for every two tokens, whether they are neighbours in space (Gabriel graph): positions (n, k) -> (n, n).

    Two points are neighbours if no other point is in or on the ball whose diameter is the line between them (Gabriel
    and Sokal, 1969). On a square grid, these are the four adjacent cells. There is no threshold or unit of length, and
    the graph is connected in any number of dimensions. Points at the same position are neighbours of each other and
    have the same other neighbours. All triples are compared, which takes about a second for 1,000 points.
    """
    points = checked_positions(positions)
    points = points - points.mean(axis=0)
    squares = np.zeros((len(points), len(points)))
    for axis in points.T:
        squares += (axis[:, None] - axis) ** 2
    same: BoolArray = squares <= SAME_PLACE**2 * squares.max()
    # by Thales' theorem, k is in or on the ball of i and j if |ik|^2 + |jk|^2 <= |ij|^2; points k at the position of i
    # or j are not considered
    apart = np.where(same, np.inf, squares)
    near: BoolArray = same.copy()
    step = max(1, CHUNK_VALUES // max(len(points), 1) ** 2)
    for start in range(0, len(points), step):
        part = slice(start, start + step)
        least = (apart[part, None, :] + apart[None, :, :]).min(axis=-1)
        near[part] |= least > squares[part] * (1 + BALL_TOLERANCE)
    np.fill_diagonal(near, False)
    return near


def isomap_embedding(similarity: npt.ArrayLike, axes: int = 2, near: int = 8) -> Array:
    """Compute a map of the tokens from their similarities by Isomap (Tenenbaum et al., 2000), (n, n) -> (n, axes).

    Distant tokens are about equally dissimilar, so only the similarities of near tokens are used. Each token is
    connected with its `near` most similar tokens, and a minimum spanning tree keeps this graph connected. The length of
    a connection is the angle between the vectors of both tokens, the arc cosine of their similarity. Tokens at the edge
    have fewer near neighbours and thus longer connections. Each length is therefore divided by sqrt(a b), where a and b
    are the angles from each of the two tokens to the last of its `near` neighbours (local scaling, Zelnik-Manor and
    Perona, 2004). The distance of two tokens is the length of the shortest path. Classical scaling of these distances
    gives a map with `axes` dimensions, ordered as in `geometry.mds`. It is NaN if a similarity is not finite.

    >>> line = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> isomap_embedding(np.exp(-np.abs(line - line.T)), axes=1, near=1).round(1).ravel().tolist()
    [1.5, 0.5, -0.5, -1.5]
    """
    weights, _ = symmetrize(similarity)
    n = weights.shape[-1]
    if weights.ndim != 2:
        raise must_be("similarity", "one matrix (tokens, tokens)", np.shape(similarity))
    if not np.isfinite(np.asarray(similarity, dtype=np.float64)).all():
        return np.full((n, axes), np.nan)
    if n < 3:
        return np.stack([np.linspace(0.5, -0.5, n), *np.zeros((axes - 1, n))], axis=1)
    angle = np.arccos(np.clip(weights, -1.0, 1.0)) + 1e-6  # scipy takes a distance of 0 for a missing edge
    neighbors = np.argsort(angle + 9.0 * np.eye(n), axis=1, kind="stable")[:, : min(near, n - 1)]
    last_angle = angle[np.arange(n), neighbors[:, -1]]
    angle = angle / np.sqrt(last_angle[:, None] * last_angle)
    np.fill_diagonal(angle, 0.0)
    edges = np.zeros((n, n))
    np.put_along_axis(edges, neighbors, np.take_along_axis(angle, neighbors, axis=1), axis=1)
    edges = np.maximum(edges, minimum_spanning_tree(angle).toarray())
    distances = shortest_path(np.maximum(edges, edges.T), directed=False)
    centring = np.eye(n) - 1 / n
    return principal_points(-0.5 * centring @ distances**2 @ centring, axes)


def procrustes_r2(placed: npt.ArrayLike, positions: npt.ArrayLike) -> float:
    """Return how well a map, `placed`, fits the true positions, (n, k) each: 1 minus the Procrustes disparity.

    This is the fraction of the variance of the positions that the map explains after the best translation, rotation,
    reflection and scaling, from 0 to 1. It measures the whole map rather than local neighbourhoods. A map of n random
    points on two axes reaches about 1.5 / n. The result is NaN if all points of the map or all positions are equal, or
    if the map is not finite.
    """
    map_, true = np.asarray(placed, dtype=np.float64), checked_positions(positions)  # (n, k)
    if map_.shape != true.shape:
        raise must_be("placed", f"an array of the shape of the positions, {true.shape}", map_.shape)
    if not np.isfinite(map_).all():
        return float("nan")
    centred_map, centred_true = map_ - map_.mean(axis=0), true - true.mean(axis=0)
    sizes = [float(np.linalg.norm(centred)) for centred in (centred_map, centred_true)]
    for size, points in zip(sizes, (map_, true), strict=True):
        if size <= 1e-12 * float(np.linalg.norm(points)):
            return float("nan")
    explained = float(np.linalg.svd(centred_map.T @ centred_true / (sizes[0] * sizes[1]), compute_uv=False).sum())
    return min(explained**2, 1.0)


def checked_positions(positions: npt.ArrayLike) -> Array:
    """Return a copy of positions, (n, k), as float64, or raise `BadInput` if their shape or a value is invalid."""
    points = np.array(positions, dtype=np.float64)
    if points.ndim != 2 or 0 in points.shape or not np.isfinite(points).all():
        raise must_be("positions", "finite numbers (tokens, axes), at least one of each", points.shape)
    return points
