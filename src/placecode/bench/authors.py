"""Time an external training script: run its command for fewer and for more epochs, and take the difference.

    placecode bench --authors "python /their/checkout/train.py --epochs {epochs}"

{steps} or {epochs} is replaced by the length of training one model of the paper's sizes, in steps or in epochs of 64
steps. The time to start, load the data and exit cancels in the difference. It is not checked that the script trains a
model of the right sizes.
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
"""Number of epochs of the two runs."""


def words_of(command: str, epochs: int) -> list[str]:
    """Split a command into words and replace its placeholders. No shell is involved."""
    values = {"steps": str(epochs * EPOCH), "epochs": str(epochs)}
    return [re.sub(r"\{(steps|epochs)\}", lambda match: values[match[1]], word) for word in shlex.split(command)]


def check(command: str) -> None:
    """Raise BadInput if the command has no placeholder or its program does not exist."""
    allowed = "a command with {steps} or {epochs} in it, whose program is there"
    try:
        words = words_of(command, SHORT)
    except ValueError:  # a quote that is never closed
        raise must_be("authors", allowed, command) from None
    if not words or words == words_of(command, LONG) or shutil.which(words[0]) is None:
        raise must_be("authors", allowed, command)


def measure(command: str) -> dict[str, Any]:
    """Return the microseconds per step of the command, or {"note": reason} if they cannot be measured."""
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
