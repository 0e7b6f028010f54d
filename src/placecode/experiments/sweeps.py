"""Further axes of a sweep, from texts such as "heads=1,2,4": crossed with each other and with all members of a study.

>>> axes = axes_of(study, ["heads=1,2", "layers=2,4"])
>>> [label for label, _ in combinations(axes)]
['heads 1, layers 2', 'heads 1, layers 4', 'heads 2, layers 2', 'heads 2, layers 4']

An axis is a field of the study. Fields of the model and the optimizer become fields of members. Other fields change the
data: each of their combinations is a data set of its own.
"""

from __future__ import annotations

import dataclasses
import itertools
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from placecode.errors import must_be, one_of, value_of
from placecode.models.member import Member

if TYPE_CHECKING:
    from placecode.experiments.base import Study

NOT_SWEPT = ("epochs", "steps", "evaluations", "rest", "dropout_epochs", "every", "folds", "slow_in", "data_seed")
"""Fields that are about the whole run: how long it trains, and what is measured."""
RENAMED = {"output_gain": "gain"}
"""Fields of a study that have another name in a member."""


@dataclass(frozen=True)
class Axis:
    """A field of a study and the values that it takes."""

    name: str
    values: tuple[Any, ...]

    @property
    def field(self) -> str:
        """The name of the field in members."""
        return RENAMED.get(self.name, self.name)

    @property
    def of_member(self) -> bool:
        """Whether it is a field of members; else it changes the data."""
        return self.field in Member.__dataclass_fields__


def axes_of(study: Study, texts: Sequence[str]) -> list[Axis]:
    """The axes behind texts NAME=VALUE,VALUE,...

    Parameters
    ----------
    study : Study
        Its single-valued fields can be axes.
    texts : sequence of str

    Raises
    ------
    BadInput
        If a name is unknown, given twice, or cannot be swept; or if a value is not of the field's type.
    """
    kinds = _kinds(type(study))
    axes: list[Axis] = []
    for text in texts:
        name, sign, rest = text.partition("=")
        name = name.strip().replace("-", "_")
        words = [word.strip() for word in rest.split(",") if word.strip()]
        if not sign or not words:
            raise must_be("sweep", "NAME=VALUE,VALUE,..., such as heads=1,2,4", text)
        if name in study.instead:
            raise must_be(
                "sweep", f"of other fields than {name}, which {study.name} sweeps by {study.instead[name]}", text
            )
        if name not in kinds:
            raise one_of("a field to sweep", sorted(kinds), name)
        if name in [axis.name for axis in axes]:
            raise must_be("sweep", "of different fields", list(texts))
        values = tuple(_value(name, word, *kinds[name]) for word in words)
        if len(set(values)) < len(values):
            raise must_be("sweep", "of different values", text)
        axes.append(Axis(name, values))
    return axes


def _kinds(study: type[Study]) -> dict[str, tuple[type, bool]]:
    """Types of the fields that can be swept, and whether None is allowed."""
    kinds = {}
    for name, hint in typing.get_type_hints(study).items():
        if name not in study.recorded() or name in NOT_SWEPT:
            continue
        options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        kind = next(option for option in options if option is not type(None))
        if kind in (int, float, str, bool):
            kinds[name] = (kind, type(None) in options)
    return kinds


def _value(name: str, word: str, kind: type, optional: bool) -> Any:
    if optional and word.lower() == "none":
        return None
    if kind is bool:
        if word.lower() not in ("true", "false"):
            raise must_be(name, "true or false", word)
        return word.lower() == "true"
    return value_of(name, word, kind)


def combinations(axes: Sequence[Axis]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Label and values of every combination, the last axis fastest."""
    for values in itertools.product(*(axis.values for axis in axes)):
        pairs = {axis.name: value for axis, value in zip(axes, values, strict=True)}
        yield ", ".join(f"{name.replace('_', ' ')} {_text(value)}" for name, value in pairs.items()), pairs


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def data_name(axes: Sequence[Axis], values: dict[str, Any]) -> str:
    """The name of the data set of a combination; "" where no axis changes the data.

    >>> data_name([Axis("per_class", (100, 200)), Axis("heads", (1,))], {"per_class": 100, "heads": 1})
    'per_class=100'
    """
    return " ".join(f"{axis.name}={_text(values[axis.name])}" for axis in axes if not axis.of_member)


def studies_by_data(study: Study, axes: Sequence[Axis]) -> dict[str, Study]:
    """For every data set, the study with that data and without further axes."""
    changes = [axis for axis in axes if not axis.of_member]
    return {
        data_name(changes, values): replace(study, **{"sweep": (), **values}) for _, values in combinations(changes)
    }


def crossed(members: Sequence[Member], axes: Sequence[Axis]) -> list[Member]:
    """All members once for every combination, combination by combination.

    Labels get the label of the combination; origins point into the same combination.
    """
    every: list[Member] = []
    for label, values in combinations(axes):
        fields = {axis.field: values[axis.name] for axis in axes if axis.of_member}
        data, first = data_name(axes, values), len(every)
        for member in members:
            own = dataclasses.replace(
                member,
                **fields,
                label=f"{member.label}, {label}" if member.label else label,
                origin=None if member.origin is None else first + member.origin,
            )
            every.append(replace(own, data=data) if data else own)
    return every
