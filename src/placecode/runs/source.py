"""Identify the source code that produced a run: compute its hash, and find the git commit with the same hash.

The hash is git's hash of the package folder: `git rev-parse COMMIT:src/placecode` prints it for any commit. It is
computed here without git, so that a copy of the package on another machine has the same hash. It is recorded as
`source` in environment.json.
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
"""Path of the package in a git checkout."""
SUFFIXES = (".py", ".cpp", ".html", ".css", ".js", ".json", ".j2", ".toml", ".typed")
"""Suffixes of the files that are part of the hash. Other files, such as Python's caches, are not."""


def source_hash(folder: Path = PACKAGE) -> str:
    """Return git's hash of the source files in a folder, 40 hexadecimal digits."""
    return _tree(folder).hex()


def _tree(folder: Path) -> bytes:
    """Return the hash of a folder as a git tree object."""
    return _object(b"tree", b"".join(entry for _, entry in sorted(_entries(folder))))


def _entries(folder: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield, for each source file and subfolder of a folder, its sort key and its entry in the git tree object."""
    for path in folder.iterdir():
        name = path.name.encode()
        if path.is_dir():
            if any(file.suffix in SUFFIXES for file in path.rglob("*")):
                yield name + b"/", b"40000 " + name + b"\0" + _tree(path)
        elif path.suffix in SUFFIXES:
            yield name, b"100644 " + name + b"\0" + _object(b"blob", path.read_bytes())


def _object(kind: bytes, content: bytes) -> bytes:
    """Return git's SHA-1 hash of an object; `kind` is "tree" or "blob"."""
    return hashlib.sha1(kind + b" " + str(len(content)).encode() + b"\0" + content).digest()


def git(*arguments: str, folder: Path = PACKAGE, stdin: str | None = None) -> str | None:
    """Run a git command in a folder and return its output.

    Return None if the command fails, git is not installed or the folder is not in a git checkout.
    """
    try:
        result = subprocess.run(
            ["git", "--no-optional-locks", *arguments],
            cwd=folder,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


@cache
def commits_by_source(folder: Path = PACKAGE) -> dict[str, str]:
    """Return a dict from each source hash in the git history of a folder to the oldest commit with this hash.

    The result is empty if the folder is not in a git checkout.
    """
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
    """Return the source hashes in a run's environment.json.

    These are the hashes of the code that started the run and of the code that resumed it, if it had changed. For a
    merged run, they are those of all runs that were merged. Runs from before hashes were recorded have none.
    """
    sources = []
    for record in _unmerged_environments(environment):
        sources += [str(record["source"])] if "source" in record else []
        sources += [str(source) for source in record.get("resumed_by", [])]
    return sources


def _unmerged_environments(environment: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the environment of a run as a list with one entry or, for a merged run, those of the runs it comes from.

    If one of these was merged itself, its entry is replaced by those of the runs that it comes from.
    """
    pieces = environment.get("pieces")
    if not isinstance(pieces, Mapping):
        return [environment]
    return [record for piece in pieces.values() for record in _unmerged_environments(piece)]


def commits_text(environment: Mapping[str, Any], folder: Path = PACKAGE) -> str:
    """Return the abbreviated commits whose source code produced a run, separated by commas.

    The text "not in this history" stands for a source hash that no commit has. If the run was made before source hashes
    were recorded, the result is "older".
    """
    if any("source" not in record for record in _unmerged_environments(environment)):
        return "older"
    commits = commits_by_source(folder)
    sources = recorded_sources(environment)
    names = [commits[source][:8] if source in commits else "not in this history" for source in sources]
    return ", ".join(dict.fromkeys(names))
