"""Stacks in processes of their own: the same bytes as in one, whoever is killed, stopped or fails.

Several GPUs were not at hand; what is tested here are several workers on a CPU.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import Pipe, active_children
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from placecode import cli
from placecode.errors import BadInput
from placecode.execution import checkpoints, local, processes
from placecode.execution.local import Event, Interrupted, Where, WorkerFailed
from placecode.execution.where import Crew
from placecode.experiments import Study
from placecode.experiments.latin.squares import LstSigma
from placecode.models.member import Member
from placecode.runs import read as runs
from placecode.runs.write import Folder
from placecode.training.trainer import Progress

RESULTS = ("members.parquet", "metrics.parquet", "analysis.parquet", "summary.json", *runs.TENSORS)
SETTINGS = {"sigmas": "0.1,2.0", "seeds": "2", "epochs": "150", "evaluations": "30", "per-class": "20", "heldout": "9"}
SETTINGS |= {"distance": "0.5", "width": "8", "heads": "2", "layers": "1", "batch": "16", "references": ""}
RUN = ["run", "lst-sigma", *(word for name, text in SETTINGS.items() for word in (f"--{name}", text))]
RUN += ["--device", "cpu", "--stack", "2"]
"""Two stacks of two members, 600 steps, evaluated 30 times: about a second each."""
CHILDREN = "/proc/{pid}/task/{pid}/children"
ALONE, TWO = Where("cpu", stack=2), Where("cpu", stack=2, workers=2)


def study() -> Study:
    given = cli._parser(RUN).parse_args(RUN)
    return LstSigma.at("quick", **cli.flags.settings(given, LstSigma))


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study in this process, without a break."""
    return local.execute(study(), tmp_path_factory.mktemp("runs") / "unbroken", where=ALONE).path


def assert_same(found: Path, wanted: Path) -> None:
    for name in RESULTS:
        assert (found / name).read_bytes() == (wanted / name).read_bytes(), f"{name} differs"
    assert not (found / "checkpoints").exists()


# Real processes


class Listener:
    """Does something once, as soon as both stacks are at work."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.act, self.seen, self.done = act, set[int](), False

    def __call__(self, event: Event) -> None:
        if event.progress.step:
            self.seen.add(event.stack)
        if self.seen == {0, 1} and not self.done:
            self.done = True
            self.act()


def steps_kept(out: Path) -> list[int | None]:
    return [checkpoints.verify(out / "checkpoints", f"stack-{index:03d}") for index in (0, 1)]


@pytest.mark.usefixtures("soon")
def test_a_worker_that_is_killed_is_told_and_the_run_goes_on_with_others(unbroken: Path, tmp_path: Path) -> None:
    """SIGKILL to the worker of one stack: the other saves and stops. Resumed, by workers: as in one process."""
    out = tmp_path / "run"
    listener = Listener(lambda: os.kill(active_children()[0].pid or 0, signal.SIGKILL))
    with pytest.raises(WorkerFailed) as error:
        local.execute(study(), out, where=TWO, notify=listener)
    said = (
        r"worker \d of 2 has failed in stack \d \(killed by signal 9\); finished stacks and the last checkpoints are "
    )
    assert re.fullmatch(said + r"kept: continue with --resume\.", str(error.value))
    assert str(error.value) in (out / "log.txt").read_text()
    assert active_children() == []
    assert any(steps_kept(out))  # the other one has saved
    run = local.execute(study(), out, where=TWO, resume=True)
    assert_same(run.path, unbroken)
    assert (run.environment["processes"], run.environment["threads per stack"]) == (2, 1)
    assert run.environment["split"] == ["0:2", "2:4"]
    assert active_children() == []


@pytest.mark.usefixtures("soon")
def test_ctrl_c_stops_all_of_them(unbroken: Path, tmp_path: Path) -> None:
    """A terminal sends it to every process: the workers do not listen, and the parent tells them to save and stop."""

    def interrupt() -> None:
        for worker in active_children():
            os.kill(worker.pid or 0, signal.SIGINT)
            os.kill(worker.pid or 0, signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)

    out = tmp_path / "run"
    with cli.stop_on_signals() as stopped, pytest.raises(Interrupted):
        local.execute(study(), out, where=TWO, notify=Listener(interrupt), stop=stopped)
    assert active_children() == []
    assert all(steps_kept(out))
    assert_same(local.execute(study(), out, where=ALONE, resume=True).path, unbroken)


def workers_of(pid: int) -> list[int]:
    """The processes that a process has started as workers."""
    children = CHILDREN.format(pid=pid)
    found = []
    for child in Path(children).read_text().split():
        with contextlib.suppress(OSError):  # one that has just ended
            if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text():
                found.append(int(child))
    return found


@pytest.mark.skipif(
    not Path(CHILDREN.format(pid=os.getpid())).exists(), reason="needs a system that tells the children of a process"
)
def test_workers_whose_parent_is_killed_save_and_end_and_hold_the_folder_until_then(
    unbroken: Path, tmp_path: Path
) -> None:
    """They do not listen to Ctrl-C even while they come up."""
    out = tmp_path / "run"
    source = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(cli.__file__).parents[2])}
    parent = subprocess.Popen(
        [sys.executable, "-m", "placecode.cli", *RUN, "--workers", "2", "--out", str(out)],
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": {**os.environ, **source}},
    )
    assert parent.stdout is not None
    while len(at_work := workers_of(parent.pid)) < 2:
        assert parent.poll() is None
        time.sleep(0.05)
    for pid in at_work:
        os.kill(pid, signal.SIGINT)
    next(line for line in parent.stdout if re.match(r"stack \d/2  step [1-9]", line))
    for pid in at_work:
        os.kill(pid, signal.SIGSTOP)
    parent.kill()
    parent.wait()
    with pytest.raises(BadInput, match="must not be in use; another process is writing to it"):
        local.execute(study(), out, where=ALONE, resume=True)
    for pid in at_work:
        os.kill(pid, signal.SIGCONT)
    said = parent.communicate(timeout=60)  # comes to an end when the last process has that could say something
    assert said[1] == ""
    assert any(steps_kept(out))
    assert_same(local.execute(study(), out, where=ALONE, resume=True).path, unbroken)


# The same conversation, with workers that are threads of this process: quick, and they can be made to fail


class ThreadAsProcess:
    """A worker without the seconds that a process takes to come up."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.exitcode, self.pid = 0, 0
        self.pipe = Connection(os.dup(args[0].fileno()))  # the parent closes its own
        self.thread = threading.Thread(target=self.run, args=(target, *args[1:]))
        self.start = self.thread.start

    def run(self, target: Callable[..., None], *rest: Any) -> None:
        with contextlib.suppress(SystemExit):
            target(self.pipe, *rest)
        self.kill()

    def kill(self) -> None:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.pipe.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        self.thread.join(20)
        assert not self.thread.is_alive()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes.signal, "signal", lambda *_: None)  # a thread must not
    context = SimpleNamespace(Pipe=Pipe, Process=ThreadAsProcess)
    monkeypatch.setattr(processes, "get_context", lambda method: context)


@dataclass
class Trained:
    """What became of stacks that two workers were given."""

    order: list[int]
    peaks: dict[int, int | None]
    log: list[str]
    error: Exception | None


def converse(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    queue: dict[int, list[Member]],
    act: Callable[[int], object] = lambda index: None,
    stop: Callable[[], bool] = lambda: False,
    report: Callable[[int, Progress], None] = lambda index, progress: None,
) -> Trained:
    """Give these stacks to two workers; instead of training a stack they tell one progress and `act`."""
    seen = Trained([], {}, [], None)

    def train(
        study: Study, task: Any, members: Any, where: Where, folder: Path, index: int, tell: Any, stop: Any
    ) -> int:
        seen.order.append(index)
        tell(Progress(1, 0.5))
        act(index)
        if stop():
            raise Interrupted
        return 100 * index

    monkeypatch.setattr(processes.stacks, "train", train)
    try:
        crew = Crew(2, 1, 1)
        processes.train_all(
            study(), queue, TWO, Folder(folder, {}), crew, report, seen.peaks.__setitem__, seen.log.append, stop
        )
    except (BadInput, OSError, Interrupted, WorkerFailed) as error:
        seen.error = error
    return seen


def sized(*sizes: int) -> dict[int, list[Member]]:
    return {index: [Member()] * size for index, size in enumerate(sizes)}


@pytest.mark.usefixtures("threads")
def test_the_largest_stacks_are_handed_out_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, pair = list[int](), threading.Barrier(2, timeout=20)
    seen = converse(
        *(monkeypatch, tmp_path, sized(1, 3, 2, 5)),
        act=lambda index: pair.wait(),
        report=lambda index, progress: told.append(index),
    )
    assert seen.error is None
    assert set(seen.order[:2]) == {3, 1} and set(seen.order[2:]) == {2, 0}
    assert sorted(told) == [0, 1, 2, 3]
    assert seen.peaks == {0: 0, 1: 100, 2: 200, 3: 300}


@pytest.mark.usefixtures("threads")
def test_a_stop_reaches_every_worker_and_nothing_new_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def act(index: int) -> None:
        asked.wait(10)
        time.sleep(0.5)  # until the parent has looked

    def stop() -> bool:
        return asked.is_set()

    seen = converse(
        monkeypatch, tmp_path, sized(1, 1, 1, 1), act, stop, lambda index, progress: asked.set() if index else None
    )
    assert isinstance(seen.error, Interrupted)
    assert sorted(seen.order) == [0, 1]
    assert seen.peaks == {}


@pytest.mark.usefixtures("threads")
def test_what_goes_wrong_in_a_worker_is_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def divide(index: int) -> None:
        1 // index

    seen = converse(monkeypatch, tmp_path, sized(2, 1), divide)
    said = (
        r"worker \d of 2 has failed in stack 1 \(ZeroDivisionError: integer division or modulo by zero\); finished .*"
    )
    assert isinstance(seen.error, WorkerFailed) and re.fullmatch(said, str(seen.error))
    assert "1 // index" in seen.log[0]  # the diary says where

    def fill(index: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    seen = converse(monkeypatch, tmp_path, sized(2, 1), fill)
    assert isinstance(seen.error, OSError) and seen.error.errno == errno.ENOSPC

    def leave(index: int) -> None:
        raise SystemExit

    seen = converse(monkeypatch, tmp_path, sized(2, 1), leave)
    assert isinstance(seen.error, WorkerFailed) and "(exit code 0)" in str(seen.error)

    def run_out(index: int) -> None:
        raise BadInput("the GPU must have room.")

    seen = converse(monkeypatch, tmp_path, sized(2, 1), run_out)
    assert isinstance(seen.error, BadInput) and str(seen.error) == "the GPU must have room."


def missing() -> Study:
    raise AttributeError("Can't get attribute 'Homemade' on <module '__main__' (built-in)>")


@dataclass(frozen=True)
class Homemade(LstSigma):
    """A study from a notebook: the process that comes up finds nothing of that name."""

    name = "homemade"

    def __reduce__(self) -> Any:
        return missing, ()


@pytest.mark.usefixtures("threads")
def test_a_study_that_a_worker_cannot_import_is_told(tmp_path: Path) -> None:
    fields = {name: getattr(study(), name) for name in study().fields()}
    with pytest.raises(BadInput) as error:
        local.execute(Homemade(**fields), tmp_path / "a", where=TWO)
    assert str(error.value) == (
        "the study homemade must be one that a new process can import, with what it registers, from a module; this one "
        "is not (Can't get attribute 'Homemade' on <module '__main__' (built-in)>): move it to a module, or train it "
        "in this process with 1 worker."
    )

    class Within(LstSigma):
        name = "within"

    with pytest.raises(BadInput, match=r"the study within must be one that .*<locals>.Within'\): move it to a module"):
        local.execute(Within(**fields), tmp_path / "b", where=TWO)


@pytest.mark.usefixtures("threads")
def test_an_encoding_that_only_the_parent_knows_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = converse(monkeypatch, tmp_path, {0: [Member(encoding="mine")], 1: [Member()]})
    assert isinstance(seen.error, BadInput)
    assert str(seen.error).startswith("the study lst-sigma must be one that a new process can import, with what it ")
    assert "got 'mine'): move it to a module" in str(seen.error)


@pytest.mark.usefixtures("threads")
def test_a_listener_that_fails_stops_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def report(index: int, progress: Progress) -> None:
        raise OSError(errno.EPIPE, "nobody listens")

    seen = converse(monkeypatch, tmp_path, sized(1, 1), lambda index: time.sleep(0.5), report=report)
    assert isinstance(seen.error, OSError) and seen.error.errno == errno.EPIPE


def test_a_script_without_a_guard_is_told_why() -> None:
    process = SimpleNamespace(exitcode=1)
    worker = processes.Worker("worker 1 of 2", process, None)  # type: ignore[arg-type]
    assert "(exit code 1; a script that starts workers must do so under if __name__ == '__main__')" in str(
        worker.failure(worker.describe_exit())
    )
