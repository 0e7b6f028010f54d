"""Autograd functions with explicit backward passes: the embedding, and the sublayers (attention, MLP) of a block.

Activations are (e, b, n, d): e members, b examples, n tokens, d features. LN is a layer norm. The gradient of a
parameter is written to its *sink*, an array, if it has one, otherwise to a new tensor. Sinks are views of `Stack.sink`,
which contains the gradients of all parameters, so gradients need not be copied there afterwards. Arguments named
`sinks` are the sinks of biases, scales and shifts.

Every weight matrix is passed twice: as a parameter, so that autograd knows it, and as a `Matrix`, a pair (values,
sink). The values are those of the parameter, cast to the dtype of the activations.

If x is also passed in float16, as `x_fp16`, products use that copy and round matrices and gradients to float16 too.
Results and sums are float32. If `with_fp16` is true, a function also returns its result in float16.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from placecode.compute.gpu.kernels import attention, dropping, long_attention, mlp, rows
from placecode.compute.gpu.kernels.attention import Parts

Matrix = tuple[Tensor, Tensor | None]
"""A weight matrix, (members, inputs, outputs), and the array to which its gradient is written (its sink), or None."""


def as_rows(x: Tensor) -> Tensor:
    """Return x, (members, examples, tokens, features), with one axis for all tokens of a member: (e, b n, d)."""
    return x.flatten(1, 2)


def product(a: Tensor, b: Tensor, plus: Tensor | None = None) -> Tensor:
    """Return the matrix product a @ b, or add it to `plus` in place and return that. Float16 factors give float32."""
    if a.dtype != torch.float16:
        return torch.bmm(a, b) if plus is None else plus.baddbmm_(a, b)
    if a.device.type != "cuda":
        return torch.bmm(a.float(), b.float()) if plus is None else plus.baddbmm_(a.float(), b.float())
    if plus is None:
        return torch.bmm(a, b, out_dtype=torch.float32)
    return torch.baddbmm(plus, a, b, out_dtype=torch.float32, out=plus)


def outer(x: Tensor, grad: Tensor, sink: Tensor | None) -> Tensor:
    """Return x^T @ grad in float32: the gradient of a matrix W, given `grad`, the gradient of x W. Write it to `sink`,
    or to a new tensor if `sink` is None."""
    if sink is None:
        sink = torch.empty(x.shape[0], x.shape[2], grad.shape[2], device=x.device)
    if x.dtype == torch.float32:
        return torch.bmm(x.mT, grad, out=sink)
    if x.device.type == "cuda":
        return torch.bmm(x.mT, grad, out_dtype=torch.float32, out=sink)
    return torch.bmm(x.mT.float(), grad.float(), out=sink)


def returned(ctx: Any, result: Tensor, copy: Tensor | None, shape: tuple[int, ...]) -> tuple[Tensor, Tensor | None]:
    """Return the result of a function and its float16 copy (or None), reshaped. No gradient flows through the copy."""
    if copy is None:
        return result.view(shape), None
    copy = copy.view(shape)
    ctx.mark_non_differentiable(copy)
    ctx.set_materialize_grads(False)  # avoids zeros for the float16 copy in the backward pass
    return result.view(shape), copy


def _is_long(parts: Parts, heads: int) -> bool:
    """Return whether `long_attention`, instead of `attention`, computes attention of these queries, keys and values."""
    keys = parts[1]
    return long_attention.suits(keys.shape[2], keys.shape[3] // heads)


def attend(
    parts: Parts, biases: tuple[Tensor, ...], table: Tensor | None, heads: int
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """Return the result of attention, (members, examples x queries, features), and tensors for `attend_backward`.

    The arguments are those of `attention.attend`. Long sequences are computed by `long_attention`.
    """
    if _is_long(parts, heads):
        out, saved = long_attention.attend(parts, biases, table, heads)
        return as_rows(out), saved
    out, weights = attention.attend(parts, biases, table, heads)
    return as_rows(out), (weights,)


def attend_backward(
    grad: Tensor, out: Tensor, saved: tuple[Any, ...], parts: Parts, biases: tuple[Tensor, ...], table: Tensor | None,
    heads: int, into: Parts, sinks: rows.Sinks = None, residual: bool = False, d_table: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Write the gradients of queries, keys and values to `into`, and return the gradients of their biases side by side.

    `out` and `saved` are the results of `attend`, and `grad` is the gradient of `out`. The other arguments and the
    result are those of `attention.attend_backward`.
    """
    arguments = (parts, biases, table, heads, into, sinks, residual)
    if not _is_long(parts, heads):
        return attention.attend_backward(grad, saved[0], *arguments, d_table)
    return long_attention.attend_backward(grad, out.view(parts[0].shape), saved, *arguments)


class Embed(Function):
    """Compute the embedding x W + bias for tokens with few features, and add `pe` if it is not None."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, matrix: Tensor, bias: Tensor, pe: Tensor | None, with_fp16: bool
    ) -> tuple[Tensor, Tensor | None]:
        x = x.contiguous()
        ctx.save_for_backward(x, matrix)
        ctx.has_pe = pe is not None
        return returned(ctx, *rows.embed(as_rows(x), matrix, bias, pe, with_fp16), (*x.shape[:3], matrix.shape[2]))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
        (x, matrix), grad = ctx.saved_tensors, as_rows(grad.contiguous())
        d_matrix, d_pe = rows.embed_backward(grad, as_rows(x), x.shape[2])
        d_x = torch.bmm(grad, matrix.mT.to(grad.dtype)).view_as(x) if ctx.needs_input_grad[0] else None
        return d_x, d_matrix, d_pe.sum(1), d_pe if ctx.has_pe else None, None


class Project(Function):
    """Compute x W + bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, bias: Tensor, weights: Matrix) -> Tensor:
        ctx.save_for_backward(x)
        ctx.weights = weights
        return rows.shift_rows(torch.bmm(as_rows(x), weights[0]), bias).view(*x.shape[:3], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x,), grad = ctx.saved_tensors, as_rows(grad.contiguous())
        d_matrix = outer(as_rows(x), grad, ctx.weights[1])
        d_x = torch.bmm(grad, ctx.weights[0].mT).view_as(x) if ctx.needs_input_grad[0] else None
        return d_x, d_matrix, grad.sum(1, dtype=torch.float32), None


class OutputSublayer(Function):
    """Compute LN(x + mixed W + bias). LN is a layer norm, and `mixed` are attention-weighted means of values."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mixed: Tensor, matrix: Tensor, bias: Tensor, scale: Tensor, shift: Tensor,
        weights: Matrix, sinks: rows.Sinks, with_fp16: bool,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        x, mixed = x.contiguous(), mixed.contiguous()
        y = torch.bmm(as_rows(mixed), weights[0])
        result, result_fp16, mean, inverse = rows.norm(as_rows(x), y, bias, scale, shift, None, False, with_fp16)
        ctx.save_for_backward(x, mixed, y, mean, inverse, bias, scale)
        ctx.weights, ctx.sinks = weights, sinks
        return returned(ctx, result, result_fp16, x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
        x, mixed, y, mean, inverse, bias, scale = ctx.saved_tensors
        d_x, _, vectors, _ = rows.norm_backward(
            as_rows(grad.contiguous()), as_rows(x), y, bias, scale, mean, inverse, None, False, ctx.sinks
        )
        d_matrix = outer(as_rows(mixed), d_x, ctx.weights[1])
        d_mixed = torch.bmm(d_x, ctx.weights[0].mT).view_as(mixed)
        return d_x.view_as(x), d_mixed, d_matrix, *vectors, *[None] * 3


class AttentionSublayer(Function):
    """Compute LN(x + attention(x)), where LN is a layer norm, for all tokens or, if `last` is true, for the last token
    only. `x_fp16` is x in float16, or None to compute in the dtype of x. If `last` is true, it must be None."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, x_fp16: Tensor | None, matrix: Tensor, bias: Tensor, out_matrix: Tensor, out_bias: Tensor,
        scale: Tensor, shift: Tensor, table: Tensor | None, heads: int, last: bool,
        weights: Matrix, out_weights: Matrix, sinks: rows.Sinks, out_sinks: rows.Sinks,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        x = x.contiguous()
        inputs = x if x_fp16 is None else x_fp16
        (e, b, n, d), dtype = x.shape, inputs.dtype
        w, out_w = weights[0].to(dtype), out_weights[0].to(dtype)
        if last:
            q = torch.bmm(x[:, :, -1], w[..., :d])[:, :, None]  # (e, b, 1, d)
            k, v = torch.bmm(as_rows(x), w[..., d:]).view(e, b, n, -1).split(d, -1)
        else:
            q, k, v = product(as_rows(inputs), w).view(e, b, n, -1).split(d, -1)
        mixed, saved = attend((q, k, v), bias.split(d, -1), table, heads)
        mixed_rounded = mixed.to(dtype)
        y = product(mixed_rounded, out_w)
        residual = x[:, :, -1] if last else as_rows(x)
        result, result_fp16, mean, inverse = rows.norm(
            residual, y, out_bias, scale, shift, None, False, x_fp16 is not None
        )
        ctx.save_for_backward(
            x, inputs, q, k, v, mixed, mixed_rounded, y, mean, inverse, w, out_w, bias, out_bias, scale, table, *saved,
        )  # fmt: skip
        ctx.heads, ctx.last, ctx.matrix_sinks = heads, last, (weights[1], out_weights[1])
        ctx.sinks, ctx.out_sinks = sinks, out_sinks
        return returned(ctx, result, result_fp16, (e, b, 1 if last else n, d))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
        x, inputs, q, k, v, mixed, mixed_rounded, y, mean, inverse, w, out_w, bias, out_bias, scale, table, *saved = (
            ctx.saved_tensors
        )
        (e, b, n, d), (sink, out_sink), last, dtype = x.shape, ctx.matrix_sinks, ctx.last, inputs.dtype
        residual = x[:, :, -1] if last else as_rows(x)
        back, d_y, vectors, _ = rows.norm_backward(
            as_rows(grad.contiguous()), residual, y, out_bias, scale, mean, inverse, None, False, ctx.out_sinks, dtype
        )
        d_out = outer(mixed_rounded, d_y, out_sink)
        d_mixed = product(d_y, out_w.mT)
        if last:
            d_q, d_kv = torch.empty_like(q), torch.empty(e, b, n, 2 * d, dtype=dtype, device=x.device)
            into = (d_q, *d_kv.split(d, -1))
        else:
            d_all = torch.empty(e, b, n, 3 * d, dtype=dtype, device=x.device)
            into = d_all.split(d, -1)
        d_bias = attend_backward(d_mixed, mixed, saved, (q, k, v), bias.split(d, -1), table, ctx.heads, into, ctx.sinks)
        d_bias[:, d : 2 * d].zero_()  # exactly zero, see `Attention.bias_with`
        if last:
            sink = torch.empty(e, d, 3 * d, device=x.device) if sink is None else sink
            outer(x[:, :, -1], d_q[:, :, 0], sink[..., :d])
            outer(as_rows(x), as_rows(d_kv), sink[..., d:])
            d_x = torch.bmm(as_rows(d_kv), w[..., d:].mT).view_as(x)
            d_x[:, :, -1] += back.baddbmm_(d_q[:, :, 0], w[..., :d].mT)
            return d_x, None, sink, d_bias, d_out, *vectors, *[None] * 7
        d_matrix = outer(as_rows(inputs), as_rows(d_all), sink)
        d_x = product(as_rows(d_all), w.mT, back).view_as(x)
        return d_x, None, d_matrix, d_bias, d_out, *vectors, *[None] * 7


class MlpSublayer(Function):
    """Compute LN(x + GELU(GELU(x U + up_bias) D + down_bias)), where LN is a layer norm, U is `up` and D is `down`. Add
    `pe` to the result if it is not None."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, x_fp16: Tensor | None, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor,
        scale: Tensor, shift: Tensor, pe: Tensor | None, up_weights: Matrix, down_weights: Matrix,
        up_sinks: rows.Sinks, sinks: rows.Sinks, with_fp16: bool,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        x = x.contiguous()
        inputs = x if x_fp16 is None else x_fp16
        dtype = inputs.dtype
        up_w, down_w = up_weights[0].to(dtype), down_weights[0].to(dtype)
        u = product(as_rows(inputs), up_w)
        g = mlp.activate(u, up_bias, dtype)
        y = product(g, down_w)
        result, result_fp16, mean, inverse = rows.norm(as_rows(x), y, down_bias, scale, shift, pe, True, with_fp16)
        ctx.save_for_backward(x, inputs, u, g, y, mean, inverse, up_w, down_w, up_bias, down_bias, scale)
        ctx.tokens = None if pe is None else pe.shape[1]
        ctx.matrix_sinks, ctx.up_sinks, ctx.sinks = (up_weights[1], down_weights[1]), up_sinks, sinks
        return returned(ctx, result, result_fp16, x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
        x, inputs, u, g, y, mean, inverse, up_w, down_w, up_bias, down_bias, scale = ctx.saved_tensors
        (up_sink, down_sink), dtype = ctx.matrix_sinks, inputs.dtype
        back, d_y, vectors, d_pe = rows.norm_backward(
            as_rows(grad.contiguous()), as_rows(x), y, down_bias, scale, mean, inverse,
            ctx.tokens, True, ctx.sinks, dtype,
        )  # fmt: skip
        d_down = outer(g, d_y, down_sink)
        d_u, d_up_bias = mlp.activate_backward(product(d_y, down_w.mT), u, up_bias, ctx.up_sinks, dtype)
        d_up = outer(as_rows(inputs), d_u, up_sink)
        d_x = product(d_u, up_w.mT, back).view_as(x)
        return d_x, None, d_up, d_up_bias, d_down, *vectors, d_pe, *[None] * 5


class ScaleGradients(Function):
    """Return the outputs unchanged. In the backward pass, multiply the gradient of each member by a power of two, so
    that it fits into the range of float16, and write the inverse of this power to `inverse_scale`, (members,)."""

    PEAK_EXPONENT = 6
    """The largest gradient at the outputs is scaled to at least 2 ** (PEAK_EXPONENT - 1) and less than 2 **
    PEAK_EXPONENT. Gradients of earlier layers may be 1,000 times larger or 500,000 times smaller without overflow or
    loss of precision."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, inverse_scale: Tensor) -> Tensor:
        ctx.inverse_scale = inverse_scale
        return outputs.view_as(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        peak = grad.abs().flatten(1).amax(1)
        power = (ScaleGradients.PEAK_EXPONENT - torch.frexp(peak)[1]).clamp(-126, 126)
        power = torch.where((peak > 0) & peak.isfinite(), power, 0)
        ctx.inverse_scale.copy_(_power_of_two(-power))
        return grad * _power_of_two(power).view(-1, *[1] * (grad.dim() - 1)), None


def _power_of_two(power: Tensor) -> Tensor:
    """Return 2^power exactly, for integers from -126 to 127, by setting the exponent bits of a float32."""
    return ((power + 127) << 23).view(torch.float32)


class Drop(Function):
    """Apply dropout, with the same mask in both passes. The arguments are those of `dropping.drop`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, streams: Tensor, keep: Tensor, first: int) -> Tensor:
        ctx.save_for_backward(streams, keep)
        ctx.first = first
        return dropping.drop(x, streams, keep, first)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        streams, keep = ctx.saved_tensors
        return dropping.drop(grad, streams, keep, ctx.first), None, None, None
