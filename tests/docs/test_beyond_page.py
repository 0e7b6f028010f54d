"""docs/beyond.md is what the committed runs say, and a sentence that they do not support is never written."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from helpers.scripts import load

from placecode.experiments.claims import FAILS, HOLDS, NO_NUMBER, Finding, direction_text
from placecode.runs.read import Run

ROOT = Path(__file__).parents[2]

beyond = load(ROOT / "docs" / "pages" / "beyond.py")
PAGE = (ROOT / "docs" / "beyond.md").read_text()


def test_the_committed_page_is_what_the_runs_give() -> None:
    assert beyond.page() == PAGE, "run python docs/pages/beyond.py"


def test_every_figure_of_the_page_is_there_and_is_shown() -> None:
    shown = set(re.findall(r"\(images/(beyond-[^)]+)\)", PAGE))
    assert shown == {path.name for path in (ROOT / "docs" / "images").glob("beyond-*.png")}


TABLES = [(name, name) for name in beyond.FACTS] + [("lst-decay", "lst-decay-fresh")]
"""The sections, and the runs whose claims stand in a table there; claims of fresh seeds stand first."""


@pytest.mark.parametrize(("name", "of_run"), TABLES)
def test_every_claim_that_can_be_asked_is_on_the_page_with_effect_and_verdict(name: str, of_run: str) -> None:
    found = beyond.findings_of(Run(ROOT / "results" / of_run))
    part = PAGE.split(f"\n`{name}`. ")[1].split("\n## ")[0]
    if (name, "lst-decay-fresh") in TABLES:
        own = part.rindex("| claim |")
        part = part[own:] if of_run == name else part[:own]
    for id, finding in found.items():
        if math.isfinite(finding.found.mean):
            (row,) = [line for line in part.splitlines() if line.startswith(f"| {id} |")]
            cells = row.strip("| ").split(" | ")
            assert cells[1] == finding.claim.statement and direction_text(finding) in cells
            assert cells[2] == f"{finding.found.mean:.3f}".replace("-0.000", "0.000")
        elif of_run == name:
            assert f"{id} (the run has no" in part
    assert of_run != name or "ettled" in part  # whether its curves have


@pytest.mark.parametrize("name", beyond.FACTS)
def test_no_answer_is_written_with_reversed_verdicts(name: str) -> None:
    run = Run(ROOT / "results" / name)
    turned = {
        id: Finding(each.claim, FAILS if each.direction != FAILS else HOLDS, NO_NUMBER, each.found, each.run)
        for id, each in beyond.findings_of(run).items()
    }
    with pytest.raises(SystemExit, match="the tables no longer say so"):
        beyond.words(name, run, turned)


def test_most_of_2d_fixed_is_a_vector_that_all_cells_share() -> None:
    """By the variance of sines and cosines over four places, frequency by frequency."""
    waves = [10000.0 ** (-i / 40) for i in range(40)]
    apart = 0.0
    for wave in waves:
        for turn in (math.sin, math.cos):
            values = [turn(place * wave) for place in range(4)]
            apart += sum((value - sum(values) / 4) ** 2 for value in values) / 4
    assert beyond.facts.shared_part() == pytest.approx(1 - 2 * apart / 80)
