"""Experiments of masked prediction: settings, worlds and baselines."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.refusal import refused

from placecode.cli import main
from placecode.execution import local
from placecode.execution.settings import ExecutionSettings
from placecode.experiments import experiment_of
from placecode.experiments.channels.network import NetworkSigma
from placecode.experiments.channels.synergy import SynergyOptimizer, SynergySigma, SynergySize
from placecode.reports.pages.masked_text import with_settings
from placecode.runs.read import Run

MODEL: dict[str, Any] = {"width": 8, "layers": 1, "batch": 8, "seeds": (0, 1), "steps": 3, "evaluations": 2}
TINY = {
    NetworkSigma: {**MODEL, "sigmas": (0.1, 2.0), "nodes": 10, "clusters": 2, "train": 300, "test": 30},
    SynergySigma: {**MODEL, "sigmas": (0.1, 2.0), "groups": 2, "train": 300, "test": 30},
}


def test_the_gain_of_a_network_is_not_that_of_the_outputs() -> None:
    experiment = NetworkSigma.from_scale("quick", **TINY[NetworkSigma], gain=1.1, output_gain=0.5)
    assert {member.output_gain for member in experiment.members()} == {0.5}
    assert experiment.task().describe()["gain"] == 1.1


def test_the_world_of_a_seed_does_not_depend_on_other_seeds(tmp_path: Path) -> None:
    few = {**TINY[NetworkSigma], "sigmas": (0.1,), "baseline_names": ("linear",)}
    experiments = [NetworkSigma.from_scale("quick", **{**few, "seeds": seeds}) for seeds in ((1,), (0, 1))]
    on_cpu = ExecutionSettings("cpu")
    one, both = (local.execute(e, tmp_path / str(e.seeds), execution=on_cpu) for e in experiments)

    def errors(run: Run, seed: int) -> np.ndarray:
        number = run.members.loc[run.members["seed"] == seed, "member"].item()
        return run.metrics.loc[run.metrics["member"] == number, "value"].to_numpy()

    assert errors(one, 1) == pytest.approx(errors(both, 1), abs=1e-5)
    assert abs(errors(both, 0) - errors(both, 1)).max() > 1e-3


TWO_WITH = "at least two, with the fraction hidden in training"


@pytest.mark.parametrize(
    ("fields", "name", "rule"),
    [
        ({"steps": 0}, "steps", "a whole number of at least 1"),
        ({"baseline_names": ("tree",)}, "baseline_names", "one of linear, ridge"),
        ({"seeds": ()}, "seeds", "at least one"),
        ({"eval_mask_ratios": (0.9,)}, "eval_mask_ratios", f"{TWO_WITH} (0.5) among them"),
        ({"mask_ratio": 0.15}, "eval_mask_ratios", f"{TWO_WITH} (0.15) among them"),
    ],
)
def test_bad_settings_are_refused(fields: dict[str, Any], name: str, rule: str) -> None:
    error = refused(NetworkSigma.from_scale, "quick", **fields)
    assert error.name == name and error.allowed.startswith(rule)


def test_ramps_are_swept_and_change_training(tmp_path: Path) -> None:
    """The number of hidden channels rises to half of six over all four steps."""
    options = "--seeds 2 --group-counts 2, --samples 300, --test 30 --steps 4 --layers 1 --widths 8, --batches 8, "
    words = (options + "--mask-ratios 0.5, --baseline-names linear, --device cpu").split()
    assert main(["run", "synergy-size", *words, "--ramps", "0,4", "--out", str(tmp_path / "run")]) == 0
    run = Run(tmp_path / "run")
    assert run.members[["ramp", "seed"]].to_numpy().tolist() == [[0, 0], [0, 1], [4, 0], [4, 1]]
    assert experiment_of(run).fields()["ramps"] == [0, 4]
    assert set(with_settings(run)["setting"]) == {"ramp 0", "ramp 4"}
    for seed in (0, 1):
        plain, ramped = (run.array(f"pe_end/{number}") for number in (seed, 2 + seed))
        assert np.array_equal(run.array(f"pe_start/{seed}"), run.array(f"pe_start/{2 + seed}"))
        assert not np.array_equal(plain, ramped)
    for ramps in ((5, 5), (0, -5), (0, 3001)):  # equal, negative, longer than the training
        assert refused(SynergySize.from_scale, "quick", ramps=ramps).name == "ramps"


def test_optimizers_have_their_learning_rate_and_weight_decay() -> None:
    members = SynergyOptimizer.from_scale("quick", optimizers=("adam", "adamw", "sgd"), rates=(2e-3,)).members()
    optimizers = {(member.optimizer, member.learning_rate, member.weight_decay) for member in members}
    assert optimizers == {("adam", 2e-3, 0.0), ("adamw", 2e-3, 0.01), ("sgd", 0.02, 0.0)}
    decayed = SynergyOptimizer.from_scale("quick", optimizers=("adam", "adamw"), weight_decay=0.1).members()
    assert {member.weight_decay for member in decayed} == {0.1}


def test_seeds_have_different_worlds_and_no_more_than_needed() -> None:
    assert NetworkSigma.from_scale("quick", seeds=(3, 7)).worlds == 8  # a seed's world is the same whoever is beside it
    far = NetworkSigma.from_scale("quick", seeds=(2024, 2026, 2028))
    assert far.worlds == 3 and len({seed % far.worlds for seed in far.seeds}) == 3


def test_slow_baselines_are_fitted_in_the_first_worlds_alone(tmp_path: Path) -> None:
    fields = {**TINY[NetworkSigma], "seeds": (5, 6), "sigmas": (0.1,), "slow_baseline_worlds": 1}
    fields |= {"baseline_names": ("linear", "ridge")}
    run = local.execute(NetworkSigma.from_scale("quick", **fields), tmp_path / "run")
    worlds = run.baselines.groupby("baseline")["world"].unique()
    assert sorted(worlds["linear"]) == [5, 6] and list(worlds["ridge"]) == [5]
