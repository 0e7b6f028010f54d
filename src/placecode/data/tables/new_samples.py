"""Encoding of new samples for a trained model: words become the same category codes as in the training table.

The scikit-learn estimator (`placecode.fit.estimator`) uses these functions when it predicts or transforms samples.
`fill_masked` is also used for training tables.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from placecode.data.cells import MISSING
from placecode.data.tables.sources import group_text, parse_cell
from placecode.errors import must_be

if TYPE_CHECKING:
    import pandas as pd


def fill_masked(data: Any) -> Any:
    """Return a masked array of numbers as float64, with NaN for masked values. Other data are returned as they are.

    scikit-learn would ignore the mask and use the values behind it.
    """
    masked = isinstance(data, np.ma.MaskedArray) and data.dtype.kind in "biuf"
    return np.ma.filled(data.astype(np.float64), np.nan) if masked else data


def encode_categories(frame: pd.DataFrame, categories: Mapping[int, tuple[str, ...]]) -> pd.DataFrame:
    """Return a copy of a frame in which words are replaced by the codes that they had in the training table.

    `categories` maps the index of a categorical column to its words in the order of their codes. A word that was not in
    the training table becomes NaN. Columns of other types must contain numbers or true and false.
    """
    import pandas as pd

    encoded = frame.copy(deep=False)
    for column, kind in enumerate(frame.dtypes):
        words = categories.get(column, ())
        if not words and pd.api.types.is_numeric_dtype(kind):
            continue
        codes, name = {word: float(code) for code, word in enumerate(words)}, frame.columns[column]
        cells = frame.iloc[:, column].astype(object)
        numbers = [_code(cell, codes) if codes else _number(cell, name) for cell in cells]
        encoded.isetitem(column, np.array(numbers, dtype=np.float64))
    return encoded


def _code(cell: Any, codes: Mapping[str, float]) -> float:
    """Return the code of a cell in a categorical column, or NaN if the cell is missing or has no code.

    A number is looked up by its text. For 3.0, "3.0" is tried first, then "3".
    """
    word = str(cell).strip()
    return np.nan if word.casefold() in MISSING else codes.get(word, codes.get(group_text(cell), np.nan))


def _number(cell: Any, column: Hashable) -> float:
    """Return the number in a cell of a column with this name: NaN if it is missing, 1 for true, 0 for false."""
    value = parse_cell(cell)
    if not isinstance(value, str):
        return value
    if value.casefold() not in ("true", "false"):
        raise must_be(f"column {str(column)!r}", "numbers, as in fitting", value)
    return float(value.casefold() == "true")
