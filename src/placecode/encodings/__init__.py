"""Positional encodings: the registry of names, and `make` to use an encoding in any PyTorch model.

>>> pe = make("learned", tokens=16, width=160, sigma=0.2)
>>> pe(torch.zeros(8, 16, 160)).shape
torch.Size([8, 16, 160])

To register a new encoding, decorate a subclass of Encoding with `@register("name")`, or define an entry point in the
group `placecode.encodings`.
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
from placecode.models.member import POSITION_STARTS, Member, Options, Table
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
    """Register an encoding class under a name, as a class decorator.

    Parameters
    ----------
    name : str
        A name that is not registered yet.

    Returns
    -------
    callable
        The decorator, which returns the class unchanged.
    """

    def decorate(cls: type[Encoding]) -> type[Encoding]:
        if _REGISTRY.get(name, cls) is not cls:
            raise BadInput(f"the encoding name {name!r} must be new; it is taken by {_REGISTRY[name].__name__}.")
        _REGISTRY[name] = cls
        return cls

    return decorate


def _load_plugins() -> None:
    for point in entry_points(group="placecode.encodings"):
        if point.name not in _REGISTRY:
            register(point.name)(point.load())


def names() -> list[str]:
    """Return the names of all registered encodings, including those of installed packages.

    Returns
    -------
    list of str
    """
    _load_plugins()
    return list(_REGISTRY)


def lookup(name: str) -> type[Encoding]:
    """Return the encoding class registered under a name.

    Parameters
    ----------
    name : str

    Returns
    -------
    type
        A subclass of Encoding.
    """
    if name not in _REGISTRY:
        _load_plugins()
    return _REGISTRY[choice("encoding", name, _REGISTRY)]


def family(member: Member) -> tuple[object, ...]:
    """Return a key that is equal for members that can share one encoding instance, after a check of name, options and
    start."""
    cls = lookup(member.encoding)
    cls.settings(member)
    if (isinstance(member.start, Table) or member.start in POSITION_STARTS) and not cls.takes_array:
        raise must_be("start", f"normal, uniform or zero for the encoding {member.encoding}", member.start)
    return cls.family(member)


def build(members: Sequence[Member], layout: Layout) -> Encoding:
    """Return one encoding instance for members of one `family`."""
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
    """Return an encoding as a `torch.nn.Module` for use in any model.

    Call additive encodings on x, (b, n, d), and rotary encodings on q and k, (b, h, n, c). Add `bias(q)` of relative
    and alibi to the scaled scores. Apply `mask(n)` of causal-none, and of relative with `causal`. With `layers` > 1,
    the methods take the index of the block.

    Parameters
    ----------
    name : str
        Name of a registered encoding.
    tokens : int
        Maximum number of tokens, n.
    width, heads, layers : int
        Numbers of features, d, of attention heads, h, and of blocks.
    positions : ndarray, shape (n, k), optional
        True coordinates of the tokens.
    dtype : torch.dtype
    sigma, seed, start, learn
        As in `Member`.
    **options
        Settings of the encoding, such as `axes` or `base`.
    """
    settings = {"sigma": sigma, "seed": seed, "start": start, "learn": learn, "options": Options(options)}
    member = Member(encoding=name, width=width, heads=heads, layers=layers, **settings)
    family(member)
    encoding = build([member], Layout(tokens, None if positions is None else np.asarray(positions))).to(dtype)
    for parameter in encoding.parameters():
        parameter.requires_grad_(bool(encoding.learns))
    return encoding
