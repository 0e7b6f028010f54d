"""Which tokens belong together, where nobody says so? Groups that are found, and how well they agree with true ones.

`best_partition` and `clusters` take similarities (..., n, n) and give labels (..., n); `ari`, `ami` and
`shared_information` hold two labellings against each other, (..., n) and (..., n) -> (...). What similarities and
labels are, and what becomes of those that say nothing, is as in `modules`; where labels are the result, such a member
has -1 for every token.

>>> from placecode.analysis.modules import similarities
>>> rng = np.random.default_rng(0)
>>> labels = np.repeat([0, 1, 2], 10)
>>> pe = rng.normal(size=(2, 4, 30, 8))  # (e, l, n, d)
>>> pe[0] += 3 * np.eye(8)[labels]  # clusters in the first member alone
>>> ari(clusters(similarities(pe)[-1], 3), labels).round(2).tolist()
[1.0, 0.06]
"""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt

from placecode.analysis.connectivity import one_thread
from placecode.analysis.modules import Array, Labels, symmetric, whole_numbers
from placecode.errors import must_be

# ------------------------------------------------------------------------------------------------------------- found


def best_partition(similar: npt.ArrayLike, seed: int = 0, restarts: int = 10) -> Labels:
    """The partition with the highest signed `modularity` that was found, (..., n, n) -> labels (..., n).

    Louvain's method on the signed Q*: tokens move one by one to the group where Q* gains most, then groups do as if
    they were tokens, in turns until nothing moves; the best of `restarts` random orders. No token's move to another
    group, or to one of its own, would raise Q*: a local optimum, not surely the highest. The same seed gives the same
    partition, whatever other matrices are beside it. Groups are numbered by their first token.

    Q* of the best partition is above 0 for pure noise too: hold it against the value before training.
    """
    weights, placed = symmetric(similar)
    if restarts < 1:
        raise must_be("restarts", "a whole number of at least 1", restarts)
    n = weights.shape[-1]
    found = np.full((*weights.shape[:-2], n), -1, dtype=np.int64)
    for entry in _entries(placed):
        gains = _gains(weights[entry])
        tries = _louvain(gains, restarts, np.random.default_rng(seed))
        value = (gains * (tries[:, :, None] == tries[:, None, :])).sum(axis=(-2, -1))
        found[entry] = numbered(tries[np.argmax(value)])
    return found


def clusters(similar: npt.ArrayLike, k: int, seed: int = 0) -> Labels:
    """k clusters by k-means, blind to any labels, (..., n, n) -> (..., n) from 0 to k - 1.

    It clusters vectors whose inner products are these similarities. For the `similarity` of a PE, which is the cosine
    similarity of the centred PEs, these are the centred PEs scaled to length 1 (up to a rotation). For other matrices
    they are what the positive eigenvalues span, so here the diagonal counts. scikit-learn's k-means, the best of ten
    starts from the seed.
    """
    # Here, since it takes a second and most callers need none of it.
    from sklearn.cluster import KMeans  # type: ignore[import-untyped, unused-ignore]
    from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped, unused-ignore]

    weights, placed = symmetric(similar)
    whole, n = np.asarray(similar, dtype=np.float64), weights.shape[-1]
    if not 1 <= k <= n:
        raise must_be("k", f"a whole number from 1 to the number of tokens, {n}", k)
    found = np.full((*weights.shape[:-2], n), -1, dtype=np.int64)
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different tokens than clusters
        for entry in _entries(placed):
            size, axes = np.linalg.eigh((whole[entry] + whole[entry].T) / 2)
            kept = size > 1e-12 * np.abs(size).max()
            fitted = KMeans(k, n_init=10, random_state=seed).fit(axes[:, kept] * np.sqrt(size[kept]))
            found[entry] = numbered(fitted.labels_)
    return found


# ---------------------------------------------------------------------------------------------------- against others


def ari(found: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """Adjusted Rand index of clusters with labels, (..., n) and (..., n) -> (...): 1 = the same, 0 = chance.

    Tokens that are -1 in either are left out; NaN where none is left. The definition, and the 1 of two partitions that
    are both trivial in the same way, are scikit-learn's; written for many labellings at once, since a null takes them.
    """
    both = _shared(found, labels)
    same = _pairs_in(both).sum(axis=(-2, -1))
    rows, columns = (_pairs_in(both.sum(axis=axis)).sum(axis=-1) for axis in (-1, -2))
    every = _pairs_in(both.sum(axis=(-2, -1)))
    expected = rows * columns / np.where(every > 0, every, 1.0)
    most = (rows + columns) / 2
    apart = most - expected
    value = np.where(apart > 0, (same - expected) / np.where(apart > 0, apart, 1.0), 1.0)
    return np.where(both.any(axis=(-2, -1)), value, np.nan)


def ami(found: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """Adjusted mutual information of clusters with labels, as `ari`; fairer to labels of very different sizes.

    scikit-learn's.
    """
    from sklearn.metrics import adjusted_mutual_info_score  # type: ignore[import-untyped, unused-ignore]

    n = np.shape(found)[-1] if np.ndim(found) else 0
    own, true = np.broadcast_arrays(whole_numbers("found", found, n), whole_numbers("labels", labels, n))
    value = np.full(own.shape[:-1], np.nan)
    for entry in np.ndindex(value.shape):
        kept = (own[entry] >= 0) & (true[entry] >= 0)
        if kept.any():
            value[entry] = adjusted_mutual_info_score(true[entry][kept], own[entry][kept])
    return value


def shared_information(found: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """Mutual information of clusters with labels in nats, not adjusted, as `ari`.

    Where labels are dealt out anew, sizes stay, so that it ranks draws as `ami` does: the null of that in a hundredth
    of the time.
    """
    both = _shared(found, labels)
    total = both.sum(axis=(-2, -1), keepdims=True)
    share = both / np.where(total > 0, total, 1.0)
    expected = share.sum(axis=-1, keepdims=True) * share.sum(axis=-2, keepdims=True)
    ratio = np.where(share > 0, share, 1.0) / np.where(share > 0, expected, 1.0)
    return np.where(total[..., 0, 0] > 0, (share * np.log(ratio)).sum(axis=(-2, -1)), np.nan)


# --------------------------------------------------------------------------------------------------------- in common


def _shared(found: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """How many tokens each cluster shares with each label, (..., n) and (..., n) -> (..., k, m), -1 in neither."""
    n = np.shape(found)[-1] if np.ndim(found) else 0
    own, true = np.broadcast_arrays(whole_numbers("found", found, n), whole_numbers("labels", labels, n))
    kept = (own >= 0) & (true >= 0)
    one, two = (np.where(kept, each, -1)[..., None] == np.unique(each[kept]) for each in (own, true))  # (..., n, k)
    return np.asarray(np.swapaxes(one, -1, -2).astype(np.float64) @ two)


def _pairs_in(counts: npt.ArrayLike) -> Array:
    """Of how many two a group consists."""
    each = np.asarray(counts, dtype=np.float64)
    return each * (each - 1) / 2


def _entries(placed: npt.NDArray[np.bool_]) -> list[tuple[int, ...]]:
    return [entry for entry in np.ndindex(placed.shape) if placed[entry]]


def _gains(weights: Array) -> Array:
    """The matrix whose sum over the pairs within groups is `modularity`, (n, n)."""
    both = np.abs(weights).sum()
    gains = np.zeros_like(weights)
    for part, sign in ((np.maximum(weights, 0), 1), (np.maximum(-weights, 0), -1)):
        total, strength = part.sum(), part.sum(axis=0)
        if total > 0:
            gains += sign * (part - np.outer(strength, strength) / total) / (total if sign > 0 else both)
    return gains


def _louvain(gains: Array, restarts: int, rng: np.random.Generator) -> Labels:
    """Partitions (restarts, n), each from other orders of the tokens; no token's move would improve any of them."""
    each = np.broadcast_to(gains, (restarts, *gains.shape))
    labels = np.tile(np.arange(len(gains)), (restarts, 1))
    while True:
        labels, _ = _settled(each, labels, rng)
        labels = np.stack([numbered(row) for row in labels])
        groups = (labels[:, :, None] == np.arange(labels.max() + 1)).astype(np.float64)  # (restarts, n, k)
        between = np.swapaxes(groups, 1, 2) @ each @ groups  # (restarts, k, k), with zeros where one has fewer groups
        joined, moved = _settled(between, np.tile(np.arange(between.shape[-1]), (restarts, 1)), rng)
        if not moved:
            return labels
        labels = np.take_along_axis(joined, labels, axis=1)


def _settled(gains: Array, labels: Labels, rng: np.random.Generator) -> tuple[Labels, bool]:
    """Moves one item after the other to the group where the sum of gains within groups grows most, until none grows."""
    restarts, n = labels.shape
    row, labels, any_moved = np.arange(restarts), labels.copy(), False
    pulls = gains @ (labels[:, :, None] == np.arange(n)).astype(np.float64)  # (restarts, item, group)
    while True:
        still = True
        for items in rng.permuted(np.tile(np.arange(n), (restarts, 1)), axis=1).T:
            own = labels[row, items]
            pull = pulls[row, items]  # (restarts, group); an empty group pulls with 0, and there always is one
            pull[row, own] -= gains[row, items, items]
            best = pull.argmax(axis=1)
            go = np.flatnonzero(pull[row, best] > pull[row, own] + 1e-10)
            if len(go):
                still, any_moved = False, True
                moved = gains[go, items[go]]
                pulls[go, :, own[go]] -= moved
                pulls[go, :, best[go]] += moved
                labels[go, items[go]] = best[go]
        if still:
            return labels, any_moved


def numbered(labels: npt.NDArray[np.integer]) -> Labels:
    """The same groups, numbered by their first token."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)
