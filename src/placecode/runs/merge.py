"""Merge several runs of one study into one (`placecode merge`), or make a small copy of a run (`placecode slim`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor

from placecode.errors import BadInput, must_be
from placecode.files import write_json
from placecode.models.member import Member
from placecode.runs.read import FORMAT, TENSORS, Run, add_names, ranges, shapes_of, unfinished, with_later_columns
from placecode.runs.write import Folder, differences, with_rows

MOVEMENT = ("moved", "moved_relative")
"""Values in the column `analysis` for how far a member's PE moved. They are inaccurate when computed from
half-precision arrays."""

SLIMMED = "slimmed"
"""Name of the entry of environment.json that says what was left out of a small copy of a run."""

Shapes = Mapping[str, Mapping[str, Any]]
"""Shape of each data set of a run, by its name; see `shapes_of`."""
Compare = Callable[[pd.DataFrame, Mapping[str, Tensor], Shapes, int], Sequence[Mapping[str, Any]]]
"""Type of `Study.compare`."""


def merge(
    paths: Sequence[Path],
    out: Path,
    force: bool = False,
    compare: Compare | None = None,
    specs: Sequence[Member] | None = None,
) -> Run:
    """Merge finished runs of different members of the same study into a new run in the folder `out`, and return it.

    With `force`, an existing run in `out` is deleted first. `compare` is `Study.compare`. It repeats the analyses that
    need several members, now with the members of all runs. If a run has arrays in half precision, analyses of how far
    a PE moved are not replaced, since the existing ones were computed in full precision. `specs` are all members of
    the study. Roles and labels are taken from them, since earlier versions recorded other labels or none.
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
            raise BadInput(f"merged runs must be pieces of one study; {first.path} and {piece.path} differ: {changed}.")
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

    With `seeds`, only the arrays of members with these seeds are copied; with `arrays`, only arrays of these kinds,
    such as "pe_end". Tables, and arrays that describe the data, are always copied in full. The entry "slimmed" of
    environment.json says what was left out. With `force`, an existing run in `out` is deleted first.
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
    tensors = run.tensors("arrays.safetensors")
    kinds = {name.rpartition("/")[0] for name in tensors if _member_of(name) is not None}
    if arrays is not None:
        if unknown := sorted(set(arrays) - kinds):
            raise must_be("arrays", f"kinds of arrays of the run ({', '.join(sorted(kinds))})", unknown)
        kinds = set(arrays)
        which += f"; {', '.join(arrays)} alone"
    before = run.environment.get(SLIMMED, "no weights; arrays in float16")
    environment = {**run.environment, SLIMMED: f"{before}{which}"}
    halved = {
        name: _halved(value)
        for name, value in tensors.items()
        if (member := _member_of(name)) is None or (member in copied and name.rpartition("/")[0] in kinds)
    }
    tables = (run.members, run.metrics, run.analysis, halved, None, run.baselines)
    return _write_run(out, run.config, environment, force, *tables)


def _member_of(name: str) -> int | None:
    """Return the member number of an array NAME_start/i or NAME_end/i; None for arrays that describe the data."""
    kind, _, number = name.rpartition("/")
    return int(number) if kind.endswith(("_start", "_end")) else None


def _halved(array: Tensor) -> Tensor:
    """Return an array in half precision, or unchanged if it is not floating-point or would overflow."""
    half = array.half()
    fits = array.is_floating_point() and bool((half.isfinite() == array.isfinite()).all())
    return half if fits else array


def _write_run(out: Path, config: Mapping[str, Any], environment: Mapping[str, Any], force: bool, *results: Any) -> Run:
    """Write a finished run to the folder `out` and return it. If this fails, delete what was written.

    `results` are the arguments of `Folder.finish`: members, metrics, analysis, arrays, weights and baselines.
    """
    with Folder.open(out, config, force=force) as folder:
        try:
            write_json(out / "environment.json", environment)
            return folder.finish(*results)
        except BaseException:
            folder.abandon()
            raise
