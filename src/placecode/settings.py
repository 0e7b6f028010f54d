"""Declare the fields of configuration classes: default value and help text in one place.

A setting is declared once, in the dataclass it belongs to, such as `models.member.ModelSettings` or
`tasks.network.NetworkSettings`. Experiments inherit these classes. A subclass changes a default by giving the field
again, without a help text. Flags of the command line, their help and the record of a run all follow from the
declaration.

>>> @dataclasses.dataclass(frozen=True)
... class Wide:
...     width: int = setting(160, "features per token")
>>> @dataclasses.dataclass(frozen=True)
... class Narrow(Wide):
...     width: int = 32
>>> Narrow().width, help_of(Narrow, "width")
(32, 'features per token')
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any


class Settings:
    """Base of all configuration classes. Each extends `__post_init__`, which checks its own fields and then, by
    `super().__post_init__()`, those of the other classes that are inherited together."""

    def __post_init__(self) -> None:
        """Check the fields. Raises `BadInput` for invalid values."""

    def _check(self, rule: Callable[..., Any], *names: str, **limits: Any) -> None:
        """Check fields by a function of `placecode.validation`, and replace them by what it returns."""
        for name in names:
            object.__setattr__(self, name, rule(name, getattr(self, name), **limits))


def setting(default: Any, help: str) -> Any:
    """Declare a field of a configuration class, with its default value and its help text."""
    return dataclasses.field(default=default, metadata={"help": help})


def sweep_over(default: tuple[Any, ...], help: str, least: int = 1) -> Any:
    """Declare a field that lists the values of a sweep. `least` is the smallest number of values. They must all be
    different."""
    return dataclasses.field(default=default, metadata={"help": help, "least": least})


def declaration(cls: type, name: str) -> Mapping[str, Any]:
    """Return what was declared with a field (`help`, and `least` of a sweep), or an empty mapping if it is not a
    setting. If a class has changed only the default, the declaration is that of its base class."""
    for base in cls.__mro__:
        field = base.__dict__.get("__dataclass_fields__", {}).get(name)
        if field is not None and "help" in field.metadata:
            return dict(field.metadata)
    return {}


def help_of(cls: type, name: str) -> str:
    """Return the help text of a setting."""
    return str(declaration(cls, name)["help"])


def settings_of(cls: type) -> list[str]:
    """Return the names of the fields that are settings, in order. Fields without a help text hold data."""
    return [field.name for field in dataclasses.fields(cls) if declaration(cls, field.name)]
