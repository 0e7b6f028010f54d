"""Correlations of measures with accuracy, over sigmas and at a fixed sigma, before and after training."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.made_up import made_up, over_sigmas, within_sigma
from scipy import stats

from placecode.experiments.correlates import (
    CORRELATION_KINDS,
    MEASURES,
    MORE_MEASURES,
    correlation_notes,
    correlations,
    measure_table,
)
from placecode.experiments.latin.squares import LstSigma
from placecode.models.member import Member

SIGMAS, SEEDS = (0.1, 0.2, 0.4, 0.7, 1.0, 1.3, 1.6, 2.0), 15
OVER, BEFORE, AFTER, BEYOND = CORRELATION_KINDS
RAW, FREE, RSA, ATTENTION = MEASURES
NORM = "PE norm"
RISES = np.arange(len(SIGMAS), dtype=float)[:, None]
Table = np.ndarray


def run_of(tables: dict[str, tuple[Any, Table]], accuracy: Table, lost: tuple[tuple[float, int], ...] = ()) -> Any:
    """Return a run in which measures, by label, have these values (sigmas, seeds) at the start and at the end."""

    def of(table: Table) -> Callable[[Member], float]:
        return lambda m: table[SIGMAS.index(m.sigma), m.seed] if m.encoding == "learned" else -55.0

    ends = {label: (None if start is None else of(start), of(end)) for label, (start, end) in tables.items()}
    analyses = {MORE_MEASURES[label]: functions for label, functions in ends.items()}
    experiment = LstSigma.from_scale("paper", sigmas=SIGMAS, seeds=tuple(range(SEEDS)), epochs=5)
    return made_up(experiment, of(accuracy), analyses=analyses, diverged=lambda m: (m.sigma, m.seed) in lost)


def normal(seed: int) -> Table:
    return np.random.default_rng([3, seed]).normal(size=(len(SIGMAS), SEEDS))


RESIDUAL = normal(0)
"""What a member's accuracy has beyond that of its sigma."""
ACCURACY = 0.9 - 0.08 * RISES + 0.02 * RESIDUAL


@pytest.fixture(scope="module")
def tables() -> dict[str, tuple[Table, Table]]:
    seeds = normal(9)[0]
    return {
        RAW: (10 * RISES + normal(1), 10 * RISES + normal(2)),  # follows sigma, and nothing else
        FREE: (normal(3), -RESIDUAL + 0.5 * normal(4)),  # comes by training, whatever sigma is
        RSA: (np.tile(seeds, (len(SIGMAS), 1)), RISES + normal(5)),  # the same at every sigma, before training
        ATTENTION: (RESIDUAL + 0.5 * normal(6), RESIDUAL + 0.5 * normal(6)),  # was there before training, and stays
        NORM: (normal(7), normal(8)),  # nothing at all
    }


@pytest.fixture(scope="module")
def table(tables: dict[str, tuple[Table, Table]]) -> pd.DataFrame:
    result = correlations(run_of(tables, ACCURACY))
    assert result is not None
    return result.set_index(["measure", "question"])


def test_values_are_those_computed_by_hand(table: pd.DataFrame, tables: dict[str, tuple[Table, Table]]) -> None:
    assert list(table.index) == [(label, question) for label in tables for question in CORRELATION_KINDS]
    for label, (start, end) in tables.items():
        by_hand = {OVER: over_sigmas(end, ACCURACY), BEFORE: within_sigma(start, ACCURACY)}
        by_hand |= {AFTER: within_sigma(end, ACCURACY)}
        if label != ATTENTION:  # nothing is left of it
            by_hand |= {BEYOND: within_sigma(end, ACCURACY, start)}
        for question, value in by_hand.items():
            row = table.loc[(label, question)]
            assert row["value"] == pytest.approx(value, abs=1e-9)
            assert row["low"] <= row["value"] <= row["high"] or abs(row["value"]) == pytest.approx(1)
        means = stats.spearmanr(end.mean(axis=1), ACCURACY.mean(axis=1))
        assert table.loc[(label, OVER), "p"] == pytest.approx(means.pvalue, abs=1e-12)


def test_questions_tell_sigma_training_and_the_start_apart(table: pd.DataFrame) -> None:
    """RAW follows sigma alone, FREE comes by training within a sigma, and ATTENTION equals its start."""
    significant = table["adjusted"] < 0.05
    assert table.loc[(RAW, OVER), "value"] < -0.95 and significant[RAW, OVER]
    for question in (BEFORE, AFTER, BEYOND):
        assert not significant[RAW, question]
        assert table.loc[(RAW, question), "low"] < 0 < table.loc[(RAW, question), "high"]
    assert not significant[FREE, BEFORE] and significant[FREE, AFTER] and significant[FREE, BEYOND]
    assert table.loc[FREE].loc[[AFTER, BEYOND], "high"].max() < -0.3
    assert significant[ATTENTION, BEFORE] and significant[ATTENTION, AFTER]
    assert table.loc[(ATTENTION, BEYOND), ["value", "low", "high", "p", "adjusted"]].isna().all()


def test_p_is_adjusted_among_the_measures_of_one_question(table: pd.DataFrame) -> None:
    for question in CORRELATION_KINDS:
        rows = table.xs(question, level="question").dropna()
        by_hand = stats.false_discovery_control(rows["p"].to_numpy())
        assert rows["adjusted"].to_numpy() == pytest.approx(by_hand, abs=1e-12)
        assert (rows["adjusted"] >= rows["p"] - 1e-12).all()
    together = stats.false_discovery_control(table["p"].dropna().to_numpy())
    assert np.abs(together - table["adjusted"].dropna().to_numpy()).max() > 1e-3  # not over all questions at once


def test_members_that_diverged_are_left_out(tables: dict[str, tuple[Table, Table]]) -> None:
    """Wherever their last values stand."""
    lost = ((0.1, 0), (2.0, 3), (1.0, 3))
    wild = ACCURACY.copy()
    spoiled = {label: (start.copy(), end.copy()) for label, (start, end) in tables.items() if label in (FREE, RAW)}
    for sigma, seed in lost:
        wild[SIGMAS.index(sigma), seed] = -1e6
        for start, end in spoiled.values():
            start[SIGMAS.index(sigma), seed] = end[SIGMAS.index(sigma), seed] = -1e6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = correlations(run_of(spoiled, wild, lost))
    assert table is not None
    finished = np.ones_like(wild, dtype=bool)
    for sigma, seed in lost:
        finished[SIGMAS.index(sigma), seed] = False
    for label, (_, end) in spoiled.items():
        rows = table[table["measure"] == label].set_index("question")
        means = stats.spearmanr(*(np.ma.masked_where(~finished, values).mean(axis=1) for values in (end, wild)))
        assert rows.loc[OVER, ["value", "p"]].tolist() == pytest.approx([means.statistic, means.pvalue], abs=1e-9)
        ranks = [[stats.rankdata(values[i][finished[i]]) for i in range(len(SIGMAS))] for values in (end, wild)]
        pooled = [np.concatenate([part - part.mean() for part in parts]) for parts in ranks]
        assert rows.loc[AFTER, "value"] == pytest.approx(np.corrcoef(*pooled)[0, 1], abs=1e-9)


def test_a_measure_that_differs_by_rounding_alone_has_neither_value_nor_p() -> None:
    """As scale-free measures of frozen PEs, which are the same at every sigma but for the last digits."""
    frozen = np.tile(0.9 + 0.01 * normal(12)[0], (len(SIGMAS), 1)) - 1e-12 * RISES
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = correlations(run_of({FREE: (frozen, frozen)}, ACCURACY))
    assert table is not None
    assert table.set_index("question").loc[OVER][["value", "low", "high", "p", "adjusted"]].isna().all()


def test_measures_that_lack_the_start_or_sigmas_are_left_out(tables: dict[str, tuple[Table, Table]]) -> None:
    """As where pieces were merged and only one of them had the measure."""
    empty = run_of({}, ACCURACY)
    assert correlations(empty) is None and measure_table(empty) is None and correlation_notes(empty) == {}
    start, end = (table.copy() for table in tables[FREE])
    start[2:], end[2:] = np.nan, np.nan
    run = run_of({FREE: (start, end), RSA: (None, normal(3)), RAW: tables[RAW]}, ACCURACY)
    table = correlations(run)
    assert table is not None and set(table["measure"]) == {RAW}
    assert list(correlation_notes(run)) == [RAW]
    end[2:, 0] = 0.5  # one seed of each sigma is enough
    table = correlations(run_of({FREE: (tables[FREE][0], end), RAW: tables[RAW]}, ACCURACY))
    assert table is not None and set(table["measure"]) == {RAW, FREE}


def test_relations_have_a_row_for_each_member_and_moment(tables: dict[str, tuple[Table, Table]]) -> None:
    table = measure_table(run_of(tables, ACCURACY, lost=((0.4, 7),)))
    assert table is not None
    assert set(table["measure"]) == {RAW, FREE, RSA, ATTENTION}  # the main ones
    assert len(table) == 4 * 2 * (len(SIGMAS) * SEEDS - 1)
    for row in table.sample(40, random_state=0).itertuples():
        i, when = SIGMAS.index(row.sigma), ("start", "end").index(row.moment)
        assert row.value == tables[row.measure][when][i, row.seed] and row.accuracy == ACCURACY[i, row.seed]


def test_notes_have_the_correlations_before_and_after_training(tables: dict[str, tuple[Table, Table]]) -> None:
    by_label = correlation_notes(run_of(tables, ACCURACY))
    assert set(by_label) == {RAW, FREE, RSA, ATTENTION}
    for label in (RAW, FREE, ATTENTION):
        before, after = (over_sigmas(values, ACCURACY) for values in tables[label])
        assert f"{after:.2f}" in by_label[label] and by_label[label].endswith(f"before training {before:.2f}")
    assert by_label[RSA].endswith("before training the same at every sigma")
