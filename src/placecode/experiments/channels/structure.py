"""Measure structure in the PEs of channels: do channels of one group, neighbours or correlated ones have similar PEs?

`pe_structure` and `attention_structure` measure one stack (e members, models that are trained together) on its task,
before and after training. `pe_change_and_stability` compares all members of a run. Results are rows of the analysis
table. `baselines.py` computes the same measures for the data. Functional connectivity (fc) is the correlation matrix of
the n channels, (n, n). A world is one data set: a simulated one, or one split of the people. A member with seed s uses
world s modulo the number of worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from placecode.analysis import alignment, connectivity, modules, nulls, partitions, places
from placecode.analysis.alignment import ALL_BLOCKS
from placecode.experiments.channels import known_networks
from placecode.experiments.measures import (
    MeasureKey,
    Rows,
    analysis_rows,
    pe_change,
    pe_vectors,
    size_measures,
)
from placecode.models.encoder import Stack
from placecode.models.member import NON_SETTING_COLUMNS
from placecode.tasks.masked import Masked
from placecode.training.trainer import portions

DRAWS, SLOW_DRAWS = 1000, 199
"""Number of random draws in a test of significance, and in a slow test."""
MAX_ATTENTION_VALUES = 1 << 26
"""Maximum number of values of attention maps that are in memory at a time."""
MAX_EXAMPLES = 256
"""Maximum number of examples over which attention maps are averaged."""
Values = dict[MeasureKey, np.ndarray]
"""Arrays (e,), with one value for each of e members, by (analysis, target)."""


def pe_structure(stack: Stack, task: Masked, null: bool = True, threads: int = 1) -> Rows:
    """Measure the size of the PE of each member, and whether related channels have similar PEs.

    With `null`, also test for significance. Members are distributed over `threads` threads, which does not change the
    results. Return no rows if the encoding has no vectors.
    """
    pe = pe_vectors(stack)
    if pe is None:
        return []
    result = size_measures(pe)
    fc = _connectivity(stack, task)
    similarities = {block: alignment.token_similarity(view) for block, view in alignment.views(pe).items()}
    for block, similarity in similarities.items():
        measure = partial(structure_measures, task=task, null=null and block == ALL_BLOCKS)
        # measures of known labels use k-means, which threads do not speed up
        values_of = (
            measure(similarity) if task.labels is not None else map_members(measure, similarity, threads=threads)
        )
        for (analysis, target), values in values_of.items():
            result += analysis_rows(analysis, values, block, target)
        result += analysis_rows("fc_correlation", modules.matrix_correlation(similarity, fc), block, "fc")
    if null:
        test = partial(slow_p_values, task=task)
        for (analysis, target), values in map_members(test, similarities[ALL_BLOCKS], fc, threads=threads).items():
            result += analysis_rows(analysis, values, ALL_BLOCKS, target)
    return result


def map_members(function: Callable[..., Values], *arrays: np.ndarray, threads: int = 1) -> Values:
    """Call `function` once for each of e members, with the member's slices (1, ...) of the arrays (e, ...), and join
    the results."""
    parts = [[array[i : i + 1] for array in arrays] for i in range(len(arrays[0]))]
    with ThreadPoolExecutor(max(1, min(threads, len(parts)))) as pool:
        results = list(pool.map(lambda part: function(*part), parts))
    return {name: np.concatenate([result[name] for result in results]) for name in results[0]}


def structure_measures(similarity: np.ndarray, task: Masked, null: bool = True) -> Values:
    """Measure how well similarities of n channels, (e members, n, n), agree with what is known about the channels:
    groups, networks, mirror regions and positions. They are similarities of PEs, or of data (then e is 1).

    With `null`, also compute measures that search for groups, and permutation tests (names that end in _z, _p, _low and
    _high). The tests shuffle labels or positions over the channels. `coordinate_agreement` is a mean rank of distances,
    0.5 by chance. `neighbor_agreement` and `mirror_agreement` are fractions of channels.
    """
    result: Values = {}
    if task.labels is not None:
        for name, measure in {**known_networks.MEASURES, "silhouette": modules.silhouette}.items():
            result[name, "labels"] = measure(similarity, task.labels)
            if null:
                chance = nulls.label_null(measure, similarity, task.labels, DRAWS)
                result |= {(f"{name}_z", "labels"): chance.z, (f"{name}_p", "labels"): chance.p}
        if null:
            groups = partitions.clusters(similarity, len(np.unique(task.labels[task.labels >= 0])))
            result["ari", "labels"] = partitions.ari(groups, task.labels)
            result["ami", "labels"] = partitions.ami(groups, task.labels)
            for name, agreement in (("ari", partitions.ari), ("ami", partitions.shared_information)):
                result[f"{name}_p", "labels"] = _p_of_groups(agreement, groups, task.labels)
    if null:
        best = partitions.best_partition(similarity)
        result["modularity", "best"] = modules.modularity(similarity, best)
        counts = [len(np.unique(partition[partition >= 0])) for partition in best]
        result["modules", "best"] = np.array(counts, dtype=np.float64)
        if task.labels is not None:
            result["ari", "best"] = partitions.ari(best, task.labels)
    result |= known_networks.network_measures(similarity, task, DRAWS if null else 0)
    pairs = _pairs(task)
    if pairs is not None:
        result["mirror_agreement", "partner"] = modules.neighbor_agreement(similarity, pairs)
        if null:
            chance = nulls.label_null(modules.neighbor_agreement, similarity, pairs, DRAWS)
            result["mirror_agreement_p", "partner"] = chance.p
    if task.positions is not None:
        result["coordinate_agreement", "positions"] = modules.coordinate_agreement(similarity, task.positions)
        if null:
            mean_rank = modules.nearest_mean_of(modules.farther_fraction(task.positions, task.tokens))
            chance = nulls.label_null(mean_rank, similarity, np.arange(task.tokens), DRAWS)
            result["coordinate_agreement_p", "positions"] = chance.p
        if task.partner is None:  # not brains: there, the most similar region is usually the mirror region
            result |= _in_space(similarity, task.positions, null)
    return result


def _in_space(similarity: np.ndarray, positions: np.ndarray, null: bool) -> Values:
    """Measure how often the most similar channel is a neighbour in space. With `null`, also return the p value of this
    share in a permutation test, and how well a map made from the similarities fits the true positions."""
    near = places.neighbors_in_space(positions)
    result = {("neighbor_agreement", "positions"): modules.related_neighbor_agreement(similarity, near)}
    if null:
        chance = nulls.label_null(modules.nearest_mean_of(near), similarity, np.arange(len(near)), DRAWS)
        result["neighbor_agreement_p", "positions"] = chance.p
        maps = [places.isomap_embedding(matrix, positions.shape[1]) for matrix in similarity]
        result["procrustes_r2", "positions"] = np.array([places.procrustes_r2(flat, positions) for flat in maps])
    return result


def flat_map(similarity: np.ndarray, axes: int = 2) -> np.ndarray:
    """Compute a map of n channels from their correlations by multidimensional scaling, (n, n) -> (n, axes). It is NaN
    if the matrix is not a correlation matrix. It is used for baselines: `places.isomap_embedding`, which makes the maps
    of PEs, does not work for sparse matrices."""
    if not np.isfinite(similarity).all() or not np.allclose(np.diag(similarity), 1.0):
        return np.full((len(similarity), axes), np.nan)
    return connectivity.mds_embedding(similarity, axes)


def slow_p_values(similarity: np.ndarray, fc: np.ndarray, task: Masked) -> Values:
    """Run the slow tests that `structure_measures` leaves out, and return each result by name, as an array (e,) for e
    members.

    "fc_correlation_p" is from Mantel's test of the correlation of `similarity` and `fc`. If the positions of the
    channels are known, the results with "_smooth" in their names are from a comparison with random maps that are as
    smooth in space: p values and, for brain networks, also the columns of `known_networks.null_columns`. Where regions
    are compared with their mirror regions, random maps are as smooth within each hemisphere.

    Parameters
    ----------
    similarity, fc : ndarray, shape (e, n, n)
        Similarities of the PEs of n channels, and the functional connectivity of the channels.
    task : Masked
        The task, with the positions and labels of the channels as far as they are known.
    """
    result = {("fc_correlation_p", "fc"): _mantel(similarity, fc)}
    if task.positions is None:
        return result
    for member, (matrix, connections) in enumerate(zip(similarity, fc, strict=True)):
        statistics: dict[MeasureKey, Callable[[np.ndarray], np.ndarray]] = {
            ("fc_correlation_smooth_p", "fc"): partial(modules.matrix_correlation, b=connections)
        }
        if task.labels is not None:
            statistics["neighbor_agreement_smooth_p", "labels"] = partial(
                modules.neighbor_agreement, labels=task.labels
            )
            statistics["modularity_smooth_p", "labels"] = partial(modules.modularity, labels=task.labels)
        networks = known_networks.measure_functions(task)
        by_text = {str(name): statistic for name, statistic in {**statistics, **networks}.items()}
        chances = nulls.smooth_nulls(by_text, matrix, task.positions, SLOW_DRAWS)
        values = {name: chances[str(name)].p for name in statistics}
        for name in networks:
            values |= known_networks.null_columns(name, chances[str(name)], "_smooth")
        for name, value in values.items():
            result.setdefault(name, np.full(len(similarity), np.nan))[member] = value
    pairs = _pairs(task)
    if pairs is not None:
        mirrored = partial(modules.neighbor_agreement, labels=pairs)
        by_side = nulls.smooth_nulls({"": mirrored}, similarity, task.positions, SLOW_DRAWS, hemispheres=_sides(task))
        result["mirror_agreement_smooth_p", "partner"] = by_side[""].p
    return result


def _sides(task: Masked) -> np.ndarray:
    """Return whether each of n regions is in the right hemisphere, (n,). The first regions of all mirror pairs are on
    one side, and the second regions on the other side. For regions without a mirror region, the sign of the x
    coordinate decides."""
    assert task.positions is not None and task.partner is not None
    partner = task.partner
    second = partner[partner > np.arange(len(partner))]
    is_right = np.median(task.positions[second, 0]) > np.median(task.positions[partner[second], 0])
    right = task.positions[:, 0] > 0
    right[second], right[partner[second]] = is_right, not is_right
    return np.asarray(right)


def _mantel(similarity: np.ndarray, fc: np.ndarray) -> np.ndarray:
    """Return the p value of Mantel's test for each of e members, (e, n, n) and (e, n, n) -> (e,): how often the
    member's two matrices correlate at least as well if the channels of one are in random order."""
    orders = nulls.shuffles(np.zeros(similarity.shape[-1]), SLOW_DRAWS)
    return np.array([float(nulls.matrix_null(a, b, orders).p) for a, b in zip(similarity, fc, strict=True)])


def _pairs(task: Masked) -> np.ndarray | None:
    """Return a label for each of n regions, (n,). A region and its mirror region in the other hemisphere have the same
    label, and regions without a mirror region have -1. Return None if no mirror region is known."""
    partner = task.partner
    if partner is None or not (partner >= 0).any():
        return None
    return np.where(partner >= 0, np.minimum(partner, np.arange(len(partner))), -1)


def _p_of_groups(agreement: Callable[..., np.ndarray], groups: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return p values, (e,), of `agreement` of `groups`, (e members, n), with `labels`, (n,), from shuffled labels."""
    shuffled = labels[nulls.shuffles(labels, SLOW_DRAWS)]  # (draws, n)
    true, null = agreement(groups, labels), np.stack([agreement(clusters, shuffled) for clusters in groups])
    return nulls.p_value(true, null)


def attention_structure(stack: Stack, task: Masked, null: bool = True) -> Rows:
    """Return rows with the correlation between attention and functional connectivity (the correlation matrix of the
    channels), for each block and for the mean of the blocks. Attention maps are first averaged over held-out examples
    and heads. With `null`, also return p values of Mantel's test for the mean of the blocks."""
    maps, fc = attention_maps(stack, task).double().cpu().numpy().mean(2), _connectivity(stack, task)  # (e, l, n, n)
    result: Rows = []
    for block, view in {ALL_BLOCKS: maps.mean(1), **{i: maps[:, i] for i in range(maps.shape[1])}}.items():
        result += analysis_rows("attention_correlation", modules.matrix_correlation(view, fc), block, "fc")
    if null:
        result += analysis_rows("attention_correlation_p", _mantel(maps.mean(1), fc), ALL_BLOCKS, "fc")
    return result


def _connectivity(stack: Stack, task: Masked) -> np.ndarray:
    """Return, for each of e members, the correlation matrix of the n channels in the member's data set, (e, n, n)."""
    worlds = [member.seed % task.worlds for member in stack.members]
    by_world = {world: connectivity.correlation(training_values(task, world)) for world in set(worlds)}
    return np.stack([by_world[world] for world in worlds])


def training_values(task: Masked, world: int) -> np.ndarray:
    """Return the training values of a world (one of the data sets of the task), (T samples, n channels)."""
    return task.splits["train"].inputs[world].double().cpu().numpy()


def attention_maps(stack: Stack, task: Masked) -> Tensor:
    """Return attention averaged over held-out examples, (members, blocks, heads, n, n) for n channels. The fraction of
    hidden channels is the first in `eval_mask_ratios`."""
    split = next(name for name in task.splits if name != "train")
    count, total = min(task.examples(split), MAX_EXAMPLES), None
    local = task.to(stack.flat.device, stack.flat.dtype)
    for part in _portions(stack, task, count):
        index = torch.arange(part.start, part.stop, device=stack.flat.device).expand(len(stack.members), -1)
        captured = stack.capture(local.batch(split, index)[0], "attention.*")
        maps = torch.stack([captured[f"attention.{i}"].sum(1) for i in range(stack.members[0].layers)], 1)
        total = maps if total is None else total + maps
    assert total is not None
    return total / count


def _portions(stack: Stack, task: Masked, examples: int) -> list[range]:
    """Split examples into portions whose attention maps fit in memory."""
    member = stack.members[0]
    size = max(1, MAX_ATTENTION_VALUES // (len(stack.members) * member.layers * member.heads * task.tokens**2))
    size = min(size, len(portions(stack, task, examples)[0]))
    return [range(start, min(start + size, examples)) for start in range(0, examples, size)]


def pe_change_and_stability(
    members: pd.DataFrame, arrays: Mapping[str, Tensor], worlds: int | Mapping[str, int], step: int
) -> Iterator[dict[str, Any]]:
    """Yield rows with how far the PE of each member moved in training, and with its "stability" before and after
    training: how similar it is to the PEs of members with the same settings and other seeds.

    The target "other seeds" is a comparison with members that use the same world (data set). If there are none, it is
    with members of other worlds. The target "other data" exists if an experiment has several variants of its data
    (values of `Member.data`) with the same channels. A member is then compared with members trained on other variants,
    in the world of the same number.

    Parameters
    ----------
    members : DataFrame
        Table of members.
    arrays : mapping of str to Tensor
        The PE of member i before and after training as "pe_start/i" and "pe_end/i".
    worlds : int or mapping of str to int
        Number of worlds, by value of `Member.data` if it differs.
    step : int
        The last training step.
    """

    def world_count(data: str) -> int:
        return worlds if isinstance(worlds, int) else worlds[data]

    with_pe = [number for number in members["member"] if f"pe_end/{number}" in arrays]
    ready = members[(members["state"] == "done") & members["member"].isin(with_pe)]
    yield from pe_change(ready, arrays, step)
    similarity = {}
    for at, when in ((0, "start"), (step, "end")):
        names = {number: f"pe_{when}/{number}" for number in ready["member"]}
        if arrays.keys() >= set(names.values()):  # small copies of runs may lack the PEs before training
            pes = {number: arrays[name].double().numpy() for number, name in names.items()}
            similarity[at] = {number: alignment.token_similarity(pe) for number, pe in pes.items()}
    settings = [name for name in members.columns if name not in NON_SETTING_COLUMNS]
    without_data = [name for name in settings if name != "data"]
    for target, by in (("other seeds", settings), ("other data", without_data)):
        for _, group in ready.groupby(by, dropna=False, sort=False):
            for row in group.to_dict("records"):
                others = group[group["seed"] != row["seed"]]
                if target == "other data":
                    others = others[others["data"] != row["data"]]
                    if others.empty:
                        continue
                count = world_count(row["data"])  # data sets with another number of worlds are split in another way
                same_split = others["data"].map(world_count) == count
                same_world = others[same_split & (others["seed"] % count == row["seed"] % count)]
                if target == "other data" or not same_world.empty:
                    others = same_world
                for at, matrices in similarity.items():
                    value = _mean_correlation(*(matrices[number] for number in [row["member"], *others["member"]]))
                    fields = {"member": row["member"], "block": ALL_BLOCKS, "step": at}
                    yield {**fields, "analysis": "stability", "target": target, "value": value}


def _mean_correlation(matrix: np.ndarray, *others: np.ndarray) -> float:
    """Return the mean correlation of a matrix with those of `others` that have its size, or NaN if there are none."""
    values = [float(modules.matrix_correlation(matrix, other)) for other in others if other.shape == matrix.shape]
    return float(np.mean(values)) if values else float("nan")
