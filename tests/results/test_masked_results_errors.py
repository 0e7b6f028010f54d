"""Errors of the committed runs of masked prediction, compared with linear predictors and the least possible error."""

import functools
import math

import pandas as pd
import pytest
from helpers.committed_masked import CONFIGS, ROOT, SWEEPS, SYNERGY, finished, parts_of, table, where
from scipy import integrate, stats


def test_linear_predictors_explain_no_synergy() -> None:
    for condition in SWEEPS["synergy-sigma"]:
        rows = where(table(ROOT / "synergy-sigma", "baselines"), metric="mse", condition=condition)
        for name in ("linear", "pca", "ridge"):
            assert where(rows, baseline=name)["value"].to_numpy() == pytest.approx(1.0, abs=0.01)
        least = CONFIGS["synergy-sigma"]["task"]["best_mse"][condition]
        assert where(rows, baseline="trees")["value"].between(least + 0.05, 0.95).all()


@pytest.mark.parametrize("run", SYNERGY)
def test_least_possible_error_is_that_of_the_formula(run: str) -> None:
    """A hidden channel can be predicted, up to noise, only if both others of its group are visible."""
    for task in parts_of(run).values():
        n, noise = task["tokens"], task["noise"]
        assert task["sizes"] == [3] * (n // 3) and task["values"] == "sign" and not task["distractors"]
        assert set(task["best_mse"]) == {f"hidden {share:g}" for share in task["eval_mask_ratios"]}
        for share in task["eval_mask_ratios"]:
            hidden = round(share * n)
            both_visible = math.prod((n - hidden - i) / (n - 1 - i) for i in range(2))
            best = 1 - both_visible * expected_sign(noise) ** 2 / (1 + noise**2)
            assert task["best_mse"][f"hidden {share:g}"] == pytest.approx(best, abs=1e-6)


@functools.cache
def expected_sign(noise: float) -> float:
    """Return the expectation of a sign given its noisy value, averaged over the noise."""

    def integrand(z: float) -> float:
        return math.tanh((1 + noise * z) / noise**2) * stats.norm.pdf(z)

    return float(integrate.quad(integrand, -12, 12, points=[-1 / noise], limit=200)[0])


def above_least(run: str, condition: str = "hidden 0.3") -> pd.DataFrame:
    """Return the error minus the least possible error, finished members x steps."""
    least = {data: task["best_mse"][condition] for data, task in parts_of(run).items()}
    curves = where(table(ROOT / run, "metrics"), split="test", condition=condition, metric="mse")
    wide = curves.pivot(index="member", columns="step", values="value")
    members = finished(ROOT / run).set_index("member")
    return wide.loc[members.index].sub(members["data"].map(least), axis="index")


@pytest.mark.parametrize("run", SYNERGY)
def test_no_member_is_below_the_least_possible_error(run: str) -> None:
    """With 2,000 held-out samples errors vary by about 0.004, together in all worlds: the same channels are hidden."""
    deviation = 0.004 * math.sqrt(2000 / min(task["counts"]["test"] for task in parts_of(run).values()))
    for condition in next(iter(parts_of(run).values()))["best_mse"]:
        assert above_least(run, condition).min(axis=None) > -3 * deviation
