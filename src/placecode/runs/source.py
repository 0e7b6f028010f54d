"""Which source made a run: a hash of the package's own files, and the commit that has the same files.

The hash is the one git gives to the folder: `git rev-parse COMMIT:src/placecode` prints it for any commit. It is
computed here without git, so that a copy of the package on another machine records the same one.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]
IN_CHECKOUT = "src/placecode"
"""Where the package lies in a checkout."""
SUFFIXES = (".py", ".cpp", ".html", ".css", ".js", ".json", ".typed")
"""Of the package's own files; others, as Python's caches, are no part of it."""


def source_hash(folder: Path = PACKAGE) -> str:
    """The hash that git gives to a folder of plain files, 40 hexadecimal digits."""
    return _tree(folder).hex()


def _tree(folder: Path) -> bytes:
    return _object(b"tree", b"".join(entry for _, entry in sorted(_entries(folder))))


def _entries(folder: Path) -> Iterator[tuple[bytes, bytes]]:
    """What git keeps of each file and folder, with what it sorts them by."""
    for path in folder.iterdir():
        name = path.name.encode()
        if path.is_dir():
            if any(file.suffix in SUFFIXES for file in path.rglob("*")):
                yield name + b"/", b"40000 " + name + b"\0" + _tree(path)
        elif path.suffix in SUFFIXES:
            yield name, b"100644 " + name + b"\0" + _object(b"blob", path.read_bytes())


def _object(kind: bytes, content: bytes) -> bytes:
    return hashlib.sha1(kind + b" " + str(len(content)).encode() + b"\0" + content).digest()


def git(*arguments: str, folder: Path = PACKAGE, given: str | None = None) -> str | None:
    """Run a git command in a folder and return its output; None without git, without a checkout, or if it fails."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, input=given, capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


@cache
def commits_by_source(folder: Path = PACKAGE) -> dict[str, str]:
    """Map each source hash in the history of a checkout to the oldest commit that has it.

    Empty outside a checkout of placecode.
    """
    commits = (git("rev-list", "--reverse", "HEAD", folder=folder) or "").split()
    asked = "".join(f"{commit}:{IN_CHECKOUT}\n" for commit in commits)
    answers = (git("cat-file", "--batch-check", folder=folder, given=asked) or "").splitlines()
    found: dict[str, str] = {}
    for commit, answer in zip(commits, answers, strict=False):
        hash, kind, *_ = answer.split()
        if kind == "tree":
            found.setdefault(hash, commit)
    return found


def recorded_sources(environment: Mapping[str, Any]) -> list[str]:
    """The source hashes in the record of a run: of each piece it was merged from, and of those that resumed it. None of
    a piece that is older than these hashes."""
    found = []
    for record in _records(environment):
        found += [str(record["source"])] if "source" in record else []
        found += [str(source) for source in record.get("resumed_by", [])]
    return found


def _records(environment: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The records of the pieces that a run was merged from, which may be merged themselves; or its own."""
    pieces = environment.get("pieces")
    if not isinstance(pieces, Mapping):
        return [environment]
    return [record for piece in pieces.values() for record in _records(piece)]


def record_of(environment: Mapping[str, Any], folder: Path = PACKAGE) -> str:
    """The commit whose source made a run; "older" if its source was not recorded, or "not in this history"."""
    known = commits_by_source(folder)
    if any("source" not in record for record in _records(environment)):
        return "older"
    sources = recorded_sources(environment)
    commits = dict.fromkeys(known[source][:8] if source in known else "not in this history" for source in sources)
    return ", ".join(commits)
