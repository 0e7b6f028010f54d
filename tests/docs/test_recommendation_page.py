"""docs/recommend.md is what the evidence says, and stays true when the evidence changes."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from helpers.scripts import load

from placecode.inspection import evidence, recommend

ROOT = Path(__file__).parents[2]

recommendation = load(ROOT / "docs" / "pages" / "recommendation.py")
PAGE = (ROOT / "docs" / "recommend.md").read_text()


def test_the_committed_page_is_what_the_evidence_gives() -> None:
    assert recommendation.page() == PAGE, "run python docs/pages/recommendation.py"


def test_python_of_the_page_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    space: dict[str, object] = {}
    exec(code, space)
    assert space["low"] <= space["sigma"] <= space["high"]  # type: ignore[operator]


def test_an_example_that_is_refused_is_never_written() -> None:
    with pytest.raises(SystemExit, match="ended with 2"):
        recommendation.printed("placecode recommend --tokens 1 --width 1 --optimizer adam")


def test_a_conclusion_is_refused_where_the_evidence_says_otherwise() -> None:
    """Maps and outcomes changed places: then a map needs larger sigmas."""
    turned = [
        dataclasses.replace(each, outcome=each.structure, structure=each.outcome)
        for each in evidence.settings()
        if each.structure is not None
    ]
    with pytest.raises(SystemExit, match=r"the tables no longer say so.*A map needs smaller"):
        recommendation.page(turned)


def test_what_is_lost_in_common_is_over_settings_that_both_know() -> None:
    setting = evidence.settings()[0]
    rows = [
        recommend.HeldOut(setting, 0.2, {"recommended": 0.1, "1": 0.3}),
        recommend.HeldOut(setting, 0.2, {"recommended": 0.9, "1": None}),
    ]
    assert recommendation.in_common(rows, "1") == (0.1, 0.3)
