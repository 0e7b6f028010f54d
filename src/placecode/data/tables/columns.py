"""Interpretation of the columns of a table: which are numbers, categories (words), groups or row numbers.

A first pass over all rows collects statistics of the columns (`Survey`). They determine the role of each column
(`ColumnRoles`). `files` then reads the values in a second pass.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from placecode.data.cells import DECIMAL_COMMA, INDEX_COLUMN_NAMES, as_float32, find_duplicates, quoted
from placecode.data.tables.sources import Chunk, Source
from placecode.errors import BadInput, must_be

MAX_CATEGORIES = 20  # maximum number of different words in a categorical column
MAX_COUNTED_WORDS = 1000  # different words of a column are counted up to this number
INDEX_NAMES = INDEX_COLUMN_NAMES | {"unnamed: 0", "row", "sample", "id", "#"}
"""Names, in lower case, of a first column that may contain row numbers or times instead of a channel."""
SMALL_RANGE, ROUNDING_RANGE = 1e-3, 1e-12
"""Limits of the range of a column (maximum - minimum) relative to its largest absolute value. Below the first limit,
the minimum may be subtracted before values are converted to float32 (see `Survey.offsets`). Below the second, values
differ by rounding only."""
MAX_STEP_ERROR = 0.3
"""Largest deviation of row numbers or times from even spacing, as a fraction of the step between rows. Times are often
rounded, as in 0.03, 0.07, 0.1."""
DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}( .*)?|\d{4}Q[1-4]"
    r"|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[ap]\.?m\.?)?|-?\d+ days?,?( .*)?",
    re.IGNORECASE,
)
"""Pattern of texts that count as dates or times. A column of dates is rejected, because it is not a category."""


# First pass over the table: statistics of the columns


@dataclass
class Survey:
    """Statistics of the columns, updated with each chunk of rows."""

    # arrays with one element per column, (width,)
    missing: np.ndarray  # number of missing values
    numeric: np.ndarray  # whether the column contains numbers
    rounded: np.ndarray  # whether the column has numbers that float32 cannot represent exactly
    low: np.ndarray  # minimum, inf without numbers
    high: np.ndarray  # maximum, -inf without numbers

    words: dict[int, dict[str, int]] = field(default_factory=dict)
    """Different words by index of the column, each with the index of the row in which it first occurs. At most
    `MAX_COUNTED_WORDS` + 1 words are stored per column."""
    rows: int = 0  # number of rows read so far
    start: float = np.nan  # first value of the first column
    steps: tuple[float, float] = (0.0, np.inf)
    """Smallest and largest step between rows with which the first column would be evenly spaced. If the first number
    is larger than the second, the column is not evenly spaced."""
    groups: list[np.ndarray] = field(default_factory=list)  # code of the group of each row, one array per chunk
    group_codes: dict[str, int] = field(default_factory=dict)  # code of each group, by its name

    @classmethod
    def empty(cls, width: int) -> Survey:
        """Return the statistics of `width` columns before any row is read."""
        numeric, rounded = np.zeros((2, width), dtype=bool)
        return cls(np.zeros(width, dtype=np.int64), numeric, rounded, np.full(width, np.inf), np.full(width, -np.inf))

    def add(self, chunk: Chunk, stored: np.ndarray) -> None:
        """Update the statistics with a chunk of rows. `stored` are the numbers of the chunk, rounded to float32."""
        is_number = ~np.isnan(chunk.numbers)
        self.numeric |= is_number.any(axis=0)
        self.low = np.fmin(self.low, np.fmin.reduce(chunk.numbers, axis=0, initial=np.inf))
        self.high = np.fmax(self.high, np.fmax.reduce(chunk.numbers, axis=0, initial=-np.inf))
        self.rounded |= ((stored != chunk.numbers) & is_number).any(axis=0)
        self.missing += (~is_number).sum(axis=0)
        self._narrow_step(chunk.numbers[:, 0])
        for column, words in chunk.words.items():
            first_rows = self.words.setdefault(column, {})
            is_word = words != None  # noqa: E711  (elementwise)
            self.missing[column] -= int(is_word.sum())
            for word in dict.fromkeys(words[is_word]):  # in order, so that the first row is kept
                if word not in first_rows and len(first_rows) <= MAX_COUNTED_WORDS:
                    first_rows[word] = self.rows + int(np.argmax(words == word))
        if chunk.group is not None:
            self.add_groups(chunk.group)
        self.rows += len(is_number)

    def _narrow_step(self, first: np.ndarray) -> None:
        """Update `steps`, the possible steps of the first column. `first` are the next values of this column."""
        if self.rows == 0 and len(first):
            self.start = float(first[0])
        rows = np.arange(self.rows, self.rows + len(first))
        distance, rows = (first - self.start)[rows > 0], rows[rows > 0]
        if len(distance):
            # both are NaN if a value is missing, so the column does not count as evenly spaced
            least, most = (distance / (rows + MAX_STEP_ERROR)).max(), (distance / (rows - MAX_STEP_ERROR)).min()
            low, high = self.steps
            self.steps = (max(low, float(least)), min(high, float(most))) if least <= most else (np.inf, 0.0)

    @property
    def first_column_counts_rows(self) -> bool:
        """Whether the first column increases by equal steps (up to rounding), as row numbers do, from any number."""
        low, high = self.steps
        return self.rows > 1 and 0 < low <= high

    @property
    def offsets(self) -> np.ndarray:
        """Number to subtract from each column before it is converted to float32, (width,).

        It is the minimum of the column if float32 would lose its variation, as for values around 100000000.5, and
        otherwise 0. It is also 0 for columns whose values differ by rounding only, which become constant.
        """
        size, spread = np.maximum(np.abs(self.low), np.abs(self.high)), np.maximum(self.high - self.low, 0.0)
        loses_variation = self.rounded & (spread < SMALL_RANGE * size) & (spread > ROUNDING_RANGE * size)
        return np.where(loses_variation, self.low, 0.0)

    def add_groups(self, texts: Sequence[str]) -> None:
        """Append the groups of the next rows of the table. `texts` has the name of the group of each row."""
        codes = [self.group_codes.setdefault(text, len(self.group_codes)) for text in texts]
        self.groups.append(np.array(codes, dtype=np.int64))


def survey_of(source: Source, group: int | None) -> Survey:
    """Read all rows of a table, and return the statistics of its columns.

    `group` is the index of the column with the groups, or None. Raises `BadInput` at the first infinite number, empty
    group, or column with both numbers and words.
    """
    survey = Survey.empty(source.width)
    for chunk in source.chunks(group):
        stored = as_float32(chunk.numbers)
        infinite = np.isinf(stored)
        if infinite.any():
            row, column = (int(i) for i in np.argwhere(infinite)[0])
            value = float(chunk.numbers[row, column])
            raise _invalid_cell(source, survey.rows + row, column, "finite numbers, none beyond 3.4e+38", f"{value:g}")
        if group is not None and chunk.group is not None and "" in chunk.group:
            row = survey.rows + chunk.group.index("")
            raise BadInput(f"{source.row_label(row)}: column {_name(source, group)!r} must name a group; it is empty.")
        survey.add(chunk, stored)
        mixed = [(min(words.values()), column) for column, words in survey.words.items() if survey.numeric[column]]
        if mixed:
            row, column = min(mixed)
            word = _first_word(survey.words[column])
            if DECIMAL_COMMA.fullmatch(word):
                raise _decimal_comma_found(source, row, column, word)
            raise _invalid_cell(source, row, column, "numbers", repr(word[:40]))
    return survey


def _first_word(words: Mapping[str, int]) -> str:
    """Return the word that occurs first. `words` maps each word to the row of its first occurrence."""
    return min(words, key=lambda word: words[word])


def _decimal_comma_found(source: Source, row: int, column: int, word: str) -> BadInput:
    """Return the exception for a cell that contains a number with a decimal comma, `word`."""
    return _invalid_cell(source, row, column, "numbers with a decimal point", f"the decimal comma of {word[:40]!r}")


def _invalid_cell(source: Source, row: int, column: int, allowed: str, actual: str) -> BadInput:
    """Return the exception for a cell that has the value `actual`, although its column must hold `allowed`.

    `row` and `column` are the indices of the cell. `allowed` and `actual` are parts of the message.
    """
    return BadInput(f"{source.row_label(row)}: column {_name(source, column)!r} must hold {allowed}; got {actual}.")


def _name(source: Source, column: int) -> str:
    """Return the name of a column, or "channel 3" for column 2 if it has no name."""
    return (source.header[column] if source.header else "") or f"channel {column + 1}"


def group_column(source: Source, groups: str | Path | None) -> int | None:
    """Return the index of the column named `groups`, or None if `groups` is None or the path of a file.

    Raises `BadInput` if several columns have this name, or if there is neither such a column nor such a file.
    """
    if groups is None:
        return None
    matches = [column for column in range(source.width) if _name(source, column) == str(groups)]
    if len(matches) > 1:
        problem = f"{len(matches)} are called {groups!r}"
        raise BadInput(f"groups must be the name of one column of {source.label}; {problem}.")
    if matches:
        return matches[0]
    if source.path is not None and os.path.exists(groups):
        return None
    allowed = f"the name of a column of {source.label}"
    raise must_be("groups", f"{allowed}, or a file with a group a row" if source.path else allowed, str(groups))


# Interpretation of the columns


@dataclass(frozen=True)
class ColumnRoles:
    """Which columns are channels, categories or groups. Integers are indices of columns in the table."""

    channels: list[int]  # columns that are channels, (n,)
    group: int | None  # column with the groups, or None
    names: tuple[str, ...]  # names of the channels, (n,)
    categories: Mapping[int, tuple[str, ...]]  # sorted words of each categorical column
    numbers: Mapping[int, Mapping[str, float]]  # for each column of words, the number that stands for each word


def column_roles(source: Source, survey: Survey, group: int | None, names: Sequence[str] | None) -> ColumnRoles:
    """Return which columns are channels, categories or groups, according to the statistics of the first pass.

    `group` is the index of the column with the groups, or None. A first column of row numbers is left out. In columns
    of words, true and false become 1 and 0, and other words become codes. `names` replace the names of the channels,
    unless None. Raises `BadInput` for a wrong number of names and for columns of words that cannot be categories.
    """
    columns = list(range(source.width))
    header = [*source.header] or [""] * len(columns)
    if source.header and header[0].casefold() in INDEX_NAMES and source.width > 1 and group != 0:
        if survey.first_column_counts_rows:
            columns = columns[1:]
        else:
            warnings.warn(
                f"the first column of {source.label}, {_name(source, 0)!r}, is used as a channel, because it does not "
                "count the rows evenly: remove it if it is not a channel",
                stacklevel=3,
            )
    channels = [column for column in columns if column != group]
    if names is None:
        names = [header[column] or f"channel {i + 1}" for i, column in enumerate(columns) if column != group]
    elif len(names) != len(channels):
        rule = f"{len(channels)} names, one for each channel of {source.label}"
        raise BadInput(f"names must have {rule}; got {len(names)}.")
    numbers: dict[int, dict[str, float]] = {}
    categories: dict[int, tuple[str, ...]] = {}
    for column, words in sorted(survey.words.items()):
        if {word.casefold() for word in words} <= {"true", "false"}:
            numbers[column] = {word: float(word.casefold() == "true") for word in words}
            continue
        _check_words(source, column, words)
        categories[column] = tuple(sorted(words))
        numbers[column] = {word: float(code) for code, word in enumerate(categories[column])}
    return ColumnRoles(channels, group, tuple(names), categories, numbers)


def _check_words(source: Source, column: int, words: Mapping[str, int]) -> None:
    """Raise `BadInput` if the words in a column are dates, numbers with decimal commas, or too many for a category.

    `words` maps each word to the row of its first occurrence.
    """
    row, first = min(words.values()), _first_word(words)
    undeclared = column not in source.categorical
    if undeclared and all(map(DECIMAL_COMMA.fullmatch, words)):
        raise _decimal_comma_found(source, row, column, first)
    if undeclared and all(map(DATE.fullmatch, words)):
        flag = "--groups" if source.path else "groups"
        actual = f"the date or time {first[:40]!r}: leave the column out, or name it by {flag}"
        raise _invalid_cell(source, row, column, "numbers", actual)
    if len(words) > MAX_CATEGORIES:
        count = f"more than {MAX_COUNTED_WORDS}" if len(words) > MAX_COUNTED_WORDS else str(len(words))
        allowed = f"numbers, or at most {MAX_CATEGORIES} different words"
        raise _invalid_cell(source, row, column, allowed, f"{count} different words, the first of them {first[:40]!r}")


def check_channels(source: Source, survey: Survey, roles: ColumnRoles) -> None:
    """Raise `BadInput` if two channels have the same name, or if more than half of all values are missing."""
    if duplicates := find_duplicates(roles.names):
        rule = f"The names of the channels of {source.label} must all be different"
        raise BadInput(f"{rule}; given twice: {quoted(duplicates)}.")
    share = float(survey.missing[roles.channels].sum()) / (survey.rows * len(roles.channels))
    if share > 0.5:
        raise BadInput(f"At most half of the values of {source.label} may be missing; {share:.1%} are.")
