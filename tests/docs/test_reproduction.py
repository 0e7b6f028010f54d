"""docs/reproduction.md is what the committed runs give, and a conclusion whose condition is false is not written."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2.nodes
import pandas as pd
import pytest
from helpers.scripts import load

from placecode.experiments import claims, study_of
from placecode.runs.read import Run

ROOT = Path(__file__).parents[2]


reproduction = load(ROOT / "docs" / "pages" / "reproduction.py")
synergy = load(ROOT / "docs" / "pages" / "synergy.py")
templating = load(ROOT / "docs" / "pages" / "templating.py")
latin = load(ROOT / "docs" / "pages" / "latin.py")
PAGE = (ROOT / "docs" / "reproduction.md").read_text()


def test_the_committed_page_is_what_the_runs_give() -> None:
    assert reproduction.page() == PAGE, "run python docs/pages/reproduction.py"


def test_every_claim_of_every_run_is_on_the_page_with_its_verdicts() -> None:
    for name in reproduction.RUNS:
        run = Run(ROOT / "results" / name)
        findings = [claim.check(run) for claim in study_of(run).claims]
        if all(finding.note for finding in findings):  # a run that the claims are not about
            assert not re.search(rf"\n`{name}`[^\n]*:\n", PAGE)
            continue
        asked = [finding for finding in findings if not math.isnan(finding.found.mean)]
        (part,) = re.findall(rf"\n`{name}`[^\n]*:\n\n(.*?)\n\n", PAGE, flags=re.DOTALL)
        rows = [line.strip("| ").split(" | ") for line in part.splitlines()[2:]]
        assert [row[0] for row in rows] == [finding.claim.id for finding in asked]
        for row, finding in zip(rows, asked, strict=True):
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
    assert none == (11, 200) and none.expected == 10 and none.at_chance  # of ami nothing is shown
    for low in ({"neighbor_agreement": 20, "ari": 5}, {"neighbor_agreement": 5, "ari": 20}):
        assert not synergy.tests_of_others(run_with(low), measures).at_chance
    assert not synergy.tests_of_others(run_with({"ami": 1}), measures).at_chance  # nothing was tested


def test_every_conclusion_of_the_page_stands_beside_a_condition() -> None:
    """No condition is a constant, so that each one can fail."""
    trees = [
        templating.environment().parse(path.read_text())
        for path in (templating.TEMPLATES / "reproduction").glob("*.j2")
    ]
    calls = [call.call for tree in trees for call in tree.find_all(jinja2.nodes.CallBlock)]
    conditions = [call.args[0] for call in calls if call.node.name == "say"]
    assert len(conditions) > 50
    named = (isinstance(each, jinja2.nodes.Name) or any(each.find_all(jinja2.nodes.Name)) for each in conditions)
    assert all(named)


def test_the_curve_at_the_published_length_is_that_of_its_tables() -> None:
    """Means, differences and standard errors, once more from the Parquet files."""
    folder = ROOT / "results" / "lst-sigma"
    members, metrics = (pd.read_parquet(folder / f"{name}.parquet") for name in ("members", "metrics"))
    rows = metrics[(metrics["split"] == "ood") & (metrics["metric"] == "accuracy")]
    rows = rows[(rows["condition"] == "all") & (rows["step"] == rows["step"].max())].merge(members, on="member")
    table = latin.curve_gaps(Run(folder))
    authors = {0.1: 0.925, 0.2: 0.956, 1.0: 0.894, 1.7: 0.480, 2.0: 0.377}
    for sigma, theirs in authors.items():
        own = rows.loc[rows["sigma"] == sigma, "value"]
        assert len(own) == 15
        found = table.loc[sigma]
        assert found["gap"] == pytest.approx(own.mean() - theirs, abs=1e-12)
        assert found["error"] == pytest.approx(own.std(ddof=1) * math.sqrt(2 / 15), abs=1e-12)
        assert f"| {sigma:g} | {theirs:.3f} | {own.mean():.3f} " in PAGE
