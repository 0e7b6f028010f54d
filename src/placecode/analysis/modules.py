"""Do tokens that belong together lie together? Modularity, segregation, neighbours, connectivity.

A similarity is a matrix (..., n, n) of any sign, of PEs (`similarities`) or of data (functional connectivity, mutual
information), so that both go through the same functions; the mean of its two triangles counts, its diagonal does not.
Labels (..., n) are whole numbers, -1 for a token that belongs nowhere; which numbers does not matter. Leading axes
(members, blocks, permutations) are broadcast against each other, and every function gives one result per entry. For
groups that nobody named, see `partitions`; for what chance would do, `nulls`.

What is not finite (a member that diverged), or has no arrangement (all tokens in one place, a matrix of zeros), gives
NaN, never an exception, so that its neighbours are still measured.

>>> rng = np.random.default_rng(0)
>>> labels = np.repeat([0, 1, 2], 10)
>>> pe = rng.normal(size=(2, 4, 30, 8))  # (e, l, n, d)
>>> pe[0] += 3 * np.eye(8)[labels]  # clusters in the first member alone
>>> similar = similarities(pe)[-1]
>>> similar.shape, modularity(similar, labels).round(2).tolist(), neighbor_agreement(similar, labels).round(2).tolist()
((2, 30, 30), [0.84, 0.01], [1.0, 0.27])
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from placecode.analysis.alignment import TIED, similarity, views
from placecode.errors import must_be

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


def similarities(pe: npt.ArrayLike) -> dict[int, Array]:
    """Cosine similarity of the centred PEs of every two tokens (`alignment.similarity`), by view of the blocks.

    (..., l, n, d) -> (..., n, n) each. The views have the numbers of `alignment.views`: -1 all blocks concatenated, -2
    their mean, 0, 1, ... each block alone.
    """
    return {number: similarity(view) for number, view in views(pe).items()}


def centred(correlations: npt.ArrayLike) -> Array:
    """Correlations made comparable with `similarities` of PEs, which are centred over tokens first.

    Parameters
    ----------
    correlations : array_like, shape (..., n, n)
        Correlations or cosines, diagonal included.

    Returns
    -------
    ndarray, shape (..., n, n)
        Cosines of the same vectors once their mean over tokens is subtracted. A signal that all tokens share makes all
        correlations positive, which hides groups from `modularity` and `segregation`; here it is gone. A token that is
        left without any direction has similarity 0 to all.

    Examples
    --------
    >>> shared = 0.5 + 0.5 * np.kron(np.eye(2), np.ones((3, 3)))  # two groups, and a signal that all share
    >>> labels = np.repeat([0, 1], 3)
    >>> float(modularity(shared, labels).round(2)), float(modularity(centred(shared), labels).round(2))
    (0.07, 0.8)
    """
    whole = np.asarray(correlations, dtype=np.float64)
    rest = whole - whole.mean(axis=-1, keepdims=True)
    rest = rest - rest.mean(axis=-2, keepdims=True)
    size = np.diagonal(rest, axis1=-2, axis2=-1)
    length = np.sqrt(np.where(size > 1e-12, size, np.inf))
    return np.asarray(np.clip(rest / (length[..., :, None] * length[..., None, :]), -1.0, 1.0))


# ------------------------------------------------------------------------------------------------- against labels


def modularity(similar: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """Signed modularity Q* of a partition, (..., n, n) and (..., n) -> (...); Rubinov and Sporns (2011), asymmetric.

    With the positive weights w+ = max(w, 0) and the negative ones w- = max(-w, 0), their sums over all pairs v+ and v-,
    over the pairs of one token s+ and s-, and both sums below over all pairs of one group:

        Q* = sum(w+_ij - s+_i s+_j / v+) / v+  -  sum(w-_ij - s-_i s-_j / v-) / (v+ + v-)

    Positive similarity within groups, beyond what the tokens' strengths explain, counts for it, negative similarity
    within them against it, and the less so the rarer it is. 0 for a single group, at most 1. Formulas for unsigned
    weights (networkx's) take negative ones without complaint, and mean nothing then.

    Tokens labelled -1 are left out of the network. NaN where no pair is left that has a weight.
    """
    weights, groups, placed = _prepared(similar, labels)
    plus, plus_sum = _beyond_strength(np.maximum(weights, 0), groups)
    minus, minus_sum = _beyond_strength(np.maximum(-weights, 0), groups)
    both = plus_sum + minus_sum
    value = plus / np.where(plus_sum > 0, plus_sum, 1.0) - minus / np.where(both > 0, both, 1.0)
    return np.where(placed & (both > 0), value, np.nan)


def segregation(similar: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """(mean within - mean between) / mean within, (..., n, n) and (..., n) -> (...); Chan et al. (2014, PNAS).

    Means over all pairs of tokens of one group, and of two. As there, a negative similarity counts as 0; other than
    there, without Fisher's transformation, since a cosine may be 1. 1 = nothing between groups, 0 = groups make no
    difference; below 0 it has no bound, so where little similarity is positive it is noisy. Tokens labelled -1 are left
    out. NaN for a single group, for singletons alone, or where no similarity within groups is positive.
    """
    weights, groups, placed = _prepared(similar, labels)
    pulls = np.maximum(weights, 0) @ groups  # (..., n, k)
    within = (groups * pulls).sum(axis=(-2, -1))
    total = (groups.sum(axis=-1) * pulls.sum(axis=-1)).sum(axis=-1)
    sizes = groups.sum(axis=-2)  # (..., k)
    near = (sizes * (sizes - 1)).sum(axis=-1)  # how many pairs
    far = sizes.sum(axis=-1) ** 2 - (sizes**2).sum(axis=-1)
    inside, outside = within / np.where(near > 0, near, 1.0), (total - within) / np.where(far > 0, far, 1.0)
    value = (inside - outside) / np.where(inside > 0, inside, 1.0)
    return np.where(placed & (near > 0) & (far > 0) & (inside > 0), value, np.nan)


def silhouette(similar: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """Mean silhouette with the distance 1 - similarity, (..., n, n) and (..., n) -> (...), from -1 to 1.

    The definition, and a singleton's 0, are scikit-learn's; written for many labellings at once, since a null takes a
    thousand. Tokens labelled -1 are left out. NaN for fewer than two groups.
    """
    weights, groups, placed = _prepared(similar, labels)
    sizes = groups.sum(axis=-2)[..., None, :]  # (..., 1, k)
    sums = sizes - weights @ groups  # (..., n, k): distances, 1 - w, to all of a group
    alone = (groups * sizes).sum(axis=-1)  # (..., n): how many are in a token's own group
    own = ((groups * sums).sum(axis=-1) - 1) / np.where(alone > 1, alone - 1, 1.0)  # less 1 - 0 to itself
    others = np.where((groups == 1) | (sizes == 0), np.inf, sums / np.where(sizes > 0, sizes, 1.0))
    others = others.min(axis=-1, initial=np.inf)  # (..., n); infinite where nobody is labelled
    size = np.maximum(own, others)
    sound = (alone > 1) & np.isfinite(others) & (size > 0)
    score = np.where(sound, np.where(sound, others - own, 0.0) / np.where(sound, size, 1.0), 0.0)
    asked = sizes.sum(axis=(-2, -1))
    kinds = (sizes > 0).sum(axis=(-2, -1))
    return np.where(placed & (kinds > 1), score.sum(axis=-1) / np.where(asked > 0, asked, 1.0), np.nan)


def neighbor_agreement(similar: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """Share of tokens whose nearest token has their label, (..., n, n) and (..., n) -> (...).

    Nearest = most similar, itself excluded; a token with several nearest ones counts by the share of them that has its
    label. Tokens labelled -1 are not asked, but may be the nearest of others, which then are wrong. Chance is the share
    of a token's own label among the n - 1 others: 0.19 for 5 clusters of 20. NaN where nobody is asked.
    """
    weights, groups, placed = _prepared(similar, labels)
    asked = groups.sum(axis=(-2, -1))
    right = (groups * (nearest(weights) @ groups)).sum(axis=(-2, -1))
    return np.where(placed & (asked > 0), right / np.where(asked > 0, asked, 1.0), np.nan)


def mirror_agreement(similar: npt.ArrayLike, partner: npt.ArrayLike) -> Array:
    """Share of tokens whose nearest token is a given one, (..., n, n) and (..., n) of token numbers -> (...).

    A token with partner -1 is not asked. For a null, give both of a pair the same label and take `neighbor_agreement`,
    which is then the same number.
    """
    weights, placed = symmetric(similar)
    n = weights.shape[-1]
    partners = whole_numbers("partner", partner, n)
    if partners.max(initial=-1) >= n or (partners == np.arange(n)).any():
        raise must_be("partner", f"numbers of other tokens, 0 to {n - 1}, or -1 for none", partners.tolist())
    lead = np.broadcast_shapes(weights.shape[:-2], partners.shape[:-1])
    near = np.broadcast_to(nearest(weights), (*lead, n, n))
    found = np.take_along_axis(near, np.broadcast_to(np.maximum(partners, 0), (*lead, n))[..., None], axis=-1)[..., 0]
    asked = partners >= 0
    count = asked.sum(axis=-1)
    return np.where(placed & (count > 0), (found * asked).sum(axis=-1) / np.maximum(count, 1), np.nan)


def coordinate_agreement(similar: npt.ArrayLike, coordinates: npt.ArrayLike) -> Array:
    """Rank, by distance in space, of each token's most similar token: mean over tokens, from 0 to 1; chance is 0.5.

    For each token, the share of the remaining tokens (all but itself and its most similar token) that are farther away
    in space than its most similar token is. 1 = the most similar token is always the closest one in space, 0 = always
    the farthest one. It is not the share of tokens whose most similar token is a neighbour in space: a value of 0.5
    is chance, not "half of the tokens".

    An equal distance counts one half. Where several tokens are equally similar, their ranks are averaged. Only the
    order of the distances from a token matters, so the unit of the coordinates does not. Similarities beyond the
    largest one are not used; to compare all pairs, call `matrix_correlation` with a matrix of distances.

    Parameters
    ----------
    similar : array (..., n, n), similarity of every two tokens
    coordinates : array (..., n, axes), places of the tokens

    Returns
    -------
    array (...); NaN for fewer than three tokens
    """
    weights, placed = symmetric(similar)
    return _agreement(weights, placed, farther(coordinates, weights.shape[-1]))


def agreement_in(coordinates: npt.ArrayLike) -> Callable[[npt.ArrayLike, npt.ArrayLike], Array]:
    """`coordinate_agreement` for a permutation test: a function of similarities (..., n, n) and places (..., n).

    `places` are row numbers of `coordinates` (n, axes): which place each token has. Distances are ranked only once.
    """
    ranks = farther(coordinates, len(np.asarray(coordinates)))

    def agreement(similar: npt.ArrayLike, places: npt.ArrayLike) -> Array:
        weights, placed = symmetric(similar)
        at = whole_numbers("places", places, weights.shape[-1])
        return _agreement(weights, placed, ranks[at[..., :, None], at[..., None, :]])

    return agreement


def farther(coordinates: npt.ArrayLike, n: int) -> Array:
    """For tokens i and j, the share of the remaining tokens farther from i than j is, (..., n, axes) -> (..., n, n).

    An equal distance counts one half.
    """
    places = np.asarray(coordinates, dtype=np.float64)
    if places.ndim < 2 or places.shape[-2] != n or not np.isfinite(places).all():
        raise must_be("coordinates", f"finite numbers (tokens, axes) for each of the {n} tokens", places.shape)
    apart = np.linalg.norm(places[..., :, None, :] - places[..., None, :, :], axis=-1)  # (..., n, n)
    apart = _without_rounding(apart)
    apart[..., np.arange(n), np.arange(n)] = -1  # the token itself ranks first
    return np.asarray((n - rankdata(apart, axis=-1)) / max(n - 2, 1))


def _agreement(weights: Array, placed: npt.NDArray[np.bool_], ranks: Array) -> Array:
    if ranks.shape[-1] < 3:
        return np.full(np.broadcast_shapes(placed.shape, ranks.shape[:-2]), np.nan)
    return np.where(placed, (nearest(weights) * ranks).sum(axis=-1).mean(axis=-1), np.nan)


# --------------------------------------------------------------------------------------------------- of two matrices


def matrix_correlation(a: npt.ArrayLike, b: npt.ArrayLike, ranks: bool = False) -> Array:
    """Correlation of two matrices over all pairs of tokens, (..., n, n) and (..., n, n) -> (...).

    Pearson's, or with `ranks` Spearman's. Of PE similarity with functional connectivity; or of attention maps
    (e, l, h, n, n) with a connectivity (n, n): who attends to whom, both directions together, is their two triangles'
    mean. NaN where all pairs of either are equal.
    """
    one, two = pair_vectors(a, ranks), pair_vectors(b, ranks)
    if one.shape[-1] != two.shape[-1]:
        raise must_be("a and b", "matrices of the same tokens", (np.shape(a), np.shape(b)))
    return np.asarray(np.clip((one * two).sum(axis=-1), -1.0, 1.0))


def pair_vectors(matrix: npt.ArrayLike, ranks: bool = False) -> Array:
    """Entries of all pairs of tokens, centred and of length 1, (..., n, n) -> (..., n (n - 1) / 2).

    The inner product of two of them is a correlation. With `ranks`, of the entries' ranks, where those that differ by
    rounding alone tie. NaN where the matrix is not finite, or all pairs are equal.
    """
    weights, placed = symmetric(matrix)
    pairs = weights[(..., *np.triu_indices(weights.shape[-1], k=1))]
    if ranks:
        pairs = rankdata(_without_rounding(pairs, axes=(-1,)), axis=-1)
    if pairs.shape[-1] == 0:
        return pairs
    rest = pairs - pairs.mean(axis=-1, keepdims=True)
    length = np.linalg.norm(rest, axis=-1, keepdims=True)
    sound = placed[..., None] & (length > 1e-9 * np.linalg.norm(pairs, axis=-1, keepdims=True))
    return np.where(sound, rest / np.where(sound, length, 1.0), np.nan)


# --------------------------------------------------------------------------------------------------------- in common


def symmetric(similar: npt.ArrayLike) -> tuple[Array, npt.NDArray[np.bool_]]:
    """The matrices made symmetric, with zeros on the diagonal and where they are not finite; and which say anything."""
    whole = np.asarray(similar, dtype=np.float64)
    if whole.ndim < 2 or whole.shape[-1] != whole.shape[-2]:
        raise must_be("similar", "an array whose last two axes are (tokens, tokens)", whole.shape)
    finite = np.asarray(np.isfinite(whole).all(axis=(-2, -1)))
    weights = np.where(finite[..., None, None] & ~np.eye(whole.shape[-1], dtype=bool), whole, 0.0)
    weights = (weights + np.swapaxes(weights, -1, -2)) / 2
    return weights, np.asarray(finite & weights.any(axis=(-2, -1)))


def whole_numbers(name: str, labels: npt.ArrayLike, n: int) -> Labels:
    """Labels (..., n), or a sentence that names them."""
    values = np.asarray(labels)
    if values.ndim < 1 or values.shape[-1] != n or values.dtype.kind not in "iub":
        given = (values.dtype.name, values.shape)
        raise must_be(name, f"one whole number for each of the {n} tokens, -1 for none", given)
    values = values.astype(np.int64)
    if (values < -1).any():
        raise must_be(name, "whole numbers of at least 0, or -1 for none", int(values.min()))
    return values


def _prepared(similar: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
    """`symmetric`, with the groups as columns of 0 and 1 between its two results, (..., n, k); -1 is in none."""
    weights, placed = symmetric(similar)
    values = whole_numbers("labels", labels, weights.shape[-1])
    names = np.unique(values)
    return weights, (values[..., None] == names[names >= 0]).astype(np.float64), placed


def _beyond_strength(weights: Array, groups: Array) -> tuple[Array, Array]:
    """Sum of non-negative weights within groups, less what strengths explain; and the sum of all, both (...)."""
    pulls = weights @ groups  # (..., n, k)
    strength = pulls.sum(axis=-1) * groups.sum(axis=-1)  # (..., n), among the labelled
    total = strength.sum(axis=-1)
    shares = (groups * strength[..., None]).sum(axis=-2)  # (..., k)
    expected = (shares**2).sum(axis=-1) / np.where(total > 0, total, 1.0)
    return (groups * pulls).sum(axis=(-2, -1)) - expected, total


def nearest(weights: Array) -> Array:
    """Each token's nearest one, (..., n, n): rows sum to 1, shared where several are nearest but for rounding."""
    n = weights.shape[-1]
    if n < 2:
        return np.zeros_like(weights)
    others = np.where(np.eye(n, dtype=bool), -np.inf, weights)
    unit = np.abs(weights).max(axis=(-2, -1), keepdims=True)
    near = others >= others.max(axis=-1, keepdims=True) - TIED * unit
    return np.asarray(near / near.sum(axis=-1, keepdims=True))


def _without_rounding(values: Array, axes: tuple[int, ...] = (-2, -1)) -> Array:
    """Rounded to a millionth of the largest, so that what a regular arrangement makes equal does tie."""
    unit = np.abs(values).max(axis=axes, keepdims=True, initial=0.0)
    return np.asarray((values / np.where(unit > 0, unit, 1.0)).round(6))
