"""Measuring: how long a step takes, how much memory it holds, and what the machine's matrix products could do at best.

Every row is measured in a fresh process, so that neither memory nor a failure passes from one to the next. It warms up,
then runs five rounds; the median round counts. A round ends when the device has done all that it was given. On a CPU
that is done in three processes, and the fastest counts: where a system puts threads can make a process slow for good.
"""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from placecode.bench.cases import EPOCH, Case, Synthetic, flops, linear_layers
from placecode.bench.peers import PEERS, start_of
from placecode.execution.where import Where
from placecode.models.encoder import plan_stacks
from placecode.training.trainer import Trainer, stack_for

ROUNDS = 5
WARM_UP = {"cpu": 1, "cuda": 8}
"""Steps that are not timed, at least: the first of them compile, capture and fill caches."""
QUIET = 0.15
"""Cores that may work for others, such as the system itself, without being mentioned."""
PROCESSES = {"cpu": 3, "cuda": 1}
"""That measure a row, one after the other."""
CEILING_MEMBERS = {"cpu": 8, "cuda": 128}
"""The number of models whose products are the ceiling: enough to fill the machine."""


@dataclass(frozen=True)
class Job:
    """One row to be measured. `name` is placecode, ceiling or a peer; `steps` to a round, as many as `seconds` allow
    unless given."""

    case: Case
    name: str
    members: int
    device: str
    precision: str
    seconds: float
    steps: int | None = None
    threads: int = 1

    @property
    def where(self) -> Where:
        """On a GPU all members are one stack; a CPU splits them as `placecode run` does."""
        return Where(self.device, self.precision, self.members if self.device == "cuda" else None).resolved()


class Contestant(Protocol):
    """What can be timed."""

    models: int
    """How many models a step trains."""

    def run(self, steps: int) -> None:
        """So many steps, to their end."""

    def peak_bytes(self) -> int | None:
        """The most memory held, if it is not for the system or torch to tell."""


class Placecode:
    """Training as `placecode run` does it: stacks side by side on a CPU, the cores shared out; one stack on a GPU."""

    def __init__(self, job: Job) -> None:
        self.where, self.models = job.where, job.members
        members, task = job.case.members(job.members), Synthetic(job.case)
        parts = plan_stacks(members, self.where.most_of(len(members), job.case.values))
        crew = self.where.crew(len(parts), job.case.values)
        self.pool, self.threads = ThreadPoolExecutor(crew.concurrent_stacks), crew.threads

        def build(part: list[int]) -> Trainer:
            torch.set_num_threads(self.threads)  # counts for the thread that sets it
            with self.where.arithmetic():
                return Trainer(stack_for([members[i] for i in part], task, job.device), task, 1 << 20)

        self.trainers = list(self.pool.map(build, parts))

    def run(self, steps: int) -> None:
        def work(trainer: Trainer) -> None:
            torch.set_num_threads(self.threads)
            with self.where.arithmetic():
                for _ in range(steps):
                    trainer.update()
            if self.where.device == "cuda":
                torch.cuda.synchronize()

        list(self.pool.map(work, self.trainers))

    def peak_bytes(self) -> int | None:
        return None


class PeerRun:
    """A peer, in the precision asked for."""

    def __init__(self, job: Job) -> None:
        bf16 = job.precision == "bf16"
        # a peer casts to bf16 by itself, around its forward pass alone, as torch advises
        self.where = Where(job.device, "high" if bf16 else job.precision).resolved()
        task = Synthetic(job.case)
        start = start_of(stack_for(job.case.members(1), task), 0)
        with self.where.arithmetic():
            self.peer = PEERS[job.name](job.case, task, [start] * job.members, job.device, bf16)
        self.models = self.peer.models

    def run(self, steps: int) -> None:
        with self.where.arithmetic():
            for _ in range(steps):
                self.peer.step()
        self.peer.finish()

    def peak_bytes(self) -> int | None:
        return self.peer.peak_bytes()


class Products:
    """The matrix products of the linear layers of a step, forward and backward, and nothing else: `torch.bmm` over a
    stack, of numbers as they are multiplied in this precision. What a step could reach if all the rest were free."""

    def __init__(self, job: Job) -> None:
        self.models, self.device = job.members, job.device
        self.where = Where(job.device, "high" if job.precision == "bf16" else job.precision).resolved()
        self.kind = torch.bfloat16 if job.precision == "bf16" else torch.float32
        if job.precision == "high" and job.device == "cuda":  # what the fast path takes; it gives float32
            self.kind = torch.float16
        made: dict[tuple[int, ...], Tensor] = {}

        def array(*shape: int) -> Tensor:
            if shape not in made:
                made[shape] = torch.randn(self.models, *shape, dtype=self.kind, device=job.device)
            return made[shape]

        self.factors: list[tuple[Tensor, Tensor]] = []
        for i, layer in enumerate(linear_layers(job.case)):
            x, weight = array(layer.rows, layer.inputs), array(layer.inputs, layer.outputs)
            gradient = array(layer.rows, layer.outputs)
            self.factors += [(x, weight), (x.mT, gradient)]
            if i > 0:  # the input of the embedding is data, which needs no gradient
                self.factors.append((gradient, weight.mT))

    def run(self, steps: int) -> None:
        with self.where.arithmetic():
            for _ in range(steps):
                for left, right in self.factors:
                    if self.kind == torch.float16:
                        torch.bmm(left, right, out_dtype=torch.float32)
                    else:
                        torch.bmm(left, right)
        if self.device == "cuda":
            torch.cuda.synchronize()

    def flops(self) -> int:
        """Of one model."""
        return sum(2 * left.shape[1] * left.shape[2] * right.shape[2] for left, right in self.factors)

    def peak_bytes(self) -> int | None:
        return None


def timed(contestant: Contestant, job: Job) -> dict[str, Any]:
    """How long a step of one model takes, how many steps were timed to know it, and how many cores worked for others
    meanwhile: on a CPU that spoils the numbers."""
    warm = WARM_UP[job.device]
    contestant.run(warm)
    start, done = time.perf_counter(), 0
    while not done or time.perf_counter() - start < job.seconds / 4:
        contestant.run(warm)
        done += warm
    each = (time.perf_counter() - start) / done
    steps = job.steps or min(EPOCH, max(1, round(job.seconds / ROUNDS / each)))
    rounds, begin, busy = [], time.perf_counter(), _busy_elsewhere()
    for _ in range(ROUNDS):
        start = time.perf_counter()
        contestant.run(steps)
        rounds.append((time.perf_counter() - start) / steps)
    after = _busy_elsewhere()
    return {
        "us_per_model_step": statistics.median(rounds) / contestant.models * 1e6,
        "steps": steps * ROUNDS,
        "others": None if busy is None or after is None else (after - busy) / (time.perf_counter() - begin),
    }


def _busy_elsewhere() -> float | None:
    """Seconds that the cores of this machine have worked for others than this process; None where it is not told."""
    try:
        user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
        ticks = user + nice + system + sum(rest[:3])  # with interrupts, and what the host gave to its other guests
        return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()
    except (OSError, ValueError, AttributeError):
        return None


def peak_memory(device: str) -> int | None:
    """The most memory held so far, in bytes; None where the system does not tell.

    On a GPU what torch has reserved: captured graphs keep what they reserve, and neighbours cannot have it.
    """
    if device == "cuda":
        return torch.cuda.max_memory_reserved()
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def measure(job: Job) -> dict[str, Any]:
    """Time and memory of one job, in this process: what `timed` says, and peak_bytes."""
    torch.set_num_threads(job.threads)
    before = peak_memory(job.device)
    kinds: dict[str, Callable[[Job], Contestant]] = {"placecode": Placecode, "ceiling": Products}
    contestant = kinds.get(job.name, PeerRun)(job)
    found = timed(contestant, job)
    own, after = contestant.peak_bytes(), peak_memory(job.device)
    if own is None and before is not None and after is not None:
        own = after - before
    found["peak_bytes"] = own
    if isinstance(contestant, PeerRun) and contestant.peer.note:
        found["note"] = contestant.peer.note
    if isinstance(contestant, Products):
        found["tflops"] = contestant.flops() / found["us_per_model_step"] / 1e6
    return found


def in_fresh_process(job: Job, work: Callable[[Job], dict[str, Any]] = measure) -> dict[str, Any]:
    """What `work` finds in a process of its own; or {"note": why there is nothing}."""
    methods = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if context.get_start_method() == "forkserver":  # a server that has imported everything and run nothing
        context.set_forkserver_preload(["__main__", __name__])
    answers, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, job, work))
    try:
        with _undisturbed():
            process.start()
        theirs.close()
        with answers:
            answer: dict[str, Any] = answers.recv()
    except EOFError:
        process.join()
        answer = {"note": f"its process ended with the code {process.exitcode}"}
    finally:
        if process.pid is not None:
            process.kill()
            process.join()
    return answer


def measured(job: Job) -> dict[str, Any]:
    """What `measure` finds in the fastest of a few processes; or {"note": why there is nothing}."""
    best = in_fresh_process(job)
    for _ in range(PROCESSES[job.device] - 1):
        if "us_per_model_step" not in best:
            break
        best = min(best, in_fresh_process(job), key=lambda found: found.get("us_per_model_step", float("inf")))
    return best


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C waits for what is in here, and never reaches the processes that it starts: this one ends them itself."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # starting it later would lift the block
    asked: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # what is started inherits it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
    if asked:
        raise KeyboardInterrupt


def _answer(connection: Connection, job: Job, work: Callable[[Job], dict[str, Any]]) -> None:
    os.dup2(2, 1)  # whatever a compiler says: stdout is for results
    try:
        answer = work(job)
    except torch.OutOfMemoryError:
        answer = {"note": "out of memory"}
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        answer = {"note": f"{type(error).__name__}: {lines[0][:160] if lines else ''}"}
    connection.send(answer)


def row_of(job: Job, found: dict[str, Any], ceiling: float | None = None) -> dict[str, Any]:
    """A line of the table, with everything null that was not found; `ceiling` in TFLOP/s."""
    sizes = {name: value for name, value in job.case.sizes().items() if name != "learning_rate"}
    micro = found.get("us_per_model_step")
    tflops = None if micro is None else flops(job.case) / micro / 1e6
    return {
        **{"name": job.name, "case": job.case.name, "device": job.device, "precision": job.precision},
        **sizes,
        "flops": flops(job.case),
        "members": job.members,
        "us_per_model_step": micro,
        "models_per_hour": None if micro is None else 3600e6 / micro / job.case.steps_per_model,
        "tflops": tflops,
        "ceiling_tflops": ceiling,
        "share_of_ceiling": None if tflops is None or ceiling is None else tflops / ceiling,
        "peak_bytes": found.get("peak_bytes"),
        "steps": found.get("steps", 0),
        "others": found.get("others"),
        "note": found.get("note", ""),
    }


def ceiling_of(job: Job) -> dict[str, Any]:
    """The rate that this machine's products reach at the sizes of a job, and the time a model and step would take at
    that rate: the floor."""
    job = dataclasses.replace(job, name="ceiling", members=CEILING_MEMBERS[job.device])
    found = measured(job)
    rate = found.get("tflops")
    return {
        **{"name": "ceiling", "case": job.case.name, "device": job.device, "precision": job.precision},
        "members": job.members,
        "tflops": rate,
        "floor_us": None if rate is None else flops(job.case) / rate / 1e6,
        "others": found.get("others"),
        "note": found.get("note", ""),
    }


def disturbed(row: dict[str, Any]) -> bool:
    """Whether a row on a CPU was measured while other programs worked on its cores: then it is too slow."""
    return bool(row["device"] == "cpu" and (row["others"] or 0) > QUIET)
