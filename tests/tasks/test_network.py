"""The simulated network: its graph and its dynamics, what is held out, and what it says when the dynamics fail."""

import warnings
from typing import Any

import numpy as np
import pytest

from placecode.errors import BadInput
from placecode.tasks import network
from placecode.tasks.network import Network, cohesion, dynamics_warnings, graph, signal, simulate
from placecode.tasks.simulated import standardized_splits

SMALL: dict[str, Any] = {"nodes": 20, "clusters": 2, "train": 300, "test": 100}
LABELS = np.repeat(np.arange(3), (10, 20, 30))


def rngs(count: int, seed: int = 0) -> list[np.random.Generator]:
    return [np.random.default_rng((seed, world)) for world in range(count)]


def data(task: Network, split: str = "train") -> np.ndarray:
    return task.splits[split].inputs.numpy()


def radius(block: np.ndarray) -> float:
    return float(np.abs(np.linalg.eigvals(block)).max())


@pytest.fixture(scope="module")
def task() -> Network:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the default has nothing to complain of
        return Network(worlds=2)


def test_the_default_has_the_cohesion_of_the_prototype(task) -> None:
    assert data(task).shape == (2, 20_000, 100) and data(task, "test").shape == (2, 2_000, 100)
    assert np.bincount(task.labels).tolist() == [20] * 5
    assert np.bincount(Network(**SMALL, sizes=(12, 5, 3)).labels).tolist() == [12, 5, 3]
    inside, across = np.array([cohesion(world, task.labels) for world in data(task)]).T
    assert np.abs(inside - 0.29).max() < 0.04 and np.abs(across).max() < 0.05
    assert (task.tokens, task.features, task.worlds, task.window, task.eval_mask_ratios) == (100, 2, 2, 1, (0.5, 0.9))


def test_the_weights_of_a_task_generate_its_data(task) -> None:
    """The data are tanh(W x) plus noise of standard deviation 0.3, so that is the deviation of the residuals."""
    world = data(task)[1, :5_000].astype(float)
    deviation = np.ones(100)
    for _ in range(20):  # the data are standardized: the scale that explains them is a fixed point
        drive = np.tanh((world[:-1] * deviation) @ task.weights[1, 0].T)
        deviation = np.sqrt(drive.var(axis=0) + 0.3**2)
    assert np.abs((world[1:] * deviation - drive).std(axis=0) - 0.3).max() < 0.015
    wrong = np.tanh((world[:-1] * deviation) @ task.weights[0, 0].T)
    assert (world[1:] * deviation - wrong).std(axis=0).mean() > 0.35


def test_blocks_have_the_spectral_radius_of_the_option() -> None:
    weights = graph(rngs(3), LABELS, density=(0.3, 0.1), strength=(0.7, 0.05), lag=3)
    assert weights.shape == (3, 3, 60, 60)
    for world in weights.sum(axis=1):
        for cluster in range(3):
            inside = cluster == LABELS
            assert radius(world[np.ix_(inside, inside)]) == pytest.approx(0.7)
            assert (world[np.ix_(inside, inside)] >= 0).all()


def test_edges_have_the_density_and_strength_of_the_options() -> None:
    labels = np.repeat(np.arange(4), 100)
    (weights,) = graph(rngs(1), labels, density=(0.3, 0.1), strength=(1.0, 0.05))[:, 0]
    same = labels[:, None] == labels
    assert not np.diag(weights).any() and (weights[same] > 0).mean() == pytest.approx(0.3 * 0.99, abs=0.01)
    between = weights[~same][weights[~same] != 0]
    assert len(between) / (~same).sum() == pytest.approx(0.1, abs=0.005)
    assert abs(between.mean()) < 0.002 and between.std() == pytest.approx(0.05, abs=0.001)


def test_every_edge_has_one_delay() -> None:
    single, delayed = (graph(rngs(1), LABELS, lag=lag)[0] for lag in (1, 4))
    assert ((delayed != 0).sum(axis=0) <= 1).all()
    assert np.array_equal(delayed.sum(axis=0), single[0])  # delays are drawn last: the edges are the same
    fractions = (delayed != 0).sum(axis=(1, 2)) / (single != 0).sum()
    assert np.abs(fractions - 0.25).max() < 0.05


def test_a_cluster_without_a_loop_is_drawn_again() -> None:
    pairs = np.repeat(np.arange(200), 2)  # at a density of 0.5 three pairs of four have no edge back
    weights = graph(rngs(1), pairs, density=(0.5, 0.0))[0, 0]
    assert [round(radius(weights[k : k + 2, k : k + 2]), 6) for k in range(0, 400, 2)] == [1] * 200
    with pytest.raises(BadInput, match=r"^density_within must be large enough for a loop of edges among 10 nodes"):
        Network(**{**SMALL, "density_within": 1e-9})


@pytest.mark.parametrize("nonlinearity", network.NONLINEARITIES)
@pytest.mark.parametrize("lag", [1, 3])
def test_states_follow_the_equation(nonlinearity, lag) -> None:
    weights = graph(rngs(2), LABELS, strength=(0.9, 0.05), lag=lag)
    states = simulate(rngs(2, 1), weights, 50, gain=1.1, noise=0.0, nonlinearity=nonlinearity)
    shape = {"tanh": np.tanh, "linear": lambda x: x, "relu": lambda x: np.minimum(np.maximum(x, 0), 1)}[nonlinearity]
    for world in range(2):
        for now in (10, 30):
            drive = sum(weights[world, d] @ states[world, now - 1 - d] for d in range(lag))
            np.testing.assert_allclose(states[world, now], shape(1.1 * drive), rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(signal(weights, states, 1.1, nonlinearity), states[:, lag:], rtol=1e-9, atol=1e-300)
    assert np.abs(states[:, 10]).max() > 0.01
    if nonlinearity == "relu":
        assert states.min() >= 0 and states.max() <= 1


def test_the_residual_is_white_noise() -> None:
    weights = graph(rngs(2), LABELS, lag=2)
    states = simulate(rngs(2, 1), weights, 5_000, noise=0.2)
    residual = states[:, 2:] - signal(weights, states)
    assert np.abs(residual.std(axis=1) - 0.2).max() < 0.01 and np.abs(residual.mean(axis=1)).max() < 0.02
    assert np.abs((residual[:, 1:] * residual[:, :-1]).mean(axis=1)).max() < 0.2**2 * 0.08


def test_test_samples_come_after_a_gap() -> None:
    series = data(Network(**{**SMALL, "train": 500}))[0]
    split = Network(**SMALL, gap=60)
    for name, times in (("train", slice(0, 300)), ("test", slice(360, 460))):
        for part, line in zip(data(split, name)[0].T, series[times].T, strict=True):  # equal but for standardization
            assert np.corrcoef(part, line)[0, 1] > 0.999999
    assert np.corrcoef(data(split, "test")[0, :, 0], series[359:459, 0])[0, 1] < 0.9


def test_burn_in_is_left_out() -> None:
    early, late = data(Network(**{**SMALL, "burn_in": 0})), data(Network(**{**SMALL, "burn_in": 40}))
    assert np.corrcoef(early[0, 40:, 3], late[0, :-40, 3])[0, 1] > 0.999999


def test_standardization_uses_training_samples() -> None:
    train, test = np.random.default_rng(0).normal(3, 2, (2, 1_000, 4)), np.full((2, 5, 4), 7.0)
    scaled = standardized_splits(train, test)["test"].inputs.numpy()
    np.testing.assert_allclose(scaled[:, 0], (7 - train.mean(axis=1)) / train.std(axis=1), atol=1 / 8_000)
    constant = np.ones((1, 9, 2))
    assert not standardized_splits(constant, constant)["train"].inputs.any() and scaled.dtype == np.float32


def test_shuffled_clusters_are_the_same_in_all_worlds() -> None:
    options = {**SMALL, "train": 3_000, "shuffled": True}
    task, single = Network(**options, worlds=2), Network(**options)
    assert np.array_equal(task.labels, single.labels) and sorted(task.labels) == [0] * 10 + [1] * 10
    assert (np.diff(task.labels) != 0).sum() > 3
    for world in data(task):
        right, wrong = (np.subtract(*cohesion(world, labels)) for labels in (task.labels, np.sort(task.labels)))
        assert right > 0.1 and wrong < right / 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nonlinearity": "linear", "gain": 1.02}, "blows up"),
        ({"noise": 0}, "dies: 40 of 40 channels"),
        ({"gain": 3}, "is saturated"),
        ({"strength_within": 0.2}, "is little but noise"),
        ({"gain": 0.6}, "has lost its modules"),
        ({}, None),
        ({"nonlinearity": "linear", "strength_within": 0.9}, None),
        ({"nonlinearity": "relu"}, None),
        ({"lag": 3}, None),
        ({"noise": 0.1}, None),
    ],
)
def test_a_network_warns_only_if_its_dynamics_fail(options, words) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Network(**{"nodes": 40, "clusters": 2, "train": 3_000, **options})
    assert len(caught) == (words is not None)
    if words is not None:
        assert str(caught[0].message).startswith(f"world 0 {words}") and caught[0].filename == __file__


@pytest.mark.parametrize(
    "options",
    [
        {"nodes": 40, "clusters": 2, "train": 3_000, "gain": 1.5},
        {"nodes": 20, "clusters": 2, "train": 100, "burn_in": 0, "test": 12_000, "gain": 1.08},  # after training alone
        {"nodes": 20, "clusters": 2, "train": 100, "burn_in": 0, "test": 12_000, "gain": 1.05},  # in float32 alone
    ],
)
def test_a_network_that_diverges_is_refused(options) -> None:
    with pytest.raises(BadInput, match="world 0 must stay finite"):
        Network(nonlinearity="linear", **options)


def test_warnings_name_the_world() -> None:
    weights = graph(rngs(3), LABELS)
    states = simulate(rngs(3), weights, 3_000)
    drive = signal(weights, states[:, -1_001:])
    assert dynamics_warnings(states, drive, LABELS) == []
    states[1, 5, 3] = np.nan
    states[2, :, :2] = 0.5
    first, second = dynamics_warnings(states, drive, LABELS)
    assert first.startswith("world 1 blows up") and second.startswith("world 2 dies: 2 of 60")
