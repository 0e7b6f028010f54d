"""Stacks in worker processes: the same bytes as in one process, whichever process is killed, stopped or fails.

Tested with several workers on a CPU, since no machine with several GPUs was available.
"""

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
from helpers.training.tiny_runs import SETTINGS, assert_same, tiny

from placecode import cli
from placecode.errors import BadInput
from placecode.execution import checkpoints, local, processes
from placecode.execution.progress import Event, Interrupted, WorkerFailed
from placecode.execution.settings import Concurrency, ExecutionSettings
from placecode.experiments import Experiment
from placecode.experiments.latin.squares import LstSigma
from placecode.models.member import Member
from placecode.runs.write import Folder
from placecode.training.trainer import Progress

EXPERIMENT = tiny(epochs=100, evaluations=20)
"""Two stacks of two members, 400 steps, evaluated 20 times: about a second each."""
FLAGS = {**SETTINGS, "sigmas": "0.1,2.0", "seeds": 2, "references": "", "epochs": 100, "evaluations": 20}
CHILDREN = "/proc/{pid}/task/{pid}/children"
ALONE, TWO = ExecutionSettings("cpu", stack=2), ExecutionSettings("cpu", stack=2, workers=2)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run in this process without interruption."""
    return local.execute(EXPERIMENT, tmp_path_factory.mktemp("runs") / "unbroken", execution=ALONE).path


class Listener:
    """A callback that calls `act` once, as soon as both stacks are training."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.act, self.training, self.done = act, set[int](), False

    def __call__(self, event: Event) -> None:
        if event.progress.step:
            self.training.add(event.stack)
        if self.training == {0, 1} and not self.done:
            self.done = True
            self.act()


def saved_steps(out: Path) -> list[int | None]:
    return [checkpoints.verify(out / "checkpoints", f"stack-{index:03d}") for index in (0, 1)]


@pytest.mark.usefixtures("quick_workers")
def test_a_run_whose_worker_is_killed_can_be_resumed(unbroken: Path, tmp_path: Path) -> None:
    """The worker of the other stack saves a checkpoint and stops."""
    out = tmp_path / "run"
    listener = Listener(lambda: os.kill(active_children()[0].pid or 0, signal.SIGKILL))
    with pytest.raises(WorkerFailed) as error:
        local.execute(EXPERIMENT, out, execution=TWO, notify=listener)
    assert re.match(r"worker \d of 2 has failed in stack \d \(killed by signal 9\)", str(error.value))
    assert str(error.value) in (out / "log.txt").read_text()
    assert active_children() == []
    assert any(saved_steps(out))
    run = local.execute(EXPERIMENT, out, execution=TWO, resume=True)
    assert_same(run.path, unbroken)
    assert (run.environment["processes"], run.environment["threads per stack"]) == (2, 1)
    assert run.environment["split"] == ["0:2", "2:4"]
    assert active_children() == []


@pytest.mark.usefixtures("quick_workers")
def test_ctrl_c_stops_all_workers(unbroken: Path, tmp_path: Path) -> None:
    """A terminal sends it to every process. Workers ignore it, and the parent tells them to save and stop."""

    def interrupt() -> None:
        for worker in active_children():
            os.kill(worker.pid or 0, signal.SIGINT)
            os.kill(worker.pid or 0, signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)

    out = tmp_path / "run"
    with cli.stop_on_signals() as stopped, pytest.raises(Interrupted):
        local.execute(EXPERIMENT, out, execution=TWO, notify=Listener(interrupt), stop=stopped)
    assert active_children() == []
    assert all(saved_steps(out))
    assert_same(local.execute(EXPERIMENT, out, execution=ALONE, resume=True).path, unbroken)


def workers_of(pid: int) -> list[int]:
    """Return the ids of the worker processes of a process."""
    workers = []
    for child in Path(CHILDREN.format(pid=pid)).read_text().split():
        with contextlib.suppress(OSError):  # it has just ended
            if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text():
                workers.append(int(child))
    return workers


@pytest.mark.skipif(not Path(CHILDREN.format(pid=os.getpid())).exists(), reason="needs /proc/PID/task/PID/children")
def test_workers_whose_parent_is_killed_save_and_hold_the_lock_until_they_exit(unbroken: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "placecode.cli", "run", "lst-sigma", "--device", "cpu", "--stack", "2"]
    command += ["--workers", "2", "--out", str(out)]
    for name, value in FLAGS.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    source = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(cli.__file__).parents[2])}
    pipe = subprocess.PIPE
    parent = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env={**os.environ, **source})
    assert parent.stdout is not None
    while len(workers := workers_of(parent.pid)) < 2:
        assert parent.poll() is None
        time.sleep(0.05)
    for pid in workers:
        os.kill(pid, signal.SIGINT)  # ignored even while they start
    next(line for line in parent.stdout if re.match(r"stack \d/2  step [1-9]", line))
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    parent.kill()
    parent.wait()
    with pytest.raises(BadInput, match="must not be in use; another process is writing to it"):
        local.execute(EXPERIMENT, out, execution=ALONE, resume=True)
    for pid in workers:
        os.kill(pid, signal.SIGCONT)
    _, errors = parent.communicate(timeout=60)  # returns when the last process that has the pipe has exited
    assert errors == ""
    assert any(saved_steps(out))
    assert_same(local.execute(EXPERIMENT, out, execution=ALONE, resume=True).path, unbroken)


class ThreadAsProcess:
    """A worker that is a thread of this process, so it starts at once and can be made to fail."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.exitcode, self.pid = 0, 0
        self.pipe = Connection(os.dup(args[0].fileno()))  # the parent closes the original
        self.thread = threading.Thread(target=self.run, args=(target, *args[1:]))
        self.start = self.thread.start

    def run(self, target: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(SystemExit):
            target(self.pipe, *arguments)
        self.kill()

    def kill(self) -> None:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.pipe.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        self.thread.join(20)
        assert not self.thread.is_alive()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes.signal, "signal", lambda *_: None)  # not allowed in a thread
    context = SimpleNamespace(Pipe=Pipe, Process=ThreadAsProcess)
    monkeypatch.setattr(processes, "get_context", lambda method: context)


@dataclass
class Trained:
    """Results of stacks that were trained by two workers."""

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
    """Give stacks to two workers, which report progress once and call `act(index)` instead of training."""
    trained = Trained([], {}, [], None)

    def train(experiment: Experiment, task: Any, members: Any, execution: ExecutionSettings, *rest: Any) -> int:
        _, index, send, stop = rest
        trained.order.append(index)
        send(Progress(1, 0.5))
        act(index)
        if stop():
            raise Interrupted
        return 100 * index

    monkeypatch.setattr(processes.stacks, "train", train)
    try:
        done, log = trained.peaks.__setitem__, trained.log.append
        processes.train_all(EXPERIMENT, queue, TWO, Folder(folder, {}), Concurrency(2, 1, 1), report, done, log, stop)
    except (BadInput, OSError, Interrupted, WorkerFailed) as error:
        trained.error = error
    return trained


def sized(*sizes: int) -> dict[int, list[Member]]:
    return {index: [Member()] * size for index, size in enumerate(sizes)}


@pytest.mark.usefixtures("threads")
def test_the_largest_stacks_are_handed_out_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reported, both_training = list[int](), threading.Barrier(2, timeout=20)
    report = lambda index, progress: reported.append(index)  # noqa: E731
    trained = converse(monkeypatch, tmp_path, sized(1, 3, 2, 5), act=lambda index: both_training.wait(), report=report)
    assert trained.error is None
    assert set(trained.order[:2]) == {3, 1} and set(trained.order[2:]) == {2, 0}
    assert sorted(reported) == [0, 1, 2, 3]
    assert trained.peaks == {0: 0, 1: 100, 2: 200, 3: 300}


@pytest.mark.usefixtures("threads")
def test_a_stop_reaches_every_worker_and_starts_no_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()

    def act(index: int) -> None:
        stop.wait(10)
        time.sleep(0.3)  # until the parent has polled

    def report(index: int, progress: Progress) -> None:
        if index:
            stop.set()

    trained = converse(monkeypatch, tmp_path, sized(1, 1, 1, 1), act, stop.is_set, report)
    assert isinstance(trained.error, Interrupted)
    assert sorted(trained.order) == [0, 1] and trained.peaks == {}


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (ZeroDivisionError("by zero"), WorkerFailed, r"of 2 has failed in stack \d \(ZeroDivisionError"),
        (SystemExit(), WorkerFailed, r"\(exit code 0\)"),
        (OSError(errno.ENOSPC, "No space left on device"), OSError, "No space left on device"),
        (BadInput("the GPU must have room."), BadInput, "^the GPU must have room.$"),
    ],
)
def test_errors_of_a_worker_reach_the_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: BaseException, kind: type[Exception], text: str
) -> None:
    def act(index: int) -> None:
        raise raised

    trained = converse(monkeypatch, tmp_path, sized(2, 1), act)
    assert isinstance(trained.error, kind) and re.search(text, str(trained.error))
    if isinstance(raised, ZeroDivisionError):
        assert "raise raised" in trained.log[0]  # the traceback


def missing() -> Experiment:
    raise AttributeError("Can't get attribute 'Homemade' on <module '__main__' (built-in)>")


@dataclass(frozen=True)
class Homemade(LstSigma):
    """An experiment from a notebook, which a new process cannot import."""

    name = "homemade"

    def __reduce__(self) -> Any:
        return missing, ()


@pytest.mark.usefixtures("threads")
def test_an_experiment_that_a_worker_cannot_import_is_rejected(tmp_path: Path) -> None:
    class Within(LstSigma):
        name = "within"

    fields = {name: getattr(EXPERIMENT, name) for name in EXPERIMENT.fields()}
    for experiment, reason in ((Homemade(**fields), r"on <module '__main__'"), (Within(**fields), "<locals>.Within'")):
        message = rf"the experiment {experiment.name} must be one that .*{reason}.*: move it to a module"
        with pytest.raises(BadInput, match=message):
            local.execute(experiment, tmp_path / experiment.name, execution=TWO)


@pytest.mark.usefixtures("threads")
def test_a_callback_that_fails_stops_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def report(index: int, progress: Progress) -> None:
        raise OSError(errno.EPIPE, "nobody listens")

    trained = converse(monkeypatch, tmp_path, sized(1, 1), lambda index: time.sleep(0.2), report=report)
    assert isinstance(trained.error, OSError) and trained.error.errno == errno.EPIPE
