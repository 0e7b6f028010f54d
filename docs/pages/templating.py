"""Pages from Jinja2 templates: a template holds the prose, Python computes numbers, tables and named conditions.

A conclusion stands in the template together with the condition under which it is true:

    {% call say(gap.low > 0) %}Accuracy is higher at sigma 0.2 than at 2.0, by {{ gap | plain }}.{% endcall %}

The page is not written if the condition is false. A condition must be a boolean: any other value that happens to be
true, such as a list that is not empty, would never refuse its sentence.

`render_sections` makes a page of one template and a folder of sections, and joins the lines of paragraphs and list
items. `render_page` and `render_blocks` keep lines as the template has them; block tags take their line with them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd

from placecode.analysis.stats import Interval, interval
from placecode.experiments.claims import FAILS, HOLDS, UNDECIDED, Finding
from placecode.reports import wording
from placecode.reports.wording import one_line, plain, signed

TEMPLATES = Path(__file__).parent / "templates"
VERBATIM = ("|", "#", "<!--")
"""Beginnings of blocks whose lines are kept: tables, headings and comments."""


# ------------------------------------------------------------------------------------------------------- conditions


def say(condition: bool, caller: Callable[[], str]) -> str:
    """The text of a call block on one line, refused if its condition is false or not a boolean."""
    if not isinstance(condition, bool | np.bool_):
        raise TypeError(f"a condition must be a boolean; got {condition!r}")
    if not condition:
        raise SystemExit(f"the tables no longer say so; write anew: {one_line(caller())}")
    return one_line(caller())


def directions(findings: Mapping[str, Finding], wanted: str, *ids: str) -> bool:
    """Whether all of these claims have this direction."""
    return all(findings[id].direction == wanted for id in ids)


def above(bound: float, intervals: Iterable[Interval]) -> bool:
    """Whether all of these intervals lie wholly above a bound."""
    return all(interval.low > bound for interval in intervals)


def below(bound: float, intervals: Iterable[Interval]) -> bool:
    """Whether all of these intervals lie wholly below a bound."""
    return all(interval.high < bound for interval in intervals)


def include_zero(intervals: Iterable[Interval]) -> bool:
    """Whether none of these intervals lies wholly on one side of 0."""
    return not any(interval.low > 0 or interval.high < 0 for interval in intervals)


# ------------------------------------------------------------------------------------------------ numbers and tables


def mean(values: pd.Series) -> Interval:
    """The mean with its interval over the values that are known."""
    return interval(values.dropna().to_numpy())


def number(value: float) -> str:
    """Three decimals; empty for NaN."""
    return "" if math.isnan(value) else f"{value:.3f}".replace("-0.000", "0.000")


def bounds(found: Interval) -> str:
    """The bounds of an interval; empty if seeds are too few."""
    return "" if math.isnan(found.low) else f"{number(found.low)} to {number(found.high)}"


def spread(found: Interval) -> str:
    """The mean and the bounds with three decimals."""
    return f"{number(found.mean)} ({bounds(found)})"


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
    """The effect of a claim with its sign and interval."""
    return signed(finding.found)


def joint(loop: Any) -> str:
    """Separator before an item of a loop that lists its items as "a, b and c"."""
    return "" if loop.first else " and " if loop.last else ", "


def grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(cells)} |" for cells in (header, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])


def picture(run: str, name: str, title: str, caller: Callable[[], str]) -> str:
    """A figure of a run; the text of the call block is its caption."""
    return f"![{title}](images/{run}-{name}.png)\n\n*{title}. {one_line(caller())}*"


# -------------------------------------------------------------------------------------------------------- rendering


def environment(trim: bool = False) -> jinja2.Environment:
    """Filters and functions of all templates. With `trim`, a conclusion ends with a line break."""
    made = wording.environment(TEMPLATES, trim)
    filters = (bounds, effect, flipped, number, percent, points, spread)
    made.filters |= {function.__name__: function for function in filters}
    made.filters["paragraph"] = lambda text: one_line(text) + "\n"
    functions = (joint, picture, directions, above, below, include_zero)
    made.globals |= {function.__name__: function for function in functions}
    made.globals |= {"HOLDS": HOLDS, "FAILS": FAILS, "UNDECIDED": UNDECIDED}
    made.globals["say"] = (lambda condition, caller: say(condition, caller) + "\n") if trim else say
    return made


def render_sections(name: str, numbers: dict[str, dict[str, Any]]) -> str:
    """A page from the template `name`.md.j2 and those in the folder `name`.

    The page's template puts in a section with `{{ section("x") }}`. The template of a section sees the numbers of that
    section by their names, and those of other sections by the name of the section.
    """
    made = environment()

    def section(part: str) -> str:
        return made.get_template(f"{name}/{part}.md.j2").render({**numbers, **numbers.get(part, {})})

    return unwrap(made.get_template(f"{name}.md.j2").render({**numbers, "section": section}))


def render_page(name: str, **context: Any) -> str:
    """A page from one template. Paragraphs are separated by one blank line, however many the template has."""
    text = environment(trim=True).get_template(name).render(context)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def render_blocks(name: str, **context: Any) -> Any:
    """The variables that a template sets, as attributes."""
    return environment(trim=True).get_template(name).make_module(context)


def unwrap(text: str) -> str:
    """Markdown with every paragraph and every list item on one line."""
    blocks = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join(block if block.startswith(VERBATIM) else _joined(block) for block in blocks) + "\n"


def _joined(block: str) -> str:
    return "\n".join(one_line(item) for item in re.split(r"\n(?=- )", block.strip()))
