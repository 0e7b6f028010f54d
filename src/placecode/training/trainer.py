"""Train a stack of models on a task, with evaluation, early stopping and a state that can be saved and loaded.

The numbers of an evaluation (accuracy, mean squared error, ...) come from the task's `metrics` (`Task.metrics`): the
trainer averages them over examples. A finished run stores them in `metrics.parquet`.

A trainer does not read or write files. Its `state` contains everything the next step depends on. Random numbers are
functions of the step (`placecode.random`), so there is no generator state to save. A resumed run gives the same numbers
as an uninterrupted one.

>>> from placecode.tasks.latin_squares import LatinSquares
>>> task = LatinSquares(per_class=8)
>>> trainer = Trainer(stack_for([Member(width=16, layers=1)], task), task, steps=2)
>>> [progress.step for progress in trainer.run() if progress.rows]  # progress.rows are the numbers of an evaluation
[0, 2]
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from placecode.errors import BadInput, must_be
from placecode.models.encoder import Stack
from placecode.models.member import Member
from placecode.tasks.base import Task
from placecode.training.active_stack import ActiveStack, steps_per_epoch

__all__ = ["Progress", "Trainer", "evaluate", "portions", "stack_for", "steps_per_epoch"]

MAX_EVALUATION_VALUES = 1 << 21
"""Maximum number of values (members x examples x tokens x width) in a forward pass at evaluation on a CPU, chosen to
fit its caches. On a GPU the maximum is 64 times as large."""
MIN_STOPPED_FRACTION = 1 / 8
"""Fraction of the members of the active stack that must have stopped before the others continue in a smaller stack.
Building a stack takes as long as several training steps."""
OUTCOME_VECTORS = ("alive", "diverged_at", "cause", "settled_epoch", "zero_loss_epoch")
"""Names of the status vectors that `Trainer.outcome` returns. `ActiveStack.STATUS_VECTORS` describes them."""


def stack_for(
    members: Sequence[Member],
    task: Task,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    fast: bool | None = None,
) -> Stack:
    """Return a new, untrained stack with the numbers of tokens, features and outputs that a task requires.

    The other arguments are those of `Stack`.
    """
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
    """A report on the progress of training, as `Trainer.run` yields it."""

    step: int
    """Number of steps completed."""
    loss: float
    """Mean training loss of the members that still train, or NaN if it is not known."""
    rows: tuple[dict[str, Any], ...] = ()
    """Rows of the evaluation at this step, as `Trainer.evaluate` yields them. Empty if there was none."""
    stopped: int = 0
    """Number of members that have settled, kept a loss of 0 or reached their last epoch (`Trainer.stopped`)."""


class Trainer:
    """Train the members of a stack together. Each member has its own order of the training examples.

    Members stop early when they settle, diverge, keep a loss of 0 or reach their last epoch (see
    `placecode.training.active_stack`). Once enough members have stopped, the others continue in a smaller stack. If no
    member is left, training ends with a last evaluation. Its rows are repeated for all remaining evaluation steps.

    Parameters
    ----------
    stack : Stack
        All members. If they are trained in a smaller stack, `sync` copies their parameters back into this one.
    task : Task
        A task before `Task.bind`. Its `metrics` give the numbers of an evaluation.
    steps : int
        Number of training steps.
    evaluate_at : sequence of int
        Steps after which all splits are evaluated. Step 0 (before training) and the last step are always included.
    zero_loss_patience : int
        Number of consecutive epochs with a training loss of exactly 0 after which a member stops. 0 disables this rule.

    Attributes
    ----------
    step : int
        Number of steps completed.
    active : ActiveStack
        The stack that is trained at present. It includes members that stopped after it was built.
    steps_per_epoch : int
        Number of training steps per epoch.
    """

    def __init__(
        self,
        stack: Stack,
        task: Task,
        steps: int,
        evaluate_at: Sequence[int] = (),
        zero_loss_patience: int = 0,
    ) -> None:
        for name, value in (("steps", steps), ("zero_loss_patience", zero_loss_patience)):
            if value < 0:
                raise must_be(name, "a whole number of at least 0", value)
        self.stack, self.steps, self.zero_loss_patience = stack, steps, zero_loss_patience
        self.active = ActiveStack(stack, task, steps)
        self.task, self.steps_per_epoch = self.active.task, self.active.steps_per_epoch
        self.step = 0
        self.evaluate_at = {0, steps, *(step for step in evaluate_at if 0 < step < steps)}
        self._active_indices = list(range(len(stack.members)))
        self._all_status = self.active.status()
        self._resumed = False

    @property
    def stopped(self) -> Tensor:
        """Whether each member has settled, kept a loss of 0 or reached its last epoch, (e,). Ignores divergence."""
        status = self._status()
        return (status["settled_epoch"] >= 0) | (status["zero_loss_epoch"] >= 0) | status["ended"]

    def update(self) -> Tensor:
        """Train for one step and return the losses of the members of the active stack, (e,).

        The method returns before the GPU has finished the step, except at the end of an epoch: it then waits for the
        GPU, to find stopped members.
        """
        losses = self.active.update(self.step)
        self.step += 1
        if self.step % self.steps_per_epoch == 0 and self.steps > self.steps_per_epoch:
            self.active.end_epoch(self.step // self.steps_per_epoch, self.zero_loss_patience)
            self._drop_stopped()
        return losses

    def _drop_stopped(self) -> None:
        """Continue with only the members that still train, if there are any.

        Do nothing if less than `MIN_STOPPED_FRACTION` of the members of the active stack have stopped.
        """
        active = self.active
        if not active.stopped.any():
            return
        training = active.training.tolist()
        if any(training) and int(active.stopped.sum()) >= MIN_STOPPED_FRACTION * len(training):
            active.check_parameters(self.step)  # the last check of the members that are removed
            indices = [index for index, trains in zip(self._active_indices, training, strict=True) if trains]
            self._train_subset(indices, self._state_views())

    def _train_subset(self, indices: list[int], state: dict[str, Tensor]) -> None:
        """Continue training with the members at these indices of the full stack.

        `state` contains the arrays of all members, as in `_state_views`.
        """
        task, all_indices = self.active.unbound_task, list(range(len(self.stack.members)))
        if indices != self._active_indices:
            self.active.release()
            stack = self.stack if indices == all_indices else self.stack.subset(indices)
            self._all_status = {name: state[name].to(stack.flat.device, copy=True) for name in self._all_status}
            self.active, self._active_indices = ActiveStack(stack, task, self.steps), indices
            if indices == all_indices:
                self._all_status = self.active.status()
        for name, value in {**self.active.arrays(), **self.active.status()}.items():
            value.copy_(state[name][indices])
        self.active.refresh_stopped()

    def sync(self) -> None:
        """Copy the parameters of the active stack into `stack`. Does nothing if `stack` is the active one."""
        if self.active.stack is not self.stack:
            self.stack.flat[self._active_indices] = self.active.stack.flat

    def _status(self) -> dict[str, Tensor]:
        """Return the current status vectors (`ActiveStack.STATUS_VECTORS`) of all members, active or not."""
        if self.active.stack is not self.stack:
            for name, value in self.active.status().items():
                self._all_status[name][self._active_indices] = value
        return self._all_status

    @property
    def finished(self) -> bool:
        """Whether training is over: the last step is completed, or an epoch is completed and no member still trains."""
        if self.step >= self.steps or self.step % self.steps_per_epoch:
            return self.step >= self.steps
        return self.step > 0 and not bool(self.active.training.any())

    def run(self, seconds: float = 0.2) -> Iterator[Progress]:
        """Train until the last step, or until no member is left in training.

        Parameters
        ----------
        seconds : float
            Approximate time between two reports.

        Yields
        ------
        Progress
            A report about every `seconds`, and one at each evaluation, with the rows of the evaluation.
        """
        if self.step == 0 and not self._resumed:
            yield Progress(0, float("nan"), tuple(self.evaluate()))
        last = time.monotonic()
        while not self.finished:
            losses = self.update()
            evaluation: tuple[dict[str, Any], ...] = ()
            if self.step in self.evaluate_at:
                self.active.check_parameters(self.step)
                evaluation = tuple(self.evaluate())
            if evaluation or time.monotonic() - last > seconds:
                yield Progress(self.step, self._mean_loss(losses), evaluation, int(self.stopped.sum()))
                last = time.monotonic()
        if self.step < self.steps:
            yield self._end_early()

    def _mean_loss(self, losses: Tensor) -> float:
        """Return the mean of `losses` over the members that still train.

        It is NaN if no member is left, or if the stack became smaller in this step, so that losses no longer match.
        """
        if len(losses) != len(self.active.stack.members):
            return float("nan")
        return losses[self.active.training].mean().item()

    def _end_early(self) -> Progress:
        """Evaluate the final models, and return a report with the rows repeated for all remaining evaluation steps."""
        self.active.check_parameters(self.step)
        remaining = sorted(step for step in self.evaluate_at if step > self.step)
        rows = list(self.evaluate())
        self.step = self.steps
        repeated = tuple({**row, "step": step} for step in remaining for row in rows)
        return Progress(self.step, float("nan"), repeated, int(self.stopped.sum()))

    def evaluate(self) -> Iterator[dict[str, Any]]:
        """Evaluate all members on all examples of every split, with the task's `metrics`.

        Yields
        ------
        dict
            One row per member, split, condition (see the function `evaluate`) and metric. Its keys are member (position
            in the stack), step, split, condition, metric and value, the columns of `metrics.parquet`.
        """
        self.sync()
        for split in self.task.splits:
            for (condition, metric), values in evaluate(self.stack, self.task, split).items():
                for member, value in enumerate(values):
                    row = {"member": member, "step": self.step, "split": split}
                    yield {**row, "condition": condition, "metric": metric, "value": value}

    def state(self) -> dict[str, Tensor]:
        """Return everything the next step depends on, for a checkpoint.

        Returns
        -------
        dict of str to Tensor
            Copies of parameters, moments of the optimizer and status vectors by name. They are on the device of the
            stack if there is enough memory, otherwise on the CPU.
        """
        return _copies(self._state_views())

    def outcome(self) -> dict[str, Tensor]:
        """Return copies, by name, of what is needed after training: the parameters "flat" and the `OUTCOME_VECTORS`."""
        self.sync()
        return _copies({"flat": self.stack.flat, **{name: self._status()[name] for name in OUTCOME_VECTORS}})

    def _state_views(self) -> dict[str, Tensor]:
        """Return the arrays of `state` without copying them where possible.

        The array "runs", (e,), is True for members of the active stack. The moments of the others are no longer used,
        and are zero.
        """
        self.sync()
        runs = torch.zeros(len(self.stack.members), dtype=torch.bool, device=self.stack.flat.device)
        runs[self._active_indices] = True
        arrays = self.active.arrays()
        if self.active.stack is not self.stack:
            for name in arrays.keys() - {"flat"}:
                full = torch.zeros_like(self.stack.flat)
                full[self._active_indices] = arrays[name]
                arrays[name] = full
        return {**arrays, "flat": self.stack.flat, **self._status(), "runs": runs}

    def load(self, state: dict[str, Tensor], step: int) -> None:
        """Restore a saved state, so that training continues from there.

        Parameters
        ----------
        state : dict of str to Tensor
            The result of `Trainer.state` for the same members.
        step : int
            Number of steps that were completed when the state was saved.
        """
        expected = self._state_views()
        if {k: (v.shape, v.dtype) for k, v in state.items()} != {k: (v.shape, v.dtype) for k, v in expected.items()}:
            raise BadInput("the checkpoint must hold the state of this stack; its arrays have other names or shapes.")
        self.stack.flat.copy_(state["flat"])
        self._train_subset(state["runs"].nonzero()[:, 0].tolist(), state)
        self.step, self._resumed = step, True


def _copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of tensors by name, on the same device, or on the CPU if the device has too little memory."""
    try:
        return {name: value.detach().clone() for name, value in tensors.items()}
    except torch.OutOfMemoryError:  # other processes use the memory that was planned for the copies
        return {name: value.detach().to("cpu", copy=True) for name, value in tensors.items()}


def portions(stack: Stack, task: Task, examples: int) -> list[range]:
    """Split the indices 0 to `examples` - 1 into ranges, each small enough for one forward pass of all members.

    The size of a range is limited by `MAX_EVALUATION_VALUES`.
    """
    max_values = MAX_EVALUATION_VALUES * (64 if stack.flat.device.type == "cuda" else 1)
    size = max(1, max_values // (len(stack.members) * task.tokens * stack.members[0].width))
    return [range(start, min(start + size, examples)) for start in range(0, examples, size)]


@torch.no_grad()
def evaluate(stack: Stack, task: Task, split: str) -> dict[tuple[str, str], list[float]]:
    """Evaluate all members on a split: average the task's `metrics` over examples.

    Parameters
    ----------
    stack : Stack
    task : Task
        A task that is bound to the members of the stack (`Task.bind`).
    split : str
        Name of the split, such as "test".

    Returns
    -------
    dict of (condition, metric) to list of float
        One mean per member. A condition is a subset of the examples over which the metric is averaged, such as a class
        of difficulty. The condition "all" has all examples. It is included if `task.pooled` is true.
    """
    device, count, total = stack.flat.device, len(stack.members), task.row_count(split)
    batches: dict[str, list[Tensor]] = {}
    for part in portions(stack, task, total):
        inputs, targets = task.batch(split, torch.arange(part.start, part.stop, device=device).expand(count, -1))
        for metric, values in task.metrics(stack(inputs, first_row=part.start), targets).items():
            batches.setdefault(metric, []).append(values)
    by_metric = {metric: torch.cat(values, dim=1).double() for metric, values in batches.items()}  # (e, N)
    example_conditions = task.row_conditions(split) or ()
    present = set(example_conditions)
    conditions = ["all"] if task.pooled else []
    conditions += [name for name in task.conditions or sorted(present) if name in present]
    means = {}
    for condition in conditions:
        selected = torch.ones(total, dtype=torch.bool)
        if condition != "all":
            selected = torch.tensor([name == condition for name in example_conditions])
        for metric, values in by_metric.items():
            means[condition, metric] = values[:, selected.to(device)].mean(1)
    return dict(zip(means, torch.stack(list(means.values())).tolist(), strict=True))  # one GPU synchronization for all
