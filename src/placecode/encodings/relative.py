"""Positional encodings that change attention scores: learned relative positions, ALiBi, and NoPE with a causal mask."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from placecode.encodings.additive import scaled_draw
from placecode.encodings.base import ALL, Encoding, Layout
from placecode.errors import BadInput, must_be
from placecode.models.member import Member
from placecode.validation import choice, real_number, whole_number


class Relative(Encoding):
    """Relative positional encoding: a learned vector is added to each key (Shaw et al. 2018).

    The vector depends on the offset, the position of the key minus the position of the query. Each block has one vector
    per offset, shared by the heads. With several axes, each axis has its own vectors, and the vectors of the axes are
    added. Offsets beyond the option `max_distance` are clipped to it. With the option `causal`, a token attends only to
    itself and to earlier tokens, as in the code published with the paper (Ito et al.).

    To use it in your own model, compute `scores = q @ k.mT / c**0.5 + pe.bias(q)` from queries and keys of shape
    (b, h, n, c), with c features per head. If `causal`, also set scores to -inf where `pe.mask(n)` is False.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"axes": 1, "max_distance": None, "causal": False}
    uses_sigma = True
    table_rows: Tensor
    """Index of the learned vector, a row of a block's table, for each of k axes, n queries and n keys, (k, n, n)."""

    def __init__(self, members: Sequence[Member], layout: Layout) -> None:
        super().__init__(members, layout)
        options, first = dict(self.settings(members[0])), members[0]
        causal = options["causal"]
        if not isinstance(causal, int) or causal not in (0, 1):  # the command line passes booleans as 1 or 0
            raise must_be("causal", "True or False, or 1 or 0", causal)
        self.causal = bool(causal)
        coordinates = layout.coordinates(whole_number("axes", options["axes"], least=1))
        if not np.array_equal(coordinates, np.round(coordinates)):
            raise BadInput("relative positions must be whole numbers; the true positions of these tokens are not.")
        offsets = (coordinates[None] - coordinates[:, None]).astype(int)  # (n, n, k): key minus query
        largest = int(abs(offsets).max())
        if options["max_distance"] is not None:
            largest = whole_number("max_distance", options["max_distance"], least=1)
        rows = np.clip(offsets, -largest, largest) + largest + (2 * largest + 1) * np.arange(offsets.shape[-1])
        self.register_buffer("table_rows", torch.from_numpy(rows).permute(2, 0, 1), persistent=False)  # (k, n, n)
        blocks = first.layers if first.placement == "every" else 1
        shape = (blocks, (2 * largest + 1) * offsets.shape[-1], first.width // first.heads)
        initial = np.stack([scaled_draw(member, shape) for member in members])
        self.table = nn.Parameter(torch.from_numpy(initial))  # (e, l, r, c): r vectors per block

    def bias(self, q: Tensor, block: int = 0, at: slice = ALL) -> Tensor:
        if q.dim() == 4:
            return self.bias(q[None], block, at)[0]
        e, b, h, m, c = q.shape
        products = torch.bmm(q.reshape(e, -1, c), self.table[:, block].mT).view(e, b, h, m, -1)
        rows = self.table_rows[:, *self.among(q, at)]  # (k, m, n)
        total: Tensor = reduce(torch.add, [_Select.apply(products, axis_rows) for axis_rows in rows])  # type: ignore[no-untyped-call]
        return total / math.sqrt(c)

    def mask(self, n: int, at: slice = ALL) -> Tensor | None:
        return causal_mask(n, at, self.learns.device) if self.causal else None


class _Select(torch.autograd.Function):
    """Select for query i and key j the product of the query with vector `index[i, j]` of a table of r vectors.

    `products`, (e, b, h, m, r), has the products of all queries with all vectors. The result has shape (e, b, h, m, n).
    If several keys select the same product, the gradient of this product is a sum, which torch would compute in a
    random order on a GPU. To be deterministic, the backward pass on a GPU multiplies by a matrix of zeros and ones for
    each query instead.
    """

    @staticmethod
    def forward(ctx: Any, products: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.size = products.shape[-1]
        return products.gather(-1, index.expand(*products.shape[:3], *index.shape))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        if grad.device.type == "cpu":
            d_products = grad.new_zeros(*grad.shape[:4], ctx.size)
            return d_products.scatter_add_(-1, index.expand(grad.shape), grad), None
        d_products = grad.new_empty(*grad.shape[:4], ctx.size)
        columns = torch.arange(ctx.size, device=grad.device)
        for query, row in enumerate(index):  # one query at a time, to limit memory
            d_products[..., query, :] = grad[..., query, :] @ (row[:, None] == columns).to(grad.dtype)
        return d_products, None


class Alibi(Encoding):
    """ALiBi (Press et al. 2022): a penalty on the attention scores that grows linearly with distance.

    Each head has a different slope, which `slopes_for` computes from the option `steepness`. The penalty is the same
    for earlier and later tokens. The option `distance` is "euclidean" or "manhattan", which differ only with several
    axes.

    To use it in your own model, compute `scores = q @ k.mT / c**0.5 + pe.bias(q)` from queries and keys of shape
    (b, h, n, c), with c features per head.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"axes": 1, "distance": "euclidean", "steepness": 8.0}
    penalty: Tensor
    """Minus slope times distance, added to the scores, (h, n, n)."""

    def __init__(self, members: Sequence[Member], layout: Layout) -> None:
        super().__init__(members, layout)
        options = dict(self.settings(members[0]))
        choice("distance", options["distance"], ("euclidean", "manhattan"))
        coordinates = layout.coordinates(whole_number("axes", options["axes"], least=1))
        offsets = torch.from_numpy(coordinates[None] - coordinates[:, None])  # (n, n, k)
        distance = offsets.norm(p=2 if options["distance"] == "euclidean" else 1, dim=-1)  # (n, n), exact
        slopes = slopes_for(members[0].heads, real_number("steepness", options["steepness"], above=0))
        self.register_buffer("penalty", -slopes[:, None, None] * distance, persistent=False)  # (h, n, n)

    def bias(self, q: Tensor, block: int = 0, at: slice = ALL) -> Tensor:
        return self.penalty[:, *self.among(q, at)].to(q.dtype)


def slopes_for(heads: int, steepness: float = 8.0) -> Tensor:
    """Return the slope of each head in ALiBi, (heads,).

    If the number of heads is a power of two, the slopes are the geometric sequence 2^(-steepness i / heads) for
    i = 1, ..., heads, so the last one is 2^(-steepness). Otherwise they are the slopes for the next smaller power of
    two, p, followed by the first, third, fifth, ... slope for 2 p heads.

    >>> slopes_for(4).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625]
    """

    def geometric(count: int) -> Tensor:
        return 2.0 ** (-steepness * torch.arange(1, count + 1, dtype=torch.float64) / count)

    power = 1 << (heads.bit_length() - 1)
    return torch.cat([geometric(power), geometric(2 * power)[::2][: heads - power]])


class CausalNone(Encoding):
    """NoPE (no PE) with a causal mask, c-nope of Ito et al.: a token attends only to itself and to earlier tokens.

    The option `temperature` divides the scaled attention scores. Values below 1 make attention sharper. The code
    published with the paper uses 0.01. Here the queries are divided instead of the scores, which is equivalent.

    To use it in your own model, call `q, k = pe.rotate(q, k)`, which divides the queries by the temperature, and set
    attention scores to -inf where `pe.mask(n)` is False.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"temperature": 1.0}

    def __init__(self, members: Sequence[Member], layout: Layout) -> None:
        super().__init__(members, layout)
        self.temperature = real_number("temperature", dict(self.settings(members[0]))["temperature"], above=0)

    def rotate(self, q: Tensor, k: Tensor, block: int = 0, at: slice = ALL) -> tuple[Tensor, Tensor]:
        return (q, k) if self.temperature == 1 else (q / self.temperature, k)

    @property
    def rotated(self) -> tuple[str, ...]:
        if type(self).rotate is not CausalNone.rotate:  # a subclass overrides it
            return super().rotated
        return () if self.temperature == 1 else ("queries",)

    def mask(self, n: int, at: slice = ALL) -> Tensor:
        return causal_mask(n, at, self.learns.device)


def causal_mask(n: int, at: slice, device: torch.device) -> Tensor:
    """Return the causal mask, (m, n), of n keys for the m queries at the positions `at`.

    It is True where the key is the query's own token or an earlier one.
    """
    return torch.ones(n, n, dtype=torch.bool, device=device).tril()[at]
