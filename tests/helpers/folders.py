"""Content of folders, to check that files are the same or have not changed."""

from pathlib import Path


def contents(folder: Path) -> dict[Path, bytes]:
    """Return the content of every file in a folder and its subfolders, by path."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def same_files(first: Path, second: Path, *names: str) -> bool:
    """Return whether the files with these names have the same bytes in two folders."""
    return all((first / name).read_bytes() == (second / name).read_bytes() for name in names)
