"""Write an HTML page that compares several runs: their results, the settings that differ, and joined tables.

>>> write([page_of(experiment, run), ...], ["placecode run ...", ...], Path("both.html"))
PosixPath('both.html')
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from placecode.errors import BadInput, must_be
from placecode.experiments.specs import ENCODING_NAMES
from placecode.files import write_text
from placecode.reports import wording
from placecode.reports.html import badges, packing, tables, templates
from placecode.reports.html.tables import MISSING, Cell, HtmlTable
from placecode.reports.pages.base import MAX_LEAD_SENTENCES, Page

_NOT_COMPARED = ("split", "memory")
"""Entries of environment.json that are not compared."""


def write(pages: Sequence[Page], commands: Sequence[str], path: Path) -> Path:
    """Write an HTML page with a comparison of two or more runs to the file `path`, and return `path`.

    `pages` are what the reports of the runs show, and `commands` the shell commands that repeat the runs.
    """
    refuse([page.run.path for page in pages], path)
    write_text(path, render(pages, commands))
    return path


def refuse(runs: Sequence[Path], path: Path) -> None:
    """Raise BadInput for fewer than two run folders, for one given twice, or if `path` does not end in .html or its
    folder does not exist."""
    if len(runs) < 2:
        raise BadInput(f"together must have at least two runs to compare; got {len(runs)}.")
    resolved = [run.resolve() for run in runs]
    if twice := [str(run) for run in runs if resolved.count(run.resolve()) > 1]:
        raise BadInput(f"together must have different runs; got {twice[0]} more than once.")
    if path.suffix != ".html":
        raise must_be("together", "the name of a file that ends in .html", str(path))
    if not path.parent.is_dir():
        raise must_be("together", "a file in a folder that exists", str(path))


def render(pages: Sequence[Page], commands: Sequence[str]) -> str:
    """Return the text of the page that `write` writes. Runs with the same metric share a table of results."""
    names = run_names([page.run.path for page in pages])
    sliders = {name: slider for name, page in zip(names, pages, strict=True) if (slider := page.slider()) is not None}
    sigmas = [{position.sigma for position in slider.positions} for slider in sliders.values()]
    runs = [
        {
            "name": name,
            "page": page,
            "command": command,
            "lead": page.lead()[:MAX_LEAD_SENTENCES],
            "badges": badges([finding.record() for finding in page.findings]),
        }
        for name, page, command in zip(names, pages, commands, strict=True)
    ]
    return templates.render_template(
        "comparison.html",
        f"{wording.listed(names)}, side by side",
        sliders=[packing.slider(slider) for slider in sliders.values()],
        channel_map_data=None,
        runs=runs,
        sliders_shown=sliders,
        shared=len(set.intersection(*sigmas)) if len(sliders) > 1 else 0,
        differences=differences(pages, names),
        environment=environments(pages, names),
        joined=[*results(pages, names), *verdicts(pages, names)],
    )


def run_names(paths: Sequence[Path]) -> list[str]:
    """Return a unique name for each run folder, with parent folders only if needed: "a/x" and "b/x" if both are "x"."""
    full = [path.resolve().parts for path in paths]
    for depth in range(1, max(map(len, full)) + 1):
        names = ["/".join(parts[-depth:]) for parts in full]
        if len(set(names)) == len(names):
            break
    return names


def differences(pages: Sequence[Page], names: Sequence[str]) -> HtmlTable:
    """Make a table of the settings in which the runs differ, with one column per run."""
    general = ("experiment", "scale", "device", "precision")
    configs = [page.run.config for page in pages]
    rows = _side_by_side(
        [{name: config[name] for name in general if name in config} | config.get("fields", {}) for config in configs]
    )
    different = [[Cell(name.replace("_", " ")), *cells] for name, cells in rows if len({c.text for c in cells}) > 1]
    same = f"The other {len(rows) - len(different)} are the same." if different else "These runs differ in no setting."
    return HtmlTable(f"Settings in which the runs differ. {same}", ["setting", *names], different)


def environments(pages: Sequence[Page], names: Sequence[str]) -> HtmlTable:
    """Make a table of versions, device and git state, with one column per run."""
    by_run = [
        {name: value for name, value in page.run.environment.items() if name not in _NOT_COMPARED} for page in pages
    ]
    rows = [
        [Cell(name), *cells]
        for name, cells in _side_by_side([dict(tables.flat(environment)) for environment in by_run])
        if any(cell.text != MISSING for cell in cells)
    ]
    return HtmlTable("Versions and machine of every run.", ["name", *names], rows)


def _side_by_side(by_run: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Cell]]]:
    """Return (name, cells) for every name in the mappings, with one cell per run; a dash where a run lacks the name."""
    names = dict.fromkeys(name for values in by_run for name in values)
    return [(name, [Cell(tables.value(values.get(name)).text, wraps=True) for values in by_run]) for name in names]


def results(pages: Sequence[Page], names: Sequence[str]) -> Iterator[HtmlTable]:
    """Yield a table for each metric: held-out results of all settings, with one column per run."""
    for metric in dict.fromkeys(page.metric for page in pages):
        by_run = {name: dict(_held_out(page)) for name, page in zip(names, pages, strict=True) if page.metric == metric}
        body = [[*map(_key_cell, key), *cells] for key, cells in _joined(by_run)]
        caption = (
            f"{tables.metric_title(metric)} at the final step on held-out examples: mean over seeds "
            f"{tables.PLUS_MINUS} half the width of its 95% interval.{_dash(body, 'the run has no such setting')}"
        )
        if body:
            yield HtmlTable(caption, ["setting", tables.heading_of("sigma"), "split", "condition", *by_run], body)


def _joined(by_run: Mapping[str, Mapping[Any, Cell]]) -> Iterator[tuple[Any, list[Cell]]]:
    """Yield every key with a list of cells, one per run; a dash where a run lacks the key."""
    for key in dict.fromkeys(key for cells in by_run.values() for key in cells):
        yield key, [cells.get(key, Cell(MISSING)) for cells in by_run.values()]


def _key_cell(text: str) -> Cell:
    """Make a cell that is sorted by number if its text is a number."""
    try:
        return Cell(text, float(text))
    except ValueError:
        return Cell(text)


def _held_out(page: Page) -> Iterator[tuple[tuple[str, ...], Cell]]:
    """Yield each (setting, sigma, split, condition) of the held-out splits, with the table cell of its mean over seeds.

    A condition is a subset of the examples. If the run has results on all examples (condition "all"), only these are
    yielded.
    """
    rows = [row for row in page.run.summary if row["metric"] == page.metric and row["split"] in tables.SPLITS[1:]]
    pooled = any(row["condition"] == "all" for row in rows)
    keys = [name for name in tables.setting_columns(rows) if name not in ("sigma", "encoding")]
    for row in rows:
        if pooled and row["condition"] != "all":
            continue
        more = [f"{name.replace('_', ' ')} {tables.value(row[name]).text}" for name in keys if row.get(name)]
        setting = ", ".join([ENCODING_NAMES.get(row["encoding"], str(row["encoding"])), *more])
        sigma = tables.value(row["sigma"]).text
        yield (setting, sigma, str(row["split"]), str(row["condition"])), tables.mean_cell(row)


def verdicts(pages: Sequence[Page], names: Sequence[str]) -> Iterator[HtmlTable]:
    """Yield a table of the verdicts on claims, with one column per run; nothing if no run can test a claim."""
    by_run: dict[str, dict[str, Cell]] = {name: {} for name in names}
    for name, page in zip(names, pages, strict=True):
        for claim in (finding.record() for finding in page.findings):
            if claim["effect"] is None:
                continue
            text = f"{claim['direction_text']} ({tables.number(claim['effect'])})"
            text += f"; number: {claim['number_text']}" if claim["number"] else ""
            by_run[name][claim["statement"]] = Cell(text)
    body = [[Cell(statement, wraps=True), *cells] for statement, cells in _joined(by_run)]
    if body:
        meaning = "the claim cannot be tested with the run"
        caption = f"Verdicts on claims: direction (effect); number (published).{_dash(body, meaning)}"
        yield HtmlTable(caption, ["claim", *names], body)


def _dash(body: Sequence[Sequence[Cell]], meaning: str) -> str:
    """Return a sentence on what a dash means, if the table has one; otherwise an empty text."""
    return f" A dash: {meaning}." if any(cell.text == MISSING for row in body for cell in row) else ""
