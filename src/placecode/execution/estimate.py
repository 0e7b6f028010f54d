"""Estimate the time and memory of a run on this machine by training its largest stack for a few steps."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from placecode.execution import memory
from placecode.execution.contract import Experiment
from placecode.execution.local import prepare
from placecode.execution.memory import PROBE_STEPS
from placecode.execution.where import Where, values_of
from placecode.models.encoder import Stack
from placecode.tasks.base import Task
from placecode.training.trainer import Trainer, portions, stack_for

TIMED_STEPS = 3
"""Number of training steps that are timed."""


@dataclass(frozen=True)
class Estimate:
    """Estimated time and memory of a run, extrapolated from a few steps of its largest stack."""

    members: int
    stacks: int
    largest: int
    """Number of members of the largest stack."""
    steps: int
    """Training steps per member."""
    processes: int
    seconds: float
    """Time for training and all evaluations of the whole run."""
    answer: float
    """Seconds for the prediction of one member on one example during evaluation."""
    bytes: int
    """On a GPU, memory of the stack that needs most. On a CPU, memory of all stacks that train concurrently."""
    bytes_per_member: int | None
    """Memory that each member adds to a stack. None on a CPU, where it is not measured."""


def estimate(experiment: Experiment, where: Where, chosen: str = ":") -> Estimate:
    """Train the largest stack of a run for a few steps and return the estimated time and memory of the whole run.

    `chosen` selects the members of the run, in the syntax of `--members` (":" for all).
    """
    where = where.resolved()
    members, numbers, task = prepare(experiment, chosen)
    with where.arithmetic():
        split = memory.split(experiment, task, members, numbers, where)
        steps, largest = experiment.training_steps(task), max(split.parts, key=len)
        values = values_of([members[i] for i in numbers], task)
        crew = where.crew(len(split.parts), values)
        base, threads_before = memory.peak_resident() or 0, torch.get_num_threads()
        torch.set_num_threads(crew.threads)
        try:
            task = task.for_data_set(members[largest[0]].data)
            stack = stack_for([members[i].without_donor() for i in largest], task, where.device, fast=where.fast)
            warmup = 1 if split.costs is None else PROBE_STEPS
            trainer = Trainer(stack, task, max(steps, warmup + TIMED_STEPS))
            for _ in range(warmup):
                trainer.update()
            start = _clock(where)
            for _ in range(TIMED_STEPS):
                trainer.update()
            seconds_per_step = (_clock(where) - start) / TIMED_STEPS / len(largest)
            seconds_per_answer = _seconds_per_answer(stack, task, where)
        finally:
            torch.set_num_threads(threads_before)
    if split.costs is not None:
        pairs = list(zip(split.parts, split.costs, strict=True))
        total_bytes, bytes_per_member = max((cost.total(len(part)), round(cost.per_member)) for part, cost in pairs)
    else:  # libraries are loaded once per process, arrays once per concurrent stack
        stack_bytes = (memory.peak_resident() or 0) - base
        total_bytes, bytes_per_member = crew.processes * base + crew.concurrent_stacks * stack_bytes, None
    evaluations = len(experiment.evaluate_at(task)) + 2  # also before and after training
    answers = sum(task.row_count(name) for name in task.splits) * evaluations
    seconds = (seconds_per_step * steps + seconds_per_answer * answers) * len(numbers) / crew.concurrent_stacks
    return Estimate(
        members=len(numbers),
        stacks=len(split.parts),
        largest=len(largest),
        steps=steps,
        processes=crew.processes,
        seconds=seconds,
        answer=seconds_per_answer,
        bytes=total_bytes,
        bytes_per_member=bytes_per_member,
    )


@torch.no_grad()
def _seconds_per_answer(stack: Stack, task: Task, where: Where) -> float:
    """Return the time in seconds of the prediction of one member on one example.

    It is measured on as many training examples as one batch of an evaluation has.
    """
    device_task = task.bind(stack.members).to(stack.flat.device, stack.flat.dtype)
    rows = torch.arange(len(portions(stack, task, task.row_count("train"))[0]), device=stack.flat.device)
    inputs, _ = device_task.batch("train", rows.expand(len(stack.members), -1))
    stack(inputs)
    start = _clock(where)
    stack(inputs)
    return (_clock(where) - start) / (len(rows) * len(stack.members))


def _clock(where: Where) -> float:
    """Wait for the device to finish its work and return the reading of a clock in seconds."""
    if where.device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()
