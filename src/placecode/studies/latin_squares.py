"""Studies on Latin squares.

lst-sigma: one model, one data set, one number turned: the initial scale sigma of the learned PE. What to look for:
do all sigmas fit the training puzzles in the end, and does accuracy on held-out puzzles unlike any of them (validation)
fall as sigma grows? Where train accuracy is high and validation is not, the model has memorized.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from placecode import figures
from placecode.analysis import alignment
from placecode.analysis.stats import interval
from placecode.encoder import Stack
from placecode.encodings import lookup, sinusoid
from placecode.errors import must_be
from placecode.members import Member, grid
from placecode.runs import Run
from placecode.studies.base import Shown, Study, mean_attention, setting
from placecode.tasks.base import Task
from placecode.tasks.latin_squares import LatinSquares
from placecode.training import steps_per_epoch

FITTED = 0.95
"""A model that has not reached this accuracy on its training puzzles has not learned them yet."""
GENERALIZES, MEMORIZES = 0.85, 0.5
"""Validation accuracy of a fitted model from which on it generalizes, and up to which it only memorizes."""


@dataclass(frozen=True)
class LstSigma(Study):
    """Learned PEs of many initial scales on Latin squares."""

    name = "lst-sigma"
    about = "Latin squares: accuracy against the initial scale sigma of a learned PE"

    sigmas: tuple[float, ...] = setting(tuple(round(0.1 * i, 1) for i in range(1, 21)), "initial scales of the PE")
    seeds: tuple[int, ...] = setting(tuple(range(15)), "seeds of each setting: a number of them, or a list a,b,c")
    epochs: int = setting(4000, "passes over the training puzzles")
    evaluations: int = setting(40, "how many times all splits are evaluated on the way")
    puzzles: str | None = setting(None, "folder with puzzle files in the published format; drawn when not given")
    order: int = setting(4, "rows and columns of a puzzle, 4 to 6")
    per_class: int = setting(3000, "training and test puzzles of each class, when drawn")
    heldout: int = setting(108, "held-out (validation) puzzles, when drawn")
    distance: float = setting(0.8, "Jaccard distance that training puzzles must exceed to every held-out one")
    data_seed: int = setting(0, "seed of the puzzles and of the split into train and test")
    encoding: str = setting("learned", "the encoding whose sigma is turned")
    start: str = setting("normal", "how the PE starts: normal, uniform or zero")
    placement: str = setting("every", "where the encoding acts: in every block, or at the input only")
    learn: bool = setting(True, "train the PE; --no-learn freezes it at its start")
    options: tuple[str, ...] = setting((), "options of the encoding, NAME=VALUE: axes=2, fraction=0.5, ...")
    width: int = setting(160, "features per token")
    layers: int = setting(4, "transformer blocks")
    heads: int = setting(1, "attention heads")
    expansion: int = setting(4, "hidden units of the MLP, as a multiple of the width")
    norm: str = setting("post", "layer norm after (post) or before (pre) attention and MLP")
    dropout: float = setting(0.0, "share of features dropped from the sum of embedding and PE")
    dropout_at_evaluation: bool = setting(False, "drop at evaluation too, as the authors' fixed encodings did")
    optimizer: str = setting("adam", "adam, adamw or sgd")
    learning_rate: float = setting(1e-4, "step size")
    pe_learning_rate: float | None = setting(None, "step size of the PE, where it is to differ")
    weight_decay: float = setting(0.0, "weight decay")
    clip: float | None = setting(None, "largest norm of a member's gradient")
    cooldown: float = setting(0.0, "share of the steps, at the end, over which the step size falls to zero")
    momentum: float = setting(0.9, "momentum of sgd")
    beta1: float = setting(0.9, "memory of adam's first moment")
    beta2: float = setting(0.999, "memory of adam's second moment")
    epsilon: float = setting(1e-8, "what adam adds to the root of its second moment")
    batch: int = setting(128, "puzzles per step")

    # The quick setting was searched for, so that two cores show the effect in minutes: docs/latin-squares.md says how.
    scales = {
        "paper": {},
        "quick": {
            **{"sigmas": (0.1, 0.2, 0.5, 1.0, 2.0), "seeds": (0, 1, 2), "epochs": 75, "evaluations": 8},
            **{"per_class": 2000, "width": 32, "layers": 2, "heads": 8, "expansion": 2},
            **{"learning_rate": 2.3e-3, "cooldown": 0.25, "batch": 16},
        },
    }

    def __post_init__(self) -> None:
        for name in ("sigmas", "seeds"):
            values = getattr(self, name)
            if not values:
                raise must_be(name, "at least one", list(values))
            if len(set(values)) < len(values):
                raise must_be(name, "all different", list(values))
        if len(self.sigmas) > 1 and (self.start == "zero" or not lookup(self.encoding).uses_sigma):
            which = "the start zero" if self.start == "zero" else f"the encoding {self.encoding}"
            raise must_be("sigmas", f"a single one for {which}, which draws nothing", list(self.sigmas))
        for name, least in (("epochs", 1), ("evaluations", 1), ("data_seed", 0)):
            if getattr(self, name) < least:
                raise must_be(name, f"a whole number of at least {least}", getattr(self, name))

    def task(self) -> LatinSquares:
        return LatinSquares(
            order=self.order,
            seed=self.data_seed,
            puzzles=self.puzzles,
            heldout=self.heldout,
            per_class=self.per_class,
            distance=self.distance,
        )

    def members(self) -> list[Member]:
        """Sigma by sigma, the seeds of each together."""
        spec = {name: getattr(self, name) for name in Member.__dataclass_fields__ if hasattr(self, name)}
        spec["options"] = dict(_option(text) for text in self.options)
        return grid(Member(**spec), sigma=self.sigmas, seed=self.seeds)

    def steps(self, task: Task) -> int:
        return self.epochs * steps_per_epoch(len(task.splits["train"]), self.batch)

    def evaluate_at(self, task: Task) -> list[int]:
        """Whole epochs, closer together at the start, where the curves are steep."""
        epochs = np.unique(np.round(self.epochs * (np.arange(1, self.evaluations + 1) / self.evaluations) ** 1.5))
        return [int(epoch) * steps_per_epoch(len(task.splits["train"]), self.batch) for epoch in epochs if epoch > 0]

    def analyse(self, stack: Stack, task: Task) -> list[dict[str, Any]]:
        return pe_alignment(stack, task)

    def arrays(self, stack: Stack, task: Task) -> dict[str, Tensor]:
        return {"attention": mean_attention(stack, task)}

    def figures(self, run: Run) -> list[Shown]:
        chance = 1 / run.config["shape"]["outputs"]
        shown = [
            Shown(
                "accuracy",
                "Accuracy against sigma",
                "Look at the gap between train and validation: does it open as sigma grows? Validation puzzles are "
                "unlike any training puzzle; test puzzles come from the same distribution as the training ones.",
                figures.accuracy_by_sigma(run.members, run.metrics, run_name(run), chance),
            ),
            Shown(
                "curves",
                "Learning curves",
                "Does validation follow train? Where a model memorizes, train climbs and validation stays near chance. "
                "A curve that still rises at the end has not settled.",
                figures.learning_curves(run.members, run.metrics, run_name(run), chance),
            ),
        ]
        if run.arrays("pe_end"):  # an encoding without one vector per cell, such as rotary, has no such picture
            shown.append(
                Shown(
                    "similarity",
                    "What the PE has become",
                    "Cosine similarity between the PEs of the cells, row by row, of one member each. In the true "
                    "arrangement (the paper's 2d-fixed) cells of a row are blocks on the diagonal, and cells of a "
                    "column stripes beside it. Do they appear during training?",
                    similarity_figure(run, *dials(run)),
                )
            )
        return shown

    def words(self, run: Run) -> list[str]:
        return findings(run)


def _option(text: str) -> tuple[str, Any]:
    """NAME=VALUE as a pair; the value is a number where it reads as one."""
    name, sign, value = text.partition("=")
    if not (name and sign and value):
        raise must_be("options", "NAME=VALUE, such as axes=2", text)
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return name, kind(value)
    return name, value


def pe_alignment(stack: Stack, task: Task) -> list[dict[str, Any]]:
    """How near the PE of each member is to the paper's 2d-fixed: per block, and all blocks together (block -1)."""
    vectors = stack.encoding.vectors()
    if vectors is None or task.positions is None:
        return []
    tables = vectors.detach().double().cpu().numpy()  # (e, l, n, d)
    target = sinusoid(task.positions, tables.shape[-1])
    rows = []
    for block in (-1, *range(tables.shape[1])):
        pe = tables if block < 0 else tables[:, block : block + 1]
        values = {  # (e,) each
            # blocks may be turned each in its own way, so each gets its own rotation, and their mean distance counts
            "procrustes_raw": alignment.procrustes_raw(pe, target).mean(1),
            "procrustes": alignment.procrustes(pe, target).mean(1),
            "rsa": alignment.rsa(pe, target),  # of all blocks side by side
        }
        for name, found in values.items():
            spec = {"block": block, "analysis": name, "target": "2d-fixed"}
            rows += [{"member": member, **spec, "value": float(value)} for member, value in enumerate(found)]
    return rows


def run_name(run: Run) -> str:
    return f"{run.study}, {run.config['scale']} scale, {run.path.name}"


def dials(run: Run) -> tuple[float, float]:
    """Which sigmas to show side by side: 0.2 where there is one, else the smallest; and the largest."""
    sigmas = sorted(run.members["sigma"].unique())
    return (0.2 if 0.2 in sigmas else sigmas[0]), sigmas[-1]


def similarity_figure(run: Run, small: float, large: float) -> Any:
    """PE similarity of the first seed that finished, at a small and a large sigma, beside the true one."""
    positions = np.array(run.config["shape"]["positions"])
    names = [f"r{int(r) + 1}c{int(c) + 1}" for r, c in positions]
    truth = alignment.similarity(sinusoid(positions, int(run.members["width"].iloc[0])))
    maps, titles = [], []
    for sigma in (small, large):
        rows = run.members[run.members["sigma"] == sigma]
        done = rows[rows["state"] == "done"]
        number = int((done if len(done) else rows)["member"].iloc[0])
        titles.append(f"{figures.SIGMA} = {sigma:g}" + ("" if len(done) else ", diverged"))
        start, end = (alignment.similarity(run.array(f"{moment}/{number}")) for moment in ("pe_start", "pe_end"))
        maps.append((start, end))
    named = (titles[0], titles[1], "true arrangement")
    return figures.similarity_maps(truth, maps[0], maps[1], names, run_name(run), named, rule=int(positions.max()) + 1)


def findings(run: Run) -> list[str]:
    """What the run shows, in sentences that are true whatever it shows."""
    table = final_accuracy(run)
    lines = []
    for sigma in dict.fromkeys(dials(run)):
        values = table[table["sigma"] == sigma]
        by_split = {split: group["value"].to_numpy() for split, group in values.groupby("split")}
        if not by_split:
            lines.append(f"sigma = {sigma:g}: no member finished; all diverged.")
            continue
        train, validation = by_split["train"].mean(), by_split["validation"].mean()
        numbers = (
            f"sigma = {sigma:g}: train {train:.3f}, test {by_split['test'].mean():.3f}, validation {validation:.3f}"
        )
        count = len(by_split["train"])
        lines.append(f"{numbers} (mean of {count} seed{'s' if count > 1 else ''}). {verdict(train, validation)}")
    small, large = dials(run)
    pair = table[table["split"] == "validation"].pivot(index="seed", columns="sigma", values="value")
    if small != large and {small, large} <= set(pair.columns):
        mean, low, high = interval((pair[small] - pair[large]).to_numpy())
        bounds = f", 95% interval over seeds {low:+.2f} to {high:+.2f}" if np.isfinite(low) else ""
        if np.isfinite(mean):  # else no seed finished at both
            lines.append(f"Validation accuracy at sigma = {small:g} less that at {large:g}: {mean:+.2f}{bounds}.")
    lost = int((run.members["state"] == "diverged").sum())
    if lost:
        lines.append(f"{lost} of {len(run.members)} members diverged and are left out of the means.")
    return lines


def verdict(train: float, validation: float) -> str:
    """What a pair of accuracies means. Only a model that has fitted its training data can be said to memorize."""
    if train < FITTED:
        return "It has not fitted its training puzzles yet, so it can be said neither to generalize nor to memorize."
    if validation >= GENERALIZES:
        return "It has fitted its training puzzles and generalizes to puzzles unlike them."
    if validation <= MEMORIZES:
        return "It has fitted its training puzzles and fails on puzzles unlike them: it memorizes."
    return "It has fitted its training puzzles and generalizes in part."


def final_accuracy(run: Run) -> pd.DataFrame:
    """Accuracy of every member that finished, at the last step: columns sigma, seed, split, value."""
    rows = run.metrics
    rows = rows[(rows["metric"] == "accuracy") & (rows["condition"] == "all") & (rows["step"] == rows["step"].max())]
    members = run.members.loc[run.members["state"] == "done", ["member", "sigma", "seed"]]
    joined: pd.DataFrame = rows.merge(members, on="member")
    return joined[["sigma", "seed", "split", "value"]]
