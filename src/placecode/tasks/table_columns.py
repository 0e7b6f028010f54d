"""What the columns of a table are: a first pass over all rows tells which are channels, categories or the groups."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from placecode.errors import BadInput, must_be
from placecode.tasks.cells import TIMES, as_float32, listed
from placecode.tasks.table_sources import Piece, Source

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


def survey_of(source: Source, group: int | None) -> Survey:
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
    counts = source.header and survey.counts_from and header[0].casefold() in INDEX and source.width > 1 and group != 0
    if counts:
        columns = columns[1:]
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
