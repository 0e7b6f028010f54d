"""What the page reads, as protocols: a run folder, figures, and the parts that move. Studies hand these over; the page
knows none of their classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure

Array = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


class RunFolder(Protocol):
    """What the page reads of a run; the columns and keys are those of the run folder's files."""

    @property
    def path(self) -> Path: ...
    @property
    def config(self) -> Mapping[str, Any]: ...
    @property
    def environment(self) -> Mapping[str, Any]: ...
    @property
    def members(self) -> pd.DataFrame: ...
    @property
    def analysis(self) -> pd.DataFrame: ...
    @property
    def summary(self) -> Sequence[Mapping[str, Any]]: ...


class Illustration(Protocol):
    """A figure, the name of its file, its title, and a caption that says what to look at."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def caption(self) -> str: ...
    @property
    def figure(self) -> Figure: ...


class Judgement(Protocol):
    """A finding in a sentence, and the word or two of its badge."""

    @property
    def kind(self) -> str: ...
    @property
    def sentence(self) -> str: ...


class Halt(Protocol):
    """One stop of a dial: measures as (mean, low, high) by name, and matrices, or None what was not kept."""

    @property
    def label(self) -> str: ...
    @property
    def sigma(self) -> float: ...
    @property
    def measures(self) -> Mapping[str, tuple[float, float, float]]: ...
    @property
    def similarity(self) -> Array | None: ...
    @property
    def places(self) -> Array | None: ...
    @property
    def attention(self) -> Array | None: ...


class Turning(Protocol):
    """A dial: its stops, and the names and groups of the channels that they share."""

    @property
    def names(self) -> Sequence[str]: ...
    @property
    def groups(self) -> Codes | None: ...
    @property
    def group_names(self) -> Sequence[str]: ...
    @property
    def stops(self) -> Sequence[Halt]: ...
    @property
    def first(self) -> int: ...
    @property
    def measure_names(self) -> Mapping[str, str]: ...
    @property
    def note(self) -> str: ...


class Atlas(Protocol):
    """Channels on a map, with all that is known of each."""

    @property
    def names(self) -> Sequence[str]: ...
    @property
    def places(self) -> Array: ...
    @property
    def places3(self) -> Array | None: ...
    @property
    def modules(self) -> Codes | None: ...
    @property
    def module_names(self) -> Sequence[str]: ...
    @property
    def columns(self) -> Mapping[str, Sequence[Any]]: ...
    @property
    def neighbors(self) -> Sequence[Sequence[tuple[int, float]]]: ...
    @property
    def edges(self) -> Sequence[tuple[int, int, float]] | None: ...
    @property
    def note(self) -> str: ...
