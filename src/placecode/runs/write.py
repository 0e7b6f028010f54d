"""Write run folders: from a running study, by merging parts of a study, or as a small copy.

A folder is locked by one process at a time. Anything that would lose or mix results raises an error before a file is
written.
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
"""Lock file in the folder of checkpoints, while the run is not finished."""
MOVEMENT = ("moved", "moved_relative")
"""Analyses of how far a member's PE moved. They are inaccurate when computed from half-precision arrays."""
SLIMMED = "slimmed"
"""Entry of environment.json that marks a small copy of another run."""
MAX_VALUE_CHARS = 60
"""Maximum number of characters of a value in an error message."""


class Folder:
    """A run folder that is being written, by one process at a time.

    Attributes
    ----------
    path, checkpoints : Path
        The folder, and its subfolder of checkpoints.
    config : dict
        Content of config.json.
    lock : int or None
        File descriptor of the lock. The folder stays locked while any process has it open.
    """

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        self.path = path
        self.config = dict(config)
        self.checkpoints = path / "checkpoints"
        self.lock: int | None = None

    @property
    def finished(self) -> bool:
        """Whether the run is finished."""
        return (self.path / "summary.json").is_file()

    @classmethod
    @contextlib.contextmanager
    def open(
        cls, path: Path, config: Mapping[str, Any], *, resume: bool = False, force: bool = False
    ) -> Iterator[Folder]:
        """Context manager that creates or resumes a run folder and locks it; BadInput if results would be lost.

        Parameters
        ----------
        path : Path
            The folder.
        config : mapping
            Content of config.json.
        resume : bool, default=False
            Continue an unfinished run with the same config. A finished run is not changed.
        force : bool, default=False
            Delete an existing run first.
        """
        folder = cls(path, config)
        with _explain_write_errors(path):
            folder._check_existing(resume, force)
            finished = resume and folder.finished
            if finished:
                folder._delete_checkpoints()  # a process may have been killed before it deleted them
            else:
                folder.checkpoints.mkdir(parents=True, exist_ok=True)
        if finished:
            yield folder
            return
        with folder._locked():
            with _explain_write_errors(path):
                folder._check_existing(resume, force)  # again, since it may have changed before it was locked
                if force:
                    folder._clear()
                for subfolder in (path, *(path / name for name in FOLDERS)):
                    sweep(subfolder)
                if not (path / "config.json").is_file():
                    try:
                        write_json(path / "config.json", folder.config)
                    except OSError:
                        folder.abandon()
                        raise
            yield folder

    def _check_existing(self, resume: bool, force: bool) -> None:
        """Raise BadInput if the folder has content that must not be overwritten."""
        if self.path.exists() and not self.path.is_dir():
            raise BadInput(f"the output {self.path} must be a folder; it is a file.")
        if not (self.path / "config.json").exists():
            if not self._is_empty():
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
                state, remedy = "an unfinished", "--resume continues it, --force starts again"
            raise BadInput(
                f"the output folder {self.path} must be new; it holds {state} run of {earlier.study} ({remedy})."
            )
        if changed := _differences(earlier.config, self.config):
            raise BadInput(f"--resume must use the settings of the run; changed: {changed} (--force starts again).")

    def _is_empty(self) -> bool:
        """Return whether the folder is empty, except for files of a run that was killed while it started."""
        for path in self.path.iterdir() if self.path.is_dir() else ():
            files = path.iterdir() if path.name in FOLDERS and path.is_dir() else (path,)
            if not all(is_temporary(file) or file == self.checkpoints / LOCK for file in files):
                return False
        return True

    def _clear(self) -> None:
        """Delete the files of a run and nothing else. The config is deleted last, since it marks a run folder."""
        (self.path / "summary.json").unlink(missing_ok=True)
        for file in (file for name in FOLDERS for file in (self.path / name).glob("*")):
            if file.is_file() and file != self.checkpoints / LOCK:
                file.unlink()
        for name in (*FILES[1:], FILES[0]):
            (self.path / name).unlink(missing_ok=True)

    def abandon(self) -> None:
        """Delete all files of the run, and the folder if it is then empty."""
        with contextlib.suppress(OSError):
            self._clear()
            self._delete_checkpoints()
            self.path.rmdir()

    def _delete_checkpoints(self) -> None:
        """Delete the folder of checkpoints."""
        for file in self.checkpoints.glob("*"):
            file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.checkpoints.rmdir()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Context manager that locks the folder. The lock is released when the process ends, even if it is killed."""
        try:
            import fcntl
        except ImportError:  # Windows has no fcntl
            yield
            return
        with contextlib.ExitStack() as stack:
            with _explain_write_errors(self.path):
                lock = stack.enter_context(open(self.checkpoints / LOCK, "w"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                free = os.fstat(lock.fileno()).st_nlink > 0  # 0 links: another process has just deleted the file
            except OSError as error:
                # other errors mean that the file system has no locks
                free = error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
            if not free:
                raise BadInput(f"the run folder {self.path} must not be in use; another process is writing to it.")
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
        """Write the results, and the summary last, since it marks the run as finished. Then delete the checkpoints.

        The arguments are the tables and tensors of a `Run`. Without `weights`, weights.safetensors is not written.
        """
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
        self._delete_checkpoints()
        return Run(self.path)


def with_rows(analysis: pd.DataFrame, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Add rows to a table of analyses. A row replaces an earlier one with the same values in all columns but `value`.

    So analyses that are computed again after a merge give the same table as a run that was not split.
    """
    if not rows:
        return analysis
    both = pd.concat([analysis, pd.DataFrame(rows, columns=list(analysis.columns))], ignore_index=True)
    keys = [name for name in both.columns if name != "value"]
    first, last = both.drop_duplicates(keys), both.drop_duplicates(keys, keep="last")
    return first[keys].merge(last, on=keys, how="left", validate="one_to_one")[list(analysis.columns)]


def _by_member(table: pd.DataFrame) -> pd.DataFrame:
    """Sort a table by member and step."""
    return table.sort_values(["member", "step"], kind="stable", ignore_index=True)


@contextlib.contextmanager
def _explain_write_errors(path: Path) -> Iterator[None]:
    """Context manager that turns an OSError into a BadInput that names the folder, unless the disk is full."""
    try:
        yield
    except OSError as error:
        if is_full_disk(error):
            raise
        raise BadInput(f"the output folder {path} must be writable; it is not ({error.strerror}).") from error


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Describe the differences between two configs: of the settings, or if these agree, of the derived entries."""
    derived = ("total", "shape", "shapes", "task")
    settings, rest = (
        [{k: v for k, v in config.items() if (k in derived) is is_derived} for config in (old, new)]
        for is_derived in (False, True)
    )
    return "; ".join(_leaves(settings[0], settings[1])) or "; ".join(_leaves(rest[0], rest[1]))


def _leaves(old: Any, new: Any, name: str = "") -> Iterator[str]:
    """Describe each value that differs between two nested dicts."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from _leaves(old.get(key), new.get(key), key if name in ("", "fields") else f"{name}.{key}")
    elif json.dumps(old) != json.dumps(new):
        yield f"{name} was {_short(old)}, now {_short(new)}"


def _short(value: Any) -> str:
    """Format a value for an error message. Long lists are truncated; strings, such as paths, are not."""
    text = repr(value)
    return text if isinstance(value, str) or len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]} ..."


Shapes = Mapping[str, Mapping[str, Any]]
Compare = Callable[[pd.DataFrame, Mapping[str, Tensor], Shapes, int], Sequence[Mapping[str, Any]]]


def merge(
    paths: Sequence[Path],
    out: Path,
    force: bool = False,
    compare: Compare | None = None,
    specs: Sequence[Member] | None = None,
) -> Run:
    """Merge runs of different members of the same study into one run.

    Parameters
    ----------
    paths : sequence of Path
        Folders of at least two finished runs.
    out : Path
        Folder of the merged run.
    force : bool, default=False
        Overwrite a run in `out`.
    compare : callable, optional
        `Study.compare`, which computes the analyses that need several members again. If a run has arrays in half
        precision, analyses of how far a PE moved are not replaced, since they were computed from the full arrays.
    specs : sequence of Member, optional
        All members of the study. Runs of format 1 get the roles and labels of their members from them.

    Returns
    -------
    Run
        The merged run.
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
    # read everything before anything is written, so that a damaged run leaves no files behind
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
    complete_weights = weights if len(weights) == len(members) else None  # write them for all members or for none
    tables = (members, metrics, analysis, arrays, complete_weights, baselines)
    return _write_run(out, config, environment, force, *tables)


def slim(path: Path, out: Path, force: bool = False, seeds: Sequence[int] | None = None) -> Run:
    """Copy a finished run without its weights and with arrays in half precision, and record this in the copy.

    Parameters
    ----------
    path, out : Path
        Folders of the run and of the copy.
    force : bool, default=False
        Overwrite a run in `out`.
    seeds : sequence of int, optional
        Copy the arrays of members with these seeds only. Tables are always copied in full.
    """
    run = Run(path)
    if not run.finished:
        raise BadInput(unfinished(run.path, "summary.json"))
    if run.path.resolve() == out.resolve():
        raise BadInput(f"the output folder {out} must be another than that of the run; it is the same.")
    if (run.path / "fit.json").is_file():
        raise BadInput(f"{run.path} must be a run of a study; it is a fit, whose map needs its full arrays.")
    copied, which = set(run.members["member"]), ""
    if seeds is not None:
        if missing := sorted(set(seeds) - set(run.members["seed"])):
            raise must_be("seeds", "seeds of the run's members", missing)
        copied = set(run.members.loc[run.members["seed"].isin(seeds), "member"])
        which = f", of {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))} alone"
    environment = {**run.environment, SLIMMED: f"no weights; arrays in float16{which}"}
    arrays = {
        name: _halved(value)
        for name, value in run.tensors("arrays.safetensors").items()
        if (member := _member_of(name)) is None or member in copied
    }
    tables = (run.members, run.metrics, run.analysis, arrays, None, run.baselines)
    return _write_run(out, run.config, environment, force, *tables)


def _member_of(name: str) -> int | None:
    """Return the member number of an array NAME_start/i or NAME_end/i; None for arrays that describe the data."""
    kind, _, number = name.rpartition("/")
    return int(number) if kind.endswith(("_start", "_end")) else None


def _halved(array: Tensor) -> Tensor:
    """Convert an array to half precision, unless it is not floating-point or would overflow."""
    half = array.half()
    fits = array.is_floating_point() and bool((half.isfinite() == array.isfinite()).all())
    return half if fits else array


def _write_run(out: Path, config: Mapping[str, Any], environment: Mapping[str, Any], force: bool, *results: Any) -> Run:
    """Write a finished run folder, or delete it again if that fails."""
    with Folder.open(out, config, force=force) as folder:
        try:
            write_json(out / "environment.json", environment)
            return folder.finish(*results)
        except BaseException:
            folder.abandon()
            raise
