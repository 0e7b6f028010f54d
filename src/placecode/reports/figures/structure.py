"""Draw how well learned PEs reflect groups of channels: measures by sigma or encoding, similarity maps, brain networks.

channels.py explains the words world, baseline and condition. Tokens are channels.

>>> measures = [("neighbor_agreement", "labels"), ("modularity", "labels")]
>>> figure = structure_by_sigma(run.members, run.analysis, run.baselines, "network-sigma", measures)
>>> figure = similarity_by_sigma({"0.01": small, "2": large}, labels, "network-sigma", reference=fc)  # (n, n)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from placecode.analysis.alignment import ALL_BLOCKS
from placecode.experiments.channels.known_networks import CENTRED_FC
from placecode.experiments.measures import MeasureKey
from placecode.reports.figures import base, channels
from placecode.reports.figures.base import BLUE, INK, MUTED, ORANGE, SIGMA, SIGMA_LABEL, VERMILLION
from placecode.reports.figures.encodings import missing_rows, row_panels

SHARE, AT_MOST_1 = (0.0, 1.0), (-1.0, 1.0)
"""Ranges of possible values: of shares, and of correlations and other measures that are at most 1."""
BOUNDS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("neighbor_agreement", "mirror_agreement", "coordinate_agreement", "procrustes_r2"), SHARE),
    **dict.fromkeys(("modularity", "ari", "ami", "silhouette", "segregation", "fc_correlation"), AT_MOST_1),
}
"""Lowest and highest possible value of each measure. Drawn intervals are clipped to these. A measure from 0 to 1 need
not have a chance level near 0: `coordinate_agreement` is a mean rank, which is 0.5 by chance."""
SIGNED = LinearSegmentedColormap.from_list("signed", ("#fff3a3", "#e6dfb6", "#c4c6c9", "#5b8ab8", "#0a2f66"))
"""Colour map from yellow (negative) over grey (0) to dark blue (positive), monotonic in greyscale."""
_BEFORE: base.Style = {"color": MUTED, "marker": "o", "markersize": 7, "hollow": True, "label": "before training"}
_AFTER: base.Style = {"color": BLUE, "marker": "s", "markersize": 4.8, "label": "after training", "zorder": 3}
_BASELINE: base.Style = {"color": VERMILLION, "marker": "D", "markersize": 4.6, "label": "baseline", "zorder": 3}
NETWORK_MEASURES = {"modularity": "signed modularity Q", "segregation": "system segregation"}
"""Measures that `networks_by_sigma` draws, a row of panels each, with the labels of their vertical axes."""
MAX_PARTITIONS, MAX_VARIANT_MEASURES = 2, 4
"""Maximum numbers of columns of `networks_by_sigma` and of panels of `measures_by_variant`."""
FC_LABEL, CENTRED_FC_LABEL = "functional connectivity", "the same, centred as PEs are"
"""Legend entries of functional connectivity, plain and centred."""
FC_BASELINES = {"fc": FC_LABEL, CENTRED_FC: CENTRED_FC_LABEL}
"""Names of the baselines that `networks_by_sigma` draws as horizontal lines, mapped to their legend entries."""
SHUFFLED, SMOOTH = "95% of shuffled labels", "95% of maps as smooth"
"""Legend entries of the bands of two null distributions."""
MARKERS = ("o", "s", "^", "v", "P", "X")
"""Markers of sigmas in `measures_by_variant`, used in turn."""


def structure_by_sigma(
    members: pd.DataFrame,
    analysis: pd.DataFrame,
    baselines: pd.DataFrame | None,
    run_name: str,
    measures: Sequence[MeasureKey],
    chance: Mapping[MeasureKey, float] | None = None,
    labels: Mapping[MeasureKey, str] | None = None,
) -> Figure:
    """Draw measures of the PEs by sigma before training (hollow and grey) and after it, with a panel per measure.

    Members without a sigma are left out. A baseline (another method on the same data) is a horizontal line at the mean
    over worlds, with a mark at the right end that distinguishes it from lines at the same height. `chance` and `labels`
    map a measure to its chance level and to the label of its vertical axis.
    """
    settings = channels.members_with_sigma(members)
    rows, missing = channels.finite_rows(settings, _measure_rows(analysis, measures), ["analysis", "target", "step"])
    baseline_tables = {
        measure: channels.baseline_values(members, baselines, "analysis", *measure[::-1]) for measure in measures
    }
    styles = channels.baseline_styles([*baseline_tables.values()])
    figure, panels = base.panel_grid(len(measures), 3, (3.1 + 0.09 * len(styles), 2.6), sharey=False)
    for axes, measure in zip(panels, measures, strict=False):
        here = rows[(rows["analysis"] == measure[0]) & (rows["target"] == measure[1])]
        before, after = here[here["step"] == 0], here[here["step"] > 0]
        channels.draw_by_sigma(axes, settings, after, before, BOUNDS.get(measure[0]))
        if chance and measure in chance:
            base.chance_line(axes, chance[measure])
        channels.draw_baselines(axes, baseline_tables[measure], styles)
        channels.round_ticks(axes)
        base.label_edges(axes, SIGMA_LABEL)
        base.label(axes, y=_label(measure, labels, 30))
    base.legend(figure, ["after training", "before training", *styles], columns=None)
    averaged = base.seeds_note(rows, ["analysis", "target", "step", "sigma"])
    notes = (channels.baseline_note([*baseline_tables.values()]), base.diverged_note(settings), missing)
    return base.small_print(figure, run_name, f"faint: single seeds; bars: {averaged}", *notes)


def measure_by_name(
    members: pd.DataFrame,
    analysis: pd.DataFrame,
    metrics: pd.DataFrame,
    run_name: str,
    measures: Sequence[MeasureKey] = (("neighbor_agreement", "labels"),),
    baselines: pd.DataFrame | None = None,
    chance: Mapping[MeasureKey, float] | None = None,
    labels: Mapping[MeasureKey, str] | None = None,
) -> Figure:
    """Draw test errors and measures of the PE with a row per encoding and, below, a row per baseline (another method).

    There is a panel of test errors for each share of hidden channels, and a panel for each measure. `members` has a
    column `name` (the encoding) and one member per name and seed. The encoding on top has the smallest error at the
    share of hidden channels used in training. Measures before training are hollow and grey. `chance` and `labels` are
    as in `structure_by_sigma`.
    """
    errors, missing_errors = channels.finite_rows(members, channels.final_errors(metrics), ["condition"])
    measured, missing_measures = channels.finite_rows(
        members, _measure_rows(analysis, measures), ["analysis", "target", "step"]
    )
    shares = channels.conditions(metrics)
    trained = channels.trained_shares(members)
    first = sorted(shares, key=lambda share: channels.hidden_share(share) not in trained)[:1]
    errors_by_name = errors[errors["condition"].isin(first)].groupby("name")["value"].mean()
    names = sorted(base.unique_in_order(members["name"]), key=lambda name: errors_by_name.get(name, np.inf))
    share_baselines = [channels.baseline_values(members, baselines, "test", share, "mse") for share in shares]
    measure_baselines = [
        channels.baseline_values(members, baselines, "analysis", target, name) for name, target in measures
    ]
    baseline_tables = [*share_baselines, *measure_baselines]
    others = base.unique_in_order(pd.concat([pd.Series(dtype=object), *(rows["baseline"] for rows in baseline_tables)]))
    height = 0.3 * max(len(names) + len(others), 3) + 1.75
    figure, panels = row_panels([*names, *others], len(baseline_tables), 2.5, height)
    diverged = set(names) - set(members.loc[members["state"] == "done", "name"])
    for axes, share in zip(panels, shares, strict=False):
        after = base.means(errors[errors["condition"] == share], ["name"])
        base.draw_means(axes, after, after["name"].map(names.index), (0.0, np.inf), "x", **_AFTER)
        missing_rows(axes, names, after, lambda name: base.ALL_DIVERGED if name in diverged else "no values")
        base.title(axes, "\n".join(filter(None, channels.share_title(share, members))), width=38)
        base.label(axes, "test error (mse)")
    for axes, measure in zip(panels[len(shares) :], measures, strict=False):
        here = measured[(measured["analysis"] == measure[0]) & (measured["target"] == measure[1])]
        before, after = (base.means(here[rows], ["name"]) for rows in (here["step"] == 0, here["step"] > 0))
        base.draw_means(axes, before, before["name"].map(names.index), BOUNDS.get(measure[0]), "x", **_BEFORE)
        if chance and measure in chance:
            base.chance_line(axes, chance[measure], "x")
        base.draw_means(axes, after, after["name"].map(names.index), BOUNDS.get(measure[0]), "x", **_AFTER)
        missing_rows(axes, names, after, lambda name: base.ALL_DIVERGED if name in diverged else "no PE to measure")
        base.title(axes, "structure of the PE", width=38)
        base.label(axes, _label(measure, labels, 34))
    bounds = [(0.0, np.inf)] * len(shares) + [BOUNDS.get(name) for name, _ in measures]
    for axes, rows, bound in zip(panels, baseline_tables, bounds, strict=False):
        means = base.means(rows, ["baseline"])
        base.draw_means(axes, means, means["baseline"].map(others.index), bound, "x", len(names), **_BASELINE)
        if others:
            axes.axhline(len(names) - 0.5, color=MUTED, linewidth=0.8)
        channels.round_ticks(axes, "x")
    base.legend(figure, ["after training", "before training", "baseline"])
    averaged = base.seeds_note(errors, ["name", "condition"])
    notes = [
        channels.baseline_note(baseline_tables, "baselines in rows of their own", "mean and 95% t interval"),
        base.diverged_note(members),
        *(f"{what}: {note}" for what, note in (("errors", missing_errors), ("measures", missing_measures)) if note),
    ]
    return base.small_print(figure, run_name, f"marks and bars: {averaged}", *notes)


def similarity_by_sigma(
    maps: Mapping[str, npt.NDArray[Any]],
    labels: npt.NDArray[np.int64],
    run_name: str,
    reference: npt.NDArray[Any] | None = None,
    reference_title: str = "correlation of channels",
    note: str = "",
) -> Figure:
    """Draw how similar the PEs of every two tokens are: a heat map per entry of `maps`, with tokens sorted by cluster.

    `maps` has similarity matrices (n, n) by title. `labels` (n,) are the clusters of the tokens, -1 for none. Lines
    separate clusters. A `reference` matrix (n, n), titled `reference_title`, is drawn last. All matrices share one
    symmetric colour scale. It ends at the 99th percentile of the absolute off-diagonal entries (the largest over all
    matrices), rounded up to tenths. `note` is added to the small print.
    """
    n = len(labels)
    order = np.lexsort((labels, labels < 0))
    matrices = {**maps, **({} if reference is None else {reference_title: reference})}
    off = [np.abs(matrix[~np.eye(n, dtype=bool) & np.isfinite(matrix)]) for matrix in matrices.values()]
    most = max((float(np.percentile(entries, 99)) for entries in off if len(entries)), default=0.0)
    most = float(np.ceil(most * 10 - 1e-9) / 10) or 1.0
    norm = Normalize(-most, most)
    figure, panels = base.panel_grid(len(matrices), 4, (2.05, 2.3), extra=(1.3, 0.5), sharey=False)
    for axes, (name, matrix) in zip(panels, matrices.items(), strict=False):
        # a page cannot show more than about 200 entries, so more would only add bytes
        interpolation = "none" if n <= 200 else "antialiased"
        axes.imshow(matrix[np.ix_(order, order)], cmap=SIGNED, norm=norm, interpolation=interpolation)
        axes.spines[:].set_color(MUTED)
        axes.spines[:].set(visible=True, linewidth=0.5)
        axes.set(xticks=[], yticks=[])
        if np.isfinite(matrix).any():
            for edge in np.flatnonzero(np.diff(labels[order])) + 1:
                axes.axhline(edge - 0.5, color=INK, linewidth=0.45, alpha=0.75)
                axes.axvline(edge - 0.5, color=INK, linewidth=0.45, alpha=0.75)
        else:
            base.write_empty_note(axes, "not finite")
        base.title(axes, name, width=34)
    if matrices:
        beyond = "both" if any(entries.max(initial=0) > most for entries in off) else "neither"
        place: base.Style = {"ax": panels, "fraction": 0.03, "aspect": 20, "pad": 0.02, "shrink": 0.8}
        base.colorbar(figure, ScalarMappable(norm, SIGNED), "similarity of two tokens", extend=beyond, **place)
    count = len(np.unique(labels[labels >= 0]))
    loose = f", and {(labels < 0).sum()} in none, last" if (labels < 0).any() else ""
    incomplete = (np.isfinite(matrix).any() and not np.isfinite(matrix).all() for matrix in matrices.values())
    blank = "blank: not finite" if any(incomplete) else ""
    order_note = f"{n} tokens in {count} clusters{loose}; lines between clusters"
    return base.small_print(figure, run_name, order_note, note, blank)


def networks_by_sigma(
    members: pd.DataFrame,
    analysis: pd.DataFrame,
    baselines: pd.DataFrame,
    run_name: str,
    partitions: Mapping[str, str],
    note: str = "",
) -> Figure:
    """Draw modularity and segregation of PEs by sigma, with a row per measure and a column per partition.

    The run must have one member per sigma and seed. A partition divides the regions into known networks. `partitions`
    maps the name of a partition, such as "yeo7" (a target in the analysis table), to a title; the first two are drawn.
    Bands are the 95% ranges of two null distributions after training (shuffled labels, and maps that are as smooth in
    space as the PEs), averaged over seeds. Horizontal lines are the same measures of functional connectivity, as means
    over worlds (splits of the people).
    """
    targets = list(partitions)[:MAX_PARTITIONS]
    settings = channels.members_with_sigma(members)
    endings = ("", "_low", "_high", "_smooth_low", "_smooth_high")
    names = [f"{name}{ending}" for name in NETWORK_MEASURES for ending in endings]
    rows = analysis[(analysis["block"] == ALL_BLOCKS) & analysis["analysis"].isin(names)]
    rows = rows[rows["step"].isin((0, rows["step"].max()))]
    finite_rows, missing = channels.finite_rows(settings, rows, ["analysis", "target", "step"])
    figure, panels = base.panel_grid(
        len(NETWORK_MEASURES) * len(targets), max(len(targets), 1), (3.7, 2.5), sharey=False
    )
    cells = [(measure, target) for measure in NETWORK_MEASURES for target in targets]
    tables = [channels.baseline_values(members, baselines, "analysis", target, measure) for measure, target in cells]
    tables = [rows.assign(baseline=rows["baseline"].map(FC_BASELINES)).dropna(subset=["baseline"]) for rows in tables]
    styles = channels.baseline_styles(tables)
    for axes, (measure, target), levels in zip(panels, cells, tables, strict=True):
        here = finite_rows[finite_rows["target"] == target]
        is_measure, after = here["analysis"] == measure, here["step"] > 0
        channels.draw_by_sigma(axes, settings, here[is_measure & after], here[is_measure & ~after], (-np.inf, 1.0))
        _band(axes, here[after], measure, SHUFFLED, color=MUTED, alpha=0.32, linewidth=0, zorder=0.6)
        _band(axes, here[after], f"{measure}_smooth", SMOOTH, facecolor=ORANGE, alpha=0.3, linewidth=0, zorder=0.5)
        channels.draw_baselines(axes, levels, styles)
        channels.round_ticks(axes)
        if measure == next(iter(NETWORK_MEASURES)):
            base.title(axes, partitions[target])
        base.label_edges(axes, SIGMA_LABEL, NETWORK_MEASURES[measure])
    base.legend(
        figure, ["after training", "before training", FC_LABEL, CENTRED_FC_LABEL, SHUFFLED, SMOOTH], columns=None
    )
    values = finite_rows[finite_rows["analysis"].isin(list(NETWORK_MEASURES))]
    averaged = base.seeds_note(values, ["analysis", "target", "step", "sigma"])
    bands = "bands: limits of the nulls after training, mean over seeds"
    note_on_baselines = channels.baseline_note(tables, "lines that end in a mark: functional connectivity")
    notes = (note_on_baselines, note, base.diverged_note(settings), missing)
    return base.small_print(figure, run_name, f"faint: single seeds; bars: {averaged}; {bands}", *notes)


def _band(axes: Axes, rows: pd.DataFrame, prefix: str, label: str, **style: Any) -> None:
    """Draw the range of a null distribution by sigma as a band, whose lower and upper limits are means over seeds.

    The limits are the rows whose analysis is "`prefix`_low" and "`prefix`_high".
    """
    limits = (rows[rows["analysis"] == f"{prefix}_{end}"] for end in ("low", "high"))
    low, high = (limit.groupby("sigma")["value"].mean() for limit in limits)
    if len(low) and low.index.equals(high.index):
        axes.fill_between(low.index.to_numpy(dtype=float), low, high, label=label, **style)


def measures_by_variant(
    table: pd.DataFrame, levels: pd.DataFrame, run_name: str, measures: Iterable[str], note: str = ""
) -> Figure:
    """Draw measures of PEs for several ways to preprocess the recordings ("variants").

    There is a panel per measure, at most four, with a row per variant and in it a mark per sigma. `table` has the
    columns measure, variant, sigma, seed (the split of the people) and value. `levels` has the columns measure, variant
    and value: the same measures of functional connectivity, one value per split of the people.
    """
    finite_rows, missing = base.finite(table)
    variants = base.unique_in_order(table["variant"])
    sigmas, measures = np.sort(table["sigma"].unique()), list(measures)[:MAX_VARIANT_MEASURES]
    height = 0.17 * max(len(sigmas) + 1, 3) * max(len(variants), 2) + 1.5
    figure, panels = row_panels(variants, len(measures), 2.15, height, wrap=24)
    panels[0].set_ylim(max(len(variants), 1) - 0.5, -0.5)
    colors = ScalarMappable(base.sigma_colors(sigmas), channels.SCALE)
    for axes, measure in zip(panels, measures, strict=False):
        here = finite_rows[finite_rows["measure"] == measure]
        look: base.Style
        groups: list[tuple[pd.DataFrame, base.Style]] = []
        for i, sigma in enumerate(sigmas):
            look = {"color": colors.to_rgba(sigma), "marker": MARKERS[i % len(MARKERS)], "markersize": 5}
            groups.append((here[here["sigma"] == sigma], {"label": f"{SIGMA} = {sigma:g}", **look}))
        look = {"label": FC_LABEL, "color": VERMILLION, "marker": "D", "markersize": 4.4, "hollow": True}
        groups.append((levels[levels["measure"] == measure].dropna(subset=["value"]), look))
        for i, (rows, look) in enumerate(groups):
            means = base.means(rows, ["variant"])
            shift = 0.76 * ((i + 0.5) / len(groups) - 0.5)
            base.draw_means(axes, means, means["variant"].map(variants.index), None, "x", shift, **look)
        if here.empty:
            base.write_empty_note(axes)
        axes.axvline(0, color=MUTED, linewidth=0.9, zorder=0.8)
        channels.round_ticks(axes, "x")
        base.label(axes, base.wrapped(measure, 30))
    base.legend(figure, [*(f"{SIGMA} = {sigma:g}" for sigma in sigmas), FC_LABEL], columns=5)
    averaged = base.seeds_note(finite_rows, ["measure", "variant", "sigma"]).replace("seeds", "splits of the people")
    return base.small_print(figure, run_name, f"marks and bars: {averaged}, after training", note, missing)


def _measure_rows(analysis: pd.DataFrame, measures: Sequence[MeasureKey]) -> pd.DataFrame:
    """Return the rows of these measures for all blocks together (block -1), before training and at the last step."""
    selected = pd.MultiIndex.from_frame(analysis[["analysis", "target"]]).isin(list(measures))
    rows = analysis[selected & (analysis["block"] == ALL_BLOCKS)]
    return rows[rows["step"].isin((0, rows["step"].max()))]


def _label(measure: MeasureKey, labels: Mapping[MeasureKey, str] | None, width: int) -> str:
    """Return the label of a measure, by default its name, wrapped to `width` letters."""
    return base.wrapped(base.short((labels or {}).get(measure, measure[0].replace("_", " ")), 78), width)
