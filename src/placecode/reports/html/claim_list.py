"""Prepare the list of claims of a report: each with its effect, interval and margin, as text and as a small drawing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from placecode.reports.html.tables import common_notes, number, source_text, statement_text

WIDTH, EDGE = 280, 10
"""Width of a drawing and empty space at its sides, in pixels. Heights are in the macro claim_drawing of parts.html."""
TICK_WIDTH, TICK_EDGE = 34, 24
"""Width of a tick label, and distance of a tick from the edge below which its label is not centred, in pixels."""
ZERO = 1e-9
"""Values whose absolute value is below this are taken as rounding errors and replaced by 0."""


def claim_entries(findings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a dict for each claim that the run can test: its record, and what the template shows of it.

    `findings` are records from `Finding.record`. The template shows the texts "statement", "source" and "numbers", and
    the positions in "drawing". A note that several claims share, such as a missing interval, is not added to their
    statements, because it is in the caption of the table of claims.
    """
    common = common_notes(findings)
    return [
        {
            **finding,
            "statement": statement_text(finding, common),
            "source": source_text(finding),
            "numbers": numbers_text(finding),
            "drawing": drawing(finding),
        }
        for finding in findings
        if finding["effect"] is not None
    ]


def numbers_text(finding: Mapping[str, Any]) -> str:
    """Return a text with the effect, interval, margin and published value of a claim.

    >>> numbers_text({"effect": 0.6, "low": 0.55, "high": 0.65, "margin": 0.3, "way": "above", "published": 0.58})
    'effect 0.600, 95% interval 0.550 to 0.650; margin: above 0.3; published: 0.58'
    """
    low, high, margin, way = (finding[name] for name in ("low", "high", "margin", "way"))
    # enough digits to distinguish the bounds of the interval
    width = abs(finding["effect"]) if low is None else high - low
    digits = min(8, max(3, 1 - math.floor(math.log10(width)))) if width > ZERO else 3
    values = [_rounded(value) for value in (finding["effect"], low, high) if value is not None]
    effect, *ends = ("0" if value == 0 else number(value, digits) for value in values)
    bounds = f"95% interval {' to '.join(ends)}" if ends else "no interval"
    side = f"within {_brief(-margin)} and {_brief(margin)}" if way == "within" else f"{way} {_brief(margin)}"
    published = "" if finding["published"] is None else f"; published: {_brief(finding['published'])}"
    return f"effect {effect}, {bounds}; margin: {side}{published}"


def _brief(value: float) -> str:
    """Format a value with up to six digits, without trailing zeros."""
    return f"{value:g}".replace("-", "\N{MINUS SIGN}")


def _rounded(value: float) -> float:
    """Return the value, or 0 if it differs from 0 only by a rounding error."""
    return 0.0 if abs(value) < ZERO else float(value)


def drawing(finding: Mapping[str, Any]) -> dict[str, Any]:
    """Return the horizontal positions, in pixels, of what the drawing of a claim shows.

    The range of effects that supports the claim is a shaded box, which begins at "start" and is "width" wide.
    "margins" are the limits of this range that lie inside the drawing, each drawn as a line. "effect" and "published"
    are single positions; "published" is None if the claim has no published value. "interval" has the positions of both
    bounds, or is empty. "ticks" are (position, text-anchor, label).
    """
    margin, way, published = float(finding["margin"]), finding["way"], finding["published"]
    effect, *bounds = (_rounded(finding[name]) for name in ("effect", "low", "high") if finding[name] is not None)
    limits = [margin, -margin] if way == "within" else [margin]
    marks: list[float] = [effect, 0.0, *bounds, *limits, *([] if published is None else [published])]
    assert all(math.isfinite(value) for value in marks)
    padding = (max(marks) - min(marks) or abs(effect) or 1.0) * 0.12
    left, right = min(marks) - padding, max(marks) + padding

    def at(value: float) -> float:
        """Return the position of a value in pixels."""
        return round(EDGE + (value - left) / (right - left) * (WIDTH - 2 * EDGE), 1)

    sides = {"above": (margin, right), "below": (left, margin), "within": (-margin, margin)}
    start, end = (at(value) for value in sides[way])
    if way == "within" and at(margin) - at(-margin) < TICK_WIDTH:
        ticks = {at(0.0): f"\N{PLUS-MINUS SIGN}{_brief(margin)}"}
    else:
        ticks = {at(0.0): "0"} if all(abs(at(0.0) - at(limit)) > TICK_WIDTH for limit in limits) else {}
        ticks |= {at(limit): _brief(limit) for limit in limits}
    anchors = ["start" if x < TICK_EDGE else "end" if x > WIDTH - TICK_EDGE else "middle" for x in ticks]
    return {
        "start": start,
        "width": max(round(end - start, 1), 0),
        "margins": [at(limit) for limit in limits],
        "interval": [at(value) for value in bounds],
        "effect": at(effect),
        "published": None if published is None else at(published),
        "ticks": [(x, anchor, text) for (x, text), anchor in zip(ticks.items(), anchors, strict=True)],
    }
