"""Synergy: no two channels know of each other, the whole group does; and the least error that anyone can reach."""

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy import stats

from placecode.tasks.masked import masked_count
from placecode.tasks.synergy import Synergy, best_error, draw


def data(task: Synergy, split: str = "train") -> np.ndarray:
    return task.splits[split].inputs.numpy().astype(float)


def least_p_of_correlation(samples: np.ndarray) -> float:
    """Return the smallest p-value of all pairs of channels, times the number of pairs."""
    n = samples.shape[1]
    largest = np.abs(np.corrcoef(samples, rowvar=False)[np.triu_indices(n, 1)]).max()
    return n * (n - 1) / 2 * 2 * float(stats.norm.sf(largest * math.sqrt(len(samples))))


def least_p_of_information(samples: np.ndarray, bins: int = 4) -> float:
    """The same for mutual information I between quartiles: 2 N I is chi-squared if two channels are independent."""
    ranks = samples.argsort(axis=0).argsort(axis=0) * bins // len(samples)
    largest = 0.0
    for a, b in combinations(ranks.T, 2):
        joint = np.bincount(a * bins + b, minlength=bins**2).reshape(bins, bins) / len(samples)
        expected = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
        largest = max(largest, float(np.sum(joint * np.log(np.maximum(joint, 1e-300) / expected))))
    n = samples.shape[1]
    return n * (n - 1) / 2 * float(stats.chi2.sf(2 * len(samples) * largest, (bins - 1) ** 2))


def products(samples: np.ndarray, size: int) -> dict[tuple[int, ...], float]:
    """Return the mean product of the channels in each set."""
    groups = combinations(range(samples.shape[1]), size)
    return {group: float(samples[:, group].prod(axis=1).mean()) for group in groups}


@pytest.mark.parametrize("values", ["sign", "gaussian"])
@pytest.mark.parametrize("size", [3, 4])
def test_pairs_of_channels_are_independent(values, size) -> None:
    task = Synergy(groups=3, group_size=size, values=values, train=30_000, test=10)
    assert least_p_of_correlation(data(task)[0]) > 0.01 and least_p_of_information(data(task)[0]) > 0.01
    precision = np.linalg.inv(np.cov(data(task)[0], rowvar=False))
    assert np.abs(precision[np.triu_indices(task.tokens, 1)]).max() < 0.03


def test_dependent_pairs_are_detected() -> None:
    """Both measures detect correlated groups. Mutual information also detects products of two normal numbers."""
    correlated = draw(np.random.default_rng(0), 30_000, [("correlated", 3), ("distractor", 1)], correlation=0.05)
    assert least_p_of_correlation(correlated) < 1e-6 and least_p_of_information(correlated) < 1e-6
    naive = np.random.default_rng(0).standard_normal((30_000, 3))
    naive[:, 2] = naive[:, 0] * naive[:, 1]
    assert least_p_of_correlation(naive) > 0.01 and least_p_of_information(naive) < 1e-100


@pytest.mark.parametrize(("values", "size"), [("sign", 3), ("sign", 4), ("gaussian", 3)])
def test_only_products_of_whole_groups_have_a_mean(values, size) -> None:
    task = Synergy(groups=3, group_size=size, values=values, train=20_000, test=10)
    expected = (2 / math.pi) ** 1.5 if values == "gaussian" else 1.0
    for channels, mean in products(data(task)[0], size).items():
        same_group = len(set(task.labels[list(channels)])) == 1
        assert mean == pytest.approx(expected / 1.01 ** (size / 2) if same_group else 0, abs=0.05)
    assert size == 3 or max(map(abs, products(data(task)[0], 3).values())) < 0.05


def test_signs_and_their_noise() -> None:
    samples = draw(np.random.default_rng(0), 50_000, [("product", 3), ("correlated", 3), ("distractor", 1)], noise=0.1)
    noise = samples - np.sign(samples)
    assert np.abs(noise.std(axis=0) - 0.1).max() < 0.002 and np.abs(samples.mean(axis=0)).max() < 0.02
    assert np.array_equal(np.sign(samples)[:, :3].prod(axis=1), np.ones(50_000))
    assert set(np.unique(draw(np.random.default_rng(0), 99, [("product", 3)], noise=0))) == {-1, 1}


def test_gaussian_marginals() -> None:
    blocks = [("product", 3), ("product", 4), ("correlated", 3), ("distractor", 1)]
    samples = draw(np.random.default_rng(0), 20_000, blocks, "gaussian", noise=0.5)
    for channel in samples.T:
        assert stats.kstest(channel, stats.norm(0, math.sqrt(1.25)).cdf).pvalue > 0.001
    assert least_p_of_correlation(np.abs(samples[:, :3])) > 0.01  # magnitudes know nothing of each other


@pytest.mark.parametrize("values", ["sign", "gaussian"])
def test_correlated_groups_have_the_correlation_of_the_option(values) -> None:
    samples = draw(np.random.default_rng(0), 50_000, [("correlated", 4), ("correlated", 3)], values, 0.4, noise=0)
    same = np.repeat([0, 1], (4, 3))
    expected = np.where(same[:, None] == same, 0.4, 0) + 0.6 * np.eye(7)
    np.testing.assert_allclose(np.corrcoef(samples, rowvar=False), expected, atol=0.02)


def test_labels_and_kinds_and_their_order() -> None:
    plain = Synergy(sizes=(4, 3), correlated=1, distractors=2, train=20, test=5)
    assert plain.labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2, -1, -1]
    assert plain.kinds.tolist() == ["product"] * 7 + ["correlated"] * 3 + ["distractor"] * 2
    options: dict[str, Any] = {"sizes": (3, 4), "distractors": 2, "train": 5_000, "test": 5, "seed": 1}
    task, single = (Synergy(**options, shuffled=True, worlds=worlds) for worlds in (2, 1))
    assert np.array_equal(task.labels, single.labels) and sorted(task.labels) == [-1, -1, 0, 0, 0, 1, 1, 1, 1]
    assert (np.diff(task.labels) != 0).sum() > 3
    for world in data(task):
        assert all(world[:, task.labels == group].prod(axis=1).mean() > 0.9 for group in (0, 1))
        assert abs(world[:, :3].prod(axis=1).mean()) < 0.1
    assert (task.kinds[task.labels == -1] == "distractor").all()


def test_test_samples_have_a_stream_of_their_own() -> None:
    short, longer = (data(Synergy(groups=3, train=train, test=50), "test") for train in (200, 300))
    assert np.corrcoef(short[0, :, 0], longer[0, :, 0])[0, 1] > 0.999


def guess(samples, hidden, blocks, values, r, noise) -> Any:
    """Return the optimal prediction of each channel from the visible channels, by Bayes' rule."""
    guesses = np.zeros_like(samples)
    first = 0
    for kind, size in blocks:
        for channel in range(first, first + size):
            mates = [mate for mate in range(first, first + size) if mate != channel]
            visible = ~hidden[:, mates]
            if kind == "product":
                if values == "sign":
                    signs = np.tanh(samples[:, mates] / noise**2)
                else:
                    signs = 2 * stats.norm.cdf(samples[:, mates] / (noise * math.sqrt(1 + noise**2))) - 1
                    signs[:, 0] *= math.sqrt(2 / math.pi)
                guesses[:, channel] = signs.prod(axis=1) * visible.all(axis=1)
            elif kind == "correlated" and values == "sign":
                odds = 2 * np.arctanh(math.sqrt(r) * np.tanh(samples[:, mates] / noise**2))
                guesses[:, channel] = math.sqrt(r) * np.tanh((odds * visible).sum(axis=1) / 2)
            elif kind == "correlated":
                share = r / (1 + noise**2 - r + r * visible.sum(axis=1))
                guesses[:, channel] = share * (samples[:, mates] * visible).sum(axis=1)
        first += size
    return guesses


@pytest.mark.parametrize("values", ["sign", "gaussian"])
@pytest.mark.parametrize("noise", [0.1, 1.0])
@pytest.mark.parametrize(
    "blocks",
    [
        [("product", 3)] * 10,
        [("product", 4)] * 3 + [("product", 3)],
        [("product", 3)] * 2 + [("correlated", 4)] * 2 + [("distractor", 1)] * 3,
    ],
)
def test_best_error_equals_that_of_bayes_rule(values, noise, blocks) -> None:
    rng = np.random.default_rng(0)
    samples = draw(rng, 20_000, blocks, values, 0.6, noise)
    count = masked_count(0.3, samples.shape[1])
    hidden = rng.random(samples.shape).argsort(axis=1) < count
    errors = np.square(guess(samples, hidden, blocks, values, 0.6, noise) - samples) / (1 + noise**2)
    means = (errors * hidden).sum(axis=1) / count
    assert abs(means.mean() - best_error(blocks, count, values, 0.6, noise)) < 4 * means.std() / math.sqrt(len(means))


def test_best_error_by_hand() -> None:
    task = Synergy(train=10, test=5)
    assert task.best_mse(0.3) == pytest.approx(1 - 21 / 29 * 20 / 28 / 1.01)  # 9 of 30 hidden
    assert task.best_mse(0.5) == pytest.approx(1 - 15 / 29 * 14 / 28 / 1.01)
    triple = [("product", 3)]
    assert best_error(triple, 1, noise=0) == 0 and best_error(triple, 2, noise=0) == 1
    assert best_error(triple, 1, "gaussian", noise=0) == pytest.approx(1 - 2 / math.pi)
    assert best_error([("distractor", 1)] * 5, 2) == 1
    shape = {"groups": 4, "correlated": 1, "distractors": 2, "train": 10, "test": 5}
    mixed = Synergy(**shape, values="gaussian", noise=0.3, correlation=0.7)
    assert mixed.best_mse(0.3) == best_error(mixed.blocks, 5, "gaussian", 0.7, 0.3)
