"""Arrays in .npy, .npz, .mat and HDF5 files. Headers are read first, and rows when they are needed.

Arrays of objects, which could run code when loaded, are rejected by their header.
"""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from placecode.data.cells import beginning
from placecode.data.packages import needed
from placecode.data.tables.questions import filled
from placecode.data.tables.sources import PIECE, ArraySource
from placecode.errors import BadInput
from placecode.validation import choice

STREAMED = "Parquet, .npy or .h5"  # formats for tables that do not fit into memory
MATLAB = {"double": "f8", "single": "f4", "logical": "u1"}  # types of MATLAB with names that differ from numpy's


class ArrayRule(NamedTuple):
    """Which arrays are accepted."""

    sides: str
    """Names of the two sides, for error messages."""
    kinds: str
    """Kinds of numpy dtypes."""
    least: int
    """Smallest length of a side."""


TABLE = ArrayRule("samples and channels", "biuf", 0)


@dataclass(frozen=True)
class ArrayHeader:
    """Shape and type of an array in a file, without its values."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Size in bytes."""
        return int(np.prod(self.shape)) * self.dtype.itemsize


def array_source(
    path: Path, ending: str, key: str | None, rule: ArrayRule = TABLE, memory: int = sys.maxsize
) -> ArraySource:
    """Open the array of a file: the one named `key`, or the only table. Raises `BadInput` if there is none.

    `ending` is the suffix of the file in lower case. An array that must be read at once may have `memory` bytes.
    """
    if ending == ".npy":
        return _of_npy(path, rule)
    if ending == ".npz":
        return _of_npz(path, key, rule, memory)
    # version 7.3 of .mat is HDF5
    if ending == ".mat" and not beginning(path).startswith((b"MATLAB 7.3", b"\x89HDF")):
        return _of_mat(path, key, rule, memory)
    return _of_hdf5(path, key, rule, memory, transposed=ending == ".mat")


def array_source_of(array: np.ndarray) -> ArraySource:
    """Return the source of an array in memory. Masked values are missing."""
    check_table("data", array, TABLE)
    return ArraySource(None, array.shape, lambda first, end: filled(array[first:end]))


def available() -> int:
    """Return the approximate available memory in bytes."""
    try:
        with open("/proc/meminfo") as file:
            entries = dict(line.split(":", 1) for line in file)
        return int(entries["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pages = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in os.sysconf_names else "SC_PHYS_PAGES"
        return os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")


def megabytes(size: int) -> str:
    """Format a number of bytes for a message."""
    return f"{size / 1e6:.1f} MB"


def check_table(label: str | Path, array: Any, rule: ArrayRule) -> None:
    """Raise `BadInput` unless an array or header is a two-dimensional table of numbers."""
    if not _is_table(array, rule.kinds, rule.least):
        raise BadInput(
            f"{label} must hold a table of numbers with two sides, {rule.sides}; "
            f"got {array.dtype} of shape {array.shape}."
        )


def _is_table(array: Any, kinds: str, least: int) -> bool:
    return array.dtype.kind in kinds and len(array.shape) == 2 and min(array.shape) >= least


def _pick(path: Path, headers: Mapping[str, ArrayHeader], key: str | None, rule: ArrayRule) -> str:
    """Return the name of the table: `key`, or the only array with two sides longer than 1.

    MATLAB stores numbers as arrays of 1 x 1.
    """
    if key is not None:
        return choice(f"key for {path}", key, headers)
    tables = [name for name, header in headers.items() if _is_table(header, rule.kinds, 2)]
    if not tables:
        inside = ", ".join(headers) or "nothing"
        raise BadInput(f"{path} must hold a table of numbers with two sides, {rule.sides}; it holds {inside}.")
    if len(tables) > 1:
        raise BadInput(f"{path} holds several tables, {', '.join(tables)}; say by key which one is meant.")
    return tables[0]


def _check_size(path: Path, size: int, memory: int) -> None:
    """Raise `BadInput` for arrays that do not fit into memory."""
    if size > memory:
        raise BadInput(
            f"{path} takes {megabytes(size)} of {megabytes(memory)} of memory, and its format cannot be read piece by "
            f"piece; save it as {STREAMED}."
        )


def _header(stream: BinaryIO) -> ArrayHeader:
    """Read the header of a .npy file."""
    version = np.lib.format.read_magic(stream)
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, _, dtype = headers[version](stream)
    return ArrayHeader(shape, dtype)


def _of_npy(path: Path, rule: ArrayRule) -> ArraySource:
    with open(path, "rb") as stream:
        header = _header(stream)
        begin = stream.tell()
    check_table(path, header, rule)
    if begin + header.size > path.stat().st_size:
        raise ValueError("cut short")

    def rows(first: int, end: int) -> Any:
        # a new map for each piece, because the pages of a map stay in memory until it is closed
        return np.array(np.load(path, mmap_mode="r")[first:end])

    return ArraySource(path, header.shape, rows)


def _of_npz(path: Path, key: str | None, rule: ArrayRule, memory: int) -> ArraySource:
    headers = {}
    with zipfile.ZipFile(path) as archive:
        for name in [name for name in archive.namelist() if name.endswith(".npy")]:
            with archive.open(name) as stream:
                headers[name.removesuffix(".npy")] = _header(stream)  # type: ignore[arg-type]
    chosen = _pick(path, headers, key, rule)
    check_table(path, headers[chosen], rule)
    _check_size(path, headers[chosen].size, memory)
    with np.load(path) as arrays:
        array = arrays[chosen]
    return ArraySource(path, array.shape, lambda first, end: array[first:end])


def _of_mat(path: Path, key: str | None, rule: ArrayRule, memory: int) -> ArraySource:
    """Open an array of a .mat file before version 7.3."""
    import scipy.io

    headers = {name: ArrayHeader(shape, _matlab_type(kind)) for name, shape, kind in scipy.io.whosmat(path)}
    chosen = _pick(path, headers, key, rule)
    _check_size(path, headers[chosen].size, memory)
    array = scipy.io.loadmat(path, variable_names=[chosen])[chosen]
    check_table(path, array, rule)  # the header does not tell complex numbers from real ones
    return ArraySource(path, array.shape, lambda first, end: array[first:end])


def _matlab_type(kind: str) -> np.dtype[Any]:
    """Return the numpy dtype of a MATLAB type, or object for cells, texts and structures."""
    try:
        return np.dtype(MATLAB.get(kind, kind) if kind not in ("char", "object") else object)
    except TypeError:
        return np.dtype(object)


def _of_hdf5(path: Path, key: str | None, rule: ArrayRule, memory: int, transposed: bool) -> ArraySource:
    """Open an array of an HDF5 file. Tables of MATLAB are `transposed`, because MATLAB stores columns first."""
    h5py = needed("h5py", f"Reading {path}")
    headers: dict[str, ArrayHeader] = {}
    chunks: dict[str, int] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and not name.startswith("#"):
            shape = item.shape or ()
            headers[name] = ArrayHeader(shape[::-1] if transposed else shape, item.dtype)
            if item.chunks and len(shape) == 2:
                chunks[name] = item.chunks[1 if transposed else 0]

    with h5py.File(path, "r") as file:
        file.visititems(visit)
    chosen = _pick(path, headers, key and key.strip("/"), rule)
    check_table(path, headers[chosen], rule)
    shape = headers[chosen].shape

    def rows(first: int, end: int) -> Any:
        with h5py.File(path, "r") as file:
            return file[chosen][:, first:end].T if transposed else file[chosen][first:end]

    # read whole chunks if they fit, because a chunk is decompressed for every piece that needs a part of it
    least = chunks.get(chosen, 1)
    fits = 8 * least * shape[1] <= max(memory // 4, PIECE)
    return ArraySource(path, shape, rows, least if fits else 1)
