"""Measure how well similarities of tokens agree with known groups of tokens, positions in space, or another matrix.

The argument `similarity` is a signed matrix, (..., n, n), of PEs (`alignment.token_similarity`) or of data (functional
connectivity, mutual information). The matrix is symmetrized, and its diagonal is ignored. Labels, (..., n), are
integers; tokens labelled -1 have no group and are left out. Coordinates have shape (..., n, axes). Leading axes
(members, blocks, permutations) are broadcast, and functions return one result for each index along them, (...).
`partitions` computes groups without labels, and `nulls` tests significance.

If a matrix is not finite (a member that diverged) or zero (all tokens equal), its result is NaN, and other results are
not affected.

>>> from placecode.analysis.alignment import token_similarity
>>> rng = np.random.default_rng(0)
>>> labels = np.repeat([0, 1, 2], 10)
>>> pe = rng.normal(size=(2, 4, 30, 8))  # (e, l, n, d)
>>> pe[0] += 3 * np.eye(8)[labels]  # clusters in the first member alone
>>> similarity = token_similarity(pe)
>>> similarity.shape, modularity(similarity, labels).round(2).tolist()
((2, 30, 30), [0.84, 0.01])
>>> neighbor_agreement(similarity, labels).round(2).tolist()
[1.0, 0.27]
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from placecode.analysis.alignment import TIE_TOLERANCE
from placecode.arrays import Array, BoolArray, IntArray
from placecode.errors import must_be

Labels = IntArray
"""Group of each token, (..., n): integers, or -1 for tokens without a group."""


def centred(correlations: npt.ArrayLike) -> Array:
    """Remove the signal that all tokens share from a matrix of correlations, (..., n, n) -> (..., n, n).

    A common signal makes all correlations positive and hides groups from `modularity` and `segregation`. Correlations
    are inner products of vectors, one per token. The result contains the cosines of these vectors after their mean is
    subtracted, as in `alignment.token_similarity`. Tokens whose vector is then zero have a cosine of 0.

    >>> shared = 0.5 + 0.5 * np.kron(np.eye(2), np.ones((3, 3)))  # two groups, and a common signal
    >>> labels = np.repeat([0, 1], 3)
    >>> float(modularity(shared, labels).round(2)), float(modularity(centred(shared), labels).round(2))
    (0.07, 0.8)
    """
    matrices = np.asarray(correlations, dtype=np.float64)
    products = matrices - matrices.mean(axis=-1, keepdims=True)
    return cosines(products - products.mean(axis=-2, keepdims=True))


def cosines(products: Array) -> Array:
    """Return the cosines of vectors from their inner products, (..., n, n). All cosines of a zero vector are 0."""
    squares = np.diagonal(products, axis1=-2, axis2=-1)  # (..., n), squared lengths
    length = np.sqrt(np.where(squares > 1e-12, squares, np.inf))
    return np.asarray(np.clip(products / (length[..., :, None] * length[..., None, :]), -1.0, 1.0))


def modularity(similarity: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """Compute the signed, asymmetric modularity Q* of a partition (Rubinov and Sporns, 2011).

        Q* = sum(w+_ij - s+_i s+_j / v+) / v+  -  sum(w-_ij - s-_i s-_j / v-) / (v+ + v-)

    Both sums are over the pairs within groups. w+ = max(w, 0) are the positive weights and w- = max(-w, 0) the negative
    ones. s+ and s- are their sums over the pairs of one token, v+ and v- their sums over all pairs. Formulas for
    unsigned weights (as in networkx) are meaningless for negative weights.

    Parameters
    ----------
    similarity : array-like, shape (..., n, n)
    labels : array-like of int, shape (..., n)
        Tokens labelled -1 are left out of the network.

    Returns
    -------
    ndarray, shape (...)
        0 for a single group, at most 1. NaN if all weights are zero.
    """
    weights, groups, valid = _prepared(similarity, labels)
    plus, plus_sum = _excess_weight(np.maximum(weights, 0), groups)
    minus, minus_sum = _excess_weight(np.maximum(-weights, 0), groups)
    total = plus_sum + minus_sum
    value = plus / np.where(plus_sum > 0, plus_sum, 1.0) - minus / np.where(total > 0, total, 1.0)
    return np.where(valid & (total > 0), value, np.nan)


def segregation(similarity: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """Compute system segregation, (mean within - mean between) / mean within (Chan et al., 2014).

    The two means are over all pairs of tokens of the same group, and over all pairs of tokens of different groups.
    Negative similarities count as 0, as in the paper by Chan et al. Unlike there, Fisher's transformation is not
    applied, because a cosine may be 1.

    Parameters
    ----------
    similarity : array-like, shape (..., n, n)
    labels : array-like of int, shape (..., n)
        Tokens labelled -1 are left out.

    Returns
    -------
    ndarray, shape (...)
        1 if there is no similarity between groups, 0 if groups make no difference. There is no lower bound, and values
        are noisy if few similarities are positive. NaN if there are no pairs within groups, no pairs between groups, or
        no positive similarity within groups.
    """
    weights, groups, valid = _prepared(similarity, labels)
    group_sums = np.maximum(weights, 0) @ groups  # (..., n, k)
    within = (groups * group_sums).sum(axis=(-2, -1))
    total = (groups.sum(axis=-1) * group_sums.sum(axis=-1)).sum(axis=-1)
    sizes = groups.sum(axis=-2)  # (..., k)
    pairs_within = (sizes * (sizes - 1)).sum(axis=-1)
    pairs_between = sizes.sum(axis=-1) ** 2 - (sizes**2).sum(axis=-1)
    mean_within = within / np.where(pairs_within > 0, pairs_within, 1.0)
    mean_between = (total - within) / np.where(pairs_between > 0, pairs_between, 1.0)
    value = (mean_within - mean_between) / np.where(mean_within > 0, mean_within, 1.0)
    return np.where(valid & (pairs_within > 0) & (pairs_between > 0) & (mean_within > 0), value, np.nan)


def silhouette(similarity: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """Compute the mean silhouette with the distance 1 - similarity, as in scikit-learn, for many labels at once.

    Parameters
    ----------
    similarity : array-like, shape (..., n, n)
    labels : array-like of int, shape (..., n)
        Tokens labelled -1 are left out.

    Returns
    -------
    ndarray, shape (...)
        From -1 to 1. NaN for fewer than two groups.
    """
    weights, groups, valid = _prepared(similarity, labels)
    sizes = groups.sum(axis=-2)[..., None, :]  # (..., 1, k)
    sums = sizes - weights @ groups  # (..., n, k): sums of the distances 1 - w to the tokens of a group
    group_size = (groups * sizes).sum(axis=-1)  # (..., n): size of a token's group
    # mean distance within the group; the distance 1 - 0 of a token from itself is subtracted
    within = ((groups * sums).sum(axis=-1) - 1) / np.where(group_size > 1, group_size - 1, 1.0)
    others = np.where((groups == 1) | (sizes == 0), np.inf, sums / np.where(sizes > 0, sizes, 1.0))
    others = others.min(axis=-1, initial=np.inf)  # (..., n); infinite without labels
    size = np.maximum(within, others)
    defined = (group_size > 1) & np.isfinite(others) & (size > 0)
    score = np.where(defined, np.where(defined, others - within, 0.0) / np.where(defined, size, 1.0), 0.0)
    labelled = sizes.sum(axis=(-2, -1))
    group_count = (sizes > 0).sum(axis=(-2, -1))
    return np.where(valid & (group_count > 1), score.sum(axis=-1) / np.where(labelled > 0, labelled, 1.0), np.nan)


def neighbor_agreement(similarity: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """Return the fraction of tokens whose most similar token has the same label.

    Parameters
    ----------
    similarity : array-like, shape (..., n, n)
    labels : array-like of int, shape (..., n)
        Tokens labelled -1 do not count, but may be the most similar token of others.

    Returns
    -------
    ndarray, shape (...)
        The chance level is the mean fraction of the n - 1 other tokens that have the same label, 0.19 for 5 groups of
        20. If several tokens are equally similar to a token, the fraction of them with the same label counts. NaN if
        all labels are -1.
    """
    weights, groups, valid = _prepared(similarity, labels)
    labelled = groups.sum(axis=(-2, -1))
    correct = (groups * (nearest(weights) @ groups)).sum(axis=(-2, -1))
    return np.where(valid & (labelled > 0), correct / np.where(labelled > 0, labelled, 1.0), np.nan)


def related_neighbor_agreement(similarity: npt.ArrayLike, related: npt.ArrayLike) -> Array:
    """Return the fraction of tokens whose most similar token is related to them.

    Parameters
    ----------
    similarity : array-like, shape (..., n, n)
    related : array-like of bool, shape (..., n, n)
        True at [i, j] if token j is related to token i, such as in the same row (`targets.related`), or adjacent in
        space (`places.neighbors_in_space`).

    Returns
    -------
    ndarray, shape (...)
        The chance level is the fraction of ordered pairs that are related, 0.036 for adjacent cells of a 10 x 10 grid.
        If several tokens are equally similar to a token, the fraction of them that is related counts.
    """
    relation, n = np.asarray(related), check_square(similarity).shape[-1]
    if relation.ndim < 2 or relation.shape[-2:] != (n, n) or relation.dtype != np.bool_:
        actual = (relation.dtype.name, relation.shape)
        raise must_be("related", f"True or False for every two of the {n} tokens", actual)
    return nearest_mean(similarity, relation)


def mirror_agreement(similarity: npt.ArrayLike, partner: npt.ArrayLike) -> Array:
    """Return the fraction of tokens whose most similar token is their partner, the same region of the other hemisphere.

    For a permutation test, use `neighbor_agreement` with one label per pair of partners. It gives the same value.

    Parameters
    ----------
    similarity : array-like, shape (..., n, n)
    partner : array-like of int, shape (..., n)
        Index of the partner of each token, or -1 for tokens without partner, which do not count.

    Returns
    -------
    ndarray, shape (...)
        NaN if no token has a partner.
    """
    weights, valid = symmetrize(similarity)
    n = weights.shape[-1]
    partners = checked_labels("partner", partner, n)
    if partners.max(initial=-1) >= n or (partners == np.arange(n)).any():
        raise must_be("partner", f"numbers of other tokens, 0 to {n - 1}, or -1 for none", partners.tolist())
    lead = np.broadcast_shapes(weights.shape[:-2], partners.shape[:-1])
    near = np.broadcast_to(nearest(weights), (*lead, n, n))
    share = np.take_along_axis(near, np.broadcast_to(np.maximum(partners, 0), (*lead, n))[..., None], axis=-1)[..., 0]
    has_partner = partners >= 0
    count = has_partner.sum(axis=-1)
    return np.where(valid & (count > 0), (share * has_partner).sum(axis=-1) / np.maximum(count, 1), np.nan)


def coordinate_agreement(similarity: npt.ArrayLike, coordinates: npt.ArrayLike) -> Array:
    """Return how near in space the most similar token of each token is, as a rank from 0 to 1, averaged over tokens.

    If j is the token most similar to i, its rank is the fraction of the other n - 2 tokens that are farther from i than
    j is. Tokens at the same distance as j count one half. If several tokens are equally similar to i, their ranks are
    averaged. Only the order of the distances matters. To use all similarities, call `matrix_correlation` with a matrix
    of distances.

    Parameters
    ----------
    similarity : array-like, shape (..., n, n)
    coordinates : array-like, shape (..., n, axes)

    Returns
    -------
    ndarray, shape (...)
        1 if the most similar token is always the closest in space, 0 if it is always the farthest, 0.5 at chance. NaN
        for fewer than three tokens.
    """
    return nearest_mean(similarity, farther_fraction(coordinates, check_square(similarity).shape[-1]))


def nearest_mean_of(table: npt.ArrayLike) -> Callable[[npt.ArrayLike, npt.ArrayLike], Array]:
    """Return a function for permutation tests (`nulls.label_null`) that computes `nearest_mean` of a permuted `table`.

    `table` has shape (n, n). The function takes similarities, (..., n, n), and `places`, (..., n): the index in `table`
    that each token gets. A slow table, such as `farther_fraction`, is thus computed only once for all permutations.
    """
    values = np.asarray(table)

    def mean(similarity: npt.ArrayLike, places: npt.ArrayLike) -> Array:
        index = checked_labels("places", places, len(values))
        return nearest_mean(similarity, values[index[..., :, None], index[..., None, :]])

    return mean


def farther_fraction(coordinates: npt.ArrayLike, n: int) -> Array:
    """Return, for two tokens i and j, the fraction of all other tokens that are farther from i than j is, (..., n, n).

    `coordinates` has shape (..., n, axes). Tokens at the same distance as j count one half. The diagonal has no
    meaning.
    """
    points = np.asarray(coordinates, dtype=np.float64)
    if points.ndim < 2 or points.shape[-2] != n or not np.isfinite(points).all():
        raise must_be("coordinates", f"finite numbers (tokens, axes) for each of the {n} tokens", points.shape)
    distances = np.linalg.norm(points[..., :, None, :] - points[..., None, :, :], axis=-1)  # (..., n, n)
    unit = np.abs(distances).max(axis=(-2, -1), keepdims=True, initial=0.0)
    distances = (distances / np.where(unit > 0, unit, 1.0)).round(6)  # so that equal distances on a grid are ties
    distances[..., np.arange(n), np.arange(n)] = -1  # the token itself ranks first
    return np.asarray((n - rankdata(distances, axis=-1)) / (n - 2 if n > 2 else np.nan))


def nearest_mean(similarity: npt.ArrayLike, table: npt.ArrayLike) -> Array:
    """Return the mean of table[i, j] over tokens i, where j is the token most similar to i.

    Shapes are (..., n, n) and (..., n, n) -> (...). If several tokens j are equally similar, their values are averaged.
    """
    weights, valid = symmetrize(similarity)
    values = (nearest(weights) * np.asarray(table, dtype=np.float64)).sum(axis=-1)
    return np.where(valid, values.mean(axis=-1) if values.shape[-1] else np.nan, np.nan)


def matrix_correlation(a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
    """Compute Pearson's correlation of two matrices over all pairs of tokens.

    Parameters
    ----------
    a, b : array-like, shape (..., n, n)
        For example PE similarities and functional connectivity. Asymmetric ones, such as attention, are symmetrized.

    Returns
    -------
    ndarray, shape (...)
        NaN if all pairs of one matrix have the same value.
    """
    a_pairs, b_pairs = pair_vectors(a), pair_vectors(b)
    if a_pairs.shape[-1] != b_pairs.shape[-1]:
        raise must_be("a and b", "matrices of the same tokens", (np.shape(a), np.shape(b)))
    return np.asarray(np.clip((a_pairs * b_pairs).sum(axis=-1), -1.0, 1.0))


def pair_vectors(matrix: npt.ArrayLike) -> Array:
    """Return the values of all pairs of tokens as a centred vector of length 1, (..., n, n) -> (..., n (n - 1) / 2).

    The inner product of two such vectors is a correlation. The vector is NaN if the matrix is not finite, or if all
    pairs have the same value.
    """
    weights, valid = symmetrize(matrix)
    pairs = weights[(..., *np.triu_indices(weights.shape[-1], k=1))]
    if pairs.shape[-1] == 0:
        return pairs
    deviations = pairs - pairs.mean(axis=-1, keepdims=True)
    length = np.linalg.norm(deviations, axis=-1, keepdims=True)
    defined = valid[..., None] & (length > 1e-9 * np.linalg.norm(pairs, axis=-1, keepdims=True))
    return np.where(defined, deviations / np.where(defined, length, 1.0), np.nan)


def symmetrize(similarity: npt.ArrayLike) -> tuple[Array, BoolArray]:
    """Return symmetrized matrices, (..., n, n), and which of them are finite and not zero, (...).

    The diagonal is set to zero. A matrix that is not finite becomes zero.
    """
    matrices = check_square(similarity)
    finite = np.asarray(np.isfinite(matrices).all(axis=(-2, -1)))
    weights = np.where(finite[..., None, None] & ~np.eye(matrices.shape[-1], dtype=bool), matrices, 0.0)
    weights = (weights + np.swapaxes(weights, -1, -2)) / 2
    return weights, np.asarray(finite & weights.any(axis=(-2, -1)))


def check_square(similarity: npt.ArrayLike) -> Array:
    """Return matrices as float64, or raise `BadInput` if they are not square."""
    matrices = np.asarray(similarity, dtype=np.float64)
    if matrices.ndim < 2 or matrices.shape[-1] != matrices.shape[-2]:
        raise must_be("similarity", "an array whose last two axes are (tokens, tokens)", matrices.shape)
    return matrices


def checked_labels(name: str, labels: npt.ArrayLike, n: int) -> Labels:
    """Return labels of n tokens, (..., n), as int64, or raise `BadInput` if they are not integers of at least -1.

    `name` is the name of the argument, for the error message.
    """
    values = np.asarray(labels)
    if values.ndim < 1 or values.shape[-1] != n or values.dtype.kind not in "iub":
        actual = (values.dtype.name, values.shape)
        raise must_be(name, f"one whole number for each of the {n} tokens, -1 for none", actual)
    values = values.astype(np.int64)
    if (values < -1).any():
        raise must_be(name, "whole numbers of at least 0, or -1 for none", int(values.min()))
    return values


def _prepared(similarity: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Array, Array, BoolArray]:
    """Return symmetric weights, (..., n, n), one-hot groups, (..., n, k), and which matrices are finite and not zero,
    (...).

    Tokens labelled -1 are in no group: their row of the groups is zero.
    """
    weights, valid = symmetrize(similarity)
    values = checked_labels("labels", labels, weights.shape[-1])
    names = np.unique(values)
    return weights, (values[..., None] == names[names >= 0]).astype(np.float64), valid


def _excess_weight(weights: Array, groups: Array) -> tuple[Array, Array]:
    """Return the sum of weights within groups minus its expectation, and the sum of weights between labelled tokens.

    The expectation is for random weights with the same sum for each token.
    """
    group_sums = weights @ groups  # (..., n, k)
    strength = group_sums.sum(axis=-1) * groups.sum(axis=-1)  # (..., n), among the labelled
    total = strength.sum(axis=-1)
    shares = (groups * strength[..., None]).sum(axis=-2)  # (..., k)
    expected = (shares**2).sum(axis=-1) / np.where(total > 0, total, 1.0)
    return (groups * group_sums).sum(axis=(-2, -1)) - expected, total


def nearest(weights: Array) -> Array:
    """Return which other token is most similar to each token, as a matrix (..., n, n) with rows that sum to 1.

    `weights` are similarities from `symmetrize`, (..., n, n). A row of the result is 1 for the most similar token and 0
    for the others. If k tokens are equally similar, each has 1 / k.
    """
    n = weights.shape[-1]
    if n < 2:
        return np.zeros_like(weights)
    others = np.where(np.eye(n, dtype=bool), -np.inf, weights)
    unit = np.abs(weights).max(axis=(-2, -1), keepdims=True)
    near = others >= others.max(axis=-1, keepdims=True) - TIE_TOLERANCE * unit
    return np.asarray(near / near.sum(axis=-1, keepdims=True))
