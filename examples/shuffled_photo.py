"""A photograph whose pixels were shuffled, as a table of your own would look: which column lies next to which?

Writes two files. shuffled.csv has a column for each pixel of small patches of two photographs, in random order, and a
row for each patch; its last column says from which strip of the photographs the patch is, so that whole strips can be
held out. positions.csv has the true place of each pixel: nobody needs it to learn a map, only to judge one. Then it
says how to go on.

    python examples/shuffled_photo.py
    python examples/shuffled_photo.py --out somewhere --samples 2000 --size 8
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from placecode.files import write_bytes
from placecode.tasks import pixels


def write(out: Path, samples: int = 5_000, size: int = 10, stride: int = 4, seed: int = 0) -> tuple[Path, Path]:
    """The shuffled pixels and their true places as two files in a folder."""
    values, names, positions, strips = pixels.table(size=size, stride=stride, samples=samples, seed=seed)
    out.mkdir(parents=True, exist_ok=True)
    tables = {
        "shuffled.csv": pd.DataFrame(values.round(4), columns=list(names)).assign(strip=strips),
        "positions.csv": pd.DataFrame({"name": names, "x": positions[:, 1], "y": -positions[:, 0]}),
    }
    for name, table in tables.items():
        write_bytes(out / name, table.to_csv(index=False).encode())
    return out / "shuffled.csv", out / "positions.csv"


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write a shuffled photograph as a table of channels.")
    parser.add_argument("--out", type=Path, default=Path("."), help="folder for the two files")
    parser.add_argument("--samples", type=int, default=5_000, help="patches, one to a row")
    parser.add_argument("--size", type=int, default=10, help="rows and columns of a patch")
    parser.add_argument("--stride", type=int, default=4, help="a patch takes every so manieth pixel")
    parser.add_argument("--seed", type=int, default=0, help="decides the patches and the order of the pixels")
    given = parser.parse_args(words)
    shuffled, positions = write(given.out, given.samples, given.size, given.stride, given.seed)
    print(f"{given.samples} patches of {given.size} x {given.size} pixels in random order: {shuffled}, {positions}")
    print(f"placecode fit {shuffled} --groups strip --positions {positions}")


if __name__ == "__main__":
    main()
