"""Accuracy when something else is varied beside sigma: a line over sigma for each of its values. Also the figure of
lst-causal: accuracy by what was done to the PE.

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
"""Dashes of what has no sigma."""


def accuracy_by_setting(
    table: pd.DataFrame,
    run_name: str,
    knob: str,
    chance: Mapping[str, float] | float = 0.25,
    worth: pd.DataFrame | None = None,
    beside: Mapping[str, Mapping[str, Interval]] | None = None,
) -> Figure:
    """Held-out accuracy against sigma: a panel for each `panel` of the table, a line for each `line` of it, which looks
    the same in every panel that has it.

    `table` has the columns panel, line, sigma, seed and value. `worth` has panel, line, seed and value: what a small
    sigma is worth, drawn as the last panel, a row for each line. `chance` is one for all, or by panel. `beside` has
    the accuracy of what has no sigma, by panel and name: its mean is drawn as a level, its interval told in the legend.
    """
    kept, lost = base.finite(table, ["panel", "line", "sigma", "seed", "value"])
    by = ["panel", "line", "sigma"]
    means = base.means(kept, by)
    names = base.in_order(table["panel"])
    shown = worth is not None and not worth.empty
    columns = len(names) + shown
    looks = _looks(table)
    below = [map(_entry, rows["line"].unique()) for _, rows in table.groupby("panel")]
    levels = {panel: [_level(*each) for each in own.items()] for panel, own in (beside or {}).items()}
    entries = 1 + max(map(_rows_of, below), default=0) + max(map(_rows_of, levels.values()), default=0)
    figure, panels = base.grid_of(columns, 3, (3.3 if columns > 1 else 4.6, 2.9 + 0.17 * entries), sharey=False)
    for axes, name in zip(panels, names, strict=False):
        here = means[means["panel"] == name]
        own = set(table.loc[table["panel"] == name, "line"])
        order = [line for line in looks if line in own]
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
    base.small_print(figure, run_name, f"marks and bars: {base.over_seeds(kept, by)}", lost)
    return figure


def _looks(table: pd.DataFrame) -> dict[str, Mapping[str, Any]]:
    """The style of each line, in the order of the table: the first that no other line of its panels has."""
    panels = table.groupby("line", sort=False)["panel"].agg(set)
    places: dict[str, int] = {}
    for line, own in panels.items():
        taken = {place for other, place in places.items() if panels[other] & own}
        places[str(line)] = next(place for place in itertools.count() if place not in taken)
    return {line: KINDS[place % len(KINDS)] for line, place in places.items()}


def _level(name: str, found: Interval) -> str:
    """An accuracy lies between 0 and 1, whatever its interval says."""
    reach = "" if math.isnan(found.low) else f" ({max(0.0, found.low):.2f} to {min(1.0, found.high):.2f})"
    return base.wrapped(f"{name}: {found.mean:.2f}{reach}", 34)


def _entry(line: str) -> str:
    return base.wrapped(base.short(line), 34)


def _rows_of(entries: Iterable[str]) -> int:
    return sum(entry.count("\n") + 1 for entry in entries)


def _own_chance(chance: Mapping[str, float] | float, panel: str) -> float:
    return chance[panel] if isinstance(chance, Mapping) else chance


def _own_legend(axes: Axes, title: str) -> None:
    """Below the axes, where it hides nothing."""
    look: base.Style = {"frameon": False, "fontsize": SMALL, "labelcolor": INK, "title_fontsize": SMALL}
    below: base.Style = {"loc": "upper left", "bbox_to_anchor": (-0.02, -0.2)}
    shown = axes.legend(title=title, alignment="left", handlelength=2.6, **below, **look)
    shown.get_title().set_color(INK)
    for text in shown.get_texts():
        text.set_parse_math(False)


def called(table: pd.DataFrame) -> pd.Series:
    """What to call each line where there is no panel around it: by its own name, if that is enough."""
    pairs = table[["panel", "line"]].drop_duplicates()
    alone = pd.Series(pairs["line"].is_unique, index=table.index) | (table["panel"] == "")
    return table["line"].where(alone, table["panel"] + ", " + table["line"])


def _worth(axes: Axes, worth: pd.DataFrame) -> None:
    """What a small sigma is worth, a row for each line."""
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
    """Held-out accuracy against training step: a panel for each line of the table, a curve for each sigma.

    `table` has the columns panel, line, sigma, step, seed and value. Curves are means over seeds,
    bands their intervals; `chance` is one for all, or by panel.
    """
    kept, lost = base.finite(table, ["panel", "line", "sigma", "step", "seed", "value"])
    by = ["panel", "line", "sigma", "step"]
    means = base.means(kept, by)
    kinds = table[["panel", "line"]].drop_duplicates()
    pairs = list(zip(kinds["panel"], kinds["line"], called(kinds), strict=True))
    figure, panels = base.grid_of(len(pairs), 4, (2.25, 1.75), extra=(0.9, 0.9))
    sigmas = np.sort(table["sigma"].unique().astype(float))
    colors = ScalarMappable(base.sigma_colors(sigmas), COLORS)
    last = max(float(kept["step"].max()), 1.0) if len(kept) else 1.0
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
    if not kept.empty:
        place: base.Style = {"ax": panels, "fraction": 0.03, "aspect": 24, "pad": 0.015, "shrink": 0.8}
        base.key(figure, colors, f"initial scale {SIGMA}", ticks=list(sigmas), format="%g", **place)
    base.small_print(figure, run_name, f"line and band: {base.over_seeds(kept, by)}", lost)
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
    """Three panels that answer one question together.

    `table` (line, sigma, seed, value): accuracy by what the PE is, drawn against size in this order. `effects` (group,
    name, mean, low, high, control): a row each, controls hollow. `losses` (sigma, name, seed, value): what models lose
    by an exchange, a row for each name, a mark for each sigma; those named in `controls` are hollow.
    """
    kept, lost = base.finite(table, ["line", "sigma", "seed", "value"])
    rows = max(len(effects) + effects["group"].nunique(), losses["name"].nunique())
    size = (13.2, max(5.4, 1.2 + 0.23 * rows))
    figure, (left, middle, right) = base.panels(1, 3, size, sharey=False, width_ratios=[1.15, 1, 0.95])
    _against_size(left, kept, [line for line in order if line in set(table["line"])], chance)
    _effects(middle, effects)
    _losses(right, losses, controls)
    how = base.over_seeds(kept, ["line", "sigma"])
    base.small_print(figure, run_name, f"marks and bars: {how}; hollow marks: controls, which must do nothing", lost)
    return figure


def _against_size(axes: Axes, table: pd.DataFrame, order: Sequence[str], chance: float) -> None:
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
    """A row for each name, the first on top, and a line at zero."""
    axes.axvline(0, color=MUTED, linewidth=0.9)
    axes.set_yticks(places, [base.wrapped(base.short(name, 50), width) for name in names], parse_math=False)
    axes.tick_params("y", length=0, labelsize=SMALL)
    axes.set_ylim(len(names) - 0.4, -0.8)
    axes.spines["left"].set_visible(False)
    base.quiet_lines(axes, "x")


def _effects(axes: Axes, effects: pd.DataFrame) -> None:
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
            said = {} if hollow else {"label": f"{SIGMA} = {sigma:g}"}
            base.errorbars(axes, rows["mean"], at, xerr=base.distances(rows), hollow=hollow, **said, **look)
    if losses.empty:
        base.nothing(axes)
    else:
        axes.legend(loc="lower right", frameon=False, fontsize=SMALL, labelcolor=INK)
    base.title(axes, "PE exchanged after training")
    base.label(axes, "what the model loses in accuracy")
