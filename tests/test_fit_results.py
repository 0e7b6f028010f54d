"""What fits promise, held against the committed trials and fits under results/fits, and against the page that quotes
them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.spatial import procrustes
from scipy.stats import kstest
from sklearn.metrics import adjusted_rand_score

from placecode.studies import own_results
from placecode.studies.own_words import sentences

ROOT = Path(__file__).parents[1]
FITS = ROOT / "results" / "fits"
PAGE = (ROOT / "docs/how-to/own-data.md").read_text()


def needed(name: str) -> Path:
    """A file or folder of results/fits; where it was not made yet, the test is skipped and says so."""
    if not (FITS / name).exists():
        pytest.skip(f"results/fits/{name} is not made yet (results/fit_trials.py, or placecode fit)")
    return FITS / name


def summary(name: str) -> dict[str, Any]:
    return dict(json.loads((FITS / name / "summary.json").read_text()))


def test_nothing_is_found_where_nothing_is() -> None:
    """Of 100 tables of noise at least 90 have p > 0.05; p is even, as that of an exact test is."""
    table = pd.read_csv(needed("noise.csv"))
    for kind, own in table.groupby("kind"):
        assert sorted(own["trial"]) == list(range(100)), kind
        assert (own["p_value"] > 0.05).sum() >= 90
        assert ((own["p_value"] > 0.05) == (own["verdict"] == "no structure found")).all()
        assert kstest(own["p_value"], "uniform").pvalue > 0.001
        told = f"{(own['p_value'] > 0.05).sum()} of 100"
        assert re.search(rf"{told}[^.]*{kind}|{kind}[^.]*{told}", PAGE.replace("\n", " ")), told


def test_shuffled_pixels_are_put_together_again() -> None:
    found, told = own_results.read(needed("photo")), summary("photo")
    assert found.positions is not None and told["verdict"] == "structure found"
    adjacent = np.abs(found.positions[:, None] - found.positions).sum(-1) == 1
    similar = found.ours.similarity - 9 * np.eye(100)
    right = adjacent[np.arange(100), similar.argmax(1)].mean()
    assert right == pytest.approx(told["neighbor_agreement"], abs=0.011) and right >= 0.85
    fits = 1 - procrustes(found.positions, found.ours.maps[2])[2]
    assert fits == pytest.approx(told["procrustes_r2"], abs=1e-4) and fits >= 0.9


def test_groups_that_no_pairwise_method_sees_are_found_and_said_first() -> None:
    found, told = own_results.read(needed("synergy")), summary("synergy")
    assert found.labels is not None and told["ari"] >= 0.9
    assert adjusted_rand_score(found.labels, found.ours.labels) == pytest.approx(told["ari"])
    for name, method in found.others.items():
        assert method.scores["ari_p"] > 0.05, name
        assert adjusted_rand_score(found.labels, method.labels) == pytest.approx(told["baselines"][name]["ari"])
    first = sentences(found)[0]
    assert first.startswith("Structure found that no pairwise method sees: its modules agree with the known groups")


def test_pairs_are_as_sure_as_is_said() -> None:
    """Pairs said to be neighbours with about 90% are so in 80 to 100% of cases, on every kind of data that has any."""
    table = pd.read_csv(needed("calibration.csv"))
    sure = table[table["from"] >= 0.85].groupby("kind")[["pairs", "neighbors"]].sum()
    sure = sure[sure["pairs"] > 0]
    assert set(sure.index) >= {"network", "synergy"}
    shares = sure["neighbors"] / sure["pairs"]
    assert ((shares >= 0.8) & (shares <= 1)).all(), shares
    for kind, own in table.groupby("kind"):  # and those said to be none are none
        none = own[own["to"] <= 0.1]
        assert none["neighbors"].sum() <= 0.1 * none["pairs"].sum(), kind
