"""The committed runs of lst-frozen and lst-slingshot: what `placecode claims` says of them, computed once more from the
Parquet files with pandas and scipy alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.made_up import student

from placecode import cli

RESULTS = Path(__file__).parents[2] / "results"
LEARNED = {"learn": True, "start": "normal", "placement": "every"}
FROZEN = {**LEARNED, "learn": False}
SIZED = {**FROZEN, "start": "sized"}
AT_INPUT = {**LEARNED, "placement": "input"}
EPOCH_200 = 200 * 64
"""An epoch is 64 steps of 128 puzzles."""


def said(run: str, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    assert cli.main(["claims", str(RESULTS / run), "--json"]) == 0
    return {record["id"]: record for record in json.loads(capsys.readouterr().out)}


def accuracies(run: str, step: int | None = None) -> pd.DataFrame:
    """The members of a run with their accuracy on held-out puzzles."""
    members, metrics = (pd.read_parquet(RESULTS / run / f"{name}.parquet") for name in ("members", "metrics"))
    rows = metrics.query("split == 'ood' and condition == 'all' and metric == 'accuracy'")
    rows = rows[rows["step"] == (rows["step"].max() if step is None else step)]
    return members.merge(rows[["member", "value"]], on="member")


def of(table: pd.DataFrame, **wanted: Any) -> pd.Series:
    """Accuracy by seed of one kind of member at one sigma."""
    for name, value in wanted.items():
        table = table[table[name] == value]
    assert not table["seed"].duplicated().any()
    return table.set_index("seed")["value"].sort_index()


def assert_says(record: dict[str, Any], values: np.ndarray) -> None:
    assert [record[name] for name in ("effect", "low", "high")] == pytest.approx(student(values), abs=1e-9)


def test_learned_and_frozen_pes_are_as_claimed(capsys: pytest.CaptureFixture[str]) -> None:
    table, claims = accuracies("lst-frozen"), said("lst-frozen", capsys)
    assert len(table) == 160 and (table["state"] == "done").all()
    usual = (0.1, 0.2, 0.5, 1.0, 1.5, 2.0)
    gaps = [of(table, sigma=sigma, **LEARNED) - of(table, sigma=sigma, **FROZEN) for sigma in usual]
    assert_says(claims["learning-is-not-needed"], np.mean(gaps, axis=0))
    for sigma in (0.01, 0.05):
        learned, frozen, sized = (of(table, sigma=sigma, **kind) for kind in (LEARNED, FROZEN, SIZED))
        assert_says(claims[f"learning-helps-at-{sigma:g}"], (learned - frozen).to_numpy())
        assert_says(claims[f"size-is-what-is-learned-at-{sigma:g}"], (sized - learned).to_numpy())
    effects = [of(table, sigma=0.2, **kind) - of(table, sigma=2.0, **kind) for kind in (LEARNED, AT_INPUT)]
    assert_says(claims["input-alone-shrinks-the-effect"], (effects[0] - effects[1]).to_numpy())


def test_slingshots_are_as_claimed(capsys: pytest.CaptureFixture[str]) -> None:
    end, early, claims = (
        accuracies("lst-slingshot"),
        accuracies("lst-slingshot", EPOCH_200),
        said("lst-slingshot", capsys),
    )
    assert len(end) == 45 and (end["state"] == "done").all()

    def gain(times: int, sigma: float, learn: bool = True) -> pd.Series:
        wanted = {"data": f"log_softmax={times}", "sigma": sigma, "learn": learn}
        return of(end, **wanted) - of(early, **wanted)

    for sigma in (0.2, 1.0, 2.0):
        assert_says(claims[f"settled-by-200-at-{sigma:g}"], gain(2, sigma).to_numpy())
        assert_says(claims[f"slingshots-raise-accuracy-at-{sigma:g}"], (gain(1, sigma) - gain(2, sigma)).to_numpy())
        assert_says(claims[f"slingshots-raise-frozen-at-{sigma:g}"], gain(1, sigma, learn=False).to_numpy())
