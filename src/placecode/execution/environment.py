"""Describe the machine, the package versions and the code that produce a run, for the file environment.json."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch

from placecode.compute.cpu.kernels import kernels_for
from placecode.execution.settings import Concurrency, ExecutionSettings
from placecode.runs.source import git, source_hash
from placecode.version import VERSION


def describe_environment(execution: ExecutionSettings, concurrency: Concurrency) -> dict[str, Any]:
    """Return the content of environment.json: versions of code and packages, device, precision, number of threads.

    They are needed to reproduce the numbers of a run to the last digit.
    """
    names = ("torch", "numpy", "scipy", "pandas", "pyarrow", "safetensors", "matplotlib")
    versions = {name: getattr(sys.modules.get(name), "__version__", None) for name in names}
    gpu = torch.cuda.get_device_name() if execution.device == "cuda" else None
    return {
        "placecode": VERSION,
        "source": source_hash(),
        "git": _git_state(),
        "python": platform.python_version(),
        "packages": {name: version for name, version in versions.items() if version},
        "system": f"{platform.system()} {platform.machine()}",
        "device": execution.device,
        "gpu": gpu,
        "cuda": torch.version.cuda if gpu else None,
        "precision": execution.precision,
        "CPU kernels": kernels_for(torch.zeros(1)).name if execution.device == "cpu" else None,
        "threads per stack": concurrency.threads_per_stack,
        "stacks at once": concurrency.concurrent_stacks,
        "processes": concurrency.processes,
        "cores": os.cpu_count(),
        "stack": execution.max_stack_size,
    }


def _git_state() -> str | None:
    """Return the commit of the code as `git describe` names it, with "-dirty" appended if files have changed.

    Return None if this file is not tracked by git.
    """
    here = Path(__file__)
    if git("ls-files", "--error-unmatch", here.name, folder=here.parent) is None:
        return None  # an installed copy may be inside a checkout of another project
    return git("describe", "--always", "--dirty", "--abbrev=12", folder=here.parent)
