"""Draw learning curves, which are accuracy or loss during training: by sigma, by encoding and by other settings.

>>> figure = learning_curves(run.members, run.metrics, run_name="lst-quick")
>>> figure = curves_by_setting(curves, "lst-heads")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from placecode.reports.figures import accuracy, base
from placecode.reports.figures.base import LINE_STYLES, MUTED, SIGMA, SPLITS
from placecode.reports.figures.encodings import rate_name, rate_style, sorted_rates
from placecode.reports.figures.knobs import chance_of, full_names

MAX_SIGMAS = 6
"""Maximum number of sigmas per encoding in `learning_curves`. If there are more, evenly spread ones are drawn."""
MIN_LOSS = 1e-9
"""Smallest loss that is drawn. A loss of 0, which a logarithmic axis cannot show, is drawn here and labelled "0"."""


def learning_curves(members: pd.DataFrame, metrics: pd.DataFrame, run_name: str, chance: float = 0.25) -> Figure:
    """Draw accuracy by training step, with a panel for each encoding and sigma (at most six sigmas per encoding)."""
    settings = accuracy.labelled(members)
    table = accuracy.accuracies(settings, metrics)
    sweeps, others = accuracy.swept_labels(settings)
    by_panel: list[tuple[str, float | None]] = []
    for label in sweeps:
        sigmas = settings.loc[settings["label"] == label, "sigma"].dropna().to_numpy()
        by_panel += [(label, sigma) for sigma in base.thinned(sigmas, MAX_SIGMAS)]
    by_panel += [(label, None) for label in others]
    figure, panels = base.panel_grid(len(by_panel), 3, (2.75, 2.15))
    for axes, (label, sigma) in zip(panels, by_panel, strict=True):
        here = table[(table["label"] == label) & ((table["sigma"] == sigma) | (sigma is None))]
        means = base.means(here, ["split", "step"])
        for split, style in SPLITS.items():
            line = {"linestyle": style["linestyle"], "linewidth": 1.6, "label": split}
            curve(axes, means[means["split"] == split], style["color"], 0.16, **line)
        if here.empty:
            axes.text(0.5, 0.6, base.ALL_DIVERGED, transform=axes.transAxes, ha="center", color=MUTED, fontsize=8)
        at = "" if sigma is None else f"{SIGMA} = {sigma:g}"
        base.title(axes, at if at and len(sweeps) == 1 else ", ".join(part for part in (label, at) if part))
        base.accuracy_axis(axes, chance)
        _step_axis(axes, max(float(metrics["step"].max()), 1.0))
        base.label_edges(axes, "training step", "accuracy")
    base.legend(figure, [*SPLITS])
    return base.small_print(
        figure, run_name, f"line and band: {accuracy.means_over(table)}", base.diverged_note(settings)
    )


def slingshots(panels: Sequence[tuple[str, str, pd.DataFrame]], run_name: str, chance: float = 0.25) -> Figure:
    """Draw metrics by epoch, to show slingshots (spikes of the training loss). Thin lines are seeds, thick lines means.

    An entry of `panels` is (title, metric, table); the table has the columns line, epoch, seed and value. The axis of
    the metric "loss" is logarithmic and its lower end stands for 0; the axis of "accuracy" is from 0 to 1.
    """
    figure, drawn = base.panels(1, len(panels), (3.3 * len(panels) + 0.4, 3.4), sharey=False)
    notes = set()
    for axes, (title, metric, table) in zip(drawn, panels, strict=True):
        finite_rows, missing = base.finite(table)
        notes.add(missing)
        least = MIN_LOSS if metric == "loss" else -np.inf
        for place, line in enumerate(base.unique_in_order(table["line"])):
            style = LINE_STYLES[place % len(LINE_STYLES)]
            rows = finite_rows[finite_rows["line"] == line]
            for _, seed_rows in rows.groupby("seed"):
                values = seed_rows["value"].clip(least)
                axes.plot(seed_rows["epoch"], values, color=style["color"], alpha=0.28, linewidth=0.7)
            means = rows.groupby("epoch")["value"].mean().clip(least)
            look: base.Style = {"color": style["color"], "linestyle": style["linestyle"], "linewidth": 1.7}
            axes.plot(means.index, means, label=str(line), **look)
        if metric == "loss":
            axes.set(yscale="log", ylim=(MIN_LOSS / 2, None))
            axes.set_yticks([MIN_LOSS, 1e-6, 1e-3, 1], ["0", "1e-06", "0.001", "1"])
            axes.minorticks_off()
        elif metric == "accuracy":
            base.accuracy_axis(axes, chance)
        base.light_grid(axes)
        base.title(axes, title)
        base.label(axes, "epoch")
    base.legend(figure, columns=3)
    return base.small_print(figure, run_name, "thin: single seeds; thick: their mean", *sorted(notes))


def curves_by_name(table: pd.DataFrame, run_name: str, chance: float = 0.25) -> Figure:
    """Draw OOD accuracy by training step, with a panel per encoding, and a line and a band per dropout rate.

    `table` has the columns name, dropout, step, seed and value.
    """
    means, averaged, missing = base.summarized(table, ["name", "dropout", "step"])
    names, rates = base.unique_in_order(table["name"]), sorted_rates(table)
    figure, panels = base.panel_grid(len(names), 4, (2.1, 1.6))
    for axes, name in zip(panels, names, strict=False):
        here = means[means["name"] == name]
        for rate, rows in here.groupby("dropout"):
            style = rate_style(float(rate), rates)
            line = {"linestyle": style["linestyle"], "linewidth": 1.5, "label": rate_name(float(rate))}
            curve(axes, rows, style["color"], 0.16, **line)
        _finish(axes, str(name), here, means, chance, "ood\naccuracy")
    base.legend(figure, [rate_name(rate) for rate in rates])
    return base.small_print(figure, run_name, f"line and band: {averaged}", missing)


def curves_by_setting(table: pd.DataFrame, run_name: str, chance: Mapping[str, float] | float = 0.25) -> Figure:
    """Draw held-out accuracy by training step, with a curve per sigma.

    `table` has the columns panel, line, sigma, step, seed and value, and `chance` is the chance level, both as in
    `accuracy_by_setting`. Each combination of panel and line has a panel. Bands are 95% intervals over seeds.
    """
    means, averaged, missing = base.summarized(table, ["panel", "line", "sigma", "step"])
    kinds = table[["panel", "line"]].drop_duplicates().assign(name=full_names)
    figure, panels = base.panel_grid(len(kinds), 4, (2.25, 1.75), extra=(0.9, 0.9))
    sigmas = base.sorted_sigmas(table)
    colors = ScalarMappable(base.sigma_colors(sigmas), base.SIGMA_COLORS)
    for axes, (panel, line, name) in zip(panels, kinds.itertuples(index=False), strict=False):
        here = means[(means["panel"] == panel) & (means["line"] == line)]
        for sigma, rows in here.groupby("sigma"):
            curve(axes, rows, colors.to_rgba(float(sigma)), 0.14, linewidth=1.4)  # type: ignore[arg-type]
        _finish(axes, str(name), here, means, chance_of(chance, panel), "held-out\naccuracy")
    if not means.empty:
        base.sigma_colorbar(figure, panels, colors, list(sigmas), shrink=0.8)
    return base.small_print(figure, run_name, f"line and band: {averaged}", missing)


def curve(axes: Axes, rows: pd.DataFrame, color: Any, alpha: float, most: float = 1.0, **style: Any) -> None:
    """Draw means by training step as a line, and their intervals, clipped to [0, most], as a band of opacity `alpha`.

    `rows` has the columns step, mean, low and high. `style` has arguments of `Axes.plot` for the line.
    """
    steps, mean, low, high = (rows[name].to_numpy(dtype=float) for name in ("step", "mean", "low", "high"))
    axes.fill_between(steps, low.clip(0, most), high.clip(0, most), color=color, alpha=alpha, linewidth=0)
    axes.plot(steps, mean, color=color, **style)


def _finish(axes: Axes, name: str, here: pd.DataFrame, means: pd.DataFrame, chance: float, label: str) -> None:
    """Set the title, axes and labels of a panel with the accuracies `here`. `means` has the values of all panels."""
    if here.empty:
        base.write_empty_note(axes)
    base.title(axes, name, width=38)
    base.accuracy_axis(axes, chance)
    _step_axis(axes, max(float(means["step"].max()), 1.0) if len(means) else 1.0)
    axes.tick_params("x", labelbottom=base.is_outer_panel(axes)[1])
    base.label_edges(axes, "training step", label)


def _step_axis(axes: Axes, last: float) -> None:
    """Set up a horizontal axis of training steps from 0 to `last`."""
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlim(-0.02 * last, 1.02 * last)
