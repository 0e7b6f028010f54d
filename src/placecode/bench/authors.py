"""Somebody else's training script, timed from outside: the command is run twice, and the difference counts.

    placecode bench --authors "python /their/checkout/train.py --epochs {epochs}"

{steps} or {epochs} stands for how long it is to train one model of the paper's sizes, in steps or in epochs of 64. What
the script takes to start, load its data and end is in both runs, and so not in the difference. That it trains the model
it should is for the one who gives the command to know.
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
"""Epochs of the two runs."""


def words_of(command: str, epochs: int) -> list[str]:
    """The command as words, its placeholders filled in; no shell is involved."""
    values = {"steps": str(epochs * EPOCH), "epochs": str(epochs)}
    return [re.sub(r"\{(steps|epochs)\}", lambda hit: values[hit[1]], word) for word in shlex.split(command)]


def check(command: str) -> None:
    """Refuse what cannot be a command that trains a given number of steps."""
    allowed = "a command with {steps} or {epochs} in it, whose program is there"
    try:
        words = words_of(command, SHORT)
    except ValueError:  # a quote that is never closed
        raise must_be("authors", allowed, command) from None
    if not words or words == words_of(command, LONG) or shutil.which(words[0]) is None:
        raise must_be("authors", allowed, command)


def measure(command: str) -> dict[str, Any]:
    """Microseconds per step of the command; or {"note": why there are none}."""
    taken = []
    for epochs in (SHORT, LONG):
        start = time.perf_counter()
        done = subprocess.run(words_of(command, epochs), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        taken.append(time.perf_counter() - start)
        if done.returncode:
            return {"note": f"the command ended with the code {done.returncode}"}
    steps = (LONG - SHORT) * EPOCH
    if taken[1] <= taken[0]:
        return {"note": "the command took no longer for more steps"}
    return {"us_per_model_step": (taken[1] - taken[0]) / steps * 1e6, "steps": steps}
