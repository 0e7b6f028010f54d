"""What to measure: the rows of a benchmark before they have numbers."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from placecode.bench import authors
from placecode.bench.cases import CASES, USUAL_CASES, USUAL_MEMBERS, USUAL_PEER_MEMBERS, Case
from placecode.bench.measure import CEILING_MEMBERS, Job
from placecode.bench.peers import PEERS, STACKED
from placecode.errors import BadInput, must_be, one_of
from placecode.execution.where import PRECISIONS

USUAL_PRECISIONS = {"cpu": ("high",), "cuda": ("high", "bf16")}
SECONDS = 2.0


@dataclass(frozen=True)
class Plan:
    """What to measure in every case and precision.

    placecode is measured at every number of members, stacked peers at some or all of the same numbers, and loops, which
    train one model at a time, once.
    """

    device: str
    """One that is there: cpu or cuda."""
    cases: tuple[Case, ...] = ()
    """Usual for the device unless given, as are the precisions and, for each case, the numbers of members."""
    precisions: tuple[str, ...] = ()
    members: tuple[int, ...] = ()
    peer_members: tuple[int, ...] = ()
    """Numbers of models at which stacked peers are measured, all of them among `members`. Unless given, all of
    `members`; of the usual members, those in USUAL_PEER_MEMBERS."""
    peers: tuple[str, ...] = tuple(PEERS)
    seconds: float = SECONDS
    """To be timed for each row, about."""
    steps: int | None = None
    """Of each round, instead of as many as the seconds allow."""
    authors: str | None = None
    """A command that trains one model of the paper's sizes: see `authors`."""

    def __post_init__(self) -> None:
        if not self.cases:
            object.__setattr__(self, "cases", tuple(CASES[name] for name in USUAL_CASES[self.device]))
        if not self.precisions:
            object.__setattr__(self, "precisions", USUAL_PRECISIONS[self.device])
        for name in self.precisions:
            if name not in PRECISIONS:
                raise one_of("precision", PRECISIONS, name)
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
            case.members(1)  # says what is wrong with its sizes
            if case.tokens < 1:
                raise must_be("tokens", "a whole number of at least 1", case.tokens)
        if self.authors is not None:
            authors.check(self.authors)
            if CASES["lst-paper"] not in self.cases:
                raise BadInput("authors must go with the case lst-paper, the model that their script trains.")

    def resized(self, **sizes: int) -> Plan:
        """The same with other sizes of its models."""
        return dataclasses.replace(self, cases=tuple(case.resized(**sizes) for case in self.cases))

    def jobs(self) -> list[Job]:
        """All rows to be measured, in the order of the table."""
        jobs = []
        for case in self.cases:
            counts = self._counts(case)
            for precision in self.precisions:
                todo = [("placecode", count) for count in counts]
                for name in self.peers:
                    todo += [(name, count) for count in (self._peer_counts(case) if name in STACKED else (1,))]
                jobs += [
                    Job(case, name, count, self.device, precision, self.seconds, self.steps, torch.get_num_threads())
                    for name, count in todo
                ]
        return jobs

    def _counts(self, case: Case) -> tuple[int, ...]:
        """How many models placecode trains at once."""
        return self.members or USUAL_MEMBERS[self.device].get(case.name, (1, 8))

    def _peer_counts(self, case: Case) -> tuple[int, ...]:
        """How many models stacked peers train at once."""
        if self.members:
            return self.peer_members or self.members
        counts = self._counts(case)
        return tuple(count for count in counts if count in USUAL_PEER_MEMBERS[self.device]) or counts

    def described(self) -> dict[str, Any]:
        """The plan as plain values, for the record. Empty members are the usual ones."""
        named = ("device", "precisions", "members", "peer_members", "peers", "seconds", "steps", "authors")
        values = {name: getattr(self, name) for name in named}
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return {"cases": [case.name for case in self.cases], **values}

    def profiled(self) -> list[Job]:
        """placecode at each case and precision, with the most members up to those of the ceiling."""
        found: dict[tuple[Case, str], Job] = {}
        limit = CEILING_MEMBERS[self.device]
        for job in sorted(self.jobs(), key=lambda job: (job.members > limit, -job.members)):
            if job.name == "placecode":
                found.setdefault((job.case, job.precision), job)
        return [found[case, precision] for case in self.cases for precision in self.precisions]
