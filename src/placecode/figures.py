"""Result tables -> matplotlib figures. One function, one figure; means come with 95% intervals over seeds.

Figures are made without pyplot, so they hold no global state: they can be made in any thread and are freed like any
other object. Colours are those of Okabe and Ito, which colour-blind readers can tell apart; markers and line styles
differ too, so that a grey print reads as well. Every figure names its run in small print.

>>> figure = accuracy_by_sigma(run.members, run.metrics, run_name="lst-quick")
>>> save(figure, Path("figures/accuracy_by_sigma.png"))
"""

from __future__ import annotations

import html
import io
import json
import math
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
from matplotlib.ticker import EngFormatter, NullLocator

from placecode.analysis.stats import interval
from placecode.errors import must_be
from placecode.files import write_bytes

INK = "#1d2126"
"""Text, axes and the train curve. Inline SVG writes it as currentColor, so that a dark page can turn it light."""
MUTED = "#6d747d"
"""Small print, grids, the chance level: seen after the data. Readable on white and on near-black."""
BLUE, VERMILLION = "#0072B2", "#D55E00"
SPLITS: Mapping[str, Mapping[str, Any]] = {
    "train": {"color": INK, "marker": "o", "linestyle": (0, (1, 1.4))},
    "test": {"color": BLUE, "marker": "s", "linestyle": (0, (5, 2))},
    "validation": {"color": VERMILLION, "marker": "D", "linestyle": "-"},
}
"""How each split is drawn, in the order in which they are drawn and listed."""
MOST_SIGMAS = 6
"""Panels of learning curves for one sweep; more are thinned out evenly, the smallest and the largest kept."""
SIGMA = "\N{GREEK SMALL LETTER SIGMA}"
TEXT = 9.5
"""Size of titles and axis labels, in points."""

_NOT_SPEC = ("member", "sigma", "seed", "state", "diverged_at", "options", "encoding")
_SVG_SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "placecode"}
_SVG_COLORS = {
    INK: "currentColor",
    MUTED: f"var(--figure-muted, {MUTED})",
    BLUE.lower(): f"var(--figure-blue, {BLUE})",
    VERMILLION.lower(): f"var(--figure-vermillion, {VERMILLION})",
}
_SVG_LOCK = threading.Lock()  # matplotlib reads these settings from a global; two threads must not restore it crosswise


def accuracy_by_sigma(members: pd.DataFrame, metrics: pd.DataFrame, run_name: str, chance: float = 0.25) -> Figure:
    """Accuracy at the final step against sigma: each seed a faint dot, each mean with its 95% interval.

    One panel for each encoding that was run at several sigmas, and one for all the others, side by side on one scale.
    Bounds are clipped to [0, 1] for drawing only. A sigma at which every member diverged keeps its place, and says so.
    """
    settings = _labelled(members)
    final = _accuracies(settings, metrics)
    final = final[final["step"] == final.groupby("member")["step"].transform("max")]
    sweeps, others = _sweeps(settings)
    widths = [5.6] * len(sweeps) + [0.9 + 0.7 * len(others)] * bool(others)
    figure, panels = _panels(1, len(widths), (max(sum(widths) + 0.8, 6.4), 4.2), width_ratios=widths)
    for axes, label in zip(panels, sweeps, strict=False):
        sigmas = np.sort(settings.loc[settings["label"] == label, "sigma"].dropna().unique())
        _sigma_axis(axes, sigmas)
        _points(axes, final[final["label"] == label], "sigma", {sigma: sigma for sigma in sigmas}, line=True)
        axes.set_xlabel(f"initial scale {SIGMA} of the encoding", fontsize=TEXT)
        if len(widths) > 1:
            _title(axes, label)
    if others:
        axes = panels[-1]
        axes.set_xlim(-0.6, len(others) - 0.4)
        axes.set_xticks(range(len(others)), others, rotation=30, ha="right", rotation_mode="anchor", parse_math=False)
        _points(axes, final, "label", {label: i for i, label in enumerate(others)}, line=False)
        if sweeps:
            _title(axes, "other encodings")
        else:
            axes.set_xlabel("encoding", fontsize=TEXT)
    for axes in panels:
        _accuracy_axis(axes, chance)
    panels[0].set_ylabel("accuracy at the final step", fontsize=TEXT)
    _legend(figure)
    _small_print(figure, run_name, f"faint: single seeds; bars: {_means_over(final)}", settings)
    return figure


def learning_curves(members: pd.DataFrame, metrics: pd.DataFrame, run_name: str, chance: float = 0.25) -> Figure:
    """Accuracy against training step, a panel for each sigma (at most six of a sweep) and for each other encoding.

    Lines are means over seeds, bands their 95% intervals, clipped to [0, 1] for drawing only.
    """
    settings = _labelled(members)
    table = _accuracies(settings, metrics)
    sweeps, others = _sweeps(settings)
    wanted: list[tuple[str, float | None]] = []
    for label in sweeps:
        sigmas = np.sort(settings.loc[settings["label"] == label, "sigma"].dropna().unique())
        kept = np.unique(np.linspace(0, len(sigmas) - 1, min(len(sigmas), MOST_SIGMAS)).round().astype(int))
        wanted += [(label, float(sigmas[i])) for i in kept]
    wanted += [(label, None) for label in others]
    last = max(float(metrics["step"].max()), 1.0)
    columns = min(3, len(wanted))
    rows = -(-len(wanted) // columns)
    figure, panels = _panels(rows, columns, (max(2.75 * columns + 0.6, 5.6), 2.15 * rows + 0.9))
    for i, (axes, (label, sigma)) in enumerate(zip(panels, wanted, strict=False)):
        here = table[(table["label"] == label) & ((table["sigma"] == sigma) | (sigma is None))]
        for split, style in SPLITS.items():
            groups = list(here[here["split"] == split].groupby("step")["value"])
            steps = np.array([step for step, _ in groups], dtype=float)
            mean, low, high = np.array([interval(values.to_numpy()) for _, values in groups]).reshape(-1, 3).T
            axes.fill_between(steps, low.clip(0, 1), high.clip(0, 1), color=style["color"], alpha=0.16, linewidth=0)
            axes.plot(steps, mean, label=split, color=style["color"], linestyle=style["linestyle"], linewidth=1.6)
        if here.empty:
            axes.text(0.5, 0.6, "all members diverged", transform=axes.transAxes, ha="center", color=MUTED, fontsize=8)
        at = "" if sigma is None else f"{SIGMA} = {sigma:g}"
        _title(axes, at if at and len(sweeps) == 1 else ", ".join(part for part in (label, at) if part))
        _accuracy_axis(axes, chance)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.set_xlim(-0.02 * last, 1.02 * last)
        if i // columns == rows - 1:
            axes.set_xlabel("training step", fontsize=TEXT)
        if i % columns == 0:
            axes.set_ylabel("accuracy", fontsize=TEXT)
    for axes in panels[len(wanted) :]:
        axes.set_axis_off()
    _legend(figure)
    _small_print(figure, run_name, f"line and band: {_means_over(table)}", settings)
    return figure


Maps = npt.NDArray[Any] | tuple[npt.NDArray[Any] | None, npt.NDArray[Any] | None]


def similarity_maps(
    true: npt.NDArray[Any],
    small: Maps,
    large: Maps,
    labels: Sequence[str],
    run_name: str,
    titles: tuple[str, str, str] = (f"small {SIGMA}", f"large {SIGMA}", "true arrangement"),
    rule: int | None = None,
) -> Figure:
    """Similarity of the tokens' PEs, (n, n) each, at a small and a large sigma beside the true one, all on one scale.

    `small` and `large` are one map, after training, or a pair (before, after). `labels` name the tokens and are written
    for up to 25 of them. `rule` draws a thin line after every so many tokens: the length of a row, if they form a grid.

    >>> similarity_maps(true, (start, end), (start2, end2), names, "lst-quick", ("0.2", "2.0", "2-D sinusoid"), rule=4)
    """
    pairs = [maps if isinstance(maps, tuple) else (None, maps) for maps in (small, large)]
    rows = [row for row in (0, 1) if any(pair[row] is not None for pair in pairs)]
    n, named = len(true), len(true) <= 25
    for array in (true, *(pair[row] for pair in pairs for row in rows)):
        if array is not None and array.shape != (n, n):
            raise must_be("a similarity map", f"an array of shape ({n}, {n}), as the true one", array.shape)
    # Laid out in inches by hand: the maps stay square and equal, and the true one stands half-way between the rows.
    side, gap = 2.7, 0.16
    names = 0.12 + 0.058 * max((len(label) for label in labels), default=0) if named else 0.12
    left = names + 0.3
    width = left + 3 * side + gap + names + 0.35 + 0.95
    bottom = names + 0.35
    height = bottom + len(rows) * side + (len(rows) - 1) * gap + 0.4
    figure = Figure(figsize=(width, height))

    def panel(array: npt.NDArray[Any], x: float, y: float, edges: tuple[bool, bool]) -> Axes:
        axes = figure.add_axes((x / width, y / height, side / width, side / height))
        axes.imshow(array, cmap="RdBu_r", vmin=-1, vmax=1, interpolation="none")
        _plain(axes)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, pad=2)
        axes.set_xticks(range(n) if named and edges[0] else [], labels if named and edges[0] else [])
        axes.set_yticks(range(n) if named and edges[1] else [], labels if named and edges[1] else [])
        axes.tick_params("x", rotation=90)
        for text in (*axes.get_xticklabels(), *axes.get_yticklabels()):
            text.set(fontsize=6.5, parse_math=False)
        for edge in range(rule, n, rule) if rule else ():
            axes.axhline(edge - 0.5, color=MUTED, linewidth=0.5)
            axes.axvline(edge - 0.5, color=MUTED, linewidth=0.5)
        return axes

    for column, pair in enumerate(pairs):
        for i, row in enumerate(rows):
            if (array := pair[row]) is None:
                continue
            up = len(rows) - 1 - i
            axes = panel(array, left + column * (side + gap), bottom + up * (side + gap), (up == 0, column == 0))
            if i == 0:
                _title(axes, titles[column])
            if column == 0:
                axes.set_ylabel(("before training", "after training")[row], fontsize=TEXT, color=INK)
    middle = bottom + (len(rows) - 1) * (side + gap) / 2
    axes = panel(true, left + 2 * side + gap + names + 0.35, middle, (True, True))
    _title(axes, titles[2])
    bar_axes = figure.add_axes(((width - 0.8) / width, middle / height, 0.11 / width, side / height))
    bar = figure.colorbar(axes.images[0], cax=bar_axes, ticks=[-1, -0.5, 0, 0.5, 1])
    bar.outline.set_visible(False)
    bar_axes.tick_params(labelsize=7.5, color=MUTED, labelcolor=INK, length=2)
    bar.set_label("cosine similarity of two tokens", fontsize=8, color=INK)
    _small_print(figure, run_name, f"{n} tokens, in the same order along both sides of every map")
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write the figure as PNG, 150 dots per inch on white: the whole file or nothing."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=150, facecolor="white", metadata={"Software": None})
    write_bytes(Path(path), stream.getvalue())


def svg_text(figure: Figure, prefix: str = "figure", label: str = "") -> str:
    """The figure as an `<svg>` element to put into a page: the same figure gives the same text, byte for byte.

    Text stays text (it can be searched) in the page's font, on a transparent background. Colours follow the page too:
    ink is its `currentColor`, the others are CSS variables such as `--figure-muted` that fall back on the palette, so
    that a dark page can lighten them. All ids begin with `prefix`: give every figure of a page its own. `label` is what
    a screen reader says.
    """
    stream = io.StringIO()
    with _SVG_LOCK, matplotlib.rc_context(_SVG_SETTINGS):
        metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(stream, format="svg", transparent=True, metadata=metadata)
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    # matplotlib's style sheet would reach out of the picture to the whole page; the root element can hold it instead.
    text = re.sub(r"<style[^>]*>.*?</style>| font-family: [^;]+;", "", text, flags=re.DOTALL)
    said = html.escape(label)
    text = text.replace("<svg ", f'<svg role="img" aria-label="{said}" style="stroke-linejoin: round" ', 1)
    # Only ids that something refers to are kept: matplotlib's others say nothing, and are not always unique.
    used = {name: f"{prefix}-{i}" for i, name in enumerate(dict.fromkeys(re.findall(r'(?:="#|url\(#)([^")]+)', text)))}

    def follow_the_page(tag: re.Match[str]) -> str:
        kept = re.sub(r' id="([^"]+)"', lambda hit: f' id="{used[hit[1]]}"' if hit[1] in used else "", tag[0])
        kept = re.sub(r'(="#|url\(#)([^")]+)', lambda hit: hit[1] + used[hit[2]], kept)
        for color, name in _SVG_COLORS.items():
            kept = kept.replace(color, name)
        return kept

    return re.sub(r"<[^>]+>", follow_the_page, text)


def _labelled(members: pd.DataFrame) -> pd.DataFrame:
    """The members with a `label`: their encoding, and what else sets members of that encoding apart, sigma aside."""
    specs = [
        {**{name: row[name] for name in row if name not in _NOT_SPEC}, **json.loads(row.get("options") or "{}")}
        for row in members.to_dict("records")
    ]
    encodings = members["encoding"].astype(str).tolist()
    labels = []
    for encoding, spec in zip(encodings, specs, strict=True):
        kin = [other for name, other in zip(encodings, specs, strict=True) if name == encoding]
        varied = [name for name in spec if len({str(other.get(name)) for other in kin}) > 1]
        labels.append(", ".join([encoding, *(f"{str(name).replace('_', ' ')} {spec[name]}" for name in varied)]))
    return members.assign(label=labels, sigma=pd.to_numeric(members["sigma"]))


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


def _points(axes: Axes, table: pd.DataFrame, column: str, places: Mapping[Any, float], line: bool) -> None:
    """Dots of the seeds, and means with intervals, of each split at each place; splits stand a little apart."""
    for shift, (split, style) in zip((-1, 0, 1), SPLITS.items(), strict=True):
        rows = table[(table["split"] == split) & table[column].isin(list(places))]
        groups = [(places[key], values["value"].to_numpy()) for key, values in rows.groupby(column)]
        if not groups:
            continue
        x = np.array([place for place, _ in groups])
        color, marker = style["color"], style["marker"]
        near = 0.02 if line else 1.0
        for place, (_, values) in zip(_beside(axes, x, places, shift + 0.38, near), groups, strict=True):
            axes.plot(np.full(len(values), place), values, marker, color=color, alpha=0.3, markersize=3.6, mew=0)
        mean, low, high = np.array([interval(values) for _, values in groups]).T
        bars = axes.errorbar(
            _beside(axes, x, places, shift, near),
            mean,
            np.nan_to_num([mean - low.clip(0, 1), high.clip(0, 1) - mean]),
            label=split,
            color=color,
            marker=marker,
            linestyle=style["linestyle"] if line else "none",
            linewidth=1.3,
            markersize=5.4 if len(places) <= 10 else 4.2,
            capsize=2,
        )
        bars.lines[0].set_markeredgewidth(0)
    for lost in set(places) - set(table[column]):
        axes.text(
            places[lost], 0.5, "all members diverged", rotation=90, ha="center", va="center", color=MUTED, fontsize=8
        )


def _beside(
    axes: Axes, x: npt.NDArray[Any], places: Mapping[Any, float], shift: float, near: float
) -> npt.NDArray[Any]:
    """x moved by `shift` steps of a fifth of the smallest gap between places, or of `near` times the axis if less."""
    log = axes.get_xscale() == "log"
    ends = np.array(sorted(places.values()), dtype=float)
    ends, x = (np.log(ends), np.log(x)) if log else (ends, x)
    span = ends[-1] - ends[0] if len(ends) > 1 else 2.0
    moved = x + shift * min(near * span, np.diff(ends).min(initial=1.0) / 5)
    return np.asarray(np.exp(moved) if log else moved)


def _sigma_axis(axes: Axes, sigmas: npt.NDArray[Any]) -> None:
    """A tick at every sigma, or at about ten of them; a logarithmic scale where sigmas are spread unevenly."""
    gaps = np.diff(sigmas)
    if len(gaps) > 1 and sigmas[0] > 0 and gaps.max() > 2.5 * gaps.min():
        axes.set_xscale("log")
        axes.set_xlim(sigmas[0] / 1.25, sigmas[-1] * 1.25)
    else:
        room = 0.06 * (sigmas[-1] - sigmas[0]) or 1.0
        axes.set_xlim(sigmas[0] - room, sigmas[-1] + room)
    axes.xaxis.set_minor_locator(NullLocator())
    shown = sigmas[:: -math.ceil(len(sigmas) / 12)][::-1]  # counted from the largest
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
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)
    axes.set_facecolor("none")


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, fontsize=TEXT, color=INK, parse_math=False)


def _accuracy_axis(axes: Axes, chance: float) -> None:
    axes.set_ylim(-0.02, 1.03)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.grid(axis="y", color=MUTED, alpha=0.22, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.axhline(chance, color=MUTED, linewidth=1.1, linestyle=(0, (6, 2, 1, 2)), label="chance", zorder=1)


def _legend(figure: Figure) -> None:
    """One legend for all panels, above them."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        handles, names = axes.get_legend_handles_labels()
        found = dict(zip(names, handles, strict=True)) | found
    names = [name for name in (*SPLITS, "chance") if name in found]
    handles = [found[name] for name in names]
    figure.legend(handles, names, loc="outside upper left", ncols=4, frameon=False, fontsize=9, labelcolor=INK)


def _means_over(table: pd.DataFrame) -> str:
    """What the means are over: "... over 3 seeds", or "... over 2 to 3 seeds" where some were lost."""
    counts = table.groupby(["label", "sigma", "split", "step"], dropna=False)["member"].nunique()
    low, high = (int(counts.min()), int(counts.max())) if len(counts) else (0, 0)
    if high < 2:
        return "a single seed, so no interval"
    return f"mean and 95% t interval over {f'{low} to ' if low < high else ''}{high} seeds"


def _small_print(figure: Figure, run_name: str, note: str, settings: pd.DataFrame | None = None) -> None:
    """The last lines of a figure: which run, how to read it, and who was left out."""
    name = run_name if len(run_name) <= 60 else run_name[:28] + "…" + run_name[-28:]
    text = f"run {name} · {note}"
    if settings is not None and (lost := int((settings["state"] != "done").sum())):
        text += f"\n{lost} of {len(settings)} members diverged and are left out"
    place = {} if figure.get_layout_engine() else {"y": 0.01, "va": "bottom"}  # the engine finds room for it by itself
    figure.supxlabel(text, fontsize=7, color=MUTED, x=0.01, ha="left", parse_math=False, **place)
