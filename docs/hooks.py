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

FENCED = re.compile(r"(^```.*?^```)", flags=re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")
EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?! *$).*)*", flags=re.MULTILINE)


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Replace links out of docs/ by their text; mkdocs calls this for the Markdown of every page."""
    folder = os.path.dirname(page.file.src_uri)
    parts = FENCED.split(markdown)  # every second part is code
    return "".join(part if i % 2 else LINK.sub(lambda link: inside(link, folder), part) for i, part in enumerate(parts))


def on_post_build(*, config: Any) -> None:
    """Write the search index as a script too; mkdocs calls this at the end.

    A page that is opened as a file, without a server, can load the index only as a script.
    """
    folder = Path(config.site_dir) / "search"
    (folder / "search_index.js").write_text(f"var __index = {(folder / 'search_index.json').read_text()}")


def inside(link: re.Match[str], folder: str) -> str:
    """Return the link unchanged, or its text with the name of the file if it leads out of docs/.

    >>> inside(LINK.match("[the licence](../LICENSE)"), "")
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

    def block(example: re.Match[str]) -> str:
        """Return one example as a fenced block."""
        indent = example[1]
        return f"{indent}```pycon\n{example[0]}\n{indent}```"

    return EXAMPLE.sub(block, docstring)


def field_help(value: str) -> tuple[str, str] | None:
    """Return default and help text of a field that is made by `setting` or `sweep_over`, or None for other values.

    >>> field_help("setting((0.5, 0.9), 'shares of hidden channels')")
    ('(0.5, 0.9)', 'shares of hidden channels')
    """
    try:
        call = ast.parse(value, mode="eval").body
    except SyntaxError:  # griffe writes some expressions without the parentheses that they need
        return None
    if not isinstance(call, ast.Call) or ast.unparse(call.func) not in ("setting", "sweep_over"):
        return None
    default, words = call.args[:2]
    parts = words.values if isinstance(words, ast.JoinedStr) else [words]
    text = "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in parts)
    return ast.unparse(default), text


class Docstrings(griffe.Extension):
    """Fence examples in docstrings, and give the fields of experiments a docstring; griffe calls this for every
    object."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)

    def on_attribute(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        if attr.value is not None and (found := field_help(str(attr.value))) is not None:
            default, words = found
            attr.value, attr.docstring = default, griffe.Docstring(f"{words[0].upper()}{words[1:]}.", parent=attr)
