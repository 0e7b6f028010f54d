"""Measures of the PEs of the committed runs of masked prediction, computed again from the PEs that are stored."""

import numpy as np
import pytest
from helpers import committed_masked as runs
from safetensors.numpy import load_file
from scipy import stats

SIGNIFICANT = 0.001
"""Smallest p value of a binomial test at which p values count as uniform."""


@pytest.mark.parametrize("run", runs.SWEEPS)
def test_p_values_are_uniform_before_training_and_small_after(run: str) -> None:
    """Members of a seed start from one draw times sigma, so p before training is the same: a seed is one trial."""
    measures = {("neighbor_agreement_p", "labels"): 0.005, ("modularity_p", "labels"): 0.005}
    measures |= {("silhouette_p", "labels"): 0.005, ("ami_p", "labels"): 0.05}
    if run in runs.BRAINS:
        measures = {("mirror_agreement_p", "partner"): 0.005, ("mirror_agreement_smooth_p", "partner"): 0.005}
        measures |= {("coordinate_agreement_p", "positions"): 0.005}
    for (name, target), largest in measures.items():
        before = runs.measure(runs.ROOT / run, name, target, start=True)
        assert (before.max() - before.min()).max() <= (runs.ONE_DRAW if name == "silhouette_p" else 1e-9)
        significant = before.iloc[0] <= 0.05
        assert significant.mean() <= 0.5
        assert stats.binomtest(int(significant.sum()), len(significant), 0.05).pvalue > SIGNIFICANT
        after = runs.measure(runs.ROOT / run, name, target).iloc[0]
        assert after.name == (0.05 if run == "synergy-sigma-512" else 0.01)
        assert (after <= largest + 1e-12).all()
        assert stats.binomtest(len(after), len(after), 0.05).pvalue < SIGNIFICANT  # the test above would notice this


@pytest.mark.parametrize("run", runs.PICTURED)
def test_measures_follow_from_the_stored_pes(run: str) -> None:
    """PEs of seed 0 and correlation matrices are stored in half precision, so a near tie may be decided differently."""
    arrays, members = load_file(runs.ROOT / run / "arrays.safetensors"), runs.table(runs.ROOT / run, "members")
    done = runs.where(members[(members["seed"] == 0) & ~members["encoding"].isin(runs.NO_VECTORS)], state="done")
    required, allowed = ({f"pe_end/{number}" for number in rows["member"]} for rows in (done, members))
    assert required <= {name for name in arrays if "fc/" not in name} <= allowed
    assert all(values.dtype == np.float16 for values in arrays.values())
    for member in done.to_dict("records"):
        number, task, world = member["member"], runs.parts_of(run)[member["data"]], 0
        fc = matrix_of(arrays, member["data"], world)
        assert fc.shape == (task["tokens"],) * 2 and np.abs(fc - fc.T).max() < 1e-3 and np.allclose(np.diag(fc), 1)
        pe = arrays[f"pe_end/{number}"]
        assert pe.shape == (member["layers"], task["tokens"], member["width"])
        size = runs.of_members(runs.ROOT / run, "norm", "")[number]
        assert np.sqrt((pe.astype(np.float64) ** 2).mean()) == pytest.approx(size, rel=1e-3)
        if member["encoding"] == "none":
            assert not pe.any()
            continue
        similarity = runs.cosines(pe)
        near = runs.nearest(similarity)
        if task["labels"] is None:
            partner = np.array(task["partner"])
            right = (near == partner)[partner >= 0]
            recorded = runs.of_members(runs.ROOT / run, "mirror_agreement", "partner")[number]
        else:
            labels = np.array(task["labels"])
            right = labels[near] == labels
            recorded = runs.of_members(runs.ROOT / run, "neighbor_agreement", "labels")[number]
        assert abs(right.sum() - recorded * len(right)) <= 2 + 1e-6
        fc_correlation = runs.of_members(runs.ROOT / run, "fc_correlation", "fc")[number]
        pairs = np.triu_indices(len(fc), 1)
        assert np.corrcoef(similarity[pairs], fc[pairs])[0, 1] == pytest.approx(fc_correlation, abs=1e-3)


def matrix_of(arrays: dict[str, np.ndarray], data: str, world: int) -> np.ndarray:
    """Return the correlation matrix of a world, of the data set `data` if the experiment has several."""
    return np.asarray(arrays[fc_name(data, world)].astype(np.float64))


def fc_name(data: str, world: int) -> str:
    """Return the name of the correlation matrix of a world among the stored arrays."""
    return f"{data}:fc/{world}" if data else f"fc/{world}"


@pytest.mark.parametrize("run", runs.PICTURED)
def test_baselines_follow_from_the_stored_correlation_matrices(run: str) -> None:
    arrays, rows = load_file(runs.ROOT / run / "arrays.safetensors"), runs.table(runs.ROOT / run, "baselines")
    names = set()
    for data, task in runs.parts_of(run).items():
        kind = "mirror_agreement" if task["labels"] is None else "neighbor_agreement"
        for world, value in runs.where(rows, data=data, baseline="fc", metric=kind).set_index("world")["value"].items():
            near = runs.nearest(matrix_of(arrays, data, world))
            labels = np.array(task["labels"] or task["partner"])
            right = (labels[near] == labels) if task["labels"] else (near == labels)[labels >= 0]
            assert abs(right.sum() - value * len(right)) <= 2 + 1e-6
            names.add(fc_name(data, world))
    assert names == {name for name in arrays if "fc/" in name}


def test_halves_share_no_person_except_the_one_held_out() -> None:
    parts = runs.CONFIGS["brain-transfer"]["task"]["parts"]
    first, second = (parts[f"{half} half"]["people"] for half in ("first", "second"))
    assert first["test"] == second["test"]
    assert sorted(name for held_out in first["test"] for name in held_out) == sorted(set().union(*first["test"]))
    for people in zip(first["train"], second["train"], first["test"], strict=True):
        assert len(set().union(*people)) == sum(map(len, people))
    splits = runs.CONFIGS["brain-sigma"]["task"]["people"]
    for train, test in zip(splits["train"], splits["test"], strict=True):
        assert not set(train) & set(test)
    tasks = [runs.CONFIGS[run]["task"] for run in runs.BRAINS]
    assert all(task["people"] == splits for task in tasks if "parts" not in task)
