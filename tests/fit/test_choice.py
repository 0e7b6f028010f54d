"""The chosen sigma is, within one standard error of the best, the one whose PEs agree most."""

import numpy as np
import pytest

from placecode.analysis.agreement import channel_confidence
from placecode.fit.choice import choose, stability

RNG = np.random.default_rng(0)
TRUE = RNG.normal(size=(12, 4))


def errors(mean: float, spread: float = 0.1, members: int = 2, samples: int = 40) -> np.ndarray:
    """Return errors (m, N) with exactly this mean; ten blocks are alternately higher and lower by `spread`."""
    blocks = np.where(np.arange(10) % 2, spread, -spread).repeat(samples // 10)
    return mean + blocks + np.zeros((members, 1))


def alike(noise: float, fits: int = 3, seed: int = 0) -> np.ndarray:
    """Return PEs (m, l, n, d) that agree more with less noise."""
    return np.asarray(TRUE + noise * np.random.default_rng(seed).normal(size=(fits, 1, 12, 4)))


def test_the_most_stable_of_those_within_one_standard_error_is_taken() -> None:
    error = 0.1 / np.sqrt(9)  # blocks at +- 0.1: standard deviation 0.1 * sqrt(10 / 9), over the root of 10
    by_sigma = {0.01: errors(1.0), 0.05: errors(1.0 + 0.99 * error), 0.2: errors(1.0 + 1.01 * error)}
    similarity = {0.01: alike(1.0), 0.05: alike(0.3), 0.2: alike(0.01)}
    result = choose(by_sigma, similarity)
    assert result.sigma == 0.05 and [row["standard_error"] for row in result.table] == pytest.approx([error] * 3)
    assert [row["error"] for row in result.table] == pytest.approx([1.0, 1.0 + 0.99 * error, 1.0 + 1.01 * error])
    assert [row["stability"] for row in result.table] == [stability(similarity[sigma]) for sigma in (0.01, 0.05, 0.2)]


def test_the_standard_error_is_that_of_the_best() -> None:
    """A worse sigma is not chosen only because its own standard error is large."""
    by_sigma = {0.1: errors(1.0, spread=0.01), 0.2: errors(1.1, spread=2.0)}
    assert choose(by_sigma, {0.1: alike(1.0), 0.2: alike(0.01)}).sigma == 0.1
    swapped = choose({0.1: errors(1.0, spread=2.0), 0.2: errors(1.1, spread=0.01)}, {0.1: alike(1.0), 0.2: alike(0.01)})
    assert swapped.sigma == 0.2


@pytest.mark.parametrize(("groups", "over"), [(1, 10), (3, 10), (5, 5)])
def test_the_standard_error_is_over_groups_if_there_are_enough(groups, over) -> None:
    by_sigma = {0.1: np.random.default_rng(0).normal(size=(2, 100)) ** 2}
    result = choose(by_sigma, {0.1: alike(0.2)}, np.arange(100) * groups // 100)
    means = by_sigma[0.1].mean(axis=0).reshape(over, -1).mean(axis=1)
    assert result.table[0]["standard_error"] == pytest.approx(means.std(ddof=1) / np.sqrt(over))


def test_of_equals_the_smallest_is_taken_whatever_the_order() -> None:
    for order in ((0.5, 0.1, 0.2), (0.1, 0.2, 0.5)):
        result = choose({sigma: errors(1.0) for sigma in order}, {sigma: alike(0.2) for sigma in order})
        assert result.sigma == 0.1 and [row["sigma"] for row in result.table] == [0.1, 0.2, 0.5]


def test_a_single_sigma_needs_no_choice() -> None:
    result = choose({0.3: errors(1.0)}, {0.3: alike(0.2, fits=1)})
    assert result.sigma == 0.3 and np.isnan(result.table[0]["stability"])


def test_a_sigma_of_unknown_stability_is_taken_last() -> None:
    single_fit = alike(0.1, fits=1)
    assert choose({0.1: errors(1.0), 0.2: errors(1.0)}, {0.1: single_fit, 0.2: alike(2.0)}).sigma == 0.2
    assert choose({0.1: errors(1.0), 0.2: errors(1.001)}, {0.1: single_fit, 0.2: single_fit}).sigma == 0.1


def test_one_sample_has_no_standard_error() -> None:
    result = choose({0.1: np.array([[1.0]]), 0.2: np.array([[1.1]])}, {0.1: alike(1.0), 0.2: alike(0.0)})
    assert result.sigma == 0.1 and result.table[0]["standard_error"] == 0


def test_stability_is_the_mean_confidence_of_the_channels() -> None:
    pes = alike(0.3, fits=4)
    assert stability(pes) == pytest.approx(channel_confidence(pes).mean())
    turned = pes.copy()
    turned[1] = turned[1] @ np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    assert stability(turned) == pytest.approx(stability(pes), abs=0.02)
    assert stability(alike(0.0)) == pytest.approx(1) and stability(alike(1e6)) < 0.4
    assert np.isnan(stability(pes[:1]))
