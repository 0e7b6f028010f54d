"""Statistics over seeds: confidence intervals, rank correlations of two measures, and permutation tests.

A table of a measure has shape (..., settings, seeds): one value per trained model, for each setting of the swept fields
and each seed. Models with the same seed share initial weights and data, so seeds are the independent units, not models
or examples. `bootstrap` resamples whole seeds, with all their settings, and `within_permutation_p` permutes them.
Correlations are rank correlations, because measures have different scales. NaN marks a missing value (a member that
diverged). It is left out, together with the paired values in other arrays.

>>> interval([0.90, 0.92, 0.97])
Interval(mean=0.93, low=0.8404..., high=1.0195...)
>>> x, y = np.random.default_rng(0).normal(size=(2, 11, 15)) + np.arange(11)[:, None]  # related by the setting only
>>> round(float(between_correlation(x, y)), 2), round(float(within_correlation(x, y)), 2)
(1.0, -0.01)
>>> bootstrap(within_correlation, x, y)
Interval(mean=-0.005..., low=-0.2..., high=0.2...)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from placecode.arrays import Array, IntArray
from placecode.errors import must_be

MIN_SEEDS = 8
"""Smallest number of seeds for `bootstrap`. With 5 seeds, a 95% interval contains the mean in only 83% of cases."""


class Interval(NamedTuple):
    """A mean or another estimate, and the lower and upper bound of its confidence interval: (mean, low, high)."""

    mean: float
    low: float
    high: float


def interval(values: npt.ArrayLike, level: float = 0.95) -> Interval:
    """Compute the mean and its Student's t confidence interval.

    Bounds are not clipped, so the upper bound of an accuracy may be above 1.

    Parameters
    ----------
    values : array-like of float
        NaNs are left out.
    level : float
        Confidence level.

    Returns
    -------
    Interval
        Bounds are NaN for a single value. Mean and bounds are NaN if there is no value.
    """
    present = np.asarray(values, dtype=np.float64).ravel()
    present = present[~np.isnan(present)]
    if len(present) == 0:
        return Interval(math.nan, math.nan, math.nan)
    mean = float(present.mean())
    half = half_width(float(present.std(ddof=1)), len(present), level) if len(present) > 1 else math.nan
    return Interval(mean, mean - half, mean + half)


def half_width(std: float, n: int, level: float = 0.95) -> float:
    """Return half the width of Student's t confidence interval of a mean.

    Parameters
    ----------
    std : float
        Standard deviation of the values (ddof=1).
    n : int
        Number of values.
    level : float
        Confidence level.

    Returns
    -------
    float
        NaN for fewer than two values.

    Examples
    --------
    >>> round(half_width(1.0, 4), 3)  # t(0.975, 3 degrees of freedom) / sqrt(4)
    1.591
    """
    if n < 2:
        return math.nan
    return float(stats.t.ppf((1 + level) / 2, n - 1)) * std / math.sqrt(n)


def spearman(x: npt.ArrayLike, y: npt.ArrayLike) -> Array:
    """Compute Spearman's rank correlation along the last axis, (..., k) and (..., k) -> (...).

    The result is NaN if one array is constant, or with fewer than 3 pairs.

    >>> float(spearman([1, 2, 3, np.nan], [1, 4, 9, 0]))
    1.0
    """
    return _correlation(*_checked(x, y), axes=(-1,))


def between_correlation(x: npt.ArrayLike, y: npt.ArrayLike) -> Array:
    """Average two measures over seeds, and correlate the means across settings.

    Parameters
    ----------
    x, y : array-like, shape (..., settings, seeds)
        One value per model. A setting is a value of the swept fields, such as sigma = 0.2.

    Returns
    -------
    ndarray, shape (...)
        Spearman's correlation. NaN if the means do not vary, or for fewer than 3 settings.
    """
    tables = np.stack(_checked(x, y, axes=2))  # (2, ..., s, k)
    present = ~np.isnan(tables).any(axis=0)  # (..., s, k)
    count = present.sum(axis=-1)
    sums = np.where(present, tables, 0.0).sum(axis=-1)  # (2, ..., s)
    means = np.divide(sums, count, out=np.full_like(sums, np.nan), where=count > 0)
    # single precision, so that means of the same values are ties even if summed in another order
    return spearman(*means.astype(np.float32))


def within_correlation(x: npt.ArrayLike, y: npt.ArrayLike) -> Array:
    """Correlate two measures across seeds within settings.

    Seeds are ranked within each setting, ranks are centred in each setting, and one correlation is computed over all
    settings. Effects of a setting on the level or scale of x and y therefore do not matter. With a single setting, the
    result is `spearman`. The pairs are not independent, so use `bootstrap` and `within_permutation_p` for inference.

    Parameters
    ----------
    x, y : array-like, shape (..., settings, seeds)
        One value per model. A setting is a value of the swept fields, such as sigma = 0.2.

    Returns
    -------
    ndarray, shape (...)
        NaN if ranks of x or y do not vary, or if there are too few seeds.
    """
    return _correlation(*_checked(x, y, axes=2), axes=(-2, -1))


def partial_within_correlation(x: npt.ArrayLike, y: npt.ArrayLike, given: npt.ArrayLike) -> Array:
    """Compute `within_correlation` of two measures, controlling for a third measure, `given`.

    The regression on the ranks of `given` has a separate slope in each setting. With a single setting, the result is
    the partial rank correlation. With few seeds, ranks remove a strong common cause only in part. For example, if x and
    y are related only by `given`, with correlations of 0.7 to 0.8, about 0.05 remains with 15 seeds.

    Parameters
    ----------
    x, y, given : array-like, shape (..., settings, seeds)
        One value per model, as in `within_correlation`.

    Returns
    -------
    ndarray, shape (...)
        NaN if ranks do not vary after the regression, or if there are too few seeds.
    """
    return _correlation(*_checked(x, y, given, axes=2), axes=(-2, -1))


def bootstrap(
    statistic: Callable[..., Array], *tables: npt.ArrayLike, level: float = 0.95, draws: int = 2000, seed: int = 0
) -> Interval:
    """Compute a statistic and its percentile bootstrap interval over seeds.

    All tables and settings use the same resampled seeds.

    Parameters
    ----------
    statistic : callable
        Function, such as `within_correlation`, that takes tables with an additional first axis, the bootstrap samples,
        and returns one number per sample.
    *tables : array-like, shape (..., seeds)
        The arguments of `statistic`, without the axis of bootstrap samples.
    level : float
        Confidence level.
    draws : int
        Number of bootstrap samples. Samples with a statistic of NaN are left out.
    seed : int

    Returns
    -------
    Interval
        The estimate is the statistic of the tables. Bounds are NaN for fewer than `MIN_SEEDS` seeds, or if the
        statistic is NaN for the tables or for more than half of the samples.

    Notes
    -----
    With 15 seeds, the actual coverage of 95% intervals is 91% for the mean of normal values (use `interval` there), 93
    to 96% for `within_correlation` at correlations up to 0.5, and 85 to 89% at a correlation of 0.8. At 0.8, intervals
    are biased towards 0, because ranks of few seeds underestimate strong correlations (0.75 instead of 0.79).
    """
    joint = _checked(*tables, alike=False)
    present = np.all([~np.isnan(table).all(axis=tuple(range(table.ndim - 1))) for table in joint], axis=0)  # (k,)
    joint = [table[..., present] for table in joint]  # seeds without any value are not resampled
    estimate = float(statistic(*(table[None] for table in joint))[0])
    k = int(present.sum())
    if k < MIN_SEEDS or math.isnan(estimate):
        return Interval(estimate, math.nan, math.nan)
    drawn = np.random.default_rng(seed).integers(k, size=(draws, k))
    if statistic in (within_correlation, partial_within_correlation) and {table.ndim for table in joint} == {2}:
        values = _rank_correlation(*_resampled_ranks(np.stack(joint), drawn), axes=(-2, -1))
    else:
        values = statistic(*(_resampled(table, drawn) for table in joint))  # (draws,)
    values = values[~np.isnan(values)]
    if len(values) < draws / 2:
        return Interval(estimate, math.nan, math.nan)
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, float(low), float(high))


def within_permutation_p(
    x: npt.ArrayLike, y: npt.ArrayLike, given: npt.ArrayLike | None = None, draws: int = 2000, seed: int = 0
) -> float:
    """Return the two-sided p value of `within_correlation`, or of `partial_within_correlation` if `given` is set.

    The null distribution comes from random permutations of the seeds of x and `given`, while those of y stay in place.
    The same permutation is applied in all settings, so effects of a seed that are common to all settings are accounted
    for. If `given` strongly affects both measures, p values are too small: about 10% of the tests have p < 0.05 under
    the null hypothesis, because a correlation remains (see `partial_within_correlation`).

    Parameters
    ----------
    x, y : array-like, shape (settings, seeds)
        One value per model, as in `within_correlation`.
    given : array-like, shape (settings, seeds), optional
        Measure to control for.
    draws : int
        Number of permutations.
    seed : int

    Returns
    -------
    float
        NaN if the correlation is NaN.
    """
    tables = _checked(x, y, *([] if given is None else [given]), axes=2)
    if tables[0].ndim != 2:
        raise must_be("x and y", "tables (settings, seeds)", tables[0].shape)
    joint = np.stack(tables)
    k = joint.shape[-1]
    orders = np.random.default_rng(seed).permuted(np.tile(np.arange(k), (draws, 1)), axis=1)  # (draws, k)
    orders = np.concatenate([np.arange(k)[None], orders])  # include the observed data
    ranks, weights = _ranks(joint)
    missing = bool(np.isnan(joint).any())  # without missing values, ranks can be permuted instead of values
    table = joint if missing else ranks
    permuted = np.moveaxis(_resampled(table, orders), 1, 0)
    permuted[1] = table[1]
    values = np.abs(_rank_correlation(*(_ranks(permuted) if missing else (permuted, weights)), axes=(-2, -1)))
    if np.isnan(values[0]):
        return math.nan
    return float(np.mean(values[~np.isnan(values)] >= values[0] - 1e-9))


def fdr(p: npt.ArrayLike) -> Array:
    """Return p values of any shape adjusted for multiple testing by the Benjamini-Hochberg procedure.

    NaNs stay NaN and do not count as tests.

    >>> fdr([0.01, np.nan, 0.04, 0.02])
    array([0.03,  nan, 0.04, 0.03])
    """
    values = np.asarray(p, dtype=np.float64)
    present = ~np.isnan(values)
    if not ((values[present] >= 0) & (values[present] <= 1)).all():
        raise must_be("p", "values from 0 to 1", p)
    adjusted = np.full(values.shape, np.nan)
    adjusted[present] = stats.false_discovery_control(values[present])
    return adjusted


def _checked(*arrays: npt.ArrayLike, axes: int = 1, alike: bool = True) -> list[Array]:
    """Return arrays as float64 after a check that their last `axes` axes have equal sizes. If `alike`, the arrays are
    also broadcast to one shape."""
    doubles = [np.asarray(array, dtype=np.float64) for array in arrays]
    shapes = [array.shape for array in doubles]
    if min(map(len, shapes)) < axes or len({shape[-axes:] for shape in shapes}) > 1:
        axis_names = "(settings, seeds)" if axes == 2 else "seeds or points"
        raise must_be("all arrays", f"of one size in their last axes, {axis_names}", shapes)
    return list(np.broadcast_arrays(*doubles)) if alike else doubles


def _correlation(x: Array, y: Array, *given: Array, axes: tuple[int, ...]) -> Array:
    """Rank x, y and each of `given` along the last axis. Return the correlation of the ranks of x and y over `axes`,
    controlling for the ranks of `given`."""
    return _rank_correlation(*_ranks(np.stack([x, y, *given])), axes)


def _ranks(joint: Array) -> tuple[Array, Array]:
    """Rank t tables along the last axis. Return centred ranks, (t, ..., k), and weights of the values, (..., k). A
    weight is 0 if the value is missing in any of the tables, else 1."""
    present = np.asarray(~np.isnan(joint).any(axis=0))  # (..., k)
    count = present.sum(axis=-1, keepdims=True)
    ranks = stats.rankdata(np.where(present, joint, np.nan), axis=-1, nan_policy="omit") - (count + 1) / 2
    return np.nan_to_num(ranks), np.asarray(present, dtype=np.float64)


def _resampled_ranks(joint: Array, drawn: IntArray) -> tuple[Array, Array]:
    """Return ranks of the values in t tables of s settings and k seeds, (t, s, k), and weights, for bootstrap samples.

    `drawn`, (draws, k), has the seeds of each bootstrap sample. Ranks, (t, draws, s, k), compare a value with all
    values of its setting in the sample, and are centred: (number of smaller values - number of larger values) / 2.
    Weights, (draws, s, k), count how often a seed is in the sample; they are 0 where a value is missing in any table.
    """
    present = np.asarray(~np.isnan(joint).any(axis=0))
    counts = (drawn[:, :, None] == np.arange(joint.shape[-1])).sum(axis=1).astype(np.float64)  # (draws, k)
    with np.errstate(invalid="ignore"):  # inf - inf
        above = np.sign(joint[..., :, None] - joint[..., None, :])  # (t, s, k, k)
    above = np.where(present[..., :, None] & present[..., None, :], np.nan_to_num(above), 0.0)
    return np.moveaxis(above @ counts.T, -1, 1) / 2, counts[:, None] * present


def _rank_correlation(ranks: Array, weights: Array, axes: tuple[int, ...]) -> Array:
    """Return the correlation over `axes` of the first two of t tables of ranks, controlling for the other tables.

    `ranks` has shape (t, ..., k), and `weights` of the values (..., k). The result is NaN if the ranks of x or y do not
    vary after the regression on the other tables, or if there are too few values.
    """
    x, y, *controls = ranks
    for control in controls:
        size = (weights * control**2).sum(axis=-1, keepdims=True)
        unit = control / np.sqrt(np.where(size > 0, size, 1.0))
        x, y = (values - unit * (weights * unit * values).sum(axis=-1, keepdims=True) for values in (x, y))
    freedom = np.maximum(weights.sum(axis=-1, keepdims=True) - 1 - len(controls), 0).sum(axis=axes)
    xx, xy, yy = ((weights * a * b).sum(axis=axes) for a, b in ((x, x), (x, y), (y, y)))
    defined = (freedom >= 2) & (np.minimum(xx, yy) > 1e-12)  # two points are always on a line; 1e-12 ignores rounding
    value = xy / np.sqrt(np.where(defined, xx * yy, 1.0))
    return np.where(defined, np.clip(value, -1.0, 1.0), np.nan)


def _resampled(table: Array, index: IntArray) -> Array:
    """Return copies of `table`, (..., seeds), with resampled seeds, (draws, ..., k).

    Row i of `index`, (draws, k), lists the seeds of copy i.
    """
    return np.moveaxis(table[..., index], -2, 0)
