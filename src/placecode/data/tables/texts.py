"""Reading of tables from text files (.csv, .tsv), with or without a header, in chunks of rows.

pyarrow parses the file. Python's csv module, which is slower, is used for the first rows, for error messages, and for
the few files that pyarrow cannot parse. `is_header` decides whether the first line has the names of the columns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NoReturn

import numpy as np

from placecode.data.cells import (
    DECIMAL_COMMA,
    INDEX_COLUMN_NAMES,
    MISSING,
    check_width,
    csv_rows,
    find_separator,
    is_enumeration,
    is_word,
    parse_number,
    unreadable_file,
)
from placecode.data.tables import sources
from placecode.data.tables.sources import Chunk, Source, chunk_of_arrow, plain_numbers
from placecode.errors import BadInput

LINES_BELOW = 20  # number of lines below the first that are compared with it
MIN_DECIMAL_FRACTION = 0.8  # smallest fraction of decimals below a header of integers; some programs write 2 for 2.0
MIN_CONSECUTIVE = 3
"""Smallest number of consecutive integers (1, 2, 3 ...) in a header that also contains words. A line with fewer may be
a sample that begins with its row number."""


class TextSource(Source):
    """The rows of a text file separated by commas, semicolons or tabs, with or without a header.

    Raises `BadInput` when it is created if the file is empty or has only a header.
    """

    path: Path

    def __init__(self, path: Path) -> None:
        self.path = path
        with open(path, encoding="utf-8-sig", errors="replace") as file:  # spreadsheets write a byte-order mark
            lines = (line for line in file if line.strip())
            first_line, second_line = next(lines, ""), next(lines, "")
        self._sign = find_separator(path.suffix.lower(), first_line)
        rows = [row for _, row in islice(self._lines(), LINES_BELOW + 1)]
        if not rows:
            raise BadInput(f"{path} is empty.")
        first = rows[0]
        self.width = len(first)
        self.header = tuple(first) if is_header(rows, self._quoted(first_line, second_line)) else ()
        # number of bytes that pyarrow reads at once; every line must fit into a block
        self._block = max(sources.CHUNK_BYTES // 16, 64 * sum(len(cell) + 3 for cell in first))
        if self.header and len(rows) == 1:
            raise BadInput(f"{path} must have a row for each sample; it has only a header.")

    def _quoted(self, first: str, second: str) -> bool:
        """Return whether all cells of the first line are in quotes, as in headers that R writes, but a number in the
        second line is not."""
        first_cells, second_cells = ([cell.strip() for cell in line.split(self._sign)] for line in (first, second))
        has_number = any(map(_is_number, second_cells))  # without quotes
        return has_number and all(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in first_cells)

    def _lines(self, errors: str = "replace") -> Iterator[tuple[int, list[str]]]:
        """Yield the line number and the cells of each row that is not empty, parsed by Python's csv module (slow).

        `errors` says what to do with bytes that are not UTF-8, as in `open`.
        """
        with open(self.label, encoding="utf-8-sig", errors=errors, newline="") as file:
            yield from ((line, row) for line, row in csv_rows(file, self._sign) if row)

    @cached_property
    def _spaced(self) -> bool:
        """Whether a cell of the file has spaces before its opening quote, which pyarrow does not parse."""
        spaced = re.compile(rf'(^|{re.escape(self._sign)}) +"'.encode())
        with open(self.label, "rb") as file:
            return any(b' "' in line and spaced.search(line) for line in file)

    def chunks(self, group: int | None = None) -> Iterator[Chunk]:
        return self._python_chunks(group) if self._spaced else self._arrow_chunks(group)

    def _python_chunks(self, group: int | None) -> Iterator[Chunk]:
        """Yield chunks of rows that are parsed by Python's csv module, for files that pyarrow cannot parse."""
        import pyarrow as pa

        try:
            rows = (row for _, row in islice(self._lines("strict"), int(bool(self.header)), None))
            while batch := list(islice(rows, self._rows_per_chunk())):
                if any(len(row) != self.width for row in batch):
                    self._fail()
                yield chunk_of_arrow(self, [pa.array(cells, pa.string()) for cells in zip(*batch, strict=True)], group)
        except UnicodeDecodeError as error:
            self._fail(error)

    def _arrow_chunks(self, group: int | None) -> Iterator[Chunk]:
        """Yield chunks of rows that are parsed by pyarrow, which is much faster than Python's csv module.

        As long as all cells are plain numbers and there is no column of groups, all columns of a chunk are converted at
        once. Afterwards they are converted one by one.
        """
        import pyarrow as pa
        import pyarrow.csv as arrow

        header, all_numbers = bool(self.header), group is None
        try:
            reader = arrow.open_csv(
                self.label,
                arrow.ReadOptions(use_threads=False, block_size=self._block, autogenerate_column_names=True),
                arrow.ParseOptions(delimiter=self._sign, newlines_in_values=True),
                arrow.ConvertOptions(
                    column_types={f"f{i}": pa.string() for i in range(self.width)},
                    null_values=[],
                    strings_can_be_null=False,
                ),
            )
            for batch in reader:
                columns = [column[1:] for column in batch.columns] if header else batch.columns
                # converting thousands of columns one by one is slow, and most tables contain numbers only
                numbers = plain_numbers(pa.concat_arrays(columns)) if all_numbers else None
                header, all_numbers = False, numbers is not None
                if numbers is None:
                    yield chunk_of_arrow(self, columns, group)
                else:
                    yield Chunk(np.array(numbers.reshape(self.width, -1).T, order="C"), {})
        except pa.ArrowInvalid as error:
            self._fail(error)

    def _fail(self, error: Exception | None = None) -> NoReturn:
        """Raise `BadInput` for a file that could not be parsed. The message names the first invalid line, if any.

        A line is invalid if it is not UTF-8 or has a wrong number of cells. `error` is the exception of the parser.
        """
        with open(self.label, "rb") as file:
            for line, content in enumerate(file, 1):
                try:
                    content.decode()
                except UnicodeDecodeError:
                    raise BadInput(f"{self.label} must be a text file in UTF-8; line {line} is not.") from error
        for line, row in self._lines():
            check_width(self.label, line, row, self.width)
        raise unreadable_file(self.path, self.path.suffix) from error

    def row_label(self, number: int) -> str:
        lines = (line for line, _ in self._lines())
        for _ in range(number + bool(self.header)):
            next(lines)
        return f"{self.label}, line {next(lines)}"


# Detection of a header


def is_header(rows: Sequence[Sequence[str]], quoted: bool = False) -> bool:
    """Return whether the first line of a text file is a header, which names the columns, and not the first sample.

    `rows` are the first lines of the file, split into cells. `quoted` says whether all cells of the first line are in
    quotes while the second line has a number without quotes.

    The first line is a header if its cells and the cells below fit one of these rules:

    | cells of the first line | cells below |
    |---|---|
    | at least one word | a number below one of the words |
    | only words | anything |
    | 0, 1, 2 ... or 1, 2, 3 ..., optionally after a word such as "time" | anything |
    | words, and 1, 2, 3 ... in the other cells | other words below the words |
    | an empty first cell | 0, 1, 2 ... or 1, 2, 3 ... below this cell |
    | all in quotes | a number without quotes in the second line |
    | different integers, optionally with words | decimals far from these integers, other words below the words |

    Otherwise the first line is a sample. The last of these rules does not mistake a sample for a header: in a table of
    integers there are no decimals below the first sample, and in a table of decimals, a first sample that happens to
    consist of integers is close to the values below.

    >>> is_header([["400", "410", "420"], ["0.31", "0.35", "0.42"], ["0.30", "0.36", "0.41"]])
    True
    >>> is_header([["400", "410", "420"], ["401", "409", "422"]])
    False
    """
    first, below = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    columns = list(zip(*below, strict=True)) or [()] * len(first)
    words = [j for j, cell in enumerate(first) if _is_name(cell)]
    if any(_is_number(cell) for j in words for cell in columns[j]):
        return True
    if words and all(_is_name(cell) or cell.casefold() in MISSING for cell in first):
        return True
    names = first[1:] if len(first) > 1 and first[0].casefold() in INDEX_COLUMN_NAMES else first
    if quoted or is_enumeration(names) or (not first[0] and len(below) > 1 and is_enumeration(columns[0])):
        return True
    if any(first[j] in columns[j] for j in words):
        return False  # a word occurs again below, so it is a category and not the name of its column
    numbers = [j for j, cell in enumerate(first) if _is_number(cell)]
    consecutive = len(numbers) >= MIN_CONSECUTIVE and is_enumeration([first[j] for j in numbers])
    return consecutive or _are_codes([first[j] for j in numbers], [columns[j] for j in numbers])


def _is_name(cell: str) -> bool:
    """Return whether a cell can be the name of a column: neither empty or missing, nor a number such as 3.5 or 3,5."""
    return is_word(cell) and not DECIMAL_COMMA.fullmatch(cell)


def _is_number(cell: str) -> bool:
    """Return whether a cell contains a number. Words and missing values do not count."""
    value = parse_number(cell)
    return value is not None and not math.isnan(value)


def _are_codes(first: Sequence[str], columns: Sequence[Sequence[str]]) -> bool:
    """Return whether the integers `first` of the first line are names of columns, such as years or wavelengths.

    `columns` are the cells below each integer. The integers are names if they all differ, if the cells below are mostly
    decimals, and if more than half of the integers are far from the values below them: outside their range by more than
    half its width. Otherwise they are a sample.
    """
    if len(set(first)) < max(2, len(first)) or not all(cell.isascii() and cell.isdigit() for cell in first):
        return False
    numbers = [[cell for cell in column if _is_number(cell)] for column in columns]
    decimal_counts = [sum(not cell.lstrip("+-").isdigit() for cell in column) for column in numbers]
    if not all(decimal_counts) or sum(decimal_counts) < MIN_DECIMAL_FRACTION * sum(map(len, numbers)):
        return False
    far = 0
    for cell, column in zip(first, numbers, strict=True):
        values = list(map(float, column))
        low, high = min(values), max(values)
        far += abs(float(cell) - (low + high) / 2) > high - low
    return far > len(first) / 2
