"""Autograd functions of attention with a single head, in which weight matrices are multiplied with each other first.

For shapes, sinks and float16 copies see the top of `functions`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from placecode.compute.gpu.functions import as_rows, attend, attend_backward, outer, product, returned
from placecode.compute.gpu.kernels import relative, rows


class Fold(Function):
    """Multiply the four matrices of single-head attention into two, Q K^T and V W ("fold" them), and fold their biases.

    Q, K, V and W are the matrices of queries, keys, values and output; q, k, v and w are their biases. `matrix` holds
    Q, K and V side by side, `bias` holds q, k and v, and `out_matrix` and `out_bias` are W and w. The scores are
    (x Q + q)(x K + k)^T = (x Q K^T + K q) x^T + terms that are equal for all keys of a query. Softmax cancels these, so
    the key bias k has no effect. Outputs are P (x V + v) W + w = P (x V W) + v W + w, because the attention weights P
    of a query sum to 1. Computing Q K^T and V W first saves half of the products with tokens.

    Returns the two matrices side by side, (members, d, 2 d), `query_offset`, which is K q, `lift`, and `offset`, which
    is v W + w. `lift` is None unless positions are relative. If they are, `vectors` are the r vectors R of relative
    positions, (members, r, d). The products of the queries with them are (x Q + q) R^T. So `lift` is q R^T, (members,
    r), and Q R^T is appended to the matrices, padded with zeros to a multiple of `PADDING` columns."""

    PADDING = 16
    """The appended columns are padded to a multiple of this number: libraries multiply aligned matrices faster."""

    @staticmethod
    def forward(
        ctx: Any, matrix: Tensor, bias: Tensor, out_matrix: Tensor, out_bias: Tensor, vectors: Tensor | None,
        sink: Tensor | None, out_sink: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:  # fmt: skip
        (query, key, value), d = matrix.chunk(3, -1), out_bias.shape[1]
        count = 0 if vectors is None else vectors.shape[1]
        folded = torch.empty(len(matrix), d, 2 * d + -(-count // Fold.PADDING) * Fold.PADDING, device=matrix.device)
        lift = None
        with torch.autocast(matrix.device.type, enabled=False):  # small products; the result is rounded later
            torch.bmm(query, key.mT, out=folded[..., :d])
            torch.bmm(value, out_matrix, out=folded[..., d : 2 * d])
            query_offset = torch.bmm(key, bias[:, :d, None])[..., 0]
            offset = torch.bmm(bias[:, None, 2 * d :], out_matrix)[:, 0] + out_bias
            if vectors is not None:
                torch.bmm(query, vectors.mT, out=folded[..., 2 * d : 2 * d + count])
                folded[..., 2 * d + count :] = 0
                lift = torch.bmm(bias[:, None, :d], vectors.mT)[:, 0]
        ctx.save_for_backward(matrix, bias, out_matrix, vectors)
        ctx.sink, ctx.out_sink = sink, out_sink
        return folded, query_offset, lift, offset

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, d_folded: Tensor, d_query_offset: Tensor, d_lift: Tensor | None, d_offset: Tensor
    ) -> tuple[Tensor | None, ...]:
        matrix, bias, out_matrix, vectors = ctx.saved_tensors
        (query, key, value), d = matrix.chunk(3, -1), d_query_offset.shape[1]
        d_matrix = torch.empty_like(matrix) if ctx.sink is None else ctx.sink
        d_out = torch.empty_like(out_matrix) if ctx.out_sink is None else ctx.out_sink
        d_scores, d_values = d_folded[..., :d], d_folded[..., d : 2 * d]
        d_query = torch.bmm(d_scores, key, out=d_matrix[..., :d])
        d_key = torch.bmm(d_scores.mT, query, out=d_matrix[..., d : 2 * d])
        d_key.addcmul_(d_query_offset[:, :, None], bias[:, None, :d])
        torch.bmm(d_values, out_matrix.mT, out=d_matrix[..., 2 * d :])
        torch.bmm(value.mT, d_values, out=d_out).addcmul_(bias[:, 2 * d :, None], d_offset[:, None])
        with torch.autocast(matrix.device.type, enabled=False):
            d_query_bias = torch.bmm(key.mT, d_query_offset[:, :, None])[..., 0]
            d_value_bias = torch.bmm(out_matrix, d_offset[:, :, None])[..., 0]
            d_vectors = None
            if vectors is not None and d_lift is not None:
                d_products = d_folded[..., 2 * d : 2 * d + vectors.shape[1]]
                d_query.baddbmm_(d_products, vectors)
                d_query_bias += torch.bmm(d_lift[:, None], vectors)[:, 0]
                d_vectors = torch.bmm(d_products.mT, query).addcmul_(d_lift[:, :, None], bias[:, None, :d])
        d_bias = torch.cat([d_query_bias, torch.zeros_like(d_query_offset), d_value_bias], 1)
        return d_matrix, d_bias, d_out, d_offset, d_vectors, None, None


class FoldedSublayer(Function):
    """Compute LN(x + attention(x)) with a single head from the results of `Fold`. LN is a layer norm.

    `table` is added to the scores, unless it is None. If `last` is true, only the last token is computed, and `x_fp16`
    must be None. With relative positions, `lift` comes from `Fold`, and `index`, (axes, queries, keys), contains for
    each axis of the positions which of the relative vectors belongs to a query and a key. Otherwise both are None."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, x_fp16: Tensor | None, folded: Tensor, query_offset: Tensor, lift: Tensor | None,
        offset: Tensor, scale: Tensor, shift: Tensor, table: Tensor | None, index: Tensor | None, last: bool,
        sinks: rows.Sinks,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        x = x.contiguous()
        inputs = x if x_fp16 is None else x_fp16
        w = folded.to(inputs.dtype)
        e, b, n, d = x.shape
        if last:  # with one query, the tokens themselves serve as keys and values
            q = torch.bmm(x[:, :, -1], w[..., :d])[:, :, None]
            parts = (q, x, x)
        else:
            q, v, products = product(as_rows(inputs), w).view(e, b, n, -1).tensor_split((d, 2 * d), -1)
            parts = (q, inputs, v)
        if index is not None and lift is not None:
            if last:
                products = torch.bmm(x[:, :, -1], w[..., 2 * d :])[:, :, None]
            table = relative.select(products, lift, index, table, d**-0.5)
        mixed, saved = attend(parts, (query_offset,), table, 1)
        if last:
            y, residual = torch.bmm(mixed, w[..., d : 2 * d]), x[:, :, -1]
        else:
            y, residual = mixed, as_rows(x)
            mixed = residual
        result, result_fp16, mean, inverse = rows.norm(
            residual, y, offset, scale, shift, None, False, x_fp16 is not None
        )
        ctx.save_for_backward(
            x, *parts, mixed, y, mean, inverse, w, query_offset, lift, offset, scale, table, index, *saved
        )
        ctx.last, ctx.sinks = last, sinks
        return returned(ctx, result, result_fp16, (e, b, 1 if last else n, d))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
        x, q, inputs, v, mixed, y, mean, inverse, w, query_offset, lift, offset, scale, table, index, *saved = (
            ctx.saved_tensors
        )
        (e, b, n, d), last = x.shape, ctx.last
        residual = x[:, :, -1] if last else as_rows(x)
        back, _, (d_offset, d_scale, d_shift), _ = rows.norm_backward(
            as_rows(grad.contiguous()), residual, y, offset, scale, mean, inverse, None, False, ctx.sinks
        )
        d_x, d_folded = torch.empty_like(x), torch.empty(e, w.shape[2], d, device=x.device).mT
        d_table = None if index is None else torch.empty_like(table)
        if last:
            d_mixed, d_q = torch.bmm(back, w[..., d : 2 * d].mT), torch.empty_like(q)
            d_query_offset = attend_backward(
                d_mixed, mixed, saved, (q, x, x), (query_offset,), table, 1, (d_q, d_x, d_x), d_table=d_table
            )
            outer(x[:, :, -1], d_q[:, :, 0], d_folded[..., :d])
            outer(mixed, back, d_folded[..., d : 2 * d])
            back.baddbmm_(d_q[:, :, 0], w[..., :d].mT)
            d_products = torch.empty(e, b, 1, w.shape[2] - 2 * d, dtype=w.dtype, device=x.device)
        else:
            all_three = torch.empty(e, b, n, w.shape[2], dtype=w.dtype, device=x.device)
            d_q, d_v, d_products = all_three.tensor_split((d, 2 * d), -1)
            d_query_offset = attend_backward(
                back,
                y,
                saved,
                (q, inputs, v),
                (query_offset,),
                table,
                1,
                (d_q, d_x, d_v),
                residual=True,
                d_table=d_table,
            )
        d_lift = None
        if d_table is not None:
            relative.select_backward(d_table, index, d**-0.5, d_products)
            d_lift = d_products[..., : lift.shape[1]].sum((1, 2), dtype=torch.float32)
            if last:
                outer(x[:, :, -1], d_products[:, :, 0], d_folded[..., 2 * d :])
                back.baddbmm_(d_products[:, :, 0], w[..., 2 * d :].mT)
        if last:
            d_x[:, :, -1] += back
        else:
            outer(as_rows(inputs), as_rows(all_three), d_folded)
            product(as_rows(all_three), w.mT, as_rows(d_x))
        return d_x, None, d_folded, d_query_offset, d_lift, d_offset, d_scale, d_shift, *[None] * 4
