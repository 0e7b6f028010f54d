"""Claims: both verdicts follow from the interval alone, missing values are undecided, and records are JSON."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.made_up import made_up, save
from helpers.refusal import refused

from placecode import cli
from placecode.analysis.stats import Interval
from placecode.experiments import EXPERIMENTS, claims
from placecode.experiments.claims import FAILS, HOLDS, OURS, PAPER, UNDECIDED, Claim, NotInRun, judge
from placecode.experiments.latin.squares import LstEncodings, LstSigma

RUN: Any = SimpleNamespace(path=Path("some/run"), config={"fields": {"puzzles": "published"}})


def claim(effect: Interval | Exception, way: str = "above", label: str = PAPER, **fields: Any) -> Claim:
    """Return a claim with a margin of 0.3 whose effect is this in every run; an exception is raised."""

    def measure(run: Any) -> Interval:
        if isinstance(effect, Exception):
            raise effect
        return effect

    return Claim("an-id", "A statement.", label, 0.3, measure, way, **fields)


@pytest.mark.parametrize(
    ("way", "margin", "low", "high", "direction"),
    [
        ("above", 0.3, 0.31, 0.5, HOLDS),
        ("above", 0.3, 0.1, 0.29, FAILS),
        ("above", 0.3, 0.29, 0.31, UNDECIDED),
        ("above", 0.3, 0.3, 0.5, UNDECIDED),  # it touches the margin: not wholly beyond
        ("above", 0.3, 0.1, 0.3, UNDECIDED),  # nor wholly short of it
        ("above", -0.05, -0.04, 0.0, HOLDS),
        ("within", 0.02, -0.019, 0.019, HOLDS),
        ("within", 0.02, 0.021, 0.1, FAILS),
        ("within", 0.02, -0.1, -0.021, FAILS),  # on the other side as well
        ("within", 0.02, -0.01, 0.03, UNDECIDED),
        ("within", 0.02, -0.1, 0.1, UNDECIDED),  # too wide
        ("within", 0.02, 0.0, 0.02, UNDECIDED),
        ("within", 0.02, -0.1, -0.02, UNDECIDED),
    ],
)
def test_the_whole_interval_decides(way: str, margin: float, low: float, high: float, direction: str) -> None:
    assert judge(Interval((low + high) / 2, low, high), margin, way) == direction
    if way == "above":  # "below" is its mirror image
        assert judge(Interval(0.0, -high, -low), -margin, "below") == direction


@pytest.mark.parametrize("way", claims.WAYS)
@pytest.mark.parametrize("bounds", [(math.nan, math.nan), (0.9, math.nan), (math.nan, 0.9), (0.9, math.inf)])
def test_without_an_interval_there_is_no_verdict(way: str, bounds: tuple[float, float]) -> None:
    for effect in (math.nan, -9.0, 0.0, 9.0):
        assert judge(Interval(effect, *bounds), 0.1, way) == UNDECIDED


@pytest.mark.parametrize(
    ("published", "tolerance", "effect", "number"),
    [
        (-0.98, None, (-0.975, -0.99, -0.87), "match"),
        (0.956, None, (0.994, 0.988, 1.001), "no match"),
        (0.5, None, (0.6, 0.5, 0.7), "match"),  # on the bound
        (0.49, None, (0.6, 0.5, 0.7), "no match"),
        (0.5, None, (0.5, math.nan, math.nan), ""),  # a single seed is no evidence
        (0.5, 0.1, (0.5, -math.inf, math.inf), ""),
        (None, None, (0.6, 0.5, 0.7), ""),
        (1.0, 0.002, (0.9971, 0.9970, 0.9972), "no match"),
        (1.0, 0.005, (0.9971, 0.9970, 0.9972), "match"),  # the mean is within the tolerance
    ],
)
def test_a_published_number_matches_within_the_interval_or_the_tolerance(
    published: float | None, tolerance: float | None, effect: tuple[float, float, float], number: str
) -> None:
    finding = claim(Interval(*effect), published=published, tolerance=tolerance).check(RUN)
    assert finding.number == number
    assert claims.number_text(finding) == (number or "-") + ("" if published is None else f" ({published:g})")


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"label": "a source"}, "label"),
        ({"way": "beside"}, "way"),
        ({"published": math.nan}, "published"),
        ({"published": 0.5, "tolerance": -0.1}, "tolerance"),
        ({"tolerance": 0.1}, "tolerance"),  # without a published value
    ],
)
def test_bad_fields_are_refused(fields: dict[str, Any], name: str) -> None:
    assert refused(claim, Interval(0.0, 0.0, 0.0), **fields).name == name


@pytest.mark.parametrize(
    ("label", "data_differ", "puzzles", "holds", "fails"),
    [
        ("paper", False, "published", "reproduced", "not reproduced"),
        ("paper", True, "published", "found on our data", "not found on our data"),
        ("paper", False, None, "found on our data", "not found on our data"),  # puzzles that we drew
        ("asked by reviewers", False, "published", "yes", "no"),
        ("our question", True, "published", "yes", "no"),
    ],
)
def test_verdicts_in_words(label: str, data_differ: bool, puzzles: str | None, holds: str, fails: str) -> None:
    """They depend on the source of a claim and on the data."""
    run: Any = SimpleNamespace(path=Path("run"), config={"fields": {"puzzles": puzzles}})
    effects = [Interval(0.0, 0.4, 0.5), Interval(0.0, 0.1, 0.2), Interval(0.0, 0.2, 0.4)]
    findings = [claim(effect, label=label, data_differ=data_differ).check(run) for effect in effects]
    assert [claims.direction_text(finding) for finding in findings] == [holds, fails, "undecided"]


def test_claims_of_the_paper_on_channels_are_on_our_data_and_questions_have_no_published_number() -> None:
    for name, experiment in EXPERIMENTS.items():
        if name.startswith(("network", "brain", "synergy", "pixels")):
            assert all(claim.data_differ for claim in experiment.claims if claim.label == PAPER)
        assert all(claim.published is None for claim in experiment.claims if claim.label == OURS)


@pytest.mark.parametrize(
    ("effect", "note"),
    [
        (NotInRun("the run has no noise"), "the run has no noise"),
        (Interval(0.6, math.nan, math.nan), "too few seeds for an interval"),
        (Interval(0, 0, math.inf), "too few seeds for an interval"),
        (Interval(math.nan, math.nan, math.nan), "the effect is not defined"),
        (Interval(0.6, 0.5, 0.7), ""),
    ],
)
def test_a_record_is_json_without_nan_and_says_what_is_missing(effect: Interval | Exception, note: str) -> None:
    finding = claim(effect, published=0.65, remark="a remark").check(RUN)
    assert finding.note.startswith(note) and bool(finding.note) == bool(note)
    assert finding.direction == (UNDECIDED if note else HOLDS)
    record = finding.record()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    for name in ("id", "statement", "label", "margin", "way", "published", "remark"):
        assert record[name] == getattr(finding.claim, name)
    for name in ("direction", "number", "run", "note"):
        assert record[name] == getattr(finding, name)
    for name, value in zip(("effect", "low", "high"), finding.effect, strict=True):
        assert record[name] == (value if math.isfinite(value) else None)


def test_other_errors_are_not_hidden() -> None:
    with pytest.raises(KeyError):
        claim(KeyError("value")).check(RUN)


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Return a small run of each experiment."""
    fields = {"seeds": (0, 1, 2), "epochs": 2, "puzzles": "published"}
    sigma = LstSigma.from_scale("paper", sigmas=(0.2, 2.0), **fields)
    encodings = LstEncodings.from_scale("paper", encodings=("learned:sigma=0.2", "none"), **fields)
    rng = np.random.default_rng(0)
    return [
        save(made_up(sigma, lambda m: (0.9 if m.sigma == 0.2 else 0.3) + rng.normal() / 100), tmp_path / "sigma"),
        save(made_up(encodings, lambda m: (0.9 if m.sigma else 0.3) + rng.normal() / 100), tmp_path / "encodings"),
    ]


def test_the_command_prints_every_claim(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    """As a table, or as JSON."""
    pairs = zip(map(str, runs), (LstSigma, LstEncodings), strict=True)
    expected = [(path, claim.id) for path, experiment in pairs for claim in experiment.claims]
    assert cli.main(["claims", *map(str, runs), "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert [(record["run"], record["id"]) for record in records] == expected
    by_id = {(record["run"], record["id"]): record for record in records}
    assert by_id[str(runs[0]), "small-sigma-generalizes"]["direction"] == HOLDS
    assert by_id[str(runs[0]), "procrustes-over-sigmas"]["note"] == "the run has no procrustes (2d-fixed)"
    assert cli.main(["claims", *map(str, runs)]) == 0
    cells = [line.split("│") for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert [row[1].strip() for row in cells if row[1].strip()] == [id for _, id in expected]


def test_a_folder_that_is_no_finished_run_is_one_sentence_and_exit_2(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (runs[1] / "summary.json").unlink()
    for path, missing in (("empty", "config.json"), ("nowhere", "config.json"), (runs[1].name, "summary.json")):
        folder = str(tmp_path / path)
        for words in ([folder], [str(runs[0]), folder], [folder, "--json"]):
            assert cli.main(["claims", *words]) == 2
            out, err = capsys.readouterr()
            assert out == "" and err.count("\n") == 1 and folder in err and missing in err
    assert cli.main(["claims"]) == 2
