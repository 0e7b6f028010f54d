"""Compute the numbers of the sections of docs/reproduction.md on groups that correlations cannot detect.

The least error is the lowest that any predictor of hidden channels can have. A right neighbour of a channel is a
nearest channel, by their PEs, in the same group. For other terms see tables.py.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from scipy.stats import binom
from tables import (
    Findings,
    MeasureKey,
    Numbers,
    Runs,
    baseline_table,
    chance,
    percent_hidden,
)
from templating import columns_table, directions, grid, number, plain

from placecode.experiments.channels.claims import NEIGHBOURS, error
from placecode.experiments.claims import HOLDS
from placecode.experiments.reading import (
    analysis_values,
    at_sigma,
    baseline,
    baseline_by_seed,
    chance_levels,
    finished_members,
    interval_at_sigma,
    interval_over_worlds,
    sigma_difference,
)
from placecode.runs.read import Run

CONDITION = "hidden 0.3"
"""The test condition in which as many channels are hidden as in training."""
NEAR_ENOUGH = 0.02
"""A model has reached the least error if its error is less than this above it, as in the claim about it."""
PAIRWISE = ("blind-fc", "blind-mutual-information", "blind-partial-correlation")
"""Ids of the claims that methods which compare channels in pairs do not detect the groups."""
STRUCTURE: dict[MeasureKey, str] = {
    NEIGHBOURS: "nearest channel in the same group",
    ("modularity", "labels"): "signed modularity Q",
    ("ari", "labels"): "ARI of k-means",
}
"""Measures of structure, with their column headers. A method is at chance only if it is so on all of these."""
HEADER = ("at the least error", "by step", "error, 30% hidden", "nearest channel in the same group")
"""Column headers of the cells of a `Tally`."""
TRIED = tomllib.loads(Path(__file__).with_name("reproduction.toml").read_text())["tried"]
"""What else was tried with 60 channels: a description, the run, and a query for its models, from reproduction.toml."""


class Tests(NamedTuple):
    """Numbers of permutation tests of other methods against the true groups: `low` of `total` tests have p <= 0.05."""

    low: int
    total: int

    @property
    def expected(self) -> float:
        """Expected number of tests with p <= 0.05 if there is no structure."""
        return 0.05 * self.total

    @property
    def at_chance(self) -> bool:
        """Whether independent tests without structure would have so many low p-values in at least 5% of cases."""
        return bool(self.total and binom.sf(self.low - 1, self.total, 0.05) >= 0.05)


def tests_of_others(run: Run, measures: Iterable[MeasureKey]) -> Tests:
    """Count the permutation tests of all baselines on these measures (analysis, target), in all worlds."""
    rows = run.baselines[run.baselines["split"] == "analysis"].set_index(["metric", "condition"])["value"]
    p_values = rows[rows.index.isin([(f"{analysis}_p", target) for analysis, target in measures])].dropna()
    return Tests(int((p_values <= 0.05).sum()), len(p_values))


class Tally(NamedTuple):
    """How many of a set of models reached the least error, and when.

    `ready` of `total` models have the least error at the end of training. `ever` had it at some evaluation, the first
    time at `step` (the median over these models; 0 if there are none). `error` is the mean error at the end. `near` is
    the mean share of channels with a right neighbour; `fewest` is the lowest such share among the `ready` models.
    """

    ready: int
    total: int
    ever: int
    step: int
    error: float
    near: float
    fewest: float

    def __str__(self) -> str:
        return f"{self.ready} of {self.total}"

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of a table row with the columns `HEADER`."""
        return (str(self), f"{self.step:,}" if self.step else "", number(self.error), number(self.near))


def models(run: Run) -> pd.DataFrame:
    """Return the finished members with their channels, samples, test error and share of right neighbours (`near`).

    `least` is the least error, `step` the first evaluation at which a model had it (NaN: never), and `ready` whether it
    has it at the end.
    """
    parts = run.config["task"].get("parts", {"": run.config["task"]})
    rows = finished_members(run)
    rows = rows.assign(
        least=rows["data"].map({data: part["best_mse"][CONDITION] for data, part in parts.items()}),
        channels=rows["data"].map({data: len(part["labels"]) for data, part in parts.items()}),
        samples=rows["data"].map({data: part["counts"]["train"] for data, part in parts.items()}),
        error=rows["member"].map(error(run, CONDITION)),
        near=rows["member"].map(analysis_values(run, *NEIGHBOURS)),
    )
    curves = run.metrics[(run.metrics["split"] == "test") & (run.metrics["condition"] == CONDITION)]
    curves = curves.merge(rows[["member", "least"]], on="member")
    first = curves[curves["value"] < curves["least"] + NEAR_ENOUGH].groupby("member")["step"].min()
    return rows.assign(step=rows["member"].map(first), ready=rows["error"] < rows["least"] + NEAR_ENOUGH)


def tally(rows: pd.DataFrame) -> Tally:
    """Return the tally of the models in a table, some rows of `models`."""
    step = rows["step"].median()
    return Tally(
        ready=int(rows["ready"].sum()),
        total=len(rows),
        ever=int(rows["step"].notna().sum()),
        step=0 if pd.isna(step) else int(step),
        error=float(rows["error"].mean()),
        near=float(rows["near"].mean()),
        fewest=float(rows.loc[rows["ready"], "near"].min()),
    )


def tally_by(rows: pd.DataFrame, *columns: str) -> dict[tuple[Any, ...], Tally]:
    """Return the tally of each set of models with equal values in these columns, sorted by the values."""
    return {tuple(key): tally(group) for key, group in rows.groupby(list(columns))}


def tally_table(words: Sequence[str], tallies: dict[tuple[Any, ...], Tally]) -> str:
    """Return tallies as a Markdown table; `words` are the headers of the columns that were varied."""
    keys = [[value if isinstance(value, str) else f"{value:,.10g}" for value in key] for key in tallies]
    rows = [(*key, *tallied.cells) for key, tallied in zip(keys, tallies.values(), strict=True)]
    return grid((*words, *HEADER), rows)


def synergy(runs: Runs, findings: dict[str, Findings]) -> Numbers:
    """Compute the numbers of the section on the sweep over sigma, with small and with large batches."""
    run, large = runs["synergy-sigma"], runs["synergy-sigma-512"]
    tallies, large_tallies = (
        {sigma: counts for (sigma,), counts in tally_by(models(sweep), "sigma").items()} for sweep in (run, large)
    )
    least = run.config["task"]["best_mse"]
    moved = analysis_values(large, "moved_relative", "start")
    columns = {"sigma": [f"{sigma:g}" for sigma in tallies]}
    values = {words: analysis_values(run, *measure) for measure, words in STRUCTURE.items()}
    values |= {f"error, {percent_hidden(run)[condition]}": error(run, condition) for condition in least}
    columns |= {
        words: [plain(interval_at_sigma(run, column, sigma), 3) for sigma in tallies]
        for words, column in values.items()
    }
    columns["at the least error"] = [str(counts) for counts in tallies.values()]
    columns["by step (median of those)"] = [counts.cells[1] for counts in tallies.values()]
    return {
        "least": list(least.values()),
        "chance": chance(run, NEIGHBOURS),
        "table": columns_table(columns),
        "baselines": baseline_table(run, STRUCTURE, list(least)),
        "tallies": tallies,
        "error_gap": {other: sigma_difference(run, error(run, CONDITION), 0.2, other) for other in (2.0, 0.3)},
        "still_falling": still_falling(run, 0.01),
        "pairwise_blind": directions(findings["synergy-sigma"], HOLDS, *PAIRWISE),
        "tests": tests_of_others(run, STRUCTURE),
        "spectral": interval_over_worlds(run, baseline_by_seed(run, "spectral", "ari", "labels")),
        "trees": float(baseline(run, "trees", "mse", CONDITION).mean()),
        "large_table": tally_table(("sigma",), tally_by(models(large), "sigma")),
        "large": large_tallies,
        "lost": {sigma: lost_again(large, sigma) for sigma in (0.1, 0.2)},
        "moved": {sigma: at_sigma(large, moved, sigma).mean() for sigma in (0.3, 2.0)},
    }


def lost_again(run: Run, sigma: float) -> Numbers:
    """Return the last step at which a model had the least error, and its error and right neighbours (share) at the end.

    The model is the only one of this sigma that reached the least error and lost it again.
    """
    rows = models(run).query("sigma == @sigma and not ready and step == step")
    assert len(rows) == 1
    model = rows.iloc[0]
    curve = run.metrics[(run.metrics["member"] == model["member"]) & (run.metrics["condition"] == CONDITION)]
    at_least = curve[(curve["split"] == "test") & (curve["value"] < model["least"] + NEAR_ENOUGH)]
    return {"step": int(at_least["step"].max()), "error": float(model["error"]), "near": float(model["near"])}


def still_falling(run: Run, sigma: float) -> int:
    """Count the models of a sigma that are above the least error and still improved by 0.02 at the last evaluation."""
    members = models(run).query("sigma == @sigma and not ready")["member"]
    rows = run.metrics[(run.metrics["split"] == "test") & (run.metrics["condition"] == CONDITION)]
    curves = rows[rows["member"].isin(members)].pivot(index="member", columns="step", values="value")
    return int((curves.iloc[:, -2] - curves.iloc[:, -1] >= 0.02).sum())


def synergy_size(runs: Runs, findings: dict[str, Findings]) -> Numbers:
    """Compute the numbers of the section on 15 to 120 channels and 10,000 to 250,000 samples."""
    run = runs["synergy-size"]
    rows, fields = models(run), run.config["fields"]
    assert fields["batches"] == [512] and fields["rates"] == [1e-3] and fields["widths"] == [64]
    tallies, sizes = (
        tally_by(rows, "channels", "samples"),
        {n: counts for (n,), counts in tally_by(rows, "channels").items()},
    )
    steps = [counts.step for counts in sizes.values()][:3]
    smaller = rows.query("channels < 120").groupby("channels")
    all_steps = [int(group["step"].fillna(math.inf).median()) for _, group in smaller]  # never reached: later than all
    ratios, all_ratios = ([later / sooner for sooner, later in pairwise(by_size)] for by_size in (steps, all_steps))
    return {
        "table": tally_table(("channels", "samples"), tallies),
        "tallies": tallies,
        "sizes": sizes,
        "least": list(rows.groupby("channels")["least"].first()),
        "chances": {
            len(part["labels"]): chance_levels(part)[NEIGHBOURS] for part in run.config["task"]["parts"].values()
        },
        "steps": steps,
        "all_steps": all_steps,
        "ratios": ratios,
        "all_ratios": all_ratios,
        "steps_for_120": round(steps[2] * ratios[1] / 1000) * 1000,
    }


def synergy_60(runs: Runs, findings: dict[str, Findings]) -> Numbers:
    """Compute the numbers of the section on 60 channels: batch, step size, samples, and what else was tried."""
    run = runs["synergy-size-60"]
    tallies = tally_by(models(run), "batch", "learning_rate", "samples", "sigma")
    tried = {(entry["what"],): tally(models(runs[entry["run"]]).query(entry["models"])) for entry in TRIED}
    return {
        "tallies": tallies,
        "table": tally_table(("batch", "step size", "samples", "sigma"), tallies),
        "least": float(models(run)["least"].iloc[0]),
        "chance": chance(run, NEIGHBOURS),
        "small_batch_learns_nothing": all(
            tallies[128, 1e-3, samples, sigma].error > 0.99 for sigma in (0.1, 0.2) for samples in (50_000, 250_000)
        ),
        "ready_by_samples": [
            (tallies[512, rate, 50_000, sigma].ready, tallies[512, rate, 250_000, sigma].ready)
            for sigma in (0.1, 0.2)
            for rate in (3e-4, 1e-3)
        ],
        "tried_table": tally_table(("",), tried),
        "nothing_helps": all(counts.ready == 0 and counts.error > 0.98 for counts in tried.values()),
    }
