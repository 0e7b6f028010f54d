"""Measure how similar a positional encoding (PE) is to a target arrangement of the tokens, and whether a linear probe
can decode this arrangement from the PE.

A target, such as the true coordinates, has one vector per token (`targets`). Shapes of a PE are (l, n, d): blocks,
tokens and features. Functions accept any leading axes (members, steps, ...) and return one result for each index along
them. Results do not change if features are rotated or, except for `procrustes_raw`, scaled by a common factor. If a PE
contains NaN or infinity (a member that diverged), its result is NaN, and the results of other PEs are not affected.

>>> pe = np.random.default_rng(0).normal(size=(5, 4, 16, 32))  # (e, l, n, d)
>>> token_similarity(pe).shape, procrustes(pe, pe[0, 0]).shape, rsa(pe, pe[0, 0]).shape
((5, 16, 16), (5, 4), (5,))
>>> procrustes_test(pe, pe[0, 0]).p.tolist()  # only the first one is related to the target
[0.005, 0.855, 0.655, 0.47, 0.54]
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from placecode.arrays import Array, BoolArray
from placecode.errors import must_be
from placecode.validation import real_number, whole_number

ALL_BLOCKS = -1
"""Key of `views` for all blocks together. It also stands for them in the column `block` of the tables of analyses."""
MEAN_BLOCK = -2
"""Key of `views` for the mean over blocks."""
TIE_TOLERANCE = 1e-6
"""Two scores, or two similarities divided by the largest similarity, count as equal if they differ by at most this.
Such differences come from rounding."""


class ProcrustesTest(NamedTuple):
    """Result of the permutation test `procrustes_test`. Each array has one value per PE."""

    z: Array
    """Mean distance over the permutations minus the actual distance, divided by the standard deviation over the
    permutations. Positive if the PE is closer to the target than expected by chance."""
    p: Array
    """p value: (1 + number of permutations whose distance is at most the actual one) / (1 + number of permutations)."""


def views(pe: npt.ArrayLike) -> dict[int, Array]:
    """Split a PE into the arrays that are analysed: all blocks together, the mean over blocks, and each single block.

    Parameters
    ----------
    pe : array-like, shape (..., l, n, d)

    Returns
    -------
    dict of int to ndarray
        Key `ALL_BLOCKS`: all blocks, (..., l, n, d). Key `MEAN_BLOCK`: the mean over blocks, (..., 1, n, d). Keys 0, 1,
        ...: the block with this index, (..., 1, n, d). The column `block` in tables of analyses contains these keys.
    """
    blocks = _tokens(pe)
    if blocks.ndim < 3:
        raise must_be("pe", "an array whose last three axes are (blocks, tokens, features)", blocks.shape)
    single = {block: blocks[..., block : block + 1, :, :] for block in range(blocks.shape[-3])}
    with np.errstate(invalid="ignore"):  # inf - inf
        return {ALL_BLOCKS: blocks, MEAN_BLOCK: blocks.mean(axis=-3, keepdims=True), **single}


def side_by_side(pe: npt.ArrayLike) -> Array:
    """Return the PEs of all blocks concatenated into one vector per token.

    Parameters
    ----------
    pe : array-like, shape (..., l, n, d) or (n, d)

    Returns
    -------
    ndarray, shape (..., n, l * d)
    """
    blocks = _tokens(pe)
    if blocks.ndim == 2:
        return blocks
    by_token = np.moveaxis(blocks, -3, -2)  # (..., n, l, d)
    return by_token.reshape(*by_token.shape[:-2], -1)


def token_similarity(pe: npt.ArrayLike) -> Array:
    """Compute the cosine similarity of the centred PEs of every two tokens.

    In each block, the mean over tokens is subtracted first, because it contains no information on positions. The blocks
    are then concatenated, so blocks with large PEs have a large weight.

    Parameters
    ----------
    pe : array-like, shape (..., l, n, d) or (n, d)

    Returns
    -------
    ndarray, shape (..., n, n)
        A token with a centred PE of zero has similarity 0 to all tokens, including itself.
    """
    tokens = side_by_side(pe)  # (..., n, l * d)
    with np.errstate(invalid="ignore"):  # inf - inf
        centred = tokens - tokens.mean(axis=-2, keepdims=True)
    length = np.linalg.norm(centred, axis=-1, keepdims=True)  # (..., n, 1)
    # centring equal vectors leaves rounding errors, which must not be scaled to unit length
    rounding = np.linalg.norm(tokens, axis=-1, keepdims=True).max(axis=-2, keepdims=True) * tokens.shape[-2] * 1e-15
    unit = np.where(length <= rounding, 0.0, centred / np.where(length <= rounding, 1.0, length))
    return np.asarray(np.clip(unit @ np.swapaxes(unit, -1, -2), -1.0, 1.0))


def procrustes_raw(pe: npt.ArrayLike, target: npt.ArrayLike) -> Array:
    """Compute the Procrustes distance as in the paper: the smallest || pe R - target || over all orthogonal matrices R.

    Arrays are not centred or scaled. The distance therefore grows with the size of the PE, and so with sigma, its
    initial scale, even without learning. Interpret it together with `procrustes`.

    Parameters
    ----------
    pe, target : array-like, shape (..., n, d)
        The narrower array is padded with zeros.

    Returns
    -------
    ndarray, shape (...)
        The Frobenius norm of the difference.
    """
    return _distance(_compact(pe), _compact(target))


def procrustes(pe: npt.ArrayLike, target: npt.ArrayLike) -> Array:
    """Compute the Procrustes distance of two arrangements after centring and scaling to Frobenius norm 1.

    Unrelated arrangements have a distance below sqrt(2), because the rotation is fitted. For example, 16 random tokens
    have a distance of about 1 from the 2-D sinusoid. Compare a trained PE with its value before training.

    Parameters
    ----------
    pe, target : array-like, shape (..., n, d)

    Returns
    -------
    ndarray, shape (...)
        0 for arrangements that are equal up to rotation and scale, sqrt(2) if no rotation brings them closer. NaN if
        all tokens of one array are equal.
    """
    return _distance(_compact(_standard(pe)), _compact(_standard(target)))


def rsa(pe: npt.ArrayLike, target: npt.ArrayLike) -> Array:
    """Compare two arrangements by representational similarity analysis (RSA).

    The result is Spearman's correlation, over all pairs of tokens, of the `token_similarity` of `pe` and of `target`.

    Parameters
    ----------
    pe, target : array-like, shape (..., l, n, d) or (n, d)

    Returns
    -------
    ndarray, shape (...)
        From -1 to 1. NaN if all pairs of tokens have the same similarity in `pe` or in `target`.
    """
    similarities = token_similarity(pe), token_similarity(target)
    _must_match(*similarities)
    ranks = []
    for similarity in similarities:
        pairs = similarity[(..., *np.triu_indices(similarity.shape[-1], k=1))]  # (..., n (n - 1) / 2)
        # rounded, so that equal similarities on a regular grid are ties
        ranked = rankdata(pairs.round(5), axis=-1, nan_policy="propagate")
        ranks.append(ranked - (pairs.shape[-1] + 1) / 2)  # the mean rank, also with ties
    pe_ranks, target_ranks = ranks
    size = np.sqrt((pe_ranks**2).sum(axis=-1) * (target_ranks**2).sum(axis=-1))
    covariance = (pe_ranks * target_ranks).sum(axis=-1)
    return np.asarray(np.divide(covariance, size, out=np.full_like(covariance, np.nan), where=size > 0))


def cka(pe: npt.ArrayLike, target: npt.ArrayLike) -> Array:
    """Compute linear centred kernel alignment (CKA), with blocks concatenated.

    Parameters
    ----------
    pe, target : array-like, shape (..., l, n, d) or (n, d)

    Returns
    -------
    ndarray, shape (...)
        From 0 to 1. It is 1 for arrangements that are equal up to rotation and scale. Unrelated arrangements have
        values above 0, especially with few tokens. NaN if all tokens of one array are equal.
    """
    a, b = _standard(side_by_side(pe)), _standard(side_by_side(target))
    _must_match(a, b)
    a, b = a @ np.swapaxes(a, -1, -2), b @ np.swapaxes(b, -1, -2)  # (..., n, n)
    size = np.linalg.norm(a, axis=(-2, -1)) * np.linalg.norm(b, axis=(-2, -1))
    return np.asarray((a * b).sum(axis=(-2, -1)) / size)


def procrustes_test(pe: npt.ArrayLike, target: npt.ArrayLike, count: int = 199, seed: int = 0) -> ProcrustesTest:
    """Test by permutation whether a PE is closer to the target than expected by chance, in `procrustes` distance.

    Blocks are concatenated. The null distribution consists of the distances to the target with its tokens in random
    order. The random orders are the same for all PEs. Unlike distances, z scores can be compared between targets, and
    between PEs with different numbers of features. p values are valid if all orders of the tokens are equally likely,
    as they are before training.

    Parameters
    ----------
    pe : array-like, shape (..., l, n, d) or (n, d)
    target : array-like, shape (n, features)
    count : int
        Number of random orders.
    seed : int
        Seed of the random orders.

    Returns
    -------
    ProcrustesTest
        z is NaN if the distance is the same in all orders. z and p are NaN if all tokens of the PE or of the target are
        equal.
    """
    whole_number("count", count, 1)
    true = _standard(target)
    if true.ndim != 2:
        raise must_be("target", "an array (tokens, features)", true.shape)
    tokens, finite = _finite(_compact(_standard(side_by_side(pe))))  # (..., n, n)
    _must_match(tokens, true)
    true, target_finite = _finite(true)
    left, size, _ = np.linalg.svd(true, full_matrices=False)
    true = (left * size)[:, size >= 1e-13 * size[0]]  # (n, r): the target in the r dimensions that it spans

    rng, n = np.random.default_rng(seed), len(true)
    orders = [np.arange(n), *(rng.permutation(n) for _ in range(count))]
    transposed = np.swapaxes(tokens, -1, -2)
    # both arrays have norm 1, so the squared distance is 2 - 2 * (sum of singular values), without forming a rotation
    match = np.stack([np.linalg.svd(transposed @ true[order], compute_uv=False).sum(-1) for order in orders], axis=-1)
    distance = np.sqrt(np.maximum(2 - 2 * match, 0))  # (..., 1 + count)
    null = distance[..., 1:]
    spread = null.std(axis=-1)
    z = np.divide(null.mean(-1) - distance[..., 0], spread, out=np.full_like(spread, np.nan), where=spread > 1e-6)
    p = (1 + (match[..., 1:] >= match[..., :1] - 1e-12).sum(-1)) / (1 + count)
    valid = finite & target_finite
    return ProcrustesTest(np.where(valid, z, np.nan), np.where(valid, p, np.nan))


def probe(pe: npt.ArrayLike, labels: npt.ArrayLike, folds: npt.ArrayLike, ridge: float = 0.1) -> Array:
    """Return the cross-validated accuracy of a linear probe that decodes the label of a token from its PE.

    The probe is a ridge regression of one-hot labels on the concatenated blocks, with an intercept.

    Parameters
    ----------
    pe : array-like, shape (..., l, n, d) or (n, d)
    labels : array-like, shape (n,)
        Label of each token, such as its row.
    folds : array-like, shape (n,)
        Fold of each token. Tokens of one fold are tested with a probe fitted to the other folds. If every label is
        equally frequent in each fold, for example if rows are decoded with columns as folds, the chance level is 1 /
        number of labels. With one fold per token it is lower: the training tokens then have the correct label less
        often than other labels.
    ridge : float
        Penalty, as a multiple of the mean squared length of the centred training tokens.

    Returns
    -------
    ndarray, shape (...)
        Fraction of correctly decoded tokens. If k labels share the largest score, a correct one among them counts as 1
        / k. NaN if all tokens are equal.
    """
    tokens, finite = _finite(_compact(_standard(side_by_side(pe))))  # (..., n, n)
    label, fold = np.asarray(labels), np.asarray(folds)  # (n,)
    for name, values in (("labels", label), ("folds", fold)):
        if values.shape != tokens.shape[-2:-1]:
            raise must_be(name, f"one number for each of the {tokens.shape[-2]} tokens", values.shape)
    if (fold == fold[0]).all():
        raise must_be("folds", "of at least two kinds", fold.tolist())
    real_number("ridge", ridge, least=1e-9)
    one_hot = label[:, None] == np.unique(label)  # (n, labels)
    accuracy = np.empty(tokens.shape[:-1])  # (..., n)
    for test in fold == np.unique(fold)[:, None]:
        intercept = one_hot[~test].mean(axis=0)
        centre = tokens[..., ~test, :].mean(axis=-2, keepdims=True)
        x_train, x_test = tokens[..., ~test, :] - centre, tokens[..., test, :] - centre
        spread = (x_train**2).sum(axis=-1).mean(axis=-1)[..., None, None]
        # if all training tokens are equal, only rounding errors are left, which must not be fitted
        x_train, spread = np.where(spread > 1e-26, x_train, 0.0), np.where(spread > 1e-26, spread, 1.0)
        transposed = np.swapaxes(x_train, -1, -2)
        kernel = x_train @ transposed + ridge * spread * np.eye(x_train.shape[-2])
        weights = np.linalg.solve(kernel, one_hot[~test] - intercept)
        scores = x_test @ transposed @ weights + intercept  # (..., test, labels)
        best = scores >= scores.max(axis=-1, keepdims=True) - TIE_TOLERANCE
        accuracy[..., test] = (best & one_hot[test]).sum(axis=-1) / best.sum(axis=-1)
    return np.where(finite, accuracy.mean(axis=-1), np.nan)


def _tokens(array: npt.ArrayLike) -> Array:
    """Return an array as float64 after a check that it has axes for tokens and features, (..., n, d)."""
    tokens = np.asarray(array, dtype=np.float64)
    if tokens.ndim < 2:
        raise must_be("pe and target", "arrays whose last two axes are (tokens, features)", tokens.shape)
    return tokens


def _standard(array: npt.ArrayLike) -> Array:
    """Return arrays (..., n, d) centred over tokens and scaled to Frobenius norm 1, or NaN if all tokens are equal."""
    tokens = _tokens(array)
    with np.errstate(invalid="ignore"):
        centred = tokens - tokens.mean(axis=-2, keepdims=True)
    size = np.linalg.norm(centred, axis=(-2, -1), keepdims=True)
    rounding = np.linalg.norm(tokens, axis=(-2, -1), keepdims=True) * tokens.shape[-2] * 1e-15
    return np.where(size <= rounding, np.nan, centred / np.where(size <= rounding, 1.0, size))


def _compact(array: npt.ArrayLike) -> Array:
    """Return tokens rotated into n dimensions, or padded with zeros, (..., n, d) -> (..., n, n). n tokens span at most
    n dimensions, so Procrustes distances do not change. All arrays get the same width, and 16 tokens with 160 features
    take about a tenth of the time."""
    tokens = _tokens(array)
    n, d = tokens.shape[-2:]
    if d > n:
        safe, finite = _finite(tokens)
        triangle = np.linalg.qr(np.swapaxes(safe, -1, -2), mode="r")  # (..., n, n)
        return np.where(finite[..., None, None], np.swapaxes(triangle, -1, -2), np.nan)
    return np.pad(tokens, [(0, 0)] * (tokens.ndim - 1) + [(0, n - d)])


def _finite(arrays: Array) -> tuple[Array, BoolArray]:
    """Return matrices, (..., n, d), and which of them are finite, (...). Those with NaN or infinity are set to zero."""
    finite = np.asarray(np.isfinite(arrays).all(axis=(-2, -1)))
    return np.where(finite[..., None, None], arrays, 0.0), finite


def _must_match(pe: Array, target: Array) -> None:
    """Raise `BadInput` unless PE and target have the same number of tokens."""
    if pe.shape[-2] != target.shape[-2]:
        raise must_be("pe", f"an array with as many tokens as the target, {target.shape[-2]}", pe.shape)


def _distance(pe: Array, target: Array) -> Array:
    """Return the Frobenius norm of the difference after the best rotation, (..., n, n) and (..., n, n) -> (...).
    Singular values alone would also give the distance, but distances near 0 would lose half of their digits."""
    _must_match(pe, target)
    with np.errstate(invalid="ignore", over="ignore"):
        product, finite = _finite(np.swapaxes(pe, -1, -2) @ target)
        left, _, right = np.linalg.svd(product)
        rest = np.linalg.norm(pe @ (left @ right) - target, axis=(-2, -1))
    return np.where(finite, rest, np.nan)
