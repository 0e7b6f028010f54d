"""What studies of masked prediction say of a run in sentences: every number is that of the tables."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.made_up_masked import STRANGE, made_up
from scipy import stats

from placecode.experiments.channels.brain import BrainMask, BrainSigma
from placecode.experiments.channels.network import NetworkEncodings, NetworkNoise, NetworkSigma, NetworkSize
from placecode.experiments.channels.synergy import SynergyOptimizer, SynergySigma, SynergySize
from placecode.models.member import Member
from placecode.reports.pages.masked_words import FEW, in_short, of_settings, verdicts
from placecode.runs.read import Run, no_baselines

SIGMA = "\N{GREEK SMALL LETTER SIGMA}"
GROUPS, MIRROR = ("neighbor_agreement", "labels"), ("mirror_agreement", "partner")
DIVERGED = "no member finished; all diverged."
ERRORS = {"hidden 0.5": lambda member: 0.7, "hidden 0.9": lambda member: 0.9}


def sigma_run(groups: dict[float, list[float]], **changes: Any) -> Any:
    """Agreement after training by sigma, one for each seed; before training a tenth of it."""
    seeds = tuple(range(len(next(iter(groups.values())))))

    def after(member: Member) -> float:
        return groups[float(member.sigma or 0)][member.seed]

    given: dict[str, Any] = {"errors": ERRORS, "analyses": {GROUPS: (lambda m: after(m) / 10, after)}}
    return made_up(NetworkSigma.at("paper", sigmas=tuple(groups), seeds=seeds), **{**given, **changes})


def heads(lines: list[str]) -> list[str]:
    return [line.split(": ")[0] for line in lines]


def numbers(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"\d+\.?\d*", text)]


def of_data(*rows: tuple[str, int, str, str, str, str, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(no_baselines().columns))


# Against the tables of a run


def test_every_number_of_a_sentence_is_that_of_the_tables(rates_run: Run) -> None:
    lines = of_settings(rates_run)
    assert heads(lines)[:3] == [f"learned, {SIGMA} 0.2, learning rate {rate}" for rate in ("0.001", "0.1", "1e+30")]
    for line, rate in zip(lines[:2], (1e-3, 0.1), strict=True):
        own = rates_run.members.loc[rates_run.members["learning_rate"] == rate, "member"]
        assert len(own) == 2
        rows = rates_run.analysis[rates_run.analysis["member"].isin(own)]
        rows = rows.query("analysis == 'neighbor_agreement' and target == 'labels' and block == -1")
        before, after = (100 * rows.loc[rows["step"] == step, "value"] for step in (0, 4))
        bounds = stats.t.interval(0.95, 1, after.mean(), stats.sem(after))
        structure, errors = line.split(": ")[1].split("; ")
        told = [float(each) for each in re.findall(r"(\d+)(?=%? to|%)", structure.replace("95% interval", ""))]
        assert told == pytest.approx([after.mean(), max(bounds[0], 0), min(bounds[1], 100), before.mean()], abs=0.501)
        last = rates_run.metrics[rates_run.metrics["member"].isin(own)].query("split == 'test' and step == 4")
        means = last.groupby("condition")["value"].mean()
        assert set(means.index) == {"hidden 0.3", "hidden 0.5"}
        assert numbers(errors) == pytest.approx([means["hidden 0.3"], 0.3, means["hidden 0.5"], 0.5], abs=0.000501)


def test_others_are_told_by_their_mean_over_worlds(rates_run: Run) -> None:
    linear, pairwise = of_settings(rates_run)[3:5]
    table = rates_run.baselines
    errors = table[table["baseline"] == "linear"].query("split == 'test' and metric == 'mse'")
    means = errors.groupby("condition")["value"].mean()
    assert set(errors["world"]) == {0, 1}
    assert linear.startswith("The best linear predictor has a held-out error of ")
    assert numbers(linear) == pytest.approx([means["hidden 0.3"], 0.3, means["hidden 0.5"], 0.5], abs=0.000501)
    near = table.query("metric == 'neighbor_agreement' and condition == 'labels'").groupby("baseline")["value"].mean()
    assert re.findall(r"by ([a-z ]+)", pairwise.split(" for ")[1]) == ["correlation", "partial correlation"]
    assert numbers(pairwise) == pytest.approx([100 * near["fc"], 100 * near["partial correlation"]], abs=0.501)


def test_members_that_really_diverged_are_said_and_counted(rates_run: Run) -> None:
    lost = rates_run.members[rates_run.members["state"] == "diverged"]
    assert set(lost["learning_rate"]) == {1e30} and len(lost) == 2
    lines = of_settings(rates_run)
    assert lines[2] == f"learned, {SIGMA} 0.2, learning rate 1e+30: {DIVERGED}"
    assert lines[-1] == "2 of 6 members diverged and are left out of the means."
    assert "nan" not in " ".join(lines)


# What tells members apart


def level(member: Member) -> float:
    """An error that only members of one setting have."""
    sizes = {"nodes=25": 0.1, "nodes=50": 0.2, "noise=0.3": 0.3, "noise=1": 0.4, "": 0.0}
    kind = {"adam": 1, "adamw": 2, "sgd": 3}[member.optimizer]
    return kind + sizes[member.data] + member.hidden / 100 + member.learning_rate + (member.sigma or 0) * 10


@pytest.mark.parametrize(
    ("study", "words"),
    [
        (NetworkSize.at("quick", seeds=(0, 1)), lambda m: m.data.replace("=", " ")),
        (NetworkNoise.at("quick", seeds=(0, 1)), lambda m: m.data.replace("=", " ")),
        (BrainMask.at("quick", seeds=(0, 1), sigmas=(0.01, 2.0)), lambda m: f"{100 * m.hidden:g}% hidden in training"),
        (
            SynergyOptimizer.at("quick", rates=(1e-3, 0.01)),
            lambda m: f"{m.optimizer}, learning rate {m.learning_rate:g}",
        ),
        (SynergyOptimizer.at("quick", optimizers=("adam", "adamw")), lambda m: m.optimizer),
        (SynergySigma.at("quick"), lambda m: ""),
    ],
    ids=lambda given: getattr(given, "name", ""),
)
def test_settings_are_named_by_what_differs_and_have_their_own_errors(study: Any, words: Any) -> None:
    lines = [line.replace("optimizer ", "") for line in of_settings(made_up(study, {"hidden 0.5": level}, {}))]
    wanted = {}
    for member in study.members():
        parts = ["learned", f"{SIGMA} {member.sigma:g}", *([words(member)] if words(member) else [])]
        wanted[", ".join(parts)] = f"held-out error {level(member):.3f} (hidden 0.5)."
    assert len(set(wanted.values())) == len(wanted) > 1
    assert dict(line.split(": ") for line in lines) == wanted
    assert heads(lines) == list(wanted)


def test_encodings_have_their_names_and_what_has_no_pe_its_error_alone() -> None:
    study = NetworkEncodings.at("paper", encodings=("learned:sigma=0.01", "none", "rotary:fraction=0.5"), seeds=(0, 1))
    run = made_up(study, ERRORS, {GROUPS: (lambda m: 0.2, lambda m: 0.6)})
    without = run.members.loc[run.members["encoding"] != "learned", "member"]
    run.analysis = run.analysis[~run.analysis["member"].isin(without)]
    errors = "held-out error 0.700 (hidden 0.5), 0.900 (hidden 0.9)."
    assert of_settings(run) == [
        f"learned, {SIGMA} 0.01: the nearest channel in the PE is of the same group for 60%, 95% interval 60 to 60% "
        f"(before training 20%); {errors}",
        f"none: {errors}",
        f"rotary, fraction 0.5: {errors}",
    ]


# What is left out


def test_a_lost_seed_is_left_out_of_means_and_interval() -> None:
    run = sigma_run({0.01: [0.4, 0.6, 0.9], 2.0: [0.2, 0.3, 0.4]}, diverged=lambda m: m.sigma == 0.01 and m.seed == 2)
    bounds = stats.t.interval(0.95, 1, 50, stats.sem([40, 60]))
    lines = of_settings(run)
    assert bounds[0] < 0 and bounds[1] > 100  # no share is
    assert "for 50%, 95% interval 0 to 100% (before training 5%)" in lines[0]
    assert lines[-1] == "1 of 6 members diverged and are left out of the means."
    low, high = stats.t.interval(0.95, 2, 30, stats.sem([20, 30, 40]))
    assert f"for 30%, 95% interval {low:.0f} to {high:.0f}% (before training 3%)" in lines[1]


def test_errors_of_lost_members_are_in_no_mean() -> None:
    errors = {"hidden 0.5": lambda m: 99.0 if m.seed == 1 else 0.5 + m.seed / 10}
    lines = of_settings(sigma_run({0.01: [0.5] * 3}, errors=errors, diverged=lambda m: m.seed == 1))
    assert lines[0].endswith("held-out error 0.600 (hidden 0.5).")


def test_a_single_seed_has_no_interval() -> None:
    (line,) = of_settings(sigma_run({0.01: [0.5]}))
    assert line == (
        f"learned, {SIGMA} 0.01: the nearest channel in the PE is of the same group for 50% (before training 5%); "
        "held-out error 0.700 (hidden 0.5), 0.900 (hidden 0.9)."
    )


def test_a_measure_that_is_not_defined_for_a_member_does_not_spoil_the_others() -> None:
    (line,) = of_settings(sigma_run({0.01: [0.4, float("nan"), 0.6]}))
    assert "for 50%, 95% interval 0 to 100%" in line and "nan" not in line


def test_other_steps_blocks_and_splits_are_never_told() -> None:
    text = " ".join(of_settings(sigma_run({0.01: [0.5, 0.7], 2.0: [0.2, 0.3]})))
    assert f"{STRANGE:.3f}" not in text and f"{100 * STRANGE:.0f}%" not in text


# Runs that know less, and others beside them


def test_without_labels_mirror_regions_are_told_and_without_either_the_errors() -> None:
    study = BrainSigma.at("paper", sigmas=(0.01,), seeds=(0, 1))
    mirrors = {MIRROR: (lambda m: 0.01, lambda m: 0.4)}
    (line,) = of_settings(made_up(study, ERRORS, mirrors, labels=None))
    errors = "held-out error 0.700 (hidden 0.5), 0.900 (hidden 0.9)."
    assert line == (
        f"learned, {SIGMA} 0.01: the nearest region in the PE is the mirror region for 40%, 95% interval 40 to 40% "
        f"(before training 1%); {errors}"
    )
    assert of_settings(made_up(study, ERRORS, {}, labels=None)) == [f"learned, {SIGMA} 0.01: {errors}"]
    both = of_settings(made_up(study, ERRORS, {**mirrors, GROUPS: (lambda m: 0.2, lambda m: 0.3)}))[0]
    assert both.index("of the same group for 30%") < both.index("the mirror region for 40%") < both.index(errors)


def test_without_baselines_nothing_is_said_of_others() -> None:
    assert len(of_settings(sigma_run({0.01: [0.5, 0.7], 2.0: [0.2, 0.3]}))) == 2


def test_only_the_linear_predictor_and_pairwise_measures_are_told() -> None:
    run = sigma_run({0.01: [0.5, 0.7]})
    run.baselines = of_data(
        *(("", world, "trees", "test", "hidden 0.5", "mse", STRANGE) for world in (0, 1)),
        ("", 0, "spectral", "analysis", "labels", "ari", STRANGE),
        ("", 0, "mds of fc", "analysis", "labels", "neighbor_agreement", STRANGE),
        ("", 0, "fc", "analysis", "labels", "modularity", STRANGE),
        ("", 0, "fc", "analysis", "best", "neighbor_agreement", STRANGE),
    )
    assert len(of_settings(run)) == 1
    run.baselines = of_data(("", 0, "mutual information", "analysis", "partner", "mirror_agreement", 0.25))
    assert of_settings(run)[1:] == [
        "The same by pairwise measures, without any model: the nearest region is the mirror region for 25% by mutual "
        "information."
    ]


def test_several_data_sets_have_baselines_of_their_own() -> None:
    run = made_up(NetworkSize.at("quick", seeds=(0, 1)), ERRORS, {})
    rng = np.random.default_rng(0)
    names, conditions = ("nodes=25", "nodes=50"), ("hidden 0.5", "hidden 0.9")
    run.baselines = of_data(
        *((n, w, "linear", "test", c, "mse", float(rng.random())) for n in names for w in (0, 1) for c in conditions),
        *((n, w, "fc", "analysis", *GROUPS[::-1], float(rng.random())) for n in names for w in (0, 1)),
    )
    lines = of_settings(run)[4:]
    wanted = []
    for name in names:
        here = run.baselines[run.baselines["data"] == name].groupby(["baseline", "condition"])["value"].mean()
        errors = ", ".join(f"{here['linear', each]:.3f} ({each})" for each in conditions)
        wanted += [
            f"With {name.replace('=', ' ')}, the best linear predictor has a held-out error of {errors}.",
            f"With {name.replace('=', ' ')}, the same by pairwise measures, without any model: the nearest channel is "
            f"of the same group for {100 * here['fc', 'labels']:.0f}% by correlation.",
        ]
    assert lines == wanted
    assert len(set(lines)) == 4


def test_seeds_that_share_worlds_are_told() -> None:
    run = sigma_run({0.01: [0.5, 0.6, 0.7]})
    for worlds, told in ((1, False), (2, True), (3, False)):
        run.config["shape"]["worlds"] = worlds
        text = " ".join(of_settings(run))
        assert ("over 3 seeds, which share 2 worlds" in text) == told


# In short


def test_few_sentences_are_not_shortened() -> None:
    run = sigma_run({0.01: [0.5, 0.7], 1.0: [0.2, 0.4]})
    assert in_short(run) == of_settings(run)


def test_many_settings_are_told_from_the_least_to_the_most() -> None:
    """With the setting of either end, and never only the best."""
    groups = {0.01: [0.5, 0.7], 0.1: [0.9, 0.9], 0.2: [0.8, 0.8], 0.5: [0.4, 0.4], 1.0: [0.2, 0.4], 2.0: [0.1, 0.1]}
    errors = {"hidden 0.5": lambda member: 0.5 + member.sigma / 10}
    run = sigma_run(groups, errors=errors, diverged=lambda member: member.sigma == 2.0 and member.seed == 0)
    linear = [("", world, "linear", "test", "hidden 0.5", "mse", 0.61 + world / 100) for world in (0, 1)]
    run.baselines = of_data(*linear)
    shares, error, lost = in_short(run)
    assert len(of_settings(run)) > FEW
    assert shares == (
        f"Over 6 settings, the nearest channel in the PE is of the same group for 10% (learned, {SIGMA} 2) to 90% "
        f"(learned, {SIGMA} 0.1); before training, for 1 to 9%."
    )
    assert error == (
        f"The held-out error (hidden 0.5) goes from 0.501 (learned, {SIGMA} 0.01) to 0.700 (learned, {SIGMA} 2); of "
        "the best linear predictor, 0.615."
    )
    assert lost == "1 of 12 members diverged and are left out of the means."


def test_what_all_settings_share_is_left_out_in_short() -> None:
    run = made_up(SynergySize.at("paper"), ERRORS, {GROUPS: (lambda m: 0.2, lambda m: 0.6)})
    assert all(line.startswith(f"learned, {SIGMA} 0.2, ") for line in of_settings(run))
    short = in_short(run)
    assert not any("learned" in line for line in short) and "(groups 5, samples 10,000)" in short[0]


# Verdicts


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
    (found,) = verdicts(sigma_run(gains, analyses=of))
    assert found.kind == kind
    assert f"in {count} of 2 settings" in found.sentence


def test_seeds_of_one_world_count_once() -> None:
    """Three seeds in each of two worlds, of which one gains much and one little: two values, and no sure gain."""
    gains = [0.9, 0.1, 0.9, 0.1, 0.9, 0.1]
    of: Any = {GROUPS: (lambda m: 0.0, lambda m: gains[m.seed])}
    kinds = [verdicts(sigma_run({0.2: gains}, analyses=of, **more))[0].kind for more in ({}, {"worlds": 2})]
    assert kinds == ["found", "not found"]


def test_nothing_is_said_of_what_was_not_measured() -> None:
    assert verdicts(sigma_run({0.2: [0.5, 0.6]}, analyses={})) == []
