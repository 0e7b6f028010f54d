"""Compare encodings by name: accuracy, the effect of dropout, and learning curves.

>>> figure = worth_of_dropout(table, "lst-encodings", published={"2d-fixed": (0.955, 0.1)})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from placecode.reports.figures import base
from placecode.reports.figures.base import BLUE, GREEN, MUTED, PURPLE, SPLITS, VERMILLION

HELD_OUT = ("ood", "test")
DROPOUT_STYLES: Sequence[Mapping[str, Any]] = (
    {"color": VERMILLION, "marker": "D", "linestyle": "-"},
    {"color": GREEN, "marker": "^", "linestyle": (0, (1, 1.4))},
    {"color": PURPLE, "marker": "v", "linestyle": (0, (3, 1.2, 1, 1.2))},
)
"""Styles of dropout rates, the smallest first."""
NO_DROPOUT: Mapping[str, Any] = {"color": BLUE, "marker": "o", "linestyle": (0, (5, 2))}


def worth_of_dropout(
    table: pd.DataFrame,
    run_name: str,
    published: Mapping[str, tuple[float, float]] | None = None,
    chance: float = 0.25,
) -> Figure:
    """Draw accuracy with and without dropout, joined by a line, with a row per encoding and a panel per split.

    Parameters
    ----------
    table : DataFrame
        Columns name, dropout, split, seed and value. The row with the best OOD accuracy without dropout is on
        top. Hollow circles are without dropout, filled marks with it.
    run_name : str
        Name of the run, for the small print.
    published : mapping of str to (float, float), optional
        Published OOD accuracy and its dropout by name, drawn as crosses.
    chance : float, default=0.25
        Chance level.

    Returns
    -------
    Figure
        The figure.
    """
    finite_rows, lost = base.finite(table, ["name", "dropout", "split", "seed", "value"])
    means = base.means(finite_rows, ["name", "dropout", "split"])
    names = _best_first(table, means)
    rates = sorted(float(rate) for rate in table["dropout"].unique())
    figure, panels = _rows(names, len(HELD_OUT), 3.3)
    for axes, split in zip(panels, HELD_OUT, strict=True):
        here = means[means["split"] == split]
        for name, rows in here.groupby("name"):
            at = names.index(name)
            ends = rows["mean"].to_numpy()
            axes.plot([ends.min(), ends.max()], [at, at], color=MUTED, alpha=0.5, linewidth=2, zorder=2)
        for rate in rates:
            rows = here[here["dropout"] == rate]
            at_rows = [names.index(name) for name in rows["name"]]
            if at_rows:
                reach = base.distances(rows, (0, 1))
                base.errorbars(axes, rows["mean"], at_rows, xerr=reach, **_marked(rate, rates), zorder=4 - (rate == 0))
        if split == "ood":
            _crosses(axes, published or {}, names, rates)
        for missing in (name for name in names if name not in set(here["name"])):
            axes.text(0.5, names.index(missing), "no values", ha="center", va="center", fontsize=8, color=MUTED)
        base.accuracy_axis(axes, chance, along="x")
        base.title(axes, split)
        base.label(axes, "accuracy at the final step")
    base.legend(figure, [_rate_name(rate) for rate in rates], columns=5)
    how = base.over_seeds(finite_rows, ["name", "dropout", "split"])
    note = "crosses: published; upright with dropout, slanting without" if published else ""
    base.small_print(figure, run_name, f"marks and bars: {how}", note, lost)
    return figure


def _crosses(axes: Axes, published: Mapping[str, tuple[float, float]], names: list[str], rates: list[float]) -> None:
    """Draw published values as crosses."""
    shown = {name: published[name] for name in names if name in published}
    for rate in sorted({float(rate) for _, rate in shown.values()}):
        points = [(value, names.index(name)) for name, (value, dropout) in shown.items() if dropout == rate]
        x, y = np.array(points, dtype=float).T
        style: base.Style = {
            "marker": "+" if rate else "x",
            "markersize": 6.5 if rate else 5,
            "markeredgewidth": 1.3,
            "linestyle": "none",
            "zorder": 5,
        }
        color = _style(rate, rates)["color"]
        axes.plot(x, y, color=color, **style, label=f"published, {_rate_name(rate)}")


def accuracy_by_name(table: pd.DataFrame, run_name: str, chance: float = 0.25) -> Figure:
    """Draw the accuracy of every encoding on all splits, with a row per name and the best on ood on top.

    `table` has the columns name, split, seed and value.
    """
    finite_rows, lost = base.finite(table, ["name", "split", "seed", "value"])
    means = base.means(finite_rows, ["name", "split"])
    names = _best_first(table, means)
    figure, (axes,) = _rows(names, 1, 4.6, row=0.32, bands=True)
    for shift, (split, style) in zip((-0.23, 0.0, 0.23), SPLITS.items(), strict=True):
        rows = means[means["split"] == split]
        if rows.empty:
            continue
        at = np.array([names.index(name) for name in rows["name"]]) + shift
        marked = {"color": style["color"], "marker": style["marker"], "markersize": 4.6, "label": split}
        base.errorbars(axes, rows["mean"], at, xerr=base.distances(rows, (0, 1)), **marked)
    for missing in (name for name in names if name not in set(means["name"])):
        axes.text(0.5, names.index(missing), "no values", ha="center", va="center", fontsize=8, color=MUTED)
    base.accuracy_axis(axes, chance, along="x")
    base.label(axes, "accuracy at the final step")
    base.legend(figure, [*SPLITS])
    base.small_print(figure, run_name, f"marks and bars: {base.over_seeds(finite_rows, ['name', 'split'])}", lost)
    return figure


def curves_by_name(table: pd.DataFrame, run_name: str, chance: float = 0.25, split: str = "ood") -> Figure:
    """Draw accuracy by training step, with a panel per encoding and a line with band per dropout rate.

    `table` has the columns name, dropout, step, seed and value, of one split.
    """
    finite_rows, lost = base.finite(table, ["name", "dropout", "step", "seed", "value"])
    by = ["name", "dropout", "step"]
    means = base.means(finite_rows, by)
    names = base.in_order(table["name"])
    rates = sorted(float(rate) for rate in table["dropout"].unique())
    figure, panels = base.grid_of(len(names), 4, (2.1, 1.6))
    last = max(float(finite_rows["step"].max()), 1.0) if len(finite_rows) else 1.0
    for axes, name in zip(panels, names, strict=False):
        for rate in rates:
            rows = means[(means["name"] == name) & (means["dropout"] == rate)]
            if rows.empty:
                continue
            color, line = (_style(rate, rates)[part] for part in ("color", "linestyle"))
            low, high = (rows[end].to_numpy().clip(0, 1) for end in ("low", "high"))
            axes.fill_between(rows["step"], low, high, color=color, alpha=0.16, linewidth=0)
            axes.plot(rows["step"], rows["mean"], color=color, linestyle=line, linewidth=1.5, label=_rate_name(rate))
        if not (means["name"] == name).any():
            base.nothing(axes)
        base.title(axes, str(name), width=38)
        base.accuracy_axis(axes, chance)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.set_xlim(-0.02 * last, 1.02 * last)
        first, lowest = base.at_edge(axes)
        axes.tick_params("x", labelbottom=lowest)
        base.label(axes, "training step" if lowest else "", f"{split}\naccuracy" if first else "")
    base.legend(figure, [_rate_name(rate) for rate in rates])
    base.small_print(figure, run_name, f"line and band: {base.over_seeds(finite_rows, by)}", lost)
    return figure


# ----------------------------------------------------------------------------------------------------- rows, rates


def _best_first(table: pd.DataFrame, means: pd.DataFrame) -> list[Any]:
    """Sort names by mean OOD accuracy (without dropout, if there is such a column); missing values last."""
    rows = means[(means["split"] == "ood") & ((means["dropout"] == 0) if "dropout" in means else True)]
    accuracy = dict(zip(rows["name"], rows["mean"], strict=True))
    return sorted(base.in_order(table["name"]), key=lambda name: -accuracy.get(name, -np.inf))


def _rows(
    names: list[Any], columns: int, width: float, row: float = 0.27, bands: bool = False
) -> tuple[Figure, list[Axes]]:
    """Make panels with a row for each name, the first on top."""
    labels = [base.wrapped(base.short(str(name)), 34) for name in names]
    longest = max((len(line) for name in labels for line in name.split("\n")), default=0)
    size = (max(0.075 * longest + width * columns + 0.3, base.NARROWEST), row * max(len(names), 3) + 1.5)
    figure, panels = base.panels(1, columns, size)
    panels[0].set_ylim(max(len(names), 1) - 0.4, -0.6)
    panels[0].set_yticks(range(len(names)), labels, parse_math=False)
    for axes in panels:
        axes.spines["left"].set_visible(False)
        axes.tick_params("y", length=0)
        for at in range(0, len(names), 2) if bands else ():
            axes.axhspan(at - 0.5, at + 0.5, color=MUTED, alpha=0.09, linewidth=0)
        if not bands:
            axes.hlines(range(len(names)), 0, 1, color=MUTED, alpha=0.22, linewidth=0.6, zorder=0)
        if not names:
            base.nothing(axes)
    return figure, panels


def _style(rate: float, rates: list[float]) -> Mapping[str, Any]:
    """Return the style of a dropout rate."""
    if rate == 0:
        return NO_DROPOUT
    dropped = sorted({*rates, rate} - {0.0})
    return DROPOUT_STYLES[dropped.index(rate) % len(DROPOUT_STYLES)]


def _marked(rate: float, rates: list[float]) -> dict[str, Any]:
    """Return the keyword arguments of error bars for a dropout rate."""
    style = _style(rate, rates)
    shape = {"color": style["color"], "marker": style["marker"], "markersize": 6.4 if rate == 0 else 4.6}
    return {**shape, "hollow": rate == 0, "label": _rate_name(rate)}


def _rate_name(rate: float) -> str:
    """Return the label of a dropout rate."""
    return f"dropout {rate:g}" if rate else "no dropout"
