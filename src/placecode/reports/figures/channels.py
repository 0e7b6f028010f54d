"""Draw the error with which models predict hidden channels: by sigma, by training step, and by two settings.

Channels are the columns of a data table, such as brain regions. A condition says which share of them is hidden, such as
"hidden 0.5". A world is the data of one seed: a simulated data set, or one split of the people. A baseline is another
method that is applied to the same data, such as linear prediction or correlation. Helpers, which structure.py uses too,
select the values of members and draw lines for baselines.

>>> figure = error_by_sigma(run.members, run.metrics, run.baselines, "network-sigma", best={"hidden 0.5": 0.62})
>>> figure = heatmap_by_settings(table, "brain-mask", "trained", "hidden", "test error (mse)", labels)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from placecode.arrays import AnyArray
from placecode.errors import must_be
from placecode.reports.figures import base
from placecode.reports.figures.base import (
    BLUE,
    GREEN,
    INK,
    LINE_STYLES,
    MUTED,
    ORANGE,
    PAPER,
    PURPLE,
    SHADES,
    SIGMA,
    VERMILLION,
)
from placecode.reports.figures.curves import curve
from placecode.reports.figures.maps import text_color_on

MAX_LINES = 6
"""Maximum number of sigmas in a panel of curves. If there are more, evenly spread ones are drawn."""
BEST = "best possible"
"""Legend entry of the lowest possible error, which is known for simulated data."""
ERROR_LABEL = "mean squared error\non hidden channels, test"
BEFORE: base.Style = {"color": MUTED, "marker": "o", "markersize": 6.6, "hollow": True, "zorder": 3}
BEFORE["label"] = "before training"
AFTER: base.Style = {"color": BLUE, "marker": "o", "markersize": 4.4, "zorder": 4}
BASELINE_STYLES: Sequence[Mapping[str, Any]] = (
    {"color": VERMILLION, "marker": "D", "linestyle": (0, (5, 2))},
    {"color": GREEN, "marker": "^", "linestyle": (0, (1, 1.4))},
    {"color": PURPLE, "marker": "v", "linestyle": (0, (3, 1.2, 1, 1.2))},
    {"color": ORANGE, "marker": "P", "linestyle": (0, (2, 3))},
    {"color": INK, "marker": "X", "linestyle": (0, (7, 1.5, 1, 1.5, 1, 1.5))},
    {"color": MUTED, "marker": "h", "linestyle": (0, (9, 3))},
)
"""Styles of the lines of baselines, used in turn. Blue is for members, a solid line for the best possible error."""
SCALE = ListedColormap(colormaps["cividis"](np.linspace(0, 0.86, 256)))
"""Colour map over sigma, without the lightest colours, in which thin lines would be invisible on white."""


def error_by_sigma(
    members: pd.DataFrame,
    metrics: pd.DataFrame,
    baselines: pd.DataFrame | None,
    run_name: str,
    best: Mapping[str, float] | None = None,
) -> Figure:
    """Draw the final test error by sigma, with a panel for each share of hidden channels.

    Members without a sigma are left out. Each baseline (another method) is a horizontal line at its mean error over
    worlds (the data sets of the seeds), with a mark at the right end. `best` maps a condition of `metrics`, such as
    "hidden 0.5", to the lowest possible error, which is also drawn as a line.
    """
    settings = members_with_sigma(members)
    rows, missing = finite_rows(settings, final_errors(metrics), ["condition"])
    shares = conditions(metrics)
    baseline_tables = {share: baseline_values(members, baselines, "test", share, "mse") for share in shares}
    styles = baseline_styles([*baseline_tables.values()], best=bool(best))
    figure, panels = base.panel_grid(len(shares), 3, (3.3 + 0.09 * len(styles), 2.8), sharey=False)
    for axes, share in zip(panels, shares, strict=False):
        draw_by_sigma(axes, settings, rows[rows["condition"] == share], bounds=(0, np.inf), label="members")
        draw_baselines(axes, baseline_tables[share], styles, (best or {}).get(share))
        base.title(axes, *share_title(share, members))
        round_ticks(axes)
        base.label_edges(axes, base.SIGMA_LABEL, ERROR_LABEL)
    base.legend(figure, ["members", *styles], columns=None)
    averaged = base.seeds_note(rows, ["condition", "sigma"])
    first_note = f"faint: single seeds; bars: {averaged}; panels have scales of their own"
    notes = (first_note, baseline_note([*baseline_tables.values()]), base.diverged_note(settings), missing)
    return base.small_print(figure, run_name, *notes)


def error_curves(members: pd.DataFrame, metrics: pd.DataFrame, run_name: str) -> Figure:
    """Draw the test error by training step, with a panel per share of hidden channels and a line per sigma.

    At most six sigmas are drawn. Lines are means over seeds, bands are 95% intervals.
    """
    settings = members_with_sigma(members)
    rows, missing = finite_rows(settings, errors(metrics), ["condition", "step"])
    shares, by = conditions(metrics), ["condition", "sigma", "step"]
    means = base.means(rows, by)
    all_sigmas = np.sort(settings["sigma"].unique())
    sigmas = base.thinned(all_sigmas, MAX_LINES)
    colors = ScalarMappable(base.sigma_colors(all_sigmas), SCALE)
    figure, panels = base.panel_grid(len(shares), 3, (3.3, 2.7), sharey=False)
    for axes, share in zip(panels, shares, strict=False):
        here = means[means["condition"] == share]
        for i, sigma in enumerate(sigmas):
            why = f" ({'diverged' if _all_diverged(settings, sigma) else 'no values'})"
            label = f"{SIGMA} = {sigma:g}{'' if (means['sigma'] == sigma).any() else why}"
            line = {"linestyle": LINE_STYLES[i]["linestyle"], "linewidth": 1.7, "label": label}
            color: Any = colors.to_rgba(np.array([sigma]))[0]
            curve(axes, here[here["sigma"] == sigma], color, 0.13, np.inf, **line)
        if here.empty:
            base.write_empty_note(axes)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        base.title(axes, *share_title(share, members))
        round_ticks(axes)
        base.label_edges(axes, "training step", ERROR_LABEL)
    base.legend(figure, [str(line.get_label()) for line in panels[0].lines], columns=None)
    thinned = f"; {len(sigmas)} of {len(all_sigmas)} sigmas" if len(all_sigmas) > len(sigmas) else ""
    note = f"line and band: {base.seeds_note(rows, by)}{thinned}"
    return base.small_print(figure, run_name, note, base.diverged_note(settings), missing)


def heatmap_by_settings(
    table: pd.DataFrame,
    run_name: str,
    down: str,
    across: str,
    value_label: str,
    labels: Mapping[str, str],
    panel: str = "",
) -> Figure:
    """Draw a heat map of a value by two settings, with the mean over seeds and half its 95% interval in every cell.

    Cells without a mean say "not run", or "no values" if none of their values is finite.

    Parameters
    ----------
    table : DataFrame
        Columns seed, value, and those that `down`, `across` and `panel` name.
    run_name : str
        Name of the run, for the small print.
    down, across : str
        Columns of `table` with the settings in the rows and in the columns of the map.
    value_label : str
        Label of the colour scale.
    labels : mapping of str to str
        Texts to show for the columns named by `down`, `across` and `panel`.
    panel : str
        Column of `table`; there is one map for each of its values. "" for a single map.
    """
    by = [*([panel] if panel else []), down, across]
    means, averaged, missing = base.summarized(table, by)
    means = means.set_index(by)
    if table.duplicated([*by, "seed"]).any():
        raise must_be("the table", f"one with a single row for each {', '.join(by)} and seed", "several")
    run = table.groupby(by).size().index
    y, x = _ordered(table[down]), _ordered(table[across])
    names = _ordered(table[panel]) if panel else ["all"] if len(table) else []
    low, high = (float(means["mean"].min()), float(means["mean"].max())) if len(means) else (0.0, 1.0)
    room = 0.0 if high > low else 0.5 * (abs(low) or 1)  # a colour scale needs two different ends
    norm = Normalize(low - room, high + room)
    side = (0.74 * max(len(x), 2) + 0.7, 0.46 * max(len(y), 2) + 0.75)
    most = max(1, min(4, int(9 / side[0])))
    figure, panels = base.panel_grid(len(names), most, side, extra=(1.2, 0.5), sharey=False)
    for axes, name in zip(panels, names, strict=False):
        cells = np.full((len(y), len(x)), np.nan)
        for row, column in np.ndindex(*cells.shape):
            setting = (*([name] if panel else []), y[row], x[column])
            mean, low, high = means.loc[setting] if setting in means.index else (np.nan,) * 3
            cells[row, column] = mean
            _write_cell(axes, row, column, mean, high - low, "no values" if setting in run else "not run", norm)
        axes.imshow(cells, cmap=SHADES, norm=norm, interpolation="none", aspect="auto")
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        axes.set_xticks(range(len(x)), [_tick_label(value) for value in x], parse_math=False)
        axes.set_yticks(range(len(y)), [base.wrapped(_tick_label(value, 60), 26) for value in y], parse_math=False)
        if panel:
            base.title(axes, f"{labels[panel]} {_tick_label(name)}".strip(), width=int(side[0] * 16))
        axis_labels = (
            base.wrapped(base.short(labels[setting], 78), int(12 * room))
            for setting, room in zip((across, down), side, strict=True)
        )
        base.label_edges(axes, *axis_labels)
        if not base.is_outer_panel(axes)[0]:
            axes.tick_params(labelleft=False)
    if len(means):
        text = base.wrapped(base.short(value_label, 78), int(14 * side[1]))
        base.colorbar(figure, ScalarMappable(norm, SHADES), text, ax=panels, fraction=0.05, aspect=18, pad=0.02)
    averaged = averaged.replace("mean and", "mean and half the width of its")
    return base.small_print(figure, run_name, f"in a cell: {averaged}", missing)


def _write_cell(axes: Axes, row: int, column: int, mean: float, width: float, without: str, norm: Normalize) -> None:
    """Write into a cell the mean and, in smaller letters, half the `width` of its interval. If the mean is NaN, write
    the text `without` instead."""
    middle: base.Style = {"ha": "center", "va": "center", "parse_math": False}
    if not np.isfinite(mean):
        axes.text(column, row, without, fontsize=7, color=MUTED, **middle)
        return
    ink, sure = text_color_on(mean, norm), np.isfinite(width)
    axes.text(column, row - 0.14 * sure, f"{mean:.2f}", fontsize=8.5, color=ink, **middle)
    if sure:
        axes.text(column, row + 0.22, f"± {width / 2:.2f}", fontsize=6.5, color=ink, **middle)


def _ordered(values: pd.Series) -> list[Any]:
    """Return the unique values, sorted if all are numbers, otherwise in the order of their first appearance."""
    unique = base.unique_in_order(values)
    return sorted(unique) if all(isinstance(value, int | float) for value in unique) else unique


def _tick_label(value: Any, most: int = 24) -> str:
    """Format a value as a tick label; a text is shortened to `most` letters."""
    return f"{value:,g}" if isinstance(value, int | float) and value < 1e6 else base.short(str(value), most)


# ------------------------------------------------------------------------------------------- members and their values


def members_with_sigma(members: pd.DataFrame) -> pd.DataFrame:
    """Return the members that have a sigma; raise BadInput if several have the same sigma and seed."""
    with_sigma = members.assign(sigma=pd.to_numeric(members["sigma"])).dropna(subset=["sigma"])
    if with_sigma.duplicated(["sigma", "seed"]).any():
        raise must_be("the members", "one for each sigma and seed", "several, which differ in other settings")
    return with_sigma


def finite_rows(settings: pd.DataFrame, rows: pd.DataFrame, columns: Sequence[str]) -> tuple[pd.DataFrame, str]:
    """Return the `rows` whose value is finite and whose member did not diverge. Also return a note on how many values
    of such members are not finite ("" if none).

    `settings` is a table of members. The returned rows have the columns member, value and `columns`, and those of
    sigma, name and seed that `settings` has.
    """
    member_columns = [name for name in ("member", "sigma", "name", "seed") if name in settings.columns]
    done = settings.loc[settings["state"] == "done", member_columns]
    return base.finite(rows[["member", *columns, "value"]].merge(done, on="member"))


def errors(metrics: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `metrics` with test errors (mse), at all steps."""
    return metrics[(metrics["metric"] == "mse") & (metrics["split"] == "test")]


def final_errors(metrics: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `metrics` with the test errors (mse) of each member at its last step."""
    rows = errors(metrics)
    return rows[rows["step"] == rows.groupby("member")["step"].transform("max")]


def conditions(metrics: pd.DataFrame) -> list[str]:
    """Return the evaluation conditions that have test errors, such as "hidden 0.5" (half of the channels are hidden),
    sorted by the share of hidden channels."""
    names = base.unique_in_order(errors(metrics)["condition"])
    return sorted(names, key=lambda name: (hidden_share(name) is None, hidden_share(name) or 0.0))


def hidden_share(condition: str) -> float | None:
    """Return the share of hidden channels in a condition: 0.5 for "hidden 0.5"; None if its name has no share."""
    try:
        return float(condition.removeprefix("hidden "))
    except ValueError:
        return None


def share_title(condition: str, members: pd.DataFrame) -> tuple[str, str]:
    """Return the title and the note of a panel, such as ("50% hidden", "as in training"); the note may be empty."""
    share, trained = hidden_share(condition), trained_shares(members)
    if share is None:
        return condition, ""
    note = f"trained with {' or '.join(f'{share:.3g}%' for share in 100 * trained)}" if len(trained) else ""
    return f"{100 * share:.3g}% hidden", "as in training" if list(trained) == [share] else note


def trained_shares(members: pd.DataFrame) -> AnyArray:
    """Return the shares of hidden channels that members were trained with, sorted; empty if they are not known."""
    if "mask_ratio" not in members.columns:
        return np.zeros(0)
    return np.unique(members["mask_ratio"].dropna().to_numpy(dtype=float))


def _all_diverged(settings: pd.DataFrame, sigma: float) -> bool:
    """Return whether all members with this sigma diverged."""
    return bool((settings.loc[settings["sigma"] == sigma, "state"] != "done").all())


def draw_by_sigma(
    axes: Axes,
    settings: pd.DataFrame,
    after: pd.DataFrame,
    before: pd.DataFrame | None = None,
    bounds: tuple[float, float] | None = None,
    label: str = "after training",
) -> None:
    """Draw means by sigma with intervals, after training and before it (hollow, grey), and final values as faint dots.

    `after` and `before` have the columns sigma and value, with a row per seed. `settings` is the table of members. If
    one of their sigmas has no values after training, a text in the panel says why.
    """
    sigmas = np.sort(settings["sigma"].unique())
    if len(sigmas) == 0:
        return base.write_empty_note(axes)
    base.sigma_axis(axes, sigmas, most=6)
    if len(after):
        dots = base.dodge(axes, after["sigma"].astype(float), sigmas, 1, 0.024)
        axes.plot(dots, after["value"], "o", color=BLUE, alpha=0.3, markersize=3.2, markeredgewidth=0, zorder=2)
    for values, look, line in ((before, BEFORE, (0, (1, 1.4))), (after, {**AFTER, "label": label}, "-")):
        if values is not None and len(values):
            rows = base.means(values, ["sigma"])
            base.draw_means(axes, rows, rows["sigma"], bounds, **look)
            joined = rows.set_index("sigma")["mean"].reindex(sigmas)  # broken where a sigma has no mean
            axes.plot(sigmas, joined, linestyle=line, linewidth=1.1, color=look["color"], zorder=look["zorder"])
    for sigma in sorted(set(sigmas) - set(after["sigma"])):
        text = f"{SIGMA} = {sigma:g}: {base.ALL_DIVERGED if _all_diverged(settings, sigma) else 'no values'}"
        place: base.Style = {"ha": "center", "va": "center", "rotation": 90, "transform": axes.get_xaxis_transform()}
        behind: base.Style = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.8}
        axes.text(sigma, 0.5, text, color=MUTED, fontsize=7, bbox=behind, **place)
    return None


def round_ticks(axes: Axes, along: Literal["x", "y"] = "y") -> None:
    """Set round ticks and light grid lines on the axis `along`."""
    base.light_grid(axes, along)
    axis = axes.yaxis if along == "y" else axes.xaxis
    axis.set_major_locator(MaxNLocator(7 if along == "y" else 5, min_n_ticks=4, steps=[1, 2, 2.5, 5, 10]))
    axes.ticklabel_format(axis=along, useOffset=False)


# ---------------------------------------------------------------------------------------------------------- baselines


def baseline_values(
    members: pd.DataFrame, baselines: pd.DataFrame | None, split: str, condition: str, metric: str
) -> pd.DataFrame:
    """Return the finite results of baselines on the data sets that the members use: columns world, baseline and value.

    `split`, `condition` and `metric` say which results, such as "test", "hidden 0.5" and "mse". For measures of
    structure, `split` is "analysis", `condition` the target and `metric` the name of the analysis. The table may be
    empty.
    """
    columns = ["world", "baseline", "value"]
    if baselines is None or baselines.empty:
        return pd.DataFrame({name: pd.Series(dtype=object) for name in columns})
    selected = (baselines["split"] == split) & (baselines["condition"] == condition) & (baselines["metric"] == metric)
    if {"data"} <= set(members.columns) & set(baselines.columns):
        selected &= baselines["data"].isin(members["data"].unique())
    return pd.DataFrame(baselines.loc[selected & np.isfinite(baselines["value"].astype(float)), columns])


def baseline_styles(tables: Sequence[pd.DataFrame], best: bool = False) -> dict[str, dict[str, Any]]:
    """Return a style for each baseline in `tables` (from `baseline_values`) and, if `best`, for the lowest error."""
    names = dict.fromkeys(str(name) for rows in tables for name in rows["baseline"])
    styles = {name: dict(BASELINE_STYLES[i % len(BASELINE_STYLES)]) for i, name in enumerate(names)}
    return {**styles, BEST: {"color": INK, "marker": "*", "linestyle": "-"}} if best else styles


def draw_baselines(
    axes: Axes, rows: pd.DataFrame, styles: Mapping[str, Mapping[str, Any]], best: float | None = None
) -> None:
    """Draw horizontal lines, with a mark at the right end, at `best` and at the mean of each baseline in `rows` (from
    `baseline_values`)."""
    values = rows.assign(value=rows["value"].astype(float)).groupby("baseline")["value"].mean().to_dict()
    values |= {} if best is None else {BEST: best}
    for i, (name, style) in enumerate(styles.items()):
        if name in values:
            look: base.Style = {"linewidth": 1.1, "markersize": 7 if name == BEST else 4.6, "markeredgewidth": 0}
            free: base.Style = {"clip_on": False, "markevery": [1], "label": name, "zorder": 1.5}
            ends = [0, 1.03 + 0.042 * i]
            axes.plot(ends, [values[name]] * 2, transform=axes.get_yaxis_transform(), **look, **free, **style)


def baseline_note(
    tables: Sequence[pd.DataFrame], where: str = "lines that end in a mark: baselines", what: str = "mean"
) -> str:
    """Return a note on the baselines in `tables` (from `baseline_values`); "" if there are none.

    `where` begins the note and says how baselines are drawn. `what` names the statistic over worlds, such as "mean".
    The number of worlds is added.
    """
    counts = [rows["world"].nunique() for table in tables for _, rows in table.groupby("baseline")]
    if not counts:
        return ""
    low, high = min(counts), max(counts)
    worlds = f"{what} over {f'{low} to ' if low < high else ''}{high} worlds" if high > 1 else "in a single world"
    return f"{where}, fitted on the same data, {worlds}"
