"""Attention over longer sequences: tiles of queries walk over tiles of keys, and no matrix of scores is ever stored.

The softmax is kept up as the keys go by; the way back recomputes its weights from the logarithm of each row's sum. The
arguments are those of `attention`, which hands over what does not fit into one tile.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from placecode.kernels.attention import Parts, exactness, operand, per_head
from placecode.kernels.attention import read as _read
from placecode.kernels.rows import Sinks, sum_pieces

WIDEST = 128
"""Features of a head that a tile can hold."""
TILE = 64
"""Queries or keys of a tile."""


@triton.jit
def _scores(a, b, table, query, key, m, n, TABLE: tl.constexpr, PRECISION: tl.constexpr):
    scores = tl.dot(a, tl.trans(b), input_precision=PRECISION)
    seen = (query < m)[:, None] & (key < n)[None, :]
    if TABLE:
        scores += tl.load(table + query[:, None] * n + key[None, :], mask=seen, other=0.0)
    return tl.where((key < n)[None, :], scores, float("-inf"))


@triton.jit
def _forward(
    q, k, v, q_bias, k_bias, v_bias, table, out, lse,
    m, n, c, heads, q_member, q_item, q_row, k_member, k_item, k_row, v_member, v_item, v_row, own, table_head, scale,
    TABLE: tl.constexpr, BIASES: tl.constexpr, TILE: tl.constexpr, C: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    kind = q.dtype.element_ty
    items = tl.num_programs(1) // heads
    member, item, head = (
        tl.program_id(2).to(tl.int64),
        (tl.program_id(1) // heads).to(tl.int64),
        tl.program_id(1) % heads,
    )
    query, col = tl.program_id(0) * TILE + tl.arange(0, TILE), tl.arange(0, C)
    real = (query < m)[:, None]
    vector = member * own + head * c
    k += member * k_member + item * k_item + head * c
    v += member * v_member + item * v_item + head * c
    table += head * table_head
    a = _read(q + member * q_member + item * q_item + head * c, q_bias + vector, query, q_row, real, col, c, True)
    a = operand(a * scale, q, PRECISION)
    highest = tl.full((TILE,), float("-inf"), tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    mixed = tl.zeros((TILE, C), tl.float32)
    for first in range(0, n, TILE):
        key = first + tl.arange(0, TILE)
        b = _read(k, k_bias + vector, key, k_row, (key < n)[:, None], col, c, BIASES == 3)
        b = operand(b, q, PRECISION)
        scores = _scores(a, b, table, query, key, m, n, TABLE, PRECISION)
        peak = tl.maximum(highest, tl.max(scores, 1))
        base = tl.where(peak == float("-inf"), 0.0, peak)  # no key seen so far: all weights are zero, and not NaN
        weights = tl.exp(scores - base[:, None])
        shrink = tl.exp(highest - base)
        total = total * shrink + tl.sum(weights, 1)
        b = _read(v, v_bias + vector, key, v_row, (key < n)[:, None], col, c, BIASES == 3)
        b = operand(b, q, PRECISION)
        mixed = tl.dot(operand(weights, q, PRECISION), b, mixed * shrink[:, None], input_precision=PRECISION)
        highest = peak
    place = (member * items + item) * m
    there = out + ((place + query) * heads + head)[:, None] * c + col[None, :]
    tl.store(there, (mixed / total[:, None]).to(kind), mask=real & (col < c)[None, :])
    tl.store(lse + (place + query) * heads + head, highest + tl.log(total), mask=query < m)


@triton.jit
def _backward_queries(
    q, k, v, q_bias, k_bias, v_bias, table, grad, lse, delta, dq, dq_bias,
    m, n, c, heads, q_member, q_item, q_row, k_member, k_item, k_row, v_member, v_item, v_row, own, table_head, scale,
    sums, shares,
    TABLE: tl.constexpr, BIASES: tl.constexpr, TILE: tl.constexpr, C: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    kind = q.dtype.element_ty
    items = tl.num_programs(1) // heads
    member, item, head = (
        tl.program_id(2).to(tl.int64),
        (tl.program_id(1) // heads).to(tl.int64),
        tl.program_id(1) % heads,
    )
    query, col = tl.program_id(0) * TILE + tl.arange(0, TILE), tl.arange(0, C)
    real, used = (query < m)[:, None], (col < c)[None, :]
    vector = member * own + head * c
    k += member * k_member + item * k_item + head * c
    v += member * v_member + item * v_item + head * c
    at = member * q_member + item * q_item + head * c
    table += head * table_head
    a = operand(_read(q + at, q_bias + vector, query, q_row, real, col, c, True) * scale, q, PRECISION)
    line = ((member * items + item) * m + query) * heads + head
    g = operand(tl.load(grad + line[:, None] * c + col[None, :], mask=real & used, other=0.0), q, PRECISION)
    level = tl.load(lse + line, mask=query < m, other=0.0)
    mean = tl.load(delta + line, mask=query < m, other=0.0)
    result = tl.zeros((TILE, C), tl.float32)
    for first in range(0, n, TILE):
        key = first + tl.arange(0, TILE)
        b = _read(k, k_bias + vector, key, k_row, (key < n)[:, None], col, c, BIASES == 3)
        b = operand(b, q, PRECISION)
        weights = tl.exp(_scores(a, b, table, query, key, m, n, TABLE, PRECISION) - level[:, None])
        w = _read(v, v_bias + vector, key, v_row, (key < n)[:, None], col, c, BIASES == 3)
        w = operand(w, q, PRECISION)
        back = weights * (tl.dot(g, tl.trans(w), input_precision=PRECISION) - mean[:, None])
        result = tl.dot(operand(back, q, PRECISION), b, result, input_precision=PRECISION)
    result = tl.where(real, result * scale, 0.0)
    tl.store(dq + at + query[:, None] * q_row + col[None, :], result.to(kind), mask=real & used)
    piece = (member * shares + item * tl.num_programs(0) + tl.program_id(0)) * sums + head * c
    tl.store(dq_bias + piece + col, tl.sum(result, 0), mask=col < c)


@triton.jit
def _backward_keys(
    q, k, v, q_bias, k_bias, v_bias, table, grad, lse, delta, dk, dv, dk_bias, dv_bias,
    m, n, c, heads, q_member, q_item, q_row, k_member, k_item, k_row, v_member, v_item, v_row, own, table_head, scale,
    sums, shares,
    TABLE: tl.constexpr, BIASES: tl.constexpr, SHARED: tl.constexpr, RESIDUAL: tl.constexpr,
    TILE: tl.constexpr, C: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    kind = q.dtype.element_ty
    items = tl.num_programs(1) // heads
    member, item, head = (
        tl.program_id(2).to(tl.int64),
        (tl.program_id(1) // heads).to(tl.int64),
        tl.program_id(1) % heads,
    )
    key, col = tl.program_id(0) * TILE + tl.arange(0, TILE), tl.arange(0, C)
    real, used = (key < n)[:, None], (col < c)[None, :]
    vector = member * own + head * c
    at_k = member * k_member + item * k_item + head * c
    at_v = member * v_member + item * v_item + head * c
    q += member * q_member + item * q_item + head * c
    table += head * table_head
    b = operand(_read(k + at_k, k_bias + vector, key, k_row, real, col, c, BIASES == 3), q, PRECISION)
    w = operand(_read(v + at_v, v_bias + vector, key, v_row, real, col, c, BIASES == 3), q, PRECISION)
    d_key = tl.zeros((TILE, C), tl.float32)
    d_value = tl.zeros((TILE, C), tl.float32)
    for first in range(0, m, TILE):
        query = first + tl.arange(0, TILE)
        here = (query < m)[:, None]
        a = operand(_read(q, q_bias + vector, query, q_row, here, col, c, True) * scale, q, PRECISION)
        line = ((member * items + item) * m + query) * heads + head
        g = operand(tl.load(grad + line[:, None] * c + col[None, :], mask=here & used, other=0.0), q, PRECISION)
        level = tl.load(lse + line, mask=query < m, other=0.0)
        mean = tl.load(delta + line, mask=query < m, other=0.0)
        weights = tl.exp(_scores(a, b, table, query, key, m, n, TABLE, PRECISION) - level[:, None])
        weights = tl.where(here, weights, 0.0)
        d_value = tl.dot(tl.trans(operand(weights, q, PRECISION)), g, d_value, input_precision=PRECISION)
        back = weights * (tl.dot(g, tl.trans(w), input_precision=PRECISION) - mean[:, None])
        d_key = tl.dot(tl.trans(operand(back, q, PRECISION)), a, d_key, input_precision=PRECISION)
    piece = (member * shares + item * tl.num_programs(0) + tl.program_id(0)) * sums + head * c
    if BIASES == 3:
        tl.store(dk_bias + piece + col, tl.sum(d_key, 0), mask=col < c)
        tl.store(dv_bias + piece + col, tl.sum(d_value, 0), mask=col < c)
    if RESIDUAL:
        line = ((member * items + item) * n + key) * heads + head
        d_key += tl.load(grad + line[:, None] * c + col[None, :], mask=real & used, other=0.0).to(tl.float32)
    if SHARED:
        d_key += d_value
    else:
        tl.store(dv + at_v + key[:, None] * v_row + col[None, :], d_value.to(kind), mask=real & used)
    tl.store(dk + at_k + key[:, None] * k_row + col[None, :], d_key.to(kind), mask=real & used)


def _common(parts: Parts, biases: tuple[Tensor, ...], table: Tensor | None, heads: int) -> tuple[Any, ...]:
    q, k, v = parts
    m, n, c = q.shape[2], k.shape[2], q.shape[3] // heads
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], biases[0].stride(0), per_head(table))
    return (m, n, c, heads, *strides, c**-0.5)


def _settings(q: Tensor, biases: tuple[Tensor, ...], table: Tensor | None, heads: int) -> dict[str, Any]:
    chunk = max(16, triton.next_power_of_2(q.shape[3] // heads))
    flags = {"TABLE": table is not None, "BIASES": len(biases), "PRECISION": exactness(q)}
    return {**flags, "TILE": TILE, "C": chunk, "num_warps": 4, "num_stages": 2}


def attend(parts: Parts, biases: tuple[Tensor, ...], table: Tensor | None, heads: int) -> tuple[Tensor, Tensor]:
    """As `attention.attend`; also the logarithm of each row's sum, (e, b, m, h), for the way back."""
    q, k, v = parts
    e, b, m, _ = q.shape
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(e, b, m, heads, device=q.device)
    given = (q, k, v, *biases, *biases[:1] * (3 - len(biases)), biases[0] if table is None else table)
    _forward[(triton.cdiv(m, TILE), b * heads, e)](
        *given, out, lse, *_common(parts, biases, table, heads), **_settings(q, biases, table, heads)
    )
    return out, lse


def attend_backward(
    grad: Tensor, out: Tensor, lse: Tensor, parts: Parts, biases: tuple[Tensor, ...], table: Tensor | None, heads: int,
    into: Parts, places: Sinks, residual: bool,
) -> Tensor:  # fmt: skip
    """As `attention.attend_backward`, given also what `attend` returned."""
    q, k, v = parts
    e, b, m, d = q.shape
    delta = (grad.view(out.shape).float() * out.float()).unflatten(-1, (heads, -1)).sum(-1)  # (e, b, m, h)
    tiles = triton.cdiv(m, TILE), triton.cdiv(k.shape[2], TILE)
    sums = torch.zeros(e, b * max(tiles), 1, len(biases) * d, device=q.device)
    pieces = sums.split(d, dim=3)
    pieces = (*pieces, *pieces[:1] * (3 - len(biases)))
    given = (q, k, v, *biases, *biases[:1] * (3 - len(biases)), biases[0] if table is None else table, grad, lse, delta)
    ends = (sums.shape[3], sums.shape[1])
    common, settings = _common(parts, biases, table, heads), _settings(q, biases, table, heads)
    _backward_queries[(tiles[0], b * heads, e)](*given, into[0], pieces[0], *common, *ends, **settings)
    _backward_keys[(tiles[1], b * heads, e)](
        *given, into[1], into[2], pieces[1], pieces[2], *common, *ends,
        **{"SHARED": k is v, "RESIDUAL": residual}, **settings,
    )  # fmt: skip
    return sum_pieces(sums, places)[0]
