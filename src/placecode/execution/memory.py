"""Plan which members train together: find the largest stack that fits into the GPU's memory.

The memory of a stack is modelled as linear in its number of members: a constant amount (data, library workspaces) plus
an amount per member. Both are estimated by training and evaluating two small stacks (probes) of the same shape for a
few steps. So no table of models and GPUs is needed, and new encodings or kernels need no change here. Rounding depends
on the split of members into stacks, so the split is recorded in environment.json, and a resumed run uses it again.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from placecode.errors import BadInput
from placecode.execution.contract import ExperimentProtocol
from placecode.execution.settings import ExecutionSettings, values_of
from placecode.models.encoder import plan_stacks, stack_key
from placecode.models.member import Member
from placecode.runs.read import format_ranges
from placecode.tasks.base import Task
from placecode.training.trainer import Trainer

PROBE_SIZES = (2, 4)
"""Numbers of members of the probes, two small stacks that are trained briefly to measure their memory. A stack of one
member may use other kernels, so it is not a probe."""
PROBE_STEPS = 5
"""Number of training steps of a probe. The first steps allocate buffers that later steps reuse."""
SAFETY_FACTOR = 1.25
"""Factor by which the measured memory is multiplied. Only tensors are measured, but torch's allocator rounds sizes up
and leaves gaps, and a CUDA graph keeps memory of its own."""
RESERVED_BYTES = 1 << 30
"""Number of bytes of free GPU memory left unused, because each process needs some for its CUDA context and kernels."""


class GpuMemoryMeter:
    """Meter of the memory in bytes of the first `count` GPUs, one per worker process.

    `total` and `available` are the minimum over these GPUs, since any stack may be trained on any of them. `peak` and
    `peak_reserved` are those of the current GPU.
    """

    def __init__(self, count: int) -> None:
        self.devices = range(count)

    @property
    def total(self) -> int:
        """Memory in bytes of the GPU with the least memory."""
        return min(torch.cuda.mem_get_info(device)[1] for device in self.devices)

    def available(self) -> int:
        """Reset peaks and return the bytes that this process can use (free or already reserved) on the fullest GPU."""
        self.reset()
        return min(torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device) for device in self.devices)

    def reset(self) -> None:
        """Release cached memory and reset the peaks."""
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()

    def peak(self) -> int:
        """Return the peak GPU memory in bytes of this process's tensors since the last `reset`."""
        return torch.cuda.max_memory_allocated()

    def peak_reserved(self) -> int:
        """Return the peak GPU memory in bytes that this process has reserved since the last `reset`, with caches."""
        return torch.cuda.max_memory_reserved()


def meter_for(execution: ExecutionSettings) -> GpuMemoryMeter | None:
    """Return an object that measures GPU memory, or None on a CPU, where only the memory of a process is known."""
    return GpuMemoryMeter(execution.max_processes) if execution.device == "cuda" else None


@dataclass(frozen=True)
class Cost:
    """Memory in bytes of stacks of one shape, linear in the number of members."""

    base: float
    """Memory that does not depend on the number of members."""
    per_member: float

    @classmethod
    def from_probes(cls, small: float, large: float) -> Cost:
        """Return the memory as a linear function of the number of members, estimated from two small stacks.

        `small` and `large` are the bytes that stacks with the numbers of members in `PROBE_SIZES` used.
        """
        per_member = max(0.0, (large - small) / (PROBE_SIZES[1] - PROBE_SIZES[0]))
        return cls(large - PROBE_SIZES[1] * per_member, per_member)

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.base + other.base, self.per_member + other.per_member)

    def total(self, members: int) -> int:
        """Return the memory in bytes of a stack with this number of members."""
        return round(self.base + members * self.per_member)

    def max_members(self, budget: float) -> int:
        """Return the largest number of members whose stack fits into `budget` bytes; 0 if not even one fits."""
        return max(0, int((budget - self.base) // max(1.0, self.per_member)))


@dataclass(frozen=True)
class PeakMemory:
    """Peak memory of a stack in bytes, in each phase of a run."""

    training: int
    evaluation: int
    """Peak during evaluation, minus the memory of the parameters and the optimizer."""
    analysis: int
    """Peak during the analyses after training."""


def probe(
    experiment: ExperimentProtocol,
    task: Task,
    members: Sequence[Member],
    execution: ExecutionSettings,
    meter: GpuMemoryMeter,
    updates: int = PROBE_STEPS,
) -> PeakMemory:
    """Train a stack for `updates` steps, evaluate and analyse it, and return its peak memory in each phase."""
    meter.reset()
    task = task.for_data_set(members[0].data).bind(members)
    steps, moments = experiment.training_steps(task), experiment.evaluate_at(task)
    trainer = Trainer(execution.build_stack(members, task), task, steps, moments)
    persistent = meter.peak()
    checkpoint = trainer.state()  # included because a checkpoint may be waiting to be written at any time
    for _ in range(min(updates, steps)):
        trainer.update()
    training = meter.peak()
    del checkpoint
    meter.reset()
    for _ in trainer.evaluate():
        pass
    evaluation = max(0, meter.peak() - persistent)
    stack = trainer.stack
    del trainer
    meter.reset()
    experiment.trial_analysis(stack, task)
    experiment.arrays(stack, task)
    return PeakMemory(training, evaluation, meter.peak())


def largest_stack(measure: Callable[..., PeakMemory], limit: int, budget: float) -> tuple[int, Cost]:
    """Return how many members a stack may have to fit into `budget` bytes, at most `limit`, and the `Cost` of stacks.

    The number is 0 if not even one member fits. `measure(count)` must return the `PeakMemory` of a stack of `count`
    members, and `measure(count, updates=0)` its peak memory without training. It may raise torch.OutOfMemoryError.
    """
    budget /= SAFETY_FACTOR
    with contextlib.suppress(torch.OutOfMemoryError):
        small, large = (measure(count) for count in PROBE_SIZES)
        training = Cost.from_probes(small.training, large.training)
        analysis = Cost.from_probes(small.analysis, large.analysis)
        limit = min(limit, training.max_members(budget), analysis.max_members(budget))
        # a captured training step keeps its memory during evaluation, so the two costs add up
        cost = training + Cost.from_probes(small.evaluation, large.evaluation)
        if PROBE_SIZES[1] < limit and cost.max_members(budget) < limit:
            # evaluation uses batches of limited size, so a large stack may need less memory than the line predicts
            with contextlib.suppress(torch.OutOfMemoryError):
                flat = training + Cost(measure(limit, updates=0).evaluation, 0.0)
                cost = max(cost, flat, key=lambda cost: cost.max_members(budget))
        return min(limit, cost.max_members(budget)), cost
    with contextlib.suppress(torch.OutOfMemoryError):  # the probes do not fit; a single member may still fit
        single = measure(1)
        needed = max(single.training + single.evaluation, single.analysis)
        return int(needed <= budget), Cost(0.0, needed)
    return 0, Cost(0.0, 0.0)


@dataclass(frozen=True)
class StackPlan:
    """Which members train together, as one stack."""

    stacks: list[list[int]]
    """Member numbers of each stack."""
    costs: list[Cost] | None = None
    """Memory of each stack, as a function of its number of members. None if it was not measured."""

    def record(self, execution: ExecutionSettings) -> dict[str, Any]:
        """Return entries for environment.json: how members were divided into stacks ("split") and, if it was measured,
        the memory of the stacks ("memory")."""
        record: dict[str, Any] = {"split": [format_ranges(stack) for stack in self.stacks]}
        if self.costs is None:
            return record
        needed = [cost.total(len(stack)) for stack, cost in zip(self.stacks, self.costs, strict=True)]
        per_member = [round(cost.per_member) for cost in self.costs]
        return {**record, "memory": {"share": execution.memory, "bytes needed": needed, "bytes per member": per_member}}


def stack_plan(
    experiment: ExperimentProtocol,
    task: Task,
    members: Sequence[Member],
    numbers: Sequence[int],
    execution: ExecutionSettings,
) -> StackPlan:
    """Divide the members with these `numbers` into stacks, each of members of one shape, as large as memory allows.

    Raise BadInput if a GPU has no room for a single member.
    """
    meter = meter_for(execution)
    groups: dict[tuple[object, ...], list[int]] = {}
    for number in numbers:
        groups.setdefault(stack_key(members[number]), []).append(number)
    stacks: list[list[int]] = []
    costs: list[Cost] = []
    for group in groups.values():
        size = limit = execution.parallel_stack_size(len(numbers), values_of([members[group[0]]], task))
        if meter is not None:
            size, cost = _measured_size(
                experiment, task, [members[number] for number in group], execution, meter, limit
            )
        group_stacks = plan_stacks([members[number] for number in group], size)
        stacks += [[group[i] for i in stack] for stack in group_stacks]
        if meter is not None:
            costs += [cost] * len(group_stacks)
    return StackPlan(stacks, costs if meter is not None else None)


def _measured_size(
    experiment: ExperimentProtocol,
    task: Task,
    group: Sequence[Member],
    execution: ExecutionSettings,
    meter: GpuMemoryMeter,
    limit: int,
) -> tuple[int, Cost]:
    """Measure how much GPU memory members of one shape need. Return the number of members of the largest stack that
    fits, at most `limit`, and the memory that stacks of this shape need.

    `group` are the members of this shape. Raise BadInput if the memory is too small for a single member.
    """
    available, total = meter.available(), meter.total
    budget = min(execution.memory * total, available - RESERVED_BYTES)

    def measure(count: int, updates: int = PROBE_STEPS) -> PeakMemory:
        members = [group[i % len(group)].without_donor() for i in range(count)]  # a group may be smaller than a probe
        return probe(experiment, task, members, execution, meter, updates)

    size, cost = largest_stack(measure, min(limit, len(group)), budget)
    meter.reset()
    if size < 1:
        raise BadInput(
            "the GPU must have memory for at least one member of this experiment; it may use "
            f"{format_bytes(max(0, budget))} ({execution.memory:g} of {format_bytes(total)}, of which "
            f"{format_bytes(available)} are free), which is too little."
        )
    return size, cost


def check_free_memory(environment: Mapping[str, Any], unfinished: Sequence[int], execution: ExecutionSettings) -> None:
    """Raise BadInput if an unfinished stack of a resumed run no longer fits into the free GPU memory.

    `environment` is the content of the run's environment.json, and `unfinished` has the indices of the stacks.
    """
    needed = environment.get("memory", {}).get("bytes needed")
    meter = meter_for(execution)
    if needed is None or meter is None:
        return
    largest, available = max((needed[index] for index in unfinished), default=0), meter.available()
    if largest > available:
        raise BadInput(
            f"the GPU must have {format_bytes(largest)} free for the stacks of this run; {format_bytes(available)} are "
            "free now: wait until other processes release memory, or start again with --force."
        )


@contextlib.contextmanager
def explain_out_of_memory(members: int) -> Iterator[None]:
    """Return a context manager that turns an out-of-memory error into a BadInput with advice for the user.

    `members` is the number of members of the stack that is trained or analysed.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise BadInput(
            f"the GPU must have memory for a stack of {members} members, but it ran out of memory; finished stacks and "
            "the last checkpoints are kept: continue with --resume, which keeps the stacks, when more memory is free, "
            "or start again with --force and a lower --memory or --stack."
        ) from error


def describe_peak(peak: float, members: int) -> str:
    """Return a text with the peak memory of a stack, in total and per member.

    >>> describe_peak(3 << 29, 128)
    'peak GPU memory 1.5 GiB, 12 MiB per member'
    """
    return f"peak GPU memory {format_bytes(peak)}, {format_bytes(peak / members)} per member"


def format_bytes(count: float) -> str:
    """Return a number of bytes as text in GiB, or in MiB below 1 GiB.

    >>> format_bytes(3 << 29), format_bytes(3 << 22)
    ('1.5 GiB', '12 MiB')
    """
    return f"{count / 2**30:.1f} GiB" if count >= 1 << 30 else f"{count / 2**20:.0f} MiB"


def peak_resident() -> int | None:
    """Return the peak resident memory of this process in bytes, or None if the system does not report it."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
