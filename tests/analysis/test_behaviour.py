"""Answers of members counted one by one, against the whole-array results."""

from __future__ import annotations

import numpy as np
import pytest

from placecode.analysis.behaviour import agreement, agreement_with_others, by_condition, confidence, error_rate
from placecode.errors import BadInput

pytestmark = pytest.mark.filterwarnings("error")


def test_confidence_is_that_of_the_answer_given(rng) -> None:
    probabilities = rng.dirichlet(np.ones(4), size=(3, 5))
    found = confidence(probabilities)
    assert found.shape == (3, 5)
    answer = probabilities.argmax(axis=-1)
    np.testing.assert_array_equal(found, np.take_along_axis(probabilities, answer[..., None], axis=-1)[..., 0])
    np.testing.assert_array_equal(confidence(probabilities[..., ::-1]), found)  # whatever the names of the answers
    assert np.isnan(confidence([[np.nan] * 4, [0.25] * 4])).tolist() == [True, False]


def test_conditions_are_averaged_apart() -> None:
    values = np.array([[1.0, 0, 1, 1], [0, 0, 0, 1], [np.nan, 0, 1, 1]])
    found = by_condition(values, ["Ternary", "Binary", "Ternary", "Binary"])
    assert list(found) == ["Ternary", "Binary"]  # as they came, not by the alphabet
    np.testing.assert_array_equal(found["Ternary"], [1, 0, np.nan])
    np.testing.assert_array_equal(found["Binary"], [0.5, 0.5, 0.5])


def test_conditions_weighted_by_their_examples_give_the_mean(rng) -> None:
    values, names = rng.random((2, 3, 30)), [str(name) for name in rng.integers(4, size=30)]
    found = by_condition(values, names)
    total = sum(found[name] * names.count(name) for name in found) / 30
    np.testing.assert_allclose(total, values.mean(axis=-1))
    shuffled = by_condition(values, [names[i] for i in rng.permutation(30)])
    assert np.abs(shuffled[names[0]] - found[names[0]]).max() > 0.01  # the control: names do matter


def test_no_examples_have_no_conditions() -> None:
    assert by_condition(np.zeros((3, 0)), []) == {}


def test_a_name_too_few_is_refused() -> None:
    with pytest.raises(BadInput, match="one name for each example"):
        by_condition(np.zeros((2, 3)), ["a", "b"])


def test_agreement_is_counted_pair_by_pair(rng) -> None:
    answers = rng.integers(4, size=(5, 30))
    found = agreement(answers)
    for i in range(5):
        for j in range(5):
            assert found[i, j] == pytest.approx(np.mean(answers[i] == answers[j]))


def test_agreement_does_not_depend_on_the_names_of_the_answers(rng) -> None:
    answers = rng.integers(4, size=(5, 30))
    np.testing.assert_allclose(agreement(np.array([7, -3, 100, 0])[answers]), agreement(answers))
    mixed = (answers + np.arange(5)[:, None]) % 4  # the control: each member with names of its own
    assert np.abs(agreement(mixed) - agreement(answers)).max() > 0.1


def test_unrelated_members_agree_by_chance(rng) -> None:
    found = agreement(rng.integers(4, size=(2, 10000)))
    assert found[0, 1] == pytest.approx(0.25, abs=0.03)
    assert found[0, 0] == 1


def test_agreement_with_others_of_a_group() -> None:
    answers = np.array([[0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1], [2, 2, 2, 2]])
    found = agreement_with_others(answers, [0.1, 2.0, 0.1, 0.1, 0.5])
    np.testing.assert_allclose(found, [(0.5 + 0.75) / 2, np.nan, (0.5 + 0.75) / 2, 0.75, np.nan])
    everyone = agreement_with_others(answers, ["all"] * 5)
    np.testing.assert_allclose(everyone, (agreement(answers).sum(axis=1) - 1) / 4)


def test_a_diverged_member_agrees_with_none_and_spoils_no_mean() -> None:
    answers = np.array([[0.0, 1, 2], [0, 1, 0], [np.nan, np.nan, np.nan], [0, np.nan, 2]])
    np.testing.assert_array_equal(np.isnan(agreement(answers)), np.add.outer([0, 0, 1, 1], [0, 0, 1, 1]) > 0)
    np.testing.assert_allclose(agreement_with_others(answers, ["a"] * 4), [2 / 3, 2 / 3, np.nan, np.nan])


def test_members_without_a_group_are_refused() -> None:
    with pytest.raises(BadInput, match="one for each of 3 members"):
        agreement_with_others(np.zeros((3, 4)), ["a", "b"])
    with pytest.raises(BadInput, match="members, examples"):
        agreement(np.zeros(4))


def test_errors_are_counted_by_place(rng) -> None:
    right, places = rng.random((2, 3, 50)) < 0.6, rng.integers(8, size=50)
    found = error_rate(right, places, 8)
    assert found.shape == (2, 3, 8)
    for place in range(8):
        np.testing.assert_allclose(found[..., place], 1 - right[..., places == place].mean(axis=-1))


def test_a_place_never_asked_for_has_no_rate() -> None:
    np.testing.assert_array_equal(error_rate([True, False, False], [0, 0, 2], 4), [0.5, np.nan, 1, np.nan])


def test_a_diverged_member_has_no_rate_and_its_neighbour_has() -> None:
    found = error_rate([[np.nan, np.nan], [1, 0]], [0, 1], 2)
    np.testing.assert_array_equal(found, [[np.nan, np.nan], [0, 1]])


@pytest.mark.parametrize("places", [[0, 4], [-1, 0]])
def test_places_off_the_grid_are_refused(places) -> None:
    with pytest.raises(BadInput, match="tokens from 0 to 3"):
        error_rate([True, False], places, 4)


def test_a_place_too_few_is_refused() -> None:
    with pytest.raises(BadInput, match="one for each example"):
        error_rate([True, False], [0], 4)
