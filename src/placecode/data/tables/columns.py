"""What the columns of a table are: a first pass over all rows tells which are channels, categories or the groups."""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from placecode.data.cells import DECIMAL_COMMA, TIMES, as_float32, listed
from placecode.data.tables.sources import Piece, Source
from placecode.errors import BadInput, must_be

CATEGORIES = 20
"""How many different words a category may have at most."""
COUNTED = 1000
"""How many different words of a column are counted; beyond that it is said that there are more."""
INDEX = TIMES | {"unnamed: 0", "row", "sample", "id", "#"}
"""Headers under which a first column may count the rows and be no channel, in small letters."""
LOST, CONSTANT = 1e-3, 1e-12
"""Numbers that differ by a smaller share of their size are stored without what they share; by a still smaller one, they
differ by rounding alone."""
ROUNDING = 0.3
"""How far a value of such a column may lie from its place, in steps: times are often rounded, 0.03, 0.07, 0.1."""
DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}( .*)?|\d{4}Q[1-4]"
    r"|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[ap]\.?m\.?)?|-?\d+ days?,?( .*)?",
    re.IGNORECASE,
)
"""What dates and times look like."""


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
    low: np.ndarray = field(init=False)
    high: np.ndarray = field(init=False)
    rounded: np.ndarray = field(init=False)
    """Whether a column has numbers that float32 cannot hold as they are."""
    start: float = np.nan
    """What the first column begins with."""
    steps: tuple[float, float] = (0.0, np.inf)
    """Between which two numbers its step must lie, if it grows evenly; none lies between them if it does not."""
    groups: list[np.ndarray] = field(default_factory=list)
    group_codes: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.missing, self.numeric = np.zeros(self.width, dtype=np.int64), np.zeros(self.width, dtype=bool)
        self.low, self.high = np.full(self.width, np.inf), np.full(self.width, -np.inf)
        self.rounded = np.zeros(self.width, dtype=bool)

    def add(self, piece: Piece, stored: np.ndarray) -> None:
        """Look at some rows, and at their numbers as they will be `stored`."""
        given = ~np.isnan(piece.numbers)
        self.numeric |= given.any(axis=0)
        self.low = np.fmin(self.low, np.fmin.reduce(piece.numbers, axis=0, initial=np.inf))
        self.high = np.fmax(self.high, np.fmax.reduce(piece.numbers, axis=0, initial=-np.inf))
        self.rounded |= ((stored != piece.numbers) & given).any(axis=0)
        self.missing += (~given).sum(axis=0)
        self._follow(piece.numbers[:, 0])
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

    def _follow(self, first: np.ndarray) -> None:
        """Narrow down the step of the first column: each value lies on an even line, but for rounding."""
        if self.rows == 0 and len(first):
            self.start = float(first[0])
        rows = np.arange(self.rows, self.rows + len(first))
        gone, rows = (first - self.start)[rows > 0], rows[rows > 0]
        if len(gone):
            least, most = (gone / (rows + ROUNDING)).max(), (gone / (rows - ROUNDING)).min()  # NaN if one is missing
            low, high = self.steps
            self.steps = (max(low, float(least)), min(high, float(most))) if least <= most else (np.inf, 0.0)

    @property
    def counts(self) -> bool:
        """Whether the first column only counts the rows: it grows by the same step, wherever it begins."""
        low, high = self.steps
        return self.rows > 1 and 0 < low <= high

    @property
    def offsets(self) -> np.ndarray:
        """What to take off each column before it is stored, (width,): its least number where float32 would lose what
        varies, as of 100000000.5, else 0. What varies less than rounding may is constant, and left alone."""
        size, spread = np.maximum(np.abs(self.low), np.abs(self.high)), np.maximum(self.high - self.low, 0.0)
        lost = self.rounded & (spread < LOST * size) & (spread > CONSTANT * size)
        return np.where(lost, self.low, 0.0)

    def group_all(self, texts: Sequence[str]) -> None:
        codes = [self.group_codes.setdefault(text, len(self.group_codes)) for text in texts]
        self.groups.append(np.array(codes, dtype=np.int64))


def survey_of(source: Source, group: int | None) -> Survey:
    """What the columns hold; `BadInput` as soon as a piece shows what cannot be."""
    survey = Survey(source.width)
    for piece in source.pieces(group):
        stored = as_float32(piece.numbers)
        infinite = np.isinf(stored)
        if infinite.any():
            row, column = (int(i) for i in np.argwhere(infinite)[0])
            value = float(piece.numbers[row, column])
            raise _wrong(source, survey.rows + row, column, "finite numbers, none beyond 3.4e+38", f"{value:g}")
        if piece.group is not None and "" in piece.group:
            row = survey.rows + piece.group.index("")
            raise BadInput(f"{source.row(row)}: column {_name(source, group)!r} must name a group; it is empty.")
        survey.add(piece, stored)
        mixed = [(min(words.values()), column) for column, words in survey.words.items() if survey.numeric[column]]
        if mixed:
            row, column = min(mixed)
            word = next(word for word, first in survey.words[column].items() if first == row)
            raise _comma(source, row, column, word) or _wrong(source, row, column, "numbers", repr(word[:40]))
    return survey


def _comma(source: Source, row: int, column: int, word: str) -> BadInput | None:
    """The sentence for a number with a decimal comma, None for another word."""
    if DECIMAL_COMMA.fullmatch(word):
        return _wrong(source, row, column, "numbers with a decimal point", f"the decimal comma of {word[:40]!r}")
    return None


def _wrong(source: Source, row: int, column: int, allowed: str, given: str) -> BadInput:
    return BadInput(f"{source.row(row)}: column {_name(source, column)!r} must hold {allowed}; got {given}.")


def _name(source: Source, column: int | None) -> str:
    """What a column is called in the file."""
    assert column is not None
    return (source.header[column] if source.header else "") or f"channel {column + 1}"


def group_column(source: Source, groups: str | Path | None) -> int | None:
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


def layout_of(source: Source, survey: Survey, group: int | None, names: Sequence[str] | None) -> Layout:
    columns = list(range(source.width))
    header = [*source.header] or [""] * len(columns)
    if source.header and header[0].casefold() in INDEX and source.width > 1 and group != 0:
        if survey.counts:
            columns = columns[1:]
        else:
            _warn_of_uneven(source)
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


def _warn_of_uneven(source: Source) -> None:
    """Say it where a first column is a channel, though its name sounds like a count of the rows."""
    warnings.warn(
        f"the first column of {source.label}, {_name(source, 0)!r}, is taken for a channel, since it does not count "
        "the rows evenly: leave it out if it is none",
        stacklevel=4,
    )


def _check_words(source: Source, column: int, found: Mapping[str, int]) -> None:
    """`BadInput` unless the words of a column are few, and no dates, times or numbers with decimal commas."""
    row = min(found.values())
    first = next(word for word, where in found.items() if where == row)
    plain = column not in source.declared
    if plain and all(map(DECIMAL_COMMA.fullmatch, found)) and (wrong := _comma(source, row, column, first)):
        raise wrong
    if plain and all(DATE.fullmatch(word) for word in found):
        flag = "--groups" if source.path else "groups"
        given = f"the date or time {first[:40]!r}: leave the column out, or name it by {flag}"
        raise _wrong(source, row, column, "numbers", given)
    if len(found) > CATEGORIES:
        count = f"more than {COUNTED}" if len(found) > COUNTED else str(len(found))
        allowed = f"numbers, or at most {CATEGORIES} different words"
        raise _wrong(source, row, column, allowed, f"{count} different words, the first of them {first[:40]!r}")


def check(source: Source, survey: Survey, layout: Layout) -> None:
    """`BadInput` where names appear twice, or where most of the table is missing."""
    twice = [name for name, count in Counter(layout.names).items() if count > 1]
    if twice:
        raise BadInput(
            f"The names of the channels of {source.label} must all be different; given twice: {listed(twice)}."
        )
    share = float(survey.missing[layout.channels].sum()) / (survey.rows * len(layout.channels))
    if share > 0.5:
        raise BadInput(f"At most half of the values of {source.label} may be missing; {share:.1%} are.")
