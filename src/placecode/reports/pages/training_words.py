"""What lst-slingshot shows, in plain sentences that are true whatever a run shows."""

from __future__ import annotations

import pandas as pd

from placecode.analysis.stats import interval
from placecode.experiments.claims import NotInRun
from placecode.experiments.latin.training_claims import EARLY, late_gain
from placecode.experiments.reading import accuracy
from placecode.reports.pages.knob_words import in_words, lost
from placecode.runs.read import Run

SPIKE = 1e-4
"""A mean training loss above this, after one below a tenth of it, counts as a spike."""


def of_slingshots(run: Run, lines: pd.DataFrame) -> list[str]:
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
