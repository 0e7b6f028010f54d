"""Declare settings: fields of configuration dataclasses that have a default value and a help text.

A setting is declared once, in the dataclass it belongs to, such as `models.member.ModelSettings` or
`tasks.network.NetworkSettings`. Experiments inherit these classes. A subclass changes a default by declaring the field
again, without a help text. The flags of the command line, their help texts, and the settings that a run records in
config.json are derived from the declaration. If a setting is renamed, its former name is added to
`runs/former_names.py`.

>>> @dataclasses.dataclass(frozen=True)
... class Wide:
...     width: int = setting(160, "features per token")
>>> @dataclasses.dataclass(frozen=True)
... class Narrow(Wide):
...     width: int = 32
>>> Narrow().width, declaration(Narrow, "width")["help"]
(32, 'features per token')
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any


class Settings:
    """Base of all configuration classes.

    A subclass checks its fields in `__post_init__`, which must also call `super().__post_init__()`, so that the fields
    of all classes that an experiment inherits are checked.
    """

    def __post_init__(self) -> None:
        """Check the fields, and raise `BadInput` for invalid values. Dataclasses call it at the end of `__init__`."""

    def _check(self, rule: Callable[..., Any], *names: str, **limits: Any) -> None:
        """Check each of the fields `names` with `rule`, a function of `placecode.validation`, called as rule(name,
        value, **limits). Replace the value of the field by the returned one."""
        for name in names:
            object.__setattr__(self, name, rule(name, getattr(self, name), **limits))


def setting(default: Any, help: str) -> Any:
    """Declare a setting with its default value and its help text, which `--help` shows."""
    return dataclasses.field(default=default, metadata={"help": help})


def sweep_over(default: tuple[Any, ...], help: str, least: int = 1) -> Any:
    """Declare a setting that holds several values to compare, such as `sigmas`. The experiment trains models with each
    of them. The values must differ, and there must be at least `least` of them."""
    return dataclasses.field(default=default, metadata={"help": help, "least": least})


def declaration(cls: type, name: str) -> Mapping[str, Any]:
    """Return what is declared for a setting of a class, here or in a base class: its `help` text and, if it was
    declared by `sweep_over`, also `least`. Return an empty mapping if the field `name` is not a setting."""
    for base in cls.__mro__:
        field = base.__dict__.get("__dataclass_fields__", {}).get(name)
        if field is not None and "help" in field.metadata:
            return dict(field.metadata)
    return {}


def settings_of(cls: type) -> list[str]:
    """Return the names of the settings of a class, in the order of its fields. Fields without a help text are not
    settings but data."""
    return [field.name for field in dataclasses.fields(cls) if declaration(cls, field.name)]
