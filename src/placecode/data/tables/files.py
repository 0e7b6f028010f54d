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

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from placecode.data.cells import as_float32
from placecode.data.channel_files import read_groups, read_labels, read_names, read_positions
from placecode.data.tables.arrays import array_source_of, available, mapped, megabytes
from placecode.data.tables.columns import Layout, Survey, check, group_column, layout_of, survey_of
from placecode.data.tables.formats import FORMATS, called, read_cells, reading, source_of, warn_of_no_header
from placecode.data.tables.sources import FrameSource, Source, frame_of, group_text
from placecode.errors import BadInput, must_be

__all__ = ["FORMATS", "Sheet", "read_cells", "read_labels", "read_positions", "read_sheet", "sheet_of"]

CHANNELS, SAMPLES = 5, 50
"""The least that a file must have."""


@dataclass(frozen=True)
class Sheet:
    """A table of T samples by n channels.

    `values` (T, n) float32, NaN where missing, codes 0..K-1 in columns that are categories; it may be a memory map that
    cannot be written. `categories` has their words in sorted order by column, `groups` (T,) int64 the group of each
    sample, in order of first appearance. `source` is the name of the file, or "array"; `columns` has what pandas calls
    all of its columns, and `channels` (n,) says which of them are channels: not the groups, nor a count of the rows.
    `offsets` (n,) float64 were taken off the values: 0 but where float32 could not hold what varies beside them.
    """

    values: np.ndarray
    names: tuple[str, ...]
    categories: Mapping[int, tuple[str, ...]]
    groups: np.ndarray | None
    group_names: tuple[str, ...]
    source: str
    columns: tuple[str | int, ...]
    channels: tuple[int, ...]
    offsets: np.ndarray


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
        column = group_column(source, groups)
        _wide_enough(path, source.width - (column is not None))  # before a wrong sign between values looks like words
        survey = survey_of(source, column)
    layout = layout_of(source, survey, column, None if names is None else read_names(names))
    _wide_enough(path, len(layout.channels))
    if survey.rows < SAMPLES:
        raise BadInput(f"{path} must have at least {SAMPLES} samples, one in each row; it has {survey.rows}.")
    check(source, survey, layout)
    warn_of_no_header(source)
    if groups is not None and column is None:
        survey.group_all(read_groups(groups, survey.rows, str(path)))
    fits = 4 * survey.rows * len(layout.channels) <= memory
    if not fits and path.suffix.lower() == ".npy" and column is None and (there := mapped(path)) is not None:
        values = there
    else:
        values = _placed(source, survey, layout, path.name, spool, memory)
    return _sheet(values, survey, layout, source, path.name)


def sheet_of(
    data: Any,
    *,
    names: Sequence[str] | None = None,
    groups: Hashable | Sequence[Any] = None,
    spool: str | Path | None = None,
    memory: int | None = None,
) -> Sheet:
    """The table of a numpy array, a pandas frame or a list of rows; any number of samples and channels, at least 1.

    `groups`: the name of a column, or the group of each row. A map of float32 is kept as it is, unless it has to give
    up the column of the groups; other maps that take more than `memory` go to a file in the folder `spool`, as in
    `read_sheet`.
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
    column = _named(data, source, groups)
    survey = survey_of(source, column) if source.width else Survey(0)
    layout = layout_of(source, survey, column, None if names is None else [str(name) for name in names])
    if not layout.channels or not survey.rows:
        raise BadInput(f"data must have at least one row and one channel; got {survey.rows} x {len(layout.channels)}.")
    check(source, survey, layout)
    if groups is not None and column is None:
        given = [group_text(value) for value in groups]  # type: ignore[attr-defined, union-attr, unused-ignore]
        if len(given) != survey.rows:
            raise BadInput(f"groups must have a group for each of the {survey.rows} rows; got {len(given)}.")
        if "" in given:
            raise BadInput(f"groups must name a group for each row; that of row {given.index('') + 1} is missing.")
        survey.group_all(given)
    kept = isinstance(data, np.memmap) and data.dtype == np.float32 and data.flags.c_contiguous and column is None
    if kept:
        values = data.view()
        values.flags.writeable = False
    elif isinstance(data, np.memmap):
        values = _placed(source, survey, layout, "array", spool, available() // 4 if memory is None else memory)
    else:
        values = _in_memory(source, survey, layout)
    return _sheet(values, survey, layout, source, "array")


def is_single(groups: Any) -> bool:
    """Whether this can only be the name of a column, and no group for each row."""
    return isinstance(groups, str) or not hasattr(groups, "__iter__") or getattr(groups, "ndim", 1) == 0


def _named(data: Any, source: Source, groups: Any) -> int | None:
    """The column that is called so, in a frame by anything that can be a name; None if it is a group for each row."""
    import pandas as pd

    if groups is None:
        return None
    if isinstance(data, pd.DataFrame) and isinstance(groups, Hashable):
        own = [place for place, name in enumerate(data.columns) if name in {groups}]
        if len(own) == 1:
            return own[0]
    if isinstance(groups, str):
        return group_column(source, groups)
    if is_single(groups):
        raise must_be("groups", "the name of a column of data, or the group of each row", groups)
    return None


def _wide_enough(path: Path, channels: int) -> None:
    if channels < CHANNELS:
        raise BadInput(f"{path} must have at least {CHANNELS} channels, one in each column; it has {channels}.")


def _sheet(values: np.ndarray, survey: Survey, layout: Layout, source: Source, name: str) -> Sheet:
    groups = np.concatenate(survey.groups) if survey.groups else None
    place = {column: i for i, column in enumerate(layout.channels)}
    categories = {place[column]: words for column, words in sorted(layout.categories.items())}
    found = tuple(survey.group_codes)
    columns, offsets = called(source), survey.offsets[layout.channels]
    return Sheet(values, layout.names, categories, groups, found, name, columns, tuple(layout.channels), offsets)


# A second pass: the values


def _blocks(source: Source, survey: Survey, layout: Layout) -> Iterator[np.ndarray]:
    """The channels' values, some rows (r, n) at a time."""
    rows, offsets = 0, survey.offsets
    for piece in source.pieces(layout.group):
        for column, words in piece.words.items():
            if column in layout.numbers:
                known = layout.numbers[column]
                piece.numbers[:, column] = [known.get(word, np.nan) for word in words]
        rows += len(piece.numbers)
        if rows <= survey.rows:
            yield np.ascontiguousarray(as_float32((piece.numbers - offsets)[:, layout.channels]))
    if rows != survey.rows:
        raise BadInput(f"{source.label} must not change while it is read; it had {survey.rows} rows, then {rows}.")


def _placed(
    source: Source, survey: Survey, layout: Layout, name: str, spool: str | Path | None, memory: int
) -> np.ndarray:
    """The values in memory where they fit, else in a file of the folder `spool`."""
    size = 4 * survey.rows * len(layout.channels)
    if size <= memory:
        return _in_memory(source, survey, layout)
    if spool is None:
        given = f"since {source.label} takes {megabytes(size)} of {megabytes(memory)} of memory"
        raise must_be("spool", f"a folder for the values, {given}", spool)
    return _spooled(source, survey, layout, Path(spool) / f"{name}.float32.npy")


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
