"""Words of reports from Jinja2 templates: a template has the sentences and their conditions, Python the numbers.

Sentences are in `pages/templates/*.j2`, titles and captions in `pages/templates/captions.toml`. The generated pages of
the documentation use the same environment with templates of their own.
"""

from __future__ import annotations

import functools
import math
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

from placecode.analysis.stats import Interval

TEMPLATES = Path(__file__).parent / "pages" / "templates"


def signed(interval: Interval, digits: int = 2) -> str:
    """A difference or a correlation with its sign: "+0.12 (+0.05 to +0.19)"; no bounds if seeds are too few."""
    bounds = "" if math.isnan(interval.low) else f" ({interval.low:+.{digits}f} to {interval.high:+.{digits}f})"
    return f"{interval.mean:+.{digits}f}{bounds}"


def plain(interval: Interval, digits: int = 2) -> str:
    """A value, or a difference whose direction is in the sentence: "0.12 (0.05 to 0.19)"."""
    bounds = "" if math.isnan(interval.low) else f" ({interval.low:.{digits}f} to {interval.high:.{digits}f})"
    return f"{interval.mean:.{digits}f}{bounds}"


def with_interval(interval: Interval, sign: str = "") -> str:
    """A value with its named interval: "0.12 (95% CI 0.05 to 0.19)"; with the sign of the mean if `sign` is "+"."""
    bounds = "" if math.isnan(interval.low) else f" (95% CI {interval.low:.2f} to {interval.high:.2f})"
    return f"{interval.mean:{sign}.2f}{bounds}"


def listed(items: Sequence[str]) -> str:
    """The items as "a, b and c"."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def share(value: float, digits: int = 0) -> str:
    """A share as a percentage; empty for NaN."""
    return "" if math.isnan(value) else f"{100 * value:.{digits}f}%"


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: "1 seed", "2 seeds"."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def capital(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def one_line(text: str) -> str:
    """The text with line breaks replaced by spaces."""
    return " ".join(text.split())


def environment(folder: Path, trim: bool = True) -> jinja2.Environment:
    """Templates of plain text in a folder. With `trim`, a line that has only a block tag leaves nothing behind."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # reports escape the text when they put it into HTML
        keep_trailing_newline=True,
        trim_blocks=trim,
        lstrip_blocks=trim,
    )
    named = (signed, plain, with_interval, listed, share, counted, capital, one_line)
    made.filters |= {function.__name__: function for function in named}
    made.filters["fmt"] = format  # a number by a format specification of Python: 0.1234 | fmt(".2f")
    return made


@functools.cache
def _reports(trim: bool = True) -> jinja2.Environment:
    return environment(TEMPLATES, trim)


@functools.cache
def _captions() -> dict[str, Any]:
    return tomllib.loads((TEMPLATES / "captions.toml").read_text())


def paragraphs(text: str) -> list[str]:
    """The parts of a text between blank lines, each on one line."""
    return [one_line(part) for part in re.split(r"\n\s*\n", text) if part.strip()]


def sentences(template: str, **numbers: Any) -> list[str]:
    """The paragraphs of a template, without its suffix."""
    return paragraphs(_reports().get_template(f"{template}.j2").render(numbers))


def sections(template: str, **numbers: Any) -> dict[str, list[str]]:
    """The paragraphs of each variable that a template sets."""
    module = _reports().get_template(f"{template}.j2").make_module(numbers)
    return {name: paragraphs(str(text)) for name, text in vars(module).items() if isinstance(text, str)}


def caption(key: str, **values: Any) -> tuple[str, str]:
    """The title and the caption of a figure or a table: an entry of captions.toml, such as "latin.accuracy"."""
    page, _, name = key.partition(".")
    texts = (_captions()[page][name].get(part, "") for part in ("title", "caption"))
    title, text = (one_line(_reports(trim=False).from_string(text).render(values)) for text in texts)
    return title, text
