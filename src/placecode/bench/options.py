"""Command line options of `placecode bench`, and how a plan is built from them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from placecode.bench.cases import CASES
from placecode.bench.peers import PEERS
from placecode.bench.plan import SECONDS, Plan
from placecode.errors import must_be, value_of
from placecode.execution.settings import PRECISIONS, ExecutionSettings
from placecode.validation import choice

SIZES = ("width", "tokens", "layers", "batch")
"""Sizes of the models that can be changed by options."""


def add_bench_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bench` to its parser. Options that take a list expect values separated by commas."""
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument(
        "--case", metavar="A,B", help=f"cases to measure: {', '.join(CASES)} or all (default: depends on the device)"
    )
    parser.add_argument(
        "--precision",
        metavar="A,B",
        help=f"precisions to measure: {', '.join(PRECISIONS)} (default: high, and bf16 on a GPU)",
    )
    parser.add_argument(
        "--members", metavar="N,M", help="numbers of models placecode trains at once (default: depends on the case)"
    )
    parser.add_argument(
        "--peer-members",
        metavar="N,M",
        help="numbers of models for other implementations that train many at once, among --members (default: all)",
    )
    for name in SIZES:
        parser.add_argument(f"--{name}", metavar="N", help=f"{name} of the models (default: that of the case)")
    parser.add_argument(
        "--peers", metavar="A,B", help=f"implementations to compare with: {', '.join(PEERS)} or none (default: all)"
    )
    parser.add_argument("--seconds", default=str(SECONDS), metavar="S", help="approximate time to measure each row")
    parser.add_argument("--steps", metavar="N", help="number of steps per round, instead of --seconds")
    parser.add_argument(
        "--authors", metavar="COMMAND", help="external training script to compare with; contains {steps} or {epochs}"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for bench.json, bench.csv and figures")
    parser.add_argument("--force", action="store_true", help="overwrite a benchmark in the output folder")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def plan_of(arguments: argparse.Namespace) -> Plan:
    """Return the plan that the options describe. Raises BadInput if they are invalid."""
    names, peers = _values(arguments, "case"), _values(arguments, "peers")
    for name in names:
        choice("case", name, (*CASES, "all"))
    sizes = {
        name: value_of(name, getattr(arguments, name), int) for name in SIZES if getattr(arguments, name) is not None
    }
    plan = Plan(
        device=ExecutionSettings(arguments.device).device,
        cases=tuple(CASES.values()) if "all" in names else tuple(CASES[name] for name in names),
        precisions=_values(arguments, "precision"),
        members=_values(arguments, "members", int),
        peer_members=_values(arguments, "peer-members", int),
        peers=tuple(name for name in peers or PEERS if name != "none"),
        seconds=value_of("seconds", arguments.seconds, float),
        steps=None if arguments.steps is None else value_of("steps", arguments.steps, int),
        authors=arguments.authors,
    )
    return plan.resized(**sizes) if sizes else plan


def _values(arguments: argparse.Namespace, name: str, kind: type = str) -> tuple[Any, ...]:
    """Return the values of an option that takes a list, without duplicates; empty if the option is missing."""
    text = getattr(arguments, name.replace("-", "_"))
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    if text is not None and not parts:
        raise must_be(name, "at least one", text)
    return tuple(dict.fromkeys(value_of(name, part, kind) for part in parts))
