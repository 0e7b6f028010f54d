"""The examples in the docstrings of data and tasks hold."""

import doctest
import importlib
import pkgutil

import pytest

from placecode import data, tasks

MODULES = [
    module.name
    for package in (data, tasks)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not module.ispkg
]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name, tmp_path_factory, monkeypatch) -> None:
    monkeypatch.setenv("PLACECODE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    assert doctest.testmod(importlib.import_module(name)).failed == 0
