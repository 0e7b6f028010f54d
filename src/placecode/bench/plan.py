"""The plan of a benchmark: the models, precisions and implementations to measure, with a job per row of the table.

A plan is made in Python, or from the command line options of `placecode bench`.
"""

from __future__ import annotations

import argparse
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from placecode.bench import authors
from placecode.bench.cases import CASES, USUAL_CASES, USUAL_MEMBERS, USUAL_PEER_MEMBERS, Case
from placecode.bench.measure import CEILING_MEMBERS, Job
from placecode.bench.peers import PEERS, STACKED
from placecode.errors import BadInput, must_be, one_of, value_of
from placecode.execution.settings import PRECISIONS, ExecutionSettings
from placecode.validation import choice

DEFAULT_PRECISIONS = {"cpu": ("high",), "cuda": ("high", "bf16")}
SECONDS = 2.0
"""Default of `Plan.seconds`."""
SIZES = ("width", "tokens", "layers", "batch")
"""Sizes of the models that options can change."""


@dataclass(frozen=True)
class Plan:
    """What to measure in every case and precision. Empty fields stand for the defaults of the device.

    placecode is measured at every number of models in `members`. Stacked peers (other implementations that train many
    models at once) are measured at some or all of these numbers. Loops train one model at a time and are measured once.
    """

    device: str
    cases: tuple[Case, ...] = ()
    precisions: tuple[str, ...] = ()
    members: tuple[int, ...] = ()
    """Numbers of models that placecode trains at once."""
    peer_members: tuple[int, ...] = ()
    """Numbers of models at which stacked peers are measured. By default, these are all of `members`, or those of
    USUAL_PEER_MEMBERS if `members` is empty too."""
    peers: tuple[str, ...] = tuple(PEERS)
    seconds: float = SECONDS
    """Approximate time to measure each row, in seconds."""
    steps: int | None = None
    """Number of steps per round. If None, it follows from `seconds`."""
    authors: str | None = None
    """Command that trains one model of the paper's sizes; see `placecode.bench.authors`."""

    def __post_init__(self) -> None:
        if not self.cases:
            object.__setattr__(self, "cases", tuple(CASES[name] for name in USUAL_CASES[self.device]))
        if not self.precisions:
            object.__setattr__(self, "precisions", DEFAULT_PRECISIONS[self.device])
        for name in self.precisions:
            choice("precision", name, PRECISIONS)
        for name in self.peers:
            if name not in PEERS:
                raise one_of("peers", (*PEERS, "none"), name)
        for count in self.members:
            if count < 1:
                raise must_be("members", "whole numbers of at least 1", count)
        for count in self.peer_members:
            if count not in self.members:
                raise must_be("peer-members", "among the numbers of --members", count)
        if not 0 < self.seconds < float("inf"):
            raise must_be("seconds", "a number above 0", self.seconds)
        if self.steps is not None and self.steps < 1:
            raise must_be("steps", "a whole number of at least 1", self.steps)
        for case in self.cases:
            case.members(1)  # raises an error if a size is invalid
            if case.tokens < 1:
                raise must_be("tokens", "a whole number of at least 1", case.tokens)
        if self.authors is not None:
            authors.check(self.authors)
            if CASES["lst-paper"] not in self.cases:
                raise BadInput("authors must go with the case lst-paper, the model that their script trains.")

    def resized(self, **sizes: int) -> Plan:
        """Return a copy of the plan with other sizes of the models, such as width=64."""
        return dataclasses.replace(self, cases=tuple(case.resized(**sizes) for case in self.cases))

    def jobs(self) -> list[Job]:
        """Return a job for each row of the table of results, in the same order. The authors' script has no job."""
        jobs = []
        for case in self.cases:
            counts = self._counts(case)
            for precision in self.precisions:
                rows = [("placecode", count) for count in counts]
                for name in self.peers:
                    rows += [(name, count) for count in (self._peer_counts(case) if name in STACKED else (1,))]
                jobs += [
                    Job(case, name, count, self.device, precision, self.seconds, self.steps, torch.get_num_threads())
                    for name, count in rows
                ]
        return jobs

    def _counts(self, case: Case) -> tuple[int, ...]:
        """Return the numbers of models at which placecode is measured in a case."""
        return self.members or USUAL_MEMBERS[self.device].get(case.name, (1, 8))

    def _peer_counts(self, case: Case) -> tuple[int, ...]:
        """Return the numbers of models at which stacked peers are measured in a case."""
        if self.members:
            return self.peer_members or self.members
        counts = self._counts(case)
        return tuple(count for count in counts if count in USUAL_PEER_MEMBERS[self.device]) or counts

    def record(self) -> dict[str, Any]:
        """Return the plan as a dict for bench.json. An empty list of members stands for the defaults."""
        names = ("device", "precisions", "members", "peer_members", "peers", "seconds", "steps", "authors")
        values = {name: getattr(self, name) for name in names}
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return {"cases": [case.name for case in self.cases], **values}

    def profiling_jobs(self) -> list[Job]:
        """Return the jobs to profile on a GPU. Only placecode is profiled, not the other libraries, with one job for
        each case and precision: the one with the most models, but at most CEILING_MEMBERS if there is such a job.
        """
        chosen: dict[tuple[Case, str], Job] = {}
        limit = CEILING_MEMBERS[self.device]
        for job in sorted(self.jobs(), key=lambda job: (job.members > limit, -job.members)):
            if job.name == "placecode":
                chosen.setdefault((job.case, job.precision), job)
        return [chosen[case, precision] for case in self.cases for precision in self.precisions]


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
