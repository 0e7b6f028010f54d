"""Fit a table: train models, choose sigma, test against chance, draw the map and compare with other methods.

>>> result = fit(study, Path("runs/mine"))  # a study `OwnData` with its tables

Both `placecode fit` and `LearnedPositions` call `fit`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from placecode.analysis import connectivity, modules, partitions, places
from placecode.analysis.agreement import (
    Modules,
    channel_confidence,
    common_embedding,
    nearest_channels,
    pair_confidence,
    stable_modules,
)
from placecode.errors import BadInput
from placecode.execution import local
from placecode.execution.progress import Notify, Stop
from placecode.experiments.channels import own_results
from placecode.experiments.channels.own import OwnData
from placecode.experiments.channels.own_results import LEVEL, Found, Method
from placecode.files import write_json
from placecode.fit import chance, others
from placecode.fit.chance import against_chance, channel_p_values, predictive_channels, question_errors
from placecode.fit.choice import choose
from placecode.models.encoder import Stack
from placecode.runs.read import Run
from placecode.tasks.table import PARTS, Table
from placecode.training.trainer import stack_for

__all__ = ["Found", "conclude", "count_predictions", "fit"]

Tell = Callable[[str], object]

PERMUTATIONS = 199
"""Number of random orders of the channels in permutation tests of the scores."""


def fit(
    study: OwnData,
    out: Path,
    *,
    effort: str = "quick",
    where: local.Where | None = None,
    resume: bool = False,
    force: bool = False,
    notify: Notify = lambda event: None,
    stop: Stop = lambda: False,
    tell: Tell = lambda step: None,
    label_names: tuple[str, ...] = (),
) -> Found:
    """Fit a table and write the run and its results to a folder.

    Parameters
    ----------
    study : OwnData
        The study, with its tables.
    out : Path
        Run folder.
    effort : str, default="quick"
        Name of the effort, recorded in config.json.
    where : Where, optional
        Device and precision.
    resume : bool, default=False
        Continue an unfinished fit in `out`. Training that is finished is not repeated.
    force : bool, default=False
        Overwrite a fit in `out`.
    notify, stop : callable, optional
        See `placecode.execution.local.execute`.
    tell : callable, optional
        Called with a short description of each step after training.
    label_names : tuple of str, optional
        Names of the known groups of channels.

    Returns
    -------
    Found
        Map, modules, tests and scores.
    """
    where = (where or local.Where()).resolved()
    if not (resume or force) and _lacks_results(out):
        raise BadInput(
            f"the output folder {out} must be new; it holds a fit that was stopped after training (--resume continues "
            "it, --force starts again)."
        )
    run = local.execute(study, out, scale=effort, where=where, resume=resume, force=force, notify=notify, stop=stop)
    summary = json.loads((out / "summary.json").read_text())
    if (out / "fit.json").is_file() and (out / "map.csv").is_file():
        result = own_results.read(out)
        if "verdict" in summary:
            return result
    else:
        with where.arithmetic():
            result = conclude(study, run, where, partial(_tell_or_stop, tell, stop), label_names)
        own_results.write(result, out)
    write_json(out / "summary.json", {**summary, **result.summary()})
    return result


def count_predictions(study: OwnData) -> int:
    """Estimate the number of predictions needed after training, to choose sigma and to test against chance.

    Parameters
    ----------
    study : OwnData
        The study, with its tables.

    Returns
    -------
    int
        Number of predicted samples, over all models.
    """
    task = study.tables[PARTS[0]]
    per_seed = len(study.sigmas) * task.rows("validation") + task.rows("test")
    return len(study.seeds) * (per_seed + chance.count_predictions(task, study.draws))


def _lacks_results(out: Path) -> bool:
    """Return whether a folder holds a fit whose training is finished but whose results are missing."""
    trained = (out / "summary.json").is_file() and (out / "config.json").is_file()
    return trained and Run(out).study == OwnData.name and not (out / "fit.json").is_file()


def _tell_or_stop(tell: Tell, stop: Stop, step: str) -> None:
    """Announce the next step, or raise Interrupted if the user has asked to stop."""
    if stop():
        raise local.Interrupted
    tell(step)


def conclude(
    study: OwnData, run: Run, where: local.Where, tell: Tell = lambda step: None, label_names: tuple[str, ...] = ()
) -> Found:
    """Compute the results of a fit from its trained models.

    Parameters
    ----------
    study : OwnData
        The study, with its tables.
    run : Run
        The finished run.
    where : Where
        Device, resolved.
    tell : callable, optional
        Called with a short description of each step.
    label_names : tuple of str, optional
        Names of the known groups of channels.

    Returns
    -------
    Found
        Map, modules, tests and scores.
    """
    task = study.tables[PARTS[0]]
    table = run.members[run.members["state"] == "done"]
    on_all_samples = table[table["data"] == PARTS[0]]
    if on_all_samples.empty:
        raise BadInput("the learning rate must be lower, or the values less extreme: every model diverged.")
    tell("choosing sigma")
    pes = run.arrays("pe_end")
    sigmas = sorted({float(sigma) for sigma in on_all_samples["sigma"]})
    members = {s: [int(i) for i in on_all_samples.loc[on_all_samples["sigma"] == s, "member"]] for s in sigmas}
    stacks = {sigma: _loaded(study, run, numbers, task, where) for sigma, numbers in members.items()}
    errors = {sigma: question_errors(stack, task, "validation") for sigma, stack in stacks.items()}
    all_members = {sigma: [int(i) for i in table.loc[table["sigma"] == sigma, "member"]] for sigma in members}
    learned = {sigma: np.stack([pes[i] for i in own]).astype(np.float64) for sigma, own in all_members.items()}
    with connectivity.one_thread():
        choice = choose(errors, learned, _pieces(task, "validation"))

    tell("testing against chance")
    table_test = against_chance(stacks[choice.sigma], task, study.draws)
    dependent = _dependent_channels(stacks[choice.sigma], task, study.draws)
    test_errors = question_errors(stacks[choice.sigma], task, "test")
    mean_mse = others.MaskedSamples(task, "test", study.hidden).error_of_means()

    tell("drawing the map")
    numbers = all_members[choice.sigma]
    fits = learned[choice.sigma]
    similarities = modules.similarities(fits)[-1]
    rows = table[table["sigma"] == choice.sigma]
    halves = [[numbers.index(int(i)) for i in rows.loc[rows["data"] == half, "member"]] for half in PARTS[1:]]
    seeds = [numbers.index(i) for i in members[choice.sigma]]
    if not all(halves):  # no models of the halves were trained, or they diverged: compare seeds instead
        halves = [seeds[::2], seeds[1::2]]
    with connectivity.one_thread():
        consensus = similarities.mean(axis=0)
        has_structure = table_test.p <= LEVEL and test_errors.mean() < mean_mse and dependent.sum() > 1
        placed = dependent if has_structure else np.zeros_like(dependent)
        groups = (
            stable_modules(similarities[:, placed][:, :, placed])
            if placed.any()
            else Modules(np.zeros(0, np.int64), {})
        )
        labels = np.full(task.tokens, -1, dtype=np.int64)
        labels[placed] = groups.labels
        maps = {axes: places.arrange(consensus, axes) for axes in (2, 3) if axes <= task.tokens}
        ours = Method(consensus, maps, labels, {})
        near = nearest_channels(consensus, study.neighbors)
        # with few channels, `study.neighbors` would include nearly all of them
        neighbors = max(1, min(study.neighbors, (task.tokens - 1) // 4))
        confidence = _zero_elsewhere(placed, channel_confidence(fits))
        pair_values = pair_confidence(similarities, (halves[0], halves[1]), neighbors)
        pairs = _zero_elsewhere(placed[:, None] & placed, pair_values)
        embedding = common_embedding(fits[seeds])
    compared, left_out = {}, {}
    tell("comparing with other methods")
    for name, other in others.compare(study.tables, study.hidden):
        if isinstance(other, str):
            left_out[name] = other
        else:
            compared[name] = Method(other.similarity, other.maps, other.labels, _scores(other, task, other.error))
    return Found(
        names=task.token_names,
        sigma=choice.sigma,
        why=choice.why,
        sigmas=choice.table,
        p_value=table_test.p,
        heldout_mse=float(test_errors.mean()),
        linear_mse=float(compared["correlation"].scores["heldout_mse"]),
        mean_mse=mean_mse,
        ours=Method(ours.similarity, ours.maps, ours.labels, _scores(ours, task, float(test_errors.mean()))),
        embedding=embedding,
        neighbors=near,
        confidence=confidence,
        pairs=pairs,
        stability=groups.stability,
        others=compared,
        left_out=left_out,
        facts=_facts(task, run),
        positions=task.positions,
        labels=task.labels,
        label_names=label_names or _numbers(task),
    )


def _dependent_channels(stack: Stack, task: Table, draws: int) -> np.ndarray:
    """Return a mask (n,) of the channels that others predict or that help to predict others.

    The position of an independent channel on the map has no meaning, even if all fits agree on it.
    """
    dependent = channel_p_values(stack, task, draws) <= LEVEL
    if dependent.any():
        dependent[predictive_channels(stack, task, np.flatnonzero(~dependent).tolist(), most=2 * draws)] = True
    return np.asarray(dependent)


def _pieces(task: Table, split: str) -> np.ndarray | None:
    """Return the group or block of each evaluated sample of a split, (N,)."""
    if task.pieces is None:
        return None
    count = task.examples(split)
    rows = np.arange(count) * len(task.splits[split]) // count
    return np.asarray(task.pieces[task.splits[split].targets.numpy()[rows]])


def _zero_elsewhere(mask: np.ndarray, confidence: np.ndarray) -> np.ndarray:
    """Set the confidence outside the mask to 0, except where it is NaN, as with a single model."""
    return np.where(mask | np.isnan(confidence), confidence, 0.0)


def _loaded(study: OwnData, run: Run, numbers: list[int], task: Table, where: local.Where) -> Stack:
    """Load trained members of a run as one stack."""
    members = study.members()
    stack = stack_for([members[i] for i in numbers], task, where.device, fast=where.fast)
    weights = run.tensors("weights.safetensors")
    stack.flat.copy_(torch.cat([weights[str(i)] for i in numbers]))
    return stack


def _scores(method: Any, task: Table, error: float | None) -> dict[str, float]:
    """Score a method: held-out error, and agreement with known positions or groups of the channels."""
    scores = {} if error is None else {"heldout_mse": error}
    near, labels = None, _informative(task.labels)
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
        groups = _with_rest_group(method.labels)
        scores |= _with_p_value("ari", lambda order: float(partitions.ari(groups, labels[order])), task.tokens)
    return scores


def _informative(labels: np.ndarray | None) -> np.ndarray | None:
    """Return the labels, or None if they have a single group or only groups of one channel."""
    sizes: Sequence[int] | np.ndarray = [] if labels is None else np.unique(labels[labels >= 0], return_counts=True)[1]
    return labels if len(sizes) > 1 and max(sizes) > 1 else None


def _with_rest_group(labels: np.ndarray) -> np.ndarray:
    """Put all channels without a group into one additional group."""
    return np.where(labels < 0, labels.max(initial=-1) + 1, labels)


def _near_share(similar: np.ndarray, near: np.ndarray) -> Callable[[np.ndarray], float]:
    """Return a function of an order of the channels: the share of channels whose most similar channel is near.

    Channels without any near channel are not counted.
    """
    weights, defined = modules.symmetric(similar)
    share = modules.nearest(weights)
    channel, nearest = np.nonzero(share)
    weight = share[channel, nearest] / max(int(near.any(axis=1).sum()), 1)
    return lambda order: float((weight * near[order[channel], order[nearest]]).sum()) if defined else float("nan")


def _with_p_value(name: str, measure: Callable[[np.ndarray], float], channels: int) -> dict[str, float]:
    """Compute a score and its p-value under random orders of the channels; empty if the score is not finite."""
    rng = np.random.default_rng(0)
    value = measure(np.arange(channels))
    if not np.isfinite(value):
        return {}
    null = np.array([measure(rng.permutation(channels)) for _ in range(PERMUTATIONS)])
    return {name: value, f"{name}_p": float((1 + (null >= value - 1e-9).sum()) / (1 + PERMUTATIONS))}


def _numbers(task: Table) -> tuple[str, ...]:
    """Return numbers as names of the known groups."""
    return () if task.labels is None else tuple(str(i) for i in range(int(task.labels.max()) + 1))


def _mean_piece_length(task: Table) -> int:
    """Return the mean number of samples of a group or block."""
    if task.pieces is None:
        return len(task.splits["train"].inputs[0])
    return int(np.mean(np.unique(task.pieces[task.pieces >= 0], return_counts=True)[1]))


def _facts(task: Table, run: Run) -> dict[str, Any]:
    """Collect the sizes of the table and its splits for the report."""
    shape = task.splits["train"].inputs.shape
    return {
        "samples": int(shape[1]),
        "channels": task.tokens,
        "left out": int(shape[2]) - task.tokens,
        "train": len(task.splits["train"]),
        "test": len(task.splits["test"]),
        "memory": task.memory,
        "piece": _mean_piece_length(task),
        "diverged": int((run.members["state"] == "diverged").sum()),
    }
