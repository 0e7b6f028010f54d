"""Default initialization scales of learned positional encodings in common libraries, from their source code.

The file libraries.json lists the libraries and models. The scale is the standard deviation of the initial values. It
may depend on the number of tokens and on the width. Truncating a normal distribution at two standard deviations reduces
its standard deviation to 0.88 of the original. Some libraries truncate at -2 and 2 instead, which does not change a
normal distribution with a standard deviation of 0.02.

>>> [round(library.sigma(16, 64), 3) for library in LIBRARIES if library.name == "big_vision"]
[0.125]
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TRUNCATED_STD = 0.87962566103423978
"""Standard deviation of a standard normal distribution truncated at -2 and 2."""
SCALES: dict[str, Callable[[int, int], float]] = {
    "0": lambda n, d: 0.0,
    "0.01": lambda n, d: 0.01,
    "0.0176": lambda n, d: 0.02 * TRUNCATED_STD,
    "0.02": lambda n, d: 0.02,
    "12^-1/2": lambda n, d: 12**-0.5,
    "1": lambda n, d: 1.0,
    "d^-1/2": lambda n, d: float(d**-0.5),
    "(2 / (n + d))^1/2": lambda n, d: float((2 / (n + d)) ** 0.5),  # Glorot's initialization of an n x d table
}
"""Functions that compute the standard deviation from the number of tokens n and the width d. Keys are formulas."""


@dataclass(frozen=True)
class Library:
    """Initialization of learned absolute positional encodings in a library or in the published code of a model."""

    name: str
    table: str
    """Which positional encodings of the library are initialized in this way."""
    distribution: str
    formula: str
    """Formula of the standard deviation, a key of SCALES."""
    source: str
    """Repository and file of the source code."""

    def sigma(self, tokens: int, width: int) -> float:
        """Return the initial standard deviation for these sizes; 0 if all values are initialized to zero."""
        return SCALES[self.formula](tokens, width)


LIBRARIES = tuple(Library(**record) for record in json.loads(Path(__file__).with_suffix(".json").read_text()))
"""All libraries of libraries.json."""
