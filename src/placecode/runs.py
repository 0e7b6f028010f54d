"""The run folder: what executing a study leaves behind. Made here, read back here, and merged here.

>>> run = Run("runs/demo")
>>> model = run.load(0)                     # a trained member, called on (b, n, f)
>>> run.metrics.query("split == 'validation'")
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from placecode.encoder import Stack
from placecode.encodings import lookup
from placecode.errors import BadInput
from placecode.files import write_json, write_table, write_tensors
from placecode.members import Member, varied

FORMAT = 1
"""Of the folder. Raised when an older placecode could not read what a newer one writes."""
FILES = (
    *("config.json", "environment.json", "members.parquet", "metrics.parquet", "analysis.parquet", "summary.json"),
    *("arrays.safetensors", "weights.safetensors", "report.html", "log.txt"),
)
FOLDERS = ("figures", "checkpoints")


class Run:
    """A finished run, read back. Tables are read when first asked for."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not (self.path / "config.json").is_file():
            raise BadInput(f"{self.path} must be a run folder, one with a config.json; there is none.")
        self.config: dict[str, Any] = self._json("config.json")
        if self.config.get("format") != FORMAT:
            raise BadInput(f"{self.path} must be of format {FORMAT}; got {self.config.get('format')!r}.")

    @property
    def finished(self) -> bool:
        return (self.path / "summary.json").is_file()

    @property
    def study(self) -> str:
        return str(self.config["study"])

    @cached_property
    def environment(self) -> dict[str, Any]:
        return self._json("environment.json")

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
    def summary(self) -> list[dict[str, Any]]:
        return list(self._json("summary.json")["rows"])

    def array(self, name: str) -> np.ndarray:
        """One array by name: pe_start/3, pe_end/3, attention/3 for member 3."""
        with self._tensors("arrays.safetensors") as file:
            return np.asarray(file.get_tensor(name))

    def arrays(self, prefix: str) -> dict[int, np.ndarray]:
        """All arrays of a kind, by member: arrays("pe_end")[3]."""
        with self._tensors("arrays.safetensors") as file:
            names = [name for name in file.keys() if name.startswith(prefix + "/")]  # noqa: SIM118
            return {int(name.split("/")[1]): np.asarray(file.get_tensor(name)) for name in sorted(names)}

    def member(self, number: int) -> Member:
        """The spec of a member."""
        rows = self.members[self.members["member"] == number]
        if rows.empty:
            known = f"{self.members['member'].min()} to {self.members['member'].max()}"
            raise BadInput(f"member must be a member of {self.path}, {known}; got {number}.")
        record = {name: None if pd.isna(value) else value for name, value in rows.iloc[0].items()}
        return Member.from_record({name: _plain(value) for name, value in record.items()})

    def load(self, number: int, device: torch.device | str = "cpu") -> Stack:
        """A trained member as a model of its own: `model(x)` with x (b, n, f)."""
        member = self.member(number)
        shape = dict(self.config["shape"])
        positions = shape.pop("positions")
        stack = Stack([member], **shape, positions=None if positions is None else np.array(positions), device=device)
        if not (self.path / "weights.safetensors").is_file():
            raise BadInput(f"{self.path} has no weights.safetensors: its weights were not kept, so no member can be loaded.")
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
        except SafetensorError as error:
            raise BadInput(f"{self.path / name} cannot be read: {error}.") from error


def unfinished(path: Path, name: str) -> str:
    return f"{path} has no {name}: the run is not finished; go on with 'placecode run ... --out {path} --resume'."


def _plain(value: Any) -> Any:
    """A value of a table as the plain Python number, text or None behind it."""
    return value.item() if isinstance(value, np.generic) else value


# ------------------------------------------------------------------------------------------------ making a folder


class Folder:
    """A run folder being filled. Held by one process at a time."""

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        self.path = path
        self.config = dict(config)
        self.checkpoints = path / "checkpoints"

    @classmethod
    def open(cls, path: Path, config: Mapping[str, Any], *, resume: bool = False, force: bool = False) -> Folder:
        """Make the folder, or go on with the one that is there; refuses whatever would lose or mix results."""
        folder = cls(path, config)
        try:
            if path.exists() and not path.is_dir():
                raise BadInput(f"the output {path} must be a folder; it is a file.")
            if (path / "config.json").is_file():
                folder._meet_earlier_run(resume, force)
            elif path.exists() and any(path.iterdir()):
                raise BadInput(f"the output folder {path} must be new, empty or a run folder; it holds other files.")
            folder.checkpoints.mkdir(parents=True, exist_ok=True)
            write_json(path / "config.json", folder.config)
        except PermissionError as error:
            raise BadInput(f"the output folder {path} must be writable; it is not ({error.strerror}).") from error
        except OSError as error:
            if error.errno in (errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG):
                raise BadInput(f"the output folder {path} must be writable; it is not ({error.strerror}).") from error
            raise
        return folder

    def _meet_earlier_run(self, resume: bool, force: bool) -> None:
        earlier = Run(self.path)
        if force:
            self._clear()
        elif earlier.study != self.config["study"]:
            raise BadInput(
                f"the output folder {self.path} must hold no other study; it holds {earlier.study}, "
                f"and this is {self.config['study']}."
            )
        elif not resume:
            state, remedy = "a finished", "--force overwrites it"
            if not earlier.finished:
                state, remedy = "an unfinished", "--resume goes on with it, --force starts anew"
            raise BadInput(f"the output folder {self.path} must be new; it holds {state} run of {earlier.study} ({remedy}).")
        elif changed := list(_differences(earlier.config, self.config)):
            raise BadInput(f"--resume must use the settings of the run; changed: {'; '.join(changed)}.")

    def _clear(self) -> None:
        """Remove what a run leaves behind, and nothing else."""
        for name in FILES:
            (self.path / name).unlink(missing_ok=True)
        for name in FOLDERS:
            folder = self.path / name
            for file in folder.iterdir() if folder.is_dir() else ():
                file.unlink()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Refuse a second process on the same folder; the lock ends with the process, however it ends."""
        try:
            import fcntl
        except ImportError:  # not on Windows
            yield
            return
        with open(self.checkpoints / "lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise BadInput(f"the run folder {self.path} must not be in use; another process is filling it.") from error
            yield

    def finish(
        self,
        members: pd.DataFrame,
        metrics: pd.DataFrame,
        analysis: pd.DataFrame,
        arrays: Mapping[str, Tensor],
        weights: Mapping[str, Tensor],
    ) -> Run:
        """Write the results; the summary last, since it marks the run as finished. Checkpoints are then in the way."""
        write_tensors(self.path / "arrays.safetensors", arrays)
        write_tensors(self.path / "weights.safetensors", weights)
        write_table(self.path / "members.parquet", members)
        write_table(self.path / "metrics.parquet", metrics)
        write_table(self.path / "analysis.parquet", analysis)
        write_json(self.path / "summary.json", summarize(self.config["study"], members, metrics, analysis))
        for file in self.checkpoints.iterdir():
            file.unlink()
        with contextlib.suppress(OSError):
            self.checkpoints.rmdir()
        return Run(self.path)


def _differences(old: Any, new: Any, name: str = "") -> Iterator[str]:
    """Sentences for what differs between two configs, leaf by leaf."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from _differences(old.get(key), new.get(key), key if name in ("", "fields") else f"{name}.{key}")
    elif json.dumps(old) != json.dumps(new):
        yield f"{name} was {old!r}, now {new!r}"


# ---------------------------------------------------------------------------------------------------- summarizing


def member_table(numbers: Sequence[int], members: Sequence[Member], diverged_at: Sequence[int]) -> pd.DataFrame:
    """One row per member: number, spec, state, and the step at which it diverged (-1 = never)."""
    rows = [
        {"member": number, **member.record(), "state": "done" if at < 0 else "diverged", "diverged_at": at}
        for number, member, at in zip(numbers, members, diverged_at, strict=True)
    ]
    table = pd.DataFrame(rows)
    for name in ("sigma", "pe_learning_rate", "clip"):
        table[name] = table[name].astype("float64")
    return table


def summarize(study: str, members: pd.DataFrame, metrics: pd.DataFrame, analysis: pd.DataFrame) -> dict[str, Any]:
    """Mean, standard deviation (ddof 1) and number of seeds of every metric at the final step, for each kind of member.

    Members that diverged are counted and left out of the means.
    """
    specs = [Member.from_record({k: _plain(v) for k, v in _without_nan(row).items()}) for _, row in members.iterrows()]
    names = ["encoding", "sigma", *(name for name in varied(specs) if name not in ("encoding", "sigma"))]
    kinds = []
    for spec in specs:
        values = {**spec.record(), **spec.options}
        values["sigma"] = spec.sigma if lookup(spec.encoding).uses_sigma else None
        kinds.append({name: values.get(name) for name in names})
    kind_of = {number: json.dumps(kind) for number, kind in zip(members["member"], kinds, strict=True)}
    diverged = members.loc[members["state"] == "diverged", "member"]
    lost = pd.Series([kind_of[number] for number in diverged], dtype=object).value_counts()

    measured = metrics[metrics["step"] == metrics["step"].max()]
    analysed = analysis[analysis["step"] == analysis["step"].max()].assign(split="analysis", condition="all")
    analysed = analysed[analysed["block"] == -1].rename(columns={"analysis": "metric"})
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
    return {"study": study, "step": int(metrics["step"].max()), "rows": rows}


def _without_nan(row: pd.Series) -> dict[str, Any]:
    return {str(name): None if isinstance(value, float) and np.isnan(value) else value for name, value in row.items()}


# -------------------------------------------------------------------------------------------------------- merging


def merge(paths: Sequence[Path], out: Path, force: bool = False) -> Run:
    """One run from pieces of the same study, each made with other members."""
    pieces = [Run(path) for path in paths]
    if len(pieces) < 2:
        raise BadInput(f"merge must be given at least 2 runs; got {len(pieces)}.")
    first = pieces[0]
    for piece in pieces:
        if not piece.finished:
            raise BadInput(unfinished(piece.path, "summary.json"))
        shared = [{name: value for name, value in run.config.items() if name != "members"} for run in (first, piece)]
        if changed := list(_differences(*shared)):
            raise BadInput(f"merged runs must be pieces of one study; {first.path} and {piece.path}: {'; '.join(changed)}.")
    pieces.sort(key=lambda piece: int(piece.members["member"].min()))
    members = pd.concat([piece.members for piece in pieces], ignore_index=True).sort_values("member")
    if members["member"].duplicated().any():
        twice = members.loc[members["member"].duplicated(), "member"].tolist()
        raise BadInput(f"merged runs must hold different members; more than one holds member {twice[0]}.")
    numbers = members["member"].tolist()
    folder = Folder.open(out, {**first.config, "members": ranges(numbers)}, force=force)
    write_json(out / "environment.json", {"pieces": {str(p.path): p.environment for p in pieces}, **first.environment})
    tensors: dict[str, dict[str, Tensor]] = {}
    for name in ("arrays.safetensors", "weights.safetensors"):
        parts = [load_file(piece.path / name) for piece in pieces if (piece.path / name).is_file()]
        tensors[name] = {key: tensor for part in parts for key, tensor in part.items()}
    tables = [pd.concat([getattr(p, name) for p in pieces], ignore_index=True) for name in ("metrics", "analysis")]
    return folder.finish(members, *tables, tensors["arrays.safetensors"], tensors["weights.safetensors"])


def ranges(numbers: Sequence[int]) -> str:
    """Member numbers in short: [0, 1, 2, 5] is "0:3,5:6"."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number:
            parts[-1][1] = number + 1
        else:
            parts.append([number, number + 1])
    return ",".join(f"{start}:{stop}" for start, stop in parts)


def find(root: Path) -> list[Run]:
    """The runs in a folder and below, newest first."""
    paths = [Path(folder) for folder, _, files in os.walk(root) if "config.json" in files]
    runs = []
    for path in paths:
        with contextlib.suppress(BadInput):  # some other program's config.json
            runs.append(Run(path))
    return sorted(runs, key=lambda run: (run.path / "config.json").stat().st_mtime, reverse=True)
