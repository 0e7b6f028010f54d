"""A user's own table: every format gives the same sheet, and a cell means the same in all of them."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.refusal import refused
from helpers.table_data import FLAT, KINDS, frame, numbers, refusal, same, write
from hypothesis import given, settings
from hypothesis import strategies as st

from placecode.data.channel_files import read_positions
from placecode.data.tables import sources as table_sources
from placecode.data.tables.files import read_cells, read_sheet, sheet_of
from placecode.errors import BadInput

ROWS = 60


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_same_sheet(tmp_path, kind) -> None:
    table = numbers(ROWS)
    sheet = read_sheet(write(tmp_path / kind, table))
    assert sheet.values.dtype == np.float32 and sheet.source == kind
    np.testing.assert_array_equal(sheet.values.view(np.uint32), table.to_numpy().astype(np.float32).view(np.uint32))
    assert sheet.names == (tuple(f"channel {i}" for i in range(1, 8)) if kind in FLAT else tuple(table.columns))
    assert sheet.categories == {} and sheet.groups is None and sheet.group_names == ()
    assert not same(sheet, read_sheet(write(tmp_path / kind, numbers(ROWS, seed=1))))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in FLAT])
@pytest.mark.parametrize("groups", [None, "who", "day"])
def test_every_format_with_names_gives_the_same_groups_and_categories(tmp_path, kind, groups) -> None:
    table = frame(ROWS) if groups == "day" else frame(ROWS).drop(columns="day")
    table = table if groups == "who" else table.assign(who=table["who"].map({"Ann": 0.0, "Bo": 1.0}))
    sheet = read_sheet(write(tmp_path / kind, table), groups=groups)
    assert same(sheet, sheet_of(table, groups=groups))
    wind = sheet.names.index("wind")
    assert sheet.categories == {wind: ("east", "north", "west")} and sheet.values.dtype == np.float32
    words = [None if np.isnan(code) else sheet.categories[wind][int(code)] for code in sheet.values[:, wind]]
    assert words == [None if pd.isna(word) else word.strip() for word in table["wind"]]
    np.testing.assert_array_equal(sheet.values[:, sheet.names.index("dry")], table["dry"].astype(float))
    if groups is None:
        assert sheet.groups is None
        return
    assert groups not in sheet.names and sheet.groups.dtype == np.int64
    names = [sheet.group_names[code] for code in sheet.groups]
    expected = table["who"] if groups == "who" else [str(day)[:10] for day in table["day"]]
    assert names == list(expected)
    assert list(dict.fromkeys(sheet.groups.tolist())) == list(range(len(sheet.group_names)))  # of first appearance


@pytest.mark.parametrize("kind", [np.float16, np.float64, np.int16, np.int64, np.uint8, ">f4", np.longdouble, bool])
def test_all_kinds_of_numbers_are_read_alike(tmp_path, kind) -> None:
    values = (numbers(ROWS).fillna(0).to_numpy() * 10).clip(0, 200).astype(kind)
    expected = values.astype(np.float64).astype(np.float32)
    for order in ("C", "F"):
        np.save(tmp_path / "t.npy", np.asarray(values, order=order))
        np.testing.assert_array_equal(read_sheet(tmp_path / "t.npy").values, expected)
    np.testing.assert_array_equal(sheet_of(values).values, expected)


def test_whole_numbers_round_alike_in_every_format(tmp_path) -> None:
    """Integers such as 2^24 + 1 lie between two float32 numbers, so rounding may differ with and without float64."""
    values = np.array([[2**60 + 2**36 + 1 + i * j for j in range(5)] for i in range(ROWS)])
    table = pd.DataFrame(values, columns=list("abcde"))
    sheets = [read_sheet(write(tmp_path / kind, table)) for kind in ("t.csv", "t.parquet", "t.npy")]
    for sheet in sheets:
        np.testing.assert_array_equal(sheet.values, sheets[0].values)
    assert not np.array_equal(sheets[0].values, values.astype(np.float32))


@pytest.mark.parametrize("kind", ["t.csv", "t.parquet", "t.npy", "t.h5"])
@pytest.mark.parametrize("offset", [1e8, -1e12, 1e5])
def test_small_variation_beside_a_large_offset_is_kept(tmp_path, kind, offset) -> None:
    """float32 can represent 100000000 and 100000008, but no number between them."""
    table = numbers(ROWS)
    plain = np.random.default_rng(0).normal(size=ROWS)
    table["a"], table["d"] = plain + offset, offset  # one varies, one does not
    sheet = read_sheet(write(tmp_path / kind, table))
    assert sheet.offsets.tolist() == [table["a"].min(), *[0.0] * 6]
    np.testing.assert_allclose(sheet.values[:, 0] + sheet.offsets[0], table["a"], rtol=0, atol=2e-4)
    np.testing.assert_allclose(sheet.values[:, 0], plain - plain.min(), rtol=0, atol=2e-4)
    np.testing.assert_array_equal(sheet.values[:, 3], np.float32(offset))
    again = sheet_of(table)
    np.testing.assert_array_equal(again.values, sheet.values)
    np.testing.assert_array_equal(again.offsets, sheet.offsets)


def test_rounding_beside_an_offset_is_ignored() -> None:
    values = np.ones((ROWS, 3)) * [0.1, 3e7, 1e4]
    values[::2, 0] += 1e-17
    values[::2, 1] += np.spacing(3e7) * 4
    values[:, 2] += np.arange(ROWS)
    float32 = values.astype(np.float32)
    float32[::2, 0] = np.nextafter(float32[::2, 0], 1)  # noise of what has been float32 before
    for array in (values, float32, float32.astype(np.float64), np.ones((2, 3)) * np.nan_to_num([np.nan])):
        assert not sheet_of(array).offsets.any()


@settings(max_examples=15, deadline=None)
@given(
    rows=st.lists(
        st.lists(st.one_of(st.none(), st.floats(-1e30, 1e30), st.integers(-(10**9), 10**9)), min_size=5, max_size=5),
        min_size=50,
        max_size=52,
    ),
    sign=st.sampled_from(",;\t"),
)
def test_text_numbers_equal_pythons(tmp_path_factory, rows, sign) -> None:
    path = tmp_path_factory.mktemp("text") / "t.csv"
    full = [[1.0] * 5, *rows, *rows[: len(rows)], *[[0] * 5] * 200]  # so that no more than half is missing
    lines = [sign.join("" if cell is None else repr(cell) for cell in row) for row in full]
    path.write_text("\n".join([sign.join("vwxyz"), *lines]))
    expected = np.array([[np.nan if cell is None else float(cell) for cell in row] for row in full])
    np.testing.assert_array_equal(read_sheet(path).values, expected.astype(np.float32))


def text(path: Path, first: list[str], row: Callable[[int], str], rows: int = ROWS) -> Path:
    path.write_text("\n".join([*first, *(row(i) for i in range(rows))]) + "\n")
    return path


def test_headers_are_recognized(tmp_path) -> None:
    path, named = tmp_path / "t.csv", ("a", "b", "c", "d", "e")
    none = tuple(f"channel {i}" for i in range(1, 6))
    plain = lambda i: f"{i},2,3,{i * i},5"  # noqa: E731
    worded = lambda i: f"{i},{'yes' if i % 2 else 'no'},3,{i * i},5"  # noqa: E731
    for first, row, names, rows in [
        (["a,b,c,d,e"], plain, named, ROWS),
        ([" a ,b,\"c\",d, 'e'"], plain, ("a", "b", "c", "d", "'e'"), ROWS),
        (["Na,K,n/a,d,e"], plain, ("Na", "K", "n/a", "d", "e"), ROWS),  # sodium is not missing
        (["a,b,,d,e"], plain, ("a", "b", "channel 3", "d", "e"), ROWS),
        (["2019,2020,total,d,e"], plain, ("2019", "2020", "total", "d", "e"), ROWS),
        ([], plain, none, ROWS),
        (["0,1,2,3,4"], plain, ("0", "1", "2", "3", "4"), ROWS),  # a header that only counts
        (["1,2,3,4,5"], plain, ("1", "2", "3", "4", "5"), ROWS),
        (["9,yes,3,4,5"], worded, none, ROWS + 1),  # words over words, beside numbers: a row of values
        (["a,b,c,d,e"], worded, named, ROWS),
        (["", "a,b,c,d,e", ""], plain, named, ROWS),
    ]:
        sheet = read_sheet(text(path, first, row))
        assert (sheet.names, len(sheet.values)) == (names, rows), first
        assert sheet.categories == ({1: ("no", "yes")} if row is worded else {})
    path.write_bytes(b"\xef\xbb\xbf" + text(path, ["a,b,c,d,e"], plain).read_bytes().replace(b"\n", b"\r\n"))
    assert read_sheet(path).names == named


def test_the_index_of_a_frame_is_not_a_channel(tmp_path) -> None:
    table = numbers(ROWS)
    table.index = pd.Index(np.arange(ROWS) * 0.5, name="seconds")
    table.to_parquet(tmp_path / "t.parquet")
    assert same(read_sheet(tmp_path / "t.parquet"), sheet_of(table))
    assert len(read_sheet(tmp_path / "t.parquet", groups="seconds").group_names) == ROWS


@pytest.mark.parametrize("missing", ["", "n/a", "NA", "nan", "NaN", "Null", "NONE", "  "])
def test_missing_values_of_text_are_nan(tmp_path, missing) -> None:
    path = text(tmp_path / "t.csv", ["a,b,c,d,e"], lambda i: f"{i},{missing if i == 7 else ' 1e1 '},+3,.5,6")
    values = read_sheet(path).values
    assert np.isnan(values[7, 1]) and np.isnan(values).sum() == 1
    np.testing.assert_array_equal(values[8], np.float32([8, 10, 3, 0.5, 6]))


def test_missing_values_of_a_frame_are_nan() -> None:
    table = pd.DataFrame({"a": [1, None, pd.NA, np.nan, "n/a", "", Decimal("2.5")]})
    table["b"] = pd.Series([True, False, None] + [True] * 4, dtype=object)
    table["c"] = pd.array([1, None, 3, 4, 5, 6, 7], dtype="Int64")
    table["d"] = pd.Categorical(["x", "y", None, "x", "x", "nan", "y"])
    table["e"] = pd.Categorical([3, 1, 3, 3, 3, 1, 1])
    table["f"] = pd.array(["u", None, "u", "v", "v", " v", "u"], dtype="string")
    nan = np.nan
    sheet = sheet_of(table)
    np.testing.assert_array_equal(sheet.values[:, 0], np.float32([1, nan, nan, nan, nan, nan, 2.5]))
    np.testing.assert_array_equal(sheet.values[:, 1], np.float32([1, 0, nan, 1, 1, 1, 1]))
    np.testing.assert_array_equal(sheet.values[:, 2], np.float32([1, nan, 3, 4, 5, 6, 7]))
    np.testing.assert_array_equal(sheet.values[:, 3], np.float32([0, 1, nan, 0, 0, nan, 1]))
    np.testing.assert_array_equal(sheet.values[:, 4], np.float32([1, 0, 1, 1, 1, 0, 0]))
    np.testing.assert_array_equal(sheet.values[:, 5], np.float32([0, nan, 0, 1, 1, 1, 0]))
    assert sheet.categories == {3: ("x", "y"), 4: ("1", "3"), 5: ("u", "v")}


def test_declared_categories_may_hold_any_values(tmp_path) -> None:
    """Data frames and Parquet files declare categories. Columns of numbers that are not declared stay numbers."""
    table = numbers(ROWS)
    for name, values in (
        ("code", [10, 2, 2, 7]),
        ("digits", ["1", "0", "0", " 1"]),
        ("size", [0.5, 1.5, 1.5, np.nan]),
        ("comma", ["0,5", "1,5", "0,5", None]),
        ("day", ["2024-05-01", "2024-05-02", "n/a", "2024-05-01"]),
    ):
        table[name] = pd.Categorical(values * (ROWS // 4))
    sheet = read_sheet(write(tmp_path / "t.parquet", table))
    assert same(sheet, sheet_of(table))
    words = {7: ("10", "2", "7"), 8: ("0", "1"), 9: ("0.5", "1.5"), 10: ("0,5", "1,5")}
    assert sheet.categories == {**words, 11: ("2024-05-01", "2024-05-02")}
    nan = np.nan
    codes = [[0, 1, 0, 0, 0], [1, 0, 1, 1, 1], [1, 0, 1, 0, nan], [2, 1, nan, nan, 0]]
    np.testing.assert_array_equal(sheet.values[:4, 7:], np.float32(codes))
    grouped = read_sheet(tmp_path / "t.parquet", groups="code")
    assert grouped.group_names == ("10", "2", "7") and same(grouped, sheet_of(table, groups="code"))
    plain = table.assign(code=table["code"].astype(int), digits=table["digits"].astype(str))
    assert set(sheet_of(plain).categories) == {9, 10, 11}
    table["code"] = pd.Categorical(range(ROWS))
    assert "must hold numbers, or at most 20 different words; got 60" in refusal(lambda: sheet_of(table))


@pytest.mark.parametrize("kind", ["string", "large_string", "string_view"])
def test_texts_of_every_kind_are_words(tmp_path, kind) -> None:
    table = pa.table({name: pa.array(np.arange(ROWS) + i) for i, name in enumerate("abcd")})
    texts = ["west", None, " east", "west"] * (ROWS // 4)
    table = table.append_column("wind", pa.array(texts, type=getattr(pa, kind)()))
    table = table.append_column("more", pa.array([str(i / 8) for i in range(ROWS)], type=getattr(pa, kind)()))
    pq.write_table(table, tmp_path / "t.parquet")
    sheet = read_sheet(tmp_path / "t.parquet")
    assert sheet.categories == {4: ("east", "west")}
    np.testing.assert_array_equal(sheet.values[:4, 4], np.float32([1, np.nan, 0, 1]))
    np.testing.assert_array_equal(sheet.values[:, 5], np.arange(ROWS) / 8)


def test_true_and_false_are_numbers_unless_beside_other_words(tmp_path) -> None:
    path = text(tmp_path / "t.csv", ["a,b,c,d,e"], lambda i: f"{i},{i},{'true' if i % 3 else 'FALSE'},d,{i}")
    np.testing.assert_array_equal(read_sheet(path).values[:, 2], np.float32([i % 3 > 0 for i in range(ROWS)]))
    path = text(tmp_path / "t.csv", ["a,b,c,d,e"], lambda i: f"{i},{i},{['true', 'false', 'unknown'][i % 3]},4,{i}")
    assert read_sheet(path).categories == {2: ("false", "true", "unknown")}


@pytest.mark.parametrize("first", [0, 1])
def test_numbers_may_be_names_of_channels(tmp_path, first) -> None:
    """Files of positions and labels use these names. Only the default names of pandas do not count as names."""
    names = tuple(str(i + first) for i in range(7))
    table = numbers(ROWS).set_axis(list(names), axis=1)
    for kind in ("t.csv", "t.parquet", "index.csv"):
        sheet = read_sheet(write(tmp_path / kind, table))
        assert sheet.names == names and sheet.columns[-7:] == names and same(sheet, sheet_of(table))
    (tmp_path / "p.csv").write_text("name,x,y\n" + "".join(f"{name},{name},0\n" for name in names[::-1]))
    assert read_positions(tmp_path / "p.csv", sheet.names)[:, 0].tolist() == [int(name) for name in names]
    counted = table.set_axis([int(name) for name in names], axis=1)
    assert sheet_of(counted).names == (names if first else tuple(f"channel {i}" for i in range(1, 8)))
    assert sheet_of(counted[[3, 1]]).names == ("3", "1")


def test_arrays_frames_and_lists_are_the_same(tmp_path) -> None:
    table = numbers(ROWS)
    values = table.to_numpy()
    np.save(tmp_path / "m.npy", values)
    sheets = [
        sheet_of(values),
        sheet_of(np.asfortranarray(values)),
        sheet_of(np.load(tmp_path / "m.npy", mmap_mode="r")),
        sheet_of(values.tolist()),
        sheet_of(pd.DataFrame(values)),
        sheet_of(np.ma.masked_invalid(values)),
    ]
    assert all(same(sheet, sheets[0]) for sheet in sheets) and sheets[0].source == "array"
    assert same(sheet_of(table), sheet_of(values, names=list(table.columns)))
    assert np.ma.masked_greater(values, 0).count() < np.isfinite(values).sum()
    hidden = sheet_of(np.ma.masked_array(np.ones((2, 2)), [[1, 0], [0, 0]])).values
    np.testing.assert_array_equal(hidden, [[np.nan, 1], [1, 1]])


def test_arrays_of_the_user_are_not_changed(tmp_path) -> None:
    values = np.ones((3, 2), dtype=np.float32)
    sheet_of(values).values[0, 0] = 7
    assert (values == 1).all()
    np.save(tmp_path / "m.npy", values)
    there = np.load(tmp_path / "m.npy", mmap_mode="r+")
    sheet = sheet_of(there)
    assert isinstance(sheet.values, np.memmap) and not sheet.values.flags.writeable and there.flags.writeable


def test_groups_may_be_given_beside_the_rows() -> None:
    values = np.arange(8.0).reshape(4, 2)
    sheet = sheet_of(values, groups=["b", "a", "b", "c"])
    assert sheet.groups.tolist() == [0, 1, 0, 2] and sheet.group_names == ("b", "a", "c")
    for groups in (np.array([2, 1, 2, 3]), pd.Series([2.0, 1.0, 2.0, 3.0])):
        assert sheet_of(values, groups=groups).group_names == ("2", "1", "3")


def test_groups_are_a_column_of_a_frame_by_any_name() -> None:
    table = pd.DataFrame(np.arange(12.0).reshape(3, 4))
    for name in (2, np.int64(2), 2.0):
        sheet = sheet_of(table, groups=name)
        assert sheet.group_names == ("2", "6", "10") and sheet.channels == (0, 1, 3)
    pairs = table.set_axis(pd.MultiIndex.from_product([["a", "b"], [1, 2]]), axis=1)
    assert sheet_of(pairs, groups=("b", 1)).group_names == ("2", "6", "10")
    assert sheet_of(table, groups=("x", "y", "x")).group_names == ("x", "y")  # a group for each row
    for wrong in (7, 1.5, np.array(3)):
        error = refused(sheet_of, table, groups=wrong)
        assert error.name == "groups" and error.given is wrong


def test_cells_of_a_file_are_read_as_they_are(tmp_path, monkeypatch) -> None:
    """Categories in chunks of rows of which only some have words."""
    monkeypatch.setattr(table_sources, "CHUNK_BYTES", 64)
    wind = pd.Series([None] * 40 + ["west", "east"], dtype=object)
    data = pd.DataFrame({"": range(42), "a": np.arange(42) / 2, "wind": wind, "day": ["2024-05-01"] * 42})
    for name, save in (("t.csv", data.to_csv), ("t.parquet", data.to_parquet)):
        save(tmp_path / name, index=False)
        result = read_cells(tmp_path / name)
        assert list(result.columns) == ["Unnamed: 0", "a", "wind", "day"]
        assert result["a"].tolist() == data["a"].tolist() and set(result["day"]) == {"2024-05-01"}
        assert result["wind"].isna().sum() == 40 and result["wind"].tolist()[40:] == ["west", "east"]
    np.save(tmp_path / "t.npy", np.empty((0, 3)))
    assert read_cells(tmp_path / "t.npy").shape == (0, 3)
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(BadInput, match=r"must be a whole \.parquet file of plain numbers; it cannot be read as one\.$"):
        read_cells(tmp_path / "t.parquet")
