"""What chance would do to a measure of `modules`: labels dealt out anew, or another map as smooth.

An order (n,) says whose label each token gets. `shuffles` draws orders that keep the sizes of the groups: right where
tokens are exchangeable. Regions of a brain are not: near ones are alike in everything, so that any smooth map agrees
with any compact groups more than with shuffled ones. `smooth_nulls` draws other maps that are as smooth, wherever
tokens lie.

Measures are one-sided here: the higher, the more structure. A member that has no value has no p.

>>> from placecode.analysis.modules import modularity, similarities
>>> rng = np.random.default_rng(0)
>>> labels = np.repeat([0, 1, 2], 10)
>>> pe = rng.normal(size=(2, 4, 30, 8))  # (e, l, n, d)
>>> pe[0] += 3 * np.eye(8)[labels]  # clusters in the first member alone
>>> label_null(modularity, similarities(pe)[-1], labels).p.round(3).tolist()
[0.001, 0.336]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import pdist, squareform

from placecode.analysis.modules import pair_vectors
from placecode.errors import must_be

Array = npt.NDArray[np.float64]
Orders = npt.NDArray[np.int64]

SAME = 1e-9
"""Values that differ by less are equal, but for rounding: a draw that only renames groups comes as high."""


class Chance(NamedTuple):
    """A measure and what chance gives, all (...)."""

    value: Array
    """The measure itself."""
    mean: Array
    """Its mean over the draws."""
    low: Array
    """95% of the draws lie between this ..."""
    high: Array
    """... and this."""
    z: Array
    """By how many standard deviations of the draws it is above their mean; NaN where all draws are equal."""
    p: Array
    """How often chance comes as high, itself counted in: (1 + count) / (1 + draws)."""


def label_null(
    statistic: Callable[..., Array],
    similar: npt.ArrayLike,
    labels: npt.ArrayLike,
    draws: int = 1000,
    seed: int = 0,
) -> Chance:
    """A measure against labels dealt out anew over the labelled tokens, (..., n, n) and (n,) -> (...).

    `statistic` takes similarities (..., n, n) and labels (..., n) with leading axes that broadcast, as those of
    `modules` do. It may as well take partitions or coordinates (n, axes) in place of labels, which are then dealt out.
    """
    orders = shuffles(labels, draws, seed)
    matrices, values = _square(similar), np.asarray(labels)
    n = matrices.shape[-1]
    if len(values) != n:
        raise must_be("labels", f"one for each of the {n} tokens", values.shape)
    moves = np.concatenate([np.arange(n)[None], orders])
    found = np.empty((*matrices.shape[:-2], len(moves)))
    for entry in np.ndindex(found.shape[:-1]):
        for start in range(0, len(moves), _step(n)):
            part = slice(start, start + _step(n))
            found[(*entry, part)] = statistic(matrices[entry][None], values[moves[part]])
    return _held(found)


def smooth_nulls(
    statistics: Mapping[str, Callable[[Array], Array]],
    similar: npt.ArrayLike,
    coordinates: npt.ArrayLike,
    draws: int = 1000,
    seed: int = 0,
    hemispheres: npt.ArrayLike | None = None,
) -> dict[str, Chance]:
    """Measures by name against those of random maps as smooth in space, (..., n, n) and (n, axes) -> (...) each.

    Moran spectral randomization (Wagner and Dray, 2015): the map is taken apart into patterns from coarse to fine (the
    eigenvectors of 1 / distance, centred), each pattern gets a random sign, and what comes together is another map with
    as much in each. `similar` is of cosines or correlations, diagonal included: signs are given to the vectors behind
    them, and cosines taken anew. A measure takes matrices (..., n, n) alone, since labels stay in place; all measures
    share the draws, which take most of the time.

    With `hemispheres` (n,) patterns are those of each side by itself, so that draws are as smooth on either side and
    have nothing to do with each other between the two: what mirror regions share is then lost. Without, it is kept:
    patterns of a symmetric brain are symmetric, and where places are exactly so, a mirrored map stays one.

    Of smooth noise around the 94 centres of the AAL2 atlas, with compact groups for labels, 1 to 10% come out at
    p <= 0.05, whatever the smoothness and the measure; with `shuffles` 50 to 100%, with each hemisphere turned as a
    sphere (the spin test) 20 to 98%. In clouds of 60 very uneven places it was 0 to 17%, in one of six 40% (with spins
    40 to 90%): close, but no exact test.
    """
    matrices = _square(similar)
    n = matrices.shape[-1]
    places = np.asarray(coordinates, dtype=np.float64)
    apart = squareform(pdist(places)) if places.ndim == 2 and np.isfinite(places).all() else np.zeros((0, 0))
    if apart.shape != (n, n) or (apart + np.eye(n) <= 0).any():
        raise must_be("coordinates", f"finite numbers (tokens, axes), {n} different places", places.shape)
    _must_draw(draws)
    sides = np.zeros(n) if hemispheres is None else np.asarray(hemispheres)
    if sides.shape != (n,):
        raise must_be("hemispheres", f"one value for each of the {n} tokens", sides.shape)
    near = np.where(np.eye(n, dtype=bool), 0.0, 1 / (apart + np.eye(n)))
    patterns = np.zeros((n, n))  # (n, pattern)
    for side in np.unique(sides):
        own = np.ix_(*[np.flatnonzero(sides == side)] * 2)
        centring = np.eye(len(own[0])) - 1 / len(own[0])
        patterns[own] = np.linalg.eigh(centring @ near[own] @ centring)[1]
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(draws, n))
    found = {name: np.full((*matrices.shape[:-2], 1 + draws), np.nan) for name in statistics}
    for entry in np.ndindex(matrices.shape[:-2]):
        whole = (matrices[entry] + matrices[entry].T) / 2
        for name, statistic in statistics.items():
            found[name][(*entry, 0)] = statistic(whole)
        if not np.isfinite(whole).all():
            continue
        inside = patterns.T @ whole @ patterns
        for start in range(0, draws, _step(n)):
            flip = signs[start : start + _step(n)]
            drawn = flip[:, :, None] * inside * flip[:, None, :]  # (draws, n, n), symmetric
            for _ in range(2):  # patterns @ drawn @ patterns.T, as two large products and not many small ones
                drawn = np.swapaxes((drawn.reshape(-1, n) @ patterns.T).reshape(-1, n, n), -1, -2)
            size = np.diagonal(drawn, axis1=-2, axis2=-1)  # (draws, n), squared lengths
            length = np.sqrt(np.where(size > 1e-12, size, np.inf))  # one without a direction is similar to none
            drawn = np.clip(drawn / (length[:, :, None] * length[:, None, :]), -1.0, 1.0)
            for name, statistic in statistics.items():
                found[name][(*entry, slice(1 + start, 1 + start + len(flip)))] = statistic(drawn)
    return {name: _held(values) for name, values in found.items()}


def matrix_null(similar: npt.ArrayLike, matrix: npt.ArrayLike, orders: npt.ArrayLike, ranks: bool = False) -> Chance:
    """`modules.matrix_correlation` with the tokens of the matrix in given orders: (..., n, n), (n, n), (draws, n).

    With orders from `shuffles` it is Mantel's test: pairs that share a token are not independent, so that a test over
    n (n - 1) / 2 pairs would be far too sure.
    """
    own, true = pair_vectors(similar, ranks), pair_vectors(matrix, ranks)
    n = np.shape(similar)[-1]
    if np.shape(matrix) != (n, n):
        raise must_be("matrix", f"of the {n} tokens, ({n}, {n})", np.shape(matrix))
    moves = _orders(orders, n)
    upper = np.triu_indices(n, k=1)
    square = np.zeros((n, n))
    square[upper] = true
    square += square.T
    values = [own @ square[order[upper[0]], order[upper[1]]] for order in (np.arange(n), *moves)]
    return _held(np.stack(values, axis=-1))


# ----------------------------------------------------------------------------------------------------------- orders


def shuffles(labels: npt.ArrayLike, draws: int = 1000, seed: int = 0) -> Orders:
    """Random orders of the labelled tokens, (n,) -> (draws, n); those labelled -1 stay, so that group sizes do too.

    What has no labels of whole numbers ((n, axes) of coordinates) is shuffled over all tokens.
    """
    values = np.asarray(labels)
    if values.ndim < 1:
        raise must_be("labels", "one for each token", values.shape)
    _must_draw(draws)
    moving = np.flatnonzero(values != -1) if values.ndim == 1 else np.arange(len(values))
    orders = np.tile(np.arange(len(values)), (draws, 1))
    orders[:, moving] = np.random.default_rng(seed).permuted(np.tile(moving, (draws, 1)), axis=1)
    return orders


# -------------------------------------------------------------------------------------------------------- in common


def _square(similar: npt.ArrayLike) -> Array:
    matrices = np.asarray(similar, dtype=np.float64)
    if matrices.ndim < 2 or matrices.shape[-1] != matrices.shape[-2]:
        raise must_be("similar", "an array whose last two axes are (tokens, tokens)", matrices.shape)
    return matrices


def _step(n: int) -> int:
    """How many draws at once: memory for a matrix of each of them, 16 MB in all."""
    return max(1, 2_000_000 // max(n, 1) ** 2)


def _held(values: Array) -> Chance:
    """The first of the values, (..., 1 + draws), against the others; one without a value counts as one as high."""
    value, null = values[..., 0], values[..., 1:]
    known = ~np.isnan(null)
    count = known.sum(axis=-1)
    sound = ~np.isnan(value) & (count > 0)
    filled = np.where(sound[..., None], null, 0.0)  # no empty rows, which numpy would warn of
    mean, std = np.nanmean(filled, axis=-1), np.nanstd(filled, axis=-1)
    low, high = np.nanquantile(filled, [0.025, 0.975], axis=-1)
    z = np.where(std > SAME, (value - mean) / np.where(std > SAME, std, 1.0), np.nan)
    p = (1 + (~(null < value[..., None] - SAME)).sum(axis=-1)) / values.shape[-1]
    return Chance(value, *(np.where(sound, part, np.nan) for part in (mean, low, high, z, p)))


def _orders(orders: npt.ArrayLike, n: int) -> Orders:
    moves = np.asarray(orders)
    sound = moves.ndim == 2 and moves.shape[0] > 0 and moves.shape[1] == n and moves.dtype.kind in "iu"
    if not sound or (np.sort(moves, axis=1) != np.arange(n)).any():
        raise must_be("orders", f"an array (draws, {n}) whose rows are the numbers of all tokens", moves.shape)
    return moves.astype(np.int64)


def _must_draw(draws: int) -> None:
    if draws < 1:
        raise must_be("draws", "a whole number of at least 1", draws)
