"""The committed runs: whole, and what `placecode claims` and `placecode report` say of them is what their tables hold.

Effects and intervals are computed once more from the Parquet files, with pandas and scipy alone.
"""

from __future__ import annotations

import functools
import html
import itertools
import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.by_hand import KNOBS, causal_effects, knob_effect, knob_effects, worth
from helpers.made_up import direction, over_sigmas, student, within_sigma

from placecode import cli, experiments
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


_said: dict[str, Claims] = {}


@pytest.fixture
def said(run: str, capsys: pytest.CaptureFixture[str]) -> Claims:
    """What `placecode claims RUN --json` says of a committed run, by the id of the claim."""
    if run not in _said:
        assert cli.main(["claims", str(ROOT / run), "--json"]) == 0, capsys.readouterr().err
        records = json.loads(capsys.readouterr().out)
        _said[run] = {record["id"]: record for record in records}
        assert len(_said[run]) == len(records)
    return _said[run]


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


@pytest.mark.parametrize("run", SWEEPS)
def test_accuracies_are_as_claimed(run: str, said: Claims, complete: None) -> None:
    held_out = accuracy(run)
    if {0.2, 2.0} <= set(held_out.index):
        assert_says(said["small-sigma-generalizes"], *student(held_out.loc[0.2] - held_out.loc[2.0]))
        assert_says(said["accuracy-at-0.2"], *student(held_out.loc[0.2]))
        assert_says(said["accuracy-at-2.0"], *student(held_out.loc[2.0]))
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
def test_the_first_epoch_of_99_percent_is_as_claimed(run: str, said: Claims, complete: None) -> None:
    members, metrics, _ = tables(run)
    train = metrics.query("split == 'train' and condition == 'all' and metric == 'accuracy'").sort_values("step")
    reached = {}
    for sigma, seed, member in members.query("encoding == 'learned' and sigma in [0.2, 2.0]")[
        ["sigma", "seed", "member"]
    ].itertuples(index=False):
        own = train[train["member"] == member]
        steps, values = own["step"].to_numpy(), np.maximum.accumulate(own["value"].to_numpy())
        fine = np.interp(np.arange(steps[-1] + 1), steps, own["value"].to_numpy())
        first = int(np.argmax(fine >= 0.99)) if values[-1] >= 0.99 else int(steps[-1])
        reached[sigma, seed] = first * CONFIGS[run]["fields"]["epochs"] / steps[-1]
    table = pd.Series(reached).unstack(0)
    if set(table.columns) == {0.2, 2.0}:
        assert_says(said["large-sigma-trains-faster"], *student((table[2.0] - table[0.2]).to_numpy()), close=0.05)


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


@pytest.mark.parametrize("run", SWEEPS)
def test_noise_is_as_claimed(run: str, said: Claims, complete: None) -> None:
    for id, split in (("withstands-noise", "train"), ("withstands-noise-held-out", "ood")):
        levels = CONFIGS[run]["fields"]["noise"]
        found = [measured(run, "noise_accuracy", f"{split} {level:g}") for level in levels]
        there = [values for values in found if values is not None]
        if not there or not {0.2, 2.0} <= set(there[0].index):
            assert (said[id]["direction"], said[id]["effect"]) == ("undecided", None)
            continue
        assert len(there) == len(levels)
        mean = np.mean([values.loc[0.2] - values.loc[2.0] for values in there], axis=0)
        assert_says(said[id], *student(mean))


@pytest.mark.parametrize("run", SWEEPS)
def test_what_the_pe_has_learned_is_as_claimed(run: str, said: Claims, complete: None) -> None:
    start, end = (measured(run, "rsa", "relation", start=start) for start in (True, False))
    if start is None or end is None or not {0.2, 2.0} <= set(end.index):
        assert said["small-sigma-learns-more-of-it"]["direction"] == "undecided"
        return
    gain = end - start
    assert_says(said["pe-learns-rows-and-columns"], *student(gain.loc[0.2]))
    assert_says(said["small-sigma-learns-more-of-it"], *student(gain.loc[0.2] - gain.loc[2.0]))


@pytest.mark.parametrize("run", SWEEPS)
def test_epoch_200_is_as_claimed(run: str, said: Claims, complete: None) -> None:
    epochs = CONFIGS[run]["fields"]["epochs"]
    for sigma in (0.2, 1.0, 2.0):
        record = said[f"epoch-200-at-{sigma:g}"]
        if epochs <= 200:
            assert (record["effect"], record["note"]) == (None, f"the run ends at epoch {epochs}")
        elif sigma in accuracy(run).index:
            assert_says(record, *student(accuracy(run).loc[sigma] - accuracy(run, epoch=200).loc[sigma]))


def test_the_report_is_drawn_anew_from_the_committed_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a copy of the folder, whose name the figures then bear."""
    copy = tmp_path / "a-copy"
    shutil.copytree(ROOT / "lst-sigma", copy, ignore=shutil.ignore_patterns("figures", "report.html"))
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    assert cli.main(["report", str(copy)]) == 0
    assert capsys.readouterr().out == f"Report: {copy / 'report.html'}\n"
    for name, content in before.items():
        assert (copy / name).read_bytes() == content  # results are read, never written
    page = html.unescape((copy / "report.html").read_text())
    drawn = {path.stem for path in (copy / "figures").glob("*.png")}
    assert drawn >= {"accuracy", "curves", "relations", "fixed-sigma", "similarity", "attention", "noise", "classes"}
    pictures = re.findall(r'<div class="wide[^>]*>(<svg.*?</svg>)', page, flags=re.DOTALL)
    assert len(pictures) == len(drawn)
    for picture in pictures:
        assert "a-copy (lst-sigma, paper scale)" in picture
    for claim in experiments.lookup("lst-sigma").claims:
        assert (claim.statement in page) == (claim.id != "tiny-sigma-stalls")  # the sweep starts at 0.1
    assert "1 more cannot be tested with this run" in page
    read = re.sub(r'<script.*?</script>|base64,[^"]*', "", page, flags=re.DOTALL)
    assert "NaN" not in read and ">nan" not in read


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


# lst-encodings

LEARNED, TRUE = ("learned", {}, 0.2), ("sinusoid", {"axes": 2}, None)
FIXED, RANDOM = ("sinusoid", {}, None), ("random", {}, 1.0)
Setting = tuple[tuple[str, dict[str, Any], float | None], float]
PAIRS: dict[str, tuple[Setting, Setting]] = {
    "near-2d-fixed-as-published": ((LEARNED, 0.0), (TRUE, 0.1)),
    "near-2d-fixed": ((LEARNED, 0.0), (TRUE, 0.0)),
    "near-2d-fixed-both-dropout": ((LEARNED, 0.1), (TRUE, 0.1)),
    "2d-fixed-beats-learned": ((TRUE, 0.0), (LEARNED, 0.0)),
    "dropout-lifts-2d-fixed": ((TRUE, 0.1), (TRUE, 0.0)),
    "dropout-lifts-learned": ((LEARNED, 0.1), (LEARNED, 0.0)),
    "beats-1d-fixed": ((LEARNED, 0.0), (FIXED, 0.0)),
    "beats-1d-fixed-as-published": ((LEARNED, 0.0), (FIXED, 0.1)),
    "beats-relative": ((LEARNED, 0.0), (("relative", {}, None), 0.0)),
    "beats-relative-as-published": ((LEARNED, 0.0), (("relative", {"causal": 1}, 1.0), 0.0)),
    "beats-rotary": ((LEARNED, 0.0), (("rotary", {}, None), 0.0)),
    "beats-rotary-as-published": ((LEARNED, 0.0), (("rotary", {"fraction": 0.5}, None), 0.0)),
    "beats-random": ((LEARNED, 0.0), (RANDOM, 0.0)),
    "beats-random-as-published": ((LEARNED, 0.0), (RANDOM, 0.1)),
    "beats-none": ((LEARNED, 0.0), (("none", {}, None), 0.0)),
    "beats-none-as-published": ((LEARNED, 0.0), (("none", {}, None), 0.0)),
    "beats-causal-none": ((LEARNED, 0.0), (("causal-none", {}, None), 0.0)),
    "beats-causal-none-as-published": ((LEARNED, 0.0), (("causal-none", {"temperature": 0.01}, None), 0.0)),
}
"""Which settings, (encoding, options, sigma) and dropout, are compared: the first less the second."""


def of_setting(run: str, setting: Setting, split: str = "ood") -> pd.Series:
    """Accuracy in the end, by seed."""
    (encoding, options, sigma), dropout = setting
    members, metrics, _ = tables(run)
    same = (members["encoding"] == encoding) & (members["dropout"] == dropout) & (members["state"] == "done")
    same &= members["options"].map(json.loads) == options
    if sigma is not None:
        same &= members["sigma"] == sigma
    final = metrics[(metrics["step"] == metrics["step"].max()) & (metrics["split"] == split)]
    final = final[(final["metric"] == "accuracy") & (final["condition"] == "all")]
    return members[same].merge(final, on="member").set_index("seed")["value"]


def test_all_encodings_are_there_with_all_seeds() -> None:
    members = tables("lst-encodings")[0]
    kinds = members.groupby(["encoding", "options", "sigma", "dropout"], dropna=False)["seed"].agg(sorted)
    assert len(kinds) == 16 * 2
    assert all(seeds == list(range(15)) for seeds in kinds)
    assert {rate for *_, rate in kinds.index} == {0.0, 0.1}
    assert (members["dropout_at_evaluation"] == (members["dropout"] > 0)).all()  # as in the authors' code
    settings = {repr(setting): setting for pair in PAIRS.values() for setting in pair}
    missing = [name for name, setting in settings.items() if of_setting("lst-encodings", setting).empty]
    assert missing == [repr(PAIRS["beats-relative-as-published"][1])]  # the run is older than that setting


@pytest.mark.parametrize("run", ["lst-encodings"])
def test_encodings_compare_as_claimed(run: str, said: Claims) -> None:
    assert {*PAIRS, "all-fit-training"} == set(said)
    for id, (a, b) in PAIRS.items():
        if of_setting(run, b).empty:
            assert (said[id]["direction"], said[id]["effect"]) == ("undecided", None)
            continue
        pairs = (of_setting(run, a) - of_setting(run, b)).dropna()
        assert_says(said[id], *student(pairs.to_numpy()))
        test = student(of_setting(run, a).loc[pairs.index].to_numpy() - of_setting(run, b).loc[pairs.index].to_numpy())
        assert said[id]["direction"] == direction(*test[1:], said[id]["margin"], said[id]["way"])
    assert_says(said["all-fit-training"], *student(of_setting(run, (LEARNED, 0.0), "train").to_numpy()))
