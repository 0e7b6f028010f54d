"""Fixtures for tests of commands: a working folder for each test, runs without reports, and expected refusals."""

import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table

from placecode import cli
from placecode.data.puzzle_files import write_folder
from placecode.fit import others
from placecode.tasks.latin_squares import make_puzzles


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(others, "find_spec", lambda name: None)  # importing UMAP takes longer than all of this


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the writing of reports, which takes longer than the training in these tests and is tested elsewhere."""
    for module in (cli, cli.fit):
        monkeypatch.setattr(module, "publish", lambda page: page.run.path / "report.html")


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """The environment of a child process, with an absolute path to the source, since it runs in another folder."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(cli.__file__).parents[2])}


@pytest.fixture
def refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that must end with exit code 2, one sentence and no file changed; return the sentence."""

    def snapshot() -> dict[Path, bytes | None]:
        return {path: path.read_bytes() if path.is_file() else None for path in sorted(tmp_path.rglob("*"))}

    def call(*words: str) -> str:
        capsys.readouterr()
        before = snapshot()
        assert cli.main(list(words)) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert err.startswith("placecode: ") and err.endswith(".\n") and "Traceback" not in err
        assert snapshot() == before
        return err.removeprefix("placecode: ").removesuffix("\n")

    return call


@pytest.fixture
def puzzles(tmp_path: Path) -> Path:
    """A folder of puzzles in the published layout."""
    folder = tmp_path / "puzzles"
    write_folder(folder, *make_puzzles(np.random.default_rng(0), 4, 9, 20, 0.5))
    (folder / "sha256.txt").unlink()
    return folder


@pytest.fixture(scope="session")
def printed() -> Callable[[Table], list[list[str]]]:
    """Print a table, and return its cells row by row, the head first."""

    def cells(table: Table) -> list[list[str]]:
        stream = io.StringIO()
        Console(file=stream, width=200).print(table)
        lines = [line for line in stream.getvalue().splitlines() if line[:1] in "│┃"]
        return [[cell.strip() for cell in line.replace("┃", "│").strip("│").split("│")] for line in lines]

    return cells
