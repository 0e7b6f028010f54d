"""Accuracy lost to noise: known curves, what the scale of noise does and does not change, and members without loss."""

from __future__ import annotations

import numpy as np
import pytest

from placecode.analysis.robustness import retained, tolerance
from placecode.errors import BadInput

pytestmark = pytest.mark.filterwarnings("error")
LEVELS = np.array([0.0, 0.1, 0.2, 0.5, 1.0])


def test_retained_is_one_without_noise_and_zero_at_chance() -> None:
    np.testing.assert_allclose(retained([0.85, 0.7, 0.55, 0.25, 0.1], 0.25), [1, 0.75, 0.5, 0, -0.25])
    np.testing.assert_allclose(retained([0.85, 0.25], 0.0), [1, 0.25 / 0.85])  # the control: chance matters


def test_a_member_at_chance_has_nothing_to_retain() -> None:
    found = retained([[0.25, 0.25], [0.2, 0.3], [0.5, 0.25], [np.nan, 0.3], [0.5, np.nan]], 0.25)
    np.testing.assert_array_equal(np.isnan(found), [[1, 1], [1, 1], [0, 0], [1, 1], [0, 1]])


def test_a_straight_loss_is_read_off_the_line(rng) -> None:
    """Accuracy 1 - slope * noise above chance 0 has lost half at 0.5 / slope, wherever the levels are."""
    slopes = rng.uniform(0.6, 5, size=(2, 3))
    found = tolerance(1 - slopes[..., None] * LEVELS, LEVELS, 0.0)
    np.testing.assert_allclose(found, 0.5 / slopes)


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


def test_the_first_loss_of_half_counts() -> None:
    assert tolerance([1.0, 0.0, 1.0, 0.0, 0.0], LEVELS, 0.0) == pytest.approx(0.05)
    assert tolerance([1.0, 0.8, 0.5, 0.5, 0.4], LEVELS, 0.0) == 0.2


def test_who_never_loses_half_tolerates_all() -> None:
    found = tolerance([[1.0, 1, 1, 1, 1], [0.5, 0.6, 0.7, 0.8, 0.9], [1, 1, 1, 1, 0.5]], LEVELS, 0.0)
    np.testing.assert_array_equal(found, [np.inf, np.inf, 1.0])
    assert tolerance([0.9], [0.0], 0.25) == np.inf


def test_members_without_a_curve_are_nan_and_their_neighbour_is_not() -> None:
    gaps = [[0.9, 0.9, np.nan, 0.3, 0.2], [0.9, 0.3, 0.3, 0.3, np.nan], [0.9, 0.9, 0.9, np.nan, 0.9]]
    curves = [[np.nan] * 5, [0.2] * 5, *gaps, [1.0, 1.0, 0.25, 0.25, 0.25]]
    np.testing.assert_allclose(tolerance(curves, LEVELS, 0.25), [*[np.nan] * 5, 0.15])


@pytest.mark.parametrize("levels", [[0.0, 0.1], [0.0, 0.2, 0.1], [0.0, 0.1, 0.1]])
def test_levels_must_rise_and_be_as_many(levels) -> None:
    with pytest.raises(BadInput, match="3 rising levels"):
        tolerance([0.9, 0.8, 0.7], levels, 0.25)


def test_an_accuracy_without_levels_is_refused() -> None:
    for bad in (0.9, np.zeros((3, 0))):
        with pytest.raises(BadInput, match="levels of noise"):
            retained(bad, 0.25)
