"""Nulls as mathematics: one in twenty of noise, planted groups found, smooth maps that fool the plain null alone."""

import numpy as np
import pytest
from helpers.planted import GROUPS, planted
from scipy import stats
from scipy.cluster.vq import kmeans2

from placecode.analysis import modules, nulls
from placecode.analysis.alignment import token_similarity
from placecode.analysis.modules import matrix_correlation, modularity, neighbor_agreement, segregation
from placecode.analysis.nulls import NullTest, label_null, matrix_null, shuffles, smooth_nulls

MEASURES = [modularity, segregation, modules.silhouette, neighbor_agreement]


def even_sphere(k: int) -> np.ndarray:
    """A spiral of k evenly spread places on the unit sphere."""
    height = 1 - (2 * np.arange(k) + 1) / k
    turn = np.pi * (1 + 5**0.5) * np.arange(k)
    radius = np.sqrt(1 - height**2)
    return np.stack([radius * np.cos(turn), radius * np.sin(turn), height], axis=1)


SPHERE = even_sphere(40)
BRAIN = np.concatenate([SPHERE - [3, 0, 0], SPHERE * [-1, 1, 1] + [3, 0, 0]])  # (80, 3): two halves, x mirrored
NETWORKS = np.tile(kmeans2(SPHERE, 4, minit="++", rng=np.random.default_rng(1))[1], 2)  # compact, both sides alike


def smooth(rng, members: int, reach: float = 0.8) -> np.ndarray:
    """Similarities of PEs whose features are smooth noise on either sphere, with nothing to do with any networks."""
    apart = np.linalg.norm(SPHERE[:, None] - SPHERE, axis=-1)
    root = np.linalg.cholesky(np.exp(-(apart**2) / 2 / reach**2) + 1e-9 * np.eye(40))
    halves = root @ rng.normal(size=(members, 2, 40, 6))
    return token_similarity(halves.reshape(members, 1, 80, 6))


def smooth_null(measure, similarity, labels, places, draws=99) -> NullTest:
    """`smooth_nulls` of one measure of labels."""
    return smooth_nulls({"": lambda drawn: measure(drawn, labels)}, similarity, places, draws)[""]


@pytest.mark.parametrize("measure", MEASURES)
def test_label_null_is_nominal_on_noise_and_finds_planted_groups(measure, rng) -> None:
    """15 draws of orders with 20 members each, since members of one draw share its orders."""
    result = [label_null(measure, planted(rng, 0.0, 20), GROUPS, draws=59, seed=seed) for seed in range(15)]
    low, high = stats.binom.interval(0.999, 300, 0.05)
    ties = 0.5 if measure is neighbor_agreement else 1.0  # it has few values, so that chance often comes just as high
    assert ties * low <= sum((null.p <= 0.05).sum() for null in result) <= high
    assert abs(np.mean([null.z for null in result])) < 0.2
    strong = label_null(measure, planted(rng, 3.0, 5), GROUPS, draws=99)
    assert (strong.p == 1 / 100).all() and (strong.z > 3).all()


def test_label_null_equals_a_loop_over_permuted_labels(rng, monkeypatch) -> None:
    similarity = planted(rng, 0.7, 3)
    labels = np.where(np.arange(24) % 8 == 0, -1, GROUPS)
    result = label_null(modularity, similarity, labels, draws=60, seed=4)
    null = np.array([modularity(similarity, labels[order]) for order in shuffles(labels, 60, 4)])
    observed = modularity(similarity, labels)
    np.testing.assert_allclose(result.value, observed)
    np.testing.assert_allclose(result.mean, null.mean(0))
    np.testing.assert_allclose(result.z, (observed - null.mean(0)) / null.std(0))
    np.testing.assert_allclose([result.low, result.high], np.quantile(null, [0.025, 0.975], axis=0))
    np.testing.assert_allclose(result.p, (1 + (null >= observed).sum(0)) / 61)
    alone = label_null(modularity, similarity[1], labels, draws=60, seed=4)
    assert alone.p == result.p[1]  # other members do not matter
    monkeypatch.setattr(nulls, "_chunk", lambda n: 7)
    np.testing.assert_allclose(label_null(modularity, similarity, labels, draws=60, seed=4), result)


def test_shuffles_keep_group_sizes_and_unlabelled_tokens(rng) -> None:
    labels = np.where(np.arange(24) % 5 == 0, -1, GROUPS)
    orders = shuffles(labels, 200, seed=1)
    assert orders.shape == (200, 24)
    np.testing.assert_array_equal(np.sort(orders, axis=1), np.tile(np.arange(24), (200, 1)))
    np.testing.assert_array_equal(labels[orders] == -1, np.tile(labels == -1, (200, 1)))
    np.testing.assert_array_equal(orders, shuffles(labels, 200, seed=1))
    assert (orders != shuffles(labels, 200, seed=2)).any()


@pytest.mark.filterwarnings("error")
def test_diverged_members_have_no_p_and_constant_nulls_no_z(rng) -> None:
    similarity = planted(rng, 1.0, 2)
    similarity[0, 1, 2] = np.nan
    orders = shuffles(GROUPS, 20)
    for result in (
        label_null(modularity, similarity, GROUPS, draws=20),
        matrix_null(similarity, similarity[1], orders),
        smooth_null(modularity, similarity, GROUPS, rng.normal(size=(24, 3)), draws=20),
    ):
        for part in result:
            np.testing.assert_array_equal(np.isnan(part), [True, False])
    constant = label_null(neighbor_agreement, similarity[1], np.zeros(24, dtype=int), draws=20)
    assert constant.value == constant.mean == constant.p == 1 and np.isnan(constant.z)


def test_nan_draws_count_against_significance(rng) -> None:
    def sometimes(similarity: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return np.where(labels[:, 0] == 0, modularity(similarity, labels), np.nan)

    similarity = planted(rng, 3.0, 1)[0]
    unknown = GROUPS[shuffles(GROUPS, 50)][:, 0] != 0
    result = label_null(sometimes, similarity, GROUPS, draws=50)
    assert result.p == (1 + unknown.sum()) / 51 and result.z > 3


def test_matrix_null_equals_a_loop_over_permuted_tokens(rng) -> None:
    similarity, matrix = planted(rng, 1.0, 3), planted(rng, 1.0, 1)[0]
    orders = shuffles(GROUPS, 30)
    null = np.array([matrix_correlation(similarity, matrix[order][:, order]) for order in orders])
    observed = matrix_correlation(similarity, matrix)
    result = matrix_null(similarity, matrix, orders)
    np.testing.assert_allclose(result.value, observed)
    np.testing.assert_allclose(result.z, (observed - null.mean(0)) / null.std(0), rtol=1e-6)
    np.testing.assert_allclose(result.p, (1 + (null >= observed).sum(0)) / 31)


def test_matrix_null_is_nominal_on_noise(rng) -> None:
    """Pairs that share a token are not independent; the test that thinks they are is the negative twin."""
    strength = rng.normal(size=(2, 400, 24))
    similarity, true = strength[..., :, None] + strength[..., None, :] + rng.normal(size=(2, 400, 24, 24))
    p = [float(matrix_null(similarity[i], true[i], shuffles(GROUPS, 99, seed=i)).p) for i in range(400)]
    low, high = stats.binom.interval(0.999, 400, 0.05)
    assert low <= (np.array(p) <= 0.05).sum() <= high
    assert (np.sqrt(276) * matrix_correlation(similarity, true) > stats.norm.ppf(0.95)).sum() > high


@pytest.mark.parametrize("measure", [modularity, neighbor_agreement])
def test_smooth_noise_fools_the_label_null_but_not_the_smooth_null(measure, rng) -> None:
    similarity = smooth(rng, 30)
    assert (label_null(measure, similarity, NETWORKS, draws=99).p <= 0.05).mean() > 0.9
    drawn = smooth_null(measure, similarity, NETWORKS, BRAIN).p
    assert (drawn <= 0.05).mean() < 0.15 and np.median(drawn) > 0.25
    similarity = token_similarity(0.3 * rng.normal(size=(3, 1, 80, 6)) + np.eye(6)[NETWORKS])
    assert (smooth_null(measure, similarity, NETWORKS, BRAIN, draws=199).p <= 0.01).all()


def test_smooth_draws_by_hemisphere_are_not_mirrored(rng) -> None:
    """Where places are symmetric, a mirrored map stays mirrored under every draw of the whole; not of the sides."""
    half = rng.normal(size=(20, 3)) + np.array([3, 0, 0])
    places, sides, pairs = np.concatenate([half, half * [-1, 1, 1]]), np.repeat([0, 1], 20), np.tile(np.arange(20), 2)
    root = np.linalg.cholesky(np.exp(-np.linalg.norm(half[:, None] - half, axis=-1)) + 1e-6 * np.eye(20))
    smooth = root @ rng.normal(size=(20, 12))
    mirrored = np.concatenate([smooth, smooth + 0.01 * rng.normal(size=smooth.shape)])
    unrelated = np.concatenate([smooth, root @ rng.normal(size=(20, 12))])
    similarity = token_similarity(np.stack([mirrored, unrelated])[:, None])
    statistic = {"mirror": lambda drawn: neighbor_agreement(drawn, pairs)}
    together = smooth_nulls(statistic, similarity, places, 99)["mirror"]
    by_side = smooth_nulls(statistic, similarity, places, 99, hemispheres=sides)["mirror"]
    assert together.value[0] == by_side.value[0] == 1 and together.mean[0] > 0.9
    assert by_side.mean[0] < 0.2 and by_side.p[0] == 0.01 and by_side.p[1] > 0.05
