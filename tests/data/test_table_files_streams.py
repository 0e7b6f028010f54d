"""Tables larger than memory: read piece by piece into a file, the same as ever, whole or not at all."""

from __future__ import annotations

import builtins
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.table_data import FLAT, KINDS, frame, numbers, refusal, same, write

from placecode.data.tables import arrays as table_arrays
from placecode.data.tables import sources as table_sources
from placecode.data.tables import texts as table_texts
from placecode.data.tables.files import read_sheet, sheet_of
from placecode.data.tables.sources import ArraySource, Piece

ROWS = 120
STREAMED = [kind for kind in KINDS if kind not in ("t.npz", "t.mat")]
SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a dozen rows, so that a small table has many."""
    monkeypatch.setattr(table_sources, "PIECE", 800)


def spooled(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# The same as in memory


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("kind", STREAMED)
def test_a_streamed_table_is_the_same(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / kind, numbers(ROWS))
    whole = read_sheet(path)
    sheet = read_sheet(path, spool=tmp_path / "new" / "spool", memory=100)
    assert isinstance(sheet.values, np.memmap) and not isinstance(whole.values, np.memmap)
    assert not sheet.values.flags.writeable and sheet.values.dtype == np.float32
    assert same(sheet, whole) and sheet.source == whole.source
    assert spooled(tmp_path / "new" / "spool") == [f"{kind}.float32.npy"]


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in FLAT])
def test_categories_and_groups_are_the_same_when_streamed(tmp_path: Path, kind: str) -> None:
    table = frame(ROWS).drop(columns="day")
    table["late"] = [None] * 100 + ["z"] * 10 + ["y"] * 10  # words appear long after the first pieces, in no order
    path = write(tmp_path / kind, table)
    sheet = read_sheet(path, groups="who", spool=tmp_path / "spool", memory=100)
    assert isinstance(sheet.values, np.memmap)
    assert same(sheet, sheet_of(table, groups="who"))
    assert list(sheet.categories.values()) == [("east", "north", "west"), ("y", "z")]


@pytest.mark.usefixtures("small_pieces")
def test_errors_name_the_same_place_when_streamed(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", numbers(ROWS).astype({"d": object}))
    lines = path.read_text().splitlines()
    lines[110] = "1,2,3,oh,5,6,7"
    path.write_text("\n".join(lines))
    assert refusal(lambda: read_sheet(path, spool=tmp_path / "spool", memory=100), tmp_path) == (
        "t.csv, line 111: column 'd' must hold numbers; got 'oh'."
    )
    assert not (tmp_path / "spool").exists()


# Which way


def test_a_file_of_float32_is_mapped_where_it_is(tmp_path: Path) -> None:
    values = np.ascontiguousarray(numbers(ROWS).to_numpy(), dtype=np.float32)
    np.save(tmp_path / "t.npy", values)
    sheet = read_sheet(tmp_path / "t.npy", memory=100)
    assert isinstance(sheet.values, np.memmap) and Path(str(sheet.values.filename)) == tmp_path / "t.npy"
    np.testing.assert_array_equal(sheet.values, values)
    for other in (np.asfortranarray(values), values.astype(">f4"), values.astype(np.float64)):
        np.save(tmp_path / "o.npy", other)
        assert refusal(lambda: read_sheet(tmp_path / "o.npy", memory=100), tmp_path) == (
            "spool must be a folder for the values, since o.npy takes 0.0 MB of 0.0 MB of memory; got None."
        )
        assert same(read_sheet(tmp_path / "o.npy", memory=100, spool=tmp_path / "spool"), sheet)
    assert spooled(tmp_path / "spool") == ["o.npy.float32.npy"]
    grouped = values.copy()
    grouped[:, 1] = 3
    np.save(tmp_path / "t.npy", grouped)
    without = read_sheet(tmp_path / "t.npy", groups="channel 2", memory=100, spool=tmp_path / "spool")
    np.testing.assert_array_equal(without.values, np.delete(values, 1, axis=1))


@pytest.mark.usefixtures("small_pieces")
def test_maps_of_other_kinds_go_to_a_file_too(tmp_path: Path) -> None:
    values = numbers(ROWS).to_numpy()
    for other in (values, np.asfortranarray(values, dtype=np.float32), values.astype(">f4")):
        np.save(tmp_path / "t.npy", other)
        there = np.load(tmp_path / "t.npy", mmap_mode="r")
        sheet = sheet_of(there, memory=100, spool=tmp_path / "spool")
        assert isinstance(sheet.values, np.memmap) and sheet.values.flags.c_contiguous and same(sheet, sheet_of(values))
        assert not isinstance(sheet_of(there, memory=10**6).values, np.memmap)
        assert refusal(lambda: sheet_of(there, memory=100)) == (  # noqa: B023
            "spool must be a folder for the values, since data takes 0.0 MB of 0.0 MB of memory; got None."
        )
    assert spooled(tmp_path / "spool") == ["array.float32.npy"]
    assert not isinstance(sheet_of(values, memory=100).values, np.memmap)  # it is in memory anyway


def test_a_table_that_just_fits_stays_in_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", numbers(ROWS))
    size = ROWS * 7 * 4
    assert not isinstance(read_sheet(path, memory=size).values, np.memmap)
    assert isinstance(read_sheet(path, memory=size - 1, spool=tmp_path / "spool").values, np.memmap)


@pytest.mark.parametrize("kind", ["t.npz", "t.mat"])
def test_what_cannot_be_streamed_says_what_can(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / kind, numbers(20_000))
    assert refusal(lambda: read_sheet(path, memory=1_000_000, spool=tmp_path / "spool"), tmp_path) == (
        f"{kind} takes 1.1 MB of 1.0 MB of memory, and its format cannot be read piece by piece; "
        "save it as Parquet, .npy or .h5."
    )
    assert not (tmp_path / "spool").exists()
    assert read_sheet(path, memory=1_120_000).values.shape == (20_000, 7)


def test_chunks_of_a_file_are_read_whole(tmp_path: Path, small_pieces: None) -> None:
    values = numbers(ROWS).to_numpy()
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=(50, 2), compression="gzip")
    source = table_arrays.array_source(tmp_path / "t.h5", ".h5", None, memory=10**6)
    assert [len(piece.numbers) for piece in source.pieces()] == [50, 50, 20]
    sheet = read_sheet(tmp_path / "t.h5", memory=100, spool=tmp_path / "spool")
    np.testing.assert_array_equal(sheet.values, values.astype(np.float32))


# Whole or not at all


def test_a_spool_that_fails_on_the_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, spool = write(tmp_path / "t.npy", numbers(ROWS)), tmp_path / "spool"
    monkeypatch.setattr(table_sources, "PIECE", 800)
    before = read_sheet(path, memory=100, spool=spool)
    kept = np.array(before.values)
    plain, passes = ArraySource.pieces, []

    def stopped(self: ArraySource, group: int | None = None) -> Iterator[Piece]:
        passes.append(group)
        for i, piece in enumerate(plain(self, group)):
            if len(passes) == 2 and i == 3:
                raise KeyboardInterrupt
            yield piece

    write(path, numbers(ROWS, seed=1))
    monkeypatch.setattr(ArraySource, "pieces", stopped)
    with pytest.raises(KeyboardInterrupt):
        read_sheet(path, memory=100, spool=spool)
    assert spooled(spool) == ["t.npy.float32.npy"]
    np.testing.assert_array_equal(np.load(spool / "t.npy.float32.npy"), kept)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("rows", [ROWS - 20, ROWS + 20])
def test_a_file_that_changes_meanwhile_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    path = write(tmp_path / "t.csv", numbers(ROWS))
    plain = table_texts.TextSource.pieces

    def changing(self: table_texts.TextSource, group: int | None = None) -> Iterator[Piece]:
        yield from plain(self, group)
        write(path, numbers(rows))

    monkeypatch.setattr(table_texts.TextSource, "pieces", changing)
    for options in ({}, {"memory": 100, "spool": tmp_path / "spool"}):
        write(path, numbers(ROWS))
        assert refusal(lambda: read_sheet(path, **options), tmp_path) == (  # type: ignore[arg-type]  # noqa: B023
            f"t.csv must not change while it is read; it had {ROWS} rows, then {rows}."
        )
    assert spooled(tmp_path / "spool") == []


# How much memory


def test_the_memory_that_a_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    told = table_arrays.available()
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < told <= physical
    plain = builtins.open

    def without(path: Any, *rest: Any, **options: Any) -> Any:
        if path == "/proc/meminfo":
            raise FileNotFoundError(path)
        return plain(path, *rest, **options)

    monkeypatch.setattr(builtins, "open", without)
    assert 0 < table_arrays.available() <= physical


PROGRAM = """
import json, resource, sys
from multiprocessing import get_context
from placecode.data.tables.files import read_sheet

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def growth(pair):
    small, large = pair
    read_sheet(small, memory=100, spool=sys.argv[2])
    before = peak()
    sheet = read_sheet(large, memory=10_000_000, spool=sys.argv[2])
    return [peak() - before, *sheet.values.shape, type(sheet.values).__name__]

with get_context("fork").Pool(1, maxtasksperchild=1) as pool:  # a new process for each file
    print(json.dumps(pool.map(growth, json.loads(sys.argv[1]), chunksize=1)))
"""


def large_table(path: Path, rows: int, columns: int = 60) -> Path:
    """Numbers in pieces of 10,000 rows, so that this test needs little memory too."""
    rng = np.random.default_rng(0)
    pieces = (rng.random((min(10_000, rows - first), columns)) for first in range(0, rows, 10_000))
    names = [f"c{i}" for i in range(columns)]
    if path.suffix == ".npy":
        out = np.lib.format.open_memmap(path, "w+", np.float64, (rows, columns))
        for i, piece in enumerate(pieces):
            out[i * 10_000 : i * 10_000 + len(piece)] = piece
    elif path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            table = file.create_dataset("x", (rows, columns), "f8")
            for i, piece in enumerate(pieces):
                table[i * 10_000 : i * 10_000 + len(piece)] = piece
    elif path.suffix == ".parquet":
        schema = pa.schema([(name, pa.float64()) for name in names])
        with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
            arrays = [pa.table(list(piece.T), schema=schema) for piece in pieces]
            writer.write_table(pa.concat_tables(arrays), row_group_size=150_000)
    else:
        with open(path, "w") as stream:
            for i, piece in enumerate(pieces):
                text = pd.DataFrame(piece[:500], columns=names).to_csv(index=False, header=i == 0)
                head, body = text.split("\n", 1) if i == 0 else ("", text)
                stream.write(f"{head}\n" * (i == 0) + body * (len(piece) // 500))
    return path


def test_reading_takes_far_less_memory_than_the_file(tmp_path: Path) -> None:
    rows = {".csv": 70_000, ".parquet": 320_000, ".npy": 160_000, ".h5": 160_000}
    pairs = [
        [str(large_table(tmp_path / f"s{ending}", 500)), str(large_table(tmp_path / f"l{ending}", count))]
        for ending, count in rows.items()
    ]
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(pairs), str(tmp_path / "spool")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    for (grown, *shape, kind), count, (_, large) in zip(json.loads(answer.stdout), rows.values(), pairs, strict=True):
        size = Path(large).stat().st_size
        assert size > 70e6 and shape == [count, 60] and kind == "memmap"
        assert grown < size / 2, f"{large}: {grown / 1e6:.0f} MB for {size / 1e6:.0f} MB"


def test_thousands_of_columns_take_no_longer_than_their_cells(tmp_path: Path) -> None:
    """Each piece asks for its list of columns once: a list for each column would be millions of them."""
    calls = []
    plain = pq.ParquetFile.iter_batches

    class Counting:
        def __init__(self, batch: Any) -> None:
            self.batch = batch

        @property
        def columns(self) -> Any:
            calls.append(1)
            return self.batch.columns

    path = write(tmp_path / "t.parquet", numbers(ROWS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pq.ParquetFile, "iter_batches", lambda *a, **k: map(Counting, plain(*a, **k)))
        sheet = read_sheet(path)
    assert len(calls) == 2 and same(sheet, sheet_of(numbers(ROWS)))  # a piece in each of the two passes


def test_the_quick_way_and_the_slow_way_give_the_same_numbers(tmp_path: Path) -> None:
    """Numbers alone are read all columns at once; a word anywhere, or groups, and it goes column by column."""
    table = numbers(ROWS)
    quick = read_sheet(write(tmp_path / "a.csv", table))
    slow = read_sheet(write(tmp_path / "b.csv", table.assign(word="x")))
    np.testing.assert_array_equal(slow.values[:, :-1].view(np.uint32), quick.values.view(np.uint32))
