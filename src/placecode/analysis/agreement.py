"""How sure is a learned arrangement? What several fits of the same channels agree on.

Fits are PEs (m, l, n, d) or their similarities (m, n, n): of other seeds, and of either half of the data. A PE has no
natural orientation, so that two of them are turned onto each other before their places are compared; and since a
rotation in many dimensions brings anything somewhat nearer, every agreement is held against that of channels in random
order.

>>> rng = np.random.default_rng(0)
>>> true = np.repeat(np.eye(4), 5, axis=0)  # 20 channels in four groups
>>> pes = true + 0.1 * rng.normal(size=(3, 1, 20, 4))
>>> bool((channel_confidence(pes) > 0.8).all()), stable_modules(similarities(pes)[-1]).count
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
from placecode.analysis.modules import Labels, symmetric
from placecode.analysis.partitions import ari, best_partition, numbered
from placecode.errors import must_be

Array = npt.NDArray[np.float64]

NEIGHBORS = 4
"""How many nearest channels count as neighbours: those of a cell in a grid."""
ORDERS = 5
"""Random orders of the channels that tell what a rotation alone achieves."""
MOST_MODULES = 50
SURE_MODULES, NEARLY, RIPPLE = 0.6, 0.15, 0.1
"""How far modules must agree with those of a fit that had no part in them (adjusted Rand index: 0 is chance, 1 the
same): on a map without modules, such as that of pixels, fits came to 0.5. How much less than the best will do; and how
deep the valley before a peak must be."""


# ----------------------------------------------------------------------------------------------------------- places


def common_embedding(pes: npt.ArrayLike) -> Array:
    """One embedding of the channels from several fits, (m, l, n, d) -> (n, l * d): their mean, each turned onto it.

    Blocks are centred and stand side by side; every fit has the same size. The widest axis comes first.
    """
    fits = _unit_fits(pes)
    middle = fits[0]
    for _ in range(10):
        turned = np.stack([fit @ orthogonal_procrustes(fit, middle)[0] for fit in fits])
        middle = turned.mean(axis=0)
    axes = np.linalg.svd(middle, full_matrices=False)[2]
    return np.asarray(middle @ axes.T)


def channel_confidence(pes: npt.ArrayLike, seed: int = 0) -> Array:
    """How surely each channel lies where it does, (m, l, n, d) -> (n,): 1 = in the same place in every fit, 0 = as far
    apart as any two channels.

    Over all pairs of fits: one is turned onto the other, and the squared distance between a channel's
    two places is held against what it is with the channels in random order. Below 0 is 0.
    """
    fits = _unit_fits(pes)
    rng = np.random.default_rng(seed)
    apart, chance = np.zeros(fits.shape[1]), 0.0
    if len(fits) < 2:
        return np.full(fits.shape[1], np.nan)
    for one, two in combinations(range(len(fits)), 2):
        apart += _residual(fits[one], fits[two])
        orders = (rng.permutation(fits.shape[1]) for _ in range(ORDERS))
        chance += float(np.mean([_residual(fits[one], fits[two][order]).mean() for order in orders]))
    return np.clip(1 - apart / max(chance, 1e-12), 0.0, 1.0)


def _residual(one: Array, two: Array) -> Array:
    rotation, _ = orthogonal_procrustes(one, two)
    return np.asarray(((one @ rotation - two) ** 2).sum(axis=-1))


def _unit_fits(pes: npt.ArrayLike) -> Array:
    tokens = side_by_side(pes)
    if tokens.ndim != 3 or not np.isfinite(tokens).all():
        raise must_be("pes", "finite fits (m, blocks, channels, features)", np.shape(pes))
    centred = tokens - tokens.mean(axis=1, keepdims=True)
    size = np.linalg.norm(centred, axis=(1, 2), keepdims=True) / np.sqrt(tokens.shape[1])
    return np.asarray(centred / np.where(size > 0, size, 1.0))


# ------------------------------------------------------------------------------------------------------- neighbours


def nearest_channels(similar: npt.ArrayLike, count: int = NEIGHBORS) -> npt.NDArray[np.int64]:
    """The channels most similar to each, the nearest first, (..., n, n) -> (..., n, count); fewer where there are."""
    weights, _ = symmetric(similar)
    n = weights.shape[-1]
    others = np.where(np.eye(n, dtype=bool), -np.inf, weights)
    return np.asarray(np.argsort(-others, axis=-1, kind="stable")[..., : min(count, n - 1)])


def mutual_neighbors(similar: npt.ArrayLike, count: int = NEIGHBORS) -> npt.NDArray[np.bool_]:
    """Whether two channels are each among the `count` nearest of the other, (..., n, n) -> (..., n, n)."""
    weights, _ = symmetric(similar)
    near = np.zeros(weights.shape, dtype=bool)
    np.put_along_axis(near, nearest_channels(weights, count), True, axis=-1)
    return np.asarray(near & np.swapaxes(near, -1, -2))


def pair_confidence(
    similar: npt.ArrayLike, halves: tuple[Sequence[int], Sequence[int]], count: int = NEIGHBORS
) -> Array:
    """How surely two channels are neighbours, (m, n, n) -> (n, n), symmetric: the share of pairs that were as similar
    in one half of the data and turned out to be neighbours in the other.

    Neighbours are two channels each of which is among the `count` nearest of the other: a channel at the edge has to go
    far for its last ones, which have nearer ones themselves. `halves` are the fits of either half, by number: how
    similar a pair is in the mean of one side's fits (against all others of either channel) is held against whether each
    fit of the other side has it as neighbours, both ways, and a rising curve drawn through it (isotonic regression).
    Half a pair more, as similar as the most similar one and no neighbours, keeps a few pairs from making others
    certain.
    All fits together are surer than those of one half, so that this says rather too little.
    """
    from sklearn.isotonic import IsotonicRegression  # type: ignore[import-untyped, unused-ignore]

    weights, _ = symmetric(similar)
    n = weights.shape[-1]
    upper = np.triu_indices(n, k=1)
    if not all(halves):
        return np.full((n, n), np.nan)
    near = mutual_neighbors(weights, count)
    scores, outcomes = [], []
    for one, two in (halves, halves[::-1]):
        score = _standing(weights[list(one)].mean(axis=0))[upper]
        for fit in two:
            scores.append(score)
            outcomes.append(near[fit][upper])
    curve = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
    one_way = len(scores) // 2  # of the outcomes that a pair has, half
    top = [max(float(score.max()) for score in scores)] * one_way
    curve.fit(np.concatenate([*scores, top]), np.concatenate([*outcomes, [False] * one_way]).astype(np.float64))
    found = np.zeros((n, n))
    found[upper] = curve.predict(_standing(weights.mean(axis=0))[upper])
    return np.asarray(found + found.T)


def _standing(similar: Array) -> Array:
    """How a pair stands among all pairs of either of its channels, in standard deviations: the lower of both views."""
    n = len(similar)
    off = ~np.eye(n, dtype=bool)
    others = similar[off].reshape(n, n - 1)
    spread = others.std(axis=1, keepdims=True)
    own = (similar - others.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0)
    return np.asarray(np.minimum(own, own.T))


# ---------------------------------------------------------------------------------------------------------- modules


@dataclass(frozen=True)
class Modules:
    """Groups of channels: `labels` (n,), numbered by their first channel. `stability` says for every number of groups
    that was tried how far they agree with those of a fit that had no part in them: 0 = chance, 1 = the same."""

    labels: Labels
    stability: Mapping[int, float]

    @property
    def count(self) -> int:
        return int(self.labels.max()) + 1

    @property
    def agreement(self) -> float:
        """The stability of the number of groups that was chosen."""
        return self.stability[self.count] if self.count in self.stability else float("nan")


def stable_modules(similar: npt.ArrayLike, most: int = MOST_MODULES) -> Modules:
    """The groups that several fits share, (m, n, n): as many as every other fit finds again.

    Each fit is cut by itself (Ward's method on vectors with these similarities) into 2, 3, ... groups, at most half as
    many as there are channels, and so is the mean of all others. How far the two agree (mean adjusted Rand index over
    fits) has a peak where fits share groups. Taken is the largest number at a peak that is NEARLY as high as the
    highest one, and no RIPPLE beside a higher one: of groups within groups, the finer ones. The groups are those of the
    mean over all fits; there is one if no peak comes to SURE_MODULES. A single fit has the groups of the highest
    modularity, of which nothing is known.
    """
    weights, _ = symmetric(similar)
    fits, n = len(weights), weights.shape[-1]
    top = min(most, n // 2)
    if top < 2:
        return Modules(np.zeros(n, dtype=np.int64), {})
    if fits < 2:  # nobody to agree with: the groups of the highest modularity
        return Modules(np.maximum(best_partition(weights[0]), 0), {})
    cuts = np.stack([_cut(each, top) for each in weights])  # (m, n, top)
    rests = np.stack([_cut(np.delete(weights, i, axis=0).mean(axis=0), top) for i in range(fits)])
    stability = {count: float(ari(rests[..., count - 1], cuts[..., count - 1]).mean()) for count in range(2, top + 1)}
    return Modules(numbered(_cut(weights.mean(axis=0), top)[:, _most_stable(stability) - 1]), stability)


def _most_stable(stability: Mapping[int, float]) -> int:
    """The largest number of groups at a peak that is high enough; 1 if there is none.

    >>> _most_stable({2: 1.0, 3: 0.7, 4: 0.5, 5: 0.9, 6: 0.8, 7: 0.83})  # of peaks at 2, 5 and 7, the last is a ripple
    5
    """
    values = np.array(list(stability.values())).round(9)  # what is the same but for rounding
    bar = max(SURE_MODULES, values.max() - NEARLY)
    peaks = find_peaks([-1.0, *values, -1.0], height=bar, prominence=RIPPLE, plateau_size=1)[1]["right_edges"]
    return int(max(peaks) + min(stability) - 1) if len(peaks) else 1


def in_line(similar: npt.ArrayLike) -> Labels:
    """The channels in an order in which neighbours are alike, (n, n) -> (n,): the leaves of the tree of groups, each
    branch turned such that what is next to each other is most similar.

    >>> line = np.array([0.0, 3.0, 1.0, 2.0])
    >>> in_line(np.exp(-np.abs(line[:, None] - line))).tolist() in ([0, 2, 3, 1], [1, 3, 2, 0])
    True
    """
    weights, _ = symmetric(similar)
    if len(weights) < 3:
        return np.arange(len(weights))
    return np.asarray(leaves_list(linkage(_vectors(weights), "ward", optimal_ordering=True)), dtype=np.int64)


def _cut(similar: Array, top: int) -> Labels:
    """Groups of each number from 1 to `top`, (n, n) -> (n, top)."""
    return np.asarray(cut_tree(linkage(_vectors(similar), "ward"), n_clusters=range(1, top + 1)), dtype=np.int64)


def _vectors(similar: Array) -> Array:
    """Vectors with these similarities, as far as there are any."""
    size, axes = np.linalg.eigh(similar + np.eye(len(similar)))
    return np.asarray(axes * np.sqrt(np.maximum(size, 0.0)))
