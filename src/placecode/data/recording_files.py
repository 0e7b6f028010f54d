"""Reading of brain recordings (time series of regions, for example parcellated fMRI), one file per person.

Every recording becomes an array of shape (time points, regions).

| format | what is read | where names of regions are |
|---|---|---|
| .npy | the array | |
| .npz, .mat (also version 7.3), .h5, .hdf5 | the array named `key`, or the only one | |
| .csv, .tsv | all columns, but not row numbers or times | in a header or first column, if any |
| .ptseries.nii (parcellated CIFTI) | the series and its repetition time | in the header |

>>> read_recordings(["sub-01.npy", "sub-02.npy", "sub-03.npy"], orientation="region-time")  # doctest: +SKIP

To add a format, add its suffix to `FORMATS` and read it in `read_table`. Array formats (NumPy, MATLAB, HDF5) are read
by `array_source` in `data/tables/arrays.py`, which also reads users' tables, so a new array format is added there.
Packages other than numpy are imported only when a file needs them.
"""

from __future__ import annotations

import glob
import io
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from placecode.data.cells import (
    INDEX_COLUMN_NAMES,
    MISSING,
    check_file,
    check_width,
    csv_rows,
    find_separator,
    is_enumeration,
    is_word,
    read_text,
    wrap_read_errors,
)
from placecode.data.packages import import_optional
from placecode.data.tables.arrays import ArrayRule, array_source, check_table
from placecode.errors import BadInput
from placecode.validation import choice

FORMATS = (".npy", ".npz", ".mat", ".h5", ".hdf5", ".csv", ".tsv", ".ptseries.nii")
ORIENTATIONS = ("auto", "time-region", "region-time")
REGIONS = {"region", "parcel", "roi", "name", "label"}
"""Names, in lower case, of a first column that contains names of regions."""
RECORDING = ArrayRule("time and region of one person", "iuf", 1)

Files = str | Path | Sequence[str | Path]
"""A folder, a pattern such as "data/*.npy", or a list of files."""


@dataclass(frozen=True)
class RecordingTable:
    """The table of numbers in a file, as stored. It may not be known yet which axis is time."""

    path: Path
    values: np.ndarray  # two-dimensional, float64, with the axes as in the file
    names: tuple[str, ...] = ()  # names of the regions, empty if the file does not contain them
    orientation: str = "auto"  # order of the axes, "time-region" or "region-time", or "auto" if the file does not say
    tr: float | None = None  # repetition time in seconds, or None if the file does not say

    @property
    def shape(self) -> str:
        """Shape of the values in words, such as "200 x 94"."""
        return " x ".join(str(side) for side in self.values.shape)

    def __str__(self) -> str:
        return f"{self.path} is {self.shape}"


@dataclass(frozen=True)
class Recording:
    """The recording of one person."""

    person: str  # name of the person
    values: np.ndarray  # T time points of n regions, (T, n)
    names: tuple[str, ...] = ()  # names of the regions, empty if they are not known
    tr: float | None = None  # repetition time in seconds, None if it is not known


def read_recordings(
    files: Files, key: str | None = None, orientation: str = "auto", regions: int | None = None
) -> list[Recording]:
    """Read the recordings of several people, one file per person. All people must have the same regions.

    `files` is a folder, a pattern such as "data/*.npy", or a list of files. `key` is the name of the table in files
    that contain several. `regions` is the number of regions if it is known. `orientation` is "time-region" if time
    points are the rows of the tables, "region-time" if regions are the rows, or "auto". With "auto", names of regions
    or a CIFTI header in the files determine the orientation. Without them, the axis of regions is the one of length
    `regions` or, if this is None, the only axis that has the same length in all files. Raises `BadInput` if the
    orientation cannot be determined, or if regions differ between people.
    """
    choice("orientation", orientation, ORIENTATIONS)
    paths = find_files(files)
    tables = [read_table(path, key) for path in paths]
    actual = _orientation(tables, orientation, regions)
    # contiguous, because sums in another order would differ in the last digits
    values = [table.values if actual == "time-region" else np.ascontiguousarray(table.values.T) for table in tables]
    for table, array in zip(tables, values, strict=True):
        if array.shape[1] != values[0].shape[1]:
            raise BadInput(
                f"All people must have the same regions; {tables[0].path} has {values[0].shape[1]}, "
                f"{table.path} has {array.shape[1]}."
            )
        if table.names != tables[0].names:
            pairs = enumerate(zip(tables[0].names, table.names, strict=False))
            differences = (f"region {i + 1} is {a!r} and {b!r}" for i, (a, b) in pairs if a != b)
            difference = next(differences, "one file has no names")
            raise BadInput(f"All people must have the same regions; in {tables[0].path} and {table.path} {difference}.")
    people = zip(person_names(paths), tables, values, strict=True)
    return [Recording(person, array, table.names, table.tr) for person, table, array in people]


def _orientation(tables: Sequence[RecordingTable], requested: str, regions: int | None) -> str:
    """Return the order of the axes in all tables: "time-region" (rows are time points) or "region-time".

    `requested` is the order that the user chose, or "auto". `regions` is the number of regions, or None if it is not
    known. Raises `BadInput` if the tables, `requested` and `regions` contradict each other, or if the order cannot be
    determined.
    """
    for table in tables:
        if "auto" not in (table.orientation, requested) and table.orientation != requested:
            raise BadInput(f"The orientation of {table.path} is {table.orientation!r}; got {requested!r}.")
    stated = {table.orientation for table in tables} - {"auto"}
    if len(stated) > 1:
        raise BadInput("All recordings must have the same orientation; some files are time-region, others region-time.")
    rows, columns = ([table.values.shape[side] for table in tables] for side in (0, 1))
    sides = {"time-region": set(columns), "region-time": set(rows)}
    fits = {order: side == {regions} if regions else len(side) == 1 for order, side in sides.items()}
    if stated or requested != "auto":
        chosen = stated.pop() if stated else requested
        opposite = "region-time" if chosen == "time-region" else "time-region"
        if not fits[chosen] and fits[opposite]:
            reason = f"{regions} regions are known" if regions else "the people differ in the side of regions alone"
            raise BadInput(f"orientation must be {opposite!r}, since {tables[0]} and {reason}; got {chosen!r}.")
        return chosen
    if fits["time-region"] and fits["region-time"]:
        raise BadInput(
            f"Which side is time cannot be told, since all files are {tables[0].shape}; give orientation 'time-region' "
            "or 'region-time', or the regions' names."
        )
    odd = next((table for table in tables if table.values.shape != tables[0].values.shape), tables[0])
    same = "All people must have the same number of regions"
    if not any(fits.values()):
        if regions is not None:
            raise BadInput(f"{regions} regions are known, and no side of {odd.path} is as long; it is {odd.shape}.")
        raise BadInput(f"{same}; {tables[0]}, {odd}.")
    chosen, times = ("time-region", rows) if fits["time-region"] else ("region-time", columns)
    if regions is None and max(sides[chosen]) > min(times):  # it is more likely that the other axis is regions
        raise BadInput(f"{same}, fewer than time points; {tables[0]}, {odd}: otherwise set orientation.")
    return chosen


# Files and people


def find_files(files: Files) -> list[Path]:
    """Return the files that `files` stands for: a list, a pattern, a single file, or a folder.

    A folder stands for the recordings in it or, if it has none, in its subfolders. Raises `BadInput` for a folder
    without recordings or with several formats, and for a pattern that matches nothing.
    """
    if not isinstance(files, str | Path):
        return [Path(file) for file in files]
    if os.path.isdir(files):
        below = sorted(path for path in Path(files).rglob("[!.]*") if _ending(path) in FORMATS and path.is_file())
        paths = [path for path in below if path.parent == Path(files)] or below
        if not paths:
            raise BadInput(f"{files} must be a folder with recordings, files of {', '.join(FORMATS)}; it has none.")
        endings = sorted({_ending(path) for path in paths})
        if len(endings) > 1:
            hint = f"a pattern such as '{files}/*{endings[0]}' says which are meant"
            raise BadInput(f"{files} must hold recordings of one format; got {', '.join(endings)}: {hint}.")
        return paths
    if re.search(r"[*?\[]", str(files)) and not os.path.exists(files):
        matching = sorted(Path(path) for path in glob.glob(str(files), recursive=True))
        if not matching:
            raise BadInput(f"{files} matches no file.")
        return matching
    return [Path(files)]


def match_by_name(paths: Sequence[Path], people: Sequence[str]) -> list[Path] | None:
    """Return the file that belongs to each person, in the order of `people`, by the names of files and folders.

    A name such as "sub-01_bold" is split at "_" and "/" into parts. Parts that all people share, such as "bold", are
    ignored, and the others must occur in the path of the file. Returns None unless exactly one file matches each
    person.

    >>> files = [Path("b/sub-02/func/sub-02_motion.tsv"), Path("b/sub-01/func/sub-01_motion.tsv")]
    >>> [path.name for path in match_by_name(files, ["sub-01_bold", "sub-02_bold"])]
    ['sub-01_motion.tsv', 'sub-02_motion.tsv']
    >>> match_by_name([Path("first.tsv"), Path("second.tsv")], ["sub-01", "sub-02"])
    """
    names = [set(re.split(r"[_/]", person)) for person in people]
    shared = set.intersection(*names) if len(names) > 1 else set()
    words = {path: set(re.split(r"[_/.]", path.as_posix())) for path in paths}
    candidates = [[path for path in paths if name - shared <= words[path]] for name in names]
    matched = [matches[0] for matches in candidates if len(matches) == 1]
    return matched if len(matched) == len(people) == len(set(matched)) else None


def person_names(paths: Sequence[Path]) -> list[str]:
    """Return the name of the person of each file: the file name without suffix.

    If several files have the same name, the names of folders precede all names. Raises `BadInput` if two files still
    have the same name.

    >>> person_names([Path("a/sub-01.npy"), Path("a/sub-02.npy")])
    ['sub-01', 'sub-02']
    >>> person_names([Path("a/01/rest.npy"), Path("a/02/rest.npy")])
    ['01/rest', '02/rest']
    """
    names = [path.name.removesuffix(path.name[-len(_ending(path)) :]) for path in paths]
    if len(set(names)) < len(names):
        folders = [os.path.relpath(path.parent, os.path.commonpath([p.parent for p in paths])) for path in paths]
        names = [Path(folder, name).as_posix() for folder, name in zip(folders, names, strict=True)]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise BadInput(f"Every person must have one file; got {paths[i]} and {paths[names.index(name)]}.")
    return names


def _ending(path: Path) -> str:
    """Return the suffix of a file: the one in `FORMATS` that its name ends with, otherwise the part after the dot."""
    return next((ending for ending in FORMATS if path.name.lower().endswith(ending)), path.suffix)


def read_table(path: str | Path, key: str | None = None) -> RecordingTable:
    """Read one file: the table named `key`, or its only table. Raises `BadInput` if it is not a table of numbers."""
    path = Path(path)
    ending = _ending(path)
    check_file(path, ending, FORMATS, key)
    with wrap_read_errors(path, ending):
        if ending in (".csv", ".tsv"):
            return _read_text(path, ending)
        if ending == ".ptseries.nii":
            return _read_cifti(path)
        source = array_source(path, ending, key, RECORDING)
        return RecordingTable(path, np.ascontiguousarray(source.rows(0, source.length), dtype=np.float64))


def _read_cifti(path: Path) -> RecordingTable:
    """Read a parcellated CIFTI series. Its header has the orientation, names of parcels and repetition time."""
    nibabel = import_optional("nibabel", f"Reading {path}")
    image = nibabel.load(path)
    axes = [image.header.get_axis(side) for side in (0, 1)]
    kinds = [type(axis).__name__ for axis in axes]
    if sorted(kinds) != ["ParcelsAxis", "SeriesAxis"]:
        raise BadInput(f"{path} must be a series of parcels; its sides are {' and '.join(kinds)}.")
    series, parcels = axes[kinds.index("SeriesAxis")], axes[kinds.index("ParcelsAxis")]
    tr = float(series.step) if series.unit == "SECOND" and series.step > 0 else None
    orientation = "time-region" if kinds[0] == "SeriesAxis" else "region-time"
    names = tuple(str(name) for name in parcels.name)
    return RecordingTable(path, np.ascontiguousarray(image.get_fdata(), dtype=np.float64), names, orientation, tr)


def _read_text(path: Path, ending: str) -> RecordingTable:
    """Read a .csv or .tsv file. A first column of row numbers or times is left out.

    If a header has the names of the regions, the orientation is "time-region". If the first column has them, it is
    "region-time".
    """
    text = read_text(path)
    sign = find_separator(ending, text.lstrip().partition("\n")[0])
    lines = [(number, row) for number, row in csv_rows(io.StringIO(text, newline=""), sign) if row]
    if len(lines) < 2:
        raise BadInput(f"{path} must have a row for each time point, or for each region; it has {len(lines)}.")
    head = lines[0][1]
    for number, row in lines:
        check_width(path, number, row, len(head))
    first = head[0].casefold()
    named = any(is_word(cell) for cell in head[1:] or head)
    # whether the first column has row numbers or times, and whether it has names of regions
    numbered = len(head) > 1 and first in INDEX_COLUMN_NAMES and (named or is_enumeration(head[1:]))
    listed = is_word(lines[1][1][0]) and (first in REGIONS or not named)
    body = lines[1:] if named or numbered or is_enumeration(head) or (listed and first in REGIONS) else lines
    values = np.array([_numbers(path, number, row[int(numbered or listed) :]) for number, row in body])
    check_table(path, values, RECORDING)
    if listed:
        return RecordingTable(path, values, tuple(row[0] for _, row in body), "region-time")
    names = tuple(head[int(numbered) :]) if named else ()
    return RecordingTable(path, values, names, "time-region" if named else "auto")


def _numbers(path: Path, line: int, cells: Sequence[str]) -> list[float]:
    """Return the numbers in the cells of a row, NaN for missing values. Raises `BadInput` for words."""
    try:
        return [float(cell) for cell in cells]
    except ValueError:
        for word in filter(is_word, cells):
            raise BadInput(f"{path}, line {line}: every value must be a number; got {word[:40]!r}.") from None
        return [np.nan if cell.casefold() in MISSING else float(cell) for cell in cells]
