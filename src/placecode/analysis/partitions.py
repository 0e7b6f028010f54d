"""Cluster tokens by their similarity (modularity, k-means), and compare clusters with true labels (ARI, AMI).

`best_partition` and `clusters` compute a cluster label for each token, (..., n), from similarities, (..., n, n). `ari`,
`ami` and `shared_information` compare two arrays of labels, (..., n). Similarities and labels are as in `modules`. If a
similarity matrix is zero or not finite, all its labels are -1.

>>> from placecode.analysis.alignment import token_similarity
>>> rng = np.random.default_rng(0)
>>> labels = np.repeat([0, 1, 2], 10)
>>> pe = rng.normal(size=(2, 4, 30, 8))  # (e, l, n, d)
>>> pe[0] += 3 * np.eye(8)[labels]  # clusters in the first member alone
>>> ari(clusters(token_similarity(pe), 3), labels).round(2).tolist()
[1.0, 0.06]
"""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt

from placecode.analysis.connectivity import one_thread
from placecode.analysis.modules import Labels, checked_labels, symmetrize
from placecode.arrays import Array, BoolArray
from placecode.validation import whole_number

# ------------------------------------------------------------------------------------------------------- clustering


def best_partition(similarity: npt.ArrayLike, seed: int = 0, restarts: int = 10) -> Labels:
    """Divide tokens into groups with the highest signed `modularity` Q*, by the Louvain method.

    Tokens are moved one by one to the group with the largest gain in Q*. Then whole groups are moved in the same way,
    until no move helps. The result is a local optimum: moving any single token would not increase Q*. The Q* of the
    best partition is above 0 even for noise, so compare it with the value before training.

    Parameters
    ----------
    similarity : array-like, shape (..., n, n)
    seed : int
        Seed of the random orders. They are the same for all matrices, so the result for one does not depend on others.
    restarts : int
        Number of repetitions with other random orders of the tokens. The best result is returned.

    Returns
    -------
    ndarray of int64, shape (..., n)
        Group of each token. Groups are numbered from 0 in the order of their first tokens. All -1 if the matrix is zero
        or not finite.
    """
    weights, valid = symmetrize(similarity)
    whole_number("restarts", restarts, 1)
    n = weights.shape[-1]
    labels = np.full((*weights.shape[:-2], n), -1, dtype=np.int64)
    for entry in _entries(valid):
        gains = _gains(weights[entry])
        candidates = _louvain(gains, restarts, np.random.default_rng(seed))
        value = (gains * (candidates[:, :, None] == candidates[:, None, :])).sum(axis=(-2, -1))
        labels[entry] = numbered(candidates[np.argmax(value)])
    return labels


def clusters(similarity: npt.ArrayLike, k: int, seed: int = 0) -> Labels:
    """Divide tokens into k clusters with scikit-learn's k-means, the best of ten starts.

    k-means is applied to vectors whose inner products are the similarities. For similarities from
    `alignment.token_similarity`, these vectors are the centred PEs scaled to length 1, up to a rotation. For other
    matrices, only positive eigenvalues are used. Unlike in other functions, the diagonal of the matrix matters.

    Parameters
    ----------
    similarity : array-like, shape (..., n, n)
    k : int
        Number of clusters.
    seed : int
        Seed of the random starts.

    Returns
    -------
    ndarray of int64, shape (..., n)
        Cluster of each token, from 0 to k - 1, numbered in the order of their first tokens. All -1 if the matrix is
        zero or not finite.
    """
    # imported here because it takes a second, and most callers do not need it
    from sklearn.cluster import KMeans  # type: ignore[import-untyped, unused-ignore]
    from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped, unused-ignore]

    weights, valid = symmetrize(similarity)
    matrices, n = np.asarray(similarity, dtype=np.float64), weights.shape[-1]
    whole_number("k", k, 1, n)
    labels = np.full((*weights.shape[:-2], n), -1, dtype=np.int64)
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different tokens than clusters
        for entry in _entries(valid):
            size, axes = np.linalg.eigh((matrices[entry] + matrices[entry].T) / 2)
            positive = size > 1e-12 * np.abs(size).max()
            fitted = KMeans(k, n_init=10, random_state=seed).fit(axes[:, positive] * np.sqrt(size[positive]))
            labels[entry] = numbered(fitted.labels_)
    return labels


# ----------------------------------------------------------------------------------------- agreement of two labellings


def ari(partition: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """Compute the adjusted Rand index (ARI) of clusters and labels, as in scikit-learn, for many arrays at once.

    Parameters
    ----------
    partition, labels : array-like of int, shape (..., n)
        Computed cluster and true label of each token. Tokens with -1 in either array are left out.

    Returns
    -------
    ndarray, shape (...)
        1 for equal partitions, 0 at chance. NaN if no token is left.
    """
    counts = _contingency(partition, labels)
    same = _pairs(counts).sum(axis=(-2, -1))
    rows, columns = (_pairs(counts.sum(axis=axis)).sum(axis=-1) for axis in (-1, -2))
    total = _pairs(counts.sum(axis=(-2, -1)))
    expected = rows * columns / np.where(total > 0, total, 1.0)
    largest = (rows + columns) / 2
    span = largest - expected
    value = np.where(span > 0, (same - expected) / np.where(span > 0, span, 1.0), 1.0)
    return np.where(counts.any(axis=(-2, -1)), value, np.nan)


def ami(partition: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """Compute scikit-learn's adjusted mutual information (AMI), which suits groups of very different sizes.

    Parameters
    ----------
    partition, labels : array-like of int, shape (..., n)
        Computed cluster and true label of each token. Tokens with -1 in either array are left out.

    Returns
    -------
    ndarray, shape (...)
        1 for equal partitions, 0 at chance. NaN if no token is left.
    """
    from sklearn.metrics import adjusted_mutual_info_score  # type: ignore[import-untyped, unused-ignore]

    groups, true = _checked_pair(partition, labels)
    value = np.full(groups.shape[:-1], np.nan)
    for entry in np.ndindex(value.shape):
        labelled = (groups[entry] >= 0) & (true[entry] >= 0)
        if labelled.any():
            value[entry] = adjusted_mutual_info_score(true[entry][labelled], groups[entry][labelled])
    return value


def shared_information(partition: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """Compute the mutual information of clusters and labels in nats, without adjustment for chance.

    Both arrays have shape (..., n), and the result has shape (...). Tokens with -1 in either array are left out. In
    permutation tests, this function can replace `ami`, in a hundredth of the time: a permutation of the labels does not
    change group sizes, so both measures rank permutations equally.
    """
    counts = _contingency(partition, labels)
    total = counts.sum(axis=(-2, -1), keepdims=True)
    joint = counts / np.where(total > 0, total, 1.0)
    expected = joint.sum(axis=-1, keepdims=True) * joint.sum(axis=-2, keepdims=True)
    ratio = np.where(joint > 0, joint, 1.0) / np.where(joint > 0, expected, 1.0)
    return np.where(total[..., 0, 0] > 0, (joint * np.log(ratio)).sum(axis=(-2, -1)), np.nan)


def _checked_pair(partition: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Labels, ...]:
    """Return clusters and labels as int64 arrays of one shape, (..., n), or raise `BadInput`."""
    n = np.shape(partition)[-1] if np.ndim(partition) else 0
    return np.broadcast_arrays(checked_labels("partition", partition, n), checked_labels("labels", labels, n))


def _contingency(partition: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """Return the number of tokens in cluster i with label j, for k clusters and m labels, as an array (..., k, m).

    `partition` and `labels` have shape (..., n). Tokens with -1 in either array are left out.
    """
    groups, true = _checked_pair(partition, labels)
    labelled = (groups >= 0) & (true >= 0)
    by_cluster, by_label = (  # (..., n, k) and (..., n, m)
        np.where(labelled, values, -1)[..., None] == np.unique(values[labelled]) for values in (groups, true)
    )
    return np.asarray(np.swapaxes(by_cluster, -1, -2).astype(np.float64) @ by_label)


def _pairs(counts: npt.ArrayLike) -> Array:
    """Return the number of pairs of tokens within a group, for groups of the sizes `counts`."""
    sizes = np.asarray(counts, dtype=np.float64)
    return sizes * (sizes - 1) / 2


def _entries(valid: BoolArray) -> list[tuple[int, ...]]:
    """Return the indices at which `valid` is True, as tuples."""
    return [entry for entry in np.ndindex(valid.shape) if valid[entry]]


def _gains(weights: Array) -> Array:
    """Return what the modularity gains if tokens i and j are in one group, for all i and j, (n, n) -> (n, n).

    The `modularity` of any partition is the sum of the gains over all i and j in the same group, including i = j.
    """
    total_weight = np.abs(weights).sum()
    gains = np.zeros_like(weights)
    for part, sign in ((np.maximum(weights, 0), 1), (np.maximum(-weights, 0), -1)):
        total, strength = part.sum(), part.sum(axis=0)
        if total > 0:
            gains += sign * (part - np.outer(strength, strength) / total) / (total if sign > 0 else total_weight)
    return gains


def _louvain(gains: Array, restarts: int, rng: np.random.Generator) -> Labels:
    """Partition n tokens into groups by the Louvain method, and return the group of each token for each restart,
    (restarts, n).

    `gains`, (n, n), is the result of `_gains`. Restarts differ in the random order in which tokens are moved. In each
    result, the modularity is a local maximum: moving one token or merging two groups does not increase it.
    """
    copies = np.broadcast_to(gains, (restarts, *gains.shape))
    labels = np.tile(np.arange(len(gains)), (restarts, 1))
    while True:
        labels, _ = _move_items(copies, labels, rng)
        labels = np.stack([numbered(row) for row in labels])
        groups = (labels[:, :, None] == np.arange(labels.max() + 1)).astype(np.float64)  # (restarts, n, k)
        # (restarts, k, k), with zeros for restarts with fewer groups
        between = np.swapaxes(groups, 1, 2) @ copies @ groups
        joined, moved = _move_items(between, np.tile(np.arange(between.shape[-1]), (restarts, 1)), rng)
        if not moved:
            return labels
        labels = np.take_along_axis(joined, labels, axis=1)


def _move_items(gains: Array, labels: Labels, rng: np.random.Generator) -> tuple[Labels, bool]:
    """Move items (tokens or groups of tokens) one by one to the cluster where modularity grows most, until no move
    helps.

    Returns the new labels, (restarts, n), and whether any item was moved. `gains`, (restarts, n, n), is what modularity
    gains if two items are in one cluster.
    """
    restarts, n = labels.shape
    row, labels, any_moved = np.arange(restarts), labels.copy(), False
    group_gains = gains @ (labels[:, :, None] == np.arange(n)).astype(np.float64)  # (restarts, item, group)
    while True:
        unchanged = True
        for items in rng.permuted(np.tile(np.arange(n), (restarts, 1)), axis=1).T:
            current = labels[row, items]
            # (restarts, group); the gain of an empty group is 0, and there always is one
            gain = group_gains[row, items]
            gain[row, current] -= gains[row, items, items]
            best = gain.argmax(axis=1)
            moves = np.flatnonzero(gain[row, best] > gain[row, current] + 1e-10)  # restarts in which the item moves
            if len(moves):
                unchanged, any_moved = False, True
                moved = gains[moves, items[moves]]
                group_gains[moves, :, current[moves]] -= moved
                group_gains[moves, :, best[moves]] += moved
                labels[moves, items[moves]] = best[moves]
        if unchanged:
            return labels, any_moved


def numbered(labels: npt.NDArray[np.integer]) -> Labels:
    """Return labels, (n,), with groups renumbered from 0 in the order of their first tokens.

    >>> numbered(np.array([7, 3, 7, 5])).tolist()
    [0, 1, 0, 2]
    """
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)
