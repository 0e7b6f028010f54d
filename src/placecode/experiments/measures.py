"""Measure the PE, attention, confidence and robustness of models (members) on a task, such as Latin squares, as rows
(member, block, analysis, target, value) of a run's analysis table.

Most functions, such as `pe_measures`, measure one stack (members that are trained together) on its task, before or
after training. `compare_members` compares all members of a run, from the arrays that the run keeps. Letters in shapes:
e members of a stack, l blocks, b examples, h heads, n tokens, d features, o answers.

The column `block` is the index of a block, or negative:

- -1 (`ALL_BLOCKS`) is the whole model. The PEs of all blocks are then concatenated, and so are their attention maps.
  There is one exception: "attention_cosine_each", computed puzzle by puzzle, is averaged over the blocks.
- -2 (`alignment.MEAN_BLOCK`) is the PE averaged over the blocks.
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
from placecode.analysis import alignment, attention, geometry, modules
from placecode.analysis import behaviour as behaviours
from placecode.analysis import robustness as tolerances
from placecode.analysis.alignment import ALL_BLOCKS
from placecode.analysis.targets import related, targets
from placecode.models.encoder import Stack
from placecode.models.member import NON_SETTING_COLUMNS
from placecode.tasks.base import Task
from placecode.training.trainer import evaluate, portions, stack_for

Rows = list[dict[str, Any]]
MeasureKey = tuple[str, str]
"""An analysis and its target, the names in these columns of analysis.parquet, for example ("rsa", "2d-fixed")."""
FIXED = "2d-fixed"
"""Name of the paper's reference encoding, sinusoids of the true row and column: a label of members, and a target."""
NOISY_EXAMPLES = 108
"""Maximum number of examples of a split on which accuracy under noise is measured."""


def analysis_rows(analysis: str, values: Any, block: int = ALL_BLOCKS, target: str = "") -> Rows:
    """Return one row per member of a stack from `values`, (members,): the result of the analysis for each member."""
    return [_row(member, block, analysis, target, value) for member, value in enumerate(values)]


def _row(number: int, block: int, analysis: str, target: str, value: Any, **more: int) -> dict[str, Any]:
    """Return one row of the analysis table. `number` goes to the column member, and `more` are further columns."""
    columns = {"member": int(number), "block": block, "analysis": analysis, "target": target}
    return {**columns, "value": float(value), **more}


def pe_vectors(stack: Stack) -> np.ndarray | None:
    """Return the PE of each member in double precision, (members, blocks, tokens, features), or None if the encoding
    has no vector per token, such as rotary."""
    vectors = stack.encoding.vectors()
    return None if vectors is None else vectors.detach().double().cpu().numpy()


def size_measures(pe: np.ndarray, block: int = ALL_BLOCKS) -> Rows:
    """Return rows with the norm (root mean square) and the effective dimension of each member's PE. `pe` has shape
    (members, blocks, tokens, features)."""
    result = analysis_rows("norm", geometry.norm(pe), block)
    return result + analysis_rows("effective_dimension", geometry.effective_dimension(pe), block)


def pe_measures(stack: Stack, task: Task) -> Rows:
    """Return rows with measures of each member's PE: its norm and dimension and, if the true positions of the tokens
    are known, its agreement with them. Most are computed for all blocks together, for the mean over blocks, and for
    each block. Empty if the encoding has no vector per token."""
    pe = pe_vectors(stack)
    if pe is None:
        return []
    result: Rows = []
    for block, view in alignment.views(pe).items():
        result += size_measures(view, block)
        if task.positions is not None:
            result += _alignment(view, task.positions, block)
    result += analysis_rows("mds_stress", geometry.mds(pe).stress)
    if task.positions is not None:
        for name, target in targets(task.positions, pe.shape[-1]).items():
            null = alignment.procrustes_test(pe, target)
            result += analysis_rows("procrustes_z", null.z, target=name)
            result += analysis_rows("procrustes_p", null.p, target=name)
    return result


def main_pe_measures(stack: Stack, task: Task) -> Rows:
    """Return rows with a few measures of `pe_measures`, for all blocks together. They are fast enough for experiments
    with many members. Empty if the encoding has no vector per token."""
    pe = pe_vectors(stack)
    if pe is None:
        return []
    result = analysis_rows("norm", geometry.norm(pe))
    if task.positions is None:
        return result
    by_name = targets(task.positions, pe.shape[-1])
    result += analysis_rows(
        "procrustes", alignment.procrustes(alignment.side_by_side(pe), by_name[FIXED]), target=FIXED
    )
    for name in (FIXED, "relation"):
        result += analysis_rows("rsa", alignment.rsa(pe, by_name[name]), target=name)
    nearest = modules.related_neighbor_agreement(alignment.token_similarity(pe), related(task.positions))
    result += analysis_rows("neighbor_agreement", nearest, target="relation")
    return result


def weight_change(stack: Stack, task: Task) -> Rows:
    """Measure how far all weights except those of the encoding moved from their initial values: the norm of the
    difference, divided by the norm of the initial values."""
    start = stack_for(stack.members, task).flat[:, : stack.encoding_columns].double()
    current = stack.flat[:, : stack.encoding_columns].detach().to("cpu", torch.float64)
    return analysis_rows("weights_moved", ((current - start).norm(dim=1) / start.norm(dim=1)).tolist(), target="start")


def _alignment(pe: np.ndarray, positions: np.ndarray, block: int) -> Rows:
    """Return rows with the agreement between the PEs `pe`, (e, l, n, d), and the arrangements of `analysis.targets`.
    `pe` is one of `alignment.views` (all blocks, their mean, or one block), and `block` is its key there."""
    result: Rows = []
    tokens = alignment.side_by_side(pe)  # (e, n, l * d)
    for name, target in targets(positions, pe.shape[-1]).items():
        in_all_blocks = np.tile(target, (1, pe.shape[1]))
        result += analysis_rows("procrustes_raw", alignment.procrustes_raw(tokens, in_all_blocks), block, name)
        result += analysis_rows("procrustes", alignment.procrustes(tokens, target), block, name)
        result += analysis_rows("rsa", alignment.rsa(pe, target), block, name)
        result += analysis_rows("cka", alignment.cka(pe, target), block, name)
    nearest = modules.related_neighbor_agreement(alignment.token_similarity(pe), related(positions))
    result += analysis_rows("neighbor_agreement", nearest, block, "relation")
    if positions.shape[1] == 2:
        row, column = positions.T.astype(int)
        result += analysis_rows("probe", alignment.probe(pe, row, column), block, "row")
        result += analysis_rows("probe", alignment.probe(pe, column, row), block, "column")
    return result


def behaviour_measures(stack: Stack, task: Task, cells: Sequence[int]) -> Rows:
    """Return rows with the mean confidence in the OOD answers, overall and by condition (class of difficulty), and with
    the error rate by target cell, the cell to fill in. `cells` has the target cell of each OOD example."""
    data, answers = task.splits["ood"], probabilities(stack, task).double().cpu().numpy()  # (e, b, o)
    confidence = behaviours.confidence(answers)
    result = analysis_rows("confidence", confidence.mean(-1), target="all")
    for condition, values in behaviours.by_condition(confidence, data.conditions or ["all"] * len(data)).items():
        result += analysis_rows("confidence", values, target=condition)
    correct = answers.argmax(-1) == data.targets.cpu().numpy()
    rates = behaviours.error_rate(correct, np.asarray(cells), task.tokens)  # (e, n)
    for token, name in enumerate(task.token_names):
        result += analysis_rows("error_rate", rates[:, token], target=name)
    return result


def robustness_measures(stack: Stack, task: Task, levels: Sequence[float], block_levels: Sequence[float] = ()) -> Rows:
    """Measure accuracy with Gaussian noise on the token embeddings or on the input of every block, and without noise.

    `levels` and `block_levels` are the standard deviations of the two kinds of noise. OOD examples are tested, and also
    training examples: without noise, most members solve all training examples, so their curves over the noise level
    start from the same accuracy. The row `noise_tolerance` is the noise level on the embeddings at which half of the
    accuracy above chance is lost (NaN if no level is so high). Members with the same seed get the same noise.
    """
    result: Rows = []
    for split in ("train", "ood") if levels else ():
        by_level = noisy_accuracy(stack, task, split, (0.0, *sorted(levels)))
        for level, values in by_level.items():
            result += analysis_rows("noise_accuracy", values, target=f"{split} {level:g}")
        table = np.stack(list(by_level.values()), axis=-1)  # (e, levels)
        tolerance = tolerances.tolerance(table, list(by_level), 1 / task.outputs)
        result += analysis_rows("noise_tolerance", np.where(np.isinf(tolerance), np.nan, tolerance), target=split)
    for split in ("train", "ood") if block_levels else ():
        by_level = noisy_accuracy(stack, task, split, (0.0, *sorted(block_levels)), in_blocks=True)
        for level, values in by_level.items():
            result += analysis_rows("block_noise_accuracy", values, target=f"{split} {level:g}")
    return result


def accuracy_without_dropout(stack: Stack, task: Task) -> Rows:
    """Measure accuracy on every split with dropout switched off, for members that keep dropout on at evaluation
    (`dropout_at_evaluation`). Return no rows for other members, whose accuracy is without dropout anyway."""
    if not (stack.members[0].dropout and stack.members[0].dropout_at_evaluation):
        return []
    members = [replace(member, dropout_at_evaluation=False) for member in stack.members]
    copy = stack_for(members, task, stack.flat.device, stack.flat.dtype, fast=False if stack.plain else None)
    copy.flat.copy_(stack.flat)
    local = task.to(stack.flat.device, stack.flat.dtype)
    result: Rows = []
    for split in task.splits:
        result += analysis_rows(
            "accuracy_without_dropout", evaluate(copy, local, split)["all", "accuracy"], target=split
        )
    return result


@torch.no_grad()
def noisy_accuracy(
    stack: Stack, task: Task, split: str, levels: Sequence[float], in_blocks: bool = False
) -> dict[float, list[float]]:
    """Return the accuracies of all members on the first `NOISY_EXAMPLES` examples of a split, by noise level (standard
    deviation). Noise is added to the token embeddings or, with `in_blocks`, to the input of every block."""
    local = task.to(stack.flat.device, stack.flat.dtype)
    seeds = list(dict.fromkeys(member.seed for member in stack.members))
    of_member = torch.tensor([seeds.index(member.seed) for member in stack.members], device=stack.flat.device)
    width, blocks = stack.members[0].width, stack.members[0].layers if in_blocks else 1
    purpose = "validation" if split == "ood" else split  # ood's former name gives the same noise as in earlier runs
    keys = random.keys_for(seeds, f"noise on {purpose}{' in blocks' if in_blocks else ''}")
    correct: dict[float, list[Tensor]] = {level: [] for level in levels}
    for part in portions(stack, task, min(len(task.splits[split]), NOISY_EXAMPLES)):
        # one draw per example, so that its noise does not depend on the size of the portion
        unit = torch.stack([random.normal(keys, example, blocks * task.tokens * width) for example in part], dim=1)
        unit = unit.view(len(seeds), len(part), blocks, task.tokens, width).movedim(2, 0)
        unit = unit.to(stack.flat.device, stack.flat.dtype)[:, of_member]  # (l, e, b, n, d)
        unit = unit if in_blocks else unit[0]
        inputs, answers = local.batch(split, _example_index(part, stack))
        for level in levels:
            outputs = stack.with_noise(inputs, level * unit, first_row=part.start)
            correct[level].append(local.metrics(outputs, answers)["accuracy"])
    return {level: torch.cat(parts, dim=1).double().mean(1).tolist() for level, parts in correct.items()}


@torch.no_grad()
def probabilities(stack: Stack, task: Task, split: str = "ood") -> Tensor:
    """Return the probabilities of all answers, (members, examples of the split, answers)."""
    local = task.to(stack.flat.device, stack.flat.dtype)
    parts = [
        stack(local.batch(split, _example_index(part, stack))[0], first_row=part.start).to(stack.flat.dtype).softmax(-1)
        for part in portions(stack, task, len(task.splits[split]))
    ]
    return torch.cat(parts, dim=1)


@torch.no_grad()
def attention_maps(stack: Stack, task: Task, most: int = 256) -> tuple[Tensor, Tensor]:
    """Return the attention weights of all members on the first `most` OOD examples, as two tensors: averaged over
    examples, (members, blocks, heads, tokens, tokens), and averaged over heads in half precision, (members, examples,
    blocks, tokens, tokens)."""
    local = task.to(stack.flat.device, stack.flat.dtype)
    count, total, by_example = min(len(task.splits["ood"]), most), None, []
    for part in portions(stack, task, count):
        inputs, _ = local.batch("ood", _example_index(part, stack))
        captured = stack.capture(inputs, "attention.*", first_row=part.start)
        maps = torch.stack([captured[f"attention.{i}"] for i in range(len(captured))], dim=2)  # (e, b, l, h, n, n)
        maps = maps.to(stack.flat.dtype)  # sums of many bfloat16 would lose the differences
        total = maps.sum(1) if total is None else total + maps.sum(1)
        by_example.append(maps.mean(3).half().cpu().numpy())  # not a tensor: autocast to bfloat16 cannot join float16
    assert total is not None
    return total / count, torch.from_numpy(np.concatenate(by_example, axis=1))


def _example_index(part: range, stack: Stack) -> Tensor:
    """Return the indices of the examples in a range, the same for every member, (members, examples)."""
    return torch.arange(part.start, part.stop, device=stack.flat.device).expand(len(stack.members), -1)


# ----------------------------------------------------------------------------------------------- across all members


def compare_members(
    members: pd.DataFrame, arrays: Mapping[str, Tensor], positions: Mapping[str, np.ndarray], step: int
) -> Rows:
    """Return rows for all members of a run: how far the PE moved in training, how often members that differ only in
    their seed give the same answers, and how similar the attention is to that of 2d-fixed members and to ideal maps.

    The rows also have the column step. Their column member has the numbers of members in the run, not in a stack.
    `arrays` is as in `Experiment.compare`. `positions` has the true positions of tokens, (n, axes), by data set.
    Members on different data are not compared.
    """
    result = list(pe_change(members, arrays, step))
    for data, places in positions.items():
        on_data = members if len(positions) == 1 else members[members["data"] == data]
        result += _answer_agreement(on_data, arrays, step)
        for moment, at in (("start", 0), ("end", step)):
            result += [{**row, "step": at} for row in _attention_rows(on_data, arrays, places, moment)]
    return result


def pe_change(members: pd.DataFrame, arrays: Mapping[str, Tensor], step: int) -> Iterator[dict[str, Any]]:
    """Yield two rows for each member with a PE: the Frobenius norm of the change of its PE in training, and this norm
    divided by the Frobenius norm of its initial PE. Both rows have the last step, `step`, as a column."""
    for number in members["member"]:
        if not {f"pe_start/{number}", f"pe_end/{number}"} <= arrays.keys():
            continue
        start, end = (arrays[f"pe_{moment}/{number}"].double().numpy() for moment in ("start", "end"))
        absolute, relative = geometry.moved(start, end)
        yield _row(number, ALL_BLOCKS, "moved", "start", absolute, step=step)
        yield _row(number, ALL_BLOCKS, "moved_relative", "start", relative, step=step)


def _answer_agreement(members: pd.DataFrame, arrays: Mapping[str, Tensor], step: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each finished member: the fraction of held-out examples to which it gives the same answer as a
    member that differs only in its seed, averaged over all such members."""
    alive = members[members["state"] == "done"]
    alive = alive[[f"probabilities_end/{number}" in arrays for number in alive["member"]]]
    if alive.empty:
        return
    answers = np.stack([arrays[f"probabilities_end/{number}"].argmax(-1).numpy() for number in alive["member"]])
    settings = alive[[name for name in alive.columns if name not in NON_SETTING_COLUMNS]]
    groups = [json.dumps([str(value) for value in row]) for row in settings.itertuples(index=False)]
    fractions = behaviours.agreement_with_others(answers, groups)
    for number, value in zip(alive["member"], fractions, strict=True):
        yield _row(number, ALL_BLOCKS, "agreement", "other seeds", value, step=step)


def _attention_rows(
    members: pd.DataFrame, arrays: Mapping[str, Tensor], positions: np.ndarray, moment: str
) -> Iterator[dict[str, Any]]:
    """Yield rows with the agreement of each member's attention with three targets: "ideal" (even attention within row
    and column), "even" (even attention to all tokens), and the mean attention of trained members with the encoding
    2d-fixed. `moment` is "start" or "end" of the member's training."""
    ideal, even = attention.ideal_map(positions), np.full(2 * (len(positions),), 1 / len(positions))
    references = {name: _Reference(numbers, arrays) for name, numbers in reference_members(members).items()}
    for number in members["member"]:
        if f"attention_{moment}/{number}" not in arrays:
            continue
        maps = _head_mean(arrays, f"attention_{moment}/{number}")  # (l, n, n)
        yield from _attention_agreement(number, maps, np.broadcast_to(ideal, maps.shape), "ideal")
        for target, reference in references.items():
            if (mean := reference.mean_without(number)) is not None:
                yield from _attention_agreement(number, maps, mean, target)
        yield from _attention_agreement(number, maps, np.broadcast_to(even, maps.shape), "even", (COSINE,))
        name = f"attention_each_{moment}/{number}"
        if name in arrays:
            by_example = arrays[name].double().numpy()  # (b, l, n, n)
            for target, reference in references.items():
                if (others := reference.each_without(number)) is not None:
                    yield from _block_rows(number, target, attention.cosine(by_example, others).mean(0))
            values = attention.cosine(by_example, np.broadcast_to(ideal, by_example.shape)).mean(0)  # (l,)
            yield from _block_rows(number, "ideal", values)


COSINE = ("attention_cosine", attention.cosine)
CORRELATION = ("attention_correlation", attention.correlation)


def _attention_agreement(
    number: int,
    maps: np.ndarray,
    target_maps: np.ndarray,
    target: str,
    measures: Sequence[tuple[str, Any]] = (COSINE, CORRELATION),
) -> Iterator[dict[str, Any]]:
    """Yield rows with the agreement of a member's attention maps with those of a target, both (blocks, tokens, tokens):
    one row for all blocks together, and one per block. `measures` are pairs of a name and a function."""
    n = maps.shape[-1]
    for analysis, measure in measures:
        yield _row(number, ALL_BLOCKS, analysis, target, measure(maps.reshape(-1, n), target_maps.reshape(-1, n)))
        for block, value in enumerate(measure(maps, target_maps)):
            yield _row(number, block, analysis, target, value)


def _block_rows(number: int, target: str, values: np.ndarray) -> Iterator[dict[str, Any]]:
    """Yield rows of the measure "attention_cosine_each" of a member: one with the mean over the blocks, then one per
    block. `values`, (l,), has a value for each block, averaged over examples."""
    yield _row(number, ALL_BLOCKS, "attention_cosine_each", target, values.mean())
    for block, value in enumerate(values):
        yield _row(number, block, "attention_cosine_each", target, value)


def _head_mean(arrays: Mapping[str, Tensor], name: str) -> np.ndarray:
    """Return the mean over heads of the attention maps in the array `name`, (l, h, n, n) -> (l, n, n)."""
    return np.asarray(arrays[name].double().mean(1).numpy())


def reference_members(members: pd.DataFrame) -> dict[str, list[int]]:
    """Return the numbers of the finished members with the encoding 2d-fixed, grouped by dropout. Keys are names of
    targets in the analysis table: "2d-fixed", or with dropout "2d-fixed, dropout 0.1"."""
    numbers: dict[str, list[int]] = {}
    for row in members[(members["label"] == FIXED) & (members["state"] == "done")].to_dict("records"):
        name = FIXED + (f", dropout {row['dropout']:g}" if row["dropout"] else "")
        numbers.setdefault(name, []).append(int(row["member"]))
    return numbers


class _Reference:
    """The mean attention maps of a group of trained members, such as those with the encoding 2d-fixed, which others are
    compared with. A member of the group is compared with the mean of the rest of the group."""

    def __init__(self, numbers: Sequence[int], arrays: Mapping[str, Tensor]) -> None:
        self.maps = {n: _head_mean(arrays, f"attention_end/{n}") for n in numbers if f"attention_end/{n}" in arrays}
        by_example = {n: arrays[f"attention_each_end/{n}"] for n in numbers if f"attention_each_end/{n}" in arrays}
        self.by_example = {number: maps.double().numpy() for number, maps in by_example.items()}
        self._sum, self._sum_by_example = sum(self.maps.values()), sum(self.by_example.values())

    def mean_without(self, number: int) -> np.ndarray | None:
        """Return the attention map of each block, (l, n, n), averaged over heads, examples and all members of the group
        but `number`. None if there is no other."""
        return _mean_without(self.maps, self._sum, number)

    def each_without(self, number: int) -> np.ndarray | None:
        """Return the attention map of each example and block, (b, l, n, n), averaged over heads and all members of the
        group but `number`. None if there is no other."""
        return _mean_without(self.by_example, self._sum_by_example, number)


def _mean_without(maps: Mapping[int, np.ndarray], total: Any, number: int) -> np.ndarray | None:
    """Return the mean of the maps of all members except `number`, or None if there is no other member. `maps` are the
    maps by member number, and `total` is their sum."""
    others = len(maps) - (number in maps)
    return None if others == 0 else np.asarray((total - maps.get(number, 0.0)) / others)
