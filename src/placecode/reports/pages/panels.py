"""What a study hands to the parts of a report that move: plain arrays and names, nothing about pages.

A `Dial` is a row of `Stop`s, one for each sigma, through which a reader turns: accuracy, similarity of the PEs, map and
attention move together. `Channels` is a map that can be searched by name. A `Verdict` is a finding with a badge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Interval = tuple[float, float, float]
"""Mean, low and high; NaN where there is no bound."""


@dataclass(frozen=True)
class Stop:
    """What there is to see at one sigma; None what was not kept."""

    label: str
    sigma: float
    measures: Mapping[str, Interval]
    similarity: Array | None = None
    """Of every two channels, (n, n), from -1 to 1."""
    places: Array | None = None
    """Of the channels on a map, (n, 2), turned onto that of the stop before."""
    attention: Array | None = None
    """Mean attention, (n, n): row = who looks, column = who is looked at."""


@dataclass(frozen=True)
class Dial:
    """The stops in rising order of sigma, and what all of them share."""

    names: Sequence[str]
    groups: npt.NDArray[np.int64] | None
    """The group of each channel, (n,), by its number in `group_names`; -1 for none; None where no groups are known."""
    group_names: Sequence[str]
    stops: Sequence[Stop]
    measure_names: Mapping[str, str]
    """Every measure of the stops, in the order in which to show them, with the axis that it is drawn on."""
    first: int = 0
    """The stop to begin with."""
    note: str = ""
    order: npt.NDArray[np.int64] | None = None
    """In which order the channels of matrices stand, (n,); None: group by group."""


@dataclass(frozen=True)
class Channels:
    """All channels with their places on a map, and what is known of each."""

    names: Sequence[str]
    places: Array
    """(n, 2)"""
    places3: Array | None = None
    """(n, 3)"""
    modules: npt.NDArray[np.int64] | None = None
    """The module of each channel, (n,), from 0 on; -1 for none."""
    module_names: Sequence[str] = ()
    """What the modules are called where they are known groups; those that were found have numbers alone."""
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """More about each channel, a number or a text, by the name of the column."""
    neighbors: Sequence[Sequence[tuple[int, float]]] = ()
    """Of each channel, the nearest ones first: number and confidence from 0 to 1, NaN where none is known."""
    edges: Sequence[tuple[int, int, float]] | None = None
    """Pairs of channels to join by a line, with a weight from 0 to 1."""
    note: str = ""


@dataclass(frozen=True)
class Verdict:
    """A finding in a sentence under a badge of a word or two: found, not found, unsure, ..."""

    kind: str
    sentence: str


@dataclass(frozen=True)
class Listing:
    """A table of the study's own: rows of numbers and texts under named columns, and a caption that says what they
    are."""

    title: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
