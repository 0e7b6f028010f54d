"""Train one stack with checkpoints (`train`), and write the results of all stacks as one run (`assemble`).

Results go to these files of the run folder, through `placecode.runs.write.Folder.finish`:

- Whether, when and why members diverged goes to the columns state, diverged_at and diverged_by of members.parquet.
- Metrics of all evaluations go to metrics.parquet (member, step, split, condition, metric, value).
- Analyses go to analysis.parquet (member, step, block, analysis, target, value), where step 0 is before training.
- PEs and the other arrays of an experiment go to arrays.safetensors, and parameters to weights.safetensors.
- Results of other methods on the same data go to baselines.parquet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from placecode.execution import checkpoints, memory
from placecode.execution.contract import ExperimentProtocol
from placecode.execution.progress import Interrupted, Stop
from placecode.execution.settings import ExecutionSettings
from placecode.models.encoder import Stack
from placecode.models.member import Member
from placecode.runs.read import Run, shapes_of
from placecode.runs.tables import TrainingOutcome, member_table, no_baselines
from placecode.runs.write import Folder, with_rows
from placecode.tasks.base import Task
from placecode.training.active_stack import CAUSES
from placecode.training.trainer import Progress, Trainer

SECONDS_BETWEEN_CHECKPOINTS = 30.0
"""Minimum time between checkpoints. A checkpoint of hundreds of members takes gigabytes."""
SHARE_FOR_CHECKPOINTS = 0.03
"""Maximum share of the time that is spent on copying the state for checkpoints, while training waits."""
SHARE_FOR_WRITING = 0.3
"""Maximum share of the time that is spent on writing checkpoints to disk, while training continues."""


def checkpoint_name(index: int) -> str:
    """Return the name of the checkpoint of the stack with this index, such as "stack-002"."""
    return f"stack-{index:03d}"


def steps_done(folder: Path, stacks: int) -> dict[int, int]:
    """Verify the checkpoints of the stacks with indices below `stacks`, and return a dict from stack index to step.

    Stacks without a checkpoint are left out. Raise BadInput if a checkpoint is damaged.
    """
    steps = {index: checkpoints.verify(folder, checkpoint_name(index)) for index in range(stacks)}
    return {index: step for index, step in steps.items() if step is not None}


def _final(folder: Path, index: int) -> tuple[int, dict[str, Tensor], pd.DataFrame]:
    """Return step, state and metrics of the last checkpoint of a trained stack."""
    saved = checkpoints.load(folder, checkpoint_name(index))
    assert saved is not None
    return saved


def weights_of(folder: Path, index: int) -> Tensor:
    """Return the weights (e, P) of a trained stack from its last checkpoint."""
    return _final(folder, index)[1]["flat"]


def train(
    experiment: ExperimentProtocol,
    task: Task,
    members: Sequence[Member],
    execution: ExecutionSettings,
    folder: Path,
    index: int,
    on_progress: Callable[[Progress], None],
    stop: Stop,
) -> int | None:
    """Train one stack to the end, from its last checkpoint if there is one. The final state is saved as a checkpoint.

    Parameters
    ----------
    experiment, task, execution
        The experiment, its task and the settings of the run.
    members : sequence of Member
        Members of the stack.
    folder : Path
        Folder of checkpoints.
    index : int
        Index of the stack.
    on_progress : callable
        Called with a `Progress` whenever the stack makes progress.
    stop : callable
        When `stop()` returns True, a checkpoint is saved and `Interrupted` is raised.

    Returns
    -------
    int or None
        Peak GPU memory in bytes. None on a CPU, where only the memory of the whole process is known.
    """
    meter, name, task = memory.meter_for(execution), checkpoint_name(index), task.for_data_set(members[0].data)
    if meter is not None:
        meter.reset()
    with memory.explain_out_of_memory(len(members)), CheckpointWriter(folder, name) as writer:
        saved = checkpoints.load(folder, name)
        stack = execution.build_stack(members, task)
        trainer = Trainer(
            stack, task, experiment.training_steps(task), experiment.evaluate_at(task), experiment.zero_loss_patience
        )
        metrics, saved_step = pd.DataFrame(), -1
        if saved is not None:
            saved_step, state, metrics = saved
            trainer.load(state, saved_step)
        rows: list[dict[str, Any]] = []

        def save() -> None:
            nonlocal metrics, rows, saved_step
            if trainer.step == saved_step:
                return
            writer.wait()  # before copying the state: two copies may not fit into memory
            metrics, rows = pd.concat([metrics, pd.DataFrame(rows)], ignore_index=True), []
            writer.save(trainer.step, trainer.outcome() if trainer.step == trainer.steps else trainer.state(), metrics)
            saved_step = trainer.step

        last, pause = time.monotonic(), SECONDS_BETWEEN_CHECKPOINTS
        for progress in trainer.run():
            rows.extend(progress.rows)
            on_progress(progress)
            if stop():
                save()
                raise Interrupted
            if time.monotonic() - last > pause and writer.ready():
                start = time.monotonic()
                save()
                last = time.monotonic()
                pause = max(SECONDS_BETWEEN_CHECKPOINTS, (last - start) / SHARE_FOR_CHECKPOINTS)
        save()
    return None if meter is None else meter.peak_reserved()


class CheckpointWriter:
    """Write checkpoints of a stack in a background thread, one after the other, while training continues.

    It is a context manager. At the end of the `with` block, it waits until the last checkpoint is on disk.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.pool = ThreadPoolExecutor(1)
        self.writing: Future[None] | None = None
        self.next_time = 0.0

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown()
        self.wait()

    def ready(self) -> bool:
        """Return whether the last checkpoint is written and enough time has passed since (see `SHARE_FOR_WRITING`)."""
        return self.writing is None or (self.writing.done() and time.monotonic() > self.next_time)

    def wait(self) -> None:
        """Wait until the last checkpoint is written, and raise any error that occurred while writing it."""
        if self.writing is not None:
            self.writing.result()

    def save(self, step: int, state: dict[str, Tensor], metrics: pd.DataFrame) -> None:
        """Start writing a checkpoint, once the previous one is written. The caller must not use `state` afterwards."""
        self.wait()
        self.writing = self.pool.submit(self._write, step, _copy_to_cpu(state), metrics)

    def _write(self, step: int, fetch: Callable[[], dict[str, Tensor]], metrics: pd.DataFrame) -> None:
        """Write a checkpoint and set the earliest time of the next one. `fetch()` returns the state on the CPU."""
        start = time.monotonic()
        checkpoints.save(self.folder, self.name, step, fetch(), metrics)
        self.next_time = time.monotonic() + (time.monotonic() - start) / SHARE_FOR_WRITING


def _copy_to_cpu(state: dict[str, Tensor]) -> Callable[[], dict[str, Tensor]]:
    """Return a function that another thread calls to copy `state` from the GPU to the CPU.

    The copy starts when the work that is now queued on the GPU is done. State that is on the CPU is not copied.
    """
    if not any(value.is_cuda for value in state.values()):
        return lambda: state
    ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
    ready.record()
    stream = _copy_stream(torch.cuda.current_device())

    def fetch() -> dict[str, Tensor]:
        with torch.cuda.stream(stream):
            stream.wait_event(ready)
            return {name: state.pop(name).to("cpu") for name in list(state)}  # pop, to free the GPU memory

    return fetch


@cache
def _copy_stream(device: int) -> torch.cuda.Stream:
    """Return the CUDA stream for copies to the CPU.

    Its priority differs from the default, so torch never gives it out as the stream on which training is captured.
    """
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]


def assemble(
    experiment: ExperimentProtocol,
    task: Task,
    members: Sequence[Member],
    numbers_by_stack: Sequence[Sequence[int]],
    stack_members: Mapping[int, Sequence[Member]],
    execution: ExecutionSettings,
    folder: Folder,
) -> Run:
    """Analyse all trained stacks before and after training, and write the results as one run.

    `members` are all members of the experiment, and `numbers_by_stack` has the member numbers of each stack.
    `stack_members` maps the index of each stack to the members that were trained, in which `donors.resolve_starts` has
    replaced donors by initial PEs. The module's docstring says which result goes to which file.
    """
    trained_numbers = sorted(number for numbers in numbers_by_stack for number in numbers)
    tables, analyses = [], []
    arrays: dict[str, Tensor] = {}
    weights: dict[str, Tensor] = {}
    outcomes: dict[int, TrainingOutcome] = {}

    def build_stack(index: int) -> tuple[Stack, Task]:
        """Return a stack with its initial parameters, and the task of its members."""
        stack_task = task.for_data_set(stack_members[index][0].data).bind(stack_members[index])
        return execution.build_stack(stack_members[index], stack_task), stack_task

    for index, numbers in enumerate(numbers_by_stack):
        step, state, metrics = _final(folder.checkpoints, index)
        final = metrics[metrics["step"] == step]
        not_finite = set(final.loc[~np.isfinite(final["value"]), "member"])  # possible even with finite weights
        tables.append(metrics.assign(member=metrics["member"].map(dict(enumerate(numbers)))))
        with memory.explain_out_of_memory(len(numbers)):
            stack, stack_task = build_stack(index)
            for moment, moment_step in (("start", 0), ("end", step)):
                if moment == "end":
                    stack.flat.copy_(state["flat"])
                analyses.append(_analysis_table(experiment.analyse(stack, stack_task), moment_step, numbers))
                for name, array in {"pe": stack.encoding.vectors(), **experiment.arrays(stack, stack_task)}.items():
                    if array is not None:
                        dtype = torch.float32 if array.dtype == torch.bfloat16 else array.dtype
                        copied = array.detach().to("cpu", dtype, copy=True)
                        arrays |= {f"{name}_{moment}/{number}": copied[row] for row, number in enumerate(numbers)}
        for row, number in enumerate(numbers):
            weights[str(number)] = state["flat"][row : row + 1]
            outcomes[number] = _outcome_of(state, row)
            if not outcomes[number].diverged and row in not_finite:
                outcomes[number] = TrainingOutcome(diverged_at=step, diverged_by="evaluation")
    for number in trained_numbers:
        donor = members[number].donor
        if donor is not None and outcomes[donor].diverged and members[number].start != "donor-untrained":
            outcomes[number] = TrainingOutcome(diverged_at=0, diverged_by="donor")
    table = member_table(trained_numbers, [members[i] for i in trained_numbers], [outcomes[i] for i in trained_numbers])
    steps = experiment.training_steps(task)
    if experiment.swaps_pes:  # it needs arrays of all stacks, which may not fit into memory together
        for index, numbers in enumerate(numbers_by_stack):
            with memory.explain_out_of_memory(len(numbers)):
                stack, stack_task = build_stack(index)
                stack.flat.copy_(torch.cat([weights[str(number)] for number in numbers]))
                rows = experiment.measure_pe_swaps(stack, stack_task, numbers, table, arrays)
                analyses.append(_analysis_table(rows, steps, numbers))
    metrics, analysis = pd.concat(tables, ignore_index=True), pd.concat(analyses, ignore_index=True)
    compared = experiment.compare(table, arrays, shapes_of(folder.config, table), steps)
    # do not write arrays that were needed only for comparisons
    moments = ("start", "end")
    temporary = {
        f"{name}_{when}/{i}" for name in experiment.temporary_arrays for when in moments for i in trained_numbers
    }
    arrays = {name: array for name, array in arrays.items() if name not in temporary}
    baseline_rows: list[dict[str, Any]] = []
    for data in dict.fromkeys(members[i].data for i in trained_numbers):
        data_task = task.for_data_set(data)
        data_members = [members[i] for i in trained_numbers if members[i].data == data]
        baseline_rows += [{"data": data, **row} for row in experiment.baselines(data_task, data_members)]
        for name, array in experiment.data_arrays(data_task, data_members).items():
            arrays[f"{data}:{name}" if data else name] = array
    baselines = pd.DataFrame(baseline_rows, columns=list(no_baselines().columns))
    return folder.finish(table, metrics, with_rows(analysis, compared), arrays, weights, baselines)


def _outcome_of(state: Mapping[str, Tensor], row: int) -> TrainingOutcome:
    """Return how training ended for the member in this row of the final `state` of a stack."""
    names = ("diverged_at", "settled_epoch", "zero_loss_epoch")
    outcome = {name: int(state[name][row]) for name in names}
    return TrainingOutcome(**outcome, diverged_by=CAUSES[int(state["cause"][row])])


def _analysis_table(rows: Sequence[Mapping[str, Any]], step: int, numbers: Sequence[int]) -> pd.DataFrame:
    """Return rows of `Experiment.analyse` or `measure_pe_swaps` as a table with the columns of analysis.parquet.

    In `rows`, "member" is the position in the stack. It is replaced by the number of the member, from `numbers`.
    """
    numbered = [{**row, "member": numbers[row["member"]], "step": step} for row in rows]
    return pd.DataFrame(numbered, columns=["member", "step", "block", "analysis", "target", "value"])
