"""Committed runs are replaced by small copies of themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.folders import contents
from helpers.scripts import load
from safetensors.numpy import load_file

from placecode.errors import BadInput
from placecode.experiments import experiment_of
from placecode.runs.read import Run

script = load(Path(__file__).parents[2] / "benchmarks" / "slim_runs.py")


def of_claims(run: Run) -> str:
    return repr([finding.record() for finding in experiment_of(run).findings(run)])


def test_a_run_is_replaced_by_its_small_copy(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "pilot.csv").write_text("not part of a run")
    before, verdicts, log = Run(copy), of_claims(Run(copy)), (copy / "log.txt").read_bytes()
    rows, everything = before.summary, len(before.metrics)
    script.main([str(copy), str(copy.parent), "--seeds", "0", "--arrays", "pe_end"])
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 1 and printed[0].startswith(f"{copy} is ") and [*copy.parent.iterdir()] == [copy]
    after = Run(copy)
    assert after.summary == rows and of_claims(after) == verdicts
    assert len(after.metrics) < everything and copy / "weights.safetensors" not in contents(copy)
    first = after.members.loc[after.members["seed"] == 0, "member"]
    assert set(load_file(copy / "arrays.safetensors")) == {f"pe_end/{member}" for member in first}
    assert contents(copy)[copy / "pilot.csv"] == b"not part of a run" and contents(copy)[copy / "log.txt"] == log
    small = contents(copy)
    script.main([str(copy)])
    assert contents(copy) == small


def test_a_run_with_other_results_is_left_as_it_is(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(copy)
    monkeypatch.setattr(script, "_results", lambda run: run.path.parent.name)
    with pytest.raises(BadInput, match="must have the same results"):
        script.main([str(copy)])
    assert contents(copy) == before and [*copy.parent.iterdir()] == [copy]
