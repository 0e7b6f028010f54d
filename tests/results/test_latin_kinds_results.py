"""Claims on the committed runs of lst-encodings, lst-frozen and lst-slingshot, computed again with pandas and scipy."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.encoding_pairs import OURS, PAIRS, Setting
from helpers.made_up import effect_of, student

from placecode.experiments.specs import parse_encoding

RESULTS = Path(__file__).parents[2] / "results"
ClaimsOf = Callable[[Path], dict[str, dict[str, Any]]]
LEARNED = {"learn": True, "start": "normal", "placement": "every"}
FROZEN = {**LEARNED, "learn": False}
SIZED = {**FROZEN, "start": "donor-size"}
AT_INPUT = {**LEARNED, "placement": "input"}
EPOCH_200 = 200 * 64
"""The step at which epoch 200 ends; an epoch is 64 steps of 128 puzzles."""


@functools.cache
def accuracies(run: str, step: int | None = None, split: str = "ood") -> pd.DataFrame:
    """Return the members of a run with their accuracy."""
    members, metrics = (pd.read_parquet(RESULTS / run / f"{name}.parquet") for name in ("members", "metrics"))
    rows = metrics.query("split == @split and condition == 'all' and metric == 'accuracy'")
    rows = rows[rows["step"] == (rows["step"].max() if step is None else step)]
    return members.merge(rows[["member", "value"]], on="member")


def of(table: pd.DataFrame, **columns: Any) -> pd.Series:
    """Return the accuracy by seed of the members with these columns."""
    for name, value in columns.items():
        table = table[table[name] == value]
    assert not table["seed"].duplicated().any()
    return table.set_index("seed")["value"].sort_index()


def assert_effect(record: dict[str, Any], values: np.ndarray) -> None:
    assert effect_of(record) == pytest.approx(student(values), abs=1e-9)


def test_claims_on_learned_and_frozen_pes(claims_of: ClaimsOf) -> None:
    table, claims = accuracies("lst-frozen"), claims_of(RESULTS / "lst-frozen")
    assert len(table) == 160 and (table["state"] == "done").all()
    usual = (0.1, 0.2, 0.5, 1.0, 1.5, 2.0)
    gaps = [of(table, sigma=sigma, **LEARNED) - of(table, sigma=sigma, **FROZEN) for sigma in usual]
    assert_effect(claims["learning-is-not-needed"], np.mean(gaps, axis=0))
    for sigma in (0.01, 0.05):
        learned, frozen, sized = (of(table, sigma=sigma, **kind) for kind in (LEARNED, FROZEN, SIZED))
        assert_effect(claims[f"learning-helps-at-{sigma:g}"], (learned - frozen).to_numpy())
        assert_effect(claims[f"size-is-what-is-learned-at-{sigma:g}"], (sized - learned).to_numpy())
    effects = [of(table, sigma=0.2, **kind) - of(table, sigma=2.0, **kind) for kind in (LEARNED, AT_INPUT)]
    assert_effect(claims["input-alone-shrinks-the-effect"], (effects[0] - effects[1]).to_numpy())


def test_claims_on_slingshots(claims_of: ClaimsOf) -> None:
    end, early = accuracies("lst-slingshot"), accuracies("lst-slingshot", EPOCH_200)
    claims = claims_of(RESULTS / "lst-slingshot")
    assert len(end) == 45 and (end["state"] == "done").all()

    def gain(times: int, sigma: float, learn: bool = True) -> pd.Series:
        columns = {"data": f"log_softmax={times}", "sigma": sigma, "learn": learn}
        return of(end, **columns) - of(early, **columns)

    for sigma in (0.2, 1.0, 2.0):
        assert_effect(claims[f"settled-by-200-at-{sigma:g}"], gain(2, sigma).to_numpy())
        assert_effect(claims[f"slingshots-raise-accuracy-at-{sigma:g}"], (gain(1, sigma) - gain(2, sigma)).to_numpy())
        assert_effect(claims[f"slingshots-raise-frozen-at-{sigma:g}"], gain(1, sigma, learn=False).to_numpy())


def of_setting(setting: Setting, split: str = "ood") -> pd.Series:
    """Return the accuracy at the end of training of the members with an encoding and a dropout, by seed."""
    fields, table = parse_encoding(setting[0]), accuracies("lst-encodings", split=split)
    table = table[(table["state"] == "done") & (table["options"].map(json.loads) == fields.pop("options"))]
    return of(table, dropout=setting[1], **{name: value for name, value in fields.items() if value is not None})


def test_claims_on_encodings(claims_of: ClaimsOf) -> None:
    members, claims = accuracies("lst-encodings"), claims_of(RESULTS / "lst-encodings")
    kinds = members.groupby(["encoding", "options", "sigma", "dropout"], dropna=False)["seed"].agg(sorted)
    assert len(kinds) == 16 * 2 and all(seeds == list(range(15)) for seeds in kinds)
    assert (members["dropout_at_evaluation"] == (members["dropout"] > 0)).all()  # as in the authors' code
    assert {*PAIRS, "all-fit-training"} == set(claims)
    for id, (setting, reference) in PAIRS.items():
        differences = (of_setting(setting) - of_setting(reference)).dropna()
        if id == "beats-relative-as-published":  # the run is older than that setting
            assert differences.empty and (claims[id]["direction"], claims[id]["effect"]) == ("undecided", None)
        else:
            assert_effect(claims[id], differences.to_numpy())
    assert_effect(claims["all-fit-training"], of_setting(OURS, "train").to_numpy())
