"""Draw accuracy by sigma: at the end of training, beside published values, under noise, by class of puzzle.

`before_and_after` draws other measures by sigma, before and after training.

>>> figure = accuracy_by_sigma(run.members, run.metrics, run_name="lst-quick")
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from placecode.models.member import NON_SETTING_COLUMNS
from placecode.reports.figures import base
from placecode.reports.figures.base import BLUE, LINE_STYLES, MUTED, SIGMA, SIGMA_LABEL, SPLITS, VERMILLION

MAX_LINES = 5
"""Maximum number of sigmas in a panel of noise curves. If there are more, evenly spread ones are drawn."""
_NOT_SPEC = (*NON_SETTING_COLUMNS, "sigma", "options", "encoding")
"""Columns of the table of members that `labelled` does not compare as settings."""


def accuracy_by_sigma(members: pd.DataFrame, metrics: pd.DataFrame, run_name: str, chance: float = 0.25) -> Figure:
    """Draw the final accuracy on each split by sigma: seeds as faint dots, and means with 95% intervals.

    There is one panel for each encoding with several sigmas, and one panel for all other encodings.
    """
    settings = labelled(members)
    final = accuracies(settings, metrics)
    final = final[final["step"] == final.groupby("member")["step"].transform("max")]
    sweeps, others = swept_labels(settings)
    widths = [5.6] * len(sweeps) + [0.9 + 0.7 * len(others)] * bool(others)
    figure, panels = base.panels(1, len(widths), (max(sum(widths) + 0.8, 6.4), 4.2), width_ratios=widths)
    for axes, label in zip(panels, sweeps, strict=False):
        sigmas = np.sort(settings.loc[settings["label"] == label, "sigma"].dropna().unique())
        base.sigma_axis(axes, sigmas)
        _points(axes, final[final["label"] == label], "sigma", {sigma: sigma for sigma in sigmas}, line=True)
        base.label(axes, SIGMA_LABEL)
        if len(widths) > 1:
            base.title(axes, label)
    if others:
        axes = panels[-1]
        axes.set_xlim(-0.6, len(others) - 0.4)
        axes.set_xticks(range(len(others)), others, rotation=30, ha="right", rotation_mode="anchor", parse_math=False)
        _points(axes, final, "label", {label: i for i, label in enumerate(others)}, line=False)
        if sweeps:
            base.title(axes, "other encodings")
        else:
            base.label(axes, "encoding")
    for axes in panels:
        base.accuracy_axis(axes, chance)
    base.label(panels[0], y="accuracy at the final step")
    base.legend(figure, [*SPLITS])
    note = f"faint: single seeds; bars: {means_over(final)}"
    return base.small_print(figure, run_name, note, base.diverged_note(settings))


def labelled(members: pd.DataFrame) -> pd.DataFrame:
    """Return the members with a column `label`: the encoding, and the settings that differ among members with it.

    Sigma is not part of the label. The column sigma becomes numeric, with NaN for members without a sigma.
    """
    specs = [
        {**{name: row[name] for name in row if name not in _NOT_SPEC}, **json.loads(row.get("options") or "{}")}
        for row in members.to_dict("records")
    ]
    encodings = members["encoding"].astype(str).tolist()
    labels = []
    for encoding, spec in zip(encodings, specs, strict=True):
        same_encoding = [other for name, other in zip(encodings, specs, strict=True) if name == encoding]
        varied = [field for field in spec if len({str(other.get(field)) for other in same_encoding}) > 1]
        labels.append(", ".join([encoding, *(f"{str(field).replace('_', ' ')} {spec[field]}" for field in varied)]))
    return members.assign(label=labels, sigma=pd.to_numeric(members["sigma"]))


def swept_labels(settings: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Return two lists: the labels with several sigmas (or with one, if no label has several), and all other labels."""
    sigmas = settings.groupby("label", sort=False)["sigma"].nunique()
    enough = min(2, int(sigmas.max()))
    swept = [str(label) for label in sigmas.index if enough and sigmas[label] >= enough]
    return swept, [str(label) for label in sigmas.index if label not in swept]


def accuracies(settings: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `metrics` with the accuracy over all examples, and add the columns label and sigma from
    `settings`, the table of members. Diverged members are left out."""
    rows = metrics[(metrics["metric"] == "accuracy") & (metrics["condition"] == "all")]
    done = settings.loc[settings["state"] == "done", ["member", "label", "sigma"]]
    return rows.merge(done, on="member")


def _points(axes: Axes, table: pd.DataFrame, column: str, places: Mapping[Any, float], line: bool) -> None:
    """Draw seeds as dots, and means with intervals, for each split. Splits are shifted slightly to the left or right.

    `places` maps the values of `column` to positions on the x axis. `line` is whether to join the means by lines.
    """
    ticks, step = list(places.values()), 0.02 if line else 1.0
    for shift, (split, style) in zip((-1, 0, 1), SPLITS.items(), strict=True):
        rows = table[(table["split"] == split) & table[column].isin(list(places))]
        if rows.empty:
            continue
        look: base.Style = {**style, "markersize": 5.4 if len(places) <= 10 else 4.2}
        look |= {"linewidth": 1.3, "elinewidth": 1.3, "capsize": 2} | ({} if line else {"linestyle": "none"})
        dots = base.dodge(axes, rows[column].map(places), ticks, shift + 0.38, step)
        axes.plot(dots, rows["value"], style["marker"], color=style["color"], alpha=0.3, markersize=3.6, mew=0)
        means = base.means(rows, [column])
        at = base.dodge(axes, means[column].map(places), ticks, shift, step)
        base.draw_means(axes, means, at, (0, 1), label=split, **look)
    for place in set(places) - set(table[column]):
        axes.text(places[place], 0.5, base.ALL_DIVERGED, rotation=90, ha="center", va="center", color=MUTED, fontsize=8)


def means_over(table: pd.DataFrame) -> str:
    """Return a note on how many seeds are in a mean of a table from `accuracies`; every member counts as one seed."""
    return base.seeds_note(table, ["label", "sigma", "split", "step"], unit="member")


def beside_published(
    table: pd.DataFrame, published: Mapping[float, float], run_name: str, chance: float = 0.25
) -> Figure:
    """Draw accuracy by sigma: our means with 95% intervals, seeds as faint dots, and published means as crosses.

    `table` has the columns sigma, seed and value. `published` maps a sigma to the published mean, if there is one.
    """
    rows, missing = base.finite(table)
    means, sigmas = base.means(rows, ["sigma"]), base.sorted_sigmas(table)
    figure, (axes,) = base.panels(1, 1, (6.4, 4.0))
    base.sigma_axis(axes, sigmas)
    axes.plot(rows["sigma"], rows["value"], ".", color=BLUE, alpha=0.22, markersize=4, label="single seeds")
    ours: base.Style = {"color": BLUE, "marker": "o", "linestyle": "-", "linewidth": 1.4, "markersize": 5}
    base.draw_means(axes, means, means["sigma"], (0, 1), label="ours", **ours)
    common = [sigma for sigma in sigmas if sigma in published]
    crosses: base.Style = {"color": VERMILLION, "markersize": 7, "mew": 1.8, "zorder": 5, "label": "published"}
    axes.plot(common, [published[sigma] for sigma in common], "x", **crosses)
    base.accuracy_axis(axes, chance)
    base.label(axes, SIGMA_LABEL, "OOD accuracy at the end")
    base.legend(figure, ["ours", "single seeds", "published"])
    return base.small_print(figure, run_name, f"points and bars: {base.seeds_note(rows, ['sigma'])}", missing)


def noise_curves(table: pd.DataFrame, run_name: str, chance: float = 0.25) -> Figure:
    """Draw accuracy by noise level, with a panel per split and a line per sigma (at most five).

    `table` has the columns split, sigma, level (the standard deviation of the noise), seed and value. Levels are drawn
    at equal distances, since a logarithmic axis could not show the level 0.
    """
    means, averaged, missing = base.summarized(table, ["split", "sigma", "level"])
    names = base.unique_in_order(table["split"])
    splits = [split for split in SPLITS if split in names] + [split for split in names if split not in SPLITS]
    sigmas = base.thinned(table["sigma"].to_numpy(), MAX_LINES)
    levels = np.unique(table["level"].to_numpy(dtype=float))
    figure, panels = base.panel_grid(len(splits), 3, (3.1, 2.7))
    for axes, split in zip(panels, splits, strict=False):
        here = means[means["split"] == split]
        for i, sigma in enumerate(sigmas):
            rows = here[here["sigma"] == sigma]
            at = np.searchsorted(levels, rows["level"].to_numpy(dtype=float)) + 0.05 * (i - (len(sigmas) - 1) / 2)
            look = {"label": f"{SIGMA} = {sigma:g}", "markersize": 4.6, "linewidth": 1.3, **LINE_STYLES[i]}
            base.draw_means(axes, rows, at, (0, 1), **look)
        if here.empty:
            base.write_empty_note(axes)
        base.title(axes, str(split))
        base.accuracy_axis(axes, chance)
        axes.set_xticks(range(len(levels)), [f"{level:g}" for level in levels])
        base.label_edges(axes, "standard deviation of the noise", "accuracy")
    base.legend(figure, [f"{SIGMA} = {sigma:g}" for sigma in sigmas], columns=MAX_LINES + 1)
    thinned = f"; {len(sigmas)} of {table['sigma'].nunique()} sigmas" if table["sigma"].nunique() > len(sigmas) else ""
    return base.small_print(figure, run_name, f"dots and bars: {averaged}{thinned}", missing)


def conditions_by_sigma(table: pd.DataFrame, run_name: str, chance: float = 0.25) -> Figure:
    """Draw accuracy and confidence by sigma in two panels, with a line per condition (class of puzzle).

    `table` has the columns condition, sigma, seed, accuracy and confidence.
    """
    labels = {"accuracy": "accuracy", "confidence": "confidence in the answer given"}
    rows, missing = base.finite(table, [*labels])
    by = ["condition", "sigma"]
    conditions, sigmas = base.unique_in_order(table["condition"]), base.sorted_sigmas(table)
    figure, panels = base.panels(1, 2, (8.2, 3.7))
    for axes, (value, axis_label) in zip(panels, labels.items(), strict=True):
        means = base.means(rows, by, value)
        if len(sigmas):
            base.sigma_axis(axes, sigmas, most=10)
        for i, condition in enumerate(conditions):
            here = means[means["condition"] == condition]
            look = {"label": str(condition), "markersize": 4.4, "linewidth": 1.2, **LINE_STYLES[i % len(LINE_STYLES)]}
            base.draw_means(axes, here, here["sigma"], (0, 1), **look)
        if means.empty:
            base.write_empty_note(axes)
        base.accuracy_axis(axes, chance)
        base.label(axes, SIGMA_LABEL, axis_label)
    base.legend(figure, [str(condition) for condition in conditions], columns=6)
    return base.small_print(figure, run_name, f"dots and bars: {base.seeds_note(rows, by)}", missing)


_MOMENTS: Mapping[str, base.Style] = {
    "start": {"label": "before training", "color": MUTED, "linestyle": (0, (1, 1.4)), "zorder": 2, "markersize": 6.8},
    "end": {"label": "after training", "color": BLUE, "linestyle": "-", "zorder": 3, "markersize": 4.2},
}


def before_and_after(table: pd.DataFrame, run_name: str, labels: Mapping[str, str] | None = None) -> Figure:
    """Draw measures by sigma before training (hollow and grey) and after it (filled), with a panel per measure.

    `table` has the columns measure, moment ("start" or "end"), sigma, seed and value. `labels` maps a measure to the
    label of its vertical axis, which is the name of the measure by default. Panels have separate scales.
    """
    means, averaged, missing = base.summarized(table, ["measure", "moment", "sigma"])
    measures = base.unique_in_order(table["measure"])
    figure, panels = base.panel_grid(len(measures), 3, (3.0, 2.35), sharey=False)
    for axes, measure in zip(panels, measures, strict=False):
        here = means[means["measure"] == measure]
        base.sigma_axis(axes, base.sorted_sigmas(table[table["measure"] == measure]), most=5)
        for moment, style in _MOMENTS.items():
            rows = here[here["moment"] == moment]
            look = {"marker": "o", "linewidth": 1.1, "hollow": moment == "start", **style}
            base.draw_means(axes, rows, rows["sigma"], **look)
        if here.empty:
            base.write_empty_note(axes)
        base.light_grid(axes)
        base.label_edges(axes, SIGMA_LABEL)
        base.label(axes, y=base.wrapped(base.short((labels or {}).get(measure, str(measure)), 78), 26))
    base.legend(figure, ["before training", "after training"])
    return base.small_print(figure, run_name, f"dots and bars: {averaged}", missing)
