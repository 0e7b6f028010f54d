"""Draw how learned PEs reflect groups of channels: measures by sigma and by encoding, and similarity maps.

>>> measures = [("neighbor_agreement", "labels"), ("modularity", "labels")]
>>> chance = {("neighbor_agreement", "labels"): 0.18}
>>> figure = structure_by_sigma(run.members, run.analysis, run.baselines, "network-sigma", measures, chance)
>>> figure = similarity_by_sigma({"0.01": small, "2": large}, labels, "network-sigma", reference=fc)  # (n, n)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from placecode.errors import must_be
from placecode.reports.figures import base, channels
from placecode.reports.figures.base import BLUE, MUTED, SIGMA, VERMILLION

Measure = tuple[str, str]
"""An analysis and its target, as in the table of a run's analyses."""
Level = float | tuple[float, float]
"""A chance level, or the 95% range of the null distribution."""
ALL_BLOCKS = -1
SHARE, AT_MOST_1 = (0.0, 1.0), (-1.0, 1.0)
BOUNDS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("neighbor_agreement", "mirror_agreement", "coordinate_agreement", "procrustes_r2"), SHARE),
    **dict.fromkeys(("modularity", "ari", "ami", "silhouette", "segregation", "fc_correlation"), AT_MOST_1),
}
"""Lowest and highest value of a measure, to which drawn intervals are clipped. Not all of (0, 1) are shares with a
chance level near 0: `coordinate_agreement` is a mean rank, 0.5 by chance."""
SIGNED = LinearSegmentedColormap.from_list("signed", ("#fff3a3", "#e6dfb6", "#c4c6c9", "#5b8ab8", "#0a2f66"))
"""Colour map from yellow (negative) over grey (0) to dark blue (positive), monotonic in greyscale."""


def structure_by_sigma(
    members: pd.DataFrame,
    analysis: pd.DataFrame,
    baselines: pd.DataFrame | None,
    run_name: str,
    measures: Sequence[Measure],
    chance: Mapping[Measure, Level] | None = None,
    labels: Mapping[Measure, str] | None = None,
    block: int = ALL_BLOCKS,
) -> Figure:
    """Draw measures of the PEs by sigma before training (hollow and grey) and after it, with a panel per measure.

    Members without a sigma are left out. Baselines are lines at their means over worlds, with a mark at the right end
    to distinguish lines that coincide. `chance` is a level or a range by measure, `labels` are the labels of the
    vertical axes. A sigma at which all members diverged is labelled.
    """
    settings = channels.swept(members)
    rows, lost = channels.of_members(settings, _of(analysis, measures, block), ["analysis", "target", "step"])
    known = {measure: channels.of_data(members, baselines, "analysis", *measure[::-1]) for measure in measures}
    styles = channels.level_styles([*known.values()])
    figure, panels = base.grid_of(len(measures), 3, (3.1 + 0.09 * len(styles), 2.6), sharey=False)
    for axes, measure in zip(panels, measures, strict=False):
        here = rows[(rows["analysis"] == measure[0]) & (rows["target"] == measure[1])]
        before, after = here[here["step"] == 0], here[here["step"] > 0]
        bounds = BOUNDS.get(measure[0])
        channels.along_sigma(axes, settings, after, before, bounds=bounds, label="after training")
        _chance(axes, (chance or {}).get(measure))
        channels.levels(axes, known[measure], styles)
        base.quiet_lines(axes)
        channels.own_scale(axes)
        _, last = base.at_edge(axes)
        axis_label = base.wrapped(base.short(_label(measure, labels), 78), 30)
        base.label(axes, f"initial scale {SIGMA} of the encoding" if last else "", axis_label)
    channels.legend(figure, ["after training", "before training", *styles])
    how = base.over_seeds(rows, ["analysis", "target", "step", "sigma"])
    over = channels.over_worlds([*known.values()])
    base.small_print(figure, run_name, f"faint: single seeds; bars: {how}", over, channels.left_out(settings), lost)
    return figure


def measure_by_name(
    members: pd.DataFrame,
    analysis: pd.DataFrame,
    metrics: pd.DataFrame,
    run_name: str,
    measures: Sequence[Measure] = (("neighbor_agreement", "labels"),),
    baselines: pd.DataFrame | None = None,
    chance: Mapping[Measure, Level] | None = None,
    labels: Mapping[Measure, str] | None = None,
    split: str = "test",
) -> Figure:
    """Draw errors at every share of hidden channels and measures of the PE, with a row per encoding.

    `members` have a column `name`, and one member per name and seed. The row with the smallest error, at the share used
    in training, is on top. Measures before training are hollow and grey. Baselines have separate rows below; a
    predictor has no structure, and a similarity matrix has no error.
    """
    settings = channels.checked(members, "name")
    errors, lost = channels.of_members(settings, channels.final_errors(metrics, split), ["condition"])
    measured, missing = channels.of_members(settings, _of(analysis, measures), ["analysis", "target", "step"])
    shares = channels.conditions(metrics, split)
    names = _least_first(settings, base.means(errors, ["name", "condition"]), channels.trained_first(shares, members))
    columns = [(split, share, "mse") for share in shares] + [("analysis", target, name) for name, target in measures]
    known = {one: channels.of_data(members, baselines, *one) for one in columns}
    others = base.in_order(pd.concat([pd.Series(dtype=object), *(rows["baseline"] for rows in known.values())]))
    figure, panels = _rows(names, others, len(columns))
    for axes, one in zip(panels, columns, strict=False):
        of_errors = one[0] != "analysis"
        here = (
            errors[errors["condition"] == one[1]]
            if of_errors
            else measured[(measured["analysis"] == one[2]) & (measured["target"] == one[1])]
        )
        bounds = (0.0, np.inf) if of_errors else BOUNDS.get(one[2])
        after = base.means(here if of_errors else here[here["step"] > 0], ["name"])
        if not of_errors:
            _marks(axes, names, base.means(here[here["step"] == 0], ["name"]), bounds, **_BEFORE)
            _chance(axes, (chance or {}).get((one[2], one[1])), "x")
        _marks(axes, names, after, bounds, **_AFTER)
        rows = base.means(known[one].rename(columns={"baseline": "name"}), ["name"])
        _marks(axes, others, rows, bounds, below=len(names), **_BASELINE)
        _say_missing(axes, settings, names, after, "no values" if of_errors else "no PE to measure")
        head, note = channels.share_title(one[1], members) if of_errors else ("structure of the PE", "")
        base.title(axes, f"{head}\n{note}" if note else head, width=38)
        axis_label = f"{split} error (mse)" if of_errors else _label((one[2], one[1]), labels)
        base.label(axes, base.wrapped(base.short(axis_label, 78), 34))
        base.quiet_lines(axes, "x")
        channels.own_scale(axes, "x")
    base.legend(figure, ["after training", "before training", "baseline"])
    how = base.over_seeds(errors, ["name", "condition"])
    over = channels.over_worlds([*known.values()], "baselines in rows of their own", "mean and 95% t interval")
    holes = [f"{what}: {note}" for what, note in (("errors", lost), ("measures", missing)) if note]
    base.small_print(figure, run_name, f"marks and bars: {how}", over, channels.left_out(settings), *holes)
    return figure


_BEFORE: base.Style = {"color": MUTED, "marker": "o", "markersize": 7, "hollow": True, "label": "before training"}
_AFTER: base.Style = {"color": BLUE, "marker": "s", "markersize": 4.8, "label": "after training", "zorder": 3}
_BASELINE: base.Style = {"color": VERMILLION, "marker": "D", "markersize": 4.6, "label": "baseline", "zorder": 3}


def similarity_by_sigma(
    maps: Mapping[str, npt.NDArray[Any]],
    labels: Sequence[int] | npt.NDArray[Any],
    run_name: str,
    reference: npt.NDArray[Any] | None = None,
    names: Mapping[int, str] | None = None,
    reference_title: str = "functional connectivity",
    note: str = "",
) -> Figure:
    """Draw the similarity of the PEs of all pairs of tokens, as maps (n, n) by title, sorted by cluster.

    `labels` (n,) are integers, -1 for tokens without a cluster, which come last. Thin lines separate clusters; `names`
    of clusters are written next to the first map of a row if there is space. All maps and the `reference`, drawn last,
    share one symmetric colour scale, which ends at the 99th percentile of the off-diagonal entries of the map where
    this is largest. `note` describes the maps: of one seed, or means over several.
    """
    of = np.asarray(labels)
    order = np.lexsort((np.arange(len(of)), of, of < 0))
    titled = [*maps.items(), *([] if reference is None else [(reference_title, reference)])]
    shown = [(str(name), np.asarray(matrix, dtype=float)) for name, matrix in titled]
    n = len(of)
    for _, matrix in shown:
        if matrix.shape != (n, n):
            raise must_be(
                "a similarity map", f"an array of shape ({n}, {n}), a row and a column per label", matrix.shape
            )
    off = [np.abs(matrix[~np.eye(n, dtype=bool) & np.isfinite(matrix)]) for _, matrix in shown]
    most = max((float(np.percentile(entries, 99)) for entries in off if len(entries)), default=0.0)
    most = float(np.ceil(most * 10 - 1e-9) / 10) or 1.0
    edges = np.flatnonzero(np.diff(of[order])) + 1
    figure, panels = base.grid_of(len(shown), 4, (2.05, 2.3), extra=(1.3, 0.5), sharey=False)
    for axes, (name, matrix) in zip(panels, shown, strict=False):
        how = "none" if n <= 200 else "antialiased"  # more entries than dots on a page: it would only swell
        axes.imshow(matrix[np.ix_(order, order)], cmap=SIGNED, vmin=-most, vmax=most, interpolation=how)
        axes.spines[:].set_color(MUTED)
        axes.spines[:].set(visible=True, linewidth=0.5)
        axes.set(xticks=[], yticks=[])
        for edge in edges if np.isfinite(matrix).any() else ():
            axes.axhline(edge - 0.5, color=base.INK, linewidth=0.45, alpha=0.75)
            axes.axvline(edge - 0.5, color=base.INK, linewidth=0.45, alpha=0.75)
        if not np.isfinite(matrix).any():
            base.nothing(axes, "not finite")
        base.title(axes, name, width=34)
        if base.at_edge(axes)[0]:
            _name_clusters(axes, of[order], names or {})
    if shown:
        scale = ScalarMappable(cmap=SIGNED)
        scale.set_clim(-most, most)
        beyond = "both" if any(entries.max(initial=0) > most for entries in off) else "neither"
        place: base.Style = {"ax": panels, "fraction": 0.03, "aspect": 20, "pad": 0.02, "shrink": 0.8}
        base.key(figure, scale, "similarity of two tokens", extend=beyond, **place)
    count = len(np.unique(of[of >= 0]))
    loose = f", and {(of < 0).sum()} in none, last" if (of < 0).any() else ""
    some = (np.isfinite(matrix).any() and not np.isfinite(matrix).all() for _, matrix in shown)
    blank = "blank: not finite" if any(some) else ""
    base.small_print(figure, run_name, f"{n} tokens in {count} clusters{loose}; lines between clusters", note, blank)
    return figure


def _name_clusters(axes: Axes, of: npt.NDArray[Any], names: Mapping[int, str]) -> None:
    """Write the names of clusters next to their rows, except for rows that are too thin."""
    clusters, first, size = np.unique(of, return_index=True, return_counts=True)
    room = 2.0 * 72 * size / len(of)
    wanted = [i for i in range(len(clusters)) if int(clusters[i]) in names and room[i] >= 6.5]
    places = [first[i] + size[i] / 2 - 0.5 for i in wanted]
    axes.set_yticks(places, [base.short(names[int(clusters[i])], 22) for i in wanted], parse_math=False)
    axes.tick_params("y", length=0, labelsize=6.5, pad=2)


# ------------------------------------------------------------------------------------------------- measures, rows


def _of(analysis: pd.DataFrame, measures: Sequence[Measure], block: int = ALL_BLOCKS) -> pd.DataFrame:
    """Return the rows of these measures, before training and at the last step."""
    wanted = pd.Series(list(zip(analysis["analysis"], analysis["target"], strict=True)), index=analysis.index)
    rows = analysis[wanted.isin(list(measures)) & (analysis["block"] == block)]
    return pd.DataFrame(rows[(rows["step"] == 0) | (rows["step"] == rows["step"].max())])


def _label(measure: Measure, labels: Mapping[Measure, str] | None) -> str:
    """Return the label of a measure."""
    return (labels or {}).get(measure, measure[0].replace("_", " "))


def _chance(axes: Axes, level: Level | None, along: str = "y") -> None:
    """Draw the chance level as a line, or its range as a band."""
    if level is None:
        return
    if isinstance(level, tuple):
        band: base.Style = {"color": MUTED, "alpha": 0.18, "linewidth": 0, "label": "95% of chance", "zorder": 0}
        (axes.axhspan if along == "y" else axes.axvspan)(*level, **band)
    else:
        line: base.Style = {"color": MUTED, "linewidth": 1.1, "linestyle": (0, (6, 2, 1, 2)), "zorder": 1}
        (axes.axhline if along == "y" else axes.axvline)(level, label="chance", **line)


def _least_first(settings: pd.DataFrame, means: pd.DataFrame, shares: Sequence[str]) -> list[Any]:
    """Sort names by their error at the first of these shares; missing values last."""
    rows = means[means["condition"] == shares[0]] if shares else means
    error = dict(zip(rows["name"], rows["mean"], strict=True))
    return sorted(base.in_order(settings["name"]), key=lambda name: error.get(name, np.inf))


def _rows(names: list[Any], others: list[Any], columns: int) -> tuple[Figure, list[Axes]]:
    """Make panels with a row for each name, the first on top, and for the others below a line."""
    labels = [base.wrapped(base.short(str(name)), 34) for name in (*names, *others)]
    longest = max((len(line) for name in labels for line in name.split("\n")), default=0)
    size = (0.075 * longest + 2.5 * max(columns, 1) + 0.3, 0.3 * max(len(labels), 3) + 1.75)
    figure, panels = base.panels(1, max(columns, 1), (max(size[0], base.NARROWEST), size[1]))
    panels[0].set_ylim(max(len(labels), 1) - 0.4, -0.6)
    panels[0].set_yticks(range(len(labels)), labels, parse_math=False)
    for axes in panels:
        axes.spines["left"].set_visible(False)
        axes.tick_params("y", length=0)
        for at in range(0, len(labels), 2):
            axes.axhspan(at - 0.5, at + 0.5, color=MUTED, alpha=0.09, linewidth=0)
        if others:
            axes.axhline(len(names) - 0.5, color=MUTED, linewidth=0.8)
        if not names:
            base.nothing(axes)
    return figure, panels


def _marks(
    axes: Axes, names: list[Any], rows: pd.DataFrame, bounds: tuple[float, float] | None, below: int = 0, **style: Any
) -> None:
    """Draw means with intervals in the rows of their names, starting below a number of other rows."""
    if len(rows):
        at = [below + names.index(name) for name in rows["name"]]
        base.errorbars(axes, rows["mean"], at, xerr=base.distances(rows, bounds), **style)


def _say_missing(axes: Axes, settings: pd.DataFrame, names: list[Any], rows: pd.DataFrame, why: str) -> None:
    """Write in rows without a mean why there is none, for example that all members diverged."""
    for name in (name for name in names if name not in set(rows["name"])):
        gone = (settings.loc[settings["name"] == name, "state"] != "done").all()
        text: base.Style = {"ha": "center", "va": "center", "fontsize": 8, "color": MUTED}
        place = axes.get_yaxis_transform()
        axes.text(0.5, names.index(name), channels.GONE if gone else why, transform=place, **text)
