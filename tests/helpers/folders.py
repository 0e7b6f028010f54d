"""Content of folders, to check that files are the same or have not changed, and a disk that is full."""

import errno
import itertools
from pathlib import Path
from unittest.mock import Mock


def contents(folder: Path) -> dict[Path, bytes]:
    """Return the content of every file in a folder and its subfolders, by path."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def same_files(first: Path, second: Path, *names: str) -> bool:
    """Return whether the files with these names have the same bytes in two folders."""
    return all((first / name).read_bytes() == (second / name).read_bytes() for name in names)


def full_after(count: int) -> Mock:
    """Return a replacement of os.fsync for a disk that is full after `count` files."""
    full = OSError(errno.ENOSPC, "No space left on device")
    return Mock(side_effect=itertools.chain([None] * count, itertools.repeat(full)))
