"""Encodings by name: the registry, and `make` for using one in any model.

>>> pe = make("learned", tokens=16, width=160, sigma=0.2)
>>> pe(torch.zeros(8, 16, 160)).shape
torch.Size([8, 16, 160])

Register your own with `@register("name")` on a subclass of Encoding, or by an entry point in `placecode.encodings`.
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
from placecode.errors import BadInput, must_be, one_of
from placecode.models.member import POSITION_STARTS, Member, Options, Table

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
    """Class decorator: makes an encoding known by `name`. A name is taken once."""

    def enter(cls: type[Encoding]) -> type[Encoding]:
        if _REGISTRY.get(name, cls) is not cls:
            raise BadInput(f"the encoding name {name!r} must be new; it is taken by {_REGISTRY[name].__name__}.")
        _REGISTRY[name] = cls
        return cls

    return enter


def _load_plugins() -> None:
    for point in entry_points(group="placecode.encodings"):
        if point.name not in _REGISTRY:
            register(point.name)(point.load())


def names() -> list[str]:
    """The names of all registered encodings, those of installed plugins too."""
    _load_plugins()
    return list(_REGISTRY)


def lookup(name: str) -> type[Encoding]:
    """The class behind a name."""
    if name not in _REGISTRY:
        _load_plugins()
    if name not in _REGISTRY:
        raise one_of("encoding", _REGISTRY, name)
    return _REGISTRY[name]


def family(member: Member) -> tuple[object, ...]:
    """What members must share for one encoding instance to serve them; refuses unknown names and options."""
    cls = lookup(member.encoding)
    cls.settings(member)
    if (isinstance(member.start, Table) or member.start in POSITION_STARTS) and not cls.takes_array:
        raise must_be("start", f"normal, uniform or zero for the encoding {member.encoding}", member.start)
    return cls.family(member)


def build(members: Sequence[Member], layout: Layout) -> Encoding:
    """One encoding instance for members of one family."""
    kinds = [lookup(member.encoding) for member in members]
    first, additive = kinds[0], [kind for kind in kinds if issubclass(kind, Additive)]
    if not issubclass(first, Additive):
        return first(members, layout)
    return (Additive if first.is_plain() else first)(members, layout, additive)


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
    """An encoding as a plain `torch.nn.Module` for anyone's model.

    Additive ones are called on x (b, n, d), rotary on q and k (b, h, n, c); relative and alibi have `bias(q)`, to be
    added to the scaled scores; causal-none, and relative with `causal`, have `mask(n)`. With `layers` > 1 the hooks
    take the block's number.
    """
    given = {"sigma": sigma, "seed": seed, "start": start, "learn": learn, "options": Options(options)}
    member = Member(encoding=name, width=width, heads=heads, layers=layers, **given)
    family(member)
    encoding = build([member], Layout(tokens, None if positions is None else np.asarray(positions))).to(dtype)
    for parameter in encoding.parameters():
        parameter.requires_grad_(bool(encoding.learns))
    return encoding
