"""Structure of PEs of channels: groups, neighbours, agreement with functional connectivity.

`of_pes` measures one stack with its task at hand, before and after training; `across` all members of a run together.
`baselines` measures the same of the data.
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

from placecode.analysis import connectivity, geometry, modules, nulls, partitions, places
from placecode.experiments.channels import known_networks
from placecode.experiments.measures import ALL_BLOCKS, Rows, rows
from placecode.models.encoder import Stack
from placecode.models.member import AUXILIARY
from placecode.tasks.masked import Masked
from placecode.training.trainer import portions

DRAWS, SLOW_DRAWS = 1000, 199
"""Permutations of a null; of one that is slow."""
MOST_MAPS = 1 << 26
"""Values of attention maps that are held at once."""
SEEN = 256
"""Examples of the first held-out split over which attention maps are averaged."""


def of_pes(stack: Stack, task: Masked, null: bool = True, threads: int = 1) -> Rows:
    """The PE of each member: its size, and whether channels that belong together lie together in it; with `null`, also
    what chance gives. Members are shared out among `threads`, which changes no number."""
    vectors = stack.encoding.vectors()
    if vectors is None:
        return []
    pe = vectors.detach().double().cpu().numpy()  # (e, l, n, d)
    found = rows("norm", geometry.norm(pe)) + rows("effective_dimension", geometry.effective_dimension(pe))
    fc = _connectivity(stack, task)
    for block, similar in modules.similarities(pe).items():
        chance = null and block == ALL_BLOCKS
        judged = partial(measured, task=task, null=chance)
        # k-means, which labels ask for, is no work for threads
        values_of = judged(similar) if task.labels is not None else by_member(judged, similar, threads=threads)
        for (analysis, target), values in values_of.items():
            found += rows(analysis, values, block, target)
        found += rows("fc_correlation", modules.matrix_correlation(similar, fc), block, "fc")
    if null:
        similar = modules.similarities(pe)[ALL_BLOCKS]
        chances = by_member(partial(beyond_chance, task=task), similar, fc, threads=threads)
        for (analysis, target), values in chances.items():
            found += rows(analysis, values, ALL_BLOCKS, target)
    return found


def by_member(
    function: Callable[..., dict[tuple[str, str], np.ndarray]], *arrays: np.ndarray, threads: int = 1
) -> dict[tuple[str, str], np.ndarray]:
    """A function of arrays (e, ...) that gives values (e,) by name, called for each member by itself."""
    parts = [[array[i : i + 1] for array in arrays] for i in range(len(arrays[0]))]
    with ThreadPoolExecutor(max(1, min(threads, len(parts)))) as pool:
        results = list(pool.map(lambda part: function(*part), parts))
    return {name: np.concatenate([result[name] for result in results]) for name in results[0]}


def measured(similar: np.ndarray, task: Masked, null: bool = True) -> dict[tuple[str, str], np.ndarray]:
    """Measures of a similarity matrix (e, n, n), of PEs or of data, against what is known: by (analysis, target).

    With `null`, also the measures that search for groups, and permutation tests: names ending in _z and _p, with
    groups, mirror regions or places shuffled. `coordinate_agreement` is a mean rank of distances, 0.5 by chance; the
    other agreements are shares of tokens.
    """
    found: dict[tuple[str, str], np.ndarray] = {}
    if task.labels is not None:
        judged: dict[str, Callable[..., np.ndarray]] = {
            "modularity": modules.modularity,
            "segregation": modules.segregation,
            "neighbor_agreement": modules.neighbor_agreement,
            "silhouette": modules.silhouette,
        }
        for name, measure in judged.items():
            found[name, "labels"] = measure(similar, task.labels)
            if null:
                chance = nulls.label_null(measure, similar, task.labels, DRAWS)
                found |= {(f"{name}_z", "labels"): chance.z, (f"{name}_p", "labels"): chance.p}
        if null:
            known = np.unique(task.labels[task.labels >= 0])
            groups = partitions.clusters(similar, len(known))
            found |= {("ari", "labels"): partitions.ari(groups, task.labels)}
            found |= {("ami", "labels"): partitions.ami(groups, task.labels)}
            for name, agreement in (("ari", partitions.ari), ("ami", partitions.shared_information)):
                found[f"{name}_p", "labels"] = _p_of_groups(agreement, groups, task.labels)
    if null:
        best = partitions.best_partition(similar)
        found["modularity", "best"] = modules.modularity(similar, best)
        found["modules", "best"] = np.array([len(np.unique(each[each >= 0])) for each in best], dtype=np.float64)
        if task.labels is not None:
            found["ari", "best"] = partitions.ari(best, task.labels)
    found |= known_networks.measured(similar, task, DRAWS if null else 0)
    pairs = _pairs(task)
    if pairs is not None:
        found["mirror_agreement", "partner"] = modules.neighbor_agreement(similar, pairs)
        if null:
            chance = nulls.label_null(modules.neighbor_agreement, similar, pairs, DRAWS)
            found["mirror_agreement_p", "partner"] = chance.p
    if task.positions is not None:
        found["coordinate_agreement", "positions"] = modules.coordinate_agreement(similar, task.positions)
        if null:
            among = modules.by_places(modules.farther(task.positions, task.tokens))
            chance = nulls.label_null(among, similar, np.arange(task.tokens), DRAWS)
            found["coordinate_agreement_p", "positions"] = chance.p
        if not hasattr(task, "partner"):  # on a brain the nearest region is the mirror, if PEs show anything
            found |= _in_space(similar, task.positions, null)
    return found


def _in_space(similar: np.ndarray, positions: np.ndarray, null: bool) -> dict[tuple[str, str], np.ndarray]:
    """Whether the most similar channel is next to it in space, and how well a flat map fits the true places."""
    near = places.neighbors_in_space(positions)
    found = {("neighbor_agreement", "positions"): places.place_agreement(similar, near)}
    if null:
        chance = nulls.label_null(modules.by_places(near), similar, np.arange(len(near)), DRAWS)
        found["neighbor_agreement_p", "positions"] = chance.p
        fits = [places.procrustes_r2(places.arrange(each, positions.shape[1]), positions) for each in similar]
        found["procrustes_r2", "positions"] = np.array(fits)
    return found


def flat_map(similar: np.ndarray, axes: int = 2) -> np.ndarray:
    """The map of a matrix of data on a few axes, (n, n) -> (n, axes), by multidimensional scaling; that of a PE is
    `places.arrange`, for which zeros of a sparse matrix would be ways. NaN for what is no matrix of correlations."""
    if not np.isfinite(similar).all() or not np.allclose(np.diag(similar), 1.0):
        return np.full((len(similar), axes), np.nan)
    return connectivity.mds_embedding(similar, axes)


def beyond_chance(similar: np.ndarray, fc: np.ndarray, task: Masked) -> dict[tuple[str, str], np.ndarray]:
    """How often chance does as well, p (e,) by (analysis, target), for what `measured` has no null for.

    _p: Mantel's test of the correlation with connectivity. _smooth_p, where positions are known: other maps that are as
    smooth in space, in which near regions are as alike as in this one; for mirror regions, as smooth on either side.
    """
    found = {("fc_correlation_p", "fc"): _mantel(similar, fc)}
    pairs = _pairs(task)
    if task.positions is None:
        return found
    for place, (one, own) in enumerate(zip(similar, fc, strict=True)):
        asked: dict[tuple[str, str], Callable[[np.ndarray], np.ndarray]] = {
            ("fc_correlation_smooth_p", "fc"): partial(modules.matrix_correlation, b=own)
        }
        if task.labels is not None:
            asked["neighbor_agreement_smooth_p", "labels"] = partial(modules.neighbor_agreement, labels=task.labels)
            asked["modularity_smooth_p", "labels"] = partial(modules.modularity, labels=task.labels)
        networks = known_networks.statistics(task)
        every = {**asked, **networks}
        chances = nulls.smooth_nulls({str(name): each for name, each in every.items()}, one, task.positions, SLOW_DRAWS)
        numbers = {name: chances[str(name)].p for name in asked}
        for name in networks:
            numbers |= known_networks.named(name, chances[str(name)], "_smooth")
        for name, number in numbers.items():
            found.setdefault(name, np.full(len(similar), np.nan))[place] = number
    if pairs is not None:
        mirrored = partial(modules.neighbor_agreement, labels=pairs)
        by_side = nulls.smooth_nulls({"": mirrored}, similar, task.positions, SLOW_DRAWS, hemispheres=_sides(task))
        found["mirror_agreement_smooth_p", "partner"] = by_side[""].p
    return found


def _sides(task: Masked) -> np.ndarray:
    """One side for the first of every two mirror regions, the other for the second; others by their x."""
    assert task.positions is not None
    partner = getattr(task, "partner")  # noqa: B009
    second = partner[partner > np.arange(len(partner))]
    is_right = np.median(task.positions[second, 0]) > np.median(task.positions[partner[second], 0])
    right = task.positions[:, 0] > 0
    right[second], right[partner[second]] = is_right, not is_right
    return np.asarray(right)


def _mantel(similar: np.ndarray, fc: np.ndarray) -> np.ndarray:
    """How often channels in random order make two matrices as alike, (e, n, n) and (e, n, n) -> (e,)."""
    orders = nulls.shuffles(np.zeros(similar.shape[-1]), SLOW_DRAWS)
    return np.array([float(nulls.matrix_null(one, own, orders).p) for one, own in zip(similar, fc, strict=True)])


def _pairs(task: Masked) -> np.ndarray | None:
    """Mirror regions as labels that two of them share, -1 for a region without; None where no mirror is known."""
    partner = getattr(task, "partner", None)
    if partner is None or not (partner >= 0).any():
        return None
    return np.where(partner >= 0, np.minimum(partner, np.arange(len(partner))), -1)


def _p_of_groups(agreement: Callable[..., np.ndarray], groups: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """How often labels dealt out anew agree as well with the clusters (e, n) that were found, (e,)."""
    dealt = labels[nulls.shuffles(labels, SLOW_DRAWS)]  # (draws, n)
    own, null = agreement(groups, labels), np.stack([agreement(each, dealt) for each in groups])
    return np.where(np.isnan(own), np.nan, (1 + (null >= own[:, None] - nulls.SAME).sum(-1)) / (1 + SLOW_DRAWS))


def of_attention(stack: Stack, task: Masked, null: bool = True) -> Rows:
    """Whether channels attend to those that they are connected with: mean maps against connectivity, by block."""
    maps, fc = attention_maps(stack, task).double().cpu().numpy().mean(2), _connectivity(stack, task)  # (e, l, n, n)
    found: Rows = []
    for block, view in {ALL_BLOCKS: maps.mean(1), **{i: maps[:, i] for i in range(maps.shape[1])}}.items():
        found += rows("attention_correlation", modules.matrix_correlation(view, fc), block, "fc")
    if null:
        found += rows("attention_correlation_p", _mantel(maps.mean(1), fc), ALL_BLOCKS, "fc")
    return found


def _connectivity(stack: Stack, task: Masked) -> np.ndarray:
    """The correlation matrix of the channels in each member's own world, (e, n, n)."""
    worlds = [member.seed % task.worlds for member in stack.members]
    known = {world: connectivity.correlation(training_values(task, world)) for world in set(worlds)}
    return np.stack([known[world] for world in worlds])


def training_values(task: Masked, world: int) -> np.ndarray:
    """All training values of a world, (T, n)."""
    return task.splits["train"].inputs[world].double().cpu().numpy()


def attention_maps(stack: Stack, task: Masked) -> Tensor:
    """Mean attention over questions of the held-out split at the first share of hidden channels, (e, l, h, n, n)."""
    split = next(name for name in task.splits if name != "train")
    count, total = min(task.examples(split), SEEN), None
    local = task.to(stack.flat.device, stack.flat.dtype)
    for part in _portions(stack, task, count):
        index = torch.arange(part.start, part.stop, device=stack.flat.device).expand(len(stack.members), -1)
        seen = stack.capture(local.batch(split, index)[0], "attention.*")
        maps = torch.stack([seen[f"attention.{i}"].sum(1) for i in range(stack.members[0].layers)], 1)
        total = maps if total is None else total + maps
    assert total is not None
    return total / count


def _portions(stack: Stack, task: Masked, examples: int) -> list[range]:
    """Examples in portions whose attention maps, of all blocks and heads, are not too many to hold."""
    one = stack.members[0]
    size = max(1, MOST_MAPS // (len(stack.members) * one.layers * one.heads * task.tokens**2))
    size = min(size, len(portions(stack, task, examples)[0]))
    return [range(start, min(start + size, examples)) for start in range(0, examples, size)]


def across(
    members: pd.DataFrame, arrays: Mapping[str, Tensor], worlds: int | Mapping[str, int], step: int
) -> Iterator[dict[str, Any]]:
    """How far PEs moved, and how alike those of other seeds are; from the PEs that a run keeps.

    Where a study has several data sets of the same channels, also how alike those of other seeds on other data are, in
    the same world alone: two worlds may share what two data sets do not. Of the same data, others of the same world
    where there are any. `worlds` is how many there are, by data set where they differ.
    """

    def count(data: str) -> int:
        return worlds if isinstance(worlds, int) else worlds[data]

    known = [number for number in members["member"] if f"pe_end/{number}" in arrays]
    ready = members[(members["state"] == "done") & members["member"].isin(known)]
    kinds = [name for name in members.columns if name not in AUXILIARY]
    alike = {
        at: {
            number: modules.similarities(arrays[f"pe_{when}/{number}"].double().numpy())[ALL_BLOCKS]
            for number in ready["member"]
        }
        for at, when in ((0, "start"), (step, "end"))
    }
    for number in ready["member"]:
        went, share = geometry.moved(*(arrays[f"pe_{when}/{number}"].double().numpy() for when in ("start", "end")))
        yield _row(number, step, "moved", "start", float(went))
        yield _row(number, step, "moved_relative", "start", float(share))
    for target, by in (("other seeds", kinds), ("other data", [name for name in kinds if name != "data"])):
        for _, group in ready.groupby(by, dropna=False, sort=False):
            for own in group.to_dict("records"):
                others = group[group["seed"] != own["seed"]]
                if target == "other data":
                    others = others[others["data"] != own["data"]]
                    if others.empty:
                        continue
                many = count(own["data"])  # data sets with another number of worlds are split in another way
                alike_split = others["data"].map(count) == many
                same = others[alike_split & (others["seed"] % many == own["seed"] % many)]
                if target == "other data" or not same.empty:
                    others = same
                compared = [own["member"], *others["member"]]
                for at, similar in alike.items():
                    value = _mean_correlation(*(similar[number] for number in compared))
                    yield _row(own["member"], at, "stability", target, value)


def _mean_correlation(own: np.ndarray, *others: np.ndarray) -> float:
    """With those of as many channels; NaN where there is none."""
    found = [float(modules.matrix_correlation(own, each)) for each in others if each.shape == own.shape]
    return float(np.mean(found)) if found else float("nan")


def _row(member: int, step: int, analysis: str, target: str, value: float) -> dict[str, Any]:
    return {
        **{"member": member, "block": ALL_BLOCKS, "step": step},
        **{"analysis": analysis, "target": target, "value": value},
    }


# ------------------------------------------------------------------------------------------------------ baselines
