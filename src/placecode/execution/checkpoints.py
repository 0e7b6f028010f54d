"""Checkpoints of a stack in training: saved whole or not at all, and never believed when cut short or altered.

A checkpoint is two files named after the step, the arrays and the metrics so far, and a small `NAME.json` that points
at them with their hashes. That one is replaced last, so a process killed at any moment leaves the previous checkpoint.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors.torch import load_file
from torch import Tensor

from placecode.errors import BadInput
from placecode.files import sha256, write_json, write_table, write_tensors


def save(folder: Path, name: str, step: int, state: Mapping[str, Tensor], metrics: pd.DataFrame) -> None:
    """Write the checkpoint of a stack after `step` steps, a later one than before; then drop the one before."""
    files = {"state": folder / f"{name}-{step}.safetensors", "metrics": folder / f"{name}-{step}.parquet"}
    try:
        hashes = [write_tensors(files["state"], state), write_table(files["metrics"], metrics)]
        names = [file.name for file in files.values()]
        content = {"step": step, "sha256": dict(zip(names, hashes, strict=True))}
        write_json(folder / f"{name}.json", {**content, "digest": _digest(content)})
    except OSError:  # a full disk has no room for half a checkpoint either
        for file in files.values():
            with contextlib.suppress(OSError):
                file.unlink()
        raise
    for file in folder.glob(f"{name}-*"):
        if file not in files.values():
            file.unlink()


def load(folder: Path, name: str) -> tuple[int, dict[str, Tensor], pd.DataFrame] | None:
    """The step, the arrays and the metrics of the last checkpoint, or None where there is none yet."""
    step = verify(folder, name)
    if step is None:
        return None
    return step, load_file(folder / f"{name}-{step}.safetensors"), pd.read_parquet(folder / f"{name}-{step}.parquet")


def verify(folder: Path, name: str) -> int | None:
    """The step of the last checkpoint, whose files are then as they were written, or None where there is none yet."""
    pointer = folder / f"{name}.json"
    if not pointer.is_file():
        return None
    try:
        content = json.loads(pointer.read_text())
        digest = content.pop("digest")
        step, hashes = int(content["step"]), dict(content["sha256"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(pointer, "it cannot be read") from error
    if digest != _digest(content):
        raise damaged(pointer, "it was altered")
    for file, wanted in hashes.items():
        if not (folder / file).is_file():
            raise damaged(folder / file, "it is missing")
        if sha256(folder / file) != wanted:
            raise damaged(folder / file, "it was cut short or altered")
    return step


def damaged(file: Path, how: str) -> BadInput:
    return BadInput(f"the checkpoint {file} is damaged, {how}; start the run anew with --force.")


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
