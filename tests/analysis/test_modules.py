"""Modules as mathematics: brute-force formulas, planted groups and noise, what must change a measure and what not."""

from itertools import product

import networkx
import numpy as np
import pytest
import torch
from helpers.planted import GROUPS, noise, planted
from scipy import stats

from placecode.analysis import alignment
from placecode.analysis.modules import (
    centred,
    coordinate_agreement,
    matrix_correlation,
    modularity,
    neighbor_agreement,
    segregation,
    silhouette,
    similarities,
)

metrics = pytest.importorskip("sklearn.metrics", reason="the reference is scikit-learn's")

MEASURES = [modularity, segregation, silhouette, neighbor_agreement]


def test_similarities_are_those_of_all_blocks_their_mean_and_each(rng) -> None:
    pe = rng.normal(size=(3, 2, 7, 4))
    found = similarities(torch.tensor(pe))
    for number, view in ((-1, pe), (-2, pe.mean(axis=1, keepdims=True)), (0, pe[:, :1]), (1, pe[:, 1:])):
        np.testing.assert_allclose(found.pop(number), alignment.similarity(view))
    assert not found


def signed_q(w: np.ndarray, labels: np.ndarray) -> float:
    """Q* pair by pair, as Rubinov and Sporns (2011) write it."""
    kept = [i for i in range(len(w)) if labels[i] >= 0]
    pairs = [(i, j) for i, j in product(kept, kept) if i != j]
    plus = {(i, j): max(w[i, j], 0) for i, j in pairs}
    minus = {(i, j): max(-w[i, j], 0) for i, j in pairs}
    v_plus, v_minus = sum(plus.values()), sum(minus.values())
    s_plus = {i: sum(plus[i, j] for j in kept if j != i) for i in kept}
    s_minus = {i: sum(minus[i, j] for j in kept if j != i) for i in kept}
    q = 0.0
    for i, j in product(kept, kept):
        if labels[i] == labels[j]:
            q += (plus.get((i, j), 0) - s_plus[i] * s_plus[j] / v_plus) / v_plus
            q -= (minus.get((i, j), 0) - s_minus[i] * s_minus[j] / v_minus) / (v_plus + v_minus)
    return q


def test_modularity_is_the_published_sum_over_pairs(rng) -> None:
    matrices, labels = noise(rng, 3), GROUPS.copy()
    labels[[2, 9, 23]] = -1
    for own in (GROUPS, labels, np.arange(24)):
        np.testing.assert_allclose(modularity(matrices, own), [signed_q(w, own) for w in matrices], atol=1e-12)


def test_modularity_of_two_cliques() -> None:
    """Two cliques of 3: 1 - 1/2; with -1 between them v+ = 12 and v- = 18, so (18 / 2) / 30 more for none within."""
    labels = np.repeat([0, 1], 3)
    same = (labels[:, None] == labels).astype(float)
    assert modularity(same, labels) == pytest.approx(0.5)
    assert modularity(2 * same - 1, labels) == pytest.approx(0.8)
    assert modularity(1 - 2 * same, labels) < 0  # the negative twin: alike across, unlike within


def test_modularity_without_negative_weights_is_networkx_and_with_them_it_is_not(rng) -> None:
    w = noise(np.random.default_rng(3))
    np.fill_diagonal(w, 0)
    parts = [set(np.flatnonzero(g == GROUPS)) for g in range(4)]

    def peer(weights: np.ndarray) -> float:
        return float(networkx.community.modularity(networkx.from_numpy_array(weights), parts))

    assert modularity(np.abs(w), GROUPS) == pytest.approx(peer(np.abs(w)))
    assert abs(modularity(w, GROUPS) - peer(w)) > 0.01


def test_one_group_has_no_modularity_segregation_or_silhouette(rng) -> None:
    w, one = np.abs(noise(rng)), np.zeros(24, dtype=int)
    assert modularity(w, one) == pytest.approx(0, abs=1e-12)
    assert np.isnan(segregation(w, one)) and np.isnan(silhouette(w, one))
    assert np.isnan(segregation(w, np.arange(24))) and np.isnan(segregation(-w, GROUPS))  # no positive pair within


def test_segregation_is_that_of_the_definition(rng) -> None:
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


def test_silhouette_is_scikit_learns(rng) -> None:
    similar, labels = planted(rng, 1.0), GROUPS.copy()
    labels[0] = 7  # a singleton
    distance = np.clip(1 - similar, 0, None)
    for own, true in zip(silhouette(similar, labels), distance, strict=True):
        np.fill_diagonal(true, 0)
        assert own == pytest.approx(metrics.silhouette_score(true, labels, metric="precomputed"))
    labels[4:9] = -1
    kept = labels >= 0
    expected = metrics.silhouette_score(distance[1][kept][:, kept], labels[kept], metric="precomputed")
    assert silhouette(similar, labels)[1] == pytest.approx(expected)


def test_neighbor_agreement_is_that_of_the_alignment_room(rng) -> None:
    pe = rng.normal(size=(5, 2, 24, 3))
    akin = GROUPS[:, None] == GROUPS
    found = neighbor_agreement(similarities(pe)[-1], GROUPS)
    np.testing.assert_allclose(found, alignment.neighbor_agreement(pe, akin))
    assert np.std(found) > 0


def test_tokens_without_a_label_do_not_count_but_may_be_the_nearest() -> None:
    """0 and 1 are nearest to each other, 2 to 3 and 3 to 2."""
    w = np.zeros((4, 4))
    w[0, 1] = w[1, 0] = w[2, 3] = w[3, 2] = 1
    assert neighbor_agreement(w, [0, 0, 1, 1]) == 1
    assert neighbor_agreement(w, [0, 0, 1, -1]) == pytest.approx(2 / 3)  # the nearest token of 2 has no label
    assert neighbor_agreement(w, [0, -1, -1, 0]) == 0
    assert np.isnan(neighbor_agreement(w, [-1, -1, -1, -1]))
    w = np.array([[0, 1, 1, 0.0], [1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]])  # 0 has two nearest tokens
    assert neighbor_agreement(w, [0, 0, 1, -1]) == pytest.approx((0.5 + 1 + 0) / 3)


def test_coordinate_agreement_is_a_share_of_farther_tokens(rng) -> None:
    places, similar = rng.normal(size=(24, 2)), noise(rng)
    apart = np.linalg.norm(places[:, None] - places, axis=-1)
    np.fill_diagonal(similar, -9)
    shares = []
    for i, j in enumerate(similar.argmax(axis=1)):
        others = [k for k in range(24) if k not in (i, j)]
        shares.append(np.mean([apart[i, k] > apart[i, j] for k in others]))
    assert coordinate_agreement(similar, places) == pytest.approx(np.mean(shares))
    assert coordinate_agreement(-apart, places) == coordinate_agreement(1000 - apart**3, 50 * places - 7) == 1
    assert coordinate_agreement(apart, places) == 0
    assert coordinate_agreement(noise(rng, 400), places).mean() == pytest.approx(0.5, abs=0.01)
    assert np.isnan(coordinate_agreement(np.ones((2, 2)), places[:2]))


def test_coordinate_agreement_is_a_rank_and_not_a_share_of_neighbours(rng) -> None:
    """On a ring, let every token's most similar one be the second next: never a neighbour, yet far above chance."""
    n = 41
    angle = 2 * np.pi * np.arange(n) / n
    places = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    steps = np.abs(np.arange(n)[:, None] - np.arange(n))
    similar = (np.minimum(steps, n - steps) == 2).astype(float)
    # Of the 39 remaining tokens 2 are closer and 1 is equally far, which counts one half.
    assert coordinate_agreement(similar, places) == pytest.approx((36 + 0.5) / 39)
    orders = rng.permuted(np.tile(np.arange(n), (400, 1)), axis=1)
    shuffled = similar[orders[:, :, None], orders[:, None, :]]
    assert coordinate_agreement(shuffled, places).mean() == pytest.approx(0.5, abs=0.01)


def test_matrix_correlation_is_that_of_the_upper_triangles(rng) -> None:
    a, b = noise(rng, 2, 3), noise(rng)
    upper, off = np.triu_indices(24, 1), np.ones((24, 24)) - np.eye(24)
    linear = matrix_correlation(a, b)
    assert linear.shape == (2, 3)
    assert linear[1, 2] == pytest.approx(stats.pearsonr(a[1, 2][upper], b[upper]).statistic)
    assert matrix_correlation(np.exp(b), b) < 0.95
    diagonal = 50 * np.eye(24)  # which does not count
    np.testing.assert_allclose(matrix_correlation(a + diagonal, b + diagonal), linear)
    assert np.isnan(matrix_correlation(0.1 * off, b))


def test_attention_in_both_directions_goes_with_connectivity(rng) -> None:
    """Every pair is attended to in one direction only: each alone is half noise, their mean is the connectivity."""
    connected = noise(rng)
    skew = np.triu(rng.normal(size=(2, 4, 1, 24, 24)), 1)
    maps = connected + skew - np.swapaxes(skew, -1, -2)  # (e, l, h, n, n)
    np.testing.assert_allclose(matrix_correlation(maps, connected), np.ones((2, 4, 1)))
    np.testing.assert_allclose(matrix_correlation(np.swapaxes(maps, -1, -2), connected), np.ones((2, 4, 1)))
    assert np.abs(matrix_correlation(skew, connected)).max() < 0.5


@pytest.mark.parametrize("measure", MEASURES)
def test_planted_groups_are_seen_and_noise_is_not(measure, rng) -> None:
    chance = measure(planted(rng, 0.0, 200), GROUPS)
    assert measure(planted(rng, 3.0, 40), GROUPS).min() > chance.max() + 0.1
    assert measure(planted(rng, 0.0, 40), GROUPS).max() < chance.max() + 0.1


@pytest.mark.parametrize("measure", MEASURES)
def test_names_of_groups_order_of_tokens_diagonal_and_triangle_do_not_matter(measure, rng) -> None:
    similar, labels = planted(rng, 1.0), np.where(np.arange(24) % 9 == 0, -1, GROUPS)
    before = measure(similar, labels)
    renamed = np.array([30, 2, 0, 11, -1])[labels]
    np.testing.assert_allclose(measure(similar, renamed), before, atol=1e-12)
    order = rng.permutation(24)
    np.testing.assert_allclose(measure(similar[:, order][:, :, order], labels[order]), before, atol=1e-12)
    assert (np.abs(measure(similar, labels[order]) - before) > 1e-3).all()  # the control: of one side alone
    skew = np.triu(rng.normal(size=(24, 24)), 1)
    changed = similar + np.diag(rng.normal(size=24)) + skew - skew.T
    np.testing.assert_allclose(measure(changed, labels), before, atol=1e-9)


@pytest.mark.parametrize("measure", MEASURES)
def test_members_and_labellings_are_batched(measure, rng) -> None:
    similar, labels = planted(rng, 1.0), rng.integers(-1, 4, size=(5, 24))
    found = measure(similar[:, None], labels)
    assert found.shape == (3, 5)
    for i, j in product(range(3), range(5)):
        assert found[i, j] == pytest.approx(float(measure(similar[i], labels[j])), abs=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0])
@pytest.mark.filterwarnings("error")
def test_a_member_without_an_arrangement_is_nan_and_its_neighbour_is_not(bad, rng) -> None:
    similar = planted(rng, 2.0, 2)
    places = rng.normal(size=(24, 3))
    expected = [measure(similar[1], GROUPS) for measure in MEASURES]
    similar[0] = np.where(bad == 0, 0.0, similar[0])
    similar[0, 2, 5] = bad
    for measure, value in zip(MEASURES, expected, strict=True):
        found = measure(similar, GROUPS)
        assert np.isnan(found[0]) and found[1] == pytest.approx(float(value))
    for found in (
        coordinate_agreement(similar, places),
        matrix_correlation(similar, similar[1]),
    ):
        np.testing.assert_array_equal(np.isnan(found), [True, False])


def test_centred_correlations_are_those_of_centred_vectors(rng) -> None:
    """As PEs are centred: the same numbers as `similarities` of unit vectors, and no shared direction is left."""
    vectors = rng.normal(size=(3, 24, 7)) + 4
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    cosines = vectors @ np.swapaxes(vectors, -1, -2)
    np.testing.assert_allclose(centred(cosines), similarities(vectors[:, None])[-1], atol=1e-9)
    assert (centred(np.ones((5, 5))) == 0).all()
    grouped = 0.2 + 0.8 * (GROUPS[:, None] == GROUPS)
    assert segregation(grouped, GROUPS) < 1 and segregation(centred(grouped), GROUPS) == 1
