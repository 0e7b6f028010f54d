"""Draw the evidence for claims: the effect and its interval relative to the margin of the claim."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placecode.reports.html.tables import common_notes, number, source_text

WIDTH, HEIGHT, EDGE, LINE = 280, 52, 10, 20
"""Size of a drawing, margin at its sides, and vertical position of the interval, in pixels."""

TICK_WIDTH = 34
"""Width of the number of a tick, in pixels."""
ZERO = 1e-9
"""Absolute values below this are rounding errors of zero."""


@dataclass(frozen=True)
class Evidence:
    """A claim as shown on the page.

    Parameters
    ----------
    direction : tuple of (str, str)
        Verdict on the direction: its kind, which sets the colour, and its text.
    number : tuple of (str, str) or None
        Verdict on the published number, if there is one.
    statement : str
        The claim.
    drawing : str
        Effect, interval and margin as SVG.
    numbers : str
        The same as text.
    whose : str
        Source of the claim.
    """

    direction: tuple[str, str]
    number: tuple[str, str] | None
    statement: str
    drawing: str
    numbers: str
    whose: str


def of_claims(findings: Sequence[Mapping[str, Any]]) -> list[Evidence]:
    """Prepare the claims that can be tested with a run. Notes that several claims share are left to the table.

    Parameters
    ----------
    findings : sequence of mapping
        Records of claims.

    Returns
    -------
    list of Evidence
        One per claim with an effect.
    """
    items, common = [], common_notes(findings)
    for finding in findings:
        if finding["effect"] is None:
            continue
        statement = finding["statement"] + (f" ({finding['note']})" if finding["note"] not in ("", *common) else "")
        direction = (finding["direction"], finding["direction_text"])
        number = (finding["number"], f"number: {finding['number']}") if finding["number"] else None
        source = source_text(finding)
        items.append(Evidence(direction, number, statement, drawing(finding), in_numbers(finding), source))
    return items


def in_numbers(finding: Mapping[str, Any]) -> str:
    """Format effect, interval, margin and published value of a claim.

    >>> in_numbers({"effect": 0.6, "low": 0.55, "high": 0.65, "margin": 0.3, "way": "above", "published": 0.58})
    'effect 0.600, 95% interval 0.550 to 0.650; margin: above 0.3; published: 0.58'
    """
    low, high, margin = finding["low"], finding["high"], finding["margin"]
    # enough digits to distinguish the bounds of the interval
    width = abs(finding["effect"]) if low is None else high - low
    digits = min(8, max(3, 1 - math.floor(math.log10(width)))) if width > ZERO else 3
    effect, *ends = (_measured(value, digits) for value in (finding["effect"], low, high) if value is not None)
    bounds = f"95% interval {' to '.join(ends)}" if ends else "no interval"
    side = (
        f"within {_brief(-margin)} and {_brief(margin)}"
        if finding["way"] == "within"
        else f"{finding['way']} {_brief(margin)}"
    )
    published = "" if finding["published"] is None else f"; published: {_brief(finding['published'])}"
    return f"effect {effect}, {bounds}; margin: {side}{published}"


def _measured(value: float, digits: int) -> str:
    """Format a measured value, with rounding errors of zero as "0"."""
    return "0" if abs(value) < ZERO else number(value, digits)


def _brief(value: float) -> str:
    """Format a value with as few digits as possible."""
    return f"{value:g}".replace("-", "\N{MINUS SIGN}")


def _rounded(value: float) -> float:
    """Replace rounding errors of zero by 0."""
    return 0.0 if abs(value) < ZERO else float(value)


def drawing(finding: Mapping[str, Any]) -> str:
    """Draw a claim as SVG.

    The range that supports the claim is shaded. A dot with a bar is the effect with its interval, a diamond the
    published value.

    Parameters
    ----------
    finding : mapping
        Record of a claim.

    Returns
    -------
    str
        The SVG element.
    """
    margin, way = float(finding["margin"]), finding["way"]
    effect, *bounds = (_rounded(finding[name]) for name in ("effect", "low", "high") if finding[name] is not None)
    published = finding["published"]
    marks = [effect, margin, 0.0, *bounds, *([-margin] if way == "within" else [])]
    marks += [] if published is None else [published]
    padding = (max(marks) - min(marks) or abs(effect) or 1.0) * 0.12
    left, right = min(marks) - padding, max(marks) + padding

    def at(value: float) -> float:
        return round(EDGE + (value - left) / (right - left) * (WIDTH - 2 * EDGE), 1)

    sides = {"above": (margin, right), "below": (left, margin), "within": (-margin, margin)}
    start, end = (at(value) for value in sides[way])
    limits = [margin, -margin] if way == "within" else [margin]
    parts = [
        f'<rect class="asked" x="{start}" y="2" width="{max(round(end - start, 1), 0)}" height="{2 * LINE - 4}"/>',
        f'<line class="axis" x1="{EDGE}" x2="{WIDTH - EDGE}" y1="{2 * LINE - 2}" y2="{2 * LINE - 2}"/>',
        *(f'<line class="margin" x1="{at(limit)}" x2="{at(limit)}" y1="2" y2="{2 * LINE - 2}"/>' for limit in limits),
    ]
    if len(bounds) == 2:
        low, high = (at(value) for value in bounds)
        caps = "".join(f"M{x} {LINE - 5}V{LINE + 5}" for x in (low, high))
        parts.append(f'<path class="interval" d="M{low} {LINE}H{high}{caps}"/>')
    parts.append(f'<circle class="effect" cx="{at(effect)}" cy="{LINE}" r="4"/>')
    if published is not None:
        parts.append(f'<path class="published" d="M{at(published)} {LINE - 7}l7 7l-7 7l-7 -7z"/>')
    if way == "within" and at(margin) - at(-margin) < TICK_WIDTH:
        ticks = {at(0.0): f"\N{PLUS-MINUS SIGN}{_brief(margin)}"}
    else:
        ticks = {at(0.0): "0"} if all(abs(at(0.0) - at(limit)) > TICK_WIDTH for limit in limits) else {}
        ticks |= {at(limit): _brief(limit) for limit in limits}
    for x, text in ticks.items():
        anchor = "start" if x < 24 else "end" if x > WIDTH - 24 else "middle"
        parts.append(f'<text x="{x}" y="{HEIGHT - 1}" text-anchor="{anchor}">{text}</text>')
    assert all(math.isfinite(value) for value in marks)
    label = in_numbers(finding)
    return (
        f'<svg class="evidence" role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {HEIGHT}">{"".join(parts)}</svg>'
    )
