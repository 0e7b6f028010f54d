"""Which channels go together, two at a time: what a learned arrangement is held against, with no model at all.

Values are (T, n), T samples of n channels, or several recordings of the same channels, each (T, n), whose matrices are
averaged, every recording counting alike. Each measure gives a symmetric matrix (n, n), and each embedding or clustering
one row or label per channel, as a PE does.

All of it is pairwise: structure that shows in three channels at once and in no two of them is invisible here.

>>> values = np.random.default_rng(0).normal(size=(2000, 3))
>>> values[:, 1] = values[:, 0] ** 2  # depends on channel 0, and is not correlated with it
>>> correlation(values).round(1).tolist()
[[1.0, -0.0, 0.0], [-0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
>>> mutual_information(values).round(1)[0].tolist()  # in nats; on the diagonal all there is to know, log(8)
[2.1, 1.2, -0.0]
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from placecode.analysis import geometry
from placecode.errors import BadInput, must_be
from placecode.validation import whole_number

Array = npt.NDArray[np.float64]
Values = npt.ArrayLike | Sequence[npt.ArrayLike]

LEAST_SAMPLES = 10
"""With fewer, neither a connection nor a predictor can be told from chance."""
HELD_OUT = 0.2
"""The share of the samples, the last ones, on which a penalty is chosen. Not drawn at random: neighbours in time are
alike, and a sample next to one that was fitted is no new one."""
PENALTIES = tuple(np.geomspace(1.0, 0.01, 10))
"""Of the graphical lasso, as shares of the largest correlation: at 1 no connection is left."""
CHUNK = 4096
"""Samples counted at once by `mutual_information`."""


# -------------------------------------------------------------------------------------------------------- matrices


def correlation(values: Values) -> Array:
    """Pearson's correlation of every two channels, known as functional connectivity (FC), (T, n) -> (n, n)."""
    return np.asarray(np.mean([_correlation(each) for each in recordings(values)], axis=0))


def mutual_information(values: Values, bins: int | None = None) -> Array:
    """Mutual information of every two channels in nats, (T, n) -> (n, n): 0 where they are independent.

    Each channel is cut into `bins` of equally many samples, so only the order of its values counts; equal values share
    a bin. From a histogram of every two channels (all of them are one product of indicators) comes the plug-in
    estimate, which chance alone makes positive: its expected excess, (k - 1)(m - 1) / 2T for k and m bins in use
    (Miller and Madow), is taken off. So independent samples scatter about 0, also below it. Samples that follow each
    other closely in time count for fewer than T, and leave an excess: hold the matrix against one of channels shifted
    in time. Bins are coarse: no more than log(bins) can be found. Without a number there are sqrt(T / 20), 20 samples
    to a cell of the histogram, but at least 2 and at most 8. The diagonal is the entropy of the bins.
    """
    k = None if bins is None else whole_number("bins", bins, 2)
    return np.asarray(np.mean([_information(each, k) for each in recordings(values)], axis=0))


def partial_correlation(values: Values, steps: int = 2000) -> Array:
    """Correlation of every two channels that no other channel explains, (T, n) -> (n, n), most of it exactly 0.

    From the inverse covariance with an L1 penalty on what is off the diagonal (graphical lasso) of the standardized
    channels. The penalty is the one of PENALTIES under which the last fifth of each recording is likeliest, fitted on
    the rest; they are tried from the largest down, each starting where the last one ended, until it has become less
    likely twice. Then all samples are fitted. Several recordings share one inverse, of their mean correlation.

    Solved by the alternating direction method of multipliers, which takes singular correlations (T < n) too. Should it
    not converge in `steps`, a warning says so, and the inverse is that of the correlation shrunk after Ledoit and Wolf:
    then nothing is exactly 0.
    """
    parts = recordings(values)
    fitted = [part[: len(part) - round(HELD_OUT * len(part))] for part in parts]
    own = np.mean([_correlation(each) for each in fitted], axis=0)
    moments = [
        _standard(part[len(each) :], each.mean(axis=0), each.std(axis=0))
        for part, each in zip(parts, fitted, strict=True)
    ]
    held = np.mean([each.T @ each / len(each) for each in moments], axis=0)
    matrix = correlation(parts)
    inverse = sparse_precision(own, held, matrix, steps)
    if inverse is None:
        warnings.warn(
            f"the graphical lasso of {len(matrix)} channels has not converged; the partial correlations come from the "
            "correlation shrunk after Ledoit and Wolf, and none of them is exactly 0",
            stacklevel=2,
        )
        inverse = np.asarray(np.linalg.inv(_shrunk(parts)), dtype=np.float64)
    return partial_of(inverse)


def sparse_precision(own: Array, held: Array, matrix: Array, steps: int = 2000) -> Array | None:
    """The inverse of a correlation matrix with an L1 penalty on what is off the diagonal, all (n, n); None where it
    does not converge in `steps`. The penalty under which moments that were `held` out are likeliest is chosen on the
    matrix `own` of the rest, and then `matrix`, that of all, is inverted with it."""
    largest = float(np.abs(own - np.eye(len(own))).max())
    best, most, worse, start = 0.0, -np.inf, 0, None
    with one_thread():
        for share in PENALTIES:
            start = _sparse_inverse(own, share * largest, steps, start, tolerance=1e-3)  # enough to choose by
            if start is None:
                break
            likelihood = np.linalg.slogdet(start).logabsdet - float((held * start).sum())
            worse = 0 if likelihood > most else worse + 1
            if likelihood > most:
                best, most = share, likelihood
            if worse == 2:
                break
        largest = float(np.abs(matrix - np.eye(len(matrix))).max())
        if not best:
            return None
        exact = _sparse_inverse(matrix, best * largest, steps)
        return _sparse_inverse(matrix, best * largest, steps, tolerance=1e-3) if exact is None else exact


def partial_of(inverse: Array) -> Array:
    """Partial correlations from an inverse covariance, (n, n) -> (n, n)."""
    scale = np.sqrt(np.diag(inverse))
    found = -inverse / (scale[:, None] * scale)
    np.fill_diagonal(found, 1.0)
    return np.asarray((found + found.T) / 2 + 0.0)  # symmetric to the last digit, no negative zeros


# ------------------------------------------------------------------------------------------ embeddings and clusters


def pca_embedding(values: Values, k: int = 2) -> Array:
    """Loadings of the channels on the k widest principal components, (T, n) -> (n, k).

    Channels are standardized; a row is how a channel correlates with each component, and products of rows approach the
    `correlation`. Of the channels with the largest loading on a component the first is on the positive side.
    """
    matrix = correlation(values)
    return _points(matrix)[:, : whole_number("k", k, 1, len(matrix))]


def mds_embedding(matrix: npt.ArrayLike, k: int = 2) -> Array:
    """Places of the channels whose distances are most like sqrt(2 (1 - correlation)), (n, n) -> (n, k).

    That is the distance of two standardized channels, so opposite ones are farthest apart; see `geometry.mds`. The
    matrix has ones on its diagonal. One that is no correlation matrix of anything (partial correlations may not be) is
    taken as the nearest one that could be, its negative eigenvalues as 0.
    """
    similar = _symmetric(matrix)
    if not np.allclose(np.diag(similar), 1.0) or np.abs(similar).max() > 1 + 1e-9:
        raise BadInput("matrix must hold correlations, from -1 to 1 with ones on the diagonal; it does not.")
    return geometry.mds(_points(similar), axes=whole_number("k", k, 1, len(similar))).places


def spectral_clusters(matrix: npt.ArrayLike, k: int, seed: int = 0) -> npt.NDArray[np.int64]:
    """Channels in k clusters by spectral clustering of a similarity matrix, (n, n) -> n labels from 0 to k - 1.

    Normalized cuts with k-means, by scikit-learn. A negative similarity counts as none: channels that go opposite ways
    are not put together, nor are they kept apart more than strangers. The diagonal is left out.
    """
    from sklearn.cluster import SpectralClustering  # type: ignore[import-untyped, unused-ignore]

    similar = _symmetric(matrix)
    affinity = np.maximum(similar, 0.0)
    np.fill_diagonal(affinity, 0.0)
    # A channel without any link would fall out of the graph; a millionth of the largest one ties it to all alike.
    affinity += 1e-6 * (affinity.max() or 1.0)
    found = SpectralClustering(whole_number("k", k, 1, len(similar)), affinity="precomputed", random_state=seed).fit(
        affinity
    )
    return np.asarray(found.labels_, dtype=np.int64)


# ------------------------------------------------------------------------------------------------------------ input


def recordings(values: Values) -> list[Array]:
    """Values as a list of recordings (T, n), each checked: (T, n) is one, (g, T, n) or a list of (T, n) is several."""
    given: Any = values
    several = isinstance(given, (list, tuple)) and all(np.ndim(each) == 2 for each in given)
    parts = [check(each) for each in given] if several or np.ndim(given) == 3 else [check(given)]
    if not parts:
        raise must_be("values", "one recording at least", given)
    if len({part.shape[1] for part in parts}) > 1:
        raise must_be("values", "recordings of the same channels", [part.shape for part in parts])
    return parts


def check(values: npt.ArrayLike) -> Array:
    """Values (T, n), with T of at least LEAST_SAMPLES and n of at least 2, finite, no channel of them constant."""
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] < LEAST_SAMPLES or table.shape[1] < 2:
        allowed = f"an array (samples, channels) of at least {LEAST_SAMPLES} samples and 2 channels"
        raise must_be("values", allowed, table.shape)
    wrong = np.flatnonzero(~np.isfinite(table).all(axis=0))
    if len(wrong):
        raise BadInput(f"values must be finite; NaN or infinity is in {_named(wrong)}.")
    wrong = np.flatnonzero(table.std(axis=0) <= 1e-9 * np.abs(table).max(axis=0))
    if len(wrong):
        raise BadInput(f"values must vary in every channel; constant over {len(table)} samples: {_named(wrong)}.")
    return table


def one_thread() -> AbstractContextManager[Any]:
    """For many small pieces of work: on busy cores, threads that wait for each other take 50 times as long."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped, unused-ignore]

    limits: AbstractContextManager[Any] = threadpool_limits(limits=1)
    return limits


def _named(channels: npt.NDArray[np.int64]) -> str:
    """
    >>> _named(np.arange(12)), _named(np.array([3]))
    ('channels 0, 1, 2, 3, 4 and 7 more', 'channel 3')
    """
    more = f" and {len(channels) - 5} more" if len(channels) > 5 else ""
    return ("channels " if len(channels) > 1 else "channel ") + ", ".join(map(str, channels[:5])) + more


def _symmetric(matrix: npt.ArrayLike) -> Array:
    similar = np.asarray(matrix, dtype=np.float64)
    if similar.ndim != 2 or similar.shape[0] != similar.shape[1] or not np.allclose(similar, similar.T):
        raise must_be("matrix", "symmetric, (channels, channels) and finite", similar.shape)
    return (similar + similar.T) / 2


# ------------------------------------------------------------------------------------------------------ the numbers


def _standard(values: Array, mean: Array, std: Array) -> Array:
    return np.asarray((values - mean) / np.where(std > 0, std, 1.0))  # a channel may rest for a part of a recording


def _correlation(values: Array) -> Array:
    standard = _standard(values, values.mean(axis=0), values.std(axis=0))
    found = np.clip(standard.T @ standard / len(values), -1.0, 1.0)
    np.fill_diagonal(found, 1.0)
    return np.asarray(found)


def _information(values: Array, bins: int | None) -> Array:
    t, n = values.shape
    k = bins or int(np.clip(np.sqrt(t / 20), 2, 8))
    # Ranks from 1 to T, ties at their mean, cut into k equal parts
    cell = np.minimum((rankdata(values, axis=0) - 0.5) * k / t, k - 1).astype(np.int64)  # (T, n)
    counts = np.zeros((n * k, n * k))
    for at in range(0, t, CHUNK):
        marks = (cell[at : at + CHUNK, :, None] == np.arange(k)).reshape(-1, n * k).astype(np.float32)
        counts += marks.T @ marks
    share = np.diag(counts) / t  # (n k,): of each bin of each channel
    joint, chance = counts / t, share[:, None] * share
    terms = joint * np.log(np.divide(joint, chance, out=np.ones_like(joint), where=joint > 0))
    found = terms.reshape(n, k, n, k).sum(axis=(1, 3))
    used = (share.reshape(n, k) > 0).sum(axis=1) - 1
    excess = used[:, None] * used / (2 * t)
    np.fill_diagonal(excess, 0.0)  # a channel's entropy in its own bins is no estimate
    return np.asarray((found + found.T) / 2 - excess)  # symmetric to the last digit


def _sparse_inverse(
    matrix: Array, penalty: float, steps: int, start: Array | None = None, tolerance: float = 1e-5
) -> Array | None:
    """Graphical lasso: argmin of trace(matrix P) - log det P + penalty * sum |P off the diagonal|; None = no success.

    Boyd et al. (2011), 6.5, with over-relaxation and a step size that balances the two residuals.
    """
    n = len(matrix)
    sparse = np.eye(n) if start is None else start
    dual, rho, relax = np.zeros((n, n)), 1.0, 1.6
    allowed = penalty * (1 - np.eye(n))
    for step in range(steps):
        roots, axes = np.linalg.eigh(rho * (sparse - dual) - matrix)
        dense = (axes * ((roots + np.sqrt(roots**2 + 4 * rho)) / (2 * rho))) @ axes.T
        mixed = relax * dense + (1 - relax) * sparse
        before, shifted = sparse, mixed + dual
        sparse = np.sign(shifted) * np.maximum(np.abs(shifted) - allowed / rho, 0.0)
        dual = shifted - sparse
        apart, moved = float(np.linalg.norm(dense - sparse)), rho * float(np.linalg.norm(sparse - before))
        if apart < tolerance * np.linalg.norm(sparse) and moved < tolerance * max(
            rho * float(np.linalg.norm(dual)), 1.0
        ):
            return sparse if np.linalg.eigvalsh(sparse)[0] > 0 else None
        if step % 10 == 9 and not 0.2 < apart / max(moved, 1e-300) < 5:
            factor = 2.0 if apart > moved else 0.5
            rho, dual = rho * factor, dual / factor
    return None


def _shrunk(parts: list[Array]) -> Array:
    """The correlation of standardized recordings one after the other, shrunk towards none."""
    from sklearn.covariance import ledoit_wolf  # type: ignore[import-untyped, unused-ignore]

    standard = np.concatenate([_standard(part, part.mean(axis=0), part.std(axis=0)) for part in parts])
    return np.asarray(ledoit_wolf(standard, assume_centered=True)[0])


def _points(matrix: Array) -> Array:
    """Points whose products are the matrix, (n, n) -> (n, n), the widest axis first, its farthest point positive."""
    squares, axes = np.linalg.eigh(matrix)
    points = (axes * np.sqrt(np.maximum(squares, 0.0)))[:, ::-1]
    far = np.abs(points)
    first = (far >= 0.999999 * far.max(axis=0)).argmax(axis=0)  # rounding must not choose among ties
    return np.asarray(points * np.where(np.take_along_axis(points, first[None], axis=0) < 0, -1.0, 1.0))
