"""The tables of the committed runs of masked prediction are whole, and agree with each other and with their twins'."""

from __future__ import annotations

import itertools
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
    OLDER,
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

GONE_THROUGH = (
    *("sigmas", "encodings", "many", "samples", "noises", "batches", "rates", "widths", "shares", "ramps"),
    *("trained_with", "optimizers", "variants"),
)
"""Settings of which a study goes through all values, with all of the others."""


@pytest.mark.parametrize("run", MASKED)
def test_no_member_is_missing_and_each_has_every_condition_at_every_step(run: str) -> None:
    told, members, metrics = CONFIGS[run], table(ROOT / run, "members"), table(ROOT / run, "metrics")
    fields = told["fields"]
    assert told["members"] == f"0:{told['total']}"
    assert sorted(members["member"]) == list(range(told["total"]))
    assert set(members["state"]) <= {"done", "diverged"}
    assert ((members["diverged_at"] >= 0) == (members["state"] == "diverged")).all()
    kinds = members.drop(columns=list(AUXILIARY), errors="ignore")
    seeds = members.groupby(list(kinds.columns), dropna=False)["seed"].agg(sorted)
    assert all(own == sorted(fields["seeds"]) for own in seeds)
    assert len(seeds) * len(fields["seeds"]) == told["total"]
    ways = 6 if run == "brain-transfer" else 1  # in which a PE comes about
    assert len(seeds) == ways * math.prod(len(fields[name]) for name in GONE_THROUGH if name in fields)
    assert set(members["data"]) == set(parts_of(run))

    steps = {0} | {
        round(fields["steps"] * (i / fields["evaluations"]) ** 1.5) for i in range(1, 1 + fields["evaluations"])
    }
    conditions = {f"hidden {share:g}" for share in fields["ratios"]}
    trained = fields.get("trained_with", fields.get("shares", [fields["hidden"]]))
    assert set(members["hidden"]) == set(trained) and {f"hidden {share:g}" for share in trained} <= conditions
    assert (
        len(conditions)
        == len(fields["ratios"])
        == {"brain-mask": 4, "synergy-size-60-shares": 4}.get(run, 3 if "-hidden-" in run else 2)
    )
    assert set(metrics["step"]) == steps and max(steps) == fields["steps"]
    assert set(metrics["metric"]) == {"mse"}
    done = set(members.loc[members["state"] == "done", "member"])
    rows = metrics[metrics["member"].isin(done)]
    keys = ["member", "step", "split", "condition"]
    assert not rows.duplicated(keys).any()
    assert {(split, condition) for split in ("train", "test") for condition in conditions} == set(
        zip(rows["split"], rows["condition"], strict=True)
    )
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


JUDGED_BY_LABELS = ("modularity", "segregation", "neighbor_agreement", "silhouette")
JUDGED_BY_NETWORKS = ("modularity", "segregation", "neighbor_agreement")
FEW_DRAWS = (
    *("ari_p", "ami_p", "fc_correlation_p", "fc_correlation_smooth_p", "mirror_agreement_smooth_p"),
    *("attention_correlation_p", *(f"{name}_smooth_p" for name in JUDGED_BY_NETWORKS)),
)
"""Chances from 199 draws; others are from 1,000."""


CHANCES = ("z", "p", "low", "high")


def networks_of(run: str) -> tuple[str, ...]:
    """The known networks that a run compares with; none in those that were made before there were any."""
    (names,) = {tuple(part.get("partitions", {})) for part in parts_of(run).values()}
    return names


def assert_drawn(chances: pd.DataFrame) -> None:
    """Chances by name: each a share of the draws, itself counted in."""
    assert (chances["value"] > 0).all() and (chances["value"] <= 1).all()
    counts = chances["value"] * chances["name"].map(lambda name: 200 if name in FEW_DRAWS else 1001)
    assert np.allclose(counts, counts.round(), atol=1e-6)


@pytest.mark.parametrize("run", MASKED)
def test_every_measure_was_taken_before_and_after_training(run: str) -> None:
    rows, done = table(ROOT / run, "analysis"), finished(ROOT / run)
    rows = rows[rows["member"].isin(done["member"])]
    last, layers = CONFIGS[run]["fields"]["steps"], CONFIGS[run]["fields"]["layers"]
    assert set(rows["step"]) == {0, last}
    keys = ["block", "analysis", "target"]
    assert not rows.duplicated(["member", "step", *keys]).any()
    of_attention = {(block, "attention_correlation", "fc") for block in range(-1, layers)}
    if run not in OLDER:
        of_attention.add((-1, "attention_correlation_p", "fc"))
    of_pes = {
        *((-1, name, "") for name in ("norm", "effective_dimension")),
        *((block, "fc_correlation", "fc") for block in range(-2, layers)),
        *((-1, name, "best") for name in ("modularity", "modules")),
        *((-1, "fc_correlation_p", "fc"), (-1, "stability", "other seeds")),
    }
    if labelled(run):
        of_pes |= {(block, name, "labels") for block in range(-2, layers) for name in JUDGED_BY_LABELS}
        of_pes |= {(-1, f"{name}_{kind}", "labels") for name in JUDGED_BY_LABELS for kind in "zp"}
        of_pes |= {(-1, "ari", "best"), *((-1, name, "labels") for name in ("ari", "ami", "ari_p", "ami_p"))}
    else:
        of_pes |= {(block, "mirror_agreement", "partner") for block in range(-2, layers)}
        of_pes |= {(block, "coordinate_agreement", "positions") for block in range(-2, layers)}
        of_pes |= {(-1, "mirror_agreement_p", "partner"), (-1, "coordinate_agreement_p", "positions")}
        of_pes |= {(-1, "mirror_agreement_smooth_p", "partner"), (-1, "fc_correlation_smooth_p", "fc")}
    for target, name in itertools.product(networks_of(run), JUDGED_BY_NETWORKS):
        of_pes |= {(block, name, target) for block in range(-2, layers)}
        of_pes |= {(-1, f"{name}{null}_{part}", target) for null in ("", "_smooth") for part in CHANCES}
    moved = {(-1, "moved", "start"), (-1, "moved_relative", "start")}
    whole, placed = set(done["member"]), set(done.loc[~done["encoding"].isin(NO_VECTORS), "member"])
    assert (placed == whole) == ("encodings" not in run)
    alike = set(elsewhere(run)["member"])
    for step, more in ((0, set()), (last, moved)):
        groups = {key: set(own["member"]) for key, own in rows[rows["step"] == step].groupby(keys)}
        assert groups == {
            **dict.fromkeys(of_attention, whole),
            **dict.fromkeys(of_pes | more, placed),
            **({(-1, "stability", "other data"): alike} if alike else {}),
        }
    nowhere = rows["member"].isin(done.loc[done["encoding"] == "none", "member"])  # all zero: of no direction
    told = rows["analysis"].str.startswith("attention") | rows["analysis"].isin(["norm", "modules", "moved"])
    assert rows.loc[nowhere & ~told, "value"].isna().all()
    assert (rows.loc[nowhere & told & ~rows["analysis"].str.startswith("attention"), "value"] == 0).all()
    kinds = [name for name in done.columns if name not in AUXILIARY]
    alone = done.loc[done.groupby(kinds, dropna=False)["member"].transform("size") == 1, "member"]
    single = rows["member"].isin(alone) & (rows["analysis"] == "stability")  # no other seed of its kind finished
    assert rows.loc[single, "value"].isna().all() and ("sgd" in run) == bool(single.any())
    kept = rows[(~nowhere | told) & ~single & (rows["target"] != "other data")]
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
    told, rows = CONFIGS[run], table(ROOT / run, "baselines")
    fields, members = told["fields"], table(ROOT / run, "members")
    assert not rows.duplicated(["data", "world", "baseline", "split", "condition", "metric"]).any()
    assert set(rows["data"]) == set(members["data"])
    conditions = {f"hidden {share:g}" for share in fields["ratios"]}
    matrices = {"fc", "mutual information", "partial correlation", "pca of channels", "mds of fc"}
    structure = {("best", "modularity"), ("best", "modules")}
    if labelled(run):
        structure |= {("labels", f"{name}{kind}") for name in JUDGED_BY_LABELS for kind in ("", "_z", "_p")}
        structure |= {("labels", name) for name in ("ari", "ari_p", "ami", "ami_p")} | {("best", "ari")}
    else:
        structure |= {("partner", name) for name in ("mirror_agreement", "mirror_agreement_p")}
        structure |= {("positions", name) for name in ("coordinate_agreement", "coordinate_agreement_p")}
    crossed = list(itertools.product(networks_of(run), JUDGED_BY_NETWORKS))
    shuffled = {(target, name + end) for target, name in crossed for end in ("", *(f"_{each}" for each in CHANCES))}
    smooth = {(target, f"{name}_smooth_{part}") for target, name in crossed for part in CHANCES}
    for data, own in rows.groupby("data"):
        worlds = told.get("shapes", {}).get(data, told["shape"])["worlds"]
        assert set(own["world"]) == set(range(worlds)) == {seed % worlds for seed in fields["seeds"]}
        trained = sorted(set(where(members, data=data)["hidden"]))
        asked = {name for name in fields["against"] if name != "spectral" or labelled(run)}
        for world, there in own.groupby("world"):
            slow = asked & {"ridge", "trees"}  # they learn from examples with as many hidden as models do
            each_share = {f"{name}, trained with {share:g} hidden" for name in slow for share in trained}
            fitted = (each_share if len(trained) > 1 else slow) if world < fields["slow_in"] else set()
            centred = {"centred fc"} if crossed and "fc" in asked else set()
            assert set(there["baseline"]) == (asked - slow) | fitted | centred
            for name, each in there.groupby("baseline"):
                if name in matrices or name in centred:
                    expected = set() if name in centred else structure
                    expected = expected | shuffled | (smooth if name in ("fc", "centred fc") else set())
                    assert set(zip(each["condition"], each["metric"], strict=True)) == expected
                    assert set(each["split"]) == {"analysis"}
                elif name == "spectral":
                    assert set(each["metric"]) == {"ari", "ami"}
                else:
                    assert set(each["condition"]) == conditions and len(each) == len(conditions)
                    assert set(each["metric"]) == {"mse"} and set(each["split"]) == {"test"}
    blind = rows["value"].isna()  # where a graphical lasso sees no link at all
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
