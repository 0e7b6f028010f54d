"""Run folders of older formats are read, and become folders of the present format with the same numbers."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from helpers.scripts import load

from placecode.errors import BadInput
from placecode.experiments import experiment_of
from placecode.experiments.reading import members_of
from placecode.runs.merge import merge, slim
from placecode.runs.read import FORMAT, Run

ROOT = Path(__file__).parents[2]
script = load(ROOT / "benchmarks" / "upgrade_runs.py")


def of_format_3(tmp_path: Path) -> Path:
    """A committed run as it was written in format 3: with "experiment" named "study", and with former names."""
    path = shutil.copytree(ROOT / "results" / "lst-heads", tmp_path / "older")
    environment = {name: value for name, value in Run(path).environment.items() if name != "upgraded"}
    (path / "environment.json").write_text(json.dumps(environment))
    for file in ("summary.json", "config.json"):
        content = json.loads((path / file).read_text())
        renamed = {"study" if name == "experiment" else name: value for name, value in content.items()}
        former = json.dumps(renamed | ({"format": 3} if "format" in renamed else {}))
        (path / file).write_text(former.replace('"head_counts"', '"many"'))
    members = pd.read_parquet(path / "members.parquet").rename(columns={"output_gain": "gain", "donor": "origin"})
    members.to_parquet(path / "members.parquet")
    return path


def of_format_1(tmp_path: Path) -> Path:
    """The same run as it was written in format 1: also without roles and labels, and with "ood" named "validation"."""
    path = of_format_3(tmp_path)
    run = Run(path)
    pd.read_parquet(path / "members.parquet").drop(columns=["role", "label"]).to_parquet(path / "members.parquet")
    for name, column in (("metrics", "split"), ("analysis", "target")):
        table = getattr(run, name)
        table.assign(**{column: table[column].str.replace("ood", "validation")}).to_parquet(path / f"{name}.parquet")
    for file in ("summary.json", "config.json"):
        (path / file).write_text((path / file).read_text().replace('"ood', '"validation'))
    (path / "config.json").write_text(json.dumps({**json.loads((path / "config.json").read_text()), "format": 1}))
    return path


def assert_same(run: Run, committed: Run) -> None:
    pd.testing.assert_frame_equal(members_of(run), committed.members)
    pd.testing.assert_frame_equal(run.metrics, committed.metrics)
    pd.testing.assert_frame_equal(run.analysis, committed.analysis)
    assert run.summary == committed.summary
    assert run.config["task"] == committed.config["task"] and set(run.config["task"]["counts"]) >= {"ood"}
    assert "ood" in set(run.metrics["split"]) and "validation" not in set(run.metrics["split"])


def test_an_older_run_is_read_and_upgraded_with_the_same_numbers(tmp_path: Path) -> None:
    path, committed = of_format_1(tmp_path), Run(ROOT / "results" / "lst-heads")
    assert "validation" in set(pd.read_parquet(path / "metrics.parquet")["split"])
    assert_same(Run(path), committed)
    assert script.upgrade(path) and not script.upgrade(path)
    assert "ood" in set(pd.read_parquet(path / "metrics.parquet")["split"])
    upgraded = Run(path)
    assert_same(upgraded, committed)
    assert upgraded.config == {**committed.config, "format": FORMAT}
    assert upgraded.environment["upgraded"] == "; ".join(script.STEPS.values())
    assert set(upgraded.members["label"]) == {"1 head", "2 heads", "4 heads"}


def test_an_older_fit_keeps_its_validation_samples_and_becomes_a_copy_of_the_present_format(tmp_path: Path) -> None:
    committed = Run(ROOT / "results" / "fits" / "photo")
    path = shutil.copytree(committed.path, tmp_path / "fit")
    for file in ("summary.json", "config.json"):
        content = json.loads((path / file).read_text())
        former = {"study" if name == "experiment" else name: value for name, value in content.items()}
        former |= {"format": 1} if file == "config.json" else {}
        (path / file).write_text(json.dumps(former).replace('"mask_ratio"', '"hidden"'))
    pd.read_parquet(path / "members.parquet").rename(columns={"mask_ratio": "hidden"}).to_parquet(
        path / "members.parquet"
    )
    for run in (Run(path), slim(path, tmp_path / "copy")):
        assert set(run.metrics["split"]) == {"train", "validation", "test"}
        assert all(
            set(part["counts"]) == {"train", "validation", "test"} for part in run.config["task"]["parts"].values()
        )
        pd.testing.assert_frame_equal(run.members, committed.members)
        assert run.summary == committed.summary
    assert run.config == committed.config and run.config["format"] == FORMAT
    assert (run.path / "summary.json").read_bytes() == (committed.path / "summary.json").read_bytes()


def test_a_piece_of_an_older_format_is_merged_with_a_new_one(tmp_path: Path) -> None:
    """The pieces are halves of one run. The merged run has the tables of the whole."""
    committed = Run(ROOT / "results" / "lst-heads")
    specs = experiment_of(committed).members()
    pieces = [of_format_3(tmp_path), shutil.copytree(committed.path, tmp_path / "newer")]
    fields = experiment_of(committed).fields()
    assert fields.keys() - committed.config["fields"].keys()  # settings that did not exist yet
    (pieces[1] / "config.json").write_text(json.dumps({**committed.config, "fields": fields}))
    half = len(specs) // 2
    for path, first in zip(pieces, (True, False), strict=True):
        for name in ("members", "metrics", "analysis"):
            table = pd.read_parquet(path / f"{name}.parquet")
            table[(table["member"] < half) == first].to_parquet(path / f"{name}.parquet")
    merged = merge(pieces, tmp_path / "merged", specs=specs, fields=lambda run: experiment_of(run).fields())
    for name in ("members", "metrics", "analysis"):
        expected = getattr(committed, name)
        rows = getattr(merged, name)[expected.columns]  # of members also those of later settings
        order = [column for column in expected.columns if column != "value"]
        pd.testing.assert_frame_equal(
            *(table.sort_values(order, ignore_index=True) for table in (rows, expected)), check_dtype=False
        )
    assert merged.config["format"] == FORMAT and merged.config["fields"] == fields


def test_an_upgrade_from_format_3_changes_no_results(tmp_path: Path) -> None:
    path, committed = of_format_3(tmp_path), Run(ROOT / "results" / "lst-heads")
    assert_same(Run(path), committed)
    assert Run(path).experiment == "lst-heads"
    results = [path / "metrics.parquet", path / "analysis.parquet"]
    before = [file.read_bytes() for file in results]
    assert script.upgrade(path)
    assert [file.read_bytes() for file in results] == before
    assert_same(Run(path), committed)
    assert Run(path).config == {**committed.config, "format": FORMAT}
    assert json.loads((path / "summary.json").read_text())["experiment"] == "lst-heads"


def test_a_run_whose_members_are_not_those_of_its_experiment_is_refused(tmp_path: Path) -> None:
    path = of_format_1(tmp_path)
    members = Run(path).members
    members.assign(seed=members["seed"] + 1).to_parquet(path / "members.parquet")
    with pytest.raises(BadInput, match="must be that of the experiment"):
        script.upgrade(path)
    assert Run(path).config["format"] == 1
