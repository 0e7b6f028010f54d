"""Fixtures with small runs that are really trained, once for all tests that read them."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.beyond import smallest

from placecode.execution import local
from placecode.experiments.base import Experiment
from placecode.experiments.channels import structure
from placecode.experiments.channels.network import NetworkSigma
from placecode.experiments.channels.synergy import SynergyOptimizer
from placecode.runs.read import Run

SMALL: dict[str, Any] = {
    **{"train": 200, "test": 30, "width": 8, "layers": 1, "batch": 8, "steps": 4, "evaluations": 2},
    "baseline_names": ("linear", "fc", "partial correlation"),
}
"""Settings with which experiments of channels train in a moment."""


TINY_DATA = ["--per-class", "20", "--heldout", "9", "--distance", "0.5"]
TINY_RUN = ["run", "lst-sigma", *TINY_DATA, "--epochs", "2", "--evaluations", "2", "--width", "8", "--heads", "2"]
TINY_RUN += ["--layers", "1", "--batch", "16", "--sigmas", "0.1,2.0", "--seeds", "2", "--references", ""]
TINY_RUN += ["--device", "cpu", "--stack", "2"]
"""The arguments of a command that trains four members in two stacks, in less than a second."""


def execute(experiment: Experiment, folder: Path) -> Run:
    """Execute an experiment and return the run, with few permutations, since no test here depends on the p-values."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("DRAWS", "SLOW_DRAWS"):
            patch.setattr(structure, name, 9, raising=False)
        return local.execute(experiment, folder)


@pytest.fixture(scope="session")
def rates_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run with three learning rates and two seeds each; with the largest rate all members diverge."""
    settings = {"sigmas": (0.2,), "optimizers": ("adam",), "rates": (1e-3, 0.1, 1e30), "seeds": (0, 1), "groups": 3}
    return execute(SynergyOptimizer.from_scale("quick", **SMALL, **settings), tmp_path_factory.mktemp("rates") / "run")


@pytest.fixture(scope="session")
def sigmas_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run with all sigmas that the claims on networks use, and two seeds each."""
    settings = {"sigmas": (0.01, 0.2, 2.0), "seeds": (0, 1), "nodes": 8, "clusters": 2}
    return execute(NetworkSigma.from_scale("quick", **SMALL, **settings), tmp_path_factory.mktemp("sigmas") / "run")


@pytest.fixture(scope="session")
def beyond(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """Return a function that trains the smallest run of an experiment beyond the paper, by its name, and caches it."""
    return functools.cache(lambda name: local.execute(smallest(name), tmp_path_factory.mktemp("beyond") / name))
