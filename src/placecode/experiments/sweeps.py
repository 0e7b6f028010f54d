"""Add axes to the sweep of an experiment (`--sweep heads=1,2,4`). An axis is a setting with the values to try. All
members (models) of the experiment are repeated for every combination of the values of all axes.

>>> axes = axes_of(experiment, ["heads=1,2", "layers=2,4"])
>>> [label for label, _ in combinations(axes)]
['heads 1, layers 2', 'heads 1, layers 4', 'heads 2, layers 2', 'heads 2, layers 4']

A setting of the model or of the optimizer changes only the members. Any other setting changes the data: there is one
data set for each combination of the values of such settings.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from placecode.errors import must_be, one_of, value_of
from placecode.models.member import Member
from placecode.runs.former_names import former_fields
from placecode.settings import CHECKS, Declaration, declarations

if TYPE_CHECKING:
    from placecode.experiments.base import Experiment

NOT_SWEPT = (
    "epochs",
    "steps",
    "evaluations",
    "zero_loss_patience",
    "dropout_epochs",
    "evaluate_every",
    "folds",
    "slow_baseline_worlds",
    "data_seed",
)
"""Fields that `--sweep` cannot sweep, since they apply to the whole run (its length, for example)."""


@dataclass(frozen=True)
class Axis:
    """A field of an experiment, by `name`, and the values it takes in a sweep."""

    name: str
    values: tuple[Any, ...]

    @property
    def of_member(self) -> bool:
        """Whether this is a field of members, such as `heads`. If not, such as `train`, it changes the data."""
        return self.name in Member.__dataclass_fields__


def axes_of(experiment: Experiment, texts: Sequence[str]) -> list[Axis]:
    """Parse texts NAME=VALUE,VALUE,... into axes. NAME must be a setting that is a single number, text or switch."""
    renamed = former_fields(experiment.name)
    sweepable = {
        name: declared
        for name, declared in declarations(type(experiment)).items()
        if declared.help and name not in NOT_SWEPT and declared.kind in CHECKS and not declared.several
    }
    axes: list[Axis] = []
    for text in texts:
        left, sign, listed = text.partition("=")
        name = left.strip().replace("-", "_")
        name = renamed.get(name, name)
        words = [word.strip() for word in listed.split(",") if word.strip()]
        if not sign or not words:
            raise must_be("sweep", "NAME=VALUE,VALUE,..., such as heads=1,2,4", text)
        if name in experiment.swept_by:
            rule = f"of other fields than {name}, which {experiment.name} sweeps by {experiment.swept_by[name]}"
            raise must_be("sweep", rule, text)
        if name not in sweepable:
            raise one_of("a field to sweep", sorted(sweepable), left.strip())
        if name in [axis.name for axis in axes]:
            raise must_be("sweep", "of different fields", list(texts))
        values = tuple(_value(sweepable[name], word) for word in words)
        if len(set(values)) < len(values):
            raise must_be("sweep", "of different values", text)
        axes.append(Axis(name, values))
    return axes


def _value(declared: Declaration, word: str) -> Any:
    """Convert one value of an axis from text to the declared type of its field. "none" is None where that is
    allowed."""
    return None if declared.optional and word.lower() == "none" else value_of(declared.name, word, declared.kind)


def combinations(axes: Sequence[Axis]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every combination of the values of the axes, as a label such as "heads 1, layers 2" and as a dict of values
    by field. The last axis varies fastest."""
    for values in itertools.product(*(axis.values for axis in axes)):
        pairs = {axis.name: value for axis, value in zip(axes, values, strict=True)}
        yield ", ".join(f"{name.replace('_', ' ')} {_text(value)}" for name, value in pairs.items()), pairs


def _text(value: Any) -> str:
    """Return a value of an axis as a text, without trailing zeros."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def data_name(values: dict[str, Any]) -> str:
    """Return the name of a data set with these settings.

    >>> data_name({"groups": 5, "samples": 1000})
    'groups=5 samples=1000'
    """
    return " ".join(f"{name}={_text(value)}" for name, value in values.items())


def data_sets(axes: Sequence[Axis]) -> dict[str, dict[str, Any]]:
    """Return the data sets by name, as values of the axes that change the data, such as {"noise=1": {"noise": 1.0}}."""
    return {data_name(values): values for _, values in combinations([axis for axis in axes if not axis.of_member])}


def crossed(members: Sequence[Member], axes: Sequence[Axis]) -> list[Member]:
    """Return all members, once for every combination of the values of the axes.

    The label of the combination is added to the label of each member. If a member copies the PE of another one (its
    donor), the donor also has this combination.
    """
    result: list[Member] = []
    for label, values in combinations(axes):
        fields = {axis.name: values[axis.name] for axis in axes if axis.of_member}
        data = data_name({axis.name: values[axis.name] for axis in axes if not axis.of_member})
        first = len(result)
        for member in members:
            changes = {
                **fields,
                "label": f"{member.label}, {label}" if member.label else label,
                "donor": None if member.donor is None else first + member.donor,
                "data": data or member.data,
            }
            result.append(replace(member, **changes))
    return result
