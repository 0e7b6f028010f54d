"""Write the report of a run as a self-contained HTML page, for screens, phones and print, in light and dark.

>>> write(run, "Small scale generalizes", ["At sigma 0.2 ..."], study.figures(run), command="placecode run lst-sigma")
PosixPath('runs/demo/report.html')

A study adds its own content as `Section`s, and interactive plots as a dial over sigma and a map of channels. The module
`together` compares several runs on one page. All text that comes from data is escaped.
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
from placecode.reports.html import evidence, packing, page, tables
from placecode.reports.html.tables import Table
from placecode.reports.pages.base import Shown
from placecode.reports.pages.dials import Channels, Dial, Verdict
from placecode.runs.read import Run

__all__ = ["Section", "Table", "badges", "render", "write"]

MAX_SHRUNK_ASPECT = 1.4
"""Maximum ratio of width to height of figures that are shrunk on a phone. Wider figures scroll horizontally."""
PIXELS_PER_INCH = 96
"""CSS pixels per inch of a figure."""


@dataclass(frozen=True)
class Section:
    """A section of the page: a heading, then figures (see `_drawn`) and tables."""

    title: str
    figures: Sequence[Mapping[str, Any]] = ()
    tables: Sequence[Table] = ()


def write(run: Run, title: str, lead: Sequence[str], figures: Sequence[Shown], command: str, **more: Any) -> Path:
    """Write the figures and the page of a run, report.html, to its folder; for the arguments see `render`."""
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
    figures: Sequence[Shown],
    command: str,
    sections: Sequence[Section] = (),
    metric: str = "accuracy",
    measures: Sequence[tuple[str, str]] | None = None,
    claims: Sequence[Mapping[str, Any]] = (),
    words: Sequence[str] = (),
    verdicts: Sequence[Verdict] = (),
    dial: Dial | None = None,
    channels: Channels | None = None,
    map_first: bool = False,
) -> str:
    """Render the page of a finished run. Parts that the run does not have are left out.

    `lead` are the main results in sentences, shown at the top; `words` are all of them, collapsed; `verdicts` have a
    badge. `command` repeats the run. `metric` is that of the tables of results, `measures` are the (analysis, target)
    of the table of analyses (by default all), `claims` the records of claims. `map_first` puts the map of channels
    before the dial.
    """
    findings = [
        Section("Results", tables=tables.results(run.summary, metric)),
        *sections,
        Section("Figures", [_drawn(number, item) for number, item in enumerate(figures, 1)]),
        Section(f"{tables.metric_title(metric)} by condition", tables=tables.conditions(run.summary, metric)),
        Section("The encodings before and after training", tables=tables.analyses(run, measures)),
    ]
    whole = {name: content for name, content in run.config.items() if name != "fields"}
    fields = tables.pairs("Every field of the study, with the value that was used.", run.config.get("fields", {}))
    record = [
        Section("What was run", tables=[tables.pairs("The run as a whole.", whole), fields]),
        Section("Where it ran", tables=[tables.pairs("Versions and machine.", run.environment)]),
        Section("Files of the run", tables=[tables.files(run.path)]),
    ]
    return page.filled(
        "page.html",
        title,
        dials=[] if dial is None else [packing.dial(dial)],
        atlas=None if channels is None else packing.atlas(channels),
        run=run,
        lead=lead[: page.MAX_LEAD_SENTENCES],
        words=words if list(words) != list(lead) else lead[page.MAX_LEAD_SENTENCES :],
        verdicts=list(verdicts),
        badges=badges(claims),
        dial=dial,
        channels=channels,
        map_first=map_first,
        channel_table=None if channels is None else tables.channels(channels),
        claims=evidence.of_claims(claims),
        claims_table=tables.claims(claims, run.config["scale"]),
        command=command,
        findings=[section for section in findings if section.figures or section.tables],
        record=record,
    )


def badges(claims: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Count the verdicts on the claims that can be tested with a run, by label, the paper's claims first.

    A badge is its kind and its text; directions come before numbers.
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


def _drawn(number: int, item: Shown) -> dict[str, Any]:
    """Prepare a figure for the template: as SVG, whose ids are unique by the number of the figure."""
    width, height = item.figure.get_size_inches()
    return {
        "number": number,
        "title": item.title,
        "caption": item.caption,
        "natural": round(PIXELS_PER_INCH * width),
        "across": bool(width > MAX_SHRUNK_ASPECT * height),
        "drawing": svg_text(item.figure, f"figure-{number}", f"{item.title}. {item.caption}"),
    }
