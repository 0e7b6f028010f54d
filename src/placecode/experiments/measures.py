"""What is measured of members, as rows (member, block, analysis, target, value) of a run's analysis table.

`arrangement`, `behaviour` and `robustness` look at one stack with its task at hand, before and after training.
`across` looks at all members of a run together, through the arrays that the run keeps. In the column `block`, -1 stands
for all blocks side by side (of cosines puzzle by puzzle: their mean), -2 for the mean over blocks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from placecode import random
from placecode.analysis import alignment, attention, geometry
from placecode.analysis import behaviour as behaviours
from placecode.analysis import robustness as tolerances
from placecode.analysis.targets import related, targets
from placecode.models.encoder import Stack
from placecode.models.member import AUXILIARY
from placecode.tasks.base import Task
from placecode.training.trainer import evaluate, portions, stack_for

Rows = list[dict[str, Any]]
FIXED = "2d-fixed"
"""Label of the paper's reference: sinusoids of the true row and column."""
ALL_BLOCKS = -1
NOISY_EXAMPLES = 108
"""Of each split, at most, on which accuracy under noise is measured."""


def rows(analysis: str, values: Any, block: int = ALL_BLOCKS, target: str = "") -> Rows:
    """One row for each member of a stack from its values, (e,)."""
    spec = {"block": block, "analysis": analysis, "target": target}
    return [{"member": member, **spec, "value": float(value)} for member, value in enumerate(values)]


def arrangement(stack: Stack, task: Task) -> Rows:
    """The PE of each member: its size and shape, and how near it is to the true arrangement, if one is known."""
    vectors = stack.encoding.vectors()
    if vectors is None:
        return []
    pe = vectors.detach().double().cpu().numpy()  # (e, l, n, d)
    found: Rows = []
    for block, view in alignment.views(pe).items():
        found += rows("norm", geometry.norm(view), block)
        found += rows("effective_dimension", geometry.effective_dimension(view), block)
        if task.positions is not None:
            found += _alignment(view, task.positions, block)
    found += rows("mds_stress", geometry.mds(pe).stress)
    if task.positions is not None:
        for name, target in targets(task.positions, pe.shape[-1]).items():
            null = alignment.permuted(pe, target)
            found += rows("procrustes_z", null.z, target=name) + rows("procrustes_p", null.p, target=name)
    return found


def outline(stack: Stack, task: Task) -> Rows:
    """The few of `arrangement` that tell most, over all blocks side by side: quick, for studies of many members."""
    vectors = stack.encoding.vectors()
    if vectors is None:
        return []
    pe = vectors.detach().double().cpu().numpy()  # (e, l, n, d)
    found = rows("norm", geometry.norm(pe))
    if task.positions is None:
        return found
    aims = targets(task.positions, pe.shape[-1])
    found += rows("procrustes", alignment.procrustes(alignment.side_by_side(pe), aims["2d-fixed"]), target="2d-fixed")
    for name in ("2d-fixed", "relation"):
        found += rows("rsa", alignment.rsa(pe, aims[name]), target=name)
    found += rows("neighbor_agreement", alignment.neighbor_agreement(pe, related(task.positions)), target="relation")
    return found


def movement(stack: Stack, task: Task) -> Rows:
    """How far all weights but those of the encoding have gone from where they started, relative to their size there."""
    start = stack_for(stack.members, task).flat[:, : stack.encoding_columns].double()
    now = stack.flat[:, : stack.encoding_columns].detach().to("cpu", torch.float64)
    return rows("weights_moved", ((now - start).norm(dim=1) / start.norm(dim=1)).tolist(), target="start")


def _alignment(pe: np.ndarray, positions: np.ndarray, block: int) -> Rows:
    """Every measure of agreement with every target; pe (e, l, n, d), its blocks side by side."""
    found: Rows = []
    tokens = alignment.side_by_side(pe)  # (e, n, l * d)
    for name, target in targets(positions, pe.shape[-1]).items():
        everywhere = np.tile(target, (1, pe.shape[1]))  # the target in every block
        found += rows("procrustes_raw", alignment.procrustes_raw(tokens, everywhere), block, name)
        found += rows("procrustes", alignment.procrustes(tokens, target), block, name)
        found += rows("rsa", alignment.rsa(pe, target), block, name)
        found += rows("cka", alignment.cka(pe, target), block, name)
    found += rows("neighbor_agreement", alignment.neighbor_agreement(pe, related(positions)), block, "relation")
    if positions.shape[1] == 2:
        row, column = positions.T.astype(int)
        found += rows("probe", alignment.probe(pe, row, column), block, "row")
        found += rows("probe", alignment.probe(pe, column, row), block, "column")
    return found


def behaviour(stack: Stack, task: Task, places: Sequence[int], split: str = "ood") -> Rows:
    """How sure a member is of its answers, by condition, and where it errs: `places` are the cells asked for, (b,)."""
    data, shares = task.splits[split], probabilities(stack, task, split).double().cpu().numpy()  # (e, b, o)
    sure = behaviours.confidence(shares)
    found = rows("confidence", sure.mean(-1), target="all")
    for condition, values in behaviours.by_condition(sure, data.conditions or ["all"] * len(data)).items():
        found += rows("confidence", values, target=condition)
    right = shares.argmax(-1) == data.targets.cpu().numpy()
    rates = behaviours.error_rate(right, np.asarray(places), task.tokens)  # (e, n)
    for token, name in enumerate(task.token_names):
        found += rows("error_rate", rates[:, token], target=name)
    return found


def robustness(stack: Stack, task: Task, levels: Sequence[float], block_levels: Sequence[float] = ()) -> Rows:
    """Accuracy when normal noise of the standard deviations `levels` is added to the embeddings of the tokens, or of
    `block_levels` to the input of every block (`block_noise_accuracy`).

    Also without noise, and also on training examples, which most members have learned by heart: there all of them have
    the same to lose. `noise_tolerance` is the level at which half of what lies above chance is lost, NaN where
    none takes that much. Members of a seed meet the same noise.
    """
    found: Rows = []
    for split in ("train", "ood") if levels else ():
        by_level = noisy_accuracy(stack, task, split, (0.0, *sorted(levels)))
        for level, values in by_level.items():
            found += rows("noise_accuracy", values, target=f"{split} {level:g}")
        table = np.stack(list(by_level.values()), axis=-1)  # (e, levels)
        bearable = tolerances.tolerance(table, list(by_level), 1 / task.outputs)
        found += rows("noise_tolerance", np.where(np.isinf(bearable), np.nan, bearable), target=split)
    for split in ("train", "ood") if block_levels else ():
        by_level = noisy_accuracy(stack, task, split, (0.0, *sorted(block_levels)), in_blocks=True)
        for level, values in by_level.items():
            found += rows("block_noise_accuracy", values, target=f"{split} {level:g}")
    return found


def without_dropout(stack: Stack, task: Task) -> Rows:
    """The accuracy of members that drop features at evaluation too, had they not: what the mask costs them there."""
    if not (stack.members[0].dropout and stack.members[0].dropout_at_evaluation):
        return []
    members = [replace(member, dropout_at_evaluation=False) for member in stack.members]
    whole = stack_for(members, task, stack.flat.device, stack.flat.dtype, fast=False if stack.plain else None)
    whole.flat.copy_(stack.flat)
    found: Rows = []
    for split in task.splits:
        local = task.to(stack.flat.device, stack.flat.dtype)
        found += rows("accuracy_without_dropout", evaluate(whole, local, split)["all", "accuracy"], target=split)
    return found


@torch.no_grad()
def noisy_accuracy(
    stack: Stack, task: Task, split: str, levels: Sequence[float], in_blocks: bool = False
) -> dict[float, list[float]]:
    """The accuracy of each member at each level of noise, over the first examples of a split. The noise is added to the
    embeddings of the tokens, or to the input of every block."""
    local = task.to(stack.flat.device, stack.flat.dtype)
    seeds = list(dict.fromkeys(member.seed for member in stack.members))
    of_member = torch.tensor([seeds.index(member.seed) for member in stack.members], device=stack.flat.device)
    width, blocks = stack.members[0].width, stack.members[0].layers if in_blocks else 1
    keys = random.keys_for(seeds, f"noise on {split}{' in blocks' if in_blocks else ''}")
    right: dict[float, list[Tensor]] = {level: [] for level in levels}
    for part in portions(stack, task, min(len(task.splits[split]), NOISY_EXAMPLES)):
        # a draw for each example, so that its noise does not depend on how many come at a time
        unit = torch.stack([random.normal(keys, example, blocks * task.tokens * width) for example in part], dim=1)
        unit = unit.view(len(seeds), len(part), blocks, task.tokens, width).movedim(2, 0)
        unit = unit.to(stack.flat.device, stack.flat.dtype)[:, of_member]  # (l, e, b, n, d)
        unit = unit if in_blocks else unit[0]
        inputs, wanted = local.batch(split, _index(part, stack))
        for level in levels:
            outputs = stack.with_noise(inputs, level * unit, first_row=part.start)
            right[level].append(local.metrics(outputs, wanted)["accuracy"])
    return {level: torch.cat(parts, dim=1).double().mean(1).tolist() for level, parts in right.items()}


@torch.no_grad()
def probabilities(stack: Stack, task: Task, split: str = "ood") -> Tensor:
    """The share that each member gives to each answer, for every example of a split, (e, b, o)."""
    local = task.to(stack.flat.device, stack.flat.dtype)
    parts = [
        stack(local.batch(split, _index(part, stack))[0], first_row=part.start).to(stack.flat.dtype).softmax(-1)
        for part in portions(stack, task, len(task.splits[split]))
    ]
    return torch.cat(parts, dim=1)


@torch.no_grad()
def attention_maps(stack: Stack, task: Task, split: str = "ood", most: int = 256) -> tuple[Tensor, Tensor]:
    """Attention in (at most `most`) examples of a split: the mean over them, (e, l, h, n, n), and in each of them, the
    mean over heads, (e, b, l, n, n), in half precision."""
    local = task.to(stack.flat.device, stack.flat.dtype)
    count, total, each = min(len(task.splits[split]), most), None, []
    for part in portions(stack, task, count):
        seen = stack.capture(local.batch(split, _index(part, stack))[0], "attention.*", first_row=part.start)
        maps = torch.stack([seen[f"attention.{i}"] for i in range(len(seen))], dim=2)  # (e, b, l, h, n, n)
        maps = maps.to(stack.flat.dtype)  # sums of many bfloat16 would lose what tells them apart
        total = maps.sum(1) if total is None else total + maps.sum(1)
        each.append(maps.mean(3).half().cpu().numpy())  # not a tensor: autocast to bfloat16 cannot join float16
    assert total is not None
    return total / count, torch.from_numpy(np.concatenate(each, axis=1))


def _index(part: range, stack: Stack) -> Tensor:
    """The examples of a portion for every member, (e, b)."""
    return torch.arange(part.start, part.stop, device=stack.flat.device).expand(len(stack.members), -1)


# ----------------------------------------------------------------------------------------------- across all members


def across(members: pd.DataFrame, arrays: Mapping[str, Tensor], positions: Mapping[str, np.ndarray], step: int) -> Rows:
    """What shows only beside other members, or beside the start: rows with their step, members by their number.

    `positions` (n, k) are those of the tokens of each data set; only members on the same data are held together.
    """
    found = list(_moved(members, arrays, step))
    for data, places in positions.items():
        own = members if len(positions) == 1 else members[members["data"] == data]
        found += _agreement(own, arrays, step)
        for moment, at in (("start", 0), ("end", step)):
            found += [{**row, "step": at} for row in _attention(own, arrays, places, moment)]
    return found


def _moved(members: pd.DataFrame, arrays: Mapping[str, Tensor], step: int) -> Iterator[dict[str, Any]]:
    for number in members["member"]:
        if f"pe_start/{number}" not in arrays:
            continue
        start, end = (arrays[f"pe_{moment}/{number}"].double().numpy() for moment in ("start", "end"))
        found = geometry.moved(start, end)
        for name, value in (("moved", found.absolute), ("moved_relative", found.relative)):
            yield _row(number, ALL_BLOCKS, name, "start", value, step=step)


def _agreement(members: pd.DataFrame, arrays: Mapping[str, Tensor], step: int) -> Iterator[dict[str, Any]]:
    """The share of held-out examples that a member answers as the other seeds of its setting do."""
    alive = members[members["state"] == "done"]
    alive = alive[[f"probabilities_end/{number}" in arrays for number in alive["member"]]]
    if alive.empty:
        return
    answers = np.stack([arrays[f"probabilities_end/{number}"].argmax(-1).numpy() for number in alive["member"]])
    groups = [json.dumps([str(value) for value in row]) for row in alive[_settings(alive)].itertuples(index=False)]
    shares = behaviours.agreement_with_others(answers, groups)
    for number, value in zip(alive["member"], shares, strict=True):
        yield _row(number, ALL_BLOCKS, "agreement", "other seeds", value, step=step)


def _settings(members: pd.DataFrame) -> list[str]:
    """The columns that say what a member is, its seed and its fate aside."""
    return [name for name in members.columns if name not in AUXILIARY]


def _attention(
    members: pd.DataFrame, arrays: Mapping[str, Tensor], positions: np.ndarray, moment: str
) -> Iterator[dict[str, Any]]:
    """Agreement of attention with the ideal map, and with the maps of the trained 2d-fixed ones among these members."""
    ideal, even = attention.ideal_map(positions), np.full(2 * (len(positions),), 1 / len(positions))
    teachers = {name: _Reference(numbers, arrays) for name, numbers in reference_members(members).items()}
    for number in members["member"]:
        if f"attention_{moment}/{number}" not in arrays:
            continue
        maps = _maps(arrays, f"attention_{moment}/{number}")  # (l, n, n)
        for name, wanted in {
            "ideal": np.broadcast_to(ideal, maps.shape),
            **{name: reference.mean_without(number) for name, reference in teachers.items()},
        }.items():
            if wanted is not None:
                yield from _agree(number, maps, wanted, name)
        yield from _agree(number, maps, np.broadcast_to(even, maps.shape), "even", (COSINE,))  # how evenly it is spread
        name = f"attention_each_{moment}/{number}"
        if name in arrays:
            each = arrays[name].double().numpy()  # (b, l, n, n)
            for target, reference in teachers.items():
                if (wanted := reference.each_without(number)) is not None:
                    values = attention.cosine(each, wanted).mean(0)  # (l,)
                    yield from _by_block(number, "attention_cosine_each", target, values)
            values = attention.cosine(each, np.broadcast_to(ideal, each.shape)).mean(0)
            yield from _by_block(number, "attention_cosine_each", "ideal", values)


COSINE = ("attention_cosine", attention.cosine)
CORRELATION = ("attention_correlation", attention.correlation)


def _agree(
    number: int,
    maps: np.ndarray,
    wanted: np.ndarray,
    target: str,
    by: Sequence[tuple[str, Any]] = (COSINE, CORRELATION),
) -> Iterator[dict[str, Any]]:
    n = maps.shape[-1]
    for analysis, measure in by:
        whole = measure(maps.reshape(-1, n), wanted.reshape(-1, n))
        yield _row(number, ALL_BLOCKS, analysis, target, whole)
        for block, value in enumerate(measure(maps, wanted)):
            yield _row(number, block, analysis, target, value)


def _by_block(number: int, analysis: str, target: str, values: np.ndarray) -> Iterator[dict[str, Any]]:
    yield _row(number, ALL_BLOCKS, analysis, target, values.mean())
    for block, value in enumerate(values):
        yield _row(number, block, analysis, target, value)


def _row(number: int, block: int, analysis: str, target: str, value: Any, **more: int) -> dict[str, Any]:
    spec = {"member": int(number), "block": block, "analysis": analysis, "target": target}
    return {**spec, "value": float(value), **more}


def _maps(arrays: Mapping[str, Tensor], name: str) -> np.ndarray:
    """Mean attention maps with their heads averaged, (l, n, n)."""
    return np.asarray(arrays[name].double().mean(1).numpy())


def reference_members(members: pd.DataFrame) -> dict[str, list[int]]:
    """The members with the paper's 2d-fixed encoding that finished, by name: "2d-fixed", "2d-fixed, dropout 0.1"."""
    found: dict[str, list[int]] = {}
    for row in members[(members["label"] == FIXED) & (members["state"] == "done")].to_dict("records"):
        name = FIXED + (f", dropout {row['dropout']:g}" if row["dropout"] else "")
        found.setdefault(name, []).append(int(row["member"]))
    return found


class _Reference:
    """The maps of the members of one kind after training: their mean, without the member that is compared with it."""

    def __init__(self, numbers: Sequence[int], arrays: Mapping[str, Tensor]) -> None:
        self.maps = {n: _maps(arrays, f"attention_end/{n}") for n in numbers if f"attention_end/{n}" in arrays}
        each = {n: arrays[f"attention_each_end/{n}"] for n in numbers if f"attention_each_end/{n}" in arrays}
        self.each = {number: maps.double().numpy() for number, maps in each.items()}
        self._sum, self._sum_each = sum(self.maps.values()), sum(self.each.values())

    def mean_without(self, number: int) -> np.ndarray | None:
        return _mean_without(self.maps, self._sum, number)

    def each_without(self, number: int) -> np.ndarray | None:
        return _mean_without(self.each, self._sum_each, number)


def _mean_without(maps: Mapping[int, np.ndarray], total: Any, number: int) -> np.ndarray | None:
    others = len(maps) - (number in maps)
    return None if others == 0 else np.asarray((total - maps.get(number, 0.0)) / others)
