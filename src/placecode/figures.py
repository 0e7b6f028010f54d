"""Result tables -> matplotlib figures. One function, one figure; means come with 95% intervals over seeds.

Figures are made without pyplot, so they hold no global state: they can be made in any thread and are freed like any
other object. Colours are those of Okabe and Ito, which colour-blind readers can tell apart; markers and line styles differ
too, so that a grey print reads as well. Every figure names its run in small print.

>>> figure = accuracy_by_sigma(run.members, run.metrics, run_name="lst-quick")
>>> save(figure, Path("figures/accuracy_by_sigma.png"))
"""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, NullFormatter, NullLocator

from placecode.analysis.stats import interval
from placecode.errors import must_be
from placecode.files import write_bytes

INK = "#1d2126"
"""Text, axes and the train curve. Inline SVG writes it as currentColor, so that a dark page can turn it light."""
MUTED = "#6d747d"
"""Small print, grids, the chance level: seen after the data. Readable on white and on near-black."""
SPLITS: Mapping[str, Mapping[str, Any]] = {
    "train": {"color": INK, "marker": "o", "linestyle": (0, (1, 1.4))},
    "test": {"color": "#0072B2", "marker": "s", "linestyle": (0, (5, 2))},
    "validation": {"color": "#D55E00", "marker": "D", "linestyle": "-"},
}
"""How each split is drawn, in the order in which they are drawn and listed."""
MOST_SIGMAS = 6
"""Panels of learning curves for one sweep; more are thinned out evenly, the smallest and the largest kept."""

_NOT_SPEC = ("member", "sigma", "seed", "state", "diverged_at", "options", "encoding")
_SVG_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "placecode"}
_SVG_LOCK = threading.Lock()  # matplotlib reads these settings from a global; two threads must not restore it crosswise


def accuracy_by_sigma(members: pd.DataFrame, metrics: pd.DataFrame, run_name: str, chance: float = 0.25) -> Figure:
    """Accuracy at the final step against sigma: each seed a faint dot, each mean with its 95% interval.

    One panel for each encoding that was run at several sigmas, and one for all the others, side by side on one scale.
    Bounds are clipped to [0, 1] for drawing only.
    """
    settings = _settings(members)
    final = _accuracies(settings, metrics)
    final = final[final["step"] == final.groupby("member")["step"].transform("max")]
    sweeps, others = _sweeps(settings)
    widths = [4.6] * len(sweeps) + [0.9 + 0.75 * len(others)] * bool(others)
    figure, panels = _panels(1, len(widths), (max(sum(widths) + 0.8, 6.2), 4.1), width_ratios=widths)
    for axes, label in zip(panels, sweeps, strict=False):
        table = final[final["label"] == label]
        sigmas = np.sort(table["sigma"].unique())
        _sigma_axis(axes, sigmas)
        _points(axes, table, {sigma: sigma for sigma in sigmas}, line=True)
        axes.set_xlabel("initial scale σ of the encoding")
        if len(widths) > 1:
            axes.set_title(label, parse_math=False)
    if others:
        axes = panels[-1]
        _points(axes, final.assign(sigma=final["label"]), {label: i for i, label in enumerate(others)}, line=False)
        axes.set_xlim(-0.6, len(others) - 0.4)
        axes.set_xticks(range(len(others)), others, rotation=30, ha="right", rotation_mode="anchor", parse_math=False)
        axes.set_xlabel("encoding")
    for axes in panels:
        _accuracy_axis(axes, chance)
    panels[0].set_ylabel("accuracy at the final step")
    _legend(figure, panels[0])
    _small_print(figure, run_name, settings, "dot: one seed; marker and bar: mean and 95% t interval over seeds")
    return figure


def learning_curves(members: pd.DataFrame, metrics: pd.DataFrame, run_name: str, chance: float = 0.25) -> Figure:
    """Accuracy against training step, a panel for each sigma (at most six of a sweep) and for each other encoding.

    Lines are means over seeds, bands their 95% intervals, clipped to [0, 1] for drawing only.
    """
    settings = _settings(members)
    table = _accuracies(settings, metrics)
    sweeps, others = _sweeps(settings)
    wanted: list[tuple[str, float | None]] = []
    for label in sweeps:
        sigmas = np.sort(settings.loc[settings["label"] == label, "sigma"].dropna().unique())
        kept = np.unique(np.linspace(0, len(sigmas) - 1, min(len(sigmas), MOST_SIGMAS)).round().astype(int))
        wanted += [(label, float(sigmas[i])) for i in kept]
    wanted += [(label, None) for label in others]
    columns = min(3, len(wanted))
    rows = -(-len(wanted) // columns)
    figure, panels = _panels(rows, columns, (max(2.75 * columns + 0.6, 5.2), 2.2 * rows + 0.9))
    for axes, (label, sigma) in zip(panels, wanted, strict=False):
        here = table[(table["label"] == label) & ((table["sigma"] == sigma) | (sigma is None))]
        for split, style in SPLITS.items():
            groups = here[here["split"] == split].groupby("step")["value"]
            steps = np.array(list(groups.groups), dtype=float)
            mean, low, high = np.array([interval(values.to_numpy()) for _, values in groups]).reshape(-1, 3).T
            axes.fill_between(steps, low.clip(0, 1), high.clip(0, 1), color=style["color"], alpha=0.16, lw=0)
            axes.plot(steps, mean, label=split, color=style["color"], linestyle=style["linestyle"], linewidth=1.6)
        name = label if sigma is None else f"σ = {sigma:g}" if len(sweeps) == 1 else f"{label}, σ = {sigma:g}"
        axes.set_title(name, parse_math=False)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.margins(x=0.02)
        _accuracy_axis(axes, chance)
    for axes in panels[len(wanted) :]:
        axes.set_axis_off()
    for i, axes in enumerate(panels[: len(wanted)]):
        if i + columns >= len(wanted):  # nothing below it
            axes.set_xlabel("training step")
            axes.tick_params(labelbottom=True)
        if i % columns == 0:
            axes.set_ylabel("accuracy")
    _legend(figure, panels[0])
    _small_print(figure, run_name, settings, "line and band: mean and 95% t interval over seeds")
    return figure


Maps = npt.NDArray[Any] | tuple[npt.NDArray[Any] | None, npt.NDArray[Any]]


def similarity_maps(
    true: npt.NDArray[Any],
    small: Maps,
    large: Maps,
    labels: Sequence[str],
    run_name: str,
    titles: tuple[str, str, str] = ("small σ", "large σ", "true arrangement"),
    rule: int | None = None,
) -> Figure:
    """Similarity of the tokens' PEs, (n, n) each, at a small and a large sigma beside the true one, all on one scale.

    `small` and `large` are one map, after training, or a pair (before, after). `labels` name the tokens and are written
    for up to 25 of them. `rule` draws a thin line after every so many tokens: the length of a row, if they form a grid.

    >>> similarity_maps(true, (start[0], end[0]), (start[1], end[1]), names, "lst-quick", ("σ = 0.2", "σ = 2", "2-D"), 4)
    """
    pairs = [maps if isinstance(maps, tuple) else (None, maps) for maps in (small, large)]
    rows = [row for row in (0, 1) if any(pair[row] is not None for pair in pairs)]
    n = len(true)
    for array in (true, *(pair[row] for pair in pairs for row in rows)):
        if array is not None and array.shape != (n, n):
            raise must_be("a similarity map", f"an array of shape ({n}, {n}), as the true one", array.shape)
    side = 3.0
    figure = Figure(figsize=(3 * side + 1.1, len(rows) * side + 0.9), layout="constrained")
    grid = figure.add_gridspec(2 * len(rows), 3)  # twice the rows, so that the true map can stand half-way
    panels, image = [], None
    for column, pair in enumerate(pairs):
        for i, row in enumerate(rows):
            if (array := pair[row]) is None:
                continue
            axes = figure.add_subplot(grid[2 * i : 2 * i + 2, column])
            when = "before training" if row == 0 else "after training"
            axes.set_title(f"{titles[column]}, {when}", parse_math=False)
            image = axes.imshow(array, cmap="RdBu_r", vmin=-1, vmax=1, interpolation="none")
            panels.append(axes)
    axes = figure.add_subplot(grid[len(rows) - 1 : len(rows) + 1, 2])
    axes.set_title(titles[2], parse_math=False, fontweight="bold")
    image = axes.imshow(true, cmap="RdBu_r", vmin=-1, vmax=1, interpolation="none")
    panels.append(axes)
    for axes in panels:
        _plain(axes)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, pad=2)
        if n <= 25:
            axes.set_xticks(range(n), labels, rotation=90, fontsize=6.5, parse_math=False)
            axes.set_yticks(range(n), labels, fontsize=6.5, parse_math=False)
        else:
            axes.set_xlabel(f"token (1 to {n})")
            axes.set_xticks([])
            axes.set_yticks([])
        for edge in range(rule, n, rule) if rule else ():
            axes.axhline(edge - 0.5, color=MUTED, linewidth=0.6)
            axes.axvline(edge - 0.5, color=MUTED, linewidth=0.6)
    bar = figure.colorbar(image, ax=panels, shrink=0.6, aspect=30, pad=0.02, ticks=[-1, -0.5, 0, 0.5, 1])
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.ax.tick_params(labelsize=8, colors=INK, length=2)
    bar.set_label("cosine similarity of two tokens", fontsize=8.5, color=INK)
    _small_print(figure, run_name, None, "")
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write the figure as PNG, 150 dots per inch on white: the whole file or nothing."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=150, facecolor="white", metadata={"Software": None})
    write_bytes(Path(path), stream.getvalue())


def svg_text(figure: Figure, prefix: str = "figure") -> str:
    """The figure as an `<svg>` element to put into a page: the same figure gives the same text, byte for byte.

    Text stays text (it can be searched, and takes the page's font), ink is `currentColor`, the background is
    transparent. All ids begin with `prefix`: give every figure of a page its own.
    """
    stream = io.StringIO()
    with _SVG_LOCK, matplotlib.rc_context(_SVG_SETTINGS):
        metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(stream, format="svg", transparent=True, metadata=metadata)
    text = stream.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    ids = {name: f"{prefix}-{i}" for i, name in enumerate(dict.fromkeys(re.findall(r'\bid="([^"]+)"', text)))}
    return re.sub(r'(\bid="|="#|url\(#)([^")]+)', lambda hit: hit[1] + ids.get(hit[2], hit[2]), text)


def _settings(members: pd.DataFrame) -> pd.DataFrame:
    """The members with a `label`: their encoding, and what else sets members of that encoding apart, sigma aside."""
    options = members["options"] if "options" in members else pd.Series("{}", index=members.index)
    flat = members.join(pd.DataFrame([json.loads(text or "{}") for text in options], index=members.index), rsuffix="_")
    labels = flat["encoding"].astype(str)
    for encoding, group in flat.groupby("encoding"):
        varied = [name for name in group if name not in _NOT_SPEC and group[name].astype(str).nunique() > 1]
        for name in varied:
            labels.loc[group.index] += ", " + name.replace("_", " ") + " " + group[name].astype(str)
        del encoding
    return flat.assign(label=labels, sigma=pd.to_numeric(flat["sigma"]))


def _sweeps(settings: pd.DataFrame) -> tuple[list[str], list[str]]:
    """The labels that were run at several sigmas (or at one, if none was at several), and all other labels."""
    sigmas = settings.groupby("label", sort=False)["sigma"].nunique()
    enough = min(2, int(sigmas.max()))
    swept = [str(label) for label in sigmas.index if enough and sigmas[label] >= enough]
    return swept, [str(label) for label in sigmas.index if label not in swept]


def _accuracies(settings: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """Accuracy over all examples, with each row's label and sigma; members that diverged are left out."""
    rows = metrics[(metrics["metric"] == "accuracy") & (metrics["condition"] == "all")]
    done = settings.loc[settings["state"] == "done", ["member", "label", "sigma"]]
    return rows.merge(done, on="member")


def _points(axes: Axes, table: pd.DataFrame, places: Mapping[Any, float], line: bool) -> None:
    """Dots of the seeds, and means with intervals, of each split at each place; splits stand a little apart."""
    apart = _apart(axes, list(places.values()))
    for shift, (split, style) in zip((-1, 0, 1), SPLITS.items(), strict=True):
        rows = table[(table["split"] == split) & table["sigma"].isin(list(places))]
        groups = [(apart(places[sigma], shift), values["value"].to_numpy()) for sigma, values in rows.groupby("sigma")]
        for x, values in groups:
            axes.plot(
                np.full(len(values), x), values, style["marker"], color=style["color"], alpha=0.28, markersize=4, mew=0
            )
        if not groups:
            continue
        x = np.array([place for place, _ in groups])
        mean, low, high = np.array([interval(values) for _, values in groups]).T
        bars = np.nan_to_num([mean - low.clip(0, 1), high.clip(0, 1) - mean])
        axes.errorbar(
            *(x, mean, bars),
            **{**style, "linestyle": style["linestyle"] if line else "none"},
            **{"label": split, "linewidth": 1.4, "elinewidth": 1.4, "capsize": 2.5, "markersize": 6},
        )


def _apart(axes: Axes, places: Sequence[float]) -> Any:
    """A function (place, shift) -> x that sets three splits apart by a seventh of the smallest gap between places."""
    if axes.get_xscale() == "log":
        step = min(np.diff(np.log(places)), default=1.0) / 7
        return lambda place, shift: place * np.exp(shift * min(step, 0.08))
    step = min(np.diff(places), default=1.0) / 7
    return lambda place, shift: place + shift * step


def _sigma_axis(axes: Axes, sigmas: npt.NDArray[Any]) -> None:
    """A tick at every sigma, or at about ten of them; a logarithmic scale where sigmas are spread unevenly."""
    gaps = np.diff(sigmas)
    if len(gaps) > 1 and sigmas[0] > 0 and gaps.max() > 2.5 * gaps.min():
        axes.set_xscale("log")
        axes.margins(x=0.08)
    elif len(gaps) == 0:
        axes.set_xlim(sigmas[0] - 1, sigmas[0] + 1)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    shown = sigmas[:: -(-len(sigmas) // 12)]
    axes.set_xticks(shown, [f"{sigma:g}" for sigma in shown])


def _panels(rows: int, columns: int, size: tuple[float, float], **grid: Any) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False, gridspec_kw=grid).ravel()
    for axes in panels:
        _plain(axes)
    return figure, list(panels)


def _plain(axes: Axes) -> None:
    """No box, quiet ticks, ink from the palette."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[:].set_color(MUTED)
    axes.tick_params(labelsize=8.5, color=MUTED, labelcolor=INK, length=3)
    axes.xaxis.label.set(fontsize=9.5, color=INK)
    axes.yaxis.label.set(fontsize=9.5, color=INK)
    axes.title.set(fontsize=9.5, color=INK)
    axes.set_facecolor("none")


def _accuracy_axis(axes: Axes, chance: float) -> None:
    axes.set_ylim(-0.02, 1.03)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.grid(axis="y", color=MUTED, alpha=0.22, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.axhline(chance, color=MUTED, linewidth=1.1, linestyle=(0, (6, 2, 1, 2)), label="chance", zorder=1)


def _legend(figure: Figure, axes: Axes) -> None:
    handles, names = axes.get_legend_handles_labels()
    order = sorted(range(len(names)), key=lambda i: [*SPLITS, "chance"].index(names[i]))
    figure.legend(
        *([handles[i] for i in order], [names[i] for i in order]),
        **{"loc": "outside upper center", "ncols": 4, "frameon": False, "fontsize": 9, "labelcolor": INK},
    )


def _small_print(figure: Figure, run_name: str, settings: pd.DataFrame | None, note: str) -> None:
    """Last line of a figure: which run, how to read it, and who was left out."""
    parts = [f"run {run_name if len(run_name) <= 60 else run_name[:28] + '…' + run_name[-28:]}", note]
    if settings is not None and (lost := int((settings["state"] != "done").sum())):
        parts.append(f"{lost} of {len(settings)} members diverged and are left out")
    text = "\n".join([" · ".join(part for part in parts[:2] if part), *parts[2:]])
    figure.supxlabel(text, fontsize=7, color=MUTED, x=0.01, ha="left", parse_math=False)
