"""What is measured where channels belong together: the structure of PEs, and what others make of the same data.

`of_pes` looks at one stack with its task at hand, before and after training; `across` at all members of a run together.
`of_data` asks every baseline the questions that the members were asked, and measures what pairwise methods find by the
same yardsticks as the PEs, so that a map of channels is never shown without the map that a correlation matrix gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from placecode.analysis import baselines, connectivity, geometry, modules, nulls
from placecode.encoder import Stack
from placecode.members import Member
from placecode.studies.measures import ALL_BLOCKS, Rows, rows
from placecode.tasks.masked import Masked
from placecode.training import portions

DRAWS, ARI_DRAWS = 1000, 199
"""Permutations of a null; of one that is slow."""
SEEN = 256
"""Examples of the first held-out split over which attention maps are averaged."""
PREDICTORS: dict[str, Callable[[], baselines.Predictor]] = {
    "linear": baselines.Linear,
    "ridge": baselines.Ridge,
    "pca": baselines.Pca,
    "trees": baselines.Trees,
}
SLOW = ("ridge", "trees")
MATRICES: dict[str, Callable[[Any], np.ndarray]] = {
    "fc": connectivity.correlation,
    "mutual information": connectivity.mutual_information,
    "partial correlation": connectivity.partial_correlation,
}


def of_pes(stack: Stack, task: Masked) -> Rows:
    """The PE of each member: its size, and whether channels that belong together lie together in it."""
    vectors = stack.encoding.vectors()
    if vectors is None:
        return []
    pe = vectors.detach().double().cpu().numpy()  # (e, l, n, d)
    found = rows("norm", geometry.norm(pe)) + rows("effective_dimension", geometry.effective_dimension(pe))
    for block, similar in modules.similarities(pe).items():
        for (analysis, target), values in measured(similar, task, null=block == ALL_BLOCKS).items():
            found += rows(analysis, values, block, target)
        found += rows("fc_correlation", _with_fc(similar, stack, task), block, "fc")
    return found


def measured(similar: np.ndarray, task: Masked, null: bool = True) -> dict[tuple[str, str], np.ndarray]:
    """What a similarity matrix (e, n, n), of PEs or of data, says of the true groups: by (analysis, target).

    With `null`, also what chance gives, and all that takes a search for groups.
    """
    found: dict[tuple[str, str], np.ndarray] = {}
    if task.labels is not None:
        judged: dict[str, Callable[..., np.ndarray]] = {
            "modularity": modules.modularity,
            "segregation": modules.segregation,
            "neighbor_agreement": modules.neighbor_agreement,
        }
        for name, measure in judged.items():
            found[name, "labels"] = measure(similar, task.labels)
            if null:
                chance = nulls.label_null(measure, similar, task.labels, DRAWS)
                found |= {(f"{name}_z", "labels"): chance.z, (f"{name}_p", "labels"): chance.p}
        found["silhouette", "labels"] = modules.silhouette(similar, task.labels)
        if null:
            known = np.unique(task.labels[task.labels >= 0])
            groups = modules.clusters(similar, len(known))
            found |= {("ari", "labels"): modules.ari(groups, task.labels)}
            found |= {("ami", "labels"): modules.ami(groups, task.labels)}
            found["ari_p", "labels"] = _p_of_ari(groups, task.labels)
    if null:
        best = modules.best_partition(similar)
        found["modularity", "best"] = modules.modularity(similar, best)
        found["modules", "best"] = np.array([len(np.unique(each[each >= 0])) for each in best], dtype=np.float64)
        if task.labels is not None:
            found["ari", "best"] = modules.ari(best, task.labels)
    partner = getattr(task, "partner", None)
    if partner is not None:
        found["mirror_agreement", "partner"] = modules.mirror_agreement(similar, partner)
    if task.positions is not None:
        found["coordinate_agreement", "positions"] = modules.coordinate_agreement(similar, task.positions)
    return found


def _p_of_ari(groups: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """How often labels dealt out anew agree as well with the clusters (e, n) that were found, (e,)."""
    dealt = labels[nulls.shuffles(labels, ARI_DRAWS)]  # (draws, n)
    own, null = modules.ari(groups, labels), modules.ari(groups[:, None], dealt)
    return np.where(np.isnan(own), np.nan, (1 + (null >= own[:, None] - nulls.SAME).sum(-1)) / (1 + ARI_DRAWS))


def of_attention(stack: Stack, task: Masked) -> Rows:
    """Whether channels attend to those that they are connected with: mean maps against connectivity, by block."""
    maps = attention_maps(stack, task).double().cpu().numpy().mean(2)  # (e, l, n, n)
    found: Rows = []
    for block, view in {ALL_BLOCKS: maps.mean(1), **{i: maps[:, i] for i in range(maps.shape[1])}}.items():
        found += rows("attention_correlation", _with_fc(view, stack, task), block, "fc")
    return found


def _with_fc(similar: np.ndarray, stack: Stack, task: Masked) -> np.ndarray:
    """Correlation of each member's matrix with the connectivity of the channels in its own world, (e,)."""
    worlds = [member.seed % task.worlds for member in stack.members]
    known = {world: connectivity.correlation(training_values(task, world)) for world in set(worlds)}
    return modules.matrix_correlation(similar, np.stack([known[world] for world in worlds]))


def training_values(task: Masked, world: int) -> np.ndarray:
    """All training values of a world, (T, n)."""
    return task.splits["train"].inputs[world].double().cpu().numpy()


def attention_maps(stack: Stack, task: Masked) -> Tensor:
    """Mean attention over questions of the held-out split at the first share of hidden channels, (e, l, h, n, n)."""
    split = next(name for name in task.splits if name != "train")
    count, total = min(task.examples(split), SEEN), None
    local = task.to(stack.flat.device, stack.flat.dtype)
    for part in portions(stack, task, count):
        index = torch.arange(part.start, part.stop, device=stack.flat.device).expand(len(stack.members), -1)
        seen = stack.capture(local.batch(split, index)[0], "attention.*")
        maps = torch.stack([seen[f"attention.{i}"].sum(1) for i in range(stack.members[0].layers)], 1)
        total = maps if total is None else total + maps
    assert total is not None
    return total / count


def across(members: pd.DataFrame, arrays: Mapping[str, Tensor], step: int) -> Iterator[dict[str, Any]]:
    """How far PEs moved, and how alike those of other seeds are; from the PEs that a run keeps."""
    kinds = [name for name in members.columns if name not in ("member", "seed", "state", "diverged_at")]
    for _, group in members[members["state"] == "done"].groupby(kinds, dropna=False, sort=False):
        own = [number for number in group["member"] if f"pe_end/{number}" in arrays]
        if not own:
            continue
        start, end = (
            np.stack([arrays[f"pe_{when}/{number}"].double().numpy() for number in own]) for when in ("start", "end")
        )
        went, share = geometry.moved(start, end)
        alike = {0: modules.similarities(start)[ALL_BLOCKS], step: modules.similarities(end)[ALL_BLOCKS]}
        for place, number in enumerate(own):
            spec = {"member": number, "block": ALL_BLOCKS}
            yield {**spec, "step": step, "analysis": "moved", "target": "start", "value": float(went[place])}
            yield {**spec, "step": step, "analysis": "moved_relative", "target": "start", "value": float(share[place])}
            for at, similar in alike.items():
                others = np.delete(modules.stability(similar)[place], place)
                value = float(others.mean()) if len(others) else float("nan")
                yield {**spec, "step": at, "analysis": "stability", "target": "other seeds", "value": value}


# ------------------------------------------------------------------------------------------------------ baselines


def of_data(task: Masked, members: Sequence[Member], wanted: Sequence[str], slow_in: int) -> Iterator[dict[str, Any]]:
    """Every baseline in the worlds of these members: errors at every share of hidden channels, and structure.

    Those that take long, in the first worlds alone: in `slow_in` of them.
    """
    pupils = {member.seed % task.worlds: member for member in reversed(members)}
    for world in sorted(pupils):
        values, pupil = training_values(task, world), pupils[world]
        spec = {"world": world}
        for name in (name for name in wanted if name in PREDICTORS and (name not in SLOW or world < slow_in)):
            yield from ({**spec, "baseline": name, **row} for row in _errors(name, task, pupil, values))
        for name in (name for name in wanted if name in MATRICES):
            yield from ({**spec, "baseline": name, **row} for row in _structure(MATRICES[name](values), task))
        if "spectral" in wanted and task.labels is not None:
            count = len(np.unique(task.labels[task.labels >= 0]))
            groups = connectivity.spectral_clusters(connectivity.correlation(values), count)
            for metric, score in (("ari", modules.ari), ("ami", modules.ami)):
                value = float(score(groups, task.labels))
                yield {**spec, "baseline": "spectral", **_of_structure, "metric": metric, "value": value}
        for name, k in (("pca of channels", 8), ("mds of fc", 8)):
            if name in wanted:
                fc = connectivity.correlation(values)
                placed = connectivity.mds_embedding(fc, k) if "mds" in name else connectivity.pca_embedding(values, k)
                similar = modules.similarities(placed[None])[ALL_BLOCKS]
                yield from ({**spec, "baseline": name, **row} for row in _structure(similar, task))


_of_structure = {"split": "analysis", "condition": "labels"}


def _errors(name: str, task: Masked, pupil: Member, values: np.ndarray) -> Iterator[dict[str, Any]]:
    if task.window > 1:
        values = np.stack([values[i : len(values) - task.window + i + 1] for i in range(task.window)], axis=-1)
    fitted = PREDICTORS[name]().fit(values, seed=pupil.seed, share=pupil.hidden)
    met = task.bind([pupil])
    for split in task.splits:
        if split == "train":
            continue
        inputs, targets = (x[0].double().numpy() for x in met.batch(split, torch.arange(task.rows(split))[None]))
        true, hidden = targets[..., :-1], inputs[..., -1] > 0
        each = baselines.errors(fitted.predict(np.where(hidden[..., None], np.nan, true), hidden), true, hidden)
        conditions = np.array(task.condition(split))
        for condition in task.conditions:
            value = float(each[conditions == condition].mean())
            yield {"split": split, "condition": condition, "metric": "mse", "value": value}


def _structure(matrix: np.ndarray, task: Masked) -> Iterator[dict[str, Any]]:
    for (metric, target), values in measured(matrix.reshape(1, *matrix.shape[-2:]), task).items():
        yield {"split": "analysis", "condition": target, "metric": metric, "value": float(values[0])}
