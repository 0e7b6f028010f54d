"""The tables of the committed runs of masked prediction are complete. Runs of the same worlds have equal baselines."""

import math

import numpy as np
import pytest
from helpers.committed_masked import ALL_BLOCKS, CONFIGS, MASKED, NO_VECTORS, ROOT, finished, parts_of, table, where

from placecode.models.member import NON_SETTING_COLUMNS

SWEPT = ("sigmas", "encodings", "node_counts", "group_counts", "samples", "noises", "batches", "rates", "widths")
SWEPT += ("ramps", "mask_ratios", "optimizers", "variants")
"""Fields that list values. All combinations of these are members."""


@pytest.mark.parametrize("run", MASKED)
def test_every_member_has_every_condition_at_every_step(run: str) -> None:
    record, members, metrics = CONFIGS[run], table(ROOT / run, "members"), table(ROOT / run, "metrics")
    fields = record["fields"]
    assert record["members"] == f"0:{record['total']}"
    assert sorted(members["member"]) == list(range(record["total"]))
    assert set(members["state"]) <= {"done", "diverged"}
    assert ((members["diverged_at"] >= 0) == (members["state"] == "diverged")).all()
    kinds = [name for name in members.columns if name not in NON_SETTING_COLUMNS]
    seeds = members.groupby(kinds, dropna=False)["seed"].agg(sorted)
    assert all(of_kind == sorted(fields["seeds"]) for of_kind in seeds)
    starts = 6 if run == "brain-transfer" else 1  # where a PE comes from, and whether it is trained
    assert len(seeds) == starts * math.prod(len(fields[name]) for name in SWEPT if name in fields)
    assert set(members["data"]) == set(parts_of(run))

    evaluations = fields["evaluations"]
    steps = {round(fields["steps"] * (i / evaluations) ** 1.5) for i in range(evaluations + 1)}
    conditions = {f"hidden {share:g}" for share in fields["eval_mask_ratios"]}
    trained = fields.get("mask_ratios", [fields["mask_ratio"]])
    assert set(members["mask_ratio"]) == set(trained) and {f"hidden {share:g}" for share in trained} <= conditions
    assert set(metrics["step"]) == steps and set(metrics["metric"]) == {"mse"}
    done = set(members.loc[members["state"] == "done", "member"])
    rows = metrics[metrics["member"].isin(done)]
    assert not rows.duplicated(["member", "step", "split", "condition"]).any()
    assert set(rows["split"]) == {"train", "test"} and set(rows["condition"]) == conditions
    assert len(rows) == len(done) * len(steps) * 2 * len(conditions)
    assert np.isfinite(rows["value"]).all() and (rows["value"] > 0).all()


@pytest.mark.parametrize("run", MASKED)
def test_every_measure_is_taken_once_before_and_after_training(run: str) -> None:
    rows, steps, keys = table(ROOT / run, "analysis"), CONFIGS[run]["fields"]["steps"], ["block", "analysis", "target"]
    done = finished(ROOT / run)
    rows = rows[rows["member"].isin(done["member"])]
    assert set(rows["step"]) == {0, steps} and not rows.duplicated(["member", "step", *keys]).any()
    before, after = (set(where(rows, step=step)[keys].itertuples(index=False, name=None)) for step in (0, steps))
    assert after - before == {(ALL_BLOCKS, name, "start") for name in ("moved", "moved_relative")} and before < after
    known_groups = next(iter(parts_of(run).values()))["labels"] is not None
    near = ("neighbor_agreement", "labels") if known_groups else ("mirror_agreement", "partner")
    expected = {near, ("fc_correlation", "fc"), ("attention_correlation", "fc"), ("modularity", "best"), ("norm", "")}
    assert {(ALL_BLOCKS, *measure) for measure in expected} < before
    counts = rows[rows["target"] != "other data"].groupby(["step", *keys])["member"].nunique()
    of_attention = counts.index.get_level_values("analysis").str.startswith("attention")
    with_pe = done.loc[~done["encoding"].isin(NO_VECTORS), "member"]
    assert set(counts[of_attention]) == {len(done)} and set(counts[~of_attention]) == {len(with_pe)}
    p_values = rows.loc[rows["analysis"].str.endswith("_p"), "value"].dropna()
    assert ((p_values > 0) & (p_values <= 1)).all()


TWINS = dict.fromkeys(("network-sigma-50000", "network-sigma-window"), "network-sigma")
TWINS |= {**dict.fromkeys(("brain-encodings", "brain-mask"), "brain-sigma"), "synergy-sigma-512": "synergy-sigma"}
TWINS |= {"synergy-size-60-long": "synergy-size-60"}


@pytest.mark.parametrize(("run", "twin"), TWINS.items())
def test_run_has_the_worlds_of_its_twin(run: str, twin: str) -> None:
    """The baselines have the same values in both."""
    of_run, of_twin = (where(table(ROOT / name, "baselines"), split="analysis") for name in (run, twin))
    both = of_run.merge(of_twin, on=["data", "world", "baseline", "condition", "metric"])
    assert len(both) == len(of_run) > 0
    assert both["value_x"].to_numpy() == pytest.approx(both["value_y"].to_numpy(), abs=1e-12)
