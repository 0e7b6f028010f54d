"""Tables larger than memory are read in chunks into a file: with equal values, and completely or not at all."""

import builtins
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import h5py
import numpy as np
import pandas as pd
import pytest
from helpers.refusal import refused
from helpers.table_data import FLAT, KINDS, frame, numbers, refusal, same, write

from placecode.data.tables import arrays as table_arrays
from placecode.data.tables import sources as table_sources
from placecode.data.tables import texts as table_texts
from placecode.data.tables.files import read_sheet, sheet_of
from placecode.data.tables.sources import ArraySource, Chunk

ROWS = 120
STREAMED = [kind for kind in KINDS if kind not in ("t.npz", "t.mat")]
SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read tables in chunks of a dozen rows, so that a small table has many."""
    monkeypatch.setattr(table_sources, "CHUNK_BYTES", 800)


def file_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("kind", STREAMED)
def test_a_streamed_table_has_the_same_bits(tmp_path, kind) -> None:
    path = write(tmp_path / kind, numbers(ROWS))
    in_memory = read_sheet(path)
    sheet = read_sheet(path, spool=tmp_path / "new" / "spool", memory=100)
    assert isinstance(sheet.values, np.memmap) and not isinstance(in_memory.values, np.memmap)
    assert not sheet.values.flags.writeable and sheet.values.dtype == np.float32
    assert same(sheet, in_memory) and sheet.source == in_memory.source
    assert file_names(tmp_path / "new" / "spool") == [f"{kind}.float32.npy"]


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in FLAT])
def test_categories_and_groups_are_the_same_when_streamed(tmp_path, kind) -> None:
    table = frame(ROWS).drop(columns="day")
    table["late"] = [None] * 100 + ["z"] * 10 + ["y"] * 10  # words appear long after the first chunks, in no order
    sheet = read_sheet(write(tmp_path / kind, table), groups="who", spool=tmp_path / "spool", memory=100)
    assert isinstance(sheet.values, np.memmap) and same(sheet, sheet_of(table, groups="who"))
    assert list(sheet.categories.values()) == [("east", "north", "west"), ("y", "z")]


@pytest.mark.usefixtures("small_pieces")
def test_errors_name_the_same_line_when_streamed(tmp_path) -> None:
    path = write(tmp_path / "t.csv", numbers(ROWS))
    lines = path.read_text().splitlines()
    lines[110] = "1,2,3,oh,5,6,7"
    path.write_text("\n".join(lines))
    message = refusal(lambda: read_sheet(path, spool=tmp_path / "spool", memory=100), tmp_path)
    assert message.startswith("t.csv, line 111: column 'd'") and not (tmp_path / "spool").exists()


def test_a_file_of_float32_is_mapped_and_other_files_need_a_spool(tmp_path, small_pieces) -> None:
    values = np.ascontiguousarray(numbers(ROWS).to_numpy(), dtype=np.float32)
    np.save(tmp_path / "t.npy", values)
    sheet = read_sheet(tmp_path / "t.npy", memory=100)
    assert isinstance(sheet.values, np.memmap) and Path(str(sheet.values.filename)) == tmp_path / "t.npy"
    np.testing.assert_array_equal(sheet.values, values)
    for array in (np.asfortranarray(values), values.astype(">f4"), values.astype(np.float64)):
        np.save(tmp_path / "o.npy", array)
        mapped = np.load(tmp_path / "o.npy", mmap_mode="r")
        for read, source in ((read_sheet, tmp_path / "o.npy"), (sheet_of, mapped)):
            error = refused(read, source, memory=100)
            assert (error.name, error.given) == ("spool", None)
            spooled = read(source, memory=100, spool=tmp_path / "spool")
            assert isinstance(spooled.values, np.memmap) and spooled.values.flags.c_contiguous and same(spooled, sheet)
        assert not isinstance(sheet_of(mapped, memory=10**6).values, np.memmap)
    assert file_names(tmp_path / "spool") == ["array.float32.npy", "o.npy.float32.npy"]
    assert not isinstance(sheet_of(values, memory=100).values, np.memmap)  # it is in memory anyway
    without = read_sheet(tmp_path / "t.npy", groups="channel 7", memory=100, spool=tmp_path / "spool")
    np.testing.assert_array_equal(without.values, values[:, :6])


def test_a_table_that_just_fits_stays_in_memory(tmp_path) -> None:
    path = write(tmp_path / "t.parquet", numbers(ROWS))
    size = ROWS * 7 * 4
    assert not isinstance(read_sheet(path, memory=size).values, np.memmap)
    assert isinstance(read_sheet(path, memory=size - 1, spool=tmp_path / "spool").values, np.memmap)


@pytest.mark.parametrize("kind", ["t.npz", "t.mat"])
def test_a_format_that_cannot_be_streamed_must_fit_into_memory(tmp_path, kind) -> None:
    path, size = write(tmp_path / kind, numbers(ROWS)), ROWS * 7 * 8
    assert f"{kind} takes" in refusal(lambda: read_sheet(path, memory=size - 1, spool=tmp_path / "spool"), tmp_path)
    assert not (tmp_path / "spool").exists() and read_sheet(path, memory=size).values.shape == (ROWS, 7)


def test_chunks_of_a_file_are_read_whole(tmp_path, small_pieces) -> None:
    values = numbers(ROWS).to_numpy()
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=(50, 2), compression="gzip")
    source = table_arrays.array_source(tmp_path / "t.h5", ".h5", None, memory=10**6)
    assert [len(chunk.numbers) for chunk in source.chunks()] == [50, 50, 20]
    sheet = read_sheet(tmp_path / "t.h5", memory=100, spool=tmp_path / "spool")
    np.testing.assert_array_equal(sheet.values, values.astype(np.float32))


def test_an_interrupted_spool_keeps_the_previous_file(tmp_path, monkeypatch) -> None:
    path, spool = write(tmp_path / "t.npy", numbers(ROWS)), tmp_path / "spool"
    monkeypatch.setattr(table_sources, "CHUNK_BYTES", 800)
    before = read_sheet(path, memory=100, spool=spool)
    values = np.array(before.values)
    plain, passes = ArraySource.chunks, []

    def stopped(self: ArraySource, group: int | None = None) -> Iterator[Chunk]:
        passes.append(group)
        for i, chunk in enumerate(plain(self, group)):
            if len(passes) == 2 and i == 3:
                raise KeyboardInterrupt
            yield chunk

    write(path, numbers(ROWS, seed=1))
    monkeypatch.setattr(ArraySource, "chunks", stopped)
    with pytest.raises(KeyboardInterrupt):
        read_sheet(path, memory=100, spool=spool)
    assert file_names(spool) == ["t.npy.float32.npy"]
    np.testing.assert_array_equal(np.load(spool / "t.npy.float32.npy"), values)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("rows", [ROWS - 20, ROWS + 20])
def test_a_file_that_changes_during_reading_is_refused(tmp_path, monkeypatch, rows) -> None:
    path = write(tmp_path / "t.csv", numbers(ROWS))
    plain = table_texts.TextSource.chunks

    def changing(self: table_texts.TextSource, group: int | None = None) -> Iterator[Chunk]:
        yield from plain(self, group)
        write(path, numbers(rows))

    monkeypatch.setattr(table_texts.TextSource, "chunks", changing)
    for options in ({}, {"memory": 100, "spool": tmp_path / "spool"}):
        write(path, numbers(ROWS))
        message = refusal(lambda: read_sheet(path, **options), tmp_path)  # type: ignore[arg-type]  # noqa: B023
        assert message == f"t.csv must not change while it is read; it had {ROWS} rows, then {rows}."
    assert file_names(tmp_path / "spool") == []


def test_available_memory_is_at_most_the_physical_memory(monkeypatch) -> None:
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < table_arrays.available_memory() <= physical
    monkeypatch.setattr(builtins, "open", Mock(side_effect=FileNotFoundError("/proc/meminfo")))
    assert 0 < table_arrays.available_memory() <= physical


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
    return [peak() - before, type(sheet.values).__name__]

with get_context("fork").Pool(1, maxtasksperchild=1) as pool:  # a new process for each file
    print(json.dumps(pool.map(growth, json.loads(sys.argv[1]), chunksize=1)))
"""


def test_reading_needs_far_less_memory_than_the_file(tmp_path) -> None:
    values = np.random.default_rng(0).random((140_000, 60))
    table = pd.DataFrame(values, columns=[f"c{i}" for i in range(60)])
    options = {"row_group_size": 10_000, "compression": None, "use_dictionary": False}
    pd.concat([table, table]).to_parquet(tmp_path / "t.parquet", index=False, **options)
    np.save(tmp_path / "t.npy", values)  # row by row, which a frame is not
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file["x"] = values
    lines = table[:500].to_csv(index=False).splitlines(keepends=True)
    (tmp_path / "t.csv").write_text(lines[0] + "".join(lines[1:]) * 130)
    pairs = []
    for path in sorted(tmp_path.iterdir()):
        (tmp_path / "small").mkdir(exist_ok=True)
        pairs.append([str(write(tmp_path / "small" / path.name, table[:500])), str(path)])
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(pairs), str(tmp_path / "spool")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    for (growth, kind), (_, path) in zip(json.loads(answer.stdout), pairs, strict=True):
        size = Path(path).stat().st_size
        assert size > 30e6 and kind == "memmap"
        assert growth < size / 2, f"{path}: {growth / 1e6:.0f} MB for {size / 1e6:.0f} MB"


def test_columns_read_together_or_one_by_one_have_the_same_bits(tmp_path) -> None:
    """Tables of numbers are converted at once. Tables with a word or with groups are converted column by column."""
    table = numbers(ROWS)
    quick = read_sheet(write(tmp_path / "a.csv", table))
    slow = read_sheet(write(tmp_path / "b.csv", table.assign(word="x")))
    np.testing.assert_array_equal(slow.values[:, :-1].view(np.uint32), quick.values.view(np.uint32))
