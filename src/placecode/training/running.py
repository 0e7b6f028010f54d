"""The members of a stack that still train: one training step for all of them, and who stops, when and why.

A member stops before the end for one of four reasons. It *diverges*: its loss, its gradient or its parameters are not
finite. It has *settled*: its parameters are the same, bit for bit, as one or more whole epochs before, in training
without random numbers (no dropout, no masks drawn anew). It is *at rest*: its training loss was exactly 0 in every step
of so many epochs in a row. Or it has done its own number of epochs (`Member.last_epoch`). A member that has stopped
keeps its parameters.
"""

from __future__ import annotations

import functools
import gc
import warnings
import weakref
from collections import deque

import torch
from torch import Tensor

from placecode import random
from placecode.compute.cpu.step import Step, fits
from placecode.models.encoder import Stack
from placecode.tasks.base import Task
from placecode.training import optimizers

CAUSES = ("", "loss", "gradient", "parameters", "float16")
"""Which check found that a member diverged; its code in a state is its place here. `float16`: the numbers of the step
are finite in TF32, and too large for float16."""
LOSS, GRADIENT, PARAMETERS, FLOAT16 = range(1, len(CAUSES))
NEVER = -1
FOREVER = 1 << 62
LEAST_STEPS = 50
"""Steps between two checks for settled members, rounded up to whole epochs. A check costs about as much as a step of a
small model."""
HASHED_COLUMNS = 1 << 16
"""Parameters of a member that are hashed at a time, so that the hash needs little memory."""


class Running:
    """A stack in training, with the optimizer, the order of the examples and what is known of each member.

    Parameters
    ----------
    stack : Stack
        The members, e of them. Its parameters are trained in place.
    task : Task
        As it was made; it is bound to these members here.
    steps : int
        Length of the training, which decides when step sizes begin to fall (`Member.cooldown`).
    """

    VECTORS = (
        *("alive", "diverged_at", "cause", "settled_epoch", "rested_epoch", "ended"),
        *("quiet_epochs", "loud", "fingerprint"),
    )
    """What is known of each member, (e,) each, and part of a checkpoint: whether it has not diverged; the step at which
    it did, and which check found it; the epochs at which it had settled, or came to rest; whether it has done all its
    own epochs; over how many epochs in a row its loss was exactly 0; whether it has been another number since the last
    epoch ended; a hash of its parameters at that moment."""

    def __init__(self, stack: Stack, task: Task, steps: int) -> None:
        self.stack, self.unbound, self.steps = stack, task, steps
        self.task = task.bind(stack.members).to(stack.flat.device, stack.flat.dtype)
        self.optimizer = optimizers.build(stack)
        device, count = stack.flat.device, len(stack.members)
        self.examples, self.batch = len(task.splits["train"]), stack.members[0].batch
        self.order_keys = random.keys_for([member.seed for member in stack.members], "order").to(device)

        def numbers(value: int) -> Tensor:
            return torch.full((count,), value, dtype=torch.int64, device=device)

        self.alive = torch.ones(count, dtype=torch.bool, device=device)
        self.diverged_at, self.cause = numbers(NEVER), numbers(0)
        self.settled_epoch, self.rested_epoch = numbers(NEVER), numbers(NEVER)
        self.quiet_epochs, self.loud = numbers(0), torch.zeros_like(self.alive)
        self.fingerprint, self.ended = numbers(0), torch.zeros_like(self.alive)
        self.stopped = torch.zeros_like(self.alive)
        """Whether a member has settled, is at rest or has done its epochs; follows from the vectors above."""
        epochs = [FOREVER if member.last_epoch is None else member.last_epoch for member in stack.members]
        self._own_epochs = torch.tensor(epochs, dtype=torch.int64, device=device)
        repeats = [not (self.task.drawn_anew or member.dropout) for member in stack.members]
        self._repeats = torch.tensor(repeats, device=device)
        cooldown = torch.tensor([member.cooldown for member in stack.members], dtype=stack.flat.dtype, device=device)
        self._cooling_steps = (cooldown * steps)[:, None] if cooldown.any() else None
        self.gradient = torch.empty_like(stack.flat)
        self.unit = torch.ones(count, device=device) if stack.fast else None
        self.by_hand = Step(stack, self.gradient) if fits(stack) and not stack.fast else None
        self._order: tuple[int, Tensor] | None = None
        self._explained: set[int] = set()
        self._captured = Captured(self) if stack.fast and device.type == "cuda" else None

    @property
    def steps_per_epoch(self) -> int:
        return steps_per_epoch(self.examples, self.batch)

    def order_at(self, step: int) -> Tensor:
        """The order in which each member reads the examples in the epoch of `step`, (e, N): a new one every epoch."""
        epoch = step // self.steps_per_epoch
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, random.permutation(self.order_keys, epoch, self.examples)
        return self._order[1]

    def rows_of(self, step: int) -> Tensor:
        """The rows that each member reads at `step`, (e, b); the last batch of an epoch is smaller."""
        first = step % self.steps_per_epoch * self.batch
        return self.order_at(step)[:, first : first + self.batch]

    def update(self, step: int) -> Tensor:
        """Step `step`, 0 for the first, of all members; returns their losses, (e,), without waiting for a GPU."""
        return self._captured(step) if self._captured else self.advance(self.rows_of(step), step)

    def advance(self, rows: Tensor, step: int | Tensor) -> Tensor:
        """The work of a step on these rows (e, b). All that it changes is changed in place."""
        inputs, targets = self.task.batch("train", rows, step)
        if self.by_hand is not None:
            losses = self.by_hand(inputs, targets, self.task.loss)
        else:
            losses = self._pass(inputs, targets, step)
        training, finite = self.alive & ~self.stopped, losses.isfinite()
        going = self.optimizer.step(self.gradient, step + 1, training & finite, self.rate_scale(step), self.unit)
        lost = training & ~going
        self.diverged_at.copy_(torch.where(lost, step + 1, self.diverged_at))
        self.cause.copy_(torch.where(lost, torch.where(finite, GRADIENT, LOSS), self.cause))
        self.alive.logical_and_(~lost)
        self.loud.logical_or_(losses != 0)
        return losses.detach()

    def _pass(self, inputs: Tensor, targets: Tensor, step: int | Tensor) -> Tensor:
        """Compute the losses, (e,), and write the gradients to `gradient`, divided by `unit` where float16 needs it."""
        if self.unit is not None:
            self.unit.fill_(1)
        self.stack.sink, self.stack.unit = self.gradient, self.unit
        try:
            losses = self.task.loss(self.stack(inputs, step=step), targets)
            self.stack.gradients(losses.sum(), out=self.gradient)
        finally:  # they are for one pass: a second one would write over the first
            self.stack.sink = self.stack.unit = None
        return losses

    def rate_scale(self, step: int | Tensor) -> Tensor | float:
        """Factor of each member's learning rate, (e, 1): 1 until the cooldown begins, then falling linearly to 0."""
        if self._cooling_steps is None:
            return 1.0
        return ((self.steps - step) / self._cooling_steps).clamp(0, 1)

    # ------------------------------------------------------------------------------------------------ who stops

    def end_epoch(self, epoch: int, rest: int) -> None:
        """After `epoch` epochs, mark the members that have settled, and those at rest for `rest` epochs (0: none).

        Does not synchronize with the GPU.
        """
        training = self.alive & ~self.stopped
        settled = self._settled(epoch) & training
        self.settled_epoch.copy_(torch.where(settled, epoch, self.settled_epoch))
        self.quiet_epochs.copy_(torch.where(self.loud, 0, self.quiet_epochs + training.long()))
        if rest:
            rested = training & ~settled & (self.quiet_epochs >= rest)
            self.rested_epoch.copy_(torch.where(rested, epoch, self.rested_epoch))
        self.ended.logical_or_(self._own_epochs <= epoch)
        self.loud.zero_()
        self.see_stopped()

    def _settled(self, epoch: int) -> Tensor:
        """Which members have the parameters of the last check, (e,); all False in epochs without a check."""
        apart = -(-LEAST_STEPS // self.steps_per_epoch)
        if epoch % apart:
            return torch.zeros_like(self.alive)
        found = fingerprints(self.stack.flat)
        same = (found == self.fingerprint) & self._repeats & (epoch > apart)
        self.fingerprint.copy_(found)
        return same

    def see_stopped(self) -> None:
        """Bring `stopped` up to date."""
        self.stopped.copy_((self.settled_epoch >= 0) | (self.rested_epoch >= 0) | self.ended)

    def check_parameters(self, step: int) -> None:
        """Stop members whose parameters are not finite. The loss of the next step would tell, but there may be none."""
        lost = self.alive & ~self.stack.flat.isfinite().all(1)
        self.diverged_at.copy_(torch.where(lost, step, self.diverged_at))
        self.cause.copy_(torch.where(lost, PARAMETERS, self.cause))
        self.alive.logical_and_(~lost)

    def explain(self) -> None:
        """Mark members that diverged by float16 overflow: repeating their last step in TF32 gives finite numbers."""
        if not self.stack.halves:
            return
        for place in ((self.cause == LOSS) | (self.cause == GRADIENT)).nonzero()[:, 0].tolist():
            if place in self._explained:
                continue
            self._explained.add(place)
            if self._finite_in_tf32(place, int(self.diverged_at[place]) - 1):
                self.cause[place] = FLOAT16

    def _finite_in_tf32(self, place: int, step: int) -> bool:
        alone, rows = self.stack.member(place), self.rows_of(step)[place : place + 1]
        task = self.unbound.bind(alone.members).to(alone.flat.device, alone.flat.dtype)
        inputs, targets = task.batch("train", rows, step)
        losses, gradient = task.loss(alone(inputs, step=step), targets), torch.empty_like(alone.flat)
        alone.gradients(losses.sum(), out=gradient)
        if not alone.encoding.learns.all():
            gradient[:, alone.encoding_columns :] = 0
        norm = torch.linalg.vector_norm(gradient, dim=1)  # what the optimizer looks at
        return bool(losses.isfinite().all() & norm.square().isfinite().all())

    # ----------------------------------------------------------------------------------------------- its state

    def vectors(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in self.VECTORS}

    def arrays(self) -> dict[str, Tensor]:
        """Parameters and moments, (e, P) each."""
        moments = {f"optimizer.{name}": value for name, value in self.optimizer.state.items()}
        return {"flat": self.stack.flat, **moments}

    def release(self) -> None:
        """Free the memory of captured steps. Nothing can be trained afterwards."""
        self._captured = None


def fingerprints(flat: Tensor) -> Tensor:
    """A 64-bit hash of each row of an (e, P) tensor, (e,). Different rows have different hashes, but for chance."""
    words = flat.view({4: torch.int32, 8: torch.int64}[flat.element_size()])
    total = torch.zeros(len(flat), dtype=torch.int64, device=flat.device)
    for first in range(0, flat.shape[1], HASHED_COLUMNS):
        part = words[:, first : first + HASHED_COLUMNS].long()
        total += random.scrambled(part, first).sum(1)
    return total


def steps_per_epoch(examples: int, batch: int) -> int:
    """The last, smaller batch of an epoch is used too."""
    return -(-examples // batch)


class Captured:
    """The step of a running stack as CUDA graphs, one for each size of batch: recorded once, then launched as a whole.

    The first steps of each batch size run eagerly, as warm-up for graph capture. The step count and the order of the
    examples live on the device, so nothing is copied there between steps.
    """

    WARM_STEPS = 2
    AHEAD = 3
    """Steps that may wait in the GPU's queue: enough to keep it busy, few enough to stop when asked to."""

    def __init__(self, running: Running) -> None:
        self._running = weakref.ref(running)  # no cycle: graphs must go with their stack, not at some later time
        device = running.stack.flat.device
        self.clock = torch.zeros((), dtype=torch.int64, device=device)
        self.order = torch.empty(len(running.stack.members), running.examples, dtype=torch.int64, device=device)
        self.epoch = -1
        self.graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self.warm: dict[int, int] = {}
        self.refused = False
        self.pool = torch.cuda.graph_pool_handle()
        self.stream = _stream_beside(device)
        self.queue: deque[torch.cuda.Event] = deque()

    @property
    def running(self) -> Running:
        running = self._running()
        assert running is not None
        return running

    def __call__(self, step: int) -> Tensor:
        running = self.running
        epoch, place = divmod(step, running.steps_per_epoch)
        if epoch != self.epoch:
            self.order.copy_(running.order_at(step))
            self.epoch = epoch
        size = min(running.batch, running.examples - place * running.batch)
        self.clock.fill_(step)
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
        """Run a step eagerly, on the stream used for capture: autograd keeps the stream of a parameter's first use."""
        here = torch.cuda.current_stream()
        self.stream.wait_stream(here)
        with torch.cuda.stream(self.stream):
            losses = self._advance(size)
        here.wait_stream(self.stream)
        losses.record_stream(here)
        return losses

    def _record(self, size: int) -> None:
        """Capture one step. Capturing computes nothing, so the state is unchanged even if it fails."""
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
            warnings.warn(f"the step cannot be captured as a graph, and runs slower without: {reason}", stacklevel=5)
        finally:
            if collects:
                gc.enable()

    def _advance(self, size: int) -> Tensor:
        running = self.running
        first = self.clock % running.steps_per_epoch * running.batch
        rows = self.order.index_select(1, first + torch.arange(size, device=self.clock.device))
        return running.advance(rows, self.clock)

    def _wait_for_room(self) -> None:
        done = torch.cuda.Event()
        done.record()
        self.queue.append(done)
        if len(self.queue) > self.AHEAD:
            self.queue.popleft().synchronize()


@functools.cache
def _stream_beside(device: torch.device) -> torch.cuda.Stream:
    """The side stream for graph capture. It is shared, because libraries allocate tens of MiB for each stream.

    So no two stacks may capture at the same time. Stacks on a GPU train one after the other.
    """
    return torch.cuda.Stream(device)
