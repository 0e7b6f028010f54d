"""Tables that cannot be used are refused, and the error names the file, the line and the value."""

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


def write_text(folder: Path, lines: dict[int, str], head: str = HEAD) -> Path:
    """Write a table of text in which these lines of the file are replaced. Line 1 is the header."""
    plain = [head, *(",".join(str(i + j / 8) for j in range(len(head.split(",")))) for i in range(ROWS))]
    for line, content in lines.items():
        plain[line - 1] = content
    path = folder / "table.csv"
    path.write_text("\n".join(plain) + "\n")
    return path


def read_error(path: Path, **options: Any) -> str:
    """Return the error message of `read_sheet`, without the folder of the file."""
    return refusal(lambda: read_sheet(path, **options), path.parent)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.endswith(("csv", "tsv"))])
def test_damaged_empty_and_missing_files_are_refused(tmp_path, kind) -> None:
    path = write(tmp_path / kind, numbers(ROWS))
    intact = path.read_bytes()
    for content in (intact[: len(intact) // 2], intact[:-1500], b"\x00\x01 nothing of the kind"):
        path.write_bytes(content)
        assert read_error(path).startswith(f"{kind} must be a whole {path.suffix} file")
    path.write_bytes(b"")
    assert read_error(path) == f"{kind} is empty."
    path.unlink()
    assert "No such file" in read_error(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"\n \n", "5 channels, one in each column; it has 1."),
        (b"1 2 3 4 5\n6 7 8 9 0\n", "5 channels, one in each column; it has 1."),
        (b"a,b,c,d,e\n", "only a header"),
        (b"\x00\x01 nothing", "only a header"),
        (b"a,b,c,d,e\n1,2,3,4,5\n", "50 samples, one in each row; it has 1."),
        (b"a,b,c,d,e\n1,2,3,4,5\n1,2,3,4\n", "line 3: must have 5 values; got 4."),
        (b"a,b,c,d,e\n1,2,3,4,5\n\n1,2,3,4,5,6\n", "line 4: must have 5 values; got 6."),
        (b"a,b,c,d,e\n1,2,3,4,5\n1,2,\xff,4,5\n", "UTF-8; line 3 is not."),
    ],
)
def test_bad_text_files_are_refused(tmp_path, content, words) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    assert words in read_error(path)


# Values

DATES = ("2024-05-01", "2024-05-01T10:30:00Z", "01.05.2024", "5/1/24 10:00", "10:30", "1 days 00:00:01")


@pytest.mark.parametrize(
    ("lines", "head", "options", "start"),
    [
        ({7: "1,2,strong,4,5"}, HEAD, {}, "table.csv, line 7: column 'wind' must hold numbers; got 'strong'."),
        ({60: "1,2,3,x,5", 59: "1,2,3,4,1_000"}, HEAD, {}, "table.csv, line 59: column 'e' must hold numbers; got '1_"),
        ({9: "1,2,3,-Infinity,5"}, HEAD, {}, "table.csv, line 9: column 'd' must hold finite numbers"),
        ({1: 'a,b,"the\nwind",d,e', 7: "1,2,strong,4,5"}, HEAD, {}, "table.csv, line 8: column"),
        ({}, "a,b,a,b,e", {}, "The names of the channels of table.csv must all be different; given twice: 'a', 'b'."),
        ({}, HEAD, {"groups": "day"}, "groups must be the name of a column of table.csv"),
        ({5: "1,2,n/a,4,5,6"}, f"{HEAD},f", {"groups": "wind"}, "table.csv, line 5: column 'wind' must name a group"),
        ({}, HEAD, {"key": "one"}, "key is for files of .npz, .mat, .h5, .hdf5"),
    ],
)
def test_bad_values_of_text_are_refused(tmp_path, lines, head, options, start) -> None:
    assert read_error(write_text(tmp_path, lines, head), **options).startswith(start)


@pytest.mark.parametrize("date", DATES)
def test_dates_alone_are_refused_and_beside_words_are_a_category(tmp_path, date) -> None:
    dates = write_text(tmp_path, dict.fromkeys(range(2, 62), f"1,2,{date},4,5"))
    assert f"line 2: column 'wind' must hold numbers; got the date or time {date!r}" in read_error(dates)
    mixed = write_text(tmp_path, {i: f"1,2,{date if i % 2 else 'never'},4,5" for i in range(2, 62)})
    assert read_sheet(mixed).categories[2] == tuple(sorted([date, "never"]))


DAYS = pd.date_range("2024-05-01", periods=3)


@pytest.mark.parametrize(
    ("data", "options", "end"),
    [
        ("table.csv", {}, "got str."),
        (np.zeros((0, 3)), {}, "at least one row and one channel; got 0 x 3."),
        (np.zeros((3, 0)), {}, "at least one row and one channel; got 0 x 0."),
        ([], {}, "at least one row and one channel; got 0 x 0."),
        ([[1, 2], [3]], {}, "row 2: must have 2 values; got 1."),
        ([1, 2], {}, "row 1: must be a list of values; got 1."),
        ([[1, 2], [3, "four"], [5, 6]], {}, "row 2: column 'channel 2' must hold numbers; got 'four'."),
        ([[1, 2], [3, 1e39]], {}, "must hold finite numbers, none beyond 3.4e+38; got 1e+39."),
        ([[1, np.nan, np.nan]], {}, "may be missing; 66.7% are."),
        (pd.DataFrame({"x": [1j, 2]}), {}, "row 1: column 'x' must hold numbers, or words; got 1j."),
        (pd.DataFrame({"x": [1, [2]]}), {}, "row 2: column 'x' must hold numbers, or words; got [2]."),
        *(
            (pd.DataFrame({"a": [1, 2, 3], "day": days}), {}, ": leave the column out, or name it by groups.")
            for days in (DAYS, DAYS.date, DAYS - DAYS[0], DAYS.to_period("D"), DAYS.time)
        ),
        (pd.DataFrame(np.ones((3, 16)), columns=list("aabbccddeeffgghh")), {}, " 'd', 'e' and 3 more."),
        (pd.DataFrame(np.ones((3, 2)), columns=["x", "x"]), {"groups": "x"}, "2 are called 'x'."),
        (np.zeros((3, 2)), {"groups": "day"}, "groups must be the name of a column of data; got 'day'."),
        (np.zeros((3, 2)), {"groups": [1, 2]}, "a group for each of the 3 rows; got 2."),
        (np.zeros((3, 2)), {"groups": [1, None, 2]}, "that of row 2 is missing."),
    ],
)
def test_bad_arrays_and_frames_are_refused(data, options, end) -> None:
    assert refusal(lambda: sheet_of(data, **options)).endswith(end)


def test_bad_values_of_binary_files_are_refused(tmp_path) -> None:
    pd.read_csv(write_text(tmp_path, {7: "1,2,strong,4,5"})).to_parquet(tmp_path / "t.parquet")
    assert read_error(tmp_path / "t.parquet").startswith("t.parquet, row 6: column 'wind'")
    lists = write(tmp_path / "t.parquet", numbers(ROWS).assign(x=[[1.0]] * ROWS))
    assert "column 'x' must hold numbers, or words; got list<" in read_error(lists)
    values = np.full((100, 8), 3.4e38)
    values[:, :4] = np.nan
    np.save(tmp_path / "t.npy", values)
    assert np.isnan(read_sheet(tmp_path / "t.npy").values).mean() == 0.5  # half may be missing
    values[7, 4] = 1e39
    np.save(tmp_path / "t.npy", values)
    assert read_error(tmp_path / "t.npy").startswith("t.npy, row 8: column 'channel 5' must hold finite numbers")
    np.savez(tmp_path / "t.npz", a=np.zeros((2, 3, 4)), b=np.array(["x"]))
    assert read_error(tmp_path / "t.npz").endswith("it holds a, b.")
    (tmp_path / "folder.csv").mkdir()
    assert "Is a directory" in read_error(tmp_path / "folder.csv")
    (tmp_path / "t.xlsx").write_text("1")
    assert read_error(tmp_path / "t.xlsx").startswith("The format of t.xlsx must be one of .csv, .tsv,")


def test_twenty_words_are_a_category_and_twenty_one_are_refused(tmp_path, monkeypatch) -> None:
    lines = dict.fromkeys(range(2, 62), "1,2,,4,5") | {i + 2: f"1,2,w{i},4,5" for i in range(1, 22)}
    path = write_text(tmp_path, lines)
    assert read_error(path).startswith("table.csv, line 3: column 'wind'") and "got 21" in read_error(path)
    monkeypatch.setattr(table_columns, "MAX_COUNTED_WORDS", 20)
    assert "got more than 20" in read_error(path)
    assert len(read_sheet(write_text(tmp_path, lines | {3: "1,2,w5,4,5"})).categories[2]) == 20


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
def test_arrays_that_are_no_tables_of_numbers_are_refused(tmp_path, array, kind) -> None:
    np.save(tmp_path / "t.npy", array, allow_pickle=True)
    np.savez(tmp_path / "t.npz", x=array)
    messages = [read_error(tmp_path / "t.npy"), read_error(tmp_path / "t.npz", key="x")]
    messages.append(refusal(lambda: sheet_of(array)))
    if array.dtype.kind in "fc":
        with h5py.File(tmp_path / "t.h5", "w") as file:
            file["x"] = array
        messages.append(read_error(tmp_path / "t.h5", key="x"))
    assert all(message.endswith(f"got {kind}.") for message in messages)


def test_pickled_objects_are_never_loaded(tmp_path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (builtins.exec, ("raise SystemError('it ran')",))

    trap = np.array([[Trap()] * 5] * ROWS, dtype=object)
    np.save(tmp_path / "t.npy", trap, allow_pickle=True)
    np.savez(tmp_path / "t.npz", x=trap)
    with pytest.raises(SystemError, match="it ran"):
        np.load(tmp_path / "t.npy", allow_pickle=True)
    assert read_error(tmp_path / "t.npy").endswith("got object of shape (60, 5).")
    assert read_error(tmp_path / "t.npz", key="x").endswith("got object of shape (60, 5).")


@pytest.mark.parametrize("ending", [".npz", ".mat", ".h5"])
def test_a_file_with_several_tables_needs_a_key(tmp_path, ending) -> None:
    path, tables = tmp_path / f"t{ending}", {"one": numbers(ROWS).to_numpy(), "two": numbers(ROWS, seed=1).to_numpy()}
    if ending == ".npz":
        np.savez(path, **tables)
    elif ending == ".mat":
        scipy.io.savemat(path, tables)
    else:
        with h5py.File(path, "w") as file:
            file.update(tables)
    assert "several tables, one, two" in read_error(path)
    np.testing.assert_array_equal(read_sheet(path, key="two").values, tables["two"].astype(np.float32))
    assert read_error(path, key="three").endswith("must be one of one, two; got 'three'.")


@pytest.mark.parametrize("ending", [".npy", ".parquet", ".csv"])
def test_a_table_needs_50_samples_and_5_channels_beside_the_groups(tmp_path, ending) -> None:
    def table(rows: int, columns: int) -> Path:
        return write(tmp_path / f"t{ending}", pd.DataFrame(np.ones((rows, columns)), columns=list("abcdef")[:columns]))

    assert read_sheet(table(50, 5)).values.shape == (50, 5)
    assert "at least 50 samples" in read_error(table(49, 5))
    assert "at least 5 channels" in read_error(table(50, 4))
    assert "it has 4." in read_error(table(50, 5), groups="channel 2" if ending == ".npy" else "b")


@pytest.mark.parametrize(
    ("file", "content", "error"),
    [
        ("names.txt", "p\nq\nr\ns\nt\n\n", None),
        ("names.csv", "p\nq\nr\ns\nt\n", None),
        ("names.csv", "area,Name\n1,p\n2,q\n3,r\n4,s\n5,t\n", None),
        ("names.txt", "p\nq\nr\ns\n", "one for each channel of table.csv; got 4."),
        ("names.txt", "p\n\nr\ns\nt\n", "names.txt, line 2: must have a name"),
        ("names.csv", "area,place\n1,p\n", "its columns are 'area', 'place'."),
        ("names.txt", None, "names.txt cannot be read"),
    ],
)
def test_names_of_channels_may_be_in_a_file(tmp_path, file, content, error) -> None:
    path, names = write_text(tmp_path, {}), tmp_path / file
    if content is not None:
        names.write_text(content)
    if error is None:
        assert read_sheet(path, names=names).names == ("p", "q", "r", "s", "t")
    else:
        assert error in read_error(path, names=names)


DAY_OF_ROW = [f"day {i // 20}" for i in range(ROWS)]


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (DAY_OF_ROW, None),
        (["Group", *DAY_OF_ROW, ""], None),
        (DAY_OF_ROW[:-1], "one for each row of table.csv; it has 59."),
        ([*DAY_OF_ROW[:3], "", *DAY_OF_ROW[4:]], "groups.csv, line 4: must name a group"),
        ([f"{day},x" for day in DAY_OF_ROW], "groups.csv, line 1: must have one value"),
    ],
)
def test_groups_of_rows_may_be_in_a_file(tmp_path, lines, error) -> None:
    path, groups = write_text(tmp_path, {}), tmp_path / "groups.csv"
    groups.write_text("\n".join(lines))
    if error is not None:
        assert error in read_error(path, groups=groups)
        return
    sheet = read_sheet(path, groups=groups)
    assert sheet.groups.tolist() == [i // 20 for i in range(ROWS)]
    assert sheet.group_names == ("day 0", "day 1", "day 2") and len(sheet.names) == 5


def test_positions_go_by_the_names_of_channels_and_axes(tmp_path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("\ufeffName;x;y\nb;1;2\na;3.5;-4\n")
    np.testing.assert_array_equal(read_positions(path, ["a", "b"]), [[3.5, -4], [1, 2]])
    path.write_text("z,y,x,name\n1,2,3,b\n4,5,1e100,a\n")
    np.testing.assert_array_equal(read_positions(path, ("a", "b")), [[1e100, 5, 4], [3, 2, 1]])


@pytest.mark.parametrize(
    ("content", "end"),
    [
        ("name,x\na,1\nb,2\n", "got 'name', 'x'."),
        ("a,1,2\nb,2,3\n", "got 'a', '1', '2'."),
        ("name,x,y\na,1,2\nb,2\n", "p.csv, line 3: must have 3 values; got 2."),
        ("name,x,y\na,1,2\nb,2,nan\n", "got 'nan'."),
        ("name,x,y\na,inf,2\nb,2,3\n", "got 'inf'."),
        ("name,x,y\na,1,2\nb,2,-1e300\n", "got '-1e300'."),
        ("name,x,y\na,left,2\nb,2,3\n", "got 'left'."),
        ("name,x,y\na,1,2\n", "missing: 'b'."),
        ("name,x,y\na,1,2\nb,1,1\nc,1,1\n", "unknown: 'c'."),
        ("name,x,y\na,1,2\nb,1,1\na,1,1\n", "given twice: 'a'."),
        ("", "p.csv is empty."),
    ],
)
def test_bad_positions_are_refused(tmp_path, content, end) -> None:
    path = tmp_path / "p.csv"
    path.write_text(content)
    assert refusal(lambda: read_positions(path, ["a", "b"]), tmp_path).endswith(end)


def test_labels_go_by_the_names_of_channels(tmp_path) -> None:
    path = tmp_path / "l.csv"
    path.write_text("name,label\nd,NA\nc,\nb,visual\na,auditory\n")
    codes, meanings = read_labels(path, ["a", "b", "c", "d"])
    assert codes.tolist() == [1, 2, -1, 0] and meanings == ("NA", "auditory", "visual")
    for content, end in ((b"name,network\na,x\n", "got 'name', 'network'."), (b"name,label\na,\xff\n", "13 is not.")):
        path.write_bytes(content)
        assert refusal(lambda: read_labels(path, ["a"]), tmp_path).endswith(end)
