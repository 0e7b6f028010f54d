"""Learn a map of the channels of a table: train models, choose sigma, test against chance, compare with other methods.

>>> experiment = experiment_of_sheet(read_sheet("table.csv"), "quick", {"file": "table.csv"}, min_channels=5)
>>> result = fit(experiment, Path("runs/mine"))

Both `placecode fit` and `LearnedPositions` call these two functions. Results are written to fit.json, fit.safetensors,
map.csv and summary.json in the run folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from placecode.analysis import alignment, connectivity, modules, partitions, places
from placecode.analysis.agreement import (
    Modules,
    channel_confidence,
    common_embedding,
    nearest_channels,
    pair_confidence,
    stable_modules,
)
from placecode.data.tables.files import Sheet
from placecode.errors import BadInput, must_be
from placecode.execution import local
from placecode.execution.progress import Interrupted, Notify, Stop
from placecode.execution.settings import ExecutionSettings
from placecode.experiments.channels import fit_result
from placecode.experiments.channels.fit_result import SIGNIFICANCE_LEVEL, FitResult, Method
from placecode.experiments.channels.table import TableExperiment
from placecode.files import write_json
from placecode.fit import chance, others
from placecode.fit.chance import against_chance, channel_p_values, predictive_channels, sample_errors
from placecode.fit.choice import choose
from placecode.models.encoder import Stack
from placecode.models.member import Member
from placecode.runs.read import Run
from placecode.tasks.table import DATA_SETS, TableTask, table_tasks

Announce = Callable[[str], object]
"""Function that is called at the start of each step after training, with its description, such as "choosing sigma"."""

PERMUTATIONS = 199
"""Number of random orders of the channels in the permutation tests of `_with_p_value`."""


def experiment_of_sheet(
    sheet: Sheet,
    effort: str,
    settings: Mapping[str, Any],
    min_channels: int,
    labels: npt.ArrayLike | None = None,
    positions: npt.ArrayLike | None = None,
) -> TableExperiment:
    """Split the samples of a table into training, validation and test samples, and return the experiment that fits it.

    `settings` are values of fields of `TableExperiment`, including "file". The effort, "quick" or "thorough", sets the
    other fields. `labels` (m,) and `positions` (m, 2) or (m, 3) are known groups and positions of the m channels of the
    table, if any. Raises `BadInput` if fewer than `min_channels` channels vary.
    """
    parts = table_tasks(
        sheet.values,
        names=sheet.names,
        categories=sheet.categories,
        groups=sheet.groups,
        labels=labels,
        positions=positions,
        eval_mask_ratios=(settings.get("mask_ratio", TableExperiment.mask_ratio),),
        seed=settings.get("data_seed", 0),
    )
    channels = parts[DATA_SETS[0]].tokens
    if channels < min_channels:
        raise must_be(settings["file"], f"a table in which at least {min_channels} channels vary", channels)
    return TableExperiment(tables=parts, **TableExperiment.settings_for_effort(effort, channels, **settings))


def fit(
    experiment: TableExperiment,
    out: Path,
    *,
    effort: str = "quick",
    execution: ExecutionSettings | None = None,
    resume: bool = False,
    force: bool = False,
    notify: Notify = lambda event: None,
    stop: Stop = lambda: False,
    announce: Announce = lambda step: None,
    label_names: tuple[str, ...] = (),
) -> FitResult:
    """Fit a table and write the run and its results to a folder.

    Parameters
    ----------
    experiment : TableExperiment
        The experiment, with its tables.
    out : Path
        Run folder.
    effort : str, default="quick"
        Name of the effort with which `experiment` was made, to record in config.json.
    execution : ExecutionSettings, optional
        Device and precision.
    resume : bool, default=False
        Continue an unfinished fit in `out`. Training that is finished is not repeated.
    force : bool, default=False
        Overwrite a fit in `out`.
    notify, stop : callable, optional
        See `placecode.execution.local.execute`.
    announce : callable, optional
        Called at the start of each step after training, with a short description of the step.
    label_names : tuple of str, optional
        Names of the known groups of channels, in the order of their labels 0, 1, ...

    Returns
    -------
    FitResult
        Map, modules, tests and scores.
    """
    execution = execution or ExecutionSettings()
    if not (resume or force) and is_fit(out) and Run(out).finished and not (out / "fit.json").is_file():
        raise BadInput(
            f"the output folder {out} must be new; it holds a fit that was stopped after training (--resume continues "
            "it, --force starts again)."
        )
    run = local.execute(
        experiment, out, scale=effort, execution=execution, resume=resume, force=force, notify=notify, stop=stop
    )
    summary = json.loads((out / "summary.json").read_text())
    if "verdict" in summary and (out / "fit.json").is_file() and (out / "map.csv").is_file():
        return fit_result.read(out)

    def announce_or_stop(step: str) -> None:
        """Announce the next step, or raise Interrupted if the user has stopped the fit."""
        if stop():
            raise Interrupted
        announce(step)

    with execution.arithmetic():
        result = conclude(experiment, run, execution, announce_or_stop, label_names)
    fit_result.write(result, out)
    write_json(out / "summary.json", {**summary, **result.summary()})
    return result


def count_predictions(experiment: TableExperiment) -> int:
    """Estimate how many samples all models together must predict to choose sigma and to test against chance."""
    task = experiment.tables[DATA_SETS[0]]
    per_seed = len(experiment.sigmas) * task.row_count("validation") + task.row_count("test")
    return len(experiment.seeds) * (per_seed + chance.count_predictions(task, experiment.draws))


def is_fit(folder: Path) -> bool:
    """Return whether a folder holds a fit, finished or not."""
    return (folder / "config.json").is_file() and Run(folder).experiment == TableExperiment.name


def trained_models(experiment: TableExperiment, run: Run) -> dict[float, tuple[list[Member], Tensor]]:
    """Return for each sigma the e members trained on all training samples, and their weights, (e, P), a row per member.

    Members that diverged are left out, so a sigma at which all diverged is missing.
    """
    done = run.members[(run.members["state"] == "done") & (run.members["data"] == DATA_SETS[0])]
    members, weights = experiment.members(), run.tensors("weights.safetensors")
    return {
        sigma: ([members[i] for i in numbers], torch.cat([weights[str(i)] for i in numbers]))
        for sigma, numbers in _numbers_by_sigma(done).items()
    }


def _numbers_by_sigma(members: pd.DataFrame) -> dict[float, list[int]]:
    """Return the numbers (in the run) of the members with each sigma, in increasing order of sigma."""
    return {sigma: members.loc[members["sigma"] == sigma, "member"].tolist() for sigma in sorted(set(members["sigma"]))}


def conclude(
    experiment: TableExperiment,
    run: Run,
    execution: ExecutionSettings,
    announce: Announce,
    label_names: tuple[str, ...],
) -> FitResult:
    """Compute the map, modules, tests and scores from the trained models of a run. See `fit` for the parameters.

    Raises BadInput if every model diverged.
    """
    task, models = experiment.tables[DATA_SETS[0]], trained_models(experiment, run)
    if not models:
        raise BadInput("the learning rate must be lower, or the values less extreme: every model diverged.")
    announce("choosing sigma")
    stacks = {}
    for sigma, (members, weights) in models.items():
        stacks[sigma] = execution.build_stack(members, task)
        stacks[sigma].flat.copy_(weights)
    errors = {sigma: sample_errors(stack, task, "validation") for sigma, stack in stacks.items()}
    pes = run.arrays("pe_end")
    done = run.members[run.members["state"] == "done"]
    learned = {
        sigma: np.stack([pes[i] for i in numbers]).astype(np.float64)
        for sigma, numbers in _numbers_by_sigma(done).items()
        if sigma in stacks
    }
    with connectivity.one_thread():
        choice = choose(errors, learned, _blocks_of_examples(task, "validation"))
    stack, fits = stacks[choice.sigma], learned[choice.sigma]

    announce("testing against chance")
    p_value = against_chance(stack, task, experiment.draws).p
    dependent = _dependent_channels(stack, task, experiment.draws)
    error = float(sample_errors(stack, task, "test").mean())
    mean_error = others.MaskedSamples(task, "test", experiment.mask_ratio).error_of_means()
    has_structure = p_value <= SIGNIFICANCE_LEVEL and error < mean_error and dependent.sum() > 1
    placed = dependent if has_structure else np.zeros_like(dependent)

    announce("drawing the map")
    data = done.loc[done["sigma"] == choice.sigma, "data"]  # data set of each of the m models in `fits`, (m,)
    seeds, *halves = (np.flatnonzero(data == part).tolist() for part in DATA_SETS)
    if not all(halves):  # no models of the halves were trained, or they diverged: compare seeds instead
        halves = [seeds[::2], seeds[1::2]]
    similarities = alignment.token_similarity(fits)  # (m, n, n)
    with connectivity.one_thread():
        similarity = similarities.mean(axis=0)
        groups = Modules(np.zeros(0, np.int64), {})
        if placed.any():
            groups = stable_modules(similarities[:, placed][:, :, placed])
        labels = np.full(task.tokens, -1, dtype=np.int64)
        labels[placed] = groups.labels
        maps = {axes: places.isomap_embedding(similarity, axes) for axes in (2, 3) if axes <= task.tokens}
        ours = Method(similarity, maps, labels, {"heldout_mse": error})
        # with few channels, `experiment.neighbors` would include nearly all of them
        neighbors = max(1, min(experiment.neighbors, (task.tokens - 1) // 4))
        pairs = pair_confidence(similarities, (halves[0], halves[1]), neighbors)
        confidence = channel_confidence(fits)
        embedding = common_embedding(fits[seeds])

    def with_scores(method: Method) -> Method:
        return replace(method, scores={**method.scores, **_scores(method, task)})

    announce("comparing with other methods")
    results = dict(others.compare(experiment.tables, experiment.mask_ratio))
    methods = {name: with_scores(result) for name, result in results.items() if isinstance(result, Method)}
    return FitResult(
        names=task.token_names,
        sigma=choice.sigma,
        why=choice.why,
        sigmas=choice.table,
        p_value=p_value,
        heldout_mse=error,
        linear_mse=methods["correlation"].scores["heldout_mse"],
        mean_mse=mean_error,
        ours=with_scores(ours),
        embedding=embedding,
        neighbors=nearest_channels(similarity, experiment.neighbors),
        confidence=_zero_elsewhere(placed, confidence),
        pairs=_zero_elsewhere(placed[:, None] & placed, pairs),
        stability=groups.stability,
        others=methods,
        left_out={name: reason for name, reason in results.items() if isinstance(reason, str)},
        data_summary=_data_summary(task, run),
        positions=task.positions,
        labels=task.labels,
        label_names=label_names or (() if task.labels is None else tuple(map(str, range(task.labels.max() + 1)))),
    )


def _dependent_channels(stack: Stack, task: TableTask, draws: int) -> np.ndarray:
    """Return a mask (n,) of the channels that other channels predict, or that help to predict other channels.

    The position on the map of a channel outside this mask has no meaning, even if all models agree on it.
    """
    dependent = channel_p_values(stack, task, draws) <= SIGNIFICANCE_LEVEL
    if dependent.any():
        dependent[predictive_channels(stack, task, np.flatnonzero(~dependent).tolist(), max_shifts=2 * draws)] = True
    return np.asarray(dependent)


def _blocks_of_examples(task: TableTask, split: str) -> np.ndarray | None:
    """Return the number of the block that each evaluated sample of a split belongs to, (N,).

    A block is a series of samples that depend on each other, such as a recording. The result is None if the table has
    no blocks.
    """
    if task.exchange_blocks is None:
        return None
    count = task.examples(split)
    rows = np.arange(count) * len(task.splits[split]) // count
    return np.asarray(task.exchange_blocks[task.splits[split].targets.numpy()[rows]])


def _zero_elsewhere(mask: np.ndarray, confidence: np.ndarray) -> np.ndarray:
    """Return `confidence`, with 0 where `mask` is False. NaN, the confidence with a single model, remains NaN."""
    return np.where(mask | np.isnan(confidence), confidence, 0.0)


def _scores(method: Method, task: TableTask) -> dict[str, float]:
    """Return scores of the agreement between the map of a method and known positions or groups of the channels.

    The names are "procrustes_r2", "neighbor_agreement" and "ari"; the last two also have p-values, as
    "neighbor_agreement_p" and "ari_p". A score is missing if the positions or groups that it needs are unknown.
    """
    scores: dict[str, float] = {}
    near, labels = None, task.labels
    if labels is not None:
        sizes = np.unique(labels[labels >= 0], return_counts=True)[1]
        if len(sizes) < 2 or max(sizes) < 2:
            labels = None  # with one group, or only groups of a single channel, there is nothing to agree on
    if task.positions is not None and np.ptp(task.positions, axis=0).any():
        near = places.neighbors_in_space(task.positions)
        axes = task.positions.shape[1]
        if axes in method.maps:
            scores["procrustes_r2"] = places.procrustes_r2(method.maps[axes], task.positions)
    elif labels is not None:
        near = (labels[:, None] == labels) & (labels >= 0)[:, None] & ~np.eye(task.tokens, dtype=bool)
    if near is not None:
        scores |= _with_p_value("neighbor_agreement", _near_share(method.similarity, near), task.tokens)
    if labels is not None:
        modules = method.labels
        groups = np.where(modules < 0, modules.max(initial=-1) + 1, modules)  # channels without a module are a group
        scores |= _with_p_value("ari", lambda order: float(partitions.ari(groups, labels[order])), task.tokens)
    return scores


def _near_share(similarity: np.ndarray, near: np.ndarray) -> Callable[[np.ndarray], float]:
    """Return a function that computes the share of channels whose most similar channel is near.

    `similarity` (n, n) is that of n channels, and `near` (n, n) is a mask of the pairs that are near each other. The
    argument of the function is an order of the channels (n,), by which `near` is permuted first. Channels that are not
    near any other do not count. The function returns NaN if the similarity is undefined.
    """
    weights, defined = modules.symmetrize(similarity)
    share = modules.nearest(weights)
    channel, nearest = np.nonzero(share)
    weight = share[channel, nearest] / max(int(near.any(axis=1).sum()), 1)
    return lambda order: float((weight * near[order[channel], order[nearest]]).sum()) if defined else float("nan")


def _with_p_value(name: str, measure: Callable[[np.ndarray], float], channels: int) -> dict[str, float]:
    """Return a score and its p-value as {name: score, name_p: p-value}; empty if the score is not finite.

    `measure` computes the score for an order of the channels. The p-value is from PERMUTATIONS random orders.
    """
    rng = np.random.default_rng(0)
    value = measure(np.arange(channels))
    if not np.isfinite(value):
        return {}
    null = np.array([measure(rng.permutation(channels)) for _ in range(PERMUTATIONS)])
    return {name: value, f"{name}_p": float((1 + (null >= value - 1e-9).sum()) / (1 + PERMUTATIONS))}


def _data_summary(task: TableTask, run: Run) -> dict[str, Any]:
    """Return the numbers about the table and the training that the report states, by name.

    "left out" is the number of columns that are not used, such as constant ones. "memory" is the autocorrelation length
    in samples. "piece" is the mean number of samples per block of dependent samples (`TableTask.exchange_blocks`).
    "diverged" is the number of models that diverged.
    """
    _, samples, columns = task.splits["train"].inputs.shape
    block_length = samples
    if task.exchange_blocks is not None:
        blocks = task.exchange_blocks[task.exchange_blocks >= 0]
        block_length = int(np.mean(np.unique(blocks, return_counts=True)[1]))
    return {
        "samples": samples,
        "channels": task.tokens,
        "left out": columns - task.tokens,
        "train": len(task.splits["train"]),
        "test": len(task.splits["test"]),
        "memory": task.autocorrelation_length,
        "piece": block_length,
        "diverged": int((run.members["state"] == "diverged").sum()),
    }
