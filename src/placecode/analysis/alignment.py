"""How well a positional encoding (PE) mirrors an arrangement: similarity of tokens, Procrustes distances, RSA.

Every function takes leading axes (members, steps, ...) and gives one result per entry. A token's features may be
rotated, and for all but `procrustes_raw` scaled, without any effect: an arrangement is known only up to that.

What is not finite (a member that diverged) gives NaN, never an exception, so that its neighbours are still measured.

>>> pe = np.random.default_rng(0).normal(size=(5, 4, 16, 32))  # (e, l, n, d)
>>> similarity(pe).shape, procrustes(pe, pe[0, 0]).shape, rsa(pe, pe[0, 0]).shape
((5, 16, 16), (5, 4), (5,))
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.linalg import orthogonal_procrustes
from scipy.stats import rankdata

from placecode.errors import must_be

Array = npt.NDArray[np.float64]


def side_by_side(pe: npt.ArrayLike) -> Array:
    """The PEs of all blocks as one vector per token, (..., l, n, d) -> (..., n, l * d); (n, d) is a single block."""
    blocks = _tokens(pe)
    if blocks.ndim == 2:
        return blocks
    turned = np.moveaxis(blocks, -3, -2)  # (..., n, l, d)
    return turned.reshape(*turned.shape[:-2], -1)


def similarity(pe: npt.ArrayLike) -> Array:
    """Cosine similarity of every two tokens, (..., l, n, d) -> (..., n, n); (n, d) is a single block.

    Each block is centred over its tokens first, because what all tokens share says nothing about where each of them is;
    the blocks then lie side by side, so that the ones with large PEs count for more. The token nearest to another one
    is the one with the largest similarity. A token without a direction (a zero vector, as all are in an encoding of
    zeros) has similarity 0 to every token and to itself.
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
    ranks = []
    for array in (pe, target):
        similar = similarity(array)
        pairs = similar[(..., *np.triu_indices(similar.shape[-1], k=1))]  # (..., n (n - 1) / 2)
        # Rounded, since two pairs that a regular grid makes equally similar must tie, and not rank by rounding errors.
        ranked = rankdata(pairs.round(5), axis=-1, nan_policy="propagate")
        ranks.append(ranked - ranked.mean(axis=-1, keepdims=True))
    own, true = ranks
    if own.shape[-1] != true.shape[-1]:
        raise must_be("pe", "an array with as many tokens as the target", np.shape(pe))
    size = np.sqrt((own**2).sum(axis=-1) * (true**2).sum(axis=-1))
    both = (own * true).sum(axis=-1)
    return np.asarray(np.divide(both, size, out=np.full_like(both, np.nan), where=size > 0))


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
        finite = np.isfinite(tokens).all(axis=(-2, -1), keepdims=True)
        triangle = np.linalg.qr(np.swapaxes(np.where(finite, tokens, 0.0), -1, -2), mode="r")  # (..., n, n)
        return np.where(finite, np.swapaxes(triangle, -1, -2), np.nan)
    return np.pad(tokens, [(0, 0)] * (tokens.ndim - 1) + [(0, n - d)])


def _distance(pe: Array, target: Array) -> Array:
    """Frobenius norm of what the best rotation leaves, (..., n, n) and (..., n, n) -> (...)."""
    if pe.shape[-2] != target.shape[-2]:
        raise must_be("pe", f"an array with as many tokens as the target, {target.shape[-2]}", pe.shape)
    return np.asarray(np.vectorize(_one_distance, otypes=[np.float64], signature="(n,d),(n,d)->()")(pe, target))


def _one_distance(pe: Array, target: Array) -> float:
    if not (np.isfinite(pe).all() and np.isfinite(target).all()):
        return float("nan")
    rotation, _ = orthogonal_procrustes(pe, target)
    return float(np.linalg.norm(pe @ rotation - target))
