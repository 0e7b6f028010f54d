"""Declare settings: fields of configuration dataclasses with a type, a default value, a help text and limits.

A setting is declared once, in the dataclass it belongs to, such as `models.member.ModelSettings` or
`tasks.network.NetworkSettings`. Experiments inherit these classes. A subclass changes a default by declaring the field
again; its help text and limits stay the same unless they are declared again too. The check of every value, the flags of
the command line, their help texts, the values of `--sweep`, and the settings that a run records in config.json are
derived from the declaration. If a setting is renamed, its former name is added to `runs/former_names.py`.

>>> @dataclass(frozen=True)
... class Wide(Settings):
...     width: int = setting(160, "features per token", least=1)
>>> @dataclass(frozen=True)
... class Narrow(Wide):
...     width: int = 32
>>> Narrow().width, declarations(Narrow)["width"].help
(32, 'features per token')
>>> Narrow(width=0)
Traceback (most recent call last):
    ...
placecode.errors.BadInput: width must be a whole number of at least 1; got 0.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from placecode.errors import must_be
from placecode.validation import boolean, choice, real_number, text, whole_number

REQUIRED = dataclasses.MISSING
"""Marks a setting without a default value. Its value must be passed to the constructor."""
CHECKS: Mapping[type, Callable[..., Any]] = {int: whole_number, float: real_number, str: text, bool: boolean}
"""Functions that check a value, by the declared type of the value."""


class Settings:
    """Base of all configuration classes. Their fields are checked when an instance is made.

    A field is checked if its type is int, float, str or bool, a tuple of one of these, or any of these types with
    `| None`. The value must have this type and be within the declared limits. A subclass needs a `__post_init__` only
    for rules about several fields. It must call `super().__post_init__()` first, so that the fields of all classes that
    an experiment inherits are checked.
    """

    def __post_init__(self) -> None:
        """Check each field by its declaration, and raise `BadInput` for invalid values. Dataclasses call it at the end
        of `__init__`. Numpy numbers become Python numbers, and integers in fields of type float become floats."""
        for name, declared in declarations(type(self)).items():
            if declared.is_checked:
                object.__setattr__(self, name, declared.check(getattr(self, name)))


def setting(
    default: Any,
    help: str,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    choices: Iterable[str | int] | None = None,
    count_at_least: int | None = None,
    compare: bool = True,
) -> Any:
    """Declare a setting: return a dataclass field with a default, a help text and limits.

    In a field that holds a tuple, limits and choices apply to each value of the tuple.

    Parameters
    ----------
    default : object
        The default value, or `REQUIRED`.
    help : str
        The help text, which `--help` shows.
    least, most : number, optional
        The smallest and the largest valid number.
    above, below : number, optional
        Exclusive bounds, for fields of type float.
    choices : iterable of str or int, optional
        All valid values.
    count_at_least : int, optional
        Only for `sweep_over`.
    compare : bool
        Whether `==` and hashes of instances depend on the field.
    """
    bounds = {"least": least, "above": above, "most": most, "below": below}
    metadata = {
        "help": help,
        "limits": {side: bound for side, bound in bounds.items() if bound is not None},
        "choices": None if choices is None else tuple(choices),
        "count_at_least": count_at_least,
    }
    return field(default=default, compare=compare, metadata=metadata)


def sweep_over(default: tuple[Any, ...], help: str, count_at_least: int = 1, **limits: Any) -> Any:
    """Declare a setting that holds several values to compare, such as `sigmas`. The experiment trains models with each
    of them. The values must differ. `count_at_least`, 0 or 1, is the smallest number of values: with 0, the tuple may
    be empty. `limits` are `least`, `above`, `most`, `below` or `choices`, as for `setting`."""
    return setting(default, help, count_at_least=count_at_least, **limits)


@dataclass(frozen=True)
class Declaration:
    """Type, default, help text and limits of a field of a configuration class, merged with those of base classes."""

    name: str
    kind: type
    """Type of the value; of each value if the field holds a tuple; the first one if several types are allowed."""
    several: bool
    """Whether the field holds a tuple of values."""
    optional: bool
    """Whether None is allowed."""
    is_checked: bool
    """Whether `check` applies: not if several types are allowed besides None, or if `kind` is not in `CHECKS`."""
    default: Any
    """The default value in this class, or `REQUIRED`."""
    help: str = ""
    """The help text. Empty if the field is not a setting."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Bounds of numbers: `least`, `above`, `most` and `below` of `setting`, as far as there are any."""
    choices: tuple[str | int, ...] | None = None
    """All valid values, if they are listed."""
    count_at_least: int | None = None
    """Smallest number of values of a field that was declared by `sweep_over`. None for others."""

    def check(self, value: Any) -> Any:
        """Return the value of the field as an object of the declared type, or raise `BadInput` if it is invalid."""
        if value is None and self.optional:
            return None
        if not self.several:
            return self._check_single(value)
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise must_be(self.name, "a list of values", value)
        values = tuple(self._check_single(item) for item in value)
        if self.count_at_least is not None:
            if len(values) < self.count_at_least:
                raise must_be(self.name, "at least one", list(values))
            if len(set(values)) < len(values):
                raise must_be(self.name, "all different", list(values))
        return values

    def _check_single(self, value: Any) -> Any:
        """Check the value, or one value of a tuple, and return it as an object of the declared type."""
        if self.choices is not None:
            choice(self.name, value, self.choices)
        return CHECKS[self.kind](self.name, value, **self.limits)


def declarations(cls: type) -> Mapping[str, Declaration]:
    """Return the declarations of the fields of a configuration class by name, in the order of the fields.

    Fields that are not arguments of the constructor (`init=False`) are left out.
    """
    return _declarations(cls)


@cache
def _declarations(cls: type) -> Mapping[str, Declaration]:
    """Compute the result of `declarations`, once for each class (mypy does not accept `cache` on a public function)."""
    hints = typing.get_type_hints(cls)
    result = {}
    for declared in dataclasses.fields(cls):
        if declared.init:
            metadata: dict[str, Any] = {}
            for base in reversed(cls.__mro__):
                line = base.__dict__.get("__dataclass_fields__", {}).get(declared.name)
                if line is not None:
                    metadata |= {key: value for key, value in line.metadata.items() if value not in (None, {})}
            kind = _described(hints[declared.name])
            result[declared.name] = Declaration(declared.name, *kind, declared.default, **metadata)
    return result


def _described(hint: Any) -> tuple[Any, bool, bool, bool]:
    """Return the fields `kind`, `several`, `optional` and `is_checked` of a `Declaration` for a field with this type.

    >>> _described(tuple[float, ...]), _described(int | None)
    ((<class 'float'>, True, False, True), (<class 'int'>, False, True, True))
    """
    allowed = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kinds = [kind for kind in allowed if kind is not type(None)]
    several = typing.get_origin(kinds[0]) is tuple
    kind = typing.get_args(kinds[0])[0] if several else kinds[0]
    return kind, several, type(None) in allowed, len(kinds) == 1 and kind in CHECKS


def settings_of(cls: type) -> list[str]:
    """Return the names of the settings of a class, in the order of its fields. Fields without a help text are not
    settings but data. The settings of an experiment have flags and are recorded in config.json of a run."""
    return [name for name, declared in declarations(cls).items() if declared.help]
