"""Runs as one self-contained HTML page: no network, no other files, light and dark, on a phone and in print.

>>> write(run, "Small scale generalizes", ["At sigma 0.2 ..."], study.figures(run), command="placecode run lst-sigma")
PosixPath('runs/demo/report.html')

A study adds what only it has to say as `Section`s, and what moves as a dial and a map of channels. `together` puts
several runs side by side. Everything that comes from data is escaped.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placecode.experiments.claims import DIRECTIONS, LABELS
from placecode.files import write_text
from placecode.reports.figures import save, svg_text
from placecode.reports.html import evidence, packing, page, tables
from placecode.reports.html.contracts import Atlas, Illustration, Judgement, RunFolder, Turning
from placecode.reports.html.tables import Table

__all__ = ["Illustration", "RunFolder", "Section", "Table", "badges", "render", "write"]

MOST_SENTENCES = 5
"""On top of the page; what else there is to say is folded."""
SQUARISH = 1.4
"""Width to height of a figure up to which it shrinks onto a phone; one that is broader is moved sideways there."""
DOTS = 96
"""Of a screen, to an inch of a figure."""


@dataclass(frozen=True)
class Section:
    """A part of the page that a study adds: paragraphs, then figures, then tables."""

    title: str
    text: Sequence[str] = ()
    figures: Sequence[Illustration] = ()
    tables: Sequence[Table] = ()


def write(
    run: RunFolder, title: str, lead: Sequence[str], figures: Sequence[Illustration], command: str, **more: Any
) -> Path:
    """Save the figures as images in the run folder, and beside them the page of `render`; returns the page's path."""
    folder = run.path / "figures"
    folder.mkdir(exist_ok=True)
    sections: Sequence[Section] = more.get("sections", ())
    for shown in [*figures, *(shown for section in sections for shown in section.figures)]:
        save(shown.figure, folder / f"{shown.name}.png")
    path = run.path / "report.html"
    write_text(path, render(run, title, lead, figures, command, **more))
    return path


def render(
    run: RunFolder,
    title: str,
    lead: Sequence[str],
    figures: Sequence[Illustration],
    command: str,
    sections: Sequence[Section] = (),
    metric: str = "accuracy",
    measures: Sequence[tuple[str, str]] | None = None,
    claims: Sequence[Mapping[str, Any]] = (),
    words: Sequence[str] = (),
    verdicts: Sequence[Judgement] = (),
    dial: Turning | None = None,
    channels: Atlas | None = None,
    map_first: bool = False,
) -> str:
    """The page as text: findings, what moves, tables, claims, figures, and all that it takes to run it again.

    `lead` are the plain-language sentences on top, `words` all of them, folded below where they say more; `command` is
    the exact line that made the run, and `metric` the one that the tables are about. `measures` are the (analysis,
    target) to show in the table of analyses, all unless given; `claims` are records of what the run says about each of
    them. `map_first` puts the map of channels before the dial. Parts of the run that are not there (claims, conditions,
    analyses, a dial, channels) are left out.
    """
    findings = [
        Section("Results", tables=tables.results(run.summary, metric)),
        *sections,
        Section("Figures", figures=figures),
        Section(f"{tables.called(metric)} by condition", tables=tables.conditions(run.summary, metric)),
        Section("The encodings before and after training", tables=tables.analyses(run, measures)),
    ]
    record = [
        Section("What was run", tables=[tables.facts(run.config), tables.fields(run.config)]),
        Section("Where it ran", tables=[tables.environment(run.environment)]),
        Section("Files of the run", tables=[tables.files(run.path)]),
    ]
    numbers = itertools.count(1)  # figures are numbered through the whole page
    return page.filled(
        "page.html",
        title,
        dials=[] if dial is None else [packing.dial(dial)],
        atlas=None if channels is None else packing.atlas(channels),
        run=run,
        lead=lead[:MOST_SENTENCES],
        words=words if list(words) != list(lead) else lead[MOST_SENTENCES:],
        verdicts=list(verdicts),
        badges=badges(claims),
        dial=dial,
        channels=channels,
        map_first=map_first,
        channel_table=None if channels is None else tables.channels(channels),
        claims=evidence.of_claims(claims),
        claims_table=tables.claims(claims, run.config["scale"]),
        command=command,
        findings=[
            _drawn(section, numbers) for section in findings if section.text or section.figures or section.tables
        ],
        record=[_drawn(section, numbers) for section in record],
    )


def badges(claims: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[tuple[str, str]]]]:
    """How many claims have which verdict, by label, of those that a run can be asked about.

    Returns
    -------
    list of (label, badges)
        The paper's claims first. A badge is its kind and its text; those on directions come before those on numbers.
    """
    asked = [found for found in claims if found["effect"] is not None]
    counted = []
    for label in LABELS:
        own = [found for found in asked if found["label"] == label]
        directions = Counter((found["direction"], found["direction_text"]) for found in own)
        numbers = Counter((found["number"], f"number: {found['number']}") for found in own if found["number"])
        ordered = sorted(directions.items(), key=lambda item: DIRECTIONS.index(item[0][0])) + sorted(numbers.items())
        if own:
            counted.append((label, [(kind, f"{count} {text}") for (kind, text), count in ordered]))
    return counted


def _drawn(section: Section, numbers: Iterator[int]) -> dict[str, Any]:
    """The section as the template wants it: its figures drawn, with numbers that also make their ids unique."""
    figures = []
    for shown in section.figures:
        number = next(numbers)
        drawing = svg_text(shown.figure, prefix=f"figure-{number}", label=f"{shown.title}. {shown.caption}")
        wide, high = shown.figure.get_size_inches()
        shape = {"natural": round(DOTS * wide), "across": bool(wide > SQUARISH * high)}
        told = {"number": number, "title": shown.title, "caption": shown.caption}
        figures.append({**told, **shape, "drawing": drawing})
    return {"title": section.title, "text": section.text, "figures": figures, "tables": section.tables}
