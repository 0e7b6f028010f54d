"""The tables of the committed runs of masked prediction are complete, and agree with each other and with twin runs."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from helpers.committed_masked import (
    ALL_BLOCKS,
    CONFIGS,
    MASKED,
    NO_VECTORS,
    ROOT,
    finished,
    labelled,
    of_members,
    parts_of,
    table,
    where,
)

from placecode.models.member import AUXILIARY
from placecode.runs.read import Run

SWEPT = ("sigmas", "encodings", "many", "samples", "noises", "batches", "rates", "widths", "shares", "ramps")
SWEPT += ("trained_with", "optimizers", "variants")
"""Fields that list values, all of which are crossed."""
FEW_DRAWS = ("ari_p", "ami_p", "fc_correlation_p", "attention_correlation_p")
"""p-values from 199 draws, with those against smooth maps; others are from 1,000."""


@pytest.mark.parametrize("run", MASKED)
def test_every_member_has_every_condition_at_every_step(run: str) -> None:
    record, members, metrics = CONFIGS[run], table(ROOT / run, "members"), table(ROOT / run, "metrics")
    fields = record["fields"]
    assert record["members"] == f"0:{record['total']}"
    assert sorted(members["member"]) == list(range(record["total"]))
    assert set(members["state"]) <= {"done", "diverged"}
    assert ((members["diverged_at"] >= 0) == (members["state"] == "diverged")).all()
    kinds = [name for name in members.columns if name not in AUXILIARY]
    seeds = members.groupby(kinds, dropna=False)["seed"].agg(sorted)
    assert all(of_kind == sorted(fields["seeds"]) for of_kind in seeds)
    starts = 6 if run == "brain-transfer" else 1  # origins of a PE
    assert len(seeds) == starts * math.prod(len(fields[name]) for name in SWEPT if name in fields)
    assert set(members["data"]) == set(parts_of(run))

    evaluations = fields["evaluations"]
    steps = {round(fields["steps"] * (i / evaluations) ** 1.5) for i in range(evaluations + 1)}
    conditions = {f"hidden {share:g}" for share in fields["ratios"]}
    trained = fields.get("trained_with", fields.get("shares", [fields["hidden"]]))
    assert set(members["hidden"]) == set(trained) and {f"hidden {share:g}" for share in trained} <= conditions
    assert set(metrics["step"]) == steps and set(metrics["metric"]) == {"mse"}
    done = set(members.loc[members["state"] == "done", "member"])
    rows = metrics[metrics["member"].isin(done)]
    assert not rows.duplicated(["member", "step", "split", "condition"]).any()
    assert set(rows["split"]) == {"train", "test"} and set(rows["condition"]) == conditions
    assert len(rows) == len(done) * len(steps) * 2 * len(conditions)
    assert np.isfinite(rows["value"]).all() and (rows["value"] > 0).all()


def networks_of(run: str) -> tuple[str, ...]:
    """The known networks that a run compares with; none in runs from before there were any."""
    (names,) = {tuple(part.get("partitions", {})) for part in parts_of(run).values()}
    return names


def assert_drawn(p_values: pd.DataFrame) -> None:
    """p-values by name: each is a share of the draws, the observed value included."""
    assert p_values["value"].between(0, 1).all()
    few = p_values["name"].isin(FEW_DRAWS) | p_values["name"].str.endswith("_smooth_p")
    counts = p_values["value"] * np.where(few, 200, 1001)
    assert np.allclose(counts, counts.round(), atol=1e-6) and (counts > 0.5).all()


@pytest.mark.parametrize("run", MASKED)
def test_every_measure_is_taken_before_and_after_training(run: str) -> None:
    rows, done = table(ROOT / run, "analysis"), finished(ROOT / run)
    rows = rows[rows["member"].isin(done["member"])]
    last = CONFIGS[run]["fields"]["steps"]
    assert set(rows["step"]) == {0, last}
    keys = ["block", "analysis", "target"]
    assert not rows.duplicated(["member", "step", *keys]).any()
    measures = {
        step: {key: set(of_key["member"]) for key, of_key in at.groupby(keys)} for step, at in rows.groupby("step")
    }
    moved = {(ALL_BLOCKS, "moved", "start"), (ALL_BLOCKS, "moved_relative", "start")}
    assert set(measures[last]) - set(measures[0]) == moved and set(measures[0]) < set(measures[last])
    near = ("neighbor_agreement", "labels") if labelled(run) else ("mirror_agreement", "partner")
    expected = {near, ("fc_correlation", "fc"), ("attention_correlation", "fc"), ("modularity", "best"), ("norm", "")}
    expected |= {("modularity", network) for network in networks_of(run)}
    assert {(ALL_BLOCKS, *measure) for measure in expected} < set(measures[0])
    whole, placed = set(done["member"]), set(done.loc[~done["encoding"].isin(NO_VECTORS), "member"])
    assert (placed == whole) == ("encodings" not in run)
    for (_, analysis, target), members in (item for at in measures.values() for item in at.items()):
        if target != "other data":  # similarity to members with other data, where there are any
            assert members == (whole if analysis.startswith("attention") else placed)

    of_attention = rows["analysis"].str.startswith("attention")
    zero = rows["member"].isin(done.loc[done["encoding"] == "none", "member"]) & ~of_attention  # PEs without direction
    defined = rows["analysis"].isin(["norm", "modules", "moved"])
    assert rows.loc[zero & ~defined, "value"].isna().all() and (rows.loc[zero & defined, "value"] == 0).all()
    kinds = [name for name in done.columns if name not in AUXILIARY]
    alone = done.loc[done.groupby(kinds, dropna=False)["member"].transform("size") == 1, "member"]
    single = rows["member"].isin(alone) & (rows["analysis"] == "stability")  # no other seed of its kind finished
    assert rows.loc[single, "value"].isna().all() and ("sgd" in run) == bool(single.any())
    kept = rows[~(zero & ~defined) & ~single & (rows["target"] != "other data")]
    assert np.isfinite(kept["value"]).all()
    assert_drawn(kept[kept["analysis"].str.endswith("_p")].rename(columns={"analysis": "name"}))


@pytest.mark.parametrize("run", MASKED)
def test_summary_has_means_and_deviations_of_the_tables(run: str) -> None:
    """Errors and measures in the end, of members and of baselines, with how many of a kind diverged."""
    rows, members = Run(ROOT / run).summary, table(ROOT / run, "members")
    last = CONFIGS[run]["fields"]["steps"]
    assert json.loads((ROOT / run / "summary.json").read_text())["step"] == last
    kinds = [name for name in rows[0] if name in members.columns]
    keys, written = ["split", "condition", "metric"], pd.DataFrame(rows)
    measures = where(table(ROOT / run, "analysis"), step=last, block=ALL_BLOCKS)
    measures = measures.rename(columns={"analysis": "metric", "target": "condition"})
    measures = measures.assign(split="analysis", condition=measures["condition"].replace("", "all"))
    ends = pd.concat([where(table(ROOT / run, "metrics"), step=last), measures]).merge(members, on="member")
    ends = ends.assign(value=ends["value"].where(ends["state"] == "done"))
    of_baseline = written["encoding"].str.startswith("baseline:")
    lost = members.assign(diverged=members["state"] == "diverged").groupby(kinds, dropna=False)["diverged"].sum()
    assert_summary(written[~of_baseline].astype(members.dtypes[kinds].to_dict()), ends, [*kinds, *keys], lost)

    theirs, keys = written[of_baseline], ["encoding", *(["data"] if "data" in kinds else []), *keys]
    assert theirs[[name for name in kinds if name not in keys]].isna().all(axis=None)
    named = table(ROOT / run, "baselines").assign(encoding=lambda rows: "baseline:" + rows["baseline"])
    assert_summary(theirs, named, keys, pd.Series(0, index=pd.Index(theirs["encoding"].unique(), name="encoding")))


def assert_summary(summary: pd.DataFrame, rows: pd.DataFrame, keys: list[str], lost: pd.Series) -> None:
    """Assert that counts, means and standard deviations are those of the rows, and how many members diverged."""
    by_hand = rows.groupby(keys, dropna=False)["value"].agg(["count", "mean", "std"]).reset_index()
    by_hand = by_hand.merge(lost.rename("lost").reset_index(), on=list(lost.index.names), how="left")
    both = summary.merge(by_hand, on=keys, suffixes=("", "_by_hand"))
    assert len(both) == len(summary) == len(by_hand)
    assert (both["n"] == both["count"]).all() and (both["diverged"] == both["lost"]).all()
    for name in ("mean", "std"):
        values = both[name].astype(float).to_numpy()
        assert values == pytest.approx(both[f"{name}_by_hand"].to_numpy(), abs=1e-9, nan_ok=True)


TWINS = {
    "network-sigma-50000": "network-sigma",
    "network-sigma-window": "network-sigma",
    "brain-encodings": "brain-sigma",
    "brain-mask": "brain-sigma",
    "synergy-sigma-512": "synergy-sigma",
    "synergy-size-60-long": "synergy-size-60",
}
"""Runs in the worlds of another run, with members of the same seeds and sigmas."""


def common_members(run: str, different: tuple[str, ...] = ()) -> pd.DataFrame:
    """Return the finished members of a run and of its twin that agree in all settings but these, side by side."""
    first, second = finished(ROOT / TWINS[run]), finished(ROOT / run)
    settings = [name for name in first.columns if name in second.columns]
    settings = [name for name in settings if name == "seed" or name not in (*AUXILIARY, *different)]
    return first.merge(second, on=settings, suffixes=("_first", "_second"))


@pytest.mark.parametrize("run", TWINS)
def test_run_has_worlds_and_initial_pes_of_its_twin(run: str) -> None:
    first, second = ROOT / TWINS[run], ROOT / run
    keys = ["data", "world", "baseline", "condition", "metric"]
    structure = [where(table(folder, "baselines"), split="analysis") for folder in (first, second)]
    both = structure[1].merge(structure[0], on=keys)
    assert len(both) == len(structure[1]) > 0
    assert both["value_x"].to_numpy() == pytest.approx(both["value_y"].to_numpy(), abs=1e-12)
    pairs = common_members(run, ("batch", "learning_rate", "hidden", "ramp"))
    assert len(pairs) >= 12
    for analysis, target in (("norm", ""), ("fc_correlation", "fc"), ("modularity", "best")):
        before = [of_members(folder, analysis, target, start=True) for folder in (first, second)]
        values = before[0].loc[pairs["member_first"]].to_numpy()
        assert before[1].loc[pairs["member_second"]].to_numpy() == pytest.approx(values, abs=1e-6)
