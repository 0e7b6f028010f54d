"""Which first lines of a text are headers: numbers too where they plainly are, and never a sample."""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placecode.data.tables.files import read_cells, read_sheet
from placecode.data.tables.headers import is_header

ROWS = 60
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
        assert not is_header([[str(cell) for cell in row] for row in rows])
