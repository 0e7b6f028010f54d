"""Capture the training step of an `ActiveStack` as a CUDA graph, which saves the time of launching each operation."""

from __future__ import annotations

import functools
import gc
import warnings
import weakref
from collections import deque
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from placecode.training.active_stack import ActiveStack


class GraphedStep:
    """The training step of an `ActiveStack`, as one CUDA graph per batch size.

    Calling an instance with a step number, counted from 0, trains for one step and returns the losses of the e members,
    (e,). The first steps of each batch size run eagerly, as warm-up for the capture. The step number and the order of
    the examples are stored on the GPU, so that a graph can read them.
    """

    WARM_UP_STEPS = 2
    """Number of steps of each batch size that run eagerly before the capture."""
    MAX_QUEUED_STEPS = 3
    """Maximum number of steps in the GPU's queue. With a short queue, an interrupted run stops soon."""

    def __init__(self, active: ActiveStack) -> None:
        self._active = weakref.ref(active)  # no reference cycle: graphs must be freed together with their stack
        device = active.stack.flat.device
        self.step = torch.zeros((), dtype=torch.int64, device=device)
        self.order = torch.empty(len(active.stack.members), active.examples, dtype=torch.int64, device=device)
        self.epoch = -1
        self.graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self.eager_steps: dict[int, int] = {}
        self.capture_failed = False
        self.pool = torch.cuda.graph_pool_handle()
        self.stream = _side_stream(device)
        self.queue: deque[torch.cuda.Event] = deque()

    @property
    def active(self) -> ActiveStack:
        """The `ActiveStack` whose step is captured."""
        active = self._active()
        assert active is not None
        return active

    def __call__(self, step: int) -> Tensor:
        active = self.active
        epoch, batch_index = divmod(step, active.steps_per_epoch)
        if epoch != self.epoch:
            self.order.copy_(active.order_at(step))
            self.epoch = epoch
        size = min(active.batch, active.examples - batch_index * active.batch)
        self.step.fill_(step)
        is_warm = self.eager_steps.setdefault(size, 0) >= self.WARM_UP_STEPS
        if is_warm and size not in self.graphs and not self.capture_failed:
            self._capture(size)
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
            losses = self._train(size)
        current.wait_stream(self.stream)
        losses.record_stream(current)
        return losses

    def _capture(self, size: int) -> None:
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
                losses = self._train(size)
            self.graphs[size] = graph, losses
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # a user-defined encoding or task may synchronize with the GPU, for example
            self.capture_failed = True
            reason = str(error).splitlines()[0]
            warnings.warn(f"the step cannot be captured as a graph, and runs slower without: {reason}", stacklevel=5)
        finally:
            if gc_enabled:
                gc.enable()

    def _train(self, size: int) -> Tensor:
        """Train on a batch of `size` examples and return the losses, (e,). The step number is read from the GPU."""
        active = self.active
        first = self.step % active.steps_per_epoch * active.batch
        indices = self.order.index_select(1, first + torch.arange(size, device=self.step.device))
        return active.train_on(indices, self.step)

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
