"""What a run would take on this machine, from a few steps of it."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import torch

from placecode.execution import memory, origins
from placecode.execution.contract import Experiment
from placecode.execution.local import check
from placecode.execution.memory import UPDATES
from placecode.execution.where import Where, values_of
from placecode.models.encoder import Stack
from placecode.runs.read import numbers_in
from placecode.tasks.base import Task
from placecode.training.trainer import Trainer, portions, stack_for


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
    """Of training, with all evaluations on the way."""
    answer: float
    """Seconds that an answer of one member to one example takes at evaluation."""
    bytes: int
    """Of a GPU, for the stack that takes most; on a CPU, of all that trains at once."""
    bytes_per_member: int | None
    """By which each further member of a stack raises it; None where that was not measured."""


def estimate(study: Experiment, where: Where, chosen: str = ":", repeats: int = 3) -> Estimate:
    """Time a few steps of the largest stack, and measure the memory it takes."""
    where = where.resolved()
    members = study.members()
    numbers = numbers_in(chosen, len(members))
    task = study.data()
    origins.check(members, numbers, task)
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
            answer = _answer(stack, task, where)
        finally:
            torch.set_num_threads(before)
    if split.costs is not None:
        pairs = list(zip(split.parts, split.costs, strict=True))
        taken, per_member = max((cost.of(len(part)), round(cost.each)) for part, cost in pairs)
    else:  # each process has its own libraries; each stack that trains at once has its own arrays
        taken, per_member = crew.processes * base + crew.together * (_resident() - base), None
    asked = sum(task.rows(name) for name in task.splits) * (len(study.evaluate_at(task)) + 2)  # at start and end too
    seconds = (each * steps + answer * asked) * len(numbers) / crew.together
    return Estimate(
        *(len(numbers), len(split.parts), len(largest), steps, crew.processes, seconds, answer),
        *(taken, per_member),
    )


@torch.no_grad()
def _answer(stack: Stack, task: Task, where: Where) -> float:
    """What an answer at evaluation takes, from one portion of the training examples."""
    local = task.bind(stack.members).to(stack.flat.device, stack.flat.dtype)
    rows = torch.arange(len(portions(stack, task, task.rows("train"))[0]), device=stack.flat.device)
    inputs, _ = local.batch("train", rows.expand(len(stack.members), -1))
    stack(inputs)
    start = _clock(where)
    stack(inputs)
    return (_clock(where) - start) / (len(rows) * len(stack.members))


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
