"""The tables of docs/reproduction.md on Latin squares, each read from one run or two."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import pandas as pd
from wording import bounds, grid, number, signed, spread

from placecode.analysis.stats import Interval, interval
from placecode.cli.reporting import command_of
from placecode.experiments import predictors, study_of
from placecode.experiments.claims import Claim, Finding, NotInRun, direction_text, number_text
from placecode.experiments.reading import accuracy, at_sigma, done, measured, of_encoding
from placecode.experiments.specs import named
from placecode.runs.read import Run

Runs = dict[str, Run]
Findings = dict[str, Finding]
Numbers = dict[str, Any]
_OVER, BEFORE, AFTER, BEYOND = predictors.QUESTIONS


def runs_table(runs: dict[str, Run], about: dict[str, str]) -> str:
    rows = []
    for name, words in about.items():
        run = runs[name]
        fields, puzzles = run.config["fields"], "published" if run.config["fields"]["puzzles"] else "our own"
        command = command_of(run, study_of(run)).replace(f"--puzzles {fields['puzzles']}", "--puzzles DIR")
        loss = "two" if run.config["task"].get("log_softmax") == 2 else "one"
        rows.append((name, words, counted_members(run), f"{fields['epochs']:,}", loss, puzzles, f"`{command}`"))
    return grid(("run", "what", "members", "epochs, at most", "log-softmax", "puzzles", "command"), rows)


def counted_members(run: Run) -> str:
    """How many members a run has, and how many of them diverged."""
    lost = int((run.members["state"] == "diverged").sum())
    return f"{len(run.members)} of {run.config['total']}" + (f", {lost} diverged" if lost else "")


def margin(claim: Claim) -> str:
    """The side of the margin on which the whole interval must lie."""
    return f"{ {'above': '>', 'below': '<', 'within': 'within'}[claim.way] } {claim.margin:g}"


def claims_table(found: Findings) -> str:
    rows = [
        (
            finding.claim.id,
            finding.claim.statement + (f" ({finding.note})" if finding.note else ""),
            *(number(finding.found.mean), bounds(finding.found)),
            margin(finding.claim),
            direction_text(finding),
            number_text(finding),
            "; ".join(filter(None, (finding.claim.label, finding.claim.remark))),
        )
        for finding in found.values()
        if math.isfinite(finding.found.mean)
    ]
    return grid(
        ("claim", "statement", "effect", "95% interval", "margin", "direction", "number (published)", "label"), rows
    )


def gap_of_sigmas(run: Run, values: pd.Series, small: float, large: float) -> Interval:
    """Values at one sigma minus those at another, paired by seed."""
    return interval((at_sigma(run, values, small) - at_sigma(run, values, large)).to_numpy())


def noise_gaps(run: Run) -> dict[str, dict[float, Interval]]:
    """Accuracy at sigma 0.2 minus that at larger sigmas, by level of noise."""
    levels = [0.0, *run.config["fields"]["noise"]]
    return {
        f"{words}, 0.2 minus {other:g}": {
            level: gap_of_sigmas(run, measured(run, "noise_accuracy", f"{split} {level:g}"), 0.2, other)
            for level in levels
        }
        for split, words in (("train", "training puzzles"), ("ood", "held-out puzzles"))
        for other in (1.0, 2.0)
    }


def correlation_table(table: pd.DataFrame) -> str:
    """Measures x questions, as `placecode.experiments.predictors` has them; bold if significant."""
    questions = list(predictors.QUESTIONS)
    rows = []
    for measure, own in table.groupby("measure", sort=False):
        cells = []
        for question in questions:
            row = own[own["question"] == question].iloc[0]
            text = "" if math.isnan(row["value"]) else signed(Interval(row["value"], row["low"], row["high"]))
            bold = text and row["adjusted"] < 0.05 and "sigmas" not in question
            cells.append(f"**{text}**" if bold else text)
        rows.append((str(measure), *cells))
    return grid(("measure", *questions), rows)


def movement_table(run: Run) -> str:
    """How much training changed PEs and measures of them: after minus before training, paired by seed."""
    measures = {
        "Procrustes distance, scale-free": ("procrustes", "2d-fixed"),
        "z against permuted tokens, row and column": ("procrustes_z", "one-hot"),
        "RSA with same row or column": ("rsa", "relation"),
        "row decoded": ("probe", "row"),
        "nearest token in same row or column": ("neighbor_agreement", "relation"),
    }
    rows = []
    for sigma in (0.1, 0.2, 0.3, 0.5, 1.0, 2.0):
        cells = [number(relative_change(run, sigma))]
        for analysis, target in measures.values():
            gain = measured(run, analysis, target) - measured(run, analysis, target, "start")
            cells.append(signed(interval(at_sigma(run, gain, sigma).to_numpy()), digits=3))
        rows.append((f"{sigma:g}", *cells))
    return grid(("sigma", "norm of the change / norm of the PE", *measures), rows)


def relative_change(run: Run, sigma: float) -> float:
    """Norm of the change of the PEs of a sigma, relative to their norm."""
    return float(at_sigma(run, measured(run, "moved_relative", "start"), sigma).mean())


def gap_closed(run: Run, sigma: float, truth: Run) -> float:
    """Share of the gap to 2d-fixed that training closed at a sigma, by RSA with same row or column."""
    start, end = (at_sigma(run, measured(run, "rsa", "relation", when), sigma).mean() for when in ("start", "end"))
    goal = with_and_without(truth, "2d-fixed", measured(truth, "rsa", "relation"))[0].mean()
    return float((end - start) / (goal - start))


@functools.cache
def correlations(folder: Path) -> pd.DataFrame:
    """Every measure of a run against accuracy, as `placecode.experiments.predictors` has them."""
    table = predictors.correlations(Run(folder))
    assert table is not None
    return table


def answer(run: Run, measure: str, question: str = AFTER) -> str:
    """The rank correlation of a measure with accuracy at a fixed sigma."""
    table = correlations(run.path)
    row = table[(table["measure"] == measure) & (table["question"] == question)].iloc[0]
    return f"{row['value']:+.2f} ({row['low']:+.2f} to {row['high']:+.2f}, adjusted p {row['adjusted']:.3f})"


def of_pe(run: Run) -> set[str]:
    """The measures of the PE, without those of attention."""
    return {name for name in correlations(run.path)["measure"] if not name.startswith("attention")}


def significant(run: Run, question: str, of_attention: bool = False) -> set[str]:
    """The measures of the PE, or of attention, whose answer to a question has an adjusted p below 0.05."""
    table = correlations(run.path)
    rows = table[(table["question"] == question) & (table["adjusted"] < 0.05)]
    return {name for name in rows["measure"] if name.startswith("attention") == of_attention}


def with_and_without(run: Run, name: str, values: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Values of an encoding's members by seed, without and with the dropout."""
    table = named(done(run))
    rows = table[table["name"] == name]
    without, with_it = (
        rows[rows["dropout"] == rate].set_index("seed")["member"].map(values).sort_index() for rate in (0.0, 0.1)
    )
    return without, with_it


def fixed_table(runs: dict[str, Run]) -> str:
    """2d-fixed with and without the dropout, and the learned PE of sigma 0.2 without it, in every run that has both."""
    rows = []
    for name, run in runs.items():
        plain, dropped = with_and_without(run, "2d-fixed", accuracy(run))
        learned = of_encoding(run, "learned:sigma=0.2", 0.0)
        gaps = [interval((a - b).to_numpy()) for a, b in ((dropped, plain), (learned, plain), (learned, dropped))]
        means = (number(values.mean()) for values in (plain, dropped, learned))
        rows.append((name, *means, *(signed(gap, digits=3) for gap in gaps)))
    header = ("run", "2d-fixed without", "with", "learned 0.2 without", "effect of dropout on 2d-fixed")
    return grid((*header, "learned minus 2d-fixed, no dropout", "as published: dropout in 2d-fixed alone"), rows)


def dropout_table(run: Run) -> str:
    """Every encoding without and with the dropout, and the difference, paired by seed; the most accurate first."""
    right, train = accuracy(run), accuracy(run, "train")
    try:
        clean = measured(run, "accuracy_without_dropout", "ood")
    except NotInRun:  # nothing was dropped
        clean = pd.Series(dtype=float)
    rows = []
    for name in dict.fromkeys(named(done(run))["name"]):
        without, with_it = with_and_without(run, name, right)
        off, fitted = (with_and_without(run, name, values)[1].mean() for values in (clean, train))
        gap = interval((with_it - without).dropna().to_numpy())
        own = [spread(interval(values.to_numpy())) for values in (without, with_it)]
        rows.append((without.mean(), (name, *own, signed(gap, digits=3), number(off), number(fitted))))
    header = ("encoding", "without", "with", "difference", "with, dropout off at evaluation", "training, with")
    return grid(header, [cells for _, cells in sorted(rows, key=lambda row: -row[0])])
