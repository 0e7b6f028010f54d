"""Make the tables of docs/reproduction.md and docs/beyond.md from the runs, and numbers that several sections share.

Tables are Markdown text. Values "by member" are indexed by the number of the member, values "by seed" by the seed. A
measure is a pair (analysis, target) in the run's table of analyses. A finding holds the verdicts of a run on one claim.
A baseline is another method on the same data, such as a linear predictor of hidden channels. The encoding 2d-fixed has
sinusoids of the true row and column. A world is the data of one seed or, on brains, one split of the people. For an
interval over worlds, the seeds of a world are averaged first.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from templating import bounds, columns_table, grid, number, plain, signed

from placecode.analysis.stats import Interval, interval
from placecode.cli.reporting import command_of
from placecode.experiments import correlates, experiment_of
from placecode.experiments.channels.brain_networks import PARTITION_NAMES
from placecode.experiments.channels.claims import SHIFTED_CONDITION, TRAINED_CONDITION, error
from placecode.experiments.channels.known_networks import CENTRED_FC
from placecode.experiments.claims import Claim, Finding, direction_text, number_text
from placecode.experiments.measures import MeasureKey
from placecode.experiments.reading import (
    accuracy,
    analysis_gain,
    analysis_values,
    at_sigma,
    baseline,
    baseline_by_seed,
    by_sigma,
    chance_levels,
    encoding_accuracy,
    finished_members,
    interval_at_sigma,
    interval_over_worlds,
    select,
    sigma_difference,
)
from placecode.experiments.specs import with_encoding_names
from placecode.reports.html.tables import source_text, statement_text
from placecode.runs.read import Run

Runs = dict[str, Run]
Findings = dict[str, Finding]
Numbers = dict[str, Any]
"""Values by the names that a template uses. `Runs` are by name, and `Findings` by the id of the claim."""
CONDITIONS = (TRAINED_CONDITION, SHIFTED_CONDITION)
"""Test conditions of networks and brains: half of the channels hidden, as in training, and 90%."""
OVER_SIGMAS, BEFORE, AFTER, BEYOND = correlates.CORRELATION_KINDS
"""Names of the kinds of rank correlation with accuracy: over the sigmas, and at a fixed sigma (see `correlates`)."""
OF_ATTENTION = ("attention_cosine", "attention_cosine_each", "attention_correlation")
"""Analyses of attention. All other measures that are correlated with accuracy are measures of the PE."""


def findings_of(run: Run) -> Findings:
    """Check a run against all claims of its experiment, and return the findings by the ids of the claims."""
    return {claim.id: claim.check(run) for claim in experiment_of(run).claims}


def provenance(run: Run) -> dict[str, str]:
    """Return how a run was made, as cells of a table by column. DIR stands for the path of the puzzles."""
    diverged, fields = int((run.members["state"] == "diverged").sum()), run.config["fields"]
    puzzles = fields.get("puzzles")
    return {
        "name": run.path.name,
        "members": f"{len(run.members)} of {run.config['total']}" + (f", {diverged} diverged" if diverged else ""),
        "length": f"{fields['epochs' if 'epochs' in fields else 'steps']:,}",
        "log-softmax": "two" if run.config["task"].get("log_softmax") == 2 else "one",
        "puzzles": "published" if puzzles else "our own",
        "command": f"`{command_of(run, experiment_of(run)).replace(f'--puzzles {puzzles}', '--puzzles DIR')}`",
    }


def runs_table(runs: Runs, about: dict[str, str], length: str, more: Sequence[str] = ()) -> str:
    """Return a table of runs. `about` holds a description of each run, by the name of the run.

    `length` is the column header of the length of training. `more` are further entries of `provenance` to show.
    """
    rows = []
    for name, words in about.items():
        cells = provenance(runs[name])
        rows.append((name, words, *(cells[key] for key in ("members", "length", *more, "command"))))
    return grid(("run", "what", "members", length, *more, "command"), rows)


# ---------------------------------------------------------------------------------------------------- Latin squares


def margin(claim: Claim) -> str:
    """Return the condition that the whole interval of an effect must meet for the claim to hold, such as "> 0.1"."""
    return f"{ {'above': '>', 'below': '<', 'within': 'within'}[claim.way] } {claim.margin:g}"


def claims_table(findings: Findings) -> str:
    """Return a table of claims with their verdicts, without those that could not be measured in the run."""
    tested = [finding for finding in findings.values() if math.isfinite(finding.effect.mean)]
    claims, records = [finding.claim for finding in tested], [finding.record() for finding in tested]
    columns = {
        "claim": [claim.id for claim in claims],
        "statement": map(statement_text, records),
        "effect": [number(finding.effect.mean) for finding in tested],
        "95% interval": [bounds(finding.effect) for finding in tested],
        "margin": map(margin, claims),
        "direction": map(direction_text, tested),
        "number (published)": map(number_text, tested),
        "label": map(source_text, records),
    }
    return columns_table(columns)


def noise_gaps(run: Run) -> dict[str, dict[float, Interval]]:
    """Return accuracy at sigma 0.2 minus that at larger sigmas, by puzzles and larger sigma, then by level of noise."""
    levels = [0.0, *run.config["fields"]["noise"]]
    return {
        f"{words}, 0.2 minus {other:g}": {
            level: sigma_difference(run, analysis_values(run, "noise_accuracy", f"{split} {level:g}"), 0.2, other)
            for level in levels
        }
        for split, words in (("train", "training puzzles"), ("ood", "held-out puzzles"))
        for other in (1.0, 2.0)
    }


def correlation_table(table: pd.DataFrame) -> str:
    """Return the table of `correlations` in Markdown: measures by kinds of correlation; significant values are bold."""
    texts = [signed(Interval(*row)) for row in table[["value", "low", "high"]].itertuples(index=False)]
    bold = (table["adjusted"] < 0.05) & (table["question"] != OVER_SIGMAS)
    cells = pd.Series(texts, index=table.index).where(table["value"].notna(), "")
    cells = cells.mask(bold & (cells != ""), "**" + cells + "**")
    wide = table.assign(cell=cells).pivot(index="measure", columns="question", values="cell")
    wide = wide.loc[table["measure"].unique(), list(correlates.CORRELATION_KINDS)]
    return grid(("measure", *wide.columns), wide.itertuples())


def movement_table(run: Run) -> str:
    """Return a table by sigma of how much training changed the PE and measures of it (after minus before training)."""
    measures = {
        "Procrustes distance, scale-free": ("procrustes", "2d-fixed"),
        "z against permuted tokens, row and column": ("procrustes_z", "one-hot"),
        "RSA with same row or column": ("rsa", "relation"),
        "row decoded": ("probe", "row"),
        "nearest token in same row or column": ("neighbor_agreement", "relation"),
    }
    sigmas = (0.1, 0.2, 0.3, 0.5, 1.0, 2.0)
    columns = {
        "sigma": [f"{sigma:g}" for sigma in sigmas],
        "norm of the change / norm of the PE": [number(relative_change(run, sigma)) for sigma in sigmas],
    }
    for words, measure in measures.items():
        gain = analysis_gain(run, *measure)
        columns[words] = [signed(interval(at_sigma(run, gain, sigma)), digits=3) for sigma in sigmas]
    return columns_table(columns)


def relative_change(run: Run, sigma: float) -> float:
    """Return how far training moved the PEs of a sigma, relative to their initial norm: the mean over seeds."""
    return float(at_sigma(run, analysis_values(run, "moved_relative", "start"), sigma).mean())


def gap_closed(run: Run, sigma: float) -> float:
    """Return the share of the gap in RSA between the initial PEs of a sigma and 2d-fixed that training closed."""
    start, end = (
        at_sigma(run, analysis_values(run, "rsa", "relation", when), sigma).mean() for when in ("start", "end")
    )
    fixed = select(run, analysis_values(run, "rsa", "relation"), name="2d-fixed", dropout=0.0).mean()
    return float((end - start) / (fixed - start))


@functools.cache
def correlations(folder: Path) -> pd.DataFrame:
    """Return the table of `correlates.correlations`, with a column that says which measures are of attention."""
    table = correlates.correlations(Run(folder))
    assert table is not None
    return table.assign(of_attention=[correlates.MORE_MEASURES[name][0] in OF_ATTENTION for name in table["measure"]])


def correlation_text(run: Run, measure: str, question: str = AFTER) -> str:
    """Return one kind of rank correlation of a measure with accuracy as text: value, interval and adjusted p."""
    table = correlations(run.path)
    row = table[(table["measure"] == measure) & (table["question"] == question)].iloc[0]
    return f"{row['value']:+.2f} ({row['low']:+.2f} to {row['high']:+.2f}, adjusted p {row['adjusted']:.3f})"


def significant(run: Run, question: str, of_attention: bool) -> set[str]:
    """Return the measures of attention, or else of the PE, whose correlation with accuracy has an adjusted p < 0.05."""
    table = correlations(run.path)
    rows = table[(table["question"] == question) & (table["adjusted"] < 0.05)]
    return set(rows[rows["of_attention"] == of_attention]["measure"])


def fixed_table(runs: dict[str, Run]) -> str:
    """Return a table of accuracies by run: 2d-fixed without and with dropout, and learned at sigma 0.2 without."""
    rows = []
    for name, run in runs.items():
        without, with_dropout = (encoding_accuracy(run, "sinusoid:axes=2", rate) for rate in (0.0, 0.1))
        learned = encoding_accuracy(run, "learned:sigma=0.2", 0.0)
        means = (number(values.mean()) for values in (without, with_dropout, learned))
        gaps = (with_dropout - without, learned - without, learned - with_dropout)
        rows.append((name, *means, *(signed(interval(gap), digits=3) for gap in gaps)))
    header = ("run", "2d-fixed without", "with", "learned 0.2 without", "effect of dropout on 2d-fixed")
    return grid((*header, "learned minus 2d-fixed, no dropout", "as published: dropout in 2d-fixed alone"), rows)


def dropout_table(run: Run) -> str:
    """Return a table of the accuracy of every encoding without and with dropout; the most accurate first."""
    ood, train, dropout_off = (
        accuracy(run),
        accuracy(run, "train"),
        analysis_values(run, "accuracy_without_dropout", "ood"),
    )
    rows = []
    for name in dict.fromkeys(with_encoding_names(finished_members(run))["name"]):
        without, with_dropout = (select(run, ood, name=name, dropout=rate) for rate in (0.0, 0.1))
        means = (plain(interval(values), 3) for values in (without, with_dropout))
        more = (number(select(run, values, name=name, dropout=0.1).mean()) for values in (dropout_off, train))
        rows.append((without.mean(), (name, *means, signed(interval(with_dropout - without), digits=3), *more)))
    header = ("encoding", "without", "with", "difference", "with, dropout off at evaluation", "training, with")
    return grid(header, [cells for _, cells in sorted(rows, key=lambda row: -row[0])])


# --------------------------------------------------------------------------------------------------------- channels


def gap_by_seed(run: Run, values: pd.Series, sigma: float, reference: float) -> pd.Series:
    """Return the values at a sigma minus those at the sigma `reference`, by seed. `values` are by member."""
    return at_sigma(run, values, sigma) - at_sigma(run, values, reference)


def change(short: Run, long: Run, before: pd.Series, after: pd.Series, sigma: float) -> Interval:
    """Return the mean change of values at a sigma from the run `short` to `long`, over the seeds of both, with its
    interval over worlds. `before` and `after` are the values by member in the two runs."""
    return interval_over_worlds(long, (at_sigma(long, after, sigma) - at_sigma(short, before, sigma)).dropna())


def best_sigma(run: Run, condition: str) -> float:
    """Return the sigma with the lowest mean error in a test condition."""
    return float(str(by_sigma(run, error(run, condition)).mean(axis="columns").idxmin()))


def minus_linear(run: Run, sigma: float, condition: str) -> pd.Series:
    """Return the error at a sigma minus that of the linear predictor in a test condition, by seed."""
    return at_sigma(run, error(run, condition), sigma) - baseline_by_seed(run, "linear", "mse", condition)


def chance(run: Run, measure: MeasureKey) -> float:
    """Return the chance level of a measure. Several data sets with equally many channels share that of the first."""
    task = next(iter(run.config["task"].get("parts", {"": run.config["task"]}).values()))
    return chance_levels(task)[measure]


def counted(p_values: pd.Series, unit: str = "") -> str:
    """Return how many p-values are at most 0.05, such as "3 of 15", followed by `unit`."""
    return f"{(p_values <= 0.05).sum()} of {len(p_values)}{unit}"


def percent_hidden(run: Run) -> dict[str, str]:
    """Return the headers of the test conditions of a run in tables, by condition: {"hidden 0.5": "50% hidden"}."""
    return {f"hidden {share:g}": f"{100 * share:g}% hidden" for share in run.config["fields"]["eval_mask_ratios"]}


def sigma_table(run: Run, measures: dict[MeasureKey, str], p: MeasureKey) -> str:
    """Return a table of structure, seeds with p <= 0.05, errors, and errors minus those of the linear predictor.

    It has a row per sigma. Values are means over worlds. `measures` holds measures of structure and their column
    headers, and `p` is the measure whose values are the p-values.
    """
    sigmas, hidden = sorted(finished_members(run)["sigma"].unique()), percent_hidden(run)
    columns = {"sigma": [f"{sigma:g}" for sigma in sigmas]}
    for measure, words in measures.items():
        columns[words] = [
            number(interval_at_sigma(run, analysis_values(run, *measure), sigma).mean) for sigma in sigmas
        ]
    columns["seeds with p at most 0.05"] = [counted(at_sigma(run, analysis_values(run, *p), sigma)) for sigma in sigmas]
    for c in CONDITIONS:
        columns[f"error, {hidden[c]}"] = [number(interval_at_sigma(run, error(run, c), sigma).mean) for sigma in sigmas]
    for c in CONDITIONS:
        columns[f"minus linear, {hidden[c]}"] = [
            signed(interval_over_worlds(run, minus_linear(run, s, c)), 3) for s in sigmas
        ]
    return columns_table(columns)


def baseline_table(run: Run, measures: dict[MeasureKey, str], conditions: Sequence[str]) -> str:
    """Return a table of all baselines: means over worlds, and in how many worlds the first measure is significant.

    If slower baselines were run in fewer worlds, a second row shows the linear predictor in these worlds alone.
    """
    rows = run.baselines
    slow_worlds = rows[rows["baseline"].isin(["ridge", "trees"])]["world"].unique()
    tables = {name: rows[rows["baseline"] == name] for name in dict.fromkeys(rows["baseline"])}
    linear = tables["linear"]
    if 0 < len(slow_worlds) < linear["world"].nunique():
        second = {"linear, in the worlds of ridge and trees": linear[linear["world"].isin(slow_worlds)]}
        tables = {"linear": linear} | second | tables
    p, metrics = f"{next(iter(measures))[0]}_p", {"mse", *(metric for metric, _ in measures)}
    body = []
    for name, table in tables.items():
        p_values = table.loc[table["metric"] == p, "value"].dropna()
        errors = [_mean(table[table["split"] == "test"], "mse", condition) for condition in conditions]
        worlds = table[table["metric"].isin(metrics)].dropna(subset=["value"])["world"].nunique()
        structure = [_mean(table, *measure) for measure in measures]
        body.append((name, *structure, counted(p_values) if len(p_values) else "", *errors, str(worlds)))
    errors = [f"error, {percent_hidden(run)[condition]}" for condition in conditions]
    return grid(("baseline", *measures.values(), "worlds with p at most 0.05", *errors, "worlds"), body)


def _mean(rows: pd.DataFrame, metric: str, condition: str) -> str:
    """Return the mean of a metric in these rows as text; empty if there is none."""
    return number(rows.query("metric == @metric and condition == @condition")["value"].mean())


def twins_table(sweep: Run, twin: Run, measures: dict[MeasureKey, str], field: str, header: str) -> str:
    """Return a table by sigma that compares a sweep with its twin, a smaller run with another value of `field`.

    Seeds are those of the twin. `measures` holds measures of structure and their headers; `header` is that of `field`.
    """
    rows, seeds = [], twin.members["seed"].unique()
    for sigma in sorted(finished_members(twin)["sigma"].unique()):
        for run in (sweep, twin):
            cells = [at_sigma(run, analysis_values(run, *measure), sigma)[seeds] for measure in measures]
            cells += [at_sigma(run, error(run, condition), sigma)[seeds] for condition in CONDITIONS]
            setting = f"{run.config['fields'][field]:,}"
            rows.append((f"{sigma:g}", setting, *(plain(interval_over_worlds(run, values), 3) for values in cells)))
    errors = [f"error, {percent_hidden(twin)[condition]}" for condition in CONDITIONS]
    return grid(("sigma", header, *measures.values(), *errors), rows)


def networks_table(run: Run) -> str:
    """Return a table of known networks in PEs, by sigma, and in functional connectivity, as it is and centred."""
    names = {"modularity": "Q", "segregation": "segregation", "neighbor_agreement": "nearest"}
    p = "modularity_smooth_p"
    columns = [(name, target) for target in run.config["task"]["partitions"] for name in (*names, p)]
    words = "seeds with p at most 0.05 (Q, maps as smooth)"
    header = [words if name == p else f"{PARTITION_NAMES[target]}: {names[name]}" for name, target in columns]

    def cells(by_column: list[pd.Series], unit: str = "") -> list[str]:
        """Return the cells of a row: means, and for p-values how many are at most 0.05."""
        pairs = zip(columns, by_column, strict=True)
        return [counted(x, unit) if name == p else number(interval_over_worlds(run, x).mean) for (name, _), x in pairs]

    rows = [
        (f"{sigma:g}", *cells([at_sigma(run, analysis_values(run, *column), sigma) for column in columns]))
        for sigma in sorted(finished_members(run)["sigma"].unique())
    ]
    for name, words in (("fc", "functional connectivity"), (CENTRED_FC, "the same, centred as PEs are")):
        by_column = [baseline(run, name, *column) for column in columns]
        rows.append((words, *cells(by_column, " splits")))
    return grid(("sigma", *header), rows)
