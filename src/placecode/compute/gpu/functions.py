"""Autograd functions with explicit backward passes for the embedding, attention and MLP of a block.

Arrays are (e, b, n, d). Gradients of parameters may have a destination (sink): a view of the stack's flat gradient. The
backward pass then writes the gradient there and returns that view; otherwise it returns a new tensor. A `Matrix` is a
pair of a matrix and its destination or None. `places` are the destinations of biases, scales and shifts.

If x is also passed in float16, as `half`, products use `half`, and matrices and gradients are rounded to float16 too.
Results and sums are float32. If `halved` is true, a function also returns its result in float16.
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


def as_rows(x: Tensor) -> Tensor:
    """Return x, (e, b, n, d), with shape (e, b n, d)."""
    return x.flatten(1, 2)


def product(a: Tensor, b: Tensor, plus: Tensor | None = None) -> Tensor:
    """Return the product a b, or add it to `plus` in place and return `plus`. Float16 factors give float32 results."""
    if a.dtype != torch.float16:
        return torch.bmm(a, b) if plus is None else plus.baddbmm_(a, b)
    if a.device.type != "cuda":
        return torch.bmm(a.float(), b.float()) if plus is None else plus.baddbmm_(a.float(), b.float())
    if plus is None:
        return torch.bmm(a, b, out_dtype=torch.float32)
    return torch.baddbmm(plus, a, b, out_dtype=torch.float32, out=plus)


def outer(x: Tensor, grad: Tensor, sink: Tensor | None) -> Tensor:
    """Return the gradient of a matrix W, x^T grad, in float32, given the gradient of x W. It is written to `sink`,
    or to a new tensor if `sink` is None."""
    if sink is None:
        sink = torch.empty(x.shape[0], x.shape[2], grad.shape[2], device=x.device)
    if x.dtype == torch.float32:
        return torch.bmm(x.mT, grad, out=sink)
    if x.device.type == "cuda":
        return torch.bmm(x.mT, grad, out_dtype=torch.float32, out=sink)
    return torch.bmm(x.mT.float(), grad.float(), out=sink)


def returned(ctx: Any, result: Tensor, half: Tensor | None, shape: tuple[int, ...]) -> tuple[Tensor, Tensor | None]:
    """Return the result and its float16 copy (None if `half` is None), reshaped. No gradient flows through the copy."""
    if half is None:
        return result.view(shape), None
    half = half.view(shape)
    ctx.mark_non_differentiable(half)
    ctx.set_materialize_grads(False)  # avoids zeros for the float16 copy in the backward pass
    return result.view(shape), half


def _is_long(parts: Parts, heads: int) -> bool:
    """Return whether to use `long_attention` instead of `attention`, given queries, keys and values."""
    keys = parts[1]
    return long_attention.suits(keys.shape[2], keys.shape[3] // heads)


def attend(
    parts: Parts, biases: tuple[Tensor, ...], table: Tensor | None, heads: int
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """Compute attention from queries, keys and values (`parts`), biases of the scores, and a table of rotations or
    None. Return the weighted means of the values, (e, b m, d) for m queries, and what `attend_backward` needs."""
    if _is_long(parts, heads):
        out, saved = long_attention.attend(parts, biases, table, heads)
        return as_rows(out), saved
    out, weights = attention.attend(parts, biases, table, heads)
    return as_rows(out), (weights,)


def attend_backward(
    grad: Tensor, out: Tensor, saved: tuple[Any, ...], parts: Parts, biases: tuple[Tensor, ...], table: Tensor | None,
    heads: int, into: Parts, places: rows.Sinks = None, residual: bool = False, d_table: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Run the backward pass of `attend`. Write the gradients of queries, keys and values to `into`, and return those
    of the biases. For the other arguments see `attention.attend_backward`."""
    arguments = (parts, biases, table, heads, into, places, residual)
    if not _is_long(parts, heads):
        return attention.attend_backward(grad, saved[0], *arguments, d_table)
    return long_attention.attend_backward(grad, out.view(parts[0].shape), saved, *arguments)


class Embed(Function):
    """Compute x W + bias (+ pe), for tokens with few features."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, matrix: Tensor, bias: Tensor, pe: Tensor | None, halved: bool
    ) -> tuple[Tensor, Tensor | None]:
        x = x.contiguous()
        ctx.save_for_backward(x, matrix)
        ctx.has_pe = pe is not None
        return returned(ctx, *rows.embed(as_rows(x), matrix, bias, pe, halved), (*x.shape[:3], matrix.shape[2]))

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


class OutHalf(Function):
    """Compute LN(x + mixed W + bias), where LN is a layer norm and `mixed` the result of attention."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mixed: Tensor, matrix: Tensor, bias: Tensor, scale: Tensor, shift: Tensor,
        weights: Matrix, places: rows.Sinks, halved: bool,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        x, mixed = x.contiguous(), mixed.contiguous()
        y = torch.bmm(as_rows(mixed), weights[0])
        result, rounded, mean, inverse = rows.norm(as_rows(x), y, bias, scale, shift, None, False, halved)
        ctx.save_for_backward(x, mixed, y, mean, inverse, bias, scale)
        ctx.weights, ctx.places = weights, places
        return returned(ctx, result, rounded, x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
        x, mixed, y, mean, inverse, bias, scale = ctx.saved_tensors
        d_x, _, vectors, _ = rows.norm_backward(
            as_rows(grad.contiguous()), as_rows(x), y, bias, scale, mean, inverse, None, False, ctx.places
        )
        d_matrix = outer(as_rows(mixed), d_x, ctx.weights[1])
        d_mixed = torch.bmm(d_x, ctx.weights[0].mT).view_as(mixed)
        return d_x.view_as(x), d_mixed, d_matrix, *vectors, *[None] * 3


class AttentionHalf(Function):
    """Compute LN(x + attention(x)) for all tokens or, if `last`, for the last only. `half` must be None if `last`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, half: Tensor | None, matrix: Tensor, bias: Tensor, out_matrix: Tensor, out_bias: Tensor,
        scale: Tensor, shift: Tensor, table: Tensor | None, heads: int, last: bool,
        weights: Matrix, out_weights: Matrix, places: rows.Sinks, out_places: rows.Sinks,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        x = x.contiguous()
        inputs = x if half is None else half
        (e, b, n, d), dtype = x.shape, inputs.dtype
        w, out_w = weights[0].to(dtype), out_weights[0].to(dtype)
        if last:
            q = torch.bmm(x[:, :, -1], w[..., :d])[:, :, None]  # (e, b, 1, d)
            k, v = torch.bmm(as_rows(x), w[..., d:]).view(e, b, n, -1).split(d, -1)
        else:
            q, k, v = product(as_rows(inputs), w).view(e, b, n, -1).split(d, -1)
        mixed, saved = attend((q, k, v), bias.split(d, -1), table, heads)
        mixed_half = mixed.to(dtype)
        y = product(mixed_half, out_w)
        residual = x[:, :, -1] if last else as_rows(x)
        result, rounded, mean, inverse = rows.norm(residual, y, out_bias, scale, shift, None, False, half is not None)
        ctx.save_for_backward(
            x, inputs, q, k, v, mixed, mixed_half, y, mean, inverse, w, out_w, bias, out_bias, scale, table, *saved,
        )  # fmt: skip
        ctx.heads, ctx.last, ctx.sinks = heads, last, (weights[1], out_weights[1])
        ctx.places, ctx.out_places = places, out_places
        return returned(ctx, result, rounded, (e, b, 1 if last else n, d))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
        x, inputs, q, k, v, mixed, mixed_half, y, mean, inverse, w, out_w, bias, out_bias, scale, table, *saved = (
            ctx.saved_tensors
        )
        (e, b, n, d), (sink, out_sink), last, dtype = x.shape, ctx.sinks, ctx.last, inputs.dtype
        residual = x[:, :, -1] if last else as_rows(x)
        back, d_y, vectors, _ = rows.norm_backward(
            as_rows(grad.contiguous()), residual, y, out_bias, scale, mean, inverse, None, False, ctx.out_places, dtype
        )
        d_out = outer(mixed_half, d_y, out_sink)
        d_mixed = product(d_y, out_w.mT)
        if last:
            d_q, d_kv = torch.empty_like(q), torch.empty(e, b, n, 2 * d, dtype=dtype, device=x.device)
            into = (d_q, *d_kv.split(d, -1))
        else:
            d_all = torch.empty(e, b, n, 3 * d, dtype=dtype, device=x.device)
            into = d_all.split(d, -1)
        d_bias = attend_backward(
            d_mixed, mixed, saved, (q, k, v), bias.split(d, -1), table, ctx.heads, into, ctx.places
        )
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


class MlpHalf(Function):
    """Compute LN(x + GELU(GELU(x U + up_bias) D + down_bias)) (+ pe), with matrices U (`up`) and D (`down`)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, half: Tensor | None, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor,
        scale: Tensor, shift: Tensor, pe: Tensor | None, up_weights: Matrix, down_weights: Matrix,
        up_places: rows.Sinks, places: rows.Sinks, halved: bool,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        x = x.contiguous()
        inputs = x if half is None else half
        dtype = inputs.dtype
        up_w, down_w = up_weights[0].to(dtype), down_weights[0].to(dtype)
        u = product(as_rows(inputs), up_w)
        g = mlp.activate(u, up_bias, dtype)
        y = product(g, down_w)
        result, rounded, mean, inverse = rows.norm(as_rows(x), y, down_bias, scale, shift, pe, True, halved)
        ctx.save_for_backward(x, inputs, u, g, y, mean, inverse, up_w, down_w, up_bias, down_bias, scale)
        ctx.tokens = None if pe is None else pe.shape[1]
        ctx.sinks, ctx.up_places, ctx.places = (up_weights[1], down_weights[1]), up_places, places
        return returned(ctx, result, rounded, x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
        x, inputs, u, g, y, mean, inverse, up_w, down_w, up_bias, down_bias, scale = ctx.saved_tensors
        (up_sink, down_sink), dtype = ctx.sinks, inputs.dtype
        back, d_y, vectors, d_pe = rows.norm_backward(
            as_rows(grad.contiguous()), as_rows(x), y, down_bias, scale, mean, inverse,
            ctx.tokens, True, ctx.places, dtype,
        )  # fmt: skip
        d_down = outer(g, d_y, down_sink)
        d_u, d_up_bias = mlp.activate_backward(product(d_y, down_w.mT), u, up_bias, ctx.up_places, dtype)
        d_up = outer(as_rows(inputs), d_u, up_sink)
        d_x = product(d_u, up_w.mT, back).view_as(x)
        return d_x, None, d_up, d_up_bias, d_down, *vectors, d_pe, *[None] * 5


class Measure(Function):
    """Return the outputs unchanged. In the backward pass, multiply the gradient of each member by a power of two, to
    suit the range of float16. `unit`, (e,), is overwritten with the factor that reverses the scaling."""

    PEAK = 6
    """The largest gradient of an output is scaled to less than 2 ** PEAK. Gradients of earlier layers may be a thousand
    times as large, or a millionth of it, without loss of precision."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, unit: Tensor) -> Tensor:
        ctx.unit = unit
        return outputs.view_as(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        peak = grad.abs().flatten(1).amax(1)
        power = (Measure.PEAK - torch.frexp(peak)[1]).clamp(-126, 126)
        power = torch.where((peak > 0) & peak.isfinite(), power, 0)
        ctx.unit.copy_(_power_of_two(-power))
        return grad * _power_of_two(power).view(-1, *[1] * (grad.dim() - 1)), None


def _power_of_two(power: Tensor) -> Tensor:
    """Return 2^power exactly, for integers from -126 to 127, by setting the exponent bits of a float32."""
    return ((power + 127) << 23).view(torch.float32)


class Drop(Function):
    """Apply dropout, with the same mask in the forward and backward pass. See `dropping.drop` for the arguments."""

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
