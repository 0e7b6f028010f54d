"""The experiment of a user's table: members, settings, and the results of a run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.folders import same_files
from helpers.refusal import refused

from placecode.analysis import modules, places
from placecode.analysis.partitions import ari
from placecode.errors import BadInput
from placecode.experiments import EXPERIMENTS, experiment_of
from placecode.experiments.channels import fit_result, table
from placecode.experiments.channels.table import TableExperiment
from placecode.fit import others
from placecode.fit.fitting import fit
from placecode.reports.pages.registry import page_of
from placecode.runs.read import Run
from placecode.tasks.table import table_tasks

TINY: dict[str, Any] = {"steps": 6, "width": 8, "layers": 1, "batch": 16, "draws": 19, "evaluations": 2}
LEARNED = {**TINY, "steps": 200, "learning_rate": 1e-2}
"""Settings with which the two sources of the channels are found."""


def values(samples: int = 200, channels: int = 6) -> np.ndarray:
    rng = np.random.default_rng(0)
    source = rng.normal(size=(samples, 2))[:, np.arange(channels) % 2]
    return (source + 0.3 * rng.normal(size=(samples, channels))).astype(np.float32)


@pytest.fixture(scope="module", autouse=True)
def _without_umap() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(others, "find_spec", lambda name: None)
        yield


def fitted(folder: Path) -> Run:
    data = table_tasks(values(), positions=np.random.default_rng(1).random((6, 3)), labels=np.arange(6) % 2)
    fit(TableExperiment(tables=data, **LEARNED, sigmas=(0.05, 0.2)), folder)
    return Run(folder)


@pytest.fixture(scope="module")
def run(_without_umap: None, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return fitted(tmp_path_factory.mktemp("table") / "run")


def test_every_sigma_has_members_on_all_samples_and_on_halves_with_different_seeds() -> None:
    experiment = TableExperiment(sigmas=(0.1, 0.3), seeds=(4, 7), halves=2)
    pairs = [("all", 4), ("all", 7), ("first half", 8), ("first half", 9), ("second half", 10), ("second half", 11)]
    expected = [(sigma, data, seed) for sigma in (0.1, 0.3) for data, seed in pairs]
    assert [(member.sigma, member.data, member.seed) for member in experiment.members()] == expected
    assert len(TableExperiment(halves=0, sigmas=(0.1,)).members()) == 2


@pytest.mark.parametrize(
    ("effort", "channels", "batch", "steps"),
    [
        *(("quick", 5, 64, 3000), ("quick", 60, 53, 3000), ("quick", 61, 52, 2000), ("quick", 1000, 8, 2000)),
        *(("thorough", 20, 512, 8000), ("thorough", 1000, 32, 8000)),
    ],
)
def test_more_channels_have_smaller_batches(effort: str, channels: int, batch: int, steps: int) -> None:
    experiment = TableExperiment(**TableExperiment.settings_for_effort(effort, channels))
    assert (experiment.batch, experiment.steps) == (batch, steps)
    overridden = TableExperiment(**TableExperiment.settings_for_effort(effort, channels, batch=3, steps=7))
    assert (overridden.batch, overridden.steps) == (3, 7)


@pytest.mark.parametrize(
    "fields",
    [{"steps": 0}, {"halves": -1}, {"draws": 18}, {"neighbors": 0}, {"mask_ratio": 1.0}, {"sigmas": (0.1, 0.1)}],
)
def test_bad_settings_are_refused(fields: dict[str, Any]) -> None:
    assert [refused(TableExperiment, **fields).name] == list(fields)


def test_a_run_is_read_back_as_its_experiment_without_the_data(run: Run) -> None:
    assert TableExperiment.name not in EXPERIMENTS  # it cannot be run by name
    experiment = experiment_of(run)
    assert isinstance(experiment, TableExperiment) and experiment.sigmas == (0.05, 0.2) and not experiment.tables
    page = page_of(experiment, run)
    assert [shown.name for shown in page.figures()] == ["map", "methods", "sigma"]
    assert page.lead() and set(page.lead()) <= set(page.sentences())
    channels, slider = page.channel_map(), page.slider()
    assert channels is not None and channels.names == fit_result.read(run.path).names
    assert {"known group", "known x", "known y", "known z"} <= set(channels.columns)
    assert slider is not None and slider.groups is not None and len(slider.groups) == 6


def test_known_positions_on_three_axes_are_compared_with_the_map_on_three_axes(run: Run) -> None:
    result = fit_result.read(run.path)
    assert result.positions is not None and result.labels is not None
    near = places.neighbors_in_space(np.random.default_rng(1).random((6, 3)))
    for method in (result.ours, *result.others.values()):
        r2 = places.procrustes_r2(method.maps[3], result.positions)
        assert method.scores["procrustes_r2"] == pytest.approx(r2, abs=1e-4)
        agreement = float(modules.related_neighbor_agreement(method.similarity, near))
        assert method.scores["neighbor_agreement"] == pytest.approx(agreement)
        of_modules = ari(np.where(method.labels < 0, 99, method.labels), result.labels)
        assert method.scores["ari"] == pytest.approx(float(of_modules))
        assert 1 / 200 <= method.scores["ari_p"] <= 1 and 1 / 200 <= method.scores["neighbor_agreement_p"] <= 1


def test_errors_are_those_of_test_samples_and_sigma_is_chosen_on_validation_samples(run: Run) -> None:
    result = fit_result.read(run.path)
    members = run.members
    numbers = members.loc[(members["sigma"] == result.sigma) & (members["data"] == "all"), "member"]
    final = run.metrics[(run.metrics["step"] == 200) & (run.metrics["split"] == "test")]
    assert result.heldout_mse == pytest.approx(final[final["member"].isin(numbers)]["value"].mean(), rel=1e-5)
    validation = run.metrics[(run.metrics["step"] == 200) & (run.metrics["split"] == "validation")]
    for row in result.sigmas:
        numbers = members.loc[(members["sigma"] == row["sigma"]) & (members["data"] == "all"), "member"]
        assert row["error"] == pytest.approx(validation[validation["member"].isin(numbers)]["value"].mean(), rel=1e-5)


def test_a_fit_of_which_all_models_diverge_is_refused(tmp_path: Path) -> None:
    fields = {**TINY, "sigmas": (0.1,), "optimizer": "sgd", "learning_rate": 1e30}
    experiment = TableExperiment(tables=table_tasks(values()), **fields)
    with pytest.raises(BadInput, match="every model diverged"):
        fit(experiment, tmp_path / "run")
    assert not (tmp_path / "run" / "fit.json").exists()


def test_the_same_table_gives_the_same_fit(run: Run, tmp_path: Path) -> None:
    files = ("fit.json", "fit.safetensors", "map.csv", "summary.json")
    assert same_files(fitted(tmp_path / "run").path, run.path, *files)


def test_many_channels_keep_no_attention_maps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(table, "MAX_ATTENTION_CHANNELS", 5)
    experiment = TableExperiment(tables=table_tasks(values()), **TINY, sigmas=(0.1,))
    fit(experiment, tmp_path / "run")
    assert not Run(tmp_path / "run").has_array("attention_end/0") and Run(tmp_path / "run").has_array("pe_end/0")
    assert page_of(experiment, Run(tmp_path / "run")).figures()
