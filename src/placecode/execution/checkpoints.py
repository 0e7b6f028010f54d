"""Save and load checkpoints, so that an interrupted run can be resumed.

A checkpoint is the state of a stack (models trained together) during training. The checkpoint of the stack NAME after
STEP steps has three files in the folder `checkpoints/` of the run: `NAME-STEP.safetensors` has the arrays,
`NAME-STEP.parquet` the metrics so far, and `NAME.json` the step and the hashes of the other two files. `NAME.json` is
replaced last, so a process that is killed at any moment leaves the previous checkpoint intact. Loading verifies the
hashes and rejects damaged files.
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

    `state` has all arrays that training needs to continue (`Trainer.state`) or, after the last step, the parameters and
    how training ended (`Trainer.outcome`). `metrics` has the rows of all evaluations so far. `step` must be larger than
    that of the previous checkpoint.
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
    """Return step, state and metrics of the last checkpoint of stack `name`, or None if it has no checkpoint.

    Raise BadInput if the checkpoint is damaged.
    """
    step = verify(folder, name)
    if step is None:
        return None
    return step, load_file(folder / f"{name}-{step}.safetensors"), pd.read_parquet(folder / f"{name}-{step}.parquet")


def verify(folder: Path, name: str) -> int | None:
    """Return the step of the last checkpoint of stack `name`, or None if it has no checkpoint.

    Raise BadInput if a file of the checkpoint is missing or does not match its hash.
    """
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
    """Return the error for a damaged file of a checkpoint."""
    return BadInput(f"the checkpoint {file} is damaged, {reason}; start the run again with --force.")


def _digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 hash of `content`, in hexadecimal digits. `NAME.json` contains `content` and this hash."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
