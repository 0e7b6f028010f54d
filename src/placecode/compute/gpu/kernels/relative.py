"""Score bias of relative positions: a query times the vector that belongs to its offset from a key.

There is one vector per offset (position of the key minus position of the query). The products of a query with all
vectors are one row of the array `products`, with one column per vector. The bias of query i and key j is the value in
row i and column `index[axis, i, j]`, summed over the axes of the positions (such as rows and columns of a grid).
Several keys may use the same value; their gradients are then added. The backward pass adds in a fixed order, so that
results are deterministic.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _select(
    products, lift, index, table, out, m, n, axes, member_stride, item_stride, row_stride, lift_stride, scale,
    TABLE: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    item, member = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    query, key = tl.arange(0, M), tl.arange(0, N)
    inside = (query < m)[:, None] & (key < n)[None, :]
    pair = query[:, None] * n + key[None, :]
    products += member * member_stride + item * item_stride
    lift += member * lift_stride
    bias = tl.zeros((M, N), tl.float32)
    for axis in range(axes):
        column = tl.load(index + axis * m * n + pair, mask=inside, other=0)
        bias += tl.load(products + query[:, None] * row_stride + column, mask=inside, other=0.0).to(tl.float32)
        bias += tl.load(lift + column, mask=inside, other=0.0)
    bias *= scale
    if TABLE:
        bias += tl.load(table + pair, mask=inside, other=0.0)
    tl.store(out + (member * tl.num_programs(0) + item) * m * n + pair, bias, mask=inside)


@triton.jit
def _select_backward(
    grad, index, out, m, n, axes, columns, member_stride, item_stride, row_stride, scale,
    M: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    item, member = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    query, column = tl.arange(0, M), tl.arange(0, COLUMNS)
    real = query < m
    grad += (member * tl.num_programs(0) + item) * m * n
    total = tl.zeros((M, COLUMNS), tl.float32)
    for axis in range(axes):
        for key in range(n):
            selected = tl.load(index + axis * m * n + query * n + key, mask=real, other=0)
            value = tl.load(grad + query * n + key, mask=real, other=0.0)
            total += tl.where(selected[:, None] == column[None, :], value[:, None], 0.0)
    out += member * member_stride + item * item_stride
    there = out + query[:, None] * row_stride + column[None, :]
    tl.store(there, (total * scale).to(out.dtype.element_ty), mask=real[:, None] & (column < columns)[None, :])


def select(products: Tensor, lift: Tensor, index: Tensor, table: Tensor | None, scale: float) -> Tensor:
    """Return the score bias (e, b, 1, m, n): scale * sum over axes of (products + lift)[i, index[axis, i, j]] +
    table[i, j].

    i is the query and j the key. `products`, (e members, b examples, m queries, columns), has contiguous columns.
    `lift`, (e, columns or fewer), is the part of the products due to the query bias; it is added to every row. `index`,
    (axes, m, n keys), in int32, selects a column for each axis, query and key. `table`, (1, m, n), or None, is the same
    for all members and examples.
    """
    (e, b), (axes, m, n) = products.shape[:2], index.shape
    out = torch.empty(e, b, 1, m, n, device=products.device)
    _select[(b, e)](
        products, lift, index, lift if table is None else table, out,
        m, n, axes, *products.stride()[:3], lift.stride(0), scale,
        TABLE=table is not None, M=triton.next_power_of_2(m), N=triton.next_power_of_2(n), num_warps=2,
    )  # fmt: skip
    return out


def select_backward(grad: Tensor, index: Tensor, scale: float, into: Tensor) -> None:
    """Write the gradient of the argument `products` of `select` to `into`, (members, examples, queries, columns).

    `grad`, (members, examples, 1, queries, keys), is the gradient of the score bias that `select` returned with the
    same `index` and `scale`. Columns that belong to no pair of a query and a key are set to zero.
    """
    (e, b, _, columns), (axes, m, n) = into.shape, index.shape
    _select_backward[(b, e)](
        grad, index, into, m, n, axes, columns, *into.stride()[:3], scale,
        M=triton.next_power_of_2(m), COLUMNS=triton.next_power_of_2(columns), num_warps=2,
    )  # fmt: skip
