"""Latin squares: what training does to the PE, and what rounding does to training.

lst-frozen: is learning the PE needed at all? Learned PEs beside PEs that are frozen at their random start, frozen
random vectors of the size that the learned PE ends with, and PEs that are learned but added at the input alone, from
very small to large sigma. What to look for: where does the line of the learned PE leave that of the frozen ones?

lst-slingshot: the loss with one log-softmax, as in textbooks, and with two, as in the authors' code. Mathematically
they are equal. In float32, with one, the loss keeps spiking long after all training puzzles are known; these spikes are
called slingshots. What to look for: do the spikes come with a drift of the mean logit, and does accuracy on held-out
puzzles rise with them?
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from placecode.errors import must_be
from placecode.experiments.base import setting
from placecode.experiments.latin import training_claims
from placecode.experiments.latin.knobs import SMALLER, KnobStudy, Variant
from placecode.experiments.latin.squares import REST
from placecode.models.member import Member, grid
from placecode.tasks.base import Task
from placecode.tasks.several import Several

KINDS: dict[str, dict[str, Any]] = {
    "learned": {},
    "frozen at its start": {"learn": False},
    "frozen random vectors of the learned PE's final size": {"start": "sized", "learn": False},
    "learned, added at the input alone": {"placement": "input"},
}
"""What lst-frozen compares, by the name of the line in its figure."""


@dataclass(frozen=True)
class LstFrozen(KnobStudy):
    """Learned PEs beside frozen ones, over sigma from 0.01 on."""

    name = "lst-frozen"
    about = "Latin squares: learned PEs beside frozen ones, from very small to large sigma"
    claims = training_claims.FROZEN_CLAIMS
    instead = {"placement": "both placements"}
    knob = "the PE"

    sigmas: tuple[float, ...] = setting((0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 1.5, 2.0), "initial scales of the PE")
    epochs: int = setting(1000, "passes over the training puzzles")

    scales = {"paper": {"rest": REST, "evaluations": 40}, "quick": SMALLER}

    def plan(self) -> list[Member]:
        """Kind by kind, sigma by sigma, the seeds of each together.

        Frozen random vectors take the final size of the learned PE of the same sigma and seed.
        """
        members: list[Member] = []
        for label, fields in KINDS.items():
            kind = self.spec(**{name: value for name, value in fields.items() if name != "start"}, label=label)
            crossed = grid(kind, sigma=self.sigmas, seed=self.seeds)
            if fields.get("start") == "sized":
                crossed = [replace(member, start="sized", origin=place) for place, member in enumerate(crossed)]
            members += crossed
        return members

    def variants(self) -> list[Variant]:
        return [Variant(label, fields) for label, fields in KINDS.items()]


@dataclass(frozen=True)
class LstSlingshot(KnobStudy):
    """One log-softmax in the loss, or two."""

    name = "lst-slingshot"
    about = "Latin squares: one log-softmax in the loss, or two as in the authors' code"
    claims = training_claims.SLINGSHOT_CLAIMS
    instead = {"log_softmax": "losses", "evaluations": "every"}
    knob = "log-softmax in the loss"
    turned = ("losses",)

    sigmas: tuple[float, ...] = setting((0.2, 1.0, 2.0), "initial scales of the PE")
    epochs: int = setting(1500, "passes over the training puzzles")
    losses: tuple[int, ...] = setting((1, 2), "times the logits go through log-softmax in the loss")
    frozen: tuple[int, ...] = setting((1,), "those of them that are also tried with PEs frozen at their start")
    every: int = setting(25, "epochs between evaluations")

    scales = {"paper": {}, "quick": {**SMALLER, "epochs": 40, "every": 5}}

    def __post_init__(self) -> None:
        super().__post_init__()
        self._whole("every", 1)
        for name in ("losses", "frozen"):
            self._all_different(name, least=0)
            if not set(getattr(self, name)) <= {1, 2}:
                raise must_be(name, "1, 2 or both", list(getattr(self, name)))
        if not self.losses:
            raise must_be("losses", "1, 2 or both", [])

    def task(self) -> Task:
        wanted = sorted({*self.losses, *self.frozen})
        return Several({loss_name(times): self.latin_squares(log_softmax=times, logits=True) for times in wanted})

    def evaluate_at(self, task: Task) -> list[int]:
        return [epoch * self.per_epoch(task) for epoch in range(self.every, self.epochs + 1, self.every)]

    def variants(self) -> list[Variant]:
        names = {1: "one log-softmax", 2: "two log-softmax"}
        return [
            *(Variant(names[times], {"data": loss_name(times)}) for times in self.losses),
            *(
                Variant(f"{names[times]}, PE frozen", {"data": loss_name(times), "learn": False})
                for times in self.frozen
            ),
        ]


def loss_name(times: int) -> str:
    """The name of the data set of members whose loss applies log-softmax `times` times.

    >>> loss_name(2)
    'log_softmax=2'
    """
    return f"log_softmax={times}"
