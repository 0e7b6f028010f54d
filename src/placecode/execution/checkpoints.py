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
    """Write the checkpoint of a stack, then delete the previous one.

    Parameters
    ----------
    folder : Path
        Folder of the checkpoints.
    name : str
        Name of the stack.
    step : int
        Number of training steps done; larger than that of the previous checkpoint.
    state : mapping of str to Tensor
        Arrays of the trainer.
    metrics : DataFrame
        Metrics of all evaluations so far.
    """
    files = {"state": folder / f"{name}-{step}.safetensors", "metrics": folder / f"{name}-{step}.parquet"}
    try:
        hashes = [write_tensors(files["state"], state), write_table(files["metrics"], metrics)]
        names = [file.name for file in files.values()]
        content = {"step": step, "sha256": dict(zip(names, hashes, strict=True))}
        write_json(folder / f"{name}.json", {**content, "digest": _digest(content)})
    except OSError:  # on a full disk, an incomplete checkpoint must not take up space
        for file in files.values():
            with contextlib.suppress(OSError):
                file.unlink()
        raise
    for file in folder.glob(f"{name}-*"):
        if file not in files.values():
            file.unlink()


def load(folder: Path, name: str) -> tuple[int, dict[str, Tensor], pd.DataFrame] | None:
    """Load the last checkpoint of a stack.

    Parameters
    ----------
    folder : Path
        Folder of the checkpoints.
    name : str
        Name of the stack.

    Returns
    -------
    tuple of (int, dict, DataFrame) or None
        The step, the arrays and the metrics; None if there is no checkpoint.

    Raises
    ------
    BadInput
        If a file is damaged.
    """
    step = verify(folder, name)
    if step is None:
        return None
    return step, load_file(folder / f"{name}-{step}.safetensors"), pd.read_parquet(folder / f"{name}-{step}.parquet")


def verify(folder: Path, name: str) -> int | None:
    """Check the files of the last checkpoint against their hashes.

    Parameters
    ----------
    folder : Path
        Folder of the checkpoints.
    name : str
        Name of the stack.

    Returns
    -------
    int or None
        Step of the checkpoint; None if there is no checkpoint.

    Raises
    ------
    BadInput
        If a file is damaged.
    """
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
    for file, expected in hashes.items():
        if not (folder / file).is_file():
            raise damaged(folder / file, "it is missing")
        if sha256(folder / file) != expected:
            raise damaged(folder / file, "it was cut short or altered")
    return step


def damaged(file: Path, reason: str) -> BadInput:
    """Return the error for a damaged file of a checkpoint."""
    return BadInput(f"the checkpoint {file} is damaged, {reason}; start the run again with --force.")


def _digest(content: Mapping[str, Any]) -> str:
    """Hash the content of `NAME.json`."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
