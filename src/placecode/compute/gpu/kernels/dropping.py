"""Dropout on a GPU. The random numbers are those of `random.uniform`, computed in the kernel and not stored."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024
"""Number of elements that one program of the kernel computes."""


@triton.jit
def _mix(z):
    """Return 64 random bits from the counter z, by the output function of the generator splitmix64.

    Right shifts of signed numbers copy the sign bit, so the high bits are cleared after each shift.
    """
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return z ^ ((z >> 31) & 0x1FFFFFFFF)


@triton.jit
def _drop(x, streams, keep, out, size, first, BLOCK: tl.constexpr):
    member = tl.program_id(1).to(tl.int64)
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    word = _mix(tl.load(streams + member) + (first + index + 1) * -7046029254386353131)
    unit = ((word >> 40) & 0xFFFFFF).to(tl.float32) * 5.9604644775390625e-08
    share = tl.load(keep + member)
    value = tl.load(x + member * size + index, mask=index < size, other=0.0).to(tl.float32)
    value = value * (unit < share).to(tl.float32) / share
    tl.store(out + member * size + index, value.to(out.dtype.element_ty), mask=index < size)


def drop(x: Tensor, streams: Tensor, keep: Tensor, first: int) -> Tensor:
    """Return x, (members, ...), after dropout: elements are set to 0 with probability 1 - `keep`, others divided by
    `keep`.

    `keep` and `streams` have one number per member. `streams` are states of the random number generator for one step,
    from `random.stream`. Element i of a member is kept if the number that `random.uniform` returns at index `first` + i
    is below `keep`.
    """
    x = x.contiguous()
    size = x[0].numel()
    out = torch.empty_like(x)
    _drop[(triton.cdiv(size, BLOCK), len(x))](x, streams, keep, out, size, first, BLOCK=BLOCK, num_warps=4)
    return out
