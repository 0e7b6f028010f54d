"""Small products of matrices that lie in a stack's flat array, for all members and blocks in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from placecode.kernels.attention import exactness, operand

TILE = 32


@triton.jit
def _product(
    a, b, out, left, right, inner, rows, cols,
    a_block, a_member, a_row, a_col, b_block, b_member, b_row, b_col, out_block, out_member, out_row, out_col,
    left_block, left_member, right_block, right_member,
    OUTER: tl.constexpr, TILE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(cols, TILE)
    row = tl.program_id(0) // tiles * TILE + tl.arange(0, TILE)
    col = tl.program_id(0) % tiles * TILE + tl.arange(0, TILE)
    block, member = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    a += block * a_block + member * a_member
    b += block * b_block + member * b_member
    total = tl.zeros((TILE, TILE), tl.float32)
    for first in range(0, inner, TILE):
        k = first + tl.arange(0, TILE)
        x = tl.load(
            a + row[:, None] * a_row + k[None, :] * a_col, mask=(row < rows)[:, None] & (k < inner)[None, :], other=0.0
        )
        y = tl.load(
            b + k[:, None] * b_row + col[None, :] * b_col, mask=(k < inner)[:, None] & (col < cols)[None, :], other=0.0
        )
        total = tl.dot(operand(x, a, PRECISION), operand(y, b, PRECISION), total, input_precision=PRECISION)
    if OUTER:
        u = tl.load(left + block * left_block + member * left_member + row, mask=row < rows, other=0.0)
        v = tl.load(right + block * right_block + member * right_member + col, mask=col < cols, other=0.0)
        total += u[:, None] * v[None, :]
    there = out + block * out_block + member * out_member + row[:, None] * out_row + col[None, :] * out_col
    tl.store(there, total, mask=(row < rows)[:, None] & (col < cols)[None, :])


def product(out: Tensor, a: Tensor, b: Tensor, outer: tuple[Tensor, Tensor] | None = None) -> None:
    """out = a b (+ u v^T), float32: (l, e, i, k) times (l, e, k, j), of any strides; u (l, e, i), v (l, e, j)."""
    (blocks, members, rows, inner), cols = a.shape, b.shape[3]
    u, v = (a, b) if outer is None else outer
    _product[(triton.cdiv(rows, TILE) * triton.cdiv(cols, TILE), blocks, members)](
        *(a, b, out, u, v, inner, rows, cols, *a.stride(), *b.stride(), *out.stride()),
        *(*u.stride()[:2], *v.stride()[:2]),
        OUTER=outer is not None, TILE=TILE, PRECISION=exactness(a), num_warps=4,
    )  # fmt: skip


def over_blocks(first: Tensor, second: Tensor | None, blocks: int) -> Tensor:
    """A parameter of all blocks, (l, e, ...), given those of the first two: in a flat array they lie evenly apart."""
    apart = 0 if second is None else second.storage_offset() - first.storage_offset()
    return torch.as_strided(first, (blocks, *first.shape), (apart, *first.stride()), first.storage_offset())
