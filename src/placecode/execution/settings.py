"""Device (CPU or GPU), numerical precision, and number of processes and threads of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from placecode.compute.gpu import kernels
from placecode.errors import BadInput, must_be
from placecode.models.encoder import Stack
from placecode.models.member import Member
from placecode.settings import Settings, setting
from placecode.tasks.base import Task
from placecode.training.trainer import stack_for

DEVICES = ("auto", "cpu", "cuda")
PRECISIONS = ("high", "tf32", "highest", "bf16")
DEFAULT_STACK_SIZE = {"cpu": 8, "cuda": 512}
"""Default maximum number of members per stack, enough to keep the device busy. GPU memory may allow fewer."""
MIN_STACK_SIZE = 32
"""Smallest number of members per stack for which stacks are split over several GPUs. A smaller stack would take almost
as long as one of this size."""
MIN_VALUES_FOR_THREADS = 1 << 17
"""Smallest number of values per member (batch x tokens x width) for which members are split over the cores of a CPU,
and one stack may use several cores. Threads that train smaller members mostly wait for each other."""


@dataclass(frozen=True)
class ExecutionSettings(Settings):
    """Device, precision and parallelism of a run. They are recorded in the run folder because they affect rounding.

    Raises BadInput if a setting is invalid on this machine.
    """

    device: str = setting(
        "auto", "auto, cpu or cuda; auto is cuda if torch finds a CUDA device, and cpu otherwise", choices=DEVICES
    )
    precision: str = setting(
        "high",
        "precision of matrix products on a GPU: high (like tf32, with float16 inputs where placecode's kernels support "
        "them), tf32 or highest (float32); or bf16 (autocast to bfloat16), which also works on a CPU",
        choices=PRECISIONS,
    )
    stack: int | None = setting(
        None,
        f"maximum number of members to train together; memory may allow fewer (default: {DEFAULT_STACK_SIZE['cpu']} on "
        f"cpu, {DEFAULT_STACK_SIZE['cuda']} on cuda)",
        least=1,
    )
    memory: float = setting(0.8, "maximum share of GPU memory to use; the rest is for other programs", above=0, most=1)
    workers: int | None = setting(
        None, "maximum number of training processes; 1 trains in this process (default: one per visible GPU)", least=1
    )
    plain: bool = setting(False, "use the slow reference implementation, without custom kernels and CUDA graphs")
    max_processes: int = field(init=False)
    """Maximum number of training processes, which follows from `workers` and the number of visible GPUs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        has_cuda = torch.cuda.is_available()
        if self.device == "cuda" and not has_cuda:
            raise BadInput("device must be one that this machine has; got 'cuda', but torch sees no CUDA device here.")
        if self.device == "auto":
            object.__setattr__(self, "device", "cuda" if has_cuda else "cpu")
        gpus = torch.cuda.device_count() if self.device == "cuda" else 0
        if gpus and (self.workers or 1) > gpus:
            raise must_be("workers", f"at most the number of visible GPUs, {gpus}", self.workers)
        object.__setattr__(self, "max_processes", self.workers or gpus or 1)

    @property
    def max_stack_size(self) -> int:
        """Maximum number of members per stack, without regard to memory and to the number of cores or GPUs."""
        return self.stack or DEFAULT_STACK_SIZE[self.device]

    def parallel_stack_size(self, members: int, values: int) -> int:
        """Return the maximum number of members per stack: the setting `stack` or, by default, one that keeps all cores
        or GPUs busy.

        `members` is the number of members of the run, and `values` the number of values per member (see `values_of`).
        """
        if self.stack is not None:
            return self.stack
        if self.device == "cpu":
            cores = max(torch.get_num_threads() if values >= MIN_VALUES_FOR_THREADS else 1, self.max_processes)
            return max(1, min(self.max_stack_size, -(-members // cores)))
        if self.max_processes == 1:
            return self.max_stack_size
        return min(self.max_stack_size, max(MIN_STACK_SIZE, -(-members // self.max_processes)))

    def concurrency(self, stacks: int, values: int) -> Concurrency:
        """Return how many processes and threads train the stacks.

        `stacks` is the number of stacks, and `values` the largest number of values of a member (see `values_of`). On a
        CPU, several stacks on one core each are faster than one stack on all cores, because the threads of one stack
        wait for each other at every operation. The gain is small on an idle machine and large on a busy one. A GPU
        trains one stack after the other.
        """
        threads, processes = torch.get_num_threads(), max(1, min(stacks, self.max_processes))
        stacks_per_process = max(1, min(stacks, threads)) if self.device == "cpu" and processes == 1 else 1
        if self.device == "cpu" and values < MIN_VALUES_FOR_THREADS:
            return Concurrency(processes, stacks_per_process, 1)
        return Concurrency(processes, stacks_per_process, max(1, threads // (processes * stacks_per_process)))

    def build_stack(self, members: Sequence[Member], task: Task) -> Stack:
        """Return a new, untrained stack for a task, on this device and with the chosen implementation."""
        return stack_for(members, task, self.device, fast=False if self.plain else None)

    @contextlib.contextmanager
    def arithmetic(self) -> Iterator[None]:
        """Return a context manager that sets the precision of matrix products, and resets it at the end."""
        before = torch.get_float32_matmul_precision()
        if self.device == "cuda":  # on a CPU both settings are true float32
            torch.set_float32_matmul_precision("highest" if self.precision == "highest" else "high")
        try:
            # without its cache: autocast would reuse the first cast of every weight after the optimizer has changed it
            autocast = torch.autocast(
                self.device, torch.bfloat16, enabled=self.precision == "bf16", cache_enabled=False
            )
            with kernels.float16_products(self.precision != "tf32"), autocast:
                yield
        finally:
            torch.set_float32_matmul_precision(before)


def values_of(members: Iterable[Member], task: Task) -> int:
    """Return the size of an activation, batch x tokens x width, of the member for which it is largest."""
    return max(member.batch * task.for_data_set(member.data).tokens * member.width for member in members)


@dataclass(frozen=True)
class Concurrency:
    """Number of processes, of stacks per process and of threads per stack that train a run."""

    processes: int
    stacks_per_process: int
    """Number of stacks that train concurrently in each process."""
    threads_per_stack: int

    @property
    def concurrent_stacks(self) -> int:
        """Number of stacks that train concurrently, over all processes."""
        return self.processes * self.stacks_per_process
