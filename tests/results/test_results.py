"""The committed runs on Latin squares are complete, and have the effects that `placecode claims` prints.

Effects and intervals are computed again from the Parquet files, with pandas and scipy alone.
"""

import functools
import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.by_hand import KNOBS, causal_effects, knob_effect, knob_effects, sigma_effect
from helpers.made_up import effect_of, over_sigmas, student, within_sigma

from placecode.runs.read import STATISTICS, Run
from placecode.runs.summary import summarize

ROOT = Path(__file__).parents[2] / "results"
CONFIGS = {path.parent.name: json.loads(path.read_text()) for path in sorted(ROOT.glob("*/config.json"))}
LATIN = [name for name in CONFIGS if "epochs" in CONFIGS[name]["fields"]]
"""Runs on Latin squares; test_masked_results_*.py look at the others."""
SWEEPS = ("lst-sigma", "lst-sigma-bf16", "demo")
"""Runs of lst-sigma: with all that claims need; with 3 sigmas and no noise; with too few seeds for a bootstrap."""
TABLES = ("members", "metrics", "analysis")
Claims = dict[str, dict[str, Any]]
Table = np.ndarray


@functools.cache
def tables(run: str) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return members, metrics and analysis of a run."""
    members, metrics, analysis = (pd.read_parquet(ROOT / run / f"{name}.parquet") for name in TABLES)
    return members, metrics, analysis


@pytest.fixture
def claims(run: str, claims_of: Callable[[Path], Claims]) -> Claims:
    """The records of the claims on a run."""
    return claims_of(ROOT / run)


def assert_effect(record: dict[str, Any], values: Any, tolerance: float = 1e-9) -> None:
    """Assert that a record has the mean of these values and its interval; without values, that it says so in a note."""
    if len(values):
        assert effect_of(record) == pytest.approx(student(values), abs=tolerance), record["id"]
    else:
        assert (record["direction"], record["effect"]) == ("undecided", None)
        assert record["note"].startswith("the run has no finished members")


@pytest.mark.parametrize("run", LATIN)
def test_every_finished_member_has_all_its_rows_once(run: str) -> None:
    members, metrics, analysis = tables(run)
    config = CONFIGS[run]
    assert config["members"] == f"0:{config['total']}"
    assert sorted(members["member"]) == list(range(config["total"]))
    assert set(members["state"]) <= {"done", "diverged"}
    done = members.loc[members["state"] == "done", "member"]
    last = metrics[(metrics["step"] == metrics["step"].max()) & metrics["member"].isin(done)]
    assert last["step"].max() % config["fields"]["epochs"] == 0
    assert not last.duplicated(["member", "split", "condition", "metric"]).any()
    assert set(last.groupby(["split", "condition", "metric"])["member"].nunique()) == {len(done)}
    assert np.isfinite(last["value"]).all()
    assert not analysis.duplicated(["member", "step", "block", "analysis", "target"]).any()


@pytest.mark.parametrize("run", CONFIGS)
def test_summary_follows_from_the_tables(run: str) -> None:
    """Rows may be in another order. tests/runs/test_tables.py computes the values of a summary independently."""
    folder = Run(ROOT / run)
    again = summarize(folder.experiment, folder.members, folder.metrics, folder.analysis, folder.baselines)["rows"]
    if {row["condition"] for row in folder.summary if row["split"] == "analysis"} == {"all"}:  # written without targets
        again = [{**row, "condition": "all"} if row["split"] == "analysis" else row for row in again]
    keys = [name for name in again[0] if name not in STATISTICS]
    written, computed = (pd.DataFrame(rows).sort_values(keys, ignore_index=True) for rows in (folder.summary, again))
    pd.testing.assert_frame_equal(written, computed, rtol=0, atol=1e-9, check_like=True, check_dtype=False)


def by_sigma(run: str, values: pd.Series) -> pd.DataFrame:
    """Return values by member as a table (sigmas, seeds) of the learned PEs that did not diverge."""
    members = tables(run)[0]
    rows = members[(members["encoding"] == "learned") & (members["state"] == "done")]
    return rows.assign(value=rows["member"].map(values)).pivot(index="sigma", columns="seed", values="value")


def accuracy(run: str, split: str = "ood", epoch: int | None = None) -> pd.DataFrame:
    metrics = tables(run)[1]
    last = metrics["step"].max()
    step = last if epoch is None else last * epoch // CONFIGS[run]["fields"]["epochs"]
    rows = metrics[(metrics["metric"] == "accuracy") & (metrics["condition"] == "all")]
    rows = rows[(rows["split"] == split) & (rows["step"] == step)]
    return by_sigma(run, rows.set_index("member")["value"])


def measured(run: str, analysis: str, target: str, start: bool = False) -> pd.DataFrame | None:
    """Return an analysis as a table (sigmas, seeds), or None if the run does not have it."""
    rows = tables(run)[2]
    rows = rows[rows["step"] == (0 if start else rows["step"].max())]
    rows = rows[(rows["analysis"] == analysis) & (rows["target"] == target) & (rows["block"] == -1)]
    return None if rows.empty else by_sigma(run, rows.set_index("member")["value"])


def resampled(statistic: Callable[..., float], *arrays: Table, draws: int = 400) -> tuple[float | None, float | None]:
    """Return 95% bootstrap bounds over seeds of a statistic of tables (sigmas, seeds); None with too few seeds."""
    rng = np.random.default_rng(2024)
    seeds = arrays[0].shape[1]
    if seeds < 8:
        return None, None
    indices = rng.integers(seeds, size=(draws, seeds))
    values = [statistic(*(array[:, index] for array in arrays)) for index in indices]
    return float(np.nanquantile(values, 0.025)), float(np.nanquantile(values, 0.975))


def gain(end: Table, start: Table, y: Table) -> float:
    return abs(over_sigmas(end, y)) - abs(over_sigmas(start, y))


def beyond(end: Table, start: Table, y: Table) -> float:
    return within_sigma(end, y, start)


def lowest_mean(train: Table) -> float:
    return float(train.mean(axis=1).min())


MEASURES = {"procrustes-raw": "procrustes_raw", "procrustes": "procrustes", "attention": "attention_cosine"}


def correlations(run: str) -> dict[str, tuple[Callable[..., float], tuple[Table, ...]]]:
    """Return the statistic and its tables (sigmas, seeds) of every claim on a correlation that the run can test."""
    statistics: dict[str, tuple[Callable[..., float], tuple[Table, ...]]] = {}
    y = accuracy(run).to_numpy()
    for name, analysis in MEASURES.items():
        end, start = (measured(run, analysis, "2d-fixed", when) for when in (False, True))
        if end is None or start is None or len(y) < 3:
            continue
        a, b = end.to_numpy(), start.to_numpy()
        statistics[f"{name}-over-sigmas"] = (over_sigmas, (a, y))
        statistics[f"{name}-at-fixed-sigma"] = (within_sigma, (a, y))
        statistics[f"{name}-beyond-start"] = (beyond, (a, b, y))
        if name != "procrustes":
            statistics[f"{name}-learned"] = (gain, (a, b, y))
    return statistics


def first_epochs(run: str) -> pd.DataFrame:
    """Return the first epoch with a training accuracy of 99%, interpolated between evaluations, (sigmas, seeds)."""
    metrics = tables(run)[1].query("split == 'train' and condition == 'all' and metric == 'accuracy'")
    reached = {}
    for member, rows in metrics.sort_values("step").groupby("member"):
        steps, values = rows["step"].to_numpy(), rows["value"].to_numpy()
        by_step = np.interp(np.arange(steps[-1] + 1), steps, values)
        first = int(np.argmax(by_step >= 0.99)) if values.max() >= 0.99 else int(steps[-1])
        reached[member] = first * CONFIGS[run]["fields"]["epochs"] / steps[-1]
    return by_sigma(run, pd.Series(reached))


def by_seed(run: str) -> dict[str, Callable[[], Any]]:
    """Return functions for the values by seed of every claim on a mean over seeds; KeyError if the run has none."""
    held_out, epochs = accuracy(run), CONFIGS[run]["fields"]["epochs"]

    def difference(values: pd.DataFrame | None) -> Any:
        if values is None:
            raise KeyError
        return values.loc[0.2] - values.loc[2.0]

    def noise(split: str) -> Any:
        levels = CONFIGS[run]["fields"]["noise"]
        if not levels:
            raise KeyError
        return np.mean([difference(measured(run, "noise_accuracy", f"{split} {level:g}")) for level in levels], axis=0)

    def learned() -> pd.DataFrame:
        start, end = (measured(run, "rsa", "relation", start=start) for start in (True, False))
        if start is None or end is None:
            raise KeyError
        return end - start

    def after_200(sigma: float) -> Any:
        if epochs <= 200:
            raise KeyError
        return held_out.loc[sigma] - accuracy(run, epoch=200).loc[sigma]

    return {
        "small-sigma-generalizes": lambda: difference(held_out),
        "accuracy-at-0.2": lambda: held_out.loc[0.2],
        "accuracy-at-2.0": lambda: held_out.loc[2.0],
        "large-sigma-trains-faster": lambda: -difference(first_epochs(run)),
        "withstands-noise": lambda: noise("train"),
        "withstands-noise-held-out": lambda: noise("ood"),
        "pe-learns-rows-and-columns": lambda: learned().loc[0.2],
        "small-sigma-learns-more-of-it": lambda: difference(learned()),
        **{f"epoch-200-at-{sigma:g}": functools.partial(after_200, sigma) for sigma in (0.2, 1.0, 2.0)},
    }


def test_published_sweep_is_complete() -> None:
    members = tables("lst-sigma")[0]
    learned = members[members["encoding"] == "learned"]
    expected = set(itertools.product([round(0.1 * i, 1) for i in range(1, 21)], range(15)))
    assert len(learned) == 300 and set(zip(learned["sigma"], learned["seed"], strict=True)) == expected
    assert len(members) == 315 and (members["state"] == "done").all() and (members["dropout"] == 0).all()
    assert (members["zero_loss_epoch"] > 0).all()  # every training loss stayed at exactly 0
    task = CONFIGS["lst-sigma"]["task"]
    assert task["log_softmax"] == 2 and task["sha256"].startswith("9a708ab15764ad00")  # the authors' loss and puzzles
    assert len(correlations("lst-sigma")) == 11  # all of them are compared below
    assert measured("lst-sigma", "noise_accuracy", "train 0.5") is not None


@pytest.mark.parametrize("run", SWEEPS)
def test_claims_on_means_over_seeds(run: str, claims: Claims) -> None:
    for id, values in by_seed(run).items():
        try:
            expected = values()
        except KeyError:
            assert (claims[id]["direction"], claims[id]["effect"]) == ("undecided", None), id
        else:
            assert_effect(claims[id], expected, 0.05 if id == "large-sigma-trains-faster" else 1e-9)
    train, record = accuracy(run, "train").to_numpy(), claims["all-fit-training"]
    assert record["effect"] == pytest.approx(lowest_mean(train), abs=1e-9)
    assert [record["low"], record["high"]] == pytest.approx(resampled(lowest_mean, train), abs=0.01)


def test_claims_on_the_published_curve(claims_of: Callable[[Path], Claims]) -> None:
    claims, accuracies = claims_of(ROOT / "lst-sigma"), accuracy("lst-sigma")
    authors = [0.925, 0.956, 0.946, 0.929, 0.946, 0.929, 0.926, 0.916, 0.896, 0.894]
    authors += [0.835, 0.756, 0.702, 0.654, 0.616, 0.582, 0.480, 0.378, 0.406, 0.377]
    gaps = (accuracies.mean(axis=1) - authors).abs()
    errors = accuracies.std(axis=1) * np.sqrt(2 / 15)
    assert claims["sigma-curve"]["effect"] == pytest.approx(gaps.mean())
    assert claims["sigma-curve-largest-gap"]["effect"] == pytest.approx((gaps / errors).max())
    assert claims_of(ROOT / "demo")["sigma-curve"]["effect"] is None  # it has 5 of the 20 sigmas


@pytest.mark.parametrize("run", SWEEPS)
def test_claims_on_correlations(run: str, claims: Claims) -> None:
    expected = correlations(run)
    for id, (statistic, arrays) in expected.items():
        by_hand = statistic(*arrays)
        if math.isnan(by_hand):  # constant over sigmas, or determined by the start
            assert claims[id]["effect"] is None
        else:
            assert claims[id]["effect"] == pytest.approx(by_hand, abs=1e-9), id
        if run == "lst-sigma":
            bounds = [claims[id]["low"], claims[id]["high"]]
            assert bounds == pytest.approx(resampled(statistic, *arrays, draws=200), abs=0.08), id
    for name, question in itertools.product(MEASURES, ("over-sigmas", "at-fixed-sigma", "beyond-start")):
        if f"{name}-{question}" not in expected:
            assert claims[f"{name}-{question}"]["note"]


@pytest.mark.parametrize("run", sorted(KNOBS.keys() & CONFIGS.keys()))
def test_claims_on_settings_besides_sigma(run: str, claims: Claims) -> None:
    folder, steps = Run(ROOT / run), tables(run)[1]["step"].max()
    effects = knob_effects(folder, CONFIGS[run]["experiment"], steps, steps // 4)
    for id, values in effects.items():
        assert_effect(claims[id], values)
    at_the_end = "split == 'train' and condition == 'all' and metric == 'accuracy' and step == @steps"
    for id in claims.keys() - effects.keys():
        column = id.removeprefix("small-sigma-at-every-")
        assert column in ("data", "heads", "layers", "placement", "width")
        rows = tables(run)[1].query(at_the_end).merge(folder.members.query("sigma == 0.2"), on="member")
        at_small = rows.groupby(column)["value"].mean()
        fitted = at_small.index[at_small > 0.95]
        by_value = [knob_effect(folder, sigma_effect({column: value}), steps) for value in fitted]
        assert_effect(claims[id], min(by_value, key=lambda values: student(values)[1]))


def test_claims_on_manipulations_of_the_pe(claims_of: Callable[[Path], Claims]) -> None:
    claims, steps = claims_of(ROOT / "lst-causal"), tables("lst-causal")[1]["step"].max()
    effects = causal_effects(Run(ROOT / "lst-causal"), steps, steps // 4)
    assert set(effects) == set(claims)
    for id, values in effects.items():
        assert_effect(claims[id], values)
