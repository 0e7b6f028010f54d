"""Sources of table files by format, and reading of raw cells.

>>> read_cells("more.csv")  # a frame of samples for predictions of trained models  # doctest: +SKIP
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from placecode.data.cells import beginning, check_key, reading
from placecode.data.tables.arrays import array_source, available
from placecode.data.tables.sources import ParquetSource, Source
from placecode.data.tables.texts import TextSource
from placecode.errors import one_of

if TYPE_CHECKING:
    import pandas as pd

FORMATS = (".csv", ".tsv", ".parquet", ".npy", ".npz", ".mat", ".h5", ".hdf5")


def source_of(path: Path, key: str | None, groups: str | None, memory: int) -> Source:
    """Open a file. `groups` is the column with groups. Arrays that must be read at once may have `memory` bytes."""
    beginning(path)
    ending = path.suffix.lower()
    if ending not in FORMATS:
        raise one_of(f"The format of {path}", FORMATS, path.suffix)
    check_key(path, ending, key)
    if ending in (".csv", ".tsv"):
        return TextSource(path)
    if ending == ".parquet":
        return ParquetSource(path, groups)
    return array_source(path, ending, key, memory=memory)


def warn_of_no_header(source: Source) -> None:
    """Warn if a text file has no header, because a header of numbers could have been read as a sample."""
    if isinstance(source, TextSource) and not source.header:
        warnings.warn(f"no header was found in {source.label}: its first line is taken for a sample", stacklevel=3)


def called(source: Source) -> tuple[str | int, ...]:
    """Return the names of all columns as in pandas: numbers without a header, "Unnamed: 3" for empty names."""
    if not source.header:
        return tuple(range(source.width))
    return tuple(name or f"Unnamed: {column}" for column, name in enumerate(source.header))


def read_cells(path: str | Path) -> pd.DataFrame:
    """Read all columns of a file as a frame of numbers and words, for predictions of trained models.

    Unlike `read_sheet`, it accepts few samples, and does not convert categories to codes.
    """
    import pandas as pd

    path = Path(path)
    with reading(path, path.suffix.lower()):
        source = source_of(path, None, None, available() // 4)
        pieces = list(source.pieces())
    warn_of_no_header(source)
    numbers = np.concatenate([np.empty((0, source.width)), *(piece.numbers for piece in pieces)])
    frame = pd.DataFrame(numbers, columns=list(called(source)))
    for column in sorted({column for piece in pieces for column in piece.words}):
        cells = [
            np.where(piece.words[column] == None, piece.numbers[:, column], piece.words[column])  # noqa: E711
            if column in piece.words
            else piece.numbers[:, column].astype(object)
            for piece in pieces
        ]
        frame.isetitem(column, np.concatenate(cells))
    return frame
