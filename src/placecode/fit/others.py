"""Other methods for a table (baselines): maps, modules, predictions by correlation, PCA, graphical lasso and UMAP.

| name | similarity and map | modules | prediction |
|---|---|---|---|
| correlation | correlation, and its MDS | modules on which both halves of the data agree | linear (Gaussian) |
| pca | loadings on the first k components, with the k that predicts best | as for correlation | with these components |
| graphical lasso | partial correlation, and its MDS | communities by modularity | with the sparse inverse covariance |
| umap (needs umap-learn) | distances on its map | as for correlation, but the halves are alternate samples | none |

A module is a group of similar channels. All methods are fitted on the training samples. Their hyperparameters are
chosen on the validation samples. Results have the same form and scores as those of the transformers. A sample of n
channels has N values: one per numeric channel, and one per category of a categorical channel.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from importlib.util import find_spec

import numpy as np
import torch

from placecode.analysis import connectivity, partitions
from placecode.analysis.agreement import stable_modules
from placecode.analysis.baselines import RIDGE, conditional_mean, pca_covariance
from placecode.arrays import Array
from placecode.experiments.channels.fit_result import Method
from placecode.models.member import Member
from placecode.tasks.table import DATA_SETS, TableTask

MAX_LASSO_CHANNELS = 300
"""Maximum number of channels for the graphical lasso. With more channels, it would take many minutes."""
MAX_UMAP_SAMPLES = 2_000
"""Maximum number of training samples for UMAP."""
MIN_VALIDATION_SAMPLES = 20
"""If available, at least this many validation samples are used to choose hyperparameters, even of a wide table."""
MAX_VALIDATION_OPERATIONS = 2e10
"""Approximate limit on the operations for the choice of hyperparameters. Every validation sample needs a matrix
factorization, so this limits their number."""
SHRINKAGE = (0.0, 0.01, 0.03, 0.1, 0.3, 0.6, 0.9, 1.0)
"""Shrinkage factors to choose from: the off-diagonal covariance is multiplied by 1 minus the factor. With a factor of
1, the prediction is the mean."""
VALUES_PER_CHUNK = 1 << 21
"""Approximate number of values that are read at a time when the covariance is computed."""


class MaskedSamples:
    """Masked samples of a held-out split, on which predictions of hidden channels are scored.

    The n channels of a sample have N values: one per numeric channel, and one per category of a categorical channel.

    Parameters
    ----------
    task : TableTask
    split : str
    mask_ratio : float
        Share of the channels to hide.
    max_samples : int, optional
        Maximum number of samples.

    Attributes
    ----------
    true : ndarray, shape (b, N)
        The true values of b samples.
    hidden : ndarray of bool, shape (b, N)
        Which values are hidden from the predictor.
    scored : ndarray of bool, shape (b, n)
        Which channels count in the error: those that are hidden, and not missing in the table.
    """

    def __init__(self, task: TableTask, split: str, mask_ratio: float, max_samples: int | None = None) -> None:
        bound = task.bind([Member(mask_ratio=mask_ratio)])
        count = min(task.examples(split), max_samples or task.examples(split))
        inputs, targets = (part[0].double().numpy() for part in bound.batch(split, torch.arange(count)[None]))
        self.used = task.columns.used  # (n, w)
        self.true = targets[..., :-1][:, self.used]  # (b, N)
        self.hidden = (inputs[..., -1] > 0)[..., None].repeat(self.used.shape[1], -1)[:, self.used]
        self.scored = targets[..., -1] > 0  # (b, n)

    def error(self, covariance: Array) -> float:
        """Return the mean squared error of predicting hidden values by their conditional mean given the visible ones,
        in a Gaussian with this covariance (N, N)."""
        predictions = conditional_mean(covariance, np.where(self.hidden, 0.0, self.true), self.hidden)
        return float(self._sample_errors(predictions).mean())

    def error_of_means(self) -> float:
        """Return the mean squared error of predicting the mean of every channel, which is 0 after standardization."""
        return float(self._sample_errors(np.zeros_like(self.true)).mean())

    def _sample_errors(self, predictions: Array) -> Array:
        """Return the mean squared error of each of b samples over its scored channels, (b,)."""
        errors = np.zeros((len(predictions), *self.used.shape))
        errors[:, self.used] = (predictions - self.true) ** 2
        return np.asarray((errors.sum(-1) * self.scored).sum(1) / np.maximum(self.scored.sum(1), 1))


def covariance_of(task: TableTask, split: str = "train") -> Array:
    """Return the covariance (N, N) of the standardized values of a split.

    The split is read in chunks. Each entry is computed from the samples in which both values are known. If values are
    missing, the covariance may have negative eigenvalues, which are replaced by a small positive number.
    """
    used = torch.from_numpy(task.columns.used)
    size = int(used.sum())
    products, counts = np.zeros((size, size)), np.zeros((size, size))
    rows = torch.arange(len(task.splits[split]))
    step = max(1, VALUES_PER_CHUNK // (task.tokens * task.columns.width))
    complete = True
    for start in range(0, len(rows), step):
        values, known = task.standardize(task.raw_values(split, rows[start : start + step]))
        flat = values[:, used].double().numpy()
        products += flat.T @ flat
        marks = known[..., None].expand(*known.shape, task.columns.width)[:, used].double().numpy()
        complete &= bool(known.all())
        counts += marks.T @ marks if not complete else len(flat)
    covariance = products / np.maximum(counts, 1)
    if not complete:
        eigenvalues, axes = np.linalg.eigh((covariance + covariance.T) / 2)
        covariance = (axes * np.maximum(eigenvalues, RIDGE)) @ axes.T
    return np.asarray((covariance + covariance.T) / 2 + RIDGE * np.eye(size))


def correlation_of(covariance: Array, task: TableTask) -> Array:
    """Return the correlation (n, n) between channels, computed from the covariance (N, N) between their values.

    If any channel of the table is categorical, and so has several values, the result for two channels is the root of
    the sum of squares of the correlations between their values, normalized to 1 for a channel with itself. It is then
    never negative.
    """
    deviation = np.sqrt(np.diag(covariance))
    correlation = np.clip(covariance / (deviation[:, None] * deviation), -1, 1)
    if task.columns.width == 1:
        return np.asarray(correlation)
    channel_of = np.repeat(np.arange(task.tokens), task.columns.used.sum(1))
    belongs = (channel_of == np.arange(task.tokens)[:, None]).astype(np.float64)
    size = np.sqrt(belongs @ correlation**2 @ belongs.T)
    length = np.sqrt(np.diag(size))
    return np.asarray(size / (length[:, None] * length))


def compare(tables: Mapping[str, TableTask], mask_ratio: float) -> Iterator[tuple[str, Method | str]]:
    """Apply other methods (such as correlation and PCA) to a user's table, for comparison with our models. Yield the
    name of each method with its result, or with the reason why it was left out.

    `tables` holds the table three times, by the names in DATA_SETS: with all training samples, with their first half,
    and with their second half. `mask_ratio` is the share of the channels to hide in held-out samples. A result has the
    similarity of the channels, their positions on maps of two and three dimensions, modules (groups of similar
    channels) and, if the method predicts, its held-out error.
    """
    task = tables[DATA_SETS[0]]
    covariance = covariance_of(task)
    halves = [correlation_of(covariance_of(tables[name]), task) for name in DATA_SETS[1:]]
    matrix = correlation_of(covariance, task)
    max_samples = max(MIN_VALIDATION_SAMPLES, int(MAX_VALIDATION_OPERATIONS / len(covariance) ** 3))
    validation = MaskedSamples(task, "validation", mask_ratio, max_samples)
    test = MaskedSamples(task, "test", mask_ratio)
    axes = [k for k in (2, 3) if k <= task.tokens]
    with connectivity.one_thread():
        unit = np.clip(matrix, -1, 1)
        np.fill_diagonal(unit, 1.0)
        maps = {k: connectivity.mds_embedding(unit, k) for k in axes}
        groups = stable_modules(np.stack(halves)).labels
        scores = {"heldout_mse": test.error(_shrunk(covariance, validation))}
        yield "correlation", Method(matrix, maps, groups, scores)
        yield "pca", _pca(covariance, matrix, halves, validation, test, axes)
        yield "graphical lasso", _lasso(covariance, task, matrix, test, axes)
        yield "umap", _umap(task, axes)


def _shrunk(covariance: Array, validation: MaskedSamples) -> Array:
    """Return the covariance with its off-diagonal entries shrunk, to reduce the noise of the estimate.

    The factor is the one in SHRINKAGE with which the error on `validation` is lowest.
    """
    diagonal = np.diag(np.diag(covariance))
    candidates = [(1 - share) * covariance + share * diagonal for share in SHRINKAGE]
    return candidates[int(np.argmin([validation.error(candidate) for candidate in candidates]))]


def _pca(
    covariance: Array,
    matrix: Array,
    halves: list[Array],
    validation: MaskedSamples,
    test: MaskedSamples,
    axes: list[int],
) -> Method:
    """Return the result of PCA, with the number of components that has the lowest validation error. `matrix` and
    `halves` are the correlations (n, n) in all training samples and in either half. `axes` are the map dimensions."""
    max_components = len(covariance) - 1
    candidates = sorted({round(k) for k in np.geomspace(1, max(max_components, 1), 10)})
    errors = {k: validation.error(pca_covariance(covariance, k)) for k in candidates if k <= max_components}
    best = min(errors, key=lambda k: errors[k]) if errors else 1

    def loadings(correlation: Array, k: int) -> Array:
        """Return the loadings of the channels on the first k components, (n, k)."""
        size, directions = np.linalg.eigh(correlation)
        return np.asarray((directions * np.sqrt(np.maximum(size, 0.0)))[:, ::-1][:, :k])

    def similarity(correlation: Array) -> Array:
        """Return the cosine similarity of the channels' loadings, (n, n)."""
        vectors = loadings(correlation, min(best, len(correlation)))
        length = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit = vectors / np.where(length > 0, length, 1.0)
        return np.asarray(unit @ unit.T)

    scores = {"heldout_mse": test.error(pca_covariance(covariance, best))} if errors else {}
    groups = stable_modules(np.stack([similarity(half) for half in halves])).labels
    return Method(similarity(matrix), {k: loadings(matrix, k) for k in axes}, groups, scores)


def _lasso(covariance: Array, task: TableTask, matrix: Array, test: MaskedSamples, axes: list[int]) -> Method | str:
    """Return the result of the graphical lasso, or the reason why it is left out. Parameters are as in `_pca`."""
    if task.columns.width > 1:
        return "left out: it is for numbers, and some channels are categories"
    if task.tokens > MAX_LASSO_CHANNELS:
        return f"left out: it takes too long for more than {MAX_LASSO_CHANNELS} channels"
    deviation = np.sqrt(np.diag(covariance))
    validation = covariance_of(task, "validation") / (deviation[:, None] * deviation)
    inverse = connectivity.sparse_precision(matrix, validation, matrix)
    if inverse is None:
        return "left out: it did not converge"
    partial = connectivity.partial_of(inverse)
    groups = np.maximum(partitions.best_partition(partial), 0)
    scores = {"heldout_mse": test.error(np.linalg.inv(inverse) * (deviation[:, None] * deviation))}
    return Method(partial, {k: connectivity.mds_embedding(partial, k) for k in axes}, groups, scores)


def _umap(task: TableTask, axes: list[int]) -> Method | str:
    """Return the result of UMAP, or the reason why it is left out. `axes` is as in `_pca`. Modules are those on
    which two maps agree: one of every second training sample, and one of the other samples."""
    if find_spec("umap") is None:
        return "left out: pip install 'placecode[umap]'"
    if task.tokens < 5:
        return "left out: it needs five channels"
    count = len(task.splits["train"])
    used = min(count, MAX_UMAP_SAMPLES)
    values, _ = task.standardize(task.raw_values("train", torch.arange(used) * count // used))  # (samples, n, w)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import umap  # type: ignore[import-not-found, import-untyped, unused-ignore]

        def embed(samples: torch.Tensor, k: int) -> Array:
            """Return a map of the channels with k axes, (n, k), from their values in some samples."""
            points = samples.permute(1, 0, 2).flatten(1).double().numpy()  # (n, samples * w)
            neighbors = min(10, task.tokens - 1)
            model = umap.UMAP(n_components=k, n_neighbors=neighbors, random_state=0, n_jobs=1, init="random")
            return np.asarray(model.fit_transform(points), dtype=np.float64)

        maps = {k: embed(values, k) for k in axes}
        halves = [_proximity(embed(half, 2)) for half in (values[::2], values[1::2])]
    return Method(_proximity(maps[2]), maps, stable_modules(np.stack(halves)).labels, {})


def _proximity(positions: Array) -> Array:
    """Return the similarity of every two positions, (n, n): 1 minus their distance divided by the largest distance."""
    distances = np.linalg.norm(positions[:, None] - positions, axis=-1)
    return np.asarray(1 - distances / max(float(distances.max()), 1e-12))
