"""Write figures as PNG files, and convert them to the text of `<svg>` elements for an HTML page.

>>> save(figure, Path("figures/accuracy_by_sigma.png"))
>>> svg_text(figure, prefix="figure-1", label="accuracy against sigma")
'<svg role="img" aria-label="accuracy against sigma" ...'
"""

from __future__ import annotations

import contextlib
import html
import io
import re
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from placecode.files import write_bytes
from placecode.reports.figures.base import BLUE, INK, MUTED, PAPER, VERMILLION

_SVG_SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "placecode"}
_SVG_COLORS = {
    INK: "currentColor",
    MUTED: f"var(--figure-muted, {MUTED})",
    BLUE.lower(): f"var(--figure-blue, {BLUE})",
    VERMILLION.lower(): f"var(--figure-vermillion, {VERMILLION})",
    PAPER: f"var(--paper, {PAPER})",
}
_LOCK = threading.Lock()  # settings and warning filters are global, so only one thread may change them at a time


@contextlib.contextmanager
def _rendering(settings: Any) -> Iterator[None]:
    """Set matplotlib's settings and silence warnings about missing glyphs inside a `with` block."""
    with _LOCK, matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .*missing from", category=UserWarning)
        yield


def save(figure: Figure, path: Path) -> None:
    """Write a figure to `path` as a PNG file with 150 dots per inch on white. Writing is atomic."""
    stream = io.BytesIO()
    with _rendering({}):
        figure.savefig(stream, format="png", dpi=150, facecolor="white", metadata={"Software": None})
    write_bytes(Path(path), stream.getvalue())


def svg_text(figure: Figure, prefix: str = "figure", label: str = "") -> str:
    """Return the text of an `<svg>` element for an HTML page. The same figure always gives the same text.

    Words stay searchable and have the font of the page; the background is transparent. The colours in `_SVG_COLORS`
    become the text colour of the page and CSS variables, so that a dark page can change them. All ids start with
    `prefix`, which must be unique on the page. `label` is read by screen readers.
    """
    stream = io.StringIO()
    with _rendering(_SVG_SETTINGS):
        metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(stream, format="svg", transparent=True, metadata=metadata)
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    # matplotlib's style sheet would apply to the whole page, so its style is set on the root element instead
    text = re.sub(r"<style[^>]*>.*?</style>| font-family: [^;]+;", "", text, flags=re.DOTALL)
    description = html.escape(label)
    text = text.replace("<svg ", f'<svg role="img" aria-label="{description}" style="stroke-linejoin: round" ', 1)
    # keep only ids that are referenced, since the others are not always unique
    used = {name: f"{prefix}-{i}" for i, name in enumerate(dict.fromkeys(re.findall(r'(?:="#|url\(#)([^")]+)', text)))}

    def rewrite(tag: re.Match[str]) -> str:
        """Return a tag with its ids renamed and its colours replaced."""
        new = re.sub(r' id="([^"]+)"', lambda match: f' id="{used[match[1]]}"' if match[1] in used else "", tag[0])
        new = re.sub(r'(="#|url\(#)([^")]+)', lambda match: match[1] + used[match[2]], new)
        for color, name in _SVG_COLORS.items():
            new = new.replace(color, name)
        return new

    return re.sub(r"<[^>]+>", rewrite, text)
