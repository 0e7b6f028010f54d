"""Compare PEs with known networks of the brain: by sigma with two null distributions, and by preprocessing.

>>> titles = {"yeo7": "Yeo-7 networks", "cole-anticevic": "Cole-Anticevic networks"}
>>> figure = networks_by_sigma(run.members, run.analysis, run.baselines, "brain-sigma", titles)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure

from placecode.reports.figures import base, channels
from placecode.reports.figures.base import MUTED, ORANGE, SIGMA, VERMILLION

MEASURES = {"modularity": "signed modularity Q", "segregation": "system segregation"}
"""Measures in rows of panels, with the labels of their vertical axes."""
MAX_PARTITIONS = 2
FC, CENTRED = "functional connectivity", "the same, centred as PEs are"
BASELINES = {"fc": FC, "centred fc": CENTRED}
"""Labels of the baselines that are drawn as levels."""
SHUFFLED, SMOOTH = "95% of shuffled labels", "95% of maps as smooth"
ALL_BLOCKS = -1
AT_MOST_1 = (-np.inf, 1.0)
MARKERS = ("o", "s", "^", "v", "P", "X")


def networks_by_sigma(
    members: pd.DataFrame,
    analysis: pd.DataFrame,
    baselines: pd.DataFrame,
    run_name: str,
    partitions: Mapping[str, str],
    note: str = "",
) -> Figure:
    """Draw modularity and segregation of PEs by sigma, with a row per measure and a column per partition.

    Parameters
    ----------
    members, analysis, baselines : DataFrame
        Tables of a run, with one member per sigma and seed.
    run_name : str
        Name of the run, for the small print.
    partitions : mapping of str to str
        Target of each partition in the tables, and its title. The first two are drawn.
    note : str
        Added to the small print.

    Returns
    -------
    Figure
        Bands are the 95% ranges of two null distributions after training, averaged over seeds. Functional connectivity
        is drawn as a level, the mean over worlds.
    """
    shown = list(partitions.items())[:MAX_PARTITIONS]
    settings = channels.swept(members)
    ends = [f"{kind}_{end}" for kind in ("", "_smooth") for end in ("low", "high")]
    wanted = [f"{name}{ending}" for name in MEASURES for ending in ("", *ends)]
    rows = analysis[(analysis["block"] == ALL_BLOCKS) & analysis["analysis"].isin(wanted)]
    rows = rows[(rows["step"] == 0) | (rows["step"] == rows["step"].max())]
    finite_rows, lost = channels.of_members(settings, rows, ["analysis", "target", "step"])
    figure, panels = base.grid_of(len(MEASURES) * len(shown), max(len(shown), 1), (3.7, 2.5), sharey=False)
    cells = [(measure, target) for measure in MEASURES for target, _ in shown]
    known = [channels.of_data(members, baselines, "analysis", target, measure) for measure, target in cells]
    known = [table.assign(baseline=table["baseline"].map(BASELINES)).dropna(subset=["baseline"]) for table in known]
    styles = channels.level_styles(known)
    for place, (axes, (measure, target), levels) in enumerate(zip(panels, cells, known, strict=True)):
        here = finite_rows[finite_rows["target"] == target]
        measured = here[here["analysis"] == measure]
        channels.along_sigma(
            axes,
            settings,
            measured[measured["step"] > 0],
            measured[measured["step"] == 0],
            bounds=AT_MOST_1,
            label="after training",
        )
        _band(axes, here, measure, SHUFFLED, color=MUTED, alpha=0.32, linewidth=0, zorder=0.6)
        _band(axes, here, f"{measure}_smooth", SMOOTH, facecolor=ORANGE, alpha=0.3, linewidth=0, zorder=0.5)
        channels.levels(axes, levels, styles)
        base.quiet_lines(axes)
        channels.own_scale(axes)
        first, last = base.at_edge(axes)
        if place < len(shown):
            base.title(axes, partitions[target])
        base.label(axes, f"initial scale {SIGMA} of the encoding" if last else "", MEASURES[measure] if first else "")
    channels.legend(figure, ["after training", "before training", FC, CENTRED, SHUFFLED, SMOOTH])
    values = finite_rows[finite_rows["analysis"].isin(list(MEASURES))]
    how = base.over_seeds(values, ["analysis", "target", "step", "sigma"])
    bands = "bands: limits of the nulls after training, mean over seeds"
    over = channels.over_worlds(known, "lines that end in a mark: functional connectivity")
    left_out = channels.left_out(settings)
    base.small_print(figure, run_name, f"faint: single seeds; bars: {how}; {bands}", over, note, left_out, lost)
    return figure


def _band(axes: Axes, rows: pd.DataFrame, prefix: str, label: str, **style: object) -> None:
    """Draw the range of a null distribution by sigma, from the mean of its lower to that of its upper limits."""
    last = rows[rows["step"] > 0]
    limits = [last[last["analysis"] == f"{prefix}_{end}"].groupby("sigma")["value"].mean() for end in ("low", "high")]
    low, high = (limit.sort_index() for limit in limits)
    if len(low) and low.index.equals(high.index):
        axes.fill_between(low.index.to_numpy(dtype=float), low, high, label=label, **style)  # type: ignore[arg-type]


def measures_by_variant(
    table: pd.DataFrame, levels: pd.DataFrame, run_name: str, panels: Mapping[str, str], note: str = ""
) -> Figure:
    """Draw measures of PEs by the preprocessing of recordings, with a row per variant and a mark per sigma.

    Parameters
    ----------
    table : DataFrame
        Columns measure, variant, sigma, seed and value.
    levels : DataFrame
        Columns measure, variant and value: results of functional connectivity by world, centred as PEs are.
    run_name : str
        Name of the run, for the small print.
    panels : mapping of str to str
        Measures of the table and their axis labels; at most four.
    note : str
        Added to the small print.

    Returns
    -------
    Figure
        The figure.
    """
    finite_rows, lost = base.finite(table, ["measure", "variant", "sigma", "seed", "value"])
    variants: list[str] = base.in_order(table["variant"])
    sigmas = np.sort(table["sigma"].unique())
    shown = list(panels.items())[:4]
    words = [base.wrapped(variant, 24) for variant in variants]
    longest = max((len(line) for word in words for line in word.split("\n")), default=0)
    size = (
        0.075 * longest + 2.15 * max(len(shown), 1) + 0.3,
        0.17 * max(len(sigmas) + 1, 3) * max(len(words), 2) + 1.5,
    )
    figure, drawn = base.panels(1, max(len(shown), 1), (max(size[0], base.NARROWEST), size[1]))
    drawn[0].set_ylim(max(len(variants), 1) - 0.5, -0.5)
    drawn[0].set_yticks(range(len(variants)), words, parse_math=False)
    colors = ScalarMappable(base.sigma_colors(sigmas), channels.SCALE)
    for axes, (measure, axis_label) in zip(drawn, shown, strict=False):
        axes.spines["left"].set_visible(False)
        axes.tick_params("y", length=0)
        for at in range(0, len(variants), 2):
            axes.axhspan(at - 0.5, at + 0.5, color=MUTED, alpha=0.09, linewidth=0)
        here = finite_rows[finite_rows["measure"] == measure]
        for i, sigma in enumerate(sigmas):
            rows = base.means(here[here["sigma"] == sigma], ["variant"])
            color = colors.to_rgba(np.array([sigma]))[0]
            look: base.Style = {"color": color, "marker": MARKERS[i % len(MARKERS)], "markersize": 5}
            _in_rows(axes, rows, variants, i, len(sigmas) + 1, label=f"{SIGMA} = {sigma:g}", **look)
        fc_means = base.means(levels[levels["measure"] == measure].dropna(subset=["value"]), ["variant"])
        diamond: base.Style = {"color": VERMILLION, "marker": "D", "markersize": 4.4, "hollow": True}
        _in_rows(axes, fc_means, variants, len(sigmas), len(sigmas) + 1, label=FC, **diamond)
        if here.empty:
            base.nothing(axes)
        axes.axvline(0, color=MUTED, linewidth=0.9, zorder=0.8)
        base.quiet_lines(axes, "x")
        channels.own_scale(axes, "x")
        base.label(axes, base.wrapped(axis_label, 30))
    base.legend(figure, [*(f"{SIGMA} = {sigma:g}" for sigma in sigmas), FC], columns=5)
    how = base.over_seeds(finite_rows, ["measure", "variant", "sigma"]).replace("seeds", "splits of the people")
    base.small_print(figure, run_name, f"marks and bars: {how}, after training", note, lost)
    return figure


def _in_rows(axes: Axes, rows: pd.DataFrame, variants: Sequence[str], place: int, places: int, **style: object) -> None:
    """Draw means with intervals in the rows of their variants, at one of several heights."""
    if len(rows):
        at = [variants.index(variant) + 0.76 * ((place + 0.5) / places - 0.5) for variant in rows["variant"]]
        base.errorbars(axes, rows["mean"], at, xerr=base.distances(rows), **style)  # type: ignore[arg-type]
