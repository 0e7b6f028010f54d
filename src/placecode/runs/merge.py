"""Merge several runs of one experiment into one (`placecode merge`), or make a small copy of a run (`placecode
slim`)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor

from placecode.errors import BadInput, must_be
from placecode.files import write_bytes, write_json
from placecode.models.member import Member
from placecode.runs.former_names import MEMBER_FIELDS, MEMBER_VALUES
from placecode.runs.read import FORMAT, TENSORS, Run, finished_run, format_ranges, shapes_of
from placecode.runs.summary import compact
from placecode.runs.tables import set_roles_and_labels, with_later_columns
from placecode.runs.write import Folder, differences, with_rows

MOVEMENT = ("moved", "moved_relative")
"""Names of the analyses of how far a PE moved in training. They are inaccurate when computed in half precision."""

SLIMMED = "slimmed"
"""Name of the entry of environment.json that says what was left out of a small copy of a run."""

FIT_FILES = ("fit.json", "fit.safetensors", "map.csv")
"""Files that only a fit of a user's table has, besides those of every run."""

Shapes = Mapping[str, Mapping[str, Any]]
"""Sizes and token positions of each data set of a run, by the name of the data set; see `shapes_of`."""
Compare = Callable[[pd.DataFrame, Mapping[str, Tensor], Shapes, int], Sequence[Mapping[str, Any]]]
"""Type of `Experiment.compare`, which returns those rows of the analysis table that compare several members."""


def merge(
    paths: Sequence[Path],
    out: Path,
    force: bool = False,
    compare: Compare | None = None,
    specs: Sequence[Member] | None = None,
    fields: Callable[[Run], Mapping[str, Any]] | None = None,
) -> Run:
    """Merge finished runs of different members (models) of one experiment into one run.

    Parameters
    ----------
    paths : sequence of Path
        Folders of the runs.
    out : Path
        Folder of the merged run.
    force : bool, default=False
        Delete an existing run in `out` first.
    compare : callable, optional
        `Experiment.compare`. It repeats the analyses that need several members, now with the members of all runs.
        Analyses of how far a PE moved are not repeated if a run is a small copy (`slim`): the existing values were
        computed from arrays of higher precision.
    specs : sequence of Member, optional
        All members of the experiment, in order. The merged run takes roles and labels from them, since earlier versions
        recorded other labels or none.
    fields : callable, optional
        `fields(run)` must return all settings of a run to merge, also those that did not exist yet when it was made
        (`Experiment.fields`).

    Returns
    -------
    Run
        The merged run.
    """
    pieces = [finished_run(path) for path in paths]
    if fields is not None:
        for piece in pieces:
            piece.config["fields"] = dict(fields(piece))
    if len(pieces) < 2:
        raise BadInput(f"merge must be given at least 2 runs; got {len(pieces)}.")
    first = pieces[0]
    for piece in pieces:
        if piece.path.resolve() == out.resolve():
            raise BadInput(f"the output folder {out} must be none of the merged runs; it is one of them.")
        # a piece of an older format has the names of today once it is read
        own = ("members", "format")
        shared = [{name: value for name, value in run.config.items() if name not in own} for run in (first, piece)]
        if changed := differences(*shared):
            raise BadInput(
                f"merged runs must be pieces of one experiment; {first.path} and {piece.path} differ: {changed}."
            )
    numbers = [int(number) for piece in pieces for number in piece.members["member"]]
    if repeated := [number for number in numbers if numbers.count(number) > 1]:
        raise BadInput(f"merged runs must hold different members; more than one holds member {repeated[0]}.")
    # read everything before anything is written, so that a damaged run leaves no files behind
    members = pd.concat([with_later_columns(piece.members) for piece in pieces], ignore_index=True)
    if specs is not None:
        set_roles_and_labels(members, specs)
    metrics = pd.concat([piece.metrics for piece in pieces], ignore_index=True)
    analysis = pd.concat([piece.analysis for piece in pieces], ignore_index=True)
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
    config = {**first.config, "format": FORMAT, "members": format_ranges(numbers)}
    complete_weights = weights if len(weights) == len(members) else None  # write them for all members or for none
    with _new_run(out, config, environment, force) as folder:
        return folder.finish(members, metrics, analysis, arrays, complete_weights, baselines)


def slim(
    path: Path,
    out: Path,
    force: bool = False,
    seeds: Sequence[int] | None = None,
    arrays: Sequence[str] | None = None,
) -> Run:
    """Make a small copy of a finished run, without weights and with arrays in half precision.

    At evaluations between the first and the last, metrics of single conditions (such as classes of puzzles) are left
    out if there is a metric over all examples. The rest of the tables and the summary are copied in full. Arrays that
    describe the data are always copied. If the run is a fit of a user's table, arrays of members are copied only as
    they were after training, and in full precision, because the map is computed from them. The entry "slimmed" of
    environment.json says what was left out.

    Parameters
    ----------
    path : Path
        Folder of the run.
    out : Path
        Folder of the copy.
    force : bool, default=False
        Delete an existing run in `out` first.
    seeds : sequence of int, optional
        Copy only the arrays of members with these seeds.
    arrays : sequence of str, optional
        Copy only arrays of these kinds, such as "pe_end". "pe_end:seed=0" selects the arrays of members with this value
        in members.parquet.

    Returns
    -------
    Run
        The copy.
    """
    run = finished_run(path)
    if run.path.resolve() == out.resolve():
        raise BadInput(f"the output folder {out} must be another than that of the run; it is the same.")
    fit_files = {name: (run.path / name).read_bytes() for name in FIT_FILES if (run.path / name).is_file()}
    tensors = run.tensors("arrays.safetensors")
    of_members = {name for name in tensors if _member_of(name) is not None}
    copied = of_members if arrays is None else _selected(arrays, of_members, run.members)
    how = "arrays in float16" if tensors else "no arrays"
    if fit_files:
        how, copied = "no arrays from before training", {name for name in copied if "_end/" in name}
    left_out = [run.environment.get(SLIMMED, f"no weights; {how}")]
    if seeds is not None:
        if missing := sorted(set(seeds) - set(run.members["seed"])):
            raise must_be("seeds", "seeds of the run's members", missing)
        numbers = set(run.members.loc[run.members["seed"].isin(seeds), "member"])
        copied = {name for name in copied if _member_of(name) in numbers}
        left_out[0] += f", of {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))} alone"
    if arrays is not None:
        left_out.append(f"{', '.join(arrays)} alone")
    metrics = _thinned(run.metrics)
    if len(metrics) < len(run.metrics):
        left_out.append("metrics of single conditions at the first and last evaluation alone")
    smaller = {
        name: value if fit_files else _halved(value)
        for name, value in tensors.items()
        if name in copied or name not in of_members
    }
    environment = {**run.environment, SLIMMED: "; ".join(left_out)}
    summary = json.loads((run.path / "summary.json").read_text())
    summary = {"experiment" if name == "study" else name: value for name, value in summary.items()}
    summary["rows"] = compact(run.summary)
    config = {**run.config, "format": FORMAT}  # what was read has the names of today
    with _new_run(out, config, environment, force) as folder:
        for name, content in fit_files.items():
            write_bytes(out / name, content)
        arrays_or_none = smaller if tensors else None
        return folder.finish(run.members, metrics, run.analysis, arrays_or_none, None, run.baselines, summary)


def _selected(selectors: Sequence[str], names: Collection[str], members: pd.DataFrame) -> set[str]:
    """Return those of the array names `names` that any selector selects. Raise BadInput if a selector selects none.

    A selector is KIND, such as "pe_end", or KIND:COLUMN=VALUE for members with this value in the table `members`.
    """
    selected = set()
    for selector in selectors:
        kind, _, condition = selector.partition(":")
        column, _, value = condition.partition("=")
        column = MEMBER_FIELDS.get(column, column)
        value = MEMBER_VALUES.get(column, {}).get(value, value)
        rows = members
        if condition:
            rows = members[[_is_value(cell, value) for cell in members[column]]] if column in members else members[:0]
        numbers = set(rows["member"])
        matches = {name for name in names if name.rpartition("/")[0] == kind and _member_of(name) in numbers}
        if not matches:
            kinds = ", ".join(sorted({name.rpartition("/")[0] for name in names}))
            allowed = f"kinds of arrays of the run ({kinds}), each with or without :COLUMN=VALUE"
            raise must_be("arrays", allowed, selector)
        selected |= matches
    return selected


def _is_value(value: Any, text: str) -> bool:
    """Return whether a text stands for a value of a table, as "2" does for 2.0."""
    try:
        return bool(float(value) == float(text))
    except (TypeError, ValueError):
        return str(value) == text


def _thinned(metrics: pd.DataFrame) -> pd.DataFrame:
    """Return a table of metrics without rows of single conditions at evaluations between a member's first and last.

    A condition is a subset of the examples. Rows are kept if there is no metric over all examples (condition "all").
    """
    evaluations = pd.MultiIndex.from_frame(metrics[["member", "step", "split", "metric"]])
    over_all = metrics["condition"] == "all"
    has_over_all = evaluations.isin(evaluations[over_all])
    steps = metrics.groupby("member")["step"]
    first_or_last = (metrics["step"] == steps.transform("min")) | (metrics["step"] == steps.transform("max"))
    thinned: pd.DataFrame = metrics[over_all | first_or_last | ~has_over_all]
    return thinned


def _member_of(name: str) -> int | None:
    """Return the member number of an array NAME_start/i or NAME_end/i; None for arrays that describe the data."""
    kind, _, number = name.rpartition("/")
    return int(number) if kind.endswith(("_start", "_end")) else None


def _halved(array: Tensor) -> Tensor:
    """Return an array in half precision, or unchanged if it is not floating-point or would overflow."""
    half = array.half()
    fits = array.is_floating_point() and bool((half.isfinite() == array.isfinite()).all())
    return half if fits else array


@contextlib.contextmanager
def _new_run(out: Path, config: Mapping[str, Any], environment: Mapping[str, Any], force: bool) -> Iterator[Folder]:
    """Return a context manager that opens the folder of a new run. After an exception, what was written is deleted."""
    with Folder.open(out, config, force=force) as folder:
        try:
            write_json(out / "environment.json", environment)
            yield folder
        except BaseException:
            folder.abandon()
            raise
