"""Tables that are plain arrays: what a file holds is told from its headers, rows are read when they are asked for.

Objects, which could run what they hold, are refused by their header, before numpy would refuse to read them.
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
"""Kinds of numbers that a table may hold: truth values, whole numbers, and others."""
STREAMED = "Parquet, .npy or .h5"
"""What to use for a table that does not fit into memory."""
MATLAB = {"double": "f8", "single": "f4", "logical": "u1"}
"""Types by their names in MATLAB, where these are not those of numpy."""


@dataclass(frozen=True)
class Promise:
    """An array that a file holds, before it is read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_columns: bool = False

    @property
    def size(self) -> int:
        return int(np.prod(self.shape)) * self.dtype.itemsize


def array_source(path: Path, ending: str, head: bytes, key: str | None, memory: int) -> ArraySource:
    """The array of a file, or the one called `key`; `BadInput` if that is no table, or too large."""
    if ending == ".npy":
        return _of_npy(path)
    if ending == ".npz":
        return _of_npz(path, key, memory)
    if ending == ".mat" and not is_hdf5(head):
        return _of_mat(path, key, memory)
    return _of_hdf5(path, key, memory, turned=ending == ".mat")


def array_source_of(array: np.ndarray) -> ArraySource:
    """An array that is at hand; masked values are missing ones."""
    _must_be_table("data", array)

    def rows(first: int, end: int) -> np.ndarray:
        part = array[first:end]
        return np.ma.filled(part.astype(np.float64), np.nan) if isinstance(part, np.ma.MaskedArray) else part

    return ArraySource("data", None, _sides(array), rows)


def mapped(path: Path) -> np.ndarray | None:
    """A .npy file of float32, row by row, as a map that cannot be written; None if it is of another kind."""
    values: np.ndarray = np.load(path, mmap_mode="r")
    return values if values.dtype == np.float32 and values.flags.c_contiguous else None


def available() -> int:
    """How many bytes of memory this machine has to give, about."""
    try:
        with open("/proc/meminfo") as file:
            told = dict(line.split(":", 1) for line in file)
        return int(told["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pages = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in os.sysconf_names else "SC_PHYS_PAGES"
        return os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")


def megabytes(size: int) -> str:
    """A number of bytes for a sentence.

    >>> megabytes(12_345_678)
    '12.3 MB'
    """
    return f"{size / 1e6:.1f} MB"


def _must_be_table(label: str, array: Any) -> None:
    if not is_table(array, KINDS, least=0):
        raise BadInput(f"{label} must hold a table of numbers with two sides, {SIDES}; got {described(array)}.")


def _must_fit(path: Path, size: int, memory: int) -> None:
    if size > memory:
        raise BadInput(
            f"{path} takes {megabytes(size)} of {megabytes(memory)} of memory, and its format cannot be read piece by "
            f"piece; save it as {STREAMED}."
        )


def _sides(array: Any) -> tuple[int, int]:
    return int(array.shape[0]), int(array.shape[1])


def _promise(stream: BinaryIO) -> Promise:
    """What the header of a .npy file says."""
    version = np.lib.format.read_magic(stream)
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, by_columns, dtype = headers[version](stream)
    return Promise(shape, dtype, by_columns)


def _of_npy(path: Path) -> ArraySource:
    with open(path, "rb") as stream:
        promise = _promise(stream)
        begin = stream.tell()
    _must_be_table(str(path), promise)
    if begin + promise.size > path.stat().st_size:
        raise ValueError("cut short")

    def rows(first: int, end: int) -> Any:
        # mapped anew for each piece: pages that were read would else count as taken until the end
        return np.array(np.load(path, mmap_mode="r")[first:end])

    return ArraySource(str(path), path, _sides(promise), rows)


def _of_npz(path: Path, key: str | None, memory: int) -> ArraySource:
    promises = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            with archive.open(name) as stream:
                promises[name.removesuffix(".npy")] = _promise(stream)  # type: ignore[arg-type]
    chosen = pick(path, promises, list(promises), key, SIDES, KINDS)
    _must_be_table(str(path), promises[chosen])
    _must_fit(path, promises[chosen].size, memory)
    with np.load(path) as arrays:
        array = arrays[chosen]
    return ArraySource(str(path), path, _sides(array), lambda first, end: array[first:end])


def _of_mat(path: Path, key: str | None, memory: int) -> ArraySource:
    import scipy.io

    promises = {name: Promise(shape, _matlab_type(kind)) for name, shape, kind in scipy.io.whosmat(path)}
    chosen = pick(path, promises, list(promises), key, SIDES, KINDS)
    _must_fit(path, promises[chosen].size, memory)
    array = scipy.io.loadmat(path, variable_names=[chosen])[chosen]
    _must_be_table(str(path), array)  # complex numbers show only now
    return ArraySource(str(path), path, _sides(array), lambda first, end: array[first:end])


def _matlab_type(kind: str) -> np.dtype[Any]:
    """The type that MATLAB calls so; objects for what is no array of numbers (cells, texts, structures)."""
    try:
        return np.dtype(MATLAB.get(kind, kind) if kind not in ("char", "object") else object)
    except TypeError:
        return np.dtype(object)


def _of_hdf5(path: Path, key: str | None, memory: int, turned: bool) -> ArraySource:
    """A table of an HDF5 file; MATLAB writes columns first, so that its tables are `turned`."""
    h5py = needed("h5py", f"Reading {path}")
    promises: dict[str, Promise] = {}
    chunks: dict[str, int] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and not name.startswith("#"):
            shape = item.shape or ()
            promises[name] = Promise(shape[::-1] if turned else shape, item.dtype)
            if item.chunks and len(shape) == 2:
                chunks[name] = item.chunks[1 if turned else 0]

    with h5py.File(path, "r") as file:
        file.visititems(visit)
    chosen = pick(path, promises, list(promises), key and key.strip("/"), SIDES, KINDS)
    _must_be_table(str(path), promises[chosen])
    sides = _sides(promises[chosen])

    def rows(first: int, end: int) -> Any:
        with h5py.File(path, "r") as file:
            return file[chosen][:, first:end].T if turned else file[chosen][first:end]

    # whole chunks at once where they fit, since a chunk is unpacked for every piece that needs some of it
    least = chunks.get(chosen, 1)
    fits = 8 * least * sides[1] <= max(memory // 4, PIECE)
    return ArraySource(str(path), path, sides, rows, least if fits else 1)
