"""What is easily misread: decimal commas, columns of times, spaces before quotes."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.table_data import refusal, same

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
