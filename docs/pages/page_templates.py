"""Markdown pages from Jinja templates in docs/pages/templates: templates hold the prose, Python computes the numbers.

A conclusion stands in the template beside the condition under which it is true:

    {% call say(small.low > large.high) %}
    Small sigmas do better, {{ difference | signed }}.
    {% endcall %}

If the tables no longer support it, the page is not written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jinja2
import wording

TEMPLATES = Path(__file__).parent / "templates"


def one_line(text: str) -> str:
    """The text with its line breaks turned into spaces."""
    return " ".join(text.split())


def say(condition: object, caller: Callable[[], str]) -> str:
    """The sentences of a call block on one line, or SystemExit if the condition is false."""
    return wording.say(bool(condition), one_line(caller())) + "\n"


def joint(loop: Any) -> str:
    """What stands before an item of a loop that lists its items as "a, b and c"."""
    return "" if loop.first else " and " if loop.last else ", "


def listed(items: Sequence[str]) -> str:
    """The items as "a, b and c"."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def percent(share: float, digits: int = 0) -> str:
    """A share as a percentage; empty for NaN."""
    return "" if share != share else f"{100 * share:.{digits}f}%"


ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(TEMPLATES),
    undefined=jinja2.StrictUndefined,
    autoescape=False,  # Markdown, not HTML
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
ENVIRONMENT.globals |= {"say": say, "joint": joint}
ENVIRONMENT.filters |= {
    "fmt": format,  # a number by a format specification of Python: 0.1234 | fmt(".2f")
    "listed": listed,
    "percent": percent,
    "plain": wording.plain,
    "signed": wording.told,
    "effect": wording.effect,
    "one_line": one_line,
    "paragraph": lambda text: one_line(text) + "\n",
}


def render(name: str, **context: Any) -> str:
    """The page of a template. Paragraphs are separated by one blank line, however many the template has."""
    text = ENVIRONMENT.get_template(name).render(context)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def blocks(name: str, **context: Any) -> Any:
    """What a template sets, as attributes."""
    return ENVIRONMENT.get_template(name).make_module(context)
