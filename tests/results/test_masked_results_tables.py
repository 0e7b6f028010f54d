"""The tables of the committed runs of masked prediction are complete, and agree with each other and with twin runs."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.committed_masked import (
    ALL_BLOCKS,
    CONFIGS,
    MASKED,
    NO_VECTORS,
    ONE_DRAW,
    ROOT,
    SWEEPS,
    SYNERGY,
    config,
    error_of_members,
    finished,
    labelled,
    of_members,
    parts_of,
    table,
    where,
    worlds_of,
)

from placecode.models.member import AUXILIARY

LISTS = (
    "sigmas",
    "encodings",
    "many",
    "samples",
    "noises",
    "batches",
    "rates",
    "widths",
    "shares",
    "ramps",
    "trained_with",
    "optimizers",
    "variants",
)
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
    assert len(seeds) == starts * math.prod(len(fields[name]) for name in LISTS if name in fields)
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


@pytest.mark.parametrize("run", MASKED)
def test_a_token_holds_a_window_and_a_mark(run: str) -> None:
    window = 5 if run.endswith("-window") else 1
    assert CONFIGS[run]["fields"].get("window", 1) == window
    for data, part in parts_of(run).items():
        shape = CONFIGS[run].get("shapes", {}).get(data, CONFIGS[run]["shape"])
        assert (part["window"], shape["features"], shape["outputs"]) == (window, window + 1, window)
        assert (shape["tokens"], shape["worlds"]) == (part["tokens"], part["worlds"])


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
def test_every_measure_was_taken_before_and_after_training(run: str) -> None:
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
    alike = set(elsewhere(run)["member"])
    for (_, analysis, target), members in (item for at in measures.values() for item in at.items()):
        assert members == (whole if analysis.startswith("attention") else alike if target == "other data" else placed)

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


def elsewhere(run: str) -> pd.DataFrame:
    """The members whose like learned from other data, from another seed; and whether one such is of their world."""
    done = finished(ROOT / run)
    kinds = [name for name in done.columns if name not in (*AUXILIARY, "data")]
    pairs = done.merge(done[[*kinds, "member", "seed", "data"]], on=kinds, suffixes=("", "_other"))
    pairs = pairs[(pairs["seed"] != pairs["seed_other"]) & (pairs["data"] != pairs["data_other"])]
    worlds = worlds_of(ROOT / run)
    same = pairs["seed"] % worlds == pairs["seed_other"] % worlds
    return pairs.assign(same=same).groupby("member")["same"].any().reset_index()


@pytest.mark.parametrize("run", [run for run in MASKED if len(parts_of(run)) > 1])
def test_likeness_on_other_data_is_told_within_a_world_alone(run: str) -> None:
    """Two worlds may share what two data sets do not. Where every seed has its own world, nothing is told."""
    asked, rows = elsewhere(run).set_index("member")["same"], table(ROOT / run, "analysis")
    assert len(asked) and asked.any() == (run == "brain-transfer")
    found = where(rows, analysis="stability", target="other data")
    assert set(found["member"]) == set(asked.index)
    assert (found["value"].notna() == found["member"].map(asked)).all()


def test_a_pe_from_other_people_is_compared_with_the_one_other_of_its_world() -> None:
    """Of two halves, in both directions: a member and the other seed of its split, on the other half."""
    at = ROOT / "brain-transfer"
    rows = where(finished(at), start="normal", learn=True)
    likeness = of_members(at, "stability", "other data")
    told = rows.assign(value=rows["member"].map(likeness)).set_index(["sigma", "seed", "data"])["value"].unstack()
    for sigma, own in told.groupby(level="sigma"):
        first = own.loc[sigma]
        for seed in first.index:
            other = (seed + worlds_of(at)) % 10
            assert first.loc[seed, "first half"] == pytest.approx(first.loc[other, "second half"], abs=1e-9)


@pytest.mark.parametrize("run", MASKED)
def test_every_world_has_its_baselines(run: str) -> None:
    record, rows = CONFIGS[run], table(ROOT / run, "baselines")
    fields, members = record["fields"], table(ROOT / run, "members")
    assert not rows.duplicated(["data", "world", "baseline", "split", "condition", "metric"]).any()
    assert set(rows["data"]) == set(members["data"])
    conditions = {f"hidden {share:g}" for share in fields["ratios"]}
    wanted = {name for name in fields["against"] if name != "spectral" or labelled(run)}
    wanted |= {"centred fc"} if networks_of(run) and "fc" in wanted else set()
    slow = wanted & {"ridge", "trees"}  # trained on examples with as many hidden channels as the models
    for data, of_data in rows.groupby("data"):
        worlds = record.get("shapes", {}).get(data, record["shape"])["worlds"]
        assert set(of_data["world"]) == set(range(worlds)) == {seed % worlds for seed in fields["seeds"]}
        trained = sorted(set(where(members, data=data)["hidden"]))
        by_share = {f"{name}, trained with {share:g} hidden" for name in slow for share in trained}
        for world, there in of_data.groupby("world"):
            fitted = (by_share if len(trained) > 1 else slow) if world < fields["slow_in"] else set()
            assert set(there["baseline"]) == (wanted - slow) | fitted
        for _, of_baseline in of_data.groupby("baseline"):
            measures = of_baseline.groupby("world")[["condition", "metric"]].apply(
                lambda at: set(map(tuple, at.to_numpy()))
            )
            assert all(of_world == measures.iloc[0] for of_world in measures)  # the same in every world
            if "mse" in set(of_baseline["metric"]):
                assert measures.iloc[0] == {(condition, "mse") for condition in conditions}
                assert set(of_baseline["split"]) == {"test"}
    blind = rows["value"].isna()  # a graphical lasso without a single link
    assert set(rows.loc[blind, "baseline"]) <= ({"partial correlation"} if run in SYNERGY else set())
    assert_drawn(rows[rows["metric"].str.endswith("_p") & ~blind].rename(columns={"metric": "name"}))


def test_ridge_was_fitted_to_every_share_that_models_were_trained_with() -> None:
    """And is best at its own, in every world where it was."""
    rows = where(table(ROOT / "brain-mask", "baselines"), metric="mse")
    rows = rows[rows["baseline"].str.startswith("ridge")]
    assert set(rows["world"]) == {0, 1, 2}
    by_share = rows.pivot(index=["world", "condition"], columns="baseline", values="value")
    shares = [f"{share:g}" for share in (0.15, 0.5, 0.75, 0.9)]
    assert list(by_share.columns) == [f"ridge, trained with {share} hidden" for share in shares]
    for (_, condition), own in by_share.iterrows():
        assert own.idxmin() == f"ridge, trained with {condition.removeprefix('hidden ')} hidden"


@pytest.mark.parametrize("run", MASKED)
def test_the_summary_is_that_of_the_tables(run: str) -> None:
    """Errors and measures in the end, of members and of baselines, with how many of a kind diverged."""
    summary, members = json.loads((ROOT / run / "summary.json").read_text()), table(ROOT / run, "members")
    last = CONFIGS[run]["fields"]["steps"]
    assert summary["step"] == last
    kinds = [name for name in summary["rows"][0] if name in members.columns]
    asked, said = ["split", "condition", "metric"], pd.DataFrame(summary["rows"])
    measures = where(table(ROOT / run, "analysis"), step=last, block=ALL_BLOCKS)
    measures = measures.rename(columns={"analysis": "metric", "target": "condition"})
    measures = measures.assign(split="analysis", condition=measures["condition"].replace("", "all"))
    ends = pd.concat([where(table(ROOT / run, "metrics"), step=last), measures]).merge(members, on="member")
    ends = ends.assign(value=ends["value"].where(ends["state"] == "done"))
    of_baseline = said["encoding"].str.startswith("baseline:")
    lost = members.assign(diverged=members["state"] == "diverged").groupby(kinds, dropna=False)["diverged"].sum()
    assert_summary(said[~of_baseline].astype(members.dtypes[kinds].to_dict()), ends, [*kinds, *asked], lost)

    theirs, keys = said[of_baseline], ["encoding", *(["data"] if "data" in kinds else []), *asked]
    assert theirs[[name for name in kinds if name not in keys]].isna().all(axis=None)
    named = table(ROOT / run, "baselines").assign(encoding=lambda rows: "baseline:" + rows["baseline"])
    assert_summary(theirs, named, keys, pd.Series(0, index=pd.Index(theirs["encoding"].unique(), name="encoding")))


def assert_summary(said: pd.DataFrame, rows: pd.DataFrame, keys: list[str], lost: pd.Series) -> None:
    """Numbers, means and standard deviations are those of the rows; how many diverged, as told by kind."""
    own = rows.groupby(keys, dropna=False)["value"].agg(["count", "mean", "std"]).reset_index()
    own = own.merge(lost.rename("lost").reset_index(), on=list(lost.index.names), how="left")
    both = said.merge(own, on=keys, suffixes=("", "_own"))
    assert len(both) == len(said) == len(own)
    assert (both["n"] == both["count"]).all() and (both["diverged"] == both["lost"]).all()
    for name in ("mean", "std"):
        told = both[name].astype(float).to_numpy()
        assert told == pytest.approx(both[f"{name}_own"].to_numpy(), abs=1e-9, nan_ok=True)


TWINS = {
    **{f"{what}-sigma-50000": f"{what}-sigma" for what in ("network", "brain")},
    **{f"{what}-sigma-window": f"{what}-sigma" for what in ("network", "brain")},
    **{f"{what}-encodings": f"{what}-sigma" for what in ("network", "brain", "synergy")},
    **{f"synergy-size-60-{what}": "synergy-size-60" for what in ("long", "ramps", "shares", "widths")},
    **{"synergy-sigma-512": "synergy-sigma", "synergy-size-60": "synergy-size", "brain-mask": "brain-sigma"},
    **({"network-sigma-hidden-90": "network-sigma-hidden-15"} if "network-sigma-hidden-90" in MASKED else {}),
}
"""Runs in the worlds of another one."""


def in_common(one: Path, two: Path, but: tuple[str, ...]) -> pd.DataFrame:
    """The members of two runs that have all settings in common but these, side by side. Settings that came later are
    not in older runs."""
    shared = [name for name in finished(one).columns if name in finished(two).columns]
    kinds = [name for name in shared if name not in ({*AUXILIARY, *but} - {"seed"})]
    return finished(one).merge(finished(two), on=kinds, suffixes=("_one", "_two"))


@pytest.mark.parametrize("run", TWINS)
def test_a_run_has_the_worlds_and_the_starts_of_its_twin(run: str) -> None:
    """What is asked of them is the same where the shares and the window are. How it is trained shows later."""
    one, two = ROOT / TWINS[run], ROOT / run
    keys = ["data", "world", "baseline", "split", "condition", "metric"]
    theirs, fields = table(two, "baselines"), [config(folder)["fields"] for folder in (one, two)]
    same = all(fields[0].get(name) == fields[1].get(name) for name in ("ratios", "window"))
    assert same == (run not in ("brain-mask", "synergy-size-60-shares") and not run.endswith("-window"))
    theirs = theirs if same else theirs[theirs["metric"] != "mse"]
    both = theirs.merge(table(one, "baselines"), on=keys)
    assert len(both) == len(theirs)
    assert both["value_x"].to_numpy() == pytest.approx(both["value_y"].to_numpy(), abs=1e-12)

    pairs = in_common(one, two, but=("batch", "learning_rate", "hidden", "ramp"))
    learned = where(finished(two), encoding="learned")
    learned = learned[learned["sigma"].isin(finished(one)["sigma"])]
    assert set(pairs["member_two"]) == (set() if run.endswith("-widths") else set(learned["member"]))
    starts = [where(table(folder, "metrics"), step=0) for folder in (one, two)]
    measures = [where(table(folder, "analysis"), step=0, block=ALL_BLOCKS) for folder in (one, two)]
    measures = [rows[~rows["analysis"].str.startswith(("attention", "stability"))] for rows in measures]
    for rows, columns in ((starts if same else [], ["split", "condition"]), (measures, ["analysis", "target"])):
        if rows:
            wide = [each.pivot(index="member", columns=columns, values="value") for each in rows]
            known = {*networks_of(TWINS[run]), *networks_of(run)}  # which one of the two may not have
            assert {name for name in set(wide[0].columns) ^ set(wide[1].columns) if name[1] not in known} == set()
            both_have = [name for name in wide[0].columns if name in wide[1].columns]
            before, after = (
                each.loc[pairs[f"member_{one}"], both_have] for each, one in zip(wide, ("one", "two"), strict=True)
            )
            most = np.array([ONE_DRAW if "silhouette_p" in name else 1e-6 for name in before.columns])
            assert (np.abs(before.to_numpy() - after.to_numpy()) <= most).all()


@pytest.mark.parametrize(("run", "most"), [("network-encodings", 0.001), ("brain-encodings", 0.02)])
def test_the_same_model_trained_in_two_runs_differs_by_rounding_alone(run: str, most: float) -> None:
    """Not so in synergy, where rounding may decide whether the groups are found within the steps."""
    one, two = ROOT / TWINS[run], ROOT / run
    pairs = in_common(one, two, but=())
    assert len(pairs) == 15
    for condition in SWEEPS[TWINS[run]]:
        errors = [error_of_members(folder, condition) for folder in (one, two)]
        apart = errors[0].loc[pairs["member_one"]].to_numpy() - errors[1].loc[pairs["member_two"]].to_numpy()
        assert np.abs(apart).max() < most
