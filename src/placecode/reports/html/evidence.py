"""Claims with their evidence: each as a drawing of its effect and interval beside the margin that was set for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placecode.reports.html.tables import common_notes, number, whose

WIDTH, HEIGHT, EDGE, LINE = 280, 52, 10, 20
"""Of a drawing: its size, the room at its sides, and how far down the interval lies."""

ROOM = 34
"""What the number of a tick takes."""
NOTHING = 1e-9
"""What is smaller is the rounding of a zero."""


@dataclass(frozen=True)
class Evidence:
    """A claim as the page shows it: both verdicts, the statement, a drawing as SVG, its numbers, and whose it is.

    A verdict is its kind, which colours it, and the words that are read; one on a number may be missing.
    """

    direction: tuple[str, str]
    number: tuple[str, str] | None
    statement: str
    drawing: str
    numbers: str
    whose: str


def of_claims(findings: Sequence[Mapping[str, Any]]) -> list[Evidence]:
    """One for every claim that the run says something of; a note that several have in common stands above all."""
    shown, common = [], common_notes(findings)
    for found in findings:
        if found["effect"] is None:
            continue
        statement = found["statement"] + (f" ({found['note']})" if found["note"] not in ("", *common) else "")
        direction = (found["direction"], found["direction_text"])
        number = (found["number"], f"number: {found['number']}") if found["number"] else None
        shown.append(Evidence(direction, number, statement, drawing(found), in_numbers(found), whose(found)))
    return shown


def in_numbers(found: Mapping[str, Any]) -> str:
    """
    >>> in_numbers({"effect": 0.6, "low": 0.55, "high": 0.65, "margin": 0.3, "way": "above", "published": 0.58})
    'effect 0.600, 95% interval 0.550 to 0.650; margin: above 0.3; published: 0.58'
    """
    low, high, margin = found["low"], found["high"], found["margin"]
    # as many digits as tell the ends of the interval apart
    apart = abs(found["effect"]) if low is None else high - low
    digits = min(8, max(3, 1 - math.floor(math.log10(apart)))) if apart > NOTHING else 3
    effect, *ends = (_told(each, digits) for each in (found["effect"], low, high) if each is not None)
    bounds = f"95% interval {' to '.join(ends)}" if ends else "no interval"
    side = (
        f"within {_brief(-margin)} and {_brief(margin)}"
        if found["way"] == "within"
        else f"{found['way']} {_brief(margin)}"
    )
    published = "" if found["published"] is None else f"; published: {_brief(found['published'])}"
    return f"effect {effect}, {bounds}; margin: {side}{published}"


def _told(value: float, digits: int) -> str:
    return "0" if abs(value) < NOTHING else number(value, digits)


def _brief(value: float) -> str:
    return f"{value:g}".replace("-", "\N{MINUS SIGN}")


def _rounded(value: float) -> float:
    return 0.0 if abs(value) < NOTHING else float(value)


def drawing(found: Mapping[str, Any]) -> str:
    """An axis with the side of the margin that the claim asks for shaded, and on it the effect with its interval and,
    as a diamond, the published value."""
    margin, way = float(found["margin"]), found["way"]
    effect, *bounds = (_rounded(found[name]) for name in ("effect", "low", "high") if found[name] is not None)
    published = found["published"]
    marks = [effect, margin, 0.0, *bounds, *([-margin] if way == "within" else [])]
    marks += [] if published is None else [published]
    reach = (max(marks) - min(marks) or abs(effect) or 1.0) * 0.12
    left, right = min(marks) - reach, max(marks) + reach

    def at(value: float) -> float:
        return round(EDGE + (value - left) / (right - left) * (WIDTH - 2 * EDGE), 1)

    sides = {"above": (margin, right), "below": (left, margin), "within": (-margin, margin)}
    start, end = (at(value) for value in sides[way])
    limits = [margin, -margin] if way == "within" else [margin]
    parts = [
        f'<rect class="asked" x="{start}" y="2" width="{max(round(end - start, 1), 0)}" height="{2 * LINE - 4}"/>',
        f'<line class="axis" x1="{EDGE}" x2="{WIDTH - EDGE}" y1="{2 * LINE - 2}" y2="{2 * LINE - 2}"/>',
        *(f'<line class="margin" x1="{at(each)}" x2="{at(each)}" y1="2" y2="{2 * LINE - 2}"/>' for each in limits),
    ]
    if len(bounds) == 2:
        low, high = (at(value) for value in bounds)
        caps = "".join(f"M{x} {LINE - 5}V{LINE + 5}" for x in (low, high))
        parts.append(f'<path class="interval" d="M{low} {LINE}H{high}{caps}"/>')
    parts.append(f'<circle class="effect" cx="{at(effect)}" cy="{LINE}" r="4"/>')
    if published is not None:
        parts.append(f'<path class="published" d="M{at(published)} {LINE - 7}l7 7l-7 7l-7 -7z"/>')
    if way == "within" and at(margin) - at(-margin) < ROOM:
        ticks = {at(0.0): f"\N{PLUS-MINUS SIGN}{_brief(margin)}"}
    else:
        ticks = {at(0.0): "0"} if all(abs(at(0.0) - at(each)) > ROOM for each in limits) else {}
        ticks |= {at(each): _brief(each) for each in limits}
    for x, text in ticks.items():
        anchor = "start" if x < 24 else "end" if x > WIDTH - 24 else "middle"
        parts.append(f'<text x="{x}" y="{HEIGHT - 1}" text-anchor="{anchor}">{text}</text>')
    assert all(math.isfinite(value) for value in marks)
    label = in_numbers(found)
    return (
        f'<svg class="evidence" role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {HEIGHT}">{"".join(parts)}</svg>'
    )
