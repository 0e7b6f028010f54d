"""Training loss, mean logit and accuracy over the epochs, by kind of loss.

>>> figure = slingshots({"training loss": table, "OOD accuracy": table}, "lst-slingshot")
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from placecode.reports.figures import base
from placecode.reports.figures.base import KINDS

LEAST_LOSS = 1e-9
"""Where a loss of exactly 0 is drawn on a logarithmic axis."""


def slingshots(panels: Mapping[str, pd.DataFrame], run_name: str, chance: float = 0.25) -> Figure:
    """A panel for each table, which has the columns line, epoch, seed and value.

    Seeds are thin lines, their means thick ones. Losses have a logarithmic axis whose lower end stands for 0;
    accuracies have an axis from 0 to 1.
    """
    figure, drawn = base.panels(1, len(panels), (3.3 * len(panels) + 0.4, 3.4), sharey=False)
    notes = set()
    for axes, (name, table) in zip(drawn, panels.items(), strict=True):
        kept, lost = base.finite(table, ["line", "epoch", "seed", "value"])
        notes |= {lost}
        is_loss, is_accuracy = "loss" in name, "accuracy" in name
        for place, line in enumerate(base.in_order(table["line"])):
            look = KINDS[place % len(KINDS)]
            rows = kept[kept["line"] == line]
            for _, own in rows.groupby("seed"):
                values = np.maximum(own["value"], LEAST_LOSS) if is_loss else own["value"]
                axes.plot(own["epoch"], values, color=look["color"], alpha=0.28, linewidth=0.7)
            means = rows.groupby("epoch")["value"].mean()
            values = np.maximum(means, LEAST_LOSS) if is_loss else means
            style: base.Style = {"color": look["color"], "linestyle": look["linestyle"], "linewidth": 1.7}
            axes.plot(means.index, values, label=str(line), **style)
        if is_loss:
            axes.set_yscale("log")
            axes.set_ylim(LEAST_LOSS / 2, None)
            ticks = [LEAST_LOSS, 1e-6, 1e-3, 1]
            axes.set_yticks(ticks, ["0", *(f"{tick:g}" for tick in ticks[1:])])
            axes.minorticks_off()
        elif is_accuracy:
            base.accuracy_axis(axes, chance)
        base.quiet_lines(axes)
        base.title(axes, name)
        base.label(axes, "epoch")
    base.legend(figure, columns=3)
    base.small_print(figure, run_name, "thin: single seeds; thick: their mean", *sorted(notes))
    return figure
