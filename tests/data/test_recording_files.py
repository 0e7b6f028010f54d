"""Recordings as files: every format gives the same numbers, and bad files are refused."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from helpers import table_data
from helpers.brain_people import EXTRA
from helpers.refusal import sentence

from placecode.data.packages import import_optional, package_folder
from placecode.data.recording_files import FORMATS, find_files, read_recordings, read_table

NAMES = ("V1_L", "V1_R", "a,b_L", "a,b_R", "Vermis")
TIMES, REGIONS = 60, len(NAMES)


def table(person: int = 0, times: int = TIMES, regions: int = REGIONS) -> np.ndarray:
    """Return a smooth recording, (T, n), that differs between people."""
    return 100 * (person + 1) + np.random.default_rng(person).normal(size=(times, regions)).cumsum(axis=0)


def write(path: Path, values: np.ndarray, names: tuple[str, ...] = NAMES) -> Path:
    """Write values in the format of the path's ending. Texts have a header unless their name contains "bare"."""
    if path.suffix == ".nii":
        write_cifti(path, values, names)
        return path
    columns = names if len(names) == values.shape[1] else None
    return table_data.write(path, pd.DataFrame(values, columns=columns))


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


def people(folder: Path, kind: str = "p{}.npy", **options: Any) -> list[Path]:
    return [write(folder / kind.format(i), table(i, **options)) for i in range(3)]


def refusal(act: Callable[[], object], *paths: Path) -> str:
    """Return the message of the exception, with the letters A, B, ... for the paths."""
    message = sentence(act)
    for letter, path in zip("ABCDE", paths, strict=False):
        message = message.replace(str(path), letter)
    return message


@pytest.mark.parametrize("kind", [*(f"p{{}}{ending}" for ending in FORMATS), "v73_p{}.mat"])
def test_every_format_gives_the_same_numbers(tmp_path, kind) -> None:
    recordings = read_recordings(people(tmp_path, kind), orientation="time-region")
    for i, person in enumerate(recordings):
        assert person.values.dtype == np.float64 and person.person == kind.format(i).partition(".")[0]
        np.testing.assert_array_equal(person.values, table(i))
    assert recordings[0].names == (NAMES if kind.endswith(("csv", "tsv", "nii")) else ())
    assert recordings[0].tr == (0.72 if kind.endswith("nii") else None)


@pytest.mark.parametrize("kind", ["p{}.npy", "p{}.mat", "bare{}.csv", "v73_p{}.mat"])
def test_region_by_time_is_transposed(tmp_path, kind) -> None:
    files = [write(tmp_path / kind.format(i), table(i).T) for i in range(3)]
    for orientation, regions in (("region-time", None), ("auto", REGIONS)):
        for i, person in enumerate(read_recordings(files, orientation=orientation, regions=regions)):
            np.testing.assert_array_equal(person.values, table(i))


def test_cifti_knows_its_orientation(tmp_path) -> None:
    path = tmp_path / "p.ptseries.nii"
    write_cifti(path, table(), NAMES, turned=True)
    (person,) = read_recordings([path])
    np.testing.assert_array_equal(person.values, table())
    assert (person.names, person.tr) == (NAMES, 0.72)


def test_cifti_that_is_not_parcellated_is_refused(tmp_path) -> None:
    nibabel = pytest.importorskip("nibabel", reason=EXTRA)
    axes = nibabel.cifti2.cifti2_axes
    path = tmp_path / "p.ptseries.nii"
    scalars = axes.ScalarAxis([str(i) for i in range(REGIONS)])
    nibabel.save(nibabel.Cifti2Image(table(), (axes.SeriesAxis(0, 0.72, TIMES), scalars)), path)
    assert "SeriesAxis and ScalarAxis" in refusal(lambda: read_table(path))


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
def test_tables_of_text_show_their_names_and_orientation(tmp_path, text, names, orientation) -> None:
    path = tmp_path / "näme with space.csv"
    path.write_bytes(text.encode())
    content = read_table(path)
    assert content.values.tolist() == [[1, 2.5, 3], [4, 5, 6]]
    assert (content.names, content.orientation) == (names, orientation)


def test_missing_values_of_text_are_nan(tmp_path) -> None:
    (tmp_path / "p.csv").write_text("x,y\n1,n/a\n,NaN\n3,4\n")
    np.testing.assert_array_equal(read_table(tmp_path / "p.csv").values, [[1, np.nan], [np.nan, np.nan], [3, 4]])
    (tmp_path / "p.tsv").write_text("motion\n1\n2\n3\n")  # one column is a table of confounds
    assert read_table(tmp_path / "p.tsv").values.tolist() == [[1], [2], [3]]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("p.csv", b"x,y\n1,2\n3\n", "A, line 3: must have 2 values; got 1."),
        ("p.csv", b"x,y\n1,2\n3,four\n", "A, line 3: every value must be a number; got 'four'."),
        ("p.csv", b"x,y\n", "A must have a row for each time point"),
        ("p.csv", b"region\na\nb\n", "A must hold a table of numbers with two sides"),
        ("p.csv", b"1,2\n\xff,3\n", "byte 4 is not."),
        ("p.csv", b"", "A is empty."),
        ("p.npy", b"\x00\x01 nothing", "A must be a whole .npy file"),
        ("p.ptseries.nii", b"\x00\x01 nothing", "A must be a whole .ptseries.nii file"),
        ("p.xlsx", b"1", "got '.xlsx'."),
        ("p.dtseries.nii", b"1", "got '.nii'."),
    ],
)
def test_bad_files_are_refused(tmp_path, name, content, words) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    if name.endswith(".ptseries.nii"):
        pytest.importorskip("nibabel", reason=EXTRA)
    assert words in refusal(lambda: read_table(path), path)


def test_a_recording_has_two_axes(tmp_path) -> None:
    np.savez(tmp_path / "p.npz", one=table(), mask=table() > 100, tr=2.0)  # a mask is not a recording
    np.testing.assert_array_equal(read_table(tmp_path / "p.npz").values, table())
    np.save(tmp_path / "p.npy", np.zeros((3, TIMES, REGIONS)))
    assert "float64 of shape (3, 60, 5)" in refusal(lambda: read_table(tmp_path / "p.npy"))
    assert "float64 of shape ()" in refusal(lambda: read_table(tmp_path / "p.npz", "tr"))
    assert "key is for files of" in refusal(lambda: read_table(tmp_path / "p.npy", "tc"))


def test_a_folder_a_pattern_and_a_list_give_the_same_files(tmp_path) -> None:
    files = people(tmp_path)
    (tmp_path / "README.txt").write_text("not a recording")
    (tmp_path / ".hidden.npy").write_text("neither")
    for source in (tmp_path, str(tmp_path), f"{tmp_path}/*.npy", files):
        assert find_files(source) == files
    assert find_files(files[1]) == [files[1]]
    (tmp_path / "networks.tsv").write_text("a\n")
    assert "one format; got .npy, .tsv" in refusal(lambda: find_files(tmp_path))
    assert "matches no file" in refusal(lambda: find_files(f"{tmp_path}/*.mat"))


def test_people_in_folders_of_their_own(tmp_path) -> None:
    assert "must be a folder with recordings" in refusal(lambda: find_files(tmp_path))
    for i in range(3):
        (tmp_path / f"sub-{i}").mkdir()
        write(tmp_path / f"sub-{i}" / "rest.npy", table(i))
    recordings = read_recordings(tmp_path, orientation="time-region")
    assert [person.person for person in recordings] == ["sub-0/rest", "sub-1/rest", "sub-2/rest"]
    a, b = find_files(tmp_path)[:2]
    assert "one file; got A and A." in refusal(lambda: read_recordings([a, b, a], orientation="time-region"), a)


def test_the_axis_that_all_files_share_is_that_of_regions(tmp_path) -> None:
    files = [write(tmp_path / f"p{i}.npy", table(i, times=TIMES + i)) for i in range(3)]
    turned = [write(tmp_path / f"q{i}.npy", table(i, times=TIMES + i).T) for i in range(3)]
    for paths in (files, turned):
        assert [person.values.shape for person in read_recordings(paths)] == [(60, 5), (61, 5), (62, 5)]
    assert "since A is 60 x 5" in refusal(lambda: read_recordings(files, orientation="region-time"), files[0])


def test_unknown_and_wrong_orientations_are_refused(tmp_path) -> None:
    files, square = people(tmp_path), people(tmp_path, "square{}.npy", times=5)
    assert len(read_recordings(files, regions=5)) == len(read_recordings(files, orientation="time-region")) == 3
    named = people(tmp_path, "p{}.csv")  # names of columns show the orientation
    assert read_recordings(named)[0].values.shape == (60, 5)
    (tmp_path / "other.csv").write_text("a,1,2,3\nb,4,5,6\n")
    for paths, options, words in (
        (files, {}, "Which side is time cannot be told"),
        (square, {"regions": 5}, "Which side is time cannot be told"),
        (files, {"orientation": "region-time", "regions": 5}, "since A is 60 x 5 and 5 regions are known"),
        (files, {"orientation": "sideways"}, "orientation must be one of"),
        (named, {"orientation": "region-time"}, "is 'time-region'; got 'region-time'"),
        ([*named, tmp_path / "other.csv"], {}, "same orientation"),
    ):
        assert words in refusal(lambda: read_recordings(paths, **options), files[0])  # noqa: B023


def test_shapes_that_differ_between_people_are_refused(tmp_path) -> None:
    a = write(tmp_path / "a.npy", table(0))
    b = write(tmp_path / "b.npy", table(1, regions=6), ())
    c = write(tmp_path / "c.npy", table(2, times=61, regions=6), ())
    assert refusal(lambda: read_recordings([a, b, c], orientation="time-region"), a, b).endswith("; A has 5, B has 6.")
    assert refusal(lambda: read_recordings([a, c]), a, c).endswith("; A is 60 x 5, B is 61 x 6.")
    message = refusal(lambda: read_recordings([a, a], regions=7), a)
    assert message.startswith("7 regions are known, and no side of A is as long")
    assert len(read_recordings([b, c])) == 2


def test_names_that_differ_between_people_are_refused(tmp_path) -> None:
    a, b, c = people(tmp_path, "p{}.csv")
    bare = write(tmp_path / "bare.csv", table(2))
    assert len(read_recordings([a, b, c])) == 3
    write(c, table(2), ("V1_L", "V1_R", "a,b_R", "a,b_L", "Vermis"))
    assert refusal(lambda: read_recordings([a, b, c]), a, c).endswith("; in A and B region 3 is 'a,b_L' and 'a,b_R'.")
    assert refusal(lambda: read_recordings([a, b, bare]), a, bare).endswith("; in A and B one file has no names.")


def test_a_missing_package_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(importlib, "import_module", Mock(side_effect=ImportError("absent")))
    for name, package in (("p.h5", "h5py"), ("p.ptseries.nii", "nibabel")):
        path = tmp_path / name
        path.write_text("something")
        assert f"needs the package {package}" in refusal(lambda: read_table(path))  # noqa: B023
    monkeypatch.undo()
    assert "needs the package no_such_package" in refusal(lambda: package_folder("no_such_package", "It"))
    assert import_optional("json", "It").loads("1") == 1 and package_folder("json", "It").name == "json"
