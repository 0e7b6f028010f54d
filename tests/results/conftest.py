"""The results of `placecode claims` on the committed runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.made_up import direction

from placecode import cli
from placecode.experiments import experiment_of
from placecode.runs.read import Run

Claims = dict[str, dict[str, Any]]
CHECKED: dict[Path, Claims] = {}
"""The claims on each folder that was checked."""


@pytest.fixture
def claims_of(capsys: pytest.CaptureFixture[str]) -> Callable[[Path], Claims]:
    """The records of `placecode claims FOLDER --json` by the id of the claim. The claims on a folder are checked once.

    Every record has the margin of its claim, and its direction follows from its interval.
    """

    def check(folder: Path) -> Claims:
        if folder not in CHECKED:
            assert cli.main(["claims", str(folder), "--json"]) == 0, capsys.readouterr().err
            records = json.loads(capsys.readouterr().out)
            for record, claim in zip(records, experiment_of(Run(folder)).claims, strict=True):
                low, high = record["low"], record["high"]
                fields = (record["id"], record["margin"], record["way"], record["run"])
                assert fields == (claim.id, claim.margin, claim.way, str(folder))
                assert record["direction"] == direction(low, high, claim.margin, claim.way)
                assert (low is None) == (high is None) == bool(record["note"])
                assert low is None or low <= high
            CHECKED[folder] = {record["id"]: record for record in records}
        return CHECKED[folder]

    return check
