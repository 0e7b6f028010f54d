"""The findings of studies of masked prediction in plain sentences, which are true whatever a run shows."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from placecode.analysis.stats import interval
from placecode.experiments.channels.claims import over
from placecode.experiments.claims import NotInRun
from placecode.experiments.reading import measured, swept_fields
from placecode.experiments.specs import data_in_words, differing
from placecode.reports.pages.dials import Verdict
from placecode.runs.read import Run

SAID = {
    ("neighbor_agreement", "labels"): "the nearest channel in the PE is of the same group",
    ("mirror_agreement", "partner"): "the nearest region in the PE is the mirror region",
    ("neighbor_agreement", "positions"): "the nearest channel in the PE is next to it in space",
}
FEW = 5
"""Sentences that a reader takes in at once."""
PAIRWISE = {
    "fc": "correlation",
    "mutual information": "mutual information",
    "partial correlation": "partial correlation",
}


def of_settings(run: Run) -> list[str]:
    """Setting by setting: the structure of the PE, before and after training, and the errors; then the others'."""
    members = _settings(run)
    lines = []
    for setting in dict.fromkeys(members["setting"]):
        own = members.loc[(members["setting"] == setting) & (members["state"] == "done"), "member"]
        if own.empty:
            lines.append(f"{setting}: no member finished; all diverged.")
            continue
        parts = [*_structure(run, own), _errors(run, own)]
        lines.append(f"{setting}: {'; '.join(part for part in parts if part)}.")
    lines += _others(run)
    worlds, seeds = run.config["shape"]["worlds"], run.members["seed"].nunique()
    if 1 < worlds < seeds:
        lines.append(
            f"These intervals are over {seeds} seeds, which share {worlds} worlds; claims and figures average them."
        )
    lost = int((run.members["state"] == "diverged").sum())
    return [
        *lines,
        *([f"{lost} of {len(run.members)} members diverged and are left out of the means."] if lost else []),
    ]


def in_short(run: Run) -> list[str]:
    """The same in a few sentences: all of them where they are few, else from the least to the most of every number."""
    every = of_settings(run)
    if len(every) <= FEW:
        return every
    members = _settings(run)
    shared = f"{members['name'].iloc[0]}, "
    if members["setting"].str.startswith(shared).all():  # what all have in common tells nothing
        members = members.assign(setting=members["setting"].str.removeprefix(shared))
    alive = members[members["state"] == "done"]
    lines = []
    for (analysis, target), words in SAID.items():
        try:
            before, after = (_means(alive, measured(run, analysis, target, when)) for when in ("start", "end"))
        except NotInRun:
            continue
        if len(after):
            spread = f"for {_from_to(after, lambda share: f'{100 * share:.0f}%')}"
            earlier = _span(100 * before, decimals=0)
            lines.append(f"Over {len(after)} settings, {words} {spread}; before training, for {earlier}%.")
    rows = run.metrics[(run.metrics["step"] == run.metrics["step"].max()) & (run.metrics["metric"] == "mse")]
    for condition, own in rows[rows["split"] == "test"].groupby("condition", sort=False):
        errors = _means(alive, own.set_index("member")["value"])
        linear = run.baselines[(run.baselines["baseline"] == "linear") & (run.baselines["condition"] == condition)]
        best = linear[linear["metric"] == "mse"].groupby("data", sort=False)["value"].mean()
        beside = f"; of the best linear predictor, {_span(best)}" if len(best) else ""
        lines.append(
            f"The held-out error ({condition}) goes from {_from_to(errors, lambda error: f'{error:.3f}')}{beside}."
        )
    by_pairs = [line for line in every if "by pairwise measures" in line]
    return [*lines, *(by_pairs if len(by_pairs) == 1 else []), *(line for line in every if "diverged" in line)][:FEW]


def verdicts(run: Run) -> list[Verdict]:
    """Whether training put together what belongs together: in how many settings a measure grew, beyond doubt."""
    members, found = _settings(run), []
    alive = members[members["state"] == "done"]
    for (analysis, target), words in SAID.items():
        try:
            before, after = (alive["member"].map(measured(run, analysis, target, when)) for when in ("start", "end"))
        except NotInRun:
            continue
        grown = alive.assign(value=after - before).dropna(subset=["value"])
        lows = [over(run, own.set_index("seed")["value"]).low for _, own in grown.groupby("setting", sort=False)]
        sure, asked = sum(low > 0 for low in lows), sum(low == low for low in lows)
        if not lows:
            continue
        kind = "unsure" if not asked else "found" if sure == len(lows) else "found in part" if sure else "not found"
        more = f"{words[0].upper()}{words[1:]} more often after training than before"
        found.append(
            Verdict(kind, f"{more} in {sure} of {len(lows)} settings: the whole 95% interval of the gain is above 0.")
        )
    return found


def _means(members: pd.DataFrame, values: pd.Series) -> pd.Series:
    """Of every setting, over its seeds."""
    kept = members.assign(value=members["member"].map(values)).dropna(subset=["value"])
    return pd.Series(kept.groupby("setting", sort=False)["value"].mean())


def _from_to(means: pd.Series, said: Callable[[float], str]) -> str:
    return f"{said(means.min())} ({means.idxmin()}) to {said(means.max())} ({means.idxmax()})"


def _span(values: pd.Series, decimals: int = 3) -> str:
    low, high = f"{values.min():.{decimals}f}", f"{values.max():.{decimals}f}"
    return low if low == high else f"{low} to {high}"


def _settings(run: Run) -> pd.DataFrame:
    """The members with what tells them apart, seeds aside, in a few words."""
    members = differing(run.members, swept_fields(run))
    rows = zip(members["name"], members["setting"], strict=True)
    return members.assign(setting=[", ".join(filter(None, words)) for words in rows])


def _structure(run: Run, own: pd.Series) -> list[str]:
    parts = []
    for (analysis, target), words in SAID.items():
        try:
            before, after = (
                own.map(measured(run, analysis, target, when)).dropna().to_numpy() for when in ("start", "end")
            )
        except NotInRun:
            continue
        if len(after):
            parts.append(f"{words} for {_percent(after)} (before training {100 * before.mean():.0f}%)")
    return parts


def _percent(values: object) -> str:
    mean, low, high = (100 * each for each in interval(values))  # type: ignore[arg-type]
    bounds = f", 95% interval {max(low, 0):.0f} to {min(high, 100):.0f}%" if low == low else ""
    return f"{mean:.0f}%{bounds}"


def _errors(run: Run, own: pd.Series) -> str:
    rows = run.metrics[(run.metrics["step"] == run.metrics["step"].max()) & (run.metrics["metric"] == "mse")]
    rows = rows[(rows["split"] == "test") & rows["member"].isin(own)]
    means = rows.groupby("condition", sort=False)["value"].mean()
    return "held-out error " + ", ".join(f"{value:.3f} ({condition})" for condition, value in means.items())


def _others(run: Run) -> list[str]:
    """What the best linear predictor and pairwise measures make of the same data."""
    table, lines = run.baselines, []
    for data in dict.fromkeys(table["data"]):
        here = table[table["data"] == data]
        start = f"With {data_in_words(data)}, the" if data else "The"
        linear = here[(here["baseline"] == "linear") & (here["metric"] == "mse")]
        means = linear.groupby("condition", sort=False)["value"].mean()
        if len(means):
            numbers = ", ".join(f"{value:.3f} ({condition})" for condition, value in means.items())
            lines.append(f"{start} best linear predictor has a held-out error of {numbers}.")
        for (metric, target), words in SAID.items():
            rows = here[(here["metric"] == metric) & (here["condition"] == target)]
            found = rows.groupby("baseline", sort=False)["value"].mean().dropna()
            told = [f"{100 * found[name]:.0f}% by {name_of}" for name, name_of in PAIRWISE.items() if name in found]
            if told:
                thing = words.replace(" in the PE", "")
                lines.append(f"{start} same by pairwise measures, without any model: {thing} for {', '.join(told)}.")
    return lines
