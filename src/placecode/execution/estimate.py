"""Estimate the time and memory of a run on this machine by training its largest stack for a few steps."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from placecode.execution import memory
from placecode.execution.contract import ExperimentProtocol
from placecode.execution.local import prepare
from placecode.execution.memory import PROBE_STEPS
from placecode.execution.settings import ExecutionSettings, values_of
from placecode.models.encoder import Stack
from placecode.tasks.base import Task
from placecode.training.trainer import Trainer, portions

TIMED_STEPS = 3
"""Number of training steps that are timed."""


@dataclass(frozen=True)
class Estimate:
    """Estimated time and memory of a run, extrapolated from a few steps of its largest stack."""

    members: int
    stacks: int
    largest_stack_size: int
    """Number of members of the largest stack."""
    steps: int
    """Training steps per member."""
    processes: int
    seconds: float
    """Time for training and all evaluations of the whole run."""
    seconds_per_prediction: float
    """Time for the prediction of one member on one example during evaluation."""
    bytes: int
    """On a GPU, memory of the stack that needs most. On a CPU, memory of all processes, with all stacks that train at
    the same time."""
    bytes_per_member: int | None
    """Memory that each member adds to a stack. None on a CPU, where it is not measured."""


def estimate(experiment: ExperimentProtocol, execution: ExecutionSettings, member_ranges: str = ":") -> Estimate:
    """Train the largest stack of a run for a few steps and return the estimated time and memory of the whole run.

    `member_ranges` selects the members (models) of the run by their numbers: "0:3,5:6" for 0, 1, 2 and 5; ":" for all.
    """
    members, numbers, task = prepare(experiment, member_ranges)
    with execution.arithmetic():
        plan = memory.stack_plan(experiment, task, members, numbers, execution)
        steps, largest = experiment.training_steps(task), max(plan.stacks, key=len)
        values = values_of([members[i] for i in numbers], task)
        concurrency = execution.concurrency(len(plan.stacks), values)
        base, threads_before = memory.peak_resident() or 0, torch.get_num_threads()
        torch.set_num_threads(concurrency.threads_per_stack)
        try:
            task = task.for_data_set(members[largest[0]].data)
            stack = execution.build_stack([members[i].without_donor() for i in largest], task)
            warmup = 1 if plan.costs is None else PROBE_STEPS
            trainer = Trainer(stack, task, max(steps, warmup + TIMED_STEPS))
            for _ in range(warmup):
                trainer.update()
            start = _clock(execution)
            for _ in range(TIMED_STEPS):
                trainer.update()
            seconds_per_step = (_clock(execution) - start) / TIMED_STEPS / len(largest)
            seconds_per_prediction = _seconds_per_prediction(stack, task, execution)
        finally:
            torch.set_num_threads(threads_before)
    if plan.costs is not None:
        pairs = zip(plan.stacks, plan.costs, strict=True)
        total_bytes, bytes_per_member = max((cost.total(len(stack)), round(cost.per_member)) for stack, cost in pairs)
    else:  # libraries are loaded once per process, arrays once per concurrent stack
        stack_bytes = (memory.peak_resident() or 0) - base
        total_bytes, bytes_per_member = concurrency.processes * base + concurrency.concurrent_stacks * stack_bytes, None
    evaluations = len(experiment.evaluate_at(task)) + 2  # also before and after training
    predictions = sum(task.row_count(name) for name in task.splits) * evaluations
    seconds = (
        (seconds_per_step * steps + seconds_per_prediction * predictions) * len(numbers) / concurrency.concurrent_stacks
    )
    return Estimate(
        members=len(numbers),
        stacks=len(plan.stacks),
        largest_stack_size=len(largest),
        steps=steps,
        processes=concurrency.processes,
        seconds=seconds,
        seconds_per_prediction=seconds_per_prediction,
        bytes=total_bytes,
        bytes_per_member=bytes_per_member,
    )


@torch.no_grad()
def _seconds_per_prediction(stack: Stack, task: Task, execution: ExecutionSettings) -> float:
    """Return the mean time in seconds that one member needs to predict one example.

    It is measured with all members of `stack`, on a batch of training examples that is as large as at evaluation.
    """
    device_task = task.bind(stack.members).to(stack.flat.device, stack.flat.dtype)
    rows = torch.arange(len(portions(stack, task, task.row_count("train"))[0]), device=stack.flat.device)
    inputs, _ = device_task.batch("train", rows.expand(len(stack.members), -1))
    stack(inputs)
    start = _clock(execution)
    stack(inputs)
    return (_clock(execution) - start) / (len(rows) * len(stack.members))


def _clock(execution: ExecutionSettings) -> float:
    """Wait for the device to finish its work and return the reading of a clock in seconds."""
    if execution.device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()
