"""Compute the forward pass of a stack on a GPU with fused kernels and explicit backward passes.

This is the fast counterpart of `models.encoder`: `forward` returns the same as `Stack._forward`, up to rounding. A
block consists of two autograd functions. The first computes projection, attention, output layer and norm, and the
second the MLP and its norm. Biases, residuals and PEs need no extra pass over memory, and gradients of weights are
written directly to the flat gradient of the stack. ALiBi, causal masks, and relative positions with a single head are
part of the attention kernels. For other encodings that change queries, keys or scores, their methods and autograd are
used. Pre-norm blocks use the plain implementation.

In bfloat16 (autocast), activations and products are bfloat16; norms, softmax, sums and parameters are float32.

If the inputs of products may be rounded to ten bits (precision "high"), most products use float16. It has as many bits
as TF32, takes half the time, and accumulates in float32, but its range is small. Values are of order 1 after a norm.
Gradients are scaled to order 1 by a power of two per member (`Measure`), and the optimizer reverses the scaling. Where
gradients are needed but cannot be scaled, products use TF32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from placecode import random
from placecode.compute.gpu import kernels
from placecode.compute.gpu.folded import Fold, FoldedHalf
from placecode.compute.gpu.functions import AttentionHalf, Drop, Embed, Matrix, Measure, MlpHalf, OutHalf, Project
from placecode.compute.gpu.kernels import attention, long_attention, rows
from placecode.encodings import ALL, Additive, Alibi, Encoding
from placecode.encodings.relative import Relative

if TYPE_CHECKING:
    from placecode.models.blocks import Block, Linear
    from placecode.models.encoder import Stack


FEW = 16
"""Maximum number of input features for which the embedding is a separate kernel instead of a matrix product."""


class Weights:
    """The parameters of a stack (in bfloat16 under autocast) and the destinations to which gradients are written."""

    def __init__(self, stack: Stack) -> None:
        device = stack.flat.device.type
        low_precision = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) == torch.bfloat16
        self.dtype = torch.bfloat16 if low_precision else stack.flat.dtype
        views = stack.views(stack.flat.to(self.dtype)) if low_precision else [p.detach() for p in stack.ordered]
        sinks = [None] * len(views) if stack.sink is None else stack.views(stack.sink)
        self._of = {id(p): pair for p, pair in zip(stack.ordered, zip(views, sinks, strict=True), strict=True)}

    def matrix(self, layer: Linear) -> Matrix:
        """Return the matrix (e, in, out) of a layer and the destination (e, in, out) of its gradient, or None."""
        view, sink = self._of[id(layer.weight)]
        return layer.as_matrix(view), None if sink is None else layer.as_matrix(sink)

    def places(self, *vectors: Tensor) -> rows.Sinks:
        """Return the destinations (e, d) of the gradients of biases, scales or shifts; None if there are none."""
        sinks = [self._of[id(vector)][1] for vector in vectors]
        return None if sinks[0] is None else tuple(sinks)


def forward(stack: Stack, x: Tensor, step: int | Tensor | None, first_row: int) -> Tensor:
    """Return the outputs of all members for inputs x. The arguments and the result are those of `Stack.forward`."""
    weights, blocks, (n, member) = Weights(stack), len(stack.blocks), (x.shape[2], stack.members[0])
    drops = member.dropout > 0 and (step is not None or member.dropout_at_evaluation)
    pre = member.norm == "pre"

    def encoding_at(i: int) -> Encoding:
        return stack.encoding if i == 0 or member.placement == "every" else stack.no_encoding

    def pe_at(i: int) -> Tensor | None:
        """Return the PE (e, n, d) that the kernel before block i adds to its result.

        Return None if no PE is added to the input of block i, or if the encoding adds it by another method.
        """
        encoding = encoding_at(i) if i < blocks else stack.no_encoding
        if type(encoding).add is not Additive.add:
            return None
        assert isinstance(encoding, Additive)
        return encoding.table[:, i, :n]

    def last_alone(i: int) -> bool:
        return stack.readout == "last" and i == blocks - 1

    def halved(i: int) -> bool:
        """Return whether block i needs its input also in float16. A block that computes only the last token does not,
        since float16 would not save time."""
        return halves and i < blocks and not last_alone(i) and _is_fused(encoding_at(i), member.heads, n, member.width)

    def writes_half(i: int) -> bool:
        """Return whether the kernel before block i writes the float16 input of the block.

        It does so unless dropout or an encoding changes the input afterwards.
        """
        return halved(i) and not drops and type(encoding_at(i)).add in (Encoding.add, Additive.add)

    embedding, half = stack.embedding, None
    x = x.to(weights.dtype)
    halves = not pre and _takes_halves(stack, x)
    if x.shape[3] <= FEW:
        x, half = Embed.apply(x, embedding.matrix, embedding.bias, pe_at(0), writes_half(0))
    else:
        x = Project.apply(x, embedding.matrix, embedding.bias, weights.matrix(embedding))
        x = stack.encoding.add(x, 0) if pe_at(0) is not None else x
    for i in range(blocks):
        block: Any = stack.blocks[i]
        encoding = encoding_at(i)
        if type(encoding).add not in (Encoding.add, Additive.add) or (pre and i > 0):
            x = encoding.add(x, i)
        if drops:
            stream = random.stream(stack.dropout_keys, stack.dropout_moment(i, step))
            x = Drop.apply(x, stream, stack.keep, first_row * x[0, 0].numel())
        at = slice(n - 1, n) if last_alone(i) else ALL
        if pre:
            x = block(x, encoding, i, at, None)
            continue
        x = x.to(weights.dtype)
        if _is_fused(encoding, member.heads, n, member.width):
            if halved(i) and half is None:
                half = x.detach().to(torch.float16, memory_format=torch.contiguous_format)
            attention_half = _folded_half if member.heads == 1 else _attention_half
            x, half = attention_half(block, x, half, encoding, i, at, weights)
        else:
            x, half = _attention_by_pieces(block, x, encoding, i, at, weights, halves and not last_alone(i))
        x, half = _mlp_half(block, x, half, None if last_alone(i) else pe_at(i + 1), weights, writes_half(i + 1))
    if stack.final_norm is not None:
        x = stack.final_norm(x)
    x = x[:, :, -1] if stack.readout == "last" else x.mean(2) if stack.readout == "mean" else x
    outputs: Tensor = stack.answer(x)
    if halves and stack.unit is not None:
        outputs = Measure.apply(outputs, stack.unit)
    return stack.amplified(outputs)  # after `Measure`, which then scales gradients that include the gain


def _takes_halves(stack: Stack, x: Tensor) -> bool:
    """Return whether products use float16: the precision setting allows it, and gradients are scaled or not needed."""
    scaled_or_not_needed = stack.unit is not None or not torch.is_grad_enabled()
    return scaled_or_not_needed and stack.halves and kernels.takes_halves(x)


def _is_fused(encoding: Encoding, heads: int, tokens: int, width: int) -> bool:
    """Return whether fused attention can be used.

    The encoding must not change queries and keys. It must add the same bias to the scores of all examples and members,
    or be `Relative` with a single head. The tokens and features of a head must fit into the memory on the chip.
    """
    if encoding.rotated:
        return False
    long = long_attention.suits(tokens, width // heads)
    if _is_relative(encoding):
        return heads == 1 and tokens <= attention.LONGEST and not long
    return _adds_the_same(encoding) and (tokens <= attention.LONGEST or long)


def _is_relative(encoding: Encoding) -> bool:
    """Return whether the score bias of an encoding is that of `Relative`, for which there is a kernel."""
    return isinstance(encoding, Relative) and type(encoding).bias is Relative.bias


def _adds_the_same(encoding: Encoding) -> bool:
    """Return whether the score bias of an encoding is equal for all examples and members."""
    return type(encoding).bias in (Encoding.bias, Alibi.bias)


Halved = tuple[Tensor, Tensor | None]
"""Values, and the same values in float16 if products use it."""


def _folded_half(
    block: Block, x: Tensor, half: Tensor | None, encoding: Encoding, i: int, at: slice, weights: Weights
) -> Halved:
    """Return LN(x + attention(x)), (e, b, m, d), at the tokens `at` in block i, and a copy in float16 if there is one.

    With a single head, the matrices of queries and keys are multiplied into one ("folded"), and so are those of values
    and outputs. `half` is x in float16, or None.
    """
    layer, out, norm = block.attention.projection, block.attention.out, block.norm_1
    vectors, index = None, None
    if _is_relative(encoding):
        assert isinstance(encoding, Relative)
        vectors, index = encoding.table[:, i], encoding.table_rows[:, at, : x.shape[2]].int().contiguous()
    *folded, offset = Fold.apply(
        layer.matrix, layer.bias, out.matrix, out.bias, vectors, weights.matrix(layer)[1], weights.matrix(out)[1],
    )  # fmt: skip
    places = (None, *(weights.places(norm.scale, norm.shift) or (None, None)))
    table = _table(encoding, x, i, at, heads=1)
    answer: Halved = FoldedHalf.apply(
        x, half, *folded, offset, norm.scale, norm.shift, table, index, at != ALL, places,
    )  # fmt: skip
    return answer


def _attention_half(
    block: Block, x: Tensor, half: Tensor | None, encoding: Encoding, i: int, at: slice, weights: Weights
) -> Halved:
    """Return LN(x + attention(x)), (e, b, m, d), at the tokens `at`, for any number of heads. See `_folded_half`."""
    layer, out, norm = block.attention.projection, block.attention.out, block.norm_1
    answer: Halved = AttentionHalf.apply(
        x, half, layer.matrix, layer.bias, out.matrix, out.bias, norm.scale, norm.shift,
        _table(encoding, x, i, at, block.attention.heads), block.attention.heads, at != ALL,
        weights.matrix(layer), weights.matrix(out),
        weights.places(layer.bias), weights.places(out.bias, norm.scale, norm.shift),
    )  # fmt: skip
    return answer


def _attention_by_pieces(
    block: Block, x: Tensor, encoding: Encoding, i: int, at: slice, weights: Weights, halved: bool
) -> Halved:
    """Return LN(x + attention(x)), (e, b, m, d), at the tokens `at`, for any encoding in block i.

    The methods of the encoding, which may change queries, keys and scores, are called between projection and softmax,
    and autograd differentiates them. If `halved` is true, the result is also returned in float16.
    """
    layer, out, norm = block.attention.projection, block.attention.out, block.norm_1
    heads = block.attention.heads
    d = x.shape[-1]
    bias = block.attention.bias_with(encoding)
    projected = Project.apply(x, layer.matrix, bias, weights.matrix(layer))
    q, k, v = (part.unflatten(-1, (heads, -1)).transpose(2, 3) for part in projected.split(d, -1))  # (e, b, h, n, c)
    q, k = encoding.rotate(q[..., at, :], k, i, at)
    if _adds_the_same(encoding):
        table = _table(encoding, x, i, at, heads)
        mask = None if table is None else table.to(q.dtype)
        q, k, v = (part.flatten(0, 1) for part in (q, k, v))  # one batch of all members' examples
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        mixed = mixed.unflatten(0, x.shape[:2])
    else:
        mixed = block.attention.attend(q, k, v, encoding, i, at, None)
    mixed = mixed.transpose(2, 3).flatten(-2).to(weights.dtype)
    answer: Halved = OutHalf.apply(
        x[:, :, at], mixed, out.matrix, out.bias, norm.scale, norm.shift,
        weights.matrix(out), weights.places(out.bias, norm.scale, norm.shift), halved,
    )  # fmt: skip
    return answer


def _table(encoding: Encoding, x: Tensor, i: int, at: slice, heads: int) -> Tensor | None:
    """Return what an encoding adds to the attention scores of all examples and members, (1 or h, m, n), in block i.

    This is its score bias (as in ALiBi), unless that differs between examples, plus -inf where its mask hides a key
    from a query. Rows are the queries `at`, columns are keys. Return None if it adds nothing.
    """
    n, table = x.shape[2], None
    if _adds_the_same(encoding):
        probe = x.new_empty(1, 1, heads, len(range(n)[at]), x.shape[-1] // heads, dtype=torch.float32)
        table = encoding.bias(probe, i, at)
    if (visible := encoding.mask(n, at)) is not None:
        hidden = torch.zeros(visible.shape, device=x.device).masked_fill(~visible, -torch.inf)
        table = hidden if table is None else table + hidden
    return None if table is None else table.reshape(-1, *table.shape[-2:]).float().contiguous()


def _mlp_half(
    block: Block, x: Tensor, half: Tensor | None, pe: Tensor | None, weights: Weights, halved: bool
) -> Halved:
    """Return LN(x + MLP(x)), with the PE of the next block added if `pe` is not None.

    `half` is x in float16, or None. If `halved` is true, the result is also returned in float16.
    """
    up, down, norm = block.up, block.down, block.norm_2
    answer: Halved = MlpHalf.apply(
        x, half, up.matrix, up.bias, down.matrix, down.bias, norm.scale, norm.shift,
        pe, weights.matrix(up), weights.matrix(down),
        weights.places(up.bias), weights.places(down.bias, norm.scale, norm.shift), halved,
    )  # fmt: skip
    return answer
