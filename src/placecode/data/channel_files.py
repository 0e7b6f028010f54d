"""Small text files beside a table: the names of its channels, the groups of its samples, places and labels of channels.

| file | what it has |
|---|---|
| names | one name a line, or a CSV with a column `name` |
| groups | one group a line, or a CSV with one column, under a header `group` or none |
| positions | a CSV with the columns name, x, y and, where there is one, z |
| labels | a CSV with the columns name and label; an empty label is none |
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from placecode.data.cells import beginning, listed, number, separator
from placecode.errors import BadInput

FARTHEST = 1e100
"""Beyond it, squares of distances are more than a float64 can hold."""
Rows = list[tuple[int, list[str]]]
"""The rows of a text file, each with the line it is on."""


def read_names(path: str | Path) -> list[str]:
    """The names of channels in a file, in its order."""
    path = Path(path)
    rows = _rows(path)
    heads = [cell.casefold() for cell in rows[0][1]]
    if "name" in heads and path.suffix.lower() in (".csv", ".tsv"):
        _equal(path, rows)
        column, rows = heads.index("name"), rows[1:]
    elif len(heads) > 1:
        raise BadInput(f"{path} must have one name a line, or a column 'name'; its columns are {listed(rows[0][1])}.")
    else:
        _equal(path, rows)
        column = 0
    for line, row in rows:
        if not row[column]:
            raise BadInput(f"{path}, line {line}: must have a name; it is empty.")
    return [row[column] for _, row in rows]


def read_groups(path: str | Path, samples: int, table: str) -> list[str]:
    """The group of each of so many samples."""
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
    """Where channels are, (n, 2) or (n, 3) float64, in the order of `names`."""
    path = Path(path)
    rows, heads = _by_name(path, names, (["name", "x", "y"], ["name", "x", "y", "z"]), "name, x, y and, if any, z")
    axes = [heads.index(axis) for axis in ("x", "y", "z") if axis in heads]
    for line, row in rows:
        for cell in (row[axis] for axis in axes):
            value = number(cell)
            if value is None or not abs(value) <= FARTHEST:  # nor where it is missing
                allowed = f"finite numbers, none beyond {FARTHEST:g}"
                raise BadInput(f"{path}, line {line}: positions must be {allowed}; got {cell[:40]!r}.")
    return np.array([[float(row[axis]) for axis in axes] for _, row in rows])


def read_labels(path: str | Path, names: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """What channels are, (n,) int64 in the order of `names`, and what each number means, sorted; no label is -1."""
    path = Path(path)
    rows, heads = _by_name(path, names, (["name", "label"],), "name and label")
    labels = [row[heads.index("label")] for _, row in rows]
    meanings = tuple(sorted(set(labels) - {""}))
    codes = {label: code for code, label in enumerate(meanings)} | {"": -1}
    return np.array([codes[label] for label in labels], dtype=np.int64), meanings


def _rows(path: Path) -> Rows:
    """All rows of a text file, cells trimmed; one cell a row unless it is CSV. Empty lines at the end are none."""
    beginning(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} must be a text file in UTF-8; byte {error.start} is not.") from error
    ending = path.suffix.lower()
    if ending in (".csv", ".tsv"):
        sign = separator(ending, text.partition("\n")[0])
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=sign, skipinitialspace=True)
        rows = [(reader.line_num, [cell.strip() for cell in row] or [""]) for row in reader]
    else:
        rows = [(line, [cell.strip()]) for line, cell in enumerate(text.splitlines(), 1)]
    while rows and not any(rows[-1][1]):
        rows.pop()
    if not rows:
        raise BadInput(f"{path} is empty.")
    return rows


def _equal(path: Path, rows: Rows) -> None:
    width = len(rows[0][1])
    for line, row in rows:
        if len(row) != width:
            raise BadInput(f"{path}, line {line}: must have {width} values; got {len(row)}.")


def _by_name(path: Path, names: Sequence[str], allowed: Sequence[list[str]], columns: str) -> tuple[Rows, list[str]]:
    """The rows of a CSV with exactly these columns, in any order, one for each name, in the order of the names."""
    rows = _rows(path)
    heads = [cell.casefold() for cell in rows[0][1]]
    if sorted(heads) not in [sorted(each) for each in allowed]:
        raise BadInput(f"{path} must have the columns {columns}; got {listed(rows[0][1])}.")
    _equal(path, rows)
    place = heads.index("name")
    found = Counter(row[place] for _, row in rows[1:])
    wrong = {
        "given twice": [name for name, count in found.items() if count > 1],
        "unknown": [name for name in found if name not in set(names)],
        "missing": [name for name in names if name not in found],
    }
    for what, those in wrong.items():
        if those:
            raise BadInput(f"{path} must have a row for each of the {len(names)} channels; {what}: {listed(those)}.")
    by_name = {row[place]: (line, row) for line, row in rows[1:]}
    return [by_name[name] for name in names], heads
