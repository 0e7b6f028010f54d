"""Writing files so that a reader never sees half of one: under a temporary name first, then renamed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors.torch import save
from torch import Tensor


def write_bytes(path: Path, data: bytes) -> None:
    """Write a whole file or nothing. What it replaces stays until the new one is complete on the disk."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_table(path: Path, table: pd.DataFrame) -> None:
    """A table as Parquet."""
    write_bytes(path, table.to_parquet(None, index=False))


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Arrays by name, as safetensors."""
    write_bytes(path, save({name: tensor.contiguous() for name, tensor in tensors.items()}))


def sha256(path: Path) -> str:
    """The hash of a file's bytes, in hexadecimal."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
