"""Claims on masked prediction use the right values, paired by seed and world."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.made_up_masked import made_up
from scipy import stats

from placecode.experiments.channels.network import NetworkSigma
from placecode.experiments.channels.synergy import SynergySigma
from placecode.models.member import Member
from placecode.reports.pages.masked_words import of_settings
from placecode.reports.pages.registry import page_of

SEEDS = (0, 1, 2, 3)
NOISE = dict(zip(SEEDS, (0.00, 0.01, -0.02, 0.01), strict=True))


def by_world(values: list[float]) -> tuple[float, float, float]:
    """Student's interval over the two worlds, each the mean of its two seeds."""
    return student([(values[world] + values[world + 2]) / 2 for world in (0, 1)])


def student(values: list[float]) -> tuple[float, float, float]:
    mean, half = np.mean(values), stats.sem(values) * stats.t.ppf(0.975, len(values) - 1)
    return float(mean), float(mean - half), float(mean + half)


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


def found(run: Any, kind: Any) -> dict[str, Any]:
    return {claim.id: claim.check(run) for claim in kind.claims}


def test_structure_and_errors_of_a_network_are_read_at_their_sigma_and_paired_by_seed() -> None:
    said = found(network(), NetworkSigma)
    noise = [NOISE[seed] for seed in SEEDS]
    assert said["small-sigma-shows-clusters"].found == pytest.approx(by_world([0.95 + x for x in noise]))
    assert said["small-sigma-shows-clusters"].direction == "holds"
    assert said["large-sigma-shows-none"].found == pytest.approx(by_world([0.2 + x for x in noise]))
    assert said["clusters-fall-with-sigma"].found == pytest.approx((0.75, 0.75, 0.75))  # the noise of a seed cancels
    assert said["clusters-are-learned"].found == pytest.approx(by_world([0.75 + 2 * x for x in noise]))
    gaps = [(0.01 - 2.0) * (0.01 + x) for x in noise]
    assert said["error-hardly-moves"].found == pytest.approx(by_world(gaps))
    small = [np.mean([s * (0.01 + x) for s in (0.01, 0.2)]) - 2.0 * (0.01 + x) for x in noise]
    assert said["small-sigma-predicts-better"].found == pytest.approx(by_world([float(each) for each in small]))
    assert said["small-sigma-predicts-better-shifted"].found.mean == pytest.approx((2.0 - 0.105) / 50)
    assert said["small-sigma-predicts-better-shifted"].direction == "fails"


def test_members_are_held_against_baselines_of_their_own_world() -> None:
    said = found(network(), NetworkSigma)
    errors = [0.76 + 0.2 * (0.01 + NOISE[seed]) - (0.75, 0.77)[seed % 2] for seed in SEEDS]
    assert said["beats-linear"].found == pytest.approx(by_world(errors))
    gaps = [0.95 + NOISE[seed] - (0.9, 1.0)[seed % 2] for seed in SEEDS]
    assert said["beats-correlation"].found == pytest.approx(by_world(gaps))


def test_a_run_without_baselines_leaves_claims_about_them_undecided() -> None:
    said = found(network(baselines={}), NetworkSigma)
    assert said["beats-linear"].direction == "undecided"
    assert said["beats-linear"].note == "the run has no mse of the baseline linear"
    assert said["small-sigma-shows-clusters"].direction == "holds"


def test_synergy_is_held_against_the_least_error_and_pairwise_measures_against_chance() -> None:
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
    said = found(run, SynergySigma)
    assert said["groups-are-found"].direction == said["large-sigma-finds-none"].direction == "holds"
    assert said["error-is-the-least-possible"].found.mean == pytest.approx(0.01)
    assert said["error-hangs-on-sigma"].found == pytest.approx((-0.36, -0.36, -0.36))
    chance = 2 / 5  # two others of the same group among five
    assert said["blind-fc"].found == pytest.approx(student([value - chance for value in (0.35, 0.45, 0.39, 0.41)]))
    assert said["blind-partial-correlation"].note == "the run has no structure of the baseline partial correlation"
    del run.config["task"]["best_mse"]
    assert found(run, SynergySigma)["error-is-the-least-possible"].note == (
        "the least possible error with hidden 0.3 is not known"
    )


def test_errors_are_not_judged_where_another_share_was_hidden_in_training() -> None:
    run = network()
    run.config["fields"]["hidden"] = 0.9
    note = found(run, NetworkSigma)["small-sigma-predicts-better"].note
    assert "members were trained with 0.9 hidden, and not with 0.5" in note


# Words


def test_words_tell_structure_before_and_after_and_what_others_find() -> None:
    lost = network(diverged=lambda m: m.sigma == 0.2)
    sigma = "\N{GREEK SMALL LETTER SIGMA}"
    lines = of_settings(lost)
    assert lines[0] == (
        f"learned, {sigma} 0.01: the nearest channel in the PE is of the same group for 95%, 95% interval 93 to 97% "
        "(before training 20%); held-out error 0.760 (hidden 0.5), 0.900 (hidden 0.9)."
    )
    assert lines[1] == f"learned, {sigma} 0.2: no member finished; all diverged."
    assert lines[3:] == [
        "The best linear predictor has a held-out error of 0.760 (hidden 0.5), 9.000 (hidden 0.9).",
        "The same by pairwise measures, without any model: the nearest channel is of the same group for 95% by "
        "correlation.",
        "These intervals are over 4 seeds, which share 2 worlds; claims and figures average them.",
        "4 of 12 members diverged and are left out of the means.",
    ]


def test_figures_are_drawn_whatever_is_missing() -> None:
    study = NetworkSigma.at("paper", sigmas=(0.01, 0.2, 2.0), seeds=SEEDS)
    names = [shown.name for shown in page_of(study, network()).figures()]
    assert names == ["structure", "error", "curves", "similarity"]
    assert [shown.name for shown in page_of(study, network(baselines={}, analyses={})).figures()] == names[1:]
