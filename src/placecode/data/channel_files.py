"""Reading of text files that accompany a table: names, positions and labels of its channels, groups of its samples.

| file | content |
|---|---|
| names | one name per line, or a CSV with a column `name` |
| groups | one group per line, or a CSV with one column, with the header `group` or none |
| positions | a CSV with the columns name, x, y and optionally z |
| labels | a CSV with the columns name and label; an empty label means no label |
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from placecode.data.cells import check_width, csv_rows, find_duplicates, find_separator, parse_number, quoted, read_text
from placecode.errors import BadInput

MAX_COORDINATE = 1e100  # largest absolute coordinate; larger distances squared would overflow in float64
Rows = list[tuple[int, list[str]]]
"""The line number and the cells of each row of a text file."""


def read_names(path: str | Path) -> list[str]:
    """Return the names of channels in the order of the file. Raises `BadInput` if a name is empty."""
    path = Path(path)
    rows = _rows(path)
    header = [cell.casefold() for cell in rows[0][1]]
    has_header = "name" in header and path.suffix.lower() in (".csv", ".tsv")
    if not has_header and len(header) > 1:
        raise BadInput(f"{path} must have one name a line, or a column 'name'; its columns are {quoted(rows[0][1])}.")
    _check_widths(path, rows)
    column, rows = (header.index("name"), rows[1:]) if has_header else (0, rows)
    for line, row in rows:
        if not row[column]:
            raise BadInput(f"{path}, line {line}: must have a name; it is empty.")
    return [row[column] for _, row in rows]


def read_groups(path: str | Path, samples: int, table: str) -> list[str]:
    """Return the group of each of the T = `samples` rows of a table, (T,). `table` is its name in error messages."""
    path = Path(path)
    rows = _rows(path)
    for line, row in rows:
        if len(row) != 1:
            raise BadInput(f"{path}, line {line}: must have one value, the group of a row; got {len(row)}.")
        if not row[0]:
            raise BadInput(f"{path}, line {line}: must name a group; it is empty.")
    texts = [row[0] for _, row in rows]
    texts = texts[1:] if texts[0].casefold() == "group" else texts
    if len(texts) != samples:
        raise BadInput(f"{path} must have {samples} groups, one for each row of {table}; it has {len(texts)}.")
    return texts


def read_positions(path: str | Path, names: Sequence[str]) -> np.ndarray:
    """Return the positions of channels, (n, 2) or (n, 3), in the order of `names`, the names of the n channels.

    Raises `BadInput` unless the file has finite coordinates for exactly these channels.
    """
    path = Path(path)
    rows, header = _by_name(path, names, (["name", "x", "y"], ["name", "x", "y", "z"]), "name, x, y and, if any, z")
    axes = [header.index(axis) for axis in ("x", "y", "z") if axis in header]
    for line, row in rows:
        for cell in (row[axis] for axis in axes):
            value = parse_number(cell)
            if value is None or not abs(value) <= MAX_COORDINATE:  # also true for NaN
                allowed = f"finite numbers, none beyond {MAX_COORDINATE:g}"
                raise BadInput(f"{path}, line {line}: positions must be {allowed}; got {cell[:40]!r}.")
    return np.array([[float(row[axis]) for axis in axes] for _, row in rows])


def read_labels(path: str | Path, names: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Read the labels of channels, in the order of `names`, the names of the n channels.

    Returns one code per channel, (n,), and the sorted distinct labels. A code is an index into these labels, or -1 for
    a channel without a label. Raises `BadInput` unless the file has exactly these channels.
    """
    rows, header = _by_name(Path(path), names, (["name", "label"],), "name and label")
    labels = [row[header.index("label")] for _, row in rows]
    meanings = tuple(sorted(set(labels) - {""}))
    codes = {label: code for code, label in enumerate(meanings)} | {"": -1}
    return np.array([codes[label] for label in labels], dtype=np.int64), meanings


def _rows(path: Path) -> Rows:
    """Return the rows of a text file, without empty rows at the end. Only .csv and .tsv lines are split into cells."""
    text, ending = read_text(path), path.suffix.lower()
    if ending in (".csv", ".tsv"):
        sign = find_separator(ending, text.partition("\n")[0])
        rows = [(line, row or [""]) for line, row in csv_rows(io.StringIO(text, newline=""), sign)]
    else:
        rows = [(line, [cell.strip()]) for line, cell in enumerate(text.splitlines(), 1)]
    while rows and not any(rows[-1][1]):
        rows.pop()
    if not rows:
        raise BadInput(f"{path} is empty.")
    return rows


def _check_widths(path: Path, rows: Rows) -> None:
    """Raise `BadInput` if a row has another number of cells than the first row."""
    for line, row in rows:
        check_width(path, line, row, len(rows[0][1]))


def _by_name(path: Path, names: Sequence[str], allowed: Sequence[list[str]], columns: str) -> tuple[Rows, list[str]]:
    """Read a CSV file with one row per channel; return the rows in the order of `names` and the lower-case header.

    `allowed` are the alternative lists of columns that the file may have, in any order. `columns` is the text that
    describes them in the error message.
    """
    rows = _rows(path)
    header = [cell.casefold() for cell in rows[0][1]]
    if sorted(header) not in map(sorted, allowed):
        raise BadInput(f"{path} must have the columns {columns}; got {quoted(rows[0][1])}.")
    _check_widths(path, rows)
    column = header.index("name")
    by_name = {row[column]: (line, row) for line, row in rows[1:]}
    problems = {
        "given twice": find_duplicates(row[column] for _, row in rows[1:]),
        "unknown": [name for name in by_name if name not in set(names)],
        "missing": [name for name in names if name not in by_name],
    }
    for problem, affected in problems.items():
        if affected:
            count = len(names)
            raise BadInput(f"{path} must have a row for each of the {count} channels; {problem}: {quoted(affected)}.")
    return [by_name[name] for name in names], header
