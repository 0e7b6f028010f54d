"""The committed trials and fits in results/fits are as good as the documentation says, which quotes them correctly."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.scripts import load
from scipy import stats
from scipy.spatial import procrustes
from sklearn.metrics import adjusted_rand_score

from placecode.experiments.channels import fit_result
from placecode.fit import fitting, others
from placecode.reports.pages.fit_text import METHOD_NAMES, sentences
from placecode.tasks.table import DATA_SETS, table_tasks

ROOT = Path(__file__).parents[2]
FITS = ROOT / "results" / "fits"
TRIALS = 5
"""Number of tables of each kind with known structure."""
PAGE = (ROOT / "docs/how-to/own-data.md").read_text().replace("\n", " ")


def summary(name: str) -> dict[str, Any]:
    return dict(json.loads((FITS / name / "summary.json").read_text()))


def test_noise_has_uniform_p_values() -> None:
    """At least 90 of 100 tables of noise have p > 0.05, and p is uniform, as in an exact test."""
    table = pd.read_csv(FITS / "noise.csv")
    assert set(table["kind"]) == {"white", "slow"}
    for kind, trials in table.groupby("kind"):
        assert sorted(trials["trial"]) == list(range(100)), kind
        above, nothing = trials["p_value"] > 0.05, trials["verdict"] == "no structure found"
        assert above.sum() >= 90 and nothing[above].all()
        assert stats.kstest(trials["p_value"], "uniform").pvalue > 0.001
        assert f'| {kind} noise | p > 0.05 in {above.sum()} of 100, "no structure found" in {nothing.sum()} |' in PAGE


def test_map_of_shuffled_pixels_is_the_grid() -> None:
    fit, record = fit_result.read(FITS / "photo"), summary("photo")
    assert fit.positions is not None and record["verdict"] == "structure found"
    adjacent = np.abs(fit.positions[:, None] - fit.positions).sum(-1) == 1
    right = adjacent[np.arange(100), (fit.ours.similarity - 9 * np.eye(100)).argmax(1)].mean()
    assert right == pytest.approx(record["neighbor_agreement"], abs=0.011) and right >= 0.85
    fits = 1 - procrustes(fit.positions, fit.ours.maps[2])[2]
    assert fits == pytest.approx(record["procrustes_r2"], abs=1e-4) and fits >= 0.9
    assert f"| shuffled pixels | neighbours {record['neighbor_agreement']:.2f}, R2 {fits:.2f} |" in PAGE


def test_modules_of_a_network_match_its_clusters() -> None:
    fit, record = fit_result.read(FITS / "network"), summary("network")
    assert fit.labels is not None and record["neighbor_agreement"] >= 0.9
    same = fit.labels[(fit.ours.similarity - 9 * np.eye(100)).argmax(1)] == fit.labels
    assert same.mean() == pytest.approx(record["neighbor_agreement"], abs=0.011)
    near = record["neighbor_agreement"]
    row, others_text = f"| network of 100 nodes | neighbours {near:.2f}, ARI of the modules {record['ari']:.2f}", []
    for name, method in {"placecode": fit.ours, **fit.others}.items():
        groups = np.where(method.labels < 0, method.labels.max() + 1, method.labels)
        score = record["ari"] if name == "placecode" else record["baselines"][name]["ari"]
        assert adjusted_rand_score(fit.labels, groups) == pytest.approx(score)
        if name != "placecode":
            others_text.append(f"{METHOD_NAMES[name]} {score:.2f}")
    assert set(fit.others) == {"correlation", "pca", "graphical lasso", "umap"}
    assert f"{row} ({', '.join(others_text)}) |" in PAGE


@pytest.mark.parametrize("name", ["synergy", "synergy-30"])
def test_only_our_modules_match_the_groups_of_synergy(name: str) -> None:
    fit, record = fit_result.read(FITS / name), summary(name)
    assert len(fit.names) == {"synergy": 15, "synergy-30": 30}[name]
    assert f"| synergy, {len(fit.names)} channels | ARI {record['ari']:.2f}" in PAGE
    assert fit.labels is not None and record["ari"] >= 0.9
    assert adjusted_rand_score(fit.labels, fit.ours.labels) == pytest.approx(record["ari"])
    for other, method in fit.others.items():
        assert method.scores["ari_p"] > 0.05, other
        assert adjusted_rand_score(fit.labels, method.labels) == pytest.approx(record["baselines"][other]["ari"])


def test_methods_with_neighbours_above_chance_are_named() -> None:
    """With 30 channels all other methods are at chance on both measures. With 15 channels two are not."""
    small, large = (fit_result.read(FITS / name) for name in ("synergy", "synergy-30"))
    blind = "Structure found that no pairwise method beside it sees: its modules match the known groups (ARI 1.00"
    assert sentences(large)[0].startswith(blind)
    significant = {
        METHOD_NAMES[name]: (method.scores["neighbor_agreement"], p)
        for name, method in small.others.items()
        if (p := method.scores.get("neighbor_agreement_p")) is not None and p <= 0.05
    }
    assert set(significant) == {"correlation + MDS", "UMAP"}
    first = sentences(small)[0]
    assert "no pairwise method" not in first
    for name, (share, p) in significant.items():
        assert f"{name} sees true neighbours (share {share:.2f}, p = {p:.3g})" in first
        assert f"{name} ({share:.2f}, p = {p:.3g})" in PAGE
    assert not any(0 <= method.scores.get("neighbor_agreement_p", 1) <= 0.05 for method in large.others.values())


def test_scores_of_other_methods_on_synergy_can_be_recomputed() -> None:
    """Other methods need no training, so their scores are computed again, but not those of UMAP, which is an extra."""
    committed = pd.read_csv(FITS / "groups.csv").set_index(["kind", "trial"]).loc["synergy"]
    trials, above = load(ROOT / "benchmarks" / "fit_trials.py"), {}
    for trial in range(TRIALS):
        values, labels, _ = trials.synergy(trial)
        parts = table_tasks(values.astype(np.float32), labels=labels, seed=trial)
        for name, method in others.compare(parts, 0.3):
            if name == "umap" or isinstance(method, str):
                continue
            scores = fitting._scores(method, parts[DATA_SETS[0]])
            share = committed.loc[trial, f"{name} neighbor_agreement"]
            assert scores.get("neighbor_agreement", np.nan) == pytest.approx(share, nan_ok=True)
            assert scores["ari_p"] > 0.05
            if (p := scores.get("neighbor_agreement_p", 1)) <= 0.05:
                above[trial, name] = f"{METHOD_NAMES[name]} ({scores['neighbor_agreement']:.2f}, p = {p:.3g})"
    assert list(above) == [(0, "correlation"), (1, "pca")]
    assert all(words in PAGE for words in above.values())


def test_confidence_of_pairs_is_calibrated() -> None:
    """Pairs with a confidence of about 90% are neighbours in 80 to 100% of cases, on every kind of data."""
    table = pd.read_csv(FITS / "calibration.csv")
    assert set(table["kind"]) == {"field", "network", "synergy"}
    for kind, bins in table.groupby("kind"):
        assert set(bins["trial"]) == set(range(TRIALS))
        confident, doubtful = bins[bins["from"] >= 0.85], bins[bins["to"] <= 0.1]
        neighbors, pairs = confident["neighbors"].sum(), confident["pairs"].sum()
        assert pairs >= 20 and 0.8 <= neighbors / pairs <= 1, kind
        assert doubtful["neighbors"].sum() <= 0.1 * doubtful["pairs"].sum(), kind
        assert re.search(rf"\| {kind} \([^|]*\) \| {neighbors} of {pairs}\b", PAGE)
    field = table[(table["kind"] == "field") & (table["from"] >= 0.85) & (table["pairs"] > 0)]
    by_trial = field.groupby("trial")[["neighbors", "pairs"]].sum()
    worst = by_trial.loc[(by_trial["neighbors"] / by_trial["pairs"]).idxmin()]
    assert f"in the worst table {worst['neighbors']} of {worst['pairs']}" in PAGE


def test_page_has_the_scores_of_further_tables() -> None:
    table = pd.read_csv(FITS / "groups.csv").set_index(["kind", "trial"]).sort_index()
    synergy, network = table.loc["synergy"], table.loc["network"]
    assert list(synergy.index) == list(network.index) == list(range(TRIALS))
    assert (synergy["placecode ari"] == 1).all()
    ours, lasso = (
        " and ".join(", ".join(f"{value:.2f}" for value in network[f"{name} ari"]).rsplit(", ", 1))
        for name in ("placecode", "graphical lasso")
    )
    assert f"| placecode | {ours} |" in PAGE and f"| graphical lasso | {lasso} |" in PAGE
