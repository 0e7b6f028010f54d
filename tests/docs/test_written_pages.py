"""The committed pages are what the scripts write from the runs; a sentence whose condition is false is refused."""

import dataclasses
import math
import re
import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2.nodes
import pandas as pd
import pytest
from helpers.scripts import load

from placecode.experiments import claims, experiment_of
from placecode.experiments.claims import FAILS, HOLDS, NO_NUMBER, UNDECIDED, Finding
from placecode.inspection import evidence, recommend
from placecode.runs.read import Run

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "docs" / "pages"

beyond, latin, recommendation, reproduction, synergy, templating = (
    load(SCRIPTS / f"{name}.py")
    for name in ("beyond", "latin", "recommendation", "reproduction", "synergy", "templating")
)
PAGE = (ROOT / "docs" / "reproduction.md").read_text()


@pytest.mark.parametrize(
    ("script", "name"), [(beyond, "beyond"), (recommendation, "recommend"), (reproduction, "reproduction")]
)
def test_the_committed_page_is_what_the_runs_give(script: Any, name: str) -> None:
    assert script.page() == (ROOT / "docs" / f"{name}.md").read_text(), f"run python {script.__file__}"


def test_every_claim_of_every_run_is_on_the_page_with_its_verdicts() -> None:
    for name in reproduction.RUNS:
        run = Run(ROOT / "results" / name)
        findings = [claim.check(run) for claim in experiment_of(run).claims]
        if all(finding.note for finding in findings):  # a run that the claims are not about
            assert not re.search(rf"\n`{name}`[^\n]*:\n", PAGE)
            continue
        with_effect = [finding for finding in findings if not math.isnan(finding.effect.mean)]
        (table,) = re.findall(rf"\n`{name}`[^\n]*:\n\n(.*?)\n\n", PAGE, flags=re.DOTALL)
        rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
        assert [row[0] for row in rows] == [finding.claim.id for finding in with_effect]
        for row, finding in zip(rows, with_effect, strict=True):
            assert row[1].startswith(finding.claim.statement)
            assert claims.direction_text(finding) in row and claims.number_text(finding) in row
            assert finding.claim.label in row[-1]


def test_methods_are_at_chance_only_if_their_tests_on_every_measure_are() -> None:
    measures = [("neighbor_agreement", "labels"), ("ari", "labels")]

    def run_with(low: dict[str, int]) -> Any:
        rows = [
            {"split": "analysis", "condition": "labels", "metric": f"{name}_p", "value": 0.01 if world < count else 0.5}
            for name, count in low.items()
            for world in range(100)
        ]
        return SimpleNamespace(baselines=pd.DataFrame(rows))

    none = synergy.tests_of_others(run_with({"neighbor_agreement": 5, "ari": 6, "ami": 90}), measures)
    assert none == (11, 200) and none.expected == 10 and none.at_chance  # ami is not among the measures
    for low in ({"neighbor_agreement": 20, "ari": 5}, {"neighbor_agreement": 5, "ari": 20}):
        assert not synergy.tests_of_others(run_with(low), measures).at_chance
    assert not synergy.tests_of_others(run_with({"ami": 1}), measures).at_chance  # without any test


def test_every_conclusion_of_the_page_stands_beside_a_condition() -> None:
    """No condition is a constant, so that each one can fail."""
    files = (templating.TEMPLATES / "reproduction").glob("*.j2")
    trees = [templating.environment().parse(path.read_text()) for path in files]
    calls = [call.call for tree in trees for call in tree.find_all(jinja2.nodes.CallBlock)]
    conditions = [call.args[0] for call in calls if call.node.name == "say"]
    assert len(conditions) > 50
    assert all(isinstance(node, jinja2.nodes.Name) or any(node.find_all(jinja2.nodes.Name)) for node in conditions)


def test_the_curve_at_the_published_length_is_that_of_its_tables() -> None:
    """Compute means, differences and standard errors again from the Parquet files."""
    folder = ROOT / "results" / "lst-sigma"
    members, metrics = (pd.read_parquet(folder / f"{name}.parquet") for name in ("members", "metrics"))
    rows = metrics[(metrics["split"] == "ood") & (metrics["metric"] == "accuracy")]
    rows = rows[(rows["condition"] == "all") & (rows["step"] == rows["step"].max())].merge(members, on="member")
    table = latin.curve_gaps(Run(folder))
    for sigma, theirs in {0.1: 0.925, 0.2: 0.956, 1.0: 0.894, 1.7: 0.480, 2.0: 0.377}.items():
        ours, row = rows.loc[rows["sigma"] == sigma, "value"], table.loc[sigma]
        assert len(ours) == 15 and row["gap"] == pytest.approx(ours.mean() - theirs, abs=1e-12)
        assert row["error"] == pytest.approx(ours.std(ddof=1) * math.sqrt(2 / 15), abs=1e-12)
        assert f"| {sigma:g} | {theirs:.3f} | {ours.mean():.3f} " in PAGE


@pytest.mark.parametrize("name", beyond.FACTS)
def test_no_answer_is_written_with_reversed_verdicts(name: str) -> None:
    run = Run(ROOT / "results" / name)
    reverse = {HOLDS: FAILS, UNDECIDED: FAILS, FAILS: HOLDS}
    reversed_findings = {
        id: Finding(finding.claim, reverse[finding.direction], NO_NUMBER, finding.effect, finding.run)
        for id, finding in beyond.findings_of(run).items()
    }
    with pytest.raises(SystemExit, match="the tables no longer say so"):
        beyond.words(name, run, reversed_findings)


def test_most_of_2d_fixed_is_a_vector_that_all_cells_share() -> None:
    """Check it by the variance of sines and cosines over the four rows, frequency by frequency."""
    frequencies = [10000.0 ** (-i / 40) for i in range(40)]
    values = [[wave(row * frequency) for row in range(4)] for frequency in frequencies for wave in (math.sin, math.cos)]
    assert beyond.facts.shared_part() == pytest.approx(1 - 2 * sum(map(statistics.pvariance, values)) / 80)


def test_python_of_the_recommendation_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "recommend.md").read_text(), flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["low"] <= names["sigma"] <= names["high"]


def test_an_example_command_that_fails_is_never_written() -> None:
    with pytest.raises(SystemExit, match="ended with 2"):
        recommendation.printed("placecode recommend --tokens 1 --width 1 --optimizer adam")


def test_a_conclusion_is_refused_where_the_evidence_says_otherwise() -> None:
    """If maps and outcomes are exchanged, a map needs larger sigmas."""
    exchanged = [
        dataclasses.replace(setting, outcome=setting.structure, structure=setting.outcome)
        for setting in evidence.settings()
        if setting.structure is not None
    ]
    with pytest.raises(SystemExit, match=r"the tables no longer say so.*A map needs smaller"):
        recommendation.page(exchanged)


def test_losses_in_common_are_over_settings_where_both_sigmas_were_run() -> None:
    setting = evidence.settings()[0]
    rows = [
        recommend.HeldOutResult(setting, 0.2, {"recommended": 0.1, "1": 0.3}),
        recommend.HeldOutResult(setting, 0.2, {"recommended": 0.9, "1": None}),
    ]
    assert recommendation.in_common(rows, "1") == (0.1, 0.3)
