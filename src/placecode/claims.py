"""Claims: statements that a run can bear out or not, as checks with a verdict, an effect and its interval.

A claim names its margin before any run is looked at. It is *reproduced* if the whole 95% interval over seeds lies
beyond the margin, *not reproduced* if the whole interval falls short of it, and *undecided* otherwise: when the
interval holds the margin, and when the run does not have what the claim is about.

>>> judge(Interval(0.6, 0.5, 0.7), margin=0.3)
'reproduced'
>>> judge(Interval(0.01, -0.03, 0.05), margin=0.04, way="within")
'undecided'
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from placecode.analysis.stats import Interval
from placecode.errors import one_of
from placecode.runs import Run

WAYS = ("above", "below", "within")
REPRODUCED, NOT_REPRODUCED, UNDECIDED = "reproduced", "not reproduced", "undecided"


class NotInRun(Exception):
    """The run does not have what a claim is about; the message says what is missing."""


@dataclass(frozen=True)
class Claim:
    """A statement, where it is from, and how a run is asked about it.

    `measure` gives the effect with its interval over seeds, or raises NotInRun. `way` says on which side of the margin
    the effect must lie: above it, below it, or within it on both sides of zero (for what should make no difference).
    """

    id: str
    statement: str
    source: str
    margin: float
    measure: Callable[[Run], Interval]
    way: str = "above"

    def __post_init__(self) -> None:
        if self.way not in WAYS:
            raise one_of("way", WAYS, self.way)

    def check(self, run: Run) -> Finding:
        """What a finished run says about it."""
        try:
            found = self.measure(run)
            note = _unsure(found)
        except NotInRun as missing:
            found, note = Interval(math.nan, math.nan, math.nan), str(missing)
        return Finding(self, judge(found, self.margin, self.way), found, str(run.path), note)


@dataclass(frozen=True)
class Finding:
    """What a run says about a claim."""

    claim: Claim
    verdict: str
    found: Interval
    run: str
    note: str = ""

    def record(self) -> dict[str, Any]:
        """As plain values, numbers that are not there as None."""
        effect, low, high = (value if math.isfinite(value) else None for value in self.found)
        claim = {"id": self.claim.id, "statement": self.claim.statement, "source": self.claim.source}
        numbers = {"effect": effect, "low": low, "high": high, "margin": self.claim.margin}
        return {**claim, "verdict": self.verdict, **numbers, "run": self.run, "way": self.claim.way, "note": self.note}


def _unsure(found: Interval) -> str:
    """Why an effect has no interval; nothing where it has one."""
    if math.isnan(found.mean):
        return "the effect is not defined here: its values are too few, or all the same"
    return "" if math.isfinite(found.low) and math.isfinite(found.high) else "too few seeds for an interval"


def judge(found: Interval, margin: float, way: str = "above") -> str:
    """The verdict on an effect: does its whole interval lie beyond the margin, short of it, or neither?"""
    if not (math.isfinite(found.low) and math.isfinite(found.high)):
        return UNDECIDED
    if way == "within":
        beyond = -margin < found.low and found.high < margin
        short = found.low > margin or found.high < -margin
    elif way == "above":
        beyond, short = found.low > margin, found.high < margin
    else:
        beyond, short = found.high < margin, found.low > margin
    return REPRODUCED if beyond else NOT_REPRODUCED if short else UNDECIDED
