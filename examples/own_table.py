"""Find out which columns of a table belong together, and how certain that is.

    python examples/own_table.py                   # writes stations.csv and fits it: about a minute on two cores
    python examples/own_table.py --file mine.csv   # any table, samples x channels

The simulated table has twelve weather stations at three lakes. Stations of one lake measure the same wind, with noise
and with unknown scales and offsets. The table does not contain the lakes. From the command line the same is
`placecode fit stations.csv`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from placecode import LearnedPositions
from placecode.files import write_bytes


def stations(samples: int = 3_000, seed: int = 0) -> pd.DataFrame:
    """Simulate the wind at twelve stations in random order, with some missing values."""
    rng = np.random.default_rng(seed)
    winds = rng.normal(size=(samples, 3))
    lakes = np.repeat(np.arange(3), 4)
    values = rng.uniform(0.5, 3, 12) * (winds[:, lakes] + 0.7 * rng.normal(size=(samples, 12))) + rng.uniform(-9, 9, 12)
    values[rng.random(values.shape) < 0.02] = np.nan
    names = [f"{lake} {place}" for lake in ("Inari", "Saimaa", "Oulu") for place in ("north", "east", "south", "west")]
    return pd.DataFrame(values.round(3), columns=names).sample(frac=1, axis=1, random_state=seed)


def main(arguments: list[str] | None = None) -> LearnedPositions:
    parser = argparse.ArgumentParser(description="Fit a table of channels and print the results.")
    parser.add_argument("--file", type=Path, help="the table (default: stations.csv, which is simulated)")
    parser.add_argument("--steps", type=int, default=600, help="training steps")
    args = parser.parse_args(arguments)
    if args.file is None:
        args.file = Path("stations.csv")
        write_bytes(args.file, stations().to_csv(index=False).encode())
    fitted = LearnedPositions(steps=args.steps, device="cpu").fit(args.file)
    for sentence in fitted.summary_[:3]:
        print(sentence)
    for module in range(fitted.modules_.max() + 1):
        names = [name for name, label in zip(fitted.names_, fitted.modules_, strict=True) if label == module]
        print(f"module {module + 1}: {', '.join(names)}")
    return fitted


if __name__ == "__main__":
    main()
