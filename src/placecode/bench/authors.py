"""Time an external training script, such as that of a paper's authors, from two runs of different length.

    placecode bench --authors "python /their/checkout/train.py --epochs {epochs}"

The command trains one model with the sizes of the case lst-paper. In it, {steps} or {epochs} is replaced by the length
of training, in steps or in epochs of 64 steps. The time per step is the difference between a longer and a shorter run,
divided by the difference in steps, so that the time to start, load the data and exit cancels. It is not checked that
the script trains a model with these sizes.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import time
from typing import Any

from placecode.bench.cases import EPOCH
from placecode.errors import must_be

SHORT, LONG = 1, 3
"""Number of epochs of the shorter and of the longer run."""


def words_of(command: str, epochs: int) -> list[str]:
    """Split a command into words, without a shell, and replace its placeholders {steps} and {epochs}."""
    values = {"steps": str(epochs * EPOCH), "epochs": str(epochs)}
    return [re.sub(r"\{(steps|epochs)\}", lambda match: values[match[1]], word) for word in shlex.split(command)]


def check(command: str) -> None:
    """Raise BadInput if the command has no placeholder, an open quote, or a program that does not exist."""
    allowed = "a command with {steps} or {epochs} in it, whose program is there"
    try:
        words = words_of(command, SHORT)
    except ValueError:  # a quote is not closed
        raise must_be("authors", allowed, command) from None
    if not words or words == words_of(command, LONG) or shutil.which(words[0]) is None:
        raise must_be("authors", allowed, command)


def measure(command: str) -> dict[str, Any]:
    """Run the command twice and return {"us_per_model_step": microseconds, "steps": number of timed steps}.

    If the command fails or the longer run is not slower, return {"note": reason}.
    """
    seconds = []
    for epochs in (SHORT, LONG):
        start = time.perf_counter()
        process = subprocess.run(words_of(command, epochs), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - start)
        if process.returncode:
            return {"note": f"the command ended with the code {process.returncode}"}
    steps = (LONG - SHORT) * EPOCH
    if seconds[1] <= seconds[0]:
        return {"note": "the command took no longer for more steps"}
    return {"us_per_model_step": (seconds[1] - seconds[0]) / steps * 1e6, "steps": steps}
