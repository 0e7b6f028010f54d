"""Executing a study in this process, on its CPU or GPU: stack by stack, with checkpoints, into a run folder.

Only the events that `notify` receives tell the outside how far it is; nothing is printed here.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from placecode import checkpoints
from placecode.encoder import Stack, plan_stacks, stack_key
from placecode.engines.environment import describe_environment
from placecode.errors import BadInput, must_be, one_of
from placecode.files import write_json
from placecode.folders import Folder
from placecode.members import Member
from placecode.runs import FORMAT, Run, member_table, numbers_in, ranges
from placecode.studies.base import Study
from placecode.tasks.base import Task
from placecode.training import Progress, Trainer, stack_for

DEVICES = ("auto", "cpu", "cuda")
PRECISIONS = ("high", "highest", "bf16")
STACK = {"cpu": 8, "cuda": 128}
"""Members to a stack unless given: what keeps a processor busy without filling its memory."""
SECONDS_BETWEEN_CHECKPOINTS = 30.0


class Interrupted(Exception):
    """The run was asked to stop; it is saved and can be resumed."""


@dataclass(frozen=True)
class Where:
    """Where and how a study is computed. Part of the record, since it decides the last digits."""

    device: str = "auto"
    precision: str = "high"
    stack: int | None = None

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
        device = self.device if self.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
        return Where(device, self.precision, self.stack or STACK[device])

    @contextlib.contextmanager
    def arithmetic(self) -> Iterator[None]:
        """Matrix products in this precision, for as long as the context lasts."""
        before = torch.get_float32_matmul_precision()
        if self.device == "cuda":  # on a CPU both mean true float32
            torch.set_float32_matmul_precision("highest" if self.precision == "highest" else "high")
        try:
            # without its cache: autocast would keep the first cast of every weight while the optimizer moves on
            with torch.autocast(self.device, torch.bfloat16, enabled=self.precision == "bf16", cache_enabled=False):
                yield
        finally:
            torch.set_float32_matmul_precision(before)


@dataclass(frozen=True)
class Event:
    """What happens during a run: stack `stack` (from 0) of `stacks`, how many members it has, and where it stands."""

    stack: int
    stacks: int
    members: int
    progress: Progress
    steps: int

    def means(self) -> str:
        """Mean accuracy over members in each split of the event's evaluation, in words; empty where there was none."""
        values: dict[str, list[float]] = {}
        for row in self.progress.rows:
            if row["metric"] == "accuracy" and row["condition"] == "all":
                values.setdefault(row["split"], []).append(row["value"])
        parts = [f"{split} {sum(found) / len(found):.2f}" for split, found in values.items()]
        return f"accuracy {', '.join(parts)}" if parts else ""


class Log:
    """The diary of a run, log.txt: a line with its time for whatever happened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, line: str) -> None:
        with contextlib.suppress(OSError), open(self.path, "a") as stream:  # a full disk is told by what matters
            stream.write(f"{datetime.now():%Y-%m-%d %H:%M:%S} {line}\n")


Notify = Callable[[Event], None]


def make_config(
    study: Study, scale: str, where: Where, task: Task, total: int, numbers: Sequence[int]
) -> dict[str, Any]:
    """Everything that decides the results; a resumed run must have the same."""
    positions = None if task.positions is None else task.positions.tolist()
    shape = {"tokens": task.tokens, "features": task.features, "outputs": task.outputs, "readout": task.readout}
    return {
        "format": FORMAT,
        "study": study.name,
        "scale": scale,
        "fields": study.fields(),
        "precision": where.precision,
        "device": where.device,
        "stack": where.stack,
        "members": ranges(numbers),
        "total": total,
        "shape": {**shape, "positions": positions},
        "task": task.describe(),
    }


def execute(
    study: Study,
    out: Path,
    *,
    scale: str = "quick",
    where: Where | None = None,
    chosen: str = ":",
    resume: bool = False,
    force: bool = False,
    notify: Notify = lambda event: None,
    stop: Callable[[], bool] = lambda: False,
) -> Run:
    """Run a study into the folder `out` and return the finished run.

    `chosen` cuts the members, as `--members` does. When `stop()` turns true, the state is saved and Interrupted raised.
    A full disk raises OSError after the last whole checkpoint: finished members are kept, and `resume` goes on.
    """
    where = (where or Where()).resolved()
    members = study.members()
    numbers = numbers_in(chosen, len(members))
    parts = plan_stacks([members[i] for i in numbers], where.stack or 1)
    task = study.task()
    config = make_config(study, scale, where, task, len(members), numbers)
    check(study, task, [members[i] for i in numbers])
    with Folder.open(out, config, resume=resume, force=force) as folder, where.arithmetic():
        if folder.finished:
            return Run(out)
        # damage is said before anything is changed
        begun = [checkpoints.verify(folder.checkpoints, _stack_name(i)) is not None for i in range(len(parts))]
        together, threads = crew(where, len(parts))
        if any(begun):  # the number of threads decides the last digits, so a run goes on with the one it began with
            threads = int(Run(out).environment["threads per stack"])
        environment = describe_environment(where.device, where.precision, where.stack, together, threads)
        if not any(begun):
            write_json(out / "environment.json", environment)
        log, lock = Log(out / "log.txt"), threading.Lock()
        log(
            f"{'resumed' if any(begun) else 'started'}: {study.name}, {len(numbers)} members; {json.dumps(environment)}"
        )

        def train(index: int, stop: Callable[[], bool]) -> None:
            stacked = [members[numbers[i]] for i in parts[index]]
            report = _Reporter(index, len(parts), len(stacked), study.steps(task), notify, log, lock)
            _train(study, task, stacked, where, folder.checkpoints, _stack_name(index), report, stop)

        try:
            _train_all([partial(train, index) for index in range(len(parts))], where, together, threads, stop)
        except Interrupted:
            log("stopped and saved")
            raise
        run = _assemble(study, task, members, numbers, parts, where, folder)
        log("finished")
        return run


def check(study: Study, task: Task, members: Sequence[Member]) -> None:
    """Build and analyse every kind of member once, so that what is wrong with a spec is said before it is trained."""
    for member in {(stack_key(member), member.encoding): member for member in members}.values():
        study.analyse(stack_for([member], task), task)


def _stack_name(index: int) -> str:
    return f"stack-{index:03d}"


@dataclass(frozen=True)
class _Reporter:
    stack: int
    stacks: int
    members: int
    steps: int
    notify: Notify
    log: Log
    lock: threading.Lock

    def __call__(self, progress: Progress) -> None:
        event = Event(self.stack, self.stacks, self.members, progress, self.steps)
        with self.lock:
            if progress.rows:
                stack = f"stack {self.stack + 1}/{self.stacks}, step {progress.step}/{self.steps}"
                loss = f"loss {progress.loss:.4f}; " if progress.step else ""
                self.log(f"{stack}: {loss}{event.means()}")
            self.notify(event)


def crew(where: Where, stacks: int) -> tuple[int, int]:
    """How many stacks train at once, and on how many threads each.

    On a CPU, stacks side by side on a core each beat one stack on all cores, whose threads wait for each other at every
    operation: by little on a quiet machine, by much on a busy one. A GPU takes one stack after the other.
    """
    threads = torch.get_num_threads()
    together = max(1, min(stacks, threads)) if where.device == "cpu" else 1
    return together, threads // together


def _train_all(
    jobs: Sequence[Callable[[Callable[[], bool]], None]],
    where: Where,
    together: int,
    threads: int,
    stop: Callable[[], bool],
) -> None:
    """Train all stacks, each job one of them. When one fails, the others save their state and stop."""
    failed, before = threading.Event(), torch.get_num_threads()

    def work(job: Callable[[Callable[[], bool]], None]) -> None:
        torch.set_num_threads(threads)  # both settings count for the thread that makes them
        if failed.is_set():
            raise Interrupted
        try:
            with where.arithmetic():
                job(lambda: stop() or failed.is_set())
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(together) as pool:
        futures = [pool.submit(work, job) for job in jobs]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            torch.set_num_threads(before)
            pool.shutdown(wait=False, cancel_futures=True)
            if not all(future.done() for future in futures):
                failed.set()
    errors = [error for future in futures if not future.cancelled() and (error := future.exception())]
    for error in sorted(errors, key=lambda error: isinstance(error, Interrupted)):  # the cause first, then who was told
        raise error


def _train(
    study: Study,
    task: Task,
    members: Sequence[Member],
    where: Where,
    folder: Path,
    name: str,
    report: _Reporter,
    stop: Callable[[], bool],
) -> None:
    """Train one stack to its end, from its last checkpoint if there is one. Its final state is a checkpoint too."""
    steps = study.steps(task)
    if checkpoints.verify(folder, name) == steps:
        return report(Progress(steps, float("nan")))
    saved = checkpoints.load(folder, name)
    trainer = Trainer(stack_for(members, task, where.device), task, steps, study.evaluate_at(task))
    metrics, kept = pd.DataFrame(), -1
    if saved is not None:
        kept, state, metrics = saved
        trainer.load(state, kept)
    rows: list[dict[str, Any]] = []

    def save() -> None:
        nonlocal metrics, rows, kept
        if trainer.step == kept:
            return
        metrics, rows = pd.concat([metrics, pd.DataFrame(rows)], ignore_index=True), []
        checkpoints.save(folder, name, trainer.step, trainer.state(), metrics)
        kept = trainer.step

    last = time.monotonic()
    for progress in trainer.run():
        rows.extend(progress.rows)
        report(progress)
        if stop():
            save()
            raise Interrupted
        if time.monotonic() - last > SECONDS_BETWEEN_CHECKPOINTS:
            save()
            last = time.monotonic()
    save()


def _assemble(
    study: Study,
    task: Task,
    members: Sequence[Member],
    numbers: Sequence[int],
    parts: Sequence[Sequence[int]],
    where: Where,
    folder: Folder,
) -> Run:
    """The results of all stacks as one run: analyses before and after training, PEs, attention maps, weights."""
    tables, analyses = [], []
    arrays: dict[str, Tensor] = {}
    weights: dict[str, Tensor] = {}
    diverged: dict[int, int] = {}
    for index, part in enumerate(parts):
        own = [numbers[i] for i in part]
        saved = checkpoints.load(folder.checkpoints, _stack_name(index))
        assert saved is not None
        step, state, metrics = saved
        final = metrics[(metrics["step"] == step) & (metrics["condition"] == "all")]
        astray = set(final.loc[~np.isfinite(final["value"]), "member"])  # finite weights need not give finite outputs
        tables.append(metrics.assign(member=metrics["member"].map(dict(enumerate(own)))))
        stack = stack_for([members[i] for i in own], task, where.device)
        analyses.append(_analysis_rows(study, stack, task, 0, own))
        keep = {"pe_start": stack.encoding.vectors()}
        keep["pe_start"] = None if keep["pe_start"] is None else keep["pe_start"].detach().clone()
        stack.flat.copy_(state["flat"])
        analyses.append(_analysis_rows(study, stack, task, step, own))
        keep |= {"pe_end": stack.encoding.vectors(), **study.arrays(stack, task)}
        for place, number in enumerate(own):
            arrays |= {f"{n}/{number}": a[place].detach().float().cpu() for n, a in keep.items() if a is not None}
            weights[str(number)] = state["flat"][place : place + 1]
            diverged[number] = int(state["diverged_at"][place])
            if diverged[number] < 0 and place in astray:
                diverged[number] = step
    table = member_table(numbers, [members[i] for i in numbers], [diverged[i] for i in numbers])
    metrics, analysis = pd.concat(tables, ignore_index=True), pd.concat(analyses, ignore_index=True)
    return folder.finish(table, metrics, analysis, arrays, weights)


def _analysis_rows(study: Study, stack: Stack, task: Task, step: int, own: Sequence[int]) -> pd.DataFrame:
    rows = [{**row, "member": own[row["member"]], "step": step} for row in study.analyse(stack, task)]
    return pd.DataFrame(rows, columns=["member", "step", "block", "analysis", "target", "value"])
