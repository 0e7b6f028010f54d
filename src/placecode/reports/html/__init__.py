"""Write the report of a run as one self-contained HTML file, report.html, for screens, phones and print.

>>> write(run, "Small scale generalizes", ["At sigma 0.2 ..."], figures, command="placecode run lst-sigma")
PosixPath('runs/demo/report.html')

An experiment can add `Section`s and two interactive parts: the sigma slider, which shows the results of one sigma at a
time, and a searchable map of the channels. The module `comparison` compares several runs on one page. All text that
comes from data is escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placecode.experiments.claims import DIRECTIONS, LABELS
from placecode.files import write_text
from placecode.reports.figures import save, svg_text
from placecode.reports.html import claim_list, packing, page, tables
from placecode.reports.html.tables import HtmlTable
from placecode.reports.pages.base import ReportFigure
from placecode.reports.pages.interactive import ChannelMap, SigmaSlider, Verdict
from placecode.runs.read import Run

__all__ = ["HtmlTable", "Section", "badges", "render", "write"]

MAX_SHRUNK_ASPECT = 1.4
"""Figures up to this ratio of width to height are shrunk to the width of a phone. Wider figures scroll sideways."""
PIXELS_PER_INCH = 96
"""CSS pixels per inch of a figure."""


@dataclass(frozen=True)
class Section:
    """A section of the page: a heading, then figures (as from `_drawn`), then tables."""

    title: str
    figures: Sequence[Mapping[str, Any]] = ()
    tables: Sequence[HtmlTable] = ()


def write(
    run: Run, title: str, lead: Sequence[str], figures: Sequence[ReportFigure], command: str, **more: Any
) -> Path:
    """Write the figures (figures/*.png) and the page (report.html) of a run into its folder; return the page's path.

    The arguments are those of `render`.
    """
    folder = run.path / "figures"
    folder.mkdir(exist_ok=True)
    for item in figures:
        save(item.figure, folder / f"{item.name}.png")
    path = run.path / "report.html"
    write_text(path, render(run, title, lead, figures, command, **more))
    return path


def render(
    run: Run,
    title: str,
    lead: Sequence[str],
    figures: Sequence[ReportFigure],
    command: str,
    sections: Sequence[Section] = (),
    metric: str = "accuracy",
    measures: Sequence[tuple[str, str]] | None = None,
    claims: Sequence[Mapping[str, Any]] = (),
    words: Sequence[str] = (),
    verdicts: Sequence[Verdict] = (),
    slider: SigmaSlider | None = None,
    channels: ChannelMap | None = None,
    map_first: bool = False,
) -> str:
    """Return the HTML page of a finished run. Parts for which the run has no content are left out.

    `lead` are the main results and `words` all results, one sentence each; those not at the top of the page are in a
    collapsed part. `command` repeats the run in a shell. `sections` follow the tables of results, which show `metric`.
    `measures` are the pairs (analysis, target) to show of the analysis table, by default all. `claims` are those of the
    experiment with the verdicts of this run, as from `Finding.record`. `verdicts` answer the main questions, in a
    sentence with a badge such as "found". `slider` is the content of the sigma slider and `channels` that of the map of
    channels, which comes first if `map_first` is true.
    """
    findings = [
        Section("Results", tables=tables.results(run.summary, metric)),
        *sections,
        Section("Figures", [_drawn(number, item) for number, item in enumerate(figures, 1)]),
        Section(f"{tables.metric_title(metric)} by condition", tables=tables.conditions(run.summary, metric)),
        Section("The encodings before and after training", tables=tables.analyses(run, measures)),
    ]
    of_run = {name: content for name, content in run.config.items() if name != "fields"}
    fields = tables.pairs("Every field of the experiment, with the value that was used.", run.config.get("fields", {}))
    record = [
        Section("What was run", tables=[tables.pairs("The run as a whole.", of_run), fields]),
        Section("Where it ran", tables=[tables.pairs("Versions and machine.", run.environment)]),
        Section("Files of the run", tables=[tables.files(run.path)]),
    ]
    return page.filled(
        "page.html",
        title,
        sliders=[] if slider is None else [packing.slider(slider)],
        channel_map=None if channels is None else packing.channel_map(channels),
        run=run,
        lead=lead[: page.MAX_LEAD_SENTENCES],
        words=words if list(words) != list(lead) else lead[page.MAX_LEAD_SENTENCES :],
        verdicts=list(verdicts),
        badges=badges(claims),
        slider=slider,
        channels=channels,
        map_first=map_first,
        channel_table=None if channels is None else tables.channels(channels),
        claims=claim_list.claim_entries(claims),
        claims_table=tables.claims(claims, run.config["scale"]),
        command=command,
        findings=[section for section in findings if section.figures or section.tables],
        record=record,
    )


def badges(claims: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Count the verdicts on the claims that the run can test; return (label, badges) for each label with such claims.

    A badge is (kind, text), for example ("holds", "3 reproduced"), where the kind chooses its colour. Badges of
    directions come before those of numbers.
    """
    by_label = []
    for label in LABELS:
        labelled = [claim for claim in claims if claim["effect"] is not None and claim["label"] == label]
        directions = Counter((claim["direction"], claim["direction_text"]) for claim in labelled)
        numbers = Counter((claim["number"], f"number: {claim['number']}") for claim in labelled if claim["number"])
        ordered = sorted(directions.items(), key=lambda item: DIRECTIONS.index(item[0][0])) + sorted(numbers.items())
        if labelled:
            by_label.append((label, [(kind, f"{count} {text}") for (kind, text), count in ordered]))
    return by_label


def _drawn(number: int, item: ReportFigure) -> dict[str, Any]:
    """Return what the template needs to show a figure: its number, title, caption, size, and the figure as SVG text.

    "natural" is its width in pixels; "across" is whether it scrolls sideways on a phone.
    """
    width, height = item.figure.get_size_inches()
    return {
        "number": number,
        "title": item.title,
        "caption": item.caption,
        "natural": round(PIXELS_PER_INCH * width),
        "across": bool(width > MAX_SHRUNK_ASPECT * height),
        "drawing": svg_text(item.figure, f"figure-{number}", f"{item.title}. {item.caption}"),
    }
