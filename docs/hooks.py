"""Hooks of the documentation site, which mkdocs calls when it builds the pages from Markdown.

- Pages may link to files of the repository. The site has none of them, so there the link becomes its text and the name
  of the file.
- Examples in docstrings are shown as code.
- The help text of a setting, in `setting(default, help)` or `sweep_over(default, help)`, becomes its docstring.
- The search works without a server, when the site is opened as a file (with offline.js).
"""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from typing import Any

import griffe

FENCED_BLOCK = re.compile(r"(^```.*?^```)", flags=re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")
EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?! *$).*)*", flags=re.MULTILINE)


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Replace links out of docs/ by their text; mkdocs calls this for the Markdown of every page."""
    folder = os.path.dirname(page.file.src_uri)
    parts = FENCED_BLOCK.split(markdown)  # every second part is code
    return "".join(
        part if i % 2 else LINK.sub(lambda link: site_link(link, folder), part) for i, part in enumerate(parts)
    )


def on_post_build(*, config: Any) -> None:
    """Write the search index as a script too; mkdocs calls this at the end.

    A page that is opened as a file, without a server, can load the index only as a script.
    """
    folder = Path(config.site_dir) / "search"
    (folder / "search_index.js").write_text(f"var __index = {(folder / 'search_index.json').read_text()}")


def site_link(link: re.Match[str], folder: str) -> str:
    """Return a link on a page in this folder unchanged, or its text and the name of the file if it leads out of docs/.

    >>> site_link(LINK.match("[the licence](../LICENSE)"), "")
    'the licence (`LICENSE`)'
    """
    text, target, _ = link.groups()
    path = os.path.normpath(os.path.join(folder, target))
    if ":" in target or not path.startswith(".."):
        return link[0]
    name = re.sub(r"^(\.\./)+", "", path)
    return text if name in text else f"{text} (`{name}`)"


def fenced(docstring: str) -> str:
    """Return the docstring with its examples, each up to the next blank line, as fenced blocks of code.

    >>> fenced("Adds.\\n\\n>>> 1 + 1\\n2")
    'Adds.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```'
    """
    return EXAMPLE.sub(r"\1```pycon\n\g<0>\n\1```", docstring)


def field_help(value: str) -> tuple[str, str] | None:
    """Return the default and the help text of a field whose code is `value`, or None if it is not made by `setting` or
    `sweep_over`.

    >>> field_help("setting((0.5, 0.9), 'shares of hidden channels')")
    ('(0.5, 0.9)', 'shares of hidden channels')
    """
    try:
        call = ast.parse(value, mode="eval").body
    except SyntaxError:  # griffe writes some expressions without the parentheses that they need
        return None
    if not isinstance(call, ast.Call) or ast.unparse(call.func) not in ("setting", "sweep_over"):
        return None
    default, help_text = call.args[:2]
    parts = help_text.values if isinstance(help_text, ast.JoinedStr) else [help_text]
    text = "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in parts)
    return ast.unparse(default), text


class Docstrings(griffe.Extension):
    """Fence examples in docstrings, and give the fields of experiments a docstring; griffe calls this for every
    object."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)

    def on_attribute(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        if attr.value is not None and (setting := field_help(str(attr.value))) is not None:
            attr.value, text = setting
            attr.docstring = griffe.Docstring(f"{text[0].upper()}{text[1:]}.", parent=attr)
