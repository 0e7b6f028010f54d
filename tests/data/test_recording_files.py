"""Recordings as files: every format gives the same numbers, and each kind of bad file gets its own sentence."""

from __future__ import annotations

import builtins
import csv
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placecode.data.packages import needed, package_folder
from placecode.data.recording_files import FORMATS, find, read, read_table
from placecode.errors import BadInput

EXTRA = "needs the extra: pip install 'placecode[brain]'"
NAMES = ("V1_L", "V1_R", "a,b_L", "a,b_R", "Vermis")
TIMES, REGIONS = 60, len(NAMES)


def table(person: int = 0, times: int = TIMES, regions: int = REGIONS) -> np.ndarray:
    """A smooth recording (T, n), another one for each person."""
    steps = np.random.default_rng(person).normal(size=(times, regions))
    return 100 * (person + 1) + steps.cumsum(axis=0)


def write(path: Path, values: np.ndarray, names: tuple[str, ...] = NAMES) -> Path:
    """Values (T, n) in the format of the path's ending, time x region, `v73` for version 7.3 of .mat."""
    ending = path.name[path.name.index(".") :]
    if ending == ".npy":
        np.save(path, values)
    elif ending == ".npz":
        np.savez(path, series=values, tr=2.0)
    elif ending == ".mat" and "v73" not in path.name:
        import scipy.io

        scipy.io.savemat(path, {"series": values, "tr": 2.0, "who": "me"})
    elif ending in (".h5", ".hdf5", ".mat"):
        h5py = pytest.importorskip("h5py", reason=EXTRA)
        matlab = ending == ".mat"
        with h5py.File(path, "w", userblock_size=512 if matlab else 0) as file:
            file["rest/series"] = values.T if matlab else values  # MATLAB writes columns first
            file["rest/tr"] = 2.0
        if matlab:
            with open(path, "r+b") as raw:
                raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64")
    elif ending in (".csv", ".tsv"):
        with open(path, "w", newline="") as text:
            writer = csv.writer(text, delimiter="," if ending == ".csv" else "\t")
            writer.writerows([names] if names else [])
            writer.writerows(values.tolist())
    else:
        write_cifti(path, values, names)
    return path


def write_cifti(path: Path, values: np.ndarray, names: tuple[str, ...], turned: bool = False) -> None:
    nibabel = pytest.importorskip("nibabel", reason=EXTRA)
    axes = nibabel.cifti2.cifti2_axes
    n, cortex = values.shape[1], "CIFTI_STRUCTURE_CORTEX_LEFT"
    voxels, vertices = np.empty(n, dtype=object), np.empty(n, dtype=object)
    for i in range(n):
        voxels[i], vertices[i] = np.empty((0, 3), dtype=int), {cortex: np.array([i])}
    parcels = axes.ParcelsAxis(np.array(names, dtype=object), voxels, vertices, nvertices={cortex: 1000})
    series = axes.SeriesAxis(start=0, step=0.72, size=len(values))
    image = nibabel.Cifti2Image(values.T if turned else values, (parcels, series) if turned else (series, parcels))
    image.nifti_header.set_data_dtype(np.float64)
    nibabel.save(image, path)


KINDS = [f"p{{}}{ending}" for ending in FORMATS] + ["v73_p{}.mat"]


def people(folder: Path, kind: str = "p{}.npy", count: int = 3, **options: Any) -> list[Path]:
    return [write(folder / kind.format(i), table(i, **options)) for i in range(count)]


def refusal(act: Callable[[], object], *paths: Path) -> str:
    """The sentence of a refusal, with each path as its letter: A, B, ..."""
    with pytest.raises(BadInput) as error:
        act()
    message = str(error.value)
    assert message.endswith((".", "?")) and "\n" not in message
    for letter, path in zip("ABCDE", paths, strict=False):
        message = message.replace(str(path), letter)
    return message


# Every format


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_same_numbers(tmp_path: Path, kind: str) -> None:
    found = read(people(tmp_path, kind), orientation="time-region")
    assert [person.values.shape for person in found] == 3 * [(TIMES, REGIONS)]
    for i, person in enumerate(found):
        assert person.values.dtype == np.float64
        np.testing.assert_array_equal(person.values, table(i))
    assert not np.array_equal(found[0].values, found[1].values)
    named = kind.endswith(("csv", "tsv", "nii"))
    assert found[0].names == (NAMES if named else ())
    assert found[0].tr == (0.72 if kind.endswith("nii") else None)
    assert [person.person for person in found] == [kind.format(i).partition(".")[0] for i in range(3)]


@pytest.mark.parametrize("kind", ["p{}.npy", "p{}.npz", "p{}.mat", "p{}.csv", "p{}.h5", "v73_p{}.mat"])
def test_region_by_time_is_turned(tmp_path: Path, kind: str) -> None:
    files = [write(tmp_path / kind.format(i), table(i).T, ()) for i in range(3)]
    for orientation, regions in (("region-time", None), ("auto", REGIONS)):
        for i, person in enumerate(read(files, orientation=orientation, regions=regions)):
            np.testing.assert_array_equal(person.values, table(i))


def test_cifti_knows_which_side_is_which(tmp_path: Path) -> None:
    path = tmp_path / "p.ptseries.nii"
    write_cifti(path, table(), NAMES, turned=True)
    (found,) = read([path])
    np.testing.assert_array_equal(found.values, table())
    assert (found.names, found.tr) == (NAMES, 0.72)


def test_cifti_that_is_not_parcellated_is_refused(tmp_path: Path) -> None:
    nibabel = pytest.importorskip("nibabel", reason=EXTRA)
    axes = nibabel.cifti2.cifti2_axes
    path = tmp_path / "p.ptseries.nii"
    scalars = axes.ScalarAxis([str(i) for i in range(REGIONS)])
    nibabel.save(nibabel.Cifti2Image(table(), (axes.SeriesAxis(0, 0.72, TIMES), scalars)), path)
    assert refusal(lambda: read_table(path), path) == (
        "A must be a series of parcels; its sides are SeriesAxis and ScalarAxis."
    )


# Tables of text


@pytest.mark.parametrize(
    ("text", "names", "orientation"),
    [
        ("1,2.5,3\n4,5,6\n", (), "auto"),
        ("1;2.5;3\n4;5;6", (), "auto"),
        ("1\t2.5\t3\r\n\r\n4\t5\t6\r\n", (), "auto"),
        ("\ufeffx,y,z\n1,2.5,3\n4,5,6\n", ("x", "y", "z"), "time-region"),
        ('"x","y 2",z\n1, 2.5 ,3\n4,5,6\n', ("x", "y 2", "z"), "time-region"),
        (",x,y,z\n0,1,2.5,3\n1,4,5,6\n", ("x", "y", "z"), "time-region"),  # as pandas writes a table with its index
        ("Time,x,y,z\n0.0,1,2.5,3\n0.7,4,5,6\n", ("x", "y", "z"), "time-region"),
        (",0,1,2\n0,1,2.5,3\n1,4,5,6\n", (), "auto"),
        ("0,1,2\n1,2.5,3\n4,5,6\n", (), "auto"),  # a header that only counts
        ("1,2,3\n1,2.5,3\n4,5,6\n", (), "auto"),
        ("a,1,2.5,3\nb,4,5,6\n", ("a", "b"), "region-time"),
        ("region,0,1,2\na,1,2.5,3\nb,4,5,6\n", ("a", "b"), "region-time"),
        ("region,t0,t1,t2\na,1,2.5,3\nb,4,5,6\n", ("a", "b"), "region-time"),
    ],
)
def test_tables_of_text(tmp_path: Path, text: str, names: tuple[str, ...], orientation: str) -> None:
    path = tmp_path / "näme with space.csv"
    path.write_bytes(text.encode())
    found = read_table(path)
    assert found.values.tolist() == [[1, 2.5, 3], [4, 5, 6]]
    assert (found.names, found.orientation) == (names, orientation)


def test_missing_values_of_text_are_nan_and_words_are_not(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("x,y\n1,n/a\n,NaN\n3,4\n")
    np.testing.assert_array_equal(read_table(path).values, [[1, np.nan], [np.nan, np.nan], [3, 4]])
    path.write_text("x,y\n1,2\n3,four\n")
    assert refusal(lambda: read_table(path), path) == "A, line 3: every value must be a number; got 'four'."


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"x,y\n1,2\n3\n", "A, line 3: must have 2 values; got 1."),
        (b"x,y\n1,2\n3,4,5\n", "A, line 3: must have 2 values; got 3."),
        (b"x,y\n", "A must have a row for each time point, or for each region; it has 1."),
        (b"1,2\n\xff,3\n", "A must be a text file in UTF-8; byte 4 is not."),
        (b"", "A is empty."),
        (b"\n", "A must have a row for each time point, or for each region; it has 0."),
    ],
)
def test_bad_tables_of_text(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "p.csv"
    path.write_bytes(content)
    assert refusal(lambda: read_table(path), path) == sentence


def test_one_column_is_a_table_of_confounds(tmp_path: Path) -> None:
    path = tmp_path / "p.tsv"
    path.write_text("motion\n1\n2\n3\n")
    assert read_table(path).values.tolist() == [[1], [2], [3]]


# Which table of a file


@pytest.mark.parametrize("ending", [".npz", ".mat", ".h5"])
def test_a_file_with_several_tables_takes_a_key(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"p{ending}"
    tables = {"one": table(), "two": table(1), "tr": np.array(2.0)}
    if ending == ".npz":
        np.savez(path, **tables)
    elif ending == ".mat":
        pytest.importorskip("scipy.io").savemat(path, tables)
    else:
        with pytest.importorskip("h5py", reason=EXTRA).File(path, "w") as file:
            file.update(tables)
    assert refusal(lambda: read_table(path), path) == (
        "A holds several tables, one, two; say by key which one is meant."
    )
    np.testing.assert_array_equal(read_table(path, "two").values, table(1))
    keys = "one, tr, two" if ending == ".h5" else "one, two, tr"
    assert refusal(lambda: read_table(path, "tc"), path) == f"key for A must be one of {keys}; got 'tc'."
    if ending != ".mat":  # where a single number is a table of 1 x 1
        assert refusal(lambda: read_table(path, "tr"), path) == (
            "A must hold a table of numbers with two sides, time and region of one person; got float64 of shape ()."
        )


def test_a_table_in_a_group_is_found_by_its_path(tmp_path: Path) -> None:
    path = write(tmp_path / "p.h5", table())
    for key in ("rest/series", "/rest/series"):
        np.testing.assert_array_equal(read_table(path, key).values, table())


def test_a_key_where_there_are_none(tmp_path: Path) -> None:
    path = write(tmp_path / "p.npy", table())
    assert refusal(lambda: read_table(path, "tc"), path) == (
        "key is for files of .npz, .mat, .h5, .hdf5, which hold several tables; got 'tc' for A."
    )


def test_a_file_without_a_table(tmp_path: Path) -> None:
    path = tmp_path / "p.npz"
    np.savez(path, a=np.zeros((2, 3, 4)), b=np.array(["x"]))
    assert refusal(lambda: read_table(path), path) == (
        "A must hold a table of numbers with two sides, time and region of one person; it holds a, b."
    )
    flat = tmp_path / "p.npy"
    np.save(flat, np.zeros((3, TIMES, REGIONS)))
    assert refusal(lambda: read_table(flat), flat) == (
        "A must hold a table of numbers with two sides, time and region of one person; got float64 of shape (3, 60, 5)."
    )


# Files that are none


@pytest.mark.parametrize("kind", KINDS)
def test_broken_and_empty_files(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / kind.format(0), table())
    ending = next(ending for ending in FORMATS if path.name.endswith(ending))
    whole = path.read_bytes()
    read_table(path)
    for content in (whole[: len(whole) // 2], b"\x00\x01 nothing of the kind"):
        path.write_bytes(content)
        if ending not in (".csv", ".tsv"):  # text that ends too soon is still text
            sentence = f"A must be a whole {ending} file of plain numbers; it cannot be read as one."
            assert refusal(lambda: read_table(path), path) == sentence
    path.write_bytes(b"")
    assert refusal(lambda: read_table(path), path) == "A is empty."
    path.unlink()
    assert refusal(lambda: read_table(path), path) == "A cannot be read: No such file or directory."


def test_objects_are_never_read(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (builtins.exec, ("raise SystemError('it ran')",))

    path = tmp_path / "p.npy"
    np.save(path, np.array([[Trap(), 1], [2, 3]], dtype=object), allow_pickle=True)
    assert refusal(lambda: read_table(path), path).endswith("; got object of shape (2, 2).")


def test_an_unknown_format(tmp_path: Path) -> None:
    path = tmp_path / "p.xlsx"
    path.write_text("1")
    allowed = ".npy, .npz, .mat, .h5, .hdf5, .csv, .tsv, .ptseries.nii"
    assert refusal(lambda: read_table(path), path) == f"The format of A must be one of {allowed}; got '.xlsx'."
    dense = tmp_path / "p.dtseries.nii"
    assert refusal(lambda: read_table(dense), dense) == f"The format of A must be one of {allowed}; got '.nii'."


# Folders and people


def test_a_folder_a_pattern_and_a_list_are_the_same(tmp_path: Path) -> None:
    files = people(tmp_path)
    (tmp_path / "README.txt").write_text("not a recording")
    (tmp_path / ".hidden.npy").write_text("neither")
    assert find(tmp_path) == find(str(tmp_path)) == find(f"{tmp_path}/*.npy") == find(files) == files
    assert find(files[1]) == [files[1]]


def test_folders_of_people(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"sub-{i}").mkdir()
        write(tmp_path / f"sub-{i}" / "rest.npy", table(i))
    found = read(tmp_path, orientation="time-region")
    assert [person.person for person in found] == ["sub-0/rest", "sub-1/rest", "sub-2/rest"]


def test_folders_that_hold_none_or_too_much(tmp_path: Path) -> None:
    assert refusal(lambda: find(tmp_path), tmp_path) == (
        "A must be a folder with recordings, files of .npy, .npz, .mat, .h5, .hdf5, .csv, .tsv, .ptseries.nii; "
        "it has none."
    )
    people(tmp_path)
    (tmp_path / "networks.tsv").write_text("a\n")
    assert refusal(lambda: find(tmp_path), tmp_path) == (
        "A must hold recordings of one format; got .npy, .tsv: a pattern such as 'A/*.npy' says which are meant."
    )
    assert len(find(f"{tmp_path}/*.npy")) == 3
    assert refusal(lambda: find(f"{tmp_path}/*.mat"), tmp_path) == "A/*.mat matches no file."


def test_a_file_that_is_there_twice(tmp_path: Path) -> None:
    a, b, _ = people(tmp_path)
    assert refusal(lambda: read([a, b, a], orientation="time-region"), a) == (
        "Every person must have one file; got A and A."
    )


# Which side is time


def test_the_side_that_all_share_is_that_of_regions(tmp_path: Path) -> None:
    files = [write(tmp_path / f"p{i}.npy", table(i, times=TIMES + i)) for i in range(3)]
    assert [person.values.shape for person in read(files)] == [(60, 5), (61, 5), (62, 5)]
    turned = [write(tmp_path / f"q{i}.npy", table(i, times=TIMES + i).T) for i in range(3)]
    assert [person.values.shape for person in read(turned)] == [(60, 5), (61, 5), (62, 5)]


def test_which_side_is_time_cannot_always_be_told(tmp_path: Path) -> None:
    files = people(tmp_path)
    assert refusal(lambda: read(files)) == (
        "Which side is time cannot be told, since all files are 60 x 5; give orientation 'time-region' or "
        "'region-time', or the regions' names."
    )
    assert len(read(files, regions=5)) == len(read(files, orientation="time-region")) == 3
    square = people(tmp_path, "square{}.npy", times=5)
    assert refusal(lambda: read(square, regions=5)).startswith("Which side is time cannot be told, since all files are")


def test_a_wrong_orientation_is_noticed(tmp_path: Path) -> None:
    files = people(tmp_path)
    assert refusal(lambda: read(files, orientation="region-time", regions=5), files[0]) == (
        "orientation must be 'time-region', since A is 60 x 5 and 5 regions are known; got 'region-time'."
    )
    uneven = [write(tmp_path / f"q{i}.npy", table(i, times=TIMES + i)) for i in range(3)]
    assert refusal(lambda: read(uneven, orientation="region-time"), uneven[0]) == (
        "orientation must be 'time-region', since A is 60 x 5 and the people differ in the side of regions alone; "
        "got 'region-time'."
    )
    assert read(uneven, orientation="time-region", regions=5)[2].values.shape == (62, 5)


def test_a_file_that_knows_better(tmp_path: Path) -> None:
    named = people(tmp_path, "p{}.csv")
    assert read(named)[0].values.shape == (60, 5)
    assert refusal(lambda: read(named, orientation="region-time"), named[0]) == (
        "A says itself that it is time-region; got orientation 'region-time'."
    )
    (tmp_path / "other.csv").write_text("a,1,2,3\nb,4,5,6\n")
    assert refusal(lambda: read([*named, tmp_path / "other.csv"])) == (
        "All recordings must be the same way round; some files say time-region, others region-time."
    )


def test_an_unknown_orientation(tmp_path: Path) -> None:
    assert refusal(lambda: read(people(tmp_path), orientation="sideways")) == (
        "orientation must be one of auto, time-region, region-time; got 'sideways'."
    )


# Regions that differ


def test_shapes_that_differ_between_people(tmp_path: Path) -> None:
    a = write(tmp_path / "a.npy", table(0))
    b = write(tmp_path / "b.npy", table(1, regions=6))
    c = write(tmp_path / "c.npy", table(2, times=61, regions=6))
    assert refusal(lambda: read([a, b, c], orientation="time-region"), a, b) == (
        "All people must have the same regions; A has 5, B has 6."
    )
    assert refusal(lambda: read([a, c]), a, c) == (
        "All people must have the same number of regions; A is 60 x 5, B is 61 x 6."
    )
    assert (
        refusal(lambda: read([a, a], regions=7), a) == "7 regions are known, and no side of A is as long; it is 60 x 5."
    )
    assert len(read([b, c])) == 2


def test_names_that_differ_between_people(tmp_path: Path) -> None:
    a, b, c = people(tmp_path, "p{}.csv")
    write(c, table(2), ("V1_L", "V1_R", "a,b_R", "a,b_L", "Vermis"))
    assert refusal(lambda: read([a, b, c]), a, c) == (
        "All people must have the same regions; in A and B region 3 is 'a,b_L' and 'a,b_R'."
    )
    write(c, table(2), ())
    assert refusal(lambda: read([a, b, c]), a, c) == "All people must have the same regions; in A and B one names none."
    write(c, table(2))
    assert len(read([a, b, c])) == 3


# What is not installed


def test_a_missing_package_is_named_with_its_install_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str, *_: object) -> object:
        raise ImportError(name)

    line = "which is not installed: pip install 'placecode[brain]'."
    monkeypatch.setattr(importlib, "import_module", absent)
    for name, package in (("p.h5", "h5py"), ("p.ptseries.nii", "nibabel")):
        path = tmp_path / name
        path.write_text("something")
        assert refusal(lambda: read_table(path), path) == f"Reading A needs the package {package}, {line}"  # noqa: B023
    monkeypatch.undo()
    assert refusal(lambda: package_folder("no_such_package", "It")) == f"It needs the package no_such_package, {line}"
    assert needed("json", "It").loads("1") == 1 and package_folder("json", "It").name == "json"
