"""Train the stack of members (models) that still learn, step by step, and apply the rules by which members stop early.

A member stops before the last training step for one of four reasons:

- It *diverged*: its loss, its gradient or its parameters are not finite.
- It *settled*: its parameters are bit for bit the same as at the previous check, one or more whole epochs before. This
  rule applies only if training is the same in every epoch (no dropout, no random masks).
- It *kept a loss of 0*: its training loss was exactly 0 in every step of a given number of consecutive epochs.
- It reached its last epoch (`Member.last_epoch`).

The parameters of a member that has stopped no longer change.

A finished run records divergence in `members.parquet`: the column `diverged_at` is the step (-1 if the member did not
diverge), and `diverged_by` is the check that detected it, one of `CAUSES`. `placecode.execution.stacks` adds two more
values of `diverged_by`: "evaluation" (a metric of the last evaluation is not finite) and "donor" (the member whose PE
was to be copied diverged). The columns `settled_epoch` and `zero_loss_epoch` record the second and third reason.

Shapes: e members, b examples per batch, P parameters per member.
"""

from __future__ import annotations

import torch
from torch import Tensor

from placecode import random
from placecode.compute.cpu.step import Step, fits
from placecode.models.encoder import Stack
from placecode.tasks.base import Task
from placecode.training import optimizers
from placecode.training.graphed_step import GraphedStep

CAUSES = ("", "loss", "gradient", "parameters", "float16")
"""Checks that can detect divergence, the values of the column `diverged_by` in `members.parquet`; "" means that the
member did not diverge. The vector `cause` contains indices of this tuple. "float16" means that loss and gradient of the
step overflow in float16 but are finite in TF32."""
LOSS, GRADIENT, PARAMETERS, FLOAT16 = range(1, len(CAUSES))
NEVER = -1
"""Value of `diverged_at`, `settled_epoch` or `zero_loss_epoch` of a member that did not diverge, settle or keep a loss
of 0."""
NO_LAST_EPOCH = 1 << 62
"""Number that replaces a `Member.last_epoch` of None. No training has as many epochs."""
MIN_STEPS_BETWEEN_CHECKS = 50
"""Number of steps between two checks for settled members, rounded up to whole epochs. A check takes about as long as a
training step of a small model."""
HASHED_COLUMNS = 1 << 16
"""Number of parameters per member that `fingerprints` hashes at a time, which limits its memory use."""


class ActiveStack:
    """The stack that is trained at present, with its optimizer, the order of examples and the status of each member.

    A `Trainer` begins with an active stack of all members. It builds a smaller one when enough members have stopped.

    Parameters
    ----------
    stack : Stack
        The members to train. Training changes the parameters of this stack in place.
    task : Task
        A task before `Task.bind`. The constructor binds it to the members of the stack.
    steps : int
        Total number of training steps. It determines when learning rates begin to fall (`Member.cooldown`).
    """

    STATUS_VECTORS = (
        "alive", "diverged_at", "cause", "settled_epoch", "zero_loss_epoch", "ended",
        "zero_loss_streak", "had_nonzero_loss", "fingerprint",
    )  # fmt: skip
    """Names of the status vectors, shape (e,), which are part of a checkpoint.

    - alive: whether the member has not diverged.
    - diverged_at: step, counted from 1, at which the member diverged, or -1.
    - cause: index in `CAUSES` of the check that detected divergence, 0 for none.
    - settled_epoch: number of epochs after which the member stopped because it settled, or -1.
    - zero_loss_epoch: number of epochs after which the member stopped because it kept a loss of 0, or -1.
    - ended: whether the member has reached its last epoch.
    - zero_loss_streak: number of consecutive epochs, up to the last one completed, with a loss of exactly 0 in every
      step.
    - had_nonzero_loss: whether the loss was not 0 in at least one step of the current epoch.
    - fingerprint: hash of the parameters at the last check for settled members.
    """

    def __init__(self, stack: Stack, task: Task, steps: int) -> None:
        self.stack, self.unbound_task, self.steps = stack, task, steps
        self.task = task.bind(stack.members).to(stack.flat.device, stack.flat.dtype)
        self.optimizer = optimizers.build(stack)
        device, count = stack.flat.device, len(stack.members)
        self.examples, self.batch = len(task.splits["train"]), stack.members[0].batch
        self.steps_per_epoch = steps_per_epoch(self.examples, self.batch)
        self.order_keys = random.keys_for([member.seed for member in stack.members], "order").to(device)

        def vector_of(value: int) -> Tensor:
            return torch.full((count,), value, dtype=torch.int64, device=device)

        self.alive = torch.ones(count, dtype=torch.bool, device=device)
        self.diverged_at, self.cause = vector_of(NEVER), vector_of(0)
        self.settled_epoch, self.zero_loss_epoch = vector_of(NEVER), vector_of(NEVER)
        self.zero_loss_streak, self.had_nonzero_loss = vector_of(0), torch.zeros_like(self.alive)
        self.fingerprint, self.ended = vector_of(0), torch.zeros_like(self.alive)
        self.stopped = torch.zeros_like(self.alive)
        """Whether each member has settled, has kept a loss of 0 or has reached its last epoch, (e,). `refresh_stopped`
        computes it from the status vectors, so it is not part of a checkpoint."""
        epochs = [NO_LAST_EPOCH if member.last_epoch is None else member.last_epoch for member in stack.members]
        self._last_epochs = torch.tensor(epochs, dtype=torch.int64, device=device)
        self._epochs_repeat = not (self.task.stochastic_batches or stack.members[0].dropout)
        cooldown = torch.tensor([member.cooldown for member in stack.members], dtype=stack.flat.dtype, device=device)
        self._cooling_steps = (cooldown * steps)[:, None] if cooldown.any() else None
        self.gradient = torch.empty_like(stack.flat)
        self.inverse_scale = torch.ones(count, device=device) if stack.fast else None
        self.cpu_step = Step(stack, self.gradient) if fits(stack) and not stack.fast else None
        self._order: tuple[int, Tensor] | None = None
        self._checked_for_overflow: set[int] = set()
        self._graphed_step = GraphedStep(self) if stack.fast and device.type == "cuda" else None

    @property
    def training(self) -> Tensor:
        """Whether each member still trains, (e,): it has neither diverged nor stopped."""
        return self.alive & ~self.stopped

    def order_at(self, step: int) -> Tensor:
        """Return the random order of the N examples in the epoch of `step`, (e, N). It differs by epoch and seed."""
        epoch = step // self.steps_per_epoch
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, random.permutation(self.order_keys, epoch, self.examples)
        return self._order[1]

    def batch_indices(self, step: int) -> Tensor:
        """Return the indices of the training examples of `step`, (e, b). The last batch of an epoch may be smaller."""
        first = step % self.steps_per_epoch * self.batch
        return self.order_at(step)[:, first : first + self.batch]

    def update(self, step: int) -> Tensor:
        """Train for one step, counted from 0, and return the losses, (e,), without waiting for the GPU to finish."""
        return self._graphed_step(step) if self._graphed_step else self.train_on(self.batch_indices(step), step)

    def train_on(self, indices: Tensor, step: int | Tensor) -> Tensor:
        """Train on the examples with these indices, (e, b), and return the losses, (e,).

        All arrays are changed in place, as CUDA graphs require.
        """
        inputs, targets = self.task.batch("train", indices, step)
        if self.cpu_step is not None:
            losses = self.cpu_step(inputs, targets, self.task.loss)
        else:
            losses = self._losses_and_gradient(inputs, targets, step)
        training, finite = self.training, losses.isfinite()
        rate_scale, inverse_scale = self.rate_scale(step), self.inverse_scale
        updated = self.optimizer.step(self.gradient, step + 1, training & finite, rate_scale, inverse_scale)
        self._mark_diverged(training & ~updated, step + 1, torch.where(finite, GRADIENT, LOSS))
        self.had_nonzero_loss.logical_or_(losses != 0)
        return losses.detach()

    def _mark_diverged(self, diverged: Tensor, step: int | Tensor, cause: int | Tensor) -> None:
        """Record that the members where `diverged`, (e,), is true diverged at `step`, counted from 1.

        `cause` is an index in `CAUSES`.
        """
        self.diverged_at.copy_(torch.where(diverged, step, self.diverged_at))
        self.cause.copy_(torch.where(diverged, cause, self.cause))
        self.alive.logical_and_(~diverged)

    def _losses_and_gradient(self, inputs: Tensor, targets: Tensor, step: int | Tensor) -> Tensor:
        """Return the losses, (e,), and write their gradients into `self.gradient`, (e, P).

        Fused kernels may scale the gradients of a member to fit them into float16. They write the factor that reverses
        the scaling into `self.inverse_scale`, and the optimizer multiplies by it.
        """
        if self.inverse_scale is not None:
            self.inverse_scale.fill_(1)
        self.stack.sink, self.stack.inverse_scale = self.gradient, self.inverse_scale
        try:
            losses = self.task.loss(self.stack(inputs, step=step), targets)
            self.stack.gradients(losses.sum(), out=self.gradient)
        finally:  # the sink is valid for one backward pass only: a second pass would overwrite the first
            self.stack.sink = self.stack.inverse_scale = None
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
        training = self.training
        settled = self._settled(epoch) & training
        self.settled_epoch.copy_(torch.where(settled, epoch, self.settled_epoch))
        self.zero_loss_streak.copy_(torch.where(self.had_nonzero_loss, 0, self.zero_loss_streak + training.long()))
        if zero_loss_patience:
            stopping = training & ~settled & (self.zero_loss_streak >= zero_loss_patience)
            self.zero_loss_epoch.copy_(torch.where(stopping, epoch, self.zero_loss_epoch))
        self.ended.logical_or_(self._last_epochs <= epoch)
        self.had_nonzero_loss.zero_()
        self.refresh_stopped()

    def _settled(self, epoch: int) -> Tensor:
        """Return whether each member has the same parameters as at the last check, (e,), and remember their hashes.

        All are False in epochs without a check, at the first check, and with dropout or random training examples.
        """
        interval = -(-MIN_STEPS_BETWEEN_CHECKS // self.steps_per_epoch)
        if epoch % interval or not self._epochs_repeat:
            return torch.zeros_like(self.alive)
        hashes = fingerprints(self.stack.flat)
        same = (hashes == self.fingerprint) & (epoch > interval)
        self.fingerprint.copy_(hashes)
        return same

    def refresh_stopped(self) -> None:
        """Update `stopped` in place from the status vectors."""
        self.stopped.copy_((self.settled_epoch >= 0) | (self.zero_loss_epoch >= 0) | self.ended)

    def check_parameters(self, step: int) -> None:
        """Mark members as diverged whose parameters are not finite after `step` steps. Call `find_float16_overflow`.

        The loss of the next step would also detect these members, but there may be no next step.
        """
        self._mark_diverged(self.alive & ~self.stack.flat.isfinite().all(1), step, PARAMETERS)
        self.find_float16_overflow()

    def find_float16_overflow(self) -> None:
        """Set the cause "float16" for members that diverged only because numbers overflowed in float16.

        For these members, loss and gradient are finite if their last step is repeated in TF32.
        """
        if not self.stack.allows_float16:
            return
        for index in ((self.cause == LOSS) | (self.cause == GRADIENT)).nonzero()[:, 0].tolist():
            if index in self._checked_for_overflow:
                continue
            self._checked_for_overflow.add(index)
            if self._finite_in_tf32(index, int(self.diverged_at[index]) - 1):
                self.cause[index] = FLOAT16

    def _finite_in_tf32(self, index: int, step: int) -> bool:
        """Repeat `step`, counted from 0, for member `index` in TF32; return whether loss and gradient are finite."""
        model, indices = self.stack.member(index), self.batch_indices(step)[index : index + 1]
        task = self.unbound_task.bind(model.members).to(model.flat.device, model.flat.dtype)
        inputs, targets = task.batch("train", indices, step)
        losses, gradient = task.loss(model(inputs, step=step), targets), torch.empty_like(model.flat)
        model.gradients(losses.sum(), out=gradient)
        if not model.encoding.learns.all():
            gradient[:, model.encoding_columns :] = 0
        norm = torch.linalg.vector_norm(gradient, dim=1)  # the optimizer checks the norm too
        return bool(losses.isfinite().all() & norm.square().isfinite().all())

    def status(self) -> dict[str, Tensor]:
        """Return the vectors in `STATUS_VECTORS`, (e,), by name: when and why each member stopped."""
        return {name: getattr(self, name) for name in self.STATUS_VECTORS}

    def arrays(self) -> dict[str, Tensor]:
        """Return the parameters ("flat") and the moments of the optimizer ("optimizer.NAME"), each of shape (e members,
        P parameters)."""
        moments = {f"optimizer.{name}": value for name, value in self.optimizer.state.items()}
        return {"flat": self.stack.flat, **moments}

    def release(self) -> None:
        """Free the memory of captured CUDA graphs. Call it when this object is no longer used for training."""
        self._graphed_step = None


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
