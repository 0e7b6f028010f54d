"""Partitions as mathematics: planted groups and noise, all partitions of few tokens, scikit-learn's scores."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from helpers.planted import GROUPS, noise, planted
from sklearn import metrics

from placecode.analysis.alignment import token_similarity
from placecode.analysis.modules import modularity
from placecode.analysis.nulls import NULL_TIE_TOLERANCE, shuffles
from placecode.analysis.partitions import ami, ari, best_partition, clusters, shared_information


def test_best_partition_finds_planted_groups(rng) -> None:
    result = best_partition(planted(rng, 6.0))
    np.testing.assert_array_equal(result, np.tile(GROUPS, (3, 1)))  # groups are numbered by their first token
    weak = planted(rng, 1.5)
    assert (modularity(weak, best_partition(weak)) >= modularity(weak, GROUPS) - 1e-9).all()
    assert (ari(best_partition(planted(rng, 0.0)), GROUPS) < 0.3).all()  # the negative twin


@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_no_move_of_a_token_improves_the_best_partition(strength, rng) -> None:
    for similarity in (*planted(rng, strength, 2), noise(rng)):
        labels = best_partition(similarity, restarts=2)
        groups = labels.max() + 2  # the last one is empty
        moved = np.tile(labels, (24, groups, 1))
        moved[np.arange(24), :, np.arange(24)] = np.arange(groups)
        assert modularity(similarity, moved).max() <= modularity(similarity, labels) + 1e-9


def test_best_partition_of_few_tokens_equals_brute_force(rng) -> None:
    every = np.array(list(product(range(5), repeat=5)))
    for similarity in noise(rng, 8, n=5):
        assert modularity(similarity, best_partition(similarity)) == pytest.approx(modularity(similarity, every).max())


def test_best_partition_ignores_other_members_and_order(rng) -> None:
    similarity = planted(rng, 0.5)
    np.testing.assert_array_equal(best_partition(similarity[1], seed=5), best_partition(similarity, seed=5)[1])
    order = rng.permutation(24)
    turned = similarity[0][order][:, order]
    best = [float(modularity(w, best_partition(w, restarts=60))) for w in (similarity[0], turned)]
    assert best[0] == pytest.approx(best[1], abs=0.01)


def test_clusters_equal_k_means_of_unit_tokens(rng) -> None:
    cluster = pytest.importorskip("sklearn.cluster")
    pe = rng.normal(size=(1, 24, 6)) + 2.5 * np.eye(6)[GROUPS]
    tokens = pe[0] - pe[0].mean(axis=0)
    tokens /= np.linalg.norm(tokens, axis=1, keepdims=True)
    expected = cluster.KMeans(4, n_init=10, random_state=0).fit(tokens).labels_
    assert ari(clusters(token_similarity(pe), 4), expected) == 1
    strong = planted(rng, 6.0)
    np.testing.assert_array_equal(clusters(strong, 4), np.tile(GROUPS, (3, 1)))
    np.testing.assert_array_equal(clusters(strong[1], 3, seed=2), clusters(strong, 3, seed=2)[1])
    assert (ari(clusters(planted(rng, 0.0, 20), 4), GROUPS).mean()) == pytest.approx(0, abs=0.05)


@pytest.mark.filterwarnings("error")
def test_more_clusters_than_different_tokens() -> None:
    """Rounding may put equal tokens into several clusters, but never different ones into the same."""
    result = clusters(token_similarity(np.eye(4)[GROUPS][None]), 10)
    assert 4 <= len(np.unique(result)) <= 10
    assert all(len(np.unique(GROUPS[result == cluster])) == 1 for cluster in np.unique(result))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0])
@pytest.mark.filterwarnings("error")
def test_a_diverged_member_has_no_groups_and_its_neighbour_has(bad, rng) -> None:
    similarity = planted(rng, 2.0, 2)
    similarity[0] = np.where(bad == 0, 0.0, similarity[0])
    similarity[0, 2, 5] = bad
    for labels in (best_partition(similarity), clusters(similarity, 4)):
        assert (labels[0] == -1).all() and (labels[1] >= 0).all()
        np.testing.assert_array_equal(np.isnan(ari(labels, GROUPS)), [True, False])


SCORES = {ari: "adjusted_rand_score", ami: "adjusted_mutual_info_score", shared_information: "mutual_info_score"}


@pytest.mark.parametrize("score", SCORES)
def test_scores_equal_scikit_learns(score, rng) -> None:
    result, labels = rng.integers(-1, 5, size=(6, 1, 40)), rng.integers(-1, 7, size=(9, 40))
    together, expected = score(result, labels), getattr(metrics, SCORES[score])
    assert together.shape == (6, 9)
    for i, j in np.ndindex(6, 9):
        labelled = (result[i, 0] >= 0) & (labels[j] >= 0)
        assert together[i, j] == pytest.approx(expected(labels[j][labelled], result[i, 0][labelled]), abs=1e-12)
    singletons, single_group = np.arange(5), np.zeros(5, dtype=int)
    for a, b in (*product((singletons, single_group), repeat=2), (GROUPS, GROUPS)):
        assert score(a, b) == pytest.approx(expected(b, a), abs=1e-12)
    assert np.isnan(score(np.full(24, -1), GROUPS))
    half_labelled = np.where(np.arange(24) < 12, 0, -1)
    np.testing.assert_array_equal(np.isnan(score([half_labelled, GROUPS], half_labelled[::-1])), [True, False])


@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_shared_information_ranks_shuffled_labels_like_ami(strength, rng) -> None:
    """The same p, to the last draw; that of the ari, which counts pairs, is another one."""
    labels = np.where(np.arange(24) % 11 == 0, -1, GROUPS)
    shuffled, groups = labels[shuffles(labels, 99)], clusters(planted(rng, strength, 4), 4)

    def counts(score: Callable) -> list[int]:
        scores = [(score(partition, shuffled), score(partition, labels)) for partition in groups]
        return [int((null >= value - NULL_TIE_TOLERANCE).sum()) for null, value in scores]

    assert counts(shared_information) == counts(ami)
    assert strength > 0 or counts(shared_information) != counts(ari)
