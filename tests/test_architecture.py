"""The house plan holds: imports go along the flow, the core needs torch and numpy alone, nothing reads pickles."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "placecode"

# every room with the rooms it may import; a room may always import itself
MODELS = {"members", "draws", "encodings", "kernels", "fast", "encoder", "cpu", "optim", "running", "training"}
CORE = {"errors", "validation", "version", "tasks", *MODELS}
MAY_IMPORT = {
    "errors": set(),
    "validation": {"errors"},
    "version": set(),
    "source": set(),
    "tasks": {"errors", "validation", "draws", "files"},  # files: for tables too large for memory
    "members": {"errors", "validation"},
    "draws": set(),
    "encodings": {"errors", "validation", "members", "draws"},
    "kernels": set(),
    "fast": {"draws", "encodings", "kernels", "encoder"},  # encoder: its types alone
    "encoder": {"errors", "members", "draws", "encodings", "kernels", "fast"},
    "cpu": {"encodings", "encoder", "tasks"},
    "optim": {"members", "encoder", "kernels", "cpu"},
    "running": {"draws", "encoder", "cpu", "optim", "tasks"},
    "training": {"errors", "members", "encoder", "optim", "running", "tasks"},
    "files": set(),
    "checkpoints": {"errors", "files"},
    "runs": {"errors", "members", "encodings", "encoder"},
    "folders": {"errors", "files", "runs"},
    "analysis": {"errors", "validation", "encodings"},
    "claims": {"errors", "runs", "analysis"},
    "figures": {"errors", "files", "analysis"},
    "report": {"errors", "files", "figures", "analysis", "claims", "version"},
    "studies": CORE | {"runs", "analysis", "claims", "figures", "files"},
    "engines": CORE | {"files", "checkpoints", "folders", "runs", "source", "studies"},
    "fitting": CORE | {"files", "runs", "analysis", "studies", "engines"},
    "estimator": CORE | {"runs", "studies", "engines", "fitting"},
    "libraries": set(),
    "evidence": {"analysis"},
    "recommend": {"errors", "validation", "evidence", "libraries"},
    "bench": CORE | {"engines", "figures", "files", "studies"},
    "doctor": {"cpu", "tasks", "version", "errors"},
    "display": CORE | {"analysis", "bench", "claims", "doctor", "engines", "runs", "source", "studies"},
    "cli": CORE
    | {"bench", "display", "doctor", "engines", "files", "fitting", "folders"}
    | {"recommend", "report", "runs", "studies"},
}
FILES = sorted(SOURCE.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Every module a file imports, by its full name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            if node.module == "placecode":
                found |= {f"placecode.{alias.name}" for alias in node.names}
            else:
                found.add(node.module or "")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_along_the_flow(path: Path) -> None:
    if room(path) == "__init__":
        return
    used = {name.split(".")[1] for name in imports(path) if name.startswith("placecode.")} - {room(path)}
    assert used <= MAY_IMPORT[room(path)], f"{room(path)} must not import {used - MAY_IMPORT[room(path)]}"


def test_the_walk_sees_imports(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("from placecode import cli\nimport placecode.runs\nfrom placecode.tasks.base import Task\n")
    assert imports(file) == {"placecode.cli", "placecode.runs", "placecode.tasks.base"}


def test_core_needs_torch_and_numpy_alone() -> None:
    """In a fresh interpreter in which every other dependency is missing."""
    others = ["pandas", "pyarrow", "scipy", "matplotlib", "jinja2", "rich", "safetensors", "sklearn", "h5py"]
    code = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {others!r}:
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import types
package = types.ModuleType("placecode"); package.__path__ = [{str(SOURCE)!r}]; sys.modules["placecode"] = package
import placecode.training, placecode.encodings, placecode.tasks.latin_squares, placecode.tasks.table_files
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
        names = {node.func.id for node in calls if isinstance(node.func, ast.Name)}
        assert "print" not in names, f"{path} prints"


def test_every_room_is_described() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    for name in {room(path) for path in FILES} - {"__init__", "version"}:
        assert f"`{name}" in page, f"docs/architecture.md does not say what {name} is for"
