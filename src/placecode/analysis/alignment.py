"""How well a positional encoding (PE) mirrors an arrangement: similarity, Procrustes, RSA, CKA, neighbours, a probe.

Every function takes leading axes (members, steps, ...) and gives one result per entry. A token's features may be
rotated, and for all but `procrustes_raw` scaled, without any effect: an arrangement is known only up to that.

What is not finite (a member that diverged) gives NaN, never an exception, so that its neighbours are still measured.

>>> pe = np.random.default_rng(0).normal(size=(5, 4, 16, 32))  # (e, l, n, d)
>>> similarity(pe).shape, procrustes(pe, pe[0, 0]).shape, rsa(pe, pe[0, 0]).shape
((5, 16, 16), (5, 4), (5,))
>>> permuted(pe, pe[0, 0]).p.tolist()  # only the first one has anything to do with the target
[0.005, 0.855, 0.655, 0.47, 0.54]
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from placecode.errors import must_be

Array = npt.NDArray[np.float64]

TIED = 1e-6  # similarities and scores of a probe that differ by less are equal, but for rounding


class Null(NamedTuple):
    """A distance held against those that chance gives; see `permuted`."""

    z: Array
    """By how many standard deviations of the null distances it is nearer than their mean; positive = nearer."""
    p: Array
    """How often chance comes as near, itself counted in: from 1 / (1 + count) to 1."""


def views(pe: npt.ArrayLike) -> dict[int, Array]:
    """What of a PE is looked at, (..., l, n, d) -> by number: -1 all blocks, -2 their mean, 0, 1, ... each alone.

    Each keeps the axis of blocks: the mean and a single block are (..., 1, n, d).
    """
    blocks = _tokens(pe)
    if blocks.ndim < 3:
        raise must_be("pe", "an array whose last three axes are (blocks, tokens, features)", blocks.shape)
    alone = {block: blocks[..., block : block + 1, :, :] for block in range(blocks.shape[-3])}
    with np.errstate(invalid="ignore"):  # inf - inf
        return {-1: blocks, -2: blocks.mean(axis=-3, keepdims=True), **alone}


def side_by_side(pe: npt.ArrayLike) -> Array:
    """The PEs of all blocks as one vector per token, (..., l, n, d) -> (..., n, l * d); (n, d) is a single block."""
    blocks = _tokens(pe)
    if blocks.ndim == 2:
        return blocks
    turned = np.moveaxis(blocks, -3, -2)  # (..., n, l, d)
    return turned.reshape(*turned.shape[:-2], -1)


def similarity(pe: npt.ArrayLike) -> Array:
    """Cosine similarity of the centred PEs of every two tokens, (..., l, n, d) -> (..., n, n); (n, d) is one block.

    The mean over tokens is removed from each block first, because what all tokens share says nothing about where each
    of them is. So this is neither the cosine of the PEs as they are, nor a correlation over features. The blocks are
    then concatenated, so that those with large PEs count for more. A token's nearest token is the one with the largest
    similarity. A token whose centred PE is zero (as all are in an encoding of zeros) has similarity 0 to every token
    and to itself.
    """
    tokens = side_by_side(pe)  # (..., n, l * d)
    with np.errstate(invalid="ignore"):  # inf - inf
        centred = tokens - tokens.mean(axis=-2, keepdims=True)
    length = np.linalg.norm(centred, axis=-1, keepdims=True)  # (..., n, 1)
    # Centring equal vectors leaves rounding errors in place of zeros; those must not be blown up to unit length.
    rounding = np.linalg.norm(tokens, axis=-1, keepdims=True).max(axis=-2, keepdims=True) * tokens.shape[-2] * 1e-15
    unit = np.where(length <= rounding, 0.0, centred / np.where(length <= rounding, 1.0, length))
    return np.asarray(np.clip(unit @ np.swapaxes(unit, -1, -2), -1.0, 1.0))


def procrustes_raw(pe: npt.ArrayLike, target: npt.ArrayLike) -> Array:
    """The paper's distance, (..., n, d) and (..., n, d) -> (...): || pe R - target || with the best orthogonal R.

    Frobenius norm; reflections are allowed; nothing is centred or scaled. So it grows with the size of the PE, and with
    sigma, whatever the arrangement and without any learning: it says something only beside `procrustes`. Where the
    widths differ, the narrower array counts as padded with zeros.
    """
    return _distance(_compact(pe), _compact(target))


def procrustes(pe: npt.ArrayLike, target: npt.ArrayLike) -> Array:
    """Distance of two arrangements whatever their place and size, (..., n, d) and (..., n, d) -> (...).

    As `procrustes_raw`, with both centred and scaled to Frobenius norm 1 first: 0 = the same arrangement, sqrt(2) = no
    rotation brings them closer. Unrelated arrangements stay below sqrt(2), since R is fitted and many features leave it
    much freedom: 16 random tokens are about 1 away from the 2-D sinusoid. So compare with the value before training.
    NaN where either has no arrangement at all (all tokens in one place).
    """
    return _distance(_compact(_standard(pe)), _compact(_standard(target)))


def rsa(pe: npt.ArrayLike, target: npt.ArrayLike) -> Array:
    """Do the same tokens lie close together? (..., l, n, d) and (..., l, n, d) -> (...), from -1 to 1.

    Representational similarity analysis: Spearman's correlation between the `similarity` of every two different tokens
    in the PE and in the target ((n, d) is a single block). By ranks, because a PE that keeps the order of the distances
    but bends their scale is as good a map. NaN where all similarities of either are equal.
    """
    similars = similarity(pe), similarity(target)
    _must_match(*similars)
    ranks = []
    for similar in similars:
        pairs = similar[(..., *np.triu_indices(similar.shape[-1], k=1))]  # (..., n (n - 1) / 2)
        # Rounded, since two pairs that a regular grid makes equally similar must tie, and not rank by rounding errors.
        ranked = rankdata(pairs.round(5), axis=-1, nan_policy="propagate")
        ranks.append(ranked - (pairs.shape[-1] + 1) / 2)  # their mean, whatever ties
    own, true = ranks
    size = np.sqrt((own**2).sum(axis=-1) * (true**2).sum(axis=-1))
    both = (own * true).sum(axis=-1)
    return np.asarray(np.divide(both, size, out=np.full_like(both, np.nan), where=size > 0))


def cka(pe: npt.ArrayLike, target: npt.ArrayLike) -> Array:
    """Linear centred kernel alignment, (..., l, n, d) and (..., l, n, d) -> (...), from 0 to 1.

    The cosine between the inner products of centred tokens in the PE and in the target, all pairs and blocks together
    ((n, d) is a single block); 1 = the same arrangement but for its size. Unrelated ones are above 0, the more so the
    fewer the tokens. NaN where either has no arrangement at all (all tokens in one place).
    """
    own, true = _standard(side_by_side(pe)), _standard(side_by_side(target))
    _must_match(own, true)
    own, true = own @ np.swapaxes(own, -1, -2), true @ np.swapaxes(true, -1, -2)  # (..., n, n)
    size = np.linalg.norm(own, axis=(-2, -1)) * np.linalg.norm(true, axis=(-2, -1))
    return np.asarray((own * true).sum(axis=(-2, -1)) / size)


def permuted(pe: npt.ArrayLike, target: npt.ArrayLike, count: int = 199, seed: int = 0) -> Null:
    """Is the PE nearer to the target than chance? (..., l, n, d) and (n, f) -> z (...) and p (...).

    The `procrustes` distance of the blocks side by side, against those to the target with its tokens in `count` random
    orders, the same ones for every entry. So it can be compared between targets and widths, as the distance itself
    cannot. p is right for a PE whose tokens could as well have been numbered otherwise, as they can before training.
    z is NaN where every order of the target is as near (a target in which all tokens are alike), both are NaN where
    either side has no arrangement.
    """
    if count < 1:
        raise must_be("count", "a whole number of at least 1", count)
    true = _standard(target)
    if true.ndim != 2:
        raise must_be("target", "an array (tokens, features)", true.shape)
    own, finite = _finite(_compact(_standard(side_by_side(pe))))  # (..., n, n)
    _must_match(own, true)
    true, known = _finite(true)
    turned, size, _ = np.linalg.svd(true, full_matrices=False)
    true = (turned * size)[:, size >= 1e-13 * size[0]]  # (n, r): the target in the r dimensions that it spans

    rng, n = np.random.default_rng(seed), len(true)
    orders = [np.arange(n), *(rng.permutation(n) for _ in range(count))]
    across = np.swapaxes(own, -1, -2)
    # Both sides have norm 1, so the squared distance is 2 - 2 x the sum of these singular values: no rotation needed.
    match = np.stack([np.linalg.svd(across @ true[order], compute_uv=False).sum(-1) for order in orders], axis=-1)
    distance = np.sqrt(np.maximum(2 - 2 * match, 0))  # (..., 1 + count)
    null = distance[..., 1:]
    spread = null.std(axis=-1)
    z = np.divide(null.mean(-1) - distance[..., 0], spread, out=np.full_like(spread, np.nan), where=spread > 1e-6)
    p = (1 + (match[..., 1:] >= match[..., :1] - 1e-12).sum(-1)) / (1 + count)
    return Null(np.where(finite & known, z, np.nan), np.where(finite & known, p, np.nan))


def neighbor_agreement(pe: npt.ArrayLike, related: npt.ArrayLike) -> Array:
    """Share of tokens whose nearest token is related to them, (..., l, n, d) and (n, n) of bool -> (...).

    Nearest by `similarity`, itself excluded; a token with several nearest ones counts by the share of them that is
    related. Chance is the share of related ones among all pairs. NaN where the PE has no arrangement.
    """
    similar, akin = similarity(pe), np.asarray(related)
    n = similar.shape[-1]
    if akin.dtype != np.bool_ or akin.shape != (n, n):
        raise must_be("related", f"an array of bool, ({n}, {n}) as the tokens of the PE", (akin.dtype.name, akin.shape))
    others = np.where(np.eye(n, dtype=bool), -np.inf, similar)
    nearest = others >= others.max(axis=-1, keepdims=True) - TIED  # (..., n, n)
    share = (nearest & akin).sum(axis=-1) / np.maximum(nearest.sum(axis=-1), 1)  # none where similarities are NaN
    placed = np.isfinite(similar).all(axis=(-2, -1)) & similar.any(axis=(-2, -1))
    return np.where(placed, share.mean(axis=-1), np.nan)


def probe(pe: npt.ArrayLike, labels: npt.ArrayLike, folds: npt.ArrayLike, ridge: float = 0.1) -> Array:
    """Accuracy with which a linear probe reads a label off the PE, (..., l, n, d), (n,) and (n,) -> (...).

    Ridge regression of one-hot labels on the blocks side by side, with a free intercept, fitted to the tokens of all
    other folds for each fold; the label with the largest score is the answer, several equal ones share it. The penalty
    is `ridge` x the mean squared length of the centred training tokens, so that the size of the PE does not matter.

    Choose folds in which every label is equally frequent, such as columns where rows are decoded: then chance is
    exactly 1 / labels. With one fold per token it is less, because the right label is the rarest in training. NaN where
    the PE has no arrangement.
    """
    tokens, finite = _finite(_compact(_standard(side_by_side(pe))))  # (..., n, n)
    names, parts = np.asarray(labels), np.asarray(folds)
    for name, values in (("labels", names), ("folds", parts)):
        if values.shape != tokens.shape[-2:-1]:
            raise must_be(name, f"one number for each of the {tokens.shape[-2]} tokens", values.shape)
    if (parts == parts[0]).all():
        raise must_be("folds", "of at least two kinds", parts.tolist())
    if not ridge >= 1e-9:
        raise must_be("ridge", "a number of at least 1e-9", ridge)
    truth = names[:, None] == np.unique(names)  # (n, labels)
    right = np.empty(tokens.shape[:-1])  # (..., n)
    for held in parts == np.unique(parts)[:, None]:
        usual = truth[~held].mean(axis=0)
        centre = tokens[..., ~held, :].mean(axis=-2, keepdims=True)
        known, asked = tokens[..., ~held, :] - centre, tokens[..., held, :] - centre
        spread = (known**2).sum(axis=-1).mean(axis=-1)[..., None, None]
        # Training tokens in one place differ by rounding errors alone, which must not teach anything.
        known, spread = np.where(spread > 1e-26, known, 0.0), np.where(spread > 1e-26, spread, 1.0)
        across = np.swapaxes(known, -1, -2)
        weights = np.linalg.solve(known @ across + ridge * spread * np.eye(known.shape[-2]), truth[~held] - usual)
        scores = asked @ across @ weights + usual  # (..., held, labels)
        best = scores >= scores.max(axis=-1, keepdims=True) - TIED
        right[..., held] = (best & truth[held]).sum(axis=-1) / best.sum(axis=-1)
    return np.where(finite, right.mean(axis=-1), np.nan)


def _tokens(array: npt.ArrayLike) -> Array:
    """The array in double precision, whatever it came in; it has at least the axes of tokens and features."""
    tokens = np.asarray(array, dtype=np.float64)
    if tokens.ndim < 2:
        raise must_be("pe and target", "arrays whose last two axes are (tokens, features)", tokens.shape)
    return tokens


def _standard(array: npt.ArrayLike) -> Array:
    """Centred over tokens and scaled to Frobenius norm 1; NaN where nothing is left after centring."""
    tokens = _tokens(array)
    with np.errstate(invalid="ignore"):
        centred = tokens - tokens.mean(axis=-2, keepdims=True)
    size = np.linalg.norm(centred, axis=(-2, -1), keepdims=True)
    rounding = np.linalg.norm(tokens, axis=(-2, -1), keepdims=True) * tokens.shape[-2] * 1e-15
    return np.where(size <= rounding, np.nan, centred / np.where(size <= rounding, 1.0, size))


def _compact(array: npt.ArrayLike) -> Array:
    """The same tokens in the n dimensions that they span at most, (..., n, d) -> (..., n, n).

    It changes no Procrustes distance, which is blind to a rotation of either side's features, gives all widths the same
    one, and makes the fit of 16 tokens with 160 features some ten times cheaper.
    """
    tokens = _tokens(array)
    n, d = tokens.shape[-2:]
    if d > n:
        safe, finite = _finite(tokens)
        triangle = np.linalg.qr(np.swapaxes(safe, -1, -2), mode="r")  # (..., n, n)
        return np.where(finite[..., None, None], np.swapaxes(triangle, -1, -2), np.nan)
    return np.pad(tokens, [(0, 0)] * (tokens.ndim - 1) + [(0, n - d)])


def _finite(arrays: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Matrices (..., n, d) with zeros for those that are not finite, which no factorization takes; and which are."""
    finite = np.asarray(np.isfinite(arrays).all(axis=(-2, -1)))
    return np.where(finite[..., None, None], arrays, 0.0), finite


def _must_match(pe: Array, target: Array) -> None:
    if pe.shape[-2] != target.shape[-2]:
        raise must_be("pe", f"an array with as many tokens as the target, {target.shape[-2]}", pe.shape)


def _distance(pe: Array, target: Array) -> Array:
    """Frobenius norm of what the best rotation leaves, (..., n, n) and (..., n, n) -> (...).

    The rotation is formed and applied, although singular values alone would tell the distance: as a difference of
    squares it would be known near 0 to half the digits only.
    """
    _must_match(pe, target)
    with np.errstate(invalid="ignore", over="ignore"):
        product, finite = _finite(np.swapaxes(pe, -1, -2) @ target)
        left, _, right = np.linalg.svd(product)
        rest = np.linalg.norm(pe @ (left @ right) - target, axis=(-2, -1))
    return np.where(finite, rest, np.nan)
