"""Studies on Latin squares.

lst-sigma: one model, one data set, one number turned: the initial scale sigma of the learned PE. What to look for: do
all sigmas fit the training puzzles in the end, and does accuracy on held-out puzzles unlike any of them (ood)
fall as sigma grows? Where train accuracy is high and ood is not, the model has memorized. Then: does a PE that
lies near the true grid, or attention like that of 2d-fixed models, go with accuracy only because both follow sigma, or
also at a fixed sigma?

lst-encodings: every encoding there is on the same puzzles, each with and without the dropout that the authors' fixed
encodings carried. What to look for: which encodings generalize, how near a learned PE comes to the true one (2d-fixed),
and how much of each encoding's accuracy is the dropout's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from torch import Tensor

from placecode.encodings import lookup
from placecode.errors import must_be
from placecode.experiments import measures
from placecode.experiments.base import setting
from placecode.experiments.latin import claims as latin_claims
from placecode.experiments.latin import effects, encoding_claims
from placecode.experiments.models import ModelStudy
from placecode.experiments.specs import encoding_spec, option
from placecode.experiments.sweeps import studies_by_data
from placecode.models.encoder import Stack
from placecode.models.member import Member, grid
from placecode.tasks.base import Task
from placecode.tasks.latin_squares import LatinSquares
from placecode.training.trainer import steps_per_epoch


@dataclass(frozen=True)
class LatinStudy(ModelStudy):
    """What studies on Latin squares share: the puzzles, the model, how it is trained, and what is measured."""

    epochs: int = setting(4000, "passes over the training puzzles")
    puzzles: str | None = setting(None, "folder with puzzle files in the published format; drawn when not given")
    order: int = setting(4, "rows and columns of a puzzle, 4 to 6")
    per_class: int = setting(3000, "training and test puzzles of each class, when drawn")
    heldout: int = setting(108, "held-out (ood) puzzles, when drawn")
    distance: float = setting(0.8, "Jaccard distance that training puzzles must exceed to every held-out one")
    data_seed: int = setting(0, "seed of the puzzles and of the split into train and test")
    batch: int = setting(128, "puzzles per step")
    log_softmax: int = setting(
        2,
        "times the logits go through log-softmax in the loss: 1 as in textbooks; 2 as in the authors' code, where both "
        "the model and the loss apply it, which is equal but for rounding",
    )
    rest: int = setting(
        0, "stop a member once its training loss has been exactly 0 for this many epochs in a row; 0: never"
    )
    noise: tuple[float, ...] = setting(
        (0.1, 0.2, 0.5, 1.0, 2.0), "standard deviations of the noise on token embeddings under which accuracy is tested"
    )
    block_noise: tuple[float, ...] = setting(
        (), "the same for noise that is added to the input of every block; the authors' code has 0.2"
    )

    older = {"log_softmax": 1}

    passing: ClassVar[tuple[str, ...]] = ("attention_each",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._whole("epochs", 1)
        self._whole("rest", 0)
        if self.log_softmax not in (1, 2):
            raise must_be("log_softmax", "1 or 2", self.log_softmax)
        for name in ("noise", "block_noise"):
            if any(not 0 < level < np.inf for level in getattr(self, name)):
                raise must_be(name, "positive numbers", list(getattr(self, name)))

    def task(self) -> Task:
        return self.latin_squares()

    def latin_squares(self, **given: Any) -> LatinSquares:
        """The task with the settings of the study, and these on top."""
        names = ("order", "puzzles", "heldout", "per_class", "distance", "log_softmax")
        shared = {name: getattr(self, name) for name in names}
        return LatinSquares(**{**shared, "seed": self.data_seed, **given})

    def per_epoch(self, task: Task) -> int:
        """Training steps of an epoch; of the largest data set where an axis of `sweep` changes the data, so that all
        members train for as many steps."""
        same = all(axis.of_member for axis in self.axes)
        return steps_per_epoch(len(task.splits["train"]) if same else most_examples(self), self.batch)

    def training_steps(self, task: Task) -> int:
        return self.epochs * self.per_epoch(task)

    @property
    def rest_epochs(self) -> int:
        return self.rest

    def evaluate_at(self, task: Task) -> list[int]:
        """Whole epochs, closer together at the start, where the curves are steep."""
        epochs = np.round(self.epochs * (np.arange(1, self.evaluations + 1) / self.evaluations) ** 1.5)
        kept = sorted(
            {int(epoch) for epoch in epochs if epoch > 0} | ({effects.EARLY} if self.epochs > effects.EARLY else set())
        )
        return [epoch * self.per_epoch(task) for epoch in kept]

    def analyse(self, stack: Stack, task: Task) -> list[dict[str, Any]]:
        asked = task.splits["ood"].inputs[:, :, -1].argmax(1).tolist()  # the target cell has a symbol of its own
        return [
            *measures.arrangement(stack, task),
            *measures.behaviour(stack, task, asked),
            *measures.robustness(stack, task, self.noise, self.block_noise),
            *measures.without_dropout(stack, task),
        ]

    def rehearse(self, stack: Stack, task: Task) -> None:
        """Without the permutation tests of the PE, which run on the CPU and take most of the time."""
        asked = task.splits["ood"].inputs[:, :, -1].argmax(1).tolist()
        measures.outline(stack, task)
        measures.behaviour(stack, task, asked)
        measures.robustness(stack, task, self.noise, self.block_noise)
        measures.without_dropout(stack, task)

    def arrays(self, stack: Stack, task: Task) -> dict[str, Tensor]:
        mean, each = measures.attention_maps(stack, task)
        return {"attention": mean, "attention_each": each, "probabilities": measures.probabilities(stack, task)}

    def compare(
        self, members: pd.DataFrame, arrays: Mapping[str, Tensor], shapes: Mapping[str, Mapping[str, Any]], step: int
    ) -> list[dict[str, Any]]:
        positions = {data: np.array(shape["positions"]) for data, shape in shapes.items()}
        return measures.across(members, arrays, positions, step)


@cache
def most_examples(study: LatinStudy) -> int:
    """Training puzzles of the largest data set of a study."""
    return max(len(each.task().splits["train"]) for each in studies_by_data(study, study.axes).values())


REST = 100
"""Epochs in a row with a training loss of exactly 0 after which a member stops at the paper's scale."""

# The quick setting was searched for, so that two cores show the effect in minutes: docs/latin-squares.md says how.
QUICK: dict[str, Any] = {
    **{"seeds": (0, 1, 2), "epochs": 75, "evaluations": 8, "per_class": 2000},
    **{"width": 32, "layers": 2, "heads": 8, "expansion": 2, "learning_rate": 2.3e-3, "cooldown": 0.25, "batch": 16},
}


@dataclass(frozen=True)
class LstSigma(LatinStudy):
    """Learned PEs of many initial scales on Latin squares."""

    name = "lst-sigma"
    about = "Latin squares: accuracy against the initial scale sigma of a learned PE"
    claims = latin_claims.SIGMA

    sigmas: tuple[float, ...] = setting(tuple(round(0.1 * i, 1) for i in range(1, 21)), "initial scales of the PE")
    encoding: str = setting("learned", "the encoding whose sigma is turned")
    start: str = setting(
        "normal",
        "how the PE starts: normal, uniform, zero, true (sines and cosines of the true positions) or axes (a random "
        "vector for each row and each column, and their sum)",
    )
    learn: bool = setting(True, "train the PE; --no-learn freezes it at its start")
    options: tuple[str, ...] = setting((), "options of the encoding, NAME=VALUE: axes=2, fraction=0.5, ...")
    dropout: float = setting(0.0, "share of features dropped from the sum of embedding and PE")
    dropout_at_evaluation: bool = setting(False, "drop at evaluation too, as the authors' fixed encodings did")
    references: tuple[float, ...] = setting(
        (0.0, 0.1),
        "dropout (at evaluation too) of the 2d-fixed models whose attention is the yardstick; --references '' for none",
    )

    scales = {
        "paper": {"rest": REST, "block_noise": (0.2,)},
        "quick": {**QUICK, "sigmas": (0.1, 0.2, 0.5, 1.0, 2.0), "references": (0.0,)},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self._all_different("sigmas")
        self._all_different("references", least=0)
        if len(self.sigmas) > 1 and (self.start == "zero" or not lookup(self.encoding).uses_sigma):
            which = "the start zero" if self.start == "zero" else f"the encoding {self.encoding}"
            raise must_be("sigmas", f"a single one for {which}, which draws nothing", list(self.sigmas))

    def plan(self) -> list[Member]:
        """Sigma by sigma, the seeds of each together; then the references, likewise."""
        base = self.spec(options=dict(option(text) for text in self.options))
        fixed = {"encoding": "sinusoid", "options": {"axes": 2}, "sigma": None, "start": "normal", "learn": True}
        fixed["role"] = "reference"
        drops = [{"dropout": rate, "dropout_at_evaluation": rate > 0} for rate in self.references]
        return [
            *grid(base, sigma=self.sigmas, seed=self.seeds),
            *(member for drop in drops for member in grid(self.spec(**fixed, **drop), seed=self.seeds)),
        ]


@dataclass(frozen=True)
class LstEncodings(LatinStudy):
    """Every encoding on Latin squares, with and without the authors' dropout."""

    name = "lst-encodings"
    about = "Latin squares: every encoding, with and without the authors' dropout"
    claims = encoding_claims.ENCODINGS

    encodings: tuple[str, ...] = setting(
        (
            *("learned:sigma=0.2", "learned:sigma=1", "sinusoid:axes=2", "sinusoid", "random:sigma=1", "none"),
            *("relative", "relative:axes=2", "relative:causal=1"),
            *("relative:sigma=1", "relative:axes=2:sigma=1", "relative:causal=1:sigma=1"),
            *("rotary", "rotary:axes=2", "rotary:fraction=0.5"),
            *("alibi", "alibi:axes=2", "causal-none", "causal-none:temperature=0.01"),
        ),
        "the encodings, NAME or NAME:OPTION=VALUE:..., where sigma is an option too",
    )
    dropouts: tuple[float, ...] = setting((0.0, 0.1), "shares of features dropped from the sum of embedding and PE")
    dropout_at_evaluation: bool = setting(True, "drop at evaluation too, as the authors' fixed encodings did")
    dropout_epochs: int = setting(
        0, "epochs of members with dropout, which never come to rest; 0: as many as of the others"
    )
    long_with_dropout: tuple[str, ...] = setting(
        ("learned:sigma=0.2", "sinusoid:axes=2"), "encodings that are trained with dropout for as long as without"
    )

    scales = {
        "paper": {"epochs": 1000, "rest": REST, "block_noise": (0.2,), "dropout_epochs": 200},
        "quick": {
            **{**QUICK, "seeds": (0, 1), "epochs": 40},
            "encodings": ("learned:sigma=0.2", "learned:sigma=1", "sinusoid:axes=2", "sinusoid", "none", "rotary"),
        },
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self._all_different("encodings")
        self._all_different("dropouts")
        self._whole("dropout_epochs", 0)
        specs = [encoding_spec(text) for text in self.encodings]  # one encoding may be written in several ways
        if any(spec in specs[:i] for i, spec in enumerate(specs)):
            raise must_be("encodings", "all different", list(self.encodings))

    def plan(self) -> list[Member]:
        """Encoding by encoding, first without and then with dropout, the seeds of each together."""
        return [
            member
            for text in self.encodings
            for rate in self.dropouts
            for member in grid(self._spec_of(text, rate), seed=self.seeds)
        ]

    def _spec_of(self, text: str, rate: float) -> Member:
        shorter = rate > 0 and text not in self.long_with_dropout
        return self.spec(
            **encoding_spec(text),
            dropout=rate,
            dropout_at_evaluation=self._drops(rate),
            last_epoch=self.dropout_epochs or None if shorter else None,
        )

    def _drops(self, rate: float) -> bool:
        return rate > 0 and self.dropout_at_evaluation
