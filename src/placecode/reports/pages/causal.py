"""The page of lst-causal, which tests whether the PE is a cause of generalization or a by-product.

The experiment trains models with a manipulated PE, and exchanges the PEs of trained models. A donor is a trained model
whose PE is copied into another model. A master is a donor that is trained by SGD from a tiny start, so that its PE
learns the arrangement of the cells. The size of a PE is its root mean square.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence

import pandas as pd

from placecode.experiments.claims import FAILS, UNDECIDED, Finding, NotInRun, direction_text
from placecode.experiments.latin import interventions
from placecode.experiments.latin.causal_claims import CONTROL
from placecode.experiments.latin.causal_effects import LEARNED
from placecode.experiments.latin.effects import LARGE, SMALL
from placecode.experiments.reading import accuracy, analysis_values, finished_members
from placecode.reports import figures, wording
from placecode.reports.pages.base import ReportFigure, counts, report_figure, run_name
from placecode.reports.pages.knobs import KnobPage, knob_figures, settling
from placecode.reports.pages.latin import chance_of
from placecode.runs.read import Run

LINES = (
    "random, frozen",
    "learned",
    "donor's, frozen",
    "rows and columns, frozen",
    "true, frozen",
    "master's, frozen",
)
"""Kinds of PE (labels of members) that are lines in the left panel of the figure `causes`."""
ROWS = {
    "size-spoils-a-learned-pe": ("size", "a learned PE (of 0.2): small minus large"),
    "size-mends-a-learned-pe": ("size", "a learned PE (of 2.0): small minus large"),
    "size-spoils-what-masters-learned": ("size", "a master's PE: small minus large"),
    "sgd-minds-size": ("size", "a PE learned by SGD: small minus large"),
    "training-the-pe-is-not-needed": ("arrangement", "learned minus frozen at random"),
    "transplant-helps": ("arrangement", "a donor's learned PE minus its untrained PE"),
    "arrangement-of-the-transplant-helps": ("arrangement", "a donor's PE minus the same with cells shuffled"),
    "what-masters-learned-helps": ("arrangement", "a master's PE minus the same with cells shuffled"),
    "what-masters-learned-beats-random": ("arrangement", "a master's PE minus random"),
    "sgd-needs-a-learned-pe": ("arrangement", "by SGD: learned minus frozen at random"),
    "rows-and-columns-help": ("arrangement", "rows and columns minus random"),
    "2d-fixed-helps": ("arrangement", "2d-fixed minus random"),
    "centring-helps-2d-fixed": ("arrangement", "centred 2d-fixed minus 2d-fixed"),
    "centred-2d-fixed-beats-random": ("arrangement", "centred 2d-fixed minus random"),
    "starting-at-the-truth-helps": ("arrangement", "learned from 2d-fixed minus from random"),
    "rows-and-columns-rescue-a-large-size": ("arrangement", "rows and columns minus random, at size 2.0"),
    "control-freezing": ("must do nothing", "frozen by a step size of zero"),
    "control-starting-at-the-truth": ("must do nothing", "2d-fixed given as a start"),
    "control-transplant": ("must do nothing", "own untrained PE transplanted"),
    "control-transplant-of-another": ("must do nothing", "another's untrained PE transplanted"),
    "control-rescaling-a-donor": ("must do nothing", "rescaled to its own size"),
}
"""Effects of manipulating the PE before training: group and name in the middle panel of `causes`, by id of a claim."""
CONTROLS = (interventions.ITSELF, interventions.times(1.0), interventions.WITH_CELLS)
"""Names of exchanges of the PE that must not change the accuracy."""
EXCHANGES = (
    interventions.NOTHING,
    interventions.MEAN,
    interventions.SHUFFLED,
    interventions.TRUE,
    interventions.START,
    interventions.OTHER_SEED,
    interventions.OTHER_SIGMA,
    interventions.OTHER_SIGMA_SIZED,
    *(interventions.times(factor) for factor in interventions.FACTORS if factor != 1),
    *CONTROLS,
)
"""Exchanges of the PE after training, in the order of the figure."""
SIZE = [id for id, (group, _) in ROWS.items() if group == "size"]
"""Ids of the claims on the size of the PE that the sentences report."""
ARRANGEMENT = (
    "transplant-helps",
    "arrangement-of-the-transplant-helps",
    "masters-learned",
    "what-masters-learned-helps",
    "rows-and-columns-help",
    "2d-fixed-helps",
    "centring-helps-2d-fixed",
    "starting-at-the-truth-helps",
)
"""Ids of the claims on the arrangement of the PE that the sentences report."""
PANELS = {
    "own": ("learned", "random, frozen"),
    "the truth": (
        "true, frozen",
        "true, learned on",
        "rows and columns, frozen",
        "rows and columns, learned on",
        "true centred, frozen",
    ),
    "a donor's, rescaled": ("donor's of 0.2 rescaled, frozen", "donor's of 2.0 rescaled, frozen"),
    "a master's, rescaled": ("master's, frozen", "master's shuffled, frozen"),
    "by SGD": ("learned, by SGD", "random, frozen, by SGD"),
}
"""The lines of each panel of accuracy against sigma. Lines that are not listed are in the panel "a donor's"."""


class CausalPage(KnobPage):
    """The page of lst-causal."""

    def figures(self) -> list[ReportFigure]:
        """Draw the effects of all interventions, then accuracy and learning curves of all kinds of PE by sigma."""
        run, final = self.run, self.final
        drawn, effects = final[final["line"].isin(LINES)], _effects(self.findings)
        causes = figures.causes(drawn, LINES, effects, _losses(run), CONTROLS, run_name(run), chance_of(run))
        panel_of = {line: panel for panel, kinds in PANELS.items() for line in kinds}
        in_panels = final.assign(panel=final["line"].map(panel_of).fillna("a donor's"))
        return [report_figure("causal.causes", causes), *knob_figures(run, in_panels, "what the PE is")]

    def sentences(self) -> list[str]:
        """Return sentences on the controls (manipulations of the PE that must not change accuracy), on the claims about
        the size and the arrangement of the PE, and on kinds of members whose accuracy was still changing at the end of
        training."""
        by_claim = {finding.claim.id: finding for finding in self.findings}
        controls = [finding for finding in self.findings if finding.claim.remark == CONTROL]
        return wording.sentences(
            "lst-causal",
            controls=len(controls),
            failed=[finding.claim.id for finding in controls if finding.direction == FAILS],
            undecided=[finding.claim.id for finding in controls if finding.direction == UNDECIDED],
            on_size=[by_claim[id] for id in SIZE],
            on_arrangement=[by_claim[id] for id in ARRANGEMENT],
            direction_text=direction_text,
            **settling(self.run, self.lines),
            **counts(self.run),
        )


def _effects(findings: Sequence[Finding]) -> pd.DataFrame:
    """Return the table `effects` of `figures.causes` for ROWS. Effects that the run cannot measure are left out."""
    by_claim = {finding.claim.id: finding for finding in findings}
    rows = [
        (group, name, *by_claim[id].effect, by_claim[id].claim.remark == CONTROL)
        for id, (group, name) in ROWS.items()
        if math.isfinite(by_claim[id].effect.mean)  # NaN: not in this run
    ]
    return pd.DataFrame(rows, columns=["group", "name", "mean", "low", "high", "control"])


def _losses(run: Run) -> pd.DataFrame:
    """Return a table (sigma, seed, name, value): the accuracy that a model with a learned PE loses when its PE is
    exchanged, by name of the exchange."""
    members = finished_members(run)
    members = members[(members["label"] == LEARNED) & members["sigma"].isin([SMALL, LARGE])]
    before, rows = accuracy(run), []
    for name in EXCHANGES:
        with contextlib.suppress(NotInRun):  # a part of the experiment may lack it
            values = before - analysis_values(run, interventions.ACCURACY_WITH, name)
            table = members.assign(name=name, value=members["member"].map(values))
            rows.append(table[["sigma", "seed", "name", "value"]].dropna())
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=["sigma", "seed", "name", "value"])
