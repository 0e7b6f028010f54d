"""Claims: statements that a run is checked against, each with two verdicts.

*Direction*: does the effect have the stated sign, beyond its margin? It holds if the whole 95% interval over seeds
lies beyond the margin, and fails if the whole interval falls short of it. It is undecided if the interval contains the
margin, or if the run does not have what the claim needs. Margins are declared in the code.

*Number*: does the published value lie within our interval, or within a stated tolerance of our mean? There is no such
verdict if no number is published, or if the effect has no interval.

The claims on an experiment are a tuple in a module beside it, such as `ENCODING_CLAIMS` in `latin/encoding_claims.py`,
to which a new claim is added.

>>> judge(Interval(0.6, 0.5, 0.7), margin=0.3)
'holds'
>>> judge(Interval(0.01, -0.03, 0.05), margin=0.04, way="within")
'undecided'
>>> compare(Interval(-0.975, -0.99, -0.87), published=-0.98), compare(Interval(0.994, 0.988, 1.001), published=0.956)
('match', 'no match')
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from placecode.analysis.stats import Interval
from placecode.errors import must_be, one_of
from placecode.runs.read import Run

PAPER, REVIEWERS, OURS = LABELS = ("paper", "asked by reviewers", "our question")
"""Who makes the statement or asks the question: the paper, its reviewers, or the authors of placecode."""
WAYS = ("above", "below", "within")
"""Values of `Claim.way`: where the interval of an effect must lie, relative to the margin."""
HOLDS, FAILS, UNDECIDED = DIRECTIONS = ("holds", "fails", "undecided")
MATCH, NO_MATCH, NO_NUMBER = "match", "no match", ""
DASH = "-"
HOW_TO_READ = (
    "Direction: positive if the whole 95% interval over seeds lies beyond the margin, negative if the whole interval "
    "falls short of it, else undecided. Positive reads as reproduced for claims of the paper, as found on our data "
    "where the data differ from the paper's, and as yes for questions. Number: a match if the published value (in "
    "parentheses) lies within our interval, or our mean within a stated tolerance of it; a dash where no number is "
    "published or the effect has no interval. Margins are declared in the code."
)
"""Explanation of `direction_text` and `number_text` for tables of claims."""


EffectFunction = Callable[[Run], Interval]
"""A function that returns an effect in a run, such as a difference in accuracy, with its interval over seeds."""


class NotInRun(Exception):
    """Raised if the run does not have what a claim needs. The message says what is missing."""


@dataclass(frozen=True)
class Claim:
    """A statement, its source, and how it is measured in a run.

    Parameters
    ----------
    id : str
        Name in tables and on the command line.
    statement : str
        The claim in one sentence.
    label : str
        One of `LABELS`.
    margin : float
        Threshold that the whole interval must be beyond.
    measure : callable
        Returns the effect in a run with its interval over seeds, or raises NotInRun.
    way : str
        Where the whole interval must lie: "above" the margin, "below" it, or "within" it, that is, between -margin and
        margin (for effects that should be zero).
    published : float, optional
        Value in the paper, in the unit of the effect.
    tolerance : float, optional
        Largest difference of our mean from the published value that counts as a match even where the interval does not
        contain it; usually half a unit of the last published digit.
    data_differ : bool
        Whether no run of the experiment uses the paper's data, so that a failure says nothing about these data. Leave
        it False for Latin squares: `check` recognizes runs on other puzzles than the published ones.
    remark : str
        A note, such as when the margin was set.
    """

    id: str
    statement: str
    label: str
    margin: float
    measure: EffectFunction
    way: str = "above"
    published: float | None = None
    tolerance: float | None = None
    data_differ: bool = False
    remark: str = ""

    def __post_init__(self) -> None:
        if self.label not in LABELS:
            raise one_of("label", LABELS, self.label)
        if self.way not in WAYS:
            raise one_of("way", WAYS, self.way)
        if self.published is not None and not math.isfinite(self.published):
            raise must_be("published", "a finite number", self.published)
        if self.tolerance is not None and (self.published is None or not 0 <= self.tolerance < math.inf):
            raise must_be("tolerance", "a number of at least 0, of a claim with a published value", self.tolerance)

    def check(self, run: Run) -> Finding:
        """Return the two verdicts of a finished run on the claim: does its direction hold, does its number match?"""
        try:
            effect = self.measure(run)
            note = _why_no_interval(effect)
        except NotInRun as missing:
            effect, note = Interval(math.nan, math.nan, math.nan), str(missing)
        drawn_puzzles = run.config["fields"].get("puzzles", "") is None  # not the published puzzles
        data_differ = self.data_differ or drawn_puzzles
        direction, number = judge(effect, self.margin, self.way), compare(effect, self.published, self.tolerance)
        return Finding(self, direction, number, effect, str(run.path), note, data_differ)


def claim_from(label: str) -> Callable[..., Claim]:
    """Return a function that makes claims with this label, one of `LABELS`, and with a margin of 0 by default."""

    def claim(
        id: str, statement: str, measure: EffectFunction, margin: float = 0.0, way: str = "above", **fields: Any
    ) -> Claim:
        return Claim(id, statement, label, margin, measure, way, **fields)

    return claim


paper_claim, reviewer_claim, our_claim = map(claim_from, LABELS)


@dataclass(frozen=True)
class Finding:
    """The verdicts of a run on a claim."""

    claim: Claim
    direction: str
    """Whether the effect has the stated sign, beyond its margin: "holds", "fails" or "undecided"."""
    number: str
    """Whether the published number agrees with the measured effect: MATCH, NO_MATCH, or NO_NUMBER if none is published
    or the effect has no interval."""
    effect: Interval
    run: str
    note: str = ""
    """Why the effect or its interval is missing."""
    data_differ: bool = False
    """Whether the data of the run differ from the paper's."""

    def record(self) -> dict[str, Any]:
        """Return the claim and its verdicts as a row of the table of claims. Missing numbers are None."""
        claim = self.claim
        effect, low, high = (value if math.isfinite(value) else None for value in self.effect)
        return {
            "id": claim.id,
            "statement": claim.statement,
            "label": claim.label,
            "remark": claim.remark,
            "direction": self.direction,
            "direction_text": direction_text(self),
            "number": self.number,
            "number_text": number_text(self),
            "published": claim.published,
            "effect": effect,
            "low": low,
            "high": high,
            "margin": claim.margin,
            "way": claim.way,
            "run": self.run,
            "note": self.note,
        }


def direction_text(finding: Finding) -> str:
    """Return the verdict on the direction in words.

    It is "reproduced" or "not reproduced" for claims of the paper, or "found on our data" or "not found on our data" if
    the data differ from the paper's. It is "yes" or "no" for questions. For any claim it can be "undecided".
    """
    if finding.direction == UNDECIDED:
        return UNDECIDED
    if finding.claim.label != PAPER:
        return "yes" if finding.direction == HOLDS else "no"
    positive = "found on our data" if finding.data_differ else "reproduced"
    return positive if finding.direction == HOLDS else f"not {positive}"


def number_text(finding: Finding) -> str:
    """Return the verdict on the number (a dash if there is none), followed by the published value in parentheses."""
    published = finding.claim.published
    return (finding.number or DASH) + ("" if published is None else f" ({published:g})")


def _why_no_interval(effect: Interval) -> str:
    """Return the reason why an effect has no interval, or an empty text if it has one."""
    if math.isnan(effect.mean):
        return "the effect is not defined here: its values are too few, or all the same"
    return "" if _has_bounds(effect) else "too few seeds for an interval"


def _has_bounds(effect: Interval) -> bool:
    """Return whether an effect has an interval: both bounds are finite."""
    return math.isfinite(effect.low) and math.isfinite(effect.high)


def judge(effect: Interval, margin: float, way: str = "above") -> str:
    """Return the verdict on the direction of an effect: "holds" if its whole interval lies where `way` says ("above" or
    "below" the margin, "within": between -margin and margin), "fails" if all of it lies elsewhere, else "undecided"."""
    if not _has_bounds(effect):
        return UNDECIDED
    if way == "within":
        beyond = -margin < effect.low and effect.high < margin
        short = effect.low > margin or effect.high < -margin
    elif way == "above":
        beyond, short = effect.low > margin, effect.high < margin
    else:
        beyond, short = effect.high < margin, effect.low > margin
    return HOLDS if beyond else FAILS if short else UNDECIDED


def compare(effect: Interval, published: float | None, tolerance: float | None = None) -> str:
    """Return MATCH if the published value lies within the interval, or differs from the mean by no more than the
    tolerance; else NO_MATCH. Without a published value or without an interval, return NO_NUMBER."""
    if published is None or not _has_bounds(effect):
        return NO_NUMBER
    inside = effect.low <= published <= effect.high
    near = tolerance is not None and abs(effect.mean - published) <= tolerance
    return MATCH if inside or near else NO_MATCH
