"""The pages of lst-frozen and lst-slingshot; sentences: templates/lst-slingshot.j2."""

from __future__ import annotations

import pandas as pd

from placecode.analysis.stats import interval
from placecode.experiments.claims import NotInRun
from placecode.experiments.latin.training_claims import EARLY, late_gain
from placecode.experiments.reading import accuracy
from placecode.reports import figures, wording
from placecode.reports.pages import knobs
from placecode.reports.pages.base import Shown, counts, run_name, shown
from placecode.reports.pages.latin_figures import chance_of
from placecode.runs.read import Run

PANELS = {
    "training loss": ("train", "loss"),
    "mean logit": ("train", "mean_logit"),
    "OOD accuracy": ("ood", "accuracy"),
}
"""Panels of the figure of slingshots: split and metric."""
SPIKE = 1e-4
"""A mean training loss above this, after one below a tenth of it, counts as a spike."""


def of_frozen(run: Run, lines: pd.DataFrame) -> list[Shown]:
    """Accuracy of learned and frozen PEs, and learning curves."""
    final = lines.assign(value=lines["member"].map(accuracy(run)))
    figure = figures.accuracy_by_setting(final, run_name(run), "the PE", chance_of(run))
    return [shown("frozen.accuracy", figure), knobs.curves_figure(run, lines)]


def figures_of_slingshots(run: Run, lines: pd.DataFrame) -> list[Shown]:
    """A figure for each sigma."""
    rows = run.metrics[run.metrics["condition"] == "all"]
    table = rows.merge(lines[["member", "line", "sigma", "seed"]], on="member")
    epochs = run.config["fields"]["epochs"] / max(int(run.metrics["step"].max()), 1)
    table = table.assign(epoch=table["step"] * epochs)
    drawn = []
    for sigma, at_sigma in table.groupby("sigma"):
        panels = {
            name: at_sigma[(at_sigma["split"] == split) & (at_sigma["metric"] == metric)]
            for name, (split, metric) in PANELS.items()
        }
        figure = figures.slingshots(panels, run_name(run), chance_of(run))
        title = f"{figures.SIGMA} = {sigma:g}"
        drawn.append(shown("slingshot.slingshots", figure, name=f"slingshots-{sigma:g}", sigma=title))
    return drawn


def sentences_on_slingshots(run: Run, lines: pd.DataFrame) -> list[str]:
    """For every loss and sigma: in how many models the loss rose again, and the change of accuracy after EARLY."""
    try:
        late = late_gain(run)
    except NotInRun:  # the run is shorter, or was not evaluated at that epoch
        late = None
    end, spiked = accuracy(run), spikes(run)
    settings = []
    for (line, sigma), rows in lines.groupby(["line", "sigma"], sort=False):
        members = rows.set_index("member").index
        settings.append(
            {
                "line": line,
                "sigma": sigma,
                "accuracy": end.reindex(members).mean(),
                "spiked": int((spiked.reindex(members).fillna(0) > 0).sum()),
                "models": len(members),
                "late_gain": None if late is None else interval(late.reindex(members).to_numpy()),
            }
        )
    return wording.sentences("lst-slingshot", settings=settings, early=EARLY, **counts(run))


def spikes(run: Run) -> pd.Series:
    """Number of times that the mean training loss of each member rose above SPIKE after it was below a tenth of that.

    Only losses at evaluations count, so shorter spikes are not seen.
    """
    rows = run.metrics[(run.metrics["split"] == "train") & (run.metrics["metric"] == "loss")]
    table = rows[rows["condition"] == "all"].pivot(index="step", columns="member", values="value").sort_index()
    counted = {}
    for member, losses in table.items():
        low, count = False, 0
        for loss in losses:
            if low and loss > SPIKE:
                low, count = False, count + 1
            low = low or loss < SPIKE / 10
        counted[member] = count
    return pd.Series(counted, name="spikes")
