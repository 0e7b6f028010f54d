"""What a run would take on this machine, from a few steps of it."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import torch

from placecode.engines import memory, origins
from placecode.engines.local import check
from placecode.engines.memory import UPDATES
from placecode.engines.where import Where, values_of
from placecode.runs import numbers_in
from placecode.studies.base import Study
from placecode.training import Trainer, stack_for


@dataclass(frozen=True)
class Estimate:
    """What a run would take on this machine, extrapolated from a few steps of its largest stack."""

    members: int
    stacks: int
    largest: int
    """Members of the largest stack."""
    steps: int
    processes: int
    seconds: float
    bytes: int
    """Of a GPU, for the stack that takes most; on a CPU, of all that trains at once."""
    bytes_per_member: int | None
    """By which each further member of a stack raises it; None where that was not measured."""


def estimate(study: Study, where: Where, chosen: str = ":", repeats: int = 3) -> Estimate:
    """Time a few steps of the largest stack, and measure the memory it takes."""
    where = where.resolved()
    members = study.members()
    numbers = numbers_in(chosen, len(members))
    origins.check(members, numbers)
    task = study.task()
    check(study, task, [members[i] for i in numbers])
    with where.arithmetic():
        split = memory.split(study, task, members, numbers, where)
        steps, largest = study.training_steps(task), max(split.parts, key=len)
        values = values_of([members[i] for i in numbers], task)
        crew = where.crew(len(split.parts), values)
        base, before = _resident(), torch.get_num_threads()
        torch.set_num_threads(crew.threads)
        try:
            task = task.part(members[largest[0]].data)
            stack = stack_for([members[i].alone() for i in largest], task, where.device, fast=where.fast)
            first = 1 if split.costs is None else UPDATES
            trainer = Trainer(stack, task, max(steps, first + repeats))
            for _ in range(first):
                trainer.update()
            start = _clock(where)
            for _ in range(repeats):
                trainer.update()
            each = (_clock(where) - start) / repeats / len(largest)
        finally:
            torch.set_num_threads(before)
    if split.costs is not None:
        pairs = list(zip(split.parts, split.costs, strict=True))
        taken, per_member = max((cost.of(len(part)), round(cost.each)) for part, cost in pairs)
    else:  # each process has its own libraries; each stack that trains at once has its own arrays
        taken, per_member = crew.processes * base + crew.together * (_resident() - base), None
    seconds = each * steps * len(numbers) / crew.together
    return Estimate(len(numbers), len(split.parts), len(largest), steps, crew.processes, seconds, taken, per_member)


def _clock(where: Where) -> float:
    """The time in seconds, once the device has done what it was given."""
    if where.device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _resident() -> int:
    """The most memory that this process has held so far, in bytes; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
