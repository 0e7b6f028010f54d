"""A drawing of a claim says what its numbers say."""

from xml.etree import ElementTree

import pytest
from helpers.report_parts import CLAIM, UNTESTED

from placecode.reports.html import badges, claim_list, templates


@pytest.mark.parametrize(
    ("way", "low", "high", "inside"),
    [
        ("above", 0.5, 0.7, True),
        ("above", 0.2, 0.7, False),
        ("below", 0.1, 0.2, True),
        ("below", 0.2, 0.4, False),
        ("within", -0.2, 0.2, True),
        ("within", -0.4, 0.2, False),
    ],
)
def test_an_interval_beyond_its_margin_lies_in_the_shade(way: str, low: float, high: float, inside: bool) -> None:
    interval = {"low": low, "high": high, "effect": (low + high) / 2}
    drawing = claim_list.drawing({**CLAIM, "margin": 0.3, "way": way, **interval})
    left, right = drawing["interval"]
    start, end = drawing["start"], drawing["start"] + drawing["width"]
    assert (start <= left and right <= end) == inside
    assert left < drawing["effect"] < right
    assert min(left, start) >= 0 and max(right, end) <= claim_list.WIDTH
    assert len(drawing["margins"]) == (2 if way == "within" else 1)


def test_the_page_draws_what_was_computed() -> None:
    claims = [{**CLAIM, "published": 0.9, "number": "no match"}, {**CLAIM, "low": None, "high": None}]
    full, _ = shown = claim_list.claim_entries(claims)
    parts = templates.environment().get_template("parts.html").module
    drawings = [ElementTree.fromstring(str(parts.claim_drawing(claim))) for claim in shown]  # type: ignore[attr-defined]
    first, second = ({part.get("class") or part.tag: dict(part.attrib) for part in svg} for svg in drawings)
    (low, high), published = full["drawing"]["interval"], full["drawing"]["published"]
    assert first["interval"]["d"] == f"M{low} 20H{high}M{low} 15V25M{high} 15V25"
    assert first["effect"]["cx"] == str(full["drawing"]["effect"])
    assert first["published"]["d"].startswith(f"M{published} ") and published > high
    assert not {"interval", "published"} & set(second) and "effect" in second


def test_small_effects_keep_the_digits_that_distinguish_their_ends() -> None:
    text = claim_list.numbers_text({**CLAIM, "effect": -0.00221, "low": -0.00238, "high": -0.00204, "way": "below"})
    assert "\N{MINUS SIGN}0.00238 to \N{MINUS SIGN}0.00204" in text
    assert "0.600 to 0.800" in claim_list.numbers_text(CLAIM)


def test_a_zero_is_written_and_drawn_as_one() -> None:
    rounding = {**CLAIM, "effect": -5.7e-32, "low": None, "high": None, "margin": 0.0}
    assert claim_list.numbers_text(rounding).startswith("effect 0, no interval")
    drawing = claim_list.drawing(rounding)
    assert [drawing["effect"]] == drawing["margins"]


def test_claims_of_the_paper_are_counted_apart() -> None:
    untested = {**UNTESTED, "label": "our question"}
    doubt = {**untested, "effect": 0.7}
    later = {**doubt, "remark": "margin set after the first run"}
    failed = {**CLAIM, "direction": "fails", "direction_text": "not reproduced", "number": "no match"}
    matched = {**CLAIM, "number": "match"}
    of_paper = [("holds", "3 reproduced"), ("fails", "1 not reproduced")]
    of_paper += [("match", "2 number: match"), ("no match", "1 number: no match")]
    counted = badges([doubt, later, untested, failed, CLAIM, matched, matched])
    assert counted == [("paper", of_paper), ("our question", [("undecided", "2 undecided")])]
