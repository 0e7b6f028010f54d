"""The base class `Page`: what the report of a run shows, as figures, sentences, tables, a sigma slider and a map.

The other modules of this folder have subclasses for the experiments, which `registry.page_of` finds. `reports/html`
turns a page into one HTML file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from matplotlib.figure import Figure

from placecode.experiments.base import Experiment
from placecode.experiments.claims import Finding
from placecode.reports import wording
from placecode.reports.pages import interactive
from placecode.reports.pages.interactive import ChannelMap, Listing, SigmaSlider, Verdict
from placecode.runs.read import Run

MAX_LEAD_SENTENCES = 5
"""Maximum number of sentences at the top of a report. The others are in a collapsed part below them."""


@dataclass(frozen=True)
class ReportFigure:
    """A figure with its file name (without a suffix), its title, and a caption that says what to look for."""

    name: str
    title: str
    caption: str
    figure: Figure


def report_figure(key: str, figure: Figure, name: str = "", **values: Any) -> ReportFigure:
    """Return a figure with the title and caption of the entry `key` of captions.toml, such as "latin.accuracy".

    `values` fill in the placeholders of the entry. The file name is `name`, or the part of `key` after the dot.
    """
    title, caption = wording.caption(key, **values)
    return ReportFigure(name or key.partition(".")[2], title, caption, figure)


def run_name(run: Run) -> str:
    """Return the name of a run for the bottom of a figure, such as "lst-sigma, quick scale". If its folder has another
    name than the experiment, that name comes first: "first-try (lst-sigma, quick scale)"."""
    folder = run.path.resolve().name
    experiment_and_scale = f"{run.experiment}, {run.config['scale']} scale"
    return experiment_and_scale if folder == run.experiment else f"{folder} ({experiment_and_scale})"


def counts(run: Run) -> dict[str, int]:
    """Return the number of members (models) that diverged ("diverged"), and of all members ("total")."""
    return {"diverged": int((run.members["state"] == "diverged").sum()), "total": len(run.members)}


class Page:
    """What the report of a finished run shows. Subclasses add what is special to an experiment.

    Parameters
    ----------
    experiment : Experiment
        The experiment, with the settings of the run.
    run : Run
        The finished run.
    """

    measures: ClassVar[Sequence[tuple[str, str]] | None] = None
    """The (analysis, target) pairs that the report's table of measures lists; None means all of them. An analysis is a
    measure, and its target is what the PE is compared with, such as "2d-fixed"."""

    map_first: ClassVar[bool] = False
    """Whether the report shows the map of channels before the sigma slider."""

    def __init__(self, experiment: Experiment, run: Run) -> None:
        self.experiment, self.run = experiment, run

    @property
    def title(self) -> str:
        """The title of the report: what the experiment is about."""
        return wording.capital(self.experiment.about)

    @property
    def metric(self) -> str:
        """The metric that measures success in the experiment, such as "accuracy"."""
        return self.experiment.metric

    @cached_property
    def findings(self) -> list[Finding]:
        """The verdicts of the run on the claims of the experiment."""
        return self.experiment.findings(self.run)

    def figures(self) -> list[ReportFigure]:
        """Return all figures, in the order of the report."""
        raise NotImplementedError

    def sentences(self) -> list[str]:
        """Return all results of the run as plain sentences."""
        raise NotImplementedError

    def lead(self) -> list[str]:
        """Return the sentences for the top of the report, which shows at most MAX_LEAD_SENTENCES; by default all."""
        return self.sentences()

    def verdicts(self) -> list[Verdict]:
        """Return answers to main questions (is there structure?) for the top of the report; by default none."""
        return []

    def listings(self) -> list[Listing]:
        """Return further tables of the report; by default none."""
        return []

    def slider(self) -> SigmaSlider | None:
        """Return the contents of the sigma slider, or None if the run has fewer than two sigmas of learned PEs."""
        return interactive.sigma_slider(self.run, self.metric)

    def channel_map(self) -> ChannelMap | None:
        """Return the searchable map of channels, or None if the tokens have no names or no PE was stored."""
        return interactive.channel_map(self.run)
