"""Command line options of `placecode bench`, and how a plan is built from them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from placecode.bench.cases import CASES
from placecode.bench.plan import Plan
from placecode.cli import flags
from placecode.errors import must_be, value_of
from placecode.execution.settings import PRECISIONS, ExecutionSettings
from placecode.settings import settings_of
from placecode.validation import choice

SIZES = ("width", "tokens", "layers", "batch")
"""Sizes of the models that can be changed by options."""
PLAN_SETTINGS = [name for name in settings_of(Plan) if name != "device"]
"""Settings of the plan whose options are added by `flags.add_settings`."""


def add_bench_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bench` to its parser. Lists are values separated by commas."""
    flags.add_settings(parser, ExecutionSettings, ["device"], show_defaults=True)
    parser.add_argument(
        "--case", metavar="A,B", help=f"cases to measure: {', '.join(CASES)} or all (default: depends on the device)"
    )
    parser.add_argument(
        "--precision",
        metavar="A,B",
        help=f"precisions to measure: {', '.join(PRECISIONS)} (default: high, and bf16 on a GPU)",
    )
    for name in SIZES:
        parser.add_argument(f"--{name}", metavar="N", help=f"{name} of the models (default: that of the case)")
    flags.add_settings(parser, Plan, PLAN_SETTINGS, show_defaults=True)
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for bench.json, bench.csv and figures")
    parser.add_argument("--force", action="store_true", help="overwrite a benchmark in the output folder")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def plan_of(arguments: argparse.Namespace) -> Plan:
    """Return the plan of the benchmark from the parsed options. Raises BadInput if they are invalid."""
    given = flags.settings(arguments, Plan, PLAN_SETTINGS)
    settings: dict[str, Any] = {
        name: _different(name, value) if isinstance(value, tuple) else value for name, value in given.items()
    }
    cases, precisions = (_different(name, _words(getattr(arguments, name))) for name in ("case", "precision"))
    for name in cases:
        choice("case", name, (*CASES, "all"))
    plan = Plan(
        device=ExecutionSettings(**flags.settings(arguments, ExecutionSettings, ["device"])).device,
        cases=tuple(CASES.values()) if "all" in cases else tuple(CASES[name] for name in cases),
        precisions=precisions,
        **settings,
    )
    sizes = {
        name: value_of(name, getattr(arguments, name), int) for name in SIZES if getattr(arguments, name) is not None
    }
    return plan.resized(**sizes) if sizes else plan


def _words(text: str | None) -> list[str] | None:
    """Split a text at commas, and return the parts without spaces around them. Return None for None."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _different(name: str, values: Sequence[Any] | None) -> tuple[Any, ...]:
    """Return the values of the option `name` without duplicates, or () if `values` is None, as without the option.
    Raise BadInput for an empty list."""
    if values is not None and not values:
        raise must_be(name, "at least one", list(values))
    return tuple(dict.fromkeys(values or ()))
