"""docs/recommend.md is what the evidence says, and stays true when the evidence changes."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from helpers.scripts import load

from placecode.inspection import evidence, recommend
from placecode.inspection.libraries import LIBRARIES

ROOT = Path(__file__).parents[2]

recommendation = load(ROOT / "docs" / "pages" / "recommendation.py")
PAGE = (ROOT / "docs" / "recommend.md").read_text()


def test_the_committed_page_is_what_the_evidence_gives() -> None:
    assert recommendation.page() == PAGE, "run python docs/pages/recommendation.py"


def test_the_figure_is_there_and_is_shown() -> None:
    assert "images/recommend-scales.png" in PAGE and (ROOT / "docs/images/recommend-scales.png").is_file()


def test_every_library_and_every_setting_is_in_a_table() -> None:
    for name in (*(each.name for each in LIBRARIES), *(each.name for each in evidence.settings())):
        assert f"\n| {name} |" in PAGE
    for page in ("README.md", "CHANGELOG.md"):
        assert f"{len(LIBRARIES)} libraries" in (ROOT / page).read_text()


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


def test_sentences_follow_the_evidence() -> None:
    settings = evidence.settings()
    by_adam = [each for each in settings if each.optimizer != "sgd" or not each.outcome.learned]
    assert "SGD: no evidence" in recommendation.page(by_adam) and "SGD: no evidence" not in PAGE
    learned = [each for each in settings if each.outcome.learned]
    with_input = [dataclasses.replace(learned[0], placement="input"), *learned[1:]]
    every = sum(each.placement == "every" for each in with_input)
    assert f"{len(learned)} settings, {every} add the PE in every block" in recommendation.page(with_input)


def test_what_is_lost_in_common_is_over_settings_that_both_know() -> None:
    setting = evidence.settings()[0]
    rows = [
        recommend.HeldOut(setting, 0.2, {"recommended": 0.1, "1": 0.3}),
        recommend.HeldOut(setting, 0.2, {"recommended": 0.9, "1": None}),
    ]
    assert recommendation.in_common(rows, "1") == (0.1, 0.3)
