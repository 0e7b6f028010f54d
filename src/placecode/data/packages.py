"""Import of the optional packages that `pip install 'placecode[brain]'` installs, with an error that says so."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from placecode.errors import missing_package


def needed(module: str, what: str) -> Any:
    """Import and return a module. If it is missing, raise `BadInput` with the command that installs it.

    `what` is the feature that needs the module, for the message.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing_package(what, module.partition(".")[0]) from error


def package_folder(package: str, what: str) -> Path:
    """Return the folder of an installed package, to read its data files, without importing the package.

    If it is missing, raise `BadInput` as `needed` does. `what` is the feature that needs the package.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise missing_package(what, package)
    return Path(next(iter(spec.submodule_search_locations)))
