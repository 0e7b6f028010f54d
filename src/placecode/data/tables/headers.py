"""Detection of a header in the first line of a text file.

The first line is a header in these cases:

| cells of the first line | cells below |
|---|---|
| at least one word | numbers below one of the words |
| words only | anything |
| 0, 1, 2 ... or 1, 2, 3 ..., optionally after a word such as "time" | anything |
| 1, 2, 3 ... and words | other words below the words |
| an empty cell, then anything | 0, 1, 2 ... or 1, 2, 3 ... below the first |
| all in quotes | numbers without quotes |
| different integers, optionally with words | decimals far from them, and other words below the words |

Otherwise it is a sample. The last case does not apply to samples: the first sample of a table of integers has no
decimals below it, and a sample that happens to consist of integers is close to the values below.

>>> is_header([["400", "410", "420"], ["0.31", "0.35", "0.42"], ["0.30", "0.36", "0.41"]])
True
>>> is_header([["400", "410", "420"], ["401", "409", "422"]])
False
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from placecode.data.cells import DECIMAL_COMMA, MISSING, TIMES, counted, is_word, number

LINES_BELOW = 20  # number of lines below the first that are read
MIN_DECIMAL_FRACTION = 0.8  # smallest fraction of decimals below a header of integers; some programs write 2 for 2.0
MIN_CONSECUTIVE = 3
"""Smallest number of consecutive integers beside words. With fewer, it may be a sample that begins with its number."""


def is_header(rows: Sequence[Sequence[str]], quoted: bool = False) -> bool:
    """Return whether the first row of cells is a header.

    `quoted` tells whether all cells of the first line are in quotes, and numbers below are not.
    """
    first, below = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    columns = list(zip(*below, strict=True)) or [()] * len(first)
    words = [j for j, cell in enumerate(first) if _is_name(cell)]
    if any(is_number(cell) for j in words for cell in columns[j]):
        return True
    if words and all(_is_name(cell) or cell.casefold() in MISSING for cell in first):
        return True
    rest = first[1:] if len(first) > 1 and first[0].casefold() in TIMES else first
    if quoted or counted(rest) or (not first[0] and len(below) > 1 and counted(columns[0])):
        return True
    if any(first[j] in columns[j] for j in words):
        return False  # the words are categories
    numbers = [j for j, cell in enumerate(first) if is_number(cell)]
    consecutive = len(numbers) >= MIN_CONSECUTIVE and counted([first[j] for j in numbers])
    return consecutive or _are_codes([first[j] for j in numbers], [columns[j] for j in numbers])


def _is_name(cell: str) -> bool:
    """Return whether a cell is a word, and not a number with a decimal comma."""
    return is_word(cell) and not DECIMAL_COMMA.fullmatch(cell)


def is_number(cell: str) -> bool:
    """Return whether a cell is a number, and not missing."""
    value = number(cell)
    return value is not None and not math.isnan(value)


def _are_codes(first: Sequence[str], columns: Sequence[Sequence[str]]) -> bool:
    """Return whether integers are codes (years, wavelengths, stations) above decimals, and not values like those."""
    if len(set(first)) < max(2, len(first)) or not all(cell.isascii() and cell.isdigit() for cell in first):
        return False
    known = [[cell for cell in column if is_number(cell)] for column in columns]
    decimals = [sum(not cell.lstrip("+-").isdigit() for cell in column) for column in known]
    if not all(decimals) or sum(decimals) < MIN_DECIMAL_FRACTION * sum(map(len, known)):
        return False
    far = [_is_far(float(cell), [float(value) for value in column]) for cell, column in zip(first, known, strict=True)]
    return sum(far) > len(far) / 2


def _is_far(value: float, others: Sequence[float]) -> bool:
    """Return whether a value is outside the range of the others by more than half of this range."""
    low, high = min(others), max(others)
    return abs(value - (low + high) / 2) > high - low
