"""Helpers that all figures use: colours, panels, axes, means over seeds and the small print below a figure.

Figures are made without pyplot, so they can be made in any thread and are freed like any other object. Colours are the
colour-blind safe palette of Okabe and Ito. Markers and line styles differ too, for reading in grey.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.legend import Legend
from matplotlib.ticker import MaxNLocator, NullLocator

from placecode.analysis.stats import interval
from placecode.arrays import AnyArray
from placecode.experiments.specs import SIGMA as SIGMA

INK = "#1d2126"
"""Colour of text, axes and the train curve. In an HTML page, `svg_text` replaces it by the text colour of the page."""
MUTED = "#6d747d"
"""Colour of small print, grids and the chance level. Readable on white and on near-black."""
PAPER = "#fffffe"
"""Colour inside hollow markers: nearly white and used for no other purpose, so that `svg_text` can replace it."""
BLUE, VERMILLION = "#0072B2", "#D55E00"
GREEN, ORANGE, PURPLE = "#009E73", "#E69F00", "#CC79A7"
SPLITS: Mapping[str, Mapping[str, Any]] = {
    "train": {"color": INK, "marker": "o", "linestyle": (0, (1, 1.4))},
    "test": {"color": BLUE, "marker": "s", "linestyle": (0, (5, 2))},
    "ood": {"color": VERMILLION, "marker": "D", "linestyle": "-"},
}
"""Style of each split of the data. Splits are drawn, and listed in legends, in this order."""
LINE_STYLES: Sequence[Mapping[str, Any]] = (
    {"color": INK, "marker": "o", "linestyle": "-"},
    {"color": BLUE, "marker": "s", "linestyle": (0, (5, 2))},
    {"color": VERMILLION, "marker": "D", "linestyle": (0, (3, 1.2, 1, 1.2))},
    {"color": GREEN, "marker": "^", "linestyle": (0, (1, 1.4))},
    {"color": PURPLE, "marker": "v", "linestyle": (0, (7, 1.5, 1, 1.5, 1, 1.5))},
    {"color": ORANGE, "marker": "P", "linestyle": (0, (2, 3))},
)
"""Styles of lines that are not splits: the first line has the first style, and so on."""
TEXT = 9.5
"""Font size of titles and axis labels, in points."""
SMALL = 7.5
"""Font size of notes and of labels inside a panel, in points."""
MIN_WIDTH = 4.4
"""Minimum width of a figure in inches, enough for legend and small print."""
SIGMA_LABEL = f"initial scale {SIGMA} of the encoding"
SIGMA_COLORS, SHADES = "cividis", "Blues"
"""Colour maps over sigma and over other values, both monotonic in greyscale."""
ALL_DIVERGED = "all members diverged"

Style = dict[str, Any]
"""Keyword arguments for a function of matplotlib."""


def finite(table: pd.DataFrame, values: Sequence[str] = ("value",)) -> tuple[pd.DataFrame, str]:
    """Return the rows in which all columns `values` are finite, and a note on how many are left out ("" if none)."""
    rows = table[np.isfinite(table[list(values)].to_numpy(dtype=float)).all(axis=1)]
    missing = len(table) - len(rows)
    note = f"{missing} of {len(table)} values are missing (diverged, or not defined) and left out"
    return rows, note if missing else ""


def means(table: pd.DataFrame, by: Sequence[str], value: str = "value") -> pd.DataFrame:
    """Return the mean of the column `value` and its 95% t interval for each group of rows with equal values in `by`.

    The result has one row per group, sorted, with the columns `by`, mean, low and high.
    """
    rows = [(*key, *interval(group)) for key, group in table.groupby(list(by))[value]]
    return pd.DataFrame(rows, columns=[*by, "mean", "low", "high"])


def seeds_note(table: pd.DataFrame, by: Sequence[str], unit: str = "seed") -> str:
    """Return a note on how many seeds a mean is over: "... over 3 seeds", or "... over 2 to 3 seeds" if numbers differ.

    A mean is over rows with equal values in the columns `by`. Seeds are counted as unique values in the column `unit`.
    """
    counts = table.groupby(list(by), dropna=False)[unit].nunique()
    low, high = (int(counts.min()), int(counts.max())) if len(counts) else (0, 0)
    if high < 2:
        return "a single seed, so no interval" if high else "no values"
    return f"mean and 95% t interval over {f'{low} to ' if low < high else ''}{high} seeds"


def summarized(table: pd.DataFrame, by: Sequence[str]) -> tuple[pd.DataFrame, str, str]:
    """Return the `means` of the finite values, a note on the number of seeds, and a note on missing values."""
    rows, missing = finite(table)
    return means(rows, by), seeds_note(rows, by), missing


def diverged_note(members: pd.DataFrame) -> str:
    """Return a note on how many members diverged ("" if none)."""
    diverged = int((members["state"] != "done").sum())
    return f"{diverged} of {len(members)} members diverged and are left out" if diverged else ""


def errorbar_lengths(rows: pd.DataFrame, bounds: tuple[float, float] | None = None) -> AnyArray:
    """Return the lengths (2, k) of error bars below and above each mean; 0 for a mean without an interval.

    `rows` is a table from `means`. Intervals are clipped to `bounds`, since the interval of an accuracy may exceed 1.
    """
    mean, low, high = (rows[name].to_numpy(dtype=float) for name in ("mean", "low", "high"))
    low, high = (np.clip(end, *bounds) for end in (low, high)) if bounds else (low, high)
    return np.asarray(np.nan_to_num([mean - low, high - mean]).clip(min=0))


def sorted_sigmas(table: pd.DataFrame) -> AnyArray:
    """Return the unique values in the column sigma, sorted."""
    return np.sort(table["sigma"].unique().astype(float))


def unique_in_order(values: pd.Series) -> list[Any]:
    """Return the unique values, in the order of their first appearance."""
    return list(dict.fromkeys(values.tolist()))


def thinned(values: Sequence[float] | AnyArray, most: int) -> list[float]:
    """Return at most `most` of the values, sorted and evenly spread, including the smallest and the largest."""
    ordered = np.unique(np.asarray(values, dtype=float))
    chosen = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), most)).round().astype(int))
    return [float(ordered[i]) for i in chosen]


Panels = tuple[Figure, list[Axes]]


def panels(rows: int, columns: int, size: tuple[float, float], sharey: bool = True, **grid: Any) -> Panels:
    """Make a figure of `size` inches and return it with its panels, row by row. `grid` has arguments of GridSpec."""
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(h_pad=0.06))
    drawn = figure.subplots(rows, columns, sharey=sharey, squeeze=False, gridspec_kw=grid).ravel()
    for axes in drawn:
        style_axes(axes)
    return figure, list(drawn)


def grid_shape(count: int, most: int) -> tuple[int, int]:
    """Return the numbers of rows and columns for `count` panels: rows of similar length, at most `most` panels each."""
    rows = max(1, -(-count // most))
    return rows, max(1, -(-count // rows))


def panel_grid(
    count: int, most: int, side: tuple[float, float], extra: tuple[float, float] = (0.6, 0.9), sharey: bool = True
) -> Panels:
    """Make a figure with `count` panels, at most `most` in a row; return the figure and the panels.

    `side` is the approximate (width, height) of a panel in inches, and `extra` is added to the (width, height) of the
    figure. If `count` is 0, there is one panel, which says "no values".
    """
    rows, columns = grid_shape(count, most)
    size = (max(side[0] * columns + extra[0], MIN_WIDTH), side[1] * rows + extra[1])
    figure, drawn = panels(rows, columns, size, sharey)
    for axes in drawn[max(count, 1) :]:
        axes.set_axis_off()
    if count == 0:
        write_empty_note(drawn[0])
    return figure, drawn[: max(count, 1)]


def add_axes_inches(figure: Figure, x: float, y: float, wide: float, tall: float) -> Axes:
    """Add a panel with the lower left corner (x, y) and the size (wide, tall), in inches, to a figure and return it."""
    width, height = figure.get_size_inches()
    axes = figure.add_axes((x / width, y / height, wide / width, tall / height))
    style_axes(axes)
    return axes


def is_outer_panel(axes: Axes) -> tuple[bool, bool]:
    """Return whether a panel is the leftmost of its row, and whether it is the lowest of its column."""
    place, *others = (other.get_subplotspec() for other in (axes, *axes.figure.axes) if other.axison)
    assert place is not None
    rows = [other.rowspan.start for other in others if other and other.colspan.start == place.colspan.start]
    return place.is_first_col(), place.rowspan.start == max(rows)


def style_axes(axes: Axes) -> None:
    """Hide the upper and right border of a panel, and set the colours of its ticks and labels."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[:].set_color(MUTED)
    axes.tick_params(labelsize=8.5, color=MUTED, labelcolor=INK, length=3)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)
    axes.set_facecolor("none")


def write_empty_note(axes: Axes, text: str = "no values") -> None:
    """Write in the middle of a panel why nothing is drawn in it."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=MUTED, fontsize=8)


def title(axes: Axes, text: str, note: str = "", width: int = 44) -> None:
    """Set the title of a panel and a smaller note below it. Both are wrapped to the width of `width` small letters."""
    head, lines = wrapped(short(text, 90), round(width * SMALL / TEXT)), wrapped(note, width)
    if note:
        below: Style = {"transform": axes.transAxes, "ha": "center", "va": "bottom", "linespacing": 1.25}
        axes.text(0.5, 1.02, lines, fontsize=SMALL, color=MUTED, parse_math=False, **below)
    pad = 6 + 1.25 * SMALL * (lines.count("\n") + 1) + 1 if note else 6
    axes.set_title(head, fontsize=TEXT, color=INK, parse_math=False, pad=pad)


def label(axes: Axes, x: str = "", y: str = "") -> None:
    """Set the labels of the x and y axes. A label that is empty is not set."""
    for text, setter in ((x, axes.set_xlabel), (y, axes.set_ylabel)):
        if text:
            setter(text, fontsize=TEXT, color=INK, parse_math=False)


def label_edges(axes: Axes, x: str = "", y: str = "") -> None:
    """Set the x label if the panel is the lowest of its column, and the y label if it is the leftmost of its row."""
    first, last = is_outer_panel(axes)
    label(axes, x if last else "", y if first else "")


def wrapped(text: str, width: int, even: bool = True) -> str:
    """Wrap a text to lines of at most `width` letters; with `even`, of similar length. Existing line breaks stay."""
    lines = []
    for line in text.split("\n"):
        parts = textwrap.wrap(line, width)
        narrower = (textwrap.wrap(line, less) for less in range(width - 1, 0, -1))
        while even and len(parts) > 1 and len(better := next(narrower, [])) == len(parts):
            parts = better
        lines += parts or [""]
    return "\n".join(lines)


def short(text: str, most: int = 60) -> str:
    """Return the text; if it has more than `most` letters, an ellipsis replaces its middle."""
    return text if len(text) <= most else text[: most // 2 - 2] + "…" + text[2 - most // 2 :]


def is_uneven(sigmas: AnyArray) -> bool:
    """Return whether sorted sigmas are spaced so unevenly that a logarithmic scale is better."""
    gaps = np.diff(sigmas)
    return len(gaps) > 1 and bool(sigmas[0] > 0 and gaps.max() > 2.5 * gaps.min())


def sigma_axis(axes: Axes, sigmas: AnyArray, most: int = 12) -> None:
    """Set up the x axis for sorted sigmas, with at most `most` ticks; logarithmic if sigmas are spaced unevenly."""
    if is_uneven(sigmas):
        axes.set_xscale("log")
        axes.set_xlim(sigmas[0] / 1.25, sigmas[-1] * 1.25)
    else:
        room = 0.06 * (sigmas[-1] - sigmas[0]) or 1.0
        axes.set_xlim(sigmas[0] - room, sigmas[-1] + room)
    axes.xaxis.set_minor_locator(NullLocator())
    ticks = sigmas[:: -math.ceil(len(sigmas) / most)][::-1]  # counted from the largest
    axes.set_xticks(ticks, [f"{sigma:g}" for sigma in ticks])


def dodge(axes: Axes, x: Any, ticks: Sequence[float] | AnyArray, steps: float, step: float = 0.008) -> AnyArray:
    """Return the positions `x` on the x axis, shifted by `steps` small steps so that the marks of lines do not overlap.

    `steps` may be negative or a fraction. The length of a step is `step` times the range of the `ticks`, but at most a
    fifth of the smallest gap between them. On a logarithmic axis, logarithms are shifted.
    """
    log = axes.get_xscale() == "log"
    at, edges = (np.log(values) if log else np.asarray(values, dtype=float) for values in (x, np.sort(ticks)))
    moved = at + steps * min(step * (np.ptp(edges) or 2.0), np.diff(edges).min(initial=1.0) / 5)
    return np.asarray(np.exp(moved) if log else moved)


def sigma_colors(sigmas: AnyArray) -> Normalize:
    """Return the matplotlib norm that maps sigmas to colours; it is logarithmic if sigmas are spaced unevenly."""
    if len(sigmas) == 0:
        return Normalize(0, 1)
    return (LogNorm if is_uneven(sigmas) else Normalize)(sigmas[0], sigmas[-1] if len(sigmas) > 1 else sigmas[0] + 1)


def accuracy_axis(axes: Axes, chance: float, along: Literal["x", "y"] = "y") -> None:
    """Set up the axis `along` for accuracies: from 0 to 1, with light grid lines and a line at the chance level."""
    axes.set(**{f"{along}lim": (-0.02, 1.03), f"{along}ticks": [0, 0.25, 0.5, 0.75, 1]})
    chance_line(axes, chance, along)
    light_grid(axes, along)


def chance_line(axes: Axes, level: float, along: Literal["x", "y"] = "y") -> None:
    """Draw a dashed line at `level`, the result of guessing: horizontal if `along` is "y", vertical if it is "x"."""
    dashed: Style = {"color": MUTED, "linewidth": 1.1, "linestyle": (0, (6, 2, 1, 2)), "label": "chance", "zorder": 1}
    (axes.axhline if along == "y" else axes.axvline)(level, **dashed)


def light_grid(axes: Axes, along: Literal["x", "y", "both"] = "y") -> None:
    """Draw light grid lines at the ticks of the axis `along`."""
    axes.grid(axis=along, color=MUTED, alpha=0.22, linewidth=0.6)
    axes.set_axisbelow(True)


def errorbars(axes: Axes, x: Any, y: Any, hollow: bool = False, **style: Any) -> ErrorbarContainer:
    """Draw points with error bars, filled or hollow, as in all figures. `style` has arguments of `Axes.errorbar`."""
    drawn = axes.errorbar(
        np.asarray(x), np.asarray(y), **{"linestyle": "none", "capsize": 0, "elinewidth": 1.1, **style}
    )
    line = drawn.lines[0]
    line.set(markerfacecolor=PAPER if hollow else style["color"], markeredgewidth=1.2 if hollow else 0)
    return drawn


def draw_means(
    axes: Axes,
    rows: pd.DataFrame,
    at: Any,
    bounds: tuple[float, float] | None = None,
    along: Literal["x", "y"] = "y",
    shift: float = 0.0,
    **style: Any,
) -> None:
    """Draw the means in `rows` (columns mean, low, high) with intervals clipped to `bounds`; nothing without rows.

    Means are values on the axis `along`; `at` are their positions on the other axis, to which `shift` is added.
    """
    if rows.empty:
        return
    places, reach = np.asarray(at) + shift, errorbar_lengths(rows, bounds)
    if along == "y":
        errorbars(axes, places, rows["mean"], yerr=reach, **style)
    else:
        errorbars(axes, rows["mean"], places, xerr=reach, **style)


def legend(figure: Figure, order: Sequence[str] = (), columns: int | None = 4) -> None:
    """Draw one legend for all panels, above them: names in `order` first, then other names, then "chance".

    If `columns` is None, the legend has as many columns as fit, at most six. The figure then becomes higher by each row
    of the legend beyond the second.
    """
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        handles, names = axes.get_legend_handles_labels()
        entries = dict(zip(names, handles, strict=True)) | entries
    names = [name for name in dict.fromkeys([*order, *entries]) if name in entries and name != "chance"]
    names += ["chance"] if "chance" in entries else []
    if not names:
        return
    if columns is None:
        width, height = figure.get_size_inches()
        longest = max(len(short(name)) for name in names)
        columns = max(1, min(6, int(width / (0.08 * longest + 0.55))))
        figure.set_size_inches(width, height + 0.2 * max(-(-len(names) // columns) - 2, 0))
    look: Style = {"ncols": columns, "frameon": False, "fontsize": 9, "labelcolor": INK}
    handles = [entries[name] for name in names]
    as_plain_text(figure.legend(handles, [short(name) for name in names], loc="outside upper left", **look))


def as_plain_text(legend: Legend) -> None:
    """Turn off formulas in a legend, so that names with dollar signs are written as they are."""
    for text in legend.get_texts():
        text.set_parse_math(False)


def sigma_colorbar(
    figure: Figure, panels: Sequence[Axes], colors: ScalarMappable, ticks: Sequence[float], **place: Any
) -> None:
    """Draw the colour bar of sigma at the right of all panels, with `ticks`. For `place` see `colorbar`."""
    place = {"fraction": 0.03, "aspect": 24, "pad": 0.015, **place}
    colorbar(figure, colors, f"initial scale {SIGMA}", ax=panels, ticks=ticks, format="%g", **place)


def colorbar(figure: Figure, shades: ScalarMappable, text: str, **place: Any) -> None:
    """Draw a colour bar labelled `text` for the colours `shades`. `place` has arguments of `Figure.colorbar`."""
    bar = figure.colorbar(shades, **{"ticks": MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]), **place})
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=SMALL, color=MUTED, labelcolor=INK, length=2)
    bar.minorticks_off()
    bar.set_label(text, fontsize=8, color=INK)


def small_print(figure: Figure, run_name: str, *notes: str) -> Figure:
    """Write the run's name and first note, then each other note on a new line, below a figure; return the figure."""
    return write_below(figure, f"run {short(run_name, 100)}", *notes)


def write_below(figure: Figure, about: str, *notes: str) -> Figure:
    """Write the text `about` and the first note, then each other note on a new line, in small type below a figure."""
    first, *more = [note for note in notes if note] or [""]
    lines = [f"{about} · {first}" if first else about, *more]
    width = int(figure.get_size_inches()[0] * 19)
    text = "\n".join(wrapped(line, width, even=False) for line in lines)
    # a layout engine reserves the space itself
    place = {} if figure.get_layout_engine() else {"y": 0.01, "va": "bottom"}
    figure.supxlabel(text, fontsize=7, color=MUTED, x=0.01, ha="left", parse_math=False, **place)
    return figure
