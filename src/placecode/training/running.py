"""One training step for the members of a stack, and the rules by which members stop early.

A member stops before the last training step for one of four reasons:

- It *diverged*: its loss, its gradient or its parameters are not finite.
- It *settled*: its parameters are bit for bit the same as at an earlier check, one or more whole epochs before. This
  rule applies only if training is the same in every epoch (no dropout, no random masks).
- It *kept a loss of 0*: its training loss was exactly 0 in every step of a given number of consecutive epochs.
- It reached its last epoch (`Member.last_epoch`).

The parameters of a member that has stopped no longer change.

A finished run records divergence in `members.parquet`: the column `diverged_at` is the step (-1 if the member did not
diverge), and `diverged_by` is the check that detected it, one of `CAUSES`. `placecode.execution.stacks` adds two more
values of `diverged_by`: "evaluation" (outputs are not finite) and "donor" (the donor of the PE diverged). The columns
`settled_epoch` and `zero_loss_epoch` record the second and third reason.
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
"""Checks that can detect divergence, the values of the column `diverged_by` in `members.parquet`; "" means that the
member did not diverge. The vector `cause` contains indices of this tuple. "float16" means that loss and gradient of the
step overflow in float16 but are finite in TF32."""
LOSS, GRADIENT, PARAMETERS, FLOAT16 = range(1, len(CAUSES))
NEVER = -1
"""Value of `diverged_at`, `settled_epoch` and `zero_loss_epoch` if the event did not occur."""
NO_LAST_EPOCH = 1 << 62
"""Number that replaces a `Member.last_epoch` of None. No training has as many epochs."""
MIN_STEPS_BETWEEN_CHECKS = 50
"""Number of steps between two checks for settled members, rounded up to whole epochs. A check takes about as long as a
training step of a small model."""
HASHED_COLUMNS = 1 << 16
"""Number of parameters per member that `fingerprints` hashes at once, which limits its memory use."""


class Running:
    """A stack in training, with its optimizer, the order of the examples and the status of each member.

    Parameters
    ----------
    stack : Stack
        The e members. Training changes the parameters of this stack in place.
    task : Task
        A task before `Task.bind`. It is bound to the members of the stack here.
    steps : int
        Total number of training steps. It determines when learning rates begin to fall (`Member.cooldown`).
    """

    VECTORS = (
        "alive", "diverged_at", "cause", "settled_epoch", "zero_loss_epoch", "ended",
        "quiet_epochs", "loud", "fingerprint",
    )  # fmt: skip
    """Names of the status vectors, shape (e,), which are part of a checkpoint.

    - alive: whether the member has not diverged.
    - diverged_at: step, counted from 1, at which the member diverged, or -1.
    - cause: index in `CAUSES` of the check that detected divergence, 0 for none.
    - settled_epoch, zero_loss_epoch: number of epochs after which the member stopped for this reason, or -1.
    - ended: whether the member has reached its last epoch.
    - quiet_epochs: number of the latest consecutive epochs with a loss of exactly 0 in every step.
    - loud: whether the loss was not 0 in at least one step of the current epoch.
    - fingerprint: hash of the parameters at the last check for settled members.
    """

    def __init__(self, stack: Stack, task: Task, steps: int) -> None:
        self.stack, self.unbound_task, self.steps = stack, task, steps
        self.task = task.bind(stack.members).to(stack.flat.device, stack.flat.dtype)
        self.optimizer = optimizers.build(stack)
        device, count = stack.flat.device, len(stack.members)
        self.examples, self.batch = len(task.splits["train"]), stack.members[0].batch
        self.order_keys = random.keys_for([member.seed for member in stack.members], "order").to(device)

        def vector_of(value: int) -> Tensor:
            return torch.full((count,), value, dtype=torch.int64, device=device)

        self.alive = torch.ones(count, dtype=torch.bool, device=device)
        self.diverged_at, self.cause = vector_of(NEVER), vector_of(0)
        self.settled_epoch, self.zero_loss_epoch = vector_of(NEVER), vector_of(NEVER)
        self.quiet_epochs, self.loud = vector_of(0), torch.zeros_like(self.alive)
        self.fingerprint, self.ended = vector_of(0), torch.zeros_like(self.alive)
        self.stopped = torch.zeros_like(self.alive)
        """Whether each member has settled, has kept a loss of 0 or has reached its last epoch, (e,). Computed by
        `refresh_stopped` from the status vectors, so it is not part of a checkpoint."""
        epochs = [NO_LAST_EPOCH if member.last_epoch is None else member.last_epoch for member in stack.members]
        self._last_epochs = torch.tensor(epochs, dtype=torch.int64, device=device)
        repeats = [not (self.task.stochastic_batches or member.dropout) for member in stack.members]
        self._repeats = torch.tensor(repeats, device=device)
        cooldown = torch.tensor([member.cooldown for member in stack.members], dtype=stack.flat.dtype, device=device)
        self._cooling_steps = (cooldown * steps)[:, None] if cooldown.any() else None
        self.gradient = torch.empty_like(stack.flat)
        self.unit = torch.ones(count, device=device) if stack.fast else None
        self.cpu_step = Step(stack, self.gradient) if fits(stack) and not stack.fast else None
        self._order: tuple[int, Tensor] | None = None
        self._explained_members: set[int] = set()
        self._captured = Captured(self) if stack.fast and device.type == "cuda" else None

    @property
    def steps_per_epoch(self) -> int:
        """Number of training steps per epoch."""
        return steps_per_epoch(self.examples, self.batch)

    def order_at(self, step: int) -> Tensor:
        """Return the random order of the N examples in the epoch of `step`, (e, N). It differs by epoch and seed."""
        epoch = step // self.steps_per_epoch
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, random.permutation(self.order_keys, epoch, self.examples)
        return self._order[1]

    def rows_of(self, step: int) -> Tensor:
        """Return the indices of the examples of `step`, (e, b). The last batch of an epoch may have fewer examples."""
        first = step % self.steps_per_epoch * self.batch
        return self.order_at(step)[:, first : first + self.batch]

    def update(self, step: int) -> Tensor:
        """Train for one step, counted from 0, and return the losses, (e,), before the GPU has finished the step."""
        return self._captured(step) if self._captured else self.advance(self.rows_of(step), step)

    def advance(self, rows: Tensor, step: int | Tensor) -> Tensor:
        """Train on the examples with indices `rows`, (e, b), and return the losses, (e,). CUDA graphs require that all
        changes are made in place."""
        inputs, targets = self.task.batch("train", rows, step)
        if self.cpu_step is not None:
            losses = self.cpu_step(inputs, targets, self.task.loss)
        else:
            losses = self._pass(inputs, targets, step)
        training, finite = self.alive & ~self.stopped, losses.isfinite()
        updated = self.optimizer.step(self.gradient, step + 1, training & finite, self.rate_scale(step), self.unit)
        self._mark_diverged(training & ~updated, step + 1, torch.where(finite, GRADIENT, LOSS))
        self.loud.logical_or_(losses != 0)
        return losses.detach()

    def _mark_diverged(self, diverged: Tensor, step: int | Tensor, cause: int | Tensor) -> None:
        """Record which members diverged, (e,), at which step, counted from 1, and the `cause`, an index in `CAUSES`."""
        self.diverged_at.copy_(torch.where(diverged, step, self.diverged_at))
        self.cause.copy_(torch.where(diverged, cause, self.cause))
        self.alive.logical_and_(~diverged)

    def _pass(self, inputs: Tensor, targets: Tensor, step: int | Tensor) -> Tensor:
        """Return the losses, (e,), and write their gradients into `self.gradient`.

        Fused kernels may divide the gradients of a member by a factor to fit them into float16. They write the factor
        into `self.unit`, and the optimizer multiplies by it.
        """
        if self.unit is not None:
            self.unit.fill_(1)
        self.stack.sink, self.stack.unit = self.gradient, self.unit
        try:
            losses = self.task.loss(self.stack(inputs, step=step), targets)
            self.stack.gradients(losses.sum(), out=self.gradient)
        finally:  # the sink is valid for one backward pass only: a second pass would overwrite the first
            self.stack.sink = self.stack.unit = None
        return losses

    def rate_scale(self, step: int | Tensor) -> Tensor | float:
        """Return the factor by which learning rates are multiplied at `step`, (e, 1), or 1.0 without any cooldown.

        It is 1 until the cooldown of a member begins (`Member.cooldown`), and then falls linearly to 0.
        """
        if self._cooling_steps is None:
            return 1.0
        return ((self.steps - step) / self._cooling_steps).clamp(0, 1)

    def end_epoch(self, epoch: int, zero_loss_patience: int) -> None:
        """Mark the members that stop after `epoch` epochs, without waiting for the GPU.

        Parameters
        ----------
        epoch : int
            Number of epochs completed.
        zero_loss_patience : int
            Number of consecutive epochs with a loss of exactly 0 after which a member stops. 0 disables this rule.
        """
        training = self.alive & ~self.stopped
        settled = self._settled(epoch) & training
        self.settled_epoch.copy_(torch.where(settled, epoch, self.settled_epoch))
        self.quiet_epochs.copy_(torch.where(self.loud, 0, self.quiet_epochs + training.long()))
        if zero_loss_patience:
            stopping = training & ~settled & (self.quiet_epochs >= zero_loss_patience)
            self.zero_loss_epoch.copy_(torch.where(stopping, epoch, self.zero_loss_epoch))
        self.ended.logical_or_(self._last_epochs <= epoch)
        self.loud.zero_()
        self.refresh_stopped()

    def _settled(self, epoch: int) -> Tensor:
        """Return whether each member has the same parameters as at the last check, (e,), and remember their hashes.

        All are False in epochs without a check and at the first check. Members with dropout or with random training
        examples are always False.
        """
        interval = -(-MIN_STEPS_BETWEEN_CHECKS // self.steps_per_epoch)
        if epoch % interval:
            return torch.zeros_like(self.alive)
        hashes = fingerprints(self.stack.flat)
        same = (hashes == self.fingerprint) & self._repeats & (epoch > interval)
        self.fingerprint.copy_(hashes)
        return same

    def refresh_stopped(self) -> None:
        """Update `stopped` in place from the status vectors."""
        self.stopped.copy_((self.settled_epoch >= 0) | (self.zero_loss_epoch >= 0) | self.ended)

    def check_parameters(self, step: int) -> None:
        """Mark members whose parameters are not finite as diverged after `step` steps, and call `explain`.

        The loss of the next step would also detect them, but there may be no next step.
        """
        self._mark_diverged(self.alive & ~self.stack.flat.isfinite().all(1), step, PARAMETERS)
        self.explain()

    def explain(self) -> None:
        """Set the cause "float16" for members that diverged only because numbers overflowed in float16.

        For these members, loss and gradient are finite if their last step is repeated in TF32.
        """
        if not self.stack.halves:
            return
        for index in ((self.cause == LOSS) | (self.cause == GRADIENT)).nonzero()[:, 0].tolist():
            if index in self._explained_members:
                continue
            self._explained_members.add(index)
            if self._finite_in_tf32(index, int(self.diverged_at[index]) - 1):
                self.cause[index] = FLOAT16

    def _finite_in_tf32(self, index: int, step: int) -> bool:
        """Repeat `step`, counted from 0, for member `index` in TF32; return whether loss and gradient are finite."""
        model, rows = self.stack.member(index), self.rows_of(step)[index : index + 1]
        task = self.unbound_task.bind(model.members).to(model.flat.device, model.flat.dtype)
        inputs, targets = task.batch("train", rows, step)
        losses, gradient = task.loss(model(inputs, step=step), targets), torch.empty_like(model.flat)
        model.gradients(losses.sum(), out=gradient)
        if not model.encoding.learns.all():
            gradient[:, model.encoding_columns :] = 0
        norm = torch.linalg.vector_norm(gradient, dim=1)  # the optimizer checks the norm too
        return bool(losses.isfinite().all() & norm.square().isfinite().all())

    def vectors(self) -> dict[str, Tensor]:
        """Return the status vectors, (e,), by name."""
        return {name: getattr(self, name) for name in self.VECTORS}

    def arrays(self) -> dict[str, Tensor]:
        """Return the parameters ("flat") and the moments of the optimizer ("optimizer.NAME"), (e, P) each."""
        moments = {f"optimizer.{name}": value for name, value in self.optimizer.state.items()}
        return {"flat": self.stack.flat, **moments}

    def release(self) -> None:
        """Free the memory of captured CUDA graphs. Call it when this object is no longer used for training."""
        self._captured = None


def fingerprints(flat: Tensor) -> Tensor:
    """Return a 64-bit hash of the parameters of each member, (e, P) -> (e,)."""
    words = flat.view({4: torch.int32, 8: torch.int64}[flat.element_size()])
    total = torch.zeros(len(flat), dtype=torch.int64, device=flat.device)
    for first in range(0, flat.shape[1], HASHED_COLUMNS):
        part = words[:, first : first + HASHED_COLUMNS].long()
        total += random.hash_words(part, first).sum(1)
    return total


def steps_per_epoch(examples: int, batch: int) -> int:
    """Return the number of training steps per epoch, for batches of size `batch`. The last batch may be smaller.

    >>> steps_per_epoch(examples=10, batch=4)
    3
    """
    return -(-examples // batch)


class Captured:
    """The training step of a `Running` stack, captured as one CUDA graph per batch size.

    Calling an instance with a step number, counted from 0, trains for one step and returns the losses, (e,). The first
    steps of each batch size run eagerly, as warm-up for the capture. The step number and the order of the examples are
    stored on the GPU, so that a graph can read them.
    """

    WARM_UP_STEPS = 2
    """Number of steps of each batch size that run eagerly before the capture."""
    MAX_QUEUED_STEPS = 3
    """Maximum number of steps in the GPU's queue. With a short queue, an interrupted run stops soon."""

    def __init__(self, running: Running) -> None:
        self._running = weakref.ref(running)  # no reference cycle: graphs must be freed together with their stack
        device = running.stack.flat.device
        self.clock = torch.zeros((), dtype=torch.int64, device=device)
        self.order = torch.empty(len(running.stack.members), running.examples, dtype=torch.int64, device=device)
        self.epoch = -1
        self.graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self.eager_steps: dict[int, int] = {}
        self.failed = False
        self.pool = torch.cuda.graph_pool_handle()
        self.stream = _side_stream(device)
        self.queue: deque[torch.cuda.Event] = deque()

    @property
    def running(self) -> Running:
        """The stack in training."""
        running = self._running()
        assert running is not None
        return running

    def __call__(self, step: int) -> Tensor:
        running = self.running
        epoch, batch_index = divmod(step, running.steps_per_epoch)
        if epoch != self.epoch:
            self.order.copy_(running.order_at(step))
            self.epoch = epoch
        size = min(running.batch, running.examples - batch_index * running.batch)
        self.clock.fill_(step)
        is_warm = self.eager_steps.setdefault(size, 0) >= self.WARM_UP_STEPS
        if is_warm and size not in self.graphs and not self.failed:
            self._record(size)
        if size in self.graphs:
            graph, losses = self.graphs[size]
            graph.replay()
            losses = losses.clone()
        else:
            self.eager_steps[size] += 1
            losses = self._run_eagerly(size)
        self._limit_queue()
        return losses

    def _run_eagerly(self, size: int) -> Tensor:
        """Train on a batch of `size` examples without a graph, and return the losses, (e,).

        The step runs on the stream used for capture, because autograd remembers the stream of a parameter's first use.
        """
        current = torch.cuda.current_stream()
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            losses = self._advance(size)
        current.wait_stream(self.stream)
        losses.record_stream(current)
        return losses

    def _record(self, size: int) -> None:
        """Capture the training step for batches of `size` examples, or warn if this is not possible.

        Capturing computes nothing, so parameters do not change even if it fails.
        """
        graph = torch.cuda.CUDAGraph()
        gc.collect()
        gc_enabled = gc.isenabled()
        gc.disable()  # freeing unrelated memory would invalidate the capture
        try:
            # thread_local, because other threads may copy a checkpoint during the capture
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
                losses = self._advance(size)
            self.graphs[size] = graph, losses
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # a user-defined encoding or task may synchronize with the GPU, for example
            self.failed = True
            reason = str(error).splitlines()[0]
            warnings.warn(f"the step cannot be captured as a graph, and runs slower without: {reason}", stacklevel=5)
        finally:
            if gc_enabled:
                gc.enable()

    def _advance(self, size: int) -> Tensor:
        """Train on a batch of `size` examples and return the losses, (e,). The step number is read from the GPU."""
        running = self.running
        first = self.clock % running.steps_per_epoch * running.batch
        rows = self.order.index_select(1, first + torch.arange(size, device=self.clock.device))
        return running.advance(rows, self.clock)

    def _limit_queue(self) -> None:
        """Wait until at most `MAX_QUEUED_STEPS` steps are queued on the GPU."""
        done = torch.cuda.Event()
        done.record()
        self.queue.append(done)
        if len(self.queue) > self.MAX_QUEUED_STEPS:
            self.queue.popleft().synchronize()


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the CUDA stream for graph capture, the same one for all stacks on a device.

    It is shared because libraries allocate tens of MiB per stream. Two stacks must not capture at the same time, so
    stacks on one GPU train one after the other.
    """
    return torch.cuda.Stream(device)
