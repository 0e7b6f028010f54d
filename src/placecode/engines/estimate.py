"""What a run would take on this machine, from a few steps of it."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import torch

from placecode.encoder import plan_stacks
from placecode.engines.local import Where, check, crew
from placecode.runs import numbers_in
from placecode.studies.base import Study
from placecode.training import Trainer, stack_for


@dataclass(frozen=True)
class Estimate:
    """What a run would take on this machine, extrapolated from a few steps of its largest stack."""

    members: int
    stacks: int
    steps: int
    seconds: float
    bytes: int


def estimate(study: Study, where: Where, chosen: str = ":", repeats: int = 3) -> Estimate:
    """Time a few steps of the largest stack, and measure the memory it takes."""
    where = where.resolved()
    members = study.members()
    members = [members[i] for i in numbers_in(chosen, len(members))]
    parts = plan_stacks(members, where.stack or 1)
    task = study.task()
    check(study, task, members)
    steps = study.steps(task)
    largest = max(parts, key=len)
    (together, threads), before = crew(where, len(parts)), torch.get_num_threads()
    base = _peak_memory(where)
    torch.set_num_threads(threads)
    try:
        with where.arithmetic():
            trainer = Trainer(
                stack_for([members[i] for i in largest], task, where.device), task, max(steps, 2 * repeats)
            )
            trainer.update()
            start = _clock(where)
            for _ in range(repeats):
                trainer.update()
            each = (_clock(where) - start) / repeats / len(largest)
    finally:
        torch.set_num_threads(before)
    peak = base + together * (_peak_memory(where) - base)
    return Estimate(len(members), len(parts), steps, each * steps * len(members) / together, peak)


def _clock(where: Where) -> float:
    """The time in seconds, once the device has done what it was given."""
    if where.device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _peak_memory(where: Where) -> int:
    """The most memory held so far, in bytes, on the device; 0 where the system does not tell."""
    if where.device == "cuda":
        return torch.cuda.max_memory_allocated()
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
