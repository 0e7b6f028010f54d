"""Draw accuracy by sigma and one other setting, with a line for each of its values; and the figure of lst-causal.

>>> figure = accuracy_by_setting(table, "lst-heads", "attention heads")
>>> figure = curves_by_setting(curves, "lst-heads")
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from placecode.analysis.stats import Interval
from placecode.reports.figures import base
from placecode.reports.figures.base import BLUE, INK, KINDS, MUTED, SIGMA, SMALL, VERMILLION

COLORS = "cividis"
LEVELS = ((0, (4, 1.5)), (0, (1, 2)))
"""Line styles of models without a sigma."""


def accuracy_by_setting(
    table: pd.DataFrame,
    run_name: str,
    knob: str,
    chance: Mapping[str, float] | float = 0.25,
    worth: pd.DataFrame | None = None,
    beside: Mapping[str, Mapping[str, Interval]] | None = None,
) -> Figure:
    """Draw held-out accuracy by sigma, with a panel for each `panel` of the table and a line for each `line` of it.

    `table` has the columns panel, line, sigma, seed and value. A line has the same style in all panels. `worth` has
    panel, line, seed and value: the benefit of a small sigma, drawn as the last panel with a row per line. `chance` is
    a number, or one by panel. `beside` has the accuracy of models without a sigma, by panel and name; its mean is drawn
    as a level, and its interval is given in the legend.
    """
    finite_rows, lost = base.finite(table, ["panel", "line", "sigma", "seed", "value"])
    by = ["panel", "line", "sigma"]
    means = base.means(finite_rows, by)
    names = base.in_order(table["panel"])
    shown = worth is not None and not worth.empty
    columns = len(names) + shown
    looks = _looks(table)
    below = [map(_entry, rows["line"].unique()) for _, rows in table.groupby("panel")]
    levels = {panel: [_level(*item) for item in accuracies.items()] for panel, accuracies in (beside or {}).items()}
    entries = 1 + max(map(_rows_of, below), default=0) + max(map(_rows_of, levels.values()), default=0)
    figure, panels = base.grid_of(columns, 3, (3.3 if columns > 1 else 4.6, 2.9 + 0.17 * entries), sharey=False)
    for axes, name in zip(panels, names, strict=False):
        here = means[means["panel"] == name]
        panel_lines = set(table.loc[table["panel"] == name, "line"])
        order = [line for line in looks if line in panel_lines]
        sigmas = np.sort(table.loc[table["panel"] == name, "sigma"].unique().astype(float))
        base.sigma_axis(axes, sigmas)
        for place, line in enumerate(order):
            rows = here[here["line"] == line]
            x = base.aside(rows["sigma"], place, len(order), sigmas)
            reach: base.Style = {"yerr": base.distances(rows, (0, 1)), "linewidth": 1.3, "markersize": 4.8}
            base.errorbars(axes, x, rows["mean"], label=_entry(line), **reach, **looks[line])
        for place, (level, label) in enumerate(
            zip((beside or {}).get(name, {}).values(), levels.get(name, []), strict=True)
        ):
            axes.axhline(level.mean, color=INK, linewidth=0.9, linestyle=LEVELS[place % len(LEVELS)], label=label)
        if here.empty:
            base.nothing(axes)
        base.title(axes, str(name))
        base.accuracy_axis(axes, _own_chance(chance, name))
        base.label(axes, f"initial scale {SIGMA} of the encoding", "held-out accuracy at the end")
        _own_legend(axes, knob if len(names) == 1 else "")
    if shown:
        assert worth is not None
        _worth(panels[len(names)], worth)
    base.small_print(figure, run_name, f"marks and bars: {base.over_seeds(finite_rows, by)}", lost)
    return figure


def _looks(table: pd.DataFrame) -> dict[str, Mapping[str, Any]]:
    """Choose the style of each line: the first that no other line of its panels has."""
    panels = table.groupby("line", sort=False)["panel"].agg(set)
    places: dict[str, int] = {}
    for line, line_panels in panels.items():
        taken = {place for other, place in places.items() if panels[other] & line_panels}
        places[str(line)] = next(place for place in itertools.count() if place not in taken)
    return {line: KINDS[place % len(KINDS)] for line, place in places.items()}


def _level(name: str, accuracy: Interval) -> str:
    """Format the legend entry of a level, with its interval clipped to [0, 1]."""
    bounds = "" if math.isnan(accuracy.low) else f" ({max(0.0, accuracy.low):.2f} to {min(1.0, accuracy.high):.2f})"
    return base.wrapped(f"{name}: {accuracy.mean:.2f}{bounds}", 34)


def _entry(line: str) -> str:
    """Format the legend entry of a line."""
    return base.wrapped(base.short(line), 34)


def _rows_of(entries: Iterable[str]) -> int:
    """Count the lines of text of legend entries."""
    return sum(entry.count("\n") + 1 for entry in entries)


def _own_chance(chance: Mapping[str, float] | float, panel: str) -> float:
    """Return the chance level of a panel."""
    return chance[panel] if isinstance(chance, Mapping) else chance


def _own_legend(axes: Axes, title: str) -> None:
    """Draw the legend of a panel below its axes, where it hides nothing."""
    look: base.Style = {"frameon": False, "fontsize": SMALL, "labelcolor": INK, "title_fontsize": SMALL}
    below: base.Style = {"loc": "upper left", "bbox_to_anchor": (-0.02, -0.2)}
    shown = axes.legend(title=title, alignment="left", handlelength=2.6, **below, **look)
    shown.get_title().set_color(INK)
    for text in shown.get_texts():
        text.set_parse_math(False)


def called(table: pd.DataFrame) -> pd.Series:
    """Return the names of lines outside their panel: their own name if that is unique."""
    pairs = table[["panel", "line"]].drop_duplicates()
    alone = pd.Series(pairs["line"].is_unique, index=table.index) | (table["panel"] == "")
    return table["line"].where(alone, table["panel"] + ", " + table["line"])


def _worth(axes: Axes, worth: pd.DataFrame) -> None:
    """Draw the benefit of a small sigma, with a row per line."""
    table = worth.assign(name=called(worth))
    names = base.in_order(table["name"])
    means = base.means(table, ["name"]).set_index("name").reindex(names)
    axes.axvline(0, color=MUTED, linewidth=0.9)
    place = np.arange(len(names))
    look: base.Style = {"color": INK, "marker": "o", "markersize": 5}
    base.errorbars(axes, means["mean"], place, xerr=base.distances(means), **look)
    axes.set_yticks(place, [base.wrapped(base.short(name), 44) for name in names], parse_math=False)
    axes.tick_params("y", length=0, labelsize=SMALL)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.spines["left"].set_visible(False)
    base.quiet_lines(axes, "x")
    base.title(axes, f"what {SIGMA} 0.2 is worth over {worth['large'].iloc[0]:g}")
    base.label(axes, "difference of accuracies")


def curves_by_setting(table: pd.DataFrame, run_name: str, chance: Mapping[str, float] | float = 0.25) -> Figure:
    """Draw held-out accuracy by training step, with a panel per line of the table and a curve per sigma.

    `table` has the columns panel, line, sigma, step, seed and value. Curves are means over seeds, bands are 95%
    intervals. `chance` is a number, or one by panel.
    """
    finite_rows, lost = base.finite(table, ["panel", "line", "sigma", "step", "seed", "value"])
    by = ["panel", "line", "sigma", "step"]
    means = base.means(finite_rows, by)
    kinds = table[["panel", "line"]].drop_duplicates()
    pairs = list(zip(kinds["panel"], kinds["line"], called(kinds), strict=True))
    figure, panels = base.grid_of(len(pairs), 4, (2.25, 1.75), extra=(0.9, 0.9))
    sigmas = np.sort(table["sigma"].unique().astype(float))
    colors = ScalarMappable(base.sigma_colors(sigmas), COLORS)
    last = max(float(finite_rows["step"].max()), 1.0) if len(finite_rows) else 1.0
    for axes, (panel, line, name) in zip(panels, pairs, strict=False):
        here = means[(means["panel"] == panel) & (means["line"] == line)]
        for sigma, rows in here.groupby("sigma"):
            color = colors.to_rgba(float(sigma))  # type: ignore[arg-type]
            low, high = (rows[end].to_numpy().clip(0, 1) for end in ("low", "high"))
            axes.fill_between(rows["step"], low, high, color=color, alpha=0.14, linewidth=0)
            axes.plot(rows["step"], rows["mean"], color=color, linewidth=1.4)
        if here.empty:
            base.nothing(axes)
        base.title(axes, str(name), width=38)
        base.accuracy_axis(axes, _own_chance(chance, panel))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.set_xlim(-0.02 * last, 1.02 * last)
        first, lowest = base.at_edge(axes)
        axes.tick_params("x", labelbottom=lowest)
        base.label(axes, "training step" if lowest else "", "held-out\naccuracy" if first else "")
    if not finite_rows.empty:
        place: base.Style = {"ax": panels, "fraction": 0.03, "aspect": 24, "pad": 0.015, "shrink": 0.8}
        base.key(figure, colors, f"initial scale {SIGMA}", ticks=list(sigmas), format="%g", **place)
    base.small_print(figure, run_name, f"line and band: {base.over_seeds(finite_rows, by)}", lost)
    return figure


def causes(
    table: pd.DataFrame,
    order: Sequence[str],
    effects: pd.DataFrame,
    losses: pd.DataFrame,
    controls: Sequence[str],
    run_name: str,
    chance: float = 0.25,
) -> Figure:
    """Draw the results of lst-causal in three panels.

    `table` (line, sigma, seed, value): accuracy by the kind of PE, against its size. `effects` (group, name, mean, low,
    high, control): a row per effect, with hollow marks for controls. `losses` (sigma, name, seed, value): loss of
    accuracy when PEs are exchanged, with a row per name and a mark per sigma; names in `controls` are hollow.
    """
    finite_rows, lost = base.finite(table, ["line", "sigma", "seed", "value"])
    rows = max(len(effects) + effects["group"].nunique(), losses["name"].nunique())
    size = (13.2, max(5.4, 1.2 + 0.23 * rows))
    figure, (left, middle, right) = base.panels(1, 3, size, sharey=False, width_ratios=[1.15, 1, 0.95])
    _against_size(left, finite_rows, [line for line in order if line in set(table["line"])], chance)
    _effects(middle, effects)
    _losses(right, losses, controls)
    how = base.over_seeds(finite_rows, ["line", "sigma"])
    base.small_print(figure, run_name, f"marks and bars: {how}; hollow marks: controls, which must do nothing", lost)
    return figure


def _against_size(axes: Axes, table: pd.DataFrame, order: Sequence[str], chance: float) -> None:
    """Draw accuracy by the size of the PE."""
    means = base.means(table, ["line", "sigma"])
    sigmas = np.sort(table["sigma"].unique().astype(float))
    if not len(sigmas):
        base.nothing(axes)
        return
    base.sigma_axis(axes, sigmas)
    for place, line in enumerate(order):
        rows = means[means["line"] == line]
        x = base.aside(rows["sigma"], place, len(order), sigmas)
        look: base.Style = {"yerr": base.distances(rows, (0, 1)), "linewidth": 1.3, "markersize": 4.8}
        base.errorbars(axes, x, rows["mean"], label=base.short(line), **look, **KINDS[place % len(KINDS)])
    base.accuracy_axis(axes, chance)
    base.title(axes, "size or arrangement?")
    base.label(axes, f"size {SIGMA} of the PE at the start", "held-out accuracy at the end")
    shown = axes.legend(loc="lower left", frameon=False, fontsize=SMALL, labelcolor=INK, handlelength=2.6)
    for text in shown.get_texts():
        text.set_parse_math(False)


def _rows(axes: Axes, names: Sequence[str], places: Sequence[float], width: int) -> None:
    """Set up a row for each name, the first on top, and a line at zero."""
    axes.axvline(0, color=MUTED, linewidth=0.9)
    axes.set_yticks(places, [base.wrapped(base.short(name, 50), width) for name in names], parse_math=False)
    axes.tick_params("y", length=0, labelsize=SMALL)
    axes.set_ylim(len(names) - 0.4, -0.8)
    axes.spines["left"].set_visible(False)
    base.quiet_lines(axes, "x")


def _effects(axes: Axes, effects: pd.DataFrame) -> None:
    """Draw effects with their intervals."""
    groups = base.in_order(effects["group"])
    place, ticks, names = 0.0, [], []
    for group in groups:
        axes.text(
            -0.02, place, base.short(group, 30), transform=axes.get_yaxis_transform(), ha="right", va="center",
            fontsize=8, color=INK, fontweight="bold", parse_math=False,
        )  # fmt: skip
        place += 1
        for row in effects[effects["group"] == group].itertuples():
            ticks.append(place)
            names.append(str(row.name))
            one = pd.DataFrame([{"mean": row.mean, "low": row.low, "high": row.high}])
            color = MUTED if row.control else VERMILLION if group == groups[0] else BLUE
            if np.isfinite(row.mean):
                look: base.Style = {"xerr": base.distances(one), "color": color, "marker": "o", "markersize": 5}
                base.errorbars(axes, one["mean"], [place], hollow=bool(row.control), **look)
            place += 1
    if effects["mean"].isna().all():
        base.nothing(axes)
    _rows(axes, names, ticks, 50)
    axes.set_ylim(place - 0.4, -0.6)
    base.title(axes, "trained with another PE")
    base.label(axes, "what it adds to accuracy")


def _losses(axes: Axes, losses: pd.DataFrame, controls: Sequence[str]) -> None:
    """Draw the loss of accuracy when PEs are exchanged."""
    names = base.in_order(losses["name"])
    _rows(axes, names, range(len(names)), 30)
    sigmas = sorted(losses["sigma"].unique())
    for place, sigma in enumerate(sigmas):
        means = base.means(losses[losses["sigma"] == sigma], ["name"]).set_index("name")
        style = (KINDS[1], KINDS[2], KINDS[0])[place % 3]
        look: base.Style = {"color": style["color"], "marker": style["marker"], "markersize": 4.4}
        for hollow in (True, False):
            here = [name for name in names if name in means.index and (name in controls) == hollow]
            rows = means.loc[here]
            at = [names.index(name) + 0.16 * (2 * place - len(sigmas) + 1) for name in here]
            legend_entry = {} if hollow else {"label": f"{SIGMA} = {sigma:g}"}
            base.errorbars(axes, rows["mean"], at, xerr=base.distances(rows), hollow=hollow, **legend_entry, **look)
    if losses.empty:
        base.nothing(axes)
    else:
        axes.legend(loc="lower right", frameon=False, fontsize=SMALL, labelcolor=INK)
    base.title(axes, "PE exchanged after training")
    base.label(axes, "what the model loses in accuracy")
