"""Workers that are up soon, for all tests that are not about how they come up."""

from __future__ import annotations

from multiprocessing import get_context

import pytest

from placecode.execution import processes


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers copied from a process that has everything imported, which takes most of the time of a new one."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["placecode.execution.processes"])
    monkeypatch.setattr(processes, "get_context", lambda method: context)
