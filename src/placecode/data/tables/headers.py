"""Whether the first line of a text is a header. It is one where

| its cells are | and those below them |
|---|---|
| words, at least one | are numbers under one of the words |
| words alone | are anything |
| 0, 1, 2 ... or 1, 2, 3 ..., after a word such as "time" or not | are anything |
| 1, 2, 3 ... beside words | are other words under the words |
| nothing, then anything | count 0, 1, 2 ... or 1, 2, 3 ... under the first |
| all in quotes | have numbers without quotes |
| whole numbers, all different, beside words or not | are decimals far from them, and other words under the words |

Else it is a sample: the first one of a table of whole numbers never has decimals below it, and one that only happens to
be whole lies where the others of its column do.

>>> is_header([["400", "410", "420"], ["0.31", "0.35", "0.42"], ["0.30", "0.36", "0.41"]])
True
>>> is_header([["400", "410", "420"], ["401", "409", "422"]])
False
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from placecode.data.cells import DECIMAL_COMMA, MISSING, TIMES, counted, is_word, number

LOOKED_AT = 20
"""Lines below the first that are looked at."""
DECIMALS = 0.8
"""The share of decimals below a header of whole numbers: some programs write 2 for 2.0."""
COUNT = 3
"""Numbers that count, beside words: with fewer it may be a sample that has its number first."""


def is_header(rows: Sequence[Sequence[str]], quoted: bool = False) -> bool:
    """Whether the first of these rows has names; `quoted`: its cells are all in quotes, and numbers below are not."""
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
        return False  # they are values of categories
    numbers = [j for j, cell in enumerate(first) if is_number(cell)]
    counts = len(numbers) >= COUNT and counted([first[j] for j in numbers])
    return counts or _codes([first[j] for j in numbers], [columns[j] for j in numbers])


def _is_name(cell: str) -> bool:
    return is_word(cell) and not DECIMAL_COMMA.fullmatch(cell)


def is_number(cell: str) -> bool:
    """Whether a cell is a number, and not missing."""
    value = number(cell)
    return value is not None and not math.isnan(value)


def _codes(first: Sequence[str], columns: Sequence[Sequence[str]]) -> bool:
    """Whether these are codes (years, wavelengths, stations) over decimals, rather than values like those below."""
    if len(set(first)) < max(2, len(first)) or not all(cell.isascii() and cell.isdigit() for cell in first):
        return False
    known = [[cell for cell in column if is_number(cell)] for column in columns]
    decimals = [sum(not cell.lstrip("+-").isdigit() for cell in column) for column in known]
    if not all(decimals) or sum(decimals) < DECIMALS * sum(map(len, known)):
        return False
    far = [_is_far(float(cell), [float(each) for each in column]) for cell, column in zip(first, known, strict=True)]
    return sum(far) > len(far) / 2


def _is_far(value: float, others: Sequence[float]) -> bool:
    """Whether a value lies beyond the others by more than half of the stretch that they take."""
    low, high = min(others), max(others)
    return abs(value - (low + high) / 2) > high - low
