"""Correlations of measures with accuracy, over sigmas and at a fixed sigma, before and after training."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.made_up import made_up, over_sigmas, within_sigma
from scipy import stats

from placecode.experiments.latin.squares import LstSigma
from placecode.experiments.predictors import MEASURES, MORE_MEASURES, QUESTIONS, correlations, notes, relations
from placecode.models.member import Member

SIGMAS, SEEDS = (0.1, 0.2, 0.4, 0.7, 1.0, 1.3, 1.6, 2.0), 15
OVER, BEFORE, AFTER, BEYOND = QUESTIONS
RAW, FREE, RSA, ATTENTION = MEASURES
NORM, ROW = "PE norm", "row decoded"
RISES = np.arange(len(SIGMAS), dtype=float)[:, None]
Table = np.ndarray


def run_of(
    tables: dict[str, tuple[Table | None, Table]], accuracy: Table, lost: tuple[tuple[float, int], ...] = ()
) -> Any:
    """A run in which these measures, by their label, have these values (sigmas x seeds) at the start and at the end."""

    def of(table: Table) -> Callable[[Member], float]:
        return lambda m: table[SIGMAS.index(m.sigma), m.seed] if m.encoding == "learned" else -55.0

    analyses = {
        MORE_MEASURES[label]: (None if start is None else of(start), of(end)) for label, (start, end) in tables.items()
    }
    study = LstSigma.at("paper", sigmas=SIGMAS, seeds=tuple(range(SEEDS)), epochs=5)
    return made_up(study, of(accuracy), analyses=analyses, diverged=lambda m: (m.sigma, m.seed) in lost)


def normal(seed: int) -> Table:
    return np.random.default_rng([3, seed]).normal(size=(len(SIGMAS), SEEDS))


OWN = normal(0)
"""What a member's accuracy has beyond that of its sigma."""
ACCURACY = 0.9 - 0.08 * RISES + 0.02 * OWN


@pytest.fixture(scope="module")
def tables() -> dict[str, tuple[Table, Table]]:
    seeds = normal(9)[0]
    return {
        RAW: (10 * RISES + normal(1), 10 * RISES + normal(2)),  # follows sigma, and nothing else
        FREE: (normal(3), -OWN + 0.5 * normal(4)),  # comes by training, whatever sigma is
        RSA: (np.tile(seeds, (len(SIGMAS), 1)), RISES + normal(5)),  # the same at every sigma, before training
        ATTENTION: (OWN + 0.5 * normal(6), OWN + 0.5 * normal(6)),  # was there before training, and stays
        NORM: (normal(7), normal(8)),  # nothing at all
    }


@pytest.fixture(scope="module")
def found(tables: dict[str, tuple[Table, Table]]) -> pd.DataFrame:
    table = correlations(run_of(tables, ACCURACY))
    assert table is not None
    return table.set_index(["measure", "question"])


def significant(row: pd.Series) -> bool:
    return bool(row["adjusted"] < 0.05)


def test_every_measure_is_asked_every_question(found: pd.DataFrame, tables: dict[str, Any]) -> None:
    assert list(found.index) == [(label, question) for label in tables for question in QUESTIONS]
    assert len(set(MORE_MEASURES.values())) == len(MORE_MEASURES)
    assert set(MEASURES.items()) <= set(MORE_MEASURES.items())


def test_values_are_those_computed_by_hand(found: pd.DataFrame, tables: dict[str, tuple[Table, Table]]) -> None:
    for label, (start, end) in tables.items():
        by_hand = {OVER: over_sigmas(end, ACCURACY), BEFORE: within_sigma(start, ACCURACY)}
        by_hand |= {AFTER: within_sigma(end, ACCURACY)}
        if label != ATTENTION:  # nothing is left of it
            by_hand |= {BEYOND: within_sigma(end, ACCURACY, start)}
        for question, value in by_hand.items():
            row = found.loc[(label, question)]
            assert row["value"] == pytest.approx(value, abs=1e-9)
            assert row["low"] <= row["value"] <= row["high"] or abs(row["value"]) == pytest.approx(1)
        means = stats.spearmanr(end.mean(axis=1), ACCURACY.mean(axis=1))
        assert found.loc[(label, OVER), "p"] == pytest.approx(means.pvalue, abs=1e-12)


def test_what_follows_sigma_predicts_over_the_sigmas_and_not_at_a_fixed_one(found: pd.DataFrame) -> None:
    assert found.loc[(RAW, OVER), "value"] < -0.95
    assert significant(found.loc[(RAW, OVER)])
    for question in (BEFORE, AFTER, BEYOND):
        row = found.loc[(RAW, question)]
        assert not significant(row)
        assert row["low"] < 0 < row["high"]


def test_what_was_learned_within_a_sigma_is_found_after_training_only(found: pd.DataFrame) -> None:
    assert not significant(found.loc[(FREE, BEFORE)])
    for question in (AFTER, BEYOND):
        row = found.loc[(FREE, question)]
        assert significant(row)
        assert row["high"] < -0.3


def test_what_equals_its_start_has_nothing_beyond_it(found: pd.DataFrame) -> None:
    for question in (BEFORE, AFTER):
        assert significant(found.loc[(ATTENTION, question)])
    beyond = found.loc[(ATTENTION, BEYOND)]
    assert beyond[["value", "low", "high", "p", "adjusted"]].isna().all()


def test_p_is_adjusted_among_the_measures_of_one_question(found: pd.DataFrame) -> None:
    for question in QUESTIONS:
        rows = found.xs(question, level="question").dropna()
        by_hand = stats.false_discovery_control(rows["p"].to_numpy())
        assert rows["adjusted"].to_numpy() == pytest.approx(by_hand, abs=1e-12)
        assert (rows["adjusted"] >= rows["p"] - 1e-12).all()
    together = stats.false_discovery_control(found["p"].dropna().to_numpy())
    assert np.abs(together - found["adjusted"].dropna().to_numpy()).max() > 1e-3  # not over all questions at once


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
    kept = np.ones_like(wild, dtype=bool)
    for sigma, seed in lost:
        kept[SIGMAS.index(sigma), seed] = False
    for label, (_, end) in spoiled.items():
        rows = table[table["measure"] == label].set_index("question")
        means = stats.spearmanr(*(np.ma.masked_where(~kept, values).mean(axis=1) for values in (end, wild)))
        assert rows.loc[OVER, ["value", "p"]].tolist() == pytest.approx([means.statistic, means.pvalue], abs=1e-9)
        ranks = [[stats.rankdata(values[i][kept[i]]) for i in range(len(SIGMAS))] for values in (end, wild)]
        pooled = [np.concatenate([part - part.mean() for part in parts]) for parts in ranks]
        assert rows.loc[AFTER, "value"] == pytest.approx(np.corrcoef(*pooled)[0, 1], abs=1e-9)


def test_a_measure_that_rounding_alone_moves_has_neither_value_nor_p() -> None:
    """A frozen PE: what knows no scale is the same at every sigma to the last digits, which order nothing."""
    frozen = np.tile(0.9 + 0.01 * normal(12)[0], (len(SIGMAS), 1)) - 1e-12 * RISES
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = correlations(run_of({FREE: (frozen, frozen)}, ACCURACY))
    assert table is not None
    over = table.set_index("question").loc[OVER]
    assert over[["value", "low", "high", "p", "adjusted"]].isna().all()


def test_measures_that_were_not_taken_are_left_out(tables: dict[str, tuple[Table, Table]]) -> None:
    assert correlations(run_of({}, ACCURACY)) is None
    assert relations(run_of({}, ACCURACY)) is None
    assert notes(run_of({}, ACCURACY)) == {}
    table = correlations(run_of({ROW: (normal(1), normal(2)), RSA: (None, normal(3))}, ACCURACY))
    assert table is not None
    assert set(table["measure"]) == {ROW}  # RSA was not taken before training


def test_a_measure_of_a_part_of_the_sigmas_is_left_out(tables: dict[str, tuple[Table, Table]]) -> None:
    """As where pieces were merged and only one of them had taken it: its correlation is not that of the sweep."""
    start, end = (table.copy() for table in tables[FREE])
    start[2:], end[2:] = np.nan, np.nan
    run = run_of({FREE: (start, end), RAW: tables[RAW]}, ACCURACY)
    table = correlations(run)
    assert table is not None
    assert set(table["measure"]) == {RAW}
    assert list(notes(run)) == [RAW]
    end[2:, 0] = 0.5  # one seed of each sigma is enough to be told of
    table = correlations(run_of({FREE: (tables[FREE][0], end), RAW: tables[RAW]}, ACCURACY))
    assert table is not None
    assert set(table["measure"]) == {RAW, FREE}


def test_relations_have_a_row_for_each_member_and_moment(tables: dict[str, tuple[Table, Table]]) -> None:
    table = relations(run_of(tables, ACCURACY, lost=((0.4, 7),)))
    assert table is not None
    assert set(table["measure"]) == {RAW, FREE, RSA, ATTENTION}  # the main ones
    assert len(table) == 4 * 2 * (len(SIGMAS) * SEEDS - 1)
    for row in table.sample(40, random_state=0).itertuples():
        i, when = SIGMAS.index(row.sigma), ("start", "end").index(row.moment)
        assert row.value == tables[row.measure][when][i, row.seed]
        assert row.accuracy == ACCURACY[i, row.seed]


# In words


def test_notes_say_what_was_there_before_training(tables: dict[str, tuple[Table, Table]]) -> None:
    said = notes(run_of(tables, ACCURACY))
    assert set(said) == {RAW, FREE, RSA, ATTENTION}
    for label in (RAW, FREE, ATTENTION):
        before, after = (over_sigmas(values, ACCURACY) for values in tables[label])
        assert said[label] == f"rank correlation {after:.2f}, before training {before:.2f}"
    after = over_sigmas(tables[RSA][1], ACCURACY)
    assert said[RSA] == f"rank correlation {after:.2f}, before training the same at every sigma"
    assert not any("nan" in note for note in said.values())


def test_rounding_and_lost_members_do_not_hide_that_a_measure_was_the_same(
    tables: dict[str, tuple[Table, Table]],
) -> None:
    start, end = tables[RSA]
    shaken = start * (1 + 1e-9 * normal(13))
    said = notes(run_of({RSA: (shaken, end)}, ACCURACY, lost=((0.1, 2), (2.0, 5))))[RSA]
    assert said.endswith("before training the same at every sigma")
    moved = start + 0.01 * RISES
    assert notes(run_of({RSA: (moved, end)}, ACCURACY))[RSA].endswith("before training -1.00")
