"""Command line options for the settings of an experiment: one option per field of its dataclass, with its help text."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from placecode.errors import must_be, value_of
from placecode.experiments import Experiment
from placecode.runs.former_names import former_fields
from placecode.settings import declarations

SWEEP = "sweep"
"""Name of the field whose option can be repeated. Each `--sweep NAME=V,V` trains models with several values."""


def add_settings(group: Any, experiment: type[Experiment], without: Sequence[str] = ()) -> None:
    """Add an option for every setting of an experiment to an argument group, except for the fields in `without`.

    Names that a setting had in earlier versions also work as options, but the help does not show them.
    """
    for declared in declarations(experiment).values():
        if declared.name not in experiment.recorded() or declared.name in without:
            continue
        options: dict[str, Any] = {"metavar": declared.name.upper()}
        if declared.kind is bool:
            options = {"action": argparse.BooleanOptionalAction}
        elif declared.name == SWEEP:  # can be repeated, once for every axis
            options = {"action": "append", "metavar": "NAME=V,V"}
        elif declared.several:
            options["nargs"] = "+"
        names = {declared.name: declared.help}
        names |= {old: argparse.SUPPRESS for old, new in former_fields(experiment.name).items() if new == declared.name}
        for name, help in names.items():
            group.add_argument(_flag(name), dest=declared.name, default=argparse.SUPPRESS, help=help, **options)


def settings(
    arguments: argparse.Namespace, experiment: type[Experiment], without: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the settings that are set on the command line, as values by field name.

    `arguments` are the parsed arguments. Fields in `without` are left out. A single number for --seeds is a number of
    seeds: 3 gives the seeds 0, 1 and 2.
    """
    values: dict[str, Any] = {}
    for name, declared in declarations(experiment).items():
        if name not in experiment.recorded() or name in without or not hasattr(arguments, name):
            continue
        text, kind = getattr(arguments, name), declared.kind
        if kind is bool:
            values[name] = text
        elif name == SWEEP:
            values[name] = tuple(text)
        elif declared.several:
            parts = [part for word in text for part in word.split(",") if part.strip()]
            values[name] = tuple(value_of(name, part, kind) for part in parts)
            if name == "seeds" and len(text) == 1 and "," not in text[0] and parts:  # not a list but a number of seeds
                (count,) = values[name]
                if count < 1:
                    raise must_be("seeds", "at least one, as a number of seeds or a list a,b,c", count)
                values[name] = tuple(range(count))
        else:
            values[name] = value_of(name, text, kind)
    return values


def arguments_of(name: str, value: Any) -> list[str]:
    """Return the command line arguments that set a field to a value, as it is recorded in config.json.

    >>> arguments_of("learning_rate", 0.1), arguments_of("causal", False), arguments_of("seeds", [3])
    (['--learning-rate', '0.1'], ['--no-causal'], ['--seeds', '3,'])
    """
    flag = _flag(name)
    if name == SWEEP:
        return [word for axis in value for word in (flag, axis)]
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return [flag, text + ("," if isinstance(value, list) and len(value) == 1 else "")]


def _flag(name: str) -> str:
    """Return the command line option of a setting.

    >>> _flag("learning_rate")
    '--learning-rate'
    """
    return f"--{name.replace('_', '-')}"
