"""Train stacks in worker processes, one per GPU. The parent process distributes the stacks.

Each worker has its own pipe to the parent, so that a worker that crashes cannot corrupt the messages of another. The
parent sends the experiment, then one stack after the other, and finally None, which tells the worker to save a
checkpoint and exit. A worker sends progress, the peak memory of a finished stack, or an error. If the parent has
exited, the pipe breaks, and the worker also saves a checkpoint and exits. The experiment is sent as a Python object, so
a new process must be able to import its class.
"""

from __future__ import annotations

import contextlib
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context, reduction, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from placecode import encodings
from placecode.errors import BadInput
from placecode.execution import stacks
from placecode.execution.contract import ExperimentProtocol
from placecode.execution.progress import Interrupted, Stop, WorkerFailed
from placecode.execution.settings import Concurrency, ExecutionSettings
from placecode.models.member import Member
from placecode.runs.write import Folder
from placecode.training.trainer import Progress

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Signals that a terminal or a batch system sends to all processes. Workers ignore them; the parent handles them."""
SECONDS_BETWEEN_POLLS = 0.1
"""Maximum time for which the parent waits for messages before it calls `stop` again."""


@dataclass(frozen=True)
class Ready:
    """Message of a worker that waits for its next stack."""

    peak: int | None = None
    """Peak GPU memory in bytes of the stack that it has just trained. None before the first stack and on a CPU."""


@dataclass(frozen=True)
class Failure:
    """Message of a worker that raised an exception: the text and the traceback of the exception."""

    reason: str
    trace: str


@dataclass
class Worker:
    """A worker process, as the parent sees it."""

    name: str
    """Name in log lines and error messages, such as "worker 1 of 2"."""
    process: BaseProcess
    pipe: Connection
    stack: int | None = None
    """Index of the stack that the worker is training. None if it is not training."""
    has_replied: bool = False
    """Whether the worker has sent any message."""

    def receive(self) -> Any:
        """Return the next message, or None if the worker has exited."""
        try:
            message = self.pipe.recv()
        except (EOFError, OSError):  # the last message may be incomplete
            self.process.join()
            return None
        self.has_replied = True
        return message

    def send(self, message: Any) -> None:
        """Send a message. If the worker has exited, do nothing: `receive` will return None."""
        with contextlib.suppress(ConnectionError):
            self.pipe.send(message)

    def failure(self, reason: str) -> WorkerFailed:
        """Return the error to raise when the worker has failed. `reason` is part of its message."""
        place = "" if self.stack is None else f" in stack {self.stack + 1}"
        advice = "finished stacks and the last checkpoints are kept: continue with --resume"
        return WorkerFailed(f"{self.name} has failed{place} ({reason}); {advice}.")

    def describe_exit(self) -> str:
        """Return a text with the signal or exit code of the process, and a hint if it never sent a message."""
        code = self.process.exitcode or 0
        if code < 0:
            return f"killed by signal {-code}"
        hint = "; a script that starts workers must do so under if __name__ == '__main__'"
        return f"exit code {code}{'' if self.has_replied else hint}"


def train_all(
    experiment: ExperimentProtocol,
    queue: Mapping[int, Sequence[Member]],
    execution: ExecutionSettings,
    folder: Folder,
    concurrency: Concurrency,
    on_progress: Callable[[int, Progress], None],
    on_stack_done: Callable[[int, int | None], None],
    log: Callable[[str], None],
    stop: Stop,
) -> None:
    """Train stacks in worker processes, the largest first. When one fails, the others save a checkpoint and stop.

    Parameters
    ----------
    experiment, execution, folder, concurrency
        The experiment, the settings of the run, the run folder, and the number of processes and threads.
    queue : mapping of int to sequence of Member
        Members of each stack, by the index of the stack.
    on_progress : callable
        `on_progress(index, progress)` is called when a stack makes progress.
    on_stack_done : callable
        `on_stack_done(index, peak)` is called when a stack is finished, with its peak GPU memory in bytes (None on a
        CPU).
    log : callable
        Appends a line to log.txt.
    stop : callable
        Called regularly. When it returns True, all workers save a checkpoint and `Interrupted` is raised.

    Raises
    ------
    Interrupted
        If `stop()` returned True.
    BadInput, OSError
        If a worker raised this error.
    WorkerFailed
        If a worker failed with any other error.
    """
    waiting = sorted(queue, key=lambda index: -len(queue[index]))
    unfinished, stopping = set(queue), False
    error: Exception | None = None

    def handle(worker: Worker, message: Any) -> None:
        """Act on a message of a worker: report its progress, send it the next stack or raise its error.

        The message is None if the worker has exited.
        """
        if isinstance(message, Progress):
            assert worker.stack is not None
            on_progress(worker.stack, message)
        elif isinstance(message, Ready):
            if worker.stack is not None:
                unfinished.discard(worker.stack)
                on_stack_done(worker.stack, message.peak)
            worker.stack = waiting.pop(0) if waiting and not stopping else None
            worker.send(None if worker.stack is None else (worker.stack, queue[worker.stack]))
        elif isinstance(message, Failure):
            log(f"{worker.name}: {message.trace}")
            raise worker.failure(message.reason)
        elif isinstance(message, Exception):
            raise message
        elif worker.process.exitcode or (worker.stack is not None and not stopping):
            raise worker.failure(worker.describe_exit())

    with _started_workers(experiment, execution, folder, concurrency) as workers:
        while workers and unfinished:  # once all stacks are trained, do not wait for idle workers
            pipes = wait([worker.pipe for worker in workers], SECONDS_BETWEEN_POLLS)
            for worker in [worker for worker in workers if worker.pipe in pipes]:
                message = worker.receive()
                if message is None:
                    workers.remove(worker)
                try:
                    handle(worker, message)
                except Exception as raised:
                    error = error or raised
            if not stopping and (error is not None or stop()):
                stopping = True
                for worker in workers:
                    worker.send(None)
    if error is not None:
        raise error
    if unfinished:
        raise Interrupted


@contextlib.contextmanager
def _started_workers(
    experiment: ExperimentProtocol, execution: ExecutionSettings, folder: Folder, concurrency: Concurrency
) -> Iterator[list[Worker]]:
    """Return a context manager that starts the workers, sends them the experiment and returns them.

    At the end of the `with` block, workers that are still running are killed.
    """
    workers: list[Worker] = []
    context = get_context("spawn")
    try:
        with _signals_blocked():
            for number in range(concurrency.processes):
                pipe, worker_pipe = context.Pipe()
                process = context.Process(target=work, args=(worker_pipe, number, folder.lock is not None))
                process.start()
                worker_pipe.close()  # otherwise the pipe would not break when the worker exits
                workers.append(Worker(f"worker {number + 1} of {concurrency.processes}", process, pipe))
        for worker in workers:
            with contextlib.suppress(ConnectionError):
                if folder.lock is not None:  # the folder stays locked until the last worker has exited
                    reduction.send_handle(worker.pipe, folder.lock, worker.process.pid)
            worker.send((experiment.name, execution, folder.checkpoints, concurrency.threads_per_stack))
            try:
                worker.send(experiment)
            except Exception as error:
                raise _not_importable(experiment.name, error) from error
        yield list(workers)
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join()


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Return a context manager that blocks `SIGNALS`, so that new processes receive none before they ignore them."""
    if not hasattr(signal, "pthread_sigmask"):  # on Windows, workers ignore the signals once they have started
        yield
        return
    resource_tracker.ensure_running()  # starting it later would unblock the signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _not_importable(experiment: str, error: Exception) -> BadInput:
    """Return the error for an experiment or encoding that a worker process cannot import."""
    return BadInput(
        f"the experiment {experiment} must be one that a new process can import, with what it registers, from a "
        f"module; this one is not ({str(error).rstrip('.')}): move it to a module, or train it in this process "
        "with 1 worker."
    )


def work(pipe: Connection, number: int, locked: bool) -> None:
    """Run a worker process: train stacks on GPU `number` (or on the CPU) until the parent sends None or has exited.

    If `locked` is true, the first message of the parent is the handle of the run folder's lock. Errors are sent to the
    parent.
    """
    for signal_number in SIGNALS:
        signal.signal(signal_number, signal.SIG_IGN)
    warnings.simplefilter("ignore", UserWarning)  # the parent has already issued warnings about the data

    def send(message: Any) -> None:
        with contextlib.suppress(ConnectionError):  # if the parent has exited, the next attempt to receive fails
            pipe.send(message)

    try:
        with contextlib.suppress(EOFError, ConnectionError, Interrupted):
            _work(pipe, number, locked, send)
    except (BadInput, OSError) as error:
        send(error)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        send(Failure(reason.rstrip("."), traceback.format_exc()))


def _work(pipe: Connection, number: int, locked: bool, send: Callable[[Any], None]) -> None:
    """Receive the experiment from the parent, then train the stacks that it sends. The other arguments are those of
    `work`. `send` sends progress and peak memory to the parent."""
    if locked:
        reduction.recv_handle(pipe)  # not closed, so that the lock is released when the process exits
    name, execution, folder, threads = pipe.recv()
    try:
        experiment = pipe.recv()
    except (ImportError, AttributeError) as error:
        raise _not_importable(name, error) from error
    torch.set_num_threads(threads)
    if execution.device == "cuda":
        torch.cuda.set_device(number)
    task = experiment.build_task()
    send(Ready())
    with execution.arithmetic():
        while (job := pipe.recv()) is not None:
            index, members = job
            try:
                for member in members:
                    encodings.lookup(member.encoding)
            except BadInput as error:
                raise _not_importable(name, error) from error
            peak = stacks.train(experiment, task, members, execution, folder, index, send, pipe.poll)
            send(Ready(peak))
