"""Fits of tables with independent channels, which get no place on the map, and fits that are stopped."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from placecode.analysis import modules, places
from placecode.analysis.partitions import ari
from placecode.errors import BadInput
from placecode.execution.progress import Interrupted
from placecode.experiments.channels import fit_result
from placecode.experiments.channels.fit_result import FitResult
from placecode.experiments.channels.table import TableExperiment
from placecode.fit.fitting import _near_share, fit
from placecode.tasks.table import table_tasks

SMALL: dict[str, Any] = {"layers": 1, "batch": 64, "learning_rate": 1e-2, "sigmas": (0.1,), "halves": 1, "draws": 99}
TINY: dict[str, Any] = {**SMALL, "steps": 2, "width": 8, "draws": 19}
GROUPS = np.arange(20) // 5


def noise(channels: int, samples: int = 600) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(samples, channels)).astype(np.float32)


@pytest.fixture(scope="module")
def partly(tmp_path_factory: pytest.TempPathFactory) -> tuple[FitResult, Path]:
    """Return the fit of four groups of five channels and five channels of noise, and its folder."""
    rng = np.random.default_rng(0)
    grouped = rng.normal(size=(600, 4))[:, GROUPS] + 0.5 * rng.normal(size=(600, 20))
    parts = table_tasks(np.concatenate([grouped, noise(5)], axis=1).astype(np.float32))
    folder = tmp_path_factory.mktemp("fit") / "run"
    return fit(TableExperiment(tables=parts, **SMALL, steps=300, width=16), folder), folder


def test_independent_channels_have_no_place_and_groups_do(partly) -> None:
    result, _ = partly
    assert result.has_structure and (~result.on_map[20:]).sum() >= 4 and result.on_map[:20].sum() >= 17
    placed = np.flatnonzero(result.on_map[:20])
    assert ari(result.ours.labels[placed], GROUPS[placed]) > 0.8


def test_channels_without_a_place_have_no_confidence_and_no_module(partly) -> None:
    result, folder = partly
    lost = ~result.on_map
    assert (result.confidence[lost] == 0).all() and (result.confidence[~lost] > 0).all()
    assert (result.pairs[lost] == 0).all() and (result.pairs[:, lost] == 0).all() and result.pairs.max() > 0.5
    table = pd.read_csv(folder / "map.csv")
    np.testing.assert_array_equal(table["module"].isna(), lost)
    np.testing.assert_array_equal(table.loc[~lost, "module"], result.ours.labels[~lost] + 1)
    np.testing.assert_array_equal(fit_result.read(folder).on_map, result.on_map)


def test_without_structure_no_channel_has_a_place(tmp_path) -> None:
    result = fit(TableExperiment(tables=table_tasks(noise(6, 200)), **TINY), tmp_path / "run")
    assert not result.has_structure and not result.on_map.any() and not result.stability
    assert (result.confidence == 0).all() and (result.pairs == 0).all()
    assert pd.read_csv(tmp_path / "run" / "map.csv")["module"].isna().all()


def test_neighbours_are_counted_over_channels_that_have_one(tmp_path) -> None:
    """The share is over the six channels with a label, since the nearest channel of the others cannot be right."""
    labels = np.array([0, 0, 0, 1, 1, 1, -1, -1, -1, -1])
    result = fit(TableExperiment(tables=table_tasks(noise(10, 200), labels=labels), **TINY), tmp_path / "run")
    same = (labels[:, None] == labels) & (labels >= 0)
    for method in (result.ours, result.others["correlation"]):  # which have no ties
        nearest = np.where(np.eye(10, dtype=bool), -np.inf, method.similarity).argmax(axis=1)
        assert method.scores["neighbor_agreement"] == pytest.approx(same[np.arange(10), nearest][labels >= 0].mean())
    assert result.ours.scores["ari"] == 0  # all are one group: those without a module


@pytest.mark.parametrize("labels", [np.full(6, -1), np.zeros(6, int), np.arange(6), [0, 0, 0, 1, 1, 1]])
def test_uninformative_labels_give_no_scores(labels, tmp_path) -> None:
    """Labels are uninformative if there are none, all are equal or all differ. The last labels are informative."""
    experiment = TableExperiment(tables=table_tasks(noise(6, 200), labels=np.asarray(labels)), **TINY)
    result = fit(experiment, tmp_path / "run")
    informative = list(labels) == [0, 0, 0, 1, 1, 1]
    for method in (result.ours, *result.others.values()):
        assert ("ari" in method.scores, "neighbor_agreement" in method.scores) == (informative, informative)


def test_the_share_of_true_neighbours_is_related_neighbor_agreement() -> None:
    rng = np.random.default_rng(0)
    similarity, positions = rng.normal(size=(30, 30)), rng.normal(size=(30, 2))
    similarity, near = similarity + similarity.T, places.neighbors_in_space(positions)
    measure = _near_share(similarity, near)
    for order in (np.arange(30), rng.permutation(30)):
        shuffled = near[order][:, order]
        assert measure(order) == pytest.approx(float(modules.related_neighbor_agreement(similarity, shuffled)))
    assert np.isnan(_near_share(np.zeros((30, 30)), near)(np.arange(30)))


def test_a_fit_stopped_after_training_continues_only_with_resume(tmp_path) -> None:
    experiment = TableExperiment(tables=table_tasks(noise(6, 200)), **TINY)
    folder, messages = tmp_path / "run", list[str]()
    with pytest.raises(Interrupted):
        fit(experiment, folder, announce=messages.append, stop=lambda: len(messages) == 2)
    assert messages == ["choosing sigma", "testing against chance"]
    assert (folder / "summary.json").is_file() and not (folder / "fit.json").exists()
    with pytest.raises(BadInput, match="it holds a fit that was stopped after training"):
        fit(experiment, folder)
    trained = (folder / "weights.safetensors").stat().st_mtime_ns
    result = fit(experiment, folder, resume=True)
    assert (folder / "weights.safetensors").stat().st_mtime_ns == trained
    straight = fit(experiment, tmp_path / "straight")
    assert (result.p_value, result.heldout_mse) == (straight.p_value, straight.heldout_mse)
