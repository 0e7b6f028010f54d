"""`placecode doctor` lists what a machine has and what is missing."""

import importlib.metadata
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from placecode.cli import doctor
from placecode.version import VERSION

REQUIRES = ["torch>=2.11", "numpy>=1.26", 'nilearn>=0.1; extra == "brain"', "pytest>=8 ; extra == 'test'"]
REQUIRES += ['placecode[test]; extra == "dev"', 'no-such-linter~=1.0; extra == "dev"', 'no-such-tool; extra == "dev"']
VERSIONS = {"torch": "2.99", "numpy": "1.99", "pytest": "8.9"}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that placecode is installed, with some of its optional packages."""

    def version(name: str) -> str:
        if name not in VERSIONS:
            raise importlib.metadata.PackageNotFoundError(name)
        return VERSIONS[name]

    monkeypatch.setattr(importlib.metadata, "requires", lambda name: REQUIRES)
    monkeypatch.setattr(importlib.metadata, "version", version)


def checks_by_item() -> dict[str, doctor.Check]:
    return {check.item: check for check in doctor.run_checks()}


def test_it_looks_at_versions_device_threads_memory_disk_cache_and_extras(installed: None) -> None:
    checks = checks_by_item()
    names = ["placecode", "Python", "packages", "GPU", "CPU", "CPU kernels", "memory", "free disk here", "cache"]
    assert list(checks) == [*names, "extra brain", "extra test", "extra dev"]
    assert checks["placecode"].status == VERSION
    assert checks["packages"] == doctor.Check("packages", "torch 2.99, numpy 1.99")
    assert checks["CPU"].status == f"{os.cpu_count()} cores, {torch.get_num_threads()} threads used"
    assert checks["CPU kernels"].passed == (checks["CPU kernels"].status == "compiled")
    assert checks["cache"] == doctor.Check("cache", os.environ["PLACECODE_CACHE"])


def test_extras_list_what_is_missing_and_how_to_install_it(installed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = checks_by_item()
    assert checks["extra test"] == doctor.Check("extra test", "complete")
    advice = "missing nilearn; pip install -e '.[brain]' in the project's folder"
    assert checks["extra brain"] == doctor.Check("extra brain", advice, False)
    assert checks["extra dev"].status.startswith("missing no-such-linter, no-such-tool; ")
    monkeypatch.delitem(VERSIONS, "numpy")
    assert checks_by_item()["packages"] == doctor.Check("packages", "torch 2.99; missing: numpy", False)


def test_little_disk_and_memory_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2**29))
    disk = checks_by_item()["free disk here"]
    assert disk.status.startswith("0.5 GiB") and not disk.passed
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2**18}[name])
    assert checks_by_item()["memory"] == doctor.Check("memory", "1.0 GiB", False)


def test_a_cache_that_cannot_be_used_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PLACECODE_CACHE", str(tmp_path / "file" / "cache"))
    cache = checks_by_item()["cache"]
    assert cache.status.startswith(f"{tmp_path / 'file' / 'cache'}; not writable") and not cache.passed
    monkeypatch.setenv("PLACECODE_CACHE", str(tmp_path / "new" / "cache"))
    assert checks_by_item()["cache"].passed
    assert not (tmp_path / "new").exists()  # the check creates no folder


def test_without_an_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = importlib.metadata.PackageNotFoundError("placecode")
    monkeypatch.setattr(importlib.metadata, "requires", Mock(side_effect=missing))
    packages = checks_by_item()["packages"].status
    assert "placecode is not installed" in packages and torch.__version__.split("+")[0] in packages


def test_a_user_without_a_home_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLACECODE_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError("Could not determine home directory.")))
    cache = checks_by_item()["cache"]
    assert cache.status.startswith("none (no home folder)") and not cache.passed
