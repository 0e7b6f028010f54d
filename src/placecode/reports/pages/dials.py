"""What any study that turns sigma can show of its learned PEs: a dial through its sigmas, and a map of its channels.

Both are read from a finished run: measures of all members, matrices and maps of those whose PEs were kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from placecode.analysis import geometry, modules, partitions
from placecode.analysis.places import arrange
from placecode.analysis.stats import interval
from placecode.experiments.reading import swept
from placecode.experiments.specs import data_in_words
from placecode.models.member import AUXILIARY, TAKEN
from placecode.runs.read import Run, shape_of

CHANNELS, REGIONS, CELLS = "share of channels", "share of regions", "share of cells"
MEASURED = {
    ("neighbor_agreement", "labels"): ("nearest channel in the PE is of the same group", CHANNELS),
    ("neighbor_agreement", "positions"): ("nearest channel in the PE is next to it in space", CHANNELS),
    ("mirror_agreement", "partner"): ("nearest region in the PE is the mirror region", REGIONS),
    ("neighbor_agreement", "relation"): ("nearest cell in the PE shares a row or column", CELLS),
}
"""Analyses that a dial shows beside the metric, in words, and of what they are shares."""
NEIGHBORS = 5


def dial_of(run: Run, metric: str) -> Dial | None:
    """The sigmas of a run, through which it has learned PEs; None where it has fewer than two."""
    members = turned_members(run)
    sigmas = sorted(members["sigma"].unique())
    if len(sigmas) < 2:
        return None
    means = {sigma: mean_similarity(run, members[members["sigma"] == sigma]) for sigma in sigmas}
    maps = dict(zip(sigmas, _in_line([means[sigma] for sigma in sigmas]), strict=True))
    measured = _measures(run, members, metric)
    stops = []
    for sigma in sigmas:
        own = members[members["sigma"] == sigma]
        values: dict[str, Interval] = {
            name: _bounded(interval(own["member"].map(by_member).dropna().to_numpy()), axis)
            for name, (axis, by_member) in measured.items()
        }
        stops.append(Stop(f"{sigma:g}", float(sigma), values, means[sigma], maps[sigma], _attention(run, own)))
    names, groups, group_names = named_channels(run, members)
    if groups is None and means[sigmas[0]] is not None:
        groups, group_names = _found_groups(means[sigmas[0]])
    return Dial(
        names,
        groups,
        group_names,
        stops,
        {name: axis for name, (axis, _) in measured.items()},
        note=_note(run, members),
    )


def channels_of(run: Run) -> Channels | None:
    """The channels of a run on the map of its smallest sigma, with those that lie nearest in most seeds; None where no
    PE was kept, or where tokens have no names of their own."""
    members = turned_members(run)
    known = _known(run, members[members["sigma"] == members["sigma"].min()]) if len(members) else members
    names, groups, group_names = named_channels(run, members) if len(known) else ([], None, [])
    if not names or not _describe(run, members).get("names"):
        return None
    each = [modules.similarities(_pe(run, number))[-1] for number in known["member"]]
    mean = np.mean(each, axis=0)
    if groups is None:
        groups = partitions.best_partition(mean)
    sigma, seeds = float(known["sigma"].iloc[0]), len(each)
    told = (
        f"a bar is the share of {seeds} seeds in which the channel is among the {NEIGHBORS} nearest ones"
        if seeds > 1
        else "the PE of one seed was kept, so nothing is said of how sure they are"
    )
    data = known["data"].iloc[0] if "data" in known else ""
    where = f"the smallest one, with {data_in_words(data)}" if data else "the smallest one"
    note = f"Places and neighbours by the learned PEs at sigma {sigma:g}, {where}; {told}."
    return Channels(
        names,
        *(arrange(mean, 2), arrange(mean, 3)),
        *(groups, group_names),
        neighbors=_nearest(each, mean),
        note=note,
    )


def turned_members(run: Run) -> pd.DataFrame:
    """The finished members of the sweep that differ in sigma and seed alone: those of the first setting that has the
    most sigmas. PEs that were given or frozen learn nothing, and are left out where others are there."""
    rows = swept(run)
    if "start" in rows:
        own = rows[~rows["start"].isin(TAKEN)]
        rows = own[own["learn"]] if own["learn"].any() else own
    kinds = [name for name in rows.columns if name not in (*AUXILIARY, "sigma")]
    groups = [group for _, group in rows.groupby(kinds, dropna=False, sort=False)]
    most: pd.DataFrame = max(groups, key=lambda group: group["sigma"].nunique(), default=rows)
    return most


def mean_similarity(run: Run, members: pd.DataFrame) -> Array | None:
    """Cosine similarity of the channels' centred PEs, all blocks concatenated, mean over the seeds with stored PEs."""
    kept = _known(run, members)["member"]
    if kept.empty:
        return None
    total: Array = np.mean([modules.similarities(_pe(run, number))[-1] for number in kept], axis=0)
    return total


def named_channels(run: Run, members: pd.DataFrame) -> tuple[list[str], np.ndarray | None, list[str]]:
    """Names of the tokens, their true groups (rows, of a Latin square), and what these are called."""
    task = _describe(run, members)
    if task.get("names"):
        names = [str(name) for name in task["names"]]
        if task.get("labels") is None:
            return names, None, []
        labels = np.asarray(task["labels"], dtype=np.int64)
        given = [str(name) for name in task.get("networks") or []]
        count = int(labels.max(initial=-1)) + 1
        return names, labels, given if len(given) >= count else [f"group {code + 1}" for code in range(count)]
    shape = _shape(run, members)
    places = shape["positions"]
    if places is None:
        return [f"token {token + 1}" for token in range(shape["tokens"])], None, []
    rows = np.asarray(places, dtype=np.int64)[:, 0]
    names = [", ".join(f"{int(at) + 1}" for at in place) for place in places]
    return names, rows, [f"row {row + 1}" for row in range(int(rows.max()) + 1)]


def _describe(run: Run, members: pd.DataFrame) -> dict[str, Any]:
    task = dict(run.config["task"])
    parts = task.get("parts", {})
    return dict(parts[members["data"].iloc[0]]) if parts and len(members) else task


def _shape(run: Run, members: pd.DataFrame) -> dict[str, Any]:
    """That of the data set on which these members are."""
    return shape_of(run.config, members["data"].iloc[0] if "data" in members and len(members) else "")


def _known(run: Run, members: pd.DataFrame) -> pd.DataFrame:
    kept = [run.has_array(f"pe_end/{number}") for number in members["member"]]
    known: pd.DataFrame = members[np.array(kept, dtype=bool)]
    return known


def _pe(run: Run, number: int) -> Array:
    return run.array(f"pe_end/{number}").astype(np.float64)


def _attention(run: Run, members: pd.DataFrame) -> Array | None:
    """Mean over blocks, heads and the seeds that were kept."""
    names = [f"attention_end/{number}" for number in members["member"]]
    kept = [run.array(name).astype(np.float64).mean((0, 1)) for name in names if run.has_array(name)]
    return np.asarray(np.mean(kept, axis=0)) if kept else None


def _in_line(means: list[Array | None]) -> Iterator[Array | None]:
    """Maps of the similarities, each turned onto the one before, so that from stop to stop only what changed moves."""
    before: Array | None = None
    for mean in means:
        if mean is None:
            yield None
            continue
        places = arrange(mean)
        before = places if before is None else geometry.turned(places, before)
        yield before


def _measures(run: Run, members: pd.DataFrame, metric: str) -> dict[str, tuple[str, pd.Series]]:
    """By name: the axis, and values by member. The metric on all splits, or, where conditions are not to be mixed, on
    the held-out ones by condition; then what was measured of the PEs."""
    rows = run.metrics[(run.metrics["step"] == run.metrics["step"].max()) & (run.metrics["metric"] == metric)]
    rows = rows[rows["member"].isin(members["member"])]
    pooled = (rows["condition"] == "all").any()
    rows = rows[rows["condition"] == "all"] if pooled else rows[rows["split"] != "train"]
    found: dict[str, tuple[str, pd.Series]] = {}
    axis = "error (mse)" if metric == "mse" else metric
    for (split, condition), own in rows.groupby(["split", "condition"], sort=False):
        name = f"{metric}, {split}" + ("" if pooled else f", {condition}")
        found[name] = (axis, own.set_index("member")["value"])
    last = run.analysis[(run.analysis["step"] == run.analysis["step"].max()) & (run.analysis["block"] == -1)]
    for (analysis, target), (words, axis) in MEASURED.items():
        own = last[(last["analysis"] == analysis) & (last["target"] == target)]
        own = own[own["member"].isin(members["member"])]
        if own["value"].notna().any():
            chance = f", by chance {_by_chance(_shape(run, members)):.2f}" if axis == CELLS else ""
            found[f"{words}{chance}"] = (axis, own.set_index("member")["value"])
    return found


def _by_chance(shape: Mapping[str, Any]) -> float:
    """How often another cell shares a row or column, on the grid of a Latin square."""
    places = np.asarray(shape["positions"])
    shares = (places[:, None] == places).any(-1).sum(-1) - 1
    return float(shares.mean() / (len(places) - 1))


def _bounded(found: Interval, axis: str) -> Interval:
    """A share has no interval beyond 0 and 1."""
    if axis not in (CHANNELS, REGIONS, CELLS, "accuracy"):
        return found
    mean, low, high = found
    return mean, max(low, 0.0) if low == low else low, min(high, 1.0) if high == high else high


def _found_groups(similar: Array | None) -> tuple[np.ndarray | None, list[str]]:
    assert similar is not None
    codes = partitions.best_partition(similar)
    return codes, [f"found group {code + 1}" for code in range(int(codes.max(initial=-1)) + 1)]


def _note(run: Run, members: pd.DataFrame) -> str:
    seeds = members.groupby("sigma").size()
    kept = _known(run, members).groupby("sigma").size()
    several = f"{seeds.min()} to {seeds.max()}" if seeds.min() < seeds.max() else f"{seeds.max()}"
    words = f"Numbers are means over {several} seeds with their 95% intervals."
    if len(kept):
        drawn = f"the mean over {kept.max()} seeds" if kept.max() > 1 else "of one seed, whose PEs were kept"
        words += f" Matrices and map are {drawn}."
        if not any(run.has_array(f"attention_end/{number}") for number in members["member"]):
            words += " Attention maps were not kept."
    if len(members) < int((run.members["state"] == "done").sum()):
        data = members["data"].iloc[0] if "data" in members else ""
        which = f"; here, {data_in_words(data)}." if data else "."
        words += f" Other settings of the run are in the tables below{which}"
    task = _describe(run, members)
    if len(kept) and task.get("names") and task.get("labels") is None:
        words += " No groups are known: channels are sorted by those that were found at the smallest sigma."
    return words


def _nearest(each: list[Array], mean: Array) -> list[list[tuple[int, float]]]:
    """Of every channel the nearest ones by the mean similarity, with the share of seeds in which they are among the
    nearest too; NaN where there is one seed only."""
    count = min(NEIGHBORS, len(mean) - 1)
    own, each_own = _top(mean, count), np.stack([_top(similar, count) for similar in each])  # (n, k), (seeds, n, k)
    shares = (own[None, :, :, None] == each_own[:, :, None, :]).any(-1).mean(0)
    if len(each) == 1:
        shares = np.full(shares.shape, np.nan)
    return [list(zip(*row, strict=True)) for row in zip(own.tolist(), shares.tolist(), strict=True)]


def _top(similar: Array, count: int) -> np.ndarray:
    others = np.where(np.eye(len(similar), dtype=bool), -np.inf, similar)
    return np.argsort(-others, axis=1, kind="stable")[:, :count]


Array = npt.NDArray[np.float64]
Interval = tuple[float, float, float]
"""Mean, low and high; NaN where there is no bound."""


@dataclass(frozen=True)
class Stop:
    """What there is to see at one sigma; None what was not kept."""

    label: str
    sigma: float
    measures: Mapping[str, Interval]
    similarity: Array | None = None
    """Of every two channels, (n, n), from -1 to 1."""
    places: Array | None = None
    """Of the channels on a map, (n, 2), turned onto that of the stop before."""
    attention: Array | None = None
    """Mean attention, (n, n): row = who looks, column = who is looked at."""


@dataclass(frozen=True)
class Dial:
    """The stops in rising order of sigma, and what all of them share."""

    names: Sequence[str]
    groups: npt.NDArray[np.int64] | None
    """The group of each channel, (n,), by its number in `group_names`; -1 for none; None where no groups are known."""
    group_names: Sequence[str]
    stops: Sequence[Stop]
    measure_names: Mapping[str, str]
    """Every measure of the stops, in the order in which to show them, with the axis that it is drawn on."""
    first: int = 0
    """The stop to begin with."""
    note: str = ""
    order: npt.NDArray[np.int64] | None = None
    """In which order the channels of matrices stand, (n,); None: group by group."""


@dataclass(frozen=True)
class Channels:
    """All channels with their places on a map, and what is known of each."""

    names: Sequence[str]
    places: Array
    """(n, 2)"""
    places3: Array | None = None
    """(n, 3)"""
    modules: npt.NDArray[np.int64] | None = None
    """The module of each channel, (n,), from 0 on; -1 for none."""
    module_names: Sequence[str] = ()
    """What the modules are called where they are known groups; those that were found have numbers alone."""
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """More about each channel, a number or a text, by the name of the column."""
    neighbors: Sequence[Sequence[tuple[int, float]]] = ()
    """Of each channel, the nearest ones first: number and confidence from 0 to 1, NaN where none is known."""
    edges: Sequence[tuple[int, int, float]] | None = None
    """Pairs of channels to join by a line, with a weight from 0 to 1."""
    note: str = ""


@dataclass(frozen=True)
class Verdict:
    """A finding in a sentence under a badge of a word or two: found, not found, unsure, ..."""

    kind: str
    sentence: str


@dataclass(frozen=True)
class Listing:
    """A table of the study's own: rows of numbers and texts under named columns, and a caption that says what they
    are."""

    title: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
