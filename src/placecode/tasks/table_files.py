"""A user's own table, many channels side by side: read from any common format, checked, and told apart by column.

Rows are samples, columns are channels, always. A column of words with a few different ones is a category, given as
codes; one column may name the group (person, day) of each sample. A table too large for memory goes, piece by piece,
to a file that is mapped.

>>> sheet = sheet_of([[1, "west", None], [2, "east", 0.5]], names=["speed", "wind", "rain"])
>>> sheet.values.tolist(), dict(sheet.categories)
([[1.0, 1.0, nan], [2.0, 0.0, 0.5]], {1: ('east', 'west')})

| format | streamed | names | categories |
|---|---|---|---|
| .csv, .tsv | yes | header | yes |
| .parquet | yes | yes | yes |
| .npy, .h5, .hdf5, .mat of version 7.3 | yes | | |
| .npz, older .mat | no | | |
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from placecode.errors import BadInput, must_be
from placecode.tasks.cells import TIMES, as_float32, counted, listed
from placecode.tasks.channel_files import read_groups, read_labels, read_names, read_positions
from placecode.tasks.table_arrays import array_source_of, available, mapped, megabytes
from placecode.tasks.table_formats import FORMATS, called, read_cells, reading, source_of
from placecode.tasks.table_sources import FrameSource, Piece, Source, frame_of, group_text

__all__ = ["FORMATS", "Sheet", "read_cells", "read_labels", "read_positions", "read_sheet", "sheet_of"]

CHANNELS, SAMPLES = 5, 50
"""The least that a file must have."""
CATEGORIES = 20
"""How many different words a category may have at most."""
COUNTED = 1000
"""How many different words of a column are counted; beyond that it is said that there are more."""
INDEX = TIMES | {"unnamed: 0", "row", "sample", "id", "#"}
"""Headers under which a first column may count the rows and be no channel, in small letters."""
DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}( .*)?|\d{4}Q[1-4]"
    r"|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[ap]\.?m\.?)?|-?\d+ days?,?( .*)?",
    re.IGNORECASE,
)
"""What dates and times look like."""


@dataclass(frozen=True)
class Sheet:
    """A table of T samples by n channels.

    `values` (T, n) float32, NaN where missing, codes 0..K-1 in columns that are categories; it may be a memory map that
    cannot be written. `categories` has their words in sorted order by column, `groups` (T,) int64 the group of each
    sample, in order of first appearance. `source` is the name of the file, or "array"; `columns` has what pandas calls
    all of its columns, and `channels` (n,) says which of them are channels: not the groups, nor a count of the rows.
    """

    values: np.ndarray
    names: tuple[str, ...]
    categories: Mapping[int, tuple[str, ...]]
    groups: np.ndarray | None
    group_names: tuple[str, ...]
    source: str
    columns: tuple[str | int, ...]
    channels: tuple[int, ...]


def read_sheet(
    path: str | Path,
    *,
    key: str | None = None,
    names: str | Path | None = None,
    groups: str | Path | None = None,
    spool: str | Path | None = None,
    memory: int | None = None,
) -> Sheet:
    """The table of a file; `BadInput` says in one sentence what is wrong with it, and where.

    `key` says which table of a .npz, .mat or .h5 file is meant. `names`: a file with one name a line, or a CSV with a
    column `name`, instead of those of the file. `groups`: a column of the file, or a file with one group a row.
    `memory`: how many bytes the values may take in memory, a quarter of what is available unless given; larger ones go
    to a file in the folder `spool`, and a float32 .npy is mapped where it is.
    """
    path = Path(path)
    memory = available() // 4 if memory is None else memory
    with reading(path):
        source = source_of(path, key, None if groups is None else str(groups), memory)
        column = _group_column(source, groups)
        _wide_enough(path, source.width - (column is not None))  # before a wrong sign between values looks like words
        survey = _survey(source, column)
    layout = _layout(source, survey, column, None if names is None else read_names(names))
    _wide_enough(path, len(layout.channels))
    if survey.rows < SAMPLES:
        raise BadInput(f"{path} must have at least {SAMPLES} samples, one in each row; it has {survey.rows}.")
    _check(source, survey, layout)
    if groups is not None and column is None:
        survey.group_all(read_groups(groups, survey.rows, str(path)))
    size = 4 * survey.rows * len(layout.channels)
    if size <= memory:
        values = _in_memory(source, survey, layout)
    elif path.suffix.lower() == ".npy" and column is None and (there := mapped(path)) is not None:
        values = there
    elif spool is None:
        given = f"since {path} takes {megabytes(size)} of {megabytes(memory)} of memory"
        raise must_be("spool", f"a folder for the values, {given}", spool)
    else:
        values = _spooled(source, survey, layout, Path(spool) / f"{path.name}.float32.npy")
    return _sheet(values, survey, layout, source, path.name)


def sheet_of(data: Any, *, names: Sequence[str] | None = None, groups: str | Sequence[Any] | None = None) -> Sheet:
    """The table of a numpy array, a pandas frame or a list of rows; any number of samples and channels, at least 1.

    `groups`: the name of a column, or the group of each row. A map of float32 is kept as it is, unless it has to give
    up the column of the groups.
    """
    import pandas as pd

    if isinstance(data, np.ndarray):
        source: Source = array_source_of(data)
    elif isinstance(data, pd.DataFrame):
        source = FrameSource(data)
    elif isinstance(data, list | tuple):
        source = FrameSource(frame_of(data))
    else:
        raise BadInput(f"data must be a numpy array, a pandas frame or a list of rows; got {type(data).__name__}.")
    column = _group_column(source, groups) if isinstance(groups, str) else None
    survey = _survey(source, column) if source.width else Survey(0)
    layout = _layout(source, survey, column, None if names is None else [str(name) for name in names])
    if not layout.channels or not survey.rows:
        raise BadInput(f"data must have at least one row and one channel; got {survey.rows} x {len(layout.channels)}.")
    _check(source, survey, layout)
    if groups is not None and column is None:
        given = [group_text(value) for value in groups]
        if len(given) != survey.rows:
            raise BadInput(f"groups must have a group for each of the {survey.rows} rows; got {len(given)}.")
        if "" in given:
            raise BadInput(f"groups must name a group for each row; that of row {given.index('') + 1} is missing.")
        survey.group_all(given)
    kept = isinstance(data, np.memmap) and data.dtype == np.float32 and data.flags.c_contiguous and column is None
    values = data.view() if kept else _in_memory(source, survey, layout)
    if kept:
        values.flags.writeable = False
    return _sheet(values, survey, layout, source, "array")


def _wide_enough(path: Path, channels: int) -> None:
    if channels < CHANNELS:
        raise BadInput(f"{path} must have at least {CHANNELS} channels, one in each column; it has {channels}.")


def _sheet(values: np.ndarray, survey: Survey, layout: Layout, source: Source, name: str) -> Sheet:
    groups = np.concatenate(survey.groups) if survey.groups else None
    place = {column: i for i, column in enumerate(layout.channels)}
    categories = {place[column]: words for column, words in sorted(layout.categories.items())}
    found = tuple(survey.group_codes)
    return Sheet(values, layout.names, categories, groups, found, name, called(source), tuple(layout.channels))


# A first pass: what is in the columns?


@dataclass
class Survey:
    """What one pass over all rows tells of each column; a column is a category, or not, only at its end."""

    width: int
    rows: int = 0
    missing: np.ndarray = field(init=False)
    numeric: np.ndarray = field(init=False)
    words: dict[int, dict[str, int]] = field(default_factory=dict)
    """By column, its different words with the row where each appears first; no more than `COUNTED` and one."""
    counts_from: set[int] = field(default_factory=lambda: {0, 1})
    """Numbers from which the first column may still be said to count the rows."""
    groups: list[np.ndarray] = field(default_factory=list)
    group_codes: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.missing, self.numeric = np.zeros(self.width, dtype=np.int64), np.zeros(self.width, dtype=bool)

    def add(self, piece: Piece) -> None:
        given = ~np.isnan(piece.numbers)
        self.numeric |= given.any(axis=0)
        self.missing += (~given).sum(axis=0)
        rows = np.arange(self.rows, self.rows + len(given))
        self.counts_from = {first for first in self.counts_from if (piece.numbers[:, 0] == rows + first).all()}
        for column, words in piece.words.items():
            known = self.words.setdefault(column, {})
            is_given = words != None  # noqa: E711  (of each element)
            self.missing[column] -= int(is_given.sum())
            for word in dict.fromkeys(words[is_given]):  # in order: the first row must be among those that are kept
                if word not in known and len(known) <= COUNTED:
                    known[word] = self.rows + int(np.argmax(words == word))
        if piece.group is not None:
            self.group_all(piece.group)
        self.rows += len(given)

    def group_all(self, texts: Sequence[str]) -> None:
        codes = [self.group_codes.setdefault(text, len(self.group_codes)) for text in texts]
        self.groups.append(np.array(codes, dtype=np.int64))


def _survey(source: Source, group: int | None) -> Survey:
    """What the columns hold; `BadInput` as soon as a piece shows what cannot be."""
    survey = Survey(source.width)
    for piece in source.pieces(group):
        infinite = np.isinf(as_float32(piece.numbers))
        if infinite.any():
            row, column = (int(i) for i in np.argwhere(infinite)[0])
            value = float(piece.numbers[row, column])
            raise _wrong(source, survey.rows + row, column, "finite numbers, none beyond 3.4e+38", f"{value:g}")
        if piece.group is not None and "" in piece.group:
            row = survey.rows + piece.group.index("")
            raise BadInput(f"{source.row(row)}: column {_name(source, group)!r} must name a group; it is empty.")
        survey.add(piece)
        mixed = [(min(words.values()), column) for column, words in survey.words.items() if survey.numeric[column]]
        if mixed:
            row, column = min(mixed)
            word = next(word for word, first in survey.words[column].items() if first == row)
            raise _wrong(source, row, column, "numbers", repr(word[:40]))
    return survey


def _wrong(source: Source, row: int, column: int, allowed: str, given: str) -> BadInput:
    return BadInput(f"{source.row(row)}: column {_name(source, column)!r} must hold {allowed}; got {given}.")


def _name(source: Source, column: int | None) -> str:
    """What a column is called in the file."""
    assert column is not None
    return (source.header[column] if source.header else "") or f"channel {column + 1}"


def _group_column(source: Source, groups: str | Path | None) -> int | None:
    """The column that has the groups, None if a file has them."""
    if groups is None:
        return None
    found = [column for column in range(source.width) if _name(source, column) == str(groups)]
    if len(found) > 1:
        raise BadInput(f"groups must be the name of one column of {source.label}; {len(found)} are called {groups!r}.")
    if found:
        return found[0]
    if source.path is not None and os.path.exists(groups):
        return None
    allowed = f"the name of a column of {source.label}"
    raise must_be("groups", f"{allowed}, or a file with a group a row" if source.path else allowed, str(groups))


# What becomes of each column


@dataclass(frozen=True)
class Layout:
    """What each column is: a channel, or the groups; `numbers` has, for columns of words, what stands for each word."""

    channels: list[int]
    group: int | None
    names: tuple[str, ...]
    categories: Mapping[int, tuple[str, ...]]
    numbers: Mapping[int, Mapping[str, float]]


def _layout(source: Source, survey: Survey, group: int | None, names: Sequence[str] | None) -> Layout:
    columns = list(range(source.width))
    header = [*source.header] or [""] * len(columns)
    counts = source.header and survey.counts_from and header[0].casefold() in INDEX and source.width > 1 and group != 0
    if counts:
        columns = columns[1:]
    if counted([header[column] for column in columns]):
        header = [""] * source.width
    numbered = {column: header[column] or f"channel {i + 1}" for i, column in enumerate(columns)}
    channels = [column for column in columns if column != group]
    own = [numbered[column] for column in channels]
    if names is not None and len(names) != len(channels):
        raise BadInput(
            f"names must have {len(channels)} names, one for each channel of {source.label}; got {len(names)}."
        )
    chosen = tuple(own if names is None else names)
    numbers: dict[int, dict[str, float]] = {}
    categories: dict[int, tuple[str, ...]] = {}
    for column, found in sorted(survey.words.items()):
        if {word.casefold() for word in found} <= {"true", "false"}:
            numbers[column] = {word: float(word.casefold() == "true") for word in found}
            continue
        _check_words(source, column, found)
        categories[column] = tuple(sorted(found))
        numbers[column] = {word: float(code) for code, word in enumerate(categories[column])}
    return Layout(channels, group, chosen, categories, numbers)


def _check_words(source: Source, column: int, found: Mapping[str, int]) -> None:
    """`BadInput` unless the words of a column are few, and no dates or times."""
    row = min(found.values())
    first = next(word for word, where in found.items() if where == row)
    if all(DATE.fullmatch(word) for word in found):
        flag = "--groups" if source.path else "groups"
        given = f"the date or time {first[:40]!r}: leave the column out, or name it by {flag}"
        raise _wrong(source, row, column, "numbers", given)
    if len(found) > CATEGORIES:
        count = f"more than {COUNTED}" if len(found) > COUNTED else str(len(found))
        allowed = f"numbers, or at most {CATEGORIES} different words"
        raise _wrong(source, row, column, allowed, f"{count} different words, the first of them {first[:40]!r}")


def _check(source: Source, survey: Survey, layout: Layout) -> None:
    """`BadInput` where names appear twice, or where most of the table is missing."""
    twice = [name for name, count in Counter(layout.names).items() if count > 1]
    if twice:
        raise BadInput(
            f"The names of the channels of {source.label} must all be different; given twice: {listed(twice)}."
        )
    share = float(survey.missing[layout.channels].sum()) / (survey.rows * len(layout.channels))
    if share > 0.5:
        raise BadInput(f"At most half of the values of {source.label} may be missing; {share:.1%} are.")


# A second pass: the values


def _blocks(source: Source, survey: Survey, layout: Layout) -> Iterator[np.ndarray]:
    """The channels' values, some rows (r, n) at a time."""
    rows = 0
    for piece in source.pieces(layout.group):
        for column, words in piece.words.items():
            if column in layout.numbers:
                known = layout.numbers[column]
                piece.numbers[:, column] = [known.get(word, np.nan) for word in words]
        rows += len(piece.numbers)
        if rows <= survey.rows:
            yield np.ascontiguousarray(as_float32(piece.numbers[:, layout.channels]))
    if rows != survey.rows:
        raise BadInput(f"{source.label} must not change while it is read; it had {survey.rows} rows, then {rows}.")


def _in_memory(source: Source, survey: Survey, layout: Layout) -> np.ndarray:
    values, first = np.empty((survey.rows, len(layout.channels)), dtype=np.float32), 0
    for block in _blocks(source, survey, layout):
        values[first : first + len(block)] = block
        first += len(block)
    return values


def _spooled(source: Source, survey: Survey, layout: Layout, path: Path) -> np.ndarray:
    """The values in a file of their own, mapped."""
    from placecode.files import whole

    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (survey.rows, len(layout.channels))
    with whole(path) as stream:
        header = {"descr": np.dtype(np.float32).str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, header)
        for block in _blocks(source, survey, layout):
            stream.write(block.data)
    values: np.ndarray = np.load(path, mmap_mode="r")
    return values
