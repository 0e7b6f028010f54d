"""Results of the other methods equal those of independent computations."""

import importlib.util
import sys
import types

import numpy as np
import pytest
import torch

from placecode.analysis import baselines, connectivity
from placecode.analysis.partitions import ari
from placecode.experiments.channels.fit_result import Method
from placecode.fit import others
from placecode.fit.others import MaskedSamples, compare, correlation_of, covariance_of
from placecode.models.member import Member
from placecode.tasks.table import TableTask, table_tasks

N = 12
GROUPS = np.arange(N) % 3


def values_of(samples: int = 600, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(samples, 3))[:, GROUPS] + 0.7 * rng.normal(size=(samples, N))
    return (values * rng.uniform(0.1, 9, size=N) + rng.normal(size=N)).astype(np.float32)


@pytest.fixture(scope="module")
def parts() -> dict[str, TableTask]:
    return table_tasks(values_of())


@pytest.fixture(scope="module")
def methods(parts: dict[str, TableTask]) -> dict[str, Method]:
    results = dict(compare(parts, 0.3))
    assert list(results) == ["correlation", "pca", "graphical lasso", "umap"]
    return {name: result for name, result in results.items() if isinstance(result, Method)}


def train_of(parts: dict[str, TableTask], split: str = "train") -> np.ndarray:
    task = parts["all"]
    return task.splits[split].inputs[0][task.splits[split].targets].double().numpy()


def masked_values(task: TableTask) -> tuple[np.ndarray, np.ndarray]:
    """Return the raw values of the masked test samples, and which of them are hidden."""
    _, targets = task.bind([Member(mask_ratio=0.3)]).batch("test", torch.arange(task.row_count("test"))[None])
    values = task.raw_values("test", torch.arange(task.examples("test")))
    return values.double().numpy(), targets[0, ..., -1].numpy() > 0


def test_the_linear_error_is_that_of_the_linear_predictor(parts, methods) -> None:
    predictor = baselines.Linear().fit(train_of(parts))
    values, hidden = masked_values(parts["all"])
    scale = train_of(parts).std(axis=0)
    guess = predictor.predict(values, hidden)
    by_hand = (((guess - values) / scale) ** 2 * hidden).sum(axis=1) / hidden.sum(axis=1)
    plain = MaskedSamples(parts["all"], "test", 0.3).error(covariance_of(parts["all"]))
    assert plain == pytest.approx(by_hand.mean(), rel=1e-3)
    assert methods["correlation"].scores["heldout_mse"] == pytest.approx(plain, rel=0.02)  # hardly shrunk
    mean = (((values - train_of(parts).mean(axis=0)) / scale) ** 2 * hidden).sum(axis=1) / hidden.sum(axis=1)
    assert MaskedSamples(parts["all"], "test", 0.3).error_of_means() == pytest.approx(mean.mean(), rel=1e-4)
    assert by_hand.mean() < 0.6 * mean.mean()


def test_a_covariance_of_few_samples_is_shrunk_as_far_as_validation_prefers() -> None:
    for samples, least in ((40, 0.1), (4_000, 0.0)):
        task = table_tasks(values_of(samples))["all"]
        covariance, validation = covariance_of(task), MaskedSamples(task, "validation", 0.3)
        shrunk = others._shrunk(covariance, validation)
        np.testing.assert_allclose(np.diag(shrunk), np.diag(covariance))
        off = ~np.eye(N, dtype=bool)
        share = 1 - shrunk[off] / covariance[off]
        assert np.ptp(share) < 1e-6 and min(abs(share.mean() - tried) for tried in others.SHRINKAGE) < 1e-6
        assert share.mean() >= least - 1e-6 and (least or share.mean() < 0.05)
        assert validation.error(shrunk) <= validation.error(covariance)


def test_pca_takes_the_number_of_components_that_does_best_on_validation(parts, methods) -> None:
    covariance = covariance_of(parts["all"])
    validation, test = (MaskedSamples(parts["all"], split, 0.3) for split in ("validation", "test"))
    missed = {k: validation.error(baselines.pca_covariance(covariance, k)) for k in range(1, N)}
    assert min(missed, key=lambda k: missed[k]) == 3  # as many as there are sources
    assert methods["pca"].scores["heldout_mse"] == pytest.approx(test.error(baselines.pca_covariance(covariance, 3)))
    loadings = connectivity.pca_embedding(train_of(parts), 3)
    np.testing.assert_allclose(methods["pca"].maps[3] @ methods["pca"].maps[3].T, loadings @ loadings.T, atol=1e-3)


def test_correlation_and_its_map_are_those_of_connectivity(parts, methods) -> None:
    matrix = connectivity.correlation(train_of(parts))
    np.testing.assert_allclose(methods["correlation"].similarity, matrix, atol=1e-4)
    for axes, places in methods["correlation"].maps.items():
        expected = connectivity.mds_embedding(matrix, axes)
        apart = [np.linalg.norm(points[:, None] - points, axis=-1) for points in (places, expected)]
        np.testing.assert_allclose(*apart, atol=1e-3)


def test_the_graphical_lasso_is_that_of_connectivity(parts, methods) -> None:
    """Its penalty is chosen on the validation samples, where connectivity holds out the last fifth."""
    train = train_of(parts)
    held = (train_of(parts, "validation") - train.mean(axis=0)) / train.std(axis=0)
    matrix = connectivity.correlation(train)
    inverse = connectivity.sparse_precision(matrix, held.T @ held / len(held), matrix)
    assert inverse is not None
    np.testing.assert_allclose(methods["graphical lasso"].similarity, connectivity.partial_of(inverse), atol=1e-3)
    alike = connectivity.partial_correlation(np.concatenate([train, train_of(parts, "validation")]))
    both = [links[np.triu_indices(N, k=1)] for links in (alike, methods["graphical lasso"].similarity)]
    assert np.corrcoef(both)[0, 1] > 0.9


def test_every_method_finds_groups_that_show_in_pairs(methods) -> None:
    for name, method in methods.items():
        assert ari(method.labels, GROUPS) == 1, name
        assert method.similarity.shape == (N, N)
        assert {k: places.shape for k, places in method.maps.items()} == {2: (N, 2), 3: (N, 3)}
        assert method.scores["heldout_mse"] < 0.7


def test_the_covariance_is_of_samples_in_which_both_are_known() -> None:
    values = values_of()
    values[np.random.default_rng(1).random(values.shape) < 0.15] = np.nan
    task = table_tasks(values)["all"]
    train = values[task.splits["train"].targets].astype(np.float64)
    unit = (train - np.nanmean(train, axis=0)) / np.nanstd(train, axis=0)
    by_hand = np.array([[np.nanmean(unit[:, i] * unit[:, j]) for j in range(N)] for i in range(N)])
    np.testing.assert_allclose(covariance_of(task), by_hand, atol=2e-4)
    assert np.linalg.eigvalsh(covariance_of(task)).min() > 0


def test_a_covariance_that_missing_values_have_spoilt_is_one_that_data_could_have() -> None:
    """Three channels are never known in one sample; pairs correlate perfectly, and one pair negatively."""
    rng = np.random.default_rng(0)
    source = rng.normal(size=(600, 1))
    values = (source * [1, 1, 1, 0] + [0, 0, 0, 1] * rng.normal(size=(600, 4))).astype(np.float32)
    turn = np.arange(600) % 3
    values[turn == 0, 2], values[turn == 1, 1], values[turn == 2, 0] = np.nan, np.nan, np.nan
    values[turn == 2, 2] *= -1
    covariance = covariance_of(table_tasks(values)["all"])
    assert np.linalg.eigvalsh(covariance).min() > 0 and np.allclose(covariance, covariance.T)


def test_pieces_make_the_same_covariance(parts, monkeypatch) -> None:
    expected = covariance_of(parts["all"])
    monkeypatch.setattr(others, "VALUES_PER_CHUNK", 100)
    np.testing.assert_allclose(covariance_of(parts["all"]), expected, rtol=1e-9)


def test_a_category_that_repeats_another_correlates_with_it_fully() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(600, 6)).astype(np.float32)
    values[:, 1] = rng.integers(3, size=600)
    values[:, 4] = 2 - values[:, 1]
    parts = table_tasks(values, categories={1: ("a", "b", "c"), 4: ("x", "y", "z")})
    matrix = correlation_of(covariance_of(parts["all"]), parts["all"])
    np.testing.assert_allclose(np.diag(matrix), 1)
    assert matrix[1, 4] == pytest.approx(1, abs=1e-3)
    matrix[[1, 4], [4, 1]] = 0
    assert np.abs(matrix - np.eye(6)).max() < 0.25
    results = dict(compare(parts, 0.3))
    assert results["graphical lasso"] == "left out: it is for numbers, and some channels are categories"
    assert isinstance(results["correlation"], Method) and results["correlation"].scores["heldout_mse"] < 0.9


def test_what_is_not_installed_is_left_out_with_a_sentence(monkeypatch) -> None:
    parts = table_tasks(values_of(200))
    monkeypatch.setattr(others, "MAX_LASSO_CHANNELS", N - 1)
    results = dict(compare(parts, 0.3))
    assert results["umap"] == "left out: pip install 'placecode[umap]'"
    assert results["graphical lasso"] == f"left out: it takes too long for more than {N - 1} channels"
    monkeypatch.setattr(others, "MAX_LASSO_CHANNELS", N)
    monkeypatch.setattr(connectivity, "sparse_precision", lambda *matrices: None)
    assert dict(compare(parts, 0.3))["graphical lasso"] == "left out: it did not converge"


@pytest.mark.skipif(importlib.util.find_spec("umap") is None, reason="needs umap-learn")
def test_umap_puts_groups_together(monkeypatch) -> None:
    monkeypatch.setattr(others, "find_spec", importlib.util.find_spec)
    method = others._umap(table_tasks(values_of(300))["all"], [2, 3])
    assert isinstance(method, Method) and not method.scores
    assert set(method.maps) == {2, 3} and np.isfinite(method.maps[2]).all()
    near = np.where(np.eye(N, dtype=bool), -1, method.similarity).argmax(axis=1)
    assert (GROUPS[near] == GROUPS).mean() > 0.8


@pytest.mark.parametrize("most", [300, 2000])
def test_umap_maps_all_samples_and_two_halves_of_them(monkeypatch, most: int) -> None:
    """A category has several values in a sample, which stay together. Too many samples are thinned out evenly."""
    embedded = []

    class FirstValues:
        def __init__(self, n_components: int, **options: object) -> None:
            self.size = n_components

        def fit_transform(self, points: np.ndarray) -> np.ndarray:
            embedded.append(points)
            return points[:, : self.size]

    monkeypatch.setattr(others, "MAX_UMAP_SAMPLES", most)
    monkeypatch.setattr(others, "find_spec", lambda name: True)
    monkeypatch.setitem(sys.modules, "umap", types.SimpleNamespace(UMAP=FirstValues))
    values = values_of(600)
    values[:, 0] = np.arange(600) % 4  # codes of four categories
    task = table_tasks(values, categories={0: ["a", "b", "c", "d"]})["all"]
    assert task.columns.width == 4
    others._umap(task, [2])
    whole, *halves = (points.reshape(N, -1, task.columns.width) for points in embedded)
    trained = len(task.splits["train"])
    assert 300 < trained < 600 and whole.shape[1] == min(trained, most)
    for start, half in enumerate(halves):
        np.testing.assert_array_equal(half, whole[:, start::2])
