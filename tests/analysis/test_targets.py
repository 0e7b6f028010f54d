"""Targets as mathematics: what they say of a grid, how they are related, and that measures find them where planted."""

import numpy as np
import pytest

from placecode.analysis.alignment import cka, probe, procrustes, procrustes_test, rsa, token_similarity
from placecode.analysis.modules import related_neighbor_agreement
from placecode.analysis.targets import related, targets
from placecode.encodings import sinusoid

NAMES = ["2d-fixed", "2d-fixed rotated", "one-hot", "grid", "relation"]


def cells(rows: int, columns: int) -> np.ndarray:
    return np.stack(np.divmod(np.arange(rows * columns), columns), axis=1).astype(np.float64)


GRID = cells(4, 4)
ROWS, COLUMNS = GRID.T


def test_targets_of_a_grid_by_hand() -> None:
    """2 x 3 cells, row by row."""
    result = targets(cells(2, 3), 8)
    assert list(result) == NAMES
    np.testing.assert_array_equal(result["2d-fixed"], sinusoid(cells(2, 3), 8))
    np.testing.assert_array_equal(result["one-hot"][[0, 4]], [[1, 0, 1, 0, 0], [0, 1, 0, 1, 0]])
    np.testing.assert_array_equal(result["grid"], [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]])
    np.testing.assert_array_equal(result["relation"][[0, 4]], [[1, 1, 1, 1, 0, 0], [0, 1, 0, 1, 1, 1]])
    assert related(GRID).dtype == np.bool_ and not related(GRID).diagonal().any()
    np.testing.assert_array_equal(related(GRID) | np.eye(16, dtype=bool), targets(GRID, 8)["relation"])


@pytest.mark.parametrize("axes", [1, 3])
def test_other_numbers_of_coordinates_have_targets_too(axes) -> None:
    places = np.stack(np.unravel_index(np.arange(2**axes), (2,) * axes), axis=1)
    result = targets(places, 12)
    assert list(result)[:2] == [f"{axes}d-fixed", f"{axes}d-fixed rotated"]
    np.testing.assert_array_equal(result[f"{axes}d-fixed"], sinusoid(places.astype(float), 12))
    assert result["one-hot"].shape == (2**axes, 2 * axes)
    alone = (places[:, None] != places).all(axis=-1)  # the opposite corner
    np.testing.assert_array_equal(result["relation"], ~alone)


def test_only_the_rotation_depends_on_the_seed() -> None:
    first, again, reseeded = (targets(GRID, 10, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first["2d-fixed rotated"], again["2d-fixed rotated"])
    assert np.abs(first["2d-fixed rotated"] - reseeded["2d-fixed rotated"]).max() > 0.1
    assert np.abs(first["2d-fixed rotated"] - first["2d-fixed"]).max() > 0.1
    assert procrustes(first["2d-fixed rotated"], first["2d-fixed"]) == pytest.approx(0, abs=1e-7)
    for name in set(NAMES) - {"2d-fixed rotated"}:
        np.testing.assert_array_equal(first[name], reseeded[name])


def test_targets_follow_the_order_of_tokens(rng) -> None:
    order = rng.permutation(16)
    before, after = targets(GRID, 12), targets(GRID[order], 12)
    for name in set(NAMES) - {"relation"}:
        np.testing.assert_allclose(after[name], before[name][order], atol=1e-12)
    np.testing.assert_array_equal(after["relation"], before["relation"][order][:, order])  # its features are tokens too
    np.testing.assert_array_equal(related(GRID[order]), related(GRID)[order][:, order])
    assert (related(GRID[order]) != related(GRID)).any()


def test_only_equality_counts_for_relations_and_one_hots() -> None:
    """Stretching, shifting and shuffling rows keeps who shares one; distances on the grid are not kept."""
    moved = np.stack([np.array([7.5, -1, 3, 100])[ROWS.astype(int)], 2 * COLUMNS + 1], axis=1)
    np.testing.assert_array_equal(related(moved), related(GRID))
    np.testing.assert_array_equal(targets(moved, 8)["relation"], targets(GRID, 8)["relation"])
    assert procrustes(targets(moved, 8)["one-hot"], targets(GRID, 8)["one-hot"]) == pytest.approx(0, abs=1e-7)
    assert procrustes(targets(moved, 8)["grid"], targets(GRID, 8)["grid"]) > 0.1


def test_one_hot_and_relation_have_equal_ranks_but_not_distances() -> None:
    """On a square grid, both know three kinds of pairs only: the same token, related, unrelated. Centred, the one-hots
    span the 3 + 3 differences between rows and between columns, equally. The relation has these with singular value 3
    and the 9 remaining dimensions with 1."""
    result = targets(GRID, 8)
    assert rsa(result["one-hot"], result["relation"]) == pytest.approx(1)
    assert procrustes(result["one-hot"], result["relation"]) ** 2 == pytest.approx(2 - 2 * 18 / np.sqrt(6 * 63))
    assert cka(result["one-hot"], result["relation"]) == pytest.approx(54 / np.sqrt(6 * (6 * 81 + 9)))
    oblong = targets(cells(3, 5), 8)  # here a shared row and a shared column weigh differently in the relation
    assert rsa(oblong["one-hot"], oblong["relation"]) < 0.99


def test_one_hot_and_relation_of_a_line_are_identities(rng) -> None:
    result, pe = targets(np.arange(6.0)[:, None], 8), rng.normal(size=(6, 5))
    for name in ("one-hot", "relation"):
        np.testing.assert_array_equal(result[name], np.eye(6))
        assert np.isnan(rsa(pe, result[name])) and procrustes_test(pe, result[name]).p == 1
    assert np.isfinite(rsa(pe, result["grid"]))


def test_neighbors_and_probe_of_the_targets() -> None:
    """Coordinates alone are poorer than they look, all others tell rows and columns without fail. Cells on a ray from
    the centre have one direction, so that (0, 0) is nearest to (1, 1); and of four rows along a line a linear probe
    never answers an inner one."""
    for name, target in targets(GRID, 32).items():
        expected = 0.5 if name == "grid" else 1
        assert related_neighbor_agreement(token_similarity(target), related(GRID)) == expected
        assert probe(target, ROWS, COLUMNS) == probe(target, COLUMNS, ROWS) == expected
