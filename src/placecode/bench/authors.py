"""Time an external training script, such as that of a paper's authors, from two runs of different length.

    placecode bench --authors "python /their/checkout/train.py --epochs {epochs}"

The command must train one model with the sizes of the case lst-paper, which is not checked. The placeholder {steps} or
{epochs} in it is replaced by the length of training, in steps or in epochs of 64 steps. The time per step is the
difference between a longer and a shorter run, divided by the difference in steps, so that the time to start, load the
data and exit cancels.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import time
from typing import Any

from placecode.bench.cases import BATCHES_PER_EPOCH
from placecode.errors import must_be

SHORT_EPOCHS, LONG_EPOCHS = 1, 3
"""Numbers of epochs of the two runs."""


def split_command(command: str, epochs: int) -> list[str]:
    """Split a shell command into words, with {epochs} replaced by `epochs` and {steps} by the steps of these epochs."""
    values = {"steps": str(epochs * BATCHES_PER_EPOCH), "epochs": str(epochs)}
    return [re.sub(r"\{(steps|epochs)\}", lambda match: values[match[1]], word) for word in shlex.split(command)]


def check(command: str) -> None:
    """Raise BadInput if the command has no placeholder, an open quote, or a program that does not exist."""
    allowed = "a command with {steps} or {epochs} in it, whose program is there"
    try:
        argv = split_command(command, SHORT_EPOCHS)
    except ValueError:  # a quote is not closed
        raise must_be("authors", allowed, command) from None
    if not argv or argv == split_command(command, LONG_EPOCHS) or shutil.which(argv[0]) is None:
        raise must_be("authors", allowed, command)


def measure(command: str) -> dict[str, Any]:
    """Run the command twice and return {"us_per_model_step": microseconds, "steps": number of timed steps}.

    If the command fails or the longer run is not slower, return {"note": reason}.
    """
    seconds = []
    for epochs in (SHORT_EPOCHS, LONG_EPOCHS):
        start = time.perf_counter()
        process = subprocess.run(split_command(command, epochs), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - start)
        if process.returncode:
            return {"note": f"the command ended with the code {process.returncode}"}
    steps = (LONG_EPOCHS - SHORT_EPOCHS) * BATCHES_PER_EPOCH
    if seconds[1] <= seconds[0]:
        return {"note": "the command took no longer for more steps"}
    return {"us_per_model_step": (seconds[1] - seconds[0]) / steps * 1e6, "steps": steps}
