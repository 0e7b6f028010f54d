"""Make up tables, and write them in each file format, for the tests of readers."""

import os
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import scipy.io
from helpers.refusal import sentence

from placecode.data.tables.files import Sheet

FLAT = ("t.npy", "t.npz", "t.mat", "v73.mat", "t.h5", "t.hdf5", "bare.csv", "bare.tsv")
"""Files that hold numbers and no names of channels. The texts "bare" have no header."""
KINDS = (*FLAT, "t.csv", "semicolons.csv", "tabs.csv", "index.csv", "t.tsv", "t.parquet")
"""Names of files in all formats; `write` takes the format from the name."""


def numbers(rows: int, seed: int = 0) -> pd.DataFrame:
    """Return seven channels of numbers of every magnitude, some of them missing; the last channel has integers."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, 7)) * 10.0 ** rng.integers(-9, 9, size=(rows, 7))
    values[rng.random(values.shape) < 0.1] = np.nan
    values[:, 6] = rng.integers(0, 100, size=rows)
    return pd.DataFrame(values, columns=["a", "b b", "c,c", "d", "é", "f", "g"])


def frame(rows: int, seed: int = 0) -> pd.DataFrame:
    """Return the table of `numbers` with a category, a column of true or false, a column of people and one of days."""
    rng = np.random.default_rng(seed)
    table = numbers(rows, seed)
    table.insert(2, "wind", rng.choice(np.array(["west", "east", " north", None], dtype=object), rows))
    table["dry"] = rng.random(rows) < 0.5
    table.insert(0, "who", ["Bo" if i % 3 else "Ann" for i in range(rows)])
    table["day"] = pd.Timestamp("2024-05-01") + pd.to_timedelta(np.arange(rows) // 7, unit="D")
    return table


def write(path: Path, table: pd.DataFrame) -> Path:
    """Write a table in the format that the file's name stands for, and return its path."""
    name, values = path.name, table.to_numpy()
    if path.suffix in (".csv", ".tsv"):
        sign = ";" if "semicolons" in name else "\t" if "tabs" in name or path.suffix == ".tsv" else ","
        table.to_csv(path, sep=sign, index="index" in name, header="bare" not in name)
    elif path.suffix == ".parquet":
        table.to_parquet(path)
    elif path.suffix == ".npy":
        np.save(path, values)
    elif path.suffix == ".npz":
        np.savez(path, series=values, rate=2.0, who=np.array(["me"]))
    elif path.suffix == ".mat" and "v73" not in name:
        scipy.io.savemat(path, {"series": values, "rate": 2.0, "who": "me"})
    else:
        with h5py.File(path, "w", userblock_size=512 if path.suffix == ".mat" else 0) as file:
            file["rest/series"] = values.T if path.suffix == ".mat" else values  # MATLAB writes columns first
            file["rest/rate"] = 2.0
        if path.suffix == ".mat":
            with open(path, "r+b") as raw:
                raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64")
    return path


def same(a: Sheet, b: Sheet) -> bool:
    """Return whether two sheets are equal bit for bit, whatever they were read from."""
    if (a.groups is None) != (b.groups is None) or (a.groups is not None and not np.array_equal(a.groups, b.groups)):
        return False
    facts = [(sheet.names, dict(sheet.categories), sheet.group_names, sheet.values.shape) for sheet in (a, b)]
    bits = [np.ascontiguousarray(sheet.values).view(np.uint32) for sheet in (a, b)]
    return facts[0] == facts[1] and np.array_equal(bits[0], bits[1])


def refusal(act: Callable[[], object], folder: Path | None = None) -> str:
    """Return the error message of an action that must fail, without the folder of its files; it must be one line."""
    message = sentence(act)
    assert message.endswith(".")
    return message.replace(f"{folder}{os.sep}", "") if folder else message
