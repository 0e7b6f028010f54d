"""How sure a mean over seeds is.

>>> interval([0.90, 0.92, 0.97])
Interval(mean=0.93, low=0.8404..., high=1.0195...)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats


class Interval(NamedTuple):
    """A mean and the bounds of its confidence interval; a plain tuple (mean, low, high)."""

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
