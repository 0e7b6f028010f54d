"""Save and load checkpoints of a stack. Saving is atomic; loading verifies hashes and rejects damaged files.

A checkpoint consists of two files named after the step, with the arrays and the metrics so far, and a small `NAME.json`
with the step and the hashes of both. `NAME.json` is replaced last, so a process that is killed at any moment leaves the
previous checkpoint intact.
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
    """Write the checkpoint of stack `name` after `step` training steps, then delete the previous one.

    `metrics` are those of all evaluations so far. `step` must be larger than that of the previous checkpoint.
    """
    arrays, table = folder / f"{name}-{step}.safetensors", folder / f"{name}-{step}.parquet"
    try:
        hashes = {arrays.name: write_tensors(arrays, state), table.name: write_table(table, metrics)}
        content = {"step": step, "sha256": hashes}
        write_json(folder / f"{name}.json", {**content, "digest": _digest(content)})
    except OSError:  # on a full disk, an incomplete checkpoint must not take up space
        for file in (arrays, table):
            with contextlib.suppress(OSError):
                file.unlink()
        raise
    for file in folder.glob(f"{name}-*"):
        if file not in (arrays, table):
            file.unlink()


def load(folder: Path, name: str) -> tuple[int, dict[str, Tensor], pd.DataFrame] | None:
    """Return step, state and metrics of the last checkpoint of a stack, or None; BadInput if it is damaged."""
    step = verify(folder, name)
    if step is None:
        return None
    return step, load_file(folder / f"{name}-{step}.safetensors"), pd.read_parquet(folder / f"{name}-{step}.parquet")


def verify(folder: Path, name: str) -> int | None:
    """Return the step of the last checkpoint of a stack, or None; BadInput if its files do not match their hashes."""
    pointer = folder / f"{name}.json"
    if not pointer.is_file():
        return None
    try:
        content = json.loads(pointer.read_text())
        digest = content.pop("digest")
        step, hashes = int(content["step"]), dict(content["sha256"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(pointer, "it cannot be read") from error
    if digest != _digest(content):
        raise _damaged(pointer, "it was altered")
    for file, expected in hashes.items():
        if not (folder / file).is_file():
            raise _damaged(folder / file, "it is missing")
        if sha256(folder / file) != expected:
            raise _damaged(folder / file, "it was cut short or altered")
    return step


def _damaged(file: Path, reason: str) -> BadInput:
    return BadInput(f"the checkpoint {file} is damaged, {reason}; start the run again with --force.")


def _digest(content: Mapping[str, Any]) -> str:
    """Hash the content of `NAME.json`."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
