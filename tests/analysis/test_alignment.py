"""Similarity, Procrustes and RSA as mathematics: what must not change them, what must, and independent formulas."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from scipy.linalg import orthogonal_procrustes
from scipy.spatial.distance import cosine

from placecode.analysis.alignment import procrustes, procrustes_raw, rsa, side_by_side, similarity
from placecode.errors import BadInput

Array = npt.NDArray[np.float64]
DISTANCES = [procrustes_raw, procrustes]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def rotation(rng: np.random.Generator, d: int) -> Array:
    q: Array = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return q


# ------------------------------------------------------------------------------------------------------ similarity


def test_similarity_is_the_cosine_of_centred_tokens(rng: np.random.Generator) -> None:
    pe = rng.normal(size=(3, 5, 4))  # (l, n, d)
    rows = np.concatenate([block - block.mean(0) for block in pe], axis=1)  # (n, l * d)
    found = similarity(pe)
    for i in range(5):
        for j in range(5):
            assert found[i, j] == pytest.approx(1 - cosine(rows[i], rows[j]), abs=1e-12)


def test_similarity_sees_no_shift_scale_or_rotation(rng: np.random.Generator) -> None:
    pe = rng.normal(size=(2, 6, 5))
    moved = 3 * pe @ rotation(rng, 5) + rng.normal(size=(2, 1, 5))
    np.testing.assert_allclose(similarity(moved), similarity(pe), atol=1e-12)
    bent = pe * rng.uniform(0.2, 2, size=(2, 6, 5))  # the control: this does change it
    assert np.abs(similarity(bent) - similarity(pe)).max() > 0.1


def test_large_blocks_count_for_more(rng: np.random.Generator) -> None:
    pe = rng.normal(size=(2, 6, 5))
    pe[0] *= 1e4
    np.testing.assert_allclose(similarity(pe), similarity(pe[:1]), atol=1e-3)


def test_similarity_is_batched_and_takes_a_single_block(rng: np.random.Generator) -> None:
    pe = rng.normal(size=(2, 3, 4, 6, 5))
    found = similarity(pe)
    assert found.shape == (2, 3, 6, 6)
    np.testing.assert_allclose(found[1, 2], similarity(pe[1, 2]), atol=1e-14)
    np.testing.assert_allclose(similarity(pe[0, 0, 0]), similarity(pe[0, 0, :1]), atol=1e-14)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e8])
def test_tokens_in_one_place_have_no_similarity(value: float) -> None:
    np.testing.assert_array_equal(similarity(np.full((2, 7, 3), value)), np.zeros((7, 7)))


def test_a_token_at_the_centre_has_no_similarity() -> None:
    found = similarity(np.array([[1.0, 0], [-1, 0], [0, 0]]))
    np.testing.assert_allclose(found, [[1, -1, 0], [-1, 1, 0], [0, 0, 0]], atol=1e-15)


def test_tiny_encodings_keep_their_arrangement(rng: np.random.Generator) -> None:
    pe = rng.normal(size=(1, 6, 5))
    np.testing.assert_allclose(similarity(1e-30 * pe), similarity(pe), atol=1e-12)


def test_side_by_side_puts_the_blocks_of_a_token_together() -> None:
    pe = np.arange(2 * 3 * 2).reshape(2, 3, 2)  # (l, n, d)
    np.testing.assert_array_equal(side_by_side(pe)[1], [2, 3, 8, 9])


# ------------------------------------------------------------------------------------------------------ procrustes


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("shape", [(16, 5), (6, 6), (5, 40)])
def test_a_rotation_is_no_distance(
    distance: Callable[..., Array], shape: tuple[int, int], rng: np.random.Generator
) -> None:
    target = rng.normal(size=shape)
    turned = target @ rotation(rng, shape[1])
    assert distance(turned, target) == pytest.approx(0, abs=1e-12)
    noise = turned + 0.5 * rng.normal(size=shape)  # the control: noise is one
    assert distance(noise, target) > 0.1


@pytest.mark.parametrize("shape", [(16, 5), (5, 40)])
def test_raw_distance_is_that_of_the_definition(shape: tuple[int, int], rng: np.random.Generator) -> None:
    pe, target = rng.normal(size=(2, *shape))
    best, _ = orthogonal_procrustes(pe, target)
    assert procrustes_raw(pe, target) == pytest.approx(np.linalg.norm(pe @ best - target), rel=1e-12)
    for _ in range(20):  # and no other rotation does better
        assert np.linalg.norm(pe @ rotation(rng, shape[1]) - target) > procrustes_raw(pe, target)


def test_scale_free_distance_has_its_closed_form(rng: np.random.Generator) -> None:
    pe, target = rng.normal(size=(2, 8, 20))
    a, b = ((x - x.mean(0)) / np.linalg.norm(x - x.mean(0)) for x in (pe, target))
    assert procrustes(pe, target) == pytest.approx(np.sqrt(2 - 2 * np.linalg.norm(a.T @ b, "nuc")), rel=1e-10)


def test_size_and_place_matter_to_the_raw_distance_alone(rng: np.random.Generator) -> None:
    pe, target = rng.normal(size=(2, 8, 5))
    for changed in (3 * pe, pe + 2):
        assert procrustes(changed, target) == pytest.approx(procrustes(pe, target), rel=1e-10)
        assert procrustes_raw(changed, target) > procrustes_raw(pe, target) + 1


def test_raw_distance_grows_with_sigma_without_any_learning(rng: np.random.Generator) -> None:
    """Why the scale-free version stands beside the paper's: random encodings, no training at all."""
    unit, target = rng.normal(size=(2, 16, 160))
    raw = [float(procrustes_raw(sigma * unit, target)) for sigma in (0.5, 1, 2)]
    free = [float(procrustes(sigma * unit, target)) for sigma in (0.5, 1, 2)]
    assert raw[2] > 1.5 * raw[0]
    assert free == pytest.approx([free[0]] * 3)


def test_scale_free_distance_ends_at_root_two() -> None:
    """One arrangement along a line, the other across it: nothing that R could bring closer."""
    line = np.array([[1.0], [-1], [0], [0]])
    across = np.array([[0.0], [0], [1], [-1]])
    assert procrustes(line, across) == pytest.approx(np.sqrt(2))


@pytest.mark.parametrize("distance", DISTANCES)
def test_the_narrower_one_counts_as_padded_with_zeros(distance: Callable[..., Array], rng: np.random.Generator) -> None:
    pe, target = rng.normal(size=(8, 3)), rng.normal(size=(8, 30))
    padded = np.pad(pe, ((0, 0), (0, 27)))
    assert distance(pe, target) == pytest.approx(distance(padded, target), rel=1e-12)
    assert distance(target, pe) == pytest.approx(distance(pe, target), rel=1e-12)


@pytest.mark.parametrize("distance", DISTANCES)
def test_distances_are_batched(distance: Callable[..., Array], rng: np.random.Generator) -> None:
    pe, target = rng.normal(size=(2, 3, 6, 9)), rng.normal(size=(6, 4))
    found = distance(pe, target)
    assert found.shape == (2, 3)
    assert found[1, 2] == pytest.approx(float(distance(pe[1, 2], target)))


def test_tokens_in_one_place_have_no_scale_free_distance(rng: np.random.Generator) -> None:
    assert np.isnan(procrustes(np.full((4, 3), 0.1), rng.normal(size=(4, 3))))


# ------------------------------------------------------------------------------------------------------------- rsa


def test_rsa_is_spearmans_correlation_of_pairs(rng: np.random.Generator) -> None:
    pe, target = rng.normal(size=(2, 4, 7, 5)), rng.normal(size=(7, 3))
    upper = np.triu_indices(7, 1)
    expected = stats.spearmanr(similarity(pe[1])[upper], similarity(target)[upper]).statistic
    found = rsa(pe, target)
    assert found.shape == (2,)
    assert found[1] == pytest.approx(expected, rel=1e-10)


def test_rsa_of_a_turned_and_scaled_arrangement_is_one(rng: np.random.Generator) -> None:
    target = rng.normal(size=(16, 12))
    assert rsa(0.01 * target @ rotation(rng, 12) + 5, target) == pytest.approx(1)
    assert abs(rsa(rng.normal(size=(16, 12)), target)) < 0.5


def test_equal_pairs_tie_whatever_their_rounding(rng: np.random.Generator) -> None:
    """A square's four sides are equally long; turning it must not put them in an order."""
    square = np.array([[0.0, 0], [0, 1], [1, 1], [1, 0]])
    target = rng.normal(size=(4, 3))
    expected = rsa(square, target)
    for _ in range(20):
        assert rsa(square @ rotation(rng, 2), target) == pytest.approx(float(expected), abs=1e-12)


def test_rsa_without_differences_is_nan(rng: np.random.Generator) -> None:
    assert np.isnan(rsa(np.zeros((5, 3)), rng.normal(size=(5, 3))))


# ------------------------------------------------------------------------------------------------------ all of them


@pytest.mark.parametrize("measure", [procrustes_raw, procrustes, rsa])
def test_only_the_match_of_tokens_matters(measure: Callable[..., Array], rng: np.random.Generator) -> None:
    target = rng.normal(size=(9, 6))
    pe = target + 0.1 * rng.normal(size=(9, 6))
    order = np.roll(np.arange(9), 1)
    before = measure(pe, target)
    assert measure(pe[order], target[order]) == pytest.approx(float(before), rel=1e-9)
    assert abs(measure(pe[order], target) - before) > 0.1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("measure", [procrustes_raw, procrustes, rsa])
@pytest.mark.parametrize("width", [3, 20])
@pytest.mark.filterwarnings("error")
def test_a_diverged_member_is_nan_and_its_neighbour_is_not(
    measure: Callable[..., Array], bad: float, width: int, rng: np.random.Generator
) -> None:
    pe, target = rng.normal(size=(2, 1, 6, width)), rng.normal(size=(6, width))
    expected = measure(pe[1], target)
    pe[0, 0, 2, 1] = bad
    found = measure(pe, target).ravel()
    assert np.isnan(found[0])
    assert found[1] == pytest.approx(float(np.ravel(expected)[0]))


@pytest.mark.parametrize("measure", [procrustes_raw, procrustes, rsa])
def test_different_numbers_of_tokens_are_refused(measure: Callable[..., Array]) -> None:
    with pytest.raises(BadInput, match="as many tokens as the target"):
        measure(np.eye(3), np.eye(4))


@pytest.mark.parametrize("measure", [procrustes_raw, procrustes, rsa])
def test_a_vector_is_refused(measure: Callable[..., Array]) -> None:
    with pytest.raises(BadInput, match="tokens, features"):
        measure(np.ones(3), np.eye(3))
