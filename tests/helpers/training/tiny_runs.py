"""An experiment of Latin squares that trains in a second, interrupted runs of it, and comparison of run folders."""

from pathlib import Path
from typing import Any

import pytest

from placecode import experiments
from placecode.execution import local
from placecode.execution.progress import Event, Interrupted
from placecode.execution.settings import ExecutionSettings
from placecode.experiments import Experiment
from placecode.runs.read import TENSORS

RESULTS = ("members.parquet", "metrics.parquet", "analysis.parquet", "summary.json", *TENSORS)
"""Files with numbers, which are equal byte for byte if an experiment is run again."""
SETTINGS: dict[str, Any] = {"sigmas": (0.1, 2.0), "seeds": (0, 1), "epochs": 3, "evaluations": 3, "references": ()}
SETTINGS |= {"per_class": 20, "heldout": 9, "distance": 0.5, "width": 8, "heads": 2, "layers": 1, "batch": 16}


def tiny(**settings: Any) -> Experiment:
    """Return lst-sigma with 4 members of 1 small block on 54 puzzles, 4 steps per epoch."""
    return experiments.lookup("lst-sigma").from_scale("quick", **{**SETTINGS, **settings})


def stop_run(experiment: Experiment, out: Path, execution: ExecutionSettings, events: int) -> list[Event]:
    """Execute an experiment, stop it after so many events, and return the events."""
    log: list[Event] = []
    stop = lambda: len(log) >= events  # noqa: E731
    with pytest.raises(Interrupted):
        local.execute(experiment, out, execution=execution, resume=True, notify=log.append, stop=stop)
    return log


def assert_same(run: Path, expected: Path) -> None:
    """Assert that two finished runs have the same bytes, and that no checkpoints or temporary files are left."""
    names = {path.name for path in expected.iterdir()}
    assert {path.name for path in run.iterdir()} == names and "checkpoints" not in names
    for name in names - {"environment.json", "log.txt"}:
        assert (run / name).read_bytes() == (expected / name).read_bytes(), f"{name} differs"
