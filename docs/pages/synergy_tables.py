"""What became of models on channels that no pairwise measure can see: numbers and tables for their section."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pandas as pd
from scipy.stats import binom
from wording import grid, number

from placecode.experiments.channels.claims import NEIGHBOURS, error
from placecode.experiments.reading import done, measured
from placecode.runs.read import Run

CONDITION = "hidden 0.3"
NEAR_ENOUGH = 0.02
"""How far above the least possible error counts as having reached it, as in the claim about it."""


class Tests(NamedTuple):
    """Permutation tests of other methods against the true groups."""

    low: int
    """How many have p <= 0.05."""
    total: int

    @property
    def expected(self) -> float:
        """How many have p <= 0.05 on average if there is nothing to see."""
        return 0.05 * self.total

    @property
    def at_chance(self) -> bool:
        """Whether independent tests of nothing have as many low p-values in at least 5% of cases."""
        return bool(self.total and binom.sf(self.low - 1, self.total, 0.05) >= 0.05)


def tests_of_others(run: Run, measures: Iterable[tuple[str, str]]) -> Tests:
    """The tests of all methods without a model, in every world, on each (analysis, target)."""
    rows = run.baselines
    rows = rows[rows["split"] == "analysis"]
    wanted = {(f"{metric}_p", target) for metric, target in measures}
    values = rows["value"][[pair in wanted for pair in zip(rows["metric"], rows["condition"], strict=True)]].dropna()
    return Tests(int((values <= 0.05).sum()), len(values))


class Tally(NamedTuple):
    """What became of some models."""

    ready: int
    """How many are at the least possible error in the end."""
    total: int
    """How many there are."""
    ever: int
    """How many were there at any evaluation."""
    step: int
    """When they first were there: the median of those that ever were, 0 if none was."""
    error: float
    """Mean held-out error in the end."""
    near: float
    """Mean share of channels whose nearest one is of the same group."""
    fewest: float
    """The lowest such share of those at the least error."""

    def __str__(self) -> str:
        return f"{self.ready} of {self.total}"


def models(run: Run) -> pd.DataFrame:
    """Every finished model with its channels, samples, error, neighbours, and when it reached the least error."""
    told, fields = run.config["task"], run.config["fields"]
    parts = told.get("parts", {"": told})
    rows = done(run)
    rows = rows.assign(
        least=rows["data"].map({data: part["best_mse"][CONDITION] for data, part in parts.items()}),
        channels=rows["data"].map({data: len(part["labels"]) for data, part in parts.items()}),
        samples=rows["data"].map({data: part["counts"]["train"] for data, part in parts.items()}),
        steps=fields["steps"],
        error=rows["member"].map(error(run, CONDITION)),
        near=rows["member"].map(measured(run, *NEIGHBOURS)),
    )
    curves = run.metrics[(run.metrics["split"] == "test") & (run.metrics["condition"] == CONDITION)]
    curves = curves.merge(rows[["member", "least"]], on="member")
    there = curves[curves["value"] < curves["least"] + NEAR_ENOUGH].groupby("member")["step"].min()
    return rows.assign(step=rows["member"].map(there), ready=rows["error"] < rows["least"] + NEAR_ENOUGH)


def tally(rows: pd.DataFrame) -> Tally:
    step = rows["step"].median()
    return Tally(
        *(int(rows["ready"].sum()), len(rows), int(rows["step"].notna().sum()), 0 if pd.isna(step) else int(step)),
        *(float(rows["error"].mean()), float(rows["near"].mean()), float(rows.loc[rows["ready"], "near"].min())),
    )


def at(run: Run, sigma: float) -> Tally:
    return tally(models(run).query("sigma == @sigma"))


def by(rows: pd.DataFrame, *columns: str) -> dict[tuple[float, ...], Tally]:
    """Tallies by the values of some columns, in their order."""
    return {tuple(float(str(each)) for each in key): tally(own) for key, own in rows.groupby(list(columns))}


def tally_table(words: Sequence[str], tallies: dict[tuple[float, ...], Tally]) -> str:
    """By what was varied, in these words: how many reached the least error, when, and what their PEs show."""
    rows = [(*(f"{each:,.10g}" for each in key), *cells(found)) for key, found in tallies.items()]
    return grid((*words, *HEADER), rows)


HEADER = ("at the least error", "by step", "error, 30% hidden", "nearest channel in the same group")


def tried_table(runs: dict[str, Run], tried: Sequence[tuple[str, str, str]]) -> str:
    """What was tried: in words, in which run, and the query that picks its models."""
    rows = []
    for words, name, which in tried:
        rows.append((words, *cells(tally(models(runs[name]).query(which)))))
    return grid(("", *HEADER), rows)


def cells(found: Tally) -> tuple[str, ...]:
    """What a table says of some models, as in `HEADER`."""
    return (str(found), f"{found.step:,}" if found.step else "", number(found.error), number(found.near))
