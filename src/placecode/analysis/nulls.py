"""Test the measures of `modules` for significance, by permutations or with random data that are equally smooth in
space.

`label_null` and `matrix_null` permute tokens (`shuffles`), which is valid if tokens are exchangeable. Brain regions are
not: near regions are similar, so data that are smooth in space agree better with compact groups than with shuffled
ones, even without a true relation. `smooth_nulls` therefore draws random data with the same smoothness.

Tests are one-sided: larger values mean more structure. If a measure is NaN, its p value is NaN too.

>>> from placecode.analysis.alignment import token_similarity
>>> from placecode.analysis.modules import modularity
>>> rng = np.random.default_rng(0)
>>> labels = np.repeat([0, 1, 2], 10)
>>> pe = rng.normal(size=(2, 4, 30, 8))  # (e, l, n, d)
>>> pe[0] += 3 * np.eye(8)[labels]  # clusters in the first member alone
>>> label_null(modularity, token_similarity(pe), labels).p.round(3).tolist()
[0.001, 0.336]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import pdist, squareform

from placecode.analysis.modules import check_square, cosines, pair_vectors
from placecode.arrays import Array, IntArray
from placecode.errors import must_be
from placecode.validation import whole_number

NULL_TIE_TOLERANCE = 1e-9
"""Two values of a measure count as equal if they differ by less than this, because of rounding. For example, a
permutation that only renames groups gives an equal value."""


class NullTest(NamedTuple):
    """The result of a test: a measure and its null distribution (its values for permuted or random data).

    For similarity matrices of shape (..., n, n), each array has shape (...).
    """

    value: Array
    """The measure for the original data."""
    mean: Array
    """Mean of the null distribution."""
    low: Array
    """2.5% quantile of the null distribution."""
    high: Array
    """97.5% quantile of the null distribution."""
    z: Array
    """z-score of the measure in the null distribution. NaN if all draws are equal."""
    p: Array
    """One-sided p value: (1 + number of draws that are at least as high as the measure) / (1 + number of draws)."""


def label_null(
    statistic: Callable[..., Array],
    similarity: npt.ArrayLike,
    labels: npt.ArrayLike,
    draws: int = 1000,
    seed: int = 0,
) -> NullTest:
    """Test a measure by permutation: the null distribution consists of its values for shuffled labels.

    Parameters
    ----------
    statistic : callable
        Function of similarities (..., n, n) and labels (..., n) that broadcasts leading axes, such as
        `analysis.modules.modularity`.
    similarity : array-like, shape (..., n, n)
    labels : array-like, shape (n,) or (n, axes)
        Label or coordinates of each token. Tokens labelled -1 are not shuffled.
    draws : int
        Number of permutations.
    seed : int

    Returns
    -------
    NullTest
        One test for each similarity matrix.
    """
    orders = shuffles(labels, draws, seed)
    matrices, values = check_square(similarity), np.asarray(labels)
    n = matrices.shape[-1]
    if len(values) != n:
        raise must_be("labels", f"one for each of the {n} tokens", values.shape)
    orders = np.concatenate([np.arange(n)[None], orders])  # the first value is that of the true labels
    results = np.empty((*matrices.shape[:-2], len(orders)))
    for entry in np.ndindex(results.shape[:-1]):
        for start in range(0, len(orders), _chunk(n)):
            part = slice(start, start + _chunk(n))
            results[(*entry, part)] = statistic(matrices[entry][None], values[orders[part]])
    return _null_test(results)


def smooth_nulls(
    statistics: Mapping[str, Callable[[Array], Array]],
    similarity: npt.ArrayLike,
    coordinates: npt.ArrayLike,
    draws: int = 1000,
    seed: int = 0,
    hemispheres: npt.ArrayLike | None = None,
) -> dict[str, NullTest]:
    """Test measures against random data with the same spatial smoothness, by Moran spectral randomization.

    The method is that of Wagner and Dray (2015). Similarities are inner products of vectors, one per token. Each
    feature of these vectors is a map: it has a value at the position of each token. A map is decomposed into spatial
    patterns from coarse to fine, the eigenvectors of the centred matrix of inverse distances. Each pattern is
    multiplied by a random sign, the same for all features. The measures are then applied to the cosines of the
    resulting vectors.

    Parameters
    ----------
    statistics : mapping of str to callable
        Measures by name: functions of similarities (..., n, n). All are applied to the same random data, whose
        computation takes most of the time.
    similarity : array-like, shape (..., n, n)
        Cosines or correlations, including the diagonal.
    coordinates : array-like, shape (n, axes)
        Positions of the tokens, all different.
    draws : int
        Number of random matrices of similarities.
    seed : int
    hemispheres : array-like, shape (n,), optional
        Hemisphere of each token. If set, patterns are computed in each hemisphere, and random signs are independent
        between hemispheres. Otherwise, maps that are symmetric between the hemispheres stay so in a symmetric brain.

    Returns
    -------
    dict of str to NullTest
        The test of each measure, by name. Its arrays have one value per similarity matrix.

    Notes
    -----
    The test is approximate. It was applied to smooth noise at the 94 centres of the AAL2 atlas and compact groups,
    where 5% of the tests should have p <= 0.05. Depending on the measure and the smoothness, 1 to 10% had. With
    `shuffles` it is 50 to 100%, and with spin tests 20 to 98%. In five of six clouds of 60 very uneven positions it is
    0 to 17%, and in one 40% (spin tests: 40 to 90%).
    """
    matrices = check_square(similarity)
    n = matrices.shape[-1]
    points = np.asarray(coordinates, dtype=np.float64)
    distances = squareform(pdist(points)) if points.ndim == 2 and np.isfinite(points).all() else np.zeros((0, 0))
    if distances.shape != (n, n) or (distances + np.eye(n) <= 0).any():
        raise must_be("coordinates", f"finite numbers (tokens, axes), {n} different places", points.shape)
    whole_number("draws", draws, 1)
    sides = np.zeros(n) if hemispheres is None else np.asarray(hemispheres)
    if sides.shape != (n,):
        raise must_be("hemispheres", f"one value for each of the {n} tokens", sides.shape)
    proximity = np.where(np.eye(n, dtype=bool), 0.0, 1 / (distances + np.eye(n)))
    patterns = np.zeros((n, n))  # (n, pattern)
    for side in np.unique(sides):
        block = np.ix_(*[np.flatnonzero(sides == side)] * 2)
        centring = np.eye(len(block[0])) - 1 / len(block[0])
        patterns[block] = np.linalg.eigh(centring @ proximity[block] @ centring)[1]
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(draws, n))
    results = {name: np.full((*matrices.shape[:-2], 1 + draws), np.nan) for name in statistics}
    for entry in np.ndindex(matrices.shape[:-2]):
        matrix = (matrices[entry] + matrices[entry].T) / 2
        for name, statistic in statistics.items():
            results[name][(*entry, 0)] = statistic(matrix)
        if not np.isfinite(matrix).all():
            continue
        spectrum = patterns.T @ matrix @ patterns
        for start in range(0, draws, _chunk(n)):
            flip = signs[start : start + _chunk(n)]
            drawn = flip[:, :, None] * spectrum * flip[:, None, :]  # (draws, n, n), symmetric
            for _ in range(2):  # patterns @ drawn @ patterns.T, as two large products instead of many small ones
                drawn = np.swapaxes((drawn.reshape(-1, n) @ patterns.T).reshape(-1, n, n), -1, -2)
            random_maps = cosines(drawn)
            for name, statistic in statistics.items():
                results[name][(*entry, slice(1 + start, 1 + start + len(flip)))] = statistic(random_maps)
    return {name: _null_test(values) for name, values in results.items()}


def matrix_null(similarity: npt.ArrayLike, matrix: npt.ArrayLike, orders: npt.ArrayLike) -> NullTest:
    """Test `modules.matrix_correlation` by permuting tokens. With orders from `shuffles`, this is the Mantel test.

    Pairs with a common token are not independent. A test that treats all n (n - 1) / 2 pairs as independent would give
    far too small p values.

    Parameters
    ----------
    similarity : array-like, shape (..., n, n)
    matrix : array-like, shape (n, n)
    orders : array-like of int, shape (draws, n)
        Permutations of the tokens of `matrix`, one per row.

    Returns
    -------
    NullTest
        One test for each matrix of similarities.
    """
    pairs, true = pair_vectors(similarity), pair_vectors(matrix)
    n = np.shape(similarity)[-1]
    if np.shape(matrix) != (n, n):
        raise must_be("matrix", f"of the {n} tokens, ({n}, {n})", np.shape(matrix))
    rows = np.asarray(orders)
    valid = rows.ndim == 2 and rows.shape[0] > 0 and rows.shape[1] == n and rows.dtype.kind in "iu"
    if not valid or (np.sort(rows, axis=1) != np.arange(n)).any():
        raise must_be("orders", f"an array (draws, {n}) whose rows are the numbers of all tokens", rows.shape)
    upper = np.triu_indices(n, k=1)
    table = np.zeros((n, n))
    table[upper] = true
    table += table.T
    values = [pairs @ table[order[upper[0]], order[upper[1]]] for order in (np.arange(n), *rows)]
    return _null_test(np.stack(values, axis=-1))


def shuffles(labels: npt.ArrayLike, draws: int = 1000, seed: int = 0) -> IntArray:
    """Draw random permutations of the labelled tokens.

    Parameters
    ----------
    labels : array-like, shape (n,) or (n, axes)
        Label or coordinates of each token. Tokens labelled -1 are not permuted.
    draws : int
        Number of permutations.
    seed : int

    Returns
    -------
    ndarray of int64, shape (draws, n)
        For each token, the index of the token whose label or coordinates it gets.
    """
    values = np.asarray(labels)
    if values.ndim < 1:
        raise must_be("labels", "one for each token", values.shape)
    whole_number("draws", draws, 1)
    moving = np.flatnonzero(values != -1) if values.ndim == 1 else np.arange(len(values))
    orders = np.tile(np.arange(len(values)), (draws, 1))
    orders[:, moving] = np.random.default_rng(seed).permuted(np.tile(moving, (draws, 1)), axis=1)
    return orders


def p_value(value: npt.ArrayLike, draws: npt.ArrayLike) -> Array:
    """Return the one-sided p value of a measure, (...), from draws of its null distribution, (..., draws) -> (...).

    It is (1 + number of draws that are at least as high as the measure) / (1 + number of draws). A draw of NaN counts
    as at least as high. The result is NaN if the measure is NaN.

    >>> p_value([0.5, np.nan], [[0.1, 0.2, 0.5], [0.1, 0.2, 0.5]]).tolist()
    [0.5, nan]
    """
    measure, null = np.asarray(value, dtype=np.float64), np.asarray(draws, dtype=np.float64)
    higher = ~(null < measure[..., None] - NULL_TIE_TOLERANCE)
    return np.where(np.isnan(measure), np.nan, (1 + higher.sum(axis=-1)) / (1 + null.shape[-1]))


def _chunk(n: int) -> int:
    """Return the number of draws whose matrices, (n, n) each, fit into 16 MB together."""
    return max(1, 2_000_000 // max(n, 1) ** 2)


def _null_test(values: Array) -> NullTest:
    """Return the test of a measure from its values for the original and for random data, (..., 1 + draws) -> (...).

    On the last axis, the first value is that for the original data. A draw of NaN counts as at least as high.
    """
    value, null = values[..., 0], values[..., 1:]
    defined = ~np.isnan(value) & ~np.isnan(null).all(axis=-1)
    filled = np.where(defined[..., None], null, 0.0)  # numpy warns about rows of NaN
    mean, std = np.nanmean(filled, axis=-1), np.nanstd(filled, axis=-1)
    low, high = np.nanquantile(filled, [0.025, 0.975], axis=-1)
    z = np.where(std > NULL_TIE_TOLERANCE, (value - mean) / np.where(std > NULL_TIE_TOLERANCE, std, 1.0), np.nan)
    p = p_value(value, null)
    return NullTest(value, *(np.where(defined, part, np.nan) for part in (mean, low, high, z, p)))
