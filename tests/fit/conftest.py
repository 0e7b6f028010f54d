"""Fixtures for tests of fits: they run without UMAP, and no temporary file may be left."""

import tempfile
from collections.abc import Iterator

import pytest

from placecode.fit import others


@pytest.fixture(scope="session", autouse=True)
def _without_umap() -> Iterator[None]:
    """Pretend that UMAP is not installed, since importing it takes longer than all of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(others, "find_spec", lambda name: None)
        yield


@pytest.fixture(autouse=True)
def _no_temporary_file_is_left(tmp_path_factory, monkeypatch) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("passing")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert not [path for path in folder.iterdir() if path.name.startswith("placecode-")]
