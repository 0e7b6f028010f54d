"""Import of optional packages. If one is missing, the error suggests `pip install 'placecode[brain]'`."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from placecode.errors import missing_package


def import_optional(module: str, feature: str) -> Any:
    """Import and return the module that a feature needs, or raise `BadInput` with the command that installs it.

    `feature` is the subject of the error message, such as "Reading a.h5".
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing_package(feature, module.partition(".")[0]) from error


def package_folder(package: str, feature: str) -> Path:
    """Return the folder of a package without importing it, to read its data files. Raise `BadInput` if missing."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise missing_package(feature, package)
    return Path(next(iter(spec.submodule_search_locations)))
