"""Positional encodings by name (sinusoidal, learned, relative, rotary, ALiBi, ...), and `make` to use one in any model.

>>> pe = make("learned", tokens=16, width=160, sigma=0.2)
>>> pe(torch.zeros(8, 16, 160)).shape
torch.Size([8, 16, 160])

To add an encoding, write a subclass of `Encoding`. It can be in a module of this package, such as `additive`,
`relative` or `rotary`, with an entry in `_REGISTRY` below. Or it can be in any other package: decorate the class with
`@register("name")`, which takes effect when its module is imported, or define an entry point in the group
`placecode.encodings`, which is loaded on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import torch

from placecode.encodings.additive import Additive, Learned, Random, Sinusoid, sinusoid
from placecode.encodings.base import ALL, Encoding, Layout
from placecode.encodings.relative import Alibi, CausalNone, Relative
from placecode.encodings.rotary import Rotary
from placecode.errors import BadInput, must_be
from placecode.models.member import POSITION_STARTS, InitialPE, Member, Options
from placecode.validation import choice

__all__ = [
    "ALL",
    "Additive",
    "Alibi",
    "Encoding",
    "Layout",
    "build",
    "family",
    "lookup",
    "make",
    "names",
    "register",
    "sinusoid",
]

_REGISTRY: dict[str, type[Encoding]] = {
    "none": Additive,
    "sinusoid": Sinusoid,
    "random": Random,
    "learned": Learned,
    "causal-none": CausalNone,
    "relative": Relative,
    "rotary": Rotary,
    "alibi": Alibi,
}


def register(name: str) -> Callable[[type[Encoding]], type[Encoding]]:
    """Return a class decorator that registers an encoding class under a name and returns the class unchanged.

    The decorator raises `BadInput` if another class has the name.
    """

    def decorate(cls: type[Encoding]) -> type[Encoding]:
        if _REGISTRY.get(name, cls) is not cls:
            raise BadInput(f"the encoding name {name!r} must be new; it is taken by {_REGISTRY[name].__name__}.")
        _REGISTRY[name] = cls
        return cls

    return decorate


def _load_plugins() -> None:
    """Register the encodings that other installed packages define as entry points."""
    for point in entry_points(group="placecode.encodings"):
        if point.name not in _REGISTRY:
            register(point.name)(point.load())


def names() -> list[str]:
    """Return the names of all registered encodings, including those of installed packages."""
    _load_plugins()
    return list(_REGISTRY)


def lookup(name: str) -> type[Encoding]:
    """Return the encoding class registered under a name, or raise `BadInput` if there is none."""
    if name not in _REGISTRY:
        _load_plugins()
    return _REGISTRY[choice("encoding", name, _REGISTRY)]


def family(member: Member) -> tuple[object, ...]:
    """Return a key that is equal for members (models) that can share one encoding instance.

    Raises `BadInput` if the encoding of the member is unknown or does not support its `options` or its `start`.
    """
    cls = lookup(member.encoding)
    cls.settings(member)
    if (isinstance(member.start, InitialPE) or member.start in POSITION_STARTS) and not cls.takes_array:
        raise must_be("start", f"normal, uniform or zero for the encoding {member.encoding}", member.start)
    return cls.family(member)


def build(members: Sequence[Member], layout: Layout) -> Encoding:
    """Return one encoding that holds the parameters of all these members (models of a stack). They must have the same
    `Encoding.family`. `layout` describes the tokens."""
    classes = [lookup(member.encoding) for member in members]
    first, additive_classes = classes[0], [cls for cls in classes if issubclass(cls, Additive)]
    if not issubclass(first, Additive):
        return first(members, layout)
    return (Additive if first.is_plain() else first)(members, layout, additive_classes)


def make(
    name: str,
    tokens: int,
    width: int,
    *,
    heads: int = 1,
    layers: int = 1,
    positions: np.ndarray | None = None,
    dtype: torch.dtype = torch.float32,
    sigma: float | None = 0.2,
    seed: int = 0,
    start: Any = "normal",
    learn: bool = True,
    **options: Any,
) -> Encoding:
    """Return an encoding as a `torch.nn.Module` for use in any model.

    How to use it depends on the kind of encoding. Call an additive encoding on embeddings, (batch, tokens, features),
    and a rotary encoding on queries and keys, (batch, heads, tokens, features per head). For relative and alibi, add
    `bias(q)` to the attention scores after their scaling by 1 / sqrt(features per head). For causal-none, and for
    relative with `causal`, set the scores of n tokens to -inf where `mask(n)` is False. With `layers` > 1, additive and
    relative encodings also take the index of the block.

    Parameters
    ----------
    name : str
        Name of a registered encoding.
    tokens : int
        Maximum number of tokens, n.
    width, heads, layers : int
        Numbers of features per token, of attention heads and of transformer blocks.
    positions : ndarray, shape (n, k), optional
        True coordinates of the tokens, needed if `axes` is above 1 or `start` is in `POSITION_STARTS`.
    dtype : torch.dtype
    sigma, seed, start, learn
        As in `Member`.
    **options
        Settings of the encoding, such as `axes` or `base`.

    Returns
    -------
    Encoding
        Its parameters are trainable unless the encoding is fixed or `learn` is False.
    """
    settings = {"sigma": sigma, "seed": seed, "start": start, "learn": learn, "options": Options(options)}
    member = Member(encoding=name, width=width, heads=heads, layers=layers, **settings)
    family(member)
    encoding = build([member], Layout(tokens, None if positions is None else np.asarray(positions))).to(dtype)
    for parameter in encoding.parameters():
        parameter.requires_grad_(bool(encoding.learns))
    return encoding
