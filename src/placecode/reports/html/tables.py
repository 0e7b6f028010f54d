"""Make the tables of an HTML report from the tables of a run.

A condition is a part of the examples or a way to test, such as a class of puzzles or a share of hidden channels. The
condition "all" covers all examples. A setting is a combination of encoding, sigma and other varied fields.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from placecode.analysis.alignment import ALL_BLOCKS
from placecode.analysis.stats import half_width, interval
from placecode.experiments.claims import HOW_TO_READ
from placecode.experiments.specs import ENCODING_NAMES
from placecode.reports.html import packing
from placecode.reports.pages.interactive import ChannelMap, Listing
from placecode.runs.read import Run

SPLITS = ("train", "test", "validation", "ood")
MISSING = "\N{EN DASH}"
PLUS_MINUS = "\N{PLUS-MINUS SIGN}"
_EXPLAINED = {
    "procrustes": "distance between shapes after scaling: 0 is the same arrangement",
    "procrustes_raw": "the paper's distance, which also grows with the size of the encoding",
    "procrustes_r2": "share of the variance of the true positions that the map explains",
    "rsa": "rank correlation of similarities (cosines of the centred encodings): 1 is the same arrangement",
    "moved_relative": "distance between the encoding before and after training, relative to its initial size",
    "stability": "correlation of its similarities with those of the encodings named: 1 is the same arrangement; "
    "pairs of seeds share members, so its mean is shown without an interval",
    "neighbor_agreement": "share of tokens whose most similar token, by the cosine of the centred encodings, is a true "
    "neighbour",
    "mirror_agreement": "share of regions whose most similar region is the corresponding one of the other hemisphere",
    "coordinate_agreement": "share of the other tokens that are farther away in space than the most similar token, "
    "mean over tokens: 1 if the most similar token is always the closest one, 0.5 by chance",
    "fc_correlation": "correlation of similarities with functional connectivity",
    "modularity": "similarity within groups in excess of chance",
    "ari": "adjusted Rand index between detected and true groups: 0 is chance, 1 is perfect agreement",
}
"""Explanations of analyses, which are added to the captions of tables that show them."""
_PAIRWISE = ("stability",)
"""Analyses of pairs of members. A member is in several pairs, so values are not independent and get no interval."""
QUICK_SCALE_NOTE = (
    "This run is a demonstration with tuned settings. The claims of the paper are tested at the scale of the paper."
)
"""Note on the claims of runs that do not have the scale "paper"."""
_SIDES = {"above": "above", "below": "below", "within": PLUS_MINUS}
"""Text before the margin of a claim, by the `way` of the claim."""
_RESULT_COLUMNS = ("split", "condition", "metric", "mean", "std", "n", "diverged")
"""Columns of the summary of a run that are not settings."""
_HEADINGS = {"sigma": "\N{GREEK SMALL LETTER SIGMA}", "n": "seeds"}
_FILES = {
    "config.json": "every field of the experiment",
    "environment.json": "versions, device, threads, precision",
    "baselines.parquet": "results of other methods on the same data",
    "members.parquet": "one row per member: its settings and its state",
    "metrics.parquet": "metrics of every member at every evaluation",
    "analysis.parquet": "analyses of the encodings before and after training",
    "summary.json": "means over seeds at the final step: the numbers of this page",
    "arrays.safetensors": "the encodings before and after training",
    "weights.safetensors": "all parameters, for loading a member",
    "checkpoints": "for resuming an interrupted run",
    "figures": "the figures as images",
    "report.html": "this page",
    "log.txt": "log of the run",
    "fit.json": "results of the fit",
    "fit.safetensors": "arrays of the fit: similarity, embedding, maps, confidence",
    "map.csv": "one row per channel: position, module, confidence, nearest channels",
}
"""Contents of the files in a run folder."""
Row = Mapping[str, Any]
"""A row of a summary, a record of a claim, or another mapping with values by name."""
Place = tuple[str, str]
"""A split and a condition, such as ("test", "all")."""
Results = list[tuple[tuple[Hashable, ...], dict[Place, Row]]]
"""A pair for each setting: the values of the fields that identify it, and its rows of a summary by place."""


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, and the numbers behind it."""

    text: str
    sort_key: float | None = None
    """Number by which rows are sorted; if it is None, they are sorted by the text."""
    wraps: bool = False
    """Whether the text may be broken into several lines."""
    half_width: float | None = None
    """Half the width of the interval around `sort_key`, a column of its own in downloads; None without an interval."""
    bounds: tuple[float, float] | None = None
    """Lower and upper bound if the text is an interval, two columns in downloads; otherwise None."""


@dataclass(frozen=True)
class HtmlTable:
    """A table of a page. `groups` are headings above the columns: (heading, number of columns), from left to right."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    groups: Sequence[tuple[str, int]] = ()


def metric_title(metric: str) -> str:
    """Return the name of a metric as it is written at the start of a sentence: "Accuracy", "MSE"."""
    return metric.upper() if metric == "mse" else metric.capitalize()


def by_setting(summary: Sequence[Row], metric: str, pooled: bool) -> tuple[list[str], list[Place], Results]:
    """Return the rows and columns of a table of final results, for the terminal and for reports.

    A row is a setting, and a column is a place: a pair of a split and a condition (a subset of its examples). The
    result is (names of the fields that identify a setting, places, results by setting). With `pooled`, the places are
    all splits with the condition "all". Otherwise, they are the other conditions, and the training split is left out if
    there are others, to keep tables narrow enough for a screen.
    """
    rows = [row for row in summary if row["metric"] == metric and (row["condition"] == "all") == pooled]
    splits = [split for split in SPLITS if any(row["split"] == split for row in rows)]
    rows = [row for row in rows if row["split"] in splits]
    if not pooled:
        splits = [split for split in splits if split != "train"] or splits
    names, keys = dict.fromkeys(str(row["condition"]) for row in rows), setting_columns(rows)
    groups = [
        (setting, {(row["split"], str(row["condition"])): row for row in group})
        for setting, group in _grouped(rows, keys)
    ]
    return keys, [(split, name) for split in splits for name in names], groups


def counts(results: Mapping[Place, Row]) -> tuple[int, int]:
    """Return, for the results of one setting, the smallest number of seeds in a mean, and how many members diverged."""
    rows = results.values()
    return min(int(row["n"]) for row in rows), max(int(row["diverged"]) for row in rows)


def results(summary: Sequence[Row], metric: str) -> list[HtmlTable]:
    """Return one table of a metric on all examples, by setting and split; an empty list if there are no values."""
    keys, places, groups = by_setting(summary, metric, pooled=True)
    body = [
        [*map(value, setting), *(mean_cell(rows.get(place)) for place in places), *map(value, counts(rows))]
        for setting, rows in groups
    ]
    caption = (
        f"{metric_title(metric)} at the final step: mean over seeds {PLUS_MINUS} half the width of its 95% interval "
        "(Student's t). Members that diverged are left out of the means and counted in the last column."
    )
    columns = [*map(heading_of, keys), *(split for split, _ in places), "seeds", "diverged"]
    return [HtmlTable(caption, columns, body)] if body else []


def conditions(summary: Sequence[Row], metric: str) -> list[HtmlTable]:
    """Return one table of a metric by setting and condition (subset of the examples); an empty list without any."""
    keys, places, groups = by_setting(summary, metric, pooled=False)
    body = [
        [*map(value, setting), value(counts(rows)[0]), *(mean_cell(rows.get(place)) for place in places)]
        for setting, rows in groups
    ]
    caption = f"{metric_title(metric)} at the final step, mean over seeds {PLUS_MINUS} half of the 95% interval."
    columns = [*map(heading_of, keys), "seeds", *(name for _, name in places)]
    headings = [("", len(keys) + 1), *Counter(split for split, _ in places).items()]
    return [HtmlTable(caption, columns, body, headings)] if body else []


def analyses(run: Run, wanted: Sequence[tuple[str, str]] | None = None) -> list[HtmlTable]:
    """Return one table of measures of the PEs before and after training, by setting; an empty list without measures.

    `wanted` are the pairs (analysis, target) to show, by default all: a measure, and what the PE is compared with.
    Values before training are shown too, because a value that training does not change is not a result of learning. If
    the run has no values for all blocks of the transformer together, the mean over its blocks is shown.
    """
    all_blocks = run.analysis["block"] == ALL_BLOCKS
    table = run.analysis[all_blocks] if all_blocks.any() else run.analysis
    if wanted is not None:
        table = table[pd.MultiIndex.from_frame(table[["analysis", "target"]]).isin(list(wanted))]
    if table.empty:
        return []
    last = table.groupby("member")["step"].max().to_dict()
    means = table.groupby(["member", "step", "analysis", "target"])["value"].mean().to_dict()
    measures = list(dict.fromkeys((str(a), str(t)) for a, t in zip(table["analysis"], table["target"], strict=True)))
    keys = setting_columns(run.summary)
    no_sigma = {row["encoding"] for row in run.summary if row["sigma"] is None}
    members = [
        {**json.loads(row.get("options") or "{}"), **row, **({"sigma": None} if row["encoding"] in no_sigma else {})}
        for row in run.members.to_dict("records")
        if row["state"] == "done" and row["member"] in last
    ]
    body = []
    for setting, group in _grouped(members, keys):
        cells = [*map(value, setting), value(len({member["seed"] for member in group}))]
        for measure in measures:
            for step_of in (lambda member: 0, last.__getitem__):
                values = [means.get((m["member"], step_of(m["member"]), *measure), math.nan) for m in group]
                mean, low, _ = interval(values)
                cells.append(_plus_minus(mean, math.nan if measure[0] in _PAIRWISE else mean - low))
        body.append(cells)
    about = f"Before and after training, mean over seeds {PLUS_MINUS} half of the 95% interval."
    explained = [f"{name}: {text}." for name, text in _EXPLAINED.items() if name in dict(measures)]
    columns = [*map(heading_of, keys), "seeds", *("before", "after") * len(measures)]
    headings = [(f"{analysis} ({target})" if target else analysis, 2) for analysis, target in measures]
    return [HtmlTable(" ".join([about, *explained]), columns, body, [("", len(keys) + 1), *headings])]


def claims(findings: Sequence[Row], scale: str = "paper") -> list[HtmlTable]:
    """Return one table of claims and verdicts; an empty list if the run can test no claim.

    `findings` are records from `Finding.record`. If `scale` is not "paper", the caption has `QUICK_SCALE_NOTE`.
    """
    tested = [finding for finding in findings if finding["effect"] is not None]
    untested, common = len(findings) - len(tested), common_notes(findings)
    body = []
    for finding in tested:
        effect, low, high = (finding[name] for name in ("effect", "low", "high"))
        body.append(
            [
                Cell(finding["direction_text"]),
                Cell(finding["number_text"]),
                Cell(number(effect), effect),
                Cell(MISSING) if low is None else Cell(f"{number(low)} to {number(high)}", bounds=(low, high)),
                Cell(f"{_SIDES[finding['way']]} {number(finding['margin'])}"),
                Cell(statement_text(finding, common), wraps=True),
                Cell(source_text(finding), wraps=True),
            ]
        )
    about = [
        HOW_TO_READ,
        *(f"{count} of the claims below: {note}." for note, count in common.items()),
        "" if scale == "paper" else QUICK_SCALE_NOTE,
        f"{untested} more cannot be tested with this run; the command placecode claims says why." if untested else "",
    ]
    columns = ["direction", "number (published)", "effect", "95% interval", "margin", "claim", "label"]
    return [HtmlTable(" ".join(filter(None, about)), columns, body)] if body else []


def statement_text(finding: Row, common: Container[str] = ()) -> str:
    """Return the statement of a claim, with its note in parentheses unless the note is one of the `common` notes."""
    note = finding["note"]
    return f"{finding['statement']} ({note})" if note and note not in common else str(finding["statement"])


def source_text(finding: Row) -> str:
    """Return the label of a claim (who makes it, such as "paper"), followed by the remark on it if there is one."""
    return "; ".join(filter(None, (finding["label"], finding["remark"])))


def common_notes(findings: Sequence[Row]) -> dict[str, int]:
    """Return the notes that more than one tested claim has, and how many claims have each. They are shown only once."""
    counts = Counter(str(finding["note"]) for finding in findings if finding["effect"] is not None and finding["note"])
    return {note: count for note, count in counts.items() if count > 1}


def channels(content: ChannelMap) -> HtmlTable:
    """Make a table with one row per channel: name, module, `content.columns`, and the nearest channel, if known."""
    modules = [] if content.modules is None else [packing.group_term(content)]
    nearest = ["nearest channel", "confidence of the pair"] if any(map(len, content.neighbors)) else []
    body = []
    for channel, name in enumerate(content.names):
        row = [Cell(name)]
        if content.modules is not None:
            code = int(content.modules[channel])
            module = Cell(content.module_names[code]) if content.module_names else Cell(str(code + 1), code + 1)
            row.append(module if code >= 0 else Cell(MISSING))
        row += [rounded(values[channel], ".3f") for values in content.columns.values()]
        if nearest:
            other, confidence = next(iter(content.neighbors[channel]), (-1, math.nan))
            share = Cell(MISSING) if math.isnan(confidence) else Cell(f"{100 * confidence:.0f}%", confidence)
            row += [Cell(content.names[other] if other >= 0 else MISSING), share]
        body.append(row)
    return HtmlTable("Every channel.", ["channel", *modules, *content.columns, *nearest], body)


def files(path: Path) -> HtmlTable:
    """Make a table of the files in the run folder, with sizes. The page itself, not yet written, has no size."""
    entries = {entry.name: entry for entry in path.iterdir() if not entry.name.startswith(".")} if path.is_dir() else {}
    body = []
    for name, entry in sorted((entries | {"report.html": path / "report.html"}).items()):
        parts = [part for part in entry.rglob("*") if part.is_file()] if entry.is_dir() else [entry]
        size = sum(part.stat().st_size for part in parts) if name != "report.html" else None
        size_cell = Cell(MISSING) if size is None else Cell(_size(size), size)
        body.append([Cell(name + "/" * entry.is_dir()), size_cell, Cell(_FILES.get(name, ""))])
    return HtmlTable(f"In the folder {path.name}.", ["file", "size", "content"], body)


def listing(content: Listing) -> HtmlTable:
    """Make an HTML table of a `Listing` (a further table of a page), with floats rounded to four digits."""
    rows = [[rounded(value, ".4g") for value in row] for row in content.rows]
    return HtmlTable(content.caption, content.columns, rows)


def value(content: object) -> Cell:
    """Make a cell of any value. Numbers are short, lists have commas, and missing values are a dash."""
    if content is None or content == "" or (isinstance(content, float) and math.isnan(content)):
        return Cell(MISSING)
    if isinstance(content, bool):
        return Cell("yes" if content else "no")
    if isinstance(content, (int, float)):
        return Cell(f"{content:g}" if isinstance(content, float) else str(content), float(content))
    if isinstance(content, (list, tuple)):
        parts = [f"({value(part).text})" if isinstance(part, (list, tuple)) else value(part).text for part in content]
        if len(parts) > 30:  # for example the positions of many tokens
            parts = [*parts[:12], "...", parts[-1], f"{len(parts)} in all"]
        return Cell(", ".join(parts) or MISSING)
    return Cell(str(content))


def number(content: float, decimals: int = 3) -> str:
    """Format a measured value with a typographic minus sign, and without a sign if it is rounded to zero.

    >>> number(0.95321), number(-0.0001), number(48.32, decimals=1)
    ('0.953', '0.000', '48.3')
    """
    return _minus(f"{content:.{decimals}f}")


def _minus(text: str) -> str:
    """Return the text of a number with a typographic minus sign, and without a sign if it is zero."""
    return text.removeprefix("-") if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")


def heading_of(field: str) -> str:
    """Return the heading of the column that shows a field, such as "mask ratio" for "mask_ratio"."""
    return _HEADINGS.get(field, field.replace("_", " "))


def rounded(content: Any, form: str) -> Cell:
    """Make a cell. A finite float has the format `form`, such as ".3f"; `value` formats other contents."""
    content = content.item() if hasattr(content, "item") else content
    if not (isinstance(content, float) and math.isfinite(content)):
        return value(content)
    return Cell(_minus(format(content, form)), content)


def mean_cell(row: Row | None) -> Cell:
    """Make a cell with the mean of a summary row and the half-width of its interval; a dash if there is no mean."""
    if row is None or row["mean"] is None:
        return Cell(MISSING)
    std = math.nan if row["std"] is None else float(row["std"])
    return _plus_minus(float(row["mean"]), half_width(std, int(row["n"])))


def _plus_minus(mean: float, half: float) -> Cell:
    """Make a cell with a mean and the half-width of its interval. A half-width of NaN is left out. A mean of NaN is a
    dash."""
    if math.isnan(mean):
        return Cell(MISSING)
    decimals = 3 if abs(mean) < 10 else 1
    text = number(mean, decimals)
    if math.isnan(half):
        return Cell(text, mean)
    return Cell(f"{text} {PLUS_MINUS} {number(half, decimals)}", mean, half_width=half)


def setting_columns(rows: Sequence[Row]) -> list[str]:
    """Return the columns of a summary that identify a setting: encoding, sigma and every other varied field."""
    return [name for name in dict.fromkeys(name for row in rows for name in row) if name not in _RESULT_COLUMNS]


def _grouped(rows: Sequence[Row], keys: Sequence[str]) -> Iterator[tuple[tuple[Hashable, ...], list[Row]]]:
    """Yield (setting, rows) for each setting (values of `keys`), in the order in which settings first appear."""
    groups: dict[str, tuple[tuple[Hashable, ...], list[Row]]] = {}
    for row in rows:
        row_with_name = {**row, "encoding": ENCODING_NAMES.get(row["encoding"], row["encoding"])}
        setting = tuple(row_with_name.get(name) for name in keys)
        groups.setdefault(repr([value(part).text for part in setting]), (setting, []))[1].append(row)
    return iter(groups.values())


def pairs(caption: str, content: Row) -> HtmlTable:
    """Make a table with one row per entry of a mapping: name and value. Nested mappings are flattened; see `flat`."""
    return HtmlTable(caption, ["name", "value"], [[Cell(name), value(inner)] for name, inner in flat(content)])


def flat(content: Row, above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the names and values of nested mappings, with names such as "versions / torch". `above` is a prefix."""
    for name, inner in content.items():
        if isinstance(inner, Mapping) and inner:
            yield from flat(inner, f"{above}{name} / ")
        else:
            yield f"{above}{name}", inner if not isinstance(inner, Mapping) else None


def _size(count: float) -> str:
    """Format a number of bytes, for example "1.5 MB"."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
