"""Merge several runs of one experiment into one (`placecode merge`), or make a small copy of a run (`placecode
slim`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor

from placecode.errors import BadInput, must_be
from placecode.files import write_bytes, write_json
from placecode.models.member import Member
from placecode.runs.read import FORMAT, TENSORS, Run, ranges, shapes_of, unfinished
from placecode.runs.summary import compact
from placecode.runs.tables import add_names, with_later_columns
from placecode.runs.write import Folder, differences, with_rows

MOVEMENT = ("moved", "moved_relative")
"""Values in the column `analysis` for how far a member's PE moved. They are inaccurate when computed from
half-precision arrays."""

SLIMMED = "slimmed"
"""Name of the entry of environment.json that says what was left out of a small copy of a run."""

FIT_FILES = ("fit.json", "fit.safetensors", "map.csv")
"""Files of a fit besides those of every run."""

Shapes = Mapping[str, Mapping[str, Any]]
"""Shape of each data set of a run, by its name; see `shapes_of`."""
Compare = Callable[[pd.DataFrame, Mapping[str, Tensor], Shapes, int], Sequence[Mapping[str, Any]]]
"""Type of `Experiment.compare`."""


def merge(
    paths: Sequence[Path],
    out: Path,
    force: bool = False,
    compare: Compare | None = None,
    specs: Sequence[Member] | None = None,
) -> Run:
    """Merge finished runs of different members of the same experiment into a new run in the folder `out`, and return
    it.

    With `force`, an existing run in `out` is deleted first. `compare` is `Experiment.compare`. It repeats the analyses
    that need several members, now with the members of all runs. If a run has arrays in half precision, analyses of how
    far a PE moved are not replaced, since the existing ones were computed in full precision. `specs` are all members of
    the experiment. Roles and labels are taken from them, since earlier versions recorded other labels or none.
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
        if changed := differences(*shared):
            raise BadInput(
                f"merged runs must be pieces of one experiment; {first.path} and {piece.path} differ: {changed}."
            )
    numbers = [int(number) for piece in pieces for number in piece.members["member"]]
    if twice := [number for number in numbers if numbers.count(number) > 1]:
        raise BadInput(f"merged runs must hold different members; more than one holds member {twice[0]}.")
    # read everything before anything is written, so that a damaged run leaves no files behind
    members = pd.concat([with_later_columns(piece.members) for piece in pieces], ignore_index=True)
    if specs is not None:
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


def slim(
    path: Path,
    out: Path,
    force: bool = False,
    seeds: Sequence[int] | None = None,
    arrays: Sequence[str] | None = None,
) -> Run:
    """Copy a finished run to the folder `out`, without weights and with arrays in half precision, and return the copy.

    Metrics of single conditions (such as classes of puzzles) are copied only from the first and last evaluation of each
    member, if the metric over all examples is there for the others. The rest of the tables and the summary are copied
    in full. With `seeds`, only the arrays of members with these seeds are copied. With `arrays`, only arrays of these
    kinds are copied, such as "pe_end"; "pe_end:seed=0" are those of members with this value in members.parquet. Arrays
    that describe the data are always copied. Of a fit, whose map is computed from its PEs, the arrays after training
    are copied in full precision. The entry "slimmed" of environment.json says what was left out. With `force`, an
    existing run in `out` is deleted first.
    """
    run = Run(path)
    if not run.finished:
        raise BadInput(unfinished(run.path, "summary.json"))
    if run.path.resolve() == out.resolve():
        raise BadInput(f"the output folder {out} must be another than that of the run; it is the same.")
    fit = {name: (run.path / name).read_bytes() for name in FIT_FILES if (run.path / name).is_file()}
    tensors = run.tensors("arrays.safetensors")
    of_members = {name for name in tensors if _member_of(name) is not None}
    copied = of_members if arrays is None else _selected(arrays, of_members, run.members)
    how = "arrays in float16" if tensors else "no arrays"
    if fit:
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
    kept = {
        name: value if fit else _halved(value)
        for name, value in tensors.items()
        if name in copied or name not in of_members
    }
    environment = {**run.environment, SLIMMED: "; ".join(left_out)}
    content = json.loads((run.path / "summary.json").read_text())
    summary = {**content, "rows": compact(run.summary)}
    tables = (run.members, metrics, run.analysis, kept if tensors else None, None, run.baselines, summary)
    return _write_run(out, run.config, environment, force, *tables, fit=fit)


def _selected(wanted: Sequence[str], names: Collection[str], members: pd.DataFrame) -> set[str]:
    """Return those of the array `names` that `wanted` selects: KIND, or KIND:COLUMN=VALUE for the members that have
    this value in a column of their table. Raise BadInput if an entry selects no array."""
    selected = set()
    for text in wanted:
        kind, _, condition = text.partition(":")
        column, _, value = condition.partition("=")
        rows = members
        if condition:
            rows = members[[_is_value(each, value) for each in members[column]]] if column in members else members[:0]
        numbers = set(rows["member"])
        found = {name for name in names if name.rpartition("/")[0] == kind and _member_of(name) in numbers}
        if not found:
            kinds = ", ".join(sorted({name.rpartition("/")[0] for name in names}))
            raise must_be("arrays", f"kinds of arrays of the run ({kinds}), each with or without :COLUMN=VALUE", text)
        selected |= found
    return selected


def _is_value(value: Any, text: str) -> bool:
    """Return whether a value of a table is that of a text, such as 2.0 and "2"."""
    try:
        return bool(float(value) == float(text))
    except (TypeError, ValueError):
        return str(value) == text


def _thinned(metrics: pd.DataFrame) -> pd.DataFrame:
    """Return metrics without those of single conditions at evaluations that are neither the first nor the last of a
    member. They are kept where the metric over all examples ("all") is missing."""
    evaluations = pd.MultiIndex.from_frame(metrics[["member", "step", "split", "metric"]])
    whole = metrics["condition"] == "all"
    has_whole = evaluations.isin(evaluations[whole])
    steps = metrics.groupby("member")["step"]
    end = (metrics["step"] == steps.transform("min")) | (metrics["step"] == steps.transform("max"))
    thinned: pd.DataFrame = metrics[whole | end | ~has_whole]
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


def _write_run(
    out: Path,
    config: Mapping[str, Any],
    environment: Mapping[str, Any],
    force: bool,
    *results: Any,
    fit: Mapping[str, bytes] | None = None,
) -> Run:
    """Write a finished run to the folder `out` and return it. If this fails, delete what was written.

    `results` are the arguments of `Folder.finish`: members, metrics, analysis, arrays, weights, baselines and summary.
    `fit` has the contents of FIT_FILES.
    """
    with Folder.open(out, config, force=force) as folder:
        try:
            write_json(out / "environment.json", environment)
            for name, content in (fit or {}).items():
                write_bytes(out / name, content)
            return folder.finish(*results)
        except BaseException:
            folder.abandon()
            raise
