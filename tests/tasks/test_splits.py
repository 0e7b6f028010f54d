"""Which samples are learned from: no sample twice, whole blocks and groups, and a gap as long as the memory."""

from __future__ import annotations

import numpy as np
import pytest

from placecode.tasks.splits import BLOCKS, FEWEST_GROUPS, autocorrelation_length, cut, split_samples, whole_groups

HELD = ("validation", "test")
HALVES = ("first half", "second half")


def runs_of(rows: np.ndarray) -> list[np.ndarray]:
    """Rows in stretches that follow each other without a hole."""
    return np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)


@pytest.mark.parametrize("count", [5, 6, 10, 19, 20, 21, 99, 1000, 1013])
@pytest.mark.parametrize("gap", [0, 3])
def test_no_sample_is_in_two_parts_and_the_halves_make_up_what_is_learned_from(count: int, gap: int) -> None:
    for seed in range(5):
        parts = split_samples(count, gap=gap, seed=seed)
        every = np.concatenate([parts[name] for name in ("train", *HELD)])
        assert len(np.unique(every)) == len(every) <= count
        assert len(every) == count or gap  # without a gap nothing is lost
        assert every.min() >= 0 and every.max() < count
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
def test_what_is_held_out_lies_a_gap_away_from_what_is_learned_from(gap: int) -> None:
    for seed in range(10):
        parts = split_samples(1_000, gap=gap, seed=seed)
        for name in HELD:
            others = np.concatenate([parts[other] for other in ("train", *HELD) if other != name])
            assert np.abs(parts[name][:, None] - others).min() > gap
        assert len(parts["train"]) == 600  # nothing is taken from it


def test_a_gap_takes_a_quarter_of_a_block_at_either_end_at_most() -> None:
    parts = split_samples(400, gap=10_000)
    assert [len(parts[name]) for name in HELD] == [40, 40]  # half of 4 blocks of 20


@pytest.mark.parametrize("kinds", [FEWEST_GROUPS, 7, 23])
def test_no_group_is_both_learned_from_and_held_out(kinds: int) -> None:
    rng = np.random.default_rng(kinds)
    groups = rng.integers(kinds, size=600)  # in no order at all
    for seed in range(5):
        parts = split_samples(600, groups, gap=50, seed=seed)
        met = {name: set(groups[rows]) for name, rows in parts.items()}
        for one, two in (("train", "validation"), ("train", "test"), HELD, HALVES):
            assert not met[one] & met[two]
        assert met["train"] | met["validation"] | met["test"] == set(range(kinds))
        assert sum(len(parts[name]) for name in ("train", *HELD)) == 600  # other groups need no gap
        assert all(abs(len(parts[name]) - 120) <= np.bincount(groups).max() for name in HELD)  # a group more or less


def test_groups_of_very_unequal_size_leave_the_most_to_learn_from() -> None:
    sizes = np.array([20, 500, 30, 90, 25, 200, 35, 100])
    groups = np.repeat(np.arange(8), sizes)
    for seed in range(10):
        parts = split_samples(1_000, groups, seed=seed)
        train, validation, test = (len(parts[name]) for name in ("train", *HELD))
        assert 500 <= train <= 700 and min(validation, test) >= 150 and train + validation + test == 1_000
        assert 1 in groups[parts["train"]]  # the largest


@pytest.mark.parametrize("small", [20, 2])
def test_a_group_that_is_nearly_all_there_is_is_cut_into_the_halves(small: int) -> None:
    groups = np.repeat(np.arange(5), [1_000, *[small] * 4])
    parts = split_samples(len(groups), groups)
    assert set(groups[parts["train"]]) == {0} and [len(parts[name]) for name in HELD] == [2 * small, 2 * small]
    assert [len(parts[half]) for half in HALVES] == [500, 500]
    np.testing.assert_array_equal(np.concatenate([parts[half] for half in HALVES]), parts["train"])


def test_pieces_are_whole_groups_or_blocks_within_one() -> None:
    groups = np.random.default_rng(0).integers(FEWEST_GROUPS, size=300)
    assert whole_groups(groups) and not whole_groups(groups % 4) and not whole_groups(None)
    in_turn = np.sort(groups % 4)
    pieces = cut(300, groups)
    assert [set(groups[piece]) for piece in pieces] == [{name} for name in range(FEWEST_GROUPS)]
    for few in (in_turn, None):
        blocks = cut(300, few)
        assert len(blocks) >= BLOCKS and max(map(len, blocks)) <= 300 // BLOCKS + 1
        assert sorted(np.concatenate(blocks)) == list(range(300))
        assert few is None or all(len(set(few[block])) == 1 for block in blocks)


@pytest.mark.parametrize("kinds", [1, 4, FEWEST_GROUPS, 40, 300])
def test_pieces_and_halves_are_those_of_a_plain_computation(kinds: int) -> None:
    rng = np.random.default_rng(kinds)
    for codes in (rng.integers(kinds, size=300) * 7 - 5, np.sort(rng.integers(kinds, size=300))):
        pieces = cut(300, codes)
        if whole_groups(codes):
            wanted = [np.flatnonzero(codes == name) for name in np.unique(codes)]
            assert len(pieces) == len(wanted)
            assert all(np.array_equal(piece, own) for piece, own in zip(pieces, wanted, strict=True))
        parts = split_samples(300, codes, seed=3)
        halves: dict[str, list[int]] = {name: [] for name in HALVES}
        for piece in pieces:
            if np.isin(piece, parts["train"]).all():
                first = len(halves["first half"]) <= len(halves["second half"])
                halves["first half" if first else "second half"] += piece.tolist()
        for name in HALVES:
            np.testing.assert_array_equal(parts[name], np.sort(halves[name]))


def test_every_sample_may_be_a_group_of_its_own() -> None:
    """A look at all samples for each group would be 2.5 billion of them."""
    codes = np.random.default_rng(0).permutation(50_000)
    pieces = cut(50_000, codes)
    assert [int(codes[piece[0]]) for piece in pieces[:3]] == [0, 1, 2] and len(pieces) == 50_000
    parts = split_samples(50_000, codes)
    assert {name: len(rows) for name, rows in parts.items()} == {
        **{"train": 30_000, "validation": 10_000, "test": 10_000},
        **dict.fromkeys(HALVES, 15_000),
    }


def test_with_few_groups_every_one_is_in_every_part_and_blocks_stay_within_one() -> None:
    groups = np.repeat([3, 8], [400, 600])
    parts = split_samples(1_000, groups, gap=2, seed=1)
    for rows in parts.values():
        assert set(groups[rows]) == {3, 8}
    for name in HELD:  # blocks are cut anew for each group, so that none reaches over the border
        assert all(len(set(groups[run])) == 1 for run in runs_of(parts[name]))


def test_where_few_groups_alternate_what_is_next_in_time_stays_together() -> None:
    groups = np.arange(1_000) % 3
    parts = split_samples(1_000, groups, gap=4, seed=1)
    for name in HELD:
        assert min(np.abs(parts["train"][:, None] - parts[name]).min(axis=0)) > 4
        assert set(groups[parts[name]]) == {0, 1, 2}


@pytest.mark.parametrize(("count", "train"), [(0, 0), (1, 0), (2, 0), (3, 1), (4, 2), (5, 3)])
def test_tiny_counts_give_what_there_is(count: int, train: int) -> None:
    parts = split_samples(count)
    assert [len(parts[name]) for name in ("train", *HELD)] == [train, min(max(count - 1, 0), 1), min(count, 1)]


# Memory


def test_the_memory_of_a_decay_is_known() -> None:
    """An autoregressive process forgets as r^lag: below 0.1 from ln 0.1 / ln r on."""
    rng = np.random.default_rng(0)
    for share, expected in ((0.5, 4), (0.8, 11), (0.9, 22)):
        values = np.zeros((2_000, 40))
        for step in range(1, 2_000):
            values[step] = share * values[step - 1] + rng.normal(size=40)
        assert autocorrelation_length(values) == pytest.approx(expected, abs=0.25 * expected + 1)


def test_noise_constants_and_missing_values_remember_nothing(recwarn: pytest.WarningsRecorder) -> None:
    noise = np.random.default_rng(0).normal(size=(500, 4))
    assert autocorrelation_length(noise) == 0
    noise[::3, 0], noise[:, 1], noise[:, 2] = np.nan, np.nan, 5.0
    assert autocorrelation_length(noise) == 0
    assert autocorrelation_length(np.full((50, 2), np.nan)) == autocorrelation_length(np.ones((50, 2))) == 0
    assert not recwarn.list  # not even of a column in which all is missing
    walk = np.cumsum(np.random.default_rng(0).normal(size=(500, 3)), axis=0)  # whatever its scale
    assert autocorrelation_length(walk) == autocorrelation_length(walk * [1e-3, 1.0, 1e4] + [1e5, 0, -7]) > 10


@pytest.mark.parametrize("samples", [50, 100, 150])
def test_few_samples_that_have_nothing_to_do_with_each_other_remember_nothing(samples: int) -> None:
    told = [autocorrelation_length(np.random.default_rng(seed).normal(size=(samples, 6))) for seed in range(50)]
    assert sum(map(bool, told)) <= 2
