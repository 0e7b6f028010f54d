"""Claims: verdicts follow from interval and margin alone, what is missing is undecided, and records are plain JSON."""

from __future__ import annotations

import doctest
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from studies.made_up import made_up, save

from placecode import claims, cli
from placecode.analysis.stats import Interval
from placecode.claims import Claim, NotInRun, judge
from placecode.errors import BadInput
from placecode.studies.latin_squares import LstEncodings, LstSigma

RUN: Any = SimpleNamespace(path=Path("some/run"))
YES, NO, OPEN = "reproduced", "not reproduced", "undecided"


def claim(found: Interval | Exception, margin: float = 0.3, way: str = "above") -> Claim:
    def measure(run: Any) -> Interval:
        assert run is RUN
        if isinstance(found, Exception):
            raise found
        return found

    return Claim("an-id", "A statement.", "a source", margin, measure, way)


def test_the_examples_are_true() -> None:
    assert doctest.testmod(claims).attempted >= 2
    assert doctest.testmod(claims).failed == 0


# Verdicts


@pytest.mark.parametrize(
    ("way", "margin", "low", "high", "verdict"),
    [
        ("above", 0.3, 0.31, 0.5, YES),
        ("above", 0.3, 0.1, 0.29, NO),
        ("above", 0.3, 0.29, 0.31, OPEN),
        ("above", 0.3, 0.3, 0.5, OPEN),  # it touches the margin: not wholly beyond
        ("above", 0.3, 0.1, 0.3, OPEN),  # nor wholly short of it
        ("above", 0.3, 0.3, 0.3, OPEN),
        ("above", -0.05, -0.04, 0.0, YES),
        ("above", -0.05, -0.2, -0.06, NO),
        ("below", 0.5, 0.3, 0.49, YES),
        ("below", 0.5, 0.51, 0.6, NO),
        ("below", 0.5, 0.49, 0.51, OPEN),
        ("below", 0.5, 0.3, 0.5, OPEN),
        ("below", 0.5, 0.5, 0.6, OPEN),
        ("below", -0.9, -0.99, -0.91, YES),
        ("below", -0.9, -0.89, 0.99, NO),
        ("below", 0.0, -0.2, -0.1, YES),
        ("within", 0.02, -0.019, 0.019, YES),
        ("within", 0.02, 0.005, 0.01, YES),
        ("within", 0.02, 0.021, 0.1, NO),
        ("within", 0.02, -0.1, -0.021, NO),  # on the other side as well
        ("within", 0.02, -0.01, 0.03, OPEN),
        ("within", 0.02, -0.03, 0.01, OPEN),
        ("within", 0.02, -0.1, 0.1, OPEN),  # too wide to tell
        ("within", 0.02, -0.02, 0.0, OPEN),
        ("within", 0.02, 0.0, 0.02, OPEN),
        ("within", 0.02, 0.02, 0.1, OPEN),
        ("within", 0.02, -0.1, -0.02, OPEN),
    ],
)
def test_the_whole_interval_decides(way: str, margin: float, low: float, high: float, verdict: str) -> None:
    assert judge(Interval((low + high) / 2, low, high), margin, way) == verdict


@pytest.mark.parametrize("way", claims.WAYS)
@pytest.mark.parametrize("bounds", [(math.nan, math.nan), (0.9, math.nan), (math.nan, 0.9), (0.9, math.inf)])
def test_no_interval_no_verdict(way: str, bounds: tuple[float, float]) -> None:
    """However large the effect: a single seed is no evidence."""
    for effect in (math.nan, -9.0, 0.0, 9.0):
        assert judge(Interval(effect, *bounds), 0.1, way) == OPEN


def test_below_is_above_in_the_mirror() -> None:
    for low, high, margin in np.random.default_rng(0).normal(size=(200, 3)):
        low, high = sorted((low, high))
        above = judge(Interval(0.0, low, high), margin, "above")
        assert judge(Interval(0.0, -high, -low), -margin, "below") == above


def test_all_three_verdicts_come_about_in_every_way() -> None:
    rng = np.random.default_rng(0)
    for way in claims.WAYS:
        found = {judge(Interval(c, c - w, c + w), 0.5, way) for c, w in rng.uniform((-2, 0), (2, 1), size=(200, 2))}
        assert found == {YES, NO, OPEN}


def test_an_unknown_way_is_refused_in_a_sentence() -> None:
    with pytest.raises(BadInput) as error:
        claim(Interval(0.0, 0.0, 0.0), way="beside")
    assert str(error.value) == "way must be one of above, below, within; got 'beside'."


# Findings and records


def test_check_asks_the_run_and_judges_what_it_says() -> None:
    finding = claim(Interval(0.6, 0.5, 0.7)).check(RUN)
    assert (finding.verdict, finding.found, finding.run, finding.note) == (YES, (0.6, 0.5, 0.7), "some/run", "")
    assert claim(Interval(0.6, 0.5, 0.7), way="below").check(RUN).verdict == NO
    assert claim(Interval(0.6, 0.5, 0.7), margin=0.8).check(RUN).verdict == NO
    assert claim(Interval(0.6, 0.5, 0.7), margin=0.6).check(RUN).verdict == OPEN


def test_what_is_not_in_the_run_is_undecided_and_said() -> None:
    finding = claim(NotInRun("the run has no noise")).check(RUN)
    assert (finding.verdict, finding.note) == (OPEN, "the run has no noise")
    assert all(map(math.isnan, finding.found))


def test_an_effect_without_interval_says_why() -> None:
    assert claim(Interval(0.6, math.nan, math.nan)).check(RUN).note == "too few seeds for an interval"
    said = claim(Interval(math.nan, math.nan, math.nan)).check(RUN).note
    assert said == "the effect is not defined here: its values are too few, or all the same"
    assert claim(Interval(0.6, 0.5, 0.7)).check(RUN).note == ""


def test_other_errors_are_not_hidden() -> None:
    with pytest.raises(KeyError):
        claim(KeyError("value")).check(RUN)


@pytest.mark.parametrize(
    "found", [Interval(0.6, 0.5, 0.7), Interval(0.6, math.nan, math.nan), NotInRun("nothing"), Interval(0, 0, math.inf)]
)
def test_a_record_is_json_without_nan(found: Interval | Exception) -> None:
    finding = claim(found).check(RUN)
    record = finding.record()
    assert set(record) >= {"id", "statement", "source", "verdict", "effect", "low", "high", "margin", "run"}
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["id"] == "an-id" and record["statement"] == "A statement." and record["source"] == "a source"
    assert (record["verdict"], record["margin"], record["run"]) == (finding.verdict, 0.3, "some/run")
    for name, value in zip(("effect", "low", "high"), finding.found, strict=True):
        assert record[name] == (value if math.isfinite(value) else None)


# The command


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """A small run of each study."""
    sigma = LstSigma.at("paper", sigmas=(0.2, 2.0), seeds=(0, 1, 2), epochs=2)
    encodings = LstEncodings.at("paper", encodings=("learned:sigma=0.2", "none"), seeds=(0, 1, 2), epochs=2)
    rng = np.random.default_rng(0)
    return [
        save(made_up(sigma, lambda m: (0.9 if m.sigma == 0.2 else 0.3) + rng.normal() / 100), tmp_path / "sigma"),
        save(made_up(encodings, lambda m: (0.9 if m.sigma else 0.3) + rng.normal() / 100), tmp_path / "encodings"),
    ]


def test_the_table_names_each_claim_with_its_verdict(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    for path, study in zip(runs, (LstSigma, LstEncodings), strict=True):
        assert cli.main(["claims", str(path)]) == 0
        printed = capsys.readouterr().out
        assert printed.splitlines()[0] == f"{path}: {study.name}, paper scale"
        cells = [[cell.strip() for cell in line.split("│")] for line in printed.splitlines() if line.startswith("│")]
        assert [cell[1] for cell in cells if cell[1]] == [claim.id for claim in study.claims]
        assert {cell[2] for cell in cells if cell[1]} <= {YES, NO, OPEN}
    rows = {cell[1]: cell[2:] for cell in cells if cell[1]}
    assert rows["beats-none"][0] == YES
    assert rows["beats-none"][1].startswith("+0.")
    assert rows["near-2d-fixed"][:3] == [OPEN, "-", "-"]
    assert "(the run has no finished members" in printed


def test_json_is_a_list_over_all_runs(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["claims", *map(str, runs), "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    asked = [(str(runs[0]), claim.id) for claim in LstSigma.claims]
    asked += [(str(runs[1]), claim.id) for claim in LstEncodings.claims]
    assert [(record["run"], record["id"]) for record in records] == asked
    found = {(record["run"], record["id"]): record for record in records}
    assert found[str(runs[0]), "small-sigma-generalizes"]["verdict"] == YES
    assert found[str(runs[0]), "procrustes-over-sigmas"]["note"] == "the run has no procrustes (2d-fixed)"


def test_what_is_no_finished_run_is_one_sentence_and_exit_2(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (runs[1] / "summary.json").unlink()
    for path, sentence in (
        (empty, f"{empty} must be a run folder, one with a config.json; there is none."),
        (tmp_path / "nowhere", f"{tmp_path / 'nowhere'} must be a run folder, one with a config.json; there is none."),
        (
            runs[1],
            f"{runs[1]} has no summary.json: the run is not finished; go on with 'placecode run ... --out {runs[1]} "
            "--resume'.",
        ),
    ):
        for words in ([str(path)], [str(runs[0]), str(path)], [str(path), "--json"]):
            assert cli.main(["claims", *words]) == 2
            printed = capsys.readouterr()
            assert printed.err == f"placecode: {sentence}\n"
            assert printed.out == ""
    assert cli.main(["claims"]) == 2
    assert "the following arguments are required: RUN" in capsys.readouterr().err
