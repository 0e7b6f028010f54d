"""Figures and sentences of the experiments on Latin squares that vary another setting (a "knob") besides sigma.

The sentences are in templates/knob.j2. `lines`, a parameter of most functions, is the table `KnobPage.lines`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import pandas as pd

from placecode.analysis.stats import Interval, interval
from placecode.experiments.latin.effects import LARGE, SMALL
from placecode.experiments.latin.knobs import KnobExperiment
from placecode.experiments.latin.squares import LatinExperiment
from placecode.experiments.reading import (
    MAX_SETTLED_CHANGE,
    accuracy,
    by_seed,
    drop_repeated_lines,
    finished_members,
    late_change,
)
from placecode.reports import figures, wording
from placecode.reports.pages.base import Page, ReportFigure, counts, report_figure, run_name
from placecode.reports.pages.interactive import SigmaSlider
from placecode.reports.pages.latin import ood_curves
from placecode.runs.read import Run, shape_of

Accuracies = Mapping[str, Mapping[str, Interval]]
"""Mean accuracy with its interval, by the names of the panel and of the line."""
MAX_UNSETTLED = 6
"""Largest number of unsettled settings that a report names."""


class KnobPage(Page):
    """The page of experiments on Latin squares that vary another setting besides sigma."""

    experiment: KnobExperiment
    measures = (
        ("norm", ""),
        ("moved_relative", "start"),
        ("weights_moved", "start"),
        ("procrustes", "2d-fixed"),
        ("rsa", "relation"),
        ("neighbor_agreement", "relation"),
    )

    @cached_property
    def lines(self) -> pd.DataFrame:
        """The finished members of the sweep, with a row for each `panel` and `line` of the figure that shows them."""
        return self.experiment.lines(self.run)

    @cached_property
    def final(self) -> pd.DataFrame:
        """The table `lines` with the final accuracy of each member, in the column `value`."""
        return self.lines.assign(value=self.lines["member"].map(accuracy(self.run)))

    def slider(self) -> SigmaSlider | None:
        return None  # a slider would show one of the settings without saying which

    def figures(self) -> list[ReportFigure]:
        references = reference_accuracies(self.run, self.experiment.lines_of_role(self.run, "reference"))
        return knob_figures(self.run, self.final, self.experiment.knob, references)

    def sentences(self) -> list[str]:
        """Return a sentence for every line, with its accuracy at the smallest, the largest and the best sigma.

        Further sentences say which settings have not settled, and how many members diverged.
        """
        entries = []
        for (panel, line), rows in drop_repeated_lines(self.final).groupby(["panel", "line"], sort=False):
            means = rows.groupby("sigma")["value"].mean()
            sigmas = {"first": means.index.min(), "last": means.index.max(), "best": means.idxmax()}
            accuracies = {place: {"sigma": sigma, "value": means[sigma]} for place, sigma in sigmas.items()}
            entries.append({"name": _name(str(panel), str(line)), "sigmas": len(means), **accuracies})
        return wording.sentences("knob", lines=entries, **settling(self.run, self.lines), **counts(self.run))


class SweptPage(KnobPage):
    """The page of an experiment on Latin squares that was run with `--sweep`. Its figure of accuracy by sigma has a
    line for each combination of the values in `--sweep`."""

    experiment: LatinExperiment  # type: ignore[assignment]

    def figures(self) -> list[ReportFigure]:
        names = ", ".join(axis.name.replace("_", " ") for axis in self.experiment.axes)
        return knob_figures(self.run, self.final, names)


def knob_figures(run: Run, final: pd.DataFrame, knob: str, references: Accuracies | None = None) -> list[ReportFigure]:
    """Draw accuracy against sigma, and learning curves, with a line for each setting.

    `final` is `KnobPage.final`. `knob` names the varied setting. `references` are the accuracies of members without a
    sigma, which are drawn as horizontal lines.
    """
    effects, chance = sigma_effects(drop_repeated_lines(final)), chance_by_panel(run, final)
    figure = figures.accuracy_by_setting(final, run_name(run), knob, chance, effects, references)
    return [report_figure("knob.accuracy", figure, knob=knob, effects=len(effects) > 0), curves_figure(run, final)]


def curves_figure(run: Run, lines: pd.DataFrame) -> ReportFigure:
    """Draw OOD accuracy during training, with a line for each setting."""
    members = drop_repeated_lines(lines)
    figure = figures.curves_by_setting(ood_curves(run, members), run_name(run), chance_by_panel(run, members))
    return report_figure("knob.curves", figure)


def chance_by_panel(run: Run, lines: pd.DataFrame) -> dict[str, float]:
    """Return the accuracy of guessing by panel; it differs between grid sizes."""
    pairs = zip(lines["panel"], lines["data"], strict=True)
    return {str(panel): 1 / float(shape_of(run.config, data)["outputs"]) for panel, data in pairs}


def sigma_effects(final: pd.DataFrame) -> pd.DataFrame:
    """Return a table (panel, line, seed, value, large): accuracy at sigma SMALL minus accuracy at the sigma `large`.

    `large` is LARGE, or the largest sigma of the line if LARGE was not run. Lines without both sigmas have no rows.
    """
    differences = []
    for (panel, line), rows in final.groupby(["panel", "line"], sort=False):
        table = by_seed(rows)
        large = LARGE if LARGE in table.columns else float(rows["sigma"].max())
        if SMALL in table.columns and large > SMALL:
            for seed, value in (table[SMALL] - table[large]).dropna().items():
                differences.append({"panel": panel, "line": line, "seed": seed, "value": value, "large": large})
    return pd.DataFrame(differences, columns=["panel", "line", "seed", "value", "large"])


def reference_accuracies(run: Run, references: pd.DataFrame) -> dict[str, dict[str, Interval]]:
    """Return the accuracy, with its interval, of the reference members (models for comparison), by panel and line."""
    values = references.assign(value=references["member"].map(accuracy(run)))
    levels: dict[str, dict[str, Interval]] = {}
    for (panel, line), rows in values.groupby(["panel", "line"], sort=False):
        levels.setdefault(str(panel), {})[str(line)] = interval(rows["value"])
    return levels


def _name(panel: str, line: str) -> str:
    """Return "panel, line", or only the line if the panel has no name."""
    return f"{panel}, {line}" if panel else line


def settling(run: Run, lines: pd.DataFrame, most: int = MAX_UNSETTLED) -> dict[str, Any]:
    """Return the variables of templates/settled.j2, which names settings whose accuracy has not settled.

    A setting has not settled if its mean OOD accuracy changed by more than MAX_SETTLED_CHANGE over the last quarter of
    training. The variable "unsettled" lists these settings, the largest change first; sentences name at most `most`.
    """
    rows, finished = drop_repeated_lines(lines), finished_members(run)
    fixed = finished[finished["encoding"] == "sinusoid"]  # not in the sweep: its sigma is NaN
    if len(fixed):
        rows = pd.concat([rows, fixed.assign(panel="", line=fixed["label"])])
    rows = rows.assign(value=rows["member"].map(late_change(run)))
    changes = rows.groupby(["panel", "line", "sigma"], sort=False, dropna=False)["value"].mean().reset_index()
    large = changes[changes["value"].abs() > MAX_SETTLED_CHANGE + 1e-9].reset_index(drop=True)
    ordered = large.reindex(large["value"].abs().sort_values(ascending=False).index)
    names = [_name(panel, line) for panel, line in zip(ordered["panel"], ordered["line"], strict=True)]
    unsettled = ordered.assign(name=names)[["name", "sigma", "value"]].to_dict("records")
    return {"settings": len(changes), "unsettled": unsettled, "threshold": MAX_SETTLED_CHANGE, "most": most}
