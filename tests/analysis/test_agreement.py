"""What several fits agree on: orientation, size and order do not matter, and confidence means what it says."""

import numpy as np
import pytest
from helpers.planted import rotation

from placecode.analysis import agreement
from placecode.analysis.agreement import MAX_DROP, channel_confidence, common_embedding, pair_confidence, stable_modules
from placecode.analysis.alignment import token_similarity
from placecode.analysis.partitions import ari


def planted(rng, fits: int = 4, n: int = 20, d: int = 6, noise: float = 0.3) -> np.ndarray:
    """Fits (m, 1, n, d) of one arrangement, each with its own noise, orientation and size."""
    true = rng.normal(size=(n, d))
    pes = [rng.uniform(0.5, 2) * (true + noise * rng.normal(size=(n, d))) @ rotation(rng, d) for _ in range(fits)]
    return np.stack(pes)[:, None]


def groups_of(n: int, count: int, d: int, rng, noise: float, fits: int = 4) -> np.ndarray:
    """Similarities (m, n, n) of fits in which channels lie about so many centres."""
    centres = rng.normal(size=(count, d))
    true = centres[np.arange(n) % count]
    return token_similarity((true + noise * rng.normal(size=(fits, n, d)))[:, None])


def test_confidence_does_not_depend_on_orientation_size_shift_or_order(rng) -> None:
    pes = planted(rng)
    sure = channel_confidence(pes)
    turned = pes.copy()
    turned[1] = 3 * pes[1] @ rotation(rng, 6) + rng.normal(size=6)
    np.testing.assert_allclose(channel_confidence(turned), sure, atol=1e-9)
    order = rng.permutation(20)
    np.testing.assert_allclose(channel_confidence(pes[:, :, order]), sure[order], atol=0.02)  # but for the null's draws


def test_confidence_falls_with_noise(rng) -> None:
    single = planted(rng, fits=1)
    np.testing.assert_allclose(channel_confidence(np.concatenate([single, single @ rotation(rng, 6)])), 1, atol=1e-9)
    assert channel_confidence(rng.normal(size=(5, 1, 40, 6))).mean() < 0.15
    levels = [channel_confidence(planted(np.random.default_rng(2), noise=noise)).mean() for noise in (0.1, 0.5, 2.0)]
    assert levels[0] > 0.9 > levels[1] > levels[2]
    pes = planted(rng, n=30, noise=0.05)
    pes[:, 0, 7] = rng.normal(size=(4, 6))  # one channel differs
    sure = channel_confidence(pes)
    assert sure.argmin() == 7 and sure[7] < 0.6 and np.delete(sure, 7).min() > 0.8
    pes = planted(rng, fits=3, noise=0.01)
    pes[2] = rng.normal(size=(1, 20, 6))  # one fit differs
    assert channel_confidence(pes[:2]).min() > 0.95 and channel_confidence(pes).mean() < 0.55


def test_one_fit_has_no_confidence(rng) -> None:
    single = planted(rng, fits=1)
    assert np.isnan(channel_confidence(single)).all() and channel_confidence(single).shape == (20,)
    assert np.isnan(pair_confidence(token_similarity(single), ([], []))).all()
    assert np.isnan(stable_modules(token_similarity(single)).agreement)


def test_common_embedding_has_the_distances_of_the_fits(rng) -> None:
    pes = planted(rng, noise=0.1)
    result = common_embedding(pes)
    turned = pes.copy()
    turned[2] = 5 * pes[2] @ rotation(rng, 6) - 3
    apart = [np.linalg.norm(places[:, None] - places, axis=-1) for places in (result, common_embedding(turned))]
    np.testing.assert_allclose(*apart, atol=1e-6)
    assert (np.diff((result**2).sum(axis=0)) <= 1e-9).all()  # the widest axis comes first
    exact = planted(np.random.default_rng(5), noise=0.0)
    centred = exact[0, 0] - exact[0, 0].mean(axis=0)
    unit = centred / np.sqrt((centred**2).sum() / len(centred))
    embedding = common_embedding(exact)
    np.testing.assert_allclose(embedding @ embedding.T, unit @ unit.T, atol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_one_to_three_channels_have_finite_results(n) -> None:
    pes = np.random.default_rng(0).normal(size=(4, 2, n, 3))
    alike = token_similarity(pes)
    assert common_embedding(pes).shape[0] == n and np.isfinite(common_embedding(pes)).all()
    assert np.isfinite(channel_confidence(pes)).all() and agreement.nearest_channels(alike[0]).shape == (n, n - 1)
    assert stable_modules(alike).labels.tolist() == [0] * n
    if n > 1:
        result = pair_confidence(alike, ([0, 1], [2, 3]))
        assert result.shape == (n, n) and (result[~np.eye(n, dtype=bool)] >= 0.5).all()  # all are nearest


def test_nearest_channels_come_first() -> None:
    line = np.array([0.0, 1.0, 2.5, 4.5, 9.0])
    similarity = -np.abs(line[:, None] - line)
    np.fill_diagonal(similarity, 99.0)
    assert agreement.nearest_channels(similarity, 2).tolist() == [[1, 2], [0, 2], [1, 3], [2, 1], [3, 2]]
    assert agreement.nearest_channels(similarity, 9).shape == (5, 4)


def test_pairs_and_modules_follow_the_order_of_channels(rng) -> None:
    alike = token_similarity(planted(rng, fits=6, n=25))
    halves = ([0, 1, 2], [3, 4, 5])
    pairs = pair_confidence(alike, halves)
    assert (pairs == pairs.T).all() and (np.diag(pairs) == 0).all() and ((pairs >= 0) & (pairs <= 1)).all()
    order = rng.permutation(25)
    permuted = pair_confidence(alike[:, order][:, :, order], halves)
    np.testing.assert_allclose(permuted, pairs[order][:, order], atol=1e-12)
    np.testing.assert_allclose(pair_confidence(0.3 * alike, halves), pairs, atol=1e-6)
    alike = groups_of(25, 4, 8, rng, noise=0.3)
    before, after = stable_modules(alike), stable_modules(alike[:, order][:, :, order])
    assert ari(after.labels, before.labels[order]) == 1 and after.stability == pytest.approx(before.stability)


@pytest.mark.parametrize("noise", [0.2, 0.6])
def test_confident_pairs_are_true_neighbours_nine_times_in_ten(noise) -> None:
    """On a ring of channels, seen through noise of its own in either half of the data and in each fit."""
    true_pairs, confident = 0, 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        angle = 2 * np.pi * np.arange(30) / 30 + rng.normal(scale=0.03, size=30)
        waves = np.stack([f(k * angle) / k for k in (1, 2, 3) for f in (np.sin, np.cos)], axis=1)
        near = agreement.mutual_neighbors(waves @ waves.T)
        data = [waves + 0.3 * noise * rng.normal(size=waves.shape) for _ in range(2)]
        all_data = np.mean(data, axis=0)
        sources = [all_data, all_data, data[0], data[1]]
        fits = np.stack([source + 0.2 * noise * rng.normal(size=waves.shape) for source in sources])[:, None]
        sure = np.triu(pair_confidence(token_similarity(fits), ([2], [3])) >= 0.85, k=1)
        true_pairs, confident = true_pairs + int((sure & near).sum()), confident + int(sure.sum())
    assert confident >= 30 and 0.8 <= true_pairs / confident <= 1.0, (true_pairs, confident)


def test_noise_has_no_confident_pairs() -> None:
    sure = 0
    for seed in range(20):
        alike = token_similarity(np.random.default_rng(seed).normal(size=(4, 1, 30, 8)))
        sure += int((np.triu(pair_confidence(alike, ([2], [3])), k=1) >= 0.8).sum())
    assert sure == 0  # of 435 pairs in each


@pytest.mark.parametrize("pairs", [1, 3, 10])
def test_a_few_pairs_do_not_make_others_certain(pairs, rng) -> None:
    """So many pairs of channels stay together in all fits, the rest is noise; the pairs are right in either half."""
    pes = 0.3 * rng.normal(size=(4, 1, 30, 40))
    for pair in range(pairs):
        pes[:, 0, 2 * pair : 2 * pair + 2, pair] += 3
    result = pair_confidence(token_similarity(pes), ([2], [3]), 1)
    expected = 2 * pairs / (2 * pairs + 1)
    np.testing.assert_allclose(result[2 * np.arange(pairs), 2 * np.arange(pairs) + 1], expected, atol=1e-6)


@pytest.mark.parametrize(("n", "count"), [(12, 3), (30, 10)])
def test_planted_modules_and_their_number_are_found(n, count, rng) -> None:
    result = stable_modules(groups_of(n, count, 12, rng, noise=0.15))
    assert result.count == count and ari(result.labels, np.arange(n) % count) == 1 and result.agreement > 0.95
    assert list(dict.fromkeys(result.labels)) == list(range(count))  # numbered by their first channel
    assert set(stable_modules(groups_of(n, count, 12, rng, noise=0.15), most=5).stability) == {2, 3, 4, 5}


def test_nested_groups_are_split_as_far_as_fits_agree(rng) -> None:
    """Two halves that are far apart, of three groups each, which fits blur: six groups are found, though on two all
    fits agree without exception, and on six they do not."""
    half, group = np.eye(2)[np.arange(48) // 24], np.eye(6)[np.arange(48) // 8]
    true = np.concatenate([2 * half, group], axis=1)
    blurred = np.concatenate([true, np.zeros((48, 12))], axis=1) + 0.25 * rng.normal(size=(4, 1, 48, 20))
    result = stable_modules(token_similarity(blurred))
    rest = [result.stability[count] for count in range(3, 25) if count != 6]
    assert result.stability[2] == 1 > 0.97 > result.stability[6] > max(rest)
    assert result.count == 6 and ari(result.labels, np.arange(48) // 8) > 0.9


def test_fits_do_not_agree_on_modules_of_noise() -> None:
    counts = []
    for seed in range(8):
        result = stable_modules(token_similarity(np.random.default_rng(seed).normal(size=(4, 1, 40, 8))))
        assert max(result.stability.values()) < 0.6 and set(result.stability) == set(range(2, 21))
        counts.append(result.count)
    assert set(counts) == {1}


def test_stability_by_hand() -> None:
    """By hand: two fits of six channels; of the first three one has left the group in the second fit. Of 15 pairs, 6
    are together in the first, 7 in the second, and 4 in both."""
    first = np.repeat(np.eye(2), 3, axis=0)
    second = first[[0, 1, 3, 2, 4, 5]].copy()
    second[3] = first[3]
    result = stable_modules(np.stack([first @ first.T, second @ second.T]), most=2)
    by_chance = 6 * 7 / 15
    assert result.stability == {2: pytest.approx((4 - by_chance) / ((6 + 7) / 2 - by_chance))} and result.count == 1


def test_a_number_next_to_a_peak_is_not_chosen(rng) -> None:
    """Five groups, one of which fits also cut in two more often than not: nearly as stable, and not taken."""
    pes = np.eye(8)[np.arange(50) % 5] + 0.25 * rng.normal(size=(4, 1, 50, 8))
    half = np.flatnonzero(np.arange(50) % 5 == 0)[::2]
    pes[:3, :, half, 6] += 0.9
    result = stable_modules(token_similarity(pes))
    assert result.stability[5] > result.stability[6] > result.stability[5] - MAX_DROP
    assert result.count == 5 and ari(result.labels, np.arange(50) % 5) > 0.9
