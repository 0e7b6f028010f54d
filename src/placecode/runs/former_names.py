"""Names that earlier versions used, in run folders before format 5 and in commands, mapped to those of today."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

FIELDS: dict[str, str] = {}
"""Former names of settings of experiments, mapped to the present ones."""
FIELDS_OF: dict[str, dict[str, str]] = {}
"""The same for names that had another meaning in each experiment, by the name of the experiment."""
MEMBER_FIELDS = {"gain": "output_gain"}
"""Former names of columns of members.parquet, and of fields of members in the rows of summary.json."""


def former_fields(experiment: str) -> dict[str, str]:
    """Return the former names of the settings of an experiment, mapped to the present ones."""
    return {**FIELDS, **FIELDS_OF.get(experiment, {})}


def current_fields(experiment: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a run of an experiment recorded, by their present names."""
    renamed = former_fields(experiment)
    return {renamed.get(name, name): value for name, value in fields.items()}


def current_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of summary.json with the present names of the fields of members."""
    return {MEMBER_FIELDS.get(name, name): value for name, value in row.items()}


def current_members(members: pd.DataFrame) -> pd.DataFrame:
    """Return a table of members with the present names of its columns."""
    return members.rename(columns=MEMBER_FIELDS)
