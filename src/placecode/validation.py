"""Check the value of a single setting. Each function below returns the value if it is valid, or raises `BadInput`.

The arguments `name` and `value` of the functions are the name of the setting, for the error message, and its value.

>>> whole_number("heads", 4, least=1)
4
>>> real_number("dropout", 1.5, least=0, below=1)
Traceback (most recent call last):
    ...
placecode.errors.BadInput: dropout must be a number of at least 0 and below 1; got 1.5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any, TypeGuard, TypeVar

import numpy as np

from placecode.errors import must_be, one_of

Value = TypeVar("Value", str, int)
"""Type of the values of `choice`."""


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is a Python or numpy integer. Booleans do not count."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite Python or numpy real number. Booleans do not count."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def whole_number(name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """Return `value` as an int if it is an integer from `least` to `most`, both inclusive (None: no bound). Otherwise
    raise `BadInput`."""
    if not is_whole(value) or (least is not None and value < least) or (most is not None and value > most):
        sides = {"from": least, "to": most} if None not in (least, most) else {"of at least": least, "of at most": most}
        words = " ".join(f"{side} {bound:,}" for side, bound in sides.items() if bound is not None)
        raise must_be(name, f"a whole number {words}".rstrip(), value)
    return int(value)


def real_number(
    name: str,
    value: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> float:
    """Return `value` as a float if it is a finite number within the bounds. Otherwise raise `BadInput`.

    `least` and `most` are inclusive bounds, `above` and `below` are exclusive bounds. None means no bound.
    """
    bounds = {"of at least": least, "above": above, "at most": most, "below": below}
    inside = is_number(value) and (
        (least is None or value >= least)
        and (above is None or value > above)
        and (most is None or value <= most)
        and (below is None or value < below)
    )
    if not inside:
        words = " and ".join(f"{side} {bound:g}" for side, bound in bounds.items() if bound is not None)
        raise must_be(name, f"a number {words}".rstrip(), value)
    return float(value)


def boolean(name: str, value: Any) -> bool:
    """Return `value` as a bool if it is True or False, of Python or numpy. Otherwise raise `BadInput`."""
    if not isinstance(value, (bool, np.bool_)):
        raise must_be(name, "True or False", value)
    return bool(value)


def text(name: str, value: Any) -> str:
    """Return `value` as a str if it is a text. Otherwise raise `BadInput`."""
    if not isinstance(value, str):
        raise must_be(name, "a text", value)
    return str(value)


def choice(name: str, value: Value, allowed: Iterable[Value]) -> Value:
    """Return `value` if it is one of the allowed values. Otherwise raise `BadInput`."""
    options = list(allowed)
    if not isinstance(value, (str, Integral)) or value not in options:
        raise one_of(name, options, value)
    return value
