"""Claims on masked prediction where several seeds share a world: seeds of one world are averaged first.

Every claim on runs with one seed per world is in tests/reports/pages/test_masked_verdicts.py.
"""

from typing import Any

import pytest
from helpers.made_up import student
from helpers.made_up_masked import made_up

from placecode.experiments.channels.network import NetworkSigma

GROUPS = ("neighbor_agreement", "labels")
SEEDS, NOISE = (0, 1, 2, 3), (0.00, 0.01, -0.02, 0.01)
LINEAR, FC = {0: 0.75, 1: 0.77}, {0: 0.9, 1: 1.0}
LEVELS = {0.01: 0.95, 0.2: 0.7, 2.0: 0.2}
"""Agreement of neighbours by sigma."""


def network(**changes: Any) -> Any:
    """Return a run with four seeds in two worlds."""
    fields: dict[str, Any] = {
        "errors": {
            "hidden 0.5": lambda m: 0.76 + m.sigma / 100 + NOISE[m.seed] * m.sigma,
            "hidden 0.9": lambda m: 0.90 - m.sigma / 50 + NOISE[m.seed] / 9,
        },
        "analyses": {
            GROUPS: (lambda m: 0.2 - NOISE[m.seed], lambda m: LEVELS[m.sigma] + NOISE[m.seed]),
            ("modularity", "labels"): (lambda m: 0.0, lambda m: 0.5 - m.sigma / 10 + NOISE[m.seed] * m.sigma),
        },
        "baselines": {
            ("linear", "test", "hidden 0.5", "mse"): LINEAR,
            ("linear", "test", "hidden 0.9", "mse"): {0: 9.0, 1: 9.0},
            ("fc", "analysis", "labels", "neighbor_agreement"): FC,
        },
    }
    study = NetworkSigma.at("paper", sigmas=tuple(LEVELS), seeds=SEEDS)
    return made_up(study, **{**fields, "worlds": 2, **changes})


def findings(run: Any) -> dict[str, Any]:
    return {claim.id: claim.check(run) for claim in NetworkSigma.claims}


def test_seeds_of_a_world_are_averaged_and_compared_with_its_baselines() -> None:
    by_seed = {
        "small-sigma-shows-clusters": [0.95 + noise for noise in NOISE],
        "large-sigma-shows-none": [0.2 + noise for noise in NOISE],
        "clusters-fall-with-sigma": [0.75] * 4,  # the noise of a seed cancels
        "clusters-are-learned": [0.75 + 2 * noise for noise in NOISE],
        "error-hardly-moves": [(0.01 - 2.0) * (0.01 + noise) for noise in NOISE],
        "small-sigma-predicts-better": [(0.105 - 2.0) * (0.01 + noise) for noise in NOISE],
        "small-sigma-predicts-better-shifted": [(2.0 - 0.105) / 50] * 4,
        "beats-linear": [0.76 + 0.2 * (0.01 + noise) - LINEAR[seed % 2] for seed, noise in enumerate(NOISE)],
        "beats-correlation": [0.95 + noise - FC[seed % 2] for seed, noise in enumerate(NOISE)],
    }
    by_id = findings(network())
    for id, values in by_seed.items():
        worlds = [(values[world] + values[world + 2]) / 2 for world in (0, 1)]
        effect = student(worlds) if max(worlds) - min(worlds) > 1e-12 else (worlds[0],) * 3
        assert by_id[id].found == pytest.approx(effect), id


def test_claims_on_what_a_run_lacks_are_undecided() -> None:
    by_id = findings(network(baselines={}))
    assert (by_id["beats-linear"].direction, by_id["small-sigma-shows-clusters"].direction) == ("undecided", "holds")
    run = network()
    run.config["fields"]["hidden"] = 0.9  # errors with 0.5 hidden are not those of training
    finding = findings(run)["small-sigma-predicts-better"]
    assert finding.direction == "undecided" and "trained with 0.9 hidden" in finding.note
