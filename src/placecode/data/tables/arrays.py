"""Tables stored as arrays. Shapes and types are read from headers, and rows are read when they are needed.

Arrays of objects, which could run code when loaded, are rejected by their header.
"""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from placecode.data.cells import described, is_hdf5, is_table, pick
from placecode.data.recording_files import needed
from placecode.data.tables.sources import PIECE, ArraySource
from placecode.errors import BadInput

SIDES = "samples and channels"
KINDS = "biuf"
"""Kinds of numpy dtypes that a table may have: booleans, integers and floats."""
STREAMED = "Parquet, .npy or .h5"
"""Formats for tables that do not fit into memory."""
MATLAB = {"double": "f8", "single": "f4", "logical": "u1"}
"""Types of MATLAB with names that differ from numpy's."""


@dataclass(frozen=True)
class ArrayHeader:
    """Shape and type of an array in a file, without its values."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_columns: bool = False

    @property
    def size(self) -> int:
        """Size in bytes."""
        return int(np.prod(self.shape)) * self.dtype.itemsize


def array_source(path: Path, ending: str, head: bytes, key: str | None, memory: int) -> ArraySource:
    """Open the array of a file.

    Parameters
    ----------
    path : Path
    ending : str
        Suffix of the file, in lower case.
    head : bytes
        First bytes of the file.
    key : str, optional
        Name of the array in files with several.
    memory : int
        Maximum size in bytes of an array that must be read at once.

    Returns
    -------
    ArraySource

    Raises
    ------
    BadInput
        If there is no such table, or if it is too large.
    """
    if ending == ".npy":
        return _of_npy(path)
    if ending == ".npz":
        return _of_npz(path, key, memory)
    if ending == ".mat" and not is_hdf5(head):
        return _of_mat(path, key, memory)
    return _of_hdf5(path, key, memory, transposed=ending == ".mat")


def array_source_of(array: np.ndarray) -> ArraySource:
    """Return the source of an array in memory. Masked values are missing."""
    _must_be_table("data", array)

    def rows(first: int, end: int) -> np.ndarray:
        part = array[first:end]
        return np.ma.filled(part.astype(np.float64), np.nan) if isinstance(part, np.ma.MaskedArray) else part

    return ArraySource("data", None, _sides(array), rows)


def mapped(path: Path) -> np.ndarray | None:
    """Map a .npy file of float32 in row order as a read-only array, or return None for other arrays."""
    values: np.ndarray = np.load(path, mmap_mode="r")
    return values if values.dtype == np.float32 and values.flags.c_contiguous else None


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
    """Format a number of bytes for a message.

    >>> megabytes(12_345_678)
    '12.3 MB'
    """
    return f"{size / 1e6:.1f} MB"


def _must_be_table(label: str, array: Any) -> None:
    """Raise `BadInput` unless an array is a two-dimensional table of numbers."""
    if not is_table(array, KINDS, least=0):
        raise BadInput(f"{label} must hold a table of numbers with two sides, {SIDES}; got {described(array)}.")


def _must_fit(path: Path, size: int, memory: int) -> None:
    """Raise `BadInput` for arrays that do not fit into memory."""
    if size > memory:
        raise BadInput(
            f"{path} takes {megabytes(size)} of {megabytes(memory)} of memory, and its format cannot be read piece by "
            f"piece; save it as {STREAMED}."
        )


def _sides(array: Any) -> tuple[int, int]:
    """Return the shape of a table."""
    return int(array.shape[0]), int(array.shape[1])


def _header(stream: BinaryIO) -> ArrayHeader:
    """Read the header of a .npy file."""
    version = np.lib.format.read_magic(stream)
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, by_columns, dtype = headers[version](stream)
    return ArrayHeader(shape, dtype, by_columns)


def _of_npy(path: Path) -> ArraySource:
    """Open a .npy file."""
    with open(path, "rb") as stream:
        header = _header(stream)
        begin = stream.tell()
    _must_be_table(str(path), header)
    if begin + header.size > path.stat().st_size:
        raise ValueError("cut short")

    def rows(first: int, end: int) -> Any:
        # a new map for each piece, because the pages of a map stay in memory until it is closed
        return np.array(np.load(path, mmap_mode="r")[first:end])

    return ArraySource(str(path), path, _sides(header), rows)


def _of_npz(path: Path, key: str | None, memory: int) -> ArraySource:
    """Open an array of a .npz file."""
    headers = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            with archive.open(name) as stream:
                headers[name.removesuffix(".npy")] = _header(stream)  # type: ignore[arg-type]
    chosen = pick(path, headers, list(headers), key, SIDES, KINDS)
    _must_be_table(str(path), headers[chosen])
    _must_fit(path, headers[chosen].size, memory)
    with np.load(path) as arrays:
        array = arrays[chosen]
    return ArraySource(str(path), path, _sides(array), lambda first, end: array[first:end])


def _of_mat(path: Path, key: str | None, memory: int) -> ArraySource:
    """Open an array of a .mat file before version 7.3."""
    import scipy.io

    headers = {name: ArrayHeader(shape, _matlab_type(kind)) for name, shape, kind in scipy.io.whosmat(path)}
    chosen = pick(path, headers, list(headers), key, SIDES, KINDS)
    _must_fit(path, headers[chosen].size, memory)
    array = scipy.io.loadmat(path, variable_names=[chosen])[chosen]
    _must_be_table(str(path), array)  # the header does not tell complex numbers from real ones
    return ArraySource(str(path), path, _sides(array), lambda first, end: array[first:end])


def _matlab_type(kind: str) -> np.dtype[Any]:
    """Return the numpy dtype of a MATLAB type, or object for cells, texts and structures."""
    try:
        return np.dtype(MATLAB.get(kind, kind) if kind not in ("char", "object") else object)
    except TypeError:
        return np.dtype(object)


def _of_hdf5(path: Path, key: str | None, memory: int, transposed: bool) -> ArraySource:
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
    chosen = pick(path, headers, list(headers), key and key.strip("/"), SIDES, KINDS)
    _must_be_table(str(path), headers[chosen])
    sides = _sides(headers[chosen])

    def rows(first: int, end: int) -> Any:
        with h5py.File(path, "r") as file:
            return file[chosen][:, first:end].T if transposed else file[chosen][first:end]

    # read whole chunks if they fit, because a chunk is decompressed for every piece that needs a part of it
    least = chunks.get(chosen, 1)
    fits = 8 * least * sides[1] <= max(memory // 4, PIECE)
    return ArraySource(str(path), path, sides, rows, least if fits else 1)
