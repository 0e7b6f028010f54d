"""A stack, trained to its end with checkpoints on the way, wherever that is; and all of them put together as a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from placecode.execution import checkpoints, memory, origins
from placecode.execution.contract import Experiment
from placecode.execution.progress import Interrupted, Stop
from placecode.execution.where import Where
from placecode.models.encoder import Stack
from placecode.models.member import Member
from placecode.runs.read import End, Run, member_table, no_baselines, shapes_of
from placecode.runs.write import Folder, with_rows
from placecode.tasks.base import Task
from placecode.training.running import CAUSES
from placecode.training.trainer import Progress, Trainer, stack_for

NAME = "stack-"
SECONDS_BETWEEN_CHECKPOINTS = 30.0
"""At least; those of hundreds of members are gigabytes."""
SHARE_FOR_CHECKPOINTS = 0.03
"""Of the time, at most, for taking them: training waits meanwhile."""
SHARE_FOR_WRITING = 0.3
"""Of the time, at most, for writing them, beside training."""


def name_of(index: int) -> str:
    """The name of a stack's checkpoint."""
    return f"{NAME}{index:03d}"


def steps_done(folder: Path) -> dict[int, int | None]:
    """The step of the last checkpoint of every stack that has one."""
    names = sorted(path.stem for path in folder.glob(f"{NAME}*.json"))
    return {int(name.removeprefix(NAME)): checkpoints.verify(folder, name) for name in names}


def weights_of(folder: Path, index: int) -> Tensor:
    """The weights (e, p) of a stack that is trained."""
    saved = checkpoints.load(folder, name_of(index))
    assert saved is not None
    return saved[1]["flat"]


def train(
    study: Experiment,
    task: Task,
    members: Sequence[Member],
    where: Where,
    folder: Path,
    index: int,
    report: Callable[[Progress], None],
    stop: Stop,
) -> int | None:
    """Train one stack to its end, from its last checkpoint if there is one. Its final state is a checkpoint too.

    Returns the most bytes of the GPU that it took; None on a CPU, where memory is the process's and not a stack's.
    """
    meter = memory.meter_for(where)
    if meter is not None:
        meter.reset()
    with memory.told(len(members)):
        _train(study, task, members, where, folder, name_of(index), report, stop)
    return None if meter is None else meter.taken()


def _train(
    study: Experiment,
    task: Task,
    members: Sequence[Member],
    where: Where,
    folder: Path,
    name: str,
    report: Callable[[Progress], None],
    stop: Stop,
) -> None:
    saved, task = checkpoints.load(folder, name), task.part(members[0].data)
    trainer = Trainer(
        stack_for(members, task, where.device, fast=where.fast),
        task,
        study.training_steps(task),
        study.evaluate_at(task),
        study.rest_epochs,
    )
    metrics, kept = pd.DataFrame(), -1
    if saved is not None:
        kept, state, metrics = saved
        trainer.load(state, kept)
    rows: list[dict[str, Any]] = []
    with Saver(folder, name) as saver:

        def save() -> None:
            nonlocal metrics, rows, kept
            if trainer.step == kept:
                return
            saver.wait()  # first: two states at a time may be too much
            metrics, rows = pd.concat([metrics, pd.DataFrame(rows)], ignore_index=True), []
            saver.save(trainer.step, trainer.outcome() if trainer.step == trainer.steps else trainer.state(), metrics)
            kept = trainer.step

        last, pause = time.monotonic(), SECONDS_BETWEEN_CHECKPOINTS
        for progress in trainer.run():
            rows.extend(progress.rows)
            report(progress)
            if stop():
                save()
                raise Interrupted
            if time.monotonic() - last > pause and saver.ready():
                begun = time.monotonic()
                save()
                last = time.monotonic()
                pause = max(SECONDS_BETWEEN_CHECKPOINTS, (last - begun) / SHARE_FOR_CHECKPOINTS)
        save()


class Saver:
    """Fetches the checkpoints of a stack from its device and writes them, beside its training, one after another.

    On leaving, all are on the disk.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.pool = ThreadPoolExecutor(1)
        self.writing: Future[None] | None = None
        self.again = 0.0

    def __enter__(self) -> Saver:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown()
        self.wait()

    def ready(self) -> bool:
        """Whether the last one is written, and another would not keep the disk too busy."""
        return self.writing is None or (self.writing.done() and time.monotonic() > self.again)

    def wait(self) -> None:
        """Until the last one is written; an error in writing it is raised here."""
        if self.writing is not None:
            self.writing.result()

    def save(self, step: int, state: dict[str, Tensor], metrics: pd.DataFrame) -> None:
        """Have a checkpoint written, after the one before. The tensors are the saver's from now on."""
        self.wait()
        self.writing = self.pool.submit(self._write, step, _on_its_way(state), metrics)

    def _write(self, step: int, fetch: Callable[[], dict[str, Tensor]], metrics: pd.DataFrame) -> None:
        begun = time.monotonic()
        checkpoints.save(self.folder, self.name, step, fetch(), metrics)
        self.again = time.monotonic() + (time.monotonic() - begun) / SHARE_FOR_WRITING


def _on_its_way(state: dict[str, Tensor]) -> Callable[[], dict[str, Tensor]]:
    """How another thread gets these tensors to the CPU, as they are by now, while this one's work on a GPU goes on."""
    if not any(value.is_cuda for value in state.values()):
        return lambda: state
    ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
    ready.record()
    stream = _stream_of_copies(torch.cuda.current_device())

    def fetch() -> dict[str, Tensor]:
        with torch.cuda.stream(stream):
            stream.wait_event(ready)
            return {name: state.pop(name).to("cpu") for name in list(state)}  # so that the GPU has its memory back

    return fetch


@cache
def _stream_of_copies(device: int) -> torch.cuda.Stream:
    """One for all; of another priority than those on which steps are recorded, which so cannot be the same."""
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]


def assemble(
    study: Experiment,
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
    ends: dict[int, End] = {}
    for index, own in enumerate(parts):
        saved = checkpoints.load(folder.checkpoints, name_of(index))
        assert saved is not None
        step, state, metrics = saved
        final = metrics[metrics["step"] == step]
        astray = set(final.loc[~np.isfinite(final["value"]), "member"])  # finite weights need not give finite outputs
        tables.append(metrics.assign(member=metrics["member"].map(dict(enumerate(own)))))
        with memory.told(len(own)):
            stack, met = _built(members, own, parts, task, where, folder)
            for moment, at in (("start", 0), ("end", step)):
                if moment == "end":
                    stack.flat.copy_(state["flat"])
                analyses.append(_analysis_rows(study, stack, met, at, own))
                for name, array in {"pe": stack.encoding.vectors(), **study.arrays(stack, met)}.items():
                    if array is not None:
                        wide = torch.float32 if array.dtype == torch.bfloat16 else array.dtype
                        kept = array.detach().to("cpu", wide, copy=True)
                        arrays |= {f"{name}_{moment}/{number}": kept[place] for place, number in enumerate(own)}
        for place, number in enumerate(own):
            weights[str(number)] = state["flat"][place : place + 1]
            ends[number] = _end_of(state, place)
            if not ends[number].diverged and place in astray:
                ends[number] = End(diverged_at=step, diverged_by="evaluation")
    for number in numbers:
        origin = members[number].origin
        if origin is not None and ends[origin].diverged and members[number].start != "before":
            ends[number] = End(diverged_at=0, diverged_by="origin")
    table = member_table(numbers, [members[i] for i in numbers], [ends[i] for i in numbers])
    if study.exchanges:
        for own in parts:
            with memory.told(len(own)):
                stack, met = _built(members, own, parts, task, where, folder)
                stack.flat.copy_(torch.cat([weights[str(number)] for number in own]))
                rows = study.exchange(stack, met, own, table, arrays)
                analyses.append(_numbered(rows, study.training_steps(task), own))
    metrics, analysis = pd.concat(tables, ignore_index=True), pd.concat(analyses, ignore_index=True)
    compared = study.compare(table, arrays, shapes_of(folder.config, table), study.training_steps(task))
    passing = tuple(f"{name}_{moment}/" for name in study.passing for moment in ("start", "end"))
    arrays = {name: array for name, array in arrays.items() if not name.startswith(passing)}
    others: list[dict[str, Any]] = []
    for data in dict.fromkeys(members[i].data for i in numbers):
        part, theirs = task.part(data), [members[i] for i in numbers if members[i].data == data]
        others += [{"data": data, **row} for row in study.baselines(part, theirs)]
        arrays |= {f"{data}:{name}" if data else name: each for name, each in study.data_arrays(part, theirs).items()}
    baselines = pd.DataFrame(others, columns=list(no_baselines().columns))
    return folder.finish(table, metrics, with_rows(analysis, compared), arrays, weights, baselines)


def _end_of(state: Mapping[str, Tensor], place: int) -> End:
    """How the training of a member ended, from the final state of its stack."""
    names = ("diverged_at", "settled_epoch", "rested_epoch")
    return End(**{name: int(state[name][place]) for name in names}, diverged_by=CAUSES[int(state["cause"][place])])


def _built(
    members: Sequence[Member],
    own: Sequence[int],
    parts: Sequence[Sequence[int]],
    task: Task,
    where: Where,
    folder: Folder,
) -> tuple[Stack, Task]:
    """A stack as it starts, and the task as it meets it."""
    mine = origins.ready(members, own, parts, task, partial(weights_of, folder.checkpoints))
    met = task.part(mine[0].data).bind(mine)
    return stack_for(mine, met, where.device, fast=where.fast), met


def _analysis_rows(study: Experiment, stack: Stack, task: Task, step: int, own: Sequence[int]) -> pd.DataFrame:
    return _numbered(study.analyse(stack, task), step, own)


def _numbered(found: Sequence[Mapping[str, Any]], step: int, own: Sequence[int]) -> pd.DataFrame:
    """Rows of a stack under the numbers of its members."""
    rows = [{**row, "member": own[row["member"]], "step": step} for row in found]
    return pd.DataFrame(rows, columns=["member", "step", "block", "analysis", "target", "value"])
