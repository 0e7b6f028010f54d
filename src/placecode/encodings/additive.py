"""Additive positional encodings (none, sinusoid, random, learned): a vector per token is added to the input of a block.

All of them are tables (e, l, n, d): one vector of d features for each of e members (models), l blocks and n tokens.
They differ only in the initial values and in whether these are trained. Members with different additive encodings can
therefore share a stack, in which they are trained together.
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
from placecode.models.member import POSITION_STARTS, InitialPE, Member
from placecode.validation import real_number, whole_number


def sinusoid(coordinates: np.ndarray, width: int, base: float = 10000.0) -> np.ndarray:
    """Return the sinusoidal encoding of coordinates: interleaved sines and cosines.

    A pair of features is a sine and a cosine. The pairs are divided evenly among the axes, in reverse order: the first
    features encode the last axis. On a grid with positions (row, column), the first half of the features therefore
    encodes the column, as in the encoding 2d-fixed of the paper (Ito et al.). If the pairs cannot be divided evenly,
    the axes that are encoded first have one pair more. With an odd width, the last cosine is omitted.

    Parameters
    ----------
    coordinates : ndarray, shape (n, k)
        Positions of n tokens on k axes.
    width : int
        Number of features.
    base : float
        Base of the geometric sequence of frequencies.

    Returns
    -------
    ndarray, shape (n, width)

    Examples
    --------
    >>> sinusoid(np.arange(3.0)[:, None], 4)[1].round(3)
    array([0.841, 0.54 , 0.01 , 1.   ])
    """
    tokens, axes = coordinates.shape
    pairs = -(-width // 2)
    if pairs < axes:
        raise must_be("width", f"at least {2 * axes - 1} for a sinusoid of {axes} axes", width)
    parts = []
    for i, coordinate in enumerate(coordinates.T[::-1]):
        axis_pairs = pairs // axes + (i < pairs % axes)
        angles = coordinate[:, None] * base ** (-np.arange(axis_pairs) / axis_pairs)  # (n, axis_pairs)
        parts.append(np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(tokens, 2 * axis_pairs))
    return np.concatenate(parts, axis=1)[:, :width]


class Additive(Encoding):
    """Base class of additive encodings, and the encoding "none" (NoPE, no PE), whose table of vectors is fixed at zero.

    A subclass defines the initial values of the table and whether it is trained. One instance of `Additive` can serve
    members with different subclasses. To use it in your own model, call `x = pe(x)` on the embeddings of the tokens,
    (batch, n, d).

    Parameters
    ----------
    members : sequence of Member
        The e members that share the instance.
    layout : Layout
    kinds : sequence of type
        The encoding class of each member, a subclass of `Additive`.
    """

    trains: ClassVar[bool] = False
    """Whether the table is trained. `Member.learn` can still freeze it."""

    def __init__(self, members: Sequence[Member], layout: Layout, kinds: Sequence[type[Additive]]) -> None:
        super().__init__(members, layout)
        self.learns &= torch.tensor([kind.trains for kind in kinds])
        tables = []
        for member, kind in zip(members, kinds, strict=True):
            shape = (member.layers if member.placement == "every" else 1, layout.tokens, member.width)  # (l, n, d)
            tables.append(np.broadcast_to(kind.start(member, layout, shape), shape))
        self.table = nn.Parameter(torch.from_numpy(np.stack(tables)))  # (e, l, n, d)

    @classmethod
    def is_plain(cls) -> bool:
        """Return whether the class differs from `Additive` only in the initial values and in whether they are trained.

        Members with such encodings can share one instance of `Additive`.
        """
        hooks = ("__init__", "add", "rotate", "bias", "mask", "vectors", "forward")
        return all(getattr(cls, hook) is getattr(Additive, hook) for hook in hooks)

    @classmethod
    def family(cls, member: Member) -> tuple[object, ...]:
        return ("additive",) if cls.is_plain() else super().family(member)

    @classmethod
    def start(cls, member: Member, layout: Layout, shape: tuple[int, int, int]) -> np.ndarray:
        """Return the initial table of a member, (l, n, d), or (n, d) if it is the same in all blocks.

        `shape` is (l, n, d).
        """
        return np.zeros(shape)

    def add(self, x: Tensor, block: int) -> Tensor:
        if x.dim() == 3:
            return self.add(x[None], block)[0]
        return x + self.table[:, block, None, : x.shape[-2]]

    def forward(self, x: Tensor, block: int = 0) -> Tensor:
        """Return x plus the PE of its tokens in a block. x is (batch, n, d), or (e, batch, n, d) for e members."""
        if x.shape[-2] > self.tokens:
            raise BadInput(f"x must have at most {self.tokens} tokens, as many as the encoding; got {x.shape[-2]}.")
        return self.add(x[None], block)[0] if x.dim() == 3 else self.add(x, block)

    def vectors(self) -> Tensor:
        return self.table


class Sinusoid(Additive):
    """Fixed sinusoidal PE. In the paper (Ito et al.), it is called 1d-fixed (option axes=1) or 2d-fixed (axes=2)."""

    defaults = {"axes": 1, "base": 10000.0}

    @classmethod
    def start(cls, member: Member, layout: Layout, shape: tuple[int, int, int]) -> np.ndarray:
        options = dict(cls.settings(member))
        coordinates = layout.coordinates(whole_number("axes", options["axes"], least=1))
        return sinusoid(coordinates, member.width, real_number("base", options["base"], above=0))


class Random(Additive):
    """Vectors that are not trained. They are drawn from a normal distribution with standard deviation sigma, unless
    `Member.start` selects other values."""

    uses_sigma = True
    takes_array = True

    @classmethod
    def start(cls, member: Member, layout: Layout, shape: tuple[int, int, int]) -> np.ndarray:
        if isinstance(member.start, InitialPE):
            if member.start.array.shape not in (shape, shape[1:]):
                raise must_be("start", f"an array of shape {shape[1:]} or {shape}", member.start.array.shape)
            return member.start.array
        if member.donor is not None:
            raise must_be("start", "an array by now, that of the PE of its donor", member.start)
        return from_positions(member, layout, shape) if member.start in POSITION_STARTS else scaled_draw(member, shape)


class Learned(Random):
    """Trained vectors, with the initial values that `Member.start` selects."""

    trains = True


def scaled_draw(member: Member, shape: tuple[int, ...]) -> np.ndarray:
    """Return initial values of this shape: sigma times random numbers of mean 0 and variance 1, or zeros.

    `Member.start` selects the distribution ("normal" or "uniform") or zeros ("zero"). The random numbers depend on the
    seed but not on sigma, so members that differ only in sigma have proportional initial values.
    """
    if member.start == "zero":
        return np.zeros(shape)
    sigma = _sigma(member)
    keys, count = random.keys_for([member.seed], "encoding"), int(np.prod(shape))
    if member.start == "uniform":  # from -sqrt(3) to sqrt(3): variance 1
        unit = (2 * random.uniform(keys, 0, count) - 1) * 3**0.5
    else:
        unit = random.normal(keys, 0, count)
    return sigma * unit.numpy().reshape(shape)


def from_positions(member: Member, layout: Layout, shape: tuple[int, int, int]) -> np.ndarray:
    """Return the initial values of a member whose `start` is in `POSITION_STARTS`, computed from the true positions.

    For "true" and "centred", the result, (n, d), is the same for all blocks. For "axes", (l, n, d), every block has
    independent random vectors. They are also independent of those that "normal" draws with the same seed.
    """
    sigma, positions = _sigma(member), layout.known_positions(str(member.start))
    if member.start != "axes":
        waves = sinusoid(positions, member.width)
        return scaled(waves - waves.mean(axis=0) if member.start == "centred" else waves, sigma)
    indices = [np.unique(axis, return_inverse=True)[1] for axis in positions.T]
    offsets = np.cumsum([0, *(axis.max() + 1 for axis in indices)])
    keys, unit_shape = random.keys_for([member.seed], "encoding by axes"), (shape[0], int(offsets[-1]), shape[2])
    # (l, coordinates of all axes, d)
    unit = random.normal(keys, 0, int(np.prod(unit_shape))).numpy().reshape(unit_shape)
    total = sum(unit[:, offset + axis] for offset, axis in zip(offsets[:-1], indices, strict=True))
    return sigma * np.asarray(total / len(indices) ** 0.5)


def _sigma(member: Member) -> float:
    """Return the sigma of a member, or raise `BadInput` if it is None."""
    if member.sigma is None:
        raise must_be("sigma", f"a number of at least 0 for the encoding {member.encoding}", None)
    return member.sigma
