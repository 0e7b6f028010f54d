"""The layers of a transformer block for many models at once: layer norm, linear layer, attention and MLP.

The first axis of parameters and activations is the member (model). Shapes: e members, b examples, n tokens, d features,
h heads, c = d / h features per head, m query positions (the slice `at`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placecode.encodings import ALL, Encoding

MIN_FUSED_TOKENS = 64
"""Smallest number of tokens for which torch's fused attention is faster than separate operations on a CPU."""


Capture = Callable[[str, Tensor], None]
"""Function that is called with the name and the value of each activation of a forward pass."""


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x @ weight + bias, separately for each member: (e, ..., i), (e, i, o) and (e, o) -> (e, ..., o)."""
    rows = torch.baddbmm(bias[:, None], x.reshape(x.shape[0], -1, x.shape[-1]), weight)
    return rows.view(*x.shape[:-1], weight.shape[-1])


class Norm(nn.Module):
    """Layer norm over the features, with one scale and one shift vector per member."""

    def __init__(self, members: int, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(members, width, dtype=torch.float64))
        self.shift = nn.Parameter(torch.zeros(members, width, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:  # (e, b, n, d)
        plain = F.layer_norm(x, x.shape[-1:])
        return torch.addcmul(
            self.shift[:, None, None].to(plain.dtype), plain, self.scale[:, None, None].to(plain.dtype)
        )


class Linear(nn.Module):
    """One linear layer per member. `Stack` draws the initial values.

    `weight` has shape (e, inputs, outputs), or (e, outputs, inputs) if there are more inputs than outputs: the longer
    side is last, because GPU libraries multiply this layout faster. `bias` has shape (e, outputs).
    """

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.flipped = inputs > outputs
        sides = (outputs, inputs) if self.flipped else (inputs, outputs)
        self.weight = nn.Parameter(torch.empty(members, *sides, dtype=torch.float64))
        self.bias = nn.Parameter(torch.empty(members, outputs, dtype=torch.float64))

    def as_matrix(self, weight: Tensor) -> Tensor:
        """Return a view, (e, inputs, outputs), of an array that has the shape of `self.weight`."""
        return weight.mT if self.flipped else weight

    @property
    def matrix(self) -> Tensor:
        """The weights as a view of shape (e, inputs, outputs)."""
        return self.as_matrix(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.matrix, self.bias)


class Attention(nn.Module):
    """Multi-head self-attention with one linear layer for queries, keys and values, as in `nn.MultiheadAttention`."""

    def __init__(self, members: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.fused = False  # whether torch's fused attention, which stores no scores, may evaluate long sequences
        self.projection = Linear(members, width, 3 * width)
        self.out = Linear(members, width, width)

    def forward(self, x: Tensor, encoding: Encoding, block: int, at: slice, capture: Capture | None) -> Tensor:
        """Return the output of attention on x, (e, b, n, d), for the m tokens `at`: (e, b, m, d).

        `block` is the index of the block, which the encoding may depend on. `capture` receives the attention weights.
        """
        result: Tensor = self.out(self.mix(x, encoding, block, at, capture))
        return result

    def mix(self, x: Tensor, encoding: Encoding, block: int, at: slice, capture: Capture | None) -> Tensor:
        """Return the attention-weighted values of all heads, concatenated, before the output layer: (e, b, m, d)."""
        d, (weight, bias) = x.shape[-1], (self.projection.matrix, self.bias_with(encoding))
        if at == ALL:
            q, k, v = linear(x, weight, bias).chunk(3, dim=-1)
        else:
            q = linear(x[:, :, at], weight[..., :d], bias[:, :d])
            k, v = linear(x, weight[..., d:], bias[:, d:]).chunk(2, dim=-1)
        q, k, v = (part.view(*part.shape[:-1], self.heads, -1).transpose(2, 3) for part in (q, k, v))  # (e, b, h, n, c)
        q, k = encoding.rotate(q, k, block, at)
        return self.attend(q, k, v, encoding, block, at, capture).transpose(2, 3).flatten(-2)

    def bias_with(self, encoding: Encoding) -> Tensor:
        """Return the bias of the projection, (e, 3 d), with zeros for the keys unless the encoding rotates keys.

        Without rotation, the key bias adds a constant to all scores of a query, which softmax cancels. Setting it to
        zero makes its gradient exactly zero. Otherwise the gradient is a rounding error that Adam would amplify.
        """
        bias: Tensor = self.projection.bias
        if "keys" in encoding.rotated:
            return bias
        query, key, value = bias.chunk(3, -1)
        return torch.cat([query, torch.zeros_like(key), value], -1)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, encoding: Encoding, block: int, at: slice, capture: Capture | None
    ) -> Tensor:
        """Return the attention-weighted mean of the values v for each of m queries q, in the shape of q.

        q has shape (e, b, h, m, c), and k and v have shape (e, b, h, n, c).
        """
        bias, mask = encoding.bias(q, block, at), encoding.mask(k.shape[-2], at)
        needs_weights = capture is not None or torch.is_grad_enabled()
        if self.fused and not needs_weights and bias is None and mask is None and k.shape[-2] >= MIN_FUSED_TOKENS:
            mixed = F.scaled_dot_product_attention(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1))
            return mixed.view(q.shape)
        scores = (q * q.shape[-1] ** -0.5) @ k.mT  # (e, b, h, m, n)
        if bias is not None:
            scores = scores + bias
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        weights = scores.softmax(-1)
        if capture is not None:
            capture(f"attention.{block}", weights)
        return torch.matmul(weights, v)


class Block(nn.Module):
    """Transformer block: attention and MLP, each with a residual connection and a layer norm.

    If `pre`, layer norms come before attention and MLP (pre-norm), otherwise after the residual sums (post-norm).
    """

    def __init__(self, members: int, width: int, heads: int, hidden: int, pre: bool) -> None:
        super().__init__()
        self.pre = pre
        self.attention = Attention(members, width, heads)
        self.norm_1 = Norm(members, width)
        self.up = Linear(members, width, hidden)
        self.down = Linear(members, hidden, width)
        self.norm_2 = Norm(members, width)

    def mlp(self, x: Tensor) -> Tensor:
        """Return the output of the MLP, which has GELU after both linear layers as in the paper."""
        return F.gelu(self.down(F.gelu(self.up(x))))

    def forward(self, x: Tensor, encoding: Encoding, block: int, at: slice, capture: Capture | None) -> Tensor:
        """Return the output of the block with this index for x, (e, b, n, d), at the m tokens `at`: (e, b, m, d)."""
        if self.pre:
            x = x[:, :, at] + self.attention(self.norm_1(x), encoding, block, at, capture)
            x = x + self.mlp(self.norm_2(x))
        else:
            x = self.norm_1(x[:, :, at] + self.attention(x, encoding, block, at, capture))
            x = self.norm_2(x + self.mlp(x))
        return x
