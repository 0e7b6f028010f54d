"""Intervals against scipy's own, and the cases without one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from placecode.analysis.stats import half_width, interval


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
@pytest.mark.parametrize("n", [2, 3, 15])
def test_interval_is_scipys(n: int, level: float) -> None:
    values = np.random.default_rng(n).normal(0.9, 0.05, n)
    low, high = stats.t.interval(level, n - 1, loc=values.mean(), scale=stats.sem(values))
    np.testing.assert_allclose(interval(values, level), (values.mean(), low, high), rtol=1e-12)


def test_interval_is_wider_than_the_normal_one() -> None:
    values = [0.9, 0.92, 0.97]
    normal = 1.96 * np.std(values, ddof=1) / math.sqrt(3)
    assert interval(values).high - interval(values).mean > 2 * normal


def test_nans_are_dropped() -> None:
    assert interval([math.nan, 1.0, 2.0, math.nan, 4.0]) == interval([1.0, 2.0, 4.0])


def test_bounds_are_not_clipped() -> None:
    assert interval([0.5, 1.0, 1.0]).high > 1


@pytest.mark.parametrize("values", [[0.7], [0.7, math.nan]])
def test_one_value_has_no_bounds(values: list[float]) -> None:
    mean, low, high = interval(values)
    assert mean == 0.7
    assert math.isnan(low)
    assert math.isnan(high)


@pytest.mark.parametrize("values", [[], [math.nan]])
def test_no_value_gives_nans(values: list[float]) -> None:
    assert all(math.isnan(bound) for bound in interval(values))


def test_equal_values_have_an_interval_of_no_width() -> None:
    assert interval([0.5, 0.5, 0.5]) == (0.5, 0.5, 0.5)


def test_half_width_agrees_with_interval() -> None:
    values = np.array([0.1, 0.4, 0.2, 0.9])
    mean, low, _ = interval(values)
    assert half_width(float(values.std(ddof=1)), 4) == pytest.approx(mean - low)
    assert math.isnan(half_width(1.0, 1))
