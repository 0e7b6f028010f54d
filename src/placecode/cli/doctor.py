"""Checks of the command `placecode doctor`: which packages, devices, memory and disk space this machine has."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from placecode.compute.cpu.kernels import kernels_for
from placecode.data.puzzle_files import cache_folder
from placecode.version import VERSION

NO_KERNELS = "torch's, which are slower: a C++ compiler (g++) was not found, or failed"
NO_SPACE = "; a paper-scale run can need 1 GiB"


@dataclass(frozen=True)
class Check:
    """Result of one check: the item that was checked, its status in words, and whether it passed."""

    item: str
    status: str
    passed: bool = True


def run_checks() -> list[Check]:
    """Run all checks and return their results, the most basic first."""
    gpu_count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    devices = [torch.cuda.get_device_properties(index) for index in range(gpu_count)]
    gpus = [f"{device.name}, {device.total_memory / 2**30:.0f} GiB" for device in devices]
    has_kernels = kernels_for(torch.zeros(1)).name == "compiled"
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    return [
        Check("placecode", VERSION),
        Check("Python", platform.python_version(), sys.version_info >= (3, 11)),
        _packages(),
        Check("GPU", ", ".join(gpus) or "none that torch can use; experiments run on the CPU (quick scale: minutes)"),
        Check("CPU", f"{os.cpu_count()} cores, {torch.get_num_threads()} threads used"),
        Check("CPU kernels", "compiled" if has_kernels else NO_KERNELS, has_kernels),
        _memory(),
        Check("free disk here", f"{free:.1f} GiB{'' if free >= 1 else NO_SPACE}", free >= 1),
        _cache(),
        *_extras(),
    ]


def _requirements() -> dict[str, list[str]]:
    """Return the names of the required packages for each optional extra of placecode, from its installed metadata.

    The key "" has the packages that are always needed. The result is empty if placecode is not installed.
    """
    try:
        requirements = importlib.metadata.requires("placecode") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    needed: dict[str, list[str]] = {"": []}
    for requirement in requirements:
        name = re.split(r"[\s<>=!~;\[]", requirement, maxsplit=1)[0]
        extra = re.search(r"extra\s*==\s*[\"']([^\"']+)", requirement)
        if name != "placecode":
            needed.setdefault(extra[1] if extra else "", []).append(name)
    return needed


def _version(package: str) -> str | None:
    """Return the version of an installed package, or None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _packages() -> Check:
    """Check whether the packages that are always needed are installed."""
    needed = _requirements()
    if not needed:
        present = f"torch {torch.__version__}, numpy {np.__version__}"
        note = "placecode is not installed (run from its source folder): others not checked"
        return Check("packages", f"{present}; {note}")
    versions = {name: _version(name) for name in needed[""]}
    missing = [name for name, version in versions.items() if version is None]
    present = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    return Check("packages", present + (f"; missing: {', '.join(missing)}" if missing else ""), not missing)


def _extras() -> Iterator[Check]:
    """Yield, for each optional extra, whether all its packages are installed."""
    for extra, packages in _requirements().items():
        missing = [name for name in packages if _version(name) is None]
        advice = f"missing {', '.join(missing)}; pip install -e '.[{extra}]' in the project's folder"
        if extra:
            yield Check(f"extra {extra}", advice if missing else "complete", not missing)


def _memory() -> Check:
    """Check whether the machine has at least 2 GiB of memory. Unknown memory counts as enough."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (ValueError, OSError, AttributeError):
        return Check("memory", "unknown on this system")
    return Check("memory", f"{total:.1f} GiB", total >= 2)


def _cache() -> Check:
    """Check whether the folder in which generated puzzles are cached is writable."""
    try:
        folder = cache_folder()
    except OSError as error:
        return Check("cache", f"none ({error}): puzzles are generated again each time", False)
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
    writable = nearest.is_dir() and os.access(nearest, os.W_OK)
    note = "" if writable else "; not writable: puzzles are generated again each time"
    return Check("cache", f"{folder}{note}", writable)
