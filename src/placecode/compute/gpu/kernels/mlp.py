"""Add the bias and apply GELU to the hidden units of an MLP, between its two layers, forward and backward.

The matrix products before and after use the vendor's library. Kernels that fuse a product with the GELU were tested and
were not faster (docs/performance.md).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from placecode.compute.gpu.kernels.rows import STAGES, Sinks, cut, gelu_and_slope, sum_pieces

FORWARD_LAUNCH = {torch.float32: (32, 4), torch.bfloat16: (8, 2)}
BACKWARD_LAUNCH = {torch.float32: (16, 4), torch.bfloat16: (8, 2)}
"""Launch settings of the forward and the backward kernel, by dtype: (rows of a tile, warps that compute the tile)."""
PROGRAMS = 32768
"""Number of programs that keep a large GPU busy in the backward pass."""


@triton.jit
def _activate(u, bias, out, rows, width, stride, ROWS: tl.constexpr, COLS: tl.constexpr):
    member = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    col = tl.program_id(1) * COLS + tl.arange(0, COLS)
    used = col < width
    inside = (row < rows)[:, None] & used[None, :]
    place = member * rows * width + row[:, None] * width + col[None, :]
    before = tl.load(u + place, mask=inside, other=0.0).to(tl.float32)
    before += tl.load(bias + member * stride + col, mask=used, other=0.0)[None, :]
    tl.store(out + place, gelu_and_slope(before)[0].to(out.dtype.element_ty), mask=inside)


def activate(u: Tensor, bias: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return GELU(u + bias) in `dtype` (None: that of u), for u, (members, rows, units), and bias, (members, units)."""
    e, rows, width = u.shape
    out = torch.empty_like(u, dtype=dtype)
    cols, (block, warps) = min(128, triton.next_power_of_2(width)), FORWARD_LAUNCH[u.dtype]
    _activate[(triton.cdiv(rows, block), triton.cdiv(width, cols), e)](
        u, bias, out, rows, width, bias.stride(0), ROWS=block, COLS=cols, num_warps=warps
    )
    return out


@triton.jit
def _activate_backward(
    grad, u, bias, out, sums, rows, width, stride, share, ROWS: tl.constexpr, COLS: tl.constexpr, STAGES: tl.constexpr
):
    member, part = tl.program_id(2).to(tl.int64), tl.program_id(0)
    col = tl.program_id(1) * COLS + tl.arange(0, COLS)
    used = col < width
    offset = tl.load(bias + member * stride + col, mask=used, other=0.0)[None, :]
    total = tl.zeros((ROWS, COLS), tl.float32)
    for first in tl.range(part * share, tl.minimum((part + 1) * share, rows), ROWS, num_stages=STAGES):
        row = first + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & used[None, :]
        place = member * rows * width + row[:, None] * width + col[None, :]
        before = tl.load(u + place, mask=inside, other=0.0).to(tl.float32) + offset
        back = tl.load(grad + place, mask=inside, other=0.0).to(tl.float32) * gelu_and_slope(before)[1]
        tl.store(out + place, back.to(out.dtype.element_ty), mask=inside)
        total += back
    tl.store(sums + (member * tl.num_programs(0) + part) * width + col, tl.sum(total, 0), mask=used)


def activate_backward(
    grad: Tensor, u: Tensor, bias: Tensor, sinks: Sinks, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """Return the gradients of u, (members, rows, units), and of the bias, (members, units), in `activate`.

    `grad` is the gradient of the result of `activate`. The gradient of u has the dtype `dtype` (None for that of
    `grad`). If `grad` has this dtype, it is overwritten with the gradient of u. The gradient of the bias is written to
    the tensor in `sinks`, if there is one.
    """
    e, rows, width = u.shape
    out = grad if dtype in (None, grad.dtype) else torch.empty_like(grad, dtype=dtype)
    cols, (block, warps) = min(128, triton.next_power_of_2(width)), BACKWARD_LAUNCH[u.dtype]
    tiles = triton.cdiv(width, cols)
    parts, share = cut(triton.cdiv(rows, block), tiles, e, PROGRAMS)
    sums = torch.empty(e, parts, 1, width, device=u.device)
    _activate_backward[(parts, tiles, e)](
        grad, u, bias, out, sums, rows, width, bias.stride(0), share * block,
        ROWS=block, COLS=cols, STAGES=STAGES, num_warps=warps,
    )  # fmt: skip
    return out, sum_pieces(sums, sinks)[0]
