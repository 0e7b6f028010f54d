"""The table of results where conditions are not pooled: a column for each share of hidden channels, baselines below."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from helpers.made_up_masked import STRANGE, made_up
from rich.table import Table
from scipy import stats

from placecode.cli import display
from placecode.experiments.channels.network import NetworkSigma
from placecode.models.member import Member
from placecode.runs.summary import summarize

CONDITIONS = ("hidden 0.5", "hidden 0.9")
PLACES = [f"test, {condition}" for condition in CONDITIONS]
NEAR = {("neighbor_agreement", "labels"): (lambda m: 0.2, lambda m: 0.6)}
BASELINES = {
    ("linear", "test", "hidden 0.5", "mse"): {0: 0.75, 1: 0.77},
    ("linear", "test", "hidden 0.9", "mse"): {0: 0.9, 1: 0.96},
    ("ridge", "test", "hidden 0.5", "mse"): {0: 0.7},
    ("fc", "analysis", "labels", "neighbor_agreement"): {0: 0.9, 1: 1.0},
}


def value(member: Member, condition: str) -> float:
    """An error that tells the setting and the share: 1 more with more hidden."""
    start = 0.5 if condition == "hidden 0.5" else 1.5
    return start + (member.sigma or 0) / 10 + 0.01 * member.seed**2 + member.hidden / 1000 + len(member.data) / 100


def table_of(study: Any, metric: str = "mse", **changes: Any) -> Table:
    given = {"errors": {c: lambda m, c=c: value(m, c) for c in CONDITIONS}, "analyses": NEAR, "baselines": BASELINES}
    run = made_up(study, **{**given, **changes})
    run.summary = summarize(study.name, run.members, run.metrics, run.analysis, run.baselines)["rows"]
    return display.results_table(run, metric)


Printed = Callable[[Table], list[list[str]]]


def said(values: list[float]) -> str:
    """A mean with half of Student's interval, by scipy."""
    half = stats.sem(values) * stats.t.ppf(0.975, len(values) - 1)
    return f"{np.mean(values):.3f} ± {half:.3f}"


def test_held_out_errors_have_a_column_per_condition(printed: Printed) -> None:
    study = NetworkSigma.at("paper", sigmas=(0.01, 2.0), seeds=(0, 1, 2))
    head, *rows = printed(table_of(study))
    assert head == ["encoding", "sigma", *PLACES, "seeds", "diverged"]
    for row, sigma in zip(rows[:2], (0.01, 2.0), strict=True):
        own = [member for member in study.members() if member.sigma == sigma]
        cells = [said([value(member, condition) for member in own]) for condition in CONDITIONS]
        assert row == ["learned", f"{sigma:g}", *cells, "3", "0"]
    assert f"{STRANGE:.3f}" not in str(rows)  # errors on training data, and before training


def test_baselines_that_predict_have_rows_below(printed: Printed) -> None:
    rows = printed(table_of(NetworkSigma.at("paper", sigmas=(0.01,), seeds=(0, 1))))[2:]
    assert rows == [
        ["baseline:linear", "-", said([0.75, 0.77]), said([0.9, 0.96]), "2", "0"],
        ["baseline:ridge", "-", "0.700", "-", "1", "0"],  # in a single world, and never asked at the other share
    ]


def test_a_single_seed_has_a_bare_mean_and_lost_ones_a_dash(printed: Printed) -> None:
    study = NetworkSigma.at("paper", sigmas=(0.01, 0.5, 2.0), seeds=(0, 1))
    gone = {(0.5, 1), (2.0, 0), (2.0, 1)}
    rows = printed(table_of(study, baselines={}, diverged=lambda m: (m.sigma, m.seed) in gone))[1:]
    assert [row[-2:] for row in rows] == [["2", "0"], ["1", "1"], ["0", "2"]]
    alone = next(member for member in study.members() if (member.sigma, member.seed) == (0.5, 0))
    assert rows[1][2:4] == [f"{value(alone, condition):.3f}" for condition in CONDITIONS]
    assert rows[2][2:4] == ["-", "-"]


def test_where_conditions_are_pooled_their_parts_have_no_columns(printed: Printed) -> None:
    """The negative twin: one row of "all" and the splits are columns again, with two digits."""
    study = NetworkSigma.at("paper", sigmas=(0.01,), seeds=(0, 1))
    run = made_up(study, {"all": lambda m: 0.5, "easy": lambda m: 0.1}, {})
    run.summary = summarize("s", run.members, run.metrics, run.analysis, None)["rows"]
    head, row = printed(display.results_table(run, "mse"))
    assert head == ["encoding", "sigma", "train", "test", "seeds", "diverged"]
    assert row == ["learned", "0.01", "0.12 ± 0.00", "0.50 ± 0.00", "2", "0"]
