"""Reading of tables (CSV, TSV, Parquet, NumPy, MATLAB, HDF5, pandas) as float32 values with names of channels.

Rows are samples, and columns are channels. A column with a few different words is a category, and is converted to
codes. One column may contain the group (person, day) of each sample. A table is read twice: once to check it and to
interpret its columns, and once for its values. If the values do not fit into memory, they are written to a
memory-mapped file chunk by chunk. The result is a `Sheet`:

>>> sheet = sheet_of([[1, "west", None], [2, "east", 0.5]], names=["speed", "wind", "rain"])
>>> sheet.values.tolist(), dict(sheet.categories)
([[1.0, 1.0, nan], [2.0, 0.0, 0.5]], {1: ('east', 'west')})

| format | read in chunks | has names of channels | can have categories |
|---|---|---|---|
| .csv, .tsv | yes | in the header, if any | yes |
| .parquet | yes | yes | yes |
| .npy, .h5, .hdf5, .mat of version 7.3 | yes | no | no |
| .npz, older .mat | no | no | no |
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from placecode.data.cells import MISSING, as_float32, check_file, wrap_read_errors
from placecode.data.channel_files import read_groups, read_names
from placecode.data.tables.arrays import array_source, array_source_of, available_memory, format_megabytes
from placecode.data.tables.columns import ColumnRoles, Survey, check_channels, column_roles, group_column, survey_of
from placecode.data.tables.sources import FrameSource, ParquetSource, Source, frame_of, group_text, parse_cell
from placecode.data.tables.texts import TextSource
from placecode.errors import BadInput, must_be

if TYPE_CHECKING:
    import pandas as pd

FORMATS = (".csv", ".tsv", ".parquet", ".npy", ".npz", ".mat", ".h5", ".hdf5")
MIN_CHANNELS, MIN_SAMPLES = 5, 50  # smallest number of channels and of samples in a file


@dataclass(frozen=True)
class Sheet:
    """A table of T samples and n channels: values as float32, names of channels, categories and groups of samples."""

    values: np.ndarray
    """Values as float32, (T, n): NaN if missing, codes from 0 for categories. The array may be a read-only memory
    map."""
    names: tuple[str, ...]  # names of the channels, (n,)
    categories: Mapping[int, tuple[str, ...]]  # sorted words of each categorical channel, by index of the channel
    groups: np.ndarray | None  # group of each sample, (T,), as an index into `group_names`; None without groups
    group_names: tuple[str, ...]  # names of the groups, in order of first appearance
    source: str  # name of the file, or "array"
    columns: tuple[str | int, ...]  # names of all columns, as pandas would name them
    channels: tuple[int, ...]  # indices into `columns`, (n,); columns of groups and of row numbers are no channels
    offsets: np.ndarray
    """Number that was subtracted from each channel, (n,). It is 0 unless float32 would lose the variation of the
    channel, as for values around 100000000.5."""


def read_sheet(
    path: str | Path,
    *,
    key: str | None = None,
    names: str | Path | None = None,
    groups: str | Path | None = None,
    spool: str | Path | None = None,
    memory: int | None = None,
) -> Sheet:
    """Read a table from a file as a `Sheet`. If it is invalid, `BadInput` has the reason and, where possible, the row.

    `key` is the name of the table in a .npz, .mat or .h5 file that contains several. `names` is a file with names for
    the channels, which replace those in the table: one per line, or a CSV with a column `name`. `groups` is the name of
    the column with the group (person, day) of each sample, or a file with one group per row.

    Values of more than `memory` bytes, by default a quarter of the available memory, are written to a file in the
    folder `spool`, which is memory-mapped. A .npy file of float32 in row order needs no such copy. It is memory-mapped
    itself, unless one of its columns contains the groups.
    """
    path = Path(path)
    memory = available_memory() // 4 if memory is None else memory
    with wrap_read_errors(path, path.suffix.lower()):
        source = _open_source(path, key, None if groups is None else str(groups), memory)
        column = group_column(source, groups)
        # checked first, because with a wrong separator numbers would look like words
        _check_width(path, source.width - (column is not None))
        survey = survey_of(source, column)
    roles = column_roles(source, survey, column, None if names is None else read_names(names))
    _check_width(path, len(roles.channels))
    if survey.rows < MIN_SAMPLES:
        raise BadInput(f"{path} must have at least {MIN_SAMPLES} samples, one in each row; it has {survey.rows}.")
    check_channels(source, survey, roles)
    _warn_of_no_header(source)
    if groups is not None and column is None:
        survey.add_groups(read_groups(groups, survey.rows, str(path)))
    fits = 4 * survey.rows * len(roles.channels) <= memory
    stored = np.load(path, mmap_mode="r") if path.suffix.lower() == ".npy" and not fits else None
    return _make_sheet(source, survey, roles, path.name, stored, spool, memory)


def sheet_of(
    data: Any,
    *,
    names: Sequence[str] | None = None,
    groups: Hashable | Sequence[Any] = None,
    spool: str | Path | None = None,
    memory: int | None = None,
) -> Sheet:
    """Convert data in memory (a NumPy array, a pandas frame or a list of rows) to a `Sheet`, a table of float32 values.

    `names` are names for the channels. `groups` is the name of the column with the group (person, day) of each row, or
    a sequence of these groups. Raises `BadInput` if the data are invalid, for example without samples or channels.

    `spool` and `memory` are used only if `data` is a `numpy.memmap`. It is used without a copy if it is float32 in row
    order and has no column of groups. Otherwise its values are copied into memory. If they have more than `memory`
    bytes (by default a quarter of the available memory), they are copied to a file in the folder `spool` instead.
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
    column = _group_column(data, source, groups)
    survey = survey_of(source, column) if source.width else Survey.empty(0)
    roles = column_roles(source, survey, column, None if names is None else [str(name) for name in names])
    if not roles.channels or not survey.rows:
        raise BadInput(f"data must have at least one row and one channel; got {survey.rows} x {len(roles.channels)}.")
    check_channels(source, survey, roles)
    if groups is not None and column is None:
        texts = [group_text(value) for value in groups]  # type: ignore[attr-defined, union-attr, unused-ignore]
        if len(texts) != survey.rows:
            raise BadInput(f"groups must have a group for each of the {survey.rows} rows; got {len(texts)}.")
        if "" in texts:
            raise BadInput(f"groups must name a group for each row; that of row {texts.index('') + 1} is missing.")
        survey.add_groups(texts)
    if not isinstance(data, np.memmap):
        memory = sys.maxsize  # the data are in memory anyway
    elif memory is None:
        memory = available_memory() // 4
    return _make_sheet(source, survey, roles, "array", data, spool, memory)


def read_cells(path: str | Path) -> pd.DataFrame:
    """Read all columns of a file into a pandas frame of numbers and words, for prediction with a trained model.

    Unlike `read_sheet`, this function accepts any number of samples, and does not convert categories to codes.
    """
    import pandas as pd

    path = Path(path)
    with wrap_read_errors(path, path.suffix.lower()):
        source = _open_source(path, None, None, available_memory() // 4)
        chunks = list(source.chunks())
    _warn_of_no_header(source)
    numbers = np.concatenate([np.empty((0, source.width)), *(chunk.numbers for chunk in chunks)])
    frame = pd.DataFrame(numbers, columns=list(_column_names(source)))
    for column in sorted({column for chunk in chunks for column in chunk.words}):
        cells = [
            np.where(chunk.words[column] == None, chunk.numbers[:, column], chunk.words[column])  # noqa: E711
            if column in chunk.words
            else chunk.numbers[:, column].astype(object)
            for chunk in chunks
        ]
        frame.isetitem(column, np.concatenate(cells))
    return frame


def encode_categories(frame: pd.DataFrame, categories: Mapping[int, tuple[str, ...]]) -> pd.DataFrame:
    """Return a copy of a frame in which words are replaced by the codes that they had in the training table.

    `categories` maps the index of a categorical column to its words in the order of their codes. A word that was not in
    the training table becomes NaN. All other columns must contain numbers, or true and false.
    """
    import pandas as pd

    encoded = frame.copy(deep=False)
    for column, kind in enumerate(frame.dtypes):
        words = categories.get(column, ())
        if not words and pd.api.types.is_numeric_dtype(kind):
            continue
        cells = frame.iloc[:, column].astype(object)
        if words:
            codes = {word: float(code) for code, word in enumerate(words)}
            numbers = [_code(cell, codes) for cell in cells]
        else:
            numbers = [_number(cell, frame.columns[column]) for cell in cells]
        encoded.isetitem(column, np.array(numbers, dtype=np.float64))
    return encoded


def _code(cell: Any, codes: Mapping[str, float]) -> float:
    """Return the code of a cell in a categorical column, or NaN if the cell is missing or has no code.

    A number is looked up by its text. For 3.0, "3.0" is tried first, then "3".
    """
    word = str(cell).strip()
    return np.nan if word.casefold() in MISSING else codes.get(word, codes.get(group_text(cell), np.nan))


def _number(cell: Any, column: Hashable) -> float:
    """Return the number in a cell of a column with this name: NaN if it is missing, 1 for true, 0 for false."""
    value = parse_cell(cell)
    if not isinstance(value, str):
        return value
    if value.casefold() not in ("true", "false"):
        raise must_be(f"column {str(column)!r}", "numbers, as in fitting", value)
    return float(value.casefold() == "true")


def _open_source(path: Path, key: str | None, groups: str | None, memory: int) -> Source:
    """Return the source (reader) for the format of a file.

    `key` is the name of the table if the file contains several. `groups` is the name of the column with groups, or
    None. An array in a format that cannot be read in chunks must not have more than `memory` bytes.
    """
    ending = path.suffix.lower()
    check_file(path, ending, FORMATS, key)
    if ending in (".csv", ".tsv"):
        return TextSource(path)
    if ending == ".parquet":
        return ParquetSource(path, groups)
    return array_source(path, ending, key, memory=memory)


def _warn_of_no_header(source: Source) -> None:
    """Warn if no header was detected in a text file, because a header of numbers could have been read as a sample."""
    if isinstance(source, TextSource) and not source.header:
        warnings.warn(f"no header was found in {source.label}: its first line is taken for a sample", stacklevel=3)


def _column_names(source: Source) -> tuple[str | int, ...]:
    """Return names of all columns as pandas would: 0, 1, 2 ... without a header, and "Unnamed: 3" for an empty name."""
    if not source.header:
        return tuple(range(source.width))
    return tuple(name or f"Unnamed: {column}" for column, name in enumerate(source.header))


def is_column_name(groups: Any) -> bool:
    """Return whether the argument `groups` is the name of a column, rather than a sequence of one group per row."""
    return isinstance(groups, str) or not hasattr(groups, "__iter__") or getattr(groups, "ndim", 1) == 0


def _group_column(data: Any, source: Source, groups: Any) -> int | None:
    """Return the index of the column with the groups, or None if no column has them.

    `groups` is the name of a column, a sequence with the group of each row, or None. The name of a column in a data
    frame may be any hashable object, not only text.
    """
    import pandas as pd

    if isinstance(data, pd.DataFrame) and groups is not None and isinstance(groups, Hashable):
        matches = [index for index, name in enumerate(data.columns) if name in {groups}]
        if len(matches) == 1:
            return matches[0]
    if groups is None or isinstance(groups, str):
        return group_column(source, groups)
    if is_column_name(groups):
        raise must_be("groups", "the name of a column of data, or the group of each row", groups)
    return None


def _check_width(path: Path, channels: int) -> None:
    """Raise `BadInput` if a file has fewer channels than `MIN_CHANNELS`."""
    if channels < MIN_CHANNELS:
        raise BadInput(f"{path} must have at least {MIN_CHANNELS} channels, one in each column; it has {channels}.")


def _make_sheet(
    source: Source, survey: Survey, roles: ColumnRoles, name: str, stored: Any, spool: str | Path | None, memory: int
) -> Sheet:
    """Read the values of a table in a second pass, and return them with the description of its columns as a `Sheet`.

    `survey` and `roles` are results of the first pass. Values of more than `memory` bytes are written to a file in the
    folder `spool`. However, if `stored` is a memory map of float32 in row order and no column contains groups, it
    becomes the values without a copy. `name` is the name of the file, or "array".
    """
    is_float32_map = isinstance(stored, np.memmap) and stored.dtype == np.float32 and stored.flags.c_contiguous
    if is_float32_map and roles.group is None:
        values = stored.view()
        values.flags.writeable = False
    else:
        values = _read_values(source, survey, roles, name, spool, memory)
    index_of = {column: i for i, column in enumerate(roles.channels)}
    return Sheet(
        values=values,
        names=roles.names,
        categories={index_of[column]: words for column, words in sorted(roles.categories.items())},
        groups=np.concatenate(survey.groups) if survey.groups else None,
        group_names=tuple(survey.group_codes),
        source=name,
        columns=_column_names(source),
        channels=tuple(roles.channels),
        offsets=survey.offsets[roles.channels],
    )


# Second pass over the table: read the values


def _converted_blocks(source: Source, survey: Survey, roles: ColumnRoles) -> Iterator[np.ndarray]:
    """Yield the values of the n channels in blocks of r rows, (r, n), as float32 with codes in place of words."""
    rows, offsets = 0, survey.offsets
    for chunk in source.chunks(roles.group):
        for column, words in chunk.words.items():
            if column in roles.numbers:
                codes = roles.numbers[column]
                chunk.numbers[:, column] = [codes.get(word, np.nan) for word in words]
        rows += len(chunk.numbers)
        if rows <= survey.rows:
            yield np.ascontiguousarray(as_float32((chunk.numbers - offsets)[:, roles.channels]))
    if rows != survey.rows:
        raise BadInput(f"{source.label} must not change while it is read; it had {survey.rows} rows, then {rows}.")


def _read_values(
    source: Source, survey: Survey, roles: ColumnRoles, name: str, spool: str | Path | None, memory: int
) -> np.ndarray:
    """Return the values of all channels, (T, n), in memory if they fit into `memory` bytes.

    Otherwise they are written to a file in the folder `spool` and returned as a memory map.
    """
    from placecode.files import open_atomic

    shape = (survey.rows, len(roles.channels))
    size = 4 * shape[0] * shape[1]
    if size <= memory:
        values, first = np.empty(shape, dtype=np.float32), 0
        for block in _converted_blocks(source, survey, roles):
            values[first : first + len(block)] = block
            first += len(block)
        return values
    if spool is None:
        reason = f"since {source.label} takes {format_megabytes(size)} of {format_megabytes(memory)} of memory"
        raise must_be("spool", f"a folder for the values, {reason}", spool)
    path = Path(spool) / f"{name}.float32.npy"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_atomic(path) as stream:
        header = {"descr": np.dtype(np.float32).str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, header)
        for block in _converted_blocks(source, survey, roles):
            stream.write(block.data)
    return np.asanyarray(np.load(path, mmap_mode="r"))
