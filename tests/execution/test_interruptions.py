"""Runs that are stopped, killed or out of disk space: resumed, they end with the bytes of an uninterrupted run."""

import os
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.folders import full_after
from helpers.training.tiny_runs import SETTINGS, assert_same, stop_run, tiny
from torch import Tensor

from placecode.execution import checkpoints, local, stacks
from placecode.execution.progress import Event
from placecode.execution.settings import ExecutionSettings
from placecode.runs.read import Run
from placecode.training.trainer import Progress, Trainer

TWO_STACKS = ExecutionSettings("cpu", stack=2)


def test_a_run_that_is_stopped_after_every_event(unbroken: Run, tmp_path: Path) -> None:
    """Each of the two stacks is stopped before its first step, after two evaluations and after its last step."""
    out = tmp_path / "run"
    for stack in (0, 1):
        for step in (0, 4, 8, 12):
            events = stop_run(tiny(), out, TWO_STACKS, events=1 + stack)  # a finished stack is an event too
            assert (events[-1].stack, events[-1].progress.step) == (stack, step)
            assert checkpoints.verify(out / "checkpoints", f"stack-{stack:03d}") == step
            assert not Run(out).finished
    assert_same(local.execute(tiny(), out, execution=TWO_STACKS, resume=True).path, unbroken.path)
    log = (out / "log.txt").read_text()
    assert [log.count(text) for text in ("started", "resumed", "stopped and saved")] == [1, 8, 8]


def test_resuming_a_finished_run_changes_nothing(unbroken: Run, tmp_path: Path) -> None:
    out, events = Path(shutil.copytree(unbroken.path, tmp_path / "run")), list[Event]()
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in out.iterdir()}
    run = local.execute(tiny(), out, execution=TWO_STACKS, resume=True, notify=events.append)
    assert run.summary == unbroken.summary and events == []
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in out.iterdir()} == before


class ImmediateExecutor:
    """An executor that runs each task in the calling thread."""

    def __init__(self, workers: int) -> None: ...

    def submit(self, work: Any, *arguments: Any) -> Future[None]:
        future: Future[None] = Future()
        future.set_result(work(*arguments))
        return future

    def shutdown(self) -> None: ...


def test_copying_checkpoints_takes_a_small_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a simulated clock: copying takes 10 seconds, a step 1. The next copy waits until that is 3% of the time."""
    now, copied = [0.0], list[float]()
    monkeypatch.setattr(stacks.time, "monotonic", lambda: now[0])

    class SlowTrainer(Trainer):
        def run(self, seconds: float = 0.0) -> Iterator[Progress]:
            for step in range(1000):
                now[0] += 1
                self.step = step
                yield Progress(step, 0.0)
            self.step = self.steps

        def state(self) -> dict[str, Tensor]:
            copied.append(now[0])
            now[0] += 10
            return {}

    monkeypatch.setattr(checkpoints, "save", lambda *arguments: None)
    monkeypatch.setattr(stacks, "Trainer", SlowTrainer)
    monkeypatch.setattr(stacks, "ThreadPoolExecutor", ImmediateExecutor)
    task, members = tiny().task(), tiny().members()[:1]
    stacks.train(tiny(), task, members, ExecutionSettings("cpu"), tmp_path, 0, lambda _: None, lambda: False)
    assert copied[0] == 31 and len(copied) == 3
    assert all(10 / 0.03 < gap - 10 < 10 / 0.03 + 2 for gap in np.diff(copied))


def test_writing_checkpoints_takes_a_share_of_the_disks_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(stacks.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(stacks, "ThreadPoolExecutor", ImmediateExecutor)
    monkeypatch.setattr(checkpoints, "save", lambda *arguments: now.__setitem__(0, now[0] + 30))
    with stacks.CheckpointWriter(tmp_path, "stack") as writer:
        writer.save(1, {}, pd.DataFrame())
        for when, ready in ((130.0, False), (229.0, False), (231.0, True)):
            now[0] = when
            assert writer.ready() == ready


def test_checkpoints_are_written_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are written in the background."""
    go, written = threading.Event(), list[int]()

    def save(folder: Path, name: str, step: int, *content: Any) -> None:
        assert go.wait(60)
        if step == 3:
            raise OSError("no room")
        written.append(step)

    def write(*steps: int) -> None:
        with stacks.CheckpointWriter(tmp_path, "stack") as writer:
            for step in steps:
                writer.save(step, {}, pd.DataFrame())

    monkeypatch.setattr(checkpoints, "save", save)
    with stacks.CheckpointWriter(tmp_path, "stack") as writer:
        assert writer.ready()
        writer.save(1, {}, pd.DataFrame())
        assert not writer.ready() and not written  # training continues meanwhile
        go.set()
        writer.save(2, {}, pd.DataFrame())  # waits for the first
        assert written[0] == 1
    assert written == [1, 2]
    for steps in ((3,), (3, 4)):
        with pytest.raises(OSError, match="no room"):
            write(*steps)
    assert 4 not in written


def test_a_checkpoint_has_the_values_of_the_moment_it_was_taken(tmp_path: Path, device: str) -> None:
    """A GPU still has work queued when the copy is requested, and continues meanwhile."""
    state = torch.zeros(1000, 1000, device=device)
    with stacks.CheckpointWriter(tmp_path, "stack") as writer:
        for step in range(1, 4):
            for _ in range(200):
                state += 1
            writer.save(step, {"state": state.clone()}, pd.DataFrame())
            for _ in range(200):
                state += 1
            writer.wait()
            saved = checkpoints.load(tmp_path, "stack")
            assert saved is not None and saved[0] == step
            assert saved[1]["state"].device.type == "cpu" and (saved[1]["state"] == 400 * step - 200).all()


KILLER = """
    # Run an experiment in processes that are killed, one after the other, until one of them finishes.
    import json, os, random, signal, sys, time, traceback
    from pathlib import Path
    import pandas, torch
    from safetensors.torch import load_file
    torch.set_num_threads(1)
    from placecode import experiments
    from placecode.execution import local, stacks
    from placecode.execution.settings import ExecutionSettings

    out, experiment = Path(sys.argv[1]), experiments.lookup("lst-sigma").from_scale("quick", **eval(sys.argv[2]))
    stacks.SECONDS_BETWEEN_CHECKPOINTS, stacks.SHARE_FOR_CHECKPOINTS, stacks.SHARE_FOR_WRITING = 0.05, 1e9, 1e9
    readers = {".json": lambda path: json.loads(path.read_text()), ".parquet": pandas.read_parquet}
    readers[".safetensors"] = load_file
    chance = random.Random(0)

    def die_at_a_write(count, before):
        # before or after the count-th call that puts a file in place
        remaining = [count]
        def deadly(original):
            def call(*arguments, **named):
                remaining[0] -= 1
                if remaining[0] == 0 and before:
                    os.kill(os.getpid(), signal.SIGKILL)
                result = original(*arguments, **named)
                if remaining[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result
            return call
        for name in ("fsync", "replace", "unlink"):
            setattr(os, name, deadly(getattr(os, name)))

    experiment.task()  # generated once and cached
    killed = 0
    while not (out / "summary.json").exists():
        at_a_write, before = chance.random() < 0.5, chance.random() < 0.5
        seconds, write = chance.uniform(0, 0.1 + 0.05 * killed), chance.randint(1, 6 + 2 * killed)
        child = os.fork()
        if child == 0:
            try:
                if at_a_write:
                    die_at_a_write(write, before)
                local.execute(experiment, out, execution=ExecutionSettings("cpu", stack=2), resume=True)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        if not at_a_write:
            time.sleep(seconds)
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 1:
            sys.exit("a process failed by itself")
        killed += status == -signal.SIGKILL
        for path in out.rglob("*") if out.exists() else ():  # incomplete files have other names
            readers.get(path.suffix, str)(path)
        if killed > 100:
            sys.exit("the run does not finish")
    # the last kill may have left checkpoints
    local.execute(experiment, out, execution=ExecutionSettings("cpu", stack=2), resume=True)
    print(killed)
"""
LONGER = {**SETTINGS, "epochs": 20, "evaluations": 6, "layers": 2, "cooldown": 0.25}


def test_a_run_killed_again_and_again_ends_with_the_same_bytes(tmp_path: Path) -> None:
    """Processes receive SIGKILL at random moments and at random writes."""
    expected = local.execute(tiny(**LONGER), tmp_path / "expected", execution=TWO_STACKS)
    script = [sys.executable, "-c", textwrap.dedent(KILLER), str(tmp_path / "run"), repr(LONGER)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.run(script, capture_output=True, text=True, env=environment, timeout=300)
    assert process.returncode == 0, process.stderr
    assert int(process.stdout) >= 3  # processes were killed
    assert_same(tmp_path / "run", expected.path)


@pytest.mark.parametrize("count", [0, 4, 5, 8, 13])
def test_a_full_disk_loses_no_finished_member(
    unbroken: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """A run writes its config, its environment, 3 files for each of 2 stacks, and 6 files of results."""
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_after(count))
        with pytest.raises(OSError, match="No space left"):
            local.execute(tiny(), out, execution=TWO_STACKS)
    saved = [checkpoints.verify(out / "checkpoints", f"stack-{stack:03d}") for stack in (0, 1)]
    assert saved == [12 if count >= 5 else None, 12 if count >= 8 else None]
    assert not list(out.rglob("*.part"))
    assert count > 0 or not out.exists()
    assert not (out / "summary.json").exists()
    events = list[Event]()
    assert_same(local.execute(tiny(), out, execution=TWO_STACKS, resume=True, notify=events.append).path, unbroken.path)
    trained = {event.stack for event in events if event.progress.rows}
    assert trained == {stack for stack in (0, 1) if saved[stack] is None}
