"""The pages of lst-frozen (does the PE have to be learned?) and lst-slingshot (spikes of the training loss).

The sentences are in templates/lst-slingshot.j2.
"""

from __future__ import annotations

import contextlib

import pandas as pd

from placecode.analysis.stats import interval
from placecode.experiments.claims import NotInRun
from placecode.experiments.latin.effects import PLATEAU_EPOCH, late_gain
from placecode.experiments.reading import accuracy
from placecode.reports import figures, wording
from placecode.reports.pages.base import ReportFigure, counts, report_figure, run_name
from placecode.reports.pages.knobs import KnobPage, curves_figure
from placecode.reports.pages.latin import chance_of
from placecode.runs.read import Run

PANELS = {
    "training loss": ("train", "loss"),
    "mean logit": ("train", "mean_logit"),
    "OOD accuracy": ("ood", "accuracy"),
}
"""The split and the metric of each panel of the figure of slingshots, by title."""
SPIKE = 1e-4
"""The training loss has a spike when it rises above this after it was below a tenth of this."""


class FrozenPage(KnobPage):
    """The page of lst-frozen, on learned and frozen PEs."""

    def figures(self) -> list[ReportFigure]:
        figure = figures.accuracy_by_setting(self.final, run_name(self.run), "the PE", chance_of(self.run))
        return [report_figure("frozen.accuracy", figure), curves_figure(self.run, self.lines)]


class SlingshotPage(KnobPage):
    """The page of lst-slingshot, on slingshots: spikes of the training loss after all training puzzles are fitted."""

    def figures(self) -> list[ReportFigure]:
        """Draw training loss, mean logit and OOD accuracy by epoch, with a figure for each sigma."""
        run = self.run
        table = run.metrics[run.metrics["condition"] == "all"]
        table = table.merge(self.lines[["member", "line", "sigma", "seed"]], on="member")
        epochs = run.config["fields"]["epochs"] / max(int(run.metrics["step"].max()), 1)
        table = table.assign(epoch=table["step"] * epochs)
        drawn = []
        for sigma, rows in table.groupby("sigma"):
            panels = [
                (title, metric, rows[(rows["split"] == split) & (rows["metric"] == metric)])
                for title, (split, metric) in PANELS.items()
            ]
            figure, text = figures.slingshots(panels, run_name(run), chance_of(run)), f"{figures.SIGMA} = {sigma:g}"
            drawn.append(report_figure("slingshot.slingshots", figure, name=f"slingshots-{sigma:g}", sigma=text))
        return drawn

    def sentences(self) -> list[str]:
        """Say for each line and sigma how many models had a spike, and how accuracy changed after epoch 200."""
        values = {"accuracy": accuracy(self.run), "spikes": spikes(self.run)}
        with contextlib.suppress(NotInRun):  # the run is shorter, or was not evaluated at that epoch
            values["late_gain"] = late_gain(self.run)
        table = self.lines.assign(**{name: self.lines["member"].map(column) for name, column in values.items()})
        settings = [
            {
                "line": line,
                "sigma": sigma,
                "accuracy": rows["accuracy"].mean(),
                "spiked": int((rows["spikes"] > 0).sum()),
                "models": len(rows),
                "late_gain": interval(rows["late_gain"]) if "late_gain" in rows else None,
            }
            for (line, sigma), rows in table.groupby(["line", "sigma"], sort=False)
        ]
        return wording.sentences("lst-slingshot", settings=settings, early=PLATEAU_EPOCH, **counts(self.run))


def spikes(run: Run) -> pd.Series:
    """Return the number of spikes of each member: how often its mean training loss rose above SPIKE.

    A rise counts only after the loss was below a tenth of SPIKE. Only losses at evaluations are known, so spikes
    between two evaluations are missed.
    """
    rows = run.metrics[(run.metrics["split"] == "train") & (run.metrics["metric"] == "loss")]
    table = rows[rows["condition"] == "all"].pivot(index="step", columns="member", values="value").sort_index()
    counts_by_member = {}
    for member, losses in table.items():
        low, count = False, 0
        for loss in losses:
            if low and loss > SPIKE:
                low, count = False, count + 1
            low = low or loss < SPIKE / 10
        counts_by_member[member] = count
    return pd.Series(counts_by_member, name="spikes")
