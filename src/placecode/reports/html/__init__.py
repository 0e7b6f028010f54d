"""Write the report of a run as one self-contained HTML file, report.html, for screens, phones and print.

>>> write(page_of(experiment, run), command="placecode run lst-sigma")
PosixPath('runs/demo/report.html')

The module `comparison` compares several runs on one page. All text that comes from data is escaped.
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
from placecode.reports.html import claim_list, packing, tables, templates
from placecode.reports.html.tables import HtmlTable
from placecode.reports.pages.base import MAX_LEAD_SENTENCES, Page, ReportFigure

__all__ = ["badges", "render", "write"]

MAX_SHRUNK_ASPECT = 1.4
"""Figures up to this ratio of width to height are shrunk to the width of a phone. Wider figures scroll sideways."""
PIXELS_PER_INCH = 96
"""CSS pixels per inch of a figure."""


@dataclass(frozen=True)
class Section:
    """A section of the HTML page: a heading, then figures (as from `_figure_entry`), then tables."""

    title: str
    figures: Sequence[Mapping[str, Any]] = ()
    tables: Sequence[HtmlTable] = ()


def write(page: Page, command: str) -> Path:
    """Write the figures (figures/*.png) and report.html into the folder of a run; return the path of report.html.

    `page` is what the report shows, and `command` the shell command that repeats the run.
    """
    figures = page.figures()  # reads the tables of the run: if one is damaged, nothing is written
    folder = page.run.path / "figures"
    folder.mkdir(exist_ok=True)
    for item in figures:
        save(item.figure, folder / f"{item.name}.png")
    path = page.run.path / "report.html"
    write_text(path, render(page, command, figures))
    return path


def render(page: Page, command: str, figures: Sequence[ReportFigure]) -> str:
    """Return the text of report.html. Sections for which the page has no content are left out.

    `figures` are those that `page.figures()` returned. `page` and `command` are as in `write`.
    """
    run, metric = page.run, page.metric
    slider, channel_map = page.slider(), page.channel_map()
    claims = [finding.record() for finding in page.findings]
    sentences, lead = page.sentences(), page.lead()[:MAX_LEAD_SENTENCES]
    findings = [
        Section("Results", tables=tables.results(run.summary, metric)),
        *(Section(listing.title, tables=[tables.listing(listing)]) for listing in page.listings()),
        Section("Figures", [_figure_entry(number, item) for number, item in enumerate(figures, 1)]),
        Section(f"{tables.metric_title(metric)} by condition", tables=tables.conditions(run.summary, metric)),
        Section("The encodings before and after training", tables=tables.analyses(run, page.measures)),
    ]
    of_run = {name: content for name, content in run.config.items() if name != "fields"}
    fields = tables.pairs("Every field of the experiment, with the value that was used.", run.config.get("fields", {}))
    record = [
        Section("What was run", tables=[tables.pairs("The run as a whole.", of_run), fields]),
        Section("Where it ran", tables=[tables.pairs("Versions and machine.", run.environment)]),
        Section("Files of the run", tables=[tables.files(run.path)]),
    ]
    return templates.render_template(
        "page.html",
        page.title,
        sliders=[] if slider is None else [packing.slider(slider)],
        channel_map_data=None if channel_map is None else packing.channel_map(channel_map),
        run=run,
        lead=lead,
        folded=sentences[len(lead) :] if lead == sentences[: len(lead)] else sentences,
        verdicts=page.verdicts(),
        badges=badges(claims),
        slider=slider,
        channel_map=channel_map,
        map_first=page.map_first,
        channel_table=None if channel_map is None else tables.channels(channel_map),
        claims=claim_list.claim_entries(claims),
        claims_table=tables.claims(claims, run.config["scale"]),
        command=command,
        findings=[section for section in findings if section.figures or section.tables],
        record=record,
    )


def badges(claims: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Count equal verdicts on the claims that the run can test; return (label, badges) for each label of such claims.

    `claims` are records from `Finding.record`. The label of a claim says who makes it, such as "paper". A badge is
    (kind, text), for example ("holds", "3 reproduced"). The kind chooses the colour. Verdicts on the direction of
    effects come first, then verdicts on published numbers.
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


def _figure_entry(number: int, item: ReportFigure) -> dict[str, Any]:
    """Return what the template needs to show a figure: number, title, caption, and the figure itself as SVG text.

    "width" is in pixels; "scrolls" is whether the figure scrolls sideways on a phone.
    """
    width, height = item.figure.get_size_inches()
    return {
        "number": number,
        "title": item.title,
        "caption": item.caption,
        "width": round(PIXELS_PER_INCH * width),
        "scrolls": bool(width > MAX_SHRUNK_ASPECT * height),
        "svg": svg_text(item.figure, f"figure-{number}", f"{item.title}. {item.caption}"),
    }
