"""Checks of single values: what they let through, and the fields of the error otherwise."""

import math
import pickle
from typing import Any

import numpy as np
import pytest

from placecode.errors import BadInput, must_be
from placecode.validation import boolean, choice, real_number, text, whole_number


def refused(check: Any, *given: Any, **bounds: Any) -> BadInput:
    with pytest.raises(BadInput) as error:
        check("x", *given, **bounds)
    assert error.value.name == "x" and error.value.given is given[0]
    assert str(error.value) == f"x must be {error.value.allowed}; got {given[0]!r}."
    return error.value


@pytest.mark.parametrize("value", [1, 7, np.int64(3), np.uint8(5)])
def test_whole_numbers_of_python_and_numpy_are_python_integers(value) -> None:
    result = whole_number("x", value, least=1)
    assert result == value and type(result) is int


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "1", None, math.nan, np.float64(2), np.bool_(True)])
def test_other_values_are_no_whole_numbers(value) -> None:
    assert refused(whole_number, value, least=1).allowed == "a whole number of at least 1"


def test_a_whole_number_may_have_a_largest_value_or_no_bounds() -> None:
    assert [whole_number("x", value, 2, 4) for value in (2, 4)] == [2, 4]
    assert refused(whole_number, 5, least=2, most=4).allowed == "a whole number from 2 to 4"
    assert refused(whole_number, 0, least=1, most=1_000_000).allowed == "a whole number from 1 to 1,000,000"
    assert refused(whole_number, 1, most=0).allowed == "a whole number of at most 0"
    assert whole_number("x", -5) == -5 and refused(whole_number, 0.5).allowed == "a whole number"


@pytest.mark.parametrize(
    ("bounds", "inside", "outside", "rule"),
    [
        (
            {"least": 0},
            [0, 1e300, np.float32(2)],
            [-1e-9, math.inf, math.nan, True, "0", None],
            "a number of at least 0",
        ),
        ({"above": 0}, [1e-300, 2], [0, -0.0], "a number above 0"),
        ({"least": 0, "below": 1}, [0, 0.999], [1, -0.1], "a number of at least 0 and below 1"),
        ({"above": 0, "most": 1}, [0.5, 1], [0, 1.001], "a number above 0 and at most 1"),
        ({}, [-1e9, 0], [math.inf, -math.inf, math.nan, 1j], "a number"),
    ],
)
def test_numbers_within_bounds(bounds, inside, outside, rule) -> None:
    for value in inside:
        assert real_number("x", value, **bounds) == value
    for value in outside:
        assert refused(real_number, value, **bounds).allowed == rule


def test_flags_switches_and_choices() -> None:
    assert boolean("x", True) is True and boolean("x", np.bool_(False)) is False
    assert refused(boolean, 1).allowed == "True or False"
    assert text("x", "") == "" and refused(text, 3).allowed == refused(text, None).allowed == "a text"
    assert choice("x", "sgd", ("adam", "sgd")) == "sgd"
    assert refused(choice, "adagrad", ("adam", "sgd")).allowed == "one of adam, sgd"


def test_the_fields_of_an_error_survive_the_way_from_a_worker_process() -> None:
    error = pickle.loads(pickle.dumps(must_be("sigma", "a number of at least 0", -1)))
    assert (str(error), error.name, error.given) == ("sigma must be a number of at least 0; got -1.", "sigma", -1)
