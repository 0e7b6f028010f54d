"""Attention over long sequences, without storing scores: each program loops over tiles of keys for a tile of queries.

The softmax is updated for each tile of keys (as in FlashAttention). The backward pass recomputes the attention weights
from the logarithm of the sum of exponentials of each row of scores. The arguments are those of `attention`.

If products may round their inputs to the ten bits of TF32, the inputs are stored as float16, which has as many bits and
is several times as fast here. Because the range of float16 is small, every tile (`TOKENS_PER_UNIT` tokens of a head) is
divided by a scale factor, called its unit: its largest absolute value divided by 32768. Products are multiplied by the
units again. In other precisions no unit is used.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from placecode.compute.gpu.kernels import attention, uses_float16
from placecode.compute.gpu.kernels.attention import Parts, exactness, per_head
from placecode.compute.gpu.kernels.long_attention_tiles import (
    _backward_keys,
    _backward_queries,
    _forward,
    _gradient_to_fp16,
    _to_fp16,
)
from placecode.compute.gpu.kernels.rows import Sinks, sum_pieces

MAX_HEAD_FEATURES = 128
"""Maximum number of features of a head for which these kernels are used."""
MAX_SHORT_TOKENS = 64
"""Maximum number of tokens for which the single tile of `attention` is faster than this module."""
TOKENS_PER_UNIT = 128
"""Number of tokens that share a unit (see above), a multiple of the number of tokens of every tile in `LAUNCH`."""
LAUNCH: dict[str, dict[str, int]] = {
    "forward": {"QUERIES": 64, "KEYS": 64, "num_warps": 4, "num_stages": 2},
    "queries": {"QUERIES": 64, "KEYS": 64, "num_warps": 4, "num_stages": 2},
    "keys": {"QUERIES": 32, "KEYS": 64, "num_warps": 4, "num_stages": 1},
}
"""Launch settings of the kernels that compute the result ("forward"), the gradients of queries ("queries"), and the
gradients of keys and values ("keys"). QUERIES and KEYS are the numbers of queries and keys of a tile; for `num_warps`
and `num_stages` see `attention.LAUNCH`."""
LOG2_E = 1.4426950408889634
"""log2(e). Scores are multiplied by it, so that softmax uses powers of two, for which GPUs have an instruction."""


def suits(tokens: int, features: int) -> bool:
    """Return whether to use this module instead of `attention`, for this number of tokens and of features per head."""
    return features <= MAX_HEAD_FEATURES and tokens > min(MAX_SHORT_TOKENS, attention.MAX_TILE_TOKENS)


def attend(
    parts: Parts, biases: tuple[Tensor, ...], table: Tensor | None, heads: int
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the result of attention, (members, examples, queries, features), and tensors for the backward pass.

    The arguments are those of `attention.attend`, but `table` must be the same for all members and examples. The first
    of the tensors is the base-2 logarithm of the sum of exponentials of each row of scores, (members, examples,
    queries, heads). There are further tensors only if float16 is used: queries, keys and values in float16 and their
    units (scale factors, see `_operands`).
    """
    q = parts[0]
    e, b, m, d = q.shape
    out = torch.empty(e, b, m, d, dtype=q.dtype, device=q.device)
    lse = torch.empty(e, b, m, heads, device=q.device)
    saved: tuple[Tensor, ...] = (lse, *_operands(parts, biases, heads)) if uses_float16(q) else (lse,)
    tensors, numbers, settings = _arguments(parts, biases, table, heads, saved)
    launch = _launch("forward", settings["C"], tensors[0].dtype)
    tiles = triton.cdiv(m, launch["QUERIES"])
    _forward[(tiles * b * heads, e)](*tensors, out, lse, tiles, *numbers, **settings, **launch)
    return out, saved


def attend_backward(
    grad: Tensor, out: Tensor, saved: tuple[Tensor, ...], parts: Parts, biases: tuple[Tensor, ...],
    table: Tensor | None, heads: int, into: Parts, sinks: Sinks, residual: bool,
) -> Tensor:  # fmt: skip
    """Write the gradients of queries, keys and values to `into`. Return the gradients of `biases` side by side.

    `out` and `saved` are the results of `attend`, and `grad` is the gradient of `out`. The other arguments and the
    result are those of `attention.attend_backward`.
    """
    (q, k, v), lse = parts, saved[0]
    e, b, m, d = q.shape
    tensors, numbers, settings = _arguments(parts, biases, table, heads, saved)
    of_queries, of_keys = (_launch(name, settings["C"], tensors[0].dtype) for name in ("queries", "keys"))
    tiles = triton.cdiv(m, of_queries["QUERIES"]), triton.cdiv(k.shape[2], of_keys["KEYS"])
    sums = torch.zeros(e, b * max(tiles), 1, len(biases) * d, device=q.device)
    pieces = sums.split(d, dim=3)
    pieces = (*pieces, *pieces[:1] * (3 - len(biases)))
    delta, units = (
        torch.empty_like(lse),
        torch.empty(2, e * b * heads * triton.cdiv(m, TOKENS_PER_UNIT), device=q.device),
    )
    fp16, width = settings["FP16"], settings["C"]
    g = torch.empty(e, b, heads, m, width, dtype=torch.float16, device=q.device) if fp16 else grad
    parcels = triton.cdiv(m, TOKENS_PER_UNIT)
    _gradient_to_fp16[(parcels * b * heads, e)](
        grad,
        out,
        g,
        delta,
        *units,
        parcels,
        m,
        d // heads,
        heads,
        FP16=fp16,
        TOKENS=TOKENS_PER_UNIT,
        C=width,
        num_warps=8,
    )
    g_strides = (heads * m * width, m * width, width) if fp16 else (m * d, d // heads, d)
    tensors = (*tensors, g, *units, lse, delta)
    sizes = (sums.shape[3], sums.shape[1])
    _backward_queries[(tiles[0] * b * heads, e)](
        *tensors, into[0], pieces[0], tiles[0], *numbers, *g_strides, *into[0].stride()[:3], *sizes,
        **settings,
        **of_queries,
    )  # fmt: skip
    _backward_keys[(tiles[1] * b * heads, e)](
        *tensors, grad, into[1], into[2], pieces[1], pieces[2], tiles[1], *numbers, *g_strides,
        *into[1].stride()[:3], *into[2].stride()[:3], *sizes,
        SHARED=k is v, RESIDUAL=residual, **settings, **of_keys,
    )  # fmt: skip
    return sum_pieces(sums, sinks)[0]


def _operands(parts: Parts, biases: tuple[Tensor, ...], heads: int) -> tuple[Tensor, ...]:
    """Return queries, keys and values in float16, (e, b, h, tokens, features), and then the units of the three.

    Biases are added first, queries are multiplied by log2(e) / sqrt(c), the scale of scores with c features per head,
    and all are divided by their units. There is one unit per member, example, head and `TOKENS_PER_UNIT` tokens.
    """
    c = parts[0].shape[3] // heads
    width = _width(c)
    operands: list[Tensor] = []
    all_units: list[Tensor] = []
    for i, x in enumerate(parts):
        if i == 2 and x is parts[1] and len(biases) == 1:
            operands.append(operands[1])
            all_units.append(all_units[1])
            continue
        e, b, n, _ = x.shape
        fp16 = torch.empty(e, b, heads, n, width, dtype=torch.float16, device=x.device)
        tiles = triton.cdiv(n, TOKENS_PER_UNIT)
        units = torch.empty(e * b * heads * tiles, device=x.device)
        biased, factor = i < len(biases), c**-0.5 * LOG2_E if i == 0 else 1.0
        bias = biases[i] if biased else biases[0]
        _to_fp16[(tiles * b * heads, e)](
            x, bias, fp16, units, tiles, n, c, heads, *x.stride()[:3], bias.stride(0), factor,
            BIAS=biased, TOKENS=TOKENS_PER_UNIT, C=width, num_warps=8,
        )  # fmt: skip
        operands.append(fp16)
        all_units.append(units)
    return (*operands, *all_units)


def _arguments(
    parts: Parts, biases: tuple[Tensor, ...], table: Tensor | None, heads: int, saved: tuple[Tensor, ...]
) -> tuple[tuple[Tensor, ...], tuple[Any, ...], dict[str, Any]]:
    """Return the arguments that all kernels share: tensors, numbers (sizes and strides), and constants by name."""
    q, k, _ = parts
    m, n, c = q.shape[2], k.shape[2], q.shape[3] // heads
    fp16 = len(saved) > 1
    tensors = saved[1:] if fp16 else (*parts, *saved * 3)
    strides = [
        stride
        for x in tensors[:3]
        for stride in (x.stride()[:4] if fp16 else (x.stride(0), x.stride(1), c, x.stride(2)))
    ]
    vectors = (*biases, *biases[:1] * (3 - len(biases)), biases[0] if table is None else table)
    numbers = (m, n, c, heads, *strides, biases[0].stride(0), per_head(table), c**-0.5, LOG2_E)
    flags = {"TABLE": table is not None, "BIASES": len(biases), "FP16": fp16, "PRECISION": exactness(q)}
    return (*tensors, *vectors), numbers, {**flags, "TOKENS_PER_UNIT": TOKENS_PER_UNIT, "C": _width(c)}


def _launch(kernel: str, width: int, dtype: torch.dtype) -> dict[str, int]:
    """Return the launch settings of `kernel`, a key of `LAUNCH`, for tiles with `width` features of this dtype."""
    launch = LAUNCH[kernel]
    small = {} if width <= 64 else {name: launch[name] // 2 for name in ("QUERIES", "KEYS")}
    stages = launch["num_stages"] if width <= 64 and dtype != torch.float32 else 1
    return {**launch, **small, "num_stages": stages}  # small GPUs have little shared memory


def _width(features: int) -> int:
    """Return the width of a tile for a number of features per head: the next power of two, and at least 16."""
    return 1 << max(4, (features - 1).bit_length())
