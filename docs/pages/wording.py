"""Numbers, tables and conclusions as Markdown, for pages that are made from the tables of runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from placecode.analysis.stats import Interval, interval
from placecode.experiments.claims import Finding


def say(true: bool, sentence: str) -> str:
    """A conclusion, refused if its condition is false."""
    if not true:
        raise SystemExit(f"the tables no longer say so; write anew: {sentence}")
    return sentence


def directions(found: Mapping[str, Finding], wanted: str, *ids: str) -> bool:
    """Whether all of these claims have this direction."""
    return all(found[id].direction == wanted for id in ids)


def mean(values: pd.Series) -> Interval:
    return interval(values.dropna().to_numpy())


def number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3f}".replace("-0.000", "0.000")


def bounds(found: Interval) -> str:
    return "" if math.isnan(found.low) else f"{number(found.low)} to {number(found.high)}"


def spread(found: Interval) -> str:
    return f"{number(found.mean)} ({bounds(found)})"


def signed(found: Interval, digits: int = 2) -> str:
    """A difference or a correlation with its sign; a bound of -0.00 lies below zero."""
    return f"{found.mean:+.{digits}f} ({found.low:+.{digits}f} to {found.high:+.{digits}f})"


def plain(found: Interval, digits: int = 2) -> str:
    """A difference whose direction is in the sentence."""
    return f"{found.mean:.{digits}f} ({found.low:.{digits}f} to {found.high:.{digits}f})"


def percent(found: Interval) -> str:
    """A share in percent."""
    mean, low, high = (100 * value for value in found)
    return f"{mean:.0f}% ({low:.0f} to {high:.0f}%)"


def points(found: Interval) -> str:
    """A difference between shares in percentage points."""
    return plain(Interval(*(100 * value for value in found)), 0)


def flipped(found: Interval) -> Interval:
    """The same difference with the opposite sign."""
    return Interval(-found.mean, -found.high, -found.low)


def effect(finding: Finding) -> str:
    return signed(finding.found)


def apart_from_zero(found: Interval) -> bool:
    return found.low > 0 or found.high < 0


def grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [f"| {' | '.join(cells)} |" for cells in (header, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])


def picture(run: str, name: str, title: str, caption: str) -> str:
    """A figure of a run with its caption."""
    return f"![{title}](images/{run}-{name}.png)\n\n*{title}. {caption}*"
