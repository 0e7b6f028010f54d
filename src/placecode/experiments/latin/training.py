"""Experiments on Latin squares about what training does to the PE, and about what rounding errors do to training.

lst-frozen: does the PE have to be learned? Four kinds of PE are compared, from very small to large sigma (initial
scale): learned and added in every block, learned and added only at the input, frozen at its random initial values, and
frozen random vectors with the norm that the learned PE has at the end of training.

lst-slingshot: how much do rounding errors matter? Textbooks apply log-softmax once in the loss. The code of the paper's
authors applies it twice, which is mathematically equal. In float32, the loss with one log-softmax has spikes, called
slingshots, long after all training puzzles are fitted. Does the mean logit drift when they occur? Does OOD accuracy
rise with them?
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from placecode.experiments.latin import training_claims
from placecode.experiments.latin.knobs import QUICK_KNOB, KnobExperiment, Variant
from placecode.experiments.latin.squares import ZERO_LOSS_PATIENCE
from placecode.experiments.sweeps import data_name
from placecode.models.member import Member
from placecode.settings import setting, sweep_over
from placecode.tasks.base import Task

PE_VARIANTS: dict[str, dict[str, Any]] = {
    "learned": {},
    "frozen at its start": {"learn": False},
    "frozen random vectors of the learned PE's final size": {"start": "donor-size", "learn": False},
    "learned, added at the input alone": {"placement": "input"},
}
"""The kinds of PE that lst-frozen compares: values of `Member` fields by label."""


@dataclass(frozen=True)
class LstFrozen(KnobExperiment):
    """Compare learned and frozen PEs, with sigma from 0.01 to 2 (experiment lst-frozen)."""

    name = "lst-frozen"
    about = "Latin squares: learned PEs beside frozen ones, from very small to large sigma"
    claims = training_claims.FROZEN_CLAIMS
    swept_by = {"placement": "both placements"}
    knob = "the PE"

    sigmas: tuple[float, ...] = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 1.5, 2.0)
    epochs: int = 1000

    scales = {"paper": {"zero_loss_patience": ZERO_LOSS_PATIENCE, "evaluations": 40}, "quick": QUICK_KNOB}

    def plan(self) -> list[Member]:
        """Return the members sorted by kind of PE, sigma and seed. Frozen random vectors are rescaled to the final norm
        of the learned PE with the same sigma and seed."""
        members: list[Member] = []
        for label, fields in PE_VARIANTS.items():
            if "start" in fields:
                learned = {(member.sigma, member.seed): i for i, member in enumerate(members) if member.learn}
                members += self.with_donors(learned, **fields, label=label)
            else:
                members += self.over_sigmas(self.sigmas, **fields, label=label)
        return members


LOSSES = {1: "one log-softmax", 2: "two log-softmax"}
"""Labels of the losses by the number of times that log-softmax is applied to the logits."""


@dataclass(frozen=True)
class LstSlingshot(KnobExperiment):
    """Compare losses that apply log-softmax once or twice (experiment lst-slingshot). If it is applied once, rounding
    errors cause spikes of the training loss."""

    name = "lst-slingshot"
    about = "Latin squares: one log-softmax in the loss, or two as in the authors' code"
    claims = training_claims.SLINGSHOT_CLAIMS
    swept_by = {"log_softmax": "losses", "evaluations": "evaluate_every"}
    knob = "log-softmax in the loss"

    sigmas: tuple[float, ...] = (0.2, 1.0, 2.0)
    epochs: int = 1500
    losses: tuple[int, ...] = sweep_over((1, 2), "times that log-softmax is applied to the logits", choices=LOSSES)
    frozen: tuple[int, ...] = sweep_over(
        (1,), "those that are also trained with PEs frozen at their start", count_at_least=0, choices=LOSSES
    )
    evaluate_every: int = setting(25, "epochs between evaluations", least=1)

    scales = {"paper": {}, "quick": {**QUICK_KNOB, "epochs": 40, "evaluate_every": 5}}

    def data_sets(self) -> dict[str, dict[str, Any]]:
        """Return one data set per loss. All have the same puzzles, but the task computes another loss on each."""
        counts = sorted({*self.losses, *self.frozen})
        return {data_name({"log_softmax": count}): {"log_softmax": count, "logits": True} for count in counts}

    def evaluate_at(self, task: Task) -> list[int]:
        epochs = range(self.evaluate_every, self.epochs + 1, self.evaluate_every)
        return [epoch * self.per_epoch(task) for epoch in epochs]

    def variants(self) -> list[Variant]:
        data = {count: {"data": data_name({"log_softmax": count})} for count in LOSSES}
        learned = [Variant(LOSSES[count], data[count]) for count in self.losses]
        frozen = [Variant(f"{LOSSES[count]}, PE frozen", {**data[count], "learn": False}) for count in self.frozen]
        return [*learned, *frozen]
