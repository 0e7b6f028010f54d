"""The interactive parts of a report: the slider over sigma and the searchable map of channels.

A `SigmaSlider` has one `SliderPosition` for each sigma of a sweep: numbers, a similarity matrix, a map and attention.
The slider itself is reports/html/assets/slider.js; the scale of its axis over sigma (linear or logarithmic) is in
panels.js. A `ChannelMap` is the content of the map. Both are read from a finished run: measures from all members,
matrices and maps from the members whose PEs were stored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from placecode.analysis import alignment, geometry, partitions
from placecode.analysis.agreement import nearest_channels
from placecode.analysis.places import isomap_embedding
from placecode.analysis.stats import Interval, interval
from placecode.arrays import Array
from placecode.experiments import experiment_of
from placecode.experiments.claims import NotInRun
from placecode.experiments.reading import analysis_values, sweep_members
from placecode.models.member import DONOR_STARTS, NON_SETTING_COLUMNS
from placecode.reports import wording
from placecode.runs.read import Run, shape_of

CHANNELS, REGIONS, CELLS = "share of channels", "share of regions", "share of cells"
SHARES = (CHANNELS, REGIONS, CELLS, "accuracy")
"""Labels of the axes of measures that are shares, from 0 to 1, whose intervals are clipped to these bounds."""
MEASURED = {
    ("neighbor_agreement", "labels"): ("nearest channel in the PE is of the same group", CHANNELS),
    ("neighbor_agreement", "positions"): ("nearest channel in the PE is next to it in space", CHANNELS),
    ("mirror_agreement", "partner"): ("nearest region in the PE is the mirror region", REGIONS),
    ("neighbor_agreement", "relation"): ("nearest cell in the PE shares a row or column", CELLS),
}
"""Measures (analysis, target) of PEs that the slider shows besides the metric, with their name and axis label."""
NEIGHBORS = 5
"""Number of nearest channels listed for each channel."""


@dataclass(frozen=True)
class SliderPosition:
    """One position of the sigma slider: what the report shows at this sigma. What was not stored is None."""

    label: str
    sigma: float
    measures: Mapping[str, Interval]
    """Mean and 95% interval of each measure, by its name, as in `SigmaSlider.curves`."""
    similarity: Array | None = None
    """Similarity of every pair of channels (n, n), from -1 to 1."""
    places: Array | None = None
    """Positions of the channels on a map (n, 2), rotated onto those of the previous position."""
    attention: Array | None = None
    """Mean attention (n, n) from the channel of the row to the channel of the column."""


@dataclass(frozen=True)
class Curve:
    """Axis, legend and style of the line that shows a measure by sigma. The values are in `SliderPosition`."""

    axis: str
    """Label of the vertical axis. Measures with the same label share a plot."""
    legend: str
    split: str = ""
    """The split of the data, which decides the style of the line; "" for a measure of the PEs."""


@dataclass(frozen=True)
class SigmaSlider:
    """The contents of the sigma slider: its positions in order of sigma, and what all positions share."""

    names: Sequence[str]
    groups: npt.NDArray[np.int64] | None
    """The group of each channel (n,), as an index into `group_names`; -1 for no group. None if no groups are known."""
    group_names: Sequence[str]
    positions: Sequence[SliderPosition]
    curves: Mapping[str, Curve]
    """The curve of every measure of the positions, by name, in the order in which the measures are shown."""
    first: int = 0
    """Index of the position that the report shows when it is opened."""
    note: str = ""
    """Caption of the slider."""
    order: npt.NDArray[np.int64] | None = None
    """Indices of the channels in the order in which matrices show them (n,); None sorts channels by group."""


@dataclass(frozen=True)
class ChannelMap:
    """The contents of the searchable map: the position of each channel, and what is known about it."""

    names: Sequence[str]
    places: Array
    """Positions on the flat map (n, 2)."""
    places3: Array | None = None
    """Positions on the map in three dimensions (n, 3)."""
    modules: npt.NDArray[np.int64] | None = None
    """The module of each channel (n,), counted from 0; -1 for no module."""
    module_names: Sequence[str] = ()
    """Names of the modules if they are known groups. Modules that a fit has found have numbers only."""
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Further numbers or texts about each channel, by the name of their column."""
    neighbors: Sequence[Sequence[tuple[int, float]]] = ()
    """Neighbours of each channel, the nearest first, as index and confidence (0 to 1; NaN if unknown)."""
    edges: Sequence[tuple[int, int, float]] | None = None
    """Pairs of channels that are joined by a line, with a weight from 0 to 1; None if there are no lines."""
    note: str = ""
    """Caption of the map."""


@dataclass(frozen=True)
class Verdict:
    """An answer to a main question of the run, as a sentence under a badge."""

    kind: str
    """The text of the badge, such as "found", "not found" or "unsure"."""
    sentence: str


@dataclass(frozen=True)
class Listing:
    """A table that a page adds to the report, besides the tables that every report has."""

    title: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


def sigma_slider(run: Run, metric: str) -> SigmaSlider | None:
    """Return the contents of the sigma slider, with one position for each sigma of `slider_members(run)`.

    The result is None for fewer than two sigmas. `metric` is the experiment's measure of success, such as "accuracy".
    If no groups of channels are known, they are found in the PEs of the smallest sigma.
    """
    members = slider_members(run)
    sigmas = sorted(members["sigma"].unique())
    if len(sigmas) < 2:
        return None
    means = [mean_similarity(run, members[members["sigma"] == sigma]) for sigma in sigmas]
    measures = _measures(run, members, metric)
    positions = []
    for sigma, mean, places in zip(sigmas, means, _aligned_maps(means), strict=True):
        rows = members[members["sigma"] == sigma]
        values = {name: interval(rows["member"].map(column)) for name, (_, column) in measures.items()}
        values |= {name: clipped(values[name]) for name, (curve, _) in measures.items() if curve.axis in SHARES}
        stored = [name for number in rows["member"] if run.has_array(name := f"attention_end/{number}")]
        maps = [run.array(name).astype(np.float64).mean((0, 1)) for name in stored]  # means over blocks and heads
        attention = np.asarray(np.mean(maps, axis=0)) if maps else None  # mean over seeds
        positions.append(SliderPosition(f"{sigma:g}", float(sigma), values, mean, places, attention))
    names, groups, group_names = named_channels(run, members)
    if groups is None and means[0] is not None:
        groups = partitions.best_partition(means[0])
        group_names = [f"found group {code + 1}" for code in range(int(groups.max(initial=-1)) + 1)]
    curves = {name: curve for name, (curve, _) in measures.items()}
    return SigmaSlider(names, groups, group_names, positions, curves, note=_note(run, members))


def channel_map(run: Run) -> ChannelMap | None:
    """Return a map of the channels, drawn from the PE at the smallest sigma. Return None if the run has stored no PE,
    or no names of its channels."""
    members = slider_members(run)
    stored = stored_members(run, members[members["sigma"] == members["sigma"].min()])
    if stored.empty or not _task(run, members).get("names"):
        return None
    names, groups, group_names = named_channels(run, members)
    by_seed = [alignment.token_similarity(_pe(run, number)) for number in stored["member"]]
    mean = np.mean(by_seed, axis=0)
    if groups is None:
        groups = partitions.best_partition(mean)
    _, note = wording.caption(
        "slider.channels",
        sigma=float(stored["sigma"].iloc[0]),
        data=_data(run, stored),
        seeds=len(by_seed),
        neighbors=NEIGHBORS,
    )
    return ChannelMap(
        names,
        isomap_embedding(mean, 2),
        isomap_embedding(mean, 3),
        groups,
        group_names,
        neighbors=_nearest(by_seed, mean),
        note=note,
    )


def slider_members(run: Run) -> pd.DataFrame:
    """Return the finished members that the slider shows, which differ only in sigma and seed.

    If the run varies other settings too, these are the members of the setting with the most sigmas, or of the first of
    several such settings. Members whose PE was copied from another member are left out. Members with a frozen PE are
    left out if others learn it.
    """
    rows = sweep_members(run)
    if "start" in rows:
        fresh = rows[~rows["start"].isin(DONOR_STARTS)]
        rows = fresh[fresh["learn"]] if fresh["learn"].any() else fresh
    fields = [name for name in rows.columns if name not in (*NON_SETTING_COLUMNS, "sigma")]
    settings = [members for _, members in rows.groupby(fields, dropna=False, sort=False)]
    longest: pd.DataFrame = max(settings, key=lambda members: members["sigma"].nunique(), default=rows)
    return longest


def mean_similarity(run: Run, members: pd.DataFrame) -> Array | None:
    """Return the mean over seeds of the cosine similarity of the channels' PEs (n, n); None if no PE was stored."""
    stored = stored_members(run, members)["member"]
    if stored.empty:
        return None
    return np.asarray(np.mean([alignment.token_similarity(_pe(run, number)) for number in stored], axis=0))


def named_channels(run: Run, members: pd.DataFrame) -> tuple[list[str], np.ndarray | None, list[str]]:
    """Return the names of the tokens, their true groups (n,), and the names of the groups.

    On Latin squares the groups are the rows of the grid. Unknown groups are None, and their names an empty list.
    """
    task = _task(run, members)
    if task.get("names"):
        names = [str(name) for name in task["names"]]
        if task.get("labels") is None:
            return names, None, []
        labels = np.asarray(task["labels"], dtype=np.int64)
        networks = [str(name) for name in task.get("networks") or []]
        count = int(labels.max(initial=-1)) + 1
        return names, labels, networks if len(networks) >= count else [f"group {code + 1}" for code in range(count)]
    shape = _shape(run, members)
    places = shape["positions"]
    if places is None:
        return [f"token {token + 1}" for token in range(shape["tokens"])], None, []
    rows = np.asarray(places, dtype=np.int64)[:, 0]
    names = [", ".join(f"{int(at) + 1}" for at in place) for place in places]
    return names, rows, [f"row {row + 1}" for row in range(int(rows.max()) + 1)]


def _task(run: Run, members: pd.DataFrame) -> dict[str, Any]:
    """Return the entry "task" of config.json for the data set on which these members were trained."""
    task = dict(run.config["task"])
    parts = task.get("parts", {})
    return dict(parts[members["data"].iloc[0]]) if parts and len(members) else task


def _shape(run: Run, members: pd.DataFrame) -> dict[str, Any]:
    """Return what config.json says about the data set of these members: number of tokens, their positions in space,
    number of outputs."""
    return shape_of(run.config, members["data"].iloc[0] if "data" in members and len(members) else "")


def _data(run: Run, members: pd.DataFrame) -> str:
    """Return a description of the data set of these members; empty if the run has only one data set."""
    data = members["data"].iloc[0] if "data" in members else ""
    return experiment_of(run).describe_data(data) if data else ""


def stored_members(run: Run, members: pd.DataFrame) -> pd.DataFrame:
    """Return the members whose PEs were stored."""
    return members[members["member"].map(lambda number: run.has_array(f"pe_end/{number}")).astype(bool)]


def _pe(run: Run, number: int) -> Array:
    """Return the PE of a member after training."""
    return run.array(f"pe_end/{number}").astype(np.float64)


def _aligned_maps(means: Sequence[Array | None]) -> Iterator[Array | None]:
    """Yield a map (n, 2) for each similarity matrix (n, n), and None for a missing matrix.

    Each map is rotated onto the previous one, so that channels move only if their similarities changed.
    """
    previous: Array | None = None
    for mean in means:
        if mean is not None:
            places = isomap_embedding(mean)
            previous = places if previous is None else geometry.align_map(places, previous)
        yield None if mean is None else previous


def _measures(run: Run, members: pd.DataFrame, metric: str) -> dict[str, tuple[Curve, pd.Series]]:
    """Return the measures of the slider by name, each with its curve and its values, indexed by member.

    The experiment's metric on each split comes first, then measures of the PEs. If the metric is known only for single
    conditions (subsets such as "hidden 0.5"), there is one measure for each condition and each held-out split.
    """
    rows = run.metrics[(run.metrics["step"] == run.metrics["step"].max()) & (run.metrics["metric"] == metric)]
    rows = rows[rows["member"].isin(members["member"])].set_index("member")
    pooled = (rows["condition"] == "all").any()
    rows = rows[rows["condition"] == "all"] if pooled else rows[rows["split"] != "train"]
    measures: dict[str, tuple[Curve, pd.Series]] = {}
    axis = "error (mse)" if metric == "mse" else metric
    for (split, condition), values in rows.groupby(["split", "condition"], sort=False):
        legend = split if pooled else f"{split}, {condition}"
        measures[f"{metric}, {legend}"] = (Curve(axis, legend, split), values["value"])
    for measure, (words, axis) in MEASURED.items():
        with contextlib.suppress(NotInRun):
            values = analysis_values(run, *measure)
            if values.reindex(members["member"]).notna().any():
                chance = f", by chance {_by_chance(_shape(run, members)):.2f}" if axis == CELLS else ""
                measures[words + chance] = (Curve(axis, words + chance), values)
    return measures


def _by_chance(shape: Mapping[str, Any]) -> float:
    """Return the chance that another cell of a Latin square is in the same row or column as a given cell."""
    places = np.asarray(shape["positions"])
    shares = (places[:, None] == places).any(-1).sum(-1) - 1
    return float(shares.mean() / (len(places) - 1))


def clipped(interval: Interval) -> Interval:
    """Return the interval of a share with its bounds clipped to [0, 1]."""
    low, high = np.clip(interval[1:], 0.0, 1.0).tolist()
    return Interval(interval.mean, low, high)


def _note(run: Run, members: pd.DataFrame) -> str:
    """Return the caption of the slider, which says how many seeds and which data it shows."""
    seeds = members.groupby("sigma").size()
    stored = stored_members(run, members).groupby("sigma").size()
    task = _task(run, members)
    _, note = wording.caption(
        "slider.note",
        seeds=f"{seeds.min()} to {seeds.max()}" if seeds.min() < seeds.max() else f"{seeds.max()}",
        stored=int(stored.max()) if len(stored) else 0,
        attention=any(run.has_array(f"attention_end/{number}") for number in members["member"]),
        others=len(members) < int((run.members["state"] == "done").sum()),
        data=_data(run, members),
        groups_found=bool(len(stored) and task.get("names") and task.get("labels") is None),
    )
    return note


def _nearest(similarities: list[Array], mean: Array) -> list[list[tuple[int, float]]]:
    """Return, for each channel, its nearest channels by the `mean` of the similarity matrices (n, n) of the seeds.

    An entry is (channel, share of the seeds in which it is also among the nearest); NaN if there is only one seed.
    """
    count = min(NEIGHBORS, len(mean) - 1)
    nearest = nearest_channels(mean, count)  # (n, k)
    by_seed = np.stack([nearest_channels(similarity, count) for similarity in similarities])  # (seeds, n, k)
    shares = (nearest[None, :, :, None] == by_seed[:, :, None, :]).any(-1).mean(0)
    if len(similarities) == 1:
        shares = np.full(shares.shape, np.nan)
    return [list(zip(*row, strict=True)) for row in zip(nearest.tolist(), shares.tolist(), strict=True)]
