"""Measures of arrangement as mathematics: what must not change them, what must, and independent formulas."""

import numpy as np
import pytest
from helpers.planted import rotation
from scipy import stats
from scipy.linalg import orthogonal_procrustes
from scipy.spatial.distance import cosine

from placecode.analysis import alignment
from placecode.analysis.alignment import (
    probe,
    procrustes,
    procrustes_raw,
    procrustes_test,
    token_similarity,
)
from placecode.analysis.modules import related_neighbor_agreement

ROWS, COLUMNS = np.divmod(np.arange(16), 4)  # 4 x 4 cells
AKIN = ((ROWS[:, None] == ROWS) | (COLUMNS[:, None] == COLUMNS)) & ~np.eye(16, dtype=bool)


def z(pe: np.ndarray, target: np.ndarray) -> np.ndarray:
    return procrustes_test(pe, target).z


def p(pe: np.ndarray, target: np.ndarray) -> np.ndarray:
    return procrustes_test(pe, target).p


def nearest_related(pe: np.ndarray, related: np.ndarray) -> np.ndarray:
    return related_neighbor_agreement(token_similarity(pe), related)


def neighbors(pe: np.ndarray, target: np.ndarray) -> np.ndarray:
    """`related_neighbor_agreement` of two arrangements: related are the half of pairs that are nearer in `target`."""
    similarity = token_similarity(target)
    return nearest_related(pe, similarity > np.median(similarity))


def decoded(pe: np.ndarray, target: np.ndarray) -> np.ndarray:
    """`probe` as a measure of two arrangements: is a token far out on the target's first axis? Folds by its second."""
    axes = np.linalg.svd(target - target.mean(0))[0]
    flips = np.abs(axes) > np.median(np.abs(axes), axis=0)  # blind to the sign of an axis
    return probe(pe, flips[:, 0], flips[:, 1])


MEASURES = [procrustes_raw, procrustes, alignment.rsa, alignment.cka, z, p, neighbors, decoded]


def test_similarity_is_the_cosine_of_centred_tokens(rng) -> None:
    pe = rng.normal(size=(2, 3, 5, 4))  # (e, l, n, d)
    rows = np.concatenate([block - block.mean(0) for block in pe[1]], axis=1)  # (n, l * d)
    result = token_similarity(pe)
    assert result.shape == (2, 5, 5)
    for i, j in np.ndindex(5, 5):
        assert result[1, i, j] == pytest.approx(1 - cosine(rows[i], rows[j]), abs=1e-12)
    np.testing.assert_allclose(token_similarity(pe[0, 0]), token_similarity(pe[0, :1]), atol=1e-14)  # a single block
    np.testing.assert_array_equal(alignment.side_by_side(np.arange(12).reshape(2, 3, 2))[1], [2, 3, 8, 9])


@pytest.mark.parametrize("value", [0.0, 0.1, 1e8])
def test_tokens_without_direction_have_no_similarity(value) -> None:
    np.testing.assert_array_equal(token_similarity(np.full((2, 7, 3), value)), np.zeros((7, 7)))
    centre = token_similarity(np.array([[1.0, 0], [-1, 0], [0, 0]]))
    np.testing.assert_allclose(centre, [[1, -1, 0], [-1, 1, 0], [0, 0, 0]], atol=1e-15)


@pytest.mark.parametrize("d", [5, 7, 40])
def test_raw_distances_equal_scipys_procrustes(d, rng) -> None:
    pe, target = rng.normal(size=(4, 1, 7, d)), rng.normal(size=(3, 7, d))
    pe[0, 0] = 5 * target[1] @ rotation(rng, d)
    pe[1, 0] = 0  # nothing to rotate, and singular values that are all equal
    pe[2, 0, :, 2:] = 0  # of rank 2: many best rotations, one distance
    result = procrustes_raw(pe, target)
    assert result.shape == (4, 3)
    for i, j in np.ndindex(4, 3):
        best, _ = orthogonal_procrustes(pe[i, 0], target[j])
        assert result[i, j] == pytest.approx(np.linalg.norm(pe[i, 0] @ best - target[j]), rel=1e-12)
    for _ in range(20):  # no other rotation does better
        assert np.linalg.norm(pe[3, 0] @ rotation(rng, d) - target[0]) > result[3, 0]


def test_raw_distance_of_large_numbers(rng) -> None:
    pe, target = rng.normal(size=(2, 6, 5))
    assert procrustes_raw(1e38 * pe, target) == pytest.approx(1e38 * np.linalg.norm(pe), rel=1e-9)
    with np.errstate(all="raise"):
        assert np.isnan(procrustes_raw(1e200 * pe, 1e200 * target))  # beyond the range of float64


def test_scale_free_distance_equals_its_closed_form(rng) -> None:
    pe, target = rng.normal(size=(2, 8, 20))
    a, b = ((x - x.mean(0)) / np.linalg.norm(x - x.mean(0)) for x in (pe, target))
    assert procrustes(pe, target) == pytest.approx(np.sqrt(2 - 2 * np.linalg.norm(a.T @ b, "nuc")), rel=1e-10)
    line, across = np.array([[1.0], [-1], [0], [0]]), np.array([[0.0], [0], [1], [-1]])  # no rotation matches them
    assert [procrustes(line, across), alignment.cka(line, across)] == pytest.approx([np.sqrt(2), 0], abs=1e-15)
    for distance in (procrustes_raw, procrustes):  # the narrower array counts as padded with zeros
        padded = np.pad(pe[:, :3], ((0, 0), (0, 17)))
        assert distance(pe[:, :3], target) == pytest.approx(distance(padded, target), rel=1e-12)
        assert distance(target, pe[:, :3]) == pytest.approx(distance(padded, target), rel=1e-12)


def test_rsa_and_cka_equal_their_definitions(rng) -> None:
    """CKA by products of features, || X' Y ||^2 / (|| X' X || || Y' Y ||), where the code uses those of tokens."""
    pe, target = rng.normal(size=(2, 4, 7, 5)), rng.normal(size=(7, 3))
    upper = np.triu_indices(7, 1)
    expected = stats.spearmanr(token_similarity(pe[1])[upper], token_similarity(target)[upper]).statistic
    assert alignment.rsa(pe, target).shape == alignment.cka(pe, target).shape == (2,)
    assert alignment.rsa(pe, target)[1] == pytest.approx(expected, rel=1e-10)
    x, y = (a - a.mean(0) for a in (alignment.side_by_side(pe[1]), target))
    expected = np.linalg.norm(x.T @ y) ** 2 / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y))
    assert alignment.cka(pe, target)[1] == pytest.approx(expected, rel=1e-12)


def test_equal_sides_of_a_square_tie_whatever_their_rounding(rng) -> None:
    """Each corner has two nearest ones, which count one half; rotating the square must not choose between them."""
    square, target = np.array([[0.0, 0], [0, 1], [1, 1], [1, 0]]), rng.normal(size=(4, 3))
    beside = np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], dtype=bool)
    expected = float(alignment.rsa(square, target))
    for _ in range(20):
        turned = square @ rotation(rng, 2)
        assert alignment.rsa(turned, target) == pytest.approx(expected, abs=1e-12)
        assert nearest_related(turned, beside) == 0.5
    assert nearest_related(square * [1, 0.5], beside) == 1  # the control: flattened, the sides differ


@pytest.mark.parametrize("width", [2, 6, 40])
def test_permuted_equals_a_loop_over_permuted_targets(width, rng) -> None:
    pe, target = rng.normal(size=(3, 2, 6, 5)), rng.normal(size=(6, width))
    pe[0, :, :, :2] += 2 * target[:, :2]
    result = procrustes_test(pe, target, count=50, seed=4)
    drawn = np.random.default_rng(4)
    tokens = alignment.side_by_side(pe)
    null = np.stack([procrustes(tokens, target[drawn.permutation(6)]) for _ in range(50)])  # (50, 3)
    unpermuted = procrustes(tokens, target)
    np.testing.assert_allclose(result.z, (null.mean(0) - unpermuted) / null.std(0), rtol=1e-6)
    np.testing.assert_allclose(result.p, (1 + (null <= unpermuted).sum(0)) / 51)


def test_p_values_of_noise_are_nominal(rng) -> None:
    """p <= 0.05 at the nominal rate, and z around 0: 20 draws of orders with 50 members each."""
    target, pe = rng.normal(size=(9, 3)), rng.normal(size=(20, 50, 2, 9, 4))
    result = [procrustes_test(members, target, count=99, seed=seed) for seed, members in enumerate(pe)]
    low, high = stats.binom.interval(0.999, 1000, 0.05)
    assert low <= sum((null.p <= 0.05).sum() for null in result) <= high
    assert abs(np.mean([null.z for null in result])) < 0.15
    pe[..., :3] += target  # the control: some structure
    assert (procrustes_test(pe, target, count=99).p <= 0.05).mean() > 0.3


@pytest.mark.parametrize("turn", [False, True])
def test_one_hot_targets_have_p_of_one(turn, rng) -> None:
    """One-hot tokens: no order of them is another arrangement, and rounding must not say otherwise."""
    for pe in (np.eye(7), rng.normal(size=(7, 5))):
        result = procrustes_test(pe, np.eye(7) @ rotation(rng, 7) if turn else np.eye(7))
        assert np.isnan(result.z) and result.p == 1


def test_related_neighbor_agreement_equals_its_definition(rng) -> None:
    pe = rng.normal(size=(5, 2, 16, 3))
    for member, share in zip(pe, nearest_related(pe, AKIN), strict=True):
        rows = alignment.side_by_side(member - member.mean(1, keepdims=True))
        nearest = [min((cosine(a, b), j) for j, b in enumerate(rows) if j != i)[1] for i, a in enumerate(rows)]
        assert share == pytest.approx(AKIN[range(16), nearest].mean())
    grid = np.concatenate([np.eye(4)[ROWS], np.eye(4)[COLUMNS]], axis=1)
    assert nearest_related(grid, AKIN) == 1 and nearest_related(grid, ~AKIN) == 0
    noise = nearest_related(rng.normal(size=(2000, 1, 16, 8)), AKIN)
    assert noise.mean() == pytest.approx(6 / 15, abs=0.015)  # 6 of the 15 other cells share a row or a column


@pytest.mark.parametrize(("ridge", "labels"), [(0.01, ROWS), (0.1, ROWS % 2), (3.0, np.arange(16) % 3)])
def test_probe_equals_scikit_learns_ridge_classifier(ridge, labels, rng) -> None:
    linear = pytest.importorskip("sklearn.linear_model", reason="the reference is scikit-learn's")
    pe = 5 + rng.normal(size=(20, 2, 16, 3)) + 0.7 * np.eye(4)[ROWS][:, :3]
    expected = []
    for member in map(alignment.side_by_side, pe):
        right = 0
        for fold in range(4):
            test = np.equal(COLUMNS, fold)
            train = ~test
            length = ((member[train] - member[train].mean(0)) ** 2).sum(1).mean()
            fitted = linear.RidgeClassifier(alpha=ridge * length).fit(member[train], labels[train])
            right += (fitted.predict(member[test]) == labels[test]).sum()
        expected.append(right / 16)
    np.testing.assert_allclose(probe(pe, labels, COLUMNS, ridge), expected)
    assert np.std(expected) > 0.05  # members differ, so there was something to get wrong


def test_probe_decodes_a_planted_grid_and_guesses_on_noise(rng) -> None:
    grid = np.concatenate([np.eye(4)[ROWS], np.eye(4)[COLUMNS]], axis=1)
    assert probe(grid + 0.05 * rng.normal(size=(16, 8)), ROWS, COLUMNS) == 1
    noise = rng.normal(size=(2000, 1, 16, 8))
    assert probe(noise, ROWS, COLUMNS).mean() == pytest.approx(0.25, abs=0.01)
    assert probe(noise, ROWS, np.arange(16)).mean() < 0.2  # why not one fold per token: the right row is the rarest one
    assert probe(np.eye(4)[COLUMNS], ROWS, COLUMNS) == 0.25  # only columns are coded, so all rows tie
    assert probe(np.eye(4)[COLUMNS], COLUMNS, ROWS) == 1
    pe = rng.normal(size=(9, 2, 16, 5)) + np.eye(5)[ROWS]
    np.testing.assert_allclose(probe(pe, 7 - 2 * ROWS, 10 * COLUMNS), probe(pe, ROWS, COLUMNS))  # names do not matter


def test_probe_guesses_if_training_tokens_are_equal() -> None:
    """Two folds; the tokens of the first are equal but for rounding, so that those of the second tie."""
    fold, label = np.divmod(np.arange(8), 2)
    fold = np.minimum(fold // 2, 1)
    place = np.where(fold == 0, 0.1, label)[:, None]
    for rounding in (0, 1e-16):
        assert probe(place + rounding * np.arange(8)[:, None], label, fold) == 0.5
    assert probe(1.0 * label[:, None], label, fold) == 1


@pytest.mark.filterwarnings("error")
def test_views_are_all_blocks_their_mean_and_single_blocks(rng) -> None:
    pe = rng.normal(size=(3, 2, 5, 4))
    result = alignment.views(pe)
    assert list(result) == [-1, -2, 0, 1]
    np.testing.assert_array_equal(result[-1], pe)
    np.testing.assert_allclose(result[-2][:, 0], (pe[:, 0] + pe[:, 1]) / 2)
    np.testing.assert_array_equal(result[1], pe[:, 1:])
    pe[0, :, 1, 2] = np.inf, -np.inf  # a member that diverged
    np.testing.assert_array_equal(np.isfinite(alignment.views(pe)[-2]).all(axis=(1, 2, 3)), [False, True, True])


def planted(rng) -> tuple[np.ndarray, np.ndarray]:
    """A target (n, d), and three members (3, 1, n, d) that resemble it, each less than the one before."""
    target = rng.normal(size=(16, 6)) * [4, 2, 1, 1, 1, 1]
    return target + np.array([0.1, 0.3, 1]).reshape(3, 1, 1, 1) * rng.normal(size=(3, 1, 16, 6)), target


@pytest.mark.parametrize("measure", MEASURES)
def test_only_the_match_of_tokens_matters(measure, rng) -> None:
    """Not a rotation, scale or shift of either side, nor the order of tokens if both sides have the same."""
    pe, target = planted(rng)
    order, before = rng.permutation(16), measure(pe, target)
    np.testing.assert_allclose(measure(pe @ rotation(rng, 6), target), before, rtol=1e-8)
    np.testing.assert_allclose(measure(pe, target @ rotation(rng, 6)), before, rtol=1e-8)
    if measure is not procrustes_raw:
        np.testing.assert_allclose(measure(1e-6 * pe + 0.1, target), before, rtol=1e-6)
        np.testing.assert_allclose(measure(pe, 50 * target - 3), before, rtol=1e-6)
    close = {z: {"rtol": 0.25}, p: {"atol": 0.02}}.get(measure, {"rtol": 1e-9})  # `procrustes_test` draws other orders
    np.testing.assert_allclose(measure(pe[:, :, order], target[order]), before, **close)
    for alone in (measure(pe[:, :, order], target), measure(pe, target[order])):  # the control: of one side alone
        assert (np.abs(alone - before) > (2 if measure is z else 0.1)).any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, "equal tokens"])
@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.filterwarnings("error")
def test_a_member_without_an_arrangement_is_nan_and_its_neighbour_is_not(measure, bad, rng) -> None:
    pe, target = rng.normal(size=(2, 1, 6, 20)), rng.normal(size=(6, 20))
    expected = float(np.ravel(measure(pe[1], target))[0])
    if bad == "equal tokens":
        for value in (0.0, 0.1, 1e8):
            pe[0] = value
            assert np.isnan(measure(pe, target).ravel()[0]) == (measure is not procrustes_raw)
    else:
        pe[0, 0, 2, 1] = bad
        assert np.isnan(measure(pe, target).ravel()[0])
    assert measure(pe, target).ravel()[1] == pytest.approx(expected)


@pytest.mark.parametrize("measure", [procrustes, alignment.rsa, alignment.cka, z, p])
def test_a_target_without_an_arrangement_is_nan(measure) -> None:
    for bad in (np.nan, 1.0):
        assert np.isnan(measure(np.eye(5), np.full((5, 3), bad)))
    assert np.isnan(measure(np.ones((1, 3)), np.ones((1, 3))))  # a single token
    assert np.isnan(nearest_related(np.ones((1, 3)), np.zeros((1, 1), dtype=bool)))
