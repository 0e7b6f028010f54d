"""Random numbers without state: pinned to splitmix64 in whole numbers, and to the distributions they claim."""

import hashlib
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats

from placecode import random

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(z: int) -> int:
    """The output function of splitmix64, in Python's own whole numbers."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def splitmix64(seed: int, index: int) -> int:
    return mix((seed + (index + 1) * GOLDEN) & MASK)


def key(seed: int, purpose: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest(), "little")


def value(seed: int, purpose: str, step: int, index: int) -> int:
    """What `random.bits` must give, as an unsigned number."""
    stream = mix((key(seed, purpose) + mix((step + 1) * GOLDEN & MASK)) & MASK)
    return splitmix64(stream, index)


def test_the_reference_is_splitmix64() -> None:
    """The first numbers of the published generator for the seed 1234567."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [splitmix64(1234567, i) for i in range(4)] == published


@pytest.mark.parametrize("step", [0, 1, 63, 10**9, -1, -4])
def test_bits_equal_whole_number_arithmetic(step) -> None:
    seeds = [0, 1, 2**40]
    keys = random.keys_for(seeds, "order")
    result = random.bits(keys, step, 7)
    expected = [[value(seed, "order", step, index) for index in range(7)] for seed in seeds]
    assert [[number & MASK for number in row] for row in result.tolist()] == expected
    assert torch.equal(random.bits(keys, torch.tensor(step), 7), result)
    assert random.uniform(keys, step, 7).tolist() == [[(bits >> 11) / 2**53 for bits in row] for row in expected]


def test_a_number_does_not_depend_on_what_is_drawn_with_it() -> None:
    """Not on repeated calls, on other members, on how many are drawn, or on portions."""
    alone, among = random.keys_for([7], "order"), random.keys_for([0, 7, 3, 7], "order")
    for draw in (random.bits, random.uniform, random.normal, random.permutation):
        assert torch.equal(draw(alone, 2, 9), draw(alone, 2, 9))
        assert torch.equal(draw(alone, 2, 9)[0], draw(among, 2, 9)[1])
        assert torch.equal(draw(alone, 2, 9)[0], draw(among, 2, 9)[3])
        assert not torch.equal(draw(alone, 2, 9)[0], draw(among, 2, 9)[0])
    for draw in (random.bits, random.uniform, random.normal):
        assert torch.equal(draw(among, 2, 50)[:, :8], draw(among, 2, 8))
    numbers = random.uniform(among, 2, 50)
    assert torch.equal(random.uniform(among, 2, 20, first=30), numbers[:, 30:])
    assert not torch.equal(random.uniform(among, 2, 20, first=29), numbers[:, 30:])


@pytest.mark.parametrize(
    ("seed", "purpose", "step"),
    [(4, "order", 5), (3, "dropout", 5), (3, "order", 6), (3, "order", -5)],
    ids=["seed", "purpose", "step", "sign of the step"],
)
def test_numbers_depend_on_each_of_seed_purpose_and_step(seed, purpose, step) -> None:
    base = random.bits(random.keys_for([3], "order"), 5, 100)
    changed = random.bits(random.keys_for([seed], purpose), step, 100)
    assert not (base == changed).any()
    assert len(set(base[0].tolist()) | set(changed[0].tolist())) == 200  # nor is one a shifted copy of the other


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_uniform_numbers_are_uniform(dtype) -> None:
    count = 100_000
    sample = random.uniform(random.keys_for([0], "order"), 3, count, dtype=dtype)[0]
    assert sample.dtype == dtype
    assert sample.min() >= 0
    assert sample.max() < 1
    sample = sample.double().numpy()
    assert abs(sample.mean() - 1 / 2) < 4 * (1 / 12 / count) ** 0.5
    assert abs(sample.var() - 1 / 12) < 4 * (1 / 180 / count) ** 0.5
    assert stats.kstest(sample, "uniform").pvalue > 0.01
    assert stats.kstest(sample**1.02, "uniform").pvalue < 0.01  # the test could tell


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_uniform_stays_below_one_for_the_largest_bits(dtype, monkeypatch) -> None:
    monkeypatch.setattr(random, "bits", lambda keys, step, count, first=0: torch.full((1, count), -1))  # all bits set
    assert random.uniform(torch.zeros(1, dtype=torch.int64), 0, 1, dtype=dtype).item() < 1


def test_normal_numbers_are_normal() -> None:
    count = 100_000
    sample = random.normal(random.keys_for([0], "encoding"), 0, count)[0]
    assert sample.dtype == torch.float64
    assert sample.isfinite().all()
    sample = sample.numpy()
    assert abs(sample.mean()) < 4 / count**0.5
    assert abs(sample.var() - 1) < 4 * (2 / count) ** 0.5
    assert stats.kstest(sample, "norm").pvalue > 0.01
    assert stats.kstest(sample * 1.03, "norm").pvalue < 0.01


def test_normal_is_box_and_muller() -> None:
    first, second = ((value(1, "encoding", 0, index) >> 11) / 2**53 for index in (6, 7))
    expected = np.sqrt(-2 * np.log1p(-first)) * np.cos(2 * np.pi * second)
    assert random.normal(random.keys_for([1], "encoding"), 0, 5)[0, 3].item() == pytest.approx(expected, rel=1e-12)


def test_neighbouring_streams_are_uncorrelated() -> None:
    count = 20_000
    seeds = random.uniform(random.keys_for(range(5), "order"), 0, count)
    steps = torch.cat([random.uniform(random.keys_for([0], "order"), step, count) for step in range(5)])
    for sample in (seeds, steps):
        correlations = np.corrcoef(sample.numpy()) - np.eye(5)
        assert abs(correlations).max() < 4 / count**0.5
    serial = np.corrcoef(seeds[0, :-1].numpy(), seeds[0, 1:].numpy())[0, 1]
    assert abs(serial) < 4 / count**0.5


@pytest.mark.parametrize("count", [1, 2, 5, 100, 1000])
def test_permutation_is_a_permutation(count) -> None:
    keys = random.keys_for(range(4), "order")
    orders = random.permutation(keys, 7, count)
    assert torch.equal(orders.sort(dim=1).values, torch.arange(count).expand(4, -1))
    assert count < 100 or not torch.equal(random.permutation(keys, 8, count), orders)


def test_permutations_are_equally_likely() -> None:
    counts = Counter(map(tuple, random.permutation(random.keys_for(range(6000), "order"), 0, 3).tolist()))
    assert len(counts) == 6
    assert stats.chisquare(list(counts.values())).pvalue > 0.01


def test_a_gpu_draws_what_a_cpu_draws(cuda) -> None:
    keys = random.keys_for(range(5), "order")
    for draw in (random.bits, random.uniform, random.permutation):
        assert torch.equal(draw(keys, 3, 1000), draw(keys.to(cuda), 3, 1000).cpu())
    assert torch.equal(random.bits(keys, 3, 10), random.bits(keys.to(cuda), torch.tensor(3, device=cuda), 10).cpu())
    single = {"dtype": torch.float32}
    assert torch.equal(random.uniform(keys, 3, 1000, **single), random.uniform(keys.to(cuda), 3, 1000, **single).cpu())
