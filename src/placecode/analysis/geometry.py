"""The shape of a positional encoding (PE) by itself, beside no target: its size, how far training moved it, its map.

Every function takes leading axes (members, steps, ...) and gives one result per entry; (n, d) is a single block.
What is not finite (a member that diverged) gives NaN, never an exception, so that its neighbours are still measured.

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
    """How far a PE is from where it started, and that as a multiple of its size at the start; (...) each."""

    absolute: Array
    relative: Array


class Map(NamedTuple):
    """Tokens drawn on a few axes, `places` (..., n, axes), and how much that bends their distances, `stress` (...)."""

    places: Array
    stress: Array


def norm(pe: npt.ArrayLike) -> Array:
    """Root mean square of all entries, (..., l, n, d) -> (...); before training it is sigma, give or take the draw."""
    return np.asarray(np.sqrt((_finite(pe) ** 2).mean(axis=(-2, -1))))


def moved(start: npt.ArrayLike, end: npt.ArrayLike) -> Moved:
    """The way from start to end, all blocks together, (..., l, n, d) twice -> (...).

    Frobenius norm of the difference; relative: divided by that of the start, NaN where the start is all zeros. Steps of
    Adam are about as long whatever the size of the PE, so a large one moves little relative to itself.
    """
    before, after = _finite(start), _finite(end)
    if before.shape != after.shape:
        raise must_be("end", f"an array of the shape of the start, {np.shape(start)}", np.shape(end))
    way = np.linalg.norm(after - before, axis=(-2, -1))
    return Moved(way, _ratio(way, np.linalg.norm(before, axis=(-2, -1))))


def effective_dimension(pe: npt.ArrayLike) -> Array:
    """In how many directions the tokens spread, blocks side by side, (..., l, n, d) -> (...), from 1 to n - 1.

    Participation ratio (sum v)^2 / sum v^2 of the variances v along the principal axes: k equal ones and no others give
    k. It sees neither scale nor rotation. NaN where all tokens lie in one place.
    """
    tokens = _centred(pe)
    gram = tokens @ np.swapaxes(tokens, -1, -2)  # its eigenvalues are n v; their sums need no decomposition
    return _ratio(np.trace(gram, axis1=-2, axis2=-1) ** 2, (gram**2).sum(axis=(-2, -1)))


def mds(pe: npt.ArrayLike, axes: int = 2, steps: int = 300) -> Map:
    """The flat map whose distances are most like those between the tokens, (..., l, n, d) -> (..., n, axes) and (...).

    Metric multidimensional scaling of the euclidean distances, blocks side by side: `steps` of SMACOF, which find the
    best map near that of classical scaling. It is centred, its widest axis first, and of the tokens farthest out along
    an axis the first is on the positive side. Stress is Kruskal's stress-1, sqrt(sum (map - true)^2 / sum map^2), blind
    to scale: 0 is a perfect map, and 16 random tokens have about 0.37. NaN where all tokens lie in one place.
    """
    tokens = _centred(pe)
    true = _distances(tokens)
    places = _principal(tokens, axes)
    for _ in range(steps):  # each token goes to the mean of where all tokens, itself included, would have it
        drawn = _distances(places)
        pull = np.divide(true, drawn, out=np.zeros_like(true), where=drawn > 1e-9 * true)  # none where tokens coincide
        places = (pull.sum(axis=-1, keepdims=True) * places - pull @ places) / places.shape[-2]
    places = _principal(places, axes)
    drawn = _distances(places)
    stress = np.sqrt(_ratio(((drawn - true) ** 2).sum(axis=(-2, -1)), (drawn**2).sum(axis=(-2, -1))))
    return Map(np.where(np.isnan(stress)[..., None, None], np.nan, places), stress)


def turned(places: npt.ArrayLike, onto: npt.ArrayLike) -> Array:
    """A map (n, k) turned and mirrored so that it lies as nearly on another one as it can; its distances stay.

    Both are centred first. A map knows only distances, so two of them are compared by eye once they lie alike. A map
    with NaN in it stays as it is.
    """
    own, other = (np.asarray(each, dtype=np.float64) for each in (places, onto))
    if own.ndim != 2 or own.shape != other.shape:
        raise must_be("places and onto", "two maps of one shape (tokens, axes)", (own.shape, other.shape))
    if not (np.isfinite(own).all() and np.isfinite(other).all()):
        return own
    own, other = own - own.mean(0), other - other.mean(0)
    rotation, _ = orthogonal_procrustes(own, other)
    return np.asarray(own @ rotation)


def _finite(pe: npt.ArrayLike) -> Array:
    """Blocks side by side, (..., l, n, d) -> (..., n, l * d); all of it NaN where any of it is not finite."""
    tokens = side_by_side(pe)
    return np.where(np.isfinite(tokens).all(axis=(-2, -1), keepdims=True), tokens, np.nan)


def _centred(pe: npt.ArrayLike) -> Array:
    """Tokens about their mean, blocks side by side; zeros where they are not finite or all in one place."""
    tokens = _finite(pe)
    centred = tokens - tokens.mean(axis=-2, keepdims=True)
    rounding = np.linalg.norm(tokens, axis=(-2, -1), keepdims=True) * tokens.shape[-2] * 1e-15
    return np.where(np.linalg.norm(centred, axis=(-2, -1), keepdims=True) > rounding, centred, 0.0)


def _ratio(above: Array, below: Array) -> Array:
    """Entry by entry; NaN where there is nothing to divide by."""
    return np.asarray(above / np.where(below == 0, np.nan, below))


def _principal(tokens: Array, axes: int) -> Array:
    """Centred tokens along their widest axes, (..., n, d) -> (..., n, axes); axes that they do not span are zeros."""
    squares, directions = np.linalg.eigh(tokens @ np.swapaxes(tokens, -1, -2))  # (..., n), (..., n, n), rising
    turned = (directions * np.sqrt(np.maximum(squares, 0.0))[..., None, :])[..., ::-1][..., :axes]
    far = np.abs(turned)
    first = (far >= 0.999999 * far.max(axis=-2, keepdims=True)).argmax(axis=-2)  # rounding must not choose among ties
    turned = turned * np.sign(np.take_along_axis(turned, first[..., None, :], axis=-2))
    return np.pad(turned, [(0, 0)] * (turned.ndim - 1) + [(0, axes - turned.shape[-1])])


def _distances(tokens: Array) -> Array:
    """Between every two tokens, (..., n, d) -> (..., n, n); feature by feature, to hold no (..., n, n, d) in memory."""
    squares = np.zeros((*tokens.shape[:-1], tokens.shape[-2]))
    for feature in np.moveaxis(tokens, -1, 0):
        squares += (feature[..., :, None] - feature[..., None, :]) ** 2
    return np.sqrt(squares)
