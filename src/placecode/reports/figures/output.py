"""Figures as files and as parts of a page.

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
_LOCK = threading.Lock()  # settings and filters of warnings are global; two threads must not restore them crosswise


@contextlib.contextmanager
def _rendering(settings: Any) -> Iterator[None]:
    """With these settings, and without a warning for every letter that the font lacks: a box stands for it in a PNG,
    and a page has other fonts."""
    with _LOCK, matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .*missing from", category=UserWarning)
        yield


def save(figure: Figure, path: Path) -> None:
    """Write the figure as PNG, 150 dots per inch on white: the whole file or nothing."""
    stream = io.BytesIO()
    with _rendering({}):
        figure.savefig(stream, format="png", dpi=150, facecolor="white", metadata={"Software": None})
    write_bytes(Path(path), stream.getvalue())


def svg_text(figure: Figure, prefix: str = "figure", label: str = "") -> str:
    """The figure as an `<svg>` element to put into a page: the same figure gives the same text, byte for byte.

    Text stays text (it can be searched) in the page's font, on a transparent background. Colours follow the page too:
    ink is its `currentColor`, the others are CSS variables such as `--figure-muted` that fall back on the palette, so
    that a dark page can lighten them. All ids begin with `prefix`: give every figure of a page its own. `label` is what
    a screen reader says.
    """
    stream = io.StringIO()
    with _rendering(_SVG_SETTINGS):
        metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(stream, format="svg", transparent=True, metadata=metadata)
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    # matplotlib's style sheet would reach out of the picture to the whole page; the root element can hold it instead.
    text = re.sub(r"<style[^>]*>.*?</style>| font-family: [^;]+;", "", text, flags=re.DOTALL)
    said = html.escape(label)
    text = text.replace("<svg ", f'<svg role="img" aria-label="{said}" style="stroke-linejoin: round" ', 1)
    # Only ids that something refers to are kept: matplotlib's others say nothing, and are not always unique.
    used = {name: f"{prefix}-{i}" for i, name in enumerate(dict.fromkeys(re.findall(r'(?:="#|url\(#)([^")]+)', text)))}

    def follow_the_page(tag: re.Match[str]) -> str:
        kept = re.sub(r' id="([^"]+)"', lambda hit: f' id="{used[hit[1]]}"' if hit[1] in used else "", tag[0])
        kept = re.sub(r'(="#|url\(#)([^")]+)', lambda hit: hit[1] + used[hit[2]], kept)
        for color, name in _SVG_COLORS.items():
            kept = kept.replace(color, name)
        return kept

    return re.sub(r"<[^>]+>", follow_the_page, text)
