"""Attention over short sequences: the scores of all tokens of an example and head are one tile that stays on the chip.

Queries, keys and values are read from the result of the projection without copies or transposes, and biases are added
here. The features of a head are read in chunks, so that unusual widths need little padding.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from placecode.compute.gpu.kernels.rows import Sinks, sum_pieces

MAX_TILE_TOKENS = 128
"""Maximum number of tokens of a sequence, all of which form one tile."""
MAX_SAVED_TOKENS = 32
"""Maximum number of tokens for which attention weights are saved for the backward pass, not computed again."""
LAUNCH: dict[str, dict[int, dict[str, int]]] = {
    "forward": {
        16: {"C": 128, "num_warps": 2, "num_stages": 3},
        32: {"C": 128, "num_warps": 2, "num_stages": 3},
        64: {"C": 128, "num_warps": 4, "num_stages": 2},
        128: {"C": 128, "num_warps": 8, "num_stages": 1},
    },
    "backward": {
        16: {"C": 128, "num_warps": 2, "num_stages": 3},
        32: {"C": 128, "num_warps": 2, "num_stages": 2},
        64: {"C": 64, "num_warps": 4, "num_stages": 1},
        128: {"C": 64, "num_warps": 8, "num_stages": 1},
    },
}
"""Launch settings of both kernels, by the number of tokens of a tile. `C` is the number of bytes of a row that are read
at a time, `num_warps` the number of warps of a program, and `num_stages` the number of loop iterations whose data are
loaded in advance."""


@triton.jit
def operand(value, like, PRECISION: tl.constexpr):
    """Return `value`, a float32 tile, as a factor of a matrix product: converted to the dtype of `like`.

    For TF32, the mantissa is rounded to ten bits here, because the hardware would truncate it.
    """
    dtype = like.dtype.element_ty
    if dtype == tl.float32 and PRECISION == "tf32":
        bits = (value.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
        return tl.where(value == value, bits.to(tl.float32, bitcast=True), value)
    return value.to(dtype)


@triton.jit
def read(x, bias, row, row_stride, real, col, c, BIAS: tl.constexpr):
    """Return a tile of x in float32: the rows `row` and the columns `col`, a chunk of the c features of a head.

    Rows where `real` is false, (rows, 1), and columns from c on are 0. If BIAS, the bias of these columns is added to
    all rows.
    """
    value = tl.load(x + row[:, None] * row_stride + col[None, :], mask=real & (col < c)[None, :], other=0.0)
    value = value.to(tl.float32)
    if BIAS:
        value += tl.load(bias + col, mask=col < c, other=0.0)[None, :]
    return value


@triton.jit
def _weights(
    q, k, q_bias, k_bias, table, query, key, real_query, real_key, inside, n, c, q_row, k_row, scale,
    TABLE: tl.constexpr, K_BIAS: tl.constexpr, M: tl.constexpr, N: tl.constexpr, C: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Return the attention weights (M, N) of one example and head, with queries in rows and keys in columns."""
    scores = tl.zeros((M, N), tl.float32)
    for first in range(0, c, C):
        col = first + tl.arange(0, C)
        a = read(q, q_bias, query, q_row, real_query, col, c, True) * scale
        b = read(k, k_bias, key, k_row, real_key, col, c, K_BIAS)
        scores = tl.dot(operand(a, q, PRECISION), tl.trans(operand(b, q, PRECISION)), scores, input_precision=PRECISION)
    if TABLE:
        scores += tl.load(table + query[:, None] * n + key[None, :], mask=inside, other=0.0)
    scores = tl.where((key < n)[None, :], scores, float("-inf"))
    scores = tl.exp(scores - tl.max(scores, 1)[:, None])
    return scores / tl.sum(scores, 1)[:, None]


@triton.jit
def _forward(
    q, k, v, q_bias, k_bias, v_bias, table, out, saved,
    m, n, c, heads, q_member, q_item, q_row, k_member, k_item, k_row, v_member, v_item, v_row, bias_member,
    table_member, table_item, table_head, scale,
    TABLE: tl.constexpr, BIASES: tl.constexpr, KEEP: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, C: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    member, item, head = tl.program_id(2).to(tl.int64), tl.program_id(0).to(tl.int64), tl.program_id(1)
    query, key = tl.arange(0, M), tl.arange(0, N)
    real_query, real_key = (query < m)[:, None], (key < n)[:, None]
    vector = member * bias_member + head * c
    table += member * table_member + item * table_item + head * table_head
    weights = _weights(
        q + member * q_member + item * q_item + head * c, k + member * k_member + item * k_item + head * c,
        q_bias + vector, k_bias + vector, table, query, key, real_query, real_key,
        real_query & (key < n)[None, :], n, c, q_row, k_row, scale, TABLE, BIASES == 3, M, N, C, PRECISION,
    )  # fmt: skip
    if KEEP:
        saved += ((member * tl.num_programs(0) + item) * heads + head) * m * n
        inside = real_query & (key < n)[None, :]
        tl.store(saved + query[:, None] * n + key[None, :], weights, mask=inside)
    weights = operand(weights, v, PRECISION)
    v += member * v_member + item * v_item + head * c
    out += ((member * tl.num_programs(0) + item) * m * heads + head) * c
    for first in range(0, c, C):
        col = first + tl.arange(0, C)
        b = read(v, v_bias + vector, key, v_row, real_key, col, c, BIASES == 3)
        mixed = tl.dot(weights, operand(b, v, PRECISION), input_precision=PRECISION)
        there = out + query[:, None] * heads * c + col[None, :]
        tl.store(there, mixed.to(out.dtype.element_ty), mask=real_query & (col < c)[None, :])


@triton.jit
def _backward(
    q, k, v, q_bias, k_bias, v_bias, table, saved, grad, dq, dk, dv, d_table, dq_bias, dk_bias, dv_bias,
    m, n, c, heads, q_member, q_item, q_row, k_member, k_item, k_row, v_member, v_item, v_row, bias_member,
    table_member, table_item, table_head, scale, sums,
    TABLE: tl.constexpr, BIASES: tl.constexpr, KEEP: tl.constexpr, SHARED: tl.constexpr, RESIDUAL: tl.constexpr,
    D_TABLE: tl.constexpr, M: tl.constexpr, N: tl.constexpr, C: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    member, item, head = tl.program_id(2).to(tl.int64), tl.program_id(0).to(tl.int64), tl.program_id(1)
    query, key = tl.arange(0, M), tl.arange(0, N)
    real_query, real_key = (query < m)[:, None], (key < n)[:, None]
    inside = real_query & (key < n)[None, :]
    vector = member * bias_member + head * c
    at_q = member * q_member + item * q_item + head * c
    at_k = member * k_member + item * k_item + head * c
    at_v = member * v_member + item * v_item + head * c
    tile = ((member * tl.num_programs(0) + item) * heads + head) * m * n
    table += member * table_member + item * table_item + head * table_head
    if KEEP:
        saved += tile
        weights = tl.load(saved + query[:, None] * n + key[None, :], mask=inside, other=0.0)
    else:
        weights = _weights(
            q + at_q, k + at_k, q_bias + vector, k_bias + vector, table, query, key,
            real_query, real_key, inside, n, c, q_row, k_row, scale, TABLE, BIASES == 3, M, N, C, PRECISION,
        )  # fmt: skip
    grad += ((member * tl.num_programs(0) + item) * m * heads + head) * c
    g_row = heads * c
    back = tl.zeros((M, N), tl.float32)
    for first in range(0, c, C):
        col = first + tl.arange(0, C)
        g = read(grad, grad, query, g_row, real_query, col, c, False)
        b = read(v + at_v, v_bias + vector, key, v_row, real_key, col, c, BIASES == 3)
        back = tl.dot(operand(g, q, PRECISION), tl.trans(operand(b, q, PRECISION)), back, input_precision=PRECISION)
    back = weights * (back - tl.sum(weights * back, 1)[:, None])
    if D_TABLE:
        tl.store(d_table + tile + query[:, None] * n + key[None, :], back, mask=inside)
    back = operand(tl.where(inside, back, 0.0), q, PRECISION)
    weights = operand(tl.where(inside, weights, 0.0), q, PRECISION)
    piece = (member * tl.num_programs(0) + item) * sums + head * c
    for first in range(0, c, C):
        col = first + tl.arange(0, C)
        used = (col < c)[None, :]
        g = read(grad, grad, query, g_row, real_query, col, c, False)
        a = read(q + at_q, q_bias + vector, query, q_row, real_query, col, c, True) * scale
        b = read(k + at_k, k_bias + vector, key, k_row, real_key, col, c, BIASES == 3)
        d_query = tl.dot(back, operand(b, q, PRECISION), input_precision=PRECISION) * scale
        d_key = tl.dot(tl.trans(back), operand(a, q, PRECISION), input_precision=PRECISION)
        d_value = tl.dot(tl.trans(weights), operand(g, q, PRECISION), input_precision=PRECISION)
        there = dq + at_q + query[:, None] * q_row + col[None, :]
        tl.store(there, d_query.to(dq.dtype.element_ty), mask=real_query & used)
        tl.store(dq_bias + piece + col, tl.sum(d_query, 0), mask=col < c)
        if BIASES == 3:
            tl.store(dk_bias + piece + col, tl.sum(d_key, 0), mask=col < c)
            tl.store(dv_bias + piece + col, tl.sum(d_value, 0), mask=col < c)
        if RESIDUAL:
            d_key += read(grad, grad, key, g_row, real_key, col, c, False)
        if SHARED:
            d_key += d_value
        else:
            there = dv + at_v + key[:, None] * v_row + col[None, :]
            tl.store(there, d_value.to(dv.dtype.element_ty), mask=real_key & used)
        there = dk + at_k + key[:, None] * k_row + col[None, :]
        tl.store(there, d_key.to(dk.dtype.element_ty), mask=real_key & used)


def _settings(q: Tensor, n: int, heads: int, biases: int, kernel: str) -> dict[str, Any]:
    """Return the constants and launch settings of a kernel, "forward" or "backward", for n keys.

    `biases` is the number of biases: 3 (of queries, keys and values), or 1 (of queries).
    """
    m, c = q.shape[2], q.shape[3] // heads
    tokens = max(16, triton.next_power_of_2(n))
    launch = dict(LAUNCH[kernel][tokens])
    launch["C"] = min(launch["C"] // q.element_size(), max(16, triton.next_power_of_2(c)))
    sizes = {"M": max(16, triton.next_power_of_2(m)), "N": tokens, "BIASES": biases}
    return {**sizes, "PRECISION": exactness(q), **launch}


def exactness(x: Tensor) -> str:
    """Return the name that Triton uses for the precision of products of x: "ieee" (exact float32) or "tf32".

    It is "ieee" if x is float32 and torch's precision of float32 products is "highest".
    """
    return "ieee" if x.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest" else "tf32"


Parts = tuple[Tensor, Tensor, Tensor]
"""Queries, keys and values, or their gradients, each (members, examples, tokens, features)."""


def attend(parts: Parts, biases: tuple[Tensor, ...], table: Tensor | None, heads: int) -> tuple[Tensor, Tensor | None]:
    """Compute softmax(q k^T / sqrt(c) + table) v for e members, b examples and h heads with c features each.

    Parameters
    ----------
    parts : tuple of Tensor
        Queries q, (e, b, m, d), keys k and values v, (e, b, n, d), with contiguous features ordered by head. They have
        one dtype, but k may be float16 where q is float32, if the precision lets products round float32 to ten bits (as
        many as float16 has).
    biases : tuple of Tensor, shape (e, d)
        Three vectors that are first added to q, k and v, or one for q only.
    table : Tensor of float32 or None
        Added to the scores. The shape is (1 or h, m, n) if the table is the same for all members and examples,
        otherwise (e, b, h, m, n).
    heads : int
        Number of heads, h.

    Returns
    -------
    Tensor, shape (e, b, m, d)
        The result.
    Tensor, shape (e, b, h, m, n), or None
        Attention weights, for the backward pass. None if there are more than `MAX_SAVED_TOKENS` keys.
    """
    q, k, v = parts
    e, b, m, d = q.shape
    n = k.shape[2]
    out = torch.empty(e, b, m, d, dtype=q.dtype, device=q.device)
    saved = torch.empty(e, b, heads, m, n, device=q.device) if n <= MAX_SAVED_TOKENS else None
    _forward[(b, heads, e)](
        q, k, v, *biases, *biases[:1] * (3 - len(biases)), biases[0] if table is None else table, out,
        out if saved is None else saved,
        m, n, d // heads, heads, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
        biases[0].stride(0), *_strides(table), (d // heads) ** -0.5,
        TABLE=table is not None, KEEP=saved is not None,
        **_settings(q, n, heads, len(biases), "forward"),
    )  # fmt: skip
    return out, saved


def attend_backward(
    grad: Tensor, saved: Tensor | None, parts: Parts, biases: tuple[Tensor, ...], table: Tensor | None, heads: int,
    into: Parts, sinks: Sinks, residual: bool = False, d_table: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Write the gradients of q, k and v to the tensors `into`, given the gradient `grad` of the result of `attend`.

    `saved` are the attention weights that `attend` returned. If v is the same tensor as k, the sum of the gradients of
    k and v is written to the tensor for k. `residual` must be true if k are also the tokens to which the caller adds
    the result: `grad` is then added to the gradient of k. The gradient of the scores is written to `d_table`, (members,
    examples, heads, queries, keys), unless `d_table` is None. Returns the gradients of the biases side by side,
    (members, 3 d) or, if only q has a bias, (members, d). They are written to the tensor in `sinks`, if there is one.
    """
    q, k, v = parts
    e, b, m, d = q.shape
    n = k.shape[2]
    sums = torch.empty(e, b, 1, len(biases) * d, device=q.device)
    pieces = sums.split(d, dim=3)
    _backward[(b, heads, e)](
        q, k, v, *biases, *biases[:1] * (3 - len(biases)), biases[0] if table is None else table,
        grad if saved is None else saved, grad, *into, grad if d_table is None else d_table,
        *pieces, *pieces[:1] * (3 - len(biases)),
        m, n, d // heads, heads, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
        biases[0].stride(0), *_strides(table), (d // heads) ** -0.5, sums.shape[3],
        TABLE=table is not None, KEEP=saved is not None, SHARED=k is v, RESIDUAL=residual, D_TABLE=d_table is not None,
        **_settings(q, n, heads, len(biases), "backward"),
    )  # fmt: skip
    return sum_pieces(sums, sinks)[0]


def _strides(table: Tensor | None) -> tuple[int, int, int]:
    """Return the strides of `table` between members, examples and heads; 0 where it has no such axis."""
    if table is None or table.dim() == 3:
        return 0, 0, per_head(table)
    member, item, head = table.stride()[:3]
    return member, item, head


def per_head(table: Tensor | None) -> int:
    """Return the stride between the tables of two heads; 0 if there is no table, or if all heads share one."""
    return 0 if table is None or table.shape[0] == 1 else table.stride(0)
