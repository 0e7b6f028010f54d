"""The page of studies on Latin squares that vary another setting besides sigma; sentences: templates/knob.j2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from placecode.analysis import stats
from placecode.analysis.stats import Interval
from placecode.experiments.latin.effects import LARGE, SMALL
from placecode.experiments.reading import STILL, accuracy, by_seed, done, late_change, once
from placecode.reports import figures, wording
from placecode.reports.pages.base import Shown, counts, run_name, shown
from placecode.runs.read import Run, shape_of

Levels = Mapping[str, Mapping[str, Interval]]
MOST = 6
"""Number of unsettled settings that a report names."""


def figures_of_knob(run: Run, lines: pd.DataFrame, knob: str, beside: Levels | None = None) -> list[Shown]:
    """Accuracy and learning curves; `lines` are the members with the panel and the line in which each is drawn."""
    return [accuracy_figure(run, lines, knob, beside), curves_figure(run, lines)]


def accuracy_figure(run: Run, lines: pd.DataFrame, knob: str, beside: Levels | None = None) -> Shown:
    """Accuracy against sigma, a line for each setting."""
    final = lines.assign(value=lines["member"].map(accuracy(run)))
    gained = worth(once(final))
    figure = figures.accuracy_by_setting(final, run_name(run), knob, chance_by_panel(run, lines), gained, beside)
    return shown("knob.accuracy", figure, knob=knob, gain=len(gained) > 0)


def curves_figure(run: Run, lines: pd.DataFrame) -> Shown:
    """OOD accuracy over training, a line for each setting."""
    single = once(lines)
    rows = run.metrics[(run.metrics["metric"] == "accuracy") & (run.metrics["condition"] == "all")]
    curves = rows[rows["split"] == "ood"][["member", "step", "value"]].merge(single, on="member")
    return shown("knob.curves", figures.curves_by_setting(curves, run_name(run), chance_by_panel(run, single)))


def chance_by_panel(run: Run, lines: pd.DataFrame) -> dict[str, float]:
    """Accuracy of guessing in each panel: grids of different sizes have different numbers of symbols."""
    pairs = zip(lines["panel"], lines["data"], strict=True)
    return {str(panel): 1 / float(shape_of(run.config, data)["outputs"]) for panel, data in pairs}


def worth(final: pd.DataFrame) -> pd.DataFrame:
    """Accuracy at the small sigma minus that at the largest, by panel, line and seed; empty if either is missing."""
    found = []
    for (panel, line), rows in final.groupby(["panel", "line"], sort=False):
        table = by_seed(rows)
        large = LARGE if LARGE in table.columns else float(rows["sigma"].max())
        if SMALL in table.columns and large > SMALL:
            for seed, value in (table[SMALL] - table[large]).dropna().items():
                found.append({"panel": panel, "line": line, "seed": seed, "value": value, "large": large})
    return pd.DataFrame(found, columns=["panel", "line", "seed", "value", "large"])


def levels_of(run: Run, references: pd.DataFrame) -> dict[str, dict[str, Interval]]:
    """Accuracy of the references by panel and line, to be drawn beside the lines over sigma."""
    values = references.assign(value=references["member"].map(accuracy(run)))
    levels: dict[str, dict[str, Interval]] = {}
    for (panel, line), rows in values.groupby(["panel", "line"], sort=False):
        levels.setdefault(str(panel), {})[str(line)] = stats.interval(rows["value"].to_numpy())
    return levels


def sentences_on_knob(run: Run, lines: pd.DataFrame) -> list[str]:
    """A sentence for every line: accuracy at both ends of sigma and where it is highest."""
    table = once(lines).assign(value=lambda rows: rows["member"].map(accuracy(run)))
    told = []
    for (panel, line), rows in table.groupby(["panel", "line"], sort=False):
        means = rows.groupby("sigma")["value"].mean()
        sigmas = {"first": means.index.min(), "last": means.index.max(), "best": means.idxmax()}
        ends = {place: {"sigma": sigma, "value": means[sigma]} for place, sigma in sigmas.items()}
        told.append({"name": _name(str(panel), str(line)), "sigmas": len(means), **ends})
    return wording.sentences("knob", lines=told, **settling(run, lines), **counts(run))


def _name(panel: str, line: str) -> str:
    return f"{panel}, {line}" if panel else line


def late_changes(run: Run, lines: pd.DataFrame) -> pd.DataFrame:
    """Change of the mean accuracy of each setting (a line, at a sigma) over the last quarter of training.

    2d-fixed models, which have no sigma, are settings too if no line shows them.
    """
    drawn, finished = once(lines), done(run)
    fixed = finished[finished["encoding"] == "sinusoid"]
    table = pd.concat([drawn, fixed.assign(panel="", line=fixed["label"])]) if len(fixed) else drawn
    table = table.assign(value=table["member"].map(late_change(run)))
    return table.groupby(["panel", "line", "sigma"], sort=False, dropna=False)["value"].mean().reset_index()


def settling(run: Run, lines: pd.DataFrame, most: int = MOST) -> dict[str, Any]:
    """The settings whose mean accuracy has changed by more than STILL, the largest change first."""
    changes = late_changes(run, lines)
    found = changes[changes["value"].abs() > STILL + 1e-9].reset_index(drop=True)
    ordered = found.reindex(found["value"].abs().sort_values(ascending=False).index)
    names = [_name(panel, line) for panel, line in zip(ordered["panel"], ordered["line"], strict=True)]
    unsettled = ordered.assign(name=names)[["name", "sigma", "value"]].to_dict("records")
    return {"settings": len(changes), "unsettled": unsettled, "threshold": STILL, "most": most}


def unsettled_words(run: Run, lines: pd.DataFrame, most: int = MOST) -> list[str]:
    """Whether all curves have settled; names at most this number of settings that have not."""
    return wording.sentences("settled", **settling(run, lines, most))
