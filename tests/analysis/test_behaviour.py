"""Answers of members counted one by one, and known curves of accuracy lost to noise."""

import numpy as np
import pytest

from placecode.analysis.behaviour import agreement, agreement_with_others, by_condition, confidence, error_rate
from placecode.analysis.robustness import retained, tolerance

pytestmark = pytest.mark.filterwarnings("error")
LEVELS = np.array([0.0, 0.1, 0.2, 0.5, 1.0])


def test_confidence_is_the_probability_of_the_answer(rng) -> None:
    probabilities = rng.dirichlet(np.ones(4), size=(3, 5))
    result = confidence(probabilities)
    assert result.shape == (3, 5)
    answer = probabilities.argmax(axis=-1)
    np.testing.assert_array_equal(result, np.take_along_axis(probabilities, answer[..., None], axis=-1)[..., 0])
    assert np.isnan(confidence([[np.nan] * 4, [0.25] * 4])).tolist() == [True, False]


def test_conditions_are_averaged_separately() -> None:
    values = np.array([[1.0, 0, 1, 1], [0, 0, 0, 1], [np.nan, 0, 1, 1]])
    result = by_condition(values, ["Ternary", "Binary", "Ternary", "Binary"])
    assert list(result) == ["Ternary", "Binary"]  # as they came, not by the alphabet
    np.testing.assert_array_equal(result["Ternary"], [1, 0, np.nan])
    np.testing.assert_array_equal(result["Binary"], [0.5, 0.5, 0.5])
    assert by_condition(np.zeros((3, 0)), []) == {}


def test_agreement_is_counted_pair_by_pair(rng) -> None:
    answers = rng.integers(4, size=(5, 30))
    np.testing.assert_allclose(agreement(answers), (answers[:, None] == answers).mean(axis=-1))
    chance = agreement(rng.integers(4, size=(2, 10000)))
    assert chance[0, 1] == pytest.approx(0.25, abs=0.03) and chance[0, 0] == 1


def test_agreement_with_others_of_a_group() -> None:
    answers = np.array([[0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1], [2, 2, 2, 2]])
    result = agreement_with_others(answers, [0.1, 2.0, 0.1, 0.1, 0.5])
    np.testing.assert_allclose(result, [(0.5 + 0.75) / 2, np.nan, (0.5 + 0.75) / 2, 0.75, np.nan])
    everyone = agreement_with_others(answers, ["all"] * 5)
    np.testing.assert_allclose(everyone, (agreement(answers).sum(axis=1) - 1) / 4)


def test_a_diverged_member_agrees_with_none_and_spoils_no_mean() -> None:
    answers = np.array([[0.0, 1, 2], [0, 1, 0], [np.nan, np.nan, np.nan], [0, np.nan, 2]])
    np.testing.assert_array_equal(np.isnan(agreement(answers)), np.add.outer([0, 0, 1, 1], [0, 0, 1, 1]) > 0)
    np.testing.assert_allclose(agreement_with_others(answers, ["a"] * 4), [2 / 3, 2 / 3, np.nan, np.nan])


def test_error_rate_by_place(rng) -> None:
    right, places = rng.random((2, 3, 50)) < 0.6, rng.integers(8, size=50)
    result = error_rate(right, places, 8)
    assert result.shape == (2, 3, 8)
    for place in range(8):
        np.testing.assert_allclose(result[..., place], 1 - right[..., places == place].mean(axis=-1))
    np.testing.assert_array_equal(error_rate([True, False, False], [0, 0, 2], 4), [0.5, np.nan, 1, np.nan])
    np.testing.assert_array_equal(error_rate([[np.nan, np.nan], [1, 0]], [0, 1], 2), [[np.nan, np.nan], [0, 1]])


def test_retained_is_one_without_noise_and_zero_at_chance() -> None:
    np.testing.assert_allclose(retained([0.85, 0.7, 0.55, 0.25, 0.1], 0.25), [1, 0.75, 0.5, 0, -0.25])
    np.testing.assert_allclose(retained([0.85, 0.25], 0.0), [1, 0.25 / 0.85])  # the control: chance matters
    result = retained([[0.25, 0.25], [0.2, 0.3], [0.5, 0.25], [np.nan, 0.3], [0.5, np.nan]], 0.25)
    np.testing.assert_array_equal(np.isnan(result), [[1, 1], [1, 1], [0, 0], [1, 1], [0, 1]])


def test_tolerance_equals_numpys_interpolation(rng) -> None:
    curves = np.sort(rng.uniform(0.25, 1, size=(20, 5)), axis=-1)[:, ::-1]
    curves[:, -1] = 0.25
    half = (curves[:, 0] + 0.25) / 2
    expected = [np.interp(-h, -curve, LEVELS) for h, curve in zip(half, curves, strict=True)]
    np.testing.assert_allclose(tolerance(curves, LEVELS, 0.25), expected)


def test_tolerance_of_flat_short_and_broken_curves_is_defined() -> None:
    assert tolerance([1.0, 0.0, 1.0, 0.0, 0.0], LEVELS, 0.0) == pytest.approx(0.05)  # the first loss of half counts
    assert tolerance([1.0, 0.8, 0.5, 0.5, 0.4], LEVELS, 0.0) == 0.2 and tolerance([0.9], [0.0], 0.25) == np.inf
    never = [[1.0, 1, 1, 1, 1], [0.5, 0.6, 0.7, 0.8, 0.9], [1, 1, 1, 1, 0.5]]
    np.testing.assert_array_equal(tolerance(never, LEVELS, 0.0), [np.inf, np.inf, 1.0])
    gaps = [[0.9, 0.9, np.nan, 0.3, 0.2], [0.9, 0.3, 0.3, 0.3, np.nan], [0.9, 0.9, 0.9, np.nan, 0.9]]
    curves = [[np.nan] * 5, [0.2] * 5, *gaps, [1.0, 1.0, 0.25, 0.25, 0.25]]
    np.testing.assert_allclose(tolerance(curves, LEVELS, 0.25), [*[np.nan] * 5, 0.15])
