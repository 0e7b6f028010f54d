"""What the site needs besides its Markdown: links that leave docs/, examples in docstrings, a search.

Pages may link to files of the repository, which can be followed wherever the repository is read; the site holds none of
those files, so there the link becomes its text and the file's name. Docstrings hold examples as doctest knows them; the
site shows them as code. A field of a study says what it is in `setting(default, help)`: that is its docstring. And the
site can be searched when it is opened as a file, without a server (with offline.js).
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
    """Called by mkdocs for every page."""
    folder = os.path.dirname(page.file.src_uri)
    parts = FENCED.split(markdown)  # every second one is code
    return "".join(part if i % 2 else LINK.sub(lambda link: inside(link, folder), part) for i, part in enumerate(parts))


def on_post_build(*, config: Any) -> None:
    """Called by mkdocs in the end. A page that is opened as a file can load the index of its search only as script."""
    folder = Path(config.site_dir) / "search"
    (folder / "search_index.js").write_text(f"var __index = {(folder / 'search_index.json').read_text()}")


def inside(link: re.Match[str], folder: str) -> str:
    """The link as it is, or where it leads out of docs/, its text with the name of the file.

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
    """Examples as blocks of code, up to the next blank line; what is indented stays so.

    >>> fenced("Adds.\\n\\n>>> 1 + 1\\n2")
    'Adds.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```'
    """

    def block(example: re.Match[str]) -> str:
        indent = example[1]
        return f"{indent}```pycon\n{example[0]}\n{indent}```"

    return EXAMPLE.sub(block, docstring)


def told(value: str) -> tuple[str, str] | None:
    """Default and help of a field that is made by `setting`, both as they are written; None for any other value.

    >>> told("setting((0.5, 0.9), 'shares of hidden channels')")
    ('(0.5, 0.9)', 'shares of hidden channels')
    """
    try:
        call = ast.parse(value, mode="eval").body
    except SyntaxError:  # the reader writes some expressions back without the parentheses that they need
        return None
    if not isinstance(call, ast.Call) or ast.unparse(call.func) != "setting":
        return None
    default, words = call.args
    parts = words.values if isinstance(words, ast.JoinedStr) else [words]
    text = "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in parts)
    return ast.unparse(default), text


class Docstrings(griffe.Extension):
    """Gives every docstring its examples as code, and every field of a study a docstring."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)

    def on_attribute(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        if attr.value is not None and (found := told(str(attr.value))) is not None:
            default, words = found
            attr.value, attr.docstring = default, griffe.Docstring(f"{words[0].upper()}{words[1:]}.", parent=attr)
