"""The architecture holds: imports go down the layers, the core needs torch and numpy alone, nothing reads pickles."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "placecode"

LAYERS = (
    {"arrays", "errors", "validation", "settings", "files", "random", "version"},
    {"data"},
    {"tasks"},
    {"encodings", "models", "compute"},
    {"training"},
    {"analysis"},
    {"runs"},
    {"execution"},
    {"experiments"},
    {"reports"},
    {"fit", "inspection", "bench"},
    {"cli"},
)
"""Packages from the bottom up. A module may import from its own layer and from those below."""
FILES = sorted(SOURCE.rglob("*.py"))


def package(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def layer(name: str) -> int:
    (height,) = (height for height, names in enumerate(LAYERS) if name in names)
    return height


def imports(path: Path) -> set[str]:
    """Return every module that a file imports, by its full name."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            if node.module == "placecode":
                modules |= {f"placecode.{alias.name}" for alias in node.names}
            else:
                modules.add(node.module or "")
    return modules


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_down(path: Path) -> None:
    if package(path) == "__init__":
        return
    used = {name.split(".")[1] for name in imports(path) if name.startswith("placecode.")}
    above = {name for name in used if layer(name) > layer(package(path))}
    assert not above, f"{package(path)} must not import {above}, which is above it"


def test_the_walk_sees_imports(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("from placecode import cli\nimport placecode.runs\nfrom placecode.tasks.base import Task\n")
    assert imports(file) == {"placecode.cli", "placecode.runs", "placecode.tasks.base"}


def test_every_package_says_what_it_is_for() -> None:
    for path in SOURCE.rglob("__init__.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no docstring"


def test_core_needs_torch_and_numpy_alone() -> None:
    """In a fresh interpreter in which every other dependency is missing."""
    others = ["pandas", "pyarrow", "scipy", "matplotlib", "jinja2", "rich", "safetensors", "sklearn", "h5py"]
    others.append("triton")  # not installed with the package; only GPUs need it
    code = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {others!r}:
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import placecode, placecode.encodings
import placecode.training.trainer, placecode.tasks.latin_squares, placecode.data.tables.files
print("fine")
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.stdout.strip() == "fine", answer.stderr


def test_nothing_reads_pickles() -> None:
    """A pickle runs what it holds; a run folder may come from anyone."""
    forbidden = re.compile(r"pickle|torch\.load\b|torch\.save\b|joblib|shelve|marshal|dill")
    for path in FILES:
        assert not forbidden.search(path.read_text()), path
    assert forbidden.search("state = torch.load(path)")


def test_only_the_command_line_prints() -> None:
    for path in FILES:
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        assert "print" not in {node.func.id for node in calls if isinstance(node.func, ast.Name)}, f"{path} prints"


def test_every_package_is_on_the_page() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    for name in {package(path) for path in FILES} - {"__init__", "version"}:
        assert f"`{name}" in page, f"docs/architecture.md does not say what {name} is for"


def test_folders_and_files_stay_small() -> None:
    """A folder with more than 15 files, or a file with more than 400 lines, should become two."""
    for folder in {path.parent for path in FILES}:
        assert sum(path.is_file() for path in folder.iterdir()) <= 15, f"{folder} has too many files"
    for path in FILES:
        assert len(path.read_text().splitlines()) <= 400, f"{path} is too long"
