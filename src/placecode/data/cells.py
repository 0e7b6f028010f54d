"""What files of tables share: which cells are numbers, which are missing and which are words; which table is meant.

Used by `recording_files` (brains) and by `table_files` (any table), so that a cell means the same in both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from placecode.errors import BadInput, one_of

KEYED = (".npz", ".mat", ".h5", ".hdf5")
"""Endings of files that hold several tables, each under its key."""
MISSING = {"", "n/a", "na", "nan", "null", "none"}
"""How a text file writes that a value is missing, in small letters."""
DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
"""What a number with a decimal comma looks like."""
TIMES = {"", "time", "t", "tr", "index", "frame", "volume"}
"""Headers of a first column that numbers the rows, in small letters."""


def number(cell: str) -> float | None:
    """A cell as a number: NaN where it is missing, None where it is a word.

    >>> number(" 2.5 "), number("N/A"), number("west")
    (2.5, nan, None)
    """
    cell = cell.strip()
    try:
        value = float(cell)
    except ValueError:
        return math.nan if cell.casefold() in MISSING else None
    return None if "_" in cell else value  # Python reads 1_000 as a number, no other program does


def is_word(cell: str) -> bool:
    """Whether a cell is neither a number nor a missing one."""
    return number(cell) is None


def counted(cells: Sequence[str]) -> bool:
    """Whether cells only count, from 0 or 1: a header that a program wrote for want of names."""
    return any(list(cells) == [str(i + first) for i in range(len(cells))] for first in (0, 1))


def separator(ending: str, line: str) -> str:
    """What stands between the values of a text file: a tab in .tsv, else the sign that its first line has most of.

    A line of numbers with decimal commas has as many commas as numbers, and means none of them.

    >>> separator(".csv", "a,b;c"), separator(".csv", "a;b;c,d"), separator(".csv", "0,5;-0,3;1,25")
    (',', ';', ';')
    """
    if ending == ".tsv":
        return "\t"
    return next((sign for sign in ";\t" if _has_decimal_commas(line, sign)), max(",;\t", key=line.count))


def _has_decimal_commas(line: str, sign: str) -> bool:
    cells = [cell.strip().strip('"') for cell in line.split(sign)]
    others = [cell for cell in cells if not DECIMAL_COMMA.fullmatch(cell)]
    return len(others) < len(cells) > 1 and not any(map(is_word, others))


def beginning(path: Path) -> bytes:
    """The first bytes of a file; `BadInput` if it cannot be read or has none."""
    try:
        with open(path, "rb") as file:
            head = file.read(10)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}.") from error
    if not head:
        raise BadInput(f"{path} is empty.")
    return head


def is_hdf5(head: bytes) -> bool:
    """Whether a .mat file that begins like this is HDF5 inside: version 7.3."""
    return head.startswith((b"MATLAB 7.3", b"\x89HDF"))


def no_key(path: Path, ending: str, key: str | None) -> None:
    """`BadInput` where a key is given for a file that can hold a single table alone."""
    if key is not None and ending not in KEYED:
        raise BadInput(f"key is for files of {', '.join(KEYED)}, which hold several tables; got {key!r} for {path}.")


def unreadable(path: Path, ending: str) -> BadInput:
    """The sentence for a file that is cut short, broken, or something else."""
    return BadInput(f"{path} must be a whole {ending} file of plain numbers; it cannot be read as one.")


def is_table(array: Any, kinds: str = "iuf", least: int = 2) -> bool:
    """Whether this is a table of numbers: it has a dtype of these kinds, and two sides of at least this length."""
    shape = getattr(array, "shape", None)
    kind = getattr(getattr(array, "dtype", None), "kind", "")
    return isinstance(shape, tuple) and kind in tuple(kinds) and len(shape) == 2 and min(shape) >= least


def described(array: Any) -> str:
    """What an array is, for a sentence that refuses it."""
    return f"{array.dtype} of shape {array.shape}" if hasattr(array, "dtype") else type(array).__name__


def pick(
    path: Path, arrays: Mapping[str, Any], names: Iterable[str], key: str | None, what: str, kinds: str = "iuf"
) -> str:
    """Which of the arrays is the table: the one called `key`, or the only one with two sides longer than 1.

    `names` are all that the file holds. MATLAB's single numbers, tables of 1 x 1, are none. `what` says in the
    sentence what the two sides are.
    """
    if key is not None:
        if key not in arrays:
            raise one_of(f"key for {path}", names, key)
        return key
    tables = [name for name, array in arrays.items() if is_table(array, kinds)]
    if not tables:
        inside = ", ".join(names) or "nothing"
        raise BadInput(f"{path} must hold a table of numbers with two sides, {what}; it holds {inside}.")
    if len(tables) > 1:
        raise BadInput(f"{path} holds several tables, {', '.join(tables)}; say by key which one is meant.")
    return tables[0]


def listed(names: Iterable[str], most: int = 5) -> str:
    """Names for a sentence, in quotes, at most so many of them.

    >>> listed(["a", "b"]), listed("abcdefgh")
    ("'a', 'b'", "'a', 'b', 'c', 'd', 'e' and 3 more")
    """
    all_names = list(names)
    rest = f" and {len(all_names) - most} more" if len(all_names) > most else ""
    return ", ".join(repr(name) for name in all_names[:most]) + rest


def as_float32(numbers: np.ndarray) -> np.ndarray:
    """Numbers as float32, always by way of float64, so that whole numbers and texts of them round alike."""
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as such
        return np.asarray(numbers, dtype=np.float64).astype(np.float32)
