"""evidence.json follows from the committed runs, and gains and good sigmas are computed correctly from it."""

import json
import math
from pathlib import Path

import pandas as pd
import pytest
from helpers.scripts import load

from placecode.analysis.stats import Interval, interval
from placecode.inspection import evidence
from placecode.inspection.evidence import Curve, Point
from placecode.runs.read import Run

ROOT = Path(__file__).parents[2]

script = load(ROOT / "docs" / "pages" / "evidence.py")


def curve(means: dict[float, float], half: float = 0.0, sign: int = 1, null_outcome: float = 0.0) -> Curve:
    """Return a curve with these means, and intervals of this half width."""
    best = max(sign * value for value in means.values())

    def around(value: float) -> Interval:
        return Interval(value, value - half, value + half)

    points = [Point(sigma, around(mean), around(best - sign * mean), 5, 0) for sigma, mean in means.items()]
    return Curve("accuracy", sign, null_outcome, tuple(points))


def test_the_packaged_file_is_what_the_runs_give() -> None:
    assert script.evidence() == evidence.FILE.read_text(), "run python docs/pages/evidence.py"


def test_numbers_are_those_of_the_tables() -> None:
    """Compute the accuracy of lst-sigma at 0.2, and its difference from that at 0.4, without the script."""
    run = Run(ROOT / "results" / "lst-sigma")
    last = run.metrics[run.metrics["step"] == run.metrics["step"].max()]
    last = last[(last["split"] == "ood") & (last["condition"] == "all") & (last["metric"] == "accuracy")]
    rows = last.merge(run.members, on="member").query("encoding == 'learned'")
    at_0_2, best = (rows[rows["sigma"] == sigma].sort_values("seed")["value"].to_numpy() for sigma in (0.2, 0.4))
    setting = next(item for item in evidence.settings() if item.name == "lst-sigma")
    (point,) = (item for item in setting.outcome.points if item.sigma == 0.2)
    assert point.outcome_interval == pytest.approx(interval(at_0_2), abs=1e-5)
    assert setting.outcome.best.sigma == 0.4 and point.gap_interval == pytest.approx(interval(best - at_0_2), abs=1e-5)
    assert (setting.tokens, setting.width, setting.outcome.null_outcome, point.n) == (16, 160, 0.25, 15)


def test_no_sweep_is_in_two_settings() -> None:
    """Members in two runs must be one setting; otherwise a held-out setting would still be used."""
    settings = evidence.settings()
    assert len({item.name for item in settings}) == len(settings) == len({item.outcome for item in settings})
    assert all(len(item.outcome.points) >= 3 for item in settings)


def test_members_that_diverged_have_learned_nothing() -> None:
    rows = pd.DataFrame({"member": range(4), "seed": [0, 1] * 2, "sigma": [0.1, 0.1, 1.0, 1.0], "state": "done"})
    rows.loc[3, "state"] = "diverged"
    values = pd.Series([0.4, 0.6, 0.2, 0.1], index=range(4))  # what it had when it was stopped counts for nothing
    small, large = script.curve("test error", -1, 1.0, rows, values, {})["points"]
    assert (small["outcome_interval"][0], large["outcome_interval"][0], large["diverged"], large["n"]) == (
        0.5,
        0.6,
        1,
        2,
    )
    assert large["gap_interval"][0] == 0.1  # -0.2 and 0.4


def test_seeds_of_one_world_are_averaged_first() -> None:
    values = pd.Series([1.0, 2.0, 3.0, 4.0], index=[0, 1, 2, 3])
    assert script.world_interval(values, {"worlds": 2}) == interval([2.0, 3.0])
    assert script.world_interval(values, {}) == interval([1.0, 2.0, 3.0, 4.0])


def test_values_between_sigmas_are_interpolated_over_their_logarithm() -> None:
    line = curve({0.01: 0.2, 1.0: 0.6, 4.0: 1.0})
    assert line.at(0.1) == pytest.approx(0.4) and line.at(2.0) == pytest.approx(0.8)
    assert line.gain_lost(0.1) == pytest.approx((0.6, 0.6, 0.6))
    assert line.at(0.009) is None and line.gain_lost(4.1) is None and line.good(5.0) is None
    assert line.at(0.01) == 0.2 and line.at(4.0) == 1.0


def test_lower_error_is_better() -> None:
    errors = curve({0.1: 0.4, 1.0: 0.7}, sign=-1, null_outcome=1.0)
    assert errors.best.sigma == 0.1 and errors.gain == pytest.approx(0.6)
    gain_lost = errors.gain_lost(1.0)
    assert gain_lost is not None and gain_lost.mean == pytest.approx(0.5)


def test_with_a_good_sigma_little_of_the_gain_is_lost_or_no_more_than_noise() -> None:
    sure = curve({0.1: 1.0, 0.2: 0.96, 0.5: 0.92, 1.0: 0.8})
    assert [sure.good(sigma) for sigma in (0.1, 0.2, 0.5, 1.0)] == [True, True, False, False]
    unsure = curve({0.1: 1.0, 0.2: 0.96, 0.5: 0.92, 1.0: 0.8}, half=0.3)
    assert [unsure.good(sigma) for sigma in (0.1, 0.2, 0.5, 1.0)] == [True, True, True, False]


def test_a_setting_has_learned_only_beyond_chance() -> None:
    assert curve({0.1: 0.5, 1.0: 0.3}, half=0.1, null_outcome=0.25).learned
    assert not curve({0.1: 0.5, 1.0: 0.3}, half=0.3, null_outcome=0.25).learned
    assert not curve({0.1: 0.26, 1.0: 0.25}, null_outcome=0.25).learned
    assert not curve({0.1: 1.1, 1.0: 1.2}, sign=-1, null_outcome=1.0).learned


def test_a_single_seed_has_no_interval_and_counts_for_nothing() -> None:
    record = json.loads(evidence.FILE.read_text().splitlines()[1].rstrip(","))
    for point in record["outcome"]["points"]:
        point["outcome_interval"][1:] = [None, None]
    outcome = evidence.parsed(record).outcome
    assert math.isnan(outcome.best.outcome_interval.low) and not outcome.learned


def test_settings_are_named_by_the_fields_that_distinguish_them() -> None:
    rows = [("adam", 1e-3, 0.0), ("adamw", 1e-3, 0.01), ("sgd", 1e-2, 0.0), ("adam", 1e-2, 0.0)]
    members = pd.DataFrame(rows, columns=["optimizer", "learning_rate", "weight_decay"])
    assert script.distinguishing(members, list(members.columns)) == ["optimizer", "learning_rate"]
    more = pd.concat([members, pd.DataFrame([("adamw", 1e-3, 0.1)], columns=members.columns)])
    assert script.distinguishing(more, list(more.columns)) == ["optimizer", "learning_rate", "weight_decay"]
    assert script.distinguishing(members, ["optimizer"]) == ["optimizer"]
