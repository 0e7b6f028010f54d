"""Encodings that act on the attention scores: learned relative positions, ALiBi, and the causal mask."""

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
from placecode.errors import BadInput, one_of
from placecode.models.member import Member
from placecode.validation import real_number, switch, whole_number


class Relative(Encoding):
    """Learned vectors for the offset between key and query, in both directions, added to the keys (Shaw et al. 2018).

    One vector per block and offset, shared by the heads; with several axes, one per axis and offset, and their sum.
    Offsets beyond `max_distance` are counted as that distance. As a drop-in: `scores = q @ k.mT / c**0.5 + pe.bias(q)`.

    With `causal` a token sees only itself and those before it, as in the authors' code; then `pe.mask(n)` says which,
    and the vectors of keys that come later are never used.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"axes": 1, "max_distance": None, "causal": False}
    uses_sigma = True
    places: Tensor

    def __init__(self, members: Sequence[Member], layout: Layout) -> None:
        super().__init__(members, layout)
        options, first = dict(self.settings(members[0])), members[0]
        self.causal = switch("causal", options["causal"])
        coordinates = layout.coordinates(whole_number("axes", options["axes"], least=1))
        if not np.array_equal(coordinates, np.round(coordinates)):
            raise BadInput("relative positions must be whole numbers; the true positions of these tokens are not.")
        offsets = (coordinates[None] - coordinates[:, None]).astype(int)  # (n, n, k): key minus query
        reach = int(abs(offsets).max())
        if options["max_distance"] is not None:
            reach = whole_number("max_distance", options["max_distance"], least=1)
        places = np.clip(offsets, -reach, reach) + reach + (2 * reach + 1) * np.arange(offsets.shape[-1])
        self.register_buffer("places", torch.from_numpy(places).permute(2, 0, 1), persistent=False)  # (k, n, n)
        blocks = first.layers if first.placement == "every" else 1
        shape = (blocks, (2 * reach + 1) * offsets.shape[-1], first.width // first.heads)
        starts = np.stack([scaled_draw(member, shape) for member in members])
        self.table = nn.Parameter(torch.from_numpy(starts))  # (e, l, r, c)

    def bias(self, q: Tensor, block: int = 0, at: slice = ALL) -> Tensor:
        if q.dim() == 4:
            return self.bias(q[None], block, at)[0]
        e, b, h, m, c = q.shape
        products = torch.bmm(q.reshape(e, -1, c), self.table[:, block].mT).view(e, b, h, m, -1)
        places = self.places[:, *self.among(q, at)]  # (k, m, n)
        total: Tensor = reduce(torch.add, [_Pick.apply(products, axis) for axis in places])  # type: ignore[no-untyped-call]
        return total / math.sqrt(c)

    def mask(self, n: int, at: slice = ALL) -> Tensor | None:
        return up_to_itself(n, at, self.learns.device) if self.causal else None


class _Pick(torch.autograd.Function):
    """products[..., places]: (e, b, h, m, r) and (m, n) -> (e, b, h, m, n).

    The way back adds up where places repeat. Torch's own does so in any order on a GPU; this one's digits are the same
    every time: a product with a matrix of zeros and ones for each query.
    """

    @staticmethod
    def forward(ctx: Any, products: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.size = products.shape[-1]
        return products.gather(-1, places.expand(*products.shape[:3], *places.shape))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        if grad.device.type == "cpu":
            back = grad.new_zeros(*grad.shape[:4], ctx.size)
            return back.scatter_add_(-1, places.expand(grad.shape), grad), None
        back = grad.new_empty(*grad.shape[:4], ctx.size)
        spread = torch.arange(ctx.size, device=grad.device)
        for query, row in enumerate(places):  # one at a time: all together could be large
            back[..., query, :] = grad[..., query, :] @ (row[:, None] == spread).to(grad.dtype)
        return back, None


class Alibi(Encoding):
    """A penalty on the scores that grows with distance, steeper or flatter from head to head (Press et al. 2022).

    In both directions, as an encoder reads; with several axes the distance is euclidean or manhattan. The slopes are
    2^(-steepness h / heads), h = 1 ... heads. As a drop-in: `scores = q @ k.mT / c**0.5 + pe.bias(q)`.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"axes": 1, "distance": "euclidean", "steepness": 8.0}
    penalty: Tensor

    def __init__(self, members: Sequence[Member], layout: Layout) -> None:
        super().__init__(members, layout)
        options, heads = dict(self.settings(members[0])), members[0].heads
        if options["distance"] not in ("euclidean", "manhattan"):
            raise one_of("distance", ("euclidean", "manhattan"), options["distance"])
        coordinates = layout.coordinates(whole_number("axes", options["axes"], least=1))
        offsets = torch.from_numpy(coordinates[None] - coordinates[:, None])  # (n, n, k)
        distance = offsets.norm(p=2 if options["distance"] == "euclidean" else 1, dim=-1)  # (n, n), exact
        slopes = slopes_for(heads, real_number("steepness", options["steepness"], above=0))
        self.register_buffer("penalty", -slopes[:, None, None] * distance, persistent=False)  # (h, n, n)

    def bias(self, q: Tensor, block: int = 0, at: slice = ALL) -> Tensor:
        return self.penalty[:, *self.among(q, at)].to(q.dtype)


def slopes_for(heads: int, steepness: float = 8.0) -> Tensor:
    """ALiBi's slopes, (h,): a geometric sequence for powers of two; else those of the next power below, filled up with
    every other slope of twice as many heads."""

    def geometric(count: int) -> Tensor:
        return 2.0 ** (-steepness * torch.arange(1, count + 1, dtype=torch.float64) / count)

    power = 1 << (heads.bit_length() - 1)
    return torch.cat([geometric(power), geometric(2 * power)[::2][: heads - power]])


class CausalNone(Encoding):
    """No position, but a token sees only itself and those before it: the paper's c-nope.

    The scaled scores are divided by `temperature`: below 1, attention is sharper. The authors' code has 0.01. Queries
    are divided instead, which is the same. As a drop-in: `q, k = pe.rotate(q, k)`, and `pe.mask(n)` on the scores.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"temperature": 1.0}

    def __init__(self, members: Sequence[Member], layout: Layout) -> None:
        super().__init__(members, layout)
        self.temperature = real_number("temperature", dict(self.settings(members[0]))["temperature"], above=0)

    def rotate(self, q: Tensor, k: Tensor, block: int = 0, at: slice = ALL) -> tuple[Tensor, Tensor]:
        return (q, k) if self.temperature == 1 else (q / self.temperature, k)

    @property
    def rotated(self) -> tuple[str, ...]:
        if type(self).rotate is not CausalNone.rotate:  # a subclass with its own
            return super().rotated
        return () if self.temperature == 1 else ("queries",)

    def mask(self, n: int, at: slice = ALL) -> Tensor:
        return up_to_itself(n, at, self.learns.device)


def up_to_itself(n: int, at: slice, device: torch.device) -> Tensor:
    """The causal mask of the queries `at`, (m, n): True for the token itself and those before it."""
    return torch.ones(n, n, dtype=torch.bool, device=device).tril()[at]
