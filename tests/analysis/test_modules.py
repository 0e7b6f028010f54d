"""Modules as mathematics: brute-force formulas, planted groups and noise, what must change a measure and what not."""

from itertools import product

import networkx
import numpy as np
import pytest
from helpers.planted import GROUPS, noise, planted
from scipy import stats
from sklearn import metrics

from placecode.analysis import alignment, modules
from placecode.analysis.modules import coordinate_agreement, matrix_correlation, neighbor_agreement, segregation

MEASURES = [modules.modularity, segregation, modules.silhouette, neighbor_agreement]


def signed_q(w: np.ndarray, labels: np.ndarray) -> float:
    """Q* pair by pair, as Rubinov and Sporns (2011) write it."""
    labelled = [i for i in range(len(w)) if labels[i] >= 0]
    pairs = [(i, j) for i, j in product(labelled, labelled) if i != j]
    plus = {(i, j): max(w[i, j], 0) for i, j in pairs}
    minus = {(i, j): max(-w[i, j], 0) for i, j in pairs}
    v_plus, v_minus = sum(plus.values()), sum(minus.values())
    s_plus = {i: sum(plus[i, j] for j in labelled if j != i) for i in labelled}
    s_minus = {i: sum(minus[i, j] for j in labelled if j != i) for i in labelled}
    q = 0.0
    for i, j in product(labelled, labelled):
        if labels[i] == labels[j]:
            q += (plus.get((i, j), 0) - s_plus[i] * s_plus[j] / v_plus) / v_plus
            q -= (minus.get((i, j), 0) - s_minus[i] * s_minus[j] / v_minus) / (v_plus + v_minus)
    return q


def test_modularity_equals_the_published_sum_over_pairs(rng) -> None:
    matrices, labels = noise(rng, 3), GROUPS.copy()
    labels[[2, 9, 23]] = -1
    for groups in (GROUPS, labels, np.arange(24)):
        expected = [signed_q(w, groups) for w in matrices]
        np.testing.assert_allclose(modules.modularity(matrices, groups), expected, atol=1e-12)


def test_modularity_of_positive_weights_equals_networkx(rng) -> None:
    w = noise(np.random.default_rng(3))
    np.fill_diagonal(w, 0)
    parts = [set(np.flatnonzero(g == GROUPS)) for g in range(4)]

    def peer(weights: np.ndarray) -> float:
        return float(networkx.community.modularity(networkx.from_numpy_array(weights), parts))

    assert modules.modularity(np.abs(w), GROUPS) == pytest.approx(peer(np.abs(w)))
    assert abs(modules.modularity(w, GROUPS) - peer(w)) > 0.01


def test_one_group_has_no_modularity_segregation_or_silhouette(rng) -> None:
    w, single_group = np.abs(noise(rng)), np.zeros(24, dtype=int)
    assert modules.modularity(w, single_group) == pytest.approx(0, abs=1e-12)
    assert np.isnan(segregation(w, single_group)) and np.isnan(modules.silhouette(w, single_group))
    assert np.isnan(segregation(w, np.arange(24))) and np.isnan(segregation(-w, GROUPS))  # no positive pair within


def test_segregation_equals_its_definition(rng) -> None:
    w, labels = noise(rng), GROUPS.copy()
    labels[5] = -1
    inside, outside = [], []
    for i, j in product(range(24), range(24)):
        if i < j and min(labels[i], labels[j]) >= 0:
            (inside if labels[i] == labels[j] else outside).append(max(w[i, j], 0))
    assert segregation(w, labels) == pytest.approx(1 - np.mean(outside) / np.mean(inside))
    same = (GROUPS[:, None] == GROUPS).astype(float)
    assert segregation(same, GROUPS) == segregation(2 * same - 1, GROUPS) == 1
    assert segregation(np.ones((24, 24)), GROUPS) == pytest.approx(0)


def test_silhouette_equals_scikit_learns(rng) -> None:
    similarity, labels = planted(rng, 1.0), GROUPS.copy()
    labels[0] = 7  # a singleton
    distance = np.clip(1 - similarity, 0, None)
    for value, true in zip(modules.silhouette(similarity, labels), distance, strict=True):
        np.fill_diagonal(true, 0)
        assert value == pytest.approx(metrics.silhouette_score(true, labels, metric="precomputed"))
    labels[4:9] = -1
    labelled = labels >= 0
    expected = metrics.silhouette_score(distance[1][labelled][:, labelled], labels[labelled], metric="precomputed")
    assert modules.silhouette(similarity, labels)[1] == pytest.approx(expected)


def test_neighbor_agreement_is_that_of_tokens_related_by_their_label(rng) -> None:
    pe = rng.normal(size=(5, 2, 24, 3))
    akin = GROUPS[:, None] == GROUPS
    similarity = alignment.token_similarity(pe)
    result = neighbor_agreement(similarity, GROUPS)
    np.testing.assert_allclose(result, modules.related_neighbor_agreement(similarity, akin))
    assert np.std(result) > 0


def test_unlabelled_tokens_do_not_count_but_may_be_nearest() -> None:
    """0 and 1 are nearest to each other, 2 to 3 and 3 to 2."""
    w = np.zeros((4, 4))
    w[0, 1] = w[1, 0] = w[2, 3] = w[3, 2] = 1
    assert neighbor_agreement(w, [0, 0, 1, 1]) == 1
    assert neighbor_agreement(w, [0, 0, 1, -1]) == pytest.approx(2 / 3)  # the nearest token of 2 has no label
    assert neighbor_agreement(w, [0, -1, -1, 0]) == 0 and np.isnan(neighbor_agreement(w, [-1, -1, -1, -1]))
    w = np.array([[0, 1, 1, 0.0], [1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]])  # 0 has two nearest tokens
    assert neighbor_agreement(w, [0, 0, 1, -1]) == pytest.approx((0.5 + 1 + 0) / 3)


def test_mirror_agreement_counts_partners(rng) -> None:
    pairs = np.arange(24) ^ 1  # 2k and 2k + 1
    pe = np.repeat(rng.normal(size=(2, 1, 12, 5)), 2, axis=2) + 0.01 * rng.normal(size=(2, 1, 24, 5))
    similarity = alignment.token_similarity(pe)
    np.testing.assert_array_equal(modules.mirror_agreement(similarity, pairs), [1, 1])
    np.testing.assert_array_equal(modules.mirror_agreement(similarity, np.roll(pairs, 2)), [0, 0])
    assert modules.mirror_agreement(similarity[0], np.where(np.arange(24) < 4, (np.arange(24) + 2) % 4, -1)) == 0
    mixed = planted(rng, 0.5)
    np.testing.assert_allclose(modules.mirror_agreement(mixed, pairs), neighbor_agreement(mixed, np.arange(24) // 2))
    assert modules.mirror_agreement(mixed, np.stack([pairs, np.roll(pairs, 2)])[:, None]).shape == (2, 3)


def test_coordinate_agreement_is_the_share_of_farther_tokens(rng) -> None:
    places, similarity = rng.normal(size=(24, 2)), noise(rng)
    apart = np.linalg.norm(places[:, None] - places, axis=-1)
    np.fill_diagonal(similarity, -9)
    shares = []
    for i, j in enumerate(similarity.argmax(axis=1)):
        others = [k for k in range(24) if k not in (i, j)]
        shares.append(np.mean([apart[i, k] > apart[i, j] for k in others]))
    assert coordinate_agreement(similarity, places) == pytest.approx(np.mean(shares))
    assert coordinate_agreement(-apart, places) == coordinate_agreement(1000 - apart**3, 50 * places - 7) == 1
    assert coordinate_agreement(apart, places) == 0
    assert coordinate_agreement(noise(rng, 400), places).mean() == pytest.approx(0.5, abs=0.01)
    assert np.isnan(coordinate_agreement(np.ones((2, 2)), places[:2]))


def test_coordinate_agreement_counts_ties_one_half() -> None:
    """On a ring of 41 tokens the most similar ones are two steps away: of 39 others 2 are nearer and 1 is as far."""
    angle = 2 * np.pi * np.arange(41) / 41
    steps = np.abs(np.arange(41)[:, None] - np.arange(41))
    similarity = (np.minimum(steps, 41 - steps) == 2).astype(float)
    places = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    assert coordinate_agreement(similarity, places) == pytest.approx((36 + 0.5) / 39)


def test_matrix_correlation_equals_scipys_of_upper_triangles(rng) -> None:
    a, b = noise(rng, 2, 3), noise(rng)
    upper, off = np.triu_indices(24, 1), np.ones((24, 24)) - np.eye(24)
    linear = matrix_correlation(a, b)
    assert linear.shape == (2, 3)
    assert linear[1, 2] == pytest.approx(stats.pearsonr(a[1, 2][upper], b[upper]).statistic)
    assert matrix_correlation(np.exp(b), b) < 0.95
    diagonal = 50 * np.eye(24)  # which does not count
    np.testing.assert_allclose(matrix_correlation(a + diagonal, b + diagonal), linear)
    skew = np.triu(rng.normal(size=(24, 24)), 1)  # cancels in the mean of both directions
    np.testing.assert_allclose(matrix_correlation(a + skew - skew.T, b), linear)
    assert np.isnan(matrix_correlation(0.1 * off, b))


@pytest.mark.parametrize("measure", MEASURES)
def test_measures_ignore_names_order_diagonal_and_skew(measure, rng) -> None:
    similarity, labels = planted(rng, 1.0), np.where(np.arange(24) % 9 == 0, -1, GROUPS)
    before = measure(similarity, labels)
    np.testing.assert_allclose(measure(similarity, np.array([30, 2, 0, 11, -1])[labels]), before, atol=1e-12)
    order = rng.permutation(24)
    np.testing.assert_allclose(measure(similarity[:, order][:, :, order], labels[order]), before, atol=1e-12)
    assert (np.abs(measure(similarity, labels[order]) - before) > 1e-3).all()  # the control: of one side alone
    skew = np.triu(rng.normal(size=(24, 24)), 1)
    changed = similarity + np.diag(rng.normal(size=24)) + skew - skew.T
    np.testing.assert_allclose(measure(changed, labels), before, atol=1e-9)


@pytest.mark.parametrize("measure", MEASURES)
def test_members_and_labellings_are_batched(measure, rng) -> None:
    similarity, labels = planted(rng, 1.0), rng.integers(-1, 4, size=(5, 24))
    result = measure(similarity[:, None], labels)
    assert result.shape == (3, 5)
    for i, j in product(range(3), range(5)):
        assert result[i, j] == pytest.approx(float(measure(similarity[i], labels[j])), abs=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0])
@pytest.mark.filterwarnings("error")
def test_a_diverged_member_is_nan_and_its_neighbour_is_not(bad, rng) -> None:
    similarity = planted(rng, 2.0, 2)
    partner, places = np.arange(24) ^ 1, rng.normal(size=(24, 3))
    expected = [measure(similarity[1], GROUPS) for measure in MEASURES]
    similarity[0] = np.where(bad == 0, 0.0, similarity[0])
    similarity[0, 2, 5] = bad
    for measure, value in zip(MEASURES, expected, strict=True):
        result = measure(similarity, GROUPS)
        assert np.isnan(result[0]) and result[1] == pytest.approx(float(value))
    of_places = modules.mirror_agreement(similarity, partner), coordinate_agreement(similarity, places)
    for result in (*of_places, matrix_correlation(similarity, similarity[1])):
        np.testing.assert_array_equal(np.isnan(result), [True, False])


def test_centred_correlations_equal_those_of_centred_vectors(rng) -> None:
    """As PEs are centred: the same numbers as `similarities` of unit vectors, and no shared direction is left."""
    vectors = rng.normal(size=(3, 24, 7)) + 4
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    cosines = vectors @ np.swapaxes(vectors, -1, -2)
    np.testing.assert_allclose(modules.centred(cosines), alignment.token_similarity(vectors[:, None]), atol=1e-9)
    assert (modules.centred(np.ones((5, 5))) == 0).all()
    grouped = 0.2 + 0.8 * (GROUPS[:, None] == GROUPS)
    assert segregation(grouped, GROUPS) < 1 and segregation(modules.centred(grouped), GROUPS) == 1
