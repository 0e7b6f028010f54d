"""Attention over longer sequences: tiles of queries walk over tiles of keys, and no matrix of scores is ever stored.

The softmax is kept up as the keys go by; the way back recomputes its weights from the logarithm of each row's sum. The
arguments are those of `attention`.

Where products may round their inputs to the ten bits of TF32, tiles enter them as float16, which has as many and whose
products are several times as quick here. Its range is small: so every tile is divided by its largest number first.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from placecode.kernels import attention
from placecode.kernels.attention import Parts, exactness, per_head, read
from placecode.kernels.rows import Sinks, sum_pieces

WIDEST = 128
"""Features of a head that a tile can hold."""
QUICKER = 64
"""Tokens beyond which this is quicker than one tile, where that would do too."""
LAUNCH: dict[str, dict[str, dict[str, int]]] = {
    "half": {
        "forward": {"QUERIES": 64, "KEYS": 128, "num_warps": 4, "num_stages": 1},
        "queries": {"QUERIES": 128, "KEYS": 32, "num_warps": 4, "num_stages": 1},
        "keys": {"QUERIES": 64, "KEYS": 64, "num_warps": 4, "num_stages": 2},
    },
    "as they are": {
        "forward": {"QUERIES": 64, "KEYS": 64, "num_warps": 4, "num_stages": 2},
        "queries": {"QUERIES": 64, "KEYS": 64, "num_warps": 4, "num_stages": 2},
        "keys": {"QUERIES": 32, "KEYS": 64, "num_warps": 4, "num_stages": 1},
    },
}
"""By how inputs of products are rounded, for each kernel: tokens of its tiles, warps of a program, and stages of its
loop. The units of tiles pass from kernel to kernel, so the keys of "queries" must not be more than those of "forward",
nor the queries of "keys" than those of "queries"."""
LOG2_E = 1.4426950408889634
"""Weights are powers of two, which a GPU has an instruction for; scores are scaled to that."""


@triton.jit
def _program(heads):
    """The member, the example and the head of a program."""
    both = tl.program_id(1)
    return tl.program_id(2).to(tl.int64), (both // heads).to(tl.int64), both % heads


@triton.jit
def _unit(value, PRECISION: tl.constexpr):
    """The largest number of a tile, in which it is to be measured."""
    if PRECISION == "half":
        return _usable(tl.max(tl.max(tl.abs(value), 1), 0))
    else:
        return 1.0


@triton.jit
def _usable(unit):
    """A unit that can be divided by; what is smaller counts as zero. Neither NaN nor infinity is lost in it."""
    return tl.where(unit > 1e-30, unit, 1e-30)


@triton.jit
def _in(unit, value, like, PRECISION: tl.constexpr):
    """A float32 tile as a product takes it."""
    if PRECISION == "half":
        return (value * (1.0 / unit)).to(tl.float16)
    else:
        return value.to(like.dtype.element_ty)


@triton.jit
def _kept_unit(place, PRECISION: tl.constexpr):
    """The unit of a tile that another kernel has found."""
    if PRECISION == "half":
        return tl.load(place)
    else:
        return 1.0


@triton.jit
def _product(a, b, unit, PRECISION: tl.constexpr):
    if PRECISION == "half":
        return tl.dot(a, b) * unit
    else:
        return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def _plus_product(total, a, b, unit, PRECISION: tl.constexpr):
    if PRECISION == "half":
        return total + tl.dot(a, b) * unit
    else:
        return tl.dot(a, b, total, input_precision=PRECISION)


@triton.jit
def _forward(
    q, k, v, q_bias, k_bias, v_bias, table, out, lse, k_units, v_units,
    m, n, c, heads, q_member, q_item, q_row, k_member, k_item, k_row, v_member, v_item, v_row, own, table_head, scale,
    log2_e, TABLE: tl.constexpr, BIASES: tl.constexpr, SHARED: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, C: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    kind = q.dtype.element_ty
    member, item, head = _program(heads)
    query, col = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES), tl.arange(0, C)
    real = (query < m)[:, None]
    vector = member * own + head * c
    k += member * k_member + item * k_item + head * c
    v += member * v_member + item * v_item + head * c
    table += head * table_head
    a = read(q + member * q_member + item * q_item + head * c, q_bias + vector, query, q_row, real, col, c, True)
    a *= scale * log2_e
    a_unit = _unit(a, PRECISION)
    a = _in(a_unit, a, q, PRECISION)
    tile = ((member * (tl.num_programs(1) // heads) + item) * heads + head) * tl.cdiv(n, KEYS)
    highest = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    mixed = tl.zeros((QUERIES, C), tl.float32)
    for first in range(0, n, KEYS):
        key = first + tl.arange(0, KEYS)
        seen = (key < n)[:, None]
        b = read(k, k_bias + vector, key, k_row, seen, col, c, BIASES == 3)
        b_unit = _unit(b, PRECISION)
        b = _in(b_unit, b, q, PRECISION)
        scores = _product(a, tl.trans(b), a_unit * b_unit, PRECISION)
        if PRECISION == "half" and tl.program_id(0) == 0:
            tl.store(k_units + tile, b_unit)
        if TABLE:
            both = real & (key < n)[None, :]
            scores += log2_e * tl.load(table + query[:, None] * n + key[None, :], mask=both, other=0.0)
        scores = tl.where((key < n)[None, :], scores, float("-inf"))
        peak = tl.maximum(highest, tl.max(scores, 1))
        base = tl.where(peak == float("-inf"), 0.0, peak)  # no key seen so far: all weights are zero, and not NaN
        weights = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(highest - base)
        total = total * shrink + tl.sum(weights, 1)
        if not SHARED:
            b = read(v, v_bias + vector, key, v_row, seen, col, c, BIASES == 3)
            b_unit = _unit(b, PRECISION)
            b = _in(b_unit, b, q, PRECISION)
        if PRECISION == "half" and tl.program_id(0) == 0:
            tl.store(v_units + tile, b_unit)
        mixed = _plus_product(mixed * shrink[:, None], _in(1.0, weights, q, PRECISION), b, b_unit, PRECISION)
        highest = peak
        tile += 1
    line = ((member * (tl.num_programs(1) // heads) + item) * m + query) * heads + head
    tl.store(out + line[:, None] * c + col[None, :], (mixed / total[:, None]).to(kind), mask=real & (col < c)[None, :])
    tl.store(lse + line, highest + tl.log2(total), mask=query < m)


@triton.jit
def _backward_queries(
    q, k, v, q_bias, k_bias, v_bias, table, grad, out, lse, delta, k_units, v_units, a_units, g_units, means,
    dq, dq_bias,
    m, n, c, heads, q_member, q_item, q_row, k_member, k_item, k_row, v_member, v_item, v_row, own, table_head, scale,
    log2_e, sums, shares, TABLE: tl.constexpr, BIASES: tl.constexpr, SHARED: tl.constexpr,
    UNIT: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, C: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    kind = q.dtype.element_ty
    member, item, head = _program(heads)
    query, col = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES), tl.arange(0, C)
    real, used = (query < m)[:, None], (col < c)[None, :]
    vector = member * own + head * c
    k += member * k_member + item * k_item + head * c
    v += member * v_member + item * v_item + head * c
    at = member * q_member + item * q_item + head * c
    table += head * table_head
    a = read(q + at, q_bias + vector, query, q_row, real, col, c, True)
    a *= scale * log2_e
    a_unit = _unit(a, PRECISION)
    a = _in(a_unit, a, q, PRECISION)
    line = ((member * (tl.num_programs(1) // heads) + item) * m + query) * heads + head
    g = tl.load(grad + line[:, None] * c + col[None, :], mask=real & used, other=0.0).to(tl.float32)
    found = tl.load(out + line[:, None] * c + col[None, :], mask=real & used, other=0.0).to(tl.float32)
    mean = tl.sum(g * found, 1)
    tl.store(delta + line, mean, mask=query < m)
    g_unit, least = _unit(g, PRECISION), tl.max(tl.abs(mean), 0)
    g = _in(g_unit, g, q, PRECISION)
    example = (member * (tl.num_programs(1) // heads) + item) * heads + head
    if PRECISION == "half":
        tile = example * tl.num_programs(0) + tl.program_id(0)
        tl.store(a_units + tile, a_unit)
        tl.store(g_units + tile, g_unit)
        tl.store(means + tile, least)
    tiles = tl.cdiv(n, UNIT)
    level = tl.load(lse + line, mask=query < m, other=0.0)
    result = tl.zeros((QUERIES, C), tl.float32)
    for first in range(0, n, KEYS):
        key = first + tl.arange(0, KEYS)
        seen = (key < n)[:, None]
        b = read(k, k_bias + vector, key, k_row, seen, col, c, BIASES == 3)
        b_unit = _kept_unit(k_units + example * tiles + first // UNIT, PRECISION)
        b = _in(b_unit, b, q, PRECISION)
        scores = _product(a, tl.trans(b), a_unit * b_unit, PRECISION)
        if TABLE:
            both = real & (key < n)[None, :]
            scores += log2_e * tl.load(table + query[:, None] * n + key[None, :], mask=both, other=0.0)
        weights = tl.where((key < n)[None, :], tl.exp2(scores - level[:, None]), 0.0)
        w, w_unit = b, b_unit
        if not SHARED:
            w = read(v, v_bias + vector, key, v_row, seen, col, c, BIASES == 3)
            w_unit = _kept_unit(v_units + example * tiles + first // UNIT, PRECISION)
            w = _in(w_unit, w, q, PRECISION)
        back = weights * (_product(g, tl.trans(w), g_unit * w_unit, PRECISION) - mean[:, None])
        unit = _usable(tl.maximum(g_unit * w_unit, least))
        result = _plus_product(result, _in(unit, back, q, PRECISION), b, unit * b_unit, PRECISION)
    result = tl.where(real, result * scale, 0.0)
    tl.store(dq + at + query[:, None] * q_row + col[None, :], result.to(kind), mask=real & used)
    piece = (member * shares + item * tl.num_programs(0) + tl.program_id(0)) * sums + head * c
    tl.store(dq_bias + piece + col, tl.sum(result, 0), mask=col < c)


@triton.jit
def _backward_keys(
    q, k, v, q_bias, k_bias, v_bias, table, grad, lse, delta, a_units, g_units, means, dk, dv, dk_bias, dv_bias,
    m, n, c, heads, q_member, q_item, q_row, k_member, k_item, k_row, v_member, v_item, v_row, own, table_head, scale,
    log2_e, sums, shares, TABLE: tl.constexpr, BIASES: tl.constexpr, SHARED: tl.constexpr, RESIDUAL: tl.constexpr,
    UNIT: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, C: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Scores stand on their heads here, a row for each key: so weights enter the products as they are."""
    kind = q.dtype.element_ty
    member, item, head = _program(heads)
    key, col = tl.program_id(0) * KEYS + tl.arange(0, KEYS), tl.arange(0, C)
    real, used = (key < n)[:, None], (col < c)[None, :]
    vector = member * own + head * c
    at_k = member * k_member + item * k_item + head * c
    at_v = member * v_member + item * v_item + head * c
    q += member * q_member + item * q_item + head * c
    table += head * table_head
    example = member * (tl.num_programs(1) // heads) + item
    b = read(k + at_k, k_bias + vector, key, k_row, real, col, c, BIASES == 3)
    b_unit = _unit(b, PRECISION)
    b = _in(b_unit, b, q, PRECISION)
    w, w_unit = b, b_unit
    if not SHARED:
        w = read(v + at_v, v_bias + vector, key, v_row, real, col, c, BIASES == 3)
        w_unit = _unit(w, PRECISION)
        w = _in(w_unit, w, q, PRECISION)
    d_key = tl.zeros((KEYS, C), tl.float32)
    d_value = tl.zeros((KEYS, C), tl.float32)
    for first in range(0, m, QUERIES):
        query = first + tl.arange(0, QUERIES)
        here = (query < m)[:, None]
        a = read(q, q_bias + vector, query, q_row, here, col, c, True)
        tile = (example * heads + head) * tl.cdiv(m, UNIT) + first // UNIT
        a_unit, g_unit = _kept_unit(a_units + tile, PRECISION), _kept_unit(g_units + tile, PRECISION)
        a = _in(a_unit, a * (scale * log2_e), q, PRECISION)
        line = (example * m + query) * heads + head
        g = tl.load(grad + line[:, None] * c + col[None, :], mask=here & used, other=0.0).to(tl.float32)
        g = _in(g_unit, g, q, PRECISION)
        level = tl.load(lse + line, mask=query < m, other=float("inf"))  # beyond the last query all weights are 0
        mean = tl.load(delta + line, mask=query < m, other=0.0)
        scores = _product(b, tl.trans(a), a_unit * b_unit, PRECISION)
        if TABLE:
            both = real & (query < m)[None, :]
            scores += log2_e * tl.load(table + query[None, :] * n + key[:, None], mask=both, other=0.0)
        weights = tl.where(real, tl.exp2(scores - level[None, :]), 0.0)
        d_value = _plus_product(d_value, _in(1.0, weights, q, PRECISION), g, g_unit, PRECISION)
        back = weights * (_product(w, tl.trans(g), g_unit * w_unit, PRECISION) - mean[None, :])
        unit = _usable(tl.maximum(g_unit * w_unit, _kept_unit(means + tile, PRECISION)))
        d_key = _plus_product(d_key, _in(unit, back, q, PRECISION), a, unit * a_unit, PRECISION)
    d_key /= log2_e
    piece = (member * shares + item * tl.num_programs(0) + tl.program_id(0)) * sums + head * c
    if BIASES == 3:
        tl.store(dk_bias + piece + col, tl.sum(d_key, 0), mask=col < c)
        tl.store(dv_bias + piece + col, tl.sum(d_value, 0), mask=col < c)
    if RESIDUAL:
        line = (example * n + key) * heads + head
        d_key += tl.load(grad + line[:, None] * c + col[None, :], mask=real & used, other=0.0).to(tl.float32)
    if SHARED:
        d_key += d_value
    else:
        tl.store(dv + at_v + key[:, None] * v_row + col[None, :], d_value.to(kind), mask=real & used)
    tl.store(dk + at_k + key[:, None] * k_row + col[None, :], d_key.to(kind), mask=real & used)


def suits(tokens: int, features: int) -> bool:
    """Whether sequences so long, with so many features to a head, are for this module rather than for `attention`."""
    return features <= WIDEST and tokens > min(QUICKER, attention.LONGEST)


def _common(parts: Parts, biases: tuple[Tensor, ...], table: Tensor | None, heads: int) -> tuple[Any, ...]:
    q, k, v = parts
    m, n, c = q.shape[2], k.shape[2], q.shape[3] // heads
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], biases[0].stride(0), per_head(table))
    return (m, n, c, heads, *strides, c**-0.5, LOG2_E)


def _settings(
    parts: Parts, biases: tuple[Tensor, ...], table: Tensor | None, heads: int
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Of the three kernels."""
    q, k, v = parts
    chunk = max(16, triton.next_power_of_2(q.shape[3] // heads))
    precision = "half" if q.dtype == torch.float32 and exactness(q) == "tf32" else exactness(q)
    launch = LAUNCH["half" if precision == "half" else "as they are"]
    flags = {"TABLE": table is not None, "BIASES": len(biases), "SHARED": k is v, "PRECISION": precision, "C": chunk}
    if chunk > 64:  # so that it fits into the memory of small GPUs too
        launch = {name: _halved(each) for name, each in launch.items()}
    forward, queries, keys = (launch[name] for name in ("forward", "queries", "keys"))
    units = {"UNIT": forward["KEYS"]}, {"UNIT": queries["QUERIES"]}
    return {**flags, **forward}, {**flags, **queries, **units[0]}, {**flags, **keys, **units[1]}


def _halved(launch: dict[str, int]) -> dict[str, int]:
    return {**launch, "QUERIES": launch["QUERIES"] // 2, "KEYS": launch["KEYS"] // 2, "num_stages": 1}


def _kept(kept: Tensor, q: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """What `attend` keeps, part by part: the logarithm of each row's sum, (e, b, m, h) and to base 2; and the units of
    all tiles of keys and of values."""
    e, b, m, _ = q.shape
    sums, units = kept[: e * b * m * heads], kept[e * b * m * heads :]
    of_keys, of_values = units.chunk(2)
    return sums.view(e, b, m, heads), of_keys, of_values


def attend(parts: Parts, biases: tuple[Tensor, ...], table: Tensor | None, heads: int) -> tuple[Tensor, Tensor]:
    """As `attention.attend`; also what the way back needs."""
    q, k, v = parts
    e, b, m, _ = q.shape
    settings, _, _ = _settings(parts, biases, table, heads)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    count = e * b * heads * (m + 2 * triton.cdiv(k.shape[2], settings["KEYS"]))
    kept = torch.empty(count, device=q.device)
    given = (q, k, v, *biases, *biases[:1] * (3 - len(biases)), biases[0] if table is None else table)
    _forward[(triton.cdiv(m, settings["QUERIES"]), b * heads, e)](
        *given, out, *_kept(kept, q, heads), *_common(parts, biases, table, heads), **settings
    )
    return out, kept


def attend_backward(
    grad: Tensor, out: Tensor, kept: Tensor, parts: Parts, biases: tuple[Tensor, ...], table: Tensor | None, heads: int,
    into: Parts, places: Sinks, residual: bool,
) -> Tensor:  # fmt: skip
    """As `attention.attend_backward`, given also what `attend` returned."""
    q, k, v = parts
    e, b, m, d = q.shape
    common = _common(parts, biases, table, heads)
    _, of_queries, of_keys = _settings(parts, biases, table, heads)
    tiles = triton.cdiv(m, of_queries["QUERIES"]), triton.cdiv(k.shape[2], of_keys["KEYS"])
    sums = torch.zeros(e, b * max(tiles), 1, len(biases) * d, device=q.device)
    pieces = sums.split(d, dim=3)
    pieces = (*pieces, *pieces[:1] * (3 - len(biases)))
    given = (q, k, v, *biases, *biases[:1] * (3 - len(biases)), biases[0] if table is None else table, grad)
    lse, *units = _kept(kept, q, heads)
    delta, ends = torch.empty_like(lse), (sums.shape[3], sums.shape[1])
    found = torch.empty(3, e * b * heads * tiles[0], device=q.device).unbind()  # units of queries and their gradients
    _backward_queries[(tiles[0], b * heads, e)](
        *given, out, lse, delta, *units, *found, into[0], pieces[0], *common, *ends, **of_queries
    )
    _backward_keys[(tiles[1], b * heads, e)](
        *(*given, lse, delta, *found, into[1], into[2], pieces[1], pieces[2], *common, *ends),
        **{**of_keys, "RESIDUAL": residual},
    )
    return sum_pieces(sums, places)[0]
