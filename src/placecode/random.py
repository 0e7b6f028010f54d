"""Random numbers without state: a value is a function of (member seed, purpose, step, index) and of nothing else.

So a member draws the same numbers alone or among hundreds, on a CPU or a GPU, before or after an interruption. The
generator is splitmix64 in 64-bit integer arithmetic, which wraps around identically everywhere.

>>> keys = keys_for([0, 1], "order")
>>> permutation(keys, 0, 5).shape
torch.Size([2, 5])
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import torch
from torch import Tensor


def _signed(value: int) -> int:
    """The 64-bit pattern as the signed integer that torch stores."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_MIX_1 = _signed(0xBF58476D1CE4E5B9)
_MIX_2 = _signed(0x94D049BB133111EB)


def keys_for(seeds: Sequence[int], purpose: str) -> Tensor:
    """One 64-bit key per member seed, (e,). Different purposes give unrelated keys."""
    digests = (hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest() for seed in seeds)
    return torch.tensor([_signed(int.from_bytes(digest, "little")) for digest in digests], dtype=torch.int64)


def _shift(z: Tensor, places: int) -> Tensor:
    """Logical shift to the right; torch's own copies the sign bit."""
    return (z >> places) & ((1 << (64 - places)) - 1)


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _shift(z, 30)) * _MIX_1
    z = (z ^ _shift(z, 27)) * _MIX_2
    return z ^ _shift(z, 31)


def stream(keys: Tensor, step: int | Tensor) -> Tensor:
    """Where the numbers of a step begin, (e,). `step` is a number, or a tensor inside a captured graph."""
    return _mix(keys + _mix((torch.zeros_like(keys) + step + 1) * _GOLDEN))


def bits(keys: Tensor, step: int | Tensor, count: int, first: int = 0) -> Tensor:
    """64 random bits per key and index, (e, count), as int64; the indices are `first`, `first` + 1, ..."""
    return bits_at(keys, step, torch.arange(first, first + count, device=keys.device))


def bits_at(keys: Tensor, step: int | Tensor, index: Tensor) -> Tensor:
    """64 random bits per key at the given indices, (count,) for all keys or (e, count): (e, count)."""
    return _mix(stream(keys, step)[:, None] + (index + 1) * _GOLDEN)


def scrambled(words: Tensor, first: int = 0) -> Tensor:
    """64 bits that depend on all bits of a word and on its place: words (e, count) at the places `first`, ..."""
    places = torch.arange(first, first + words.shape[1], device=words.device)
    return _mix(_mix(words + _GOLDEN) + (places + 1) * _GOLDEN)


def uniform(keys: Tensor, step: int | Tensor, count: int, dtype: torch.dtype = torch.float64, first: int = 0) -> Tensor:
    """Uniform numbers in [0, 1), (e, count), float64 or float32. Exact, so equal on every device."""
    places = 53 if dtype == torch.float64 else 24
    return _shift(bits(keys, step, count, first), 64 - places).to(dtype) * 2.0**-places


def normal(keys: Tensor, step: int, count: int) -> Tensor:
    """Standard normal numbers, (e, count), float64, by Box and Muller.

    Logarithms and cosines differ between devices in the last digit: draw them on the CPU and move the result.
    """
    pairs = uniform(keys, step, 2 * count).view(-1, count, 2)  # side by side: a value must not depend on `count`
    return torch.sqrt(-2 * torch.log1p(-pairs[..., 0])) * torch.cos(2 * math.pi * pairs[..., 1])


def permutation(keys: Tensor, step: int, count: int) -> Tensor:
    """A random order of `count` things for each key, (e, count)."""
    return torch.sort(bits(keys, step, count), dim=1, stable=True).indices
