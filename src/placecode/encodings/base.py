"""The interface of a positional encoding: the base class `Encoding`, and `Layout`, which describes the tokens.

One instance serves all members of a stack, which are models that are trained together. A subclass overrides some of
four methods that change the model: `add`, `rotate`, `bias` and `mask`. In the base class none of them changes anything.
Trainable parameters are `nn.Parameter` of shape (e, ...), one entry per member.

Shapes: e members, b examples, n tokens, d features, h heads, c = d / h features per head, l blocks. Attention may be
computed for some query positions only. These are the m positions in the slice `at`, and queries then have shape
(e, b, h, m, c).
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
"""The slice `at` that selects all query positions."""


@dataclass(frozen=True)
class Layout:
    """Number and true positions of the tokens of a stack."""

    tokens: int
    """Number of tokens, n."""
    positions: np.ndarray | None = None
    """True coordinates of the tokens, (n, k), or None if they are not known."""

    def __post_init__(self) -> None:
        if self.positions is not None and (self.positions.ndim != 2 or len(self.positions) != self.tokens):
            raise must_be("positions", f"an array ({self.tokens} tokens, coordinates)", self.positions.shape)

    def coordinates(self, axes: int) -> np.ndarray:
        """Return the coordinates of the tokens, or raise `BadInput` if the tokens do not have this number of axes.

        Parameters
        ----------
        axes : int
            1 for the index of each token in the sequence, or the number k of true coordinates.

        Returns
        -------
        ndarray, shape (n, axes)
        """
        if axes == 1:
            return np.arange(self.tokens, dtype=np.float64)[:, None]
        known_axes = 0 if self.positions is None else self.positions.shape[1]
        if known_axes != axes:
            known = f"true positions with {known_axes} coordinates" if known_axes else "no known positions"
            raise BadInput(
                f"axes must be 1 or the number of coordinates of the tokens; got {axes}, but they have {known}."
            )
        assert self.positions is not None
        return self.positions.astype(np.float64)

    def known_positions(self, start: str) -> np.ndarray:
        """Return the true positions, (n, k), or raise `BadInput` if they are not known.

        `start` is the value of `Member.start` that needs them, for the error message.
        """
        if self.positions is None:
            raise BadInput(f"the start {start} must be that of tokens with known positions; these have none.")
        return self.positions.astype(np.float64)


class Encoding(nn.Module):
    """Base class of positional encodings.

    Subclasses override some of `add`, `rotate`, `bias`, `mask` and `vectors`. The first axis of every trainable
    parameter is the member axis, (e, ...). The learning rate of these parameters is `Member.pe_learning_rate`.

    Parameters
    ----------
    members : sequence of Member
        The e members that share the instance.
    layout : Layout
    """

    defaults: ClassVar[Mapping[str, Any]] = {}
    """The options of the encoding and their default values. Any other name in `Member.options` raises `BadInput`."""
    uses_sigma: ClassVar[bool] = False
    """Whether the initial values depend on `Member.sigma`. If not, tables of results omit sigma."""
    takes_array: ClassVar[bool] = False
    """Whether `Member.start` can be an array, or one of `POSITION_STARTS`."""
    learns: Tensor
    """Whether the parameters of the encoding are trained, for each of the e members (models), (e,)."""

    def __init__(self, members: Sequence[Member], layout: Layout) -> None:
        super().__init__()
        self.tokens = layout.tokens
        self.register_buffer("learns", torch.tensor([member.learn for member in members]), persistent=False)

    @classmethod
    def family(cls, member: Member) -> tuple[object, ...]:
        """Return a key that is equal for members that can share one instance.

        By default, members can share an instance if they have the same encoding and the same options.
        """
        return (cls.__qualname__, member.encoding, cls.settings(member))

    @classmethod
    def settings(cls, member: Member) -> tuple[tuple[str, Any], ...]:
        """Return all options of the encoding as (name, value) pairs, with default values for those the member omits."""
        for name in member.options:
            choice(f"an option of the encoding {member.encoding}", name, cls.defaults or ["(none)"])
        return tuple({**cls.defaults, **member.options}.items())

    def among(self, q: Tensor, at: slice) -> tuple[slice, slice]:
        """Return the rows (queries) and columns (keys) of an array over all pairs of tokens, (n, n), that belong to q.

        If `at` selects some tokens, such as the last one, these are the queries, and all tokens are keys. With `ALL`,
        queries and keys are the first tokens, as many as q has. A user's own model may have fewer tokens than n.
        """
        if at != ALL:
            return at, ALL
        if q.shape[-2] > self.tokens:
            raise BadInput(f"q must have at most {self.tokens} tokens, as many as the encoding; got {q.shape[-2]}.")
        return slice(q.shape[-2]), slice(q.shape[-2])

    def add(self, x: Tensor, block: int) -> Tensor:
        """Return the input x of a block, (e, b, n, d), plus the PE."""
        return x

    def rotate(self, q: Tensor, k: Tensor, block: int = 0, at: slice = ALL) -> tuple[Tensor, Tensor]:
        """Return queries, (e, b, h, m, c), and keys, (e, b, h, n, c), rotated by angles that depend on position.

        The queries are those at the positions `at`.
        """
        return q, k

    @property
    def rotated(self) -> tuple[str, ...]:
        """What `rotate` changes: a tuple that can contain "queries" and "keys".

        By default it contains both if a subclass overrides `rotate`, otherwise neither. Attention is faster if nothing
        is rotated, and omits the key bias if the keys are not rotated.
        """
        return () if type(self).rotate is Encoding.rotate else ("queries", "keys")

    def bias(self, q: Tensor, block: int = 0, at: slice = ALL) -> Tensor | None:
        """Return the term to add to the scores q k / sqrt(c), broadcastable to (e, b, h, m, n), or None for no term."""
        return None

    def mask(self, n: int, at: slice = ALL) -> Tensor | None:
        """Return the mask of n keys for the queries at positions `at`, or None without a mask.

        The mask is Boolean, of shape (m, n), and True where the query may attend to the key.
        """
        return None

    def vectors(self) -> Tensor | None:
        """Return the PE of all members, (e, l, n, d), or None if the encoding has no vector per token."""
        return None
