"""The run folder, read back: what executing a study leaves behind, and its summary. `folders` makes them.

>>> run = Run("runs/demo")
>>> model = run.load(0)                     # a trained member, called on (b, n, f)
>>> run.metrics.query("split == 'validation'")
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from placecode.encodings import lookup
from placecode.errors import BadInput, must_be
from placecode.models.encoder import Stack
from placecode.models.member import Member, varied

FORMAT = 2
"""Of run folders that are written. In format 1, members had neither role nor label."""
READABLE = (1, 2)
"""Of the folder. Raised when an older placecode could not read what a newer one writes."""
FILES = (
    *("config.json", "environment.json", "members.parquet", "metrics.parquet", "analysis.parquet", "summary.json"),
    *("baselines.parquet", "arrays.safetensors", "weights.safetensors", "report.html", "log.txt"),
    *("fit.json", "fit.safetensors", "map.csv"),
)
FOLDERS = ("figures", "checkpoints")
TENSORS = ("arrays.safetensors", "weights.safetensors")
KEYS = {"study": str, "scale": str, "fields": dict, "precision": str, "device": str, "stack": int, "members": str}
KEYS |= {"total": int, "shape": dict, "task": dict}
"""What a config holds besides its format. The shape, the task's description and the total follow from the fields."""


class Run:
    """A finished run, read back. Tables are read when first asked for."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not (self.path / "config.json").is_file():
            raise BadInput(f"{self.path} must be a run folder, one with a config.json; there is none.")
        self.config: dict[str, Any] = self._json("config.json")
        found = self.config.get("format") if isinstance(self.config, dict) else None
        if found not in READABLE:
            formats = " or ".join(map(str, READABLE))
            raise BadInput(
                f"{self.path} must be a run folder of format {formats}; its config.json has the format {found!r}."
            )
        for name, kind in KEYS.items():
            if not isinstance(self.config.get(name), kind):
                raise BadInput(f"{self.path / 'config.json'} is damaged: it has no {name}.")

    @property
    def finished(self) -> bool:
        return (self.path / "summary.json").is_file()

    @property
    def study(self) -> str:
        return str(self.config["study"])

    @cached_property
    def environment(self) -> dict[str, Any]:
        return dict(self._json("environment.json"))

    @cached_property
    def members(self) -> pd.DataFrame:
        """One row per member: its number in the study, its spec, its state."""
        return self._table("members.parquet")

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """member, step, split, condition, metric, value."""
        return self._table("metrics.parquet")

    @cached_property
    def analysis(self) -> pd.DataFrame:
        """member, step (0 = before training), block (-1 = all), analysis, target, value."""
        return self._table("analysis.parquet")

    @cached_property
    def baselines(self) -> pd.DataFrame:
        """data, world, baseline, split, condition, metric, value; empty where the study has none."""
        if self.finished and not (self.path / "baselines.parquet").is_file():
            return no_baselines()
        return self._table("baselines.parquet")

    @cached_property
    def summary(self) -> list[dict[str, Any]]:
        return list(self._json("summary.json")["rows"])

    def array(self, name: str) -> np.ndarray:
        """One array by name: pe_start/3, pe_end/3, attention_end/3 for member 3."""
        with self._tensors("arrays.safetensors") as file:
            return np.asarray(file.get_tensor(name))

    def has_array(self, name: str) -> bool:
        """Whether there is such an array; none is where a finished run was kept without them."""
        if self.finished and not (self.path / "arrays.safetensors").is_file():
            return False
        with self._tensors("arrays.safetensors") as file:
            return name in file.keys()  # noqa: SIM118

    def arrays(self, prefix: str) -> dict[int, np.ndarray]:
        """All arrays of a kind, by member: arrays("pe_end")[3]; none where a finished run was kept without them."""
        if (self.path / "summary.json").is_file() and not (self.path / "arrays.safetensors").is_file():
            return {}
        with self._tensors("arrays.safetensors") as file:
            names = [name for name in file.keys() if name.startswith(prefix + "/")]  # noqa: SIM118
            return {int(name.split("/")[1]): np.asarray(file.get_tensor(name)) for name in sorted(names)}

    def tensors(self, name: str) -> dict[str, Tensor]:
        """All of a file of arrays; nothing where the file was not kept."""
        if not (self.path / name).is_file():
            return {}
        with self._tensors(name) as file:
            return {key: torch.from_numpy(np.asarray(file.get_tensor(key))) for key in file.keys()}  # noqa: SIM118

    def member(self, number: int) -> Member:
        """The spec of a member."""
        rows = self.members[self.members["member"] == number]
        if rows.empty:
            known = f"{self.members['member'].min()} to {self.members['member'].max()}"
            raise BadInput(f"member must be a member of {self.path}, {known}; got {number}.")
        return _spec(rows.iloc[0])

    def load(self, number: int, device: torch.device | str = "cpu") -> Stack:
        """A trained member as a model of its own: `model(x)` with x (b, n, f)."""
        member = self.member(number)
        shape = shape_of(self.config, member.data)
        shape.pop("worlds", None)  # older runs have none
        positions = shape.pop("positions")
        stack = Stack(
            [member.alone()], **shape, positions=None if positions is None else np.array(positions), device=device
        )
        if not (self.path / "weights.safetensors").is_file():
            raise BadInput(
                f"{self.path} has no weights.safetensors: its weights were not kept, so no member can be loaded."
            )
        with self._tensors("weights.safetensors") as file:
            stack.flat.copy_(torch.from_numpy(np.asarray(file.get_tensor(str(number)))))
        return stack

    def _json(self, name: str) -> Any:
        try:
            return json.loads((self.path / name).read_text())
        except FileNotFoundError as error:
            raise BadInput(unfinished(self.path, name)) from error
        except ValueError as error:
            raise BadInput(f"{self.path / name} is damaged: it is not JSON.") from error
        except OSError as error:
            raise BadInput(f"{self.path / name} cannot be read: {error.strerror}.") from error

    def _table(self, name: str) -> pd.DataFrame:
        try:
            return pd.read_parquet(self.path / name)
        except FileNotFoundError as error:
            raise BadInput(unfinished(self.path, name)) from error
        except (ValueError, OSError) as error:
            raise BadInput(f"{self.path / name} is damaged: it is not a Parquet table.") from error

    @contextlib.contextmanager
    def _tensors(self, name: str) -> Iterator[Any]:
        try:
            with safe_open(self.path / name, framework="numpy") as file:
                yield file
        except FileNotFoundError as error:
            raise BadInput(unfinished(self.path, name)) from error
        except (SafetensorError, OSError) as error:
            raise BadInput(f"{self.path / name} cannot be read: {str(error).rstrip('.')}.") from error


def shape_of(config: Mapping[str, Any], data: str) -> dict[str, Any]:
    """What a model on this data set must fit: tokens, features, outputs, readout; its worlds and positions."""
    return dict(config.get("shapes", {}).get(data, config["shape"]))


def shapes_of(config: Mapping[str, Any], members: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """The shapes of all data sets of a run, by name; the members of a run with a single one share its name."""
    single = members["data"].unique() if "data" in members else [""]  # older runs have none
    return {data: shape_of(config, data) for data in config.get("shapes", single)}


def unfinished(path: Path, name: str) -> str:
    return f"{path} has no {name}: the run is not finished; go on with 'placecode run ... --out {path} --resume'."


def _spec(row: pd.Series) -> Member:
    """The member behind a row of the table of members."""
    return Member.from_record({str(name): None if pd.isna(value) else value for name, value in row.items()})


@dataclass(frozen=True)
class End:
    """How the training of a member ended. Numbers of -1 mean that it never did.

    Attributes
    ----------
    diverged_at : int
        The step at which it diverged.
    diverged_by : str
        Which check found that: loss, gradient, parameters, float16 (its numbers are finite in TF32), evaluation (its
        parameters are finite and its outputs are not) or origin (the member whose PE it starts from diverged).
    settled_epoch : int
        The epoch at whose end its parameters were, bit for bit, those of the end of the epoch before.
    rested_epoch : int
        The epoch after which it was stopped, since its training loss had been exactly 0 for long enough.
    """

    diverged_at: int = -1
    diverged_by: str = ""
    settled_epoch: int = -1
    rested_epoch: int = -1

    @property
    def diverged(self) -> bool:
        return self.diverged_at >= 0


def member_table(numbers: Sequence[int], members: Sequence[Member], ends: Sequence[End] | None = None) -> pd.DataFrame:
    """One row per member: number, spec, state ("done" or "diverged"), and how its training ended; at full length unless
    given."""
    ends = [End()] * len(members) if ends is None else ends
    rows = [
        {"member": number, **member.record(), "state": "diverged" if end.diverged else "done", **asdict(end)}
        for number, member, end in zip(numbers, members, ends, strict=True)
    ]
    table = pd.DataFrame(rows)
    for name in ("sigma", "pe_learning_rate", "pe_weight_decay", "clip"):
        table[name] = table[name].astype("float64")
    return table.astype(dict.fromkeys(("origin", "last_epoch"), "Int64"))


def with_later_columns(members: pd.DataFrame) -> pd.DataFrame:
    """A table of members with what members have come to have since it was written, at its default."""
    default = {**Member().record(), **asdict(End())}
    missing = {name: value for name, value in default.items() if name not in members}
    table = members.assign(**{name: math.nan if value is None else value for name, value in missing.items()})
    return table.astype(dict.fromkeys(("origin", "last_epoch"), "Int64"))


def no_baselines() -> pd.DataFrame:
    names = ("data", "world", "baseline", "split", "condition", "metric", "value")
    return pd.DataFrame({name: pd.Series(dtype=object) for name in names})


def add_names(table: pd.DataFrame, members: Sequence[Member]) -> None:
    """Add the columns role and label to a table of members of format 1.

    Parameters
    ----------
    table : DataFrame
        Members of a run; changed in place.
    members : sequence of Member
        All members of the run's study, by number.
    """
    for name in ("role", "label"):
        table[name] = [getattr(members[number], name) for number in table["member"]]


def summarize(
    study: str,
    members: pd.DataFrame,
    metrics: pd.DataFrame,
    analysis: pd.DataFrame,
    baselines: pd.DataFrame | None = None,
) -> dict[str, Any]:
    """Mean, standard deviation (ddof 1) and number of seeds of every metric at the final step, for each kind of member.

    Members that diverged are counted and left out of the means. A baseline stands where an encoding does, as
    "baseline:NAME"; its mean is over worlds.
    """
    specs = [_spec(row) for _, row in members.iterrows()]
    names = ["encoding", "sigma", *(name for name in varied(specs) if name not in ("encoding", "sigma"))]
    own = dict(zip(members["member"], specs, strict=True))
    donors = [own[spec.origin].sigma if spec.origin in own else None for spec in specs]
    if any(spec.origin in own and sigma != spec.sigma for spec, sigma in zip(specs, donors, strict=True)):
        names.append("origin_sigma")  # else it says nothing more than sigma does
    kinds = []
    for spec, sigma in zip(specs, donors, strict=True):
        values = {**spec.record(), **spec.options, "origin_sigma": sigma}
        values["sigma"] = spec.sigma if lookup(spec.encoding).uses_sigma else None
        kinds.append({name: values.get(name) for name in names})
    kind_of = {number: json.dumps(kind) for number, kind in zip(members["member"], kinds, strict=True)}
    diverged = members.loc[members["state"] == "diverged", "member"]
    lost = pd.Series([kind_of[number] for number in diverged], dtype=object).value_counts()

    measured = metrics[metrics["step"] == metrics["step"].max()]
    analysed = analysis[(analysis["step"] == analysis["step"].max()) & (analysis["block"] == -1)]
    analysed = analysed.assign(split="analysis", condition=analysed["target"].replace("", "all"))
    analysed = analysed.rename(columns={"analysis": "metric"})
    values = pd.concat([measured, analysed[list(measured.columns)]], ignore_index=True)
    values = values.assign(kind=values["member"].map(kind_of))
    alive = ~values["member"].isin(set(diverged))
    rows = []
    for (kind, split, condition, metric), group in values.groupby(["kind", "split", "condition", "metric"], sort=False):
        kept = group.loc[alive[group.index], "value"].dropna()
        spread = float(kept.std(ddof=1)) if len(kept) > 1 else None
        rows.append(
            {
                **json.loads(kind),
                **{"split": split, "condition": condition, "metric": metric},
                "mean": float(kept.mean()) if len(kept) else None,
                "std": spread,
                "n": len(kept),
                "diverged": int(lost.get(kind, 0)),
            }
        )
    if baselines is not None:
        rows += _baseline_rows(baselines, names)
    return {"study": study, "step": int(metrics["step"].max()), "rows": rows}


def _baseline_rows(baselines: pd.DataFrame, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    keys = ["data", "baseline", "split", "condition", "metric"]
    for (data, name, split, condition, metric), group in baselines.groupby(keys, sort=False):
        values = group["value"].dropna()
        told = {"encoding": f"baseline:{name}", "data": data}
        yield {
            **{each: told.get(each) for each in names},
            **{"split": split, "condition": condition, "metric": metric},
            "mean": float(values.mean()) if len(values) else None,
            "std": float(values.std(ddof=1)) if len(values) > 1 else None,
            **{"n": len(values), "diverged": 0},
        }


def ranges(numbers: Sequence[int]) -> str:
    """Member numbers in short: [0, 1, 2, 5] is "0:3,5:6"."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number:
            parts[-1][1] = number + 1
        else:
            parts.append([number, number + 1])
    return ",".join(f"{start}:{stop}" for start, stop in parts)


def numbers_in(cut: str, total: int) -> list[int]:
    """The members that a cut names, the inverse of `ranges`: "0:3,5:6" is [0, 1, 2, 5]; ":" is all of them."""
    numbers: set[int] = set()
    for part in cut.split(","):
        ends = re.fullmatch(r"\s*(\d*):(\d*)\s*", part)
        start, stop = (int(ends[1] or 0), int(ends[2] or total)) if ends else (0, 0)
        if not start < stop <= total:
            raise must_be("members", f"a cut I:J within 0:{total}, or several with commas", cut)
        numbers.update(range(start, stop))
    return sorted(numbers)


def find(root: Path) -> list[Run]:
    """The runs in a folder and below, newest first."""
    paths = [Path(folder) for folder, _, files in os.walk(root) if "config.json" in files]
    runs = []
    for path in paths:
        with contextlib.suppress(BadInput):  # some other program's config.json
            runs.append(Run(path))
    return sorted(runs, key=lambda run: (run.path / "config.json").stat().st_mtime, reverse=True)
