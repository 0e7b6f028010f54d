"""Options that the commands `run` and `fit` share (output folder, device, resuming), and stopping with Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from placecode.cli import flags
from placecode.errors import BadInput
from placecode.execution.settings import ExecutionSettings


def add_run_options(parser: argparse.ArgumentParser, default_out: str, execution: Sequence[str] | None = None) -> None:
    """Add the options for the output folder, the device, and what to do if the folder already has a run.

    `default_out` is the default output folder as the help shows it. `execution` are the fields of `ExecutionSettings`
    that get an option, by default all.
    """
    parser.add_argument("--out", type=Path, help=f"run folder (default: {default_out})")
    flags.add_settings(parser, ExecutionSettings, execution, show_defaults=True)
    parser.add_argument("--resume", action="store_true", help="continue an unfinished run in the output folder")
    parser.add_argument("--force", action="store_true", help="overwrite a run in the output folder")
    parser.add_argument("--dry-run", action="store_true", help="estimate time and memory without training")


def execution_settings(arguments: argparse.Namespace) -> ExecutionSettings:
    """Return the execution settings (device, precision, ...) from the parsed options, or raise BadInput if they are
    invalid. Settings without an option have their defaults."""
    if arguments.resume and arguments.force:
        raise BadInput(
            "--resume and --force must not be used together: one keeps the earlier run, the other deletes it."
        )
    return ExecutionSettings(**flags.settings(arguments, ExecutionSettings))


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
