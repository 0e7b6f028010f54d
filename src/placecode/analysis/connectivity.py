"""Estimate the connectivity of pairs of channels (correlation, partial correlation, mutual information) from data.

Connectivity is a baseline for learned PEs: it gives similarities, embeddings and clusters of channels without training.
Values are T samples of n channels, (T, n), or several recordings of the same channels. Matrices of several recordings
are averaged with equal weights. All measures compare two channels. They cannot detect structure that only appears in
three or more channels together.

>>> values = np.random.default_rng(0).normal(size=(2000, 3))
>>> values[:, 1] = values[:, 0] ** 2  # depends on channel 0, but is not correlated with it
>>> correlation(values).round(1).tolist()
[[1.0, -0.0, 0.0], [-0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
>>> mutual_information(values).round(1)[0].tolist()  # in nats; the diagonal is the entropy, log(8)
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
from placecode.arrays import Array, IntArray
from placecode.errors import BadInput, must_be
from placecode.validation import whole_number

Values = npt.ArrayLike | Sequence[npt.ArrayLike]

MIN_SAMPLES = 10
"""Smallest number of samples to estimate connectivity or to fit a predictor."""
HELD_OUT = 0.2
"""Fraction of the samples, at the end of a recording, that is used to choose hyperparameters such as a penalty. These
samples are not drawn at random, because samples that are close in time are correlated."""
PENALTIES = tuple(np.geomspace(1.0, 0.01, 10))
"""Penalties of the graphical lasso to choose from, as fractions of the largest correlation. The penalty 1 makes all
partial correlations 0."""
CHUNK = 4096
"""Number of samples that `mutual_information` counts at once, which limits memory use."""


# -------------------------------------------------------------------------------------------------------- matrices


def correlation(values: Values) -> Array:
    """Compute Pearson's correlation of every two channels (functional connectivity, FC).

    Correlations of several recordings are averaged.

    Parameters
    ----------
    values : array-like, shape (T, n), or several recordings

    Returns
    -------
    ndarray, shape (n, n)
    """
    return np.asarray(np.mean([_correlation(part) for part in recordings(values)], axis=0))


def mutual_information(values: Values, bins: int | None = None) -> Array:
    """Estimate the mutual information of every two channels in nats.

    The values of each channel are divided into bins with equal numbers of samples, so only their ranks matter. The
    expected bias, (k - 1)(m - 1) / 2T for two channels with k and m bins that are not empty (Miller and Madow), is
    subtracted. Estimates for independent channels therefore scatter around 0. If samples are autocorrelated, a positive
    bias remains. It can be estimated by shifting channels in time against each other. Estimates are at most log(bins).

    Parameters
    ----------
    values : array-like, shape (T, n), or several recordings
    bins : int, optional
        Number of bins per channel. The default is sqrt(T / 20), at least 2 and at most 8.

    Returns
    -------
    ndarray, shape (n, n)
        The diagonal is the entropy of each channel after binning.
    """
    k = None if bins is None else whole_number("bins", bins, 2)
    return np.asarray(np.mean([_information(part, k) for part in recordings(values)], axis=0))


def partial_correlation(values: Values, steps: int = 2000) -> Array:
    """Compute sparse partial correlations of every two channels with the graphical lasso.

    The last fifth of each recording is held out to choose the penalty. The other samples are fitted with several
    penalties, and the fit that gives the held-out samples the highest likelihood decides. All samples are then fitted
    with this penalty. For several recordings, the graphical lasso is fitted to their mean correlation matrix. The
    matrix may be singular (T < n). If the solver does not converge, a warning is given, and the Ledoit-Wolf shrinkage
    estimate is inverted instead.

    Parameters
    ----------
    values : array-like, shape (T, n), or several recordings
    steps : int
        Maximum number of iterations.

    Returns
    -------
    ndarray, shape (n, n)
        Many entries are exactly 0, except after the warning. The diagonal is 1.
    """
    parts = recordings(values)
    train = [part[: len(part) - round(HELD_OUT * len(part))] for part in parts]
    train_matrix = np.mean([_correlation(part) for part in train], axis=0)
    test = [_standard(part[len(fitted) :], fitted) for part, fitted in zip(parts, train, strict=True)]
    test_moments = np.mean([part.T @ part / len(part) for part in test], axis=0)
    matrix = correlation(parts)
    inverse = sparse_precision(train_matrix, test_moments, matrix, steps)
    if inverse is None:
        from sklearn.covariance import ledoit_wolf  # type: ignore[import-untyped, unused-ignore]

        warnings.warn(
            f"the graphical lasso of {len(matrix)} channels has not converged; the partial correlations come from the "
            "correlation shrunk after Ledoit and Wolf, and none of them is exactly 0",
            stacklevel=2,
        )
        standard = np.concatenate([_standard(part, part) for part in parts])
        inverse = np.asarray(np.linalg.inv(ledoit_wolf(standard, assume_centered=True)[0]), dtype=np.float64)
    return partial_of(inverse)


def sparse_precision(train: Array, test: Array, matrix: Array, steps: int = 2000) -> Array | None:
    """Return the sparse inverse of a correlation matrix by the graphical lasso, or None if it does not converge.

    The penalty is chosen so that a fit to `train` gives the held-out samples the highest likelihood. `matrix` is then
    fitted with this penalty. Penalties are tried in decreasing order, each fit starting from the previous one. The
    search ends after two penalties in a row that do not improve the likelihood.

    Parameters
    ----------
    train : ndarray, shape (n, n)
        Correlations in the samples that are not held out.
    test : ndarray, shape (n, n)
        Second moments (mean products of two channels) of the held-out samples, standardized like the others.
    matrix : ndarray, shape (n, n)
        Correlations in all samples.
    steps : int
        Maximum number of iterations of the solver, for each penalty.
    """
    largest = float(np.abs(train - np.eye(len(train))).max())
    best, best_likelihood, failures, start = 0.0, -np.inf, 0, None
    with one_thread():
        for penalty in PENALTIES:
            # a low accuracy is enough to choose the penalty
            start = _sparse_inverse(train, penalty * largest, steps, start, tolerance=1e-3)
            if start is None:
                break
            likelihood = np.linalg.slogdet(start).logabsdet - float((test * start).sum())
            failures = 0 if likelihood > best_likelihood else failures + 1
            if likelihood > best_likelihood:
                best, best_likelihood = penalty, likelihood
            if failures == 2:
                break
        largest = float(np.abs(matrix - np.eye(len(matrix))).max())
        if not best:
            return None
        exact = _sparse_inverse(matrix, best * largest, steps)
        return _sparse_inverse(matrix, best * largest, steps, tolerance=1e-3) if exact is None else exact


def partial_of(inverse: Array) -> Array:
    """Compute partial correlations from an inverse covariance matrix, (n, n) -> (n, n)."""
    scale = np.sqrt(np.diag(inverse))
    partial = -inverse / (scale[:, None] * scale)
    np.fill_diagonal(partial, 1.0)
    return np.asarray((partial + partial.T) / 2 + 0.0)  # exactly symmetric, without negative zeros


# ------------------------------------------------------------------------------------------ embeddings and clusters


def pca_embedding(values: Values, k: int = 2) -> Array:
    """Return the loadings of standardized channels on the first k principal components.

    Parameters
    ----------
    values : array-like, shape (T, n), or several recordings
    k : int
        Number of components.

    Returns
    -------
    ndarray, shape (n, k)
        Correlations between channels and components. On each component, the loading with the largest absolute value is
        positive.
    """
    matrix = correlation(values)
    return geometry.principal_points(matrix, whole_number("k", k, 1, len(matrix)))


def mds_embedding(matrix: npt.ArrayLike, k: int = 2) -> Array:
    """Embed channels by multidimensional scaling (`geometry.mds`) of the distances sqrt(2 (1 - correlation)).

    Parameters
    ----------
    matrix : array-like, shape (n, n)
        Correlations, with ones on the diagonal. If this matrix has negative eigenvalues, as a matrix of partial
        correlations can have, they are set to 0.
    k : int
        Number of axes.

    Returns
    -------
    ndarray, shape (n, k)
    """
    similarity = _symmetric(matrix)
    if not np.allclose(np.diag(similarity), 1.0) or np.abs(similarity).max() > 1 + 1e-9:
        raise BadInput("matrix must hold correlations, from -1 to 1 with ones on the diagonal; it does not.")
    points = geometry.principal_points(similarity, len(similarity))
    return geometry.mds(points, axes=whole_number("k", k, 1, len(similarity))).places


def spectral_clusters(matrix: npt.ArrayLike, k: int, seed: int = 0) -> IntArray:
    """Divide channels into k clusters with scikit-learn's spectral clustering.

    Parameters
    ----------
    matrix : array-like, shape (n, n)
        Similarities. Negative values count as 0, and the diagonal is ignored.
    k : int
        Number of clusters.
    seed : int

    Returns
    -------
    ndarray of int64, shape (n,)
        Labels from 0 to k - 1.
    """
    from sklearn.cluster import SpectralClustering  # type: ignore[import-untyped, unused-ignore]

    similarity = _symmetric(matrix)
    affinity = np.maximum(similarity, 0.0)
    np.fill_diagonal(affinity, 0.0)
    # weak links between all channels keep the graph connected
    affinity += 1e-6 * (affinity.max() or 1.0)
    model = SpectralClustering(whole_number("k", k, 1, len(similarity)), affinity="precomputed", random_state=seed)
    return np.asarray(model.fit(affinity).labels_, dtype=np.int64)


def recordings(values: Values) -> list[Array]:
    """Return checked recordings as a list of arrays, (T, n) each. Raises `BadInput` for recordings that fail `check`.

    `values` is one recording (T, n), an array of g recordings (g, T, n), or a list of recordings of the same channels.
    """
    arrays: Any = values
    is_list = isinstance(arrays, (list, tuple)) and all(np.ndim(array) == 2 for array in arrays)
    parts = [check(array) for array in arrays] if is_list or np.ndim(arrays) == 3 else [check(arrays)]
    if not parts:
        raise must_be("values", "one recording at least", arrays)
    if len({part.shape[1] for part in parts}) > 1:
        raise must_be("values", "recordings of the same channels", [part.shape for part in parts])
    return parts


def check(values: npt.ArrayLike) -> Array:
    """Return values, (T, n), as float64, or raise `BadInput`.

    Values must be finite, with enough samples (`MIN_SAMPLES`), at least two channels, and no constant channel.
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] < MIN_SAMPLES or table.shape[1] < 2:
        allowed = f"an array (samples, channels) of at least {MIN_SAMPLES} samples and 2 channels"
        raise must_be("values", allowed, table.shape)
    infinite = np.flatnonzero(~np.isfinite(table).all(axis=0))
    if len(infinite):
        raise BadInput(f"values must be finite; NaN or infinity is in {_named(infinite)}.")
    constant = np.flatnonzero(table.std(axis=0) <= 1e-9 * np.abs(table).max(axis=0))
    if len(constant):
        raise BadInput(f"values must vary in every channel; constant over {len(table)} samples: {_named(constant)}.")
    return table


def one_thread() -> AbstractContextManager[Any]:
    """Return a context manager that limits numerical libraries to one thread.

    With several threads, many small operations take up to 50 times as long if the cores are busy.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped, unused-ignore]

    limits: AbstractContextManager[Any] = threadpool_limits(limits=1)
    return limits


def _named(channels: IntArray) -> str:
    """Return a list of channel indices in words, for error messages. Only the first five are named.

    >>> _named(np.arange(12)), _named(np.array([3]))
    ('channels 0, 1, 2, 3, 4 and 7 more', 'channel 3')
    """
    more = f" and {len(channels) - 5} more" if len(channels) > 5 else ""
    return ("channels " if len(channels) > 1 else "channel ") + ", ".join(map(str, channels[:5])) + more


def _symmetric(matrix: npt.ArrayLike) -> Array:
    """Return a matrix as float64, exactly symmetric, or raise `BadInput` if it is not symmetric and finite."""
    similarity = np.asarray(matrix, dtype=np.float64)
    if similarity.ndim != 2 or similarity.shape[0] != similarity.shape[1] or not np.allclose(similarity, similarity.T):
        raise must_be("matrix", "symmetric, (channels, channels) and finite", similarity.shape)
    return (similarity + similarity.T) / 2


def _standard(values: Array, reference: Array) -> Array:
    """Return values, (T, n), standardized with the mean and the standard deviation of each channel in `reference`.

    A channel that is constant in `reference`, which may be a part of a recording, is not divided.
    """
    std = reference.std(axis=0)
    return np.asarray((values - reference.mean(axis=0)) / np.where(std > 0, std, 1.0))


def _correlation(values: Array) -> Array:
    """Return the correlation matrix of one recording, (T, n) -> (n, n)."""
    standard = _standard(values, values)
    matrix = np.clip(standard.T @ standard / len(values), -1.0, 1.0)
    np.fill_diagonal(matrix, 1.0)
    return np.asarray(matrix)


def _information(values: Array, bins: int | None) -> Array:
    """Return the mutual information matrix of one recording, (T, n) -> (n, n). `bins` is as in `mutual_information`."""
    t, n = values.shape
    k = bins or int(np.clip(np.sqrt(t / 20), 2, 8))
    # ranks from 1 to T, with the mean rank for ties, divided into k equal parts
    cell = np.minimum((rankdata(values, axis=0) - 0.5) * k / t, k - 1).astype(np.int64)  # (T, n)
    counts = np.zeros((n * k, n * k))
    for start in range(0, t, CHUNK):
        one_hot = (cell[start : start + CHUNK, :, None] == np.arange(k)).reshape(-1, n * k).astype(np.float32)
        counts += one_hot.T @ one_hot
    marginal = np.diag(counts) / t  # (n k,): probability of each bin of each channel
    joint, independent = counts / t, marginal[:, None] * marginal
    terms = joint * np.log(np.divide(joint, independent, out=np.ones_like(joint), where=joint > 0))
    information = terms.reshape(n, k, n, k).sum(axis=(1, 3))
    freedom = (marginal.reshape(n, k) > 0).sum(axis=1) - 1  # (n,): number of bins in use, minus 1
    bias = freedom[:, None] * freedom / (2 * t)
    np.fill_diagonal(bias, 0.0)  # the entropy of a channel in its bins is not an estimate
    return np.asarray((information + information.T) / 2 - bias)  # exactly symmetric


def _sparse_inverse(
    matrix: Array, penalty: float, steps: int, start: Array | None = None, tolerance: float = 1e-5
) -> Array | None:
    """Return the matrix P that minimizes trace(matrix P) - log det P + penalty * sum |P off the diagonal|, (n, n).

    Returns None if it does not converge within `steps` iterations, or if P is not positive definite. The method is ADMM
    as in Boyd et al. (2011), section 6.5, with over-relaxation and a step size that balances both residuals. `start` is
    an initial P, by default the identity.
    """
    n = len(matrix)
    sparse = np.eye(n) if start is None else start
    dual, rho, relax = np.zeros((n, n)), 1.0, 1.6
    thresholds = penalty * (1 - np.eye(n))
    for step in range(steps):
        roots, axes = np.linalg.eigh(rho * (sparse - dual) - matrix)
        dense = (axes * ((roots + np.sqrt(roots**2 + 4 * rho)) / (2 * rho))) @ axes.T
        mixed = relax * dense + (1 - relax) * sparse
        previous, shifted = sparse, mixed + dual
        sparse = np.sign(shifted) * np.maximum(np.abs(shifted) - thresholds / rho, 0.0)
        dual = shifted - sparse
        primal_residual = float(np.linalg.norm(dense - sparse))
        dual_residual = rho * float(np.linalg.norm(sparse - previous))
        dual_scale = max(rho * float(np.linalg.norm(dual)), 1.0)
        if primal_residual < tolerance * np.linalg.norm(sparse) and dual_residual < tolerance * dual_scale:
            return sparse if np.linalg.eigvalsh(sparse)[0] > 0 else None
        if step % 10 == 9 and not 0.2 < primal_residual / max(dual_residual, 1e-300) < 5:
            factor = 2.0 if primal_residual > dual_residual else 0.5
            rho, dual = rho * factor, dual / factor
    return None
