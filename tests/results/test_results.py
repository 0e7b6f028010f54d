"""The committed runs on Latin squares: whole, and `placecode claims` says of them what their tables hold.

Effects and intervals are computed once more from the Parquet files, with pandas and scipy alone.
"""

from __future__ import annotations

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
from helpers.by_hand import KNOBS, causal_effects, knob_effect, knob_effects, worth
from helpers.made_up import direction, over_sigmas, student, within_sigma

from placecode import experiments
from placecode.models.member import AUXILIARY
from placecode.runs.read import Run, numbers_in

ROOT = Path(__file__).parents[2] / "results"
CONFIGS = {path.parent.name: json.loads(path.read_text()) for path in sorted(ROOT.glob("*/config.json"))}
JUDGED = [name for name, config in CONFIGS.items() if experiments.lookup(config["study"]).claims]
LATIN = [name for name in JUDGED if "epochs" in CONFIGS[name]["fields"]]  # test_masked_results_*.py look at the others
SWEEPS = [name for name in JUDGED if CONFIGS[name]["study"] == "lst-sigma" and "noise" in CONFIGS[name]["fields"]]
Claims = dict[str, dict[str, Any]]
Table = np.ndarray


def table(run: str, name: str) -> pd.DataFrame:
    return pd.read_parquet(ROOT / run / f"{name}.parquet")


@functools.cache
def tables(run: str) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    return table(run, "members"), table(run, "metrics"), table(run, "analysis")


@pytest.fixture
def said(run: str, claims_of: Callable[[Path], Claims]) -> Claims:
    """What is said of the claims on a run."""
    return claims_of(ROOT / run)


def assert_says(
    record: dict[str, Any], effect: float, low: float | None, high: float | None, close: float = 1e-9
) -> None:
    assert [record[name] for name in ("effect", "low", "high")] == pytest.approx([effect, low, high], abs=close)


# Every run with claims


@pytest.mark.parametrize("run", JUDGED)
def test_every_claim_has_a_verdict_that_follows_from_its_interval(run: str, said: Claims) -> None:
    claims = {claim.id: claim for claim in experiments.lookup(CONFIGS[run]["study"]).claims}
    assert list(said) == list(claims)
    for id, record in said.items():
        low, high, effect = record["low"], record["high"], record["effect"]
        assert record["run"] == str(ROOT / run)
        assert (record["margin"], record["way"]) == (claims[id].margin, claims[id].way)
        assert record["direction"] == direction(low, high, record["margin"], record["way"])
        assert (low is None) == (high is None) == bool(record["note"])
        if low is not None:
            assert low <= high
            assert effect is not None


@pytest.mark.parametrize("run", LATIN)
def test_no_member_is_missing_and_none_is_there_twice(run: str) -> None:
    members, metrics, analysis = tables(run)
    config = CONFIGS[run]
    assert config["members"] == f"0:{config['total']}"
    assert sorted(members["member"]) == numbers_in(config["members"], config["total"])
    assert set(members["state"]) <= {"done", "diverged"}
    assert (members.groupby(["encoding", "options", "sigma", "dropout"], dropna=False)["seed"].nunique() > 0).all()
    done = set(members.loc[members["state"] == "done", "member"])
    last = metrics[metrics["step"] == metrics["step"].max()]
    assert last["step"].max() % config["fields"]["epochs"] == 0
    for _, rows in last[last["member"].isin(done)].groupby(["split", "condition", "metric"]):
        assert set(rows["member"]) == done
        assert not rows["member"].duplicated().any()
        assert np.isfinite(rows["value"]).all()
    assert not analysis.duplicated(["member", "step", "block", "analysis", "target"]).any()


@pytest.mark.parametrize("run", LATIN)
def test_the_summary_is_that_of_the_tables(run: str) -> None:
    members, metrics, _ = tables(run)
    rows = json.loads((ROOT / run / "summary.json").read_text())["rows"]
    final = metrics[(metrics["step"] == metrics["step"].max()) & (metrics["metric"] == "accuracy")]
    final = final[final["condition"] == "all"].merge(members[members["state"] == "done"], on="member")
    found = sorted(
        (row["split"], row["n"], row["mean"], row["std"] or 0.0)
        for row in rows
        if row["metric"] == "accuracy" and row["condition"] == "all" and row["n"]
    )
    donors = final["origin"].map(members.set_index("member")["sigma"]) if "origin" in final else np.nan
    own = [name for name in members if name not in AUXILIARY]
    kinds = final.assign(donor=donors).groupby(["split", *own, "donor"], dropna=False)["value"]
    by_hand = sorted((kind[0], len(own), own.mean(), own.std() if len(own) > 1 else 0.0) for kind, own in kinds)
    assert len(found) == len(by_hand)
    for ours, theirs in zip(found, by_hand, strict=True):
        assert ours[:2] == theirs[:2]
        assert ours[2:] == pytest.approx(theirs[2:], abs=1e-9)


# lst-sigma


def by_sigma(run: str, values: pd.Series) -> pd.DataFrame:
    """Values by member as sigmas x seeds, of learned PEs that did not diverge."""
    members = tables(run)[0]
    kept = members[(members["encoding"] == "learned") & (members["state"] == "done")]
    own = [values.get(member, math.nan) for member in kept["member"]]
    return kept.assign(value=own).pivot(index="sigma", columns="seed", values="value")


def accuracy(run: str, split: str = "ood", epoch: int | None = None) -> pd.DataFrame:
    metrics = tables(run)[1]
    last = metrics["step"].max()
    step = last if epoch is None else last * epoch // CONFIGS[run]["fields"]["epochs"]
    rows = metrics[(metrics["metric"] == "accuracy") & (metrics["condition"] == "all")]
    rows = rows[(rows["split"] == split) & (rows["step"] == step)]
    return by_sigma(run, rows.set_index("member")["value"])


def measured(run: str, analysis: str, target: str, start: bool = False) -> pd.DataFrame | None:
    """None where it was not taken."""
    rows = tables(run)[2]
    rows = rows[rows["step"] == (0 if start else rows["step"].max())]
    rows = rows[(rows["analysis"] == analysis) & (rows["target"] == target) & (rows["block"] == -1)]
    return None if rows.empty else by_sigma(run, rows.set_index("member")["value"])


def resampled(
    statistic: Callable[..., float], *given: Table, draws: int = 400
) -> tuple[float, float] | tuple[None, None]:
    """95% bounds of a statistic of tables (sigmas x seeds), seeds drawn anew; none where there are too few seeds."""
    rng = np.random.default_rng(2024)
    seeds = given[0].shape[1]
    if seeds < 8:
        return None, None
    values = [statistic(*(values[:, drawn] for values in given)) for drawn in rng.integers(seeds, size=(draws, seeds))]
    low, high = np.nanquantile(values, [0.025, 0.975])
    return float(low), float(high)


def gain(end: Table, start: Table, y: Table) -> float:
    return abs(over_sigmas(end, y)) - abs(over_sigmas(start, y))


def beyond(end: Table, start: Table, y: Table) -> float:
    return within_sigma(end, y, start)


def lowest(train: Table) -> float:
    return float(train.mean(axis=1).min())


MEASURES = {"procrustes-raw": "procrustes_raw", "procrustes": "procrustes", "attention": "attention_cosine"}


def correlations(run: str) -> dict[str, tuple[Callable[..., float], tuple[Table, ...]]]:
    """The claims on correlations that the run has the measures for: how they are computed, and of what."""
    found: dict[str, tuple[Callable[..., float], tuple[Table, ...]]] = {}
    y = accuracy(run).to_numpy()
    for name, analysis in MEASURES.items():
        end, start = (measured(run, analysis, "2d-fixed", when) for when in (False, True))
        if end is None or start is None or len(y) < 3:
            continue
        a, b = end.to_numpy(), start.to_numpy()
        found[f"{name}-over-sigmas"] = (over_sigmas, (a, y))
        found[f"{name}-at-fixed-sigma"] = (within_sigma, (a, y))
        found[f"{name}-beyond-start"] = (beyond, (a, b, y))
        if name != "procrustes":
            found[f"{name}-learned"] = (gain, (a, b, y))
    return found


@pytest.fixture
def complete(run: str) -> None:
    """Sums by hand take a table without holes."""
    if accuracy(run).isna().any(axis=None):
        pytest.skip("members of this run diverged; what is done about that is tested on made-up runs")


def test_the_sweep_is_whole() -> None:
    members = tables("lst-sigma")[0]
    learned = members[members["encoding"] == "learned"]
    wanted = set(itertools.product([round(0.1 * i, 1) for i in range(1, 21)], range(15)))
    assert len(learned) == len(wanted) == 300
    assert set(zip(learned["sigma"], learned["seed"], strict=True)) == wanted
    assert (members["state"] == "done").all()
    for split in ("train", "test", "ood"):
        assert accuracy("lst-sigma", split).notna().all(axis=None)
    references = members[members["encoding"] == "sinusoid"]
    assert set(references["options"]) == {'{"axes": 2}'}
    assert len(members) == 315 and sorted(references["seed"]) == list(range(15))
    assert (members["dropout"] == 0).all()
    assert CONFIGS["lst-sigma"]["task"]["log_softmax"] == 2  # the authors' loss
    assert (members["rested_epoch"] > 0).all()  # every training loss stayed at exactly 0
    assert CONFIGS["lst-sigma"]["task"]["sha256"].startswith("9a708ab15764ad00")  # the published puzzles


def test_the_sweep_has_what_claims_on_correlations_and_noise_need() -> None:
    """So that the tests below compare something."""
    assert len(correlations("lst-sigma")) == 11
    assert measured("lst-sigma", "noise_accuracy", "train 0.5") is not None


def first_epochs(run: str) -> pd.DataFrame:
    """The first epoch with a training accuracy of 99%, interpolated between evaluations: sigmas x seeds."""
    metrics = tables(run)[1].query("split == 'train' and condition == 'all' and metric == 'accuracy'")
    reached = {}
    for member, rows in metrics.sort_values("step").groupby("member"):
        steps, values = rows["step"].to_numpy(), rows["value"].to_numpy()
        fine = np.interp(np.arange(steps[-1] + 1), steps, values)
        first = int(np.argmax(fine >= 0.99)) if values.max() >= 0.99 else int(steps[-1])
        reached[member] = first * CONFIGS[run]["fields"]["epochs"] / steps[-1]
    return by_sigma(run, pd.Series(reached))


def by_seed(run: str) -> dict[str, Callable[[], Any]]:
    """The values by seed of every claim that is a mean over seeds; KeyError if the run does not have them."""
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


@pytest.mark.parametrize("run", SWEEPS)
def test_means_over_seeds_are_as_claimed(run: str, said: Claims, complete: None) -> None:
    for id, values in by_seed(run).items():
        try:
            effect = student(values())
        except KeyError:
            assert (said[id]["direction"], said[id]["effect"]) == ("undecided", None), id
        else:
            assert_says(said[id], *effect, close=0.05 if id == "large-sigma-trains-faster" else 1e-9)
    train = accuracy(run, "train").to_numpy()
    assert_says(said["all-fit-training"], lowest(train), *resampled(lowest, train), close=0.01)
    assert said["all-fit-training"]["effect"] == pytest.approx(lowest(train), abs=1e-9)


@pytest.mark.parametrize("run", SWEEPS)
def test_the_authors_curve_is_as_claimed(run: str, said: Claims, complete: None) -> None:
    authors = [0.925, 0.956, 0.946, 0.929, 0.946, 0.929, 0.926, 0.916, 0.896, 0.894]
    authors += [0.835, 0.756, 0.702, 0.654, 0.616, 0.582, 0.480, 0.378, 0.406, 0.377]
    held_out = accuracy(run)
    if len(held_out) < len(authors):
        assert said["sigma-curve"]["note"].startswith("the run has no finished members with sigma")
        return
    apart = (held_out.mean(axis=1) - authors).abs()
    error = held_out.std(axis=1) * np.sqrt(2 / 15)
    assert held_out.shape == (20, 15) and not held_out.isna().any().any()
    assert said["sigma-curve"]["effect"] == pytest.approx(apart.mean())
    assert said["sigma-curve-largest-gap"]["effect"] == pytest.approx((apart / error).max())


@pytest.mark.parametrize("run", SWEEPS)
def test_correlations_are_as_claimed(run: str, said: Claims, complete: None) -> None:
    asked = correlations(run)
    for id, (statistic, given) in asked.items():
        by_hand = statistic(*given)
        if math.isnan(by_hand):  # the same at every sigma, or nothing but its start
            assert said[id]["effect"] is None
        else:
            assert said[id]["effect"] == pytest.approx(by_hand, abs=1e-9), id
    for name, question in itertools.product(MEASURES, ("over-sigmas", "at-fixed-sigma", "beyond-start")):
        if f"{name}-{question}" not in asked:
            assert said[f"{name}-{question}"]["direction"] == "undecided"
            assert said[f"{name}-{question}"]["note"]


@pytest.mark.parametrize("run", ["lst-sigma"])
def test_intervals_of_correlations_are_those_of_seeds_drawn_anew(run: str, said: Claims, complete: None) -> None:
    for id, (statistic, given) in correlations(run).items():
        bounds = [said[id]["low"], said[id]["high"]]
        assert bounds == pytest.approx(resampled(statistic, *given), abs=0.06), id


# Beyond the paper


@pytest.mark.parametrize("run", [name for name in LATIN if CONFIGS[name]["study"] in KNOBS])
def test_what_is_turned_beside_sigma_is_as_claimed(run: str, said: Claims) -> None:
    found, steps = Run(ROOT / run), tables(run)[1]["step"].max()
    effects = knob_effects(found, CONFIGS[run]["study"], steps, steps // 4)
    for id, values in effects.items():
        assert_says_or_misses(said[id], values)
    for id in said.keys() - effects.keys():
        assert id.startswith("small-sigma-at-every-")
        column = id.removeprefix("small-sigma-at-every-")
        rows = found.metrics.query(
            "split == 'train' and condition == 'all' and metric == 'accuracy' and step == @steps"
        )
        at_small = rows.merge(found.members.query("sigma == 0.2"), on="member").groupby(column)["value"].mean()
        fitted = at_small.index[at_small > 0.95]
        every = [knob_effect(found, worth({column: value}), steps) for value in fitted]
        assert_says_or_misses(said[id], min(every, key=lambda values: student(values)[1]))


@pytest.mark.parametrize("run", [name for name in LATIN if CONFIGS[name]["study"] == "lst-causal"])
def test_causes_are_as_claimed(run: str, said: Claims) -> None:
    steps = tables(run)[1]["step"].max()
    effects = causal_effects(Run(ROOT / run), steps, steps // 4)
    assert set(effects) == set(said)
    for id, values in effects.items():
        assert_says_or_misses(said[id], values)


def assert_says_or_misses(record: dict[str, Any], values: Table) -> None:
    """The effect of these values; where there are none, that something is missing."""
    if len(values):
        assert_says(record, *student(values))
    else:
        assert (record["direction"], record["effect"]) == ("undecided", None)
        assert record["note"].startswith("the run has no finished members")
