"""The contract of an encoding: how a model is told where a token is.

One instance serves all members of a stack. It has up to four hooks, each the identity unless overridden, and `vectors`.
Shapes carry the member axis e first: x (e, b, n, d); q (e, b, h, m, c) with m the query positions `at`, c = d / h.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from placecode.errors import BadInput, must_be, one_of
from placecode.models.member import Member

ALL = slice(None)


@dataclass(frozen=True)
class Layout:
    """The tokens a stack reads: how many, and their true coordinates (n, k) where the task knows them."""

    tokens: int
    positions: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.positions is not None and (self.positions.ndim != 2 or len(self.positions) != self.tokens):
            raise must_be("positions", f"an array ({self.tokens} tokens, coordinates)", self.positions.shape)

    def coordinates(self, axes: int) -> np.ndarray:
        """Coordinates (n, axes): the place in the sequence for one axis, the true positions for more."""
        if axes == 1:
            return np.arange(self.tokens, dtype=np.float64)[:, None]
        known = 0 if self.positions is None else self.positions.shape[1]
        if known != axes:
            has = f"true positions with {known} coordinates" if known else "no known positions"
            raise BadInput(
                f"axes must be 1 or the number of coordinates of the tokens; got {axes}, but they have {has}."
            )
        assert self.positions is not None
        return self.positions.astype(np.float64)

    def places(self, start: str) -> np.ndarray:
        """The true positions (n, k), for a start that is made from them."""
        if self.positions is None:
            raise BadInput(f"the start {start} must be that of tokens with known positions; these have none.")
        return self.positions.astype(np.float64)


class Encoding(nn.Module):
    """Base class. A family overrides what it needs of `add`, `rotate`, `bias`, `mask` and `vectors`.

    Learnable parameters have the member axis first: (e, ...). They get the member's `pe_learning_rate`.
    """

    defaults: ClassVar[Mapping[str, Any]] = {}
    """The options of the family with their defaults; anything else in `Member.options` is refused."""
    uses_sigma: ClassVar[bool] = False
    """Whether sigma shapes the start; if not, tables show no sigma."""
    takes_array: ClassVar[bool] = False
    """Whether it can be started from a given array."""
    learns: Tensor
    """Whether the encoding's parameters are trained, (e,), member by member."""

    def __init__(self, members: Sequence[Member], layout: Layout) -> None:
        super().__init__()
        self.tokens = layout.tokens
        self.register_buffer("learns", torch.tensor([member.learn for member in members]), persistent=False)

    @classmethod
    def family(cls, member: Member) -> tuple[object, ...]:
        """What members must share to be served by one instance. A subclass may allow more to differ."""
        return (cls.__qualname__, member.encoding, cls.settings(member))

    @classmethod
    def settings(cls, member: Member) -> tuple[tuple[str, Any], ...]:
        """The options of `member`, defaults filled in."""
        for name in member.options:
            if name not in cls.defaults:
                raise one_of(f"an option of the encoding {member.encoding}", cls.defaults or ["(none)"], name)
        return tuple({**cls.defaults, **member.options}.items())

    def among(self, q: Tensor, at: slice) -> tuple[slice, slice]:
        """Rows and columns of an array over all tokens, (n, n), that the scores of q need: a drop-in may read fewer."""
        if at != ALL:
            return at, ALL
        if q.shape[-2] > self.tokens:
            raise BadInput(f"q must have at most {self.tokens} tokens, as many as the encoding; got {q.shape[-2]}.")
        return slice(q.shape[-2]), slice(q.shape[-2])

    def add(self, x: Tensor, block: int) -> Tensor:
        """The input of a block with the PE added: (e, b, n, d) -> (e, b, n, d)."""
        return x

    def rotate(self, q: Tensor, k: Tensor, block: int = 0, at: slice = ALL) -> tuple[Tensor, Tensor]:
        """Queries at positions `at` (e, b, h, m, c) and keys (e, b, h, n, c), turned by their positions."""
        return q, k

    @property
    def rotated(self) -> tuple[str, ...]:
        """What `rotate` changes: both "queries" and "keys" where it is overridden, unless an encoding says less.

        Attention is computed sooner where it changes nothing, and without the bias of the keys where they stay.
        """
        return () if type(self).rotate is Encoding.rotate else ("queries", "keys")

    def bias(self, q: Tensor, block: int = 0, at: slice = ALL) -> Tensor | None:
        """What is added to the scaled scores, broadcastable to (e, b, h, m, n); None for nothing."""
        return None

    def mask(self, n: int, at: slice = ALL) -> Tensor | None:
        """Which keys a query may see, (m, n), True = may; None for all."""
        return None

    def vectors(self) -> Tensor | None:
        """The PE itself, (e, l, n, d), where the encoding has one vector per token; else None."""
        return None
