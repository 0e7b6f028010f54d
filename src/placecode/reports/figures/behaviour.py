"""Draw the behaviour of models: robustness to noise, confidence, and error rates by position.

>>> figure = noise_curves(table, "lst-sigma", chance=0.25)
>>> figure = error_maps([("small", small), ("large", large)], "lst-sigma")  # (rows, columns) each
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure

from placecode.errors import must_be
from placecode.reports.figures import base
from placecode.reports.figures.base import KINDS, MUTED, SIGMA, SPLITS

MOST_LINES = 5
"""Maximum number of sigmas in a panel. More are thinned out evenly."""
CONFIDENT = {"accuracy": "accuracy", "confidence": "confidence in the answer given"}


def noise_curves(table: pd.DataFrame, run_name: str, chance: float = 0.25) -> Figure:
    """Draw accuracy by noise level, with a panel per split and a line per sigma (at most five).

    `table` has the columns split, sigma, level, seed and value. Levels are drawn at equal distances, since the level 0
    has no place on a logarithmic axis.
    """
    finite_rows, lost = base.finite(table, ["split", "sigma", "level", "seed", "value"])
    by = ["split", "sigma", "level"]
    means = base.means(finite_rows, by)
    names = base.in_order(table["split"])
    splits = [split for split in SPLITS if split in names] + [split for split in names if split not in SPLITS]
    sigmas, levels = (
        base.thinned(table["sigma"].to_numpy(), MOST_LINES),
        np.unique(table["level"].to_numpy(dtype=float)),
    )
    figure, panels = base.grid_of(len(splits), 3, (3.1, 2.7))
    for axes, split in zip(panels, splits, strict=False):
        for i, sigma in enumerate(sigmas):
            rows = means[(means["split"] == split) & (means["sigma"] == sigma)]
            if len(rows):
                at = np.searchsorted(levels, rows["level"].to_numpy(dtype=float)) + 0.05 * (i - (len(sigmas) - 1) / 2)
                marks = {"label": f"{SIGMA} = {sigma:g}", "markersize": 4.6, "linewidth": 1.3, **KINDS[i]}
                base.errorbars(axes, at, rows["mean"], yerr=base.distances(rows, (0, 1)), **marks)
        if not (means["split"] == split).any():
            base.nothing(axes)
        base.title(axes, str(split))
        base.accuracy_axis(axes, chance)
        axes.set_xticks(range(len(levels)), [f"{level:g}" for level in levels])
        first, last = base.at_edge(axes)
        base.label(axes, "standard deviation of the noise" if last else "", "accuracy" if first else "")
    base.legend(figure, [f"{SIGMA} = {sigma:g}" for sigma in sigmas], columns=MOST_LINES + 1)
    left_out = f"; {len(sigmas)} of {table['sigma'].nunique()} sigmas" if table["sigma"].nunique() > len(sigmas) else ""
    base.small_print(figure, run_name, f"dots and bars: {base.over_seeds(finite_rows, by)}{left_out}", lost)
    return figure


def conditions_by_sigma(table: pd.DataFrame, run_name: str, chance: float = 0.25) -> Figure:
    """Draw accuracy and confidence by sigma in two panels, with a line per condition.

    `table` has the columns condition, sigma, seed, accuracy and confidence.
    """
    columns = ["condition", "sigma", "seed", "accuracy", "confidence"]
    finite_rows, lost = base.finite(table, columns, values=("accuracy", "confidence"))
    by = ["condition", "sigma"]
    conditions = base.in_order(table["condition"])
    sigmas = np.sort(table["sigma"].unique().astype(float))
    figure, panels = base.panels(1, 2, (8.2, 3.7))
    for axes, (value, axis_label) in zip(panels, CONFIDENT.items(), strict=True):
        means = base.means(finite_rows, by, value)
        if len(sigmas):
            base.sigma_axis(axes, sigmas, most=10)
        for i, condition in enumerate(conditions):
            rows = means[means["condition"] == condition]
            if len(rows):
                marks = {"label": str(condition), "markersize": 4.4, "linewidth": 1.2, **KINDS[i % len(KINDS)]}
                base.errorbars(axes, rows["sigma"], rows["mean"], yerr=base.distances(rows, (0, 1)), **marks)
        if means.empty:
            base.nothing(axes)
        base.accuracy_axis(axes, chance)
        base.label(axes, f"initial scale {SIGMA} of the encoding", axis_label)
    base.legend(figure, [str(condition) for condition in conditions], columns=6)
    base.small_print(figure, run_name, f"dots and bars: {base.over_seeds(finite_rows, by)}", lost)
    return figure


def error_maps(panels: Sequence[tuple[str, npt.NDArray[Any]]], run_name: str) -> Figure:
    """Draw error rates by the cell that is queried, with a map of shape (rows, columns) per (title, rates).

    The rate is written in every cell, or "none" if it is NaN because the cell was never queried.
    """
    arrays = [np.asarray(array, dtype=float) for _, array in panels]
    for array in arrays:
        if array.ndim != 2:
            raise must_be("error rates", "an array of shape (rows, columns)", array.shape)
    most = max((float(np.nanmax(array, initial=0)) for array in arrays), default=0.0)
    most = min(max(np.ceil(most * 10) / 10, 0.1), 1.0)
    figure, drawn = base.grid_of(len(arrays), 4, (2.4, 2.55), extra=(0.9, 0.5), sharey=False)
    for axes, (name, _), array in zip(drawn, panels, arrays, strict=False):
        axes.imshow(array, cmap="Blues", vmin=0, vmax=most, interpolation="none")
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        axes.set_xticks(range(array.shape[1]), [str(i + 1) for i in range(array.shape[1])])
        axes.set_yticks(range(array.shape[0]), [str(i + 1) for i in range(array.shape[0])])
        for (row, column), rate in np.ndenumerate(array):
            text, ink = "none", MUTED
            if np.isfinite(rate):  # the colour of the text depends on the cell, not on the page
                text, ink = f"{rate:.2f}", "#fefefe" if rate > 0.7 * most else "#111417"
            axes.text(column, row, text, ha="center", va="center", fontsize=8, color=ink)
        base.title(axes, str(name), width=38)
        first, last = base.at_edge(axes)
        base.label(axes, "column" if last else "", "row" if first else "")
    if arrays:
        scale = ScalarMappable(cmap=colormaps["Blues"])
        scale.set_clim(0, most)
        base.key(figure, scale, "share of wrong answers", ax=drawn, fraction=0.04, aspect=22, pad=0.02)
    base.small_print(figure, run_name, 'by the cell asked for; "none": never asked for')
    return figure
