"""Pages from Jinja2 templates: a template holds the prose, Python computes numbers, tables and named conditions.

A conclusion stands in the template together with the condition under which it is true:

    {% call say(gap.low > 0) %}Accuracy is higher at sigma 0.2 than at 2.0, by {{ gap | plain }}.{% endcall %}

The page is not written if the condition is false. Lines of a template may be broken anywhere: paragraphs and list items
become one line each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import wording

from placecode.analysis.stats import Interval
from placecode.experiments.claims import FAILS, HOLDS, UNDECIDED

TEMPLATES = Path(__file__).parent / "templates"
VERBATIM = ("|", "#", "<!--")
"""Beginnings of blocks whose lines are kept: tables, headings and comments."""


def say(condition: bool, caller: Callable[[], str]) -> str:
    """The text of a call block on one line, refused if its condition is false or not a boolean."""
    if not isinstance(condition, bool | np.bool_):
        raise TypeError(f"a condition must be a boolean; got {condition!r}")
    return wording.say(bool(condition), _one_line(caller()))


def picture(run: str, name: str, title: str, caller: Callable[[], str]) -> str:
    """A figure of a run; the text of the call block is its caption."""
    return wording.picture(run, name, title, _one_line(caller()))


def above(bound: float, intervals: Iterable[Interval]) -> bool:
    """Whether all of these intervals lie wholly above a bound."""
    return all(interval.low > bound for interval in intervals)


def below(bound: float, intervals: Iterable[Interval]) -> bool:
    """Whether all of these intervals lie wholly below a bound."""
    return all(interval.high < bound for interval in intervals)


def include_zero(intervals: Iterable[Interval]) -> bool:
    """Whether none of these intervals lies wholly on one side of 0."""
    return not any(wording.apart_from_zero(interval) for interval in intervals)


def environment() -> jinja2.Environment:
    """Where templates are looked up, and what they can use."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # the pages are Markdown
        keep_trailing_newline=True,
    )
    made.filters |= {
        "bounds": wording.bounds,
        "effect": wording.effect,
        "flipped": wording.flipped,
        "fmt": format,
        "number": wording.number,
        "percent": wording.percent,
        "plain": wording.plain,
        "points": wording.points,
        "signed": wording.signed,
        "spread": wording.spread,
    }
    made.globals |= {"HOLDS": HOLDS, "FAILS": FAILS, "UNDECIDED": UNDECIDED}
    made.globals |= {"say": say, "picture": picture, "directions": wording.directions}
    made.globals |= {"above": above, "below": below, "include_zero": include_zero}
    return made


def render(name: str, numbers: dict[str, dict[str, Any]]) -> str:
    """A page from the template `name`.md.j2 and those in the folder `name`.

    The page's template puts in a section with `{{ section("x") }}`. The template of a section sees the numbers of that
    section by their names, and those of other sections by the name of the section.
    """
    made = environment()

    def section(part: str) -> str:
        return made.get_template(f"{name}/{part}.md.j2").render({**numbers, **numbers.get(part, {})})

    return unwrap(made.get_template(f"{name}.md.j2").render({**numbers, "section": section}))


def unwrap(text: str) -> str:
    """Markdown with every paragraph and every list item on one line."""
    blocks = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join(block if block.startswith(VERBATIM) else _joined(block) for block in blocks) + "\n"


def _joined(block: str) -> str:
    items = re.split(r"\n(?=- )", block.strip())
    return "\n".join(_one_line(item) for item in items)


def _one_line(text: str) -> str:
    return " ".join(text.split())
