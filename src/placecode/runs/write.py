"""Making run folders: by filling one, or by merging the pieces of a study.

A folder is held by one process at a time; whatever would lose or mix results is refused before anything is written.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor

from placecode.errors import BadInput, must_be
from placecode.files import is_full_disk, is_temporary, sweep, write_json, write_table, write_tensors
from placecode.models.member import Member
from placecode.runs.read import (
    FILES,
    FOLDERS,
    FORMAT,
    TENSORS,
    Run,
    add_names,
    ranges,
    shapes_of,
    summarize,
    unfinished,
    with_later_columns,
)

LOCK = "lock"
"""In the folder of the checkpoints, for as long as the run is not finished."""
MOVEMENT = ("moved", "moved_relative")
"""Measures of how far a member's PE moved, which half precision would spoil."""
SLIMMED = "slimmed"
"""In the record of a run that is a small copy of another."""
LONGEST = 60
"""Letters of a list in a sentence."""


class Folder:
    """A run folder being filled. Held by one process at a time."""

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        self.path = path
        self.config = dict(config)
        self.checkpoints = path / "checkpoints"
        self.lock: int | None = None
        """File descriptor of what holds the folder. It stays held while any process has it open."""

    @property
    def finished(self) -> bool:
        return (self.path / "summary.json").is_file()

    @classmethod
    @contextlib.contextmanager
    def open(
        cls, path: Path, config: Mapping[str, Any], *, resume: bool = False, force: bool = False
    ) -> Iterator[Folder]:
        """Make the folder, or go on with the one that is there, and hold it against other processes.

        Refuses, before anything is written, whatever would lose or mix results. A finished run is left as it is.
        """
        folder = cls(path, config)
        with _writing(path):
            folder._meet_earlier_run(resume, force)
            finished = resume and folder.finished
            if finished:
                folder._drop_checkpoints()  # a process may have been killed just before it did
            else:
                folder.checkpoints.mkdir(parents=True, exist_ok=True)
        if finished:
            yield folder
            return
        with folder._held():
            with _writing(path):
                folder._meet_earlier_run(resume, force)  # it may have changed until it was held
                if force:
                    folder._clear()
                for each in (path, *(path / name for name in FOLDERS)):
                    sweep(each)
                if not (path / "config.json").is_file():
                    try:
                        write_json(path / "config.json", folder.config)
                    except OSError:
                        folder.abandon()
                        raise
            yield folder

    def _meet_earlier_run(self, resume: bool, force: bool) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise BadInput(f"the output {self.path} must be a folder; it is a file.")
        if not (self.path / "config.json").exists():
            if not self._is_blank():
                raise BadInput(
                    f"the output folder {self.path} must be new, empty or a run folder; it holds other files."
                )
            return
        earlier = Run(self.path)
        if force:
            return
        if earlier.study != self.config["study"]:
            raise BadInput(
                f"the output folder {self.path} must hold no other study; it holds {earlier.study}, "
                f"and this is {self.config['study']}."
            )
        if not resume:
            state, remedy = "a finished", "--force overwrites it"
            if not earlier.finished:
                state, remedy = "an unfinished", "--resume goes on with it, --force starts anew"
            raise BadInput(
                f"the output folder {self.path} must be new; it holds {state} run of {earlier.study} ({remedy})."
            )
        if changed := _differences(earlier.config, self.config):
            raise BadInput(f"--resume must use the settings of the run; changed: {changed} (--force starts anew).")

    def _is_blank(self) -> bool:
        """Whether the folder is empty, apart from files of a run that was killed while it started."""
        for path in self.path.iterdir() if self.path.is_dir() else ():
            begun = path.iterdir() if path.name in FOLDERS and path.is_dir() else (path,)
            if not all(is_temporary(file) or file == self.checkpoints / LOCK for file in begun):
                return False
        return True

    def _clear(self) -> None:
        """Remove what a run leaves behind, and nothing else. The config goes last: until then it is a run folder."""
        (self.path / "summary.json").unlink(missing_ok=True)
        for file in (file for name in FOLDERS for file in (self.path / name).glob("*")):
            if file.is_file() and file != self.checkpoints / LOCK:
                file.unlink()
        for name in (*FILES[1:], FILES[0]):
            (self.path / name).unlink(missing_ok=True)

    def abandon(self) -> None:
        """Delete what the run wrote, and the folder if it is then empty. For results that are quick to make again."""
        with contextlib.suppress(OSError):
            self._clear()
            self._drop_checkpoints()
            self.path.rmdir()

    def _drop_checkpoints(self) -> None:
        for file in self.checkpoints.glob("*"):
            file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.checkpoints.rmdir()

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Refuse a second process on the same folder; the lock ends with the process, however it ends."""
        try:
            import fcntl
        except ImportError:  # not on Windows
            yield
            return
        with contextlib.ExitStack() as stack:
            with _writing(self.path):
                lock = stack.enter_context(open(self.checkpoints / LOCK, "w"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                free = os.fstat(lock.fileno()).st_nlink > 0  # else another process has just finished with it
            except OSError as error:
                free = error.errno not in (errno.EWOULDBLOCK, errno.EACCES)  # else a file system that knows no locks
            if not free:
                raise BadInput(f"the run folder {self.path} must not be in use; another process is filling it.")
            self.lock = lock.fileno()
            yield

    def finish(
        self,
        members: pd.DataFrame,
        metrics: pd.DataFrame,
        analysis: pd.DataFrame,
        arrays: Mapping[str, Tensor],
        weights: Mapping[str, Tensor] | None,
        baselines: pd.DataFrame | None = None,
    ) -> Run:
        """Write the results; the summary last, since it marks the run as finished. Then checkpoints are of no use."""
        members = members.sort_values("member", ignore_index=True)
        metrics, analysis = _by_member(metrics), _by_member(analysis)
        write_tensors(self.path / "arrays.safetensors", arrays)
        if weights is not None:
            write_tensors(self.path / "weights.safetensors", weights)
        write_table(self.path / "members.parquet", members)
        write_table(self.path / "metrics.parquet", metrics)
        write_table(self.path / "analysis.parquet", analysis)
        if baselines is not None and len(baselines):
            write_table(self.path / "baselines.parquet", baselines)
        summary = summarize(self.config["study"], members, metrics, analysis, baselines)
        write_json(self.path / "summary.json", summary)
        self._drop_checkpoints()
        return Run(self.path)


def with_rows(analysis: pd.DataFrame, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Add rows to a table of analyses. A row replaces an earlier one of the same member, step, block, analysis and
    target. So measures that are computed again after a merge give the table of a run made in one piece."""
    if not rows:
        return analysis
    both = pd.concat([analysis, pd.DataFrame(rows, columns=list(analysis.columns))], ignore_index=True)
    keys = [name for name in both.columns if name != "value"]
    places, kept = both.drop_duplicates(keys), both.drop_duplicates(keys, keep="last")
    return places[keys].merge(kept, on=keys, how="left", validate="one_to_one")[list(analysis.columns)]


def _by_member(table: pd.DataFrame) -> pd.DataFrame:
    return table.sort_values(["member", "step"], kind="stable", ignore_index=True)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn an error of writing into a `BadInput` that names the folder, unless the disk is full."""
    try:
        yield
    except OSError as error:
        if is_full_disk(error):
            raise
        raise BadInput(f"the output folder {path} must be writable; it is not ({error.strerror}).") from error


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """What differs between two configs, in words: the settings, and only where those agree what follows from them."""
    follows = ("total", "shape", "shapes", "task")
    early, late = (
        [{k: v for k, v in each.items() if (k in follows) is end} for each in (old, new)] for end in (False, True)
    )
    return "; ".join(_leaves(early[0], early[1])) or "; ".join(_leaves(late[0], late[1]))


def _leaves(old: Any, new: Any, name: str = "") -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from _leaves(old.get(key), new.get(key), key if name in ("", "fields") else f"{name}.{key}")
    elif json.dumps(old) != json.dumps(new):
        yield f"{name} was {_short(old)}, now {_short(new)}"


def _short(value: Any) -> str:
    """A value for a sentence: of a long list, as the positions of all channels, its beginning; a text, as a path, is
    told whole."""
    told = repr(value)
    return told if isinstance(value, str) or len(told) <= LONGEST else f"{told[:LONGEST]} ..."


Shapes = Mapping[str, Mapping[str, Any]]
Compare = Callable[[pd.DataFrame, Mapping[str, Tensor], Shapes, int], Sequence[Mapping[str, Any]]]


def merge(
    paths: Sequence[Path],
    out: Path,
    force: bool = False,
    compare: Compare | None = None,
    specs: Sequence[Member] | None = None,
) -> Run:
    """One run from pieces of the same study, each made with other members.

    `compare` is the study's: measures that take several members are computed again, now that more of them are here.
    Where a piece has arrays in half precision, measures of a single member's movement are kept as the pieces have them:
    they were computed from the full arrays. `specs` are all members of the study; pieces of format 1 get their roles
    and labels from them.
    """
    pieces = [Run(path) for path in paths]
    if len(pieces) < 2:
        raise BadInput(f"merge must be given at least 2 runs; got {len(pieces)}.")
    first = pieces[0]
    for piece in pieces:
        if not piece.finished:
            raise BadInput(unfinished(piece.path, "summary.json"))
        if piece.path.resolve() == out.resolve():
            raise BadInput(f"the output folder {out} must be none of the merged runs; it is one of them.")
        shared = [{name: value for name, value in run.config.items() if name != "members"} for run in (first, piece)]
        if changed := _differences(*shared):
            raise BadInput(f"merged runs must be pieces of one study; {first.path} and {piece.path} differ: {changed}.")
    numbers = [int(number) for piece in pieces for number in piece.members["member"]]
    if twice := [number for number in numbers if numbers.count(number) > 1]:
        raise BadInput(f"merged runs must hold different members; more than one holds member {twice[0]}.")
    # All is read before anything is written, so that a damaged piece leaves nothing behind.
    members = pd.concat([with_later_columns(piece.members) for piece in pieces], ignore_index=True)
    if specs is not None and (members["label"] == "").any():
        add_names(members, specs)
    metrics, analysis = (
        pd.concat([getattr(piece, name) for piece in pieces], ignore_index=True) for name in ("metrics", "analysis")
    )
    baselines = pd.concat([piece.baselines for piece in pieces], ignore_index=True)
    baselines = baselines.drop_duplicates([name for name in baselines.columns if name != "value"], ignore_index=True)
    arrays, weights = ({k: v for piece in pieces for k, v in piece.tensors(name).items()} for name in TENSORS)
    slimmed = [piece.environment[SLIMMED] for piece in pieces if SLIMMED in piece.environment]
    if compare is not None:
        rows = compare(members, arrays, shapes_of(first.config, members), int(metrics["step"].max()))
        if slimmed:
            rows = [row for row in rows if row["analysis"] not in MOVEMENT]
        analysis = with_rows(analysis, rows)
    environment = {
        **{name: value for name, value in first.environment.items() if name != SLIMMED},
        **({SLIMMED: slimmed[0]} if slimmed else {}),
        "pieces": {f"{i}, {piece.path.name}": piece.environment for i, piece in enumerate(pieces)},
    }
    config = {**first.config, "format": FORMAT if specs else first.config["format"], "members": ranges(numbers)}
    whole = weights if len(weights) == len(members) else None  # of all members or of none
    return _made(out, config, environment, force, members, metrics, analysis, arrays, whole, baselines)


def slim(path: Path, out: Path, force: bool = False, seeds: Sequence[int] | None = None) -> Run:
    """Copy a finished run without its weights and with arrays in half precision. The copy's record says so.

    Parameters
    ----------
    path, out : Path
        Folder of the run, and of the copy.
    force : bool
        Overwrite a run in `out`.
    seeds : sequence of int, optional
        Keep arrays of members with these seeds only. Tables are always whole.
    """
    run = Run(path)
    if not run.finished:
        raise BadInput(unfinished(run.path, "summary.json"))
    if run.path.resolve() == out.resolve():
        raise BadInput(f"the output folder {out} must be another than that of the run; it is the same.")
    if (run.path / "fit.json").is_file():
        raise BadInput(f"{run.path} must be a run of a study; it is a fit, whose map needs its full arrays.")
    kept, which = set(run.members["member"]), ""
    if seeds is not None:
        if missing := sorted(set(seeds) - set(run.members["seed"])):
            raise must_be("seeds", "seeds of the run's members", missing)
        kept = set(run.members.loc[run.members["seed"].isin(seeds), "member"])
        which = f", of {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))} alone"
    environment = {**run.environment, SLIMMED: f"no weights; arrays in float16{which}"}
    arrays = {
        name: _halved(value)
        for name, value in run.tensors("arrays.safetensors").items()
        if (member := _member_of(name)) is None or member in kept
    }
    tables = (run.members, run.metrics, run.analysis, arrays, None, run.baselines)
    return _made(out, run.config, environment, force, *tables)


def _member_of(name: str) -> int | None:
    """The member that an array NAME_start/i or NAME_end/i belongs to; None for arrays about the data."""
    kind, _, number = name.rpartition("/")
    return int(number) if kind.endswith(("_start", "_end")) else None


def _halved(array: Tensor) -> Tensor:
    """In half precision, where that can hold it."""
    half = array.half()
    fits = array.is_floating_point() and bool((half.isfinite() == array.isfinite()).all())
    return half if fits else array


def _made(out: Path, config: Mapping[str, Any], environment: Mapping[str, Any], force: bool, *results: Any) -> Run:
    """Write a whole, finished run folder; write nothing if that fails."""
    with Folder.open(out, config, force=force) as folder:
        try:
            write_json(out / "environment.json", environment)
            return folder.finish(*results)
        except BaseException:
            folder.abandon()
            raise
