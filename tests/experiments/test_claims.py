"""Claims: both verdicts follow from the interval alone, missing values are undecided, and records are JSON."""

from __future__ import annotations

import doctest
import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.made_up import made_up, save

from placecode import cli
from placecode.analysis.stats import Interval
from placecode.errors import BadInput
from placecode.experiments import STUDIES, claims
from placecode.experiments.claims import (
    LABELS,
    OURS,
    PAPER,
    Claim,
    Finding,
    NotInRun,
    compare,
    direction_text,
    judge,
    number_text,
)
from placecode.experiments.latin.squares import LstEncodings, LstSigma

RUN: Any = SimpleNamespace(path=Path("some/run"), config={"fields": {"puzzles": "published"}})
YES, NO, OPEN = "holds", "fails", "undecided"
TEXTS = {"reproduced", "not reproduced", "found on our data", "not found on our data", "yes", "no", "undecided"}


def claim(
    found: Interval | Exception, margin: float = 0.3, way: str = "above", label: str = PAPER, **more: Any
) -> Claim:
    def measure(run: Any) -> Interval:
        assert run is RUN
        if isinstance(found, Exception):
            raise found
        return found

    return Claim("an-id", "A statement.", label, margin, measure, way, **more)


def test_the_examples_are_true() -> None:
    assert doctest.testmod(claims).attempted >= 3
    assert doctest.testmod(claims).failed == 0


# Verdicts


@pytest.mark.parametrize(
    ("way", "margin", "low", "high", "direction"),
    [
        ("above", 0.3, 0.31, 0.5, YES),
        ("above", 0.3, 0.1, 0.29, NO),
        ("above", 0.3, 0.29, 0.31, OPEN),
        ("above", 0.3, 0.3, 0.5, OPEN),  # it touches the margin: not wholly beyond
        ("above", 0.3, 0.1, 0.3, OPEN),  # nor wholly short of it
        ("above", -0.05, -0.04, 0.0, YES),
        ("below", 0.5, 0.3, 0.49, YES),
        ("below", 0.5, 0.51, 0.6, NO),
        ("below", 0.5, 0.49, 0.51, OPEN),
        ("below", -0.9, -0.99, -0.91, YES),
        ("below", -0.9, -0.89, 0.99, NO),
        ("within", 0.02, -0.019, 0.019, YES),
        ("within", 0.02, 0.005, 0.01, YES),
        ("within", 0.02, 0.021, 0.1, NO),
        ("within", 0.02, -0.1, -0.021, NO),  # on the other side as well
        ("within", 0.02, -0.01, 0.03, OPEN),
        ("within", 0.02, -0.1, 0.1, OPEN),  # too wide to tell
        ("within", 0.02, 0.0, 0.02, OPEN),
        ("within", 0.02, -0.1, -0.02, OPEN),
    ],
)
def test_the_whole_interval_decides(way: str, margin: float, low: float, high: float, direction: str) -> None:
    assert judge(Interval((low + high) / 2, low, high), margin, way) == direction


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


# Numbers


@pytest.mark.parametrize(
    ("published", "found", "number"),
    [
        (-0.98, (-0.975, -0.99, -0.87), "match"),
        (0.956, (0.994, 0.988, 1.001), "no match"),
        (0.5, (0.6, 0.5, 0.7), "match"),  # on the bound
        (0.49, (0.6, 0.5, 0.7), "no match"),
        (0.5, (0.5, math.nan, math.nan), ""),  # a single seed is no evidence
        (0.5, (0.5, -math.inf, math.inf), ""),
        (None, (0.6, 0.5, 0.7), ""),
    ],
)
def test_a_published_number_is_looked_for_in_the_interval(
    published: float | None, found: tuple[float, float, float], number: str
) -> None:
    assert compare(Interval(*found), published) == number
    finding = claim(Interval(*found), published=published).check(RUN)
    assert finding.number == number
    assert number_text(finding) == (number or "-") + ("" if published is None else f" ({published:g})")


def test_a_mean_within_the_tolerance_is_a_match_too() -> None:
    narrow = Interval(0.9971, 0.9970, 0.9972)
    for tolerance, number in ((None, "no match"), (0.0, "no match"), (0.002, "no match"), (0.005, "match")):
        assert compare(narrow, 1.0, tolerance) == number
        assert claim(narrow, published=1.0, tolerance=tolerance).check(RUN).number == number
    assert compare(Interval(0.9971, math.nan, math.nan), 1.0, 0.005) == ""


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"label": "a source"}, "label"),
        ({"way": "beside"}, "way"),
        ({"published": math.nan}, "published"),
        ({"published": 0.5, "tolerance": -0.1}, "tolerance"),
        ({"tolerance": 0.1}, "tolerance"),  # without a published value
    ],
)
def test_bad_fields_are_refused(more: dict[str, Any], name: str) -> None:
    with pytest.raises(BadInput) as error:
        claim(Interval(0.0, 0.0, 0.0), **more)
    assert error.value.name == name


# Words


@pytest.mark.parametrize(
    ("label", "own_data", "yes", "no"),
    [
        ("paper", False, "reproduced", "not reproduced"),
        ("paper", True, "found on our data", "not found on our data"),
        *(("asked by reviewers", own, "yes", "no") for own in (False, True)),
        *(("our question", own, "yes", "no") for own in (False, True)),
    ],
)
def test_the_words_depend_on_whose_claim_it_is_and_on_the_data(label: str, own_data: bool, yes: str, no: str) -> None:
    def said(low: float, high: float) -> str:
        return direction_text(claim(Interval(0.0, low, high), label=label, own_data=own_data).check(RUN))

    assert (said(0.4, 0.5), said(0.1, 0.2), said(0.2, 0.4)) == (yes, no, "undecided")


@pytest.mark.parametrize(
    "name", [name for name in STUDIES if name.startswith(("network", "brain", "synergy", "pixels"))]
)
def test_a_failure_on_other_data_than_the_papers_is_never_one_to_reproduce(name: str) -> None:
    for each in STUDIES[name].claims:
        assert each.own_data or each.label != PAPER
        for direction in claims.DIRECTIONS:
            finding = Finding(each, direction, "", Interval(0.0, 0.0, 0.0), "run", own_data=each.own_data)
            assert "reproduced" not in direction_text(finding)


def test_puzzles_of_our_own_are_other_data_too() -> None:
    drawn: Any = SimpleNamespace(path=Path("drawn"), config={"fields": {"puzzles": None}})
    each = replace(claim(Interval(0.0, 0.4, 0.5), label=PAPER), measure=lambda run: Interval(0.45, 0.4, 0.5))
    assert direction_text(each.check(RUN)) == "reproduced"
    assert direction_text(each.check(drawn)) == "found on our data"


def test_a_question_has_no_published_number() -> None:
    for study in STUDIES.values():
        assert all(each.published is None for each in study.claims if each.label == OURS)


# Findings and records


def test_what_is_not_in_the_run_is_undecided_and_said() -> None:
    finding = claim(NotInRun("the run has no noise")).check(RUN)
    assert (finding.direction, finding.note) == (OPEN, "the run has no noise")
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
    finding = claim(found, published=0.65, remark="a remark").check(RUN)
    record = finding.record()
    words = {"id", "statement", "label", "remark", "direction", "direction_text", "number", "number_text", "note"}
    assert set(record) == words | {"effect", "low", "high", "margin", "way", "published", "run"}
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["id"] == "an-id" and record["statement"] == "A statement." and record["label"] == "paper"
    assert (record["direction"], record["margin"], record["run"]) == (finding.direction, 0.3, "some/run")
    assert (record["number"], record["published"], record["remark"]) == (finding.number, 0.65, "a remark")
    assert (record["direction_text"], record["number_text"]) == (direction_text(finding), number_text(finding))
    for name, value in zip(("effect", "low", "high"), finding.found, strict=True):
        assert record[name] == (value if math.isfinite(value) else None)


# The command


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """A small run of each study."""
    sigma = LstSigma.at("paper", sigmas=(0.2, 2.0), seeds=(0, 1, 2), epochs=2, puzzles="published")
    encodings = LstEncodings.at(
        "paper", encodings=("learned:sigma=0.2", "none"), seeds=(0, 1, 2), epochs=2, puzzles="published"
    )
    rng = np.random.default_rng(0)
    return [
        save(made_up(sigma, lambda m: (0.9 if m.sigma == 0.2 else 0.3) + rng.normal() / 100), tmp_path / "sigma"),
        save(made_up(encodings, lambda m: (0.9 if m.sigma else 0.3) + rng.normal() / 100), tmp_path / "encodings"),
    ]


def test_the_table_names_each_claim_with_its_verdicts(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    for path, study in zip(runs, (LstSigma, LstEncodings), strict=True):
        assert cli.main(["claims", str(path)]) == 0
        printed = capsys.readouterr().out
        assert printed.splitlines()[0] == f"{path}: {study.name}, paper scale"
        cells = [[cell.strip() for cell in line.split("│")] for line in printed.splitlines() if line.startswith("│")]
        assert [cell[1] for cell in cells if cell[1]] == [claim.id for claim in study.claims]
        assert {cell[2] for cell in cells if cell[1]} <= set(LABELS)
        assert {cell[3] for cell in cells if cell[1]} <= TEXTS
    rows = {cell[1]: cell[2:] for cell in cells if cell[1]}
    assert rows["beats-none"][:3] == ["paper", "reproduced", "-"]
    assert rows["beats-none"][3].startswith("+0.")
    assert rows["beats-relative-as-published"][:5] == ["paper", "undecided", "- (0.036)", "-", "-"]
    assert rows["near-2d-fixed"][:5] == ["our question", "undecided", "-", "-", "-"]
    assert "(the run has no finished members" in printed


def test_json_is_a_list_over_all_runs(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["claims", *map(str, runs), "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    asked = [(str(runs[0]), claim.id) for claim in LstSigma.claims]
    asked += [(str(runs[1]), claim.id) for claim in LstEncodings.claims]
    assert [(record["run"], record["id"]) for record in records] == asked
    found = {(record["run"], record["id"]): record for record in records}
    assert found[str(runs[0]), "small-sigma-generalizes"]["direction"] == YES
    assert found[str(runs[0]), "small-sigma-generalizes"]["direction_text"] == "reproduced"
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
            f"{runs[1]} has no summary.json: the run is not finished; continue it with 'placecode run ... --out "
            f"{runs[1]} --resume'.",
        ),
    ):
        for words in ([str(path)], [str(runs[0]), str(path)], [str(path), "--json"]):
            assert cli.main(["claims", *words]) == 2
            printed = capsys.readouterr()
            assert printed.err == f"placecode: {sentence}\n"
            assert printed.out == ""
    assert cli.main(["claims"]) == 2
    assert "the following arguments are required: RUN" in capsys.readouterr().err
