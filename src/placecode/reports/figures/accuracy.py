"""Draw accuracy and other measures of the members of a run: by sigma, with published values, and during training.

>>> figure = accuracy_by_sigma(run.members, run.metrics, run_name="lst-quick")
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from placecode.analysis.stats import interval
from placecode.reports.figures import base
from placecode.reports.figures.base import BLUE, INK, KINDS, MUTED, SIGMA, SPLITS, TEXT, VERMILLION

MOST_SIGMAS = 6
"""Maximum number of panels of learning curves for one sweep. More sigmas are thinned out evenly."""

_NOT_SPEC = (
    *("member", "sigma", "seed", "role", "label", "origin", "state", "options", "encoding"),
    *("diverged_at", "diverged_by", "settled_epoch", "rested_epoch"),
)


def accuracy_by_sigma(members: pd.DataFrame, metrics: pd.DataFrame, run_name: str, chance: float = 0.25) -> Figure:
    """Draw the final accuracy by sigma: seeds as faint dots, and means with 95% intervals.

    There is one panel for each encoding with several sigmas, and one for all others. Intervals are clipped to [0, 1]
    for drawing. A sigma at which all members diverged is labelled.

    Parameters
    ----------
    members, metrics : DataFrame
        Tables of the run.
    run_name : str
        Name of the run, for the small print.
    chance : float, default=0.25
        Chance level.

    Returns
    -------
    Figure
        The figure.
    """
    settings = _labelled(members)
    final = _accuracies(settings, metrics)
    final = final[final["step"] == final.groupby("member")["step"].transform("max")]
    sweeps, others = _sweeps(settings)
    widths = [5.6] * len(sweeps) + [0.9 + 0.7 * len(others)] * bool(others)
    figure, panels = base.panels(1, len(widths), (max(sum(widths) + 0.8, 6.4), 4.2), width_ratios=widths)
    for axes, label in zip(panels, sweeps, strict=False):
        sigmas = np.sort(settings.loc[settings["label"] == label, "sigma"].dropna().unique())
        base.sigma_axis(axes, sigmas)
        _points(axes, final[final["label"] == label], "sigma", {sigma: sigma for sigma in sigmas}, line=True)
        axes.set_xlabel(f"initial scale {SIGMA} of the encoding", fontsize=TEXT)
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
            axes.set_xlabel("encoding", fontsize=TEXT)
    for axes in panels:
        base.accuracy_axis(axes, chance)
    panels[0].set_ylabel("accuracy at the final step", fontsize=TEXT)
    base.legend(figure, [*SPLITS])
    base.small_print(figure, run_name, f"faint: single seeds; bars: {_means_over(final)}", _left_out(settings))
    return figure


def learning_curves(members: pd.DataFrame, metrics: pd.DataFrame, run_name: str, chance: float = 0.25) -> Figure:
    """Draw accuracy by training step, with a panel for each sigma (at most six per sweep) and each other encoding.

    Lines are means over seeds, bands are 95% intervals, clipped to [0, 1] for drawing. For the arguments see
    `accuracy_by_sigma`.
    """
    settings = _labelled(members)
    table = _accuracies(settings, metrics)
    sweeps, others = _sweeps(settings)
    wanted: list[tuple[str, float | None]] = []
    for label in sweeps:
        sigmas = settings.loc[settings["label"] == label, "sigma"].dropna().to_numpy()
        wanted += [(label, sigma) for sigma in base.thinned(sigmas, MOST_SIGMAS)]
    wanted += [(label, None) for label in others]
    last = max(float(metrics["step"].max()), 1.0)
    columns = min(3, len(wanted))
    rows = -(-len(wanted) // columns)
    figure, panels = base.panels(rows, columns, (max(2.75 * columns + 0.6, 5.6), 2.15 * rows + 0.9))
    for i, (axes, (label, sigma)) in enumerate(zip(panels, wanted, strict=False)):
        here = table[(table["label"] == label) & ((table["sigma"] == sigma) | (sigma is None))]
        for split, style in SPLITS.items():
            groups = list(here[here["split"] == split].groupby("step")["value"])
            steps = np.array([step for step, _ in groups], dtype=float)
            mean, low, high = np.array([interval(values.to_numpy()) for _, values in groups]).reshape(-1, 3).T
            axes.fill_between(steps, low.clip(0, 1), high.clip(0, 1), color=style["color"], alpha=0.16, linewidth=0)
            axes.plot(steps, mean, label=split, color=style["color"], linestyle=style["linestyle"], linewidth=1.6)
        if here.empty:
            axes.text(0.5, 0.6, "all members diverged", transform=axes.transAxes, ha="center", color=MUTED, fontsize=8)
        at = "" if sigma is None else f"{SIGMA} = {sigma:g}"
        base.title(axes, at if at and len(sweeps) == 1 else ", ".join(part for part in (label, at) if part))
        base.accuracy_axis(axes, chance)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.set_xlim(-0.02 * last, 1.02 * last)
        if i // columns == rows - 1:
            axes.set_xlabel("training step", fontsize=TEXT)
        if i % columns == 0:
            axes.set_ylabel("accuracy", fontsize=TEXT)
    for axes in panels[len(wanted) :]:
        axes.set_axis_off()
    base.legend(figure, [*SPLITS])
    base.small_print(figure, run_name, f"line and band: {_means_over(table)}", _left_out(settings))
    return figure


def _labelled(members: pd.DataFrame) -> pd.DataFrame:
    """Add a column `label` to the members: the encoding and the settings that vary within it, except sigma."""
    specs = [
        {**{name: row[name] for name in row if name not in _NOT_SPEC}, **json.loads(row.get("options") or "{}")}
        for row in members.to_dict("records")
    ]
    encodings = members["encoding"].astype(str).tolist()
    labels = []
    for encoding, spec in zip(encodings, specs, strict=True):
        same_encoding = [other for name, other in zip(encodings, specs, strict=True) if name == encoding]
        varied = [name for name in spec if len({str(other.get(name)) for other in same_encoding}) > 1]
        labels.append(", ".join([encoding, *(f"{str(name).replace('_', ' ')} {spec[name]}" for name in varied)]))
    return members.assign(label=labels, sigma=pd.to_numeric(members["sigma"]))


def _sweeps(settings: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Return the labels with several sigmas (or with one, if none has several), and all other labels."""
    sigmas = settings.groupby("label", sort=False)["sigma"].nunique()
    enough = min(2, int(sigmas.max()))
    swept = [str(label) for label in sigmas.index if enough and sigmas[label] >= enough]
    return swept, [str(label) for label in sigmas.index if label not in swept]


def _accuracies(settings: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracy over all examples with label and sigma, without members that diverged."""
    rows = metrics[(metrics["metric"] == "accuracy") & (metrics["condition"] == "all")]
    done = settings.loc[settings["state"] == "done", ["member", "label", "sigma"]]
    return rows.merge(done, on="member")


def _points(axes: Axes, table: pd.DataFrame, column: str, places: Mapping[Any, float], line: bool) -> None:
    """Draw seeds as dots and means with intervals for each split; splits are shifted slightly."""
    for shift, (split, style) in zip((-1, 0, 1), SPLITS.items(), strict=True):
        rows = table[(table["split"] == split) & table[column].isin(list(places))]
        groups = [(places[key], values["value"].to_numpy()) for key, values in rows.groupby(column)]
        if not groups:
            continue
        x = np.array([place for place, _ in groups])
        color, marker = style["color"], style["marker"]
        near = 0.02 if line else 1.0
        for place, (_, values) in zip(_beside(axes, x, places, shift + 0.38, near), groups, strict=True):
            axes.plot(np.full(len(values), place), values, marker, color=color, alpha=0.3, markersize=3.6, mew=0)
        mean, low, high = np.array([interval(values) for _, values in groups]).T
        bars = axes.errorbar(
            _beside(axes, x, places, shift, near),
            mean,
            np.nan_to_num([mean - low.clip(0, 1), high.clip(0, 1) - mean]),
            label=split,
            color=color,
            marker=marker,
            linestyle=style["linestyle"] if line else "none",
            linewidth=1.3,
            markersize=5.4 if len(places) <= 10 else 4.2,
            capsize=2,
        )
        bars.lines[0].set_markeredgewidth(0)
    for lost in set(places) - set(table[column]):
        axes.text(
            places[lost], 0.5, "all members diverged", rotation=90, ha="center", va="center", color=MUTED, fontsize=8
        )


def _beside(
    axes: Axes, x: npt.NDArray[Any], places: Mapping[Any, float], shift: float, near: float
) -> npt.NDArray[Any]:
    """Shift x by `shift` steps, each a fifth of the smallest gap between places, and at most `near` times the axis."""
    log = axes.get_xscale() == "log"
    ends = np.array(sorted(places.values()), dtype=float)
    ends, x = (np.log(ends), np.log(x)) if log else (ends, x)
    span = ends[-1] - ends[0] if len(ends) > 1 else 2.0
    moved = x + shift * min(near * span, np.diff(ends).min(initial=1.0) / 5)
    return np.asarray(np.exp(moved) if log else moved)


def _means_over(table: pd.DataFrame) -> str:
    """Describe what the means are over."""
    return base.over_seeds(table, ["label", "sigma", "split", "step"], unit="member")


def _left_out(settings: pd.DataFrame) -> str:
    """Describe how many members were left out; empty if none."""
    lost = int((settings["state"] != "done").sum())
    return f"{lost} of {len(settings)} members diverged and are left out" if lost else ""


def beside_published(
    table: pd.DataFrame, published: Mapping[float, float], run_name: str, chance: float = 0.25
) -> Figure:
    """Draw accuracy by sigma: our means with 95% intervals, seeds as faint dots, and published means as crosses.

    Parameters
    ----------
    table : DataFrame
        Columns sigma, seed and value.
    published : mapping of float to float
        Published mean by sigma; may lack some sigmas.
    run_name : str
        Name of the run, for the small print.
    chance : float, default=0.25
        Chance level.

    Returns
    -------
    Figure
        The figure.
    """
    finite_rows, lost = base.finite(table, ["sigma", "seed", "value"])
    means = base.means(finite_rows, ["sigma"])
    figure, (axes,) = base.panels(1, 1, (6.4, 4.0))
    sigmas = np.sort(table["sigma"].unique().astype(float))
    base.sigma_axis(axes, sigmas)
    axes.plot(
        finite_rows["sigma"], finite_rows["value"], ".", color=BLUE, alpha=0.22, markersize=4, label="single seeds"
    )
    style: base.Style = {"color": BLUE, "marker": "o", "linestyle": "-", "linewidth": 1.4, "markersize": 5}
    base.errorbars(axes, means["sigma"], means["mean"], yerr=base.distances(means, (0, 1)), label="ours", **style)
    shown = [sigma for sigma in sigmas if sigma in published]
    cross: base.Style = {"marker": "x", "markersize": 7, "markeredgewidth": 1.8, "linestyle": "none"}
    axes.plot(shown, [published[sigma] for sigma in shown], color=VERMILLION, label="published", zorder=5, **cross)
    base.accuracy_axis(axes, chance)
    base.label(axes, f"initial scale {SIGMA} of the encoding", "OOD accuracy at the end")
    axes.yaxis.label.set_color(INK)
    base.legend(figure, ["ours", "single seeds", "published"])
    base.small_print(figure, run_name, f"points and bars: {base.over_seeds(finite_rows, ['sigma'])}", lost)
    return figure


LEAST_LOSS = 1e-9
"""Value at which a loss of exactly 0 is drawn on a logarithmic axis."""


def slingshots(panels: Mapping[str, pd.DataFrame], run_name: str, chance: float = 0.25) -> Figure:
    """Draw curves during training, with a panel for each table: seeds as thin lines and means as thick lines.

    Losses have a logarithmic axis whose lower end stands for 0; accuracies have an axis from 0 to 1.

    Parameters
    ----------
    panels : mapping of str to DataFrame
        Tables by title, with the columns line, epoch, seed and value.
    run_name : str
        Name of the run, for the small print.
    chance : float, default=0.25
        Chance level.

    Returns
    -------
    Figure
        The figure.
    """
    figure, drawn = base.panels(1, len(panels), (3.3 * len(panels) + 0.4, 3.4), sharey=False)
    notes = set()
    for axes, (name, table) in zip(drawn, panels.items(), strict=True):
        finite_rows, lost = base.finite(table, ["line", "epoch", "seed", "value"])
        notes |= {lost}
        is_loss, is_accuracy = "loss" in name, "accuracy" in name
        for place, line in enumerate(base.in_order(table["line"])):
            kind = KINDS[place % len(KINDS)]
            rows = finite_rows[finite_rows["line"] == line]
            for _, seed_rows in rows.groupby("seed"):
                values = np.maximum(seed_rows["value"], LEAST_LOSS) if is_loss else seed_rows["value"]
                axes.plot(seed_rows["epoch"], values, color=kind["color"], alpha=0.28, linewidth=0.7)
            means = rows.groupby("epoch")["value"].mean()
            values = np.maximum(means, LEAST_LOSS) if is_loss else means
            style: base.Style = {"color": kind["color"], "linestyle": kind["linestyle"], "linewidth": 1.7}
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


def before_and_after(table: pd.DataFrame, run_name: str, labels: Mapping[str, str] | None = None) -> Figure:
    """Draw measures by sigma before training (hollow and grey) and after it (filled), with a panel per measure.

    Parameters
    ----------
    table : DataFrame
        Columns measure, moment ("start" or "end"), sigma, seed and value.
    run_name : str
        Name of the run, for the small print.
    labels : mapping of str to str, optional
        Labels of the vertical axes by measure; by default the measure.

    Returns
    -------
    Figure
        The figure. Panels have separate scales.
    """
    finite_rows, lost = base.finite(table, ["measure", "moment", "sigma", "seed", "value"])
    by = ["measure", "moment", "sigma"]
    means = base.means(finite_rows, by)
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
        axis_label = base.wrapped(base.short((labels or {}).get(measure, str(measure)), 78), 26)
        base.label(axes, f"initial scale {SIGMA} of the encoding" if last else "", axis_label)
    base.legend(figure, ["before training", "after training"])
    base.small_print(figure, run_name, f"dots and bars: {base.over_seeds(finite_rows, by)}", lost)
    return figure
