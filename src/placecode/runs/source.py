"""Hash of the source code that produced a run, and the git commit with the same source.

The hash is git's hash of the folder: `git rev-parse COMMIT:src/placecode` prints it for any commit. It is computed here
without git, so that a copy of the package on another machine records the same hash.
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
"""Path of the package in a checkout."""
SUFFIXES = (".py", ".cpp", ".html", ".css", ".js", ".json", ".j2", ".toml", ".typed")
"""Suffixes of the package's files. Others, such as Python's caches, are not part of the hash."""


def source_hash(folder: Path = PACKAGE) -> str:
    """Return git's hash of the source files in a folder, 40 hexadecimal digits."""
    return _tree(folder).hex()


def _tree(folder: Path) -> bytes:
    """Return the hash of a folder as a git tree object."""
    return _object(b"tree", b"".join(entry for _, entry in sorted(_entries(folder))))


def _entries(folder: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield the sort key and the entry in the git tree object for each file and subfolder."""
    for path in folder.iterdir():
        name = path.name.encode()
        if path.is_dir():
            if any(file.suffix in SUFFIXES for file in path.rglob("*")):
                yield name + b"/", b"40000 " + name + b"\0" + _tree(path)
        elif path.suffix in SUFFIXES:
            yield name, b"100644 " + name + b"\0" + _object(b"blob", path.read_bytes())


def _object(kind: bytes, content: bytes) -> bytes:
    return hashlib.sha1(kind + b" " + str(len(content)).encode() + b"\0" + content).digest()


def git(*arguments: str, folder: Path = PACKAGE, stdin: str | None = None) -> str | None:
    """Return the output of a git command; None if git is missing, the folder is not in a checkout or it fails."""
    try:
        result = subprocess.run(
            ["git", *arguments], cwd=folder, input=stdin, capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


@cache
def commits_by_source(folder: Path = PACKAGE) -> dict[str, str]:
    """Map each source hash in the history of a checkout to the oldest commit with it; empty in other folders."""
    commits = (git("rev-list", "--reverse", "HEAD", folder=folder) or "").split()
    queries = "".join(f"{commit}:{IN_CHECKOUT}\n" for commit in commits)
    replies = (git("cat-file", "--batch-check", folder=folder, stdin=queries) or "").splitlines()
    commit_of: dict[str, str] = {}
    for commit, reply in zip(commits, replies, strict=False):
        hash, kind, *_ = reply.split()
        if kind == "tree":
            commit_of.setdefault(hash, commit)
    return commit_of


def recorded_sources(environment: Mapping[str, Any]) -> list[str]:
    """List the source hashes of a run: of all runs it was merged from, and of the code that resumed them.

    Runs that are older than these hashes have none.
    """
    sources = []
    for record in _records(environment):
        sources += [str(record["source"])] if "source" in record else []
        sources += [str(source) for source in record.get("resumed_by", [])]
    return sources


def _records(environment: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """List the environments of the runs that a run was merged from, recursively; its own if it was not merged."""
    pieces = environment.get("pieces")
    if not isinstance(pieces, Mapping):
        return [environment]
    return [record for piece in pieces.values() for record in _records(piece)]


def record_of(environment: Mapping[str, Any], folder: Path = PACKAGE) -> str:
    """Return the commits whose source produced a run, separated by commas, or why there is none.

    "older" if a source was not recorded, "not in this history" if no commit has it.
    """
    if any("source" not in record for record in _records(environment)):
        return "older"
    commits = commits_by_source(folder)
    sources = recorded_sources(environment)
    names = [commits[source][:8] if source in commits else "not in this history" for source in sources]
    return ", ".join(dict.fromkeys(names))
