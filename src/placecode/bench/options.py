"""The options of `placecode bench`, and the plan that they make."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from placecode.bench.cases import CASES
from placecode.bench.peers import PEERS
from placecode.bench.plan import SECONDS, Plan
from placecode.errors import must_be, one_of, value_of
from placecode.execution.where import PRECISIONS, Where

SIZES = ("width", "tokens", "layers", "batch")
"""What of a case can be changed."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Lists have commas in them."""
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--case", metavar="A,B", help=f"of {', '.join(CASES)}, or all (default: what suits the device)")
    parser.add_argument(
        "--precision", metavar="A,B", help=f"of {', '.join(PRECISIONS)} (default: high; on cuda bf16 too)"
    )
    parser.add_argument("--members", metavar="N,M", help="how many models placecode trains at once (default: several)")
    parser.add_argument(
        "--peer-members",
        metavar="N,M",
        help="those of --members at which peers that train many models at once are measured (default: all of them)",
    )
    for name in SIZES:
        parser.add_argument(f"--{name}", metavar="N", help=f"{name} of the model, instead of the case's")
    parser.add_argument("--peers", metavar="A,B", help=f"of {', '.join(PEERS)}, or none (default: all)")
    parser.add_argument("--seconds", default=str(SECONDS), metavar="S", help="how long to time each row, about")
    parser.add_argument("--steps", metavar="N", help="steps of each round, instead of what the seconds allow")
    parser.add_argument("--authors", metavar="COMMAND", help="a script to compare with, with {steps} or {epochs} in it")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write bench.json, bench.csv and figures there")
    parser.add_argument("--force", action="store_true", help="overwrite the benchmark in that folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def plan_of(given: argparse.Namespace) -> Plan:
    """The plan that the options make, all of them checked."""
    names, peers = _several(given, "case"), _several(given, "peers")
    for name in names:
        if name not in (*CASES, "all"):
            raise one_of("case", (*CASES, "all"), name)
    sizes = {name: value_of(name, getattr(given, name), int) for name in SIZES if getattr(given, name) is not None}
    plan = Plan(
        device=Where(given.device).resolved().device,
        cases=tuple(CASES.values()) if "all" in names else tuple(CASES[name] for name in names),
        precisions=_several(given, "precision"),
        members=_several(given, "members", int),
        peer_members=_several(given, "peer-members", int),
        peers=tuple(name for name in peers or PEERS if name != "none"),
        seconds=value_of("seconds", given.seconds, float),
        steps=None if given.steps is None else value_of("steps", given.steps, int),
        authors=given.authors,
    )
    return plan.resized(**sizes) if sizes else plan


def _several(given: argparse.Namespace, name: str, kind: type = str) -> tuple[Any, ...]:
    """The values of a list, each once; none where the option was not given."""
    text = getattr(given, name.replace("-", "_"))
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    if text is not None and not parts:
        raise must_be(name, "at least one", text)
    return tuple(dict.fromkeys(value_of(name, part, kind) for part in parts))
