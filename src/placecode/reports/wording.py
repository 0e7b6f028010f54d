"""Render the sentences, titles and captions of reports from Jinja2 templates.

A template holds the sentences and the conditions under which each is written; Python code passes the numbers to it.
Sentences are in `pages/templates/*.j2`, titles and captions in `pages/templates/captions.toml`. The generated pages of
the documentation use the same filters with other templates.
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


def plain(interval: Interval, digits: int = 2, sign: str = "", label: str = "") -> str:
    """Format a mean with its interval: "0.12 (0.05 to 0.19)", or "0.12" if the bounds are NaN, as for a single seed.

    If `sign` is "+", positive numbers have a plus sign. `label` is written before the bounds, such as "95% CI ".
    """
    mean, low, high = (f"{value:{sign}.{digits}f}" for value in interval)
    return mean if math.isnan(interval.low) else f"{mean} ({label}{low} to {high})"


def signed(interval: Interval, digits: int = 2, label: str = "") -> str:
    """Format a difference or a correlation with its sign: "+0.12 (+0.05 to +0.19)"; see `plain`."""
    return plain(interval, digits, "+", label)


def listed(items: Sequence[str]) -> str:
    """Join the items as "a, b and c"; return an empty text if there are none."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def list_separator(loop: Any) -> str:
    """Return the separator before an item, so that items read "a, b and c". `loop` is the loop variable of Jinja2."""
    return "" if loop.first else " and " if loop.last else ", "


def share(value: float, digits: int = 0) -> str:
    """Format a share from 0 to 1 as a percentage with `digits` decimals: "42%"; return an empty text for NaN."""
    return "" if math.isnan(value) else f"{100 * value:.{digits}f}%"


def counted(number: int, noun: str) -> str:
    """Format a number with its noun, which gets an s in the plural: "1 seed", "2 seeds"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def capital(text: str) -> str:
    """Return the text with its first letter in upper case and all others unchanged."""
    return text[:1].upper() + text[1:]


def one_line(text: str) -> str:
    """Return the text on one line: line breaks and repeated spaces become single spaces."""
    return " ".join(text.split())


def environment(folder: Path, trim: bool = True) -> jinja2.Environment:
    """Return a Jinja2 environment for the plain-text templates in a folder, which can use the functions above.

    With `trim`, a line that holds only a block tag such as `{% if %}` leaves no empty line in the output. A template
    that uses an undefined name raises an error.
    """
    jinja = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # reports escape the text when they put it into HTML
        keep_trailing_newline=True,
        trim_blocks=trim,
        lstrip_blocks=trim,
    )
    filters = (signed, plain, listed, share, counted, capital, one_line)
    jinja.filters |= {function.__name__: function for function in filters}
    jinja.globals["list_separator"] = list_separator
    jinja.filters["fmt"] = format  # a number by a format specification of Python: 0.1234 | fmt(".2f")
    return jinja


@functools.cache
def _reports(trim: bool = True) -> jinja2.Environment:
    """Return the `environment` of the templates of reports, made once for each value of `trim`."""
    return environment(TEMPLATES, trim)


@functools.cache
def _captions() -> dict[str, Any]:
    """Return the content of captions.toml, read once."""
    return tomllib.loads((TEMPLATES / "captions.toml").read_text())


def paragraphs(text: str) -> list[str]:
    """Split a text at blank lines and return its paragraphs, each on one line."""
    return [one_line(part) for part in re.split(r"\n\s*\n", text) if part.strip()]


def sentences(template: str, **numbers: Any) -> list[str]:
    """Render a template with the values `numbers`; return its paragraphs. `template` is its file name without .j2."""
    return paragraphs(_reports().get_template(f"{template}.j2").render(numbers))


def sections(template: str, **numbers: Any) -> dict[str, list[str]]:
    """Render a template and return the paragraphs of each part of its text, by the name of the part.

    A part is a text that the template assigns to a variable, `{% set name %}...{% endset %}`. `template` is the file
    name without the suffix .j2, and `numbers` are the values that the template uses.
    """
    module = _reports().get_template(f"{template}.j2").make_module(numbers)
    texts = {name: text for name, text in vars(module).items() if isinstance(text, str) and not name.startswith("_")}
    return {name: paragraphs(text) for name, text in texts.items()}


def caption(key: str, **values: Any) -> tuple[str, str]:
    """Return the title and the caption of a figure or table, rendered from an entry of captions.toml.

    `key` is the page and the name of the entry, such as "latin.accuracy", and `values` are the variables of the entry.
    If the entry has no title or no caption, an empty text is returned for it.
    """
    page, _, name = key.partition(".")
    texts = (_captions()[page][name].get(part, "") for part in ("title", "caption"))
    title, text = (one_line(_reports(trim=False).from_string(text).render(values)) for text in texts)
    return title, text
