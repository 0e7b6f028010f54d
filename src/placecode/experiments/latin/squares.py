"""The main experiments on Latin squares, and the base class of all others.

lst-sigma sweeps sigma, the initial scale of the learned PE, with one architecture on one data set. Do all sigmas fit
the training puzzles in the end? Does accuracy fall with sigma on held-out puzzles that are unlike the training puzzles
(ood)? A model with high training accuracy and low OOD accuracy has memorized. The encoding 2d-fixed consists of
sinusoids of the true row and column. A PE or attention similar to those of 2d-fixed models may predict accuracy only
because both depend on sigma. Does it also predict accuracy at a fixed sigma?

lst-encodings trains all encodings on the same puzzles, without dropout and with the dropout that fixed encodings have
in the code of the paper's authors. Which encodings generalize? How near does the accuracy of a learned PE come to that
of 2d-fixed? How much of the accuracy is due to the dropout?

The settings of each experiment at the scales "quick" and "paper" are in the attribute `scales` of its class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from torch import Tensor

from placecode.encodings import lookup
from placecode.errors import must_be
from placecode.experiments import measures
from placecode.experiments.latin import claims as latin_claims
from placecode.experiments.latin import effects, encoding_claims
from placecode.experiments.models import ModelExperiment
from placecode.experiments.specs import parse_encoding, parse_option
from placecode.experiments.sweeps import data_sets
from placecode.models.encoder import Stack
from placecode.models.member import Member, grid
from placecode.settings import setting, sweep_over
from placecode.tasks.base import Task
from placecode.tasks.latin_squares import LatinSquares, PuzzleSettings
from placecode.training.trainer import steps_per_epoch

FIXED_2D_FIELDS = parse_encoding("sinusoid:axes=2")
"""The fields of a member with the encoding 2d-fixed, sinusoids of the true row and column."""


@dataclass(frozen=True)
class LatinExperiment(ModelExperiment, PuzzleSettings):
    """Base class of experiments on Latin squares. It sets the length of training, early stopping and measurements."""

    epochs: int = setting(4000, "passes over the training puzzles", least=1)
    zero_loss_patience: int = setting(
        0, "stop a member after this many consecutive epochs with a training loss of exactly 0; 0: never", least=0
    )
    noise: tuple[float, ...] = setting(
        (0.1, 0.2, 0.5, 1.0, 2.0),
        "standard deviations of the noise on token embeddings under which accuracy is tested",
        above=0,
    )
    block_noise: tuple[float, ...] = setting(
        (), "the same for noise on the input of every block; the authors' code has 0.2", above=0
    )

    legacy_defaults = {"log_softmax": 1}
    temporary_arrays: ClassVar[tuple[str, ...]] = ("attention_each",)
    task_class = LatinSquares

    def per_epoch(self, task: Task) -> int:
        """Return the number of training steps of an epoch. If `sweep` changes the data, it is the number for the
        largest data set, so that all members train for the same number of steps."""
        same_data = all(axis.of_member for axis in self.axes)
        return steps_per_epoch(len(task.splits["train"]) if same_data else most_examples(self), self.batch)

    def training_steps(self, task: Task) -> int:
        return self.epochs * self.per_epoch(task)

    def evaluate_at(self, task: Task) -> list[int]:
        """Return the last steps of the epochs that `moments` returns. Runs of more than 200 epochs also include epoch
        200, which claims compare with the end of training."""
        epochs = {*self.moments(self.epochs), *([effects.PLATEAU_EPOCH] if self.epochs > effects.PLATEAU_EPOCH else [])}
        return [epoch * self.per_epoch(task) for epoch in sorted(epochs)]

    def _behaviour(self, stack: Stack, task: Task) -> measures.Rows:
        """Return rows of the analysis table on confidence, errors by target cell, robustness to noise, and accuracy
        without dropout."""
        cells = task.splits["ood"].inputs[:, :, -1].argmax(1).tolist()  # the target cell has its own symbol
        return [
            *measures.behaviour_measures(stack, task, cells),
            *measures.robustness_measures(stack, task, self.noise, self.block_noise),
            *measures.accuracy_without_dropout(stack, task),
        ]

    def analyse(self, stack: Stack, task: Task) -> list[dict[str, Any]]:
        return measures.pe_measures(stack, task) + self._behaviour(stack, task)

    def trial_analysis(self, stack: Stack, task: Task) -> None:
        """Run the measurements without the permutation tests of the PE, which run on the CPU and take most of the
        time."""
        measures.main_pe_measures(stack, task)
        self._behaviour(stack, task)

    def arrays(self, stack: Stack, task: Task) -> dict[str, Tensor]:
        mean, by_example = measures.attention_maps(stack, task)
        return {"attention": mean, "attention_each": by_example, "probabilities": measures.probabilities(stack, task)}

    def compare(
        self, members: pd.DataFrame, arrays: Mapping[str, Tensor], shapes: Mapping[str, Mapping[str, Any]], step: int
    ) -> list[dict[str, Any]]:
        positions = {data: np.array(shape["positions"]) for data, shape in shapes.items()}
        return measures.compare_members(members, arrays, positions, step)


@cache
def most_examples(experiment: LatinExperiment) -> int:
    """Return the number of training puzzles in the largest data set of an experiment whose `sweep` changes the data."""
    variants = [replace(experiment, sweep=(), **values) for values in data_sets(experiment.axes).values()]
    return max(len(variant.task().splits["train"]) for variant in variants)


ZERO_LOSS_PATIENCE = 100
"""Number of epochs: the setting `zero_loss_patience` of some experiments at the scale "paper"."""

# We searched for settings that show the effect of sigma on two cores in minutes: see docs/latin-squares.md.
QUICK: dict[str, Any] = {
    "seeds": (0, 1, 2),
    "epochs": 75,
    "evaluations": 8,
    "per_class": 2000,
    "width": 32,
    "layers": 2,
    "heads": 8,
    "expansion": 2,
    "learning_rate": 2.3e-3,
    "cooldown": 0.25,
    "batch": 16,
}
"""Settings of lst-sigma at the scale "quick", which `make demo` runs. Other experiments on Latin squares change some of
them for their own scale "quick"."""


@dataclass(frozen=True)
class LstSigma(LatinExperiment):
    """Compare learned PEs with many initial scales, the sigmas (experiment lst-sigma)."""

    name = "lst-sigma"
    about = "Latin squares: accuracy against the initial scale sigma of a learned PE"
    claims = latin_claims.SIGMA_CLAIMS

    sigmas: tuple[float, ...] = sweep_over(tuple(round(0.1 * i, 1) for i in range(1, 21)), "initial scales of the PE")
    encoding: str = setting("learned", "the encoding whose sigma is swept")
    start: str = setting(
        "normal",
        "initial values of the PE: normal, uniform, zero, true (sines and cosines of the true positions) or axes (the "
        "sum of a random vector for the row and one for the column)",
    )
    learn: bool = setting(True, "train the PE; --no-learn keeps its initial values")
    options: tuple[str, ...] = setting((), "options of the encoding, NAME=VALUE: axes=2, fraction=0.5, ...")
    dropout: float = setting(0.0, "dropout probability of the features of embedding plus PE")
    dropout_at_evaluation: bool = setting(False, "dropout at evaluation too, as for the authors' fixed encodings")
    references: tuple[float, ...] = sweep_over(
        (0.0, 0.1),
        "dropout (at evaluation too) of the 2d-fixed reference models for attention; --references '' for none",
        count_at_least=0,
    )

    scales = {
        "paper": {"zero_loss_patience": ZERO_LOSS_PATIENCE, "block_noise": (0.2,)},
        "quick": {**QUICK, "sigmas": (0.1, 0.2, 0.5, 1.0, 2.0), "references": (0.0,)},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.sigmas) > 1 and (self.start == "zero" or not lookup(self.encoding).uses_sigma):
            fixed = "the start zero" if self.start == "zero" else f"the encoding {self.encoding}"
            raise must_be("sigmas", f"a single one for {fixed}, which has no random values", list(self.sigmas))

    def plan(self) -> list[Member]:
        """Return the members sorted by sigma and seed, then the 2d-fixed references by dropout and seed."""
        members = self.over_sigmas(self.sigmas, options=dict(parse_option(text) for text in self.options))
        fixed = {**FIXED_2D_FIELDS, "start": "normal", "learn": True, "role": "reference"}
        for rate in self.references:
            members += grid(self.spec(**fixed, dropout=rate, dropout_at_evaluation=rate > 0), seed=self.seeds)
        return members


ENCODINGS = (
    "learned:sigma=0.2",
    "learned:sigma=1",
    "sinusoid:axes=2",
    "sinusoid",
    "random:sigma=1",
    "none",
    "relative",
    "relative:axes=2",
    "relative:causal=1",
    "relative:sigma=1",
    "relative:axes=2:sigma=1",
    "relative:causal=1:sigma=1",
    "rotary",
    "rotary:axes=2",
    "rotary:fraction=0.5",
    "alibi",
    "alibi:axes=2",
    "causal-none",
    "causal-none:temperature=0.01",
)
"""The encodings that lst-encodings compares by default, as texts for `parse_encoding`."""


@dataclass(frozen=True)
class LstEncodings(LatinExperiment):
    """Compare all encodings, with and without the dropout of the authors' code (experiment lst-encodings)."""

    name = "lst-encodings"
    about = "Latin squares: all encodings, with and without the authors' dropout"
    claims = encoding_claims.ENCODING_CLAIMS

    encodings: tuple[str, ...] = sweep_over(
        ENCODINGS, "the encodings, NAME or NAME:OPTION=VALUE:..., where sigma is an option too"
    )
    dropouts: tuple[float, ...] = sweep_over((0.0, 0.1), "dropout probabilities of the features of embedding plus PE")
    dropout_at_evaluation: bool = setting(True, "dropout at evaluation too, as for the authors' fixed encodings")
    dropout_epochs: int = setting(
        0, "epochs of members with dropout, which never stop early; 0: as many as the others", least=0
    )
    long_with_dropout: tuple[str, ...] = setting(
        ("learned:sigma=0.2", "sinusoid:axes=2"), "encodings that are trained for all epochs with dropout too"
    )

    scales = {
        "paper": {
            "epochs": 1000,
            "zero_loss_patience": ZERO_LOSS_PATIENCE,
            "block_noise": (0.2,),
            "dropout_epochs": 200,
        },
        "quick": {
            **QUICK,
            "seeds": (0, 1),
            "epochs": 40,
            "encodings": ("learned:sigma=0.2", "learned:sigma=1", "sinusoid:axes=2", "sinusoid", "none", "rotary"),
        },
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        specs = [parse_encoding(text) for text in self.encodings]  # one encoding can be written in several ways
        if any(spec in specs[:i] for i, spec in enumerate(specs)):
            raise must_be("encodings", "all different", list(self.encodings))

    def plan(self) -> list[Member]:
        """Return the members, sorted by encoding, then by dropout, then by seed."""
        members = []
        for text in self.encodings:
            for rate in self.dropouts:
                shorter = rate > 0 and text not in self.long_with_dropout
                member = self.spec(
                    **parse_encoding(text),
                    dropout=rate,
                    dropout_at_evaluation=rate > 0 and self.dropout_at_evaluation,
                    last_epoch=self.dropout_epochs or None if shorter else None,
                )
                members += grid(member, seed=self.seeds)
        return members
