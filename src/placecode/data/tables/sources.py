"""Reading of the rows of a table in chunks, so that a table need not fit into memory, and parsing of its cells.

Every format has a class, called a source, that yields chunks of rows as numbers and words. A source can be read several
times. `columns` and `files` interpret the columns, in the same way for all sources.

| source | format | chunk |
|---|---|---|
| `ArraySource` | arrays, .npy, .npz, .mat, .h5, .hdf5 | a slice of rows |
| `TextSource` (in `texts`) | .csv, .tsv | a block of text |
| `ParquetSource` | .parquet | rows of a row group |
| `FrameSource` | a pandas frame, a list of rows | a slice of rows |
"""

from __future__ import annotations

import contextlib
import datetime
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from placecode.data.cells import MISSING, parse_number
from placecode.errors import BadInput

if TYPE_CHECKING:
    import pandas as pd

CHUNK_BYTES = 2**22
"""Approximate size of a chunk of rows in bytes, as float64. Blocks of text files are a sixteenth of it, because pyarrow
reads dozens of blocks ahead."""


@dataclass(frozen=True)
class Chunk:
    """A block of r consecutive rows of a table."""

    numbers: np.ndarray  # numbers in all columns, (r, width); NaN for missing values and words
    words: Mapping[int, np.ndarray]
    """Words by index of the column, for columns that have any: arrays (r,), with None for cells that are no words."""
    group: Sequence[str] | None = None
    """Group of each row, if one column contains the groups. This column has no entries in `numbers` and `words`."""


class Source:
    """Base class of the readers of one table. Subclasses set the attributes and implement `chunks`."""

    path: Path | None = None  # the file, or None for data in memory
    header: tuple[str, ...] = ()  # names of the columns, empty if there are none
    width = 0  # number of columns
    categorical: frozenset[int] = frozenset()  # indices of columns whose data type is categorical

    @property
    def label(self) -> str:
        """Name of the table in messages: the path of its file, or "data" for data in memory."""
        return str(self.path or "data")

    def chunks(self, group: int | None = None) -> Iterator[Chunk]:
        """Yield all rows of the table in chunks, in order.

        If a column contains the group (person, day) of each row, `group` is its index. Its cells become `Chunk.group`.
        """
        raise NotImplementedError

    def row_label(self, number: int) -> str:
        """Return where a row is, for messages, such as "a.csv, line 3". `number` is its index, counted from 0."""
        return f"{self.label}, row {number + 1}" if self.path else f"row {number + 1}"

    def _rows_per_chunk(self) -> int:
        """Return the number of rows in a chunk of about `CHUNK_BYTES` bytes."""
        return max(1, CHUNK_BYTES // (8 * self.width))


class ArraySource(Source):
    """The rows of an array of numbers, in memory or in a file.

    `shape` is the shape of the array. The function `rows(first, end)` returns the rows from `first` up to `end`,
    exclusive. Chunks have a multiple of `row_multiple` rows, for example of the number of rows in a block of an HDF5
    file.
    """

    def __init__(
        self, path: Path | None, shape: tuple[int, ...], rows: Callable[[int, int], Any], row_multiple: int = 1
    ) -> None:
        self.path, self.width = path, shape[1]
        self.length, self.rows, self.row_multiple = shape[0], rows, row_multiple

    def chunks(self, group: int | None = None) -> Iterator[Chunk]:
        step = -(-self._rows_per_chunk() // self.row_multiple) * self.row_multiple
        for first in range(0, self.length, step):
            numbers = np.array(self.rows(first, min(first + step, self.length)), dtype=np.float64, order="C")
            texts = None
            if group is not None:
                texts = [group_text(value) for value in numbers[:, group].tolist()]
                numbers[:, group] = np.nan
            yield Chunk(numbers, {}, texts)


class ParquetSource(Source):
    """The rows of a Parquet file. An index written by pandas is left out, unless it is the column named `group`."""

    def __init__(self, path: Path, group: str | None) -> None:
        import pyarrow as pa

        self.path = path
        with self._open() as file:
            schema = file.schema_arrow
        metadata = schema.pandas_metadata or {}
        index = {name for name in metadata.get("index_columns", []) if isinstance(name, str)} - {group}
        self._columns = [i for i, name in enumerate(schema.names) if name not in index]
        self.header = tuple(schema.names[i].strip() for i in self._columns)
        self.width = len(self._columns)
        # a category whose values are numbers is stored like a column of numbers; only pandas' metadata distinguish them
        entries = metadata.get("columns", [])
        categorical = {entry.get("field_name") for entry in entries if entry.get("pandas_type") == "categorical"}
        declared = [schema.names[i] in categorical or pa.types.is_dictionary(schema.types[i]) for i in self._columns]
        self.categorical = frozenset(np.flatnonzero(declared).tolist())

    def _open(self) -> Any:
        """Return pyarrow's reader of the file, with small buffers, so that reading needs little memory."""
        import pyarrow.parquet as pq

        # every column has a buffer; without buffers, a whole row group would be read
        buffer = min(2**16, max(2**12, 2**25 // max(1, self.width)))
        return pq.ParquetFile(self.label, pre_buffer=False, buffer_size=buffer)

    def chunks(self, group: int | None = None) -> Iterator[Chunk]:
        with self._open() as file:
            for batch in file.iter_batches(batch_size=self._rows_per_chunk(), use_threads=False):
                yield chunk_of_arrow(self, [batch.column(i) for i in self._columns], group)


class FrameSource(Source):
    """The rows of a pandas frame, without its index."""

    def __init__(self, frame: pd.DataFrame) -> None:
        import pandas as pd

        self.width, self._frame = frame.shape[1], frame
        unnamed = frame.columns.tolist() == [*range(self.width)]  # the default names of pandas
        self.header = () if unnamed else tuple(str(name).strip() for name in frame.columns)
        self.categorical = frozenset(j for j, kind in enumerate(frame.dtypes) if isinstance(kind, pd.CategoricalDtype))

    def chunks(self, group: int | None = None) -> Iterator[Chunk]:
        import pandas as pd

        is_plain = [isinstance(kind, np.dtype) and kind.kind in "biuf" for kind in self._frame.dtypes]
        plain = [j for j in range(self.width) if is_plain[j] and j != group]
        for first in range(0, len(self._frame), self._rows_per_chunk()):
            part = self._frame.iloc[first : first + self._rows_per_chunk()]
            numbers = np.full(part.shape, np.nan)
            numbers[:, plain] = part.iloc[:, plain].to_numpy(dtype=np.float64)
            words: dict[int, np.ndarray | None] = {}
            texts = None
            for j in sorted(set(range(self.width)) - set(plain)):
                column = part.iloc[:, j]
                if j == group:
                    texts = [group_text(None if pd.isna(value) else value) for value in column.tolist()]
                elif j in self.categorical:
                    words[j] = _of_codes(column.cat.codes.to_numpy(), column.cat.categories.tolist())
                elif pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_complex_dtype(column.dtype):
                    numbers[:, j] = column.to_numpy(dtype=np.float64, na_value=np.nan)
                else:
                    numbers[:, j], words[j] = _of_objects(self, j, first, column.astype(object).tolist())
            yield Chunk(numbers, {j: cells for j, cells in words.items() if cells is not None}, texts)


def frame_of(rows: Sequence[Any]) -> pd.DataFrame:
    """Convert a list of rows to a pandas frame. Raises `BadInput` unless they are lists of values of equal length."""
    import pandas as pd

    for i, row in enumerate(rows):
        if isinstance(row, str) or not isinstance(row, Sequence | np.ndarray):
            raise BadInput(f"row {i + 1}: must be a list of values; got {row!r:.40}.")
        if len(row) != len(rows[0]):
            raise BadInput(f"row {i + 1}: must have {len(rows[0])} values; got {len(row)}.")
    return pd.DataFrame([list(row) for row in rows])


# Conversion of cells to numbers and words


def group_text(value: Any) -> str:
    """Return the name of a group from a cell of any type, "" if it is missing.

    Equal integers and equal dates get the same name, whatever file format they are read from.

    >>> group_text(3.0), group_text(" 3 "), group_text("2024-05-01 00:00:00"), group_text(float("nan"))
    ('3', '3', '2024-05-01', '')
    """
    text = "" if value is None else str(value).strip()
    if text.casefold() in MISSING or text in ("NaT", "<NA>"):
        return ""
    return re.sub(r"^(-?\d+)\.0+$", r"\1", text).removesuffix(" 00:00:00")


def chunk_of_arrow(source: Source, columns: Sequence[Any], group: int | None) -> Chunk:
    """Convert the pyarrow arrays of all columns to a chunk of rows.

    `group` is the index of the column with the groups, or None. Raises `BadInput` for other types than numbers,
    booleans, text, dates and times, for example lists.
    """
    import pyarrow as pa

    numbers = np.full((len(columns[0]), len(columns)), np.nan)
    words: dict[int, np.ndarray | None] = {}
    texts = None
    for j, column in enumerate(columns):
        kind = column.type
        if j == group:
            texts = [group_text(value) for value in column.to_pylist()]
        elif j in source.categorical:
            column = column if pa.types.is_dictionary(kind) else column.dictionary_encode()
            codes = column.indices.cast(pa.int64()).fill_null(-1).to_numpy()
            words[j] = _of_codes(codes, column.dictionary.to_pylist())
        elif pa.types.is_boolean(kind):
            numbers[:, j] = column.cast(pa.int8()).to_numpy(zero_copy_only=False)
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
            numbers[:, j] = column.to_numpy(zero_copy_only=False)
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            numbers[:, j], words[j] = _of_texts(column.cast(pa.large_string()))
        elif pa.types.is_decimal(kind) or pa.types.is_temporal(kind) or pa.types.is_null(kind):
            numbers[:, j], words[j] = _of_objects(source, j, 0, column.to_pylist())
        else:
            raise _unsupported(source, j, str(kind))
    return Chunk(numbers, {j: cells for j, cells in words.items() if cells is not None}, texts)


def plain_numbers(cells: Any) -> np.ndarray | None:
    """Convert a pyarrow array of texts to numbers, NaN for missing values.

    Returns None if a text is a word, or a number in a notation that pyarrow does not parse.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    with contextlib.suppress(pa.ArrowInvalid):
        return np.asarray(cells.cast(pa.float64()).to_numpy(zero_copy_only=False))
    with contextlib.suppress(pa.ArrowInvalid):
        cells = pc.utf8_trim_whitespace(cells)
        missing = pc.is_in(pc.utf8_lower(cells), value_set=pa.array(sorted(MISSING), cells.type))
        plain = pc.if_else(missing, pa.scalar(None, cells.type), cells)
        return np.asarray(plain.cast(pa.float64()).to_numpy(zero_copy_only=False))
    return None


def _of_texts(cells: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Convert a pyarrow column of r texts to two arrays: numbers, (r,), NaN elsewhere; and words, (r,), None elsewhere.

    If the column has no words, None is returned in place of the second array.
    """
    if (plain := plain_numbers(cells)) is not None:
        return plain, None
    encoded = cells.fill_null("").dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    parsed = [parse_number(cell) for cell in distinct]
    index = encoded.indices.to_numpy()
    numbers = np.array([math.nan if value is None else value for value in parsed])[index]
    if None not in parsed:
        return numbers, None
    words = [cell.strip() if value is None else None for cell, value in zip(distinct, parsed, strict=True)]
    return numbers, np.array(words, dtype=object)[index]


def _of_codes(codes: np.ndarray, values: Sequence[Any]) -> np.ndarray | None:
    """Convert r codes of a categorical column to words, (r,), with None for missing values.

    `codes`, (r,), are indices into `values`, the categories. A code of -1 is a missing value. Returns None instead of
    an array if all values are missing.
    """
    texts = ["" if value is None else str(value).strip() for value in values]
    words = np.array([None if text.casefold() in MISSING else text for text in texts] + [None], dtype=object)
    column_words = words[codes]
    return column_words if (column_words != None).any() else None  # noqa: E711  (elementwise)


def _of_objects(source: Source, column: int, first: int, cells: Sequence[Any]) -> tuple[np.ndarray, np.ndarray | None]:
    """Convert r cells of any Python type, from one column, to numbers, (r,), NaN for words, and words, (r,), or None.

    The array of words has None for other cells, and is None itself if no cell is a word. `column` is the index of the
    column in `source`, and `first` the index of the first row, for error messages.
    """
    numbers, words = np.full(len(cells), np.nan), np.full(len(cells), None, dtype=object)
    for i, cell in enumerate(cells):
        try:
            value = parse_cell(cell)
        except TypeError:
            raise _unsupported(source, column, repr(cell)[:40], source.row_label(first + i)) from None
        if isinstance(value, str):
            words[i] = value
        else:
            numbers[i] = value
    return numbers, words if any(word is not None for word in words) else None


def parse_cell(cell: Any) -> float | str:
    """Return the content of a cell of any type: a number, NaN for a missing value, or a word.

    Booleans, dates and times become words, as in a text file. Raises `TypeError` for other types, such as lists.
    """
    import pandas as pd

    if isinstance(cell, str):
        value = parse_number(cell)
        return cell.strip() if value is None else value
    if cell is None or cell is pd.NA or cell is pd.NaT:
        return math.nan
    times = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64, pd.Period)
    if isinstance(cell, (bool, np.bool_, *times)):
        return str(cell)
    if isinstance(cell, Real | Decimal):
        try:
            return float(cell)
        except OverflowError:
            return math.inf
    raise TypeError(type(cell).__name__)


def _unsupported(source: Source, column: int, value: str, row: str | None = None) -> BadInput:
    """Return the exception for a column with a value that is neither a number nor a word.

    `value` is the value, or the data type of the column, as text. `row` says where it is, such as "a.csv, line 3". By
    default only the table is named.
    """
    name = source.header[column] if source.header else f"channel {column + 1}"
    return BadInput(f"{row or source.label}: column {name!r} must hold numbers, or words; got {value}.")
