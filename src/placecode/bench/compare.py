"""Compare the time and memory of another implementation with the corresponding row of placecode.

>>> times_placecode(row, rows)  # row: a stacked peer with 128 models. Its baseline is placecode with 128 models
2.19...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from placecode.bench.peers import STACKED

Row = dict[str, Any]
"""One measured row of a benchmark, with the columns of `placecode.bench.measure.row_of`."""
OURS = "placecode"
"""Value of the column "name" in the rows of placecode."""


def baseline(row: Row, rows: Sequence[Row]) -> Row | None:
    """Return the row of placecode with which a row is compared, or None if there is none.

    Both rows have the same case (model size) and precision, and come from the same call of `bench.run`. A peer that
    trains many models at once (stacked) is compared with placecode at the same number of models. All other rows, those
    of loops (one model at a time) and of placecode, are compared with the fastest row of placecode. The script of the
    paper's authors, which sets its own precision, is compared with placecode in the precision that was measured first.
    """
    ours = [r for r in rows if r["name"] == OURS and r["case"] == row["case"] and r.get("call") == row.get("call")]
    precision = row["precision"] if row["name"] != "authors" or not ours else ours[0]["precision"]
    ours = [r for r in ours if r["precision"] == precision and r["us_per_model_step"] is not None]
    if row["name"] in STACKED:
        ours = [r for r in ours if r["members"] == row["members"]]
    return min(ours, key=lambda r: float(r["us_per_model_step"]), default=None)


def times_placecode(row: Row, rows: Sequence[Row]) -> float | None:
    """Return a row's time per model and step, divided by that of its `baseline`; None if either was not measured."""
    return _ratio(row, rows, "us_per_model_step")


def times_memory(row: Row, rows: Sequence[Row]) -> float | None:
    """Return a row's peak memory, divided by that of its `baseline`; None if either was not measured."""
    return _ratio(row, rows, "peak_bytes")


def _ratio(row: Row, rows: Sequence[Row], column: str) -> float | None:
    """Return the value of a row in a column, divided by the value of its `baseline`; None if either is missing."""
    ours = baseline(row, rows)
    return None if ours is None or not ours[column] or row[column] is None else float(row[column] / ours[column])


def compared_with(row: Row, rows: Sequence[Row]) -> str:
    """Return a text on a row's baseline, such as "128 models" or "fastest (512 models)"; a dash if there is none."""
    ours = baseline(row, rows)
    if ours is None:
        return "-"
    models = "1 model" if ours["members"] == 1 else f"{ours['members']} models"
    return models if row["name"] in STACKED else f"fastest ({models})"
