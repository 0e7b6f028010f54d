"""Checks of single values, one for each kind. A check returns the value, or raises `BadInput` with a sentence.

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
from typing import Any, TypeGuard

from placecode.errors import must_be, one_of


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is an integer, numpy's included; True and False are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a finite real number, numpy's included; True and False are not."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def whole_number(name: str, value: Any, least: int, most: int | None = None) -> int:
    """An integer of at least `least`, and at most `most` if given."""
    if not is_whole(value) or value < least or (most is not None and value > most):
        bounds = f"of at least {least:,}" if most is None else f"from {least:,} to {most:,}"
        raise must_be(name, f"a whole number {bounds}", value)
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
    """A finite number within bounds: `least` and `most` are allowed themselves, `above` and `below` are not."""
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


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise must_be(name, "True or False", value)
    return value


def switch(name: str, value: Any) -> bool:
    """True or False; or 1 or 0, as options on the command line are numbers or words."""
    if not isinstance(value, int) or value not in (0, 1):
        raise must_be(name, "True or False, or 1 or 0", value)
    return bool(value)


def choice(name: str, value: str, allowed: Iterable[str]) -> str:
    """One of a closed list."""
    options = list(allowed)
    if value not in options:
        raise one_of(name, options, value)
    return value
