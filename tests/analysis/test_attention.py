"""Attention maps beside the ideal one: known cosines, Pearson's correlation, and maps without any structure."""

import numpy as np
import pytest
from scipy.spatial.distance import cosine as scipy_distance

from placecode.analysis.attention import correlation, cosine, ideal_map

pytestmark = pytest.mark.filterwarnings("error")
GRID = np.stack(np.divmod(np.arange(16), 4), axis=-1)
both = pytest.mark.parametrize("measure", [cosine, correlation])


def maps(rng, *shape: int) -> np.ndarray:
    """Random attention: rows that sum to 1."""
    return rng.dirichlet(np.ones(shape[-1]), size=shape[:-1])


def test_ideal_map_of_a_grid(rng) -> None:
    row, column = GRID.T
    np.testing.assert_array_equal(ideal_map(GRID), ((row[:, None] == row) | (column[:, None] == column)) / 7)
    np.testing.assert_array_equal(ideal_map([(0, 0), (1, 1), (2, 2)]), np.eye(3))  # nothing in common
    positions, order = rng.integers(3, size=(20, 3)), rng.permutation(20)
    result = ideal_map(positions)
    np.testing.assert_allclose(result.sum(axis=-1), 1)
    np.testing.assert_array_equal(ideal_map(positions[order]), result[order][:, order])


def test_cosine_is_scipys_and_correlation_is_pearsons(rng) -> None:
    learned, true = maps(rng, 6, 6), maps(rng, 6, 6)
    assert cosine(learned, true) == pytest.approx(1 - scipy_distance(learned.ravel(), true.ravel()))
    assert correlation(learned, true) == pytest.approx(np.corrcoef(learned.ravel(), true.ravel())[0, 1])
    assert abs(correlation(learned, true) - cosine(learned, true)) > 0.1


@pytest.mark.parametrize("order", [4, 5, 7])
def test_uniform_attention_has_a_high_cosine_and_no_correlation(order) -> None:
    ideal = ideal_map(np.stack(np.divmod(np.arange(order**2), order), axis=-1))
    uniform = np.full(ideal.shape, np.float32(1 / order**2))  # in float32 its rest is rounding, which must not count
    assert cosine(uniform, ideal) == pytest.approx(np.sqrt((2 * order - 1) / order**2))
    assert np.isnan(correlation(uniform, ideal)) and np.isnan(correlation(ideal, uniform))


@both
def test_order_of_tokens_matters_only_if_the_sides_differ(measure, rng) -> None:
    learned, ideal, order = maps(rng, 16, 16), ideal_map(GRID), rng.permutation(16)
    before = float(measure(learned, ideal))
    assert measure(learned[order][:, order], ideal[order][:, order]) == pytest.approx(before)
    assert measure(learned[order][:, order], ideal) != pytest.approx(before)


@both
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_diverged_entry_is_nan_and_the_others_are_not(measure, bad, rng) -> None:
    learned, true = maps(rng, 2, 4, 5, 5), maps(rng, 4, 5, 5)
    learned[0, 1, 3, 4] = bad
    result = measure(learned, true)
    assert result.shape == (2, 4) and np.isnan(result[0, 1]) and np.isnan(result).sum() == 1
    assert result[1, 3] == pytest.approx(float(measure(learned[1, 3], true[3])))


def test_no_attention_at_all_is_nan() -> None:
    assert np.isnan(cosine(np.zeros((3, 3)), np.eye(3)))
    assert np.isnan(correlation([[1.0]], [[1.0]]))  # a single token has no choice
