"""The contract of a page: what the report of one experiment shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from matplotlib.figure import Figure

from placecode.experiments.base import Study
from placecode.reports import wording
from placecode.reports.pages import dials
from placecode.reports.pages.dials import Channels, Dial, Listing, Verdict
from placecode.runs.read import Run


@dataclass(frozen=True)
class Shown:
    """A figure with its name (of the file), its title, and a caption that says what to look for."""

    name: str
    title: str
    caption: str
    figure: Figure


def shown(key: str, figure: Figure, name: str = "", **values: Any) -> Shown:
    """A figure with the title and the caption of an entry of captions.toml, and the name of that entry."""
    title, caption = wording.caption(key, **values)
    return Shown(name or key.partition(".")[2], title, caption, figure)


def run_name(run: Run) -> str:
    """Name of a run at the bottom of a figure: the study and its scale, after the folder if that is named otherwise."""
    folder = run.path.resolve().name
    kind = f"{run.study}, {run.config['scale']} scale"
    return kind if folder == run.study else f"{folder} ({kind})"


def counts(run: Run) -> dict[str, int]:
    """How many members diverged, and the total."""
    return {"diverged": int((run.members["state"] == "diverged").sum()), "total": len(run.members)}


class Page:
    """What the report of a finished run shows. Subclasses add what is special to an experiment.

    Parameters
    ----------
    study : Study
        The experiment, with the settings of the run.
    run : Run
        The finished run.
    """

    measures: ClassVar[Sequence[tuple[str, str]] | None] = None
    """The (analysis, target) pairs in the report's table of measures; all if None."""

    map_first: ClassVar[bool] = False
    """Whether the map of channels comes before the dial."""

    def __init__(self, study: Study, run: Run) -> None:
        self.study, self.run = study, run

    def figures(self) -> list[Shown]:
        """All figures, in the order of the report."""
        raise NotImplementedError

    def words(self) -> list[str]:
        """The findings in plain sentences, read from the run."""
        raise NotImplementedError

    def summary(self) -> list[str]:
        """The few sentences at the top of the report; the rest of `words` is folded below them."""
        return self.words()

    def verdicts(self) -> list[Verdict]:
        """Findings with a badge at the top of the report, besides those on claims."""
        return []

    def listings(self) -> list[Listing]:
        """Further tables."""
        return []

    def dial(self) -> Dial | None:
        """What changes with sigma; None if the run has fewer than two sigmas of learned PEs."""
        return dials.dial_of(self.run, self.study.metric)

    def channels(self) -> Channels | None:
        """The searchable map of channels; None if tokens have no names, or no PE was stored."""
        return dials.channels_of(self.run)
