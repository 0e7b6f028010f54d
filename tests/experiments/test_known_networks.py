"""PEs and known networks: planted networks are found, shuffled ones are not, and both nulls are correct."""

import networkx
import numpy as np
import pandas as pd
import pytest
import torch

from placecode.analysis import alignment, modules
from placecode.data.atlases import Partition
from placecode.experiments.channels import baselines, known_networks, structure
from placecode.models.member import Member
from placecode.tasks.masked import Masked, join_recordings
from placecode.training.trainer import stack_for

N = 24
PLANTED = np.where(np.arange(N) < N - 2, np.arange(N) // 6, -1)  # the last two belong nowhere
SHUFFLED = np.random.default_rng(3).permutation(PLANTED)


def partition(labels: np.ndarray) -> Partition:
    return Partition("yeo7", labels, tuple("abcd"), np.ones(N), 10.0)


class Regions(Masked):
    """Regions at random places. One partition is planted in the recordings, and another is not."""

    name = "regions"

    def __init__(self, placed: bool = True) -> None:
        rng = np.random.default_rng(0)
        shared, noise = rng.normal(size=(400, 4)), rng.normal(size=(400, N))
        values = np.where(PLANTED >= 0, shared[:, PLANTED], 0) + noise
        super().__init__({"train": join_recordings([values[:300]]), "test": join_recordings([values[300:]])})
        self.positions = rng.normal(size=(N, 3)) if placed else None
        self.partitions = {"yeo7": partition(PLANTED), "cole-anticevic": partition(SHUFFLED)}


def blocks(labels: np.ndarray) -> np.ndarray:
    """Similarity 1 within networks, 0 between them."""
    return ((labels[:, None] == labels) & (labels >= 0)).astype(float)


def test_a_modular_matrix_has_segregation_one_and_the_modularity_of_networkx() -> None:
    similarity = blocks(PLANTED)
    measures = known_networks.network_measures(similarity[None], Regions())
    weights = similarity - np.diag(np.diag(similarity))
    parts = [set(np.flatnonzero(label == PLANTED)) for label in range(4)]
    graph = networkx.from_numpy_array(weights).subgraph(set().union(*parts))
    assert measures["segregation", "yeo7"][0] == measures["neighbor_agreement", "yeo7"][0] == 1
    assert measures["modularity", "yeo7"][0] == pytest.approx(networkx.community.modularity(graph, parts))
    assert measures["segregation", "cole-anticevic"][0] < 0.5 > measures["modularity", "cole-anticevic"][0]
    assert len(measures) == 6  # no null was asked for


@pytest.mark.parametrize("measure", known_networks.MEASURES)
def test_planted_networks_are_beyond_both_nulls_and_shuffled_ones_are_not(measure: str) -> None:
    noise = np.random.default_rng(1).normal(size=(20, 1, N, 8))
    noise[:, 0, :, :4] += 5 * np.where(PLANTED[:, None] >= 0, np.eye(4)[PLANTED], 0)
    similarity = alignment.token_similarity(noise)
    task = Regions()
    measures = known_networks.network_measures(similarity, task, 199) | known_networks.smooth_null(similarity, task, 99)
    for ending in ("", "_smooth"):
        planted, shuffled = (measures[f"{measure}{ending}_z", target] for target in task.partitions)
        assert planted.min() > 2 > abs(shuffled.mean())
        assert (measures[f"{measure}{ending}_p", "yeo7"] <= 0.05).all()
        assert (measures[f"{measure}{ending}_p", "cole-anticevic"] > 0.05).any()
        low, high = (measures[f"{measure}{ending}_{end}", "yeo7"] for end in ("low", "high"))
        assert (low < high).all() and (high < measures[measure, "yeo7"]).all()


def test_rows_of_a_stack_have_every_measure_and_nulls_of_all_blocks_together() -> None:
    task = Regions()
    stack = stack_for([Member(width=8, layers=2, sigma=0.1, seed=seed) for seed in (0, 1)], task)
    groups = torch.from_numpy(np.where(PLANTED[:, None] >= 0, np.eye(4)[PLANTED], 0))
    with torch.no_grad():
        stack.encoding.vectors()[0, :, :, :4] += 5 * groups  # type: ignore[index]
    table = pd.DataFrame(structure.pe_structure(stack, task.bind(stack.members)))
    rows = table[table["target"].isin(list(task.partitions))]
    ends = [f"{kind}_{end}" for kind in ("", "_smooth") for end in ("z", "p", "low", "high")]
    assert set(rows["analysis"]) == {f"{name}{end}" for name in known_networks.MEASURES for end in ("", *ends)}
    nulls = rows[~rows["analysis"].isin(list(known_networks.MEASURES))]
    assert set(nulls["block"]) == {-1} and set(rows["block"]) == {-2, -1, 0, 1}
    chosen = rows[(rows["block"] == -1) & (rows["target"] == "yeo7")].set_index(["analysis", "member"])["value"]
    for name in ("modularity_p", "modularity_smooth_p"):
        assert chosen[name, 0] < 0.02 < chosen[name, 1]


def test_threads_change_no_number() -> None:
    task = Regions()
    stack = stack_for([Member(width=8, layers=1, sigma=0.1, seed=seed) for seed in range(3)], task)
    bound = task.bind(stack.members)
    serial, parallel = (pd.DataFrame(structure.pe_structure(stack, bound, threads=count)) for count in (1, 3))
    pd.testing.assert_frame_equal(serial, parallel, check_exact=True)


def test_connectivity_is_measured_like_pes() -> None:
    member = [Member(width=8, layers=1, seed=0)]
    table = pd.DataFrame(baselines.baseline_rows(Regions(), member, ("fc", "partial correlation"), []))
    rows = table[table["condition"] == "yeo7"].set_index(["baseline", "metric"])["value"]
    fc = np.corrcoef(structure.training_values(Regions(), 0).T)
    assert rows["fc", "modularity"] == pytest.approx(float(modules.modularity(fc, PLANTED)))
    assert rows["fc", "neighbor_agreement"] == 1
    assert rows["fc", "modularity_p"] < 0.01 and rows["fc", "modularity_smooth_p"] < 0.02
    centred = alignment.token_similarity(structure.training_values(Regions(), 0).T[None])
    assert rows["centred fc", "segregation"] == pytest.approx(float(modules.segregation(centred, PLANTED)), abs=0.03)
    assert set(table.loc[table["baseline"] == "centred fc", "condition"]) == set(Regions().partitions)
    assert ("partial correlation", "modularity_p") in rows
    assert ("partial correlation", "modularity_smooth_p") not in rows  # this null needs a matrix of correlations


def test_without_positions_or_partitions_there_are_no_such_measures() -> None:
    similarity, nowhere, plain = blocks(PLANTED)[None], Regions(placed=False), Regions()
    assert known_networks.smooth_null(similarity, nowhere, 9) == {}
    assert ("modularity_z", "yeo7") in structure.structure_measures(similarity, nowhere)
    plain.partitions = {}
    for measures in (known_networks.network_measures, known_networks.smooth_null):
        assert measures(similarity, plain, 9) == {}
