"""The pages of lst-frozen and lst-slingshot."""

from __future__ import annotations

import pandas as pd

from placecode.analysis.stats import interval
from placecode.experiments.claims import NotInRun
from placecode.experiments.latin.training_claims import EARLY, late_gain
from placecode.experiments.reading import accuracy
from placecode.reports import figures
from placecode.reports.pages import knobs
from placecode.reports.pages.base import Shown
from placecode.reports.pages.knobs import in_words, lost
from placecode.reports.pages.latin_figures import chance_of, run_name
from placecode.runs.read import Run

PANELS = (("train", "loss"), ("train", "mean_logit"), ("ood", "accuracy"))
"""What is drawn of slingshots: split and metric."""


def of_frozen(run: Run, lines: pd.DataFrame) -> list[Shown]:
    final = lines.assign(value=lines["member"].map(accuracy(run)))
    shown = Shown(
        "accuracy",
        "Learned and frozen PEs over sigma",
        "OOD accuracy at the end of training. Where the lines of learned and frozen PEs lie on each other, learning "
        "the PE is not needed. Bars are 95% intervals over seeds, cut at 0 and 1.",
        figures.accuracy_by_setting(final, run_name(run), "the PE", chance_of(run)),
    )
    return [shown, *knobs.figures_of_knob(run, lines, "the PE")[1:]]


def figures_of_slingshots(run: Run, lines: pd.DataFrame) -> list[Shown]:
    """A figure for each sigma."""
    rows = run.metrics[run.metrics["condition"] == "all"]
    table = rows.merge(lines[["member", "line", "sigma", "seed"]], on="member")
    epochs = run.config["fields"]["epochs"] / max(int(run.metrics["step"].max()), 1)
    table = table.assign(epoch=table["step"] * epochs)
    shown = []
    for sigma, own in table.groupby("sigma"):
        panels = {
            name: own[(own["split"] == split) & (own["metric"] == metric)]
            for (split, metric), name in zip(PANELS, ("training loss", "mean logit", "OOD accuracy"), strict=True)
        }
        shown.append(
            Shown(
                f"slingshots-{sigma:g}",
                f"One log-softmax or two, {figures.SIGMA} = {sigma:g}",
                "Training loss and mean logit on training puzzles, and accuracy on held-out puzzles, over training. "
                "Thin lines are seeds, thick lines their means. With two log-softmax the loss comes to exactly 0 and "
                "stays there; with one, does the mean logit drift, and does the loss spike again?",
                figures.slingshots(panels, run_name(run), chance_of(run)),
            )
        )
    return shown


SPIKE = 1e-4
"""A mean training loss above this, after one below a tenth of it, counts as a spike."""


def sentences_on_slingshots(run: Run, lines: pd.DataFrame) -> list[str]:
    """For every loss and sigma: how often the loss rose again, and by how much accuracy changed after epoch 200."""
    sentences = []
    try:
        late = late_gain(run)
    except NotInRun:  # the run is shorter, or was not evaluated at that epoch
        late = None
    end, spiked = accuracy(run), spikes(run)
    for (line, sigma), own in lines.groupby(["line", "sigma"], sort=False):
        seeds = own.set_index("member").index
        several = int((spiked.reindex(seeds).fillna(0) > 0).sum())
        text = f"{str(line).capitalize()}, sigma {sigma:g}: OOD accuracy {end.reindex(seeds).mean():.3f}; the training "
        text += f"loss rose again in {several} of {len(seeds)} models"
        if late is not None:
            gain = interval(late.reindex(seeds).to_numpy())
            text += f"; accuracy after epoch {EARLY} changed by {in_words(gain)}"
        sentences.append(f"{text}.")
    return [*sentences, *lost(run)]


def spikes(run: Run) -> pd.Series:
    """How often the mean training loss of each member rose above SPIKE after it had been below a tenth of that, at the
    evaluations of the run; shorter spikes are not seen."""
    rows = run.metrics[(run.metrics["split"] == "train") & (run.metrics["metric"] == "loss")]
    table = rows[rows["condition"] == "all"].pivot(index="step", columns="member", values="value").sort_index()
    counts = {}
    for member, losses in table.items():
        low, count = False, 0
        for loss in losses:
            if low and loss > SPIKE:
                low, count = False, count + 1
            low = low or loss < SPIKE / 10
        counts[member] = count
    return pd.Series(counts, name="spikes")
