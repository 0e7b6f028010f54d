"""Measures against sigma, before and after training.

>>> figure = before_and_after(table, "lst-sigma", labels={"norm": "root mean square of the PE's entries"})
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from placecode.reports.figures import base
from placecode.reports.figures.base import BLUE, MUTED, SIGMA


def before_and_after(table: pd.DataFrame, run_name: str, labels: Mapping[str, str] | None = None) -> Figure:
    """Each measure against sigma, a panel each: hollow and grey before training, filled after it.

    `table` has the columns measure, moment ("start" or "end"), sigma, seed and value. `labels` are the names of the
    vertical axes, by measure; the measure itself where there is none. Panels have scales of their own.
    """
    kept, lost = base.finite(table, ["measure", "moment", "sigma", "seed", "value"])
    by = ["measure", "moment", "sigma"]
    means = base.means(kept, by)
    measures = base.in_order(table["measure"])
    figure, panels = base.grid_of(len(measures), 3, (3.0, 2.35), sharey=False)
    styles: dict[str, base.Style] = {
        "start": {
            "color": MUTED,
            "linestyle": (0, (1, 1.4)),
            "hollow": True,
            "label": "before training",
            "zorder": 2,
            "markersize": 6.8,
        },
        "end": {
            "color": BLUE,
            "linestyle": "-",
            "hollow": False,
            "label": "after training",
            "zorder": 3,
            "markersize": 4.2,
        },
    }
    for axes, measure in zip(panels, measures, strict=False):
        sigmas = np.sort(table.loc[table["measure"] == measure, "sigma"].unique().astype(float))
        base.sigma_axis(axes, sigmas, most=5)
        for moment, style in styles.items():
            rows = means[(means["measure"] == measure) & (means["moment"] == moment)]
            if len(rows):
                reach: base.Style = {"yerr": base.distances(rows), "marker": "o", "linewidth": 1.1}
                base.errorbars(axes, rows["sigma"], rows["mean"], **reach, **style)
        if not (means["measure"] == measure).any():
            base.nothing(axes)
        base.quiet_lines(axes)
        _, last = base.at_edge(axes)
        said = base.wrapped(base.short((labels or {}).get(measure, str(measure)), 78), 26)
        base.label(axes, f"initial scale {SIGMA} of the encoding" if last else "", said)
    base.legend(figure, ["before training", "after training"])
    base.small_print(figure, run_name, f"dots and bars: {base.over_seeds(kept, by)}", lost)
    return figure
