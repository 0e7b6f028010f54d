"""Draw results by sigma for many settings and, in a panel below, the initial scales that libraries use by default.

>>> figure = default_scales(curves, scales, "lst-sigma and 19 others")
"""

from __future__ import annotations

import math
import textwrap

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from placecode.reports.figures import base
from placecode.reports.figures.base import BLUE, INK, LINE_STYLES, MUTED, PAPER, SIGMA_LABEL, SMALL, Style

MIN_SIGMA, MAX_SIGMA = 0.004, 3.2
"""Limits of the axis of sigma. A library that initializes with zeros is drawn at the left end."""
TICKS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2)
DOTTED: Style = {"color": MUTED, "linewidth": 0.8, "linestyle": (0, (1, 2)), "zorder": 0}
MIN_SHARE = -0.1
"""Lowest value of the vertical axes. Lower shares are drawn at this value."""
LETTERS = 100
"""Number of letters of size `SMALL` that fit along the axis of sigma."""


def default_scales(curves: pd.DataFrame, scales: pd.DataFrame, run_name: str) -> Figure:
    """Draw results by sigma, with a panel per outcome and a line per setting. The lowest panel shows the scales with
    which libraries initialize PEs by default.

    `curves` has the columns panel (the outcome that is measured), task, setting, sigma and share. The share is 1 at the
    best sigma of a setting and 0 where a model has learned nothing. `scales` has a row per default scale
    with the columns formula, names (a text with the formula and the libraries that use it), low and high. Low equals
    high unless the scale depends on the model size.
    """
    finite_rows, missing = base.finite(curves, ["sigma", "share"])
    names = base.unique_in_order(finite_rows["panel"])
    ends = zip(scales["names"], scales["low"], scales["high"], strict=True)
    lines = [textwrap.wrap(str(text), _room(float(low), float(high))) for text, low, high in ends]
    rows = [0.5 + 0.5 * len(texts) for texts in lines]
    heights = [*([2.3] * len(names)), 0.25 * sum(rows) + 0.4]
    figure, panels = base.panels(len(names) + 1, 1, (7.2, sum(heights) + 1.1), sharey=False, height_ratios=heights)
    styles = {
        task: LINE_STYLES[i % len(LINE_STYLES)] for i, task in enumerate(base.unique_in_order(finite_rows["task"]))
    }
    fixed = scales.loc[(scales["low"] == scales["high"]) & (scales["low"] > 0), "low"]  # for models of any size
    for axes, name in zip(panels, names, strict=False):
        for low in fixed:
            axes.axvline(low, **DOTTED)
        for (task, _), group in finite_rows[finite_rows["panel"] == name].groupby(["task", "setting"], sort=False):
            line = group.sort_values("sigma")
            style: Style = {**styles[task], "linewidth": 1.1, "markersize": 3.2, "alpha": 0.7, "mew": 0}
            axes.plot(line["sigma"], line["share"].clip(lower=MIN_SHARE), label=task, **style)
        axes.set(ylim=(-0.14, 1.06), yticks=[0, 0.25, 0.5, 0.75, 1])
        base.light_grid(axes)
        base.label(axes, y=base.wrapped(name, 34))
        _axis(axes)
        axes.tick_params(labelbottom=False)
    _draw_scales(panels[-1], scales, lines, rows)
    base.legend(figure, columns=6)
    note = "a line is a setting: 1 is what its best sigma gains, 0 a model that has learned nothing"
    below = f"less than {MIN_SHARE} is drawn there" if (finite_rows["share"] < MIN_SHARE).any() else ""
    return base.small_print(figure, run_name, note, below, missing)


def _axis(axes: Axes) -> None:
    """Set up the logarithmic horizontal axis of sigma that all panels have."""
    axes.set_xscale("log")
    axes.set_xlim(MIN_SIGMA, MAX_SIGMA)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])


def _on_the_right(low: float, high: float) -> bool:
    """Return whether a scale from `low` to `high` has more space for text on its right than on its left."""
    return max(low, MIN_SIGMA) * high < MIN_SIGMA * MAX_SIGMA


def _room(low: float, high: float) -> int:
    """Return the number of letters, at least 20, that fit next to a scale, on the side with more space."""
    ends = (max(high, MIN_SIGMA), MAX_SIGMA) if _on_the_right(low, high) else (MIN_SIGMA, low)
    return max(20, round(LETTERS * math.log(ends[1] / ends[0]) / math.log(MAX_SIGMA / MIN_SIGMA)))


def _draw_scales(axes: Axes, scales: pd.DataFrame, lines: list[list[str]], rows: list[float]) -> None:
    """Draw a row per default scale: a dot or a bar, and the text about it on the side with more space.

    `lines` are these texts, wrapped to lines, and `rows` are the heights of the rows.
    """
    place = 0.0
    for (_, scale), texts, height in zip(scales.iterrows(), lines, rows, strict=True):
        middle = place + height / 2
        place += height
        low, high = (max(float(scale[end]), MIN_SIGMA * 1.12) for end in ("low", "high"))
        look: Style = {"color": BLUE, "solid_capstyle": "round", "zorder": 3}
        if scale["high"] == 0:
            axes.plot([low], [middle], marker="<", markersize=6, **look)
        elif low == high:
            axes.plot([low], [middle], marker="o", markersize=5.5, **look)
            axes.plot([low, low], [0, middle], **DOTTED)
        else:
            axes.plot([low, high], [middle, middle], linewidth=4.5, **look)
        right, label = _on_the_right(low, high), "\n".join(texts)
        words: Style = {"fontsize": SMALL, "color": INK, "va": "center", "linespacing": 1.2, "parse_math": False}
        words |= {"bbox": {"facecolor": PAPER, "edgecolor": "none", "pad": 1}}  # lines end at names
        words |= {"ha": "left", "xytext": (8, 0)} if right else {"ha": "right", "xytext": (-8, 0)}
        axes.annotate(label, (high if right else low, middle), textcoords="offset points", **words)
    axes.set(ylim=(place, 0), yticks=[])
    axes.spines["left"].set_visible(False)
    _axis(axes)
    base.label(axes, SIGMA_LABEL)
