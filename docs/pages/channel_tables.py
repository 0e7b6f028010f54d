"""Numbers and tables that the sections of docs/reproduction.md on channels share, read from the runs."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from latin_tables import Runs, counted_members
from wording import grid, number, signed, spread

from placecode.analysis.stats import Interval
from placecode.cli.reporting import command_of
from placecode.experiments import study_of
from placecode.experiments.channels.brain_networks import TITLES
from placecode.experiments.channels.claims import error, over
from placecode.experiments.channels.known_networks import CENTRED
from placecode.experiments.reading import at_sigma, by_sigma, chance_in, done, measured
from placecode.runs.read import Run

Measure = tuple[str, str]
"""An analysis and its target."""


def at(run: Run, values: pd.Series, sigma: float) -> Interval:
    """Values by member at one sigma."""
    return over(run, at_sigma(run, values, sigma))


def gap_by_seed(run: Run, values: pd.Series, one: float, other: float) -> pd.Series:
    """Values by member at one sigma minus those at another, by seed."""
    return at_sigma(run, values, one) - at_sigma(run, values, other)


def gap(run: Run, values: pd.Series, one: float, other: float) -> Interval:
    """The mean of `gap_by_seed`."""
    return over(run, gap_by_seed(run, values, one, other))


def change(short: Run, long: Run, before: pd.Series, after: pd.Series, sigma: float) -> Interval:
    """Values of a second run minus those of the sweep, at one sigma, by seed."""
    return over(long, (at_sigma(long, after, sigma) - at_sigma(short, before, sigma)).dropna())


def by_seed(rows: pd.DataFrame, values: pd.Series) -> pd.Series:
    """Values by member as values by the seeds of these members."""
    return pd.Series(rows["member"].map(values).to_numpy(), index=rows["seed"])


def best_sigma(run: Run, condition: str) -> float:
    """The sigma with the lowest mean error."""
    return float(str(by_sigma(run, error(run, condition)).mean(axis="columns").idxmin()))


def minus_linear(run: Run, sigma: float, condition: str) -> pd.Series:
    """Error at a sigma minus that of the linear predictor, by seed."""
    return at_sigma(run, error(run, condition), sigma) - of_baseline(run, "linear", "mse", condition)


def baseline_rows(run: Run, name: str, metric: str, condition: str) -> pd.DataFrame:
    """What is known of a baseline on held-out data, or of its structure."""
    rows = run.baselines
    rows = rows[(rows["baseline"] == name) & (rows["metric"] == metric) & (rows["condition"] == condition)]
    return pd.DataFrame(rows[rows["split"].isin(["test", "analysis"])])


def of_baseline(run: Run, name: str, metric: str, condition: str) -> pd.Series:
    """The value of a baseline by the seeds of the run: that of the seed's world."""
    known = baseline_rows(run, name, metric, condition).set_index("world")["value"]
    seeds = sorted(run.members["seed"].unique())
    return pd.Series([known[seed % run.config["shape"]["worlds"]] for seed in seeds], index=seeds)


def baseline_errors(run: Run, name: str, condition: str) -> pd.Series:
    """The held-out error of a baseline by world."""
    return pd.Series(baseline_rows(run, name, "mse", condition).set_index("world")["value"])


def chance(run: Run, measure: Measure) -> float:
    """The value of a measure by chance; of several data sets with as many channels, that of the first."""
    task = next(iter(run.config["task"].get("parts", {"": run.config["task"]}).values()))
    return chance_in(task)[measure]


def counted(p_values: pd.Series, unit: str = "") -> str:
    """How many p-values are at most 0.05."""
    return f"{(p_values <= 0.05).sum()} of {len(p_values)}{unit}"


def hidden(condition: str) -> str:
    """The share in the name of a condition, as in headers of tables."""
    return f"{100 * float(condition.split()[1]):g}% hidden"


def runs_table(runs: Runs, about: dict[str, str]) -> str:
    rows = []
    for name, words in about.items():
        run = runs[name]
        steps, command = f"{run.config['fields']['steps']:,}", f"`{command_of(run, study_of(run))}`"
        rows.append((name, words, counted_members(run), steps, command))
    return grid(("run", "what", "members", "steps", "command"), rows)


def sigma_table(run: Run, measures: dict[Measure, str], p: Measure, conditions: Sequence[str]) -> str:
    """By sigma, means over worlds: structure after training, in how many seeds it is significant, held-out errors, and
    the differences from the linear predictor's errors."""
    rows = []
    for sigma in sorted(done(run)["sigma"].unique()):
        cells = [number(at(run, measured(run, *measure), sigma).mean) for measure in measures]
        cells.append(counted(at_sigma(run, measured(run, *p), sigma)))
        cells += [number(at(run, error(run, condition), sigma).mean) for condition in conditions]
        cells += [signed(over(run, minus_linear(run, sigma, condition)), 3) for condition in conditions]
        rows.append((f"{sigma:g}", *cells))
    shares = [hidden(condition) for condition in conditions]
    header = ("sigma", *measures.values(), "seeds with p at most 0.05", *(f"error, {share}" for share in shares))
    return grid((*header, *(f"minus linear, {share}" for share in shares)), rows)


def baseline_table(run: Run, measures: dict[Measure, str], conditions: Sequence[str]) -> str:
    """All baselines, means over the worlds in which they have a value, and in how many of these the first measure is
    significant; the linear predictor also in the worlds of slower baselines."""
    rows = run.baselines
    few = rows[rows["baseline"].isin(["ridge", "trees"])]["world"].unique()
    tables = {name: rows[rows["baseline"] == name] for name in dict.fromkeys(rows["baseline"])}
    if 0 < len(few) < tables["linear"]["world"].nunique():
        own = tables["linear"]
        tables = {"linear": own, "linear, in the worlds of ridge and trees": own[own["world"].isin(few)], **tables}
    body = []
    for name, own in tables.items():
        cells = [_mean(own, *measure) for measure in measures]
        p_values = own[own["metric"] == f"{next(iter(measures))[0]}_p"]["value"].dropna()
        cells.append(counted(p_values) if len(p_values) else "")
        cells += [_mean(own[own["split"] == "test"], "mse", condition) for condition in conditions]
        shown = own["metric"].isin([metric for metric, _ in measures]) | (own["metric"] == "mse")
        body.append((name, *cells, str(own[shown & own["value"].notna()]["world"].nunique())))
    errors = [f"error, {hidden(condition)}" for condition in conditions]
    return grid(("baseline", *measures.values(), "worlds with p at most 0.05", *errors, "worlds"), body)


def _mean(rows: pd.DataFrame, metric: str, condition: str) -> str:
    values = rows[(rows["metric"] == metric) & (rows["condition"] == condition)]["value"].dropna()
    return number(values.mean()) if len(values) else ""


def twins_table(
    sweep: Run, twin: Run, measures: dict[Measure, str], conditions: Sequence[str], field: str, words: str
) -> str:
    """The sweep and a smaller run that differs from it in one field, the same seeds of both."""
    rows, seeds = [], twin.members["seed"].unique()
    for sigma in sorted(done(twin)["sigma"].unique()):
        for run in (sweep, twin):
            cells = [at_sigma(run, measured(run, *measure), sigma)[seeds] for measure in measures]
            cells += [at_sigma(run, error(run, condition), sigma)[seeds] for condition in conditions]
            setting = f"{run.config['fields'][field]:,}"
            rows.append((f"{sigma:g}", setting, *(spread(over(run, values)) for values in cells)))
    errors = [f"error, {hidden(condition)}" for condition in conditions]
    return grid(("sigma", words, *measures.values(), *errors), rows)


def networks_table(run: Run) -> str:
    """Known networks in the PE by sigma, means over worlds, and in functional connectivity, as it is and centred."""
    names = {"modularity": "Q", "segregation": "segregation", "neighbor_agreement": "nearest"}
    columns = [
        (name, target) for target in run.config["task"]["partitions"] for name in (*names, "modularity_smooth_p")
    ]
    p = "seeds with p at most 0.05 (Q, maps as smooth)"
    header = [f"{TITLES[target]}: {names[name]}" if name in names else p for name, target in columns]
    rows = []
    for sigma in sorted(done(run)["sigma"].unique()):
        by_column = [at_sigma(run, measured(run, *column), sigma) for column in columns]
        cells = [
            counted(values) if name.endswith("_p") else number(over(run, values).mean)
            for (name, _), values in zip(columns, by_column, strict=True)
        ]
        rows.append((f"{sigma:g}", *cells))
    for baseline, words in (("fc", "functional connectivity"), (CENTRED, "the same, centred as PEs are")):
        there, cells = run.baselines[run.baselines["baseline"] == baseline], []
        for name, target in columns:
            values = there.loc[(there["metric"] == name) & (there["condition"] == target), "value"]
            cells.append(counted(values, " splits") if name.endswith("_p") else number(values.mean()))
        rows.append((words, *cells))
    return grid(("sigma", *header), rows)
