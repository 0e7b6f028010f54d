"""Command line options for the fields of a configuration class: one option per setting, with its help text.

The options of experiments, of the execution of a run, of benchmarks and of recommendations are all made in this way.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from placecode.errors import must_be, value_of
from placecode.experiments import Experiment
from placecode.runs.former_names import former_fields
from placecode.settings import REQUIRED, Settings, declarations, settings_of

SWEEP = "sweep"
"""Name of the field whose option can be repeated. Each `--sweep NAME=V,V` trains models with several values."""
MAX_SEEDS = 100_000
"""Largest number that --seeds accepts as a number of seeds."""


def add_settings(
    group: Any, cls: type[Settings], names: Iterable[str] | None = None, show_defaults: bool = False
) -> None:
    """Add an option for each setting of a configuration class to a parser or to a group of arguments.

    `names` are the settings to add, by default all of the class. `show_defaults` says whether the help shows defaults.
    Names that a setting of an experiment had in earlier versions also work as options, but the help does not show them.
    """
    former = former_fields(cls.name) if issubclass(cls, Experiment) else {}
    for name in settings_of(cls) if names is None else names:
        declared = declarations(cls)[name]
        options: dict[str, Any] = {"metavar": name.upper(), "required": declared.default is REQUIRED}
        if declared.kind is bool:
            options = {"action": argparse.BooleanOptionalAction}
        elif name == SWEEP:  # can be repeated, once for every axis
            options = {"action": "append", "metavar": "NAME=V,V"}
        elif declared.several:
            options["nargs"] = "+"
        help = declared.help
        if show_defaults and isinstance(declared.default, (str, float)):
            help += f" (default: {declared.default})"
        texts = {name: help} | {old: argparse.SUPPRESS for old, new in former.items() if new == name}
        for flag, text in texts.items():
            group.add_argument(_flag(flag), dest=name, default=argparse.SUPPRESS, help=text, **options)


def settings(arguments: argparse.Namespace, cls: type[Settings], names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the settings of a class that are set on the command line, as values by name.

    `arguments` are the parsed arguments, and `names` are the settings to read, as in `add_settings`. A single number
    for --seeds is a number of seeds: 3 gives the seeds 0, 1 and 2.
    """
    values: dict[str, Any] = {}
    for name in settings_of(cls) if names is None else names:
        if not hasattr(arguments, name):
            continue
        text, declared = getattr(arguments, name), declarations(cls)[name]
        if declared.kind is bool:
            values[name] = text
        elif name == SWEEP:
            values[name] = tuple(text)
        elif declared.several:
            parts = [part.strip() for word in text for part in word.split(",") if part.strip()]
            values[name] = tuple(value_of(name, part, declared.kind) for part in parts)
            if name == "seeds" and len(text) == 1 and "," not in text[0] and parts:  # not a list but a number of seeds
                (count,) = values[name]
                if not 1 <= count <= MAX_SEEDS:
                    raise must_be("seeds", f"1 to {MAX_SEEDS:,} seeds, as a number or a list a,b,c", count)
                values[name] = tuple(range(count))
        else:
            values[name] = value_of(name, text, declared.kind)
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
