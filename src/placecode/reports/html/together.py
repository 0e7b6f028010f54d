"""Several runs on one page, side by side: what each says, in what they differ, and their common tables joined.

>>> write([Part(run, "Latin squares", ["At sigma 0.2 ..."], "placecode run ...", "accuracy"), ...], Path("both.html"))
PosixPath('both.html')
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from placecode.errors import BadInput, must_be
from placecode.files import write_text
from placecode.reports.html import badges, packing, page, tables
from placecode.reports.html.contracts import Judgement, RunFolder, Turning
from placecode.reports.html.tables import MISSING, Cell, Table

MOST_SENTENCES = 5
_LEFT_OUT = ("split", "memory")


@dataclass(frozen=True)
class Part:
    """One of the runs: what its own report would begin with."""

    run: RunFolder
    title: str
    lead: Sequence[str]
    command: str
    metric: str
    claims: Sequence[Mapping[str, Any]] = ()
    verdicts: Sequence[Judgement] = ()
    dial: Turning | None = None


def write(parts: Sequence[Part], path: Path) -> Path:
    """Write the page of `render`; returns its path."""
    refuse([part.run.path for part in parts], path)
    write_text(path, render(parts))
    return path


def refuse(runs: Sequence[Path], path: Path) -> None:
    """Say what cannot be: fewer than two runs, a run beside itself, a page in no folder."""
    if len(runs) < 2:
        raise BadInput(f"together must have at least two runs to compare; got {len(runs)}.")
    found = [run.resolve() for run in runs]
    if twice := [str(run) for run in runs if found.count(run.resolve()) > 1]:
        raise BadInput(f"together must have different runs; got {twice[0]} more than once.")
    if path.suffix != ".html":
        raise must_be("together", "the name of a file that ends in .html", str(path))
    if not path.parent.is_dir():
        raise must_be("together", "a file in a folder that exists", str(path))


def render(parts: Sequence[Part]) -> str:
    """The page as text. Runs of any studies can stand beside each other; tables are joined by metric."""
    names = run_names([part.run.path for part in parts])
    dials = [part.dial for part in parts if part.dial is not None]
    shared = set.intersection(*({stop.sigma for stop in dial.stops} for dial in dials)) if dials else set()
    return page.filled(
        "together.html",
        f"{_listed(names)}, side by side",
        dials=[packing.dial(dial) for dial in dials],
        atlas=None,
        names=names,
        parts=[replace(part, lead=part.lead[:MOST_SENTENCES]) for part in parts],
        badges=[badges(part.claims) for part in parts],
        dials_shown=[(name, part.dial) for name, part in zip(names, parts, strict=True) if part.dial is not None],
        shared=len(shared) if len(dials) > 1 else 0,
        differences=differences(parts, names),
        environment=environments(parts, names),
        joined=[*results(parts, names), *verdicts(parts, names)],
    )


def run_names(paths: Sequence[Path]) -> list[str]:
    """What the runs are called: their folders, with as many of those above as it takes to tell them apart.

    >>> run_names([Path("a/x"), Path("b/x")])
    ['a/x', 'b/x']
    """
    full = [path.resolve().parts for path in paths]
    for depth in range(1, max(map(len, full)) + 1):
        names = ["/".join(parts[-depth:]) for parts in full]
        if len(set(names)) == len(names):
            break
    return names


def differences(parts: Sequence[Part], names: Sequence[str]) -> Table:
    """Settings that are not the same in all runs: one row each, one column for a run."""
    told = [_settings(part.run) for part in parts]
    every = list(dict.fromkeys(name for own in told for name in own))
    rows = []
    for setting in every:
        cells = [tables.value(own.get(setting)) for own in told]
        if len({cell.text for cell in cells}) > 1:
            rows.append([Cell(setting.replace("_", " ")), *(replace(cell, free=True, order=None) for cell in cells)])
    same = "These runs differ in no setting." if not rows else f"The other {len(every) - len(rows)} are the same."
    return Table(f"Settings in which the runs differ. {same}", ["setting", *names], rows)


def environments(parts: Sequence[Part], names: Sequence[str]) -> Table:
    """Versions, device and git state of every run, one column each; how members were split into stacks is left to the
    report of the run."""
    told = [dict(tables.flat(part.run.environment)) for part in parts]
    every = [name for name in dict.fromkeys(name for own in told for name in own) if not name.startswith(_LEFT_OUT)]
    rows = [
        [Cell(name), *(replace(tables.value(own.get(name)), free=True, order=None) for own in told)]
        for name in every
        if any(own.get(name) is not None for own in told)
    ]
    return Table("Versions and machine of every run.", ["name", *names], rows)


def _listed(names: Sequence[str]) -> str:
    """
    >>> _listed(["a", "b", "c"])
    'a, b and c'
    """
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _settings(run: RunFolder) -> dict[str, Any]:
    whole = {name: run.config[name] for name in ("study", "scale", "device", "precision") if name in run.config}
    return {**whole, **run.config.get("fields", {})}


def results(parts: Sequence[Part], names: Sequence[str]) -> Iterator[Table]:
    """The held-out metric of every setting that any run has, the runs beside each other: one table for a metric."""
    for metric in dict.fromkeys(part.metric for part in parts):
        own = [(name, part) for name, part in zip(names, parts, strict=True) if part.metric == metric]
        rows: dict[tuple[str, ...], dict[str, Cell]] = {}
        for name, part in own:
            for key, cell in _held_out(part):
                rows.setdefault(key, {})[name] = cell
        heads = [name for name, _ in own]
        body = [
            [*(_key_cell(text) for text in key), *(cells.get(name, Cell(MISSING)) for name in heads)]
            for key, cells in rows.items()
        ]
        caption = (
            f"{tables.called(metric)} at the final step on examples that were not trained on: mean over seeds "
            f"{tables.PLUS_MINUS} half the width of its 95% interval."
        )
        caption += _dash(body, "the run has no such setting")
        if body:
            yield Table(caption, ["setting", tables.name_of("sigma"), "split", "condition", *heads], body)


def _key_cell(text: str) -> Cell:
    try:
        return Cell(text, float(text))
    except ValueError:
        return Cell(text)


def _held_out(part: Part) -> Iterator[tuple[tuple[str, ...], Cell]]:
    """Setting, sigma, split, condition and mean, of all that was not trained on; in short, pooled where that is."""
    rows = [row for row in part.run.summary if row["metric"] == part.metric and row["split"] in tables.SPLITS[1:]]
    pooled = any(row["condition"] == "all" for row in rows)
    keys = [name for name in tables.keys_of(rows) if name not in ("sigma", "encoding")]
    for row in rows:
        if pooled and row["condition"] != "all":
            continue
        more = [f"{name.replace('_', ' ')} {tables.value(row[name]).text}" for name in keys if _said(row.get(name))]
        setting = ", ".join([str(row["encoding"]), *more])
        sigma = tables.value(row["sigma"]).text
        yield (setting, sigma, str(row["split"]), str(row["condition"])), tables.mean_cell(row)


def _said(value: object) -> bool:
    return value not in (None, "", False, 0, 0.0)


def verdicts(parts: Sequence[Part], names: Sequence[str]) -> Iterator[Table]:
    """What every run says of each claim; nothing where none says anything."""
    rows: dict[str, dict[str, Cell]] = {}
    for name, part in zip(names, parts, strict=True):
        for found in part.claims:
            if found["effect"] is not None:
                text = f"{found['direction_text']} ({tables.number(found['effect'])})"
                text += f"; number: {found['number_text']}" if found["number"] else ""
                rows.setdefault(found["statement"], {})[name] = Cell(text)
    body = [
        [Cell(said, free=True), *(cells.get(name, Cell(MISSING)) for name in names)] for said, cells in rows.items()
    ]
    if body:
        caption = f"Verdicts on claims: direction (effect); number (published).{_dash(body, 'it cannot be asked')}"
        yield Table(caption, ["claim", *names], body)


def _dash(body: Sequence[Sequence[Cell]], meaning: str) -> str:
    """What a dash means, where there is one."""
    return f" A dash: {meaning}." if any(cell.text == MISSING for row in body for cell in row) else ""
