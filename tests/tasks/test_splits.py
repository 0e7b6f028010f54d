"""Splits of samples: no sample twice, whole blocks and groups, and a gap as long as the autocorrelation."""

import numpy as np
import pytest

from placecode.tasks.splits import (
    BLOCKS,
    MIN_GROUPS,
    autocorrelation_length,
    exchange_blocks,
    has_enough_groups,
    split_samples,
)

HELD = ("validation", "test")
HALVES = ("first half", "second half")


def runs_of(rows: np.ndarray) -> list[np.ndarray]:
    """Divide sorted indices into stretches of consecutive indices."""
    return np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)


@pytest.mark.parametrize("count", [5, 6, 19, 20, 21, 1013])
@pytest.mark.parametrize("gap", [0, 3])
def test_parts_are_disjoint_and_halves_make_up_the_training(count, gap) -> None:
    for seed in range(5):
        parts = split_samples(count, gap=gap, seed=seed)
        samples = np.concatenate([parts[name] for name in ("train", *HELD)])
        assert len(np.unique(samples)) == len(samples) <= count
        assert len(samples) == count or gap  # without a gap nothing is lost
        assert samples.min() >= 0 and samples.max() < count
        np.testing.assert_array_equal(np.sort(np.concatenate([parts[name] for name in HALVES])), parts["train"])
        assert all(len(parts[name]) for name in (*HELD, *HALVES))
        assert all((np.diff(rows) > 0).all() for rows in parts.values())


def test_whole_blocks_are_held_out() -> None:
    size, tests = 1_000 // BLOCKS, set()
    for seed in (*range(10), 0):
        parts = split_samples(1_000, seed=seed)
        tests.add(parts["test"].tobytes())
        for name in HELD:
            for run in runs_of(parts[name]):
                assert run[0] % size == 0 and len(run) % size == 0
        fifths = np.arange(1_000).reshape(-1, 5 * size)
        for name, share in (("train", 3), ("validation", 1), ("test", 1)):  # every fifth of the time has all of it
            assert [np.isin(fifth, parts[name]).sum() for fifth in fifths] == [share * size] * 4
    assert len(tests) == 10


@pytest.mark.parametrize("gap", [1, 7, 12])
def test_parts_are_a_gap_apart(gap) -> None:
    for seed in range(10):
        parts = split_samples(1_000, gap=gap, seed=seed)
        for name in HELD:
            others = np.concatenate([parts[other] for other in ("train", *HELD) if other != name])
            assert np.abs(parts[name][:, None] - others).min() > gap
        assert len(parts["train"]) == 600  # nothing is taken from it


def test_a_gap_takes_at_most_half_of_a_block() -> None:
    parts = split_samples(400, gap=10_000)
    assert [len(parts[name]) for name in HELD] == [40, 40]  # half of 4 blocks of 20


@pytest.mark.parametrize("kinds", [MIN_GROUPS, 7, 23])
def test_groups_are_held_out_whole(kinds) -> None:
    rng = np.random.default_rng(kinds)
    groups = rng.integers(kinds, size=600)  # in no order at all
    for seed in range(5):
        parts = split_samples(600, groups, gap=50, seed=seed)
        part_groups = {name: set(groups[rows]) for name, rows in parts.items()}
        for first, second in (("train", "validation"), ("train", "test"), HELD, HALVES):
            assert not part_groups[first] & part_groups[second]
        assert part_groups["train"] | part_groups["validation"] | part_groups["test"] == set(range(kinds))
        assert sum(len(parts[name]) for name in ("train", *HELD)) == 600  # other groups need no gap
        assert all(abs(len(parts[name]) - 120) <= np.bincount(groups).max() for name in HELD)  # a group more or less


def test_the_largest_of_unequal_groups_is_for_training() -> None:
    groups = np.repeat(np.arange(8), np.array([20, 500, 30, 90, 25, 200, 35, 100]))
    for seed in range(10):
        parts = split_samples(1_000, groups, seed=seed)
        train, validation, test = (len(parts[name]) for name in ("train", *HELD))
        assert 500 <= train <= 700 and min(validation, test) >= 150 and train + validation + test == 1_000
        assert 1 in groups[parts["train"]]  # the largest


@pytest.mark.parametrize("small", [20, 2])
def test_a_dominating_group_is_cut_into_the_halves(small) -> None:
    groups = np.repeat(np.arange(5), [1_000, *[small] * 4])
    parts = split_samples(len(groups), groups)
    assert set(groups[parts["train"]]) == {0} and [len(parts[name]) for name in HELD] == [2 * small, 2 * small]
    assert [len(parts[half]) for half in HALVES] == [500, 500]
    np.testing.assert_array_equal(np.concatenate([parts[half] for half in HALVES]), parts["train"])


@pytest.mark.parametrize("kinds", [1, 4, MIN_GROUPS, 40, 300])
def test_pieces_and_halves_equal_a_plain_computation(kinds) -> None:
    rng = np.random.default_rng(kinds)
    for codes in (rng.integers(kinds, size=300) * 7 - 5, np.sort(rng.integers(kinds, size=300))):
        blocks = exchange_blocks(300, codes)
        assert sorted(np.concatenate(blocks)) == list(range(300))
        if has_enough_groups(codes):
            expected = [np.flatnonzero(codes == name) for name in np.unique(codes)]
            assert [block.tolist() for block in blocks] == [rows.tolist() for rows in expected]
        else:
            assert len(blocks) >= BLOCKS and max(map(len, blocks)) <= 300 // BLOCKS + 1
        parts = split_samples(300, codes, seed=3)
        halves: dict[str, list[int]] = {name: [] for name in HALVES}
        for block in blocks:
            if np.isin(block, parts["train"]).all():
                smaller = min(HALVES, key=lambda name: len(halves[name]))
                halves[smaller] += block.tolist()
        for name in HALVES:
            assert parts[name].tolist() == sorted(halves[name])


def test_every_sample_may_be_a_group() -> None:
    parts = split_samples(20_000, np.random.default_rng(0).permutation(20_000))
    assert [len(parts[name]) for name in ("train", *HELD, *HALVES)] == [12_000, 4_000, 4_000, 6_000, 6_000]


@pytest.mark.parametrize(
    "groups", [np.repeat([3, 8], [400, 600]), np.arange(1_000) % 3], ids=["in turn", "alternating"]
)
def test_few_groups_are_in_every_part(groups) -> None:
    assert not has_enough_groups(groups) and not has_enough_groups(None)
    parts = split_samples(1_000, groups, gap=4, seed=1)
    assert all(set(groups[rows]) == set(groups) for rows in parts.values())
    for name in HELD:
        if groups[0] == groups[1]:  # blocks of one group, so that none crosses the border
            assert all(len(set(groups[run])) == 1 for run in runs_of(parts[name]))
        else:
            assert np.abs(parts["train"][:, None] - parts[name]).min() > 4


@pytest.mark.parametrize(("count", "train"), [(0, 0), (1, 0), (2, 0), (3, 1), (4, 2), (5, 3)])
def test_fewer_than_six_samples_are_split_too(count, train) -> None:
    parts = split_samples(count)
    assert [len(parts[name]) for name in ("train", *HELD)] == [train, min(max(count - 1, 0), 1), min(count, 1)]


def test_autocorrelation_length_of_an_autoregressive_process() -> None:
    """An autoregressive process forgets as r^lag: below 0.1 from ln 0.1 / ln r on."""
    rng = np.random.default_rng(0)
    for share, expected in ((0.5, 4), (0.8, 11), (0.9, 22)):
        values = np.zeros((2_000, 40))
        for step in range(1, 2_000):
            values[step] = share * values[step - 1] + rng.normal(size=40)
        assert autocorrelation_length(values) == pytest.approx(expected, abs=0.25 * expected + 1)


def test_autocorrelation_length_of_noise_constants_and_gaps_is_zero(recwarn) -> None:
    noise = np.random.default_rng(0).normal(size=(500, 4))
    assert autocorrelation_length(noise) == autocorrelation_length(noise[:50]) == 0
    noise[::3, 0], noise[:, 1], noise[:, 2] = np.nan, np.nan, 5.0
    assert autocorrelation_length(noise) == 0
    assert autocorrelation_length(np.full((50, 2), np.nan)) == autocorrelation_length(np.ones((50, 2))) == 0
    assert not recwarn.list  # not even of a column in which all is missing
    walk = np.cumsum(np.random.default_rng(0).normal(size=(500, 3)), axis=0)  # whatever its scale
    assert autocorrelation_length(walk) == autocorrelation_length(walk * [1e-3, 1.0, 1e4] + [1e5, 0, -7]) > 10
