"""Stateless (counter-based) random numbers: each value is a function of member seed, purpose, step and index only.

A member (one model of a stack) therefore draws the same numbers alone or in a stack of hundreds, on a CPU or a GPU, and
in a resumed run. The generator is splitmix64. It uses 64-bit integer arithmetic, which overflows identically on all
devices.

Parameters mean the same in all functions. `keys`, int64 of shape (e,), has one key per member, made by `keys_for` from
seed and purpose. `step` is any integer, such as the training step or the epoch; inside a captured CUDA graph it is a
tensor. `count` is the number of values per member, and `first` is the index of the first of them.

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
    """Return the signed integer with the lowest 64 bits of `value`. Torch has no arithmetic for unsigned integers."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_MIX_1 = _signed(0xBF58476D1CE4E5B9)
_MIX_2 = _signed(0x94D049BB133111EB)


def keys_for(seeds: Sequence[int], purpose: str) -> Tensor:
    """Return one 64-bit key per member, computed from its seed and the purpose of the random numbers.

    Parameters
    ----------
    seeds : sequence of int
        Seeds of e members.
    purpose : str
        What the random numbers are used for, any text. Different purposes give independent keys.

    Returns
    -------
    Tensor of int64, shape (e,)
    """
    digests = (hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest() for seed in seeds)
    return torch.tensor([_signed(int.from_bytes(digest, "little")) for digest in digests], dtype=torch.int64)


def _shift(z: Tensor, count: int) -> Tensor:
    """Return z shifted right by `count` bits and filled with zeros. Torch's operator >> would copy the sign bit."""
    return (z >> count) & ((1 << (64 - count)) - 1)


def _mix(z: Tensor) -> Tensor:
    """Return the 64-bit hash of each entry of z, by the output function of splitmix64."""
    z = (z ^ _shift(z, 30)) * _MIX_1
    z = (z ^ _shift(z, 27)) * _MIX_2
    return z ^ _shift(z, 31)


def stream(keys: Tensor, step: int | Tensor) -> Tensor:
    """Return the state of the generator at a step for each key, int64 of (e,). Random numbers come from this state."""
    return _mix(keys + _mix((torch.zeros_like(keys) + step + 1) * _GOLDEN))


def bits(keys: Tensor, step: int | Tensor, count: int, first: int = 0) -> Tensor:
    """Return 64 random bits for each key and each index from `first` to `first` + `count` - 1, int64 of (e, count)."""
    return bits_at(keys, step, torch.arange(first, first + count, device=keys.device))


def bits_at(keys: Tensor, step: int | Tensor, index: Tensor) -> Tensor:
    """Return 64 random bits for each key at arbitrary indices, int64 of shape (e, count).

    `index` has shape (count,) for the same indices for all keys, or (e, count) for different indices for each key.
    """
    return _mix(stream(keys, step)[:, None] + (index + 1) * _GOLDEN)


def hash_words(words: Tensor, first: int = 0) -> Tensor:
    """Return 64-bit hashes of integers, (e, count) -> (e, count). Equal integers in different columns differ in hash.

    `first` is the index of the first column of `words`, if `words` is a slice of a larger array.
    """
    index = torch.arange(first, first + words.shape[1], device=words.device)
    return _mix(_mix(words + _GOLDEN) + (index + 1) * _GOLDEN)


def uniform(keys: Tensor, step: int | Tensor, count: int, dtype: torch.dtype = torch.float64, first: int = 0) -> Tensor:
    """Return uniform random numbers in [0, 1), shape (e, count), that are exactly equal on all devices.

    `dtype` is torch.float64 or torch.float32.
    """
    digits = 53 if dtype == torch.float64 else 24  # binary digits of the fraction of a float
    return _shift(bits(keys, step, count, first), 64 - digits).to(dtype) * 2.0**-digits


def normal(keys: Tensor, step: int, count: int) -> Tensor:
    """Return standard normal random numbers, float64 of shape (e, count), by the Box-Muller transform.

    Logarithms and cosines differ between devices in the last digit. For equal numbers on all devices, call this with
    keys on the CPU and move the result.
    """
    pairs = uniform(keys, step, 2 * count).view(-1, count, 2)  # adjacent pairs, so that values do not depend on `count`
    return torch.sqrt(-2 * torch.log1p(-pairs[..., 0])) * torch.cos(2 * math.pi * pairs[..., 1])


def permutation(keys: Tensor, step: int, count: int) -> Tensor:
    """Return a random permutation of 0, ..., `count` - 1 for each key, int64 of shape (e, count)."""
    return torch.sort(bits(keys, step, count), dim=1, stable=True).indices
