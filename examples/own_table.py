"""A table of your own: which of its columns belong together, and how sure is that?

Twelve weather stations at the shores of three lakes: each lake has a wind of its own, each station a bit of it, and
what the stations measure is turned and scaled in ways that nobody wrote down. The table says nothing of lakes.

    python examples/own_table.py                   # makes stations.csv and fits it: about a minute on two cores
    python examples/own_table.py --file mine.csv   # any table, samples x channels

The same from the command line: placecode fit stations.csv
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from placecode import LearnedPositions
from placecode.files import write_bytes


def stations(samples: int = 3_000, seed: int = 0) -> pd.DataFrame:
    """Winds at twelve stations in random order, with some values missing."""
    rng = np.random.default_rng(seed)
    winds = rng.normal(size=(samples, 3))
    lakes = np.repeat(np.arange(3), 4)
    values = rng.uniform(0.5, 3, 12) * (winds[:, lakes] + 0.7 * rng.normal(size=(samples, 12))) + rng.uniform(-9, 9, 12)
    values[rng.random(values.shape) < 0.02] = np.nan
    names = [f"{lake} {place}" for lake in ("Inari", "Saimaa", "Oulu") for place in ("north", "east", "south", "west")]
    return pd.DataFrame(values.round(3), columns=names).sample(frac=1, axis=1, random_state=seed)


def main(words: list[str] | None = None) -> LearnedPositions:
    parser = argparse.ArgumentParser(description="Fit a table of channels, and say what was found.")
    parser.add_argument("--file", type=Path, help="the table; stations.csv is made where none is given")
    parser.add_argument("--steps", type=int, default=600, help="training steps")
    given = parser.parse_args(words)
    if given.file is None:
        given.file = Path("stations.csv")
        write_bytes(given.file, stations().to_csv(index=False).encode())
    fitted = LearnedPositions(steps=given.steps, device="cpu").fit(given.file)
    for sentence in fitted.summary_[:3]:
        print(sentence)
    for module in range(fitted.modules_.max() + 1):
        print(f"module {module + 1}: {', '.join(_members(fitted, module))}")
    return fitted


def _members(fitted: Any, module: int) -> list[str]:
    return [name for name, own in zip(fitted.names_, fitted.modules_, strict=True) if own == module]


if __name__ == "__main__":
    main()
