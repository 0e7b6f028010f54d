"""A run as one self-contained HTML page: no network, no other files, light and dark, on a phone and in print.

>>> write(run, "Small scale generalizes", ["At sigma 0.2 ..."], study.figures(run), command="placecode run lst-sigma")
PosixPath('runs/demo/report.html')

A study adds what only it has to say as `Section`s. Everything that comes from data is escaped.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import jinja2
import pandas as pd
from matplotlib.figure import Figure

from placecode.figures import save, svg_text
from placecode.files import write_text
from placecode.report import tables
from placecode.report.tables import Table
from placecode.version import VERSION

__all__ = ["Illustration", "RunFolder", "Section", "Table", "render", "write"]


class RunFolder(Protocol):
    """What the page reads of a run; the columns and keys are those of the run folder's files."""

    @property
    def path(self) -> Path: ...
    @property
    def config(self) -> Mapping[str, Any]: ...
    @property
    def environment(self) -> Mapping[str, Any]: ...
    @property
    def members(self) -> pd.DataFrame: ...
    @property
    def analysis(self) -> pd.DataFrame: ...
    @property
    def summary(self) -> Sequence[Mapping[str, Any]]: ...


class Illustration(Protocol):
    """A figure, the name of its file, its title, and a caption that says what to look at."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def caption(self) -> str: ...
    @property
    def figure(self) -> Figure: ...


@dataclass(frozen=True)
class Section:
    """A part of the page that a study adds: paragraphs, then figures, then tables."""

    title: str
    text: Sequence[str] = ()
    figures: Sequence[Illustration] = ()
    tables: Sequence[Table] = ()


def write(
    run: RunFolder,
    title: str,
    lead: Sequence[str],
    figures: Sequence[Illustration],
    command: str,
    sections: Sequence[Section] = (),
    metric: str = "accuracy",
    measures: Sequence[tuple[str, str]] | None = None,
    claims: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """Save the figures as images in the run folder, and beside them the page of `render`; returns the page's path."""
    folder = run.path / "figures"
    folder.mkdir(exist_ok=True)
    for shown in [*figures, *(shown for section in sections for shown in section.figures)]:
        save(shown.figure, folder / f"{shown.name}.png")
    page = run.path / "report.html"
    write_text(page, render(run, title, lead, figures, command, sections, metric, measures, claims))
    return page


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
) -> str:
    """The page as text: summary, main table, figures, the study's own sections, and all that it takes to run it again.

    `lead` are the plain-language sentences on top, `command` is the exact line that made the run, and `metric` the one
    that the tables are about. `measures` are the (analysis, target) to show in the table of analyses, all unless given;
    `claims` are records of what the run says about each of them. Parts of the run that are not there (claims,
    conditions, analyses) are left out.
    """
    findings = [
        Section("Results", tables=tables.results(run.summary, metric)),
        Section("Claims", tables=tables.claims(claims, run.config["scale"])),
        Section("Figures", figures=figures),
        Section(f"{tables.called(metric)} by condition", tables=tables.conditions(run.summary, metric)),
        Section("The encodings and the true arrangement", tables=tables.analyses(run, measures)),
        *sections,
    ]
    record = [
        Section("What was run", tables=[tables.facts(run.config), tables.fields(run.config)]),
        Section("Where it ran", tables=[tables.environment(run.environment)]),
        Section("Files of the run", tables=[tables.files(run.path)]),
    ]
    environment = _environment()
    numbers = itertools.count(1)  # figures are numbered through the whole page
    script = environment.get_template("page.js").render()
    return environment.get_template("page.html").render(
        run=run,
        title=title,
        lead=lead,
        command=command,
        findings=[
            _drawn(section, numbers) for section in findings if section.text or section.figures or section.tables
        ],
        record=[_drawn(section, numbers) for section in record],
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        version=VERSION,
    )


def _drawn(section: Section, numbers: Iterator[int]) -> dict[str, Any]:
    """The section as the template wants it: its figures drawn, with numbers that also make their ids unique."""
    figures = []
    for shown in section.figures:
        number = next(numbers)
        drawing = svg_text(shown.figure, prefix=f"figure-{number}", label=f"{shown.title}. {shown.caption}")
        figures.append({"number": number, "title": shown.title, "caption": shown.caption, "drawing": drawing})
    return {"title": section.title, "text": section.text, "figures": figures, "tables": section.tables}


@functools.cache
def _environment() -> jinja2.Environment:
    """Escapes everything; a name that the template misspells is an error, not an empty string."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("placecode", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
