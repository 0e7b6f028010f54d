"""Write run folders, the results of an experiment. Running, merging and copying experiments all write through `Folder`.

`Folder.open` creates the folder, writes config.json and locks the folder, so that only one process writes to it.
Anything that would lose or mix results raises an error before a file is written. `Folder.finish` writes the results:

- members.parquet has one row per member. The columns state, diverged_at and diverged_by say whether, at which step and
  by which check it diverged.
- metrics.parquet has the columns member, step, split, condition, metric, value.
- analysis.parquet has the columns member, step, block, analysis, target, value.
- baselines.parquet has metrics of other methods on the same data, in the columns data, world, baseline, split,
  condition, metric, value. A world is the data of one seed, such as one simulated data set.
- arrays.safetensors and weights.safetensors have PEs and other arrays, and the parameters of every member.
- summary.json has means over seeds. It is written last and marks the run as finished.

The page docs/run-folder.md describes all files.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor

from placecode.errors import BadInput
from placecode.files import is_full_disk, is_temporary, remove_temporary_files, write_json, write_table, write_tensors
from placecode.runs.read import FILES, FOLDERS, Run
from placecode.runs.summary import summarize

LOCK = "lock"
"""Name of the lock file in the folder of checkpoints. It exists while the run is not finished."""
MAX_VALUE_CHARS = 60
"""Maximum number of characters of a value in an error message."""


class Folder:
    """A run folder that this process writes to. Make it with `Folder.open`, which locks it."""

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        self.path = path
        self.config = dict(config)
        self.checkpoints = path / "checkpoints"
        self.lock: int | None = None
        """File descriptor of the lock file, or None without a lock. The folder stays locked while any process has the
        lock file open."""

    @property
    def finished(self) -> bool:
        """Whether the run is finished, which is when summary.json exists."""
        return (self.path / "summary.json").is_file()

    @classmethod
    @contextlib.contextmanager
    def open(
        cls, path: Path, config: Mapping[str, Any], *, resume: bool = False, force: bool = False
    ) -> Iterator[Folder]:
        """Return a context manager that creates or resumes a run folder, locks it and returns it.

        With `resume`, an unfinished run with the same config is continued, and a finished one is not changed. With
        `force`, an existing run is deleted first. Raise BadInput if results would be lost or another process is writing
        to the folder.
        """
        folder = cls(path, config)
        with explain_write_errors(path):
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
            with explain_write_errors(path):
                folder._check_existing(resume, force)  # again, since it may have changed before it was locked
                if force:
                    folder._clear()
                for subfolder in (path, *(path / name for name in FOLDERS)):
                    remove_temporary_files(subfolder)
                if not (path / "config.json").is_file():
                    try:
                        write_json(path / "config.json", folder.config)
                    except OSError:
                        folder.abandon()
                        raise
            yield folder

    def _check_existing(self, resume: bool, force: bool) -> None:
        """Raise BadInput if the folder has files that must not be overwritten, or a run that cannot be resumed."""
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
        if earlier.experiment != self.config["experiment"]:
            raise BadInput(
                f"the output folder {self.path} must hold no other experiment; it holds {earlier.experiment}, "
                f"and this is {self.config['experiment']}."
            )
        if not resume:
            state, remedy = "a finished", "--force overwrites it"
            if not earlier.finished:
                same_format = earlier.config["format"] == self.config["format"]
                state = "an unfinished"
                remedy = "--resume continues it, --force starts again" if same_format else "--force starts again"
            raise BadInput(
                f"the output folder {self.path} must be new; it holds {state} run of {earlier.experiment} ({remedy})."
            )
        if earlier.finished:
            earlier.config["format"] = self.config["format"]
        elif earlier.config["format"] != self.config["format"]:
            raise BadInput(
                f"--resume must continue a run of format {self.config['format']}; {self.path} is of format "
                f"{earlier.config['format']}, which the version of placecode that began it can continue "
                "(--force starts again)."
            )
        if changed := differences(earlier.config, self.config):
            raise BadInput(f"--resume must use the settings of the run; changed: {changed} (--force starts again).")

    def _is_empty(self) -> bool:
        """Return whether the folder has no files except temporary ones of a run that was killed while it started."""
        for path in self.path.iterdir() if self.path.is_dir() else ():
            files = path.iterdir() if path.name in FOLDERS and path.is_dir() else (path,)
            if not all(is_temporary(file) or file == self.checkpoints / LOCK for file in files):
                return False
        return True

    def _clear(self) -> None:
        """Delete the files of a run and nothing else. Delete config.json last, since it marks a folder as a run."""
        (self.path / "summary.json").unlink(missing_ok=True)
        for file in (file for name in FOLDERS for file in (self.path / name).glob("*")):
            if file.is_file() and file != self.checkpoints / LOCK:
                file.unlink()
        for name in (*FILES[1:], FILES[0]):
            (self.path / name).unlink(missing_ok=True)

    def abandon(self) -> None:
        """Delete all files of the run, and the folder if it is then empty. Errors are ignored."""
        with contextlib.suppress(OSError):
            self._clear()
            self._delete_checkpoints()
            self.path.rmdir()

    def _delete_checkpoints(self) -> None:
        """Delete the folder of checkpoints with all its files, including the lock file."""
        for file in self.checkpoints.glob("*"):
            file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.checkpoints.rmdir()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Return a context manager that locks the folder. Raise BadInput if another process has locked it.

        The lock is released when the process ends, even if it is killed.
        """
        try:
            import fcntl
        except ImportError:  # Windows has no fcntl
            yield
            return
        with contextlib.ExitStack() as stack:
            with explain_write_errors(self.path):
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
        arrays: Mapping[str, Tensor] | None,
        weights: Mapping[str, Tensor] | None,
        baselines: pd.DataFrame | None = None,
        summary: Mapping[str, Any] | None = None,
    ) -> Run:
        """Write the results to the files that the module's docstring lists, delete the checkpoints and return the run.

        Each argument goes to the file of its name. `arrays` and `weights` are tensors by name. No file is written for
        an argument that is None, or for `baselines` without rows. A `summary` of None is computed from the tables.
        The summary is written last, since it marks the run as finished.
        """
        members = members.sort_values("member", ignore_index=True)
        metrics, analysis = _by_member(metrics), _by_member(analysis)
        if arrays is not None:
            write_tensors(self.path / "arrays.safetensors", arrays)
        if weights is not None:
            write_tensors(self.path / "weights.safetensors", weights)
        write_table(self.path / "members.parquet", members)
        write_table(self.path / "metrics.parquet", metrics)
        write_table(self.path / "analysis.parquet", analysis)
        if baselines is not None and len(baselines):
            write_table(self.path / "baselines.parquet", baselines)
        if summary is None:
            summary = summarize(self.config["experiment"], members, metrics, analysis, baselines)
        write_json(self.path / "summary.json", summary)
        self._delete_checkpoints()
        return Run(self.path)


def with_rows(analysis: pd.DataFrame, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return a table of analyses with `rows` added.

    A row replaces an earlier one that has the same values in all columns but `value`. When analyses are repeated after
    a merge, the table is therefore the same as if all members had been trained in one run.
    """
    if not rows:
        return analysis
    both = pd.concat([analysis, pd.DataFrame(rows, columns=list(analysis.columns))], ignore_index=True)
    keys = [name for name in both.columns if name != "value"]
    first, last = both.drop_duplicates(keys), both.drop_duplicates(keys, keep="last")
    return first[keys].merge(last, on=keys, how="left", validate="one_to_one")[list(analysis.columns)]


def _by_member(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table sorted by member and step."""
    return table.sort_values(["member", "step"], kind="stable", ignore_index=True)


@contextlib.contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Return a context manager that turns an OSError into a BadInput that names the folder, unless the disk is full."""
    try:
        yield
    except OSError as error:
        if is_full_disk(error):
            raise
        raise BadInput(f"the output folder {path} must be writable; it is not ({error.strerror}).") from error


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return a text that lists the settings in which two configs differ, or an empty text if the configs are equal.

    Entries that follow from the settings, such as the shape of the data, are listed only if all settings agree.
    """
    derived = ("total", "shape", "shapes", "task")
    settings, rest = (
        [{k: v for k, v in config.items() if (k in derived) is is_derived} for config in (old, new)]
        for is_derived in (False, True)
    )
    return "; ".join(_leaves(settings[0], settings[1])) or "; ".join(_leaves(rest[0], rest[1]))


def _leaves(old: Any, new: Any, name: str = "") -> Iterator[str]:
    """Yield a text for each value that differs between two nested dicts. `name` is the path of keys to the dicts."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from _leaves(old.get(key), new.get(key), key if name in ("", "fields") else f"{name}.{key}")
    elif json.dumps(old) != json.dumps(new):
        yield f"{name} was {_short(old)}, now {_short(new)}"


def _short(value: Any) -> str:
    """Return a value as text for an error message. Long values are truncated, except strings, such as paths."""
    text = repr(value)
    return text if isinstance(value, str) or len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]} ..."
