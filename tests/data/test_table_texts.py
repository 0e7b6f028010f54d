"""What is easily misread: headers, decimal commas, columns of times, spaces before quotes."""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.table_data import refusal, same
from hypothesis import given, settings
from hypothesis import strategies as st

from placecode.data.tables import sources as table_sources
from placecode.data.tables import texts as table_texts
from placecode.data.tables.files import read_cells, read_sheet, sheet_of

ROWS = 60
NAMES = ("a", "b", "c", "d", "e")


def table(rows: int = ROWS) -> pd.DataFrame:
    values = np.random.default_rng(0).normal(size=(rows, 5)).round(3).astype(np.float32)
    return pd.DataFrame(values, columns=list(NAMES))


@pytest.mark.parametrize("sign", [";", "\t"])
@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("quoting", [0, 1])
def test_decimal_commas_are_refused(tmp_path, sign, header, quoting) -> None:
    path, data = tmp_path / "t.csv", table()
    data.to_csv(path, sep=sign, decimal=",", index=False, header=header, quoting=quoting)  # type: ignore[call-overload]
    message = refusal(lambda: read_sheet(path), tmp_path)
    assert message.startswith(f"t.csv, line {1 + header}: column ") and "decimal comma" in message


@pytest.mark.parametrize("cells", [["0,5", "-1,5"], ["1", "0,5"], ["", ",5"]])  # two words would be a category
def test_few_decimal_commas_are_refused(tmp_path, cells) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;b;c;d;e\n" + "".join(f"1;2;3;4;{cells[i % 2]}\n" for i in range(ROWS)))
    for act in (lambda: read_sheet(path), lambda: sheet_of(pd.DataFrame({"e": pd.Series(cells * 2, dtype=object)}))):
        assert "column 'e' must hold numbers with a decimal point; got the decimal comma of" in refusal(act)


@pytest.mark.parametrize(("sign", "words"), [(";", ("0,5", "low")), (",", ("x;y", "z"))])
def test_words_with_commas_and_semicolons_are_a_category(tmp_path, sign, words) -> None:
    rows = [sign.join(["1", "2", "3", str(i), words[i % 2]]) for i in range(ROWS)]
    (tmp_path / "t.csv").write_text("\n".join([sign.join("abcde"), *rows]))
    assert read_sheet(tmp_path / "t.csv").categories == {4: words}


def both(folder: Path, data: pd.DataFrame) -> list[tuple[str, ...]]:
    """The names of the channels, as a file and as a frame, and with every later row alone."""
    data.to_csv(folder / "t.csv", index=False)
    sheets = [read_sheet(folder / "t.csv"), sheet_of(data)]
    assert same(*sheets)
    return [*(sheet.names for sheet in sheets), sheet_of(data.iloc[10:]).names]


@pytest.mark.parametrize(("chunk", "header"), [(200, "Time"), (2**22, "id"), (200, "Unnamed: 0"), (2**22, "row")])
@pytest.mark.parametrize(
    "values",
    [
        np.arange(ROWS) / 10,
        np.arange(ROWS) * 0.1 + 273.15,
        np.arange(ROWS) + 1001,
        np.arange(ROWS) * 5 - 60,
        (np.arange(ROWS) / 30).round(2),  # 0, 0.03, 0.07, 0.1: even but for rounding
        (1.7e9 + np.arange(ROWS) / 8),
        (np.arange(ROWS) * 0.7 + 1e5).astype(np.float32).astype(np.float64),  # rounded by float32
    ],
)
def test_a_first_column_of_times_is_not_a_channel(tmp_path, monkeypatch, header, values, chunk) -> None:
    monkeypatch.setattr(table_sources, "CHUNK_BYTES", chunk)
    data = table()
    data.insert(0, header, values)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert both(tmp_path, data) == [NAMES] * 3
        data.insert(0, "speed", data.pop(header))  # by another name, or elsewhere, it is a channel
        assert both(tmp_path, data) == [("speed", *NAMES)] * 3
        data.insert(5, header, data.pop("speed"))
        assert both(tmp_path, data) == [(*NAMES, header)] * 3


@pytest.mark.parametrize(
    "values",
    [
        np.arange(ROWS)[::-1],
        np.arange(ROWS) // 2,
        np.arange(ROWS) ** 2,
        np.arange(ROWS) + (np.arange(ROWS) > 30),  # a sample was left out
        np.where(np.arange(ROWS) == 30, np.nan, np.arange(ROWS)),
        np.cumsum(np.random.default_rng(0).uniform(0.5, 1.5, ROWS)),
        np.full(ROWS, 3),
    ],
)
def test_uneven_times_are_a_channel_with_a_warning(tmp_path, values) -> None:
    data = table()
    data.insert(0, "time", values)
    sentence = "is used as a channel, because it does not count the rows evenly: remove it if it is not a channel"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert both(tmp_path, data) == [("time", *NAMES)] * 3
    assert len(caught) == 3 and all(str(warning.message).endswith(sentence) for warning in caught)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sheet_of(data.fillna(0), groups="time").names == NAMES


@pytest.mark.parametrize("chunk", [200, 2**22])
def test_spaces_before_quotes_do_not_matter(tmp_path, monkeypatch, chunk) -> None:
    monkeypatch.setattr(table_sources, "CHUNK_BYTES", chunk)
    plain, spaced = tmp_path / "p.csv", tmp_path / "s.csv"
    rows = [f'{i},"{i}","x, y","say ""so""","wind\n{i % 3}"' for i in range(ROWS)]
    plain.write_text("\n".join(['"a","b","c,c","d","e"', *rows]) + "\n")
    spaced.write_text(plain.read_text().replace(',"', ',  "').replace('"a"', ' "a"'))
    assert table_texts.TextSource(spaced)._spaced and not table_texts.TextSource(plain)._spaced
    sheet = read_sheet(spaced)
    assert same(sheet, read_sheet(plain)) and sheet.names == ("a", "b", "c,c", "d", "e")
    assert sheet.categories == {2: ("x, y",), 3: ('say "so"',), 4: ("wind\n0", "wind\n1", "wind\n2")}
    pd.testing.assert_frame_equal(read_cells(spaced), read_cells(plain))
    assert same(read_sheet(spaced, memory=100, spool=tmp_path), sheet)
    late = plain.read_text() + '1, "2", "z", "say ""so""", "wind\n1"\n'  # far below the first lines
    spaced.write_text(late)
    assert read_sheet(spaced).categories[2] == ("x, y", "z")


def test_errors_are_the_same_with_spaces_before_quotes(tmp_path) -> None:
    lines = ['"a", "b", "c", "d", "e"', *(['"1", "2", "3", "4", "5"'] * ROWS)]
    path = tmp_path / "t.csv"
    for line, sentence in (
        (b'"1", "2", "3", "4"', "t.csv, line 8: must have 5 values; got 4."),
        (b'"1", "2", "3", "4", "five"', "t.csv, line 8: column 'e' must hold numbers; got 'five'."),
        (b'"1", "2", "3", "4", "\xff"', "t.csv must be a text file in UTF-8; line 8 is not."),
    ):
        path.write_bytes("\n".join(lines[:7]).encode() + b"\n" + line + b"\n" + "\n".join(lines[8:]).encode())
        assert refusal(lambda: read_sheet(path), tmp_path) == sentence


# Detection of a header: numbers too, where they plainly are one, and never a sample

NONE = tuple(f"channel {i}" for i in range(1, 7))


def text(path: Path, first: str, row: Callable[[int], str]) -> Path:
    path.write_text("\n".join([first, *(row(i) for i in range(ROWS))]) + "\n")
    return path


def decimals(sign: str = ",", columns: int = 6) -> Callable[[int], str]:
    values = np.random.default_rng(0).normal(size=(ROWS, columns)).round(3)
    return lambda i: sign.join(f"{value:g}" for value in values[i])


def wholes(i: int) -> str:
    return ",".join(str(400 + (7 * i + 3 * j) % 80) for j in range(6))


@pytest.mark.parametrize("sign", [",", ";", "\t"])
@pytest.mark.parametrize("names", [range(400, 460, 10), range(2015, 2021), (722, 10384, 3, 91, 5005, 12)])
def test_whole_numbers_over_decimals_are_names(tmp_path, names, sign) -> None:
    """Wavelengths, years or codes of stations as names of columns, with or without quotes."""
    for quote in ("", '"'):
        first = sign.join(f"{quote}{name}{quote}" for name in names)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            sheet = read_sheet(text(tmp_path / "t.csv", first, decimals(sign)))
        assert sheet.names == tuple(map(str, names)) and len(sheet.values) == ROWS


def test_numbers_beside_the_name_of_a_category_are_names(tmp_path) -> None:
    row = decimals(columns=5)
    mixed = lambda i: f"{row(i)},{'fm'[i % 2]}"  # noqa: E731
    whole = lambda i: f"{i},{i % 7},{i % 5},3,{i % 9},{'fm'[i % 2]}"  # noqa: E731
    for first, rows in (("1,2,3,4,5,sex", mixed), ("1,2,3,4,5,sex", whole), ("400,410,420,430,440,sex", mixed)):
        sheet = read_sheet(text(tmp_path / "t.csv", first, rows))
        assert sheet.names[-1] == "sex" and dict(sheet.categories) == {5: ("f", "m")} and len(sheet.values) == ROWS
    for first, rows in (("1,2,3,4,5,f", whole), ("400,410,420,430,440,f", mixed), ("9,8,3,4,5,x", whole)):
        with pytest.warns(UserWarning, match="no header was found"):
            assert len(read_sheet(text(tmp_path / "t.csv", first, rows)).values) == ROWS + 1


def test_headers_that_pandas_and_r_write_are_recognized(tmp_path) -> None:
    table = pd.DataFrame(np.arange(6 * ROWS).reshape(ROWS, 6), columns=range(2015, 2021))
    table.to_csv(tmp_path / "t.csv")  # an empty cell over a count of the rows
    assert read_sheet(tmp_path / "t.csv").names == tuple(map(str, range(2015, 2021)))
    quoted = '"400","410","420","430","440","450"'
    r = text(tmp_path / "r.csv", quoted, wholes)  # whole numbers below, not in quotes
    assert read_sheet(r).names == ("400", "410", "420", "430", "440", "450")
    all_quoted = text(tmp_path / "q.csv", quoted, lambda i: f'"{wholes(i)}"'.replace(",", '","'))
    with pytest.warns(UserWarning, match="no header was found"):
        assert len(read_sheet(all_quoted).values) == ROWS + 1  # all is in quotes, which says nothing


@pytest.mark.parametrize(
    ("first", "row"),
    [
        ("400,410,420,430,440,450", wholes),  # integers above integers may be a sample
        ("400.5,410.5,420.5,430.5,440.5,450.5", decimals()),
        ("400,410,420,430,440,440", decimals()),
        ("0,10,20,30,40,50", lambda i: ",".join(f"{10 * j + (i + 1) / 8:g}" for j in range(6))),  # close to the others
        ("400,410,420,430,440,450", lambda i: f"{decimals(columns=5)(i)},{i}"),
    ],
)
def test_a_sample_is_not_a_header_and_causes_a_warning(tmp_path, first, row) -> None:
    path = text(tmp_path / "t.csv", first, row)
    with pytest.warns(UserWarning, match="no header was found") as caught:
        sheet, cells = read_sheet(path), read_cells(path)
    assert len(caught) == 2 and sheet.names == NONE and len(sheet.values) == len(cells) == ROWS + 1


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.integers(-50, 50), min_size=5, max_size=5), min_size=2, max_size=25))
def test_no_table_of_whole_numbers_loses_its_first_sample(rows) -> None:
    """The exception is a first sample of consecutive numbers, which counts as a header."""
    if rows[0] not in ([0, 1, 2, 3, 4], [1, 2, 3, 4, 5]):
        assert not table_texts.is_header([[str(cell) for cell in row] for row in rows])
