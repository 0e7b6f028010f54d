"""Options that the commands `run` and `fit` share (output folder, device, resuming), and stopping with Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from placecode.errors import BadInput, value_of
from placecode.execution.settings import DEFAULT_MEMORY_SHARE, DEFAULT_STACK_SIZE, ExecutionSettings


def add_run_options(parser: argparse.ArgumentParser, default_out: str) -> None:
    """Add the options for the output folder, the device, and what to do if the folder already has a run.

    `default_out` is the default output folder as the help shows it.
    """
    sizes = ", ".join(f"{size} on {device}" for device, size in DEFAULT_STACK_SIZE.items())
    parser.add_argument("--out", type=Path, help=f"run folder (default: {default_out})")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument(
        "--precision",
        default="high",
        help="precision of matrix products on a GPU: high (float16 inputs), tf32 or highest (float32); or bf16, which "
        "also works on a CPU",
    )
    parser.add_argument(
        "--stack",
        metavar="N",
        help=f"maximum number of members to train together; memory may allow fewer (default: {sizes})",
    )
    parser.add_argument(
        "--memory", default=str(DEFAULT_MEMORY_SHARE), metavar="SHARE", help="maximum share of GPU memory to use"
    )
    parser.add_argument("--resume", action="store_true", help="continue an unfinished run in the output folder")
    parser.add_argument("--force", action="store_true", help="overwrite a run in the output folder")
    parser.add_argument("--dry-run", action="store_true", help="estimate time and memory without training")


def execution_settings(arguments: argparse.Namespace) -> ExecutionSettings:
    """Return the execution settings (device, precision, ...) from the parsed options.

    Raises BadInput if they are invalid. The command `fit` has no --workers and no --plain, and uses their defaults.
    """
    if arguments.resume and arguments.force:
        raise BadInput(
            "--resume and --force must not be used together: one keeps the earlier run, the other deletes it."
        )
    stack, workers = (
        None if text is None else value_of(name, text, int)
        for name, text in (("stack", arguments.stack), ("workers", getattr(arguments, "workers", None)))
    )
    share = value_of("memory", arguments.memory, float)
    plain = getattr(arguments, "plain", False)
    return ExecutionSettings(arguments.device, arguments.precision, stack, share, workers, plain)


@contextmanager
def stop_on_signals() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether SIGINT (Ctrl-C) or SIGTERM was received. A second one stops immediately."""
    stopped = False

    def handle(number: int, frame: types.FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        signal.signal(number, signal.default_int_handler)

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: stopped
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
