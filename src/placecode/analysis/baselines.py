"""Baseline predictors for masked prediction: hidden channels are predicted from visible ones without a transformer.

A predictor is fitted to values of T samples and n channels, (T, n), or (T, n, w) if each sample is a window of w time
points. Like a model, it then predicts from values, (b, n) or (b, n, w), and from a mask, (b, n), that is True for
hidden channels. It does not read hidden values and returns visible values unchanged. `mse` is the error as defined in
`tasks.masked`.

| predictor | model |
|---|---|
| `Linear` | the best linear prediction from the training covariance, with other weights if other channels are hidden |
| `Pca` | as `Linear`, with a covariance of a few principal components plus noise; better with few samples |
| `Ridge` | linear, with the same weights for all sets of hidden channels |
| `Trees` | gradient-boosted trees, which can be nonlinear |

>>> values = np.random.default_rng(0).normal(size=(1000, 1)) + [[0.0, 0.1, 0.2]]  # three identical channels
>>> hidden = np.array([[False, True, True]])
>>> Linear().fit(values).predict([[0.5, np.nan, np.nan]], hidden).round(3)
array([[0.5, 0.6, 0.7]])
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import islice
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from placecode.analysis.connectivity import HELD_OUT, check, one_thread
from placecode.arrays import AnyArray, Array, BoolArray, IntArray
from placecode.errors import BadInput, must_be
from placecode.validation import real_number, whole_number

Seed = int | np.random.Generator

RIDGE = 1e-6
"""Number added to the variances of standardized channels, so that collinear channels do not make equations singular."""
PENALTIES = tuple(np.geomspace(1e-4, 10.0, 6))
"""Penalties that `Ridge` chooses from. They are added to the variances of its inputs; standardized channels have
variance 1."""
SELECTION_VALUES = 100_000
"""Maximum number of held-out values (samples times channels) that `Pca` uses to choose the number of components."""


def errors(predictions: npt.ArrayLike, values: npt.ArrayLike, hidden: npt.ArrayLike) -> Array:
    """Compute the mean squared error over the hidden channels of each sample.

    Parameters
    ----------
    predictions, values : array-like, shape (b, n) or (b, n, w)
    hidden : array-like of bool, shape (b, n)

    Returns
    -------
    ndarray, shape (b,)
        NaN for samples without hidden channels.
    """
    guess, true, marks = np.asarray(predictions, float), np.asarray(values, float), np.asarray(hidden)
    if guess.shape != true.shape or true.ndim not in (2, 3):
        raise must_be("predictions", f"an array of the shape of values, {true.shape}", guess.shape)
    _check_marks(marks, true.shape[:2])
    squares = ((guess - true) ** 2).reshape(*marks.shape, -1).mean(axis=-1)  # (b, n)
    count = marks.sum(axis=1)
    return np.asarray(np.where(marks, squares, 0.0).sum(axis=1) / np.where(count == 0, np.nan, count))


def mse(predictions: npt.ArrayLike, values: npt.ArrayLike, hidden: npt.ArrayLike) -> float:
    """Return the mean squared error over hidden channels, averaged over samples that have any."""
    has_hidden = np.asarray(hidden).any(axis=-1)
    if not has_hidden.any():
        raise BadInput("hidden must hide at least one channel of one sample; it hides none.")
    return float(errors(predictions, values, hidden)[has_hidden].mean())


def hide(samples: int, channels: int, share: float, seed: Seed = 0, always: int | None = None) -> BoolArray:
    """Draw which channels are hidden in each sample, as a mask, (samples, channels).

    In each sample, the same number of channels is hidden: the fraction `share`, rounded, but at least one and not all.
    The channel `always`, if set, is hidden in all samples.
    """
    real_number("share", share, above=0, below=1)
    count = min(max(1, round(share * channels)), channels - 1)
    numbers = np.random.default_rng(seed).random((samples, channels))
    if always is not None:
        numbers[:, always] = -1.0
    return np.asarray(numbers.argsort(axis=1).argsort(axis=1) < count)


class Predictor(ABC):
    """Base class of predictors. It checks inputs, standardizes channels, and sets hidden values to 0, their mean.

    Subclasses implement `_fit` and `_guess`, which `fit` and `predict` call with standardized values. These have shape
    (samples, n * w), ordered by channel.
    """

    channels_: int
    window_: int

    def fit(self, values: npt.ArrayLike, seed: Seed = 0, share: float = 0.5) -> Self:
        """Fit the predictor and return it. Hyperparameters are chosen on the last fifth of the samples.

        Parameters
        ----------
        values : array-like, shape (T, n) or (T, n, w)
            Training samples in order of time.
        seed : int or numpy.random.Generator
            Seed of all random choices, such as the sets of hidden channels in training.
        share : float
            Fraction of hidden channels in training. Use the same as for the transformer to compare with.
        """
        table = np.asarray(values, dtype=np.float64)
        if table.ndim not in (2, 3):
            raise must_be("values", "an array (samples, channels) or (samples, channels, window)", table.shape)
        hide(0, 2, share)
        self.channels_, self.window_ = table.shape[1], table.shape[2] if table.ndim == 3 else 1
        if self.channels_ < 2:
            raise must_be("values", "at least 2 channels", table.shape)
        check(np.moveaxis(table.reshape(*table.shape[:2], -1), 2, 1).reshape(-1, self.channels_))
        flat = check(table.reshape(len(table), -1))
        self._mean, self._scale = flat.mean(axis=0), flat.std(axis=0)
        self._fit((flat - self._mean) / self._scale, np.random.default_rng(seed), share)
        return self

    def predict(self, values: npt.ArrayLike, hidden: npt.ArrayLike) -> Array:
        """Predict hidden values from visible ones.

        Parameters
        ----------
        values : array-like, shape (b, n) or (b, n, w)
            Hidden values are not read.
        hidden : array-like of bool, shape (b, n)

        Returns
        -------
        ndarray, shape of `values`
            Predictions of hidden values. Visible values are unchanged.
        """
        if not hasattr(self, "_mean"):
            raise BadInput(f"a predictor must be fitted before it predicts; {type(self).__name__} is not.")
        table, marks = np.asarray(values, dtype=np.float64), np.asarray(hidden)
        shape = (self.channels_,) if table.ndim == 2 else (self.channels_, self.window_)
        if table.ndim not in (2, 3) or table.shape[1:] != shape or (table.ndim == 2 and self.window_ > 1):
            fitted = f"{self.channels_} channels" + (f" with windows of {self.window_}" if self.window_ > 1 else "")
            raise must_be("values", f"samples of {fitted}", table.shape)
        _check_marks(marks, table.shape[:2])
        flat, missing = table.reshape(len(table), -1), marks.repeat(self.window_, axis=1)
        if not np.isfinite(flat[~missing]).all():
            raise BadInput("values must be finite where they are visible; NaN or infinity is among them.")
        guess = self._guess(np.where(missing, 0.0, (flat - self._mean) / self._scale), marks)
        return np.asarray(np.where(missing, guess * self._scale + self._mean, flat).reshape(table.shape))

    def _examples(
        self, flat: Array, count: int, channel: int, rng: np.random.Generator, share: float
    ) -> list[tuple[Array, BoolArray]]:
        """Draw `count` examples in which a `share` of the channels is hidden, always including `channel`. Return a pair
        (values, mask) for fitting, and one for choosing hyperparameters. Samples repeat only after all were used."""
        examples = []
        for part, size in zip(_split(flat), (1 - HELD_OUT, HELD_OUT), strict=True):
            rows = np.resize(rng.permutation(len(part)), round(size * count))
            examples.append((part[rows], hide(len(rows), self.channels_, share, rng, channel)))
        return examples

    @abstractmethod
    def _fit(self, flat: Array, rng: np.random.Generator, share: float) -> None: ...

    @abstractmethod
    def _guess(self, flat: Array, hidden: BoolArray) -> Array: ...


class _Gaussian(Predictor):
    """Base class of predictors that return the mean of hidden values given visible ones in a Gaussian with mean 0."""

    _covariance: Array

    def _guess(self, flat: Array, hidden: BoolArray) -> Array:
        return conditional_mean(self._covariance, flat, hidden.repeat(self.window_, axis=1))


class Linear(_Gaussian):
    """The best linear prediction: the conditional mean in a Gaussian with the training covariance.

    It is optimal among linear predictors, and among all predictors if the data are Gaussian, up to the error of the
    estimated covariance. With few samples per channel (fMRI), `Pca` may be better.

    Parameters
    ----------
    ridge : float
        Number added to the variances of standardized channels.
    """

    def __init__(self, ridge: float = RIDGE) -> None:
        self.ridge = real_number("ridge", ridge, least=0)

    def _fit(self, flat: Array, rng: np.random.Generator, share: float) -> None:
        self._covariance = flat.T @ flat / len(flat) + self.ridge * np.eye(flat.shape[1])


class Pca(_Gaussian):
    """The conditional mean in a Gaussian with k principal components and isotropic noise (probabilistic PCA).

    The method is that of Tipping and Bishop (1999). The variances of the other components are replaced by their mean.

    Parameters
    ----------
    components : int, optional
        Number of components, k. By default, the number with the smallest error on held-out samples.
    """

    def __init__(self, components: int | None = None) -> None:
        self.components = None if components is None else whole_number("components", components, 1)
        self.components_ = components or 0

    def _fit(self, flat: Array, rng: np.random.Generator, share: float) -> None:
        most = flat.shape[1] - 1
        if self.components is None:
            early, late = _split(flat)
            samples = rng.permutation(late)[: max(SELECTION_VALUES // flat.shape[1], 1)]
            hidden = hide(len(samples), self.channels_, share, rng).repeat(self.window_, axis=1)
            candidates = sorted({round(k) for k in np.geomspace(1, most, 12)})
            scores = []
            for k in candidates:
                covariance = pca_covariance(early.T @ early / len(early), k)
                guess = conditional_mean(covariance, np.where(hidden, 0.0, samples), hidden)
                scores.append(mse(guess, samples, hidden))
            self.components_ = candidates[int(np.argmin(scores))]
        self._covariance = pca_covariance(
            flat.T @ flat / len(flat), whole_number("components", self.components_, 1, most)
        )


class Ridge(Predictor):
    """Ridge regression of each channel on what a transformer reads: values (0 if hidden) and a mask of hidden channels.

    The penalty is chosen on held-out samples. Unlike in `Linear`, weights do not depend on which channels are visible.
    Predictions are best for the fraction of hidden channels with which the regression was fitted.

    Parameters
    ----------
    examples : int
        Number of training examples for the model of one channel. If there are fewer samples, they are repeated with
        other channels hidden.
    """

    def __init__(self, examples: int = 10_000) -> None:
        self.examples = whole_number("examples", examples, 100)

    def _fit(self, flat: Array, rng: np.random.Generator, share: float) -> None:
        width, window = flat.shape[1], self.window_
        self._weights, self._bias = np.zeros((width + self.channels_, width)), np.zeros(width)
        for channel in range(self.channels_):
            columns = slice(channel * window, (channel + 1) * window)
            examples = self._examples(flat, self.examples, channel, rng, share)
            train, test = ((self._input(values, hidden), values[:, columns]) for values, hidden in examples)
            with one_thread():
                maps = _ridge_fits(*train, PENALTIES)
                best = int(np.argmin([((test[0] @ weights + bias - test[1]) ** 2).mean() for weights, bias in maps]))
                x, y = (np.concatenate(pair) for pair in zip(train, test, strict=True))
                [(self._weights[:, columns], self._bias[columns])] = _ridge_fits(x, y, PENALTIES[best : best + 1])

    def _guess(self, flat: Array, hidden: BoolArray) -> Array:
        return np.asarray(self._input(flat, hidden) @ self._weights + self._bias)

    def _input(self, flat: Array, hidden: BoolArray) -> Array:
        return np.concatenate([np.where(hidden.repeat(self.window_, axis=1), 0.0, flat), hidden], axis=1)


class Trees(Predictor):
    """Gradient-boosted trees for each channel (scikit-learn's histogram version). Hidden values are NaN (missing).

    The number of trees is chosen on held-out samples. It may be 0, which predicts the mean. With few channels, trees
    can learn the product of two of them. With many this is unlikely, because a split on one factor alone does not
    reduce the error.

    Parameters
    ----------
    examples : int
        Number of training examples for the model of one channel. If there are fewer samples, they are repeated with
        other channels hidden.
    trees : int
        Maximum number of trees.
    channels : sequence of int, optional
        Channels to fit. Predictions of other channels are NaN.
    """

    def __init__(self, examples: int = 10_000, trees: int = 60, channels: Sequence[int] | None = None) -> None:
        self.examples, self.trees = whole_number("examples", examples, 100), whole_number("trees", trees, 1)
        self.channels = channels
        self._models: dict[int, tuple[Any, int, IntArray]] = {}

    def _fit(self, flat: Array, rng: np.random.Generator, share: float) -> None:
        from sklearn.ensemble import HistGradientBoostingRegressor  # type: ignore[import-untyped, unused-ignore]

        chosen = range(self.channels_) if self.channels is None else self.channels
        if not set(chosen) <= set(range(self.channels_)):
            raise must_be("channels", f"numbers from 0 to {self.channels_ - 1}", list(chosen))
        self._models = {}
        for channel in chosen:
            examples = self._examples(flat, self.examples, channel, rng, share)
            x_train, x_test = (self._input(*part) for part in examples)
            inputs = np.flatnonzero(~np.isnan(x_train).all(axis=0))  # columns; excludes those of the channel itself
            for column in range(channel * self.window_, (channel + 1) * self.window_):
                model = HistGradientBoostingRegressor(max_iter=self.trees, max_bins=63, early_stopping=False)
                y_train, y_test = examples[0][0][:, column], examples[1][0][:, column]
                with one_thread():
                    steps = model.fit(x_train[:, inputs], y_train).staged_predict(x_test[:, inputs])
                    scores = [(y_test**2).mean(), *(((guess - y_test) ** 2).mean() for guess in steps)]
                self._models[column] = model, int(np.argmin(scores)), inputs

    def _guess(self, flat: Array, hidden: BoolArray) -> Array:
        guess, values = np.full(flat.shape, np.nan), self._input(flat, hidden)
        for column, (model, trees, inputs) in self._models.items():
            rows = np.flatnonzero(hidden[:, column // self.window_])
            guess[rows, column] = 0.0
            if trees and len(rows):
                with one_thread():
                    steps = model.staged_predict(values[np.ix_(rows, inputs)])
                    guess[rows, column] = next(islice(steps, trees - 1, None))
        return guess

    def _input(self, flat: Array, hidden: BoolArray) -> Array:
        return np.where(hidden.repeat(self.window_, axis=1), np.nan, flat)


def conditional_mean(covariance: Array, values: Array, hidden: BoolArray) -> Array:
    """Compute the mean of hidden values given visible ones in a Gaussian with mean 0.

    For each sample, this solves a linear system with the covariance of its visible channels. Systems of similar size
    are padded with ones on the diagonal and solved together.

    Parameters
    ----------
    covariance : ndarray, shape (n, n)
    values : ndarray, shape (b, n)
        Hidden values are not read.
    hidden : ndarray of bool, shape (b, n)

    Returns
    -------
    ndarray, shape (b, n)
        Visible values are unchanged, up to rounding.
    """
    matrix, table = torch.from_numpy(covariance), torch.from_numpy(values)
    count = torch.from_numpy((~hidden).sum(axis=1))
    order = torch.from_numpy(hidden.argsort(axis=1, kind="stable"))  # visible channels first
    weights = torch.zeros_like(table)
    rows, start = count.argsort(descending=True), 0
    while start < len(rows):
        size = max(int(count[rows[start]]), 1)
        batch = rows[start : start + max(1, 2**22 // size**2)]
        columns = order[batch, :size]  # (b, m)
        visible = torch.arange(size) < count[batch, None]
        block = matrix[columns[:, :, None], columns[:, None]]
        block = torch.where(visible[:, :, None] & visible[:, None], block, torch.eye(size, dtype=block.dtype))
        visible_values = torch.where(visible, table[batch[:, None], columns], 0.0)
        try:
            factor = torch.linalg.cholesky(block)
        except RuntimeError:
            raise BadInput(
                "ridge must be larger: visible channels determine each other, so no weights can be found."
            ) from None
        weights[batch[:, None], columns] = torch.cholesky_solve(visible_values[..., None], factor)[..., 0] * visible
        start += len(batch)
    return np.asarray((weights @ matrix).numpy())


def pca_covariance(covariance: Array, components: int) -> Array:
    """Return a covariance, (n, n), in which all principal components after the first `components` have the same
    variance: the mean of their variances."""
    squares, axes = np.linalg.eigh(covariance)  # ascending
    rest = len(squares) - components
    squares[:rest] = squares[:rest].mean()
    return np.asarray((axes * np.maximum(squares, RIDGE)) @ axes.T)


def _ridge_fits(x: Array, y: Array, penalties: Sequence[float]) -> list[tuple[Array, Array]]:
    """Fit one ridge regression of y, (T, w), on x, (T, f), for each penalty. Return a list of weights, (f, w), and
    biases, (w,), one pair per penalty. Biases are not penalized."""
    x_mean, y_mean = x.mean(axis=0), y.mean(axis=0)
    xx = x.T @ x / len(x) - x_mean[:, None] * x_mean
    xy = x.T @ y / len(x) - x_mean[:, None] * y_mean
    stack = xx + np.asarray(penalties)[:, None, None] * np.eye(len(xx))
    solutions = np.linalg.solve(stack, np.broadcast_to(xy, (len(stack), *xy.shape)))
    return [(weights, y_mean - x_mean @ weights) for weights in solutions]


def _split(flat: Array) -> tuple[Array, Array]:
    """Return the first samples, for fitting, and the last ones, a fraction `HELD_OUT`, for choosing hyperparameters."""
    split = len(flat) - round(HELD_OUT * len(flat))
    return flat[:split], flat[split:]


def _check_marks(hidden: AnyArray, shape: tuple[int, ...]) -> None:
    """Raise `BadInput` unless `hidden` is a bool array of this shape."""
    if hidden.dtype != np.bool_ or hidden.shape != shape:
        raise must_be(
            "hidden", f"true or false for each sample and channel, {shape}", (hidden.dtype.name, hidden.shape)
        )
