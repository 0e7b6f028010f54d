"""Kernels over rows of features (one row per token of each example).

They compute layer norm, fused with the residual, GELU and the addition of the PE; the embedding of the inputs; and sums
over rows, the gradients of biases. Most programs are one warp that processes a few whole rows, so that sums over the
features of a row stay in the warp. For sums over rows, each program writes a partial sum; `sum_pieces` adds these.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

from placecode.compute.gpu.kernels import interpreted

INTERPRETED: tl.constexpr = tl.constexpr(interpreted())
EPSILON = 1e-5
"""Number that is added to the variance in a layer norm, as in torch."""
VALUES = {torch.float32: 256, torch.bfloat16: 512}
"""Number of values of each array that a program of one warp processes at a time in the backward pass, by dtype. In the
forward pass it is twice as many."""
Sinks = tuple[Tensor | None, ...] | None
"""Tensors, (members, features), to which gradients of biases, scales and shifts are written. None: new tensors."""
STAGES = 3
"""Number of iterations of a loop over rows whose data are loaded in advance."""
PROGRAMS = 8192
"""Number of programs that keep a large GPU busy. A backward pass divides its rows into about as many parts."""
MAX_PARTIAL_SUMS = 256
"""Maximum number of partial sums (one per program of a backward pass) per member. They must be added afterwards."""


@triton.jit
def _inverse(x):
    """Return 1 / x for x >= 1, up to one unit in the last place. Exact division takes five more instructions."""
    if INTERPRETED:
        return 1.0 / x
    else:
        return libdevice.fast_dividef(1.0, x)


@triton.jit
def _normal_tail(x, bell):
    """Return the probability that a standard normal variable exceeds |x|. `bell` is exp(-x^2 / 2).

    It is approximated by exp(-x^2 / 2) times a polynomial in t = 1 / (1 + 0.3 |x|), with a relative error of 1.5e-7.
    With rounding, the error is 3e-7, less than that of torch's erf.
    """
    t = _inverse(1.0 + 0.3 * tl.abs(x))
    q = 0.035674259066581726 * t - 0.15720079839229584
    q = q * t + 0.20634937286376953
    q = q * t - 0.05367966368794441
    q = q * t + 0.1285594254732132
    q = q * t + 0.09991417825222015
    q = q * t + 0.12075383961200714
    q = q * t + 0.11962930858135223
    return q * t * bell


@triton.jit
def gelu_and_slope(x):
    """Return GELU(x) and its derivative. The compiler removes a result that is not used."""
    bell = tl.exp2(-0.7213475204444817 * x * x)  # exp(-x^2 / 2); GPUs have an instruction for powers of two
    tail = _normal_tail(x, bell)
    slope = tl.where(x < 0, tail, 1.0 - tail) + x * 0.3989422804014327 * bell
    return tl.maximum(x, 0.0) - tl.abs(x) * tail, slope


@triton.jit
def _norm(
    x, y, bias, scale, shift, pe, out, out_fp16, mean, inverse,
    rows, width, tokens, x_member, x_row, bias_member, scale_member, epsilon,
    GELU: tl.constexpr, PE: tl.constexpr, FP16: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    member = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, WIDTH)
    real, used = row < rows, col < width
    inside = real[:, None] & used[None, :]
    place = member * rows * width + row[:, None] * width + col[None, :]
    vector = member * scale_member + col
    branch = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
    there = member * x_member + row[:, None] * x_row + col[None, :]
    total = tl.load(x + there, mask=inside, other=0.0).to(tl.float32)
    branch += tl.load(bias + member * bias_member + col, mask=used, other=0.0)[None, :]
    if GELU:
        branch = gelu_and_slope(branch)[0]
    total += branch
    centre = tl.sum(total, 1) / width
    away = tl.where(inside, total - centre[:, None], 0.0)
    rate = 1.0 / tl.sqrt(tl.sum(away * away, 1) / width + epsilon)
    gain = tl.load(scale + vector, mask=used, other=0.0)
    result = away * rate[:, None] * gain[None, :] + tl.load(shift + vector, mask=used, other=0.0)[None, :]
    if PE:
        token = row % tokens
        result += tl.load(pe + member * scale_member + token[:, None] * width + col[None, :], mask=inside, other=0.0)
    tl.store(out + place, result.to(out.dtype.element_ty), mask=inside)
    if FP16:
        tl.store(out_fp16 + place, result.to(out_fp16.dtype.element_ty), mask=inside)
    tl.store(mean + member * rows + row, centre, mask=real)
    tl.store(inverse + member * rows + row, rate, mask=real)


def cut(items: int, tiles: int, members: int, programs: int) -> tuple[int, int]:
    """Divide the `items` of each member (model) into parts. Return the number of parts, and of items per part.

    An item is a group of rows, such as an example, and has `tiles` tiles. One program computes one of these tiles in
    all items of a part, and the partial sum over them. All members together have about `programs` programs, and each
    member has at most about `MAX_PARTIAL_SUMS` partial sums.
    """
    share = triton.cdiv(items, max(1, min(items, programs // (members * tiles), MAX_PARTIAL_SUMS // tiles)))
    return triton.cdiv(items, share), share


def _tile(x: Tensor, times: int = 1) -> dict[str, Any]:
    """Return the launch settings of a kernel whose tiles are whole rows of x, with `times` x VALUES values per tile."""
    wide = triton.next_power_of_2(x.shape[-1])
    return {"ROWS": max(1, times * VALUES[x.dtype] // wide), "WIDTH": wide, "num_warps": 1}


def norm(
    x: Tensor, y: Tensor, bias: Tensor, scale: Tensor, shift: Tensor, pe: Tensor | None, activate: bool,
    with_fp16: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:  # fmt: skip
    """Return LN(x + f(y + bias)) * scale + shift (+ pe). LN normalizes rows; f is GELU if `activate`, else the
    identity.

    x and y are (e members, rows, d features); the rows of x may be apart in memory. bias, scale and shift are (e, d).
    pe is (e, n tokens, d), or None; its row r mod n is added to row r. Returns four tensors: the result, (e, rows, d),
    its float16 copy (None unless `with_fp16`), and the mean and the inverse standard deviation of each row, (e, rows),
    which the backward pass needs.
    """
    e, rows, width = y.shape
    out = torch.empty_like(y)
    out_fp16 = torch.empty_like(y, dtype=torch.float16) if with_fp16 else None
    mean, inverse = (torch.empty(e, rows, device=y.device) for _ in range(2))
    tile = _tile(y, 2)
    _norm[(triton.cdiv(rows, tile["ROWS"]), e)](
        x, y, bias, scale, shift, bias if pe is None else pe, out, out if out_fp16 is None else out_fp16, mean, inverse,
        rows, width, 1 if pe is None else pe.shape[1],
        x.stride(0), x.stride(1), bias.stride(0), scale.stride(0), EPSILON,
        GELU=activate, PE=pe is not None, FP16=with_fp16,
        **tile,
    )  # fmt: skip
    return out, out_fp16, mean, inverse


@triton.jit
def _norm_backward(
    grad, x, y, bias, scale, mean, inverse, d_total, d_branch, sums, d_pe,
    items, tokens, rows, width, x_member, x_row, bias_member, scale_member, share,
    GELU: tl.constexpr, PE: tl.constexpr, BRANCH: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Run the backward pass of layer norm with residual. `norm_backward` launches it and describes the arrays.

    An item is a block of `tokens` consecutive rows: an example if there is a PE, otherwise any block. A program
    processes the same rows of several items (see `cut`), and writes the sums over these rows and items.
    """
    member, part, tile = tl.program_id(2).to(tl.int64), tl.program_id(1), tl.program_id(0)
    token = tile * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, WIDTH)
    used = col < width
    gain = tl.load(scale + member * scale_member + col, mask=used, other=0.0)[None, :]
    offset = tl.load(bias + member * bias_member + col, mask=used, other=0.0)[None, :]
    sum_bias = tl.zeros((WIDTH,), tl.float32)
    sum_scale = tl.zeros((WIDTH,), tl.float32)
    sum_grad = tl.zeros((ROWS, WIDTH), tl.float32)
    for item in tl.range(part * share, tl.minimum((part + 1) * share, items), num_stages=STAGES):
        row = item * tokens + token
        real = (token < tokens) & (row < rows)
        inside = real[:, None] & used[None, :]
        place = member * rows * width + row[:, None] * width + col[None, :]
        there = member * x_member + row[:, None] * x_row + col[None, :]
        g = tl.load(grad + place, mask=inside, other=0.0).to(tl.float32)
        before = tl.load(y + place, mask=inside, other=0.0).to(tl.float32) + offset
        total = tl.load(x + there, mask=inside, other=0.0).to(tl.float32)
        centre = tl.load(mean + member * rows + row, mask=real, other=0.0)[:, None]
        rate = tl.load(inverse + member * rows + row, mask=real, other=0.0)[:, None]
        if GELU:
            value, slope = gelu_and_slope(before)
            total += value
        else:
            total += before
        unit = tl.where(inside, (total - centre) * rate, 0.0)
        inner = g * gain
        back = rate * (inner - (tl.sum(inner, 1) / width)[:, None] - unit * (tl.sum(inner * unit, 1) / width)[:, None])
        back = tl.where(inside, back, 0.0)
        sum_scale += tl.sum(g * unit, 0)
        sum_grad += g
        tl.store(d_total + place, back.to(d_total.dtype.element_ty), mask=inside)
        if GELU:
            back = back * slope
        if BRANCH:
            tl.store(d_branch + place, back.to(d_branch.dtype.element_ty), mask=inside)
        sum_bias += tl.sum(back, 0)
    out = ((member * tl.num_programs(1) + part) * tl.num_programs(0) + tile) * 3 * width + col
    tl.store(sums + out, sum_bias, mask=used)
    tl.store(sums + out + width, sum_scale, mask=used)
    tl.store(sums + out + 2 * width, tl.sum(sum_grad, 0), mask=used)
    if PE:
        here = ((member * tl.num_programs(1) + part) * tokens + token)[:, None] * width + col[None, :]
        tl.store(d_pe + here, sum_grad, mask=(token < tokens)[:, None] & used[None, :])


def norm_backward(
    grad: Tensor, x: Tensor, y: Tensor, bias: Tensor, scale: Tensor, mean: Tensor, inverse: Tensor,
    tokens: int | None, activate: bool, sinks: Sinks, dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor, tuple[Tensor, ...], Tensor | None]:  # fmt: skip
    """Return the gradients of the arguments of `norm`, given `grad`, the gradient of the result of `norm`.

    `grad` has shape (e members, rows, d features). `mean` and `inverse` are those that `norm` returned, and the other
    arguments of `norm` must be the same. `tokens` is the number n of tokens of the PE, or None without a PE. There are
    four results, the gradients

    - of x, (e, rows, d)
    - of y, (e, rows, d), with the dtype `dtype` (None for that of y); it is the same
      tensor as the gradient of x if both are equal: without GELU, and with the dtype of y
    - of `bias`, `scale` and `shift`, a tuple of three tensors (e, d), which are those in `sinks` where there are any
    - of the PE, (e, n, d), or None without a PE
    """
    e, rows, width = grad.shape
    tile = _tile(y)
    n = tokens or min(tile["ROWS"], rows)  # without a PE, any division into items is valid
    items, tiles = -(-rows // n), -(-n // tile["ROWS"])
    parts, share = cut(items, tiles, e, PROGRAMS)
    d_total = torch.empty_like(y)
    dtype = dtype or y.dtype
    separate = activate or dtype != y.dtype
    d_branch = torch.empty_like(y, dtype=dtype) if separate else d_total
    sums = torch.empty(e, parts * tiles, 3, width, device=grad.device)
    d_pe = torch.empty(e, parts, n, width, device=grad.device) if tokens else None
    _norm_backward[(tiles, parts, e)](
        grad, x, y, bias, scale, mean, inverse, d_total, d_branch, sums, sums if d_pe is None else d_pe,
        items, n, rows, width, x.stride(0), x.stride(1), bias.stride(0), scale.stride(0), share,
        GELU=activate, PE=tokens is not None, BRANCH=separate, STAGES=STAGES,
        **tile,
    )  # fmt: skip
    return d_total, d_branch, sum_pieces(sums, sinks), None if d_pe is None else d_pe.sum(1)


@triton.jit
def _sum_pieces(
    pieces, first, second, third, parts, width, stride_1, stride_2, stride_3, PARTS: tl.constexpr, WIDTH: tl.constexpr
):
    member, which = tl.program_id(1).to(tl.int64), tl.program_id(0)
    col = tl.arange(0, WIDTH)
    total = tl.zeros((PARTS, WIDTH), tl.float32)
    for start in range(0, parts, PARTS):
        part = start + tl.arange(0, PARTS)
        place = ((member * parts + part) * tl.num_programs(0) + which)[:, None] * width + col[None, :]
        total += tl.load(pieces + place, mask=(part < parts)[:, None] & (col < width)[None, :], other=0.0)
    result = tl.sum(total, 0)
    if which == 0:
        tl.store(first + member * stride_1 + col, result, mask=col < width)
    elif which == 1:
        tl.store(second + member * stride_2 + col, result, mask=col < width)
    else:
        tl.store(third + member * stride_3 + col, result, mask=col < width)


def sum_pieces(pieces: Tensor, sinks: Sinks) -> tuple[Tensor, ...]:
    """Return one to three gradients, (members, features) each, by adding their partial sums, `pieces`.

    `pieces` has shape (members, parts, gradients, features). The gradients are written to `sinks`, or to new tensors
    where there is none.
    """
    e, parts, count, width = pieces.shape
    optional = (None,) * count if sinks is None else sinks
    gradients = tuple(pieces.new_empty(e, width) if sink is None else sink for sink in optional)
    padded = (*gradients, *gradients[:1] * (3 - count))
    _sum_pieces[(count, e)](
        pieces, *padded, parts, width, *(gradient.stride(0) for gradient in padded),
        PARTS=16, WIDTH=triton.next_power_of_2(width), num_warps=4,
    )  # fmt: skip
    return gradients


@triton.jit
def _embed(
    x, w, bias, pe, out, out_fp16, rows, width, features, tokens, w_in, w_out, stride,
    PE: tl.constexpr, FP16: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    member = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, WIDTH)
    real, used = row < rows, col < width
    inside = real[:, None] & used[None, :]
    value = tl.zeros((ROWS, WIDTH), tl.float32) + tl.load(bias + member * stride + col, mask=used, other=0.0)[None, :]
    for feature in range(features):
        factor = tl.load(x + (member * rows + row) * features + feature, mask=real, other=0.0).to(tl.float32)
        line = tl.load(w + member * stride + feature * w_in + col * w_out, mask=used, other=0.0)
        value += factor[:, None] * line[None, :]
    if PE:
        token = row % tokens
        value += tl.load(pe + member * stride + token[:, None] * width + col[None, :], mask=inside, other=0.0)
    place = member * rows * width + row[:, None] * width + col[None, :]
    tl.store(out + place, value.to(out.dtype.element_ty), mask=inside)
    if FP16:
        tl.store(out_fp16 + place, value.to(out_fp16.dtype.element_ty), mask=inside)


def embed(
    x: Tensor, w: Tensor, bias: Tensor, pe: Tensor | None, with_fp16: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Return x W + bias (+ pe), (e, rows, d), and its float16 copy (None unless `with_fp16`).

    x is (e members, rows, f inputs), W is (e, f, d features), bias is (e, d), and pe is (e, n tokens, d) or None. Row r
    mod n of pe is added to row r.
    """
    (e, rows, features), width = x.shape, w.shape[2]
    out = torch.empty(e, rows, width, dtype=x.dtype, device=x.device)
    out_fp16 = torch.empty_like(out, dtype=torch.float16) if with_fp16 else None
    _embed[(triton.cdiv(rows, _tile(out, 2)["ROWS"]), e)](
        x, w, bias, bias if pe is None else pe, out, out if out_fp16 is None else out_fp16,
        rows, width, features, 1 if pe is None else pe.shape[1], w.stride(1), w.stride(2), bias.stride(0),
        PE=pe is not None, FP16=with_fp16,
        **_tile(out, 2),
    )  # fmt: skip
    return out, out_fp16


@triton.jit
def _embed_backward(
    grad, x, d_w, d_pe, items, tokens, rows, width, features, share,
    FEATURES: tl.constexpr, WIDTH: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Compute partial sums for `embed_backward`: each program sums over several examples (items) of one token."""
    token, part, member = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    col, feature = tl.arange(0, WIDTH), tl.arange(0, FEATURES)
    used = col < width
    total = tl.zeros((WIDTH,), tl.float32)
    outer = tl.zeros((FEATURES, WIDTH), tl.float32)
    for item in tl.range(part * share, tl.minimum((part + 1) * share, items), num_stages=STAGES):
        row = member * rows + item * tokens + token
        g = tl.load(grad + row * width + col, mask=used, other=0.0).to(tl.float32)
        factor = tl.load(x + row * features + feature, mask=feature < features, other=0.0).to(tl.float32)
        total += g
        outer += factor[:, None] * g[None, :]
    piece = (member * tl.num_programs(1) + part) * tokens + token
    tl.store(d_pe + piece * width + col, total, mask=used)
    there = (piece * features + feature[:, None]) * width + col[None, :]
    tl.store(d_w + there, outer, mask=(feature < features)[:, None] & used[None, :])


def embed_backward(grad: Tensor, x: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
    """Return the gradients of W, (e, f, d), and of the PE, (e, n, d), given the gradient of the result of `embed`.

    Shapes are those in `embed`, and `tokens` is n. The gradient of the bias is that of the PE, summed over tokens.
    """
    (e, rows, width), features = grad.shape, x.shape[2]
    items = rows // tokens
    parts, share = cut(items, tokens, e, PROGRAMS)
    d_w = torch.empty(e, parts * tokens, features, width, device=grad.device)
    d_pe = torch.empty(e, parts, tokens, width, device=grad.device)
    _embed_backward[(tokens, parts, e)](
        grad, x, d_w, d_pe, items, tokens, rows, width, features, share,
        FEATURES=triton.next_power_of_2(features), WIDTH=triton.next_power_of_2(width), STAGES=STAGES, num_warps=2,
    )  # fmt: skip
    return d_w.sum(1), d_pe.sum(1)


@triton.jit
def _shift_rows(x, bias, rows, width, stride, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    member = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, WIDTH)
    used = col < width
    inside = (row < rows)[:, None] & used[None, :]
    place = member * rows * width + row[:, None] * width + col[None, :]
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    value += tl.load(bias + member * stride + col, mask=used, other=0.0)[None, :]
    tl.store(x + place, value.to(x.dtype.element_ty), mask=inside)


def shift_rows(x: Tensor, bias: Tensor) -> Tensor:
    """Add a bias, (members, features), to every row of x, (members, rows, features), in place and return x."""
    e, rows, width = x.shape
    tile = _tile(x, 2)
    _shift_rows[(triton.cdiv(rows, tile["ROWS"]), e)](x, bias, rows, width, bias.stride(0), **tile)
    return x
