"""Numbers and tables of the sections on masked prediction, read from the runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd
from latin_tables import Findings
from wording import grid, number, spread, told

from placecode.analysis.stats import Interval
from placecode.cli.reporting import command_of
from placecode.experiments import study_of
from placecode.experiments.channels.brain_networks import TITLES
from placecode.experiments.channels.claims import SAME, error, of_second_half, over
from placecode.experiments.channels.known_networks import CENTRED
from placecode.experiments.reading import at_sigma, by_sigma, chance_in, done, measured
from placecode.runs.read import Run

Runs = dict[str, Run]


def percent(found: Findings, id: str) -> str:
    mean, low, high = (100 * each for each in found[id].found)
    return f"{mean:.0f}% ({low:.0f} to {high:.0f}%)"


def best_sigma(run: Run, condition: str) -> float:
    return float(str(by_sigma(run, error(run, condition)).mean(axis="columns").idxmin()))


def runs_table(runs: Runs, about: dict[str, str]) -> str:
    rows = []
    for name, words in about.items():
        run = runs[name]
        lost = int((run.members["state"] == "diverged").sum())
        members = f"{len(run.members)} of {run.config['total']}" + (f", {lost} diverged" if lost else "")
        rows.append((name, words, members, f"{run.config['fields']['steps']:,}", f"`{command_of(run, study_of(run))}`"))
    return grid(("run", "what", "members", "steps", "command"), rows)


def sigma_table(run: Run, measures: dict[tuple[str, str], str], p: tuple[str, str], conditions: Sequence[str]) -> str:
    """Structure after training and held-out errors by sigma, means over worlds; how often chance does as well; and the
    error beside the linear predictor's, world by world."""
    sigmas = sorted(done(run)["sigma"].unique())
    rows = []
    for sigma in sigmas:
        chance = at_sigma(run, measured(run, *p), sigma)
        cells = [number(over(run, at_sigma(run, measured(run, *each), sigma)).mean) for each in measures]
        errors = [number(over(run, at_sigma(run, error(run, each), sigma)).mean) for each in conditions]
        gaps = [told(over(run, less_linear(run, sigma, each)), digits=3) for each in conditions]
        rows.append((f"{sigma:g}", *cells, f"{(chance <= 0.05).sum()} of {len(chance)}", *errors, *gaps))
    shares = [f"{100 * float(each.split()[1]):g}% hidden" for each in conditions]
    header = ("sigma", *measures.values(), "seeds with p at most 0.05", *(f"error, {share}" for share in shares))
    return grid((*header, *(f"less linear, {share}" for share in shares)), rows)


def less_linear(run: Run, sigma: float, condition: str) -> pd.Series:
    return at_sigma(run, error(run, condition), sigma) - of_baseline(run, "linear", "mse", condition)


def of_baseline(run: Run, name: str, metric: str, condition: str) -> pd.Series:
    """What a baseline reaches, by the seeds of the run: that of the seed's world."""
    rows = run.baselines
    rows = rows[(rows["baseline"] == name) & (rows["metric"] == metric) & (rows["condition"] == condition)]
    known = rows[rows["split"].isin(["test", "analysis"])].set_index("world")["value"]
    seeds = sorted(run.members["seed"].unique())
    return pd.Series([known[seed % run.config["shape"]["worlds"]] for seed in seeds], index=seeds)


def baseline_table(run: Run, measures: dict[tuple[str, str], str], conditions: Sequence[str]) -> str:
    """All baselines, means over the worlds in which they found anything, and in how many of these chance does as well
    by the first measure in 5% of its draws at most; linear also in the few worlds of others."""
    rows = run.baselines
    few = rows[rows["baseline"].isin(["ridge", "trees"])]["world"].unique()
    tables = {name: rows[rows["baseline"] == name] for name in dict.fromkeys(rows["baseline"])}
    if 0 < len(few) < tables["linear"]["world"].nunique():
        own = tables["linear"]
        tables = {"linear": own, "linear, in the worlds of ridge and trees": own[own["world"].isin(few)], **tables}
    body = []
    for name, own in tables.items():
        cells = [_mean(own, metric, target) for metric, target in measures]
        chances = own[own["metric"] == f"{next(iter(measures))[0]}_p"]["value"].dropna()
        cells.append(f"{(chances <= 0.05).sum()} of {len(chances)}" if len(chances) else "")
        errors = [_mean(own[own["split"] == "test"], "mse", each) for each in conditions]
        asked = own["metric"].isin([metric for metric, _ in measures]) | (own["metric"] == "mse")
        body.append((name, *cells, *errors, str(own[asked & own["value"].notna()]["world"].nunique())))
    shares = [f"error, {100 * float(each.split()[1]):g}% hidden" for each in conditions]
    return grid(("baseline", *measures.values(), "worlds with p at most 0.05", *shares, "worlds"), body)


def _mean(rows: pd.DataFrame, metric: str, condition: str) -> str:
    values = rows[(rows["metric"] == metric) & (rows["condition"] == condition)]["value"].dropna()
    return number(values.mean()) if len(values) else ""


def paired(run: Run, condition: str, one: float, other: float) -> Interval:
    values = error(run, condition)
    return over(run, at_sigma(run, values, one) - at_sigma(run, values, other))


def best_of(run: Run, analysis: str) -> float:
    return float(str(by_sigma(run, measured(run, analysis, "labels")).mean(axis="columns").idxmax()))


def twins_table(
    sweep: Run,
    twin: Run,
    measures: dict[tuple[str, str], str],
    conditions: Sequence[str],
    field: str = "steps",
    words: str = "steps",
) -> str:
    """The sweep and a smaller twin that differs from it in one field, the same seeds of both."""
    rows = []
    for sigma in sorted(done(twin)["sigma"].unique()):
        for run in (sweep, twin):
            seeds = twin.members["seed"].unique()
            cells = [at_sigma(run, measured(run, *each), sigma)[seeds] for each in measures]
            cells += [at_sigma(run, error(run, each), sigma)[seeds] for each in conditions]
            setting = f"{run.config['fields'][field]:,}"
            rows.append((f"{sigma:g}", setting, *(spread(over(run, each)) for each in cells)))
    shares = [f"error, {100 * float(each.split()[1]):g}% hidden" for each in conditions]
    return grid(("sigma", words, *measures.values(), *shares), rows)


def learned(run: Run, sigma: float, step: int, condition: str = SAME) -> float:
    """The mean error of training at a step."""
    rows = run.metrics[(run.metrics["split"] == "train") & (run.metrics["condition"] == condition)]
    own = done(run).query("sigma == @sigma")["member"]
    return float(rows[(rows["step"] == step) & rows["member"].isin(own)]["value"].mean())


def on_the_way(run: Run, sigma: float) -> tuple[int, float]:
    """The step at which the mean held-out error over seeds was lowest, and that error."""
    rows = run.metrics[(run.metrics["split"] == "test") & (run.metrics["condition"] == SAME)]
    rows = rows[rows["member"].isin(done(run).query("sigma == @sigma")["member"])]
    means = rows.groupby("step")["value"].mean()
    return int(str(means.idxmin())), float(means.min())


def change(short: Run, long: Run, values: Callable[[Run], pd.Series], sigma: float) -> Interval:
    """Members that were trained for longer less those of the sweep, by seed."""
    return over(long, (at_sigma(long, values(long), sigma) - at_sigma(short, values(short), sigma)).dropna())


def mean_error(run: Run, baseline: str, condition: str) -> float:
    rows = run.baselines
    rows = rows[(rows["baseline"] == baseline) & (rows["condition"] == condition) & (rows["split"] == "test")]
    return float(rows["value"].mean())


def linear_is_best(run: Run, conditions: Sequence[str]) -> bool:
    """Whether no baseline predicts better than the linear one, beyond rounding, in the worlds of both."""
    rows = run.baselines
    rows = rows[(rows["split"] == "test") & (rows["metric"] == "mse") & rows["condition"].isin(conditions)]
    table = rows.pivot(index=["world", "condition"], columns="baseline", values="value")
    gaps = table.sub(table["linear"], axis="index").groupby("condition").mean()
    return bool((gaps > -0.001).all(axis=None))


def of_world(run: Run, baseline: str, condition: str, world: int) -> float:
    """The error of a baseline in one world."""
    rows = run.baselines
    rows = rows[(rows["baseline"] == baseline) & (rows["condition"] == condition) & (rows["split"] == "test")]
    return float(rows[rows["world"] == world]["value"].iloc[0])


def mean_of(run: Run, analysis: str, target: str, sigma: float, when: str = "end") -> float:
    return over(run, at_sigma(run, measured(run, analysis, target, when), sigma)).mean


def between(run: Run, analysis: str, one: float, other: float) -> Interval:
    values = measured(run, analysis, "labels")
    return over(run, at_sigma(run, values, one) - at_sigma(run, values, other))


def by_world(run: Run, values: pd.Series) -> pd.Series:
    """Values by seed as means by world."""
    return pd.Series(values.groupby(values.index.to_numpy() % run.config["shape"]["worlds"]).mean())


def gap_by_seed(run: Run) -> pd.Series:
    """Error at sigma 0.01 less that at 0.2, with as many hidden as in training, of the seeds that both long and short
    runs have."""
    values = error(run, SAME)
    return (at_sigma(run, values, 0.01) - at_sigma(run, values, 0.2))[list(range(5))]


def taken_less_random(run: Run, sigma: float) -> Interval:
    """A PE of other people, frozen, less frozen random vectors of sigma 0.5."""
    taken, random = (of_second_half(SAME, *kind, run) for kind in ((sigma, "taken", False), (0.5, "normal", False)))
    return over(run, taken - random)


def halves(run: Run, sigma: float) -> Interval:
    """How alike PEs of two halves of the people are, of other seeds."""
    rows = done(run)
    rows = rows[
        (rows["data"] == "second half") & rows["learn"] & (rows["start"] == "normal") & (rows["sigma"] == sigma)
    ]
    values = measured(run, "stability", "other data")
    return over(run, pd.Series(rows["member"].map(values).to_numpy(), index=rows["seed"]))


def model(run: Run) -> str:
    """The model and how it was trained, in a sentence."""
    fields = run.config["fields"]
    return (
        f"Width {fields['width']}, {fields['layers']} blocks, {fields['optimizer'].capitalize()} with a step size of "
        f"{fields['learning_rate']:g}, batches of {fields['batch']}, {fields['steps']:,} steps."
    )


def chance(run: Run, measure: tuple[str, str]) -> float:
    """What chance gives; of several data sets with as many channels, that of the first."""
    task = next(iter(run.config["task"].get("parts", {"": run.config["task"]}).values()))
    return chance_in(task)[measure]


def networks_table(run: Run) -> str:
    """Known networks in the PE by sigma, means over worlds, and in functional connectivity, as it is and centred."""
    header, columns = ["sigma"], []
    for target in run.config["task"]["partitions"]:
        for name, words in (("modularity", "Q"), ("segregation", "segregation"), ("neighbor_agreement", "nearest")):
            header.append(f"{TITLES[target]}: {words}")
            columns.append((name, target))
        header.append("seeds with p at most 0.05 (Q, maps as smooth)")
        columns.append(("modularity_smooth_p", target))
    rows = []
    for sigma in sorted(done(run)["sigma"].unique()):
        cells = []
        for name, target in columns:
            values = at_sigma(run, measured(run, name, target), sigma)
            is_chance = name.endswith("_p")
            cells.append(f"{(values <= 0.05).sum()} of {len(values)}" if is_chance else number(over(run, values).mean))
        rows.append((f"{sigma:g}", *cells))
    for baseline, words in (("fc", "functional connectivity"), (CENTRED, "the same, centred as PEs are")):
        there = run.baselines[run.baselines["baseline"] == baseline]
        cells = []
        for name, target in columns:
            values = there.loc[(there["metric"] == name) & (there["condition"] == target), "value"]
            is_chance = name.endswith("_p")
            cells.append(f"{(values <= 0.05).sum()} of {len(values)} splits" if is_chance else number(values.mean()))
        rows.append((words, *cells))
    return grid(header, rows)
