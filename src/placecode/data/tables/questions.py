"""Encoding of new samples for predictions of trained models, with the codes used in fitting."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from placecode.data.cells import MISSING
from placecode.data.tables.sources import group_text, parse_cell
from placecode.errors import must_be

if TYPE_CHECKING:
    import pandas as pd


def filled(data: Any) -> Any:
    """Replace masked values by NaN. scikit-learn would use the values behind the mask."""
    masked = isinstance(data, np.ma.MaskedArray) and data.dtype.kind in "biuf"
    return np.ma.filled(data.astype(np.float64), np.nan) if masked else data


def coded(frame: pd.DataFrame, categories: Mapping[int, tuple[str, ...]]) -> pd.DataFrame:
    """Replace words by their codes in fitting. Words that no training sample had become NaN."""
    import pandas as pd

    encoded = frame.copy(deep=False)
    for column, kind in enumerate(frame.dtypes):
        words = categories.get(column, ())
        if not words and pd.api.types.is_numeric_dtype(kind):
            continue
        codes = {word: float(code) for code, word in enumerate(words)}
        cells = frame.iloc[:, column].astype(object)
        if codes:
            numbers = [_code(cell, codes) for cell in cells]
        else:
            numbers = [_number(cell, frame.columns[column]) for cell in cells]
        encoded.isetitem(column, np.array(numbers, dtype=np.float64))
    return encoded


def _code(cell: Any, codes: Mapping[str, float]) -> float:
    """Return the code of a word. A number counts as its text, and 3.0 also as 3."""
    word = str(cell).strip()
    return np.nan if word.casefold() in MISSING else codes.get(word, codes.get(group_text(cell), np.nan))


def _number(cell: Any, column: Hashable) -> float:
    """Return a number, or 1 for true and 0 for false. Raises `BadInput` for other words."""
    value = parse_cell(cell)
    if not isinstance(value, str):
        return value
    if value.casefold() not in ("true", "false"):
        raise must_be(f"column {str(column)!r}", "numbers, as in fitting", value)
    return float(value.casefold() == "true")
