"""Claims on masked prediction use the right values, paired by seed and world."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.made_up import student
from helpers.made_up_masked import made_up

from placecode.experiments.channels.network import NetworkSigma
from placecode.experiments.channels.synergy import SynergySigma
from placecode.models.member import Member

SEEDS = (0, 1, 2, 3)
NOISE = dict(zip(SEEDS, (0.00, 0.01, -0.02, 0.01), strict=True))


def by_world(values: list[float]) -> tuple[float, float, float]:
    """Return Student's interval over the two worlds, each the mean of its two seeds."""
    return student([(values[world] + values[world + 2]) / 2 for world in (0, 1)])


def network(**changes: Any) -> Any:
    study = NetworkSigma.at("paper", sigmas=(0.01, 0.2, 2.0), seeds=SEEDS)
    level = {0.01: 0.95, 0.2: 0.7, 2.0: 0.2}

    def neighbours(member: Member) -> float:
        return level[member.sigma or 0] + NOISE[member.seed]

    given: dict[str, Any] = {
        "errors": {
            "hidden 0.5": lambda m: 0.76 + (m.sigma or 0) / 100 + NOISE[m.seed] * (m.sigma or 0),
            "hidden 0.9": lambda m: 0.90 - (m.sigma or 0) / 50 + NOISE[m.seed] / 9,
        },
        "analyses": {
            ("neighbor_agreement", "labels"): (lambda m: 0.2 - NOISE[m.seed], neighbours),
            ("modularity", "labels"): (lambda m: 0.0, lambda m: 0.5 - (m.sigma or 0) / 10 + NOISE[m.seed] * m.sigma),
        },
        "baselines": {
            ("linear", "test", "hidden 0.5", "mse"): {0: 0.75, 1: 0.77},
            ("linear", "test", "hidden 0.9", "mse"): {0: 9.0, 1: 9.0},
            ("fc", "analysis", "labels", "neighbor_agreement"): {0: 0.9, 1: 1.0},
        },
    }
    return made_up(study, **{**given, "worlds": 2, **changes})


def findings(run: Any, kind: Any) -> dict[str, Any]:
    return {claim.id: claim.check(run) for claim in kind.claims}


def test_effects_on_networks_are_read_at_their_sigma_and_paired_by_seed() -> None:
    found = findings(network(), NetworkSigma)
    noise = [NOISE[seed] for seed in SEEDS]
    assert found["small-sigma-shows-clusters"].found == pytest.approx(by_world([0.95 + x for x in noise]))
    assert found["small-sigma-shows-clusters"].direction == "holds"
    assert found["large-sigma-shows-none"].found == pytest.approx(by_world([0.2 + x for x in noise]))
    assert found["clusters-fall-with-sigma"].found == pytest.approx((0.75, 0.75, 0.75))  # the noise of a seed cancels
    assert found["clusters-are-learned"].found == pytest.approx(by_world([0.75 + 2 * x for x in noise]))
    gaps = [(0.01 - 2.0) * (0.01 + x) for x in noise]
    assert found["error-hardly-moves"].found == pytest.approx(by_world(gaps))
    small = [np.mean([s * (0.01 + x) for s in (0.01, 0.2)]) - 2.0 * (0.01 + x) for x in noise]
    assert found["small-sigma-predicts-better"].found == pytest.approx(by_world([float(value) for value in small]))
    assert found["small-sigma-predicts-better-shifted"].found.mean == pytest.approx((2.0 - 0.105) / 50)
    assert found["small-sigma-predicts-better-shifted"].direction == "fails"


def test_members_are_compared_with_baselines_of_their_world() -> None:
    found = findings(network(), NetworkSigma)
    errors = [0.76 + 0.2 * (0.01 + NOISE[seed]) - (0.75, 0.77)[seed % 2] for seed in SEEDS]
    assert found["beats-linear"].found == pytest.approx(by_world(errors))
    gaps = [0.95 + NOISE[seed] - (0.9, 1.0)[seed % 2] for seed in SEEDS]
    assert found["beats-correlation"].found == pytest.approx(by_world(gaps))


def test_a_run_without_baselines_leaves_claims_about_them_undecided() -> None:
    found = findings(network(baselines={}), NetworkSigma)
    assert found["beats-linear"].direction == "undecided"
    assert found["beats-linear"].note == "the run has no mse of the baseline linear"
    assert found["small-sigma-shows-clusters"].direction == "holds"


def test_synergy_is_compared_with_the_least_error_and_pairwise_measures_with_chance() -> None:
    study = SynergySigma.at("paper", sigmas=(0.2, 2.0), seeds=SEEDS)
    near = {("neighbor_agreement", "labels"): (lambda m: 0.1, lambda m: 0.97 if m.sigma < 1 else 0.2 + NOISE[m.seed])}
    blind = {
        (name, "analysis", "labels", "neighbor_agreement"): {0: 0.35, 1: 0.45, 2: 0.39, 3: 0.41}
        for name in ("fc", "mutual information")
    }
    run = made_up(
        study,
        {"hidden 0.3": lambda m: 0.5 + m.sigma / 5 + NOISE[m.seed] / 10},
        near,
        blind,
        best_mse={"hidden 0.3": 0.53},
    )
    found = findings(run, SynergySigma)
    assert found["groups-are-found"].direction == found["large-sigma-finds-none"].direction == "holds"
    assert found["error-is-the-least-possible"].found.mean == pytest.approx(0.01)
    assert found["error-hangs-on-sigma"].found == pytest.approx((-0.36, -0.36, -0.36))
    chance = 2 / 5  # two others of the same group among five
    assert found["blind-fc"].found == pytest.approx(student([value - chance for value in (0.35, 0.45, 0.39, 0.41)]))
    assert found["blind-partial-correlation"].note == "the run has no structure of the baseline partial correlation"
    del run.config["task"]["best_mse"]
    assert findings(run, SynergySigma)["error-is-the-least-possible"].note == (
        "the least possible error with hidden 0.3 is not known"
    )


def test_errors_are_not_judged_where_another_fraction_was_hidden_in_training() -> None:
    run = network()
    run.config["fields"]["hidden"] = 0.9
    finding = findings(run, NetworkSigma)["small-sigma-predicts-better"]
    assert finding.direction == "undecided" and "trained with 0.9 hidden" in finding.note
