"""The interface of a positional encoding.

One instance serves all members of a stack. Four methods can be overridden to change the model: `add`, `rotate`, `bias`
and `mask`. By default none of them changes anything.

Shapes: e members, b examples, n tokens, d features, h heads, c = d / h features per head, l blocks. Queries have shape
(e, b, h, m, c) at the m positions `at`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from placecode.errors import BadInput, must_be
from placecode.models.member import Member
from placecode.validation import choice

ALL = slice(None)
"""All query positions."""


@dataclass(frozen=True)
class Layout:
    """The tokens of a stack."""

    tokens: int
    """Number of tokens, n."""
    positions: np.ndarray | None = None
    """True coordinates, (n, k), if they are known."""

    def __post_init__(self) -> None:
        if self.positions is not None and (self.positions.ndim != 2 or len(self.positions) != self.tokens):
            raise must_be("positions", f"an array ({self.tokens} tokens, coordinates)", self.positions.shape)

    def coordinates(self, axes: int) -> np.ndarray:
        """Return the coordinates of the tokens.

        Parameters
        ----------
        axes : int
            1 for the index in the sequence, or the number of true coordinates.

        Returns
        -------
        ndarray, shape (n, axes)
        """
        if axes == 1:
            return np.arange(self.tokens, dtype=np.float64)[:, None]
        known_axes = 0 if self.positions is None else self.positions.shape[1]
        if known_axes != axes:
            has = f"true positions with {known_axes} coordinates" if known_axes else "no known positions"
            raise BadInput(
                f"axes must be 1 or the number of coordinates of the tokens; got {axes}, but they have {has}."
            )
        assert self.positions is not None
        return self.positions.astype(np.float64)

    def places(self, start: str) -> np.ndarray:
        """Return the true positions, (n, k), which the initial values `start` require."""
        if self.positions is None:
            raise BadInput(f"the start {start} must be that of tokens with known positions; these have none.")
        return self.positions.astype(np.float64)


class Encoding(nn.Module):
    """Base class of positional encodings.

    Subclasses override some of `add`, `rotate`, `bias`, `mask` and `vectors`. Trainable parameters have the member axis
    first, (e, ...). Their learning rate is `Member.pe_learning_rate`.

    Parameters
    ----------
    members : sequence of Member
        The e members that share the instance.
    layout : Layout
    """

    defaults: ClassVar[Mapping[str, Any]] = {}
    """The options of the encoding and their default values. Other names in `Member.options` raise `BadInput`."""
    uses_sigma: ClassVar[bool] = False
    """Whether the initial values depend on sigma. If not, tables of results omit sigma."""
    takes_array: ClassVar[bool] = False
    """Whether the initial values can be an array."""
    learns: Tensor
    """Whether the parameters of each member are trained, (e,)."""

    def __init__(self, members: Sequence[Member], layout: Layout) -> None:
        super().__init__()
        self.tokens = layout.tokens
        self.register_buffer("learns", torch.tensor([member.learn for member in members]), persistent=False)

    @classmethod
    def family(cls, member: Member) -> tuple[object, ...]:
        """Return a key that is equal for members that can share one instance. By default all options must be equal."""
        return (cls.__qualname__, member.encoding, cls.settings(member))

    @classmethod
    def settings(cls, member: Member) -> tuple[tuple[str, Any], ...]:
        """Return the options of a member as (name, value) pairs, with default values where it sets none."""
        for name in member.options:
            choice(f"an option of the encoding {member.encoding}", name, cls.defaults or ["(none)"])
        return tuple({**cls.defaults, **member.options}.items())

    def among(self, q: Tensor, at: slice) -> tuple[slice, slice]:
        """Return the rows and columns of an (n, n) array that belong to the scores of q. Outside a stack, an encoding
        may be applied to fewer than n tokens."""
        if at != ALL:
            return at, ALL
        if q.shape[-2] > self.tokens:
            raise BadInput(f"q must have at most {self.tokens} tokens, as many as the encoding; got {q.shape[-2]}.")
        return slice(q.shape[-2]), slice(q.shape[-2])

    def add(self, x: Tensor, block: int) -> Tensor:
        """Add the PE to the input of a block, (e, b, n, d)."""
        return x

    def rotate(self, q: Tensor, k: Tensor, block: int = 0, at: slice = ALL) -> tuple[Tensor, Tensor]:
        """Rotate queries at positions `at`, (e, b, h, m, c), and keys, (e, b, h, n, c), by position."""
        return q, k

    @property
    def rotated(self) -> tuple[str, ...]:
        """The arguments that `rotate` changes: by default "queries" and "keys" if it is overridden.

        Attention is faster if nothing is rotated, and omits the key bias if the keys are not rotated.
        """
        return () if type(self).rotate is Encoding.rotate else ("queries", "keys")

    def bias(self, q: Tensor, block: int = 0, at: slice = ALL) -> Tensor | None:
        """Return the term added to the scaled scores, broadcastable to (e, b, h, m, n), or None."""
        return None

    def mask(self, n: int, at: slice = ALL) -> Tensor | None:
        """Return which keys each query attends to, (m, n), or None for all."""
        return None

    def vectors(self) -> Tensor | None:
        """Return the PE, (e, l, n, d), or None if the encoding does not have one vector per token."""
        return None
