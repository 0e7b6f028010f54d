"""A drawing of a claim says what its numbers say."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from placecode.reports.html import badges, evidence, tables

FOUND = {"statement": "It is so.", "label": "paper", "remark": "", "note": "", "effect": 0.6}
FOUND |= {"direction": "holds", "direction_text": "reproduced", "number": "", "number_text": "-", "published": None}
FOUND |= {"low": 0.5, "high": 0.7, "margin": 0.3, "way": "above"}


def parts(**more: object) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for each in ElementTree.fromstring(evidence.drawing({**FOUND, **more})).iter():
        found.setdefault(each.get("class") or each.tag, []).append(dict(each.attrib))
    return found


def ends(path: str) -> tuple[float, float]:
    start, end = re.findall(r"M([\d.]+) 20H([\d.]+)", path)[0]
    return float(start), float(end)


@pytest.mark.parametrize(
    ("way", "low", "high", "inside"),
    [
        *(("above", 0.5, 0.7, True), ("above", 0.2, 0.7, False), ("below", 0.1, 0.2, True)),
        *(("below", 0.2, 0.4, False), ("within", -0.2, 0.2, True), ("within", -0.4, 0.2, False)),
    ],
)
def test_an_interval_beyond_its_margin_lies_in_the_shade(way: str, low: float, high: float, inside: bool) -> None:
    drawn = parts(way=way, low=low, high=high, effect=(low + high) / 2)
    (shade,), (line,), (dot,) = drawn["asked"], drawn["interval"], drawn["effect"]
    left, right = ends(line["d"])
    start, end = float(shade["x"]), float(shade["x"]) + float(shade["width"])
    assert (start <= left and right <= end) == inside
    assert left < float(dot["cx"]) < right
    assert min(left, start) >= 0 and max(right, end) <= evidence.WIDTH
    assert len(drawn["margin"]) == (2 if way == "within" else 1)


def test_numbers_of_ticks_do_not_run_into_each_other() -> None:
    wide = {"way": "within", "margin": 0.05, "low": -0.7, "high": 0.9, "effect": 0.1}
    told = re.findall(r"<text[^>]*>([^<]*)</text>", evidence.drawing({**FOUND, **wide}))
    assert told == ["\N{PLUS-MINUS SIGN}0.05"]
    told = re.findall(r"<text[^>]*>([^<]*)</text>", evidence.drawing({**FOUND, **wide, "low": -0.1, "high": 0.2}))
    assert told == ["0", "0.05", "\N{MINUS SIGN}0.05"]


def test_no_interval_no_line() -> None:
    drawn = parts(low=None, high=None)
    assert "interval" not in drawn and len(drawn["effect"]) == 1
    assert "no interval" in evidence.in_numbers({**FOUND, "low": None, "high": None})


def test_small_effects_keep_the_digits_that_tell_their_ends_apart() -> None:
    told = evidence.in_numbers({**FOUND, "effect": -0.00221, "low": -0.00238, "high": -0.00204, "way": "below"})
    assert "\N{MINUS SIGN}0.00238 to \N{MINUS SIGN}0.00204" in told
    assert "0.500 to 0.700" in evidence.in_numbers(FOUND)
    assert "0.600" in evidence.in_numbers({**FOUND, "low": 0.6, "high": 0.6})


def test_a_zero_is_told_and_drawn_as_one() -> None:
    rounding = {**FOUND, "effect": -5.7e-32, "low": None, "high": None, "margin": 0.0}
    assert evidence.in_numbers(rounding).startswith("effect 0, no interval")
    (dot,), (line,) = (parts(**rounding)[name] for name in ("effect", "margin"))
    assert dot["cx"] == line["x1"]


def test_what_several_claims_lack_is_not_said_of_each() -> None:
    few = {**FOUND, "note": "few seeds"}
    shown = evidence.of_claims([few, few, {**FOUND, "note": "another"}])
    assert [each.statement for each in shown] == ["It is so.", "It is so.", "It is so. (another)"]
    (table,) = tables.claims([few, few, FOUND])
    assert table.caption.count("few seeds") == 1 and "2 of the claims below: few seeds." in table.caption
    assert [row[5].text for row in table.rows] == ["It is so."] * 3


def test_claims_of_the_paper_are_counted_apart() -> None:
    doubt = {**FOUND, "label": "our question", "direction": "undecided", "direction_text": "undecided"}
    later = {**doubt, "remark": "margin set after the first run"}
    failed = {**FOUND, "direction": "fails", "direction_text": "not reproduced", "number": "no match"}
    matched = {**FOUND, "number": "match"}
    assert badges([doubt, later, {**doubt, "effect": None}, failed, FOUND, matched, matched]) == [
        (
            "paper",
            [
                ("holds", "3 reproduced"),
                ("fails", "1 not reproduced"),
                ("match", "2 number: match"),
                ("no match", "1 number: no match"),
            ],
        ),
        ("our question", [("undecided", "2 undecided")]),
    ]


def test_a_published_value_is_drawn_and_told() -> None:
    assert "published" not in parts() and "published" not in evidence.in_numbers(FOUND)
    told = {"published": 0.9, "number": "no match"}
    drawn = parts(**told)
    (mark,), (line,) = drawn["published"], drawn["interval"]
    assert float(mark["d"][1:].split()[0]) > ends(line["d"])[1]
    assert evidence.in_numbers({**FOUND, **told}).endswith("; published: 0.9")
    (with_number, without) = evidence.of_claims([{**FOUND, **told}, FOUND])
    assert (with_number.number, without.number) == (("no match", "number: no match"), None)
    assert with_number.direction == ("holds", "reproduced")


def test_claims_without_an_effect_are_left_out() -> None:
    shown = evidence.of_claims([FOUND, {**FOUND, "effect": None}, {**FOUND, "note": "few seeds"}])
    assert [each.statement for each in shown] == ["It is so.", "It is so. (few seeds)"]
