"""What hidden channels can be told from visible ones without a transformer: predictors to hold a model's error against.

A predictor is fitted on training values (T, n), or (T, n, w) where a channel has a window of w values, and asked like a
model in masked prediction: values (b, n) or (b, n, w) and which of the channels are hidden, (b, n). It never looks at
what is hidden, gives what is visible back as it is, and `mse` counts as the task does.

| predictor | what it can know |
|---|---|
| `Linear` | the best linear guess from the training covariance, another one for every set of hidden channels |
| `Pca` | the same through a few components: better where samples are few |
| `Ridge` | one linear map of the model's own input, whatever is hidden |
| `Trees` | what is not linear, as far as boosted trees find it |

>>> values = np.random.default_rng(0).normal(size=(1000, 1)) + [[0.0, 0.1, 0.2]]  # three channels, moving as one
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
from placecode.errors import BadInput, must_be
from placecode.validation import whole_number

Array = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]
Seed = int | np.random.Generator

RIDGE = 1e-6
"""Added to the variances of standardized channels: keeps equations solvable where channels move as one."""
PENALTIES = tuple(np.geomspace(1e-4, 10.0, 6))
"""Of `Ridge`, as multiples of a standardized channel's variance."""
ASKED = 100_000
"""Values in the questions asked of held-out samples to choose the number of components, visible ones counted in."""


def errors(predictions: npt.ArrayLike, values: npt.ArrayLike, hidden: npt.ArrayLike) -> Array:
    """Mean squared error over the hidden channels of each question, (b, n) or (b, n, w) twice and (b, n) -> (b,).

    NaN for a question that hides nothing.
    """
    guess, true, marks = np.asarray(predictions, float), np.asarray(values, float), np.asarray(hidden)
    if guess.shape != true.shape or true.ndim not in (2, 3):
        raise must_be("predictions", f"an array of the shape of values, {true.shape}", guess.shape)
    _must_mark(marks, true.shape[:2])
    squares = ((guess - true) ** 2).reshape(*marks.shape, -1).mean(axis=-1)  # (b, n)
    count = marks.sum(axis=1)
    return np.asarray(np.where(marks, squares, 0.0).sum(axis=1) / np.where(count == 0, np.nan, count))


def mse(predictions: npt.ArrayLike, values: npt.ArrayLike, hidden: npt.ArrayLike) -> float:
    """Mean of `errors` over the questions that hide anything: every question counts alike, as in the task's metric."""
    asked = np.asarray(hidden).any(axis=-1)
    if not asked.any():
        raise BadInput("hidden must hide at least one channel of one question; nothing is asked.")
    return float(errors(predictions, values, hidden)[asked].mean())


def hide(questions: int, channels: int, share: float, seed: Seed = 0, always: int | None = None) -> Marks:
    """Which channels are hidden in random questions, (questions, channels): in each as many as the task would hide.

    With `always`, that channel is among them.
    """
    if not 0 < share < 1:
        raise must_be("share", "a number above 0 and below 1", share)
    count = min(max(1, round(share * channels)), channels - 1)
    dice = np.random.default_rng(seed).random((questions, channels))
    if always is not None:
        dice[:, always] = -1.0
    return np.asarray(dice.argsort(axis=1).argsort(axis=1) < count)


class Predictor(ABC):
    """Base class: checks what comes in, and lets the others work on standardized values, hidden ones as 0, their mean.

    Subclasses write `_fit` and `_guess` on flat values (b, n * w), channel by channel.
    """

    channels_: int
    window_: int

    def fit(self, values: npt.ArrayLike, seed: Seed = 0, share: float = 0.5) -> Self:
        """Learn from training samples in order of time: what has to be chosen is chosen on the last fifth of them.

        Where it learns from questions, they are drawn from `seed` and hide the `share` of the channels at which the
        model it is held against was trained. `Linear` needs neither.
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
        """Values with guesses in place of what is hidden, of the shape of `values`; nothing that is hidden is read."""
        if not hasattr(self, "_mean"):
            raise BadInput(f"a predictor must be fitted before it is asked; {type(self).__name__} is not.")
        given, marks = np.asarray(values, dtype=np.float64), np.asarray(hidden)
        wanted = (self.channels_,) if given.ndim == 2 else (self.channels_, self.window_)
        if given.ndim not in (2, 3) or given.shape[1:] != wanted or (given.ndim == 2 and self.window_ > 1):
            fitted = f"{self.channels_} channels" + (f" with windows of {self.window_}" if self.window_ > 1 else "")
            raise must_be("values", f"questions about {fitted}", given.shape)
        _must_mark(marks, given.shape[:2])
        flat, unseen = given.reshape(len(given), -1), marks.repeat(self.window_, axis=1)
        if not np.isfinite(flat[~unseen]).all():
            raise BadInput("values must be finite where they are visible; NaN or infinity is among them.")
        guess = self._guess(np.where(unseen, 0.0, (flat - self._mean) / self._scale), marks)
        return np.asarray(np.where(unseen, guess * self._scale + self._mean, flat).reshape(given.shape))

    def _questions(
        self, flat: Array, count: int, channel: int, rng: np.random.Generator, share: float
    ) -> list[tuple[Array, Marks]]:
        """Values and marks of random questions that hide a channel, to fit and to choose by, `count` in all.

        Samples come in random order, each of them once before any is drawn again.
        """
        asked = []
        for part, size in zip(_parts(flat), (1 - HELD_OUT, HELD_OUT), strict=True):
            drawn = np.resize(rng.permutation(len(part)), round(size * count))
            asked.append((part[drawn], hide(len(drawn), self.channels_, share, rng, channel)))
        return asked

    @abstractmethod
    def _fit(self, flat: Array, rng: np.random.Generator, share: float) -> None: ...

    @abstractmethod
    def _guess(self, flat: Array, hidden: Marks) -> Array: ...


class _Gaussian(Predictor):
    """Guesses the mean of what is hidden given what is visible, in a Gaussian of mean 0 and a covariance."""

    _covariance: Array

    def _guess(self, flat: Array, hidden: Marks) -> Array:
        return conditional_mean(self._covariance, flat, hidden.repeat(self.window_, axis=1))


class Linear(_Gaussian):
    """The best linear guess: the mean of what is hidden given the visible, in a Gaussian of the training covariance.

    No linear predictor that knows the covariance does better, and where the data are Gaussian none at all. It knows the
    covariance only from its samples: with few for the channels (fMRI), `Pca` may do better.
    """

    def __init__(self, ridge: float = RIDGE) -> None:
        if not ridge >= 0:
            raise must_be("ridge", "a number of at least 0", ridge)
        self.ridge = ridge

    def _fit(self, flat: Array, rng: np.random.Generator, share: float) -> None:
        self._covariance = flat.T @ flat / len(flat) + self.ridge * np.eye(flat.shape[1])


class Pca(_Gaussian):
    """As `Linear`, in a Gaussian of k components and equal noise beside them (probabilistic PCA).

    The covariance keeps its k widest axes, and all others get their mean variance (Tipping and Bishop, 1999). Without a
    number, k is the one of a rising row that does best on held-out samples.
    """

    def __init__(self, components: int | None = None) -> None:
        self.components = None if components is None else whole_number("components", components, 1)
        self.components_ = components or 0

    def _fit(self, flat: Array, rng: np.random.Generator, share: float) -> None:
        most = flat.shape[1] - 1
        if self.components is None:
            early, late = _parts(flat)
            asked = rng.permutation(late)[: max(ASKED // flat.shape[1], 1)]
            unseen = hide(len(asked), self.channels_, share, rng).repeat(self.window_, axis=1)
            row = sorted({round(k) for k in np.geomspace(1, most, 12)})
            missed = []
            for k in row:
                guess = conditional_mean(
                    few_axes(early.T @ early / len(early), k), np.where(unseen, 0.0, asked), unseen
                )
                missed.append(mse(guess, asked, unseen))
            self.components_ = row[int(np.argmin(missed))]
        self._covariance = few_axes(flat.T @ flat / len(flat), whole_number("components", self.components_, 1, most))


class Ridge(Predictor):
    """One linear map of what a model sees, the values with zeros where hidden and the marks of what is hidden.

    For each channel it is the map with the smallest squared error over the random questions that hide the channel, with
    a penalty on its weights chosen on held-out ones. Unlike `Linear` it cannot weigh a channel by which others are
    visible, and it is best at the share of hidden channels that it was fitted at. `examples` are the questions for each
    channel, samples drawn again with others hidden where there are too few.
    """

    def __init__(self, examples: int = 10_000) -> None:
        self.examples = whole_number("examples", examples, 100)

    def _fit(self, flat: Array, rng: np.random.Generator, share: float) -> None:
        width, w = flat.shape[1], self.window_
        self._weights, self._bias = np.zeros((width + self.channels_, width)), np.zeros(width)
        for channel in range(self.channels_):
            at = slice(channel * w, (channel + 1) * w)
            asked = self._questions(flat, self.examples, channel, rng, share)
            own, held = ((self._input(values, hidden), values[:, at]) for values, hidden in asked)
            with one_thread():
                maps = _maps(*own, PENALTIES)
                best = int(np.argmin([((held[0] @ weights + bias - held[1]) ** 2).mean() for weights, bias in maps]))
                x, y = (np.concatenate(pair) for pair in zip(own, held, strict=True))
                [(self._weights[:, at], self._bias[at])] = _maps(x, y, PENALTIES[best : best + 1])

    def _guess(self, flat: Array, hidden: Marks) -> Array:
        return np.asarray(self._input(flat, hidden) @ self._weights + self._bias)

    def _input(self, flat: Array, hidden: Marks) -> Array:
        return np.concatenate([np.where(hidden.repeat(self.window_, axis=1), 0.0, flat), hidden], axis=1)


class Trees(Predictor):
    """Gradient-boosted trees for each channel, which see hidden values as missing (scikit-learn's histogram ones).

    They learn from `examples` random questions that hide the channel, samples drawn again where there are too few, and
    keep as many of at most `trees` trees as do best on held-out samples; none, and the channel's mean, where the first
    one does harm. They find a product of two among a few channels; since the first split of a product gains nothing,
    among many it is found by luck alone. With `channels` only those are fitted, and the others are guessed as NaN.
    """

    def __init__(self, examples: int = 10_000, trees: int = 60, channels: Sequence[int] | None = None) -> None:
        self.examples, self.trees = whole_number("examples", examples, 100), whole_number("trees", trees, 1)
        self.channels = channels
        self._models: dict[int, tuple[Any, int, npt.NDArray[np.int64]]] = {}

    def _fit(self, flat: Array, rng: np.random.Generator, share: float) -> None:
        from sklearn.ensemble import HistGradientBoostingRegressor  # type: ignore[import-untyped, unused-ignore]

        chosen = range(self.channels_) if self.channels is None else self.channels
        if not set(chosen) <= set(range(self.channels_)):
            raise must_be("channels", f"numbers from 0 to {self.channels_ - 1}", list(chosen))
        self._models = {}
        for channel in chosen:
            asked = self._questions(flat, self.examples, channel, rng, share)
            own, held = (self._input(*each) for each in asked)
            known = np.flatnonzero(~np.isnan(own).all(axis=0))  # never the channel itself
            for column in range(channel * self.window_, (channel + 1) * self.window_):
                model = HistGradientBoostingRegressor(max_iter=self.trees, max_bins=63, early_stopping=False)
                start, true = asked[0][0][:, column], asked[1][0][:, column]
                with one_thread():
                    steps = model.fit(own[:, known], start).staged_predict(held[:, known])
                    missed = [(true**2).mean(), *(((guess - true) ** 2).mean() for guess in steps)]
                self._models[column] = model, int(np.argmin(missed)), known

    def _guess(self, flat: Array, hidden: Marks) -> Array:
        guess, inputs = np.full(flat.shape, np.nan), self._input(flat, hidden)
        for column, (model, trees, known) in self._models.items():
            rows = np.flatnonzero(hidden[:, column // self.window_])
            guess[rows, column] = 0.0
            if trees and len(rows):
                with one_thread():
                    steps = model.staged_predict(inputs[np.ix_(rows, known)])
                    guess[rows, column] = next(islice(steps, trees - 1, None))
        return guess

    def _input(self, flat: Array, hidden: Marks) -> Array:
        return np.where(hidden.repeat(self.window_, axis=1), np.nan, flat)


# ------------------------------------------------------------------------------------------------------ the numbers


def conditional_mean(covariance: Array, values: Array, hidden: Marks) -> Array:
    """Mean of the hidden values given the visible ones, (n, n), (b, n) and (b, n) -> (b, n), in a Gaussian of mean 0.

    The visible block of the covariance is another one for each question: those of like size, padded with ones on the
    diagonal to the same one, are factorized together.
    """
    whole, given = torch.from_numpy(covariance), torch.from_numpy(values)
    count = torch.from_numpy((~hidden).sum(axis=1))
    order = torch.from_numpy(hidden.argsort(axis=1, kind="stable"))  # visible ones first
    weights = torch.zeros_like(given)
    rows, at = count.argsort(descending=True), 0
    while at < len(rows):
        size = max(int(count[rows[at]]), 1)
        some = rows[at : at + max(1, 2**22 // size**2)]
        places = order[some, :size]  # (b, m)
        visible = torch.arange(size) < count[some, None]
        block = whole[places[:, :, None], places[:, None]]
        block = torch.where(visible[:, :, None] & visible[:, None], block, torch.eye(size, dtype=block.dtype))
        seen = torch.where(visible, given[some[:, None], places], 0.0)
        try:
            factor = torch.linalg.cholesky(block)
        except RuntimeError:
            raise BadInput(
                "ridge must be larger: visible channels determine each other, so no weights can be found."
            ) from None
        weights[some[:, None], places] = torch.cholesky_solve(seen[..., None], factor)[..., 0] * visible
        at += len(some)
    return np.asarray((weights @ whole).numpy())


def few_axes(covariance: Array, components: int) -> Array:
    """A covariance whose axes beyond the widest ones share their mean variance, (n, n) -> (n, n)."""
    squares, axes = np.linalg.eigh(covariance)  # rising
    rest = len(squares) - components
    squares[:rest] = squares[:rest].mean()
    return np.asarray((axes * np.maximum(squares, RIDGE)) @ axes.T)


def _maps(x: Array, y: Array, penalties: Sequence[float]) -> list[tuple[Array, Array]]:
    """Ridge regressions of y on x, one for each penalty: weights (f, w) and biases (w,), which are not penalized."""
    middle, level = x.mean(axis=0), y.mean(axis=0)
    products = x.T @ x / len(x) - middle[:, None] * middle
    both = x.T @ y / len(x) - middle[:, None] * level
    stack = products + np.asarray(penalties)[:, None, None] * np.eye(len(products))
    weights = np.linalg.solve(stack, np.broadcast_to(both, (len(stack), *both.shape)))
    return [(each, level - middle @ each) for each in weights]


def _parts(flat: Array) -> tuple[Array, Array]:
    """The samples to fit, and the last ones, held out to choose by."""
    split = len(flat) - round(HELD_OUT * len(flat))
    return flat[:split], flat[split:]


def _must_mark(hidden: npt.NDArray[Any], shape: tuple[int, ...]) -> None:
    if hidden.dtype != np.bool_ or hidden.shape != shape:
        raise must_be(
            "hidden", f"true or false for each question and channel, {shape}", (hidden.dtype.name, hidden.shape)
        )
