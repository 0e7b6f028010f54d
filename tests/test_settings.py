"""Declarations of settings: every value is checked by the type, the limits and the choices that are declared for it."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from helpers.refusal import refused

from placecode.errors import must_be
from placecode.settings import REQUIRED, Settings, declarations, setting, settings_of, sweep_over


@dataclass(frozen=True, kw_only=True)
class Base(Settings):
    tokens: int = setting(REQUIRED, "a value that must be given", least=2, most=100)
    steps: int = setting(10, "a whole number", least=1)
    rate: float = setting(0.5, "a number", above=0, most=1)
    share: float = setting(0.0, "a number", least=0, below=1)
    clip: float | None = setting(None, "a number or None", least=0)
    norm: str = setting("post", "one of two texts", choices=("post", "pre"))
    order: int = setting(4, "one of three numbers", choices=(4, 5, 6))
    learn: bool = setting(True, "a switch")
    key: str | None = setting(None, "a text or None")
    sizes: tuple[int, ...] = setting((), "whole numbers", least=2)
    sigmas: tuple[float, ...] = sweep_over((0.1, 1.0), "numbers to compare", above=0)
    kinds: tuple[str, ...] = sweep_over((), "texts to compare", count_at_least=0, choices=("a", "b"))
    heldout: float | tuple[str, ...] = setting(0.2, "of several types, and therefore not checked")
    plain: int = 3
    label: str = setting("", "a value that does not matter for ==", compare=False)


@dataclass(frozen=True, kw_only=True)
class Derived(Base):
    steps: int = setting(20, "another help text")
    sigmas: tuple[float, ...] = (0.5,)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps > self.tokens:
            raise must_be("steps", f"at most {self.tokens}", self.steps)


REFUSED: dict[str, tuple[str, list[Any]]] = {
    "tokens": ("a whole number from 2 to 100", [1, 101, 3.0, "3", None]),
    "steps": ("a whole number of at least 1", [0, 1.0, True, None]),
    "rate": ("a number above 0 and at most 1", [0, 1.001, math.nan, "1", True]),
    "share": ("a number of at least 0 and below 1", [-0.1, 1, math.inf]),
    "clip": ("a number of at least 0", [-1, "none"]),
    "norm": ("one of post, pre", ["none", None, 3]),
    "order": ("one of 4, 5, 6", [3, "4"]),
    "learn": ("True or False", [1, "yes", None]),
    "key": ("a text", [3]),
    "plain": ("a whole number", [0.5, None]),
    "label": ("a text", [3]),
    "sizes": ("a list of values", [5, "2,3", None]),
    "sigmas": ("a list of values", [0.1]),
}


@pytest.mark.parametrize("cls", [Base, Derived])
@pytest.mark.parametrize("name", REFUSED)
def test_values_of_another_type_or_beyond_the_limits_are_refused(cls: type[Base], name: str) -> None:
    """Also in a subclass that changes the default, or the default and the help text."""
    rule, values = REFUSED[name]
    for value in values:
        error = refused(cls, **{"tokens": 50, name: value})
        assert (error.name, error.allowed) == (name, rule) and error.given is value


@pytest.mark.parametrize(
    ("name", "value", "rule", "given"),
    [
        ("sizes", (2, 1), "a whole number of at least 2", 1),
        ("sizes", [2.5], "a whole number of at least 2", 2.5),
        ("sigmas", (0.1, 0), "a number above 0", 0),
        ("kinds", ("a", "c"), "one of a, b", "c"),
        ("sigmas", (), "at least one", []),
        ("sigmas", (1, 1.0), "all different", [1.0, 1.0]),
        ("kinds", ("a", "a"), "all different", ["a", "a"]),
        ("order", 4.0, "one of 4, 5, 6", 4.0),
        ("order", True, "one of 4, 5, 6", True),
        ("kinds", (None,), "one of a, b", None),
    ],
)
def test_every_value_of_a_tuple_is_checked(name: str, value: Any, rule: str, given: Any) -> None:
    error = refused(Base, **{"tokens": 50, name: value})
    assert (error.name, error.allowed, error.given) == (name, rule, given)


def test_values_at_the_limits_are_allowed() -> None:
    Base(tokens=2, steps=1, rate=1, share=0, clip=0, norm="pre", order=6, learn=False, key="", sizes=(2,), kinds=())
    Base(tokens=100, rate=1e-300, share=0.999, clip=None, sigmas=(1e-9,), sizes=(2, 2), heldout=("a",))


def test_values_become_objects_of_the_declared_type() -> None:
    numbers: dict[str, Any] = {"tokens": np.int64(3), "rate": np.float32(0.5), "share": 0, "order": np.uint8(5)}
    others: dict[str, Any] = {
        "learn": np.bool_(False),
        "norm": np.str_("pre"),
        "sizes": [np.int32(2)],
        "sigmas": range(1, 3),
    }
    made = Base(**numbers, **others)
    assert made == Base(tokens=3, rate=0.5, order=5, learn=False, norm="pre", sizes=(2,), sigmas=(1.0, 2.0))
    values = (made.tokens, made.rate, made.share, made.order, made.learn, made.norm, made.sizes[0], made.sigmas[0])
    assert [type(value) for value in values] == [int, float, float, int, bool, str, int, float]


def test_a_required_setting_must_be_given() -> None:
    with pytest.raises(TypeError, match="tokens"):
        Base()


def test_rules_about_several_fields_come_after_those_about_one() -> None:
    assert refused(Derived, tokens=15).allowed == "at most 15"
    assert refused(Derived, tokens=15, steps=0).allowed == "a whole number of at least 1"


def test_a_declaration_describes_type_limits_and_help() -> None:
    declared = declarations(Derived)
    assert settings_of(Derived) == [field.name for field in dataclasses.fields(Derived) if field.name != "plain"]
    assert (declared["sigmas"].kind, declared["sigmas"].several, declared["sigmas"].limits) == (
        float,
        True,
        {"above": 0},
    )
    assert (declared["clip"].kind, declared["clip"].optional, declared["clip"].several) == (float, True, False)
    assert (declared["heldout"].kind, declared["heldout"].is_checked) == (float, False)
    assert (declared["steps"].help, declared["sigmas"].count_at_least) == ("another help text", 1)
    assert Derived(tokens=50, label="a") == Derived(tokens=50, label="b") and Derived(tokens=50) != Derived(tokens=51)
