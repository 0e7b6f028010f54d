"""Write files atomically (bytes, text, JSON, Parquet tables, safetensors).

A file is written under a temporary name and then renamed, so that readers never see a partial file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

SAFETENSORS_NAMES = {
    torch.bool: "BOOL",
    torch.float16: "F16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.int64: "I64",
}
"""The dtypes that `write_tensors` supports, with their names in the safetensors format. In the file, tensors are in the
reverse of this order (int64 first, bool last), so that each begins at a multiple of its element size."""


@contextlib.contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a file for atomic writing, as a context manager that yields a binary stream.

    The file appears at `path` once all bytes are on the disk. After an exception `path` is as it was before.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(temporary, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_bytes(path: Path, *parts: bytes | memoryview) -> str:
    """Write the concatenated `parts` to a file atomically, and return the SHA-256 hash of the file (hexadecimal)."""
    digest = hashlib.sha256()
    with open_atomic(path) as stream:
        for part in parts:
            stream.write(part)
            digest.update(part)
    return digest.hexdigest()


def is_temporary(path: Path) -> bool:
    """Return whether a file has the name of a temporary file of `open_atomic`. Killed processes leave such files."""
    return re.fullmatch(r"\..+\.[0-9a-f]{8}\.part", path.name) is not None


def remove_temporary_files(folder: Path) -> None:
    """Remove the temporary files that killed processes left in a folder.

    Call it only while holding the lock of the folder. Otherwise it may remove files that other processes are writing.
    """
    for path in folder.iterdir() if folder.is_dir() else ():
        if is_temporary(path):
            path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write text to a file atomically, encoded as UTF-8."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write a value to a JSON file atomically. Each item of a dict or list begins on an indented line of its own.

    But a list of plain values takes one line, and so does a dict of plain values that is an item of a list.
    """
    write_text(path, _json(value) + "\n")


def _json(value: Any, indent: str = "") -> str:
    """Return a value as JSON text. `indent` is the indentation of the line on which the value begins."""
    parts, inner_indent, brackets = [], f"{indent}  ", "[]"
    if isinstance(value, dict):
        brackets = "{}"
        parts = [f"{json.dumps(str(key))}: {_json(part, inner_indent)}" for key, part in value.items()]
    elif isinstance(value, list | tuple) and any(isinstance(part, _CONTAINERS) for part in value):
        parts = [json.dumps(part, allow_nan=False) if _is_flat(part) else _json(part, inner_indent) for part in value]
    if not parts:
        return json.dumps(value, allow_nan=False)
    return f"{brackets[0]}\n{inner_indent}" + f",\n{inner_indent}".join(parts) + f"\n{indent}{brackets[1]}"


_CONTAINERS = (dict, list, tuple)


def _is_flat(value: Any) -> bool:
    """Return whether a value contains no dict, list or tuple."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return not any(isinstance(item, _CONTAINERS) for item in items)


def write_table(path: Path, table: pd.DataFrame) -> str:
    """Write a table to a Parquet file atomically, and return the SHA-256 hash of the file.

    To keep small files small, statistics of columns are not written, floats are not dictionary-encoded, and pandas'
    metadata is only written for columns of unusual types, such as integers with missing values.
    """
    arrow_table = pa.Table.from_pandas(table, preserve_index=False)
    description = json.loads(arrow_table.schema.metadata[b"pandas"])
    columns = [column for column in description["columns"] if column["numpy_type"] not in _USUAL_TYPES]
    metadata = {"pandas": json.dumps({**description, "columns": columns})} if columns else None
    file = io.BytesIO()
    pq.write_table(
        arrow_table.replace_schema_metadata(metadata),
        file,
        compression="zstd",
        compression_level=19,
        use_dictionary=[name for name in table.columns if not pd.api.types.is_float_dtype(table[name])],
        write_statistics=False,
        store_schema=bool(columns),
    )
    return write_bytes(path, file.getbuffer())


_USUAL_TYPES = ("int64", "float64", "bool", "str")
"""Types of columns that pandas restores from a Parquet file even if the file has no pandas metadata."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write tensors to a safetensors file atomically, and return the SHA-256 hash of the file.

    The file has the same bytes as one written by the safetensors library. The library is not used, because it would
    first assemble the whole file in memory and block all other threads. Checkpoints are written during training and can
    be gigabytes large.
    """
    parts, header, end, dtypes = [], {}, 0, list(SAFETENSORS_NAMES)
    if unknown := {name: tensor.dtype for name, tensor in tensors.items() if tensor.dtype not in SAFETENSORS_NAMES}:
        raise TypeError(f"these arrays are of a type that is not written: {unknown}")
    for name in sorted(tensors, key=lambda name: (-dtypes.index(tensors[name].dtype), name)):
        data = tensors[name].contiguous().cpu()
        begin, end = end, end + data.nbytes
        header[name] = {"dtype": SAFETENSORS_NAMES[data.dtype], "shape": list(data.shape), "data_offsets": [begin, end]}
        parts.append(data.flatten().view(torch.uint8).numpy().data)
    head = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    head += b" " * (-len(head) % 8)
    return write_bytes(path, len(head).to_bytes(8, "little"), head, *parts)


def is_full_disk(error: OSError) -> bool:
    """Return whether the error of a failed write means a full disk, an exceeded quota or a too large file."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def sha256(path: Path) -> str:
    """Return the SHA-256 hash of a file (hexadecimal)."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
