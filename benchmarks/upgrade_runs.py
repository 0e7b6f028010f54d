"""Upgrade run folders of older formats: python benchmarks/upgrade_runs.py results/*

Format 1 to 2: members get their roles and labels from the experiment of the run, whose members have the same order.
Format 2 to 3: the split "validation" is renamed to "ood". Format 3 to 4: the entry "study" of config.json and
summary.json is renamed to "experiment". Format 4 to 5: settings and columns of members get the names of today
(`placecode.runs.former_names`). No number changes. The upgrade is recorded under "upgraded". Fits, runs of the
current format, and folders that are not runs of an experiment are not changed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from placecode.errors import BadInput
from placecode.experiments import EXPERIMENTS, experiment_of
from placecode.files import write_json, write_table
from placecode.runs.read import FORMAT, Run
from placecode.runs.summary import compact
from placecode.runs.tables import set_roles_and_labels

STEPS = {
    1: "format 1 to 2: roles and labels of members added from the experiment",
    2: "format 2 to 3: the split validation renamed to ood",
    3: "format 3 to 4: study renamed to experiment in config.json and summary.json",
    4: "format 4 to 5: settings and columns of members renamed",
}
"""What each upgrade does, by the format it starts from; recorded in environment.json."""


def upgrade(path: Path) -> bool:
    """Upgrade one run folder, and return whether it changed.

    Raises BadInput if the members in the folder are not those of its experiment.
    """
    run = Run(path)
    version = run.config["format"]
    if version == FORMAT or run.experiment not in EXPERIMENTS:
        return False
    content = json.loads((path / "summary.json").read_text())
    summary = {"experiment" if name == "study" else name: value for name, value in content.items()}
    summary["rows"] = compact(run.summary) if isinstance(summary["rows"], dict) else run.summary
    if version < 3:
        upgrade_tables(run)
    write_table(path / "members.parquet", run.members)
    write_json(path / "summary.json", summary)
    before = [run.environment["upgraded"]] if "upgraded" in run.environment else []
    upgraded = "; ".join([*before, *(text for start, text in STEPS.items() if start >= version)])
    write_json(path / "environment.json", {**run.environment, "upgraded": upgraded})
    write_json(path / "config.json", {**run.config, "format": FORMAT})  # last: it marks the folder as upgraded
    return True


def upgrade_tables(run: Run) -> None:
    """Set the roles and labels of the members of a run of format 1 or 2, and write its metrics and analyses again, with
    the split "ood"."""
    path, members, specs = run.path, run.members, experiment_of(run).members()
    if run.config["total"] != len(specs):
        raise BadInput(
            f"{path} must have the {len(specs)} members of {run.experiment}; its config says {run.config['total']}."
        )
    for number, sigma, seed in zip(members["member"], members["sigma"], members["seed"], strict=True):
        spec = specs[number]
        same_sigma = spec.sigma == sigma or (spec.sigma is None and sigma != sigma)
        if spec.seed != seed or not same_sigma:
            raise BadInput(
                f"member {number} of {path} must be that of the experiment; sigma and seed are {sigma}, {seed}."
            )
    set_roles_and_labels(members, specs)
    write_table(path / "metrics.parquet", run.metrics)
    write_table(path / "analysis.parquet", run.analysis)


def main(paths: Sequence[str]) -> None:
    for path in map(Path, paths):
        if (path / "config.json").is_file() and upgrade(path):
            sys.stdout.write(f"{path} is of format {FORMAT} now\n")


if __name__ == "__main__":
    main(sys.argv[1:])
