"""Measure the time and memory of a training step, and the throughput of the machine's matrix products.

Every row of a benchmark is measured in a new process, so that rows do not affect each other. The process warms up, runs
five rounds of training steps and reports the median time of a round. A round ends when the device has finished its
work. On a CPU, three processes measure the row and the fastest result is reported, since an unlucky placement of
threads can slow down a process permanently.
"""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from placecode.bench.cases import BATCHES_PER_EPOCH, Case, Synthetic, flops, linear_layers
from placecode.bench.peers import PEERS, weights_of
from placecode.execution.memory import peak_resident
from placecode.execution.settings import ExecutionSettings
from placecode.models.encoder import plan_stacks
from placecode.training.trainer import Trainer, stack_for

ROUNDS = 5
"""Number of timed rounds, of which the median is reported."""
WARM_UP = {"cpu": 1, "cuda": 8}
"""Minimum number of steps before timing starts, by device. In these steps, code is compiled and caches are filled."""
MAX_OTHER_CORES = 0.15
"""A row counts as disturbed if other programs used more than this number of cores while it was measured."""
PROCESSES = {"cpu": 3, "cuda": 1}
"""Number of processes that measure a row, one after the other, by device. The fastest result is reported."""
CEILING_MEMBERS = {"cpu": 8, "cuda": 128}
"""Number of models, by device, at which the ceiling (throughput of matrix products alone, see `Products`) is measured.
It is large enough to use the whole machine."""


@dataclass(frozen=True)
class Job:
    """What to measure for one row of the table: an implementation, the models that it trains, and for how long.

    `name` is the implementation: "placecode", a key of `PEERS`, or "ceiling" (matrix products alone). `members` is the
    number of models.
    """

    case: Case
    name: str
    members: int
    device: str
    precision: str
    seconds: float
    """Approximate duration of all timed rounds together, in seconds."""
    steps: int | None = None
    """Number of steps per round. If None, it follows from `seconds`."""
    threads: int = 1
    """Number of CPU threads."""

    @property
    def execution(self) -> ExecutionSettings:
        """Device, precision and stack size: one stack of all models on a GPU, the default stack size on a CPU."""
        return ExecutionSettings(self.device, self.precision, self.members if self.device == "cuda" else None)


class Candidate:
    """Base class of what is timed: placecode, a peer, or matrix products. `models` is the number of models timed."""

    models: int

    def run(self, steps: int) -> None:
        """Run this number of training steps and wait until they are finished."""
        raise NotImplementedError

    def peak_bytes(self) -> int | None:
        """Return the peak memory in bytes, or None if `peak_memory` should read it from torch or the system."""
        return None


class Placecode(Candidate):
    """Training as in `placecode run`: one stack of models on a GPU, or several stacks that share the cores of a CPU."""

    def __init__(self, job: Job) -> None:
        self.execution, self.models = job.execution, job.members
        members, task = job.case.members(job.members), Synthetic(job.case)
        parts = plan_stacks(members, self.execution.parallel_stack_size(len(members), job.case.values))
        concurrency = self.execution.concurrency(len(parts), job.case.values)
        self.pool, self.threads = ThreadPoolExecutor(concurrency.concurrent_stacks), concurrency.threads_per_stack

        def build(part: list[int]) -> Trainer:
            torch.set_num_threads(self.threads)  # a setting of the current thread
            with self.execution.arithmetic():
                return Trainer(stack_for([members[i] for i in part], task, job.device), task, 1 << 20)

        self.trainers = list(self.pool.map(build, parts))

    def run(self, steps: int) -> None:
        def work(trainer: Trainer) -> None:
            torch.set_num_threads(self.threads)
            with self.execution.arithmetic():
                for _ in range(steps):
                    trainer.update()
            if self.execution.device == "cuda":
                torch.cuda.synchronize()

        list(self.pool.map(work, self.trainers))


class PeerRun(Candidate):
    """Training by another implementation (a peer), in the precision of the job."""

    def __init__(self, job: Job) -> None:
        bf16 = job.precision == "bf16"
        # a peer uses autocast for its forward pass only, as torch recommends
        self.execution = ExecutionSettings(job.device, "high" if bf16 else job.precision)
        task = Synthetic(job.case)
        initial = weights_of(stack_for(job.case.members(1), task), 0)
        with self.execution.arithmetic():
            self.peer = PEERS[job.name](job.case, task, [initial] * job.members, job.device, bf16)
        self.models = self.peer.models

    def run(self, steps: int) -> None:
        with self.execution.arithmetic():
            for _ in range(steps):
                self.peer.step()
        self.peer.finish()

    def peak_bytes(self) -> int | None:
        return self.peer.peak_bytes()


class Products(Candidate):
    """Matrix products of the linear layers alone, in the forward and backward pass, with `torch.bmm` for all models.

    Their throughput is called the ceiling: training would reach it if everything else took no time.
    """

    def __init__(self, job: Job) -> None:
        self.models, self.device = job.members, job.device
        self.execution = ExecutionSettings(job.device, "high" if job.precision == "bf16" else job.precision)
        self.kind = torch.bfloat16 if job.precision == "bf16" else torch.float32
        if job.precision == "high" and job.device == "cuda":  # as our kernels: float16 inputs, float32 outputs
            self.kind = torch.float16
        arrays: dict[tuple[int, ...], Tensor] = {}

        def array(*shape: int) -> Tensor:
            if shape not in arrays:
                arrays[shape] = torch.randn(self.models, *shape, dtype=self.kind, device=job.device)
            return arrays[shape]

        self.factors: list[tuple[Tensor, Tensor]] = []
        for i, layer in enumerate(linear_layers(job.case)):
            x, weight = array(layer.rows, layer.inputs), array(layer.inputs, layer.outputs)
            gradient = array(layer.rows, layer.outputs)
            self.factors += [(x, weight), (x.mT, gradient)]
            if i > 0:  # the input of the embedding needs no gradient
                self.factors.append((gradient, weight.mT))

    def run(self, steps: int) -> None:
        with self.execution.arithmetic():
            for _ in range(steps):
                for left, right in self.factors:
                    if self.kind == torch.float16:
                        torch.bmm(left, right, out_dtype=torch.float32)
                    else:
                        torch.bmm(left, right)
        if self.device == "cuda":
            torch.cuda.synchronize()

    def flops(self) -> int:
        """Return the number of floating-point operations per model and step."""
        return sum(2 * left.shape[1] * left.shape[2] * right.shape[2] for left, right in self.factors)


def time_steps(candidate: Candidate, job: Job) -> dict[str, Any]:
    """Time the training steps of a candidate.

    Returns a dict with "us_per_model_step" (microseconds), "steps" (number of timed steps) and "others" (mean number of
    cores that other processes used meanwhile, or None if unknown).
    """
    warm_up = WARM_UP[job.device]
    candidate.run(warm_up)
    start, done = time.perf_counter(), 0
    while not done or time.perf_counter() - start < job.seconds / 4:
        candidate.run(warm_up)
        done += warm_up
    seconds_per_step = (time.perf_counter() - start) / done
    steps = job.steps or min(BATCHES_PER_EPOCH, max(1, round(job.seconds / ROUNDS / seconds_per_step)))
    rounds, begin, busy_before = [], time.perf_counter(), _other_cpu_seconds()
    for _ in range(ROUNDS):
        start = time.perf_counter()
        candidate.run(steps)
        rounds.append((time.perf_counter() - start) / steps)
    busy_after = _other_cpu_seconds()
    others = None
    if busy_before is not None and busy_after is not None:
        others = (busy_after - busy_before) / (time.perf_counter() - begin)
    return {
        "us_per_model_step": statistics.median(rounds) / candidate.models * 1e6,
        "steps": steps * ROUNDS,
        "others": others,
    }


def _other_cpu_seconds() -> float | None:
    """Return the CPU seconds that other processes have used since the machine was started, or None if unknown."""
    try:
        user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
        ticks = user + nice + system + sum(rest[:3])  # with interrupts and time stolen by the host for other guests
        return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()
    except (OSError, ValueError, AttributeError):
        return None


def peak_memory(device: str) -> int | None:
    """Return the peak memory of this process in bytes, or None if unknown. On a GPU, this is the memory that torch has
    reserved there."""
    return torch.cuda.max_memory_reserved() if device == "cuda" else peak_resident()


def measure(job: Job) -> dict[str, Any]:
    """Measure the time and memory of one job in this process.

    Returns the dict of `time_steps` with the additional key "peak_bytes" (None if unknown). For matrix products alone,
    it also has their throughput "tflops". For a peer, it may have a remark "note".
    """
    torch.set_num_threads(job.threads)
    before = peak_memory(job.device)
    kinds: dict[str, Callable[[Job], Candidate]] = {"placecode": Placecode, "ceiling": Products}
    candidate = kinds.get(job.name, PeerRun)(job)
    result = time_steps(candidate, job)
    peak, after = candidate.peak_bytes(), peak_memory(job.device)
    if peak is None and before is not None and after is not None:
        peak = after - before
    result["peak_bytes"] = peak
    if isinstance(candidate, PeerRun) and candidate.peer.note:
        result["note"] = candidate.peer.note
    if isinstance(candidate, Products):
        result["tflops"] = candidate.flops() / result["us_per_model_step"] / 1e6
    return result


def in_fresh_process(job: Job, work: Callable[[Job], dict[str, Any]] = measure) -> dict[str, Any]:
    """Call `work(job)` in a new process and return its result, or {"note": reason} if it failed."""
    methods = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if context.get_start_method() == "forkserver":  # a server that has imported everything but run nothing
        context.set_forkserver_preload(["__main__", __name__])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_result, args=(sender, job, work))
    try:
        with _interrupt_delayed():
            process.start()
        sender.close()
        with receiver:
            result: dict[str, Any] = receiver.recv()
    except EOFError:
        process.join()
        result = {"note": f"its process ended with the code {process.exitcode}"}
    finally:
        if process.pid is not None:
            process.kill()
            process.join()
    return result


def run_job(job: Job) -> dict[str, Any]:
    """Measure a job PROCESSES times, in new processes; return the fastest result, or {"note": reason} if it failed."""
    best = in_fresh_process(job)
    for _ in range(PROCESSES[job.device] - 1):
        if "us_per_model_step" not in best:
            break
        best = min(best, in_fresh_process(job), key=lambda result: result.get("us_per_model_step", float("inf")))
    return best


@contextlib.contextmanager
def _interrupt_delayed() -> Iterator[None]:
    """Delay Ctrl-C until the context ends. Processes that are started in the context ignore Ctrl-C.

    The parent process ends these processes itself.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # starting it later would unblock the signal
    received: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: received.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # new processes inherit the mask
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
    if received:
        raise KeyboardInterrupt


def _send_result(connection: Connection, job: Job, work: Callable[[Job], dict[str, Any]]) -> None:
    """Call `work(job)` and send its result to the parent process, or {"note": reason} if it fails."""
    os.dup2(2, 1)  # stdout is for results, so messages of compilers go to stderr
    try:
        result = work(job)
    except torch.OutOfMemoryError:
        result = {"note": "out of memory"}
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        result = {"note": f"{type(error).__name__}: {lines[0][:160] if lines else ''}"}
    connection.send(result)


def _about(job: Job) -> dict[str, Any]:
    """Return the columns that say what a row measures: name (of the implementation), case, device and precision."""
    return {"name": job.name, "case": job.case.name, "device": job.device, "precision": job.precision}


def row_of(job: Job, result: dict[str, Any], ceiling: float | None = None) -> dict[str, Any]:
    """Return a row of the table of results: sizes of the models, measured numbers, and rates computed from them.

    `result` is the dict returned by `measure`, or {"note": reason}. Numbers that are not known are None. `ceiling` is
    the throughput of the matrix products alone in TFLOP/s, if measured.
    """
    micro = result.get("us_per_model_step")
    tflops = None if micro is None else flops(job.case) / micro / 1e6
    return {
        **_about(job),
        **{name: value for name, value in job.case.sizes().items() if name != "learning_rate"},
        "flops": flops(job.case),
        "members": job.members,
        "us_per_model_step": micro,
        "models_per_hour": None if micro is None else 3600e6 / micro / job.case.steps_per_model,
        "tflops": tflops,
        "ceiling_tflops": ceiling,
        "share_of_ceiling": None if tflops is None or ceiling is None else tflops / ceiling,
        "peak_bytes": result.get("peak_bytes"),
        "steps": result.get("steps", 0),
        "others": result.get("others"),
        "note": result.get("note", ""),
    }


def measure_ceiling(job: Job) -> dict[str, Any]:
    """Measure the throughput of the matrix products of a job's case, and return it as a row for "ceilings".

    The row has the throughput as "tflops", and as "floor_us" the microseconds per model and step that training would
    take at this throughput. Both are None if the measurement failed.
    """
    job = dataclasses.replace(job, name="ceiling", members=CEILING_MEMBERS[job.device])
    result = run_job(job)
    rate = result.get("tflops")
    return {
        **_about(job),
        "members": job.members,
        "tflops": rate,
        "floor_us": None if rate is None else flops(job.case) / rate / 1e6,
        "others": result.get("others"),
        "note": result.get("note", ""),
    }


def disturbed(row: dict[str, Any]) -> bool:
    """Return whether a row was measured on a CPU while other programs used it, so that its time is too long."""
    return bool(row["device"] == "cpu" and (row["others"] or 0) > MAX_OTHER_CORES)
