"""What `placecode claims` says of the committed runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from placecode import cli

Claims = dict[str, dict[str, Any]]
KNOWN: dict[Path, Claims] = {}


@pytest.fixture
def claims_of(capsys: pytest.CaptureFixture[str]) -> Callable[[Path], Claims]:
    """The records of `placecode claims FOLDER --json` by the id of the claim. A folder is judged once."""

    def judged(folder: Path) -> Claims:
        if folder not in KNOWN:
            assert cli.main(["claims", str(folder), "--json"]) == 0, capsys.readouterr().err
            records = json.loads(capsys.readouterr().out)
            KNOWN[folder] = {record["id"]: record for record in records}
            assert len(KNOWN[folder]) == len(records)
        return KNOWN[folder]

    return judged
