"""Reading of tables from text files (.csv, .tsv), with or without a header, in chunks of rows.

pyarrow parses the file. Python's csv module, which is slower, is used for the first rows, for error messages, and for
the few files that pyarrow cannot parse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NoReturn

import numpy as np

from placecode.data.cells import check_width, csv_rows, find_separator, unreadable_file
from placecode.data.tables import sources
from placecode.data.tables.headers import LINES_BELOW, is_header, is_number
from placecode.data.tables.sources import Chunk, Source, chunk_of_arrow, plain_numbers
from placecode.errors import BadInput


class TextSource(Source):
    """The rows of a text file separated by commas, semicolons or tabs, with or without a header.

    Raises `BadInput` when it is created if the file is empty or has only a header.
    """

    path: Path

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = self._first_lines()
        self._sign = find_separator(path.suffix.lower(), lines[0])
        rows = [row for _, row in islice(self._lines(), LINES_BELOW + 1)]
        if not rows:
            raise BadInput(f"{path} is empty.")
        first = rows[0]
        self.width = len(first)
        self.header = tuple(first) if is_header(rows, self._quoted(*lines)) else ()
        # number of bytes that pyarrow reads at once; every line must fit into a block
        self._block = max(sources.CHUNK_BYTES // 16, 64 * sum(len(cell) + 3 for cell in first))
        if self.header and len(rows) == 1:
            raise BadInput(f"{path} must have a row for each sample; it has only a header.")

    def _first_lines(self) -> tuple[str, str]:
        """Return the first two lines of the file that are not empty, or "" where there are fewer."""
        with open(self.label, encoding="utf-8-sig", errors="replace") as file:  # spreadsheets write a byte-order mark
            lines = (line for line in file if line.strip())
            return next(lines, ""), next(lines, "")

    def _quoted(self, first: str, second: str) -> bool:
        """Return whether all cells of the first line are in quotes (as R writes headers), but a number below is not."""
        first_cells, second_cells = ([cell.strip() for cell in line.split(self._sign)] for line in (first, second))
        has_number = any(map(is_number, second_cells))  # without quotes
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
