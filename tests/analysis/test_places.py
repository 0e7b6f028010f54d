"""Places as mathematics: grids by hand, brute force over all triples, what must change a measure and what not."""

import numpy as np
import pytest
from helpers.planted import rotation
from scipy.spatial import procrustes

from placecode.analysis import alignment, modules, nulls, places
from placecode.analysis.modules import related_neighbor_agreement
from placecode.analysis.places import neighbors_in_space, procrustes_r2


def grid(*shape: int) -> np.ndarray:
    return np.stack(np.unravel_index(np.arange(np.prod(shape)), shape), axis=1).astype(np.float64)


def brute_force(points: np.ndarray) -> np.ndarray:
    """Ball by ball, with centre and radius, and not by Thales."""
    n = len(points)
    result = np.zeros((n, n), dtype=bool)
    for i in range(n):
        for j in range(n):
            centre, radius = (points[i] + points[j]) / 2, np.linalg.norm(points[i] - points[j]) / 2
            others = [k for k in range(n) if k not in (i, j)]
            result[i, j] = i != j and all(np.linalg.norm(points[k] - centre) > radius for k in others)
    return result


@pytest.mark.parametrize("shape", [(10, 10), (3, 5), (4, 3, 5), (1, 6)])
def test_neighbors_on_a_grid_are_the_adjacent_cells(shape, rng) -> None:
    """The corners of a square lie on the ball over its diagonal; rotated, they do up to rounding."""
    cells = grid(*shape)
    adjacent = np.abs(cells[:, None] - cells).sum(axis=-1) == 1
    np.testing.assert_array_equal(neighbors_in_space(cells), adjacent)
    for _ in range(5):
        turned = 0.037 * cells @ rotation(rng, len(shape)) + rng.normal(size=len(shape)) * 50
        np.testing.assert_array_equal(neighbors_in_space(turned), adjacent)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_neighbors_equal_brute_force(k, rng, monkeypatch) -> None:
    points = rng.normal(size=(25, k))
    result = neighbors_in_space(points)
    np.testing.assert_array_equal(result, brute_force(points))
    for at_once in (1, 25 * 25 * 4):
        monkeypatch.setattr(places, "CHUNK_VALUES", at_once)
        np.testing.assert_array_equal(neighbors_in_space(points), result)


def test_equal_points_are_neighbors() -> None:
    points = np.array([[0.0, 0], [0, 0], [1, 0], [2, 0]])
    assert neighbors_in_space(points).astype(int).tolist() == [[0, 1, 1, 0], [1, 0, 1, 0], [1, 1, 0, 1], [0, 0, 1, 0]]
    assert neighbors_in_space(np.zeros((3, 2))).sum() == 6
    assert neighbors_in_space([[1.0, 2.0]]).tolist() == [[False]]


def test_agreement_by_hand() -> None:
    """Three tokens in a row, 0 - 1 - 2: token 0 is most like 1 (near), 1 like 0 and 2 alike (both near), 2 like 1."""
    near = neighbors_in_space([[0.0], [1.0], [2.0]])
    assert related_neighbor_agreement(np.array([[1.0, 0.9, 0.1], [0.9, 1.0, 0.9], [0.1, 0.9, 1.0]]), near) == 1
    far = np.array([[1.0, 0.1, 0.9], [0.1, 1.0, 0.1], [0.9, 0.1, 1.0]])  # 0 and 2 find each other; 1 ties, both near
    assert related_neighbor_agreement(far, near) == pytest.approx(1 / 3)
    tied = np.array([[1.0, 0.5, 0.5], [0.5, 1.0, 0.5], [0.5, 0.5, 1.0]])
    assert related_neighbor_agreement(tied, near) == pytest.approx((0.5 + 1 + 0.5) / 3)


def test_agreement_of_noise_is_the_share_of_near_pairs(rng) -> None:
    near = neighbors_in_space(grid(10, 10))
    noise = alignment.token_similarity(rng.normal(size=(100, 1, 100, 16)))
    assert related_neighbor_agreement(noise, near).mean() == pytest.approx(near.sum() / (100 * 99), abs=0.008)
    near = neighbors_in_space(grid(2, 2))
    similarity = np.stack([np.eye(4), np.full((4, 4), np.nan), -(1.0 - near)])  # without a result: zero, not finite
    np.testing.assert_array_equal(related_neighbor_agreement(similarity, near), [np.nan, np.nan, 1])
    assert np.isnan(related_neighbor_agreement(np.ones((1, 1)), neighbors_in_space([[0.0]])))


def test_agreement_against_shuffled_places(rng) -> None:
    cells = grid(5, 5)
    near, apart = neighbors_in_space(cells), np.linalg.norm(cells[:, None] - cells, axis=-1)
    noise = alignment.token_similarity(rng.normal(size=(1, 25, 8)))
    chance = nulls.label_null(modules.nearest_mean_of(near), np.stack([-apart, noise]), np.arange(25), 200)
    np.testing.assert_allclose(chance.value, related_neighbor_agreement(np.stack([-apart, noise]), near))
    assert chance.p[0] == pytest.approx(1 / 201) and chance.p[1] > 0.02
    assert chance.mean[0] == pytest.approx(near.sum() / (25 * 24), abs=0.02)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_procrustes_equals_scipys(k, rng) -> None:
    first, second = rng.normal(size=(2, 30, k))
    expected = 1 - procrustes(first, second)[2]
    assert procrustes_r2(first, second) == pytest.approx(expected)
    assert procrustes_r2(second, first) == pytest.approx(expected)
    moved = 3e-4 * first @ rotation(rng, k) + 7  # also mirrored
    assert procrustes_r2(moved, first) == pytest.approx(1)
    assert procrustes_r2(moved, second) == pytest.approx(expected)
    assert procrustes_r2(first[rng.permutation(30)], first) < 0.4  # the control


def test_procrustes_of_equal_points_is_nan(rng) -> None:
    true = rng.normal(size=(5, 2))
    assert np.isnan(procrustes_r2(np.full((5, 2), 0.1), true)) and np.isnan(procrustes_r2(true, np.ones((5, 2))))
    assert np.isnan(procrustes_r2(np.full((5, 2), np.nan), true))
    assert procrustes_r2(true[:, :1] * [1, 0], true) < 1  # a line has one


def test_arrange_recovers_a_grid() -> None:
    grid = np.stack(np.divmod(np.arange(100), 10), axis=1).astype(float)
    apart = np.linalg.norm(grid[:, None] - grid, axis=-1)
    fading = np.exp(-apart)  # beyond a few steps all are as unlike
    assert places.procrustes_r2(places.isomap_embedding(fading), grid) > 0.95
    shuffled = np.random.default_rng(0).permutation(100)
    turned = places.isomap_embedding(fading[np.ix_(shuffled, shuffled)])
    assert places.procrustes_r2(turned, grid[shuffled]) > 0.95 and places.procrustes_r2(turned, grid) < 0.2


def test_arrange_joins_disconnected_groups() -> None:
    groups = np.repeat([0, 1, 2], 5)
    result = places.isomap_embedding(np.where(groups[:, None] == groups, 0.9, 0.0), near=2)
    assert np.isfinite(result).all()
    apart = np.linalg.norm(result[:, None] - result, axis=-1)
    same = groups[:, None] == groups
    assert apart[same].max() < apart[~same].min()


def test_arrangements_of_two_or_equal_tokens_are_defined() -> None:
    assert places.isomap_embedding(np.eye(2), 3).shape == (2, 3)
    assert np.isnan(places.isomap_embedding(np.full((4, 4), np.nan))).all()
    alike = places.isomap_embedding(np.ones((4, 4)), axes=3)  # nobody is nearer than anyone else
    apart = np.linalg.norm(alike[:, None] - alike, axis=-1)[~np.eye(4, dtype=bool)]
    assert np.allclose(apart, apart[0])
