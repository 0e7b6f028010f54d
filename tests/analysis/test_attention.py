"""Attention maps beside the ideal one: known cosines, Pearson's correlation, and maps without any structure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.spatial.distance import cosine as scipy_distance

from placecode.analysis.attention import correlation, cosine, ideal_map
from placecode.errors import BadInput

Array = npt.NDArray[np.float64]
GRID = np.stack(np.divmod(np.arange(16), 4), axis=-1)
both = pytest.mark.parametrize("measure", [cosine, correlation])


def maps(rng: np.random.Generator, *shape: int) -> Array:
    """Random attention: rows that sum to 1."""
    found: Array = rng.dirichlet(np.ones(shape[-1]), size=shape[:-1])
    return found


def test_ideal_map_of_a_grid() -> None:
    found = ideal_map(GRID)
    for i, (row, column) in enumerate(GRID):
        for j, (other_row, other_column) in enumerate(GRID):
            assert found[i, j] == (1 / 7 if row == other_row or column == other_column else 0)


def test_ideal_map_is_attention_whatever_the_places(rng) -> None:
    positions = rng.integers(3, size=(20, 3))
    found = ideal_map(positions)
    np.testing.assert_allclose(found.sum(axis=-1), 1)
    np.testing.assert_array_equal(found > 0, (found > 0).T)
    order = rng.permutation(20)
    np.testing.assert_array_equal(ideal_map(positions[order]), found[order][:, order])
    assert (ideal_map(positions)[order] != found).any()  # the control: one side alone does matter


def test_tokens_that_share_nothing_attend_to_themselves() -> None:
    np.testing.assert_array_equal(ideal_map([(0, 0), (1, 1), (2, 2)]), np.eye(3))


def test_positions_without_axes_are_refused() -> None:
    with pytest.raises(BadInput, match="tokens, axes"):
        ideal_map([0, 1, 2])


def test_cosine_is_scipys(rng) -> None:
    own, true = maps(rng, 6, 6), maps(rng, 6, 6)
    assert cosine(own, true) == pytest.approx(1 - scipy_distance(own.ravel(), true.ravel()))


def test_correlation_is_pearsons(rng) -> None:
    own, true = maps(rng, 6, 6), maps(rng, 6, 6)
    assert correlation(own, true) == pytest.approx(np.corrcoef(own.ravel(), true.ravel())[0, 1])
    assert abs(correlation(own, true) - cosine(own, true)) > 0.1


@both
def test_the_ideal_is_ideal_and_its_rest_is_not(measure) -> None:
    ideal = ideal_map(GRID)
    assert measure(ideal, ideal) == pytest.approx(1)
    opposite = (ideal == 0) / 9
    assert measure(opposite, ideal) == pytest.approx(0 if measure is cosine else -1)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("order", [4, 5, 7])
def test_uniform_attention_is_near_the_ideal_by_cosine_and_nothing_by_correlation(order) -> None:
    ideal = ideal_map(np.stack(np.divmod(np.arange(order**2), order), axis=-1))
    uniform = np.full(ideal.shape, np.float32(1 / order**2))  # in float32 its rest is rounding, which must not count
    assert cosine(uniform, ideal) == pytest.approx(np.sqrt((2 * order - 1) / order**2))
    assert np.isnan(correlation(uniform, ideal)) and np.isnan(correlation(ideal, uniform))


def test_correlation_sees_a_faint_tendency_in_full(rng) -> None:
    ideal = ideal_map(GRID)
    faint = 0.99 / 16 + 0.01 * ideal
    assert correlation(faint, ideal) == pytest.approx(1)
    assert cosine(faint, ideal) < 0.67
    assert abs(correlation(maps(rng, 16, 16), ideal)) < 0.3


@both
def test_leading_axes_broadcast(measure, rng) -> None:
    own, true = maps(rng, 3, 2, 4, 5, 5), maps(rng, 4, 5, 5)
    found = measure(own, true)
    assert found.shape == (3, 2, 4)
    assert found[2, 1, 3] == pytest.approx(float(measure(own[2, 1, 3], true[3])))


@both
def test_only_the_match_of_tokens_matters(measure, rng) -> None:
    own, ideal, order = maps(rng, 16, 16), ideal_map(GRID), rng.permutation(16)
    before = float(measure(own, ideal))
    assert measure(own[order][:, order], ideal[order][:, order]) == pytest.approx(before)
    assert measure(own[order][:, order], ideal) != pytest.approx(before)


@both
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.filterwarnings("error")
def test_a_diverged_member_is_nan_and_its_neighbour_is_not(measure, bad, rng) -> None:
    own, ideal = maps(rng, 2, 16, 16), ideal_map(GRID)
    expected = measure(own[1], ideal)
    own[0, 3, 4] = bad
    found = measure(own, ideal)
    assert np.isnan(found[0]) and found[1] == pytest.approx(float(expected))


@pytest.mark.filterwarnings("error")
def test_no_attention_at_all_is_nan() -> None:
    assert np.isnan(cosine(np.zeros((3, 3)), np.eye(3)))
    assert np.isnan(correlation([[1.0]], [[1.0]]))  # a single token has no choice


@both
@pytest.mark.parametrize("shape", [(3, 3), (4,), (4, 3)])
def test_maps_of_other_sizes_are_refused(measure, shape) -> None:
    with pytest.raises(BadInput, match="as large as the reference"):
        measure(np.ones(shape), np.eye(4))
