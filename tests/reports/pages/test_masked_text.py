"""Sentences on runs of masked prediction: every number is that of the tables."""

import re
from typing import Any

import pytest
from helpers.made_up_masked import STRANGE, made_up
from scipy import stats

from placecode.experiments import experiment_of
from placecode.experiments.channels.brain import BrainMask
from placecode.experiments.channels.network import NetworkNoise, NetworkSigma, NetworkSize
from placecode.experiments.channels.synergy import SynergyOptimizer, SynergySigma
from placecode.models.member import Member
from placecode.reports.pages.base import MAX_LEAD_SENTENCES, Page
from placecode.reports.pages.registry import page_of
from placecode.runs.read import Run

SIGMA = "\N{GREEK SMALL LETTER SIGMA}"
GROUPS = ("neighbor_agreement", "labels")
ERRORS = {"hidden 0.5": lambda member: 0.7, "hidden 0.9": lambda member: 0.9}


def sigma_run(groups: dict[float, list[float]], **changes: Any) -> Any:
    """Agreement after training by sigma, one for each seed; before training a tenth of it."""
    seeds = tuple(range(len(next(iter(groups.values())))))

    def after(member: Member) -> float:
        return groups[float(member.sigma or 0)][member.seed]

    settings: dict[str, Any] = {"errors": ERRORS, "analyses": {GROUPS: (lambda m: after(m) / 10, after)}}
    return made_up(NetworkSigma.from_scale("paper", sigmas=tuple(groups), seeds=seeds), **{**settings, **changes})


def page(run: Any) -> Page:
    return page_of(experiment_of(run), run)


def heads(lines: list[str]) -> list[str]:
    return [line.split(": ")[0] for line in lines]


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+\.?\d*", text)]


def test_every_number_of_a_sentence_is_that_of_the_tables(rates_run: Run) -> None:
    lines = page(rates_run).sentences()
    assert heads(lines)[:3] == [f"learned, {SIGMA} 0.2, learning rate {rate}" for rate in ("0.001", "0.1", "1e+30")]
    for line, rate in zip(lines[:2], (1e-3, 0.1), strict=True):
        members = rates_run.members.loc[rates_run.members["learning_rate"] == rate, "member"]
        assert len(members) == 2
        rows = rates_run.analysis[rates_run.analysis["member"].isin(members)]
        rows = rows.query("analysis == 'neighbor_agreement' and target == 'labels' and block == -1")
        before, after = (100 * rows.loc[rows["step"] == step, "value"] for step in (0, 4))
        bounds = stats.t.interval(0.95, 1, after.mean(), stats.sem(after))
        structure, errors = line.split(": ")[1].split("; ")
        shown = [float(number) for number in re.findall(r"(\d+)(?=%? to|%)", structure.replace("95% interval", ""))]
        assert shown == pytest.approx([after.mean(), max(bounds[0], 0), min(bounds[1], 100), before.mean()], abs=0.501)
        last = rates_run.metrics[rates_run.metrics["member"].isin(members)].query("split == 'test' and step == 4")
        means = last.groupby("condition")["value"].mean()
        assert numbers(errors) == pytest.approx([means["hidden 0.3"], 0.3, means["hidden 0.5"], 0.5], abs=0.000501)


def test_other_methods_are_means_over_worlds(rates_run: Run) -> None:
    linear, pairwise = page(rates_run).sentences()[3:5]
    table = rates_run.baselines
    errors = table[table["baseline"] == "linear"].query("split == 'test' and metric == 'mse'")
    means = errors.groupby("condition")["value"].mean()
    assert set(errors["world"]) == {0, 1} and "best linear predictor" in linear
    assert numbers(linear) == pytest.approx([means["hidden 0.3"], 0.3, means["hidden 0.5"], 0.5], abs=0.000501)
    near = table.query("metric == 'neighbor_agreement' and condition == 'labels'").groupby("baseline")["value"].mean()
    assert re.findall(r"by ([a-z ]+)", pairwise.split(" for ")[1]) == ["correlation", "partial correlation"]
    assert numbers(pairwise) == pytest.approx([100 * near["fc"], 100 * near["partial correlation"]], abs=0.501)


def test_members_that_really_diverged_are_named_and_counted(rates_run: Run) -> None:
    lines = page(rates_run).sentences()
    assert lines[2].startswith(f"learned, {SIGMA} 0.2, learning rate 1e+30: no member finished")
    assert lines[-1].startswith("2 of 6 members diverged") and "nan" not in " ".join(lines)


def level(member: Member) -> float:
    """An error that only members of one setting have."""
    sizes = {"nodes=25": 0.1, "nodes=50": 0.2, "noise=0.3": 0.3, "noise=1": 0.4, "": 0.0}
    kind = {"adam": 1, "adamw": 2, "sgd": 3}[member.optimizer]
    return kind + sizes[member.data] + member.mask_ratio / 100 + member.learning_rate + (member.sigma or 0) * 10


@pytest.mark.parametrize(
    ("experiment", "words"),
    [
        (NetworkSize.from_scale("quick", seeds=(0, 1)), lambda m: m.data.replace("=", " ")),
        (NetworkNoise.from_scale("quick", seeds=(0, 1)), lambda m: m.data.replace("=", " ")),
        (
            BrainMask.from_scale("quick", seeds=(0, 1), sigmas=(0.01, 2.0)),
            lambda m: f"{100 * m.mask_ratio:g}% hidden in training",
        ),
        (
            SynergyOptimizer.from_scale("quick", rates=(1e-3, 0.01)),
            lambda m: f"{m.optimizer}, learning rate {m.learning_rate:g}",
        ),
        (SynergyOptimizer.from_scale("quick", optimizers=("adam", "adamw")), lambda m: m.optimizer),
        (SynergySigma.from_scale("quick"), lambda m: ""),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_settings_are_named_by_what_differs_and_have_their_own_errors(experiment: Any, words: Any) -> None:
    texts = page(made_up(experiment, {"hidden 0.5": level}, {})).sentences()
    lines = [text.replace("optimizer ", "") for text in texts]
    wanted = {}
    for member in experiment.members():
        parts = ["learned", f"{SIGMA} {member.sigma:g}", *([words(member)] if words(member) else [])]
        wanted[", ".join(parts)] = f"held-out error {level(member):.3f} (hidden 0.5)."
    assert len(set(wanted.values())) == len(wanted) > 1 and dict(line.split(": ") for line in lines) == wanted
    assert heads(lines) == list(wanted)


def test_a_lost_seed_is_left_out_of_means_and_interval() -> None:
    errors = {"hidden 0.5": lambda m: 99.0 if m.seed == 2 and m.sigma == 0.01 else 0.6}
    values = {0.01: [0.4, 0.6, 0.9], 2.0: [0.2, 0.3, 0.4]}
    run = sigma_run(values, errors=errors, diverged=lambda m: m.sigma == 0.01 and m.seed == 2)
    small, large, lost = page(run).sentences()
    assert "for 50%, 95% interval 0 to 100% (before training 5%)" in small and "0.600 (hidden 0.5)" in small
    low, high = stats.t.interval(0.95, 2, 30, stats.sem([20, 30, 40]))
    assert f"for 30%, 95% interval {low:.0f} to {high:.0f}% (before training 3%)" in large
    assert lost.startswith("1 of 6 members diverged")


def test_a_single_seed_has_no_interval_and_an_undefined_value_is_left_out() -> None:
    (line,) = page(sigma_run({0.01: [0.5]})).sentences()
    assert "for 50% (before training 5%)" in line and "interval" not in line
    assert f"{STRANGE:.3f}" not in line and f"{100 * STRANGE:.0f}%" not in line  # of other steps, blocks and splits
    (line,) = page(sigma_run({0.01: [0.4, float("nan"), 0.6]})).sentences()
    assert "for 50%, 95% interval 0 to 100%" in line and "nan" not in line


def test_many_settings_are_summarized_by_the_lowest_and_the_highest() -> None:
    """With the setting of either end, and never only the best."""
    groups = {0.01: [0.5, 0.7], 0.1: [0.9, 0.9], 0.2: [0.8, 0.8], 0.5: [0.4, 0.4], 1.0: [0.2, 0.4], 2.0: [0.1, 0.1]}
    run = sigma_run(groups, errors={"hidden 0.5": lambda member: 0.5 + member.sigma / 10})
    shares, error = page(run).lead()
    assert len(page(run).sentences()) > MAX_LEAD_SENTENCES
    assert f"10% (learned, {SIGMA} 2) to 90% (learned, {SIGMA} 0.1)" in shares
    assert f"0.501 (learned, {SIGMA} 0.01) to 0.700 (learned, {SIGMA} 2)" in error


@pytest.mark.parametrize(
    ("gains", "kind", "count"),
    [
        ({0.01: [0.5, 0.51, 0.52], 1.0: [0.4, 0.41, 0.42]}, "found", 2),
        ({0.01: [0.5, 0.51, 0.52], 1.0: [-0.5, 0.5, 0.01]}, "found in part", 1),
        ({0.01: [-0.5, 0.5, 0.01], 1.0: [-0.5, -0.51, -0.52]}, "not found", 0),
        ({0.01: [0.5], 1.0: [0.5]}, "unsure", 0),  # one seed has no interval
    ],
)
def test_a_verdict_counts_the_gains_that_are_sure(gains: dict[float, list[float]], kind: str, count: int) -> None:
    of: Any = {GROUPS: (lambda m: 0.3, lambda m: 0.3 + gains[float(m.sigma or 0)][m.seed])}
    (verdict,) = page(sigma_run(gains, analyses=of)).verdicts()
    assert verdict.kind == kind and f"in {count} of 2 settings" in verdict.sentence


def test_seeds_of_one_world_count_once() -> None:
    """Three seeds in each of two worlds, of which one gains much and one little: two values, and no sure gain."""
    gains = [0.9, 0.1, 0.9, 0.1, 0.9, 0.1]
    of: Any = {GROUPS: (lambda m: 0.0, lambda m: gains[m.seed])}
    kinds = [page(sigma_run({0.2: gains}, analyses=of, **more)).verdicts()[0].kind for more in ({}, {"worlds": 2})]
    assert kinds == ["found", "not found"]
    assert page(sigma_run({0.2: [0.5, 0.6]}, analyses={})).verdicts() == []  # nothing was measured
