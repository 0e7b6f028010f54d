"""The parts of a transformer block, for all members of a stack at once: norm, linear layer, attention, MLP."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placecode import encodings
from placecode.encodings import ALL

LONG = 64
"""Tokens from which on torch's fused attention is the faster one on a CPU."""


Capture = Callable[[str, Tensor], None]


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer per member: x (e, ..., i), weight (e, i, o), bias (e, o) -> (e, ..., o)."""
    rows = torch.baddbmm(bias[:, None], x.reshape(x.shape[0], -1, x.shape[-1]), weight)
    return rows.view(*x.shape[:-1], weight.shape[-1])


class Norm(nn.Module):
    """Layer norm over features with a scale and shift per member."""

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
    """Weights of a linear layer per member. Starts as torch's: uniform within 1 / sqrt(in).

    `matrix` is (e, in, out); `weight` holds it with the longer side last, where GPU libraries multiply faster.
    """

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.flipped = inputs > outputs
        sides = (outputs, inputs) if self.flipped else (inputs, outputs)
        self.weight = nn.Parameter(torch.empty(members, *sides, dtype=torch.float64))
        self.bias = nn.Parameter(torch.empty(members, outputs, dtype=torch.float64))

    def as_matrix(self, weight: Tensor) -> Tensor:
        """An array laid out as `weight`, seen as (e, in, out)."""
        return weight.mT if self.flipped else weight

    @property
    def matrix(self) -> Tensor:
        return self.as_matrix(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.matrix, self.bias)


class Attention(nn.Module):
    """Self-attention; the queries, keys and values come from one projection, as in torch's MultiheadAttention.

    Where `fused` says that it may, torch's fused attention evaluates long sequences on a CPU: it stores no scores.
    """

    def __init__(self, members: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.fused = False
        self.projection = Linear(members, width, 3 * width)
        self.out = Linear(members, width, width)

    def forward(
        self, x: Tensor, encoding: encodings.Encoding, block: int, at: slice, capture: Capture | None
    ) -> Tensor:
        """x (e, b, n, d) -> (e, b, m, d), m the positions `at`."""
        result: Tensor = self.out(self.mix(x, encoding, block, at, capture))
        return result

    def mix(self, x: Tensor, encoding: encodings.Encoding, block: int, at: slice, capture: Capture | None) -> Tensor:
        """The means of the values that the heads attend to, side by side, (e, b, m, d)."""
        d, (weight, bias) = x.shape[-1], (self.projection.matrix, self.bias_with(encoding))
        if at == ALL:
            q, k, v = linear(x, weight, bias).chunk(3, dim=-1)
        else:
            q = linear(x[:, :, at], weight[..., :d], bias[:, :d])
            k, v = linear(x, weight[..., d:], bias[:, d:]).chunk(2, dim=-1)
        q, k, v = (part.view(*part.shape[:-1], self.heads, -1).transpose(2, 3) for part in (q, k, v))  # (e, b, h, n, c)
        q, k = encoding.rotate(q, k, block, at)
        return self.attend(q, k, v, encoding, block, at, capture).transpose(2, 3).flatten(-2)

    def bias_with(self, encoding: encodings.Encoding) -> Tensor:
        """The projection's bias, (e, 3 d), without that of the keys unless they are turned by their positions.

        It adds the same to all scores of a query, which changes nothing. Left out, its gradient is zero, and not a
        rounding error, which Adam would take for a direction.
        """
        bias: Tensor = self.projection.bias
        if "keys" in encoding.rotated:
            return bias
        query, key, value = bias.chunk(3, -1)
        return torch.cat([query, torch.zeros_like(key), value], -1)

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        encoding: encodings.Encoding,
        block: int,
        at: slice,
        capture: Capture | None,
    ) -> Tensor:
        """The values (e, b, h, n, c) weighted by attention, (e, b, h, m, c)."""
        extra, seen = encoding.bias(q, block, at), encoding.mask(k.shape[-2], at)
        shown = capture is not None or torch.is_grad_enabled()
        if self.fused and not shown and extra is None and seen is None and k.shape[-2] >= LONG:
            mixed = F.scaled_dot_product_attention(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1))
            return mixed.view(q.shape)
        scores = (q * q.shape[-1] ** -0.5) @ k.mT  # (e, b, h, m, n)
        if extra is not None:
            scores = scores + extra
        if seen is not None:
            scores = scores.masked_fill(~seen, -torch.inf)
        weights = scores.softmax(-1)
        if capture is not None:
            capture(f"attention.{block}", weights)
        return torch.matmul(weights, v)


class Block(nn.Module):
    """Attention and MLP with their residual sums and norms, after the sums (post) or before the branches (pre)."""

    def __init__(self, members: int, width: int, heads: int, hidden: int, pre: bool) -> None:
        super().__init__()
        self.pre = pre
        self.attention = Attention(members, width, heads)
        self.norm_1 = Norm(members, width)
        self.up = Linear(members, width, hidden)
        self.down = Linear(members, hidden, width)
        self.norm_2 = Norm(members, width)

    def mlp(self, x: Tensor) -> Tensor:
        return F.gelu(self.down(F.gelu(self.up(x))))

    def forward(
        self, x: Tensor, encoding: encodings.Encoding, block: int, at: slice, capture: Capture | None
    ) -> Tensor:
        if self.pre:
            x = x[:, :, at] + self.attention(self.norm_1(x), encoding, block, at, capture)
            x = x + self.mlp(self.norm_2(x))
        else:
            x = self.norm_1(x[:, :, at] + self.attention(x, encoding, block, at, capture))
            x = self.norm_2(x + self.mlp(x))
        return x
