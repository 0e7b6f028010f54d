"""Training a stack on a task: steps, evaluation, members that stop early, and a state that can be saved and loaded.

A trainer knows nothing of files. Its `state` holds all that the next step depends on; since random numbers are
functions of the step (`random`), there is no generator to save, and a run that is taken up again goes on as if it had
never stopped.

>>> trainer = Trainer(stack, task, steps=640)
>>> for event in trainer.run():
...     print(event.step, event.rows)
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
from placecode.training import optimizers
from placecode.training.running import Running, steps_per_epoch

__all__ = ["Progress", "Trainer", "evaluate", "portions", "stack_for", "steps_per_epoch"]

EVALUATION_VALUES = 1 << 21
"""Features that a forward pass of evaluation holds on a CPU: what its caches can bear. A GPU takes 64 times that."""
FEWEST_STOPPED = 1 / 8
"""Share of the running members that must have stopped before the stack is reduced. A reduction takes the time of some
steps."""
OUTCOME = ("alive", "diverged_at", "cause", "settled_epoch", "rested_epoch")
"""What a finished stack tells of each member."""


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
    """Where training stands: the mean loss of the members in training, the rows of an evaluation if one was made, and
    the number of members that have finished early (diverged ones not included)."""

    step: int
    loss: float
    rows: tuple[dict[str, Any], ...] = ()
    stopped: int = 0


class Trainer:
    """Trains the members of a stack together, each on its own order of the data.

    Members that have settled (their parameters no longer change, bit for bit, over whole epochs) stop. So do members
    that have done their own number of epochs and, with `rest`, members whose training loss has been exactly 0 for that
    many epochs in a row. Those that go on are trained in a smaller stack once enough have stopped. When none is left,
    training ends: one last evaluation is made, and its rows are repeated for every evaluation that was still due.

    Parameters
    ----------
    stack : Stack
        The members. It always holds all of them: `sync` brings the parameters of those that train up to date.
    task : Task
    steps : int
        Training steps of every member.
    evaluate_at : sequence of int
        Steps after which all splits are evaluated; step 0, before training, and the last one always are.
    rest : int
        After how many epochs in a row with a training loss of exactly 0 a member stops; 0: never.

    Attributes
    ----------
    step : int
        Steps done.
    running : Running
        The members in the current stack, including those that stopped since it was last reduced.
    """

    def __init__(self, stack: Stack, task: Task, steps: int, evaluate_at: Sequence[int] = (), rest: int = 0) -> None:
        if steps < 0:
            raise must_be("steps", "a whole number of at least 0", steps)
        if rest < 0:
            raise must_be("rest", "a whole number of at least 0", rest)
        self.stack, self.steps, self.rest = stack, steps, rest
        self.running = Running(stack, task, steps)
        self.task = self.running.task
        self.step = 0
        self.evaluate_at = {0, steps, *(step for step in evaluate_at if 0 < step < steps)}
        self._places = list(range(len(stack.members)))
        self._vectors = self.running.vectors()
        self._resumed = False

    @property
    def alive(self) -> Tensor:
        """Which members have not diverged, (e,)."""
        return self._known()["alive"]

    @property
    def diverged_at(self) -> Tensor:
        """The step at which each member diverged, (e,); -1: it did not."""
        return self._known()["diverged_at"]

    @property
    def stopped(self) -> Tensor:
        """Which members have finished early, (e,): settled, at rest or at their last epoch. Not those that diverged."""
        known = self._known()
        return (known["settled_epoch"] >= 0) | (known["rested_epoch"] >= 0) | known["ended"]

    @property
    def optimizer(self) -> optimizers.Optimizer:
        return self.running.optimizer

    @property
    def steps_per_epoch(self) -> int:
        return self.running.steps_per_epoch

    def rows_of(self, step: int) -> Tensor:
        """The rows that each member that trains reads at `step`, (e, b)."""
        return self.running.rows_of(step)

    def update(self) -> Tensor:
        """One training step; returns the losses of those that train, (e,), without waiting for a GPU to finish it."""
        losses = self.running.update(self.step)
        self.step += 1
        if self.step % self.steps_per_epoch == 0 and self.steps > self.steps_per_epoch:
            self.running.end_epoch(self.step // self.steps_per_epoch, self.rest)
            self._leave_out_stopped()
        return losses

    def _leave_out_stopped(self) -> None:
        """Go on with a smaller stack if enough members have stopped, and some have not."""
        running = self.running
        if not running.stopped.any():
            return
        going = (running.alive & ~running.stopped).tolist()
        if any(going) and int(running.stopped.sum()) >= FEWEST_STOPPED * len(going):
            running.check_parameters(self.step)  # of those that leave, nobody looks again
            running.explain()
            self._train_alone([place for place, goes in zip(self._places, going, strict=True) if goes], self._parts())

    def _train_alone(self, places: list[int], parts: dict[str, Tensor]) -> None:
        """Make the members at these places of the stack those that train, from a state of all members."""
        task, everyone = self.running.unbound, list(range(len(self.stack.members)))
        if places != self._places:
            self.running.release()
            stack = self.stack if places == everyone else self.stack.members_alone(places)
            self._vectors = {name: parts[name].to(stack.flat.device, copy=True) for name in self._vectors}
            self.running, self._places = Running(stack, task, self.steps), places
            if places == everyone:
                self._vectors = self.running.vectors()
        for name, value in {**self.running.arrays(), **self.running.vectors()}.items():
            value.copy_(parts[name][places])
        self.running.see_stopped()

    def sync(self) -> None:
        """Bring the parameters in `stack` up to date, where those that train have a stack of their own."""
        if self.running.stack is not self.stack:
            self.stack.flat[self._places] = self.running.stack.flat

    def _known(self) -> dict[str, Tensor]:
        """What is known of each member (`Running.VECTORS`), of all of them."""
        if self.running.stack is not self.stack:
            for name, value in self.running.vectors().items():
                self._vectors[name][self._places] = value
        return self._vectors

    @property
    def finished(self) -> bool:
        """Whether the last step is done, or no member is left that trains."""
        running = self.running
        if self.step >= self.steps or self.step % self.steps_per_epoch:
            return self.step >= self.steps
        return self.step > 0 and not bool((running.alive & ~running.stopped).any())

    def run(self, seconds: float = 0.2) -> Iterator[Progress]:
        """Train to the end, yielding progress: about every so many seconds, and at each evaluation with its rows."""
        if self.step == 0 and not self._resumed:
            yield Progress(0, float("nan"), tuple(self.evaluate()))
        last = time.monotonic()
        while not self.finished:
            losses = self.update()
            evaluation: tuple[dict[str, Any], ...] = ()
            if self.step in self.evaluate_at:
                self.running.check_parameters(self.step)
                self.running.explain()
                evaluation = tuple(self.evaluate())
            if evaluation or time.monotonic() - last > seconds:
                yield Progress(self.step, self._mean(losses), evaluation, int(self.stopped.sum()))
                last = time.monotonic()
        if self.step < self.steps:
            yield self._end_early()

    def _mean(self, losses: Tensor) -> float:
        """The mean loss of the members that train; NaN where there is none, or the stack has just become smaller."""
        if len(losses) != len(self.running.stack.members):
            return float("nan")
        return losses[self.running.alive & ~self.running.stopped].mean().item()

    def _end_early(self) -> Progress:
        """Evaluate once more, and repeat the rows for every evaluation still due: no member trains any more."""
        self.running.check_parameters(self.step)
        self.running.explain()
        due = sorted(step for step in self.evaluate_at if step > self.step)
        rows = list(self.evaluate())
        self.step = self.steps
        repeated = tuple({**row, "step": step} for step in due for row in rows)
        return Progress(self.step, float("nan"), repeated, int(self.stopped.sum()))

    def evaluate(self) -> Iterator[dict[str, Any]]:
        """Rows (member, step, split, condition, metric, value) of every split, all members on all examples."""
        self.sync()
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
        self.sync()
        return _copies({"flat": self.stack.flat, **{name: self._known()[name] for name in OUTCOME}})

    def _parts(self) -> dict[str, Tensor]:
        """The state. Moments of members that have left the running stack are zero: nothing depends on them."""
        self.sync()
        runs = torch.zeros(len(self.stack.members), dtype=torch.bool, device=self.stack.flat.device)
        runs[self._places] = True
        arrays = self.running.arrays()
        if self.running.stack is not self.stack:
            for name in arrays.keys() - {"flat"}:
                whole = torch.zeros_like(self.stack.flat)
                whole[self._places] = arrays[name]
                arrays[name] = whole
        return {**arrays, "flat": self.stack.flat, **self._known(), "runs": runs}

    def load(self, state: dict[str, Tensor], step: int) -> None:
        """Go on from a saved state."""
        wanted = self._parts()
        if {k: (v.shape, v.dtype) for k, v in state.items()} != {k: (v.shape, v.dtype) for k, v in wanted.items()}:
            raise BadInput("the checkpoint must hold the state of this stack; its arrays have other names or shapes.")
        self.stack.flat.copy_(state["flat"])
        self._train_alone(state["runs"].nonzero()[:, 0].tolist(), state)
        self.step, self._resumed = step, True


def _copies(parts: dict[str, Tensor]) -> dict[str, Tensor]:
    try:
        return {name: value.detach().clone() for name, value in parts.items()}
    except torch.OutOfMemoryError:  # neighbours took what was planned for this
        return {name: value.detach().to("cpu", copy=True) for name, value in parts.items()}


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
