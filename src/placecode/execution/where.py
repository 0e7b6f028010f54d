"""Where and how a study is computed: the device, its precision, and how the work is shared out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch

from placecode.compute.gpu import kernels
from placecode.errors import BadInput, must_be, one_of
from placecode.models.member import Member
from placecode.tasks.base import Task

DEVICES = ("auto", "cpu", "cuda")
PRECISIONS = ("high", "tf32", "highest", "bf16")
STACK = {"cpu": 8, "cuda": 512}
"""Members to a stack at most, unless given: what keeps a processor busy. On a GPU its memory may allow fewer."""
FEWEST = 32
"""Members to a stack below which more GPUs do not pay: a smaller stack takes hardly less time."""
SPREAD = 1 << 17
"""Values of a member from which a few of them are spread over the cores of a CPU, and one over several: threads that
train smaller ones would mostly wait for each other."""
MEMORY = 0.8
"""Share of a GPU's memory that may be used unless given: a desktop or a colleague needs some of it too."""


@dataclass(frozen=True)
class Where:
    """Where and how a study is computed. Part of the record, since it decides the last digits."""

    device: str = "auto"
    precision: str = "high"
    stack: int | None = None
    """Most members to a stack, if memory allows; None: what suits the device."""
    memory: float = MEMORY
    """Share of a GPU's memory that may be used."""
    workers: int | None = None
    """Processes that train, 1: this one; None: one for each GPU that is visible."""
    plain: bool = False
    """Compute the plain way: without kernels of our own and captured graphs. Slow; it is what they are checked by."""

    def resolved(self) -> Where:
        """With `auto` settled, and everything that was asked for checked."""
        if self.device not in DEVICES:
            raise one_of("device", DEVICES, self.device)
        if self.precision not in PRECISIONS:
            raise one_of("precision", PRECISIONS, self.precision)
        if self.device == "cuda" and not torch.cuda.is_available():
            raise BadInput("device must be one that this machine has; got 'cuda', but torch sees no CUDA device here.")
        if self.stack is not None and self.stack < 1:
            raise must_be("stack", "a whole number of at least 1", self.stack)
        if not 0 < self.memory <= 1:
            raise must_be("memory", "a share of the GPU's memory above 0 and at most 1", self.memory)
        device = self.device if self.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
        gpus = torch.cuda.device_count() if device == "cuda" else 0
        if self.workers is not None and self.workers < 1:
            raise must_be("workers", "a whole number of at least 1", self.workers)
        if gpus and (self.workers or 1) > gpus:
            raise must_be("workers", f"at most the number of visible GPUs, {gpus}", self.workers)
        return replace(self, device=device, workers=self.workers or gpus or 1)

    @property
    def fast(self) -> bool | None:
        """How stacks are to compute, see Stack."""
        return False if self.plain else None

    @property
    def most(self) -> int:
        """Members to a stack at most, where memory sets no other limit."""
        return self.stack or STACK[self.device]

    def most_of(self, members: int, values: int) -> int:
        """Members to a stack when there are so many, each with so many `values` (batch x tokens x width): as many as
        train well together, and few enough to busy them all, the cores of a CPU or several GPUs."""
        if self.stack is not None:
            return self.stack
        if self.device == "cpu":
            together = max(torch.get_num_threads() if values >= SPREAD else 1, self.workers or 1)
            return max(1, min(self.most, -(-members // together)))
        return self.most if self.workers in (None, 1) else min(self.most, max(FEWEST, -(-members // self.workers)))

    def crew(self, stacks: int, values: int) -> Crew:
        """Who trains so many stacks, whose members have so many `values` at most.

        On a CPU, stacks side by side on a core each beat one stack on all cores, whose threads wait for each other at
        every operation: by little on a quiet machine, by much on a busy one. A GPU takes one stack after the other.
        """
        threads, processes = torch.get_num_threads(), max(1, min(stacks, self.workers or 1))
        beside = max(1, min(stacks, threads)) if self.device == "cpu" and processes == 1 else 1
        if self.device == "cpu" and values < SPREAD:
            return Crew(processes, beside, 1)
        return Crew(processes, beside, max(1, threads // (processes * beside)))

    @contextlib.contextmanager
    def arithmetic(self) -> Iterator[None]:
        """Matrix products in this precision, for as long as the context lasts."""
        before = torch.get_float32_matmul_precision(), kernels.HALVES
        if self.device == "cuda":  # on a CPU both mean true float32
            torch.set_float32_matmul_precision("highest" if self.precision == "highest" else "high")
        kernels.HALVES = self.precision != "tf32"
        try:
            # without its cache: autocast would keep the first cast of every weight while the optimizer moves on
            with torch.autocast(self.device, torch.bfloat16, enabled=self.precision == "bf16", cache_enabled=False):
                yield
        finally:
            torch.set_float32_matmul_precision(before[0])
            kernels.HALVES = before[1]


def values_of(members: Iterable[Member], task: Task) -> int:
    """Features of all tokens of a batch, in the largest of these members."""
    return max(member.batch * task.part(member.data).tokens * member.width for member in members)


@dataclass(frozen=True)
class Crew:
    """How stacks are shared out: to how many processes, how many stacks side by side in each, and threads for each."""

    processes: int
    beside: int
    threads: int

    @property
    def together(self) -> int:
        """Stacks that train at once."""
        return self.processes * self.beside
