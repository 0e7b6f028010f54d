"""Training stacks in processes of their own, one for each GPU; the process that starts them hands out the stacks.

Each worker is tied to its parent by a pipe of its own, so that none can harm another's, however it ends. Down the pipe
come the study, then one stack after the other, and at last None: save and stop. Up come the progress of the stack, the
bytes that it took, or what went wrong. A pipe that breaks says the same as None: a worker whose parent is gone saves
and ends. The study travels as an object, so its class must be one that a new process can import.
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
from placecode.execution.contract import Experiment
from placecode.execution.progress import Interrupted, Stop, WorkerFailed
from placecode.execution.where import Crew, Where
from placecode.models.member import Member
from placecode.runs.write import Folder
from placecode.training.trainer import Progress

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""What a terminal or a batch system sends to every process: the parent alone decides what becomes of it."""
SECONDS_BETWEEN_LOOKS = 0.1


@dataclass(frozen=True)
class Ready:
    """A worker waits for its next stack; `peak` are the bytes of the GPU that the one before took."""

    peak: int | None = None


@dataclass(frozen=True)
class Failure:
    """What went wrong in a worker, and where."""

    what: str
    trace: str


class Ended:
    """There is nobody at the other end."""


@dataclass
class Worker:
    """A worker as its parent sees it."""

    name: str
    process: BaseProcess
    pipe: Connection
    stack: int | None = None
    heard: bool = False

    def hear(self) -> Any:
        try:
            message = self.pipe.recv()
        except (EOFError, OSError):  # its last word may be cut short
            self.process.join()
            return Ended()
        self.heard = True
        return message

    def tell(self, message: Any) -> None:
        with contextlib.suppress(ConnectionError):  # that it is gone is found out when it is listened to
            self.pipe.send(message)

    def failed(self, what: str) -> WorkerFailed:
        place = "" if self.stack is None else f" in stack {self.stack + 1}"
        rest = "finished stacks and the last checkpoints are kept: go on with --resume"
        return WorkerFailed(f"{self.name} has failed{place} ({what}); {rest}.")

    def ending(self) -> str:
        code = self.process.exitcode or 0
        if code < 0:
            return f"killed by signal {-code}"
        hint = "; a script that starts workers must do so under if __name__ == '__main__'"
        return f"exit code {code}{'' if self.heard else hint}"


def train_all(
    study: Experiment,
    queue: Mapping[int, Sequence[Member]],
    where: Where,
    folder: Folder,
    crew: Crew,
    report: Callable[[int, Progress], None],
    done: Callable[[int, int | None], None],
    log: Callable[[str], None],
    stop: Stop,
) -> None:
    """Train these stacks in the processes of a crew, the largest first. When one fails, the others save and stop."""
    waiting = sorted(queue, key=lambda index: -len(queue[index]))
    unfinished, stopping = set(queue), False
    error: Exception | None = None

    def take(worker: Worker, message: Any) -> None:
        """What a worker says, and the answer; raises what went wrong."""
        if isinstance(message, Progress):
            assert worker.stack is not None
            report(worker.stack, message)
        elif isinstance(message, Ready):
            if worker.stack is not None:
                unfinished.discard(worker.stack)
                done(worker.stack, message.peak)
            worker.stack = waiting.pop(0) if waiting and not stopping else None
            worker.tell(None if worker.stack is None else (worker.stack, queue[worker.stack]))
        elif isinstance(message, Failure):
            log(f"{worker.name}: {message.trace}")
            raise worker.failed(message.what)
        elif isinstance(message, Exception):
            raise message
        elif worker.process.exitcode or (worker.stack is not None and not stopping):
            raise worker.failed(worker.ending())

    with _started(study, where, folder, crew) as workers:
        while workers and unfinished:  # whoever has nothing to do, or still comes up, need not be waited for
            heard = wait([worker.pipe for worker in workers], SECONDS_BETWEEN_LOOKS)
            for worker in [worker for worker in workers if worker.pipe in heard]:
                message = worker.hear()
                if isinstance(message, Ended):
                    workers.remove(worker)
                try:
                    take(worker, message)
                except Exception as raised:
                    error = error or raised
            if not stopping and (error is not None or stop()):
                stopping = True
                for worker in workers:
                    worker.tell(None)
    if error is not None:
        raise error
    if unfinished:
        raise Interrupted


@contextlib.contextmanager
def _started(study: Experiment, where: Where, folder: Folder, crew: Crew) -> Iterator[list[Worker]]:
    """Workers that have been told the study. Whoever is left at the end is ended."""
    workers: list[Worker] = []
    context = get_context("spawn")
    try:
        with _deaf():
            for number in range(crew.processes):
                pipe, other = context.Pipe()
                process = context.Process(target=work, args=(other, number, folder.lock is not None))
                process.start()
                other.close()  # else the pipe would not break when the worker ends
                workers.append(Worker(f"worker {number + 1} of {crew.processes}", process, pipe))
        for worker in workers:
            with contextlib.suppress(ConnectionError):
                if folder.lock is not None:  # the folder is in use until the last worker has ended
                    reduction.send_handle(worker.pipe, folder.lock, worker.process.pid)
            worker.tell((study.name, where, folder.checkpoints, crew.threads))
            try:
                worker.tell(study)
            except Exception as error:
                raise _unknown(study.name, error) from error
        yield list(workers)
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join()


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Processes that are started meanwhile hear none of the signals, from their first moment on."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows: from the moment that they have come up
        yield
        return
    resource_tracker.ensure_running()  # its own start would end the silence
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _unknown(study: str, error: Exception) -> BadInput:
    return BadInput(
        f"the study {study} must be one that a new process can import, with what it registers, from a module; this "
        f"one is not ({str(error).rstrip('.')}): move it to a module, or train it in this process with 1 worker."
    )


def work(pipe: Connection, number: int, held: bool) -> None:
    """What a worker does: train the stacks that it is given, until it is told to stop or its parent is gone."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    warnings.simplefilter("ignore", UserWarning)  # what is doubtful of the data, the parent has said

    def tell(message: Any) -> None:
        with contextlib.suppress(ConnectionError):  # whether the parent is gone is asked elsewhere
            pipe.send(message)

    try:
        with contextlib.suppress(EOFError, ConnectionError, Interrupted):
            _work(pipe, number, held, tell)
    except (BadInput, OSError) as error:
        tell(error)
    except Exception as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        tell(Failure(what.rstrip("."), traceback.format_exc()))


def _work(pipe: Connection, number: int, held: bool, tell: Callable[[Any], None]) -> None:
    if held:
        reduction.recv_handle(pipe)  # never closed: it ends with the process
    name, where, folder, threads = pipe.recv()
    try:
        study = pipe.recv()
    except (ImportError, AttributeError) as error:
        raise _unknown(name, error) from error
    torch.set_num_threads(threads)
    if where.device == "cuda":
        torch.cuda.set_device(number)
    task = study.data()
    tell(Ready())
    with where.arithmetic():
        while (job := pipe.recv()) is not None:
            index, members = job
            try:
                for member in members:
                    encodings.lookup(member.encoding)
            except BadInput as error:
                raise _unknown(name, error) from error
            peak = stacks.train(study, task, members, where, folder, index, tell, pipe.poll)
            tell(Ready(peak))
