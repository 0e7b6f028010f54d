"""Triton kernels of attention over long sequences, forward and backward. `long_attention` launches them.

If FP16, tiles are float16. To fit into its range, the values of a tile have been divided by a scale factor, the unit of
the tile (see `long_attention`). The product of two tiles is therefore multiplied by the units of both.
"""

from __future__ import annotations

import triton
import triton.language as tl

from placecode.compute.gpu.kernels.attention import operand, read

RANGE: tl.constexpr = tl.constexpr(32768.0)
"""Largest absolute value in a float16 tile after division by its unit. Values above 2^-29 times this keep all bits."""
GRADIENT_HEADROOM: tl.constexpr = tl.constexpr(256.0)
"""Factor that raises gradients of scores towards 65504, the largest float16. Such a gradient is a product of two tiles
minus a mean (`delta`). First, it is divided by the largest absolute value of one tile times that of the other, or by
the largest `delta` if that is larger. It is then at most 129: up to 128 for the sum over the features of a head, plus 1
for the mean."""


@triton.jit
def _program(tiles, heads):
    """Return the tile, the member, the example of the member, and the head that the current program computes.

    Also return the index of the head among the heads of all examples and members, and the index of the example among
    the examples of all members. Tiles, examples and heads share the first axis of programs, because GPUs allow many
    programs along the first axis but few along the others.
    """
    tile, example_and_head = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    member, items = tl.program_id(1).to(tl.int64), tl.num_programs(0) // (tiles * heads)
    item, head = (example_and_head // heads).to(tl.int64), example_and_head % heads
    example = member * items + item
    return tile, member, item, head, example * heads + head, example


@triton.jit
def _to_fp16(
    x, bias, out, units, tiles, tokens, c, heads, x_member, x_item, x_row, bias_member, factor,
    BIAS: tl.constexpr, TOKENS: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Store a tile of tokens as float16, ordered by head: (x + bias) * factor / unit. Also store the unit of the tile.

    The unit is the largest absolute value of (x + bias) * factor in the tile, divided by RANGE.
    """
    place, member, item, head, number, _ = _program(tiles, heads)
    token, col = place * TOKENS + tl.arange(0, TOKENS), tl.arange(0, C)
    real = (token < tokens)[:, None]
    x += member * x_member + item * x_item + head * c
    value = read(x, bias + member * bias_member + head * c, token, x_row, real, col, c, BIAS)
    value = tl.where(real, value * factor, 0.0)
    unit = _usable(tl.max(tl.max(tl.abs(value), 1), 0) / RANGE)
    tl.store(out + (number * tokens + token)[:, None] * C + col[None, :], (value * (1.0 / unit)).to(tl.float16), real)
    tl.store(units + number * tiles + place, unit)


@triton.jit
def _gradient_to_fp16(
    grad, out, out_fp16, delta, units, means, tiles, tokens, c, heads,
    FP16: tl.constexpr, TOKENS: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Store in `delta`, for each token and head, the dot product of the result of attention and its gradient.

    If FP16, also store three things: in `out_fp16` the gradient, divided by the unit of its tile, as float16; in
    `units` the unit of every tile; in `means` the largest absolute value of `delta` in every tile.
    """
    place, _, _, head, number, example = _program(tiles, heads)
    token, col = place * TOKENS + tl.arange(0, TOKENS), tl.arange(0, C)
    real, used = (token < tokens)[:, None], (col < c)[None, :]
    line = (example * tokens + token) * heads + head
    there = line[:, None] * c + col[None, :]
    value = tl.load(grad + there, mask=real & used, other=0.0).to(tl.float32)
    mean = tl.sum(value * tl.load(out + there, mask=real & used, other=0.0).to(tl.float32), 1)
    tl.store(delta + line, mean, mask=token < tokens)
    if FP16:
        unit = _usable(tl.max(tl.max(tl.abs(value), 1), 0) / RANGE)
        value = (value * (1.0 / unit)).to(tl.float16)
        tl.store(out_fp16 + (number * tokens + token)[:, None] * C + col[None, :], value, real)
        tl.store(units + number * tiles + place, unit)
        tl.store(means + number * tiles + place, tl.max(tl.abs(mean), 0))


@triton.jit
def _usable(unit):
    """Return a unit (see the top) that can be used as a divisor: 1e-30 if it is smaller than that or NaN.

    Values of a tile that are NaN or infinite still lead to results that are not finite.
    """
    return tl.where(unit > 1e-30, unit, 1e-30)


@triton.jit
def _tile(
    x, bias, row, row_stride, real, col, c, factor, BIAS: tl.constexpr, FP16: tl.constexpr, PRECISION: tl.constexpr
):
    """Load the tile of x with the rows `row` and the columns `col`, as a factor of a product.

    If FP16, x must be the float16 array that `_to_fp16` or `_gradient_to_fp16` has written. Otherwise the bias is added
    and the tile multiplied by `factor` here.
    """
    if FP16:
        return tl.load(x + row[:, None] * row_stride + col[None, :], mask=real, other=0.0)
    else:
        return operand(read(x, bias, row, row_stride, real, col, c, BIAS) * factor, x, PRECISION)


@triton.jit
def _unit(units, tile, FP16: tl.constexpr):
    """Return the unit of a tile: the number by which its values were divided to fit into float16; 1 without float16."""
    if FP16:
        return tl.load(units + tile)
    else:
        return 1.0


@triton.jit
def _in(unit, value, like, PRECISION: tl.constexpr, FP16: tl.constexpr):
    """Return `value`, a float32 tile, as a factor of a matrix product. If FP16, divide it by `unit` and convert it to
    float16. Otherwise convert it to the dtype of `like`."""
    if FP16:
        return (value * (1.0 / unit)).to(tl.float16)
    else:
        return operand(value, like, PRECISION)


@triton.jit
def _product(a, b, unit, PRECISION: tl.constexpr, FP16: tl.constexpr):
    """Return the product a @ b in float32. If FP16, multiply it by `unit`: the unit of a times that of b."""
    if FP16:
        return tl.dot(a, b) * unit
    else:
        return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def _plus_product(total, a, b, unit, PRECISION: tl.constexpr, FP16: tl.constexpr):
    """Return `total` + a @ b. If FP16, multiply a @ b by `unit`: the unit of a times that of b."""
    if FP16:
        return total + tl.dot(a, b) * unit
    else:
        return tl.dot(a, b, total, input_precision=PRECISION)


@triton.jit
def _plus_table(scores, table, query, key, m, n, log2_e):
    """Return `scores` + log2(e) * `table`, where `table`, (m queries, n keys), is the score bias. `scores` already
    include the factor log2(e)."""
    return scores + log2_e * tl.load(table + query * n + key, mask=(query < m) & (key < n), other=0.0)


@triton.jit
def _forward(
    q, k, v, q_units, k_units, v_units, q_bias, k_bias, v_bias, table, out, lse,
    tiles, m, n, c, heads, q_member, q_item, q_head, q_row, k_member, k_item, k_head, k_row,
    v_member, v_item, v_head, v_row, bias_member, table_head, scale, log2_e,
    TOKENS_PER_UNIT: tl.constexpr, TABLE: tl.constexpr, BIASES: tl.constexpr, FP16: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, C: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    place, member, item, head, number, example = _program(tiles, heads)
    begin = place * QUERIES
    query, col = begin + tl.arange(0, QUERIES), tl.arange(0, C)
    real = (query < m)[:, None]
    vector = member * bias_member + head * c
    q += member * q_member + item * q_item + head * q_head
    k += member * k_member + item * k_item + head * k_head
    v += member * v_member + item * v_item + head * v_head
    table += head * table_head
    of_keys = number * tl.cdiv(n, TOKENS_PER_UNIT)
    a = _tile(q, q_bias + vector, query, q_row, real, col, c, scale * log2_e, BIASES > 0, FP16, PRECISION)
    a_unit = _unit(q_units, number * tl.cdiv(m, TOKENS_PER_UNIT) + begin // TOKENS_PER_UNIT, FP16)
    highest = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    mixed = tl.zeros((QUERIES, C), tl.float32)
    for first in range(0, n, KEYS):
        key = first + tl.arange(0, KEYS)
        real_key = (key < n)[:, None]
        b = _tile(k, k_bias + vector, key, k_row, real_key, col, c, 1.0, BIASES == 3, FP16, PRECISION)
        b_unit = _unit(k_units, of_keys + first // TOKENS_PER_UNIT, FP16)
        scores = _product(a, tl.trans(b), a_unit * b_unit, PRECISION, FP16)
        if TABLE:
            scores = _plus_table(scores, table, query[:, None], key[None, :], m, n, log2_e)
        scores = tl.where((key < n)[None, :], scores, float("-inf"))
        peak = tl.maximum(highest, tl.max(scores, 1))
        base = tl.where(peak == float("-inf"), 0.0, peak)  # without any key so far, weights are zero instead of NaN
        weights = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(highest - base)
        total = total * shrink + tl.sum(weights, 1)
        w = _tile(v, v_bias + vector, key, v_row, real_key, col, c, 1.0, BIASES == 3, FP16, PRECISION)
        w_unit = _unit(v_units, of_keys + first // TOKENS_PER_UNIT, FP16)
        weights = _in(1.0 / RANGE, weights, q, PRECISION, FP16)
        mixed = _plus_product(mixed * shrink[:, None], weights, w, w_unit / RANGE, PRECISION, FP16)
        highest = peak
    line = (example * m + query) * heads + head
    there = out + line[:, None] * c + col[None, :]
    tl.store(there, (mixed / total[:, None]).to(out.dtype.element_ty), mask=real & (col < c)[None, :])
    tl.store(lse + line, highest + tl.log2(total), mask=query < m)


@triton.jit
def _backward_queries(
    q, k, v, q_units, k_units, v_units, q_bias, k_bias, v_bias, table, g, g_units, means, lse, delta, dq, dq_bias,
    tiles, m, n, c, heads, q_member, q_item, q_head, q_row, k_member, k_item, k_head, k_row,
    v_member, v_item, v_head, v_row, bias_member, table_head, scale, log2_e,
    g_item, g_head, g_row, dq_member, dq_item, dq_row, sums, shares,
    TOKENS_PER_UNIT: tl.constexpr, TABLE: tl.constexpr, BIASES: tl.constexpr, FP16: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, C: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    place, member, item, head, number, example = _program(tiles, heads)
    begin = place * QUERIES
    query, col = begin + tl.arange(0, QUERIES), tl.arange(0, C)
    real, used = (query < m)[:, None], (col < c)[None, :]
    vector = member * bias_member + head * c
    q += member * q_member + item * q_item + head * q_head
    k += member * k_member + item * k_item + head * k_head
    v += member * v_member + item * v_item + head * v_head
    g += example * g_item + head * g_head
    table += head * table_head
    of_keys, tile = (
        number * tl.cdiv(n, TOKENS_PER_UNIT),
        number * tl.cdiv(m, TOKENS_PER_UNIT) + begin // TOKENS_PER_UNIT,
    )
    a = _tile(q, q_bias + vector, query, q_row, real, col, c, scale * log2_e, BIASES > 0, FP16, PRECISION)
    back_out = _tile(g, g, query, g_row, real, col, c, 1.0, False, FP16, PRECISION)
    a_unit, g_unit, least = _unit(q_units, tile, FP16), _unit(g_units, tile, FP16), _unit(means, tile, FP16)
    line = (example * m + query) * heads + head
    level = tl.load(lse + line, mask=query < m, other=0.0)
    mean = tl.load(delta + line, mask=query < m, other=0.0)
    result = tl.zeros((QUERIES, C), tl.float32)
    for first in range(0, n, KEYS):
        key = first + tl.arange(0, KEYS)
        real_key = (key < n)[:, None]
        b = _tile(k, k_bias + vector, key, k_row, real_key, col, c, 1.0, BIASES == 3, FP16, PRECISION)
        b_unit = _unit(k_units, of_keys + first // TOKENS_PER_UNIT, FP16)
        scores = _product(a, tl.trans(b), a_unit * b_unit, PRECISION, FP16)
        if TABLE:
            scores = _plus_table(scores, table, query[:, None], key[None, :], m, n, log2_e)
        weights = tl.where((key < n)[None, :], tl.exp2(scores - level[:, None]), 0.0)
        w = _tile(v, v_bias + vector, key, v_row, real_key, col, c, 1.0, BIASES == 3, FP16, PRECISION)
        w_unit = _unit(v_units, of_keys + first // TOKENS_PER_UNIT, FP16)
        back = weights * (_product(back_out, tl.trans(w), g_unit * w_unit, PRECISION, FP16) - mean[:, None])
        unit = _usable(tl.maximum(g_unit * RANGE * (w_unit * RANGE), least) / GRADIENT_HEADROOM)
        result = _plus_product(result, _in(unit, back, q, PRECISION, FP16), b, unit * b_unit, PRECISION, FP16)
    result = tl.where(real, result * scale, 0.0)
    there = dq + member * dq_member + item * dq_item + head * c + query[:, None] * dq_row + col[None, :]
    tl.store(there, result.to(dq.dtype.element_ty), mask=real & used)
    piece = (member * shares + item * tiles + place) * sums + head * c
    tl.store(dq_bias + piece + col, tl.sum(result, 0), mask=col < c)


@triton.jit
def _backward_keys(
    q, k, v, q_units, k_units, v_units, q_bias, k_bias, v_bias, table, g, g_units, means, lse, delta,
    grad, dk, dv, dk_bias, dv_bias,
    tiles, m, n, c, heads, q_member, q_item, q_head, q_row, k_member, k_item, k_head, k_row,
    v_member, v_item, v_head, v_row, bias_member, table_head, scale, log2_e, g_item, g_head, g_row,
    dk_member, dk_item, dk_row, dv_member, dv_item, dv_row, sums, shares,
    TOKENS_PER_UNIT: tl.constexpr, TABLE: tl.constexpr, BIASES: tl.constexpr, FP16: tl.constexpr,
    SHARED: tl.constexpr, RESIDUAL: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, C: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a tile of keys and values, in a loop over tiles of queries.

    Scores have one row per key here, so that attention weights need not be transposed for the products.
    """
    place, member, item, head, number, example = _program(tiles, heads)
    begin = place * KEYS
    key, col = begin + tl.arange(0, KEYS), tl.arange(0, C)
    real, used = (key < n)[:, None], (col < c)[None, :]
    vector = member * bias_member + head * c
    q += member * q_member + item * q_item + head * q_head
    k += member * k_member + item * k_item + head * k_head
    v += member * v_member + item * v_item + head * v_head
    g += example * g_item + head * g_head
    table += head * table_head
    tile, of_queries = (
        number * tl.cdiv(n, TOKENS_PER_UNIT) + begin // TOKENS_PER_UNIT,
        number * tl.cdiv(m, TOKENS_PER_UNIT),
    )
    b = _tile(k, k_bias + vector, key, k_row, real, col, c, 1.0, BIASES == 3, FP16, PRECISION)
    w = _tile(v, v_bias + vector, key, v_row, real, col, c, 1.0, BIASES == 3, FP16, PRECISION)
    b_unit, w_unit = _unit(k_units, tile, FP16), _unit(v_units, tile, FP16)
    d_key = tl.zeros((KEYS, C), tl.float32)
    d_value = tl.zeros((KEYS, C), tl.float32)
    for first in range(0, m, QUERIES):
        query = first + tl.arange(0, QUERIES)
        real_query = (query < m)[:, None]
        a = _tile(q, q_bias + vector, query, q_row, real_query, col, c, scale * log2_e, BIASES > 0, FP16, PRECISION)
        back_out = _tile(g, g, query, g_row, real_query, col, c, 1.0, False, FP16, PRECISION)
        tile = of_queries + first // TOKENS_PER_UNIT
        a_unit, g_unit = _unit(q_units, tile, FP16), _unit(g_units, tile, FP16)
        line = (example * m + query) * heads + head
        level = tl.load(lse + line, mask=query < m, other=float("inf"))  # weights after the last query are 0
        mean = tl.load(delta + line, mask=query < m, other=0.0)
        scores = _product(b, tl.trans(a), a_unit * b_unit, PRECISION, FP16)
        if TABLE:
            scores = _plus_table(scores, table, query[None, :], key[:, None], m, n, log2_e)
        weights = tl.where(real, tl.exp2(scores - level[None, :]), 0.0)
        rounded = _in(1.0 / RANGE, weights, q, PRECISION, FP16)
        d_value = _plus_product(d_value, rounded, back_out, g_unit / RANGE, PRECISION, FP16)
        back = weights * (_product(w, tl.trans(back_out), g_unit * w_unit, PRECISION, FP16) - mean[None, :])
        unit = _usable(tl.maximum(g_unit * RANGE * (w_unit * RANGE), _unit(means, tile, FP16)) / GRADIENT_HEADROOM)
        d_key = _plus_product(d_key, _in(unit, back, q, PRECISION, FP16), a, unit * a_unit, PRECISION, FP16)
    d_key /= log2_e
    piece = (member * shares + item * tiles + place) * sums + head * c
    if BIASES == 3:
        tl.store(dk_bias + piece + col, tl.sum(d_key, 0), mask=col < c)
        tl.store(dv_bias + piece + col, tl.sum(d_value, 0), mask=col < c)
    if RESIDUAL:
        line = (example * n + key) * heads + head
        d_key += tl.load(grad + line[:, None] * c + col[None, :], mask=real & used, other=0.0).to(tl.float32)
    if SHARED:
        d_key += d_value
    else:
        there = dv + member * dv_member + item * dv_item + head * c + key[:, None] * dv_row + col[None, :]
        tl.store(there, d_value.to(dv.dtype.element_ty), mask=real & used)
    there = dk + member * dk_member + item * dk_item + head * c + key[:, None] * dk_row + col[None, :]
    tl.store(there, d_key.to(dk.dtype.element_ty), mask=real & used)
