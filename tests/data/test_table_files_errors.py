"""Tables that cannot be used: each kind gets its own sentence, with the place where it is wrong."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io
from helpers.table_data import KINDS, numbers, refusal, write

from placecode.data.channel_files import read_labels, read_positions
from placecode.data.tables import columns as table_columns
from placecode.data.tables.files import read_sheet, sheet_of

ROWS = 60
HEAD = "a,b,wind,d,e"


def text(folder: Path, lines: dict[int, str], head: str = HEAD, rows: int = ROWS, name: str = "table.csv") -> Path:
    """A table of text, in which these lines of the file (the header is the first) are others."""
    plain = [head, *(",".join(str(i + j / 8) for j in range(len(head.split(",")))) for i in range(rows))]
    for line, content in lines.items():
        plain[line - 1] = content
    path = folder / name
    path.write_text("\n".join(plain) + "\n")
    return path


def said(folder: Path, path: Path, **options: Any) -> str:
    return refusal(lambda: read_sheet(path, **options), folder)


# Files that are none


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.endswith(("csv", "tsv"))])
def test_broken_and_empty_files(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / kind, numbers(ROWS))
    whole = path.read_bytes()
    sentence = f"{kind} must be a whole {path.suffix} file of plain numbers; it cannot be read as one."
    for content in (whole[: len(whole) // 2], whole[: len(whole) - 1500], b"\x00\x01 nothing of the kind"):
        path.write_bytes(content)
        assert said(tmp_path, path) == sentence
    path.write_bytes(b"")
    assert said(tmp_path, path) == f"{kind} is empty."
    path.unlink()
    assert said(tmp_path, path) == f"{kind} cannot be read: No such file or directory."


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "table.csv is empty."),
        (b"\n \n", "table.csv must have at least 5 channels, one in each column; it has 1."),
        (b"\n\n", "table.csv is empty."),
        (b"a,b,c,d,e\n", "table.csv must have a row for each sample; it has only a header."),
        (b"a,b,c,d,e\n1,2,3,4,5\n1,2,3,4\n", "table.csv, line 3: must have 5 values; got 4."),
        (b"a,b,c,d,e\n1,2,3,4,5\n\n1,2,3,4,5,6\n", "table.csv, line 4: must have 5 values; got 6."),
        (b"a,b,c,d,e\n1,2,3,4,5\n1,2,\xff,4,5\n", "table.csv must be a text file in UTF-8; line 3 is not."),
        (b"a,b,c,d,e\n1,2,3,4,5\n", "table.csv must have at least 50 samples, one in each row; it has 1."),
        (b"1 2 3 4 5\n6 7 8 9 0\n", "table.csv must have at least 5 channels, one in each column; it has 1."),
        (b"\x00\x01 nothing", "table.csv must have a row for each sample; it has only a header."),
    ],
)
def test_bad_texts(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    assert said(tmp_path, path) == sentence


# Values


DATES = ("2024-05-01", "2024-05-01T10:30:00Z", "01.05.2024", "5/1/24 10:00", "10:30", "1 days 00:00:01")


@pytest.mark.parametrize(
    ("lines", "head", "options", "sentence"),
    [
        ({7: "1,2,strong,4,5"}, HEAD, {}, "table.csv, line 7: column 'wind' must hold numbers; got 'strong'."),
        ({60: "1,2,3,x,5", 59: "1,2,3,4,1_000"}, HEAD, {}, "table.csv, line 59: column 'e' must hold numbers; got '1_"),
        ({9: "1,2,3,-Infinity,5"}, HEAD, {}, "table.csv, line 9: column 'd' must hold finite numbers, "),
        *(
            (
                dict.fromkeys(range(2, 62), f"1,2,{when},4,5"),
                HEAD,
                {},
                f"table.csv, line 2: column 'wind' must hold numbers; got the date or time {when!r}: leave the column "
                "out, or name it by --groups.",
            )
            for when in DATES
        ),
        ({}, "a,b,a,b,e", {}, "The names of the channels of table.csv must all be different; given twice: 'a', 'b'."),
        ({}, "a,b,c,d", {}, "table.csv must have at least 5 channels, one in each column; it has 4."),
        ({}, HEAD, {"groups": "day"}, "groups must be the name of a column of table.csv, or a file with a group a row"),
        ({5: "1,2,n/a,4,5,6"}, f"{HEAD},f", {"groups": "wind"}, "table.csv, line 5: column 'wind' must name a group"),
        ({}, HEAD, {"key": "one"}, "key is for files of .npz, .mat, .h5, .hdf5, which hold several tables; "),
    ],
)
def test_bad_values_of_text(
    tmp_path: Path, lines: dict[int, str], head: str, options: dict[str, Any], sentence: str
) -> None:
    assert said(tmp_path, text(tmp_path, lines, head), **options).startswith(sentence)


def test_lines_are_counted_with_line_ends_in_quotes(tmp_path: Path) -> None:
    quoted = text(tmp_path, {1: 'a,b,"the\nwind",d,e', 7: "1,2,strong,4,5"})  # a header on two lines
    assert "line 8: column" in refusal(lambda: read_sheet(quoted))


@pytest.mark.parametrize("when", DATES)
def test_dates_beside_other_words_are_a_category(tmp_path: Path, when: str) -> None:
    mixed = text(tmp_path, {i: f"1,2,{when if i % 2 else 'never'},4,5" for i in range(2, 62)})
    assert read_sheet(mixed).categories[2] == tuple(sorted([when, "never"]))


DAYS = pd.date_range("2024-05-01", periods=3)
DATE_END = ": leave the column out, or name it by groups."


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        ("table.csv", {}, "data must be a numpy array, a pandas frame or a list of rows; got str."),
        (np.zeros((0, 3)), {}, "data must have at least one row and one channel; got 0 x 3."),
        (np.zeros((3, 0)), {}, "data must have at least one row and one channel; got 0 x 0."),
        ([], {}, "data must have at least one row and one channel; got 0 x 0."),
        ([[1, 2], [3]], {}, "row 2: must have 2 values; got 1."),
        ([1, 2], {}, "row 1: must be a list of values; got 1."),
        ([[1, 2], [3, "four"], [5, 6]], {}, "row 2: column 'channel 2' must hold numbers; got 'four'."),
        ([[1, 2], [3, 1e39]], {}, "must hold finite numbers, none beyond 3.4e+38; got 1e+39."),
        ([[1, np.nan, np.nan]], {}, "At most half of the values of data may be missing; 66.7% are."),
        (pd.DataFrame({"x": [1j, 2]}), {}, "row 1: column 'x' must hold numbers, or words; got 1j."),
        (pd.DataFrame({"x": [1, [2]]}), {}, "row 2: column 'x' must hold numbers, or words; got [2]."),
        *(
            (pd.DataFrame({"a": [1, 2, 3], "day": days}), {}, DATE_END)
            for days in (DAYS, DAYS.date, DAYS - DAYS[0], DAYS.to_period("D"), DAYS.time)
        ),
        (pd.DataFrame(np.ones((3, 16)), columns=list("aabbccddeeffgghh")), {}, " 'd', 'e' and 3 more."),
        (pd.DataFrame(np.ones((3, 2)), columns=["x", "x"]), {"groups": "x"}, "2 are called 'x'."),
        (np.zeros((3, 2)), {"groups": "day"}, "groups must be the name of a column of data; got 'day'."),
        (np.zeros((3, 2)), {"groups": [1, 2]}, "groups must have a group for each of the 3 rows; got 2."),
        (np.zeros((3, 2)), {"groups": [1, None, 2]}, "that of row 2 is missing."),
    ],
)
def test_bad_data(data: Any, options: dict[str, Any], words: str) -> None:
    assert refusal(lambda: sheet_of(data, **options)).endswith(words)


def test_bad_values_of_other_files(tmp_path: Path) -> None:
    pd.read_csv(text(tmp_path, {7: "1,2,strong,4,5"})).to_parquet(tmp_path / "t.parquet")
    assert said(tmp_path, tmp_path / "t.parquet") == "t.parquet, row 6: column 'wind' must hold numbers; got 'strong'."
    lists = write(tmp_path / "t.parquet", numbers(ROWS).assign(x=[[1.0]] * ROWS))
    assert "column 'x' must hold numbers, or words; got list<" in said(tmp_path, lists)
    values = np.full((100, 8), 3.4e38)
    values[:, :4] = np.nan
    np.save(tmp_path / "t.npy", values)
    assert np.isnan(read_sheet(tmp_path / "t.npy").values).mean() == 0.5
    values[7, 4] = 1e39
    np.save(tmp_path / "t.npy", values)
    assert said(tmp_path, tmp_path / "t.npy").startswith("t.npy, row 8: column 'channel 5' must hold finite numbers")
    scipy.io.savemat(tmp_path / "t.mat", {"x": np.full((60, 5), 1j)})
    assert said(tmp_path, tmp_path / "t.mat").endswith("got complex128 of shape (60, 5).")
    np.savez(tmp_path / "t.npz", a=np.zeros((2, 3, 4)), b=np.array(["x"]))
    assert said(tmp_path, tmp_path / "t.npz").endswith("two sides, samples and channels; it holds a, b.")
    (tmp_path / "folder.csv").mkdir()
    assert said(tmp_path, tmp_path / "folder.csv") == "folder.csv cannot be read: Is a directory."
    (tmp_path / "t.xlsx").write_text("1")
    assert said(tmp_path, tmp_path / "t.xlsx").startswith("The format of t.xlsx must be one of .csv, .tsv,")


def test_too_many_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = {i + 2: f"1,2,w{i},4,5" for i in range(1, 22)} | {2: "1,2,,4,5"}
    lines |= dict.fromkeys(range(24, 62), "1,2,,4,5")
    assert said(tmp_path, text(tmp_path, lines)) == (
        "table.csv, line 3: column 'wind' must hold numbers, or at most 20 different words; "
        "got 21 different words, the first of them 'w1'."
    )
    assert read_sheet(text(tmp_path, lines | {3: "1,2,w5,4,5"})).categories[2][0] == "w10"
    monkeypatch.setattr(table_columns, "MAX_COUNTED_WORDS", 20)
    assert "got more than 20 different words, the first of them 'w1'." in said(tmp_path, text(tmp_path, lines))


# Shapes and kinds


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (np.zeros(60), "float64 of shape (60,)"),
        (np.zeros((60, 5, 2)), "float64 of shape (60, 5, 2)"),
        (np.zeros((60, 5), dtype=complex), "complex128 of shape (60, 5)"),
        (np.full((60, 5), "x"), "<U1 of shape (60, 5)"),
        (np.zeros((60, 5), dtype="datetime64[s]"), "datetime64[s] of shape (60, 5)"),
        (np.zeros((60, 5), dtype=object), "object of shape (60, 5)"),
    ],
)
def test_arrays_that_are_no_tables(tmp_path: Path, array: np.ndarray, kind: str) -> None:
    wanted = f"must hold a table of numbers with two sides, samples and channels; got {kind}."
    np.save(tmp_path / "t.npy", array, allow_pickle=True)
    assert said(tmp_path, tmp_path / "t.npy") == f"t.npy {wanted}"
    np.savez(tmp_path / "t.npz", x=array)
    assert said(tmp_path, tmp_path / "t.npz", key="x") == f"t.npz {wanted}"
    assert refusal(lambda: sheet_of(array)) == f"data {wanted}"
    if array.dtype.kind in "fc":
        with h5py.File(tmp_path / "t.h5", "w") as file:
            file["x"] = array
        assert said(tmp_path, tmp_path / "t.h5", key="x") == f"t.h5 {wanted}"


def test_objects_are_never_read(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (builtins.exec, ("raise SystemError('it ran')",))

    trap = np.array([[Trap()] * 5] * ROWS, dtype=object)
    np.save(tmp_path / "t.npy", trap, allow_pickle=True)
    np.savez(tmp_path / "t.npz", x=trap)
    with pytest.raises(SystemError, match="it ran"):
        np.load(tmp_path / "t.npy", allow_pickle=True)
    assert said(tmp_path, tmp_path / "t.npy").endswith("got object of shape (60, 5).")
    assert said(tmp_path, tmp_path / "t.npz", key="x").endswith("got object of shape (60, 5).")


@pytest.mark.parametrize("ending", [".npz", ".mat", ".h5"])
def test_a_file_with_several_tables_takes_a_key(tmp_path: Path, ending: str) -> None:
    path, one, two = tmp_path / f"t{ending}", numbers(ROWS).to_numpy(), numbers(ROWS, seed=1).to_numpy()
    if ending == ".npz":
        np.savez(path, one=one, two=two)
    elif ending == ".mat":
        scipy.io.savemat(path, {"one": one, "two": two})
    else:
        with h5py.File(path, "w") as file:
            file.update({"one": one, "two": two})
    assert said(tmp_path, path) == f"t{ending} holds several tables, one, two; say by key which one is meant."
    np.testing.assert_array_equal(read_sheet(path, key="two").values, two.astype(np.float32))
    assert said(tmp_path, path, key="three") == f"key for t{ending} must be one of one, two; got 'three'."


@pytest.mark.parametrize("ending", [".npy", ".parquet", ".csv"])
def test_the_least_that_a_table_must_have(tmp_path: Path, ending: str) -> None:
    def table(rows: int, columns: int) -> Path:
        return write(tmp_path / f"t{ending}", pd.DataFrame(np.ones((rows, columns)), columns=list("abcdef")[:columns]))

    assert read_sheet(table(50, 5)).values.shape == (50, 5)
    assert said(tmp_path, table(50, 4)) == f"t{ending} must have at least 5 channels, one in each column; it has 4."
    assert said(tmp_path, table(49, 5)) == f"t{ending} must have at least 50 samples, one in each row; it has 49."
    grouped = table(50, 5)
    name = "channel 2" if ending == ".npy" else "b"
    assert said(tmp_path, grouped, groups=name).endswith("must have at least 5 channels, one in each column; it has 4.")


# Names and groups


def test_names_of_channels(tmp_path: Path) -> None:
    path, names = text(tmp_path, {}), tmp_path / "names.txt"
    names.write_text("p q\nr\ns\nt\nu\n\n")
    assert read_sheet(path, names=names).names == ("p q", "r", "s", "t", "u")
    table = tmp_path / "names.csv"
    table.write_text("area,Name\n1,p\n2,q\n3,r\n4,s\n5,t\n")
    assert read_sheet(path, names=table).names == ("p", "q", "r", "s", "t")
    table.write_text("p\nq\nr\ns\nt\n")
    assert read_sheet(path, names=table).names == ("p", "q", "r", "s", "t")
    assert sheet_of(np.zeros((3, 2)), names=["x", "y"]).names == ("x", "y")
    names.write_text("p\nq\nr\ns\n")
    assert said(tmp_path, path, names=names) == ("names must have 5 names, one for each channel of table.csv; got 4.")
    names.write_text("p\n\nr\ns\nt\n")
    assert said(tmp_path, path, names=names) == "names.txt, line 2: must have a name; it is empty."
    table.write_text("area,place\n1,p\n")
    assert said(tmp_path, path, names=table) == (
        "names.csv must have one name a line, or a column 'name'; its columns are 'area', 'place'."
    )
    assert said(tmp_path, path, names=tmp_path / "no.txt") == "no.txt cannot be read: No such file or directory."


def test_groups_in_a_file(tmp_path: Path) -> None:
    path, groups = text(tmp_path, {}), tmp_path / "groups.txt"
    days = [f"day {i // 20}" for i in range(ROWS)]
    for content in ("\n".join(days), "\n".join(["Group", *days, ""])):
        groups.write_text(content)
        sheet = read_sheet(path, groups=groups)
        assert sheet.groups is not None and sheet.groups.tolist() == [i // 20 for i in range(ROWS)]
        assert sheet.group_names == ("day 0", "day 1", "day 2") and len(sheet.names) == 5
    groups.write_text("\n".join(days[:-1]))
    assert said(tmp_path, path, groups=groups) == (
        "groups.txt must have 60 groups, one for each row of table.csv; it has 59."
    )
    groups.write_text("\n".join([*days[:3], "", *days[4:]]))
    assert said(tmp_path, path, groups=groups) == "groups.txt, line 4: must name a group; it is empty."
    table = tmp_path / "groups.csv"
    table.write_text("\n".join(f"{day},x" for day in days))
    assert said(tmp_path, path, groups=table) == ("groups.csv, line 1: must have one value, the group of a row; got 2.")


# Positions and labels


def test_positions(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("\ufeffName;x;y\nb;1;2\na;3.5;-4\n")
    np.testing.assert_array_equal(read_positions(path, ["a", "b"]), [[3.5, -4], [1, 2]])
    path.write_text("z,y,x,name\n1,2,3,b\n4,5,6,a\n")
    found = read_positions(path, ("a", "b"))
    np.testing.assert_array_equal(found, [[6, 5, 4], [3, 2, 1]])
    assert found.dtype == np.float64
    path.write_text("name,x,y\na,1e100,2\nb,0,-1e100\n")
    assert np.isfinite(np.square(read_positions(path, ("a", "b"))).sum())


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("name,x\na,1\nb,2\n", "p.csv must have the columns name, x, y and, if any, z; got 'name', 'x'."),
        ("a,1,2\nb,2,3\n", "p.csv must have the columns name, x, y and, if any, z; got 'a', '1', '2'."),
        ("name,x,y\na,1,2\nb,2\n", "p.csv, line 3: must have 3 values; got 2."),
        (
            "name,x,y\na,1,2\nb,2,nan\n",
            "p.csv, line 3: positions must be finite numbers, none beyond 1e+100; got 'nan'.",
        ),
        (
            "name,x,y\na,inf,2\nb,2,3\n",
            "p.csv, line 2: positions must be finite numbers, none beyond 1e+100; got 'inf'.",
        ),
        (
            "name,x,y\na,1,2\nb,2,-1e300\n",
            "p.csv, line 3: positions must be finite numbers, none beyond 1e+100; got '-1e300'.",
        ),
        (
            "name,x,y\na,left,2\nb,2,3\n",
            "p.csv, line 2: positions must be finite numbers, none beyond 1e+100; got 'left'.",
        ),
        ("name,x,y\na,1,2\n", "p.csv must have a row for each of the 2 channels; missing: 'b'."),
        ("name,x,y\na,1,2\nb,1,1\nc,1,1\n", "p.csv must have a row for each of the 2 channels; unknown: 'c'."),
        ("name,x,y\na,1,2\nb,1,1\na,1,1\n", "p.csv must have a row for each of the 2 channels; given twice: 'a'."),
        ("", "p.csv is empty."),
    ],
)
def test_bad_positions(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "p.csv"
    path.write_text(content)
    assert refusal(lambda: read_positions(path, ["a", "b"]), tmp_path) == sentence


def test_labels(tmp_path: Path) -> None:
    path = tmp_path / "l.csv"
    path.write_text("name,label\nd,NA\nc,\nb,visual\na,auditory\n")
    codes, meanings = read_labels(path, ["a", "b", "c", "d"])
    assert codes.tolist() == [1, 2, -1, 0] and codes.dtype == np.int64
    assert meanings == ("NA", "auditory", "visual")
    path.write_text("name,network\na,x\n")
    assert refusal(lambda: read_labels(path, ["a"]), tmp_path) == (
        "l.csv must have the columns name and label; got 'name', 'network'."
    )
    path.write_bytes(b"name,label\na,\xff\n")
    assert refusal(lambda: read_labels(path, ["a"]), tmp_path) == "l.csv must be a text file in UTF-8; byte 13 is not."
