"""Measure how well several fits of the same channels agree, as confidence in a learned PE (`placecode fit`).

A fit is one trained model with a PE for each channel. Fits differ in their seed, and in whether they are trained on all
data or on one half. Arguments are the PEs of m fits, (fits m, blocks l, channels n, features d), or the similarities of
their channels, (m, n, n). The feature axes of a PE are arbitrary, so PEs are rotated onto each other (orthogonal
Procrustes) before they are compared. With many features, this brings even unrelated PEs closer. Distances are therefore
divided by the distances between unrelated PEs, for which the channels of one PE are shuffled.

>>> from placecode.analysis.alignment import token_similarity
>>> rng = np.random.default_rng(0)
>>> true = np.repeat(np.eye(4), 5, axis=0)  # 20 channels in four groups
>>> pes = true + 0.1 * rng.normal(size=(3, 1, 20, 4))
>>> bool((channel_confidence(pes) > 0.8).all()), stable_modules(token_similarity(pes)).count
(True, 4)
>>> bool(channel_confidence(rng.normal(size=(3, 1, 20, 4))).mean() < 0.3)
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import cut_tree, leaves_list, linkage
from scipy.linalg import orthogonal_procrustes
from scipy.signal import find_peaks

from placecode.analysis.alignment import side_by_side
from placecode.analysis.modules import Labels, symmetrize
from placecode.analysis.partitions import ari, best_partition, numbered
from placecode.arrays import Array, BoolArray, IntArray
from placecode.errors import must_be

NEIGHBORS = 4
"""Default number of most similar channels that count as neighbours of a channel. A cell of a square grid also has 4."""
RANDOM_ORDERS = 5
"""Number of times that `channel_confidence` shuffles the channels, per pair of fits, to estimate the distance of
unrelated fits."""
MAX_MODULES = 50
"""Default maximum number of modules (groups of similar channels)."""
MIN_AGREEMENT = 0.6
"""Smallest agreement between fits (adjusted Rand index: 1 for equal groups, 0 at chance) at which `stable_modules`
returns more than one group. Data without groups, such as pixels, reached 0.5."""
MAX_DROP, MIN_PROMINENCE = 0.15, 0.1
"""Conditions on a peak of the agreement between fits, as a function of the number of groups (`stable_modules`). It must
be at most `MAX_DROP` lower than the highest agreement. Its prominence must be at least `MIN_PROMINENCE`."""


# ------------------------------------------------------------------------------------------------------- embeddings


def common_embedding(pes: npt.ArrayLike) -> Array:
    """Rotate the PEs of several fits onto each other, and average them (generalized Procrustes analysis).

    Parameters
    ----------
    pes : array-like, shape (m, l, n, d)
        PEs of m fits, with l blocks, n channels and d features. Before the rotation, the blocks of each fit are
        concatenated, centred over channels, and scaled to the same Frobenius norm.

    Returns
    -------
    ndarray, shape (n, min(n, l * d))
        Coordinates of the channels on the principal axes of the mean, the one with the largest variance first.
    """
    fits = _unit_fits(pes)
    mean = fits[0]
    for _ in range(10):
        rotated = np.stack([fit @ orthogonal_procrustes(fit, mean)[0] for fit in fits])
        mean = rotated.mean(axis=0)
    axes = np.linalg.svd(mean, full_matrices=False)[2]
    return np.asarray(mean @ axes.T)


def channel_confidence(pes: npt.ArrayLike, seed: int = 0) -> Array:
    """Return, for each channel, how well its positions in the embeddings of different fits agree, from 0 to 1.

    The result is 1 - d / c. For every pair of fits, one is rotated onto the other. d is the squared distance between
    the two positions of the channel, and c is the mean squared distance of all channels after the channels of one fit
    are shuffled. Both are summed over the pairs of fits.

    Parameters
    ----------
    pes : array-like, shape (m, l, n, d)
        PEs of m fits, with l blocks, n channels and d features.
    seed : int
        Seed of the shuffles.

    Returns
    -------
    ndarray, shape (n,)
        1 if the position is the same in all fits, 0 if distances are at least as large as after shuffling. NaN for a
        single fit.
    """
    fits = _unit_fits(pes)
    rng = np.random.default_rng(seed)
    distances, chance = np.zeros(fits.shape[1]), 0.0
    if len(fits) < 2:
        return np.full(fits.shape[1], np.nan)
    for first, second in combinations(fits, 2):
        distances += _residual(first, second)
        orders = (rng.permutation(fits.shape[1]) for _ in range(RANDOM_ORDERS))
        chance += float(np.mean([_residual(first, second[order]).mean() for order in orders]))
    return np.clip(1 - distances / max(chance, 1e-12), 0.0, 1.0)


def _residual(first: Array, second: Array) -> Array:
    """Rotate the first fit onto the second, and return the squared distance between the two for each channel, (n,)."""
    rotation, _ = orthogonal_procrustes(first, second)
    return np.asarray(((first @ rotation - second) ** 2).sum(axis=-1))


def _unit_fits(pes: npt.ArrayLike) -> Array:
    """Return fits with concatenated blocks, centred over channels, (m, l, n, d) -> (m, n, l * d).

    Each fit is scaled so that its channels have a mean squared vector length of 1.
    """
    tokens = side_by_side(pes)
    if tokens.ndim != 3 or not np.isfinite(tokens).all():
        raise must_be("pes", "finite fits (m, blocks, channels, features)", np.shape(pes))
    centred = tokens - tokens.mean(axis=1, keepdims=True)
    size = np.linalg.norm(centred, axis=(1, 2), keepdims=True) / np.sqrt(tokens.shape[1])
    return np.asarray(centred / np.where(size > 0, size, 1.0))


# ------------------------------------------------------------------------------------------------------- neighbours


def nearest_channels(similarity: npt.ArrayLike, count: int = NEIGHBORS) -> IntArray:
    """Return, for each channel, the indices of its most similar channels, excluding the channel itself.

    Parameters
    ----------
    similarity : array-like, shape (..., n, n)
        Similarities of channels.
    count : int
        Number of most similar channels to return, at most n - 1.

    Returns
    -------
    ndarray of int64, shape (..., n, count)
        In decreasing order of similarity.
    """
    weights, _ = symmetrize(similarity)
    n = weights.shape[-1]
    others = np.where(np.eye(n, dtype=bool), -np.inf, weights)
    return np.asarray(np.argsort(-others, axis=-1, kind="stable")[..., : min(count, n - 1)])


def mutual_neighbors(similarity: npt.ArrayLike, count: int = NEIGHBORS) -> BoolArray:
    """Return, for every two channels, whether each is among the `count` channels that are most similar to the other.

    Parameters
    ----------
    similarity : array-like, shape (..., n, n)
        Similarities of channels.
    count : int
        Number of most similar channels to consider.

    Returns
    -------
    ndarray of bool, shape (..., n, n)
    """
    weights, _ = symmetrize(similarity)
    near = np.zeros(weights.shape, dtype=bool)
    np.put_along_axis(near, nearest_channels(weights, count), True, axis=-1)
    return np.asarray(near & np.swapaxes(near, -1, -2))


def pair_confidence(
    similarity: npt.ArrayLike, halves: tuple[Sequence[int], Sequence[int]], count: int = NEIGHBORS
) -> Array:
    """Return the probability of every two channels to be `mutual_neighbors`, from fits to two halves of the data.

    An isotonic regression predicts whether two channels are neighbours in a fit to one half of the data. Its input is
    the mean similarity of the two channels in the fits to the other half, as a z-score (`_relative_similarity`). This
    regression then converts their mean similarity over all fits to a probability. The mean over all fits is more
    reliable than the mean over fits to one half, so probabilities tend to be too low. To avoid probabilities of 1 based
    on a few pairs, an artificial pair is added to the regression: its similarity is the largest of all, but it is not a
    pair of neighbours. It has half the weight of a real pair.

    Parameters
    ----------
    similarity : array-like, shape (m, n, n)
        Similarities of m fits.
    halves : tuple of two sequences of int
        Indices of the fits to the first half of the data, and of those to the second half.
    count : int
        Number of most similar channels to consider, as in `mutual_neighbors`.

    Returns
    -------
    ndarray, shape (n, n)
        Symmetric, with a diagonal of 0. All NaN if there is no fit to one of the halves.
    """
    from sklearn.isotonic import IsotonicRegression  # type: ignore[import-untyped, unused-ignore]

    weights, _ = symmetrize(similarity)
    n = weights.shape[-1]
    upper = np.triu_indices(n, k=1)
    if not all(halves):
        return np.full((n, n), np.nan)
    near = mutual_neighbors(weights, count)
    scores, outcomes = [], []
    for half, other_half in (halves, halves[::-1]):
        score = _relative_similarity(weights[list(half)].mean(axis=0))[upper]
        for fit in other_half:
            scores.append(score)
            outcomes.append(near[fit][upper])
    curve = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
    count_artificial = len(scores) // 2  # half as many outcomes as a real pair has
    artificial_scores = [max(float(score.max()) for score in scores)] * count_artificial
    all_outcomes = np.concatenate([*outcomes, [False] * count_artificial]).astype(np.float64)
    curve.fit(np.concatenate([*scores, artificial_scores]), all_outcomes)
    probability = np.zeros((n, n))
    probability[upper] = curve.predict(_relative_similarity(weights.mean(axis=0))[upper])
    return np.asarray(probability + probability.T)


def _relative_similarity(similarity: Array) -> Array:
    """Return the z-score of the similarity of every two channels i and j, (n, n) -> (n, n).

    It is the smaller of two z-scores: among all pairs that include i, and among all pairs that include j.
    """
    n = len(similarity)
    others = similarity[~np.eye(n, dtype=bool)].reshape(n, n - 1)
    spread = others.std(axis=1, keepdims=True)
    z = (similarity - others.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0)
    return np.asarray(np.minimum(z, z.T))


# ---------------------------------------------------------------------------------------------------------- modules


@dataclass(frozen=True)
class Modules:
    """Groups of similar channels (modules), and how well they agree between fits. The result of `stable_modules`."""

    labels: Labels
    """Group of each channel, (n,). Groups are numbered from 0 in the order of their first channels."""
    stability: Mapping[int, float]
    """For each number of groups that was tried, the agreement between fits, as in `agreement`. Empty for a single fit,
    or fewer than 4 channels."""

    @property
    def count(self) -> int:
        """Number of groups."""
        return int(self.labels.max()) + 1

    @property
    def agreement(self) -> float:
        """How well fits (trained models) agree at this number of groups. The channels are grouped twice: by their
        similarities in one fit, and by the mean of their similarities in all other fits. The agreement is the adjusted
        Rand index of the two groupings (1: equal, 0: chance), averaged over fits. NaN for one group or one fit."""
        return self.stability[self.count] if self.count in self.stability else float("nan")


def stable_modules(similarity: npt.ArrayLike, most: int = MAX_MODULES) -> Modules:
    """Return the groups of similar channels that are reproducible between fits.

    Ward's method clusters each fit, and also the mean of all other fits, into 2, 3, ... groups. The adjusted Rand index
    between both clusterings, averaged over fits, is the agreement for this number of groups. It has peaks at
    reproducible numbers of groups. Of the peaks that meet `MIN_AGREEMENT`, `MAX_DROP` and `MIN_PROMINENCE`, the one
    with the most groups is chosen: the finer ones if groups are nested. If there is no such peak, all channels are one
    group. A single fit is divided into the groups with the highest modularity (`best_partition`).

    Parameters
    ----------
    similarity : array-like, shape (m, n, n)
        Similarities of m fits.
    most : int
        Maximum number of groups for several fits. It is also limited to half the number of channels.

    Returns
    -------
    Modules
        Groups of the mean similarity over all fits.
    """
    weights, _ = symmetrize(similarity)
    fits, n = len(weights), weights.shape[-1]
    top = min(most, n // 2)
    if top < 2:
        return Modules(np.zeros(n, dtype=np.int64), {})
    if fits < 2:
        return Modules(np.maximum(best_partition(weights[0]), 0), {})
    cuts = np.stack([_cut(fit, top) for fit in weights])  # (m, n, top)
    other_cuts = np.stack([_cut(np.delete(weights, i, axis=0).mean(axis=0), top) for i in range(fits)])
    stability = {
        count: float(ari(other_cuts[..., count - 1], cuts[..., count - 1]).mean()) for count in range(2, top + 1)
    }
    return Modules(numbered(_cut(weights.mean(axis=0), top)[:, _most_stable(stability) - 1]), stability)


def _most_stable(stability: Mapping[int, float]) -> int:
    """Return the largest number of groups at which the agreement has a sufficient peak, or 1 if there is none.

    `stability` maps numbers of groups to agreements between fits.

    >>> _most_stable({2: 1.0, 3: 0.7, 4: 0.5, 5: 0.9, 6: 0.8, 7: 0.83})  # the peak at 7 is not prominent enough
    5
    """
    values = np.array(list(stability.values())).round(9)  # equal values may differ by rounding
    height = max(MIN_AGREEMENT, values.max() - MAX_DROP)
    peaks = find_peaks([-1.0, *values, -1.0], height=height, prominence=MIN_PROMINENCE, plateau_size=1)
    edges = peaks[1]["right_edges"]
    return int(max(edges) + min(stability) - 1) if len(edges) else 1


def similarity_order(similarity: npt.ArrayLike) -> Labels:
    """Return an order of the channels in which adjacent channels are similar, for example for the rows of a heat map.

    The order is that of the leaves of Ward's tree, whose branches are swapped to make adjacent leaves most similar.

    Parameters
    ----------
    similarity : array-like, shape (n, n)
        Similarities of channels.

    Returns
    -------
    ndarray of int64, shape (n,)
        Indices of channels.

    Examples
    --------
    >>> line = np.array([0.0, 3.0, 1.0, 2.0])
    >>> similarity_order(np.exp(-np.abs(line[:, None] - line))).tolist() in ([0, 2, 3, 1], [1, 3, 2, 0])
    True
    """
    weights, _ = symmetrize(similarity)
    if len(weights) < 3:
        return np.arange(len(weights))
    return np.asarray(leaves_list(linkage(_vectors(weights), "ward", optimal_ordering=True)), dtype=np.int64)


def _cut(similarity: Array, top: int) -> Labels:
    """Return the group of each channel if Ward's method forms 1, 2, ..., `top` groups, (n, n) -> (n, top)."""
    return np.asarray(cut_tree(linkage(_vectors(similarity), "ward"), n_clusters=range(1, top + 1)), dtype=np.int64)


def _vectors(similarity: Array) -> Array:
    """Return one vector of length 1 per channel, whose inner products are the similarities, (n, n) -> (n, n).

    `similarity` has a diagonal of 0. Lengths and inner products are approximate if it has eigenvalues below -1.
    """
    size, axes = np.linalg.eigh(similarity + np.eye(len(similarity)))
    return np.asarray(axes * np.sqrt(np.maximum(size, 0.0)))
