"""Our means over seeds beside published ones.

>>> figure = beside_published(table, {0.1: 0.925, 0.2: 0.956}, "lst-sigma")
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from placecode.reports.figures import base
from placecode.reports.figures.base import BLUE, INK, SIGMA, VERMILLION


def beside_published(
    table: pd.DataFrame, published: Mapping[float, float], run_name: str, chance: float = 0.25
) -> Figure:
    """Accuracy against sigma: our mean with its 95% interval, each seed a faint dot, and the published mean as a cross.

    `table` has the columns sigma, seed and value; sigmas without a published mean are drawn without one.
    """
    kept, lost = base.finite(table, ["sigma", "seed", "value"])
    means = base.means(kept, ["sigma"])
    figure, (axes,) = base.panels(1, 1, (6.4, 4.0))
    sigmas = np.sort(table["sigma"].unique().astype(float))
    base.sigma_axis(axes, sigmas)
    axes.plot(kept["sigma"], kept["value"], ".", color=BLUE, alpha=0.22, markersize=4, label="single seeds")
    style: base.Style = {"color": BLUE, "marker": "o", "linestyle": "-", "linewidth": 1.4, "markersize": 5}
    base.errorbars(axes, means["sigma"], means["mean"], yerr=base.distances(means, (0, 1)), label="ours", **style)
    shown = [sigma for sigma in sigmas if sigma in published]
    cross: base.Style = {"marker": "x", "markersize": 7, "markeredgewidth": 1.8, "linestyle": "none"}
    axes.plot(shown, [published[sigma] for sigma in shown], color=VERMILLION, label="published", zorder=5, **cross)
    base.accuracy_axis(axes, chance)
    base.label(axes, f"initial scale {SIGMA} of the encoding", "OOD accuracy at the end")
    axes.yaxis.label.set_color(INK)
    base.legend(figure, ["ours", "single seeds", "published"])
    base.small_print(figure, run_name, f"points and bars: {base.over_seeds(kept, ['sigma'])}", lost)
    return figure
