"""Run folders of format 1 become folders of format 2 with the same numbers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from helpers.scripts import load

from placecode.errors import BadInput
from placecode.experiments.reading import members_of
from placecode.runs.read import Run

ROOT = Path(__file__).parents[2]
script = load(ROOT / "benchmarks" / "upgrade_runs.py")


def older(tmp_path: Path) -> Path:
    """A committed run as it was written in format 1."""
    path = shutil.copytree(ROOT / "results" / "lst-heads", tmp_path / "older")
    run = Run(path)
    run.members.drop(columns=["role", "label"]).to_parquet(path / "members.parquet")
    (path / "config.json").write_text(json.dumps({**run.config, "format": 1}))
    return path


def test_members_get_their_roles_and_labels(tmp_path: Path) -> None:
    path, committed = older(tmp_path), Run(ROOT / "results" / "lst-heads")
    pd.testing.assert_frame_equal(members_of(Run(path)), committed.members)  # without an upgrade too
    assert script.upgrade(path) and not script.upgrade(path)
    upgraded = Run(path)
    pd.testing.assert_frame_equal(upgraded.members, committed.members)
    assert upgraded.config == committed.config and upgraded.environment["upgraded"] == script.SAID
    assert set(upgraded.members["label"]) == {"1 head", "2 heads", "4 heads"}


def test_a_run_whose_members_are_not_those_of_its_study_is_refused(tmp_path: Path) -> None:
    path = older(tmp_path)
    members = Run(path).members
    members.assign(seed=members["seed"] + 1).to_parquet(path / "members.parquet")
    with pytest.raises(BadInput, match="must be that of the study"):
        script.upgrade(path)
    assert Run(path).config["format"] == 1
