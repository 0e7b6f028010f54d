"""Compute the forward pass of a stack on a GPU with fused kernels, with explicit backward passes.

`forward` returns the same as `Stack._forward`, the reference implementation, up to rounding. A block with layer norms
after attention and MLP (post-norm) is two autograd functions: one for projection, attention, output layer and layer
norm, and one for the MLP and its layer norm. They add biases, residuals and PEs without further passes over memory, and
write the gradients of weights directly to the array `Stack.sink`.

The attention kernels support additive encodings, ALiBi, causal masks and, with a single head, relative positions. Other
encodings, and heads that do not fit into the memory on the chip, are slower: torch computes attention with the methods
of the encoding, and autograd differentiates it. Blocks with layer norms before attention and MLP (pre-norm) are slower
too: they use the reference implementation.

Under autocast to bfloat16, activations and products are bfloat16; norms, softmax, sums and parameters are float32.

In precision "high", the inputs of products may be rounded to a mantissa of ten bits, and most products use float16. It
has the mantissa of TF32 and takes half the time; sums are float32. But its range is small. Activations are of order 1
after a norm. Gradients are scaled to order 1 by a power of two per member (`ScaleGradients`), and the optimizer
reverses the scaling. Where gradients are needed but cannot be scaled, products use TF32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from placecode import random
from placecode.compute.gpu import kernels
from placecode.compute.gpu.folded import Fold, FoldedSublayer
from placecode.compute.gpu.functions import (
    AttentionSublayer,
    Drop,
    Embed,
    Matrix,
    MlpSublayer,
    OutputSublayer,
    Project,
    ScaleGradients,
)
from placecode.compute.gpu.kernels import attention, long_attention, rows
from placecode.encodings import ALL, Additive, Alibi, Encoding
from placecode.encodings.relative import Relative

if TYPE_CHECKING:
    from placecode.models.blocks import Block, Linear
    from placecode.models.encoder import Stack


MAX_EMBED_FEATURES = 16
"""Maximum number of input features for which the embedding is a separate kernel instead of a matrix product."""


class Weights:
    """The parameters of a stack, in the dtype of the activations, each with its sink. A sink is the array to which the
    gradient of a parameter is written (see `functions`), or None."""

    def __init__(self, stack: Stack) -> None:
        device = stack.flat.device.type
        low_precision = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) == torch.bfloat16
        self.dtype = torch.bfloat16 if low_precision else stack.flat.dtype
        views = stack.views(stack.flat.to(self.dtype)) if low_precision else [p.detach() for p in stack.ordered]
        sinks = [None] * len(views) if stack.sink is None else stack.views(stack.sink)
        self._of = {id(p): pair for p, pair in zip(stack.ordered, zip(views, sinks, strict=True), strict=True)}

    def matrix(self, layer: Linear) -> Matrix:
        """Return the matrix of a layer, (members, inputs, outputs), and its sink, which has the same shape, or None."""
        view, sink = self._of[id(layer.weight)]
        return layer.as_matrix(view), None if sink is None else layer.as_matrix(sink)

    def sinks(self, *vectors: Tensor) -> rows.Sinks:
        """Return the tensors to which kernels write the gradients of biases, scales or shifts, (members, features)
        each, or None if autograd collects these gradients."""
        sinks = [self._of[id(vector)][1] for vector in vectors]
        return None if sinks[0] is None else tuple(sinks)


def forward(stack: Stack, x: Tensor, step: int | Tensor | None, first_row: int) -> Tensor:
    """Return the outputs of all members for inputs x, (members, examples, tokens, features), on a GPU. `step`,
    `first_row` and the shape of the result are those of `Stack.forward`."""
    weights, blocks, (n, member) = Weights(stack), len(stack.blocks), (x.shape[2], stack.members[0])
    drops = member.dropout > 0 and (step is not None or member.dropout_at_evaluation)
    pre = member.norm == "pre"

    def pe_at(i: int) -> Tensor | None:
        """Return the PE (members, tokens, features) that the kernel before block i adds to its result.

        Return None if no PE is added to the input of block i, or if the encoding overrides `Additive.add`.
        """
        encoding = stack.encoding_at(i) if i < blocks else stack.no_encoding
        if type(encoding).add is not Additive.add:
            return None
        assert isinstance(encoding, Additive)
        return encoding.table[:, i, :n]

    def last_alone(i: int) -> bool:
        return stack.readout == "last" and i == blocks - 1

    def with_fp16(i: int) -> bool:
        """Return whether block i needs its input also in float16.

        A block that computes only the last token does not, since float16 would not save time.
        """
        if not use_fp16 or i == blocks or last_alone(i):
            return False
        return _is_fused(stack.encoding_at(i), member.heads, n, member.width)

    def writes_fp16(i: int) -> bool:
        """Return whether the kernel before block i also writes the float16 input of the block.

        It does so if the block needs this input, and neither dropout nor an encoding changes it afterwards.
        """
        return with_fp16(i) and not drops and type(stack.encoding_at(i)).add in (Encoding.add, Additive.add)

    embedding, x_fp16 = stack.embedding, None
    x = x.to(weights.dtype)
    use_fp16 = not pre and _uses_float16(stack, x)
    if x.shape[3] <= MAX_EMBED_FEATURES:
        x, x_fp16 = Embed.apply(x, embedding.matrix, embedding.bias, pe_at(0), writes_fp16(0))
    else:
        x = Project.apply(x, embedding.matrix, embedding.bias, weights.matrix(embedding))
        x = stack.encoding.add(x, 0) if pe_at(0) is not None else x
    for i in range(blocks):
        block: Any = stack.blocks[i]
        encoding = stack.encoding_at(i)
        if type(encoding).add not in (Encoding.add, Additive.add) or (pre and i > 0):
            x = encoding.add(x, i)
        if drops:
            stream = random.stream(stack.dropout_keys, stack.dropout_step(i, step))
            x = Drop.apply(x, stream, stack.keep, first_row * x[0, 0].numel())
        at = slice(n - 1, n) if last_alone(i) else ALL
        if pre:
            x = block(x, encoding, i, at, None)
            continue
        x = x.to(weights.dtype)
        if _is_fused(encoding, member.heads, n, member.width):
            if with_fp16(i) and x_fp16 is None:
                x_fp16 = x.detach().to(torch.float16, memory_format=torch.contiguous_format)
            sublayer = _folded_sublayer if member.heads == 1 else _attention_sublayer
            x, x_fp16 = sublayer(block, x, x_fp16, encoding, i, at, weights)
        else:
            x, x_fp16 = _attention_by_pieces(block, x, encoding, i, at, weights, use_fp16 and not last_alone(i))
        x, x_fp16 = _mlp_sublayer(
            block, x, x_fp16, None if last_alone(i) else pe_at(i + 1), weights, writes_fp16(i + 1)
        )
    if stack.final_norm is not None:
        x = stack.final_norm(x)
    x = x[:, :, -1] if stack.readout == "last" else x.mean(2) if stack.readout == "mean" else x
    outputs: Tensor = stack.answer(x)
    if use_fp16 and stack.inverse_scale is not None:
        outputs = ScaleGradients.apply(outputs, stack.inverse_scale)
    return stack.amplified(outputs)  # last, so that the gradients that `ScaleGradients` scales include the output gain


def _uses_float16(stack: Stack, x: Tensor) -> bool:
    """Return whether products use float16: the precision setting allows it, and gradients are scaled or not needed."""
    scaled_or_not_needed = stack.inverse_scale is not None or not torch.is_grad_enabled()
    return scaled_or_not_needed and stack.allows_float16 and kernels.uses_float16(x)


def _is_fused(encoding: Encoding, heads: int, tokens: int, width: int) -> bool:
    """Return whether the fused kernels support attention with this encoding and these sizes.

    The encoding must not change queries and keys. What it adds to the scores, if anything, must be the same for all
    examples and members, unless it is `Relative` with a single head. The tokens and features of a head must fit into
    the memory on the chip.
    """
    if encoding.rotated:
        return False
    long = long_attention.suits(tokens, width // heads)
    if _is_relative(encoding):
        return heads == 1 and tokens <= attention.MAX_TILE_TOKENS and not long
    return _adds_the_same(encoding) and (tokens <= attention.MAX_TILE_TOKENS or long)


def _is_relative(encoding: Encoding) -> bool:
    """Return whether an encoding adds the score bias of `Relative`, for which there is a kernel."""
    return isinstance(encoding, Relative) and type(encoding).bias is Relative.bias


def _adds_the_same(encoding: Encoding) -> bool:
    """Return whether the score bias of an encoding is known to be equal for all examples and members."""
    return type(encoding).bias in (Encoding.bias, Alibi.bias)


WithFp16 = tuple[Tensor, Tensor | None]
"""The result of a sublayer, and the same values in float16 if products use it, otherwise None."""


def _folded_sublayer(
    block: Block, x: Tensor, x_fp16: Tensor | None, encoding: Encoding, i: int, at: slice, weights: Weights
) -> WithFp16:
    """Return LN(x + attention(x)) of block i, (members, examples, tokens, features), at the tokens `at`, for models
    with one head.

    LN is a layer norm. The query and key matrices, and the value and output matrices, are multiplied with each other
    first (see `Fold`). `x_fp16` is x in float16, or None. If it is not None, the result is also returned in float16.
    """
    layer, out, norm = block.attention.projection, block.attention.out, block.norm_1
    vectors, index = None, None
    if _is_relative(encoding):
        assert isinstance(encoding, Relative)
        vectors, index = encoding.table[:, i], encoding.table_rows[:, at, : x.shape[2]].int().contiguous()
    *folded, offset = Fold.apply(
        layer.matrix, layer.bias, out.matrix, out.bias, vectors, weights.matrix(layer)[1], weights.matrix(out)[1],
    )  # fmt: skip
    sinks = (None, *(weights.sinks(norm.scale, norm.shift) or (None, None)))
    table = _table(encoding, x, i, at, heads=1)
    result: WithFp16 = FoldedSublayer.apply(
        x, x_fp16, *folded, offset, norm.scale, norm.shift, table, index, at != ALL, sinks,
    )  # fmt: skip
    return result


def _attention_sublayer(
    block: Block, x: Tensor, x_fp16: Tensor | None, encoding: Encoding, i: int, at: slice, weights: Weights
) -> WithFp16:
    """Return LN(x + attention(x)) of block i, (members, examples, tokens, features), at the tokens `at`. LN is a layer
    norm.

    `x_fp16` is x in float16, or None. If it is not None, the result is also returned in float16.
    """
    layer, out, norm = block.attention.projection, block.attention.out, block.norm_1
    result: WithFp16 = AttentionSublayer.apply(
        x, x_fp16, layer.matrix, layer.bias, out.matrix, out.bias, norm.scale, norm.shift,
        _table(encoding, x, i, at, block.attention.heads), block.attention.heads, at != ALL,
        weights.matrix(layer), weights.matrix(out),
        weights.sinks(layer.bias), weights.sinks(out.bias, norm.scale, norm.shift),
    )  # fmt: skip
    return result


def _attention_by_pieces(
    block: Block, x: Tensor, encoding: Encoding, i: int, at: slice, weights: Weights, with_fp16: bool
) -> WithFp16:
    """Return LN(x + attention(x)) of block i, (members, examples, tokens, features), at the tokens `at`, for any
    encoding.

    LN is a layer norm. Torch computes attention with the methods of the encoding, which may change queries, keys and
    scores, and autograd differentiates it. If `with_fp16` is true, the result is also returned in float16.
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
    result: WithFp16 = OutputSublayer.apply(
        x[:, :, at], mixed, out.matrix, out.bias, norm.scale, norm.shift,
        weights.matrix(out), weights.sinks(out.bias, norm.scale, norm.shift), with_fp16,
    )  # fmt: skip
    return result


def _table(encoding: Encoding, x: Tensor, i: int, at: slice, heads: int) -> Tensor | None:
    """Return what an encoding adds to attention scores in block i, (1 or heads, queries `at`, keys), or None for
    nothing.

    It is the same for all members and examples: the score bias (as in ALiBi), plus -inf where the mask hides a key from
    a query. A score bias that depends on the queries, as in `Relative`, is left out.
    """
    n, table = x.shape[2], None
    if _adds_the_same(encoding):
        probe = x.new_empty(1, 1, heads, len(range(n)[at]), x.shape[-1] // heads, dtype=torch.float32)
        table = encoding.bias(probe, i, at)
    if (visible := encoding.mask(n, at)) is not None:
        hidden = torch.zeros(visible.shape, device=x.device).masked_fill(~visible, -torch.inf)
        table = hidden if table is None else table + hidden
    return None if table is None else table.reshape(-1, *table.shape[-2:]).float().contiguous()


def _mlp_sublayer(
    block: Block, x: Tensor, x_fp16: Tensor | None, pe: Tensor | None, weights: Weights, with_fp16: bool
) -> WithFp16:
    """Return LN(x + MLP(x)), where LN is a layer norm, plus `pe`, the PE of the next block, unless that is None.

    `x_fp16` is x in float16, or None. If `with_fp16` is true, the result is also returned in float16.
    """
    up, down, norm = block.up, block.down, block.norm_2
    result: WithFp16 = MlpSublayer.apply(
        x, x_fp16, up.matrix, up.bias, down.matrix, down.bias, norm.scale, norm.shift,
        pe, weights.matrix(up), weights.matrix(down),
        weights.sinks(up.bias), weights.sinks(down.bias, norm.scale, norm.shift), with_fp16,
    )  # fmt: skip
    return result
