"""Read run folders, the results of an experiment: tables, arrays and trained models (written by `runs/write.py`).

>>> run = Run("runs/demo")
>>> model = run.load(0)                     # a trained model, called on inputs of shape (b, n, f)
>>> run.metrics.query("split == 'ood'")
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from placecode.errors import BadInput, must_be
from placecode.models.encoder import Stack
from placecode.models.member import Member
from placecode.runs.former_names import current_fields, current_members, current_row, current_task
from placecode.runs.tables import no_baselines, spec_of

FORMAT = 5
"""Version of the format of run folders. It increases when older versions of placecode cannot read newer folders."""
READABLE_FORMATS = (1, 2, 3, 4, 5)
"""Formats that can be read. In format 1, and in copies of such runs, members have neither role nor label. Before format
3, the split "ood" was named "validation"; it is renamed when a folder is read, but not in fits of users' tables, where
"validation" is right. Before format 4, the entry "experiment" of config.json was named "study". Before format 5, some
settings and columns of members had the names in `former_names`."""
FILES = (
    "config.json",
    "environment.json",
    "members.parquet",
    "metrics.parquet",
    "analysis.parquet",
    "summary.json",
    "baselines.parquet",
    "arrays.safetensors",
    "weights.safetensors",
    "report.html",
    "log.txt",
    "fit.json",
    "fit.safetensors",
    "map.csv",
)
"""Names of all files that a run folder may have."""
FOLDERS = ("figures", "checkpoints")
"""Names of all subfolders that a run folder may have."""
TENSORS = ("arrays.safetensors", "weights.safetensors")
MEASURE = ("split", "condition", "metric")
"""Entries of a row of summary.json that say what was measured."""
STATISTICS = ("mean", "std", "n", "diverged")
"""Entries of a row of summary.json that are results. Entries neither here nor in MEASURE are fields of members, such as
sigma."""
CONFIG_KEYS = {
    "experiment": str,
    "scale": str,
    "fields": dict,
    "precision": str,
    "device": str,
    "stack": int,
    "members": str,
    "total": int,
    "shape": dict,
    "task": dict,
}
"""Required entries of config.json besides the format, and their types. `fields` has the settings of the experiment,
from which `shape`, `task` and `total` follow."""


class Run:
    """A run folder. Tables are read when they are first accessed; missing or damaged files raise BadInput.

    Parameters
    ----------
    path : str or Path
        The folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path, self.config = Path(path), dict[str, Any]()
        if not (self.path / "config.json").is_file():
            raise BadInput(f"{self.path} must be a run folder, one with a config.json; there is none.")
        self.config = self._json("config.json")
        version = self.config.get("format") if isinstance(self.config, dict) else None
        if version not in READABLE_FORMATS:
            raise BadInput(
                f"{self.path} must be a run folder of format 1 to {FORMAT}; its config.json has the format {version!r}."
            )
        self.config = {"experiment" if name == "study" else name: value for name, value in self.config.items()}
        for name, kind in CONFIG_KEYS.items():
            if not isinstance(self.config.get(name), kind):
                raise BadInput(f"{self.path / 'config.json'} is damaged: it has no {name}.")
        self._has_old_names = self.config["format"] < 5
        if self._has_old_names:
            self.config["fields"] = current_fields(self.experiment, self.config["fields"])
            self.config["task"] = current_task(self.config["task"])
        self._has_old_split = self.config["format"] < 3 and self.experiment != "fit"
        if self._has_old_split:
            self.config["task"] = _renamed_keys(self.config["task"])

    @property
    def finished(self) -> bool:
        """Whether the run is finished, which is when summary.json exists, since it is written last."""
        return (self.path / "summary.json").is_file()

    @property
    def experiment(self) -> str:
        """Name of the experiment."""
        return str(self.config["experiment"])

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Content of environment.json: package versions, device and hash of the source code that produced the run."""
        return dict(self._json("environment.json"))

    @cached_property
    def members(self) -> pd.DataFrame:
        """Table with one row per member: its number in the experiment, its fields and how its training ended
        (`TrainingOutcome`)."""
        table = self._table("members.parquet")
        return current_members(table) if self._has_old_names else table

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Table of metrics, with columns member, step, split, condition (subset of the split), metric, value."""
        table = self._table("metrics.parquet")
        return table.assign(split=_renamed(table["split"])) if self._has_old_split else table

    @cached_property
    def analysis(self) -> pd.DataFrame:
        """Table of analyses, with columns member, step, block, analysis, target, value.

        Step 0 is before training. Block -1 stands for all blocks side by side, and -2 for the mean over blocks. The
        target is a detail of the analysis, such as the encoding that a PE is compared with, and may be empty.
        """
        table = self._table("analysis.parquet")
        return table.assign(target=_renamed(table["target"])) if self._has_old_split else table

    @cached_property
    def baselines(self) -> pd.DataFrame:
        """Metrics of other methods on the same data: columns data, world, baseline, split, condition, metric, value.

        A baseline is a method, and a world is one of several realizations of the data (`Task.worlds`). The table is
        empty if the experiment has no baselines.
        """
        if self.finished and not (self.path / "baselines.parquet").is_file():
            return no_baselines()
        return self._table("baselines.parquet")

    @cached_property
    def summary(self) -> list[dict[str, Any]]:
        """Rows of summary.json, as `placecode.runs.summary.summarize` describes them."""
        rows = self._json("summary.json")["rows"]
        if isinstance(rows, dict):  # as `placecode.runs.summary.compact` writes them
            settings, measures = rows["settings"], rows["measures"]
            rows = [
                {**settings[setting], **measures[measure], **dict(zip(STATISTICS, values, strict=True))}
                for setting, measure, *values in rows["values"]
            ]
        if self._has_old_names:
            rows = [current_row(row) for row in rows]
        if not self._has_old_split:
            return list(rows)
        return [row | {name: _OLD_SPLIT.sub("ood", row[name]) for name in ("split", "condition")} for row in rows]

    def array(self, name: str) -> np.ndarray:
        """Return one array by its name, such as "pe_start/3", "pe_end/3" or "attention_end/3" for member 3."""
        with self._tensors("arrays.safetensors") as file:
            return np.asarray(file.get_tensor(name))

    def has_array(self, name: str) -> bool:
        """Return whether the run has an array of this name. It has none if arrays.safetensors was deleted."""
        if self._without_arrays:
            return False
        with self._tensors("arrays.safetensors") as file:
            return name in file.keys()  # noqa: SIM118

    def arrays(self, prefix: str) -> dict[int, np.ndarray]:
        """Return all arrays named PREFIX/i by their number i, such as the PEs of all members for "pe_end".

        The result is empty if the run has no such arrays.
        """
        if self._without_arrays:
            return {}
        with self._tensors("arrays.safetensors") as file:
            names = [name for name in file.keys() if name.startswith(prefix + "/")]  # noqa: SIM118
            return {int(name.split("/")[1]): np.asarray(file.get_tensor(name)) for name in sorted(names)}

    @property
    def _without_arrays(self) -> bool:
        """Whether the run is finished but has no file of arrays, which may have been deleted to save space."""
        return self.finished and not (self.path / "arrays.safetensors").is_file()

    def tensors(self, name: str) -> dict[str, Tensor]:
        """Return all tensors of the safetensors file `name` in the folder; empty if there is no such file."""
        if not (self.path / name).is_file():
            return {}
        with self._tensors(name) as file:
            return {key: torch.from_numpy(np.asarray(file.get_tensor(key))) for key in file.keys()}  # noqa: SIM118

    def member(self, number: int) -> Member:
        """Return the spec of the member with this number. Raise BadInput if the run has no such member."""
        rows = self.members[self.members["member"] == number]
        if rows.empty:
            numbers = f"{self.members['member'].min()} to {self.members['member'].max()}"
            raise BadInput(f"member must be a member of {self.path}, {numbers}; got {number}.")
        return spec_of(rows.iloc[0])

    def load(self, number: int, device: torch.device | str = "cpu") -> Stack:
        """Load the trained model of one member.

        Parameters
        ----------
        number : int
            Number of the member.
        device : device or str, default="cpu"
            Device of the model.

        Returns
        -------
        Stack
            A stack of one model, called on inputs of shape (b, n, f).
        """
        member = self.member(number)
        shape = shape_of(self.config, member.data)
        shape.pop("worlds", None)  # missing in older runs
        if shape["positions"] is not None:
            shape["positions"] = np.array(shape["positions"])
        stack = Stack([member.without_donor()], **shape, device=device)
        if not (self.path / "weights.safetensors").is_file():
            raise BadInput(
                f"{self.path} has no weights.safetensors: its weights were not kept, so no member can be loaded."
            )
        with self._tensors("weights.safetensors") as file:
            stack.flat.copy_(torch.from_numpy(np.asarray(file.get_tensor(str(number)))))
        return stack

    def _json(self, name: str) -> Any:
        """Return the content of a JSON file in the folder. Raise BadInput if it is missing or damaged."""
        try:
            return json.loads((self.path / name).read_text())
        except FileNotFoundError as error:
            raise self._unfinished(name) from error
        except ValueError as error:
            raise BadInput(f"{self.path / name} is damaged: it is not JSON.") from error
        except OSError as error:
            raise BadInput(f"{self.path / name} cannot be read: {error.strerror}.") from error

    def _table(self, name: str) -> pd.DataFrame:
        """Return the table in a Parquet file in the folder. Raise BadInput if it is missing or damaged."""
        try:
            return pd.read_parquet(self.path / name)
        except FileNotFoundError as error:
            raise self._unfinished(name) from error
        except (ValueError, OSError) as error:
            raise BadInput(f"{self.path / name} is damaged: it is not a Parquet table.") from error

    def _unfinished(self, name: str) -> BadInput:
        """Return the exception for a folder without the file `name`, which every finished run has."""
        remedy = f"continue it with 'placecode run ... --out {self.path} --resume'"
        if self.config.get("format") != FORMAT:
            remedy = "only the version of placecode that began it can continue it"
        return BadInput(f"{self.path} has no {name}: the run is not finished; {remedy}.")

    @contextlib.contextmanager
    def _tensors(self, name: str) -> Iterator[Any]:
        """Return a context manager that opens a safetensors file. Raise BadInput if it is missing or damaged."""
        try:
            with safe_open(self.path / name, framework="numpy") as file:
                yield file
        except FileNotFoundError as error:
            raise self._unfinished(name) from error
        except (SafetensorError, OSError) as error:
            raise BadInput(f"{self.path / name} cannot be read: {str(error).rstrip('.')}.") from error


_OLD_SPLIT = re.compile(r"^validation\b")
"""Pattern of the former name of the split "ood", in names of splits and at the start of targets and conditions."""


def _renamed(column: pd.Series) -> pd.Series:
    """Return a column of texts in which the old name of the split "ood" is replaced."""
    return column.str.replace(_OLD_SPLIT, "ood", regex=True)


def _renamed_keys(value: Any) -> Any:
    """Return a copy of nested dicts in which the key "validation" is replaced by "ood". Other values are unchanged."""
    if not isinstance(value, dict):
        return value
    return {"ood" if name == "validation" else name: _renamed_keys(part) for name, part in value.items()}


def shape_of(config: Mapping[str, Any], data: str) -> dict[str, Any]:
    """Return the sizes of a data set and the positions of its tokens from `config`, the content of config.json of a
    run.

    The keys are tokens, features, outputs, worlds (numbers), readout (such as "last"), and positions (coordinates of
    the tokens, or None). Worlds are independent repetitions of the data, such as simulated networks. `data` is the name
    of the data set, "" if the run has only one.
    """
    return dict(config.get("shapes", {}).get(data, config["shape"]))


def shapes_of(config: Mapping[str, Any], members: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return sizes and positions, as `shape_of` does, for all data sets of a run, by the name of the data set."""
    names = members["data"].unique() if "data" in members else [""]  # the column is missing in older runs
    return {data: shape_of(config, data) for data in config.get("shapes", names)}


def finished_run(path: Path) -> Run:
    """Return the run in a folder. Raise BadInput if it is not finished."""
    run = Run(path)
    if not run.finished:
        raise run._unfinished("summary.json")
    return run


def format_ranges(numbers: Sequence[int]) -> str:
    """Return member numbers as text, in the syntax of the option `--members`. The end of a range is not included.

    >>> format_ranges([0, 1, 2, 5])
    '0:3,5:6'
    """
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number:
            parts[-1][1] = number + 1
        else:
            parts.append([number, number + 1])
    return ",".join(f"{start}:{stop}" for start, stop in parts)


def parse_ranges(text: str, total: int) -> list[int]:
    """Return the member numbers in a text such as "0:3,5:6", sorted. It is the inverse of `format_ranges`.

    `total` is the number of members of the experiment. Raise BadInput if the text is not valid.

    >>> parse_ranges("0:3,5:6", 8), parse_ranges("6:", 8)
    ([0, 1, 2, 5], [6, 7])
    """
    numbers: set[int] = set()
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d*):(\d*)\s*", part)
        start, stop = (int(ends[1] or 0), int(ends[2] or total)) if ends else (0, 0)
        if not start < stop <= total:
            raise must_be("members", f"a range I:J within 0:{total}, or several with commas", text)
        numbers.update(range(start, stop))
    return sorted(numbers)


def find_runs(root: Path) -> list[Run]:
    """Return all runs in a folder and its subfolders, newest first."""
    paths = [Path(folder) for folder, _, files in os.walk(root) if "config.json" in files]
    runs = []
    for path in paths:
        with contextlib.suppress(BadInput):  # the config.json of another program
            runs.append(Run(path))
    return sorted(runs, key=lambda run: (run.path / "config.json").stat().st_mtime, reverse=True)
