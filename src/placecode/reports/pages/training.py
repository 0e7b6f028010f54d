"""Figures and sentences of lst-frozen (learned and frozen PEs) and lst-slingshot (training losses that rise again).

The sentences are in templates/lst-slingshot.j2. `lines` is the table of members that `Study.lines` makes.
"""

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
"""Panels of the figure of slingshots, each with its split and its metric."""
SPIKE = 1e-4
"""The training loss has a spike when it rises above this after it was below a tenth of this."""


def of_frozen(run: Run, lines: pd.DataFrame) -> list[Shown]:
    """Draw the accuracy of learned and frozen PEs against sigma, and learning curves."""
    final = lines.assign(value=lines["member"].map(accuracy(run)))
    figure = figures.accuracy_by_setting(final, run_name(run), "the PE", chance_of(run))
    return [shown("frozen.accuracy", figure), knobs.curves_figure(run, lines)]


def figures_of_slingshots(run: Run, lines: pd.DataFrame) -> list[Shown]:
    """Draw training loss, mean logit and OOD accuracy by epoch, with a figure for each sigma."""
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
    """Return a sentence for every loss and sigma: how many models had a spike, and how accuracy changed after EARLY."""
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
    """Return the number of spikes of each member: how often its mean training loss rose above SPIKE.

    A rise counts only after the loss was below a tenth of SPIKE. Only losses at evaluations are known, so spikes
    between two evaluations are missed.
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
