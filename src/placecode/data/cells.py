"""Parsing of cells and selection of tables, shared by `recording_files` (brain recordings) and `tables` (any table)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from placecode.errors import BadInput, one_of

KEYED = (".npz", ".mat", ".h5", ".hdf5")
"""Suffixes of files that can contain several tables with keys."""
MISSING = {"", "n/a", "na", "nan", "null", "none"}
"""Texts of missing values, in lower case."""
DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
"""A number with a decimal comma."""
TIMES = {"", "time", "t", "tr", "index", "frame", "volume"}
"""Headers of a first column with row numbers, in lower case."""


def number(cell: str) -> float | None:
    """Parse a cell: a number, NaN for a missing value, or None for a word.

    >>> number(" 2.5 "), number("N/A"), number("west")
    (2.5, nan, None)
    """
    cell = cell.strip()
    try:
        value = float(cell)
    except ValueError:
        return math.nan if cell.casefold() in MISSING else None
    return None if "_" in cell else value  # Python parses 1_000 as a number, other programs do not


def is_word(cell: str) -> bool:
    """Return whether a cell is neither a number nor a missing value."""
    return number(cell) is None


def counted(cells: Sequence[str]) -> bool:
    """Return whether cells are consecutive integers from 0 or 1, as in the header of a table without names."""
    return any(list(cells) == [str(i + first) for i in range(len(cells))] for first in (0, 1))


def separator(ending: str, line: str) -> str:
    """Return the separator of a text file: a tab in .tsv, otherwise the most frequent candidate in its first line.

    Decimal commas do not count.

    >>> separator(".csv", "a,b;c"), separator(".csv", "a;b;c,d"), separator(".csv", "0,5;-0,3;1,25")
    (',', ';', ';')
    """
    if ending == ".tsv":
        return "\t"
    return next((sign for sign in ";\t" if _has_decimal_commas(line, sign)), max(",;\t", key=line.count))


def _has_decimal_commas(line: str, sign: str) -> bool:
    """Return whether a line separated by `sign` contains numbers with decimal commas and no words."""
    cells = [cell.strip().strip('"') for cell in line.split(sign)]
    others = [cell for cell in cells if not DECIMAL_COMMA.fullmatch(cell)]
    return len(others) < len(cells) > 1 and not any(map(is_word, others))


def beginning(path: Path) -> bytes:
    """Return the first bytes of a file. Raises `BadInput` if it is empty or cannot be read."""
    try:
        with open(path, "rb") as file:
            head = file.read(10)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}.") from error
    if not head:
        raise BadInput(f"{path} is empty.")
    return head


def is_hdf5(head: bytes) -> bool:
    """Return whether the first bytes of a .mat file are those of version 7.3, which is HDF5."""
    return head.startswith((b"MATLAB 7.3", b"\x89HDF"))


def no_key(path: Path, ending: str, key: str | None) -> None:
    """Raise `BadInput` if a key is given for a file that can contain only one table."""
    if key is not None and ending not in KEYED:
        raise BadInput(f"key is for files of {', '.join(KEYED)}, which hold several tables; got {key!r} for {path}.")


def unreadable(path: Path, ending: str) -> BadInput:
    """Return the exception for a truncated or otherwise invalid file."""
    return BadInput(f"{path} must be a whole {ending} file of plain numbers; it cannot be read as one.")


def is_table(array: Any, kinds: str = "iuf", least: int = 2) -> bool:
    """Return whether an array is a two-dimensional table with a dtype of these kinds and sides of at least `least`."""
    shape = getattr(array, "shape", None)
    kind = getattr(getattr(array, "dtype", None), "kind", "")
    return isinstance(shape, tuple) and kind in tuple(kinds) and len(shape) == 2 and min(shape) >= least


def described(array: Any) -> str:
    """Describe an array for an error message."""
    return f"{array.dtype} of shape {array.shape}" if hasattr(array, "dtype") else type(array).__name__


def pick(
    path: Path, arrays: Mapping[str, Any], names: Iterable[str], key: str | None, what: str, kinds: str = "iuf"
) -> str:
    """Select the table of a file with several arrays.

    Parameters
    ----------
    path : Path
    arrays : mapping of str to array
    names : iterable of str
        Names of everything in the file, for error messages.
    key : str, optional
        Name of the table. By default the only array with two sides longer than 1. (MATLAB stores numbers as 1 x 1.)
    what : str
        Names of the two sides, for error messages.
    kinds : str
        Allowed kinds of dtypes.

    Returns
    -------
    str
        Name of the table.
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
    """List at most `most` names in quotes, for a message.

    >>> listed(["a", "b"]), listed("abcdefgh")
    ("'a', 'b'", "'a', 'b', 'c', 'd', 'e' and 3 more")
    """
    all_names = list(names)
    rest = f" and {len(all_names) - most} more" if len(all_names) > most else ""
    return ", ".join(repr(name) for name in all_names[:most]) + rest


def as_float32(numbers: np.ndarray) -> np.ndarray:
    """Convert numbers to float32 via float64, so that integers and their texts are rounded alike."""
    with np.errstate(over="ignore"):  # values that are too large become infinite, which is checked later
        return np.asarray(numbers, dtype=np.float64).astype(np.float32)
