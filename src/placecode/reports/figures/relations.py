"""Draw how measures of the PEs relate to accuracy: scatter plots with a dot per sigma, and rank correlations.

>>> figure = relation_panels(table, "lst-sigma", notes={"Procrustes distance": "over the sigmas -0.98"})
>>> figure = forest(correlations, "lst-sigma")
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure

from placecode.reports.figures import base
from placecode.reports.figures.base import BLUE, MUTED, PAPER, SIGMA, SMALL
from placecode.reports.figures.encodings import row_panels
from placecode.reports.figures.labels import write_beside

ALPHA = 0.05
"""Correlations with an adjusted p-value below this are drawn as filled dots."""

Means = tuple[pd.DataFrame, pd.DataFrame]
"""Two tables from `base.means` with a row per sigma: the means of a measure, and the means of accuracy."""


def relation_panels(table: pd.DataFrame, run_name: str, notes: Mapping[str, str] | None = None) -> Figure:
    """Draw accuracy against each measure, with a panel per measure. A dot is the mean over seeds at one sigma.

    `table` has a row per measure, moment ("start" or "end"), sigma and seed, with the columns value and accuracy. Dots
    after training are filled and joined in the order of sigma; those before training are hollow and grey. `notes` maps
    a measure to a text below its title, for example its correlation.
    """
    finite_rows, missing = base.finite(table, ("value", "accuracy"))
    by = ["measure", "moment", "sigma"]
    x, y = base.means(finite_rows, by), base.means(finite_rows, by, "accuracy")
    measures, sigmas = base.unique_in_order(table["measure"]), base.sorted_sigmas(table)
    figure, panels = base.panel_grid(len(measures), 4, (2.65, 2.5), extra=(1.0, 0.9))
    colors = ScalarMappable(base.sigma_colors(sigmas), base.SIGMA_COLORS)
    drawn: list[tuple[Means, Means]] = []
    for axes, measure in zip(panels, measures, strict=False):
        here = [(x["measure"] == measure) & (x["moment"] == moment) for moment in ("start", "end")]
        before, after = ((x[rows], y[rows]) for rows in here)
        drawn.append((before, after))
        (x_before, y_before), (x_after, y_after) = before, after
        # larger hollow dots remain visible as rings if training changed nothing
        look: base.Style = {"color": MUTED, "marker": "o", "markersize": 6.8, "elinewidth": 0.7, "zorder": 2}
        look |= {"xerr": base.errorbar_lengths(x_before), "hollow": True, "label": "before training"}
        base.draw_means(axes, y_before, x_before["mean"], (0, 1), **look)
        if len(x_after):
            axes.plot(x_after["mean"], y_after["mean"], color=MUTED, linewidth=0.9, zorder=3)
            shades: Any = colors.to_rgba(x_after["sigma"].to_numpy(dtype=float))
            bars: base.Style = {"ecolor": shades, "elinewidth": 0.9, "linestyle": "none", "zorder": 4}
            bars |= {"xerr": base.errorbar_lengths(x_after), "yerr": base.errorbar_lengths(y_after, (0, 1))}
            axes.errorbar(x_after["mean"], y_after["mean"], **bars)
            dots: base.Style = {"s": 21, "linewidths": 0.4, "edgecolors": MUTED, "zorder": 5}
            axes.scatter(x_after["mean"], y_after["mean"], c=shades, label="after training", **dots)
        elif x_before.empty:
            base.write_empty_note(axes)
        axes.margins(0.13)
        base.light_grid(axes, "both")
        base.title(axes, str(measure), (notes or {}).get(measure, ""), width=40)
        base.label_edges(axes, "mean of the measure", "held-out accuracy")
    for axes, (before, after) in zip(panels, drawn, strict=False):  # the panels share a scale, which is known only now
        if len(after[0]):
            _name_ends(axes, before, after)
    if not finite_rows.empty:
        shrink = 0.9 if len(panels) < 5 else 0.5
        base.sigma_colorbar(figure, panels, colors, base.thinned(sigmas, 5), shrink=shrink)
    base.legend(figure, ["after training", "before training"])
    return base.small_print(figure, run_name, f"dots and bars: {base.seeds_note(finite_rows, by)}", missing)


def _name_ends(axes: Axes, before: Means, after: Means) -> None:
    """Write labels at the dots of the smallest and the largest sigma, where they do not hide dots, lines and bars."""
    dots = np.concatenate([np.stack([x["mean"], y["mean"]], axis=1) for x, y in (after, before)])
    sigmas = after[0]["sigma"].tolist()
    ends = [0, len(sigmas) - 1][: len(sigmas)]
    path = dots[: len(sigmas)]
    reach = np.stack([base.errorbar_lengths(means).T for means in after])  # (2, k, 2): along x and y, down and up
    bars = [path[:, None] + np.eye(2)[i] * (reach[i] * [-1, 1])[..., None] for i in (0, 1)]
    lines = np.concatenate([np.stack([path[:-1], path[1:]], axis=1), *bars])
    texts = [f"{SIGMA} = {sigmas[end]:g}" for end in ends]
    write_beside(axes, path[ends], texts, room=(145, 115), dots=dots, lines=lines, gap=5.5)


def forest(table: pd.DataFrame, run_name: str) -> Figure:
    """Draw rank correlations with accuracy and their intervals, with a row per measure and a panel per question.

    `table` has the columns measure, question (the kind of correlation, such as "over the sigmas"), value, low, high and
    adjusted, the p-value adjusted for multiple tests. Dots with an adjusted p-value below 0.05 are filled, the others
    hollow. A text in the row of a measure without a dot says whether it was tested.
    """
    finite_rows, missing = base.finite(table)
    measures, questions = base.unique_in_order(table["measure"]), base.unique_in_order(table["question"])
    row = 0.31 if any("\n" in base.wrapped(str(measure), 40) for measure in measures) else 0.27
    height = row * max(len(measures), 2) + 1.6
    figure, panels = row_panels(measures, len(questions), 2.2, height, wrap=40, background="")
    for axes, question in zip(panels, questions, strict=False):
        rows = finite_rows[finite_rows["question"] == question].rename(columns={"value": "mean"})
        sure = rows["adjusted"].to_numpy(dtype=float) < ALPHA  # False for NaN
        for chosen, hollow, name in ((sure, False, f"adjusted p < {ALPHA:g}"), (~sure, True, "otherwise")):
            at = rows.loc[chosen, "measure"].map(measures.index)
            look: base.Style = {"color": BLUE, "marker": "o", "markersize": 5.4, "label": name, "zorder": 3}
            base.draw_means(axes, rows[chosen], at, along="x", hollow=hollow, **look)
        for measure in (measure for measure in measures if measure not in set(rows["measure"])):
            tested = ((table["measure"] == measure) & (table["question"] == question)).any()
            note: base.Style = {"ha": "center", "va": "center", "fontsize": SMALL, "color": MUTED}
            box = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.5}
            axes.text(0, measures.index(measure), "no value" if tested else "not asked", bbox=box, **note)
        base.title(axes, str(question), width=46)
        base.label(axes, "rank correlation\nwith held-out accuracy")
        axes.axvline(0, color=MUTED, linewidth=1.1, zorder=1)
        axes.set_xlim(-1.05, 1.05)
        axes.set_xticks([-1, -0.5, 0, 0.5, 1], ["\N{MINUS SIGN}1", "\N{MINUS SIGN}0.5", "0", "0.5", "1"])
        base.light_grid(axes, "both")
    base.legend(figure, [f"adjusted p < {ALPHA:g}", "otherwise"])
    without_interval = int((~np.isfinite(finite_rows[["low", "high"]].to_numpy(dtype=float)).all(axis=1)).sum())
    bare_note = f"{without_interval} of {len(finite_rows)} have no interval" if without_interval else ""
    notes = ("bars: 95% intervals; p adjusted for the number of tests", bare_note, missing)
    return base.small_print(figure, run_name, *notes)
