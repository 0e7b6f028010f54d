"""From a table to a map of its channels: train, choose sigma, hold it against chance and against others.

>>> found = fit(study, Path("runs/mine"))  # a study `OwnData` with its tables

`placecode fit` and `LearnedPositions` both call `fit`.
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
from placecode.fit.chance import against_chance, channels_against_chance, question_errors, tells_of_others
from placecode.fit.choice import choose
from placecode.models.encoder import Stack
from placecode.runs.read import Run
from placecode.tasks.table import PARTS, Table
from placecode.training.trainer import stack_for

__all__ = ["Found", "answers", "conclude", "fit"]

Tell = Callable[[str], object]

ORDERS = 199
"""Random orders of the channels that tell what chance gives."""


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
    tell: Tell = lambda what: None,
    label_names: tuple[str, ...] = (),
) -> Found:
    """Train the study's members into the run folder `out`, and write there what they found.

    A finished run is not trained again when it is resumed; what is missing is told anew.
    """
    where = (where or local.Where()).resolved()
    if not (resume or force) and _unconcluded(out):
        raise BadInput(
            f"the output folder {out} must be new; it holds a fit that was stopped before its conclusion (--resume "
            "goes on with it, --force starts anew)."
        )
    run = local.execute(study, out, scale=effort, where=where, resume=resume, force=force, notify=notify, stop=stop)
    summary = json.loads((out / "summary.json").read_text())
    if (out / "fit.json").is_file() and (out / "map.csv").is_file():
        found = own_results.read(out)
        if "verdict" in summary:
            return found
    else:
        with where.arithmetic():
            found = conclude(study, run, where, partial(_told, tell, stop), label_names)
        own_results.write(found, out)
    write_json(out / "summary.json", {**summary, **found.summary()})
    return found


def answers(study: OwnData) -> int:
    """How many answers of a model the conclusion takes, about, to choose sigma and to hold it against chance."""
    task = study.tables[PARTS[0]]
    asked = len(study.sigmas) * task.rows("validation") + task.rows("test") + chance.answers(task, study.draws)
    return len(study.seeds) * asked


def _unconcluded(out: Path) -> bool:
    """Whether a folder holds a fit that was trained, and no conclusion; runs of other studies have none."""
    trained = (out / "summary.json").is_file() and (out / "config.json").is_file()
    return trained and Run(out).study == OwnData.name and not (out / "fit.json").is_file()


def _told(tell: Tell, stop: Stop, what: str) -> None:
    """Before each part of the conclusion: stop if that is asked for, else say what comes."""
    if stop():
        raise local.Interrupted
    tell(what)


def conclude(
    study: OwnData, run: Run, where: local.Where, tell: Tell = lambda what: None, label_names: tuple[str, ...] = ()
) -> Found:
    """What the trained members of a run found."""
    task = study.tables[PARTS[0]]
    table = run.members[run.members["state"] == "done"]
    whole = table[table["data"] == PARTS[0]]
    if whole.empty:
        raise BadInput("the learning rate must be lower, or the values less extreme: every model diverged.")
    tell("choosing sigma")
    pes = run.arrays("pe_end")
    sigmas = sorted({float(sigma) for sigma in whole["sigma"]})
    members = {s: [int(i) for i in whole.loc[whole["sigma"] == s, "member"]] for s in sigmas}
    stacks = {sigma: _loaded(study, run, own, task, where) for sigma, own in members.items()}
    errors = {sigma: question_errors(stack, task, "validation") for sigma, stack in stacks.items()}
    every = {sigma: [int(i) for i in table.loc[table["sigma"] == sigma, "member"]] for sigma in members}
    learned = {sigma: np.stack([pes[i] for i in own]).astype(np.float64) for sigma, own in every.items()}
    with connectivity.one_thread():
        choice = choose(errors, learned, _pieces(task, "validation"))

    tell("asking what chance would do")
    shifted = against_chance(stacks[choice.sigma], task, study.draws)
    placed = _placed(stacks[choice.sigma], task, study.draws)
    tested = question_errors(stacks[choice.sigma], task, "test")
    mean = others.Asked(task, "test", study.hidden).of_means()

    tell("drawing the map")
    own = every[choice.sigma]
    fits = learned[choice.sigma]
    alike = modules.similarities(fits)[-1]
    here = table[table["sigma"] == choice.sigma]
    halves = [[own.index(int(i)) for i in here.loc[here["data"] == half, "member"]] for half in PARTS[1:]]
    seeds = [own.index(i) for i in members[choice.sigma]]
    if not all(halves):  # too few were asked for, or they diverged: then other seeds have to do
        halves = [seeds[::2], seeds[1::2]]
    with connectivity.one_thread():
        consensus = alike.mean(axis=0)
        told = placed if shifted.p <= LEVEL and tested.mean() < mean and placed.sum() > 1 else np.zeros_like(placed)
        groups = stable_modules(alike[:, told][:, :, told]) if told.any() else Modules(np.zeros(0, np.int64), {})
        labels = np.full(task.tokens, -1, dtype=np.int64)
        labels[told] = groups.labels
        drawn = {axes: places.arrange(consensus, axes) for axes in (2, 3) if axes <= task.tokens}
        ours = Method(consensus, drawn, labels, {})
        near = nearest_channels(consensus, study.neighbors)
        # of a few channels nearly all would be neighbours
        few = max(1, min(study.neighbors, (task.tokens - 1) // 4))
        confidence = _only(told, channel_confidence(fits))
        pairs = _only(told[:, None] & told, pair_confidence(alike, (halves[0], halves[1]), few))
        embedding = common_embedding(fits[seeds])
    compared, left_out = {}, {}
    tell("asking others")
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
        p_value=shifted.p,
        heldout_mse=float(tested.mean()),
        linear_mse=float(compared["correlation"].scores["heldout_mse"]),
        mean_mse=mean,
        ours=Method(ours.similarity, ours.maps, ours.labels, _scores(ours, task, float(tested.mean()))),
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


def _placed(stack: Stack, task: Table, draws: int) -> np.ndarray:
    """The channels of which the others tell, or that tell of others, (n,). Who has nothing to do with anybody has
    nowhere to be, however much fits agree on it."""
    found = channels_against_chance(stack, task, draws) <= LEVEL
    if found.any():
        found[tells_of_others(stack, task, np.flatnonzero(~found).tolist(), most=2 * draws)] = True
    return np.asarray(found)


def _pieces(task: Table, split: str) -> np.ndarray | None:
    """The group or block that each evaluated example of a part is from, (N,)."""
    if task.pieces is None:
        return None
    count = task.examples(split)
    rows = np.arange(count) * len(task.splits[split]) // count
    return np.asarray(task.pieces[task.splits[split].targets.numpy()[rows]])


def _only(told: np.ndarray, sure: np.ndarray) -> np.ndarray:
    """How sure these are; 0 for the others, unless nothing can be said, as of a single model."""
    return np.where(told | np.isnan(sure), sure, 0.0)


def _loaded(study: OwnData, run: Run, numbers: list[int], task: Table, where: local.Where) -> Stack:
    """Trained members of a run as one stack."""
    every = study.members()
    stack = stack_for([every[i] for i in numbers], task, where.device, fast=where.fast)
    weights = run.tensors("weights.safetensors")
    stack.flat.copy_(torch.cat([weights[str(i)] for i in numbers]))
    return stack


def _scores(method: Any, task: Table, error: float | None) -> dict[str, float]:
    """How well a method does on what was held out, and against places and groups that are known."""
    found = {} if error is None else {"heldout_mse": error}
    near, labels = None, _telling(task.labels)
    if task.positions is not None and np.ptp(task.positions, axis=0).any():
        near = places.neighbors_in_space(task.positions)
        axes = task.positions.shape[1]
        if axes in method.maps:
            found["procrustes_r2"] = places.procrustes_r2(method.maps[axes], task.positions)
    elif labels is not None:
        near = (labels[:, None] == labels) & (labels >= 0)[:, None] & ~np.eye(task.tokens, dtype=bool)
    if near is not None:
        found |= _beside_chance("neighbor_agreement", _near_share(method.similarity, near), task.tokens)
    if labels is not None:
        whole = _whole(method.labels)
        found |= _beside_chance("ari", lambda order: float(partitions.ari(whole, labels[order])), task.tokens)
    return found


def _telling(labels: np.ndarray | None) -> np.ndarray | None:
    """Labels that tell channels apart and put any two together; None: nothing can be held against others."""
    sizes: Sequence[int] | np.ndarray = [] if labels is None else np.unique(labels[labels >= 0], return_counts=True)[1]
    return labels if len(sizes) > 1 and max(sizes) > 1 else None


def _whole(labels: np.ndarray) -> np.ndarray:
    """Groups of all channels: those without one are a group of their own."""
    return np.where(labels < 0, labels.max(initial=-1) + 1, labels)


def _near_share(similar: np.ndarray, near: np.ndarray) -> Callable[[np.ndarray], float]:
    """Of an order of the channels: the share of those with anybody near whose most similar one is near."""
    weights, told = modules.symmetric(similar)
    share = modules.nearest(weights)
    one, other = np.nonzero(share)
    weight = share[one, other] / max(int(near.any(axis=1).sum()), 1)
    return lambda order: float((weight * near[order[one], order[other]]).sum()) if told else float("nan")


def _beside_chance(name: str, measure: Callable[[np.ndarray], float], channels: int) -> dict[str, float]:
    """A measure, and how often it comes as high with the channels in random order; nothing where it says nothing."""
    rng = np.random.default_rng(0)
    value = measure(np.arange(channels))
    if not np.isfinite(value):
        return {}
    null = np.array([measure(rng.permutation(channels)) for _ in range(ORDERS)])
    return {name: value, f"{name}_p": float((1 + (null >= value - 1e-9).sum()) / (1 + ORDERS))}


def _numbers(task: Table) -> tuple[str, ...]:
    """Names for known groups that have none."""
    return () if task.labels is None else tuple(str(i) for i in range(int(task.labels.max()) + 1))


def _usual_length(task: Table) -> int:
    """Samples of a group or block, on average."""
    if task.pieces is None:
        return len(task.splits["train"].inputs[0])
    return int(np.mean(np.unique(task.pieces[task.pieces >= 0], return_counts=True)[1]))


def _facts(task: Table, run: Run) -> dict[str, Any]:
    everything = task.splits["train"].inputs.shape
    return {
        "samples": int(everything[1]),
        "channels": task.tokens,
        "left out": int(everything[2]) - task.tokens,
        "train": len(task.splits["train"]),
        "test": len(task.splits["test"]),
        "memory": task.memory,
        "piece": _usual_length(task),
        "diverged": int((run.members["state"] == "diverged").sum()),
    }
