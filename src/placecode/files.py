"""Writing files so that a reader never sees half of one: under a temporary name first, then renamed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd
import torch
from torch import Tensor

NAMES = {
    torch.bool: "BOOL",
    torch.float16: "F16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.int64: "I64",
}
"""What safetensors calls the types that are written here."""
KINDS = tuple(NAMES)
"""Those types; the last come first in a file, so that every array begins at a multiple of its own size."""


@contextlib.contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A file to be written piece by piece: it gets its name once all of it is on the disk, or never."""
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
    """Write a whole file or nothing; returns its hash. What it replaces stays until the new one is on the disk."""
    digest = hashlib.sha256()
    with whole(path) as stream:
        for part in parts:
            stream.write(part)
            digest.update(part)
    return digest.hexdigest()


def is_temporary(path: Path) -> bool:
    """Whether a file is one that `whole` had begun when its process was killed."""
    return re.fullmatch(r"\..+\.[0-9a-f]{8}\.part", path.name) is not None


def sweep(folder: Path) -> None:
    """Remove what killed processes had begun to write. Only for who holds the folder: others may be writing now."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if is_temporary(path):
            path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_table(path: Path, table: pd.DataFrame) -> str:
    """A table as Parquet; returns the file's hash."""
    return write_bytes(path, table.to_parquet(None, index=False))


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Arrays by name, as safetensors; returns the file's hash.

    The library would put the file together in memory first, and let no other thread work meanwhile; checkpoints have
    gigabytes, and are written beside training. The bytes are the same.
    """
    parts, header, end = [], {}, 0
    if unknown := {name: tensor.dtype for name, tensor in tensors.items() if tensor.dtype not in NAMES}:
        raise TypeError(f"these arrays are of a type that is not written: {unknown}")
    for name in sorted(tensors, key=lambda name: (-KINDS.index(tensors[name].dtype), name)):
        data = tensors[name].contiguous().cpu()
        begin, end = end, end + data.nbytes
        header[name] = {"dtype": NAMES[data.dtype], "shape": list(data.shape), "data_offsets": [begin, end]}
        parts.append(data.flatten().view(torch.uint8).numpy().data)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return write_bytes(path, len(text).to_bytes(8, "little"), text, *parts)


def is_full_disk(error: OSError) -> bool:
    """Whether a write failed for want of room: on the disk, in a quota, under a limit on the size of files."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def sha256(path: Path) -> str:
    """The hash of a file's bytes, in hexadecimal."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
