"""Optional packages of the extra `brain`."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from placecode.errors import absent


def needed(module: str, what: str) -> Any:
    """Import a module. Raises `BadInput` with the install command if it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise absent(what, module.partition(".")[0]) from error


def package_folder(package: str, what: str) -> Path:
    """Return the folder of an installed package, for its data files, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise absent(what, package)
    return Path(next(iter(spec.submodule_search_locations)))
