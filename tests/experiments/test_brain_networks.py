"""Claims on known networks and preprocessing, on made-up runs with planted effects, and the figures of both."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.made_up import student
from helpers.made_up_masked import made_up
from helpers.refusal import refused

from placecode.experiments.channels import brain_networks
from placecode.experiments.channels.brain import VARIANTS, BrainPreprocessing
from placecode.experiments.claims import FAILS, HOLDS, UNDECIDED
from placecode.models.member import Member
from placecode.reports.figures import SIGMA
from placecode.reports.pages.brain import variant_figures

PARTITION = {
    **{"labels": [0, 0, 1, 1, -1, -1], "networks": ["a", "b"], "labelled": 4},
    **{"median_distance": 3.0, "largest_distance": 7.5, "max_distance": 10.0},
}


def preprocessed(end: Callable[[Member], float], **fields: Any) -> Any:
    """Return a run of brain-preprocessing with five splits of the people, or three without two of the people."""
    experiment = BrainPreprocessing.from_scale("paper", **fields)
    measures = dict.fromkeys(brain_networks.VARIANT_MEASURES, (lambda member: 0.0, end))
    names = list(experiment.data_sets())
    baselines = {("fc", "analysis", "yeo7", "modularity"): {0: 0.1, 1: 0.3}}
    run = made_up(experiment, {"hidden 0.5": lambda member: 0.8}, measures, baselines, worlds=5)
    part = {"partitions": {"yeo7": PARTITION, "cole-anticevic": PARTITION}}
    run.config["task"] = {"task": "brain", "parts": dict.fromkeys(names, part)}
    run.config["shapes"] = {name: {"worlds": 3 if "left out" in name else 5, "positions": None} for name in names}
    run.baselines["data"] = names[0]
    return run


def higher_when_small(member: Member) -> float:
    return (0.5 if member.sigma == 0.01 else 0.1) + 0.02 * member.seed * (member.sigma == 0.01)


def test_the_experiment_crosses_variants_sigmas_and_seeds() -> None:
    experiment = BrainPreprocessing.from_scale("paper")
    assert len(experiment.members()) == 6 * 4 * 5 and experiment.variants == VARIANTS
    assert len({member.data for member in experiment.members()}) == 6
    data = experiment.data_sets()
    assert data["all three"] == {"detrend": True, "low": 0.01, "high": 0.1, "global_signal": True}
    assert data["no preprocessing"] == {}
    assert data["NAP_001 and NAP_013 left out"] == {"exclude": ("NAP_001", "NAP_013")}
    assert refused(BrainPreprocessing.from_scale, "paper", variants=("smooth",)).name == "variants"
    assert refused(BrainPreprocessing.from_scale, "paper", band=(0.1,)).name == "band"


def test_a_difference_is_over_splits_of_the_people() -> None:
    run = preprocessed(higher_when_small)
    difference = brain_networks.sigma_effect_in_variant(run, "no preprocessing", ("modularity", "yeo7"))
    assert tuple(difference) == pytest.approx(student([0.4 + 0.02 * seed for seed in range(5)]))
    few = brain_networks.sigma_effect_in_variant(run, "NAP_001 and NAP_013 left out", ("modularity", "yeo7"))
    assert tuple(few) == pytest.approx(student([0.4 + 0.02 * seed for seed in (1.5, 2.5, 2)]))  # 0 and 3, 1 and 4, 2


def test_a_claim_holds_only_if_every_variant_does() -> None:
    good = preprocessed(higher_when_small)
    bad = preprocessed(lambda member: higher_when_small(member) * (-1 if member.data == "detrending" else 1))
    for claim in brain_networks.CLAIMS:
        assert claim.check(good).direction == HOLDS
        assert claim.check(bad).direction == FAILS
    (shown,) = variant_figures(good)
    marks = {container.get_label(): container.lines[0].get_xdata() for container in shown.figure.axes[0].containers}
    np.testing.assert_allclose(marks[f"{SIGMA} = 0.01"], [0.54] * 6)
    np.testing.assert_allclose(marks["functional connectivity"], [0.2])


def test_noise_and_a_missing_sigma_are_undecided() -> None:
    rng = np.random.default_rng(0)
    noise = {member: rng.normal() for member in BrainPreprocessing.from_scale("paper").members()}
    run = preprocessed(lambda member: noise[member])
    assert {claim.check(run).direction for claim in brain_networks.CLAIMS} == {UNDECIDED}
    less = preprocessed(higher_when_small, sigmas=(0.1, 2.0))
    for claim in brain_networks.CLAIMS:
        assert claim.check(less).note == "the run has no finished members with sigma 0.01 and no preprocessing"
