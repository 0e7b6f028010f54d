"""Names that earlier versions used, in run folders before format 5 and in commands, mapped to those of today."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

FIELDS = {
    "against": "baseline_names",
    "every": "evaluate_every",
    "hidden": "mask_ratio",
    "master_sigma": "sgd_donor_sigma",
    "parts": "decayed_weights",
    "ratios": "eval_mask_ratios",
    "rest": "zero_loss_patience",
    "shares": "mask_ratios",
    "slow_in": "slow_baseline_worlds",
    "trained_with": "mask_ratios",
    "without": "left_out_people",
}
"""Former names of settings of experiments, mapped to the present ones."""
FIELDS_OF = {
    "lst-heads": {"many": "head_counts"},
    "network-size": {"many": "node_counts"},
    "synergy-size": {"many": "group_counts"},
}
"""Former names of settings whose present name depends on the experiment, by the name of the experiment."""
MEMBER_FIELDS = {
    "gain": "output_gain",
    "hidden": "mask_ratio",
    "origin": "donor",
    "origin_sigma": "donor_sigma",
    "rested_epoch": "zero_loss_epoch",
}
"""Former names of columns of members.parquet, and of fields of members in the rows of summary.json."""
MEMBER_VALUES = {
    "start": {"taken": "donor", "before": "donor-untrained", "sized": "donor-size"},
    "diverged_by": {"origin": "donor"},
}
"""Former values mapped to the present ones, by the present name of the field of members or column of members.parquet
that has these values."""


def former_fields(experiment: str) -> dict[str, str]:
    """Return the former names of the settings of an experiment, mapped to the present ones."""
    return {**FIELDS, **FIELDS_OF.get(experiment, {})}


def current_fields(experiment: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a run of an experiment recorded, by their present names."""
    renamed = former_fields(experiment)
    return {renamed.get(name, name): value for name, value in fields.items()}


def current_task(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a task in config.json with the present names of settings. If the task has several data
    sets, the entry "parts" maps the name of each to its description."""
    if "parts" in task:
        return {**task, "parts": {name: current_task(part) for name, part in task["parts"].items()}}
    return {"eval_mask_ratios" if name == "ratios" else name: value for name, value in task.items()}


def current_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of summary.json in which fields of members have their present names and values."""
    renamed = {MEMBER_FIELDS.get(name, name): value for name, value in row.items()}
    return {name: MEMBER_VALUES.get(name, {}).get(value, value) for name, value in renamed.items()}


def current_members(members: pd.DataFrame) -> pd.DataFrame:
    """Return a table of members in which columns and values have their present names."""
    return members.rename(columns=MEMBER_FIELDS).replace(MEMBER_VALUES)
