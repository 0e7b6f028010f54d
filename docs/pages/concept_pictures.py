"""Draw the pictures of docs/concepts: python docs/pages/concept_pictures.py

Each function draws one figure, docs/images/concept-NAME.png, from the committed runs in results/ or, where the figure
says "simulated", from small data made here. A test compares the figures with the tables of the runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator
from scipy.linalg import orthogonal_procrustes
from templating import ROOT

from placecode import Member, Run
from placecode.analysis import alignment, modules, nulls
from placecode.arrays import AnyArray
from placecode.encodings import sinusoid
from placecode.experiments.channels import structure
from placecode.experiments.reading import accuracy, analysis_values, by_sigma, chance_levels
from placecode.reports.figures import base, save
from placecode.reports.figures.base import BLUE, GREEN, INK, MUTED, PAPER, SIGMA, VERMILLION
from placecode.tasks.network import Network

IMAGES = ROOT / "docs" / "images"
SQUARES, NODES = "lst-sigma", "network-sigma"
"""Runs that are drawn: the sweeps over sigma on Latin squares and on networks."""
COLORMAP = "RdBu_r"
"""Colour map of numbers around 0, the same as in the figures of a report."""
FEATURES = 24
"""Number of features of a PE that are drawn."""


def run_of(name: str) -> Run:
    """Read a committed run."""
    return Run(ROOT / "results" / name)


class TrainedPE(NamedTuple):
    """The PE of one member of the run on networks, after training."""

    sigma: float
    pe: AnyArray
    """Shape (l, n, d): blocks, nodes, features."""
    labels: AnyArray
    """The cluster of each node (n,)."""

    @property
    def order(self) -> AnyArray:
        """Indices that sort the nodes by cluster (n,)."""
        return np.argsort(self.labels, kind="stable")

    @property
    def similarities(self) -> AnyArray:
        """Cosine similarity of the nodes' centred PEs (n, n), with all blocks concatenated."""
        return alignment.token_similarity(self.pe)


def trained_pes(run: Run) -> tuple[TrainedPE, TrainedPE]:
    """Return the first seed's PEs after training, at the smallest and at the largest sigma."""
    labels = np.array(run.config["task"]["labels"])
    rows = run.members[run.members["seed"] == run.members["seed"].min()].sort_values("sigma")
    numbers, sigmas = rows["member"].iloc[[0, -1]], rows["sigma"].iloc[[0, -1]]
    small, large = (TrainedPE(s, run.array(f"pe_end/{i}"), labels) for i, s in zip(numbers, sigmas, strict=True))
    return small, large


# ------------------------------------------------------------------------------------------- what a PE is


def positional_encoding() -> Figure:
    """Draw tokens, the table of vectors that is added to them, and the similarity of tokens by these vectors."""
    run = run_of(NODES)
    cells = np.stack(np.divmod(np.arange(16), 4), axis=1)
    fixed = sinusoid(cells, FEATURES)
    figure, panels = base.panels(3, 3, (8.6, 8.4), sharey=False, width_ratios=[0.8, 1.1, 1.0])
    _grid(panels[0])
    _draw_vectors(panels[1], fixed, 4)
    image = _similarities(panels[2], alignment.token_similarity(fixed), 4)
    base.title(panels[0], "tokens: 16 cells", "of a puzzle, row by row")
    base.title(panels[1], "fixed PE: rows and columns", "a vector per token, added to it")
    base.title(panels[2], "similarity of tokens", "cosine of any two centred vectors")
    for row, (member, size) in enumerate(zip(trained_pes(run), ("small", "large"), strict=True), start=1):
        left, middle, right = panels[3 * row : 3 * row + 3]
        sizes = np.bincount(member.labels)
        _clusters(left, sizes)
        _draw_vectors(middle, member.pe[0, member.order], int(sizes[0]))
        _similarities(right, member.similarities[np.ix_(member.order, member.order)], int(sizes[0]))
        base.title(left, f"tokens: {len(member.labels)} nodes", "of a network; sorted for display")
        base.title(middle, f"learned PE, {size} {SIGMA} = {member.sigma:g}", "after training, first block")
        base.title(right, "similarity of nodes", "all blocks concatenated")
    base.colorbar(figure, image, "cosine similarity of centred PEs", ax=panels[2::3], shrink=0.4, aspect=30)
    note = (
        f"tables show the first {FEATURES} features, each on its own colour scale; the first row is computed, not run"
    )
    return base.small_print(figure, NODES, "a single member each", note)


def _grid(axes: Axes) -> None:
    """Draw the cells of a puzzle with their numbers."""
    for token in range(16):
        row, column = divmod(token, 4)
        axes.add_patch(Rectangle((column, row), 1, 1, facecolor=PAPER, edgecolor=MUTED, linewidth=0.8))
        axes.text(column + 0.5, row + 0.5, str(token + 1), ha="center", va="center", fontsize=8, color=INK)
    axes.set(xlim=(-0.1, 4.1), ylim=(4.1, -0.1), aspect="equal")
    axes.set_axis_off()


def _clusters(axes: Axes, sizes: AnyArray) -> None:
    """Draw the nodes of a network as a bar that is cut into clusters of these sizes."""
    ends = np.cumsum(sizes)
    for i, (end, size) in enumerate(zip(ends, sizes, strict=True)):
        shade = (MUTED, PAPER)[i % 2]
        axes.add_patch(Rectangle((0, end - size), 1, size, facecolor=shade, edgecolor=MUTED, alpha=0.5, linewidth=0.8))
        axes.text(1.25, end - size / 2, f"cluster {i + 1}", va="center", fontsize=8, color=INK)
    axes.set(xlim=(-1.2, 4.2), ylim=(ends[-1], 0))
    axes.set_axis_off()


def _draw_vectors(axes: Axes, table: AnyArray, rule: int) -> None:
    """Draw the first features of a table of vectors (n, d), a row per token, with a line after every `rule` rows."""
    values = table[:, :FEATURES]
    largest = np.abs(values).max()
    axes.imshow(values, cmap=COLORMAP, vmin=-largest, vmax=largest, aspect="auto", interpolation="none")
    _draw_rules(axes, len(table), rule)
    base.label(axes, "features", "tokens")


def _similarities(axes: Axes, matrix: AnyArray, rule: int) -> Any:
    """Draw a matrix (n, n) of similarities with a line after every `rule` rows, and return the image."""
    image = axes.imshow(matrix, cmap=COLORMAP, vmin=-1, vmax=1, interpolation="none")
    _draw_rules(axes, len(matrix), rule)
    base.label(axes, "tokens", "tokens")
    return image


def _draw_rules(axes: Axes, n: int, rule: int) -> None:
    """Remove the ticks, and draw a thin line after every `rule` of the n tokens."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    for row in range(rule, n, rule):
        axes.axhline(row - 0.5, color=MUTED, linewidth=0.5)


# ----------------------------------------------------------------------------------------- rich and lazy


def rich_and_lazy() -> Figure:
    """Draw how far PEs move relative to their size, and what models reach, by sigma, on Latin squares and networks."""
    squares, nodes = run_of(SQUARES), run_of(NODES)
    figure, panels = base.panels(2, 2, (8.2, 5.6), sharey=False)
    tables = {
        "Latin squares: distance the PE moved": by_sigma(squares, analysis_values(squares, "moved_relative", "start")),
        "networks: distance the PE moved": by_sigma(nodes, analysis_values(nodes, "moved_relative", "start")),
        "OOD accuracy": by_sigma(squares, accuracy(squares)),
        "nearest node is of the same cluster": by_sigma(nodes, analysis_values(nodes, "neighbor_agreement", "labels")),
    }
    for i, (axes, (name, table)) in enumerate(zip(panels, tables.items(), strict=True)):
        _over_sigma(axes, table, markersize=4.5, color=VERMILLION if i > 1 else BLUE, marker="D" if i > 1 else "s")
        base.title(axes, name)
    for axes in panels[:2]:
        axes.set_yscale("log")
        axes.set_ylim(0.004, 12)
        axes.set_yticks([0.01, 0.1, 1, 10], ["0.01", "0.1", "1", "10"])
        axes.yaxis.set_minor_locator(NullLocator())
        axes.axhline(1, color=MUTED, linewidth=1.1, linestyle=(0, (2, 2)), label="distance equal to the initial size")
    base.accuracy_axis(panels[2], 1 / 4)  # four symbols
    base.accuracy_axis(panels[3], chance_levels(nodes.config["task"])["neighbor_agreement", "labels"])
    base.label(panels[0], y="distance / initial size")
    base.label(panels[2], f"initial {SIGMA}", "share")
    base.label(panels[3], f"initial {SIGMA}")
    base.legend(figure)
    seeds = " or ".join(map(str, sorted({len(table.columns) for table in tables.values()})))
    return base.small_print(figure, f"{SQUARES} and {NODES}", f"mean and 95% t interval over {seeds} seeds")


def _over_sigma(axes: Axes, table: pd.DataFrame, **style: Any) -> None:
    """Draw the mean over seeds and its interval at each sigma of a table with a row per sigma and a column per seed."""
    rows = base.means(table.stack().rename("value").reset_index(), ["sigma"])
    base.errorbars(axes, rows["sigma"], rows["mean"], yerr=base.errorbar_lengths(rows), **style)
    base.sigma_axis(axes, rows["sigma"].to_numpy(), most=7)
    base.light_grid(axes)


# --------------------------------------------------------------------------------------------- Procrustes


class ProcrustesExample(NamedTuple):
    """A target and the points rotated onto it, all (n, 2), centred and of norm 1, and the distance that remains."""

    target: AnyArray
    before: AnyArray
    after: AnyArray
    distance: float


def procrustes_example(target: AnyArray, points: AnyArray) -> ProcrustesExample:
    """Rotate points (n, 2) onto a target (n, 2) by scipy. A test compares the distance with that of `alignment`."""
    centred = [array - array.mean(0) for array in (points, target)]
    before, target = (array / np.linalg.norm(array) for array in centred)
    after = before @ orthogonal_procrustes(before, target)[0]
    return ProcrustesExample(target, before, after, float(np.linalg.norm(after - target)))


def examples(seed: int = 0) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Return a 4 x 4 grid, its rotated, scaled, shifted and noisy copy, and unrelated points; (16, 2) each."""
    rng = np.random.default_rng(seed)
    grid = np.stack(np.divmod(np.arange(16), 4), axis=1).astype(float)
    angle = np.deg2rad(130)
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return grid, (2.5 * grid + 0.5 * rng.normal(size=grid.shape)) @ rotation + 20, rng.normal(size=grid.shape)


def procrustes() -> Figure:
    """Draw two arrangements before and after the best rotation, and two Procrustes distances of a run against sigma."""
    grid, copy, unrelated = examples()
    figure = Figure(figsize=(8.8, 6.4), layout="constrained")
    places = figure.add_gridspec(2, 6)
    top = [figure.add_subplot(places[0, 2 * i : 2 * i + 2]) for i in range(3)]
    bottom = [figure.add_subplot(places[1, 3 * i : 3 * i + 3]) for i in range(2)]
    near, far = procrustes_example(grid, copy), procrustes_example(grid, unrelated)
    arrangements = [
        ("same size and centre, not yet rotated", near.target, near.before),
        ("after the best rotation", near.target, near.after),
        ("unrelated points, after the best rotation", far.target, far.after),
    ]
    for axes, (name, target, points) in zip(top, arrangements, strict=True):
        base.style_axes(axes)
        distance = float(np.linalg.norm(points - target))
        axes.add_collection(LineCollection(np.stack([target, points], 1), colors=MUTED, linewidths=0.8, zorder=1))
        base.errorbars(axes, *target.T, color=BLUE, marker="o", markersize=6, hollow=True, label="true grid")
        base.errorbars(axes, *points.T, color=GREEN, marker="^", markersize=5.5, label="simulated points")
        axes.set(aspect="equal", xticks=[], yticks=[], xlim=(-0.5, 0.5), ylim=(-0.42, 0.42))
        axes.spines[:].set_visible(False)
        base.title(axes, name, f"remaining distance: {distance:.2f}", width=34)
    run = run_of(SQUARES)
    distances = {
        "procrustes_raw": "raw, as published: before and after coincide",
        "procrustes": "both centred and of size 1; the axis does not start at 0",
    }
    for axes, (measure, name) in zip(bottom, distances.items(), strict=True):
        base.style_axes(axes)
        start, end = (by_sigma(run, analysis_values(run, measure, "2d-fixed", when)) for when in ("start", "end"))
        _over_sigma(axes, start, markersize=4, color=INK, marker="o", hollow=True, label="before training")
        _over_sigma(axes, end, markersize=4, color=VERMILLION, marker="D", hollow=False, label="after training")
        base.title(axes, "Latin squares: distance to 2d-fixed", name, width=60)
        base.label(axes, f"initial {SIGMA}", "Procrustes distance" if axes is bottom[0] else "")
    base.legend(figure, ["true grid", "simulated points"])
    return base.small_print(figure, SQUARES, "mean and 95% t interval over 15 seeds; points above are simulated")


# --------------------------------------------------------------------------------------------- modularity


def modularity() -> Figure:
    """Draw the similarity of nodes, with boxes around clusters, and modularity Q beside its null, at two sigmas."""
    run = run_of(NODES)
    figure, panels = base.panels(2, 2, (7.6, 6.6), sharey=False, width_ratios=[1, 1.25])
    for row, member in enumerate(trained_pes(run)):
        left, right = panels[2 * row : 2 * row + 2]
        labels, size = member.labels, int(np.bincount(member.labels)[0])
        q = float(modules.modularity(member.similarities, labels))
        shuffled = modules.modularity(member.similarities[None], labels[nulls.shuffles(labels, structure.DRAWS)])
        p = float(nulls.p_value(q, shuffled))
        image = _similarities(left, member.similarities[np.ix_(member.order, member.order)], size)
        box = {"fill": False, "edgecolor": INK, "linewidth": 1, "clip_on": False}
        for start in range(0, len(labels), size):
            left.add_patch(Rectangle((start - 0.5, start - 0.5), size, size, **box))
        base.title(left, f"learned PE, {SIGMA} = {member.sigma:g}", "boxes: true clusters")
        right.hist(shuffled, bins=np.linspace(-0.1, 0.5, 121), color=MUTED, alpha=0.7, label="shuffled labels")
        right.axvline(q, color=VERMILLION, linewidth=2, label="true clusters")
        right.set(xlim=(-0.1, 0.5))
        q_text = f"Q* = {round(q, 2) + 0.0:.2f}, p = {p:.3f}"  # no -0.00
        base.title(right, q_text, f"{len(shuffled):,} shuffles of the labels")
        base.label(right, "signed modularity Q*" if row else "", "shuffles")
    base.legend(figure)
    place = {"ax": panels[::2], "location": "bottom", "shrink": 0.7, "aspect": 30}
    base.colorbar(figure, image, "cosine similarity of centred PEs", **place)
    return base.small_print(figure, NODES, "a single member each")


# -------------------------------------------------------------------------------------- masked prediction


def masked_prediction() -> Figure:
    """Draw a simulated recording, one time point of it with half of the channels hidden, and the targets."""
    task = Network(nodes=20, clusters=4, train=2_000, test=200, worlds=1, seed=0).bind([Member(seed=0, mask_ratio=0.5)])
    split, n, times = task.splits["train"], 20, 61
    recording = split.inputs[0, :times].numpy()
    rows = (split.targets[None] == times - 1).nonzero()[:, 1][None]
    masked, targets = (array[0, 0].numpy() for array in task.batch("train", rows, step=0))
    inputs, hidden, targets = masked[:, 0], masked[:, 1] > 0, targets[:, 0]  # inputs are 0 where hidden
    figure, panels = base.panels(1, 3, (8.8, 4.6), sharey=True, width_ratios=[1.5, 1, 1])
    largest = float(np.abs(recording).max())
    left, middle, right = panels
    image = left.imshow(recording.T, cmap=COLORMAP, vmin=-largest, vmax=largest, aspect="auto", interpolation="none")
    left.add_patch(Rectangle((times - 1.5, -0.5), 1, n, fill=False, edgecolor=INK, linewidth=1.5, clip_on=False))
    left.set_yticks(range(n), [str(i + 1) for i in range(n)])
    base.label(left, "time", "channel = token")
    base.title(left, "a recording", "simulated network; the box is one example")
    channels = np.arange(n)
    middle.barh(channels[~hidden], inputs[~hidden], color=BLUE, height=0.6, label="shown")
    for channel in channels[hidden]:
        middle.text(0, channel, "?", ha="center", va="center", fontsize=9, color=VERMILLION, fontweight="bold")
    right.barh(channels[hidden], targets[hidden], color=VERMILLION, height=0.6, label="hidden, to be predicted")
    for axes, name, note in (
        (middle, "input of the model", f"{hidden.sum()} of {n} values are replaced by 0 and marked"),
        (right, "targets", "the loss is over these alone"),
    ):
        axes.axvline(0, color=MUTED, linewidth=0.8)
        axes.set(xlim=(-largest, largest))
        base.label(axes, "value (standard deviations)")
        base.title(axes, name, note, width=32)
    for axes in panels:
        for end in np.flatnonzero(np.diff(task.labels)):
            axes.axhline(end + 0.5, color=MUTED, linewidth=0.7, linestyle=(0, (2, 2)))
    base.legend(figure, ["shown"])
    base.colorbar(figure, image, "value", ax=left, location="bottom", shrink=0.6, aspect=30, pad=0.02)
    note = "simulated for this picture · dotted: borders of clusters, which the model does not know"
    figure.supxlabel(note, fontsize=7, color=MUTED, x=0.01, ha="left")  # no small print, since there is no run
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "positional-encoding": positional_encoding,
    "rich-and-lazy": rich_and_lazy,
    "procrustes": procrustes,
    "modularity": modularity,
    "masked-prediction": masked_prediction,
}
"""The functions that draw the pictures, by the name in the file."""


if __name__ == "__main__":
    for name, draw in PICTURES.items():
        save(draw(), IMAGES / f"concept-{name}.png")
