"""Reading of two-dimensional arrays from NumPy (.npy, .npz), MATLAB (.mat) and HDF5 files.

Tables (`files`) and brain recordings (`data/recording_files.py`) both use `array_source`. The header, with the shape
and type of an array, is read first, and rows are read when they are needed. Arrays of Python objects, which could run
code when they are loaded, are rejected from the header alone.
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

from placecode.data.cells import first_bytes
from placecode.data.packages import import_optional
from placecode.data.tables.sources import CHUNK_BYTES, ArraySource
from placecode.errors import BadInput
from placecode.validation import choice

MATLAB = {"double": "f8", "single": "f4", "logical": "u1"}  # numpy types of MATLAB types that numpy does not know


class ArrayRule(NamedTuple):
    """Requirements for an array in a file. They differ between tables (`TABLE`) and brain recordings."""

    axes: str
    """Meaning of the two axes, for error messages."""
    kinds: str
    """Letters of the dtypes that are accepted, as in `numpy.dtype.kind`."""
    min_length: int
    """Smallest allowed length of either axis."""


TABLE = ArrayRule("samples and channels", "biuf", 0)


@dataclass(frozen=True)
class ArrayHeader:
    """Shape and type of an array in a file, without its values."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def byte_count(self) -> int:
        """Number of bytes that the values of the array take in memory."""
        return int(np.prod(self.shape)) * self.dtype.itemsize


def array_source(
    path: Path, ending: str, key: str | None, rule: ArrayRule = TABLE, memory: int = sys.maxsize
) -> ArraySource:
    """Return a source (reader of rows) for an array in a file: the one named `key`, or the only two-dimensional one.

    `ending` is the suffix of the file in lower case. Raises `BadInput` if there is no such array, if it violates
    `rule`, or if it has more than `memory` bytes and its format (.npz, older .mat) cannot be read in chunks.
    """
    if ending == ".npy":
        return _of_npy(path, rule)
    if ending == ".npz":
        return _of_npz(path, key, rule, memory)
    # version 7.3 of .mat is HDF5
    if ending == ".mat" and not first_bytes(path).startswith((b"MATLAB 7.3", b"\x89HDF")):
        return _of_mat(path, key, rule, memory)
    return _of_hdf5(path, key, rule, memory, transposed=ending == ".mat")


def array_source_of(array: np.ndarray) -> ArraySource:
    """Return a source (reader of rows) for a two-dimensional array in memory, with NaN in place of masked values."""
    check_table("data", array, TABLE)
    return ArraySource(None, array.shape, lambda first, end: fill_masked(array[first:end]))


def fill_masked(data: Any) -> Any:
    """Return a masked array of numbers as float64, with NaN for masked values. Other data are returned as they are.

    This is necessary because scikit-learn ignores masks, and would use the masked values.
    """
    masked = isinstance(data, np.ma.MaskedArray) and data.dtype.kind in "biuf"
    return np.ma.filled(data.astype(np.float64), np.nan) if masked else data


def available_memory() -> int:
    """Return the available memory of this computer in bytes, approximately."""
    try:
        with open("/proc/meminfo") as file:
            entries = dict(line.split(":", 1) for line in file)
        return int(entries["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pages = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in os.sysconf_names else "SC_PHYS_PAGES"
        return os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")


def format_megabytes(size: int) -> str:
    """Return a number of bytes as text for a message, such as "12.5 MB"."""
    return f"{size / 1e6:.1f} MB"


def check_table(label: str | Path, array: Any, rule: ArrayRule) -> None:
    """Raise `BadInput` unless an array (or its `ArrayHeader`) is two-dimensional and satisfies `rule`.

    `label` is the name of the array in the error message.
    """
    if not _is_table(array, rule.kinds, rule.min_length):
        raise BadInput(
            f"{label} must hold a table of numbers with two sides, {rule.axes}; "
            f"got {array.dtype} of shape {array.shape}."
        )


def _is_table(array: Any, kinds: str, min_length: int) -> bool:
    """Return whether an array or header has a dtype kind in `kinds`, and two axes of at least `min_length`."""
    return array.dtype.kind in kinds and len(array.shape) == 2 and min(array.shape) >= min_length


def _pick(path: Path, headers: Mapping[str, ArrayHeader], key: str | None, rule: ArrayRule) -> str:
    """Return the name of the array to read: `key`, or the only table of numbers with both axes longer than 1.

    Shorter arrays do not count, because MATLAB stores a single number as an array of 1 x 1.
    """
    if key is not None:
        return choice(f"key for {path}", key, headers)
    tables = [name for name, header in headers.items() if _is_table(header, rule.kinds, 2)]
    if not tables:
        content = ", ".join(headers) or "nothing"
        raise BadInput(f"{path} must hold a table of numbers with two sides, {rule.axes}; it holds {content}.")
    if len(tables) > 1:
        raise BadInput(f"{path} holds several tables, {', '.join(tables)}; say by key which one is meant.")
    return tables[0]


def _check_size(path: Path, size: int, memory: int) -> None:
    """Raise `BadInput` if an array of `size` bytes, which cannot be read in chunks, needs more than `memory` bytes."""
    if size > memory:
        raise BadInput(
            f"{path} takes {format_megabytes(size)} of {format_megabytes(memory)} of memory, and its format cannot be "
            f"read piece by piece; save it as Parquet, .npy or .h5."
        )


def _header(stream: BinaryIO) -> ArrayHeader:
    """Read the header at the beginning of a .npy file."""
    version = np.lib.format.read_magic(stream)
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, _, dtype = headers[version](stream)
    return ArrayHeader(shape, dtype)


def _of_npy(path: Path, rule: ArrayRule) -> ArraySource:
    """Return a source for the array of a .npy file."""
    with open(path, "rb") as stream:
        header = _header(stream)
        begin = stream.tell()
    check_table(path, header, rule)
    if begin + header.byte_count > path.stat().st_size:
        raise ValueError("cut short")

    def rows(first: int, end: int) -> Any:
        # a new map for each chunk, because the pages of a map stay in memory until it is closed
        return np.array(np.load(path, mmap_mode="r")[first:end])

    return ArraySource(path, header.shape, rows)


def _of_npz(path: Path, key: str | None, rule: ArrayRule, memory: int) -> ArraySource:
    """Return a source for an array of a .npz file."""
    headers = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".npy"):
                with archive.open(name) as stream:
                    headers[name.removesuffix(".npy")] = _header(stream)  # type: ignore[arg-type]
    chosen = _pick(path, headers, key, rule)
    check_table(path, headers[chosen], rule)
    _check_size(path, headers[chosen].byte_count, memory)
    with np.load(path) as arrays:
        array = arrays[chosen]
    return ArraySource(path, array.shape, lambda first, end: array[first:end])


def _of_mat(path: Path, key: str | None, rule: ArrayRule, memory: int) -> ArraySource:
    """Return a source for an array of a .mat file of a version before 7.3."""
    import scipy.io

    headers = {name: ArrayHeader(shape, _matlab_type(kind)) for name, shape, kind in scipy.io.whosmat(path)}
    chosen = _pick(path, headers, key, rule)
    _check_size(path, headers[chosen].byte_count, memory)
    array = scipy.io.loadmat(path, variable_names=[chosen])[chosen]
    check_table(path, array, rule)  # the header does not tell complex numbers from real ones
    return ArraySource(path, array.shape, lambda first, end: array[first:end])


def _matlab_type(kind: str) -> np.dtype[Any]:
    """Return the numpy dtype of a MATLAB type. It is `object` for cell arrays, texts and structures."""
    try:
        return np.dtype(MATLAB.get(kind, kind) if kind not in ("char", "object") else object)
    except TypeError:
        return np.dtype(object)


def _of_hdf5(path: Path, key: str | None, rule: ArrayRule, memory: int, transposed: bool) -> ArraySource:
    """Return a source for an array of an HDF5 file. `transposed` is True for .mat files, which reverse the axes."""
    h5py = import_optional("h5py", f"Reading {path}")
    headers: dict[str, ArrayHeader] = {}
    stored_rows: dict[str, int] = {}  # number of rows of a compressed chunk of the file, for each array

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and not name.startswith("#"):
            shape = item.shape or ()
            headers[name] = ArrayHeader(shape[::-1] if transposed else shape, item.dtype)
            if item.chunks and len(shape) == 2:
                stored_rows[name] = item.chunks[1 if transposed else 0]

    with h5py.File(path, "r") as file:
        file.visititems(visit)
    chosen = _pick(path, headers, key and key.strip("/"), rule)
    check_table(path, headers[chosen], rule)
    shape = headers[chosen].shape

    def rows(first: int, end: int) -> Any:
        with h5py.File(path, "r") as file:
            return file[chosen][:, first:end].T if transposed else file[chosen][first:end]

    # read whole compressed chunks if they fit, because one is decompressed each time that a part of it is read
    row_multiple = stored_rows.get(chosen, 1)
    fits = 8 * row_multiple * shape[1] <= max(memory // 4, CHUNK_BYTES)
    return ArraySource(path, shape, rows, row_multiple if fits else 1)
