"""Effects behind the claims on masked prediction, computed once more by hand, planted and absent; and verdicts."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.made_up import student
from helpers.made_up_masked import LABELS, made_up

from placecode.experiments.base import Experiment
from placecode.experiments.channels import claims
from placecode.experiments.channels.brain import BrainSigma
from placecode.experiments.channels.network import NetworkSigma
from placecode.experiments.channels.synergy import SynergySigma
from placecode.experiments.claims import NotInRun
from placecode.experiments.reading import analysis_gain, analysis_values, baseline, interval_at_sigma, sigma_difference
from placecode.models.member import Member
from placecode.runs.read import Run

GROUPS, MIRROR = ("neighbor_agreement", "labels"), ("mirror_agreement", "partner")
SIGMAS, SEEDS, WORLDS = (0.01, 0.2, 0.5, 1.0, 2.0), (0, 1, 2, 3, 4, 11), 6
"""Every seed has a world of its own, the last one by its remainder."""
LINEAR = dict(enumerate((0.8, 0.7, 0.9, 0.75, 0.85, 0.6)))
FC = dict(enumerate((0.4, 0.6, 0.5, 0.45, 0.55, 0.3)))
SAME, SHIFTED = "hidden 0.5", "hidden 0.9"
CHANCE = 2 / 5
"""Two others of the same group among five."""
YES, NO, OPEN = "holds", "fails", "undecided"


class Noise:
    """A number for each member and purpose, always the same."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, purpose: str, member: Member) -> float:
        key = (self.seed, len(purpose), ord(purpose[0]), member.seed, round(1000 * (member.sigma or 0)))
        return float(np.random.default_rng(key).normal())


def noisy(effect: float, seed: int = 0, **changes: Any) -> Any:
    """A run of noise with an effect in it: from small to large sigmas structure falls, and errors grow, by so much."""
    noise = Noise(seed)

    def of(purpose: str, sign: int = 1, base: float = 0.5, spread: float = 0.1) -> Callable[[Member], float]:
        return lambda m: base + sign * effect * (m.sigma < 0.4) + spread * noise(purpose, m)

    settings: dict[str, Any] = {
        "errors": {SAME: of("error", -1, 0.8), SHIFTED: of("shifted error", -1, 0.9)},
        "analyses": {
            GROUPS: (lambda m: 0.5 + 0.1 * noise("start", m), of("groups")),
            ("modularity", "labels"): (lambda m: 0.0, of("modularity")),
        },
        "baselines": {
            ("linear", "test", SAME, "mse"): LINEAR,
            ("linear", "test", SHIFTED, "mse"): dict.fromkeys(range(WORLDS), 99.0),
            ("ridge", "test", SAME, "mse"): dict.fromkeys(range(WORLDS), 99.0),
            ("fc", "analysis", "labels", "neighbor_agreement"): FC,
            ("fc", "analysis", "labels", "modularity"): dict.fromkeys(range(WORLDS), 99.0),
        },
        "worlds": WORLDS,
        "best_mse": {SAME: 0.45, SHIFTED: 99.0},
    }
    return made_up(NetworkSigma.from_scale("paper", sigmas=SIGMAS, seeds=SEEDS), **{**settings, **changes})


def errors(run: Any, condition: str, sigma: float) -> pd.Series:
    """By seed, of members that finished."""
    rows = run.metrics.merge(run.members[["member", "sigma", "seed", "state"]], on="member")
    rows = rows[(rows["condition"] == condition) & (rows["sigma"] == sigma) & (rows["state"] == "done")]
    return rows[(rows["split"] == "test") & (rows["step"] == 10)].set_index("seed")["value"]


def structure(run: Any, analysis: str, sigma: float, step: int = 10) -> pd.Series:
    """By seed, of members that finished."""
    rows = run.analysis.merge(run.members[["member", "sigma", "seed", "state"]], on="member")
    rows = rows[(rows["analysis"] == analysis) & (rows["sigma"] == sigma) & (rows["state"] == "done")]
    return rows[(rows["block"] == -1) & (rows["step"] == step)].set_index("seed")["value"]


# Effects by hand: name -> the effect as claims compute it, and its values by seed from the tables


def by_hand(run: Any) -> dict[str, tuple[Any, Any]]:
    small = pd.DataFrame({sigma: errors(run, SHIFTED, sigma) for sigma in (0.01, 0.2, 0.5)}).mean(axis=1)
    large = pd.DataFrame({sigma: errors(run, SHIFTED, sigma) for sigma in (1.0, 2.0)}).mean(axis=1)
    near, error = structure(run, "neighbor_agreement", 0.01), errors(run, SAME, 0.2)
    return {
        "structure at one sigma": (
            interval_at_sigma(run, analysis_values(run, *GROUPS), 0.2),
            structure(run, "neighbor_agreement", 0.2),
        ),
        "structure at two sigmas": (
            sigma_difference(run, analysis_values(run, "modularity", "labels"), 0.01, 2.0),
            structure(run, "modularity", 0.01) - structure(run, "modularity", 2.0),
        ),
        "gained": (
            interval_at_sigma(run, analysis_gain(run, *GROUPS), 0.01),
            near - structure(run, "neighbor_agreement", 0.01, 0),
        ),
        "error at two sigmas": (
            sigma_difference(run, claims.error(run, SAME), 0.01, 2.0),
            errors(run, SAME, 0.01) - errors(run, SAME, 2.0),
        ),
        "minus_baseline, error": (
            claims.minus_baseline("linear", ("mse", SAME), 0.2, run),
            pd.Series({seed: error[seed] - LINEAR[seed % 6] for seed in error.index}),
        ),
        "minus_baseline, structure": (
            claims.minus_baseline("fc", GROUPS, 0.01, run),
            pd.Series({seed: near[seed] - FC[seed % 6] for seed in near.index}),
        ),
        "beyond_best": (claims.excess_error(SAME, 0.2, run), error - 0.45),
        "best_sigma_is_small": (claims.best_sigma_is_small(SHIFTED, 0.5, run), small - large),
    }


EFFECTS = tuple(by_hand(noisy(0.0)))


@pytest.mark.parametrize("effect", [0.0, 0.6])
@pytest.mark.parametrize("name", EFFECTS)
def test_an_effect_is_that_of_the_tables(name: str, effect: float) -> None:
    for seed in range(3):
        run = noisy(effect, seed)
        effect_of_run, values = by_hand(run)[name]
        assert len(values.dropna()) == len(SEEDS)
        assert effect_of_run == pytest.approx(student(values))


@pytest.mark.parametrize("name", EFFECTS)
def test_seeds_that_diverged_are_left_out_with_their_partners(name: str) -> None:
    run = noisy(0.3, diverged=lambda m: (m.sigma, m.seed) in {(0.01, 0), (0.2, 1), (2.0, 2), (1.0, 2)})
    effect, values = by_hand(run)[name]
    assert len(values.dropna()) < len(SEEDS)
    assert effect == pytest.approx(student(values.dropna()))


@pytest.mark.parametrize("labels", [LABELS, [0, 0, 0, 0, 1, 1], [0, 0, 1, 1, -1, -1]])
def test_a_baseline_is_held_against_chance_over_worlds(labels: list[int]) -> None:
    chance = np.mean([(labels.count(label) - 1) / 5 for label in labels if label >= 0])
    run = noisy(0.0, labels=labels)
    assert claims.baseline_above_chance("fc", run) == pytest.approx(student(np.array([*FC.values()]) - chance))


def test_a_world_without_its_baseline_is_left_out() -> None:
    run = noisy(0.0, baselines={("linear", "test", SAME, "mse"): {0: 0.8, 2: 0.9, 5: 0.7}})
    values = errors(run, SAME, 0.2)
    gaps = [values[seed] - other for seed, other in ((0, 0.8), (2, 0.9), (11, 0.7))]
    assert claims.minus_baseline("linear", ("mse", SAME), 0.2, run) == pytest.approx(student(gaps))
    assert baseline(run, "linear", "mse", SAME, "").to_dict() == {0: 0.8, 2: 0.9, 5: 0.7}
    with pytest.raises(NotInRun, match=r"^the run has no mse of the baseline linear$"):
        baseline(run, "linear", "mse", SAME, "another data set")


def test_a_single_seed_has_an_effect_and_no_verdict() -> None:
    run = noisy(0.5, diverged=lambda m: m.seed > 0)
    for claim in claims.NETWORK:
        finding = claim.check(run)
        assert (finding.direction, finding.note) == (OPEN, "too few seeds for an interval")
        assert np.isfinite(finding.effect.mean)


@pytest.mark.parametrize(
    ("measure", "changes", "missing"),
    [
        (lambda run: interval_at_sigma(run, analysis_values(run, *MIRROR), 0.2), {}, "mirror_agreement (partner)"),
        (lambda run: sigma_difference(run, analysis_values(run, *GROUPS), 0.01, 3.0), {}, "sigma 3"),
        (
            lambda run: interval_at_sigma(run, analysis_gain(run, *GROUPS), 0.01),
            {"analyses": {}},
            "neighbor_agreement (labels)",
        ),
        (lambda run: sigma_difference(run, claims.error(run, "hidden 0.7"), 0.01, 2.0), {}, "hidden 0.7"),
        (partial(claims.minus_baseline, "trees", ("mse", SAME), 0.2), {}, "trees"),
        (partial(claims.baseline_above_chance, "fc"), {"baselines": {}}, "fc"),
        (partial(claims.excess_error, SAME, 0.2), {"best_mse": {}}, "least possible error"),
        (
            lambda run: sigma_difference(run, analysis_values(run, *GROUPS), 0.01, 2.0),
            {"diverged": lambda m: m.seed % 2 == (m.sigma == 2.0)},
            "no seed that finished",
        ),
        (
            lambda run: interval_at_sigma(run, analysis_values(run, *GROUPS), 0.2),
            {"diverged": lambda m: m.sigma == 0.2},
            "sigma 0.2",
        ),
    ],
)
def test_what_is_missing_is_said(measure: Any, changes: dict[str, Any], missing: str) -> None:
    with pytest.raises(NotInRun, match=re.escape(missing)):
        measure(noisy(0.3, **changes))


CLAIMS_BY_EXPERIMENT = {NetworkSigma: claims.NETWORK, SynergySigma: claims.SYNERGY, BrainSigma: claims.BRAIN}


def planted(kind: Any, right: bool) -> Any:
    """A run in which all that is claimed is so, or all of it is not."""
    experiment: Experiment = kind.from_scale("paper", sigmas=SIGMAS, seeds=SEEDS)
    noise = Noise(0)

    def of(small: float, large: float) -> Callable[[Member], float]:
        ends = (small, large) if right else (large, small)
        return lambda m: ends[m.sigma > 0.5] + 0.001 * noise("value", m)

    def level(value: float) -> Callable[[Member], float]:
        return lambda m: value + 0.001 * noise("start", m)

    worlds = range(1 if kind is BrainSigma else WORLDS)
    known = {"best_mse": {"hidden 0.3": 0.5}} if kind is SynergySigma else {}
    good, bad = (0.505, 1.0) if kind is SynergySigma else (0.50, 0.51 if right else 0.6)  # by far more than hardly
    conditions = ("hidden 0.3", "hidden 0.5") if kind is SynergySigma else (SAME, SHIFTED)
    pairwise = ("fc", "mutual information", "partial correlation")
    target, measure = ("partner", "mirror_agreement") if kind is BrainSigma else GROUPS[::-1]
    theirs = (CHANCE if right else 1.0) if kind is SynergySigma else (0.6 if right else 0.9)
    return made_up(
        experiment,
        dict.fromkeys(conditions, of(good, bad)),
        {
            **dict.fromkeys((GROUPS, MIRROR), (level(0.2), of(0.97, 0.02))),
            **dict.fromkeys((("modularity", "labels"), ("modularity", "best")), (level(0.0), of(0.5, 0.1))),
            ("fc_correlation", "fc"): (level(0.0), of(0.6, 0.1)),
        },
        {
            **{("linear", "test", condition, "mse"): dict.fromkeys(worlds, 0.55) for condition in conditions},
            **{(name, "analysis", target, measure): {w: theirs - w / 1e4 for w in worlds} for name in pairwise},
        },
        worlds=len(worlds),
        **known,
    )


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize(
    ("kind", "claim"), [(kind, claim) for kind in CLAIMS_BY_EXPERIMENT for claim in CLAIMS_BY_EXPERIMENT[kind]]
)
def test_verdicts_follow_what_was_planted(kind: Any, claim: Any, right: bool) -> None:
    finding = claim.check(planted(kind, right))
    assert (finding.direction, finding.note) == (YES if right else NO, "")


def test_every_claim_can_be_judged_on_a_run_on_networks(sigmas_run: Run) -> None:
    for claim in claims.NETWORK:
        finding = claim.check(sigmas_run)
        assert finding.note == "" and finding.direction in (YES, NO, OPEN)
        low, high = finding.effect.low, finding.effect.high
        assert low < finding.effect.mean < high or low == high
    near = sigmas_run.analysis.query("analysis == 'neighbor_agreement' and block == -1 and step == 4")
    near = near.merge(sigmas_run.members, on="member").query("sigma == 0.01")["value"]
    assert claims.NETWORK[0].check(sigmas_run).effect == pytest.approx(student(near), nan_ok=True)
