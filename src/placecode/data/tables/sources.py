"""Where the rows of a table come from: every format as pieces of rows, so that no format needs all of it in memory.

A source knows its header and hands out `Piece`s, as often as it is asked to. What is made of them is the business of
`table_files`: a cell means the same whichever source it comes from.

| source | of what | a piece is |
|---|---|---|
| `ArraySource` | arrays, .npy, .npz, .mat, .h5, .hdf5 | a slice of rows |
| `TextSource` (in `table_texts`) | .csv, .tsv | a block of text |
| `ParquetSource` | .parquet | rows of a row group |
| `FrameSource` | a pandas frame, a list of rows | a slice of rows |
"""

from __future__ import annotations

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

from placecode.data.cells import MISSING, number
from placecode.errors import BadInput

if TYPE_CHECKING:
    import pandas as pd

PIECE = 2**22
"""How many bytes of float64 a piece has, about; of text a sixteenth, since pyarrow reads dozens of blocks ahead."""


@dataclass(frozen=True)
class Piece:
    """Some rows: `numbers` (r, width), NaN where a cell is missing or a word; by column (r,) words, None elsewhere.

    `group` has the text of each row's cell in the column that was asked for, which has no numbers and words then.
    """

    numbers: np.ndarray
    words: Mapping[int, np.ndarray]
    group: Sequence[str] | None = None


class Source:
    """A table as pieces of rows; `header` is empty where the columns have no names."""

    label = ""
    """What sentences call it: the path, or "data"."""
    path: Path | None = None
    header: tuple[str, ...] = ()
    width = 0
    declared: frozenset[int] = frozenset()
    """Columns that say themselves that they are categories, whatever their values look like."""

    def pieces(self, group: int | None = None) -> Iterator[Piece]:
        """All rows, piece by piece, and the texts of the column `group`."""
        raise NotImplementedError

    def row(self, number: int) -> str:
        """Where a row is, as sentences say it; the first row of data is 0 here and 1 there."""
        return f"{self.label}, row {number + 1}" if self.path else f"row {number + 1}"

    def _step(self) -> int:
        return max(1, PIECE // (8 * self.width))


class ArraySource(Source):
    """Rows that `rows(first, end)` reads; at least `least` of them at once, where a file is laid out so."""

    def __init__(
        self, label: str, path: Path | None, shape: tuple[int, int], rows: Callable[[int, int], Any], least: int = 1
    ) -> None:
        self.label, self.path, self.width = label, path, shape[1]
        self.length, self.rows, self.least = shape[0], rows, least

    def pieces(self, group: int | None = None) -> Iterator[Piece]:
        step = -(-self._step() // self.least) * self.least
        for first in range(0, self.length, step):
            numbers = np.array(self.rows(first, min(first + step, self.length)), dtype=np.float64, order="C")
            texts = None
            if group is not None:
                texts = [group_text(value) for value in numbers[:, group].tolist()]
                numbers[:, group] = np.nan
            yield Piece(numbers, {}, texts)


class ParquetSource(Source):
    """A Parquet file; what pandas had written as the index of the rows is no channel, as in a frame."""

    def __init__(self, path: Path, group: str | None) -> None:
        self.label, self.path = str(path), path
        with self._open() as file:
            schema = file.schema_arrow
        told = schema.pandas_metadata or {}
        index = {name for name in told.get("index_columns", []) if isinstance(name, str)} - {group}
        self._columns = [i for i, name in enumerate(schema.names) if name not in index]
        self.header = tuple(schema.names[i].strip() for i in self._columns)
        self.width = len(self._columns)
        # of numbers that are categories, a file has nothing but what pandas says of them
        named = {each.get("field_name") for each in told.get("columns", []) if each.get("pandas_type") == "categorical"}
        kept = [(schema.names[i], str(schema.types[i])) for i in self._columns]
        self.declared = frozenset(
            j for j, (name, kind) in enumerate(kept) if name in named or kind.startswith("dictionary")
        )

    def _open(self) -> Any:
        import pyarrow.parquet as pq

        # each column has a buffer of its own; without any, a whole row group would be fetched
        buffer = min(2**16, max(2**12, 2**25 // max(1, self.width)))
        return pq.ParquetFile(self.label, pre_buffer=False, buffer_size=buffer)

    def pieces(self, group: int | None = None) -> Iterator[Piece]:
        with self._open() as file:
            for batch in file.iter_batches(batch_size=self._step(), use_threads=False):
                columns = batch.columns
                yield of_arrow(self, [columns[i] for i in self._columns], group)


class FrameSource(Source):
    """A pandas frame; the index of its rows is no channel."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.label, self.width, self._frame = "data", frame.shape[1], frame
        unnamed = frame.columns.tolist() == [*range(self.width)]  # what pandas has for want of names
        self.header = () if unnamed else tuple(str(name).strip() for name in frame.columns)
        self.declared = frozenset(j for j, kind in enumerate(frame.dtypes) if str(kind) == "category")

    def pieces(self, group: int | None = None) -> Iterator[Piece]:
        import pandas as pd

        plain = [
            j
            for j, kind in enumerate(self._frame.dtypes)
            if j != group and isinstance(kind, np.dtype) and kind.kind in "biuf"
        ]
        for first in range(0, len(self._frame), self._step()):
            part = self._frame.iloc[first : first + self._step()]
            numbers = np.full(part.shape, np.nan)
            numbers[:, plain] = part.iloc[:, plain].to_numpy(dtype=np.float64)
            words: dict[int, np.ndarray] = {}
            texts = None
            for j in sorted(set(range(self.width)) - set(plain)):
                column = part.iloc[:, j]
                if j == group:
                    texts = [group_text(None if pd.isna(value) else value) for value in column.tolist()]
                elif j in self.declared:
                    found = _of_codes(column.cat.codes.to_numpy(), column.cat.categories.tolist())
                    words |= {} if found is None else {j: found}
                elif pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_complex_dtype(column.dtype):
                    numbers[:, j] = column.to_numpy(dtype=np.float64, na_value=np.nan)
                else:
                    numbers[:, j], found = _of_objects(self, j, first, column.astype(object).tolist())
                    words |= {} if found is None else {j: found}
            yield Piece(numbers, words, texts)


def frame_of(rows: Sequence[Any]) -> pd.DataFrame:
    """A list of rows as a frame; `BadInput` where a row is none, or has another length than the first."""
    import pandas as pd

    for i, row in enumerate(rows):
        if isinstance(row, str) or not isinstance(row, Sequence | np.ndarray):
            raise BadInput(f"row {i + 1}: must be a list of values; got {row!r:.40}.")
        if len(row) != len(rows[0]):
            raise BadInput(f"row {i + 1}: must have {len(rows[0])} values; got {len(row)}.")
    return pd.DataFrame([list(row) for row in rows])


# Cells


def group_text(value: Any) -> str:
    """What a cell says of its row's group, empty where it is missing; whole numbers and days look alike everywhere.

    >>> group_text(3.0), group_text(" 3 "), group_text("2024-05-01 00:00:00"), group_text(float("nan"))
    ('3', '3', '2024-05-01', '')
    """
    text = "" if value is None else str(value).strip()
    if text.casefold() in MISSING or text in ("NaT", "<NA>"):
        return ""
    return re.sub(r"^(-?\d+)\.0+$", r"\1", text).removesuffix(" 00:00:00")


def of_arrow(source: Source, columns: Sequence[Any], group: int | None) -> Piece:
    """Columns of pyarrow as a piece."""
    import pyarrow as pa

    numbers = np.full((len(columns[0]), len(columns)), np.nan)
    words: dict[int, np.ndarray] = {}
    texts = None
    for j, column in enumerate(columns):
        kind = column.type
        found = None
        if j == group:
            texts = [group_text(value) for value in column.to_pylist()]
        elif j in source.declared:
            column = column if pa.types.is_dictionary(kind) else column.dictionary_encode()
            found = _of_codes(column.indices.cast(pa.int64()).fill_null(-1).to_numpy(), column.dictionary.to_pylist())
        elif pa.types.is_boolean(kind):
            numbers[:, j] = column.cast(pa.int8()).to_numpy(zero_copy_only=False)
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
            numbers[:, j] = column.to_numpy(zero_copy_only=False)
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            numbers[:, j], found = _of_texts(column.cast(pa.large_string()))
        elif pa.types.is_decimal(kind) or pa.types.is_temporal(kind) or pa.types.is_null(kind):
            numbers[:, j], found = _of_objects(source, j, 0, column.to_pylist())
        else:
            raise _odd(source, j, str(kind))
        if found is not None:
            words[j] = found
    return Piece(numbers, words, texts)


def plain_numbers(cells: Any) -> np.ndarray | None:
    """Texts as numbers, NaN where missing, as they are or else trimmed; None if there are words, or odd numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for trimmed in (False, True):
        try:
            if trimmed:
                cells = pc.utf8_trim_whitespace(cells)
                missing = pc.is_in(pc.utf8_lower(cells), value_set=pa.array(sorted(MISSING), cells.type))
                plain = pc.if_else(missing, pa.scalar(None, cells.type), cells)
            else:
                plain = cells
            return plain.cast(pa.float64()).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
        except pa.ArrowInvalid:
            continue
    return None


def _of_texts(cells: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """A column of texts as numbers and words, quickly, or one by one."""
    plain = plain_numbers(cells)
    if plain is not None:
        return plain, None
    encoded = cells.fill_null("").dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    parsed = [number(cell) for cell in distinct]
    which = encoded.indices.to_numpy()
    numbers = np.array([math.nan if value is None else value for value in parsed])[which]
    if None not in parsed:
        return numbers, None
    words = [cell.strip() if value is None else None for cell, value in zip(distinct, parsed, strict=True)]
    return numbers, np.array(words, dtype=object)[which]


def _of_codes(codes: np.ndarray, values: Sequence[Any]) -> np.ndarray | None:
    """A column that was declared a category as words, each value as it is written; a code of -1 is a missing value."""
    texts = ["" if value is None else str(value).strip() for value in values]
    words = np.array([None if text.casefold() in MISSING else text for text in texts] + [None], dtype=object)
    found = words[codes]
    return found if (found != None).any() else None  # noqa: E711  (of each element)


def _of_objects(source: Source, column: int, first: int, cells: Sequence[Any]) -> tuple[np.ndarray, np.ndarray | None]:
    """A column of any objects as numbers and words; `first` is the row that they begin with."""
    numbers, words = np.full(len(cells), np.nan), np.full(len(cells), None, dtype=object)
    for i, cell in enumerate(cells):
        try:
            found = meaning(cell)
        except TypeError:
            raise _odd(source, column, repr(cell)[:40], source.row(first + i)) from None
        if isinstance(found, str):
            words[i] = found
        else:
            numbers[i] = found
    return numbers, words if any(word is not None for word in words) else None


def meaning(cell: Any) -> float | str:
    """A number, NaN where it is missing, or a word; true and false, dates and times are words, as in a text file."""
    import pandas as pd

    if isinstance(cell, str):
        value = number(cell)
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


def _odd(source: Source, column: int, given: str, place: str | None = None) -> BadInput:
    name = source.header[column] if source.header else f"channel {column + 1}"
    return BadInput(f"{place or source.label}: column {name!r} must hold numbers, or words; got {given}.")
