"""The tables of the page: from what a run recorded to rows of text that also know how to be sorted."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from placecode.analysis.stats import half_width, interval
from placecode.experiments.claims import HOW_TO_READ

if TYPE_CHECKING:
    from placecode.reports.html.contracts import Atlas, RunFolder

SPLITS = ("train", "test", "validation")
MISSING = "\N{EN DASH}"
PLUS_MINUS = "\N{PLUS-MINUS SIGN}"
_ANALYSES = f"Before and after training, mean over seeds {PLUS_MINUS} half of the 95% interval."
_EXPLAINED = {
    "procrustes": "a distance of shapes: 0 is the same arrangement, whatever its size",
    "procrustes_raw": "the paper's distance, which also grows with the size of the encoding",
    "procrustes_r2": "the share of the true places that the map explains",
    "rsa": "the rank correlation of similarities (cosines of the centred encodings): 1 is the same arrangement",
    "moved_relative": "how far training moved the encoding, in units of its size at the start",
    "stability": "how far its similarities correlate with those of the others named: 1 is the same arrangement; "
    "pairs of seeds share members, so its mean stands without an interval",
    "neighbor_agreement": "how often the most similar token, by the cosine of the centred encodings, is one that it "
    "should be near",
    "mirror_agreement": "how often the most similar region is the one of the other side",
    "coordinate_agreement": "the share of the other tokens that are farther away in space than the most similar token "
    "is, mean over tokens: 1 if the most similar token is always the closest one, 0.5 by chance",
    "fc_correlation": "how far similarities correlate with functional connectivity",
    "modularity": "how much more similar tokens of a group are than chance would have it",
    "ari": "the agreement of groups that were found with the true ones: 0 is chance, 1 the same",
}
"""What a measure is, in the caption of a table that has it."""
_PAIRWISE = ("stability",)
"""Measures of pairs of members. A member is in several pairs, so that members are no independent values of them."""
NO_TEST = (
    "This run is a demonstration with settings that were searched for; what the paper says is tested at its scale."
)
_SIDES = {"above": "above", "below": "below", "within": PLUS_MINUS}
_MEASURED = ("split", "condition", "metric", "mean", "std", "n", "diverged")
_NAMES = {"sigma": "\N{GREEK SMALL LETTER SIGMA}", "n": "seeds"}
_FILES = {
    "config.json": "every field of the study",
    "environment.json": "versions, device, threads, precision",
    "baselines.parquet": "what others make of the same data",
    "members.parquet": "one row per member: its spec and its state",
    "metrics.parquet": "every measure of every member at every evaluation",
    "analysis.parquet": "what was measured on the encodings, before and after training",
    "summary.json": "means over seeds at the final step: the numbers of this page",
    "arrays.safetensors": "the encodings at the start and at the end",
    "weights.safetensors": "all parameters, for loading a member",
    "checkpoints": "for resuming an interrupted run",
    "figures": "the figures as images",
    "report.html": "this page",
    "log.txt": "what was said while it ran",
    "fit.json": "what was found of the table, and how it was chosen",
    "fit.safetensors": "its arrays: similarity, embedding, maps, confidence",
    "map.csv": "one row per channel: place, module, confidence, nearest channels",
}
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """What a cell says, and the number that it sorts by; text sorts as text. Sentences are `free` to wrap; `half` is
    half the width of the number's interval, which a download gives a column of its own; `ends` are those of an interval
    that is the cell's whole content, of which a download makes two columns."""

    text: str
    order: float | None = None
    free: bool = False
    half: float | None = None
    ends: tuple[float, float] | None = None


@dataclass(frozen=True)
class Table:
    """Rows under named columns. `groups` are headings over several columns: (heading, how many), from left to right."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    groups: Sequence[tuple[str, int]] = ()


def called(metric: str) -> str:
    """A metric at the beginning of a line: Accuracy, MSE."""
    return metric.upper() if metric == "mse" else metric.capitalize()


def results(summary: Sequence[Row], metric: str) -> list[Table]:
    """One row per setting: the metric on each split, how many seeds that is over, how many members diverged. Nothing
    where conditions are not to be mixed."""
    rows = [row for row in summary if row["metric"] == metric and row["condition"] == "all" and row["split"] in SPLITS]
    keys, splits = keys_of(rows), [split for split in SPLITS if any(row["split"] == split for row in rows)]
    body = []
    for setting, mine in _by_setting(rows, keys):
        by_split = {row["split"]: row for row in mine}
        seeds, diverged = min(int(row["n"]) for row in mine), max(int(row["diverged"]) for row in mine)
        body.append(
            [*map(value, setting), *(mean_cell(by_split.get(split)) for split in splits), value(seeds), value(diverged)]
        )
    whole = Table(
        f"{called(metric)} at the final step: mean over seeds {PLUS_MINUS} half the width of its 95% interval "
        "(Student's t). Members that diverged are left out of the means and counted in the last column.",
        [*map(name_of, keys), *splits, "seeds", "diverged"],
        body,
    )
    return [whole] if rows else []


def conditions(summary: Sequence[Row], metric: str) -> list[Table]:
    """The metric for each condition (a puzzle class, a mask ratio), one row per setting; nothing if there are none.

    Only on examples that were not trained on, where there are such: nine columns of means fit no screen, and the
    training examples are learned in every condition alike.
    """
    rows = [row for row in summary if row["metric"] == metric and row["condition"] != "all" and row["split"] in SPLITS]
    keys, names = keys_of(rows), list(dict.fromkeys(str(row["condition"]) for row in rows))
    splits = [split for split in SPLITS if any(row["split"] == split for row in rows)]
    splits = splits[splits != ["train"] and "train" in splits :]
    body = []
    for setting, mine in _by_setting(rows, keys):
        found = {(row["split"], str(row["condition"])): row for row in mine}
        means = [mean_cell(found.get((split, name))) for split in splits for name in names]
        body.append([*map(value, setting), value(min(int(row["n"]) for row in mine)), *means])
    caption = f"{called(metric)} at the final step, mean over seeds {PLUS_MINUS} half of the 95% interval."
    groups = [("", len(keys) + 1), *((split, len(names)) for split in splits)]
    return [Table(caption, [*map(name_of, keys), "seeds", *names * len(splits)], body, groups)] if rows else []


def analyses(run: RunFolder, wanted: Sequence[tuple[str, str]] | None = None) -> list[Table]:
    """Each measure of the encodings before and after training, one row per setting; nothing if none was taken.

    `wanted` are the (analysis, target) to show, where there are too many for one table; all unless given.

    Beside the value after training always stands the one before: a measure that says the same of untrained encodings
    says nothing about learning. Blocks are taken together where the run measured that, and averaged otherwise.
    """
    if run.analysis.empty:
        return []
    together = run.analysis["block"] == -1
    table = run.analysis[together] if together.any() else run.analysis
    if wanted is not None:
        pairs = pd.MultiIndex.from_frame(table[["analysis", "target"]])
        table = table[pairs.isin(list(wanted))]
        if table.empty:
            return []
    last = table.groupby("member")["step"].max().to_dict()
    means = table.groupby(["member", "step", "analysis", "target"])["value"].mean().to_dict()
    measures = list(dict.fromkeys((str(a), str(t)) for a, t in zip(table["analysis"], table["target"], strict=True)))
    keys = keys_of(run.summary)
    unused = {row["encoding"] for row in run.summary if row["sigma"] is None}  # these encodings have no sigma
    members = [
        {**json.loads(row.get("options") or "{}"), **row, **({"sigma": None} if row["encoding"] in unused else {})}
        for row in run.members.to_dict("records")
        if row["state"] == "done" and row["member"] in last
    ]
    body = []
    for setting, mine in _by_setting(members, keys):
        cells = [*map(value, setting), value(len({member["seed"] for member in mine}))]
        for measure in measures:
            for when in (lambda member: 0, last.__getitem__):
                found = [means.get((m["member"], when(m["member"]), *measure), math.nan) for m in mine]
                cells.append(_mean(found) if measure[0] in _PAIRWISE else _interval(found))
        body.append(cells)
    return [
        Table(
            " ".join([_ANALYSES, *(f"{name}: {_EXPLAINED[name]}." for name in _EXPLAINED if name in dict(measures))]),
            [*map(name_of, keys), "seeds", *("before", "after") * len(measures)],
            body,
            [
                ("", len(keys) + 1),
                *((f"{analysis} ({target})" if target else analysis, 2) for analysis, target in measures),
            ],
        )
    ]


def claims(findings: Sequence[Row], scale: str = "paper") -> list[Table]:
    """Both verdicts on claims, one row each, from their records; those that the run says nothing of are only counted.

    No table where the run says nothing of any claim.
    """
    body = []
    asked = [found for found in findings if found["effect"] is not None]
    silent, common = len(findings) - len(asked), common_notes(findings)
    for found in asked:
        effect, low, high = (found[name] for name in ("effect", "low", "high"))
        bounds = Cell(MISSING) if low is None else Cell(f"{number(low)} to {number(high)}", ends=(low, high))
        statement = found["statement"] + (f" ({found['note']})" if found["note"] not in ("", *common) else "")
        margin = f"{_SIDES[found['way']]} {number(found['margin'])}"
        verdicts = [Cell(found["direction_text"]), Cell(found["number_text"])]
        said = [Cell(statement, free=True), Cell(whose(found), free=True)]
        body.append([*verdicts, Cell(number(effect), effect), bounds, Cell(margin), *said])
    about = [
        HOW_TO_READ,
        *(f"{count} of those below: {note}." for note, count in common.items()),
        "" if scale == "paper" else NO_TEST,
        f"{silent} more cannot be asked of this run; the command placecode claims says why." if silent else "",
    ]
    columns = ["direction", "number (published)", "effect", "95% interval", "margin", "claim", "label"]
    return [Table(" ".join(filter(None, about)), columns, body)] if body else []


def whose(found: Row) -> str:
    """Whose claim it is, with the remark on it."""
    return "; ".join(filter(None, (found["label"], found["remark"])))


def common_notes(findings: Sequence[Row]) -> dict[str, int]:
    """Notes that several claims have which the run says something of, with how many: to be said once for all."""
    counts = Counter(str(found["note"]) for found in findings if found["effect"] is not None and found["note"])
    return {note: count for note, count in counts.items() if count > 1}


def channels(atlas: Atlas) -> Table:
    """One row per channel: its name, module, what else is known of it, and its nearest neighbour, so that all of it can
    be searched, sorted and taken away."""
    modules = [] if atlas.modules is None else ["group" if atlas.module_names else "module"]
    near = ["nearest channel", "confidence of the pair"] if any(map(len, atlas.neighbors)) else []
    body = []
    for channel, name in enumerate(atlas.names):
        row = [Cell(name)]
        if atlas.modules is not None:
            code = int(atlas.modules[channel])
            if code < 0:
                row.append(Cell(MISSING))
            else:
                row.append(Cell(atlas.module_names[code]) if atlas.module_names else Cell(str(code + 1), code + 1))
        row += [_short(values[channel]) for values in atlas.columns.values()]
        if near:
            other, sure = next(iter(atlas.neighbors[channel]), (-1, math.nan))
            row += [Cell(atlas.names[other] if other >= 0 else MISSING), _share(sure)]
        body.append(row)
    return Table("Every channel.", ["channel", *modules, *atlas.columns, *near], body)


def facts(config: Row) -> Table:
    """What kind of run it was: study, scale, task, members, precision; all but the study's own fields."""
    return _pairs("The run as a whole.", {name: content for name, content in config.items() if name != "fields"})


def fields(config: Row) -> Table:
    return _pairs("Every field of the study, with the value that was used.", config.get("fields", {}))


def environment(content: Row) -> Table:
    return _pairs("Versions and machine.", content)


def files(path: Path) -> Table:
    """The files of the run folder, the page among them, whose size is not known before it is written."""
    found = {entry.name: entry for entry in path.iterdir() if not entry.name.startswith(".")} if path.is_dir() else {}
    body = []
    for name, entry in sorted((found | {"report.html": path / "report.html"}).items()):
        parts = [part for part in entry.rglob("*") if part.is_file()] if entry.is_dir() else [entry]
        size = sum(part.stat().st_size for part in parts) if name != "report.html" else None
        shown = Cell(MISSING) if size is None else Cell(_size(size), size)
        body.append([Cell(name + "/" * entry.is_dir()), shown, Cell(_FILES.get(name, ""))])
    return Table(f"In the folder {path.name}.", ["file", "size", "what it holds"], body)


def listed(caption: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """A table that a study gives as it is: numbers that were measured are rounded."""

    def cell(content: Any) -> Cell:
        measured = isinstance(content, float) and math.isfinite(content)
        return Cell(f"{content:.4g}".replace("-", "\N{MINUS SIGN}"), content) if measured else value(content)

    return Table(caption, columns, [[cell(content) for content in row] for row in rows])


def value(content: object) -> Cell:
    """One value of a spec or a setting as a cell: numbers short, lists with commas, nothing as a dash."""
    if content is None or content == "" or (isinstance(content, float) and math.isnan(content)):
        return Cell(MISSING)
    if isinstance(content, bool):
        return Cell("yes" if content else "no")
    if isinstance(content, (int, float)):
        return Cell(f"{content:g}" if isinstance(content, float) else str(content), float(content))
    if isinstance(content, (list, tuple)):
        parts = [f"({value(part).text})" if isinstance(part, (list, tuple)) else value(part).text for part in content]
        if len(parts) > 30:  # the positions of many tokens, say
            parts = [*parts[:12], "...", parts[-1], f"{len(parts)} in all"]
        return Cell(", ".join(parts) or MISSING)
    return Cell(str(content))


def number(content: float, decimals: int = 3) -> str:
    """A measured value with a true minus sign, and none before a zero.

    >>> number(0.95321), number(-0.0001), number(48.32, decimals=1)
    ('0.953', '0.000', '48.3')
    """
    text = f"{content:.{decimals}f}"
    return text.removeprefix("-") if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")


def name_of(field: str) -> str:
    return _NAMES.get(field, field.replace("_", " "))


def _short(content: object) -> Cell:
    """A measured number with three digits, anything else as it is."""
    content = content.item() if hasattr(content, "item") else content
    if isinstance(content, float) and math.isfinite(content):
        return Cell(number(content), content)
    return value(content)


def _share(content: float | None) -> Cell:
    return Cell(MISSING) if content is None or math.isnan(content) else Cell(f"{100 * content:.0f}%", content)


def mean_cell(row: Row | None) -> Cell:
    """A row of the summary as mean and half-width; a dash where no member is left to average."""
    if row is None or row["mean"] is None or math.isnan(row["mean"]):
        return Cell(MISSING)
    std = math.nan if row["std"] is None else float(row["std"])
    return _plus_minus(float(row["mean"]), half_width(std, int(row["n"])))


def _interval(values: Sequence[float]) -> Cell:
    mean, low, _ = interval(values)
    return Cell(MISSING) if math.isnan(mean) else _plus_minus(mean, mean - low)


def _mean(values: Sequence[float]) -> Cell:
    mean = interval(values).mean
    return Cell(MISSING) if math.isnan(mean) else _plus_minus(mean, math.nan)


def _plus_minus(mean: float, half: float) -> Cell:
    decimals = 3 if abs(mean) < 10 else 1
    text = number(mean, decimals)
    if math.isnan(half):
        return Cell(text, mean)
    return Cell(f"{text} {PLUS_MINUS} {number(half, decimals)}", mean, half=half)


def keys_of(rows: Sequence[Row]) -> list[str]:
    """What sets the rows of a summary apart: encoding, sigma and every other varied field."""
    return [name for name in dict.fromkeys(name for row in rows for name in row) if name not in _MEASURED]


def _by_setting(rows: Sequence[Row], keys: Sequence[str]) -> Iterator[tuple[tuple[Hashable, ...], list[Row]]]:
    """The rows of each setting, in the order in which settings first appear."""
    found: dict[str, tuple[tuple[Hashable, ...], list[Row]]] = {}
    for row in rows:
        setting = tuple(row.get(name) for name in keys)
        found.setdefault(repr([value(part).text for part in setting]), (setting, []))[1].append(row)
    return iter(found.values())


def _pairs(caption: str, content: Row) -> Table:
    return Table(caption, ["name", "value"], [[Cell(name), value(inner)] for name, inner in flat(content)])


def flat(content: Row, above: str = "") -> Iterator[tuple[str, Any]]:
    """Nested mappings as one list of names and values, "versions / torch"."""
    for name, inner in content.items():
        if isinstance(inner, Mapping) and inner:
            yield from flat(inner, f"{above}{name} / ")
        else:
            yield f"{above}{name}", inner if not isinstance(inner, Mapping) else None


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
