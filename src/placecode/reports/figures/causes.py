"""Cause or trace: accuracy against the size of a PE by what it is, and what manipulations of it do.

>>> figure = causes(table, order, effects, losses, "lst-causal")
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from placecode.reports.figures import base
from placecode.reports.figures.base import BLUE, INK, KINDS, MUTED, SIGMA, SMALL, VERMILLION


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
