"""Parsing of cells and text files, shared by the readers of tables, recordings, puzzles and names of channels.

A cell is the text between two separators of a line in a CSV file.
"""

from __future__ import annotations

import contextlib
import csv
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from placecode.errors import BadInput
from placecode.validation import choice

KEYED_SUFFIXES = (".npz", ".mat", ".h5", ".hdf5")  # of files that can contain several tables, each with a key (name)
MISSING = {"", "n/a", "na", "nan", "null", "none"}  # texts of missing values, in lower case
DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")  # a number with a decimal comma
INDEX_COLUMN_NAMES = {"", "time", "t", "tr", "index", "frame", "volume"}
"""Names, in lower case, of a first column that contains row numbers or times."""
MAX_QUOTED = 5  # names that a message lists


def parse_number(cell: str) -> float | None:
    """Return the number in a cell, NaN if the value is missing, or None if the cell contains a word.

    >>> parse_number(" 2.5 "), parse_number("N/A"), parse_number("west")
    (2.5, nan, None)
    """
    cell = cell.strip()
    try:
        value = float(cell)
    except ValueError:
        return math.nan if cell.casefold() in MISSING else None
    return None if "_" in cell else value  # Python parses 1_000 as a number, other programs do not


def is_word(cell: str) -> bool:
    """Return whether a cell is neither a number nor a text that stands for a missing value."""
    return parse_number(cell) is None


def is_enumeration(cells: Sequence[str]) -> bool:
    """Return whether cells are 0, 1, 2 ... or 1, 2, 3 ..., as in the header of a table whose columns have no names."""
    return any(list(cells) == [str(i + first) for i in range(len(cells))] for first in (0, 1))


def find_separator(ending: str, line: str) -> str:
    """Return the character that separates the cells of a text file: a comma, semicolon or tab (always a tab in .tsv).

    It is the most frequent of the three in `line`, the first line. However, if a line such as 0,5;1,25 consists of
    numbers with decimal commas, it is the semicolon or tab between them. `ending` is the suffix of the file in lower
    case.

    >>> [find_separator(".csv", line) for line in ("a,b;c", "a;b;c,d", "0,5;-0,3;1,25")]
    [',', ';', ';']
    """
    if ending == ".tsv":
        return "\t"
    for sign in ";\t":
        cells = [cell.strip().strip('"') for cell in line.split(sign)]
        other_cells = [cell for cell in cells if not DECIMAL_COMMA.fullmatch(cell)]
        if len(other_cells) < len(cells) > 1 and not any(map(is_word, other_cells)):
            return sign  # some cells are numbers with decimal commas, and none is a word
    return max(",;\t", key=line.count)


def first_bytes(path: Path) -> bytes:
    """Return the first ten bytes of a file. Raises `BadInput` if the file is empty or cannot be read."""
    try:
        with open(path, "rb") as file:
            head = file.read(10)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}.") from error
    if not head:
        raise BadInput(f"{path} is empty.")
    return head


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file, without the byte-order mark that spreadsheets write, or raise `BadInput`."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} must be a text file in UTF-8; byte {error.start} is not.") from error


def csv_rows(lines: Iterable[str], sign: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the stripped cells of each row. `sign` separates cells. An empty line has no cells."""
    reader = csv.reader(lines, delimiter=sign, skipinitialspace=True)
    for row in reader:
        yield reader.line_num, [cell.strip() for cell in row]


def check_width(path: str | Path, line: int, row: Sequence[str], width: int) -> None:
    """Raise `BadInput` if a row of a text file does not have `width` cells. `line` is the number of its line."""
    if len(row) != width:
        raise BadInput(f"{path}, line {line}: must have {width} values; got {len(row)}.")


def check_file(path: Path, ending: str, formats: Iterable[str], key: str | None) -> None:
    """Raise `BadInput` if a file is empty or unreadable, or if its suffix `ending` is not in `formats`.

    `key` is the name of a table in the file, or None. A name is an error if files of this format contain only one
    table.
    """
    choice(f"The format of {path}", ending, formats)
    first_bytes(path)
    if key is not None and ending not in KEYED_SUFFIXES:
        raise BadInput(
            f"key is for files of {', '.join(KEYED_SUFFIXES)}, which hold several tables; got {key!r} for {path}."
        )


def unreadable_file(path: str | Path, ending: str) -> BadInput:
    """Return the exception for a truncated or otherwise invalid file with the suffix `ending`."""
    return BadInput(f"{path} must be a whole {ending} file of plain numbers; it cannot be read as one.")


@contextlib.contextmanager
def wrap_read_errors(path: Path, ending: str) -> Iterator[None]:
    """Convert exceptions in a `with` block that reads a file to `BadInput`.

    Libraries raise many different exceptions for truncated or invalid files. `BadInput` and `MemoryError` are not
    converted.
    """
    try:
        yield
    except (BadInput, MemoryError):
        raise
    except Exception as error:
        raise unreadable_file(path, ending) from error


def find_duplicates(items: Iterable[Any]) -> list[Any]:
    """Return the items that occur more than once, without repetitions."""
    return [item for item, count in Counter(items).items() if count > 1]


def quoted(names: Iterable[str]) -> str:
    """Return names in quotes as one text for a message: at most `MAX_QUOTED` names, and how many more there are.

    >>> quoted(["a", "b"]), quoted("abcdefgh")
    ("'a', 'b'", "'a', 'b', 'c', 'd', 'e' and 3 more")
    """
    all_names = list(names)
    ending = f" and {len(all_names) - MAX_QUOTED} more" if len(all_names) > MAX_QUOTED else ""
    return ", ".join(map(repr, all_names[:MAX_QUOTED])) + ending


def as_float32(numbers: np.ndarray) -> np.ndarray:
    """Convert numbers to float32 by way of float64, so that large integers are rounded like integers read from text."""
    with np.errstate(over="ignore"):  # values that are too large become infinite, which is checked later
        return np.asarray(numbers, dtype=np.float64).astype(np.float32)
