"""The source hash in the record of a run, and the commit with this source."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers.training.tiny_runs import stop_run, tiny

from placecode import cli
from placecode.execution import local
from placecode.execution.settings import ExecutionSettings
from placecode.runs.source import PACKAGE, commits_by_source, commits_text, git, recorded_sources, source_hash

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
LIST = RESULTS / "older.txt"
RUNS = sorted(str(path.parent.relative_to(RESULTS)) for path in RESULTS.rglob("config.json"))


def environment(run: str) -> dict[str, Any]:
    return dict(json.loads((RESULTS / run / "environment.json").read_text()))


def in_git(folder: Path, *words: str) -> str:
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    options: dict[str, Any] = {"capture_output": True, "text": True, "check": True, "env": {**os.environ, **who}}
    return str(subprocess.run(["git", *words], cwd=folder, **options).stdout).strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a package of two commits."""
    package = tmp_path / "src" / "placecode"
    (package / "sub").mkdir(parents=True)
    in_git(tmp_path, "init", "-q")
    (package / "a.py").write_text("one")
    (package / "sub" / "b.py").write_text("two")
    (package / "sub.py").write_text("sorted after the folder of the same name, as sub/ is")
    in_git(tmp_path, "add", "-A")
    in_git(tmp_path, "commit", "-q", "-m", "first")
    (package / "a.py").write_text("three")
    in_git(tmp_path, "commit", "-q", "-a", "-m", "second")
    return tmp_path


def test_the_hash_is_that_of_git(checkout: Path) -> None:
    package = checkout / "src" / "placecode"
    assert source_hash(package) == in_git(checkout, "rev-parse", "HEAD:src/placecode")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "a.pyc").write_text("compiled")
    (package / "empty").mkdir()
    assert source_hash(package) == in_git(checkout, "rev-parse", "HEAD:src/placecode")
    (package / "a.py").write_text("changed")
    assert source_hash(package) not in commits_by_source(checkout)


def test_every_commit_is_found_by_its_source(checkout: Path) -> None:
    by_source = commits_by_source(checkout)
    for commit in ("HEAD", "HEAD~1"):
        source = in_git(checkout, "rev-parse", f"{commit}:src/placecode")
        assert by_source[source] == in_git(checkout, "rev-parse", commit)
    (checkout / "README").write_text("a commit that leaves the package as it is")
    in_git(checkout, "add", "-A")
    in_git(checkout, "commit", "-q", "-m", "third")
    commits_by_source.cache_clear()
    again = commits_by_source(checkout)
    assert again[in_git(checkout, "rev-parse", "HEAD:src/placecode")] == in_git(checkout, "rev-parse", "HEAD~1")


def test_no_commits_outside_a_checkout(tmp_path: Path) -> None:
    assert commits_by_source(tmp_path) == {}
    assert git("status", folder=tmp_path / "missing") is None


def test_the_commits_of_a_record(checkout: Path) -> None:
    source = in_git(checkout, "rev-parse", "HEAD~1:src/placecode")
    commit = in_git(checkout, "rev-parse", "HEAD~1")[:8]
    assert commits_text({}, checkout) == "older" and commits_text({"source": source}, checkout) == commit
    assert commits_text({"source": "0" * 40}, checkout) == "not in this history"
    merged = {"source": source, "pieces": {"0": {"source": source}, "1": {"pieces": {"0": {"source": "0" * 40}}}}}
    assert recorded_sources(merged) == [source, "0" * 40]
    assert commits_text(merged, checkout) == f"{commit}, not in this history"
    assert commits_text({**merged, "pieces": {**merged["pieces"], "2": {}}}, checkout) == "older"  # type: ignore[dict-item]


def full_history() -> None:
    if git("rev-parse", "--is-shallow-repository", folder=ROOT) != "false":
        pytest.skip("needs a full clone: this one is shallow, or no checkout")


def test_the_hash_of_this_source_is_that_of_git() -> None:
    full_history()
    if git("status", "--porcelain", "--", "src", folder=ROOT):
        pytest.skip("needs a clean checkout: files of the package have changed")
    assert source_hash() == git("rev-parse", "HEAD:src/placecode", folder=PACKAGE)


@pytest.mark.parametrize("run", RUNS)
def test_every_committed_run_was_made_from_committed_source(run: str) -> None:
    """Runs from before source hashes were recorded are on a list instead."""
    full_history()
    record = commits_text(environment(run), ROOT)
    assert "not in this history" not in record and (record == "older") == (run in LIST.read_text().split())


def test_the_list_of_older_runs_only_shrinks() -> None:
    full_history()
    listed = set(LIST.read_text().split())
    assert listed <= set(RUNS)
    for commit in (git("log", "--format=%H", "--", "results/older.txt", folder=ROOT) or "").split():
        before = set((git("show", f"{commit}:results/older.txt", folder=ROOT) or "").split())
        assert listed <= before, f"added since {commit}: {listed - before}"


def test_the_command_shows_the_commit(capsys: pytest.CaptureFixture[str]) -> None:
    full_history()
    assert cli.main(["runs", str(RESULTS / "demo-fresh")]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "demo-fresh" in line]
    assert len(lines) == 1 and commits_text(environment("demo-fresh"), ROOT) in lines[0]


def test_code_that_resumes_a_run_is_recorded(tmp_path: Path) -> None:
    experiment, out = tiny(sigmas=(0.2,), seeds=(0,)), tmp_path / "run"
    stop_run(experiment, out, ExecutionSettings("cpu"), 1)
    record = json.loads((out / "environment.json").read_text())
    assert record["source"] == source_hash()
    (out / "environment.json").write_text(json.dumps({**record, "source": "0" * 40}))
    run = local.execute(experiment, out, execution=ExecutionSettings("cpu"), resume=True)
    assert run.environment["source"] == "0" * 40 and run.environment["resumed_by"] == [source_hash()]
    assert recorded_sources(run.environment) == ["0" * 40, source_hash()]
    assert "not in this history" in commits_text(run.environment)
