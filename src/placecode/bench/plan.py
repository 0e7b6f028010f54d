"""The plan of a benchmark: the models, precisions and implementations to measure, with a job per row of the table."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from placecode.bench import authors
from placecode.bench.cases import CASES, USUAL_CASES, USUAL_MEMBERS, USUAL_PEER_MEMBERS, Case
from placecode.bench.measure import CEILING_MEMBERS, Job
from placecode.bench.peers import PEERS, STACKED
from placecode.errors import BadInput, must_be
from placecode.execution.settings import PRECISIONS
from placecode.settings import REQUIRED, Settings, setting
from placecode.validation import choice

DEFAULT_PRECISIONS = {"cpu": ("high",), "cuda": ("high", "bf16")}


@dataclass(frozen=True)
class Plan(Settings):
    """What a benchmark measures: implementations, in every case (model size) and precision.

    Empty `cases`, `precisions`, `members` and `peer_members` stand for defaults. placecode is measured at every number
    of models in `members`. Stacked peers (other implementations that train many models at once) are measured at some or
    all of these numbers. Loops train one model at a time and are measured once.
    """

    device: str = setting(REQUIRED, "cpu or cuda", choices=tuple(DEFAULT_PRECISIONS))
    cases: tuple[Case, ...] = ()
    precisions: tuple[str, ...] = ()
    members: tuple[int, ...] = setting(
        (), "numbers of models placecode trains at once (default: depends on the case)", least=1
    )
    peer_members: tuple[int, ...] = setting(
        (),
        "numbers of models for other implementations that train many at once, among --members (default: all, or some "
        "of the usual ones without --members)",
    )
    peers: tuple[str, ...] = setting(
        tuple(PEERS),
        f"implementations to compare with: {', '.join(PEERS)} or none (default: all)",
        choices=(*PEERS, "none"),
    )
    seconds: float = setting(2.0, "approximate time to measure each row", above=0)
    steps: int | None = setting(None, "number of steps per round, instead of --seconds", least=1)
    authors: str | None = setting(
        None, "external training script to compare with; contains {steps} or {epochs} (see placecode.bench.authors)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.cases:
            object.__setattr__(self, "cases", tuple(CASES[name] for name in USUAL_CASES[self.device]))
        if not self.precisions:
            object.__setattr__(self, "precisions", DEFAULT_PRECISIONS[self.device])
        for name in self.precisions:
            choice("precision", name, PRECISIONS)
        object.__setattr__(self, "peers", tuple(name for name in self.peers if name != "none"))
        for count in self.peer_members:
            if count not in self.members:
                raise must_be("peer_members", "among the numbers of --members", count)
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
        """Return the numbers of models at which placecode is measured for a case, such as (1, 2, 8)."""
        return self.members or USUAL_MEMBERS[self.device].get(case.name, (1, 8))

    def _peer_counts(self, case: Case) -> tuple[int, ...]:
        """Return the numbers of models at which stacked peers (see the class) are measured for a case."""
        if self.members:
            return self.peer_members or self.members
        counts = self._counts(case)
        return tuple(count for count in counts if count in USUAL_PEER_MEMBERS[self.device]) or counts

    def record(self) -> dict[str, Any]:
        """Return the plan as a dict for bench.json. An empty list of "members" stands for the defaults."""
        names = ("device", "precisions", "members", "peer_members", "peers", "seconds", "steps", "authors")
        values = {name: getattr(self, name) for name in names}
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return {"cases": [case.name for case in self.cases], **values}

    def profiling_jobs(self) -> list[Job]:
        """Return the jobs to profile on a GPU, one for each case and precision. Only placecode is profiled.

        The job has the largest number of models up to CEILING_MEMBERS or, if there is none, the largest number of all.
        """
        chosen: dict[tuple[Case, str], Job] = {}
        limit = CEILING_MEMBERS[self.device]
        for job in sorted(self.jobs(), key=lambda job: (job.members > limit, -job.members)):
            if job.name == "placecode":
                chosen.setdefault((job.case, job.precision), job)
        return [chosen[case, precision] for case in self.cases for precision in self.precisions]
