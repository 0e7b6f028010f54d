"""What others make of the same table: maps, modules and predictions without a transformer, by the same yardsticks.

| name | similarity and map | modules | prediction |
|---|---|---|---|
| correlation | correlation, and its MDS | those that either half of the data agree on | a linear one |
| pca | loadings on as many components as predict best | likewise | through these components |
| graphical lasso | partial correlation, and its MDS | communities by modularity | by the sparse inverse covariance |
| umap | its map (needs umap-learn) | those of its map | none |

All see the training samples alone; what they have to choose, they choose on the validation samples.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt
import torch

from placecode.analysis import connectivity, partitions
from placecode.analysis.agreement import stable_modules
from placecode.analysis.baselines import RIDGE, conditional_mean, few_axes
from placecode.models.member import Member
from placecode.tasks.table import PARTS, Table

Array = npt.NDArray[np.float64]

NAMES = ("correlation", "pca", "graphical lasso", "umap")
MOST_FOR_LASSO = 300
"""Channels up to which the graphical lasso is tried: with more it takes many minutes."""
SAMPLES_FOR_UMAP = 2_000
FEWEST, WORK = 20, 2e10
"""Validation questions by which the number of components is chosen, at least, and what they may cost: each takes a
factorization."""
SHRINKAGE = (0.0, 0.01, 0.03, 0.1, 0.3, 0.6, 0.9, 1.0)
"""Of what is off the diagonal, the share that may be taken away: all of it is guessing the means."""
AT_ONCE = 1 << 21
"""Values that are summed up at once."""


@dataclass(frozen=True)
class Other:
    """What one of them found: `similarity` (n, n), maps (n, 2) and (n, 3), `labels` (n,); and the mean squared error on
    the test samples, None where it predicts nothing."""

    similarity: Array
    maps: Mapping[int, Array]
    labels: npt.NDArray[np.int64]
    error: float | None = None


class Asked:
    """The questions of a held-out part as numbers: what is true, what is shown, and what is asked."""

    def __init__(self, task: Table, split: str, hidden: float, most: int | None = None) -> None:
        bound = task.bind([Member(hidden=hidden)])
        count = min(task.examples(split), most or task.examples(split))
        inputs, targets = (each[0].double().numpy() for each in bound.batch(split, torch.arange(count)[None]))
        self.used = task.columns.used  # (n, w)
        self.true = targets[..., :-1][:, self.used]  # (b, N)
        self.unseen = (inputs[..., -1] > 0)[..., None].repeat(self.used.shape[1], -1)[:, self.used]
        self.asked = targets[..., -1] > 0  # (b, n)

    def error(self, covariance: Array) -> float:
        """Mean squared error of the Gaussian guess with this covariance, every question counting alike."""
        guess = conditional_mean(covariance, np.where(self.unseen, 0.0, self.true), self.unseen)
        return float(self._missed(guess).mean())

    def of_means(self) -> float:
        """That of guessing the mean, whatever is shown."""
        return float(self._missed(np.zeros_like(self.true)).mean())

    def _missed(self, guess: Array) -> Array:
        """The squared error of each question."""
        wrong = np.zeros((len(guess), *self.used.shape))
        wrong[:, self.used] = (guess - self.true) ** 2
        return np.asarray((wrong.sum(-1) * self.asked).sum(1) / np.maximum(self.asked.sum(1), 1))


def covariance_of(task: Table, split: str = "train") -> Array:
    """The covariance of all numbers of the channels over a part, (N, N), read piece by piece: of the samples in which
    both are known. It is made one that some data could have, should missing values have spoilt that."""
    used = torch.from_numpy(task.columns.used)
    size = int(used.sum())
    products, counts = np.zeros((size, size)), np.zeros((size, size))
    rows = torch.arange(len(task.splits[split]))
    step = max(1, AT_ONCE // (task.tokens * task.columns.width))
    complete = True
    for start in range(0, len(rows), step):
        values, known = task.standard(task.raw(split, rows[start : start + step]))
        flat = values[:, used].double().numpy()
        products += flat.T @ flat
        marks = known[..., None].expand(*known.shape, task.columns.width)[:, used].double().numpy()
        complete &= bool(known.all())
        counts += marks.T @ marks if not complete else len(flat)
    found = products / np.maximum(counts, 1)
    if not complete:
        squares, axes = np.linalg.eigh((found + found.T) / 2)
        found = (axes * np.maximum(squares, RIDGE)) @ axes.T
    return np.asarray((found + found.T) / 2 + RIDGE * np.eye(size))


def correlation_of(covariance: Array, task: Table) -> Array:
    """The correlation of every two channels, (N, N) -> (n, n); where there are categories, the size of all correlations
    of one's numbers with the other's, which has no sign."""
    deviation = np.sqrt(np.diag(covariance))
    whole = np.clip(covariance / (deviation[:, None] * deviation), -1, 1)
    if task.columns.width == 1:
        return np.asarray(whole)
    owner = np.repeat(np.arange(task.tokens), task.columns.used.sum(1))
    own = (owner == np.arange(task.tokens)[:, None]).astype(np.float64)
    size = np.sqrt(own @ whole**2 @ own.T)
    length = np.sqrt(np.diag(size))
    return np.asarray(size / (length[:, None] * length))


def compare(tables: Mapping[str, Table], hidden: float) -> Iterator[tuple[str, Other | str]]:
    """Each of them by name; or the sentence that says why it is left out."""
    task = tables[PARTS[0]]
    covariance = covariance_of(task)
    halves = [correlation_of(covariance_of(tables[name]), task) for name in PARTS[1:]]
    matrix = correlation_of(covariance, task)
    few = max(FEWEST, int(WORK / len(covariance) ** 3))
    validation, test = Asked(task, "validation", hidden, few), Asked(task, "test", hidden)
    axes = [k for k in (2, 3) if k <= task.tokens]
    with connectivity.one_thread():
        yield (
            "correlation",
            Other(
                matrix,
                {k: connectivity.mds_embedding(_unit(matrix), k) for k in axes},
                stable_modules(np.stack(halves)).labels,
                test.error(_shrunk(covariance, validation)),
            ),
        )
        yield "pca", _pca(covariance, matrix, halves, validation, test, axes)
        yield "graphical lasso", _lasso(covariance, task, matrix, test, axes)
        yield "umap", _umap(task, axes)


def _shrunk(covariance: Array, validation: Asked) -> Array:
    """The covariance with what is off the diagonal made smaller, by the share that predicts validation samples best:
    with few samples for the channels, most of it is noise."""
    own = np.diag(np.diag(covariance))
    tried = [(1 - share) * covariance + share * own for share in SHRINKAGE]
    return tried[int(np.argmin([validation.error(each) for each in tried]))]


def _pca(
    covariance: Array, matrix: Array, halves: list[Array], validation: Asked, test: Asked, axes: list[int]
) -> Other:
    most = len(covariance) - 1
    tried = sorted({round(k) for k in np.geomspace(1, max(most, 1), 10)})
    missed = {k: validation.error(few_axes(covariance, k)) for k in tried if k <= most}
    best = min(missed, key=lambda k: missed[k]) if missed else 1

    def loadings(whole: Array, k: int) -> Array:
        size, directions = np.linalg.eigh(whole)
        return np.asarray((directions * np.sqrt(np.maximum(size, 0.0)))[:, ::-1][:, :k])

    def alike(whole: Array) -> Array:
        vectors = loadings(whole, min(best, len(whole)))
        length = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit = vectors / np.where(length > 0, length, 1.0)
        return np.asarray(unit @ unit.T)

    error = test.error(few_axes(covariance, best)) if missed else None
    groups = stable_modules(np.stack([alike(half) for half in halves])).labels
    return Other(alike(matrix), {k: loadings(matrix, k) for k in axes}, groups, error)


def _lasso(covariance: Array, task: Table, matrix: Array, test: Asked, axes: list[int]) -> Other | str:
    if task.columns.width > 1:
        return "left out: it is for numbers, and some channels are categories"
    if task.tokens > MOST_FOR_LASSO:
        return f"left out: it takes too long for more than {MOST_FOR_LASSO} channels"
    deviation = np.sqrt(np.diag(covariance))
    held = covariance_of(task, "validation") / (deviation[:, None] * deviation)
    inverse = connectivity.sparse_precision(matrix, held, matrix)
    if inverse is None:
        return "left out: it did not converge"
    partial = connectivity.partial_of(inverse)
    groups = partitions.best_partition(partial)
    error = test.error(np.linalg.inv(inverse) * (deviation[:, None] * deviation))
    maps = {k: connectivity.mds_embedding(partial, k) for k in axes}
    return Other(partial, maps, np.maximum(groups, 0), error)


def _umap(task: Table, axes: list[int]) -> Other | str:
    if find_spec("umap") is None:
        return "left out: pip install 'placecode[umap]'"
    if task.tokens < 5:
        return "left out: it needs five channels"
    count = len(task.splits["train"])
    some = torch.arange(0, count, max(1, count // SAMPLES_FOR_UMAP))[:SAMPLES_FOR_UMAP]
    points = task.standard(task.raw("train", some))[0].permute(1, 0, 2).flatten(1).double().numpy()  # (n, samples)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import umap  # type: ignore[import-not-found, import-untyped, unused-ignore]

        maps, alike = {}, []
        for k in axes:
            for half in (points, points[:, ::2], points[:, 1::2]) if k == 2 else (points,):
                placed = umap.UMAP(
                    n_components=k, n_neighbors=min(10, task.tokens - 1), random_state=0, n_jobs=1, init="random"
                ).fit_transform(half)
                if half is points:
                    maps[k] = np.asarray(placed, dtype=np.float64)
                if k == 2:
                    alike.append(_near(np.asarray(placed, dtype=np.float64)))
    return Other(alike[0], maps, stable_modules(np.stack(alike[1:])).labels)


def _near(placed: Array) -> Array:
    """Similarity of places: 1 less their distance, as a share of the largest one."""
    apart = np.linalg.norm(placed[:, None] - placed, axis=-1)
    return np.asarray(1 - apart / max(float(apart.max()), 1e-12))


def _unit(matrix: Array) -> Array:
    found = np.clip(matrix, -1, 1)
    np.fill_diagonal(found, 1.0)
    return found
