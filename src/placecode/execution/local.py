"""Execute an experiment on this machine and write a run folder.

Members (models) that train together form a stack. Stacks train in this process or in worker processes, and save
checkpoints. Nothing is printed here: progress is reported through the `notify` callback and the file log.txt. Start
reading at `execute`.
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
from placecode.execution import donors, memory, processes, stacks
from placecode.execution.contract import ExperimentProtocol
from placecode.execution.environment import describe_environment
from placecode.execution.progress import Interrupted, Log, Notify, Reporter, Stop, WorkerFailed
from placecode.execution.settings import Concurrency, ExecutionSettings, values_of
from placecode.files import write_json
from placecode.models.encoder import stack_key
from placecode.models.member import Member
from placecode.runs.read import FORMAT, Run, format_ranges, parse_ranges
from placecode.runs.write import Folder
from placecode.tasks.base import Task
from placecode.training.trainer import Progress, stack_for


def prepare(experiment: ExperimentProtocol, member_ranges: str) -> tuple[list[Member], list[int], Task]:
    """Return all members of an experiment, the numbers of the members to train, and the task.

    `member_ranges` selects the members to train, as in `execute`. Raise BadInput if one of them is invalid or needs the
    PE of a member that is not trained.
    """
    members = experiment.members()
    numbers = parse_ranges(member_ranges, len(members))
    task = experiment.build_task()
    donors.check(members, numbers, task)
    check(experiment, task, [members[i] for i in numbers])
    return members, numbers, task


def execute(
    experiment: ExperimentProtocol,
    out: Path,
    *,
    scale: str = "quick",
    execution: ExecutionSettings | None = None,
    member_ranges: str = ":",
    resume: bool = False,
    force: bool = False,
    notify: Notify = lambda event: None,
    stop: Stop = lambda: False,
) -> Run:
    """Train and analyse the members of an experiment and write the results to a run folder.

    Parameters
    ----------
    experiment : ExperimentProtocol
        The experiment to run.
    out : Path
        Run folder to write.
    scale : str, default="quick"
        Name of the scale (size) of the experiment, such as "quick". It is only recorded, in config.json.
    execution : ExecutionSettings, optional
        Device, precision, stack size and number of worker processes.
    member_ranges : str, default=":"
        Members to train, in the syntax of `--members`: "0:3,5:6" selects members 0, 1, 2 and 5; ":" selects all.
    resume : bool, default=False
        Continue an unfinished run in `out` from its last checkpoints.
    force : bool, default=False
        Delete an existing run in `out` first.
    notify : callable, optional
        Called with an `Event` whenever a stack (members trained together) makes progress.
    stop : callable, optional
        Called regularly during training. When it returns True, a checkpoint is saved and `Interrupted` is raised.

    Returns
    -------
    Run
        The finished run.

    Raises
    ------
    Interrupted
        If `stop()` returned True. The run can be resumed.
    WorkerFailed
        If a worker process ended unexpectedly. The run can be resumed.
    OSError
        If the disk is full. Finished members and the last complete checkpoint are kept, so the run can be resumed.
    """
    execution = execution or ExecutionSettings()
    members, numbers, task = prepare(experiment, member_ranges)
    config = _config(experiment, scale, execution, task, members, numbers)
    with Folder.open(out, config, resume=resume, force=force) as folder, execution.arithmetic():
        if folder.finished:
            return Run(out)
        # verify checkpoints first: a damaged one must raise before any file is changed
        steps_done = stacks.steps_done(folder.checkpoints, len(numbers))  # a stack has at least one member
        previous = Run(out).environment if steps_done else None
        plan = _stack_plan(experiment, task, members, numbers, execution, folder, previous)
        sizes, steps = [len(stack) for stack in plan.stacks], experiment.training_steps(task)
        unfinished = [index for index in range(len(sizes)) if steps_done.get(index) != steps]
        concurrency = execution.concurrency(len(unfinished), values_of([members[i] for i in numbers], task))
        if previous is not None:  # rounding depends on the number of threads, so a resumed run keeps it
            concurrency = replace(concurrency, threads_per_stack=int(previous["threads per stack"]))
            memory.check_free_memory(previous, unfinished, execution)
        environment = {**describe_environment(execution, concurrency), **plan.record(execution)}
        recorded = previous or environment
        if previous is not None and environment["source"] != previous.get("source"):  # the code changed in between
            recorded["resumed_by"] = [*recorded.get("resumed_by", []), environment["source"]]
        if recorded is environment or "resumed_by" in recorded:
            write_json(out / "environment.json", recorded)
        log = Log(out / "log.txt")
        action = "resumed" if steps_done else "started"
        log(f"{action}: {experiment.name}, {len(numbers)} members; {json.dumps(environment)}")
        report = Reporter(sizes, steps, notify, log)
        for index in sorted(set(range(len(sizes))) - set(unfinished)):
            report(index, Progress(steps, float("nan")))

        def record_peak(index: int, peak: int | None) -> None:
            """Write the peak GPU memory of a trained stack to environment.json. Do nothing if it is None (on a CPU)."""
            if peak is None:
                return
            peaks = recorded.setdefault("memory", {}).setdefault("peak bytes", [None] * len(sizes))
            peaks[index] = max(peak, peaks[index] or 0)
            log(f"stack {index + 1}/{len(sizes)}: {memory.describe_peak(peak, sizes[index])}")
            write_json(out / "environment.json", recorded)

        def train(index: int, stop: Stop) -> None:
            """Train the stack with this index in this process."""
            members, on_progress = stack_members[index], partial(report, index)
            peak = stacks.train(experiment, task, members, execution, folder.checkpoints, index, on_progress, stop)
            record_peak(index, peak)

        weights = partial(stacks.weights_of, folder.checkpoints)
        stack_members: dict[int, list[Member]] = {}
        try:
            for generation in donors.generations(members, plan.stacks):
                stack_members |= donors.resolve_starts(members, plan.stacks, generation, task, weights)
                queue = {index: stack_members[index] for index in generation if index in unfinished}
                if not queue:
                    continue
                if concurrency.processes > 1:
                    processes.train_all(
                        experiment, queue, execution, folder, concurrency, report, record_peak, log, stop
                    )
                else:
                    _train_all([partial(train, index) for index in queue], execution, concurrency, stop)
        except (Interrupted, WorkerFailed) as error:
            log("stopped and saved" if isinstance(error, Interrupted) else str(error))
            raise
        run = stacks.assemble(experiment, task, members, plan.stacks, stack_members, execution, folder)
        log("finished")
        return run


def check(experiment: ExperimentProtocol, task: Task, members: Sequence[Member]) -> None:
    """Build and analyse one member of every kind on two examples, so that errors in them appear before training.

    Members are of one kind if they have the same `stack_key`, encoding, options and initial PE, all with or all without
    a sigma.
    """

    def kind(member: Member) -> tuple[object, ...]:
        start = member.without_donor().start
        return stack_key(member), member.encoding, member.options, start, member.sigma is None

    two_examples = task.first(2)
    kinds = {kind(member): member for member in members}
    for member in kinds.values():
        member_task = two_examples.for_data_set(member.data).bind([member])
        experiment.trial_analysis(stack_for([member.without_donor()], member_task), member_task)


def _config(
    experiment: ExperimentProtocol,
    scale: str,
    execution: ExecutionSettings,
    task: Task,
    members: Sequence[Member],
    numbers: Sequence[int],
) -> dict[str, Any]:
    """Return the content of config.json: everything that determines the results.

    `members` are all members of the experiment, and `numbers` are the numbers of those to train. A run can only be
    resumed with an equal config.
    """
    shapes = {data: _shape(task.for_data_set(data)) for data in dict.fromkeys(member.data for member in members)}
    return {
        "format": FORMAT,
        "experiment": experiment.name,
        "scale": scale,
        "fields": experiment.fields(),
        "precision": execution.precision,
        "device": execution.device,
        "plain": execution.plain,
        "stack": execution.max_stack_size,
        "members": format_ranges(numbers),
        "total": len(members),
        "shape": next(iter(shapes.values())),
        **({"shapes": shapes} if len(shapes) > 1 else {}),
        "task": task.describe(),
    }


def _shape(task: Task) -> dict[str, Any]:
    """Return the sizes of inputs and outputs of a task and the positions of its tokens, as entries of config.json.

    `Run.load` needs them to rebuild a model.
    """
    shape = {name: getattr(task, name) for name in ("tokens", "features", "outputs", "readout", "worlds")}
    return {**shape, "positions": None if task.positions is None else task.positions.tolist()}


def _stack_plan(
    experiment: ExperimentProtocol,
    task: Task,
    members: Sequence[Member],
    numbers: Sequence[int],
    execution: ExecutionSettings,
    folder: Folder,
    previous: Mapping[str, Any] | None,
) -> memory.StackPlan:
    """Return which members train together: the recorded plan if a run is resumed, otherwise a new one.

    `members` are all members of the experiment, and `numbers` are the numbers of those to train. `previous` is the
    content of environment.json of a resumed run, otherwise None. If the GPU has too little memory for a single member,
    the new run folder is deleted and BadInput is raised.
    """
    if previous is not None and "split" in previous:  # earlier versions did not record it
        return memory.StackPlan([parse_ranges(text, len(members)) for text in previous["split"]])
    try:
        return memory.stack_plan(experiment, task, members, numbers, execution)
    except BadInput:
        folder.abandon()
        raise


def _train_all(
    jobs: Sequence[Callable[[Stop], None]], execution: ExecutionSettings, concurrency: Concurrency, stop: Stop
) -> None:
    """Train all stacks in threads of this process. When one fails, the others save a checkpoint and stop.

    Each job is a function that trains one stack. Its argument is a function that returns True when the job must stop.
    """
    failed, threads_before = threading.Event(), torch.get_num_threads()

    def work(job: Callable[[Stop], None]) -> None:
        # the number of threads and the precision are settings of the current thread
        torch.set_num_threads(concurrency.threads_per_stack)
        if failed.is_set():
            raise Interrupted
        try:
            with execution.arithmetic():
                job(lambda: stop() or failed.is_set())
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(concurrency.stacks_per_process) as pool:
        futures = [pool.submit(work, job) for job in jobs]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            torch.set_num_threads(threads_before)
            pool.shutdown(wait=False, cancel_futures=True)
            if not all(future.done() for future in futures):
                failed.set()
    errors = [error for future in futures if not future.cancelled() and (error := future.exception())]
    # other stacks raise Interrupted when one fails, so raise the first other error if there is one
    for error in sorted(errors, key=lambda error: isinstance(error, Interrupted)):
        raise error
