"""An uninterrupted run to compare with, and worker processes that start quickly."""

from multiprocessing import get_context

import pytest
from helpers.training.tiny_runs import tiny

from placecode.execution import local, processes
from placecode.execution.settings import ExecutionSettings
from placecode.runs.read import Run


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run of the tiny experiment in two stacks of two members. No test changes it."""
    two_stacks = ExecutionSettings("cpu", stack=2)
    return local.execute(tiny(), tmp_path_factory.mktemp("runs") / "unbroken", execution=two_stacks)


@pytest.fixture
def quick_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork workers from a process that has imported everything, which takes most of the time of a new process."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["placecode.execution.processes"])
    monkeypatch.setattr(processes, "get_context", lambda method: context)
