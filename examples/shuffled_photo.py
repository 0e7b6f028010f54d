"""Write the shuffled pixels of a photograph as a table, to test whether `placecode fit` recovers the image.

    python examples/shuffled_photo.py
    python examples/shuffled_photo.py --out somewhere --samples 2000 --size 8

shuffled.csv has one row per small patch of two photographs and one column per pixel, in random order. Its last column
is the strip of the photographs from which the patch was taken, so that whole strips can be held out. positions.csv has
the true position of each pixel, which is used only to evaluate the map. The script prints the command to run next.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from placecode.files import write_bytes
from placecode.tasks import pixels


def write(out: Path, samples: int = 5_000, size: int = 10, stride: int = 4, seed: int = 0) -> tuple[Path, Path]:
    """Write the shuffled pixels and their true positions, and return the paths of the two files."""
    values, names, positions, strips = pixels.sample_table(size=size, stride=stride, samples=samples, seed=seed)
    out.mkdir(parents=True, exist_ok=True)
    tables = {
        "shuffled.csv": pd.DataFrame(values.round(4), columns=list(names)).assign(strip=strips),
        "positions.csv": pd.DataFrame({"name": names, "x": positions[:, 1], "y": -positions[:, 0]}),
    }
    for name, table in tables.items():
        write_bytes(out / name, table.to_csv(index=False).encode())
    return out / "shuffled.csv", out / "positions.csv"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write a shuffled photograph as a table of channels.")
    parser.add_argument("--out", type=Path, default=Path("."), help="folder for the two files")
    parser.add_argument("--samples", type=int, default=5_000, help="number of patches, one per row")
    parser.add_argument("--size", type=int, default=10, help="rows and columns of a patch")
    parser.add_argument("--stride", type=int, default=4, help="distance between the pixels of a patch")
    parser.add_argument("--seed", type=int, default=0, help="seed of the patches and of the order of the pixels")
    args = parser.parse_args(arguments)
    shuffled, positions = write(args.out, args.samples, args.size, args.stride, args.seed)
    print(f"{args.samples} patches of {args.size} x {args.size} pixels in random order: {shuffled}, {positions}")
    print(f"placecode fit {shuffled} --groups strip --positions {positions}")


if __name__ == "__main__":
    main()
