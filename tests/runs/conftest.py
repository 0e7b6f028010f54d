"""A finished run that all tests of run folders share, and copies of it."""

import shutil
from pathlib import Path

import pytest
from helpers.training.tiny_runs import tiny

from placecode.execution import local
from placecode.execution.settings import ExecutionSettings
from placecode.experiments import Experiment
from placecode.runs.read import Run
from placecode.tasks.base import Task


@pytest.fixture(scope="session")
def experiment() -> Experiment:
    return tiny(epochs=2, evaluations=2)


@pytest.fixture(scope="session")
def task(experiment: Experiment) -> Task:
    return experiment.task()


@pytest.fixture(scope="session")
def run(experiment: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run of two stacks of two members, 8 steps. No test changes it."""
    two_stacks = ExecutionSettings("cpu", stack=2)
    return local.execute(experiment, tmp_path_factory.mktemp("runs") / "whole", execution=two_stacks)


@pytest.fixture
def copy(run: Run, tmp_path: Path) -> Path:
    """A copy of the finished run."""
    return Path(shutil.copytree(run.path, tmp_path / "copy"))
