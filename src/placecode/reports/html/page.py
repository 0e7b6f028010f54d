"""The frame of a page: templates, styles, and the scripts that alone may run in it.

Everything is inlined. A policy in the page names the hash of each script, so that no other runs, and allows no address
at all. plotly draws what moves; where it is not installed, the page says so in a sentence and shows the rest.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import jinja2

from placecode.reports.html import packing
from placecode.version import VERSION

STYLES = ("page.css", "tables.css", "interactive.css", "print.css")
ALWAYS, MOVING = ("tables.js",), ("plots.js", "labels.js", "panels.js", "dial.js", "channels.js")
INSTALL = "pip install plotly"
"""The line that brings back what moves."""


@functools.cache
def environment() -> jinja2.Environment:
    """Escapes everything; a name that the template misspells is an error, not an empty string."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("placecode", "reports/html"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def filled(
    template: str, title: str, dials: Sequence[dict[str, Any]], atlas: dict[str, Any] | None, **content: Any
) -> str:
    """A page from its template: with what moves in it as data, and the scripts that it needs, no more."""
    source = environment()
    own = "\n".join(source.get_template(name).render() for name in (*ALWAYS, *MOVING))
    moves = bool(dials or atlas)
    library = plotly() if moves else None
    return source.get_template(template).render(
        title=title,
        styles="\n".join(source.get_template(name).render() for name in STYLES),
        scripts=[script for script in (library, own) if script is not None],
        hashes=[_hash(script) for script in (library, own) if script is not None],
        data=packing.as_script({"title": title, "dials": dials, "atlas": atlas}),
        still=moves and library is None,
        install=INSTALL,
        version=VERSION,
        **content,
    )


@functools.cache
def plotly() -> str | None:
    """The text of plotly's script as the installed package brings it; None where there is none."""
    if find_spec("plotly") is None:
        return None
    # Within a script, only its end tag and a comment's beginning mean anything to a reader of HTML.
    text = str(import_module("plotly.offline").get_plotlyjs())
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--").replace("\r\n", "\n")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
