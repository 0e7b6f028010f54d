"""Draw the accuracy of each encoding in a row of its own, with and without dropout.

>>> figure = effect_of_dropout(table, "lst-encodings", published={"2d-fixed": (0.955, 0.1)})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from placecode.reports.figures import base
from placecode.reports.figures.base import BLUE, GREEN, MUTED, PURPLE, SPLITS, VERMILLION

HELD_OUT = ("ood", "test")
DROPOUT_STYLES: Sequence[Mapping[str, Any]] = (
    {"color": VERMILLION, "marker": "D", "linestyle": "-"},
    {"color": GREEN, "marker": "^", "linestyle": (0, (1, 1.4))},
    {"color": PURPLE, "marker": "v", "linestyle": (0, (3, 1.2, 1, 1.2))},
)
"""Styles of dropout rates above 0, the smallest rate first."""
NO_DROPOUT: Mapping[str, Any] = {"color": BLUE, "marker": "o", "linestyle": (0, (5, 2))}


def effect_of_dropout(
    table: pd.DataFrame, run_name: str, published: Mapping[str, tuple[float, float]] | None = None, chance: float = 0.25
) -> Figure:
    """Draw accuracy with and without dropout, joined by a line, with a row per encoding and a panel per split.

    `table` has the columns name, dropout (the rate), split, seed and value. The encoding with the best OOD accuracy
    without dropout is on top. Hollow circles are results without dropout, filled marks results with it. Crosses are
    `published` results: a mapping from name to (OOD accuracy, dropout rate).
    """
    means, averaged, missing = base.summarized(table, ["name", "dropout", "split"])
    names, rates = _best_first(table, means), sorted_rates(table)
    figure, panels = row_panels(names, len(HELD_OUT), 3.3, 0.27 * max(len(names), 3) + 1.5, background="lines")
    for axes, split in zip(panels, HELD_OUT, strict=True):
        here = means[means["split"] == split]
        for name, rows in here.groupby("name"):
            at = names.index(name)
            axes.plot([rows["mean"].min(), rows["mean"].max()], [at, at], color=MUTED, alpha=0.5, linewidth=2, zorder=2)
        for rate in rates:
            rows, style = here[here["dropout"] == rate], rate_style(rate, rates)
            look = {"color": style["color"], "marker": style["marker"], "label": rate_name(rate)}
            look |= {"zorder": 4, "markersize": 4.6} if rate else {"zorder": 3, "markersize": 6.4, "hollow": True}
            base.draw_means(axes, rows, rows["name"].map(names.index), (0, 1), "x", **look)
        if split == "ood":
            _crosses(axes, published or {}, names, rates)
        missing_rows(axes, names, here)
        base.accuracy_axis(axes, chance, along="x")
        base.title(axes, split)
        base.label(axes, "accuracy at the final step")
    base.legend(figure, [rate_name(rate) for rate in rates], columns=5)
    note = "crosses: published; upright with dropout, slanting without" if published else ""
    return base.small_print(figure, run_name, f"marks and bars: {averaged}", note, missing)


def _crosses(axes: Axes, published: Mapping[str, tuple[float, float]], names: list[str], rates: list[float]) -> None:
    """Draw published accuracies as crosses: upright with dropout, slanting without. See `effect_of_dropout`."""
    points = [(names.index(name), *published[name]) for name in names if name in published]
    for rate in sorted({float(rate) for *_, rate in points}):
        at, values = zip(*((row, value) for row, value, dropout in points if dropout == rate), strict=True)
        marker, size = ("+", 6.5) if rate else ("x", 5)
        look: base.Style = {"color": rate_style(rate, rates)["color"], "markersize": size, "mew": 1.3, "zorder": 5}
        axes.plot(values, at, marker, label=f"published, {rate_name(rate)}", **look)


def accuracy_by_name(table: pd.DataFrame, run_name: str, chance: float = 0.25) -> Figure:
    """Draw the accuracy of every encoding on all splits, with a row per encoding.

    `table` has the columns name, split, seed and value. The encoding with the best OOD accuracy is on top.
    """
    means, averaged, missing = base.summarized(table, ["name", "split"])
    names = _best_first(table, means)
    figure, (axes,) = row_panels(names, 1, 4.6, 0.32 * max(len(names), 3) + 1.5)
    for shift, (split, style) in zip((-0.23, 0.0, 0.23), SPLITS.items(), strict=True):
        rows = means[means["split"] == split]
        look = {"color": style["color"], "marker": style["marker"], "markersize": 4.6, "label": split}
        base.draw_means(axes, rows, rows["name"].map(names.index), (0, 1), "x", shift, **look)
    missing_rows(axes, names, means)
    base.accuracy_axis(axes, chance, along="x")
    base.label(axes, "accuracy at the final step")
    base.legend(figure, [*SPLITS])
    return base.small_print(figure, run_name, f"marks and bars: {averaged}", missing)


def _best_first(table: pd.DataFrame, means: pd.DataFrame) -> list[Any]:
    """Return the names sorted by mean OOD accuracy, the best first and those without a mean last.

    If the table has a column dropout, only results without dropout count.
    """
    rows = means[(means["split"] == "ood") & ((means["dropout"] == 0) if "dropout" in means else True)]
    accuracy = dict(zip(rows["name"], rows["mean"], strict=True))
    return sorted(base.unique_in_order(table["name"]), key=lambda name: -accuracy.get(name, -np.inf))


def row_panels(
    names: Sequence[Any], columns: int, width: float, height: float, wrap: int = 34, background: str = "bands"
) -> base.Panels:
    """Make a figure with `columns` panels side by side that share rows: a row per name, with the name at the left.

    The first name is on top. The figure is `height` inches high; a panel is `width` inches wide, plus the names.
    Names are broken into lines of at most `wrap` letters. The `background` of rows is grey "bands", thin "lines" from
    x = 0 to x = 1, or "" for none.
    """
    labels = [base.wrapped(base.short(str(name)), wrap) for name in names]
    longest = max((len(line) for name in labels for line in name.split("\n")), default=0)
    columns = max(columns, 1)
    figure, drawn = base.panels(1, columns, (max(0.075 * longest + width * columns + 0.3, base.MIN_WIDTH), height))
    drawn[0].set_ylim(max(len(labels), 1) - 0.4, -0.6)
    drawn[0].set_yticks(range(len(labels)), labels, parse_math=False)
    for axes in drawn:
        axes.spines["left"].set_visible(False)
        axes.tick_params("y", length=0)
        if background == "lines":
            axes.hlines(range(len(labels)), 0, 1, color=MUTED, alpha=0.22, linewidth=0.6, zorder=0)
        for row in range(0, len(labels), 2) if background == "bands" else ():
            axes.axhspan(row - 0.5, row + 0.5, color=MUTED, alpha=0.09, linewidth=0)
        if not names:
            base.write_empty_note(axes)
    return figure, drawn


def missing_rows(axes: Axes, names: Sequence[Any], rows: pd.DataFrame, why: Callable[[Any], str] | None = None) -> None:
    """Write "no values", or `why(name)`, in the row of each of the `names` that the column `name` of `rows` lacks."""
    look: base.Style = {"ha": "center", "va": "center", "fontsize": 8, "color": MUTED}
    for i, name in enumerate(names):
        if name not in set(rows["name"]):
            text = why(name) if why else "no values"
            axes.text(0.5, i, text, transform=axes.get_yaxis_transform(), **look)


def sorted_rates(table: pd.DataFrame) -> list[float]:
    """Return the unique values in the column dropout, sorted."""
    return sorted(map(float, table["dropout"].unique()))


def rate_style(rate: float, rates: list[float]) -> Mapping[str, Any]:
    """Return the style of a dropout rate, by its place among all `rates` above 0; 0 has a style of its own."""
    if rate == 0:
        return NO_DROPOUT
    dropped = sorted({*rates, rate} - {0.0})
    return DROPOUT_STYLES[dropped.index(rate) % len(DROPOUT_STYLES)]


def rate_name(rate: float) -> str:
    """Return the label of a dropout rate: "dropout 0.1", or "no dropout" for 0."""
    return f"dropout {rate:g}" if rate else "no dropout"
