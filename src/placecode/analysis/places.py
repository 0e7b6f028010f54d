"""Does the learned arrangement have the shape of the true one? For tokens whose places in space are known.

A similarity is a matrix (..., n, n) as in `modules`: of PEs, or of data. Who is next to whom in space is told by
`neighbors_in_space`, by no threshold and in no unit; `place_agreement` asks whether the most similar token is one of
those, and `procrustes_r2` how well a map as a whole fits the true places.

>>> grid = np.stack(np.divmod(np.arange(9), 3), axis=1)  # a square of 3 x 3
>>> near = neighbors_in_space(grid)
>>> near.sum(axis=1).tolist()  # 2 for a corner, 3 at an edge, 4 in the middle
[2, 3, 2, 3, 4, 3, 2, 3, 2]
>>> apart = np.linalg.norm(grid[:, None] - grid, axis=-1)
>>> float(place_agreement(-apart, near)), float(place_agreement(apart, near))
(1.0, 0.0)
>>> round(procrustes_r2(5 * grid[:, ::-1] + 1, grid), 6)  # mirrored, larger and elsewhere: still the same square
1.0
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import minimum_spanning_tree, shortest_path

from placecode.analysis.modules import nearest, symmetric, whole_numbers
from placecode.errors import must_be

Array = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

SAME_PLACE = 1e-9
"""Points nearer to each other than this share of the whole extent lie in one place, but for rounding."""
ON_BALL = 1e-9
"""A point outside a ball by less than this share of its size lies on it, but for rounding."""
AT_ONCE = 2_000_000
"""Sums of two squared distances that are held at once."""


def neighbors_in_space(positions: npt.ArrayLike) -> Bools:
    """Who is next to whom, (n, k) -> (n, n): the Gabriel graph (Gabriel and Sokal, 1969).

    Two points are neighbours when no other lies in or on the ball whose diameter joins them. On a square grid these are
    the four adjacent cells and no diagonals; everyone has a neighbour, whatever the number of axes, and all are joined
    by ways over neighbours. Points in one place are neighbours of each other, and have the same neighbours elsewhere.
    Nobody is their own. By comparing all triples: about a second for 1,000 points.
    """
    points = _places("positions", positions)
    points = points - points.mean(axis=0)
    squares = np.zeros((len(points), len(points)))
    for axis in points.T:
        squares += (axis[:, None] - axis) ** 2
    same: Bools = squares <= SAME_PLACE**2 * squares.max()
    # By Thales, k lies in or on the ball over i and j where |ik|^2 + |jk|^2 <= |ij|^2; who shares a place with i or j
    # is no third.
    third = np.where(same, np.inf, squares)
    near: Bools = same.copy()
    step = max(1, AT_ONCE // max(len(points), 1) ** 2)
    for start in range(0, len(points), step):
        part = slice(start, start + step)
        least = (third[part, None, :] + third[None, :, :]).min(axis=-1)
        near[part] |= least > squares[part] * (1 + ON_BALL)
    np.fill_diagonal(near, False)
    return near


def arrange(similar: npt.ArrayLike, axes: int = 2, near: int = 8) -> Array:
    """A map of the tokens from their similarities, cosines or correlations (n, n) -> (n, axes), the widest axis first.

    Far tokens are about equally dissimilar, so that only near ones tell how far it is: distances are added up along the
    shortest way over the `near` nearest ones of each (angles between vectors; a spanning tree joins what would fall
    apart), and the map has distances like those (classical scaling: Isomap, Tenenbaum et al., 2000). What is far for
    one token is near for another, at the edge: so an angle counts against those to the last of the near ones, as in
    local scaling (Zelnik-Manor and Perona, 2004). On each axis the token farthest out lies on the positive side.

    >>> line = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> arrange(np.exp(-np.abs(line - line.T)), axes=1, near=1).round(1).ravel().tolist()
    [1.5, 0.5, -0.5, -1.5]
    """
    weights, _ = symmetric(similar)
    n = weights.shape[-1]
    if weights.ndim != 2:
        raise must_be("similar", "one matrix (tokens, tokens)", np.shape(similar))
    if not np.isfinite(np.asarray(similar, dtype=np.float64)).all():
        return np.full((n, axes), np.nan)
    if n < 3:
        return np.stack([np.linspace(0.5, -0.5, n), *np.zeros((axes - 1, n))], axis=1)
    angle = np.arccos(np.clip(weights, -1.0, 1.0)) + 1e-6  # a distance of 0 would be no edge
    others = np.argsort(angle + 9.0 * np.eye(n), axis=1, kind="stable")[:, : min(near, n - 1)]
    reach = angle[np.arange(n), others[:, -1]]
    angle = angle / np.sqrt(reach[:, None] * reach)
    np.fill_diagonal(angle, 0.0)
    edges = np.zeros((n, n))
    np.put_along_axis(edges, others, np.take_along_axis(angle, others, axis=1), axis=1)
    edges = np.maximum(edges, minimum_spanning_tree(angle).toarray())
    ways = shortest_path(np.maximum(edges, edges.T), directed=False)
    centring = np.eye(n) - 1 / n
    squares, directions = np.linalg.eigh(-0.5 * centring @ ways**2 @ centring)
    found = (directions * np.sqrt(np.maximum(squares, 0.0)))[:, ::-1][:, :axes]
    found = np.pad(found, [(0, 0), (0, max(0, axes - n))])
    far = np.abs(found)
    first = (far >= 0.999999 * far.max(axis=0)).argmax(axis=0)  # rounding must not choose among ties
    return np.asarray(found * np.where(found[first, np.arange(axes)] < 0, -1.0, 1.0))


def place_agreement(similar: npt.ArrayLike, near: npt.ArrayLike) -> Array:
    """Share of tokens whose most similar other token is near, (..., n, n) and (..., n, n) -> (...).

    `near` says who is near whom, such as `neighbors_in_space`. A token with several most similar ones counts by the
    share of them that is near. Chance is the share of all ordered pairs that are near: 0.036 on a grid of 10 x 10. NaN
    where the matrix says nothing.
    """
    weights, placed = symmetric(similar)
    true = _relation(near, weights.shape[-1])
    found = (nearest(weights) * true).sum(axis=-1)
    return np.where(placed, found.mean(axis=-1) if found.shape[-1] else np.nan, np.nan)


def agreement_among(near: npt.ArrayLike) -> Callable[[npt.ArrayLike, npt.ArrayLike], Array]:
    """`place_agreement` for a null: a function of similarities (..., n, n) and places (..., n), the number of the row
    of `near` (n, n) at which each token lies."""
    true = _relation(near, len(np.asarray(near)))

    def agreement(similar: npt.ArrayLike, places: npt.ArrayLike) -> Array:
        at = whole_numbers("places", places, len(true))
        return place_agreement(similar, true[at[..., :, None], at[..., None, :]])

    return agreement


def procrustes_r2(placed: npt.ArrayLike, positions: npt.ArrayLike) -> float:
    """How well a map fits the true places, (n, k) and (n, k), from 0 to 1: 1 less the disparity of Procrustes.

    That is the share of the spread of either that the other one explains after the best shift, rotation, reflection and
    scaling: the same both ways, and 1 where only those tell them apart. It looks at the whole map; who is next to whom
    weighs little. Chance is not 0: n points at random on two axes reach about 1.5 / n. NaN where either has no extent
    (all tokens in one place), or the map is not finite.
    """
    map_, true = np.asarray(placed, dtype=np.float64), _places("positions", positions)
    if map_.shape != true.shape:
        raise must_be("placed", f"an array of the shape of the positions, {true.shape}", map_.shape)
    if not np.isfinite(map_).all():
        return float("nan")
    one, two = map_ - map_.mean(axis=0), true - true.mean(axis=0)
    sizes = [float(np.linalg.norm(each)) for each in (one, two)]
    for size, whole in zip(sizes, (map_, true), strict=True):
        if size <= 1e-12 * float(np.linalg.norm(whole)):
            return float("nan")
    explained = float(np.linalg.svd(one.T @ two / (sizes[0] * sizes[1]), compute_uv=False).sum())
    return min(explained**2, 1.0)


def _places(name: str, positions: npt.ArrayLike) -> Array:
    points = np.asarray(positions, dtype=np.float64)
    if points.ndim != 2 or 0 in points.shape or not np.isfinite(points).all():
        raise must_be(name, "finite numbers (tokens, axes), at least one of each", points.shape)
    return points


def _relation(near: npt.ArrayLike, n: int) -> Bools:
    true = np.asarray(near)
    if true.ndim < 2 or true.shape[-2:] != (n, n) or true.dtype != np.bool_:
        raise must_be("near", f"True or False for every two of the {n} tokens", (true.dtype.name, true.shape))
    return true
