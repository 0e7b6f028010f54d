"""The figures of lst-frozen and lst-slingshot, each with what to look for in it."""

from __future__ import annotations

import pandas as pd

from placecode.experiments.reading import accuracy
from placecode.reports import figures
from placecode.reports.pages import knob_figures
from placecode.reports.pages.base import Shown
from placecode.reports.pages.latin_figures import chance_of, run_name
from placecode.runs.read import Run

PANELS = (("train", "loss"), ("train", "mean_logit"), ("validation", "accuracy"))
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
    return [shown, *knob_figures.of_knob(run, lines, "the PE")[1:]]


def of_slingshots(run: Run, lines: pd.DataFrame) -> list[Shown]:
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
