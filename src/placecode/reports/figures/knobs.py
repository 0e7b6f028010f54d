"""Draw accuracy by sigma with a line for each value of another setting (a "knob"), and the main figure of lst-causal.

The experiment lst-causal tests whether the PE is a cause of generalization.

>>> figure = accuracy_by_setting(table, "lst-heads", "attention heads")
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from placecode.analysis.stats import Interval
from placecode.arrays import AnyArray
from placecode.reports.figures import base
from placecode.reports.figures.base import BLUE, INK, LINE_STYLES, MUTED, SIGMA, SIGMA_LABEL, SMALL, VERMILLION

REFERENCE_LINES = ((0, (4, 1.5)), (0, (1, 2)))
"""Line styles of the horizontal lines that show models without a sigma, used in turn."""


def accuracy_by_setting(
    table: pd.DataFrame,
    run_name: str,
    knob: str,
    chance: Mapping[str, float] | float = 0.25,
    sigma_effects: pd.DataFrame | None = None,
    references: Mapping[str, Mapping[str, Interval]] | None = None,
) -> Figure:
    """Draw held-out accuracy by sigma, with a panel per value of the column `panel` and a line per value of `line`.

    Parameters
    ----------
    table : DataFrame
        Columns panel, line, sigma, seed and value (an accuracy).
    run_name : str
        Name of the run, for the small print.
    knob : str
        Name of the setting in which the lines differ: the title of the legend if there is one panel.
    chance : float or mapping
        Accuracy of guessing, or this accuracy by panel.
    sigma_effects : DataFrame, optional
        Columns panel, line, seed, large (a sigma) and value: accuracy at sigma 0.2 minus accuracy at the sigma `large`.
        Drawn as the last panel.
    references : mapping, optional
        By panel and by name, accuracies of models without a sigma. Drawn as horizontal lines.
    """
    means, averaged, missing = base.summarized(table, ["panel", "line", "sigma"])
    names = base.unique_in_order(table["panel"])
    has_effects = sigma_effects is not None and not sigma_effects.empty
    columns = len(names) + has_effects
    styles = _styles(table)
    entries = [[_line_label(line) for line in rows["line"].unique()] for _, rows in table.groupby("panel")]
    levels = {
        panel: [_reference_label(*item) for item in accuracies.items()]
        for panel, accuracies in (references or {}).items()
    }
    texts = (["\n".join(texts) for texts in group if texts] for group in (entries, levels.values()))
    lines = 1 + sum(max((text.count("\n") + 1 for text in group), default=0) for group in texts)
    figure, panels = base.panel_grid(columns, 3, (3.3 if columns > 1 else 4.6, 2.9 + 0.17 * lines), sharey=False)
    for axes, name in zip(panels, names, strict=False):
        rows, here = table[table["panel"] == name], means[means["panel"] == name]
        in_panel = {line: style for line, style in styles.items() if line in set(rows["line"])}
        _lines(axes, here, in_panel, base.sorted_sigmas(rows))
        accuracies = list((references or {}).get(name, {}).values())
        for place, (level, label) in enumerate(zip(accuracies, levels.get(name, []), strict=True)):
            axes.axhline(
                level.mean,
                color=INK,
                linewidth=0.9,
                linestyle=REFERENCE_LINES[place % len(REFERENCE_LINES)],
                label=label,
            )
        if here.empty:
            base.write_empty_note(axes)
        base.title(axes, str(name))
        base.accuracy_axis(axes, chance_of(chance, name))
        base.label(axes, SIGMA_LABEL, "held-out accuracy at the end")
        below: base.Style = {"loc": "upper left", "bbox_to_anchor": (-0.02, -0.2), "alignment": "left"}
        _legend(axes, title=knob if len(names) == 1 else "", handlelength=2.6, **below)
    if sigma_effects is not None and has_effects:
        _sigma_effects(panels[len(names)], sigma_effects)
    return base.small_print(figure, run_name, f"marks and bars: {averaged}", missing)


def _lines(axes: Axes, means: pd.DataFrame, styles: Mapping[str, Mapping[str, Any]], sigmas: AnyArray) -> None:
    """Draw means by sigma as one line per key of `styles`. Lines are shifted slightly, so that bars do not overlap."""
    base.sigma_axis(axes, sigmas)
    for place, (line, style) in enumerate(styles.items()):
        rows = means[means["line"] == line]
        at = base.dodge(axes, rows["sigma"], sigmas, place - (len(styles) - 1) / 2)
        look = {"label": _line_label(line), "linewidth": 1.3, "markersize": 4.8, **style}
        # drawn even without rows, so that the line is in the legend
        base.errorbars(axes, at, rows["mean"], yerr=base.errorbar_lengths(rows, (0, 1)), **look)


def _styles(table: pd.DataFrame) -> dict[str, Mapping[str, Any]]:
    """Return the style of each line: the first of `LINE_STYLES` that no earlier line in the same panels has."""
    panels = table.groupby("line", sort=False)["panel"].agg(set)
    places: dict[str, int] = {}
    for line, line_panels in panels.items():
        used = {place for other, place in places.items() if panels[other] & line_panels}
        places[str(line)] = next(place for place in itertools.count() if place not in used)
    return {line: LINE_STYLES[place % len(LINE_STYLES)] for line, place in places.items()}


def _reference_label(name: str, accuracy: Interval) -> str:
    """Return the legend entry of a model without a sigma: its name, mean, and interval clipped to [0, 1]."""
    bounds = "" if math.isnan(accuracy.low) else f" ({max(0.0, accuracy.low):.2f} to {min(1.0, accuracy.high):.2f})"
    return base.wrapped(f"{name}: {accuracy.mean:.2f}{bounds}", 34)


def _line_label(line: str) -> str:
    """Return the legend entry of a line, shortened and wrapped."""
    return base.wrapped(base.short(line), 34)


def chance_of(chance: Mapping[str, float] | float, panel: str) -> float:
    """Return the chance level of a panel; `chance` is one number for all panels, or maps each panel to its level."""
    return chance[panel] if isinstance(chance, Mapping) else chance


def _legend(axes: Axes, **place: Any) -> None:
    """Draw the legend of a panel. `place` has further arguments of `Axes.legend`."""
    look: base.Style = {"frameon": False, "fontsize": SMALL, "labelcolor": INK, "title_fontsize": SMALL}
    legend = axes.legend(**look, **place)
    legend.get_title().set_color(INK)
    base.as_plain_text(legend)


def full_names(table: pd.DataFrame) -> pd.Series:
    """Return a name per row: "panel, line" if any line name occurs in several panels, otherwise only the line name."""
    pairs = table[["panel", "line"]].drop_duplicates()
    alone = pd.Series(pairs["line"].is_unique, index=table.index) | (table["panel"] == "")
    return table["line"].where(alone, table["panel"] + ", " + table["line"])


def _sigma_effects(axes: Axes, sigma_effects: pd.DataFrame) -> None:
    """Draw how much higher accuracy is at sigma 0.2 than at a large sigma, with a row for each line of the figure."""
    table = sigma_effects.assign(name=full_names(sigma_effects))
    names = base.unique_in_order(table["name"])
    means = base.means(table, ["name"]).set_index("name").reindex(names)
    _rows(axes, [base.wrapped(base.short(name), 44) for name in names], range(len(names)))
    base.draw_means(axes, means, range(len(names)), along="x", color=INK, marker="o", markersize=5)
    axes.set_ylim(len(names) - 0.5, -0.5)
    large = sigma_effects["large"].unique()
    other = f"{large[0]:g}" if len(large) == 1 else f"the largest {SIGMA}"
    base.title(axes, f"accuracy at {SIGMA} 0.2 minus that at {other}")
    base.label(axes, "difference of accuracies")


def _rows(axes: Axes, names: Sequence[str], places: Sequence[float]) -> None:
    """Set up a panel with a row per name at the heights `places`, and draw a vertical line at zero."""
    axes.axvline(0, color=MUTED, linewidth=0.9)
    axes.set_yticks(places, names, parse_math=False)
    axes.tick_params("y", length=0, labelsize=SMALL)
    axes.spines["left"].set_visible(False)
    base.light_grid(axes, "x")


def causes(
    table: pd.DataFrame,
    order: Sequence[str],
    effects: pd.DataFrame,
    losses: pd.DataFrame,
    controls: Sequence[str],
    run_name: str,
    chance: float = 0.25,
) -> Figure:
    """Draw the results of the experiment lst-causal in three panels, one each for `table`, `effects` and `losses`.

    Marks of controls, which must have no effect, are hollow.

    Parameters
    ----------
    table : DataFrame
        Accuracies: columns line (the kind of PE), sigma, seed and value.
    order : sequence of str
        The lines in the order of the legend.
    effects : DataFrame
        One row per effect on accuracy: columns group, name, mean, low, high and control (whether it must be zero).
    losses : DataFrame
        Accuracy lost when the PE is exchanged after training: columns sigma, name (of the exchange), seed and value.
    controls : sequence of str
        Names of exchanges that must not change accuracy.
    run_name : str
        Name of the run, for the small print.
    chance : float
        Accuracy of guessing.
    """
    means, averaged, missing = base.summarized(table, ["line", "sigma"])
    rows = max(len(effects) + effects["group"].nunique(), losses["name"].nunique())
    size = (13.2, max(5.4, 1.2 + 0.23 * rows))
    figure, (left, middle, right) = base.panels(1, 3, size, sharey=False, width_ratios=[1.15, 1, 0.95])
    _accuracy_by_size(left, means, [line for line in order if line in set(table["line"])], chance)
    _effects(middle, effects)
    _losses(right, losses, controls)
    note = f"marks and bars: {averaged}; hollow marks: controls, which must do nothing"
    return base.small_print(figure, run_name, note, missing)


def _accuracy_by_size(axes: Axes, means: pd.DataFrame, order: Sequence[str], chance: float) -> None:
    """Draw accuracy by the root mean square of the PE before training, with a line per kind of PE in `order`."""
    if means.empty:
        base.write_empty_note(axes)
        return
    styles = {line: LINE_STYLES[place % len(LINE_STYLES)] for place, line in enumerate(order)}
    _lines(axes, means, styles, base.sorted_sigmas(means))
    base.accuracy_axis(axes, chance)
    base.title(axes, "size or arrangement?")
    base.label(axes, f"size {SIGMA} of the PE at the start", "held-out accuracy at the end")
    _legend(axes, loc="lower left", handlelength=2.6)


def _effects(axes: Axes, effects: pd.DataFrame) -> None:
    """Draw effects on accuracy with their intervals, in rows below the heading of their group."""
    groups = base.unique_in_order(effects["group"])
    place, ticks, names = 0.0, [], []
    heading: base.Style = {"ha": "right", "va": "center", "fontsize": 8, "fontweight": "bold", "color": INK}
    for group in groups:
        text = base.short(group, 30)
        axes.text(-0.02, place, text, transform=axes.get_yaxis_transform(), parse_math=False, **heading)
        place += 1
        for _, row in effects[effects["group"] == group].iterrows():
            ticks.append(place)
            names.append(base.wrapped(base.short(str(row["name"]), 50), 50))
            color = MUTED if row["control"] else VERMILLION if group == groups[0] else BLUE
            look: base.Style = {"color": color, "marker": "o", "markersize": 5, "hollow": bool(row["control"])}
            if np.isfinite(row["mean"]):
                base.draw_means(axes, row.to_frame().T, [place], along="x", **look)
            place += 1
    if effects["mean"].isna().all():
        base.write_empty_note(axes)
    _rows(axes, names, ticks)
    axes.set_ylim(place - 0.4, -0.6)
    base.title(axes, "trained with another PE")
    base.label(axes, "what it adds to accuracy")


def _losses(axes: Axes, losses: pd.DataFrame, controls: Sequence[str]) -> None:
    """Draw how much accuracy a model loses when its PE is exchanged after training, with a row per kind of exchange."""
    names = base.unique_in_order(losses["name"])
    _rows(axes, [base.wrapped(base.short(name, 50), 30) for name in names], range(len(names)))
    axes.set_ylim(len(names) - 0.4, -0.8)
    sigmas = sorted(losses["sigma"].unique())
    for place, sigma in enumerate(sigmas):
        means = base.means(losses[losses["sigma"] == sigma], ["name"])
        style = (LINE_STYLES[1], LINE_STYLES[2], LINE_STYLES[0])[place % 3]
        for hollow in (True, False):
            rows = means[means["name"].isin(controls) == hollow]
            shift = 0.16 * (2 * place - len(sigmas) + 1)
            look: base.Style = {"color": style["color"], "marker": style["marker"], "markersize": 4.4, "hollow": hollow}
            look |= {} if hollow else {"label": f"{SIGMA} = {sigma:g}"}
            base.draw_means(axes, rows, rows["name"].map(names.index), None, "x", shift, **look)
    if losses.empty:
        base.write_empty_note(axes)
    else:
        _legend(axes, loc="lower right")
    base.title(axes, "PE exchanged after training")
    base.label(axes, "what the model loses in accuracy")
