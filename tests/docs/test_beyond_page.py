"""docs/beyond.md is what the committed runs say, and a sentence that they do not support is never written."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from helpers.scripts import load

from placecode.experiments.claims import FAILS, HOLDS, NO_NUMBER, Finding
from placecode.runs.read import Run

ROOT = Path(__file__).parents[2]

beyond = load(ROOT / "docs" / "pages" / "beyond.py")
PAGE = (ROOT / "docs" / "beyond.md").read_text()


def test_the_committed_page_is_what_the_runs_give() -> None:
    assert beyond.page() == PAGE, "run python docs/pages/beyond.py"


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
