"""Worker processes that start quickly, for tests that are not about their start."""

from __future__ import annotations

from multiprocessing import get_context

import pytest

from placecode.execution import processes


@pytest.fixture
def quick_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork workers from a process that has imported everything, which takes most of the time of a new process."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["placecode.execution.processes"])
    monkeypatch.setattr(processes, "get_context", lambda method: context)
