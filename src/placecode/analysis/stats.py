"""How sure a mean over seeds is, whether two measures go together, and what chance alone would do.

A table is (..., settings, seeds). Members of one seed share initial weights and data, whatever their setting, so the
seed is the independent unit, never the member or the puzzle: `bootstrap` and `permutation_within` move whole seeds with
all their settings. Correlations are those of ranks, because measures share no scale. NaN is a value that is missing (a
member that diverged): it is left out, together with its partners in the other arrays.

>>> interval([0.90, 0.92, 0.97])
Interval(mean=0.93, low=0.8404..., high=1.0195...)
>>> x, y = np.random.default_rng(0).normal(size=(2, 11, 15)) + np.arange(11)[:, None]  # only the setting joins x and y
>>> round(float(over_settings(x, y)), 2), round(float(within(x, y)), 2)
(1.0, -0.01)
>>> bootstrap(within, x, y)
Interval(mean=-0.005..., low=-0.2..., high=0.2...)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from placecode.errors import must_be

Array = npt.NDArray[np.float64]


LEAST_SEEDS = 8
"""For a bootstrap: with 5 seeds its 95% bounds hold a mean in 83% of cases, with 3 they are mere chance."""


class Interval(NamedTuple):
    """A mean, or another estimate, and the bounds of its confidence interval; a plain tuple (mean, low, high)."""

    mean: float
    low: float
    high: float


def interval(values: Sequence[float] | npt.NDArray[Any], level: float = 0.95) -> Interval:
    """Mean of the values and Student's t interval of that mean; NaNs (a member that diverged) are dropped.

    Student's t and not the normal, because a setting has few seeds: at 3 seeds the normal interval is less than half as
    wide as it should be. The bounds are not clipped: an accuracy's upper bound may lie above 1, and whoever draws it
    decides what to do about that. One value has a mean and NaN bounds; no value at all gives three NaNs.
    """
    kept = np.asarray(values, dtype=np.float64).ravel()
    kept = kept[~np.isnan(kept)]
    if len(kept) == 0:
        return Interval(math.nan, math.nan, math.nan)
    mean = float(kept.mean())
    half = half_width(float(kept.std(ddof=1)), len(kept), level) if len(kept) > 1 else math.nan
    return Interval(mean, mean - half, mean + half)


def half_width(std: float, n: int, level: float = 0.95) -> float:
    """Half of the interval's width, from the standard deviation (ddof 1) of n values; NaN for fewer than two.

    >>> round(half_width(1.0, 4), 3)  # t(0.975, 3 degrees of freedom) / sqrt(4)
    1.591
    """
    if n < 2:
        return math.nan
    return float(stats.t.ppf((1 + level) / 2, n - 1)) * std / math.sqrt(n)


# ---------------------------------------------------------------------------------------------------- correlations


def spearman(x: npt.ArrayLike, y: npt.ArrayLike) -> Array:
    """Spearman's rank correlation, (..., k) and (..., k) -> (...); NaN where either is constant, or with under 3 pairs.

    >>> float(spearman([1, 2, 3, np.nan], [1, 4, 9, 0]))
    1.0
    """
    return _correlation(*_together(x, y), axes=(-1,))


def partial(x: npt.ArrayLike, y: npt.ArrayLike, given: npt.ArrayLike) -> Array:
    """Rank correlation of what `given` does not explain of x and of y, (..., k) each -> (...).

    Ranks are explained by a straight line in the ranks of `given`. NaN where nothing of x or y is left (y is a function
    of `given` that only rises), or with under 4 pairs, of which two free ones remain.
    """
    return _correlation(*_together(x, y, given), axes=(-1,))


def over_settings(x: npt.ArrayLike, y: npt.ArrayLike) -> Array:
    """Do settings with a high x have a high y? Tables (..., s, k) -> (...): `spearman` of the means over seeds."""
    tables = np.stack(_together(x, y, axes=2))  # (2, ..., s, k)
    kept = ~np.isnan(tables).any(axis=0)  # (..., s, k)
    count = kept.sum(axis=-1)
    sums = np.where(kept, tables, 0.0).sum(axis=-1)  # (2, ..., s)
    means = np.divide(sums, count, out=np.full_like(sums, np.nan), where=count > 0)
    # To single precision: means of the same values must tie, whatever the order in which they were added up.
    return spearman(*means.astype(np.float32))


def within(x: npt.ArrayLike, y: npt.ArrayLike) -> Array:
    """Does the seed with the higher x have the higher y, at equal setting? Tables (..., s, k) -> (...).

    Seeds are ranked within each setting, the ranks centred there, and one correlation taken over all of them. So it is
    blind to anything that settings do to the level or the scale of x and y. With a single setting it is `spearman`. The
    s * k pairs are not independent: for its certainty ask `bootstrap` and `permutation_within`.
    """
    return _correlation(*_together(x, y, axes=2), axes=(-2, -1))


def within_given(x: npt.ArrayLike, y: npt.ArrayLike, given: npt.ArrayLike) -> Array:
    """`within`, of what `given` does not explain of x and of y, tables (..., s, k) -> (...).

    The line that explains has its own slope in each setting, so that `given` may work differently there. With a single
    setting it is `partial`. Ranks of few seeds take a strong common cause away only in part: with 15 seeds, x and y
    that each go with `given` at 0.7 to 0.8, and have nothing else in common, keep about 0.05 on average.
    """
    return _correlation(*_together(x, y, given, axes=2), axes=(-2, -1))


# ------------------------------------------------------------------------------------------------------- certainty


def spearman_interval(x: npt.ArrayLike, y: npt.ArrayLike, level: float = 0.95) -> Interval:
    """`spearman` of k independent points, (k,) and (k,), with its interval on the scale of Fisher's z.

    The standard error is that of Bonett and Wright (2000). NaN bounds for under 4 pairs, and for a perfect order, to
    which Fisher's z would give an interval of no width.
    """
    x, y = _together(x, y)
    if x.ndim != 1:
        raise must_be("x and y", "arrays with the one axis of points", x.shape)
    found, pairs = float(spearman(x, y)), int((~np.isnan(x) & ~np.isnan(y)).sum())
    if pairs < 4 or not abs(found) < 1:
        return Interval(found, math.nan, math.nan)
    z, error = math.atanh(found), math.sqrt((1 + found**2 / 2) / (pairs - 3))
    half = float(stats.norm.ppf((1 + level) / 2)) * error
    return Interval(found, math.tanh(z - half), math.tanh(z + half))


def bootstrap(
    statistic: Callable[..., Array], *tables: npt.ArrayLike, level: float = 0.95, draws: int = 2000, seed: int = 0
) -> Interval:
    """The statistic of the tables, each (..., seeds), and percentile bounds from drawing seeds anew, with replacement.

    All tables and all settings get the same seeds. `statistic` takes the tables with an axis of draws in front, and
    gives one number per draw, as `within` and `over_settings` do. NaN bounds for under 8 seeds (`LEAST_SEEDS`), where
    they would be far too narrow, or where the statistic is NaN, of the tables or of most draws; single draws without a
    value (one seed over and over) are left out.

    With 15 seeds, 95% bounds hold the truth less often than they say: for a mean of normal values in 91% of cases (use
    `interval`), for `within` in 93 to 96% at correlations up to 0.5, and in 85 to 89% at 0.8. There they lie too near
    to 0, since the ranks of few seeds understate a strong correlation (0.75 instead of 0.79).
    """
    joint = _together(*tables, alike=False)
    seen = np.all([~np.isnan(table).all(axis=tuple(range(table.ndim - 1))) for table in joint], axis=0)  # (k,)
    joint = [table[..., seen] for table in joint]  # a seed without any value is none that could be drawn
    found = float(statistic(*(table[None] for table in joint))[0])
    k = int(seen.sum())
    if k < LEAST_SEEDS or math.isnan(found):
        return Interval(found, math.nan, math.nan)
    drawn = np.random.default_rng(seed).integers(k, size=(draws, k))
    if statistic in (within, within_given) and {table.ndim for table in joint} == {2}:
        values = _of_ranks(*_redrawn_ranks(np.stack(joint), drawn), axes=(-2, -1))
    else:
        values = statistic(*(_at(table, drawn) for table in joint))  # (draws,)
    values = values[~np.isnan(values)]
    if len(values) < draws / 2:
        return Interval(found, math.nan, math.nan)
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Interval(found, float(low), float(high))


# ---------------------------------------------------------------------------------------------------------- chance


def paired_permutation(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Two-sided p of the mean difference of pairs, (k,) and (k,), were the two of each pair exchanged by chance.

    Exact, over all 2^k exchanges, up to 16 pairs; else from 20,000 of them. So k pairs reach no p below 2 / 2^k. NaN
    without any pair, or where a difference is infinite.
    """
    a, b = _together(a, b)
    if a.ndim != 1:
        raise must_be("a and b", "arrays with the one axis of seeds", a.shape)
    with np.errstate(invalid="ignore"):  # inf - inf
        difference = (a - b)[~np.isnan(a) & ~np.isnan(b)]
    k = len(difference)
    if k == 0 or not np.isfinite(difference).all():
        return math.nan
    if k <= 16:
        signs = 1.0 - 2 * ((np.arange(2**k)[:, None] >> np.arange(k)) & 1)  # (2^k, k)
    else:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(20_000, k))
        signs[0] = 1  # what was seen is one of the possible cases
    sums = np.abs(signs @ difference)
    return float(np.mean(sums >= sums[0] - 1e-12 * np.abs(difference).sum()))


def permutation_within(
    x: npt.ArrayLike, y: npt.ArrayLike, given: npt.ArrayLike | None = None, draws: int = 2000, seed: int = 0
) -> float:
    """Two-sided p of `within`, or `within_given`, were the seeds of x (and of `given`) dealt out anew; tables (s, k).

    Seeds keep their values in all settings, so what a seed does to all of them is no evidence by itself. With a `given`
    that drives both strongly, chance brings p below 0.05 in about 10% of cases, for the reason in `within_given`.
    NaN where the correlation is.
    """
    tables = _together(x, y, *([] if given is None else [given]), axes=2)
    if tables[0].ndim != 2:
        raise must_be("x and y", "tables (settings, seeds)", tables[0].shape)
    joint = np.stack(tables)
    k = joint.shape[-1]
    dealt = np.random.default_rng(seed).permuted(np.tile(np.arange(k), (draws, 1)), axis=1)  # (draws, k)
    dealt = np.concatenate([np.arange(k)[None], dealt])  # what was seen is one of the possible cases
    ranks, weights = _ranks(joint)
    gaps = bool(np.isnan(joint).any())  # without any, ranks are dealt out as the values are
    table = joint if gaps else ranks
    moved = np.moveaxis(_at(table, dealt), 1, 0)
    moved[1] = table[1]
    values = np.abs(_of_ranks(*(_ranks(moved) if gaps else (moved, weights)), axes=(-2, -1)))
    if np.isnan(values[0]):
        return math.nan
    return float(np.mean(values[~np.isnan(values)] >= values[0] - 1e-9))


def fdr(p: npt.ArrayLike) -> Array:
    """p values of any shape, adjusted by Benjamini and Hochberg for all of them together; NaNs stay, and count as none.

    >>> fdr([0.01, np.nan, 0.04, 0.02])
    array([0.03,  nan, 0.04, 0.03])
    """
    values = np.asarray(p, dtype=np.float64)
    kept = ~np.isnan(values)
    if not ((values[kept] >= 0) & (values[kept] <= 1)).all():
        raise must_be("p", "values from 0 to 1", p)
    adjusted = np.full(values.shape, np.nan)
    adjusted[kept] = stats.false_discovery_control(values[kept])
    return adjusted


# -------------------------------------------------------------------------------------------------------- in common


def _together(*arrays: npt.ArrayLike, axes: int = 1, alike: bool = True) -> list[Array]:
    """The arrays in double precision, with equal sizes of their last axes; `alike`: broadcast to a common shape."""
    doubles = [np.asarray(array, dtype=np.float64) for array in arrays]
    shapes = [array.shape for array in doubles]
    if min(map(len, shapes)) < axes or len({shape[-axes:] for shape in shapes}) > 1:
        named = "(settings, seeds)" if axes == 2 else "seeds or points"
        raise must_be("all arrays", f"of one size in their last axes, {named}", shapes)
    return list(np.broadcast_arrays(*doubles)) if alike else doubles


def _correlation(x: Array, y: Array, *given: Array, axes: tuple[int, ...]) -> Array:
    """Correlation over `axes` of the ranks along the last one; with `given`, of what its ranks there do not explain."""
    return _of_ranks(*_ranks(np.stack([x, y, *given])), axes)


def _ranks(joint: Array) -> tuple[Array, Array]:
    """Ranks along the last axis, centred, (t, ..., k), 0 where one of the t tables has none; and where all have one."""
    kept = np.asarray(~np.isnan(joint).any(axis=0))  # (..., k)
    count = kept.sum(axis=-1, keepdims=True)
    ranks = stats.rankdata(np.where(kept, joint, np.nan), axis=-1, nan_policy="omit") - (count + 1) / 2
    return np.nan_to_num(ranks), np.asarray(kept, dtype=np.float64)


def _redrawn_ranks(joint: Array, drawn: npt.NDArray[np.int64]) -> tuple[Array, Array]:
    """As `_ranks`, of tables (t, s, k) whose seeds are drawn anew, a row of indices for each draw: (t, draws, s, k),
    and how often each was drawn, (draws, s, k). A centred rank is half of how many are below less how many above, so
    that draws need no sorting: those that were drawn are counted."""
    kept = np.asarray(~np.isnan(joint).any(axis=0))
    often = (drawn[:, :, None] == np.arange(joint.shape[-1])).sum(axis=1).astype(np.float64)  # (draws, k)
    with np.errstate(invalid="ignore"):  # inf - inf
        above = np.sign(joint[..., :, None] - joint[..., None, :])  # (t, s, k, k)
    above = np.where(kept[..., :, None] & kept[..., None, :], np.nan_to_num(above), 0.0)
    return np.moveaxis(above @ often.T, -1, 1) / 2, often[:, None] * kept


def _of_ranks(ranks: Array, weights: Array, axes: tuple[int, ...]) -> Array:
    """Correlation of the first two of the tables of centred ranks, each rank counted as often as its weight says."""
    x, y, *lines = ranks
    for line in lines:
        size = (weights * line**2).sum(axis=-1, keepdims=True)
        unit = line / np.sqrt(np.where(size > 0, size, 1.0))
        x, y = (own - unit * (weights * unit * own).sum(axis=-1, keepdims=True) for own in (x, y))
    free = np.maximum(weights.sum(axis=-1, keepdims=True) - 1 - len(lines), 0).sum(axis=axes)
    xx, xy, yy = ((weights * a * b).sum(axis=axes) for a, b in ((x, x), (x, y), (y, y)))
    sound = (free >= 2) & (np.minimum(xx, yy) > 1e-12)  # two points always lie on a line; rounding is no variation
    found = xy / np.sqrt(np.where(sound, xx * yy, 1.0))
    return np.where(sound, np.clip(found, -1.0, 1.0), np.nan)


def _at(table: Array, index: npt.NDArray[np.int64]) -> Array:
    """The table at other seeds, once per row of the index, (..., k) and (draws, k) -> (draws, ..., k)."""
    return np.moveaxis(table[..., index], -2, 0)
