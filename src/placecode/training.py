"""Training a stack on a task: batches, evaluation, divergence, and a state that can be saved and taken up again.

A trainer knows nothing of files. Its `state` holds all that the next step depends on; since random numbers are
functions of the step (draws), there is no generator to save, and a run that is taken up again goes on as if it had
never stopped.

>>> trainer = Trainer(stack, task, steps=640)
>>> for event in trainer.run():
...     print(event.step, event.rows)
"""

from __future__ import annotations

import functools
import gc
import time
import warnings
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from placecode import draws, optim
from placecode.cpu.step import Step, fits
from placecode.encoder import Stack
from placecode.errors import BadInput, must_be
from placecode.members import Member
from placecode.tasks.base import Task

EVALUATION_VALUES = 1 << 21
"""Features that a forward pass of evaluation holds on a CPU: what its caches can bear. A GPU takes 64 times that."""


def stack_for(
    members: Sequence[Member],
    task: Task,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    fast: bool | None = None,
) -> Stack:
    """A new stack that fits a task; `fast` as in Stack."""
    return Stack(
        members,
        tokens=task.tokens,
        features=task.features,
        outputs=task.outputs,
        readout=task.readout,
        positions=task.positions,
        dtype=dtype,
        device=device,
        fast=fast,
    )


@dataclass(frozen=True)
class Progress:
    """Where training stands after some steps: the mean loss of the living members; and the rows of an evaluation."""

    step: int
    loss: float
    rows: tuple[dict[str, Any], ...] = ()


class Trainer:
    """Trains the members of a stack together, each on its own order of the data.

    `evaluate_at` lists the steps after which all splits are evaluated; step 0, before training, and the last one always
    are. `step` is the number of steps done.
    """

    def __init__(self, stack: Stack, task: Task, steps: int, evaluate_at: Sequence[int] = ()) -> None:
        if steps < 0:
            raise must_be("steps", "a whole number of at least 0", steps)
        self.stack, self.steps = stack, steps
        self.task = task.bind(stack.members).to(stack.flat.device, stack.flat.dtype)
        self.optimizer = optim.build(stack)
        self.step = 0
        self.evaluate_at = {0, steps, *(step for step in evaluate_at if 0 < step < steps)}
        device, count = stack.flat.device, len(stack.members)
        self.examples, self.batch = len(task.splits["train"]), stack.members[0].batch
        self.order_keys = draws.keys_for([member.seed for member in stack.members], "order").to(device)
        self.alive = torch.ones(count, dtype=torch.bool, device=device)
        self.diverged_at = torch.full((count,), -1, dtype=torch.int64, device=device)
        cooldown = torch.tensor([member.cooldown for member in stack.members], dtype=stack.flat.dtype, device=device)
        self._cooling_steps = (cooldown * steps)[:, None] if cooldown.any() else None
        self._gradient = torch.empty_like(stack.flat)
        self._unit = torch.ones(count, device=device) if stack.fast else None
        self._by_hand = Step(stack, self._gradient) if fits(stack) and not stack.fast else None
        self._resumed = False
        self._order: tuple[int, Tensor] | None = None
        self._captured = Captured(self) if stack.fast and device.type == "cuda" else None

    @property
    def steps_per_epoch(self) -> int:
        return steps_per_epoch(self.examples, self.batch)

    def order_at(self, step: int) -> Tensor:
        """The order in which each member reads the examples in the epoch of `step`, (e, N): a new one every epoch."""
        epoch = step // self.steps_per_epoch
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, draws.permutation(self.order_keys, epoch, self.examples)
        return self._order[1]

    def rows_of(self, step: int) -> Tensor:
        """The rows that each member reads at `step`, (e, b); the last batch of an epoch is smaller."""
        first = step % self.steps_per_epoch * self.batch
        return self.order_at(step)[:, first : first + self.batch]

    def update(self) -> Tensor:
        """One training step for all members; returns their losses, (e,), without waiting for a GPU to finish it."""
        losses = self._captured() if self._captured else self.advance(self.rows_of(self.step), self.step)
        self.step += 1
        return losses

    def advance(self, rows: Tensor, step: int | Tensor) -> Tensor:
        """The work of step `step`, 0 for the first, on these rows (e, b). All that it changes is changed in place."""
        inputs, targets = self.task.batch("train", rows, step)
        if self._by_hand is not None:
            losses = self._by_hand(inputs, targets, self.task.loss)
        else:
            losses = self._pass(inputs, targets, step)
        going = self.alive & losses.isfinite()
        alive = self.optimizer.step(self._gradient, step + 1, going, self.rate_scale(step), self._unit)
        self.diverged_at.copy_(torch.where(self.alive & ~alive, step + 1, self.diverged_at))
        self.alive.copy_(alive)
        return losses.detach()

    def _pass(self, inputs: Tensor, targets: Tensor, step: int | Tensor) -> Tensor:
        """Losses (e,); the gradients are in their place, in units."""
        if self._unit is not None:
            self._unit.fill_(1)
        self.stack.sink, self.stack.unit = self._gradient, self._unit
        try:
            losses = self.task.loss(self.stack(inputs, step=step), targets)
            self.stack.gradients(losses.sum(), out=self._gradient)
        finally:  # they are for one pass: a second one would write over the first
            self.stack.sink = self.stack.unit = None
        return losses

    def rate_scale(self, step: int | Tensor) -> Tensor | float:
        """What the rates of a step are multiplied by, (e, 1): 1 until the cooldown, then falling to 0."""
        if self._cooling_steps is None:
            return 1.0
        return ((self.steps - step) / self._cooling_steps).clamp(0, 1)

    def run(self, seconds: float = 0.2) -> Iterator[Progress]:
        """Train to the end, yielding progress: about every so many seconds, and at each evaluation with its rows."""
        if self.step == 0 and not self._resumed:
            yield Progress(0, float("nan"), tuple(self.evaluate()))
        last = time.monotonic()
        while self.step < self.steps:
            losses = self.update()
            evaluation: tuple[dict[str, Any], ...] = ()
            if self.step in self.evaluate_at:
                self._mark_diverged()
                evaluation = tuple(self.evaluate())
            if evaluation or time.monotonic() - last > seconds:
                yield Progress(self.step, losses[self.alive].mean().item(), evaluation)
                last = time.monotonic()

    def _mark_diverged(self) -> None:
        """Stop members whose parameters are not finite. The loss of the next step would tell, but there may be none."""
        finite = self.stack.flat.isfinite().all(1)
        self.diverged_at[self.alive & ~finite] = self.step
        self.alive &= finite

    def evaluate(self) -> Iterator[dict[str, Any]]:
        """Rows (member, step, split, condition, metric, value) of every split, all members on all examples."""
        for split in self.task.splits:
            for (condition, metric), values in evaluate(self.stack, self.task, split).items():
                for member, value in enumerate(values):
                    yield {
                        **{"member": member, "step": self.step, "split": split},
                        **{"condition": condition, "metric": metric, "value": value},
                    }

    def state(self) -> dict[str, Tensor]:
        """All that the next step depends on: copies, on the device of the stack if they fit there."""
        return _copies(self._parts())

    def outcome(self) -> dict[str, Tensor]:
        """What is left of the state when there is no next step."""
        return _copies(self._parts(lasting=True))

    def _parts(self, lasting: bool = False) -> dict[str, Tensor]:
        parts = {"flat": self.stack.flat, "alive": self.alive, "diverged_at": self.diverged_at}
        moments = {f"optimizer.{name}": value for name, value in self.optimizer.state.items()}
        return parts if lasting else {**parts, **moments}

    def load(self, state: dict[str, Tensor], step: int) -> None:
        """Go on from a saved state."""
        wanted = self._parts()
        if {k: (v.shape, v.dtype) for k, v in state.items()} != {k: (v.shape, v.dtype) for k, v in wanted.items()}:
            raise BadInput("the checkpoint must hold the state of this stack; its arrays have other names or shapes.")
        for name, value in wanted.items():
            value.copy_(state[name])
        self.step, self._resumed = step, True


class Captured:
    """The step of a trainer as CUDA graphs, one for each size of batch: recorded once, then launched as a whole.

    The first steps of a size run as they are: they train, and they warm up what must not happen while recording. The
    number of the step and the order of the examples live on the device, so nothing is handed over between steps.
    """

    WARM_STEPS = 2
    AHEAD = 3
    """Steps that may wait in the GPU's queue: enough to keep it busy, few enough to stop when asked to."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = weakref.ref(trainer)  # no cycle: graphs must go with their trainer, not at some later time
        device = trainer.stack.flat.device
        self.clock = torch.zeros((), dtype=torch.int64, device=device)
        self.order = torch.empty(len(trainer.stack.members), trainer.examples, dtype=torch.int64, device=device)
        self.epoch = -1
        self.graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self.warm: dict[int, int] = {}
        self.refused = False
        self.pool = torch.cuda.graph_pool_handle()
        self.stream = _stream_beside(device)
        self.queue: deque[torch.cuda.Event] = deque()

    @property
    def trainer(self) -> Trainer:
        trainer = self._trainer()
        assert trainer is not None
        return trainer

    def __call__(self) -> Tensor:
        trainer = self.trainer
        epoch, place = divmod(trainer.step, trainer.steps_per_epoch)
        if epoch != self.epoch:
            self.order.copy_(trainer.order_at(trainer.step))
            self.epoch = epoch
        size = min(trainer.batch, trainer.examples - place * trainer.batch)
        self.clock.fill_(trainer.step)
        if self.warm.setdefault(size, 0) >= self.WARM_STEPS and size not in self.graphs and not self.refused:
            self._record(size)
        if size in self.graphs:
            graph, losses = self.graphs[size]
            graph.replay()
            losses = losses.clone()
        else:
            self.warm[size] += 1
            losses = self._as_it_is(size)
        self._wait_for_room()
        return losses

    def _as_it_is(self, size: int) -> Tensor:
        """A step on the stream that will record: autograd remembers the stream on which it first met a parameter."""
        here = torch.cuda.current_stream()
        self.stream.wait_stream(here)
        with torch.cuda.stream(self.stream):
            losses = self._advance(size)
        here.wait_stream(self.stream)
        losses.record_stream(here)
        return losses

    def _record(self, size: int) -> None:
        """Nothing is computed while recording, so a step that cannot be recorded is as if it had not been tried."""
        graph = torch.cuda.CUDAGraph()
        gc.collect()
        collects = gc.isenabled()
        gc.disable()  # freeing the memory of something else would spoil the recording
        try:
            # other threads may fetch a checkpoint meanwhile
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
                losses = self._advance(size)
            self.graphs[size] = graph, losses
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # an encoding or a task of somebody's own may wait for the GPU, say
            self.refused = True
            reason = str(error).splitlines()[0]
            warnings.warn(f"the step cannot be captured as a graph, and runs slower without: {reason}", stacklevel=4)
        finally:
            if collects:
                gc.enable()

    def _advance(self, size: int) -> Tensor:
        trainer = self.trainer
        first = self.clock % trainer.steps_per_epoch * trainer.batch
        rows = self.order.index_select(1, first + torch.arange(size, device=self.clock.device))
        return trainer.advance(rows, self.clock)

    def _wait_for_room(self) -> None:
        done = torch.cuda.Event()
        done.record()
        self.queue.append(done)
        if len(self.queue) > self.AHEAD:
            self.queue.popleft().synchronize()


@functools.cache
def _stream_beside(device: torch.device) -> torch.cuda.Stream:
    """The stream on which steps are recorded, one for all: libraries keep tens of MiB for every stream they meet.

    So trainers must not record at the same time; stacks on a GPU train one after the other.
    """
    return torch.cuda.Stream(device)


def _copies(parts: dict[str, Tensor]) -> dict[str, Tensor]:
    try:
        return {name: value.detach().clone() for name, value in parts.items()}
    except torch.OutOfMemoryError:  # neighbours took what was planned for this
        return {name: value.detach().to("cpu", copy=True) for name, value in parts.items()}


def steps_per_epoch(examples: int, batch: int) -> int:
    """The last, smaller batch of an epoch is used too."""
    return -(-examples // batch)


def portions(stack: Stack, task: Task, examples: int) -> list[range]:
    """Examples 0 to `examples` - 1 in portions that a forward pass of all members can hold."""
    most = EVALUATION_VALUES * (64 if stack.flat.device.type == "cuda" else 1)
    size = max(1, most // (len(stack.members) * task.tokens * stack.members[0].width))
    return [range(start, min(start + size, examples)) for start in range(0, examples, size)]


@torch.no_grad()
def evaluate(stack: Stack, task: Task, split: str) -> dict[tuple[str, str], list[float]]:
    """The mean of every metric over each condition and over "all", per member: {(condition, metric): values}.

    The task must be bound to the stack's members.
    """
    device, count, total = stack.flat.device, len(stack.members), task.rows(split)
    parts: dict[str, list[Tensor]] = {}
    for part in portions(stack, task, total):
        inputs, targets = task.batch(split, torch.arange(part.start, part.stop, device=device).expand(count, -1))
        for metric, values in task.metrics(stack(inputs, first_row=part.start), targets).items():
            parts.setdefault(metric, []).append(values)
    whole = {metric: torch.cat(values, dim=1).double() for metric, values in parts.items()}  # (e, N)
    names = task.condition(split) or ()
    present = set(names)
    conditions = ["all"] if task.pooled else []
    conditions += [name for name in task.conditions or sorted(present) if name in present]
    means = {}
    for condition in conditions:
        chosen = torch.ones(total, dtype=torch.bool)
        if condition != "all":
            chosen = torch.tensor([name == condition for name in names])
        for metric, values in whole.items():
            means[condition, metric] = values[:, chosen.to(device)].mean(1)
    return dict(zip(means, torch.stack(list(means.values())).tolist(), strict=True))  # waits for a GPU once
