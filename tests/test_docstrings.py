"""The examples in docstrings give what they say."""

import doctest
from importlib import import_module

import pytest

ANALYSIS = "agreement alignment attention baselines behaviour connectivity geometry modules nulls partitions places"
MODULES = [f"analysis.{name}" for name in f"{ANALYSIS} robustness stats targets".split()]
MODULES += ["encodings", "encodings.additive", "encodings.relative", "encodings.tables", "models.member"]
MODULES += ["errors", "random", "settings", "training.trainer", "validation"]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    result = doctest.testmod(import_module(f"placecode.{name}"), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0 and result.attempted > 0
