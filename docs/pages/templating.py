"""Pages from Jinja2 templates: a template holds the prose, Python computes numbers, tables and named conditions.

A conclusion stands in the template together with the condition under which it is true:

    {% call say(gap.low > 0) %}Accuracy is higher at sigma 0.2 than at 2.0, by {{ gap | plain }}.{% endcall %}

The page is not written if the condition is false. A condition must be a boolean: any other value that happens to be
true, such as a list that is not empty, would never refuse its sentence.

`render_sections` makes a page of one template and a folder of sections, and joins the lines of paragraphs and list
items. `render_page` and `render_blocks` keep lines as the template has them; block tags take their line with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
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
    return wording.say(bool(condition), one_line(caller()))


def picture(run: str, name: str, title: str, caller: Callable[[], str]) -> str:
    """A figure of a run; the text of the call block is its caption."""
    return wording.picture(run, name, title, one_line(caller()))


def above(bound: float, intervals: Iterable[Interval]) -> bool:
    """Whether all of these intervals lie wholly above a bound."""
    return all(interval.low > bound for interval in intervals)


def below(bound: float, intervals: Iterable[Interval]) -> bool:
    """Whether all of these intervals lie wholly below a bound."""
    return all(interval.high < bound for interval in intervals)


def include_zero(intervals: Iterable[Interval]) -> bool:
    """Whether none of these intervals lies wholly on one side of 0."""
    return not any(wording.apart_from_zero(interval) for interval in intervals)


def joint(loop: Any) -> str:
    """Separator before an item of a loop that lists its items as "a, b and c"."""
    return "" if loop.first else " and " if loop.last else ", "


def listed(items: Sequence[str]) -> str:
    """The items as "a, b and c"."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def share(value: float, digits: int = 0) -> str:
    """A share as a percentage; empty for NaN."""
    return "" if value != value else f"{100 * value:.{digits}f}%"


def environment(trim: bool = False) -> jinja2.Environment:
    """Filters and functions of all templates.

    Parameters
    ----------
    trim : bool
        Remove the line of a block tag, and end a conclusion with a line break.
    """
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # the pages are Markdown
        keep_trailing_newline=True,
        trim_blocks=trim,
        lstrip_blocks=trim,
    )
    made.filters |= {
        "bounds": wording.bounds,
        "effect": wording.effect,
        "flipped": wording.flipped,
        "fmt": format,  # a number by a format specification of Python: 0.1234 | fmt(".2f")
        "listed": listed,
        "number": wording.number,
        "one_line": one_line,
        "paragraph": lambda text: one_line(text) + "\n",
        "percent": wording.percent,
        "plain": wording.plain,
        "points": wording.points,
        "share": share,
        "signed": wording.signed,
        "spread": wording.spread,
    }
    made.globals |= {"HOLDS": HOLDS, "FAILS": FAILS, "UNDECIDED": UNDECIDED, "joint": joint, "picture": picture}
    made.globals |= {"directions": wording.directions, "above": above, "below": below, "include_zero": include_zero}
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
    items = re.split(r"\n(?=- )", block.strip())
    return "\n".join(one_line(item) for item in items)


def one_line(text: str) -> str:
    """The text with line breaks replaced by spaces."""
    return " ".join(text.split())
