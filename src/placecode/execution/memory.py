"""Which members train together: stacks as large as the GPU's memory allows, by measuring a few small ones.

What a stack takes is a straight line: a part that does not grow (the data, workspaces of the libraries) and a part for
each member. Two small stacks of the same shape, really trained and evaluated, give the line; so no table of models and
GPUs is needed, and a new encoding or kernel needs no word here. The split decides the last digits, so it is recorded
(environment.json), and a run that is taken up again keeps it whatever is free by then.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from placecode.errors import BadInput
from placecode.execution.contract import Experiment
from placecode.execution.where import Where, values_of
from placecode.models.encoder import plan_stacks, stack_key
from placecode.models.member import Member
from placecode.runs.read import numbers_in, ranges
from placecode.tasks.base import Task
from placecode.training.trainer import Trainer, stack_for

PROBES = (2, 4)
"""Members of the stacks that are measured: two points of a line. A stack of one may go its own way."""
UPDATES = 5
"""Training steps of a measured stack: the first ones make what the later ones reuse."""
SAFETY = 1.25
"""What is measured is what tensors hold. The allocator rounds up and leaves gaps, and a step that is captured in a
graph keeps memory of its own, to which nobody else has access."""
RESERVE = 1 << 30
"""Bytes of the free memory that are left alone: each process needs some for its context and its kernels."""


class Meter(Protocol):
    """The memory of a device: bytes, as this process sees them."""

    @property
    def total(self) -> int:
        """What the device has."""

    def room(self) -> int:
        """What this process holds or could have now; its neighbours have the rest."""

    def reset(self) -> None:
        """Give back what is unused, and forget the peak."""

    def peak(self) -> int:
        """The most that tensors of this process held since the reset."""

    def taken(self) -> int:
        """The most that this process took from the device since the reset, for tensors and in reserve."""


class Gpus:
    """The memory of the first GPUs, one for each worker: that of the smallest, since any stack may go to any of them.

    The peak is that of the current GPU.
    """

    def __init__(self, count: int) -> None:
        self.devices = range(count)

    @property
    def total(self) -> int:
        return min(torch.cuda.mem_get_info(device)[1] for device in self.devices)

    def room(self) -> int:
        self.reset()
        return min(torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device) for device in self.devices)

    def reset(self) -> None:
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()

    def peak(self) -> int:
        return torch.cuda.max_memory_allocated()

    def taken(self) -> int:
        return torch.cuda.max_memory_reserved()


def meter_for(where: Where) -> Meter | None:
    """The meter of a device; None on a CPU: the system tells the memory of a process, not that of its stacks."""
    return Gpus(where.workers or 1) if where.device == "cuda" else None


@dataclass(frozen=True)
class Cost:
    """Bytes that stacks of one shape take: `base`, whatever their size, and `each` for every member."""

    base: float
    each: float

    @classmethod
    def through(cls, small: float, large: float) -> Cost:
        """The line through what the two probes took."""
        each = max(0.0, (large - small) / (PROBES[1] - PROBES[0]))
        return cls(large - PROBES[1] * each, each)

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.base + other.base, self.each + other.each)

    def of(self, members: int) -> int:
        return round(self.base + members * self.each)

    def most(self, budget: float) -> int:
        """Members that fit."""
        return max(0, int((budget - self.base) // max(1.0, self.each)))


@dataclass(frozen=True)
class Need:
    """Bytes that a stack held at most: in training; for evaluation on top of what it keeps; and for its results."""

    training: int
    evaluation: int
    closing: int


def probe(
    study: Experiment, task: Task, members: Sequence[Member], where: Where, meter: Meter, updates: int = UPDATES
) -> Need:
    """Train and evaluate a stack for a moment, and measure what it takes."""
    meter.reset()
    task = task.part(members[0].data).bind(members)
    steps, moments = study.training_steps(task), study.evaluate_at(task)
    trainer = Trainer(stack_for(members, task, where.device, fast=where.fast), task, steps, moments)
    kept = meter.peak()
    checkpoint = trainer.state()  # one may be on its way to the disk at any time
    for _ in range(min(updates, steps)):
        trainer.update()
    training = meter.peak()
    del checkpoint
    meter.reset()
    for _ in trainer.evaluate():
        pass
    evaluation = max(0, meter.peak() - kept)
    stack = trainer.stack
    del trainer
    meter.reset()
    study.rehearse(stack, task)
    study.arrays(stack, task)
    return Need(training, evaluation, meter.peak())


def largest(measure: Callable[..., Need], most: int, budget: float) -> tuple[int, Cost]:
    """Members to a stack that fit into the budget, at most `most` (0: not even one), and what such stacks take.

    `measure(count)` measures a stack of so many members, `measure(count, updates=0)` without training it.
    """
    budget /= SAFETY
    with contextlib.suppress(torch.OutOfMemoryError):
        small, large = (measure(count) for count in PROBES)
        training = Cost.through(small.training, large.training)
        closing = Cost.through(small.closing, large.closing)
        most = min(most, training.most(budget), closing.most(budget))
        # a captured step holds its memory while the stack is evaluated: the two add up
        cost = training + Cost.through(small.evaluation, large.evaluation)
        if PROBES[1] < most and cost.most(budget) < most:
            # evaluation goes in portions, so it may grow less than a line: look before giving up members
            with contextlib.suppress(torch.OutOfMemoryError):
                flat = training + Cost(measure(most, updates=0).evaluation, 0.0)
                cost = max(cost, flat, key=lambda cost: cost.most(budget))
        return min(most, cost.most(budget)), cost
    with contextlib.suppress(torch.OutOfMemoryError):  # the probes are too large; one alone may still fit
        one = measure(1)
        taken = max(one.training + one.evaluation, one.closing)
        return int(taken <= budget), Cost(0.0, taken)
    return 0, Cost(0.0, 0.0)


@dataclass(frozen=True)
class Split:
    """Which members train together, by number; and what each of these stacks takes, where that was measured."""

    parts: list[list[int]]
    costs: list[Cost] | None = None

    def record(self, where: Where) -> dict[str, Any]:
        """For environment.json."""
        record: dict[str, Any] = {"split": [ranges(part) for part in self.parts]}
        if self.costs is None:
            return record
        pairs = list(zip(self.parts, self.costs, strict=True))
        needed, each = [cost.of(len(part)) for part, cost in pairs], [round(cost.each) for cost in self.costs]
        return {**record, "memory": {"share": where.memory, "bytes needed": needed, "bytes per member": each}}


def split(study: Experiment, task: Task, members: Sequence[Member], numbers: Sequence[int], where: Where) -> Split:
    """Stacks for the members with these numbers: of equal shape, and as many to a stack as memory allows."""
    meter = meter_for(where)
    groups: dict[tuple[object, ...], list[int]] = {}
    for number in numbers:
        groups.setdefault(stack_key(members[number]), []).append(number)
    parts: list[list[int]] = []
    costs: list[Cost] = []
    for group in groups.values():
        size = most = where.most_of(len(numbers), values_of([members[group[0]]], task))
        if meter is not None:
            size, cost = _fitting(study, task, [members[number] for number in group], where, meter, most)
        found = plan_stacks([members[number] for number in group], size)
        parts += [[group[i] for i in part] for part in found]
        costs += [cost] * len(found) if meter is not None else []
    return Split(parts, costs if meter is not None else None)


def _fitting(
    study: Experiment, task: Task, group: Sequence[Member], where: Where, meter: Meter, most: int
) -> tuple[int, Cost]:
    """Members of one shape to a stack, and what such stacks take; a sentence where not even one fits."""
    room, total = meter.room(), meter.total
    budget = min(where.memory * total, room - RESERVE)

    def measure(count: int, updates: int = UPDATES) -> Need:
        members = [group[i % len(group)].alone() for i in range(count)]  # a group may be smaller than a probe
        return probe(study, task, members, where, meter, updates)

    size, cost = largest(measure, min(most, len(group)), budget)
    meter.reset()
    if size < 1:
        raise BadInput(
            f"the GPU must have room for at least one member of this study; it may use {amount(max(0, budget))} "
            f"({where.memory:g} of {amount(total)}, and no more than is free, {amount(room)}), and that is too little."
        )
    return size, cost


def check_room(environment: Mapping[str, Any], unfinished: Sequence[int], where: Where) -> None:
    """A run keeps the split that it began with: say so when that no longer fits."""
    needed = environment.get("memory", {}).get("bytes needed")
    meter = meter_for(where)
    if needed is None or meter is None:
        return
    most, room = max((needed[index] for index in unfinished), default=0), meter.room()
    if most > room:
        raise BadInput(
            f"the GPU must have {amount(most)} free for the stacks that this run began with; {amount(room)} are free "
            "now: wait for its neighbours, or start anew with --force."
        )


def recorded(environment: Mapping[str, Any], total: int) -> Split:
    """The split that a run began with."""
    return Split([numbers_in(part, total) for part in environment["split"]])


@contextlib.contextmanager
def told(members: int) -> Iterator[None]:
    """A GPU that runs out of memory all the same, in a sentence."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise BadInput(
            f"the GPU must have room for a stack of {members} members; it has run out of memory; finished stacks and "
            "the last checkpoints are kept: go on with --resume, which keeps the split, when more is free, or start "
            "anew with --force and a lower --memory or --stack."
        ) from error


def peak_text(peak: float, members: int) -> str:
    """The most that a stack took of a GPU, in words.

    >>> peak_text(3 << 29, 128)
    '1.5 GiB of the GPU at most, 12 MiB per member'
    """
    return f"{amount(peak)} of the GPU at most, {amount(peak / members)} per member"


def amount(count: float) -> str:
    """Bytes in words.

    >>> amount(3 << 29), amount(3 << 22)
    ('1.5 GiB', '12 MiB')
    """
    return f"{count / 2**30:.1f} GiB" if count >= 1 << 30 else f"{count / 2**20:.0f} MiB"
