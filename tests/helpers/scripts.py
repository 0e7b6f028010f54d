"""Load scripts that are not part of the package as modules, to test them."""

import importlib.util
import sys
from pathlib import Path
from typing import Any


def load(path: Path) -> Any:
    """Load a script as a module without running its `__main__` part. It may import the scripts beside it.

    While it is loaded, these hide installed packages of the same name: docs/pages/tables.py hides PyTables.
    """
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    scripts = {script.stem for script in path.parent.glob("*.py")}
    hidden = {name: sys.modules.pop(name) for name in scripts & sys.modules.keys()}
    sys.path.insert(0, str(path.parent))
    sys.modules[path.stem] = module  # dataclasses look up their module by name
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
        for name in scripts & sys.modules.keys():
            del sys.modules[name]
        sys.modules.update(hidden)
    return module
