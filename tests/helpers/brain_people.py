"""Small recordings of five made-up people, for the tests of the brain task."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.refusal import sentence

from placecode.tasks.brain import Brain

EXTRA = "needs the extra: pip install 'placecode[brain]'"
NAMES = ("V1_L", "V1_R", "A1_L", "A1_R", "Vermis")
PEOPLE = ("p0", "p1", "p2", "p3", "p4")


def needs(*packages: str) -> pytest.MarkDecorator:
    """Return a mark that skips a test if these packages are not installed. They are looked up, not imported."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)}: {EXTRA}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write the recordings of five people, of different length, as .npy (time, region), and return their folder."""
    where = tmp_path / "people"
    where.mkdir()
    for i, name in enumerate(PEOPLE):
        np.save(where / f"{name}.npy", values(i, 80 + i))
    return where


def rewrite(folder: Path, name: str, change: np.ndarray) -> None:
    """Replace the recording of one person."""
    np.save(folder / f"{name}.npy", change)


def values(person: int = 0, times: int = 80, regions: int = 5) -> np.ndarray:
    """Return a smooth recording (T, n) that stays near its mean."""
    noise = np.random.default_rng(person).normal(size=(times + 20, regions))
    return 50 + (person + 1) * np.stack([noise[lag : lag + times] for lag in range(6)]).sum(axis=0)


def refusal(*positional: Any, **options: Any) -> str:
    """Return the error message of a brain task with bad arguments."""
    return sentence(Brain, *positional, **options)
