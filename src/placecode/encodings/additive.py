"""The additive family: one vector per token and block, added to what the block reads.

none, sinusoid, random and learned are one class, a table (e, l, n, d) with different starts and a per-member switch for
learning. So all of them share a stack, and freezing, swapping and transplanting PEs are array operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from placecode import random
from placecode.encodings.base import Encoding, Layout
from placecode.encodings.tables import scaled
from placecode.errors import BadInput, must_be
from placecode.models.member import POSITION_STARTS, Member, Table
from placecode.validation import real_number, whole_number


def sinusoid(coordinates: np.ndarray, width: int, base: float = 10000.0) -> np.ndarray:
    """Sines and cosines of each coordinate, interleaved, (n, k) -> (n, width).

    The pairs of features are shared out evenly over the axes, the last axis first: on a grid with positions (row,
    column) the first half codes the column, as in the paper's 2d-fixed. One axis gives the usual 1-D code. Where the
    width is no multiple of two features per axis, the axes that come first have a pair more, and an odd width loses the
    last cosine.

    >>> sinusoid(np.arange(3.0)[:, None], 4)[1].round(3)
    array([0.841, 0.54 , 0.01 , 1.   ])
    """
    tokens, axes = coordinates.shape
    pairs = -(-width // 2)
    if pairs < axes:
        raise must_be("width", f"at least {2 * axes - 1} for a sinusoid of {axes} axes", width)
    parts = []
    for i, coordinate in enumerate(coordinates.T[::-1]):
        share = pairs // axes + (i < pairs % axes)
        angles = coordinate[:, None] * base ** (-np.arange(share) / share)  # (n, share)
        parts.append(np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(tokens, 2 * share))
    return np.concatenate(parts, axis=1)[:, :width]


class Additive(Encoding):
    """A table of PEs. A kind of additive encoding is a subclass that says how its table starts and whether it learns.

    One plain `Additive` serves members of all kinds. As a drop-in for any model: `x = pe(x)` with x (b, n, d).
    """

    trains: ClassVar[bool] = False
    """Whether the table of this kind is learned (a member's `learn` can still freeze it)."""

    def __init__(self, members: Sequence[Member], layout: Layout, kinds: Sequence[type[Additive]]) -> None:
        super().__init__(members, layout)
        self.learns &= torch.tensor([kind.trains for kind in kinds])
        tables = []
        for member, kind in zip(members, kinds, strict=True):
            shape = (member.layers if member.placement == "every" else 1, layout.tokens, member.width)
            tables.append(np.broadcast_to(kind.start(member, layout, shape), shape))
        self.table = nn.Parameter(torch.from_numpy(np.stack(tables)))  # (e, l, n, d)

    @classmethod
    def is_plain(cls) -> bool:
        """Whether the table is added as it is; a kind with a hook of its own shares no instance with the others."""
        hooks = ("__init__", "add", "rotate", "bias", "mask", "vectors", "forward")
        return all(getattr(cls, hook) is getattr(Additive, hook) for hook in hooks)

    @classmethod
    def family(cls, member: Member) -> tuple[object, ...]:
        return ("additive",) if cls.is_plain() else super().family(member)

    @classmethod
    def start(cls, member: Member, layout: Layout, shape: tuple[int, int, int]) -> np.ndarray:
        """The table before training, (l, n, d) or (n, d) for the same in every block; here: nothing."""
        return np.zeros(shape)

    def add(self, x: Tensor, block: int) -> Tensor:
        if x.dim() == 3:
            return self.add(x[None], block)[0]
        return x + self.table[:, block, None, : x.shape[-2]]

    def forward(self, x: Tensor, block: int = 0) -> Tensor:
        """x (b, n, d) with the PE of the first n tokens added; for a stack, x (e, b, n, d)."""
        if x.shape[-2] > self.tokens:
            raise BadInput(f"x must have at most {self.tokens} tokens, as many as the encoding; got {x.shape[-2]}.")
        return self.add(x[None], block)[0] if x.dim() == 3 else self.add(x, block)

    def vectors(self) -> Tensor:
        return self.table


class Sinusoid(Additive):
    """Fixed sines and cosines; axes=1 is the paper's 1d-fixed, axes=2 its 2d-fixed."""

    defaults = {"axes": 1, "base": 10000.0}

    @classmethod
    def start(cls, member: Member, layout: Layout, shape: tuple[int, int, int]) -> np.ndarray:
        options = dict(cls.settings(member))
        coordinates = layout.coordinates(whole_number("axes", options["axes"], least=1))
        return sinusoid(coordinates, member.width, real_number("base", options["base"], above=0))


class Random(Additive):
    """Fixed random vectors of standard deviation sigma, or what else a member's start says."""

    uses_sigma = True
    takes_array = True

    @classmethod
    def start(cls, member: Member, layout: Layout, shape: tuple[int, int, int]) -> np.ndarray:
        if isinstance(member.start, Table):
            if member.start.array.shape not in (shape, shape[1:]):
                raise must_be("start", f"an array of shape {shape[1:]} or {shape}", member.start.array.shape)
            return member.start.array
        if member.origin is not None:
            raise must_be("start", "an array by now, that of the PE of its origin", member.start)
        return placed(member, layout, shape) if member.start in POSITION_STARTS else scaled_draw(member, shape)


class Learned(Random):
    """Learned vectors that start at N(0, sigma^2), uniform with standard deviation sigma, zero, from the true positions
    of the tokens, or at a given array."""

    trains = True


def scaled_draw(member: Member, shape: tuple[int, ...]) -> np.ndarray:
    """The member's random start: sigma times numbers of variance 1, the same for every sigma of a seed."""
    if member.start == "zero":
        return np.zeros(shape)
    sigma = _sigma(member)
    keys, count = random.keys_for([member.seed], "encoding"), int(np.prod(shape))
    if member.start == "uniform":  # from -sqrt(3) to sqrt(3): variance 1
        unit = (2 * random.uniform(keys, 0, count) - 1) * 3**0.5
    else:
        unit = random.normal(keys, 0, count)
    return sigma * unit.numpy().reshape(shape)


def placed(member: Member, layout: Layout, shape: tuple[int, int, int]) -> np.ndarray:
    """The start of a member that knows the true positions, (n, d) for the same in every block, or (l, n, d).

    "true" are their sines and cosines, "centred" the same less their mean over the tokens. "axes" adds up a random
    vector for each row and one for each column, drawn for every block, and not those of "normal".
    """
    sigma, positions = _sigma(member), layout.places(str(member.start))
    if member.start != "axes":
        waves = sinusoid(positions, member.width)
        return scaled(waves - waves.mean(axis=0) if member.start == "centred" else waves, sigma)
    at = [np.unique(axis, return_inverse=True)[1] for axis in positions.T]
    first = np.cumsum([0, *(axis.max() + 1 for axis in at)])
    keys, several = random.keys_for([member.seed], "encoding by axes"), (shape[0], int(first[-1]), shape[2])
    unit = random.normal(keys, 0, int(np.prod(several))).numpy().reshape(several)  # (l, coordinates of all axes, d)
    total = sum(unit[:, begin + axis] for begin, axis in zip(first[:-1], at, strict=True))
    return sigma * np.asarray(total / len(at) ** 0.5)


def _sigma(member: Member) -> float:
    if member.sigma is None:
        raise must_be("sigma", f"a number of at least 0 for the encoding {member.encoding}", None)
    return member.sigma
