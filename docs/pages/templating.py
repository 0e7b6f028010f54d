"""Render pages of the documentation from Jinja2 templates: a template holds the prose, Python computes the numbers.

A conclusion stands in the template together with the condition under which it is true:

    {% call say(gap.low > 0) %}Accuracy is higher at sigma 0.2 than at 2.0, by {{ gap | plain }}.{% endcall %}

The page is not written if the condition is false. A condition must be a boolean. Any other value that counts as true,
such as a list that is not empty, would never refuse its sentence.

`render_sections` makes a page from one template and a folder of sections, and joins the lines of paragraphs and list
items. `render_page` and `render_blocks` keep lines as the template has them; lines with only a block tag are removed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from placecode.analysis.stats import Interval
from placecode.experiments.claims import FAILS, HOLDS, UNDECIDED, Finding
from placecode.reports import wording
from placecode.reports.wording import one_line, plain, signed

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / "docs" / "pages" / "templates"
VERBATIM = ("|", "#", "<!--")
"""First characters of blocks whose lines are not joined: tables, headings and comments."""


# ------------------------------------------------------------------------------------------------------- conditions


def say(condition: bool, caller: Callable[[], str]) -> str:
    """Return the text of a template's call block on one line.

    Raises SystemExit if the condition is false, and TypeError if it is not a boolean.
    """
    if not isinstance(condition, bool | np.bool_):
        raise TypeError(f"a condition must be a boolean; got {condition!r}")
    if not condition:
        raise SystemExit(f"the tables no longer say so; write anew: {one_line(caller())}")
    return one_line(caller())


def directions(findings: Mapping[str, Finding], direction: str, *ids: str) -> bool:
    """Return whether all claims with these ids have this verdict on their direction: HOLDS, FAILS or UNDECIDED."""
    return all(findings[id].direction == direction for id in ids)


def above(bound: float, intervals: Iterable[Interval]) -> bool:
    """Return whether all of these intervals lie wholly above a bound."""
    return all(interval.low > bound for interval in intervals)


def below(bound: float, intervals: Iterable[Interval]) -> bool:
    """Return whether all of these intervals lie wholly below a bound."""
    return all(interval.high < bound for interval in intervals)


def include_zero(intervals: Iterable[Interval]) -> bool:
    """Return whether each of these intervals includes 0."""
    return not any(interval.low > 0 or interval.high < 0 for interval in intervals)


# ------------------------------------------------------------------------------------------------ numbers and tables


def number(value: float) -> str:
    """Format a number with three decimals; empty for NaN."""
    return "" if math.isnan(value) else f"{value:.3f}".replace("-0.000", "0.000")


def bounds(interval: Interval) -> str:
    """Format the bounds of an interval; empty if they are NaN because there are too few seeds."""
    return "" if math.isnan(interval.low) else f"{number(interval.low)} to {number(interval.high)}"


def percent(interval: Interval) -> str:
    """Format a share and its interval in percent."""
    mean, low, high = (100 * value for value in interval)
    return f"{mean:.0f}% ({low:.0f} to {high:.0f}%)"


def points(interval: Interval) -> str:
    """Format a difference between shares and its interval in percentage points."""
    return plain(Interval(*(100 * value for value in interval)), 0)


def flipped(interval: Interval) -> Interval:
    """Return a difference and its interval with the opposite sign."""
    return Interval(-interval.mean, -interval.high, -interval.low)


def effect(finding: Finding) -> str:
    """Format the effect that was measured for a claim, with its sign and interval."""
    return signed(finding.effect)


def grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown from its header and its rows."""
    lines = [f"| {' | '.join(cells)} |" for cells in (header, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])


def columns_table(columns: Mapping[str, Iterable[str]]) -> str:
    """Return a table in Markdown. `columns` holds the cells of each column by its header."""
    return grid(list(columns), zip(*columns.values(), strict=True))


def picture(run: str, name: str, title: str, caller: Callable[[], str]) -> str:
    """Return the Markdown of the figure `name` of a run; the text of the template's call block is its caption."""
    return f"![{title}](images/{run}-{name}.png)\n\n*{title}. {one_line(caller())}*"


# -------------------------------------------------------------------------------------------------------- rendering


def environment(trim: bool = False) -> jinja2.Environment:
    """Return the Jinja2 environment with the filters and functions of all templates.

    With `trim`, lines with only a block tag are removed, and a conclusion ends with a line break.
    """
    templates = wording.environment(TEMPLATES, trim)
    filters = (bounds, effect, flipped, number, percent, points)
    templates.filters |= {function.__name__: function for function in filters}
    templates.filters["paragraph"] = lambda text: one_line(text) + "\n"
    functions = (picture, directions, above, below, include_zero)
    templates.globals |= {function.__name__: function for function in functions}
    templates.globals |= {"HOLDS": HOLDS, "FAILS": FAILS, "UNDECIDED": UNDECIDED}
    templates.globals["say"] = (lambda condition, caller: say(condition, caller) + "\n") if trim else say
    return templates


def render_sections(name: str, numbers: dict[str, dict[str, Any]]) -> str:
    """Render the page `name` from the template `name`.md.j2 and those in the folder `name`, one for each section.

    The template of the page includes a section with `{{ section("x") }}`. `numbers` holds the numbers of each section.
    The template of a section sees its own numbers by their names, and those of other sections as `x.name`.
    """
    templates = environment()

    def section(title: str) -> str:
        """Return the text of one section."""
        return templates.get_template(f"{name}/{title}.md.j2").render({**numbers, **numbers.get(title, {})})

    return unwrap(templates.get_template(f"{name}.md.j2").render({**numbers, "section": section}))


def render_page(name: str, **context: Any) -> str:
    """Render a page from one template. Paragraphs are separated by one blank line, however many the template has."""
    text = environment(trim=True).get_template(name).render(context)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def render_blocks(name: str, **context: Any) -> Any:
    """Render a template, and return an object whose attributes are the variables that the template sets."""
    return environment(trim=True).get_template(name).make_module(context)


def unwrap(text: str) -> str:
    """Return Markdown with every paragraph and every list item on one line."""
    blocks = []
    for block in re.split(r"\n\s*\n", text.strip()):
        items = re.split(r"\n(?=- )", block.strip())  # one item, all of the block, if it is no list
        blocks.append(block if block.startswith(VERBATIM) else "\n".join(map(one_line, items)))
    return "\n\n".join(blocks) + "\n"
