"""Accuracy lost to noise: known curves, what the scale of noise does and does not change, and members without loss."""

from __future__ import annotations

import numpy as np
import pytest

from placecode.analysis.robustness import retained, tolerance

pytestmark = pytest.mark.filterwarnings("error")
LEVELS = np.array([0.0, 0.1, 0.2, 0.5, 1.0])


def test_retained_is_one_without_noise_and_zero_at_chance() -> None:
    np.testing.assert_allclose(retained([0.85, 0.7, 0.55, 0.25, 0.1], 0.25), [1, 0.75, 0.5, 0, -0.25])
    np.testing.assert_allclose(retained([0.85, 0.25], 0.0), [1, 0.25 / 0.85])  # the control: chance matters
    found = retained([[0.25, 0.25], [0.2, 0.3], [0.5, 0.25], [np.nan, 0.3], [0.5, np.nan]], 0.25)
    np.testing.assert_array_equal(np.isnan(found), [[1, 1], [1, 1], [0, 0], [1, 1], [0, 1]])


def test_tolerance_is_numpys_interpolation(rng) -> None:
    curves = np.sort(rng.uniform(0.25, 1, size=(20, 5)), axis=-1)[:, ::-1]
    curves[:, -1] = 0.25
    half = (curves[:, 0] + 0.25) / 2
    expected = [np.interp(-h, -curve, LEVELS) for h, curve in zip(half, curves, strict=True)]
    np.testing.assert_allclose(tolerance(curves, LEVELS, 0.25), expected)


def test_tolerance_has_the_unit_of_noise_and_none_of_accuracy(rng) -> None:
    curves = 0.25 + 0.7 * np.exp(-LEVELS / rng.uniform(0.1, 1, size=(6, 1)))
    found = tolerance(curves, LEVELS, 0.25)
    np.testing.assert_allclose(tolerance(curves, 3 * LEVELS, 0.25), 3 * found)
    np.testing.assert_allclose(tolerance(0.25 + 0.5 * (curves - 0.25), LEVELS, 0.25), found)
    assert (tolerance(curves, LEVELS, 0.0) > found).all()  # the control: another chance, another half


def test_tolerance_at_the_edges() -> None:
    assert tolerance([1.0, 0.0, 1.0, 0.0, 0.0], LEVELS, 0.0) == pytest.approx(0.05)  # the first loss of half counts
    assert tolerance([1.0, 0.8, 0.5, 0.5, 0.4], LEVELS, 0.0) == 0.2
    assert tolerance([0.9], [0.0], 0.25) == np.inf
    never = [[1.0, 1, 1, 1, 1], [0.5, 0.6, 0.7, 0.8, 0.9], [1, 1, 1, 1, 0.5]]
    np.testing.assert_array_equal(tolerance(never, LEVELS, 0.0), [np.inf, np.inf, 1.0])
    gaps = [[0.9, 0.9, np.nan, 0.3, 0.2], [0.9, 0.3, 0.3, 0.3, np.nan], [0.9, 0.9, 0.9, np.nan, 0.9]]
    curves = [[np.nan] * 5, [0.2] * 5, *gaps, [1.0, 1.0, 0.25, 0.25, 0.25]]
    np.testing.assert_allclose(tolerance(curves, LEVELS, 0.25), [*[np.nan] * 5, 0.15])
