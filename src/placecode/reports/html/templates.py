"""Render an HTML page from a Jinja2 template, with styles, scripts and data inside the same file.

The content security policy of the page lists the hashes of its scripts, so that no other script runs and nothing is
loaded. Interactive plots need plotly. If it is not installed, the page says so and shows everything else.
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
SCRIPTS = ("tables.js", "plots.js", "labels.js", "panels.js", "slider.js", "channels.js")
INSTALL = "pip install plotly"
"""Command that installs plotly, for pages that were written without it."""


@functools.cache
def environment() -> jinja2.Environment:
    """Return the Jinja2 environment of the folder assets. It escapes all values; an undefined name raises an error."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("placecode", "reports/html/assets"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render_template(
    template: str,
    title: str,
    sliders: Sequence[dict[str, Any]],
    channel_map_data: dict[str, Any] | None,
    **content: Any,
) -> str:
    """Return the text of an HTML page, rendered from a template such as "page.html".

    `sliders` are results of `packing.slider`, one for each sigma slider. `channel_map_data` is the result of
    `packing.channel_map`, or None for a page without a map of channels. `content` has the other variables of the
    template. The page includes plotly only if it has a slider or a map.
    """
    interactive = bool(sliders or channel_map_data)
    library = plotly() if interactive else None
    scripts = [*([] if library is None else [library]), _joined(SCRIPTS)]
    digests = [hashlib.sha256(script.encode()).digest() for script in scripts]
    shared = {
        "title": title,
        "styles": _joined(STYLES),
        "scripts": scripts,
        "hashes": [base64.b64encode(digest).decode() for digest in digests],  # for the content security policy
        "data": packing.as_script({"title": title, "sliders": sliders, "channel_map": channel_map_data}),
        "needs_plotly": interactive and library is None,
        "install": INSTALL,
        "version": VERSION,
    }
    return environment().get_template(template).render(shared, **content)


@functools.cache
def plotly() -> str | None:
    """Return the source of plotly.js from the installed package, or None if it is not installed."""
    if find_spec("plotly") is None:
        return None
    # inside a script element, only its end tag and the start of a comment are parsed as HTML
    text = str(import_module("plotly.offline").get_plotlyjs())
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--").replace("\r\n", "\n")


def _joined(names: Sequence[str]) -> str:
    """Return the contents of several files in the folder assets, joined by line breaks."""
    return "\n".join(environment().get_template(name).render() for name in names)
