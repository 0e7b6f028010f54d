"""Executing a study on this machine: stacks in this process, or in workers, with checkpoints, into a run folder.

Only the events that `notify` receives tell the outside how far it is; nothing is printed here.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from placecode.errors import BadInput
from placecode.execution import memory, origins, processes, stacks
from placecode.execution.contract import Experiment
from placecode.execution.environment import describe_environment
from placecode.execution.progress import Event, Interrupted, Log, Notify, Reporter, Stop, WorkerFailed
from placecode.execution.where import MEMORY, STACK, Crew, Where, values_of
from placecode.files import write_json
from placecode.models.encoder import stack_key
from placecode.models.member import Member
from placecode.runs.read import FORMAT, Run, numbers_in, ranges
from placecode.runs.write import Folder
from placecode.tasks.base import Task
from placecode.training.trainer import Progress, stack_for

__all__ = ["MEMORY", "STACK", "Event", "Interrupted", "Where", "WorkerFailed", "check", "execute"]


def make_config(
    study: Experiment, scale: str, where: Where, task: Task, members: Sequence[Member], numbers: Sequence[int]
) -> dict[str, Any]:
    """Everything that decides the results; a resumed run must have the same."""
    shapes = {data: _shape(task.part(data)) for data in dict.fromkeys(member.data for member in members)}
    return {
        "format": FORMAT,
        "study": study.name,
        "scale": scale,
        "fields": study.fields(),
        "precision": where.precision,
        "device": where.device,
        "plain": where.plain,
        "stack": where.most,
        "members": ranges(numbers),
        "total": len(members),
        "shape": next(iter(shapes.values())),
        **({"shapes": shapes} if len(shapes) > 1 else {}),
        "task": task.describe(),
    }


def _shape(task: Task) -> dict[str, Any]:
    shape = {"tokens": task.tokens, "features": task.features, "outputs": task.outputs, "readout": task.readout}
    return {**shape, "worlds": task.worlds, "positions": None if task.positions is None else task.positions.tolist()}


def execute(
    study: Experiment,
    out: Path,
    *,
    scale: str = "quick",
    where: Where | None = None,
    chosen: str = ":",
    resume: bool = False,
    force: bool = False,
    notify: Notify = lambda event: None,
    stop: Stop = lambda: False,
) -> Run:
    """Run a study into the folder `out` and return the finished run.

    `chosen` cuts the members, as `--members` does. When `stop()` turns true, the state is saved and Interrupted raised.
    A full disk raises OSError after the last whole checkpoint: finished members are kept, and `resume` goes on.
    """
    where = (where or Where()).resolved()
    members = study.members()
    numbers = numbers_in(chosen, len(members))
    task = study.data()
    origins.check(members, numbers, task)
    config = make_config(study, scale, where, task, members, numbers)
    check(study, task, [members[i] for i in numbers])
    with Folder.open(out, config, resume=resume, force=force) as folder, where.arithmetic():
        if folder.finished:
            return Run(out)
        begun = stacks.steps_done(folder.checkpoints)  # damage is said before anything is changed
        before = Run(out).environment if begun else None
        split = _split(study, task, members, numbers, where, folder, before)
        sizes, steps = [len(part) for part in split.parts], study.training_steps(task)
        left = [index for index in range(len(sizes)) if begun.get(index) != steps]
        crew = where.crew(len(left), values_of([members[i] for i in numbers], task))
        if before is not None:  # the threads decide the last digits, as the split does
            crew = replace(crew, threads=int(before["threads per stack"]))
            memory.check_room(before, left, where)
        environment = {**describe_environment(where, crew), **split.record(where)}
        kept = before or environment
        if before is not None and environment["source"] != before.get("source"):  # later results are of other code
            kept["resumed_by"] = [*kept.get("resumed_by", []), environment["source"]]
        if kept is environment or "resumed_by" in kept:
            write_json(out / "environment.json", kept)
        log = Log(out / "log.txt")
        log(f"{'resumed' if begun else 'started'}: {study.name}, {len(numbers)} members; {json.dumps(environment)}")
        report = Reporter(sizes, steps, notify, log)
        for index in sorted(set(range(len(sizes))) - set(left)):
            report(index, Progress(steps, float("nan")))

        def done(index: int, peak: int | None) -> None:
            if peak is None:
                return
            peaks = kept.setdefault("memory", {}).setdefault("peak bytes", [None] * len(sizes))
            peaks[index] = max(peak, peaks[index] or 0)
            log(f"stack {index + 1}/{len(sizes)}: {memory.peak_text(peak, sizes[index])}")
            write_json(out / "environment.json", kept)

        def train(index: int, own: Sequence[Member], stop: Stop) -> None:
            tell = partial(report, index)
            done(index, stacks.train(study, task, own, where, folder.checkpoints, index, tell, stop))

        weights = partial(stacks.weights_of, folder.checkpoints)
        try:
            for generation in origins.generations(members, split.parts, left):
                queue = {
                    index: origins.ready(members, split.parts[index], split.parts, task, weights)
                    for index in generation
                }
                if crew.processes > 1:
                    processes.train_all(study, queue, where, folder, crew, report, done, log, stop)
                else:
                    _train_all([partial(train, *each) for each in queue.items()], where, crew, stop)
        except Interrupted:
            log("stopped and saved")
            raise
        except WorkerFailed as error:
            log(str(error))
            raise
        run = stacks.assemble(study, task, members, numbers, split.parts, where, folder)
        log("finished")
        return run


def check(study: Experiment, task: Task, members: Sequence[Member]) -> None:
    """Build and analyse every kind of member once, so that what is wrong with a spec is said before it is trained."""
    few = task.first(2)
    kinds = {(stack_key(member), member.encoding, member.alone().start): member for member in members}
    for member in kinds.values():
        met = few.part(member.data).bind([member])
        study.rehearse(stack_for([member.alone()], met), met)


def _split(
    study: Experiment,
    task: Task,
    members: Sequence[Member],
    numbers: Sequence[int],
    where: Where,
    folder: Folder,
    before: Mapping[str, Any] | None,
) -> memory.Split:
    """The split of a run that was begun before; else a new one, and no folder where there is none to be had."""
    if before is not None and "split" in before:  # earlier versions did not record it
        return memory.recorded(before, len(members))
    try:
        return memory.split(study, task, members, numbers, where)
    except BadInput:
        folder.abandon()
        raise


def _train_all(jobs: Sequence[Callable[[Stop], None]], where: Where, crew: Crew, stop: Stop) -> None:
    """Train all stacks in this process, each job one of them. When one fails, the others save their state and stop."""
    failed, before = threading.Event(), torch.get_num_threads()

    def work(job: Callable[[Stop], None]) -> None:
        torch.set_num_threads(crew.threads)  # both settings count for the thread that makes them
        if failed.is_set():
            raise Interrupted
        try:
            with where.arithmetic():
                job(lambda: stop() or failed.is_set())
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(crew.beside) as pool:
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
