"""The examples in docstrings give what they say."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import placecode

ANALYSIS = "agreement alignment attention baselines behaviour connectivity geometry modules nulls partitions places"
MODULES = [f"analysis.{name}" for name in f"{ANALYSIS} robustness stats targets".split()]
MODULES += ["encodings", "encodings.additive", "encodings.relative", "encodings.tables", "models.member"]
MODULES += ["errors", "random", "settings", "training.trainer", "validation", "bench.profiling", "execution.memory"]
MODULES += ["experiments.claims", "experiments.specs"]
PACKAGE = Path(placecode.__file__).parent
DATA = [path.relative_to(PACKAGE) for name in ("data", "tasks") for path in sorted((PACKAGE / name).rglob("[!_]*.py"))]


@pytest.mark.parametrize("name", [*MODULES, *(".".join(path.with_suffix("").parts) for path in DATA)])
def test_examples(name: str) -> None:
    result = doctest.testmod(import_module(f"placecode.{name}"), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0 and (result.attempted > 0 or name not in MODULES)
