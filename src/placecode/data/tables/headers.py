"""Detection of a header: does the first line of a text file contain names of columns, or the first sample?

The first line is a header if its cells and the cells below fit one of these rules:

| cells of the first line | cells below |
|---|---|
| at least one word | a number below one of the words |
| only words | anything |
| 0, 1, 2 ... or 1, 2, 3 ..., optionally after a word such as "time" | anything |
| words, and 1, 2, 3 ... in the other cells | other words below the words |
| an empty first cell | 0, 1, 2 ... or 1, 2, 3 ... below this cell |
| all in quotes | a number without quotes in the second line |
| different integers, optionally with words | decimals far from these integers, other words below the words |

Otherwise the first line is a sample. The last of these rules does not mistake a sample for a header: in a table of
integers there are no decimals below the first sample, and in a table of decimals, a first sample that happens to
consist of integers is close to the values below.

>>> is_header([["400", "410", "420"], ["0.31", "0.35", "0.42"], ["0.30", "0.36", "0.41"]])
True
>>> is_header([["400", "410", "420"], ["401", "409", "422"]])
False
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from placecode.data.cells import DECIMAL_COMMA, INDEX_COLUMN_NAMES, MISSING, is_enumeration, is_word, parse_number

LINES_BELOW = 20  # number of lines below the first that are compared with it
MIN_DECIMAL_FRACTION = 0.8  # smallest fraction of decimals below a header of integers; some programs write 2 for 2.0
MIN_CONSECUTIVE = 3
"""Smallest number of consecutive integers (1, 2, 3 ...) in a header that also contains words. A line with fewer may be
a sample that begins with its row number."""


def is_header(rows: Sequence[Sequence[str]], quoted: bool = False) -> bool:
    """Return whether the first line of a text file is a header, which names the columns, and not the first sample.

    `rows` are the first lines of the file, split into cells. The rules are in the docstring of this module. `quoted`
    says whether all cells of the first line are in quotes while the second line has a number without quotes.
    """
    first, below = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    columns = list(zip(*below, strict=True)) or [()] * len(first)
    words = [j for j, cell in enumerate(first) if _is_name(cell)]
    if any(is_number(cell) for j in words for cell in columns[j]):
        return True
    if words and all(_is_name(cell) or cell.casefold() in MISSING for cell in first):
        return True
    names = first[1:] if len(first) > 1 and first[0].casefold() in INDEX_COLUMN_NAMES else first
    if quoted or is_enumeration(names) or (not first[0] and len(below) > 1 and is_enumeration(columns[0])):
        return True
    if any(first[j] in columns[j] for j in words):
        return False  # a word occurs again below, so it is a category and not the name of its column
    numbers = [j for j, cell in enumerate(first) if is_number(cell)]
    consecutive = len(numbers) >= MIN_CONSECUTIVE and is_enumeration([first[j] for j in numbers])
    return consecutive or _are_codes([first[j] for j in numbers], [columns[j] for j in numbers])


def _is_name(cell: str) -> bool:
    """Return whether a cell can be the name of a column: a text that is neither missing nor a number (such as
    "3.5" or "3,5")."""
    return is_word(cell) and not DECIMAL_COMMA.fullmatch(cell)


def is_number(cell: str) -> bool:
    """Return whether a cell contains a number. Words and missing values do not count."""
    value = parse_number(cell)
    return value is not None and not math.isnan(value)


def _are_codes(first: Sequence[str], columns: Sequence[Sequence[str]]) -> bool:
    """Return whether the integers `first` of a first line name columns, such as years, wavelengths or station numbers.

    `columns` are the cells below each integer. The integers are names if they all differ, if the cells below are mostly
    decimals, and if more than half of the integers are far from the values below them. Otherwise they are a sample.
    """
    if len(set(first)) < max(2, len(first)) or not all(cell.isascii() and cell.isdigit() for cell in first):
        return False
    numbers = [[cell for cell in column if is_number(cell)] for column in columns]
    decimal_counts = [sum(not cell.lstrip("+-").isdigit() for cell in column) for column in numbers]
    if not all(decimal_counts) or sum(decimal_counts) < MIN_DECIMAL_FRACTION * sum(map(len, numbers)):
        return False
    is_far = [_is_far(float(cell), list(map(float, column))) for cell, column in zip(first, numbers, strict=True)]
    return sum(is_far) > len(is_far) / 2


def _is_far(value: float, values: Sequence[float]) -> bool:
    """Return whether a number lies outside the range of `values` by more than half the width of this range."""
    low, high = min(values), max(values)
    return abs(value - (low + high) / 2) > high - low
