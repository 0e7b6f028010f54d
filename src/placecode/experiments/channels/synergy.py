"""Experiments on synergistic channels: a channel is predictable from a group of others, but not from any single one.

No pairwise measure, such as correlation, can see the groups. synergy-sigma trains learned PEs with many initial scales
sigma. With a small sigma, the PEs of a group become similar and the error falls to the minimum. With a large sigma no
groups are found, and nothing is learned. All pairwise methods stay at chance.

synergy-encodings compares all encodings on the same channels. synergy-size varies the number of channels and samples.
How many samples and steps does it take to find the groups, and what helps: a larger batch, another learning rate, a
wider model, fewer or more hidden channels, or a number of hidden channels that grows in training? synergy-optimizer
asks whether the optimizer and the learning rate change the sigmas at which groups are found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from placecode.errors import must_be
from placecode.experiments.channels import claims as masked_claims
from placecode.experiments.channels.masked import (
    SMALL_MODEL,
    WITHOUT_SIGMA,
    MaskedExperiment,
    OverEncodings,
    OverSigmas,
)
from placecode.experiments.sweeps import data_name
from placecode.models.member import Member
from placecode.settings import sweep_over
from placecode.tasks.synergy import Synergy, SynergySettings

QUICK: dict[str, Any] = {
    **SMALL_MODEL,
    "steps": 3000,
    "evaluations": 6,
    "groups": 5,
    "train": 20_000,
    "test": 500,
    "learning_rate": 2e-3,
    "batch": 64,
    "slow_baseline_worlds": 1,
}
"""Settings of the experiments on synergy at the scale "quick"."""


@dataclass(frozen=True)
class SynergyExperiment(MaskedExperiment, SynergySettings):
    """Base class of experiments on synergistic channels."""

    steps: int = 12_000
    mask_ratio: float = 0.3
    eval_mask_ratios: tuple[float, ...] = (0.3, 0.5)
    layers: int = 3
    learning_rate: float = 1e-3
    batch: int = 128
    shuffled: bool = True

    task_class = Synergy


@dataclass(frozen=True)
class SynergySigma(SynergyExperiment, OverSigmas):
    """Train learned PEs with many initial scales sigma on synergistic channels (the experiment synergy-sigma)."""

    name = "synergy-sigma"
    about = "structure that no correlation can see: groups found, and error, against the initial scale sigma"
    claims = masked_claims.SYNERGY

    scales = {"paper": {}, "quick": {**QUICK, "sigmas": (0.05, 0.2, 0.5, 2.0)}}


ENCODINGS = ("learned:sigma=0.2", "learned:sigma=1", "sinusoid", "random:sigma=0.2", "random:sigma=1", *WITHOUT_SIGMA)
"""The encodings that synergy-encodings compares at the scale "paper"."""


@dataclass(frozen=True)
class SynergyEncodings(SynergyExperiment, OverEncodings):
    """Compare all encodings on synergistic channels (the experiment synergy-encodings)."""

    name = "synergy-encodings"
    about = "structure that no correlation can see: all encodings"

    scales = {
        "paper": {"encodings": ENCODINGS},
        "quick": {**QUICK, "encodings": ("learned:sigma=0.2", "random:sigma=0.2", "none", "rotary")},
    }


@dataclass(frozen=True)
class SynergySize(SynergyExperiment):
    """Vary the number of channels and samples, and what may help to find the groups (the experiment synergy-size)."""

    name = "synergy-size"
    about = "structure that no correlation can see: how many channels, how many samples, and what helps"
    swept_by = {
        "groups": "group_counts",
        "train": "samples",
        "mask_ratio": "mask_ratios",
        "learning_rate": "rates",
        "batch": "batches",
        "width": "widths",
    }

    steps: int = 20_000
    sigmas: tuple[float, ...] = sweep_over((0.2,), "initial scales of the PE")
    group_counts: tuple[int, ...] = sweep_over((5, 10, 20, 40), "groups of channels")
    samples: tuple[int, ...] = sweep_over((10_000, 50_000, 250_000), "samples to train on")
    batches: tuple[int, ...] = sweep_over((512,), "examples per step")
    rates: tuple[float, ...] = sweep_over((1e-3,), "learning rates")
    widths: tuple[int, ...] = sweep_over((64,), "features per token")
    mask_ratios: tuple[float, ...] = sweep_over((0.3,), "fractions of the channels that are hidden in training")
    ramps: tuple[int, ...] = sweep_over(
        (0,), "steps in which the hidden channels grow from one to that fraction", least=0
    )
    seeds: tuple[int, ...] = tuple(range(5))

    scales = {
        "paper": {},
        "quick": {
            **QUICK,
            "sigmas": (0.2,),
            "group_counts": (3, 5),
            "samples": (1_000, 20_000),
            "batches": (64,),
            "rates": (2e-3,),
            "widths": (32,),
        },
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        for ramp in self.ramps:
            if ramp > self.steps:
                raise must_be("ramps", f"whole numbers from 0 to the {self.steps} steps of training", ramp)

    def swept(self) -> dict[str, Sequence[Any]]:
        return {**super().swept(), "ramp": self.ramps}

    def data_sets(self) -> dict[str, dict[str, int]]:
        return {
            data_name({"groups": groups, "samples": samples}): {"groups": groups, "train": samples}
            for groups, samples in product(self.group_counts, self.samples)
        }

    def plan(self) -> list[Member]:
        """Return the members of all combinations of data set, batch, width, learning rate, hidden fraction and ramp."""
        names = ("data", "batch", "width", "learning_rate", "mask_ratio", "ramp")
        settings = product(self.data_sets(), self.batches, self.widths, self.rates, self.mask_ratios, self.ramps)
        return [
            member
            for values in settings
            for member in self.over_sigmas(self.sigmas, **dict(zip(names, values, strict=True)))
        ]


@dataclass(frozen=True)
class SynergyOptimizer(SynergyExperiment):
    """Train with all combinations of optimizer, learning rate and sigma (the experiment synergy-optimizer)."""

    name = "synergy-optimizer"
    about = "structure that no correlation can see: optimizer and learning rate against sigma"
    swept_by = {"optimizer": "optimizers", "learning_rate": "rates"}

    sigmas: tuple[float, ...] = sweep_over((0.01, 0.1, 0.2, 0.5, 1.0, 2.0), "initial scales of the PE")
    optimizers: tuple[str, ...] = sweep_over(
        ("adam", "adamw", "sgd"), "the optimizers; adamw has a weight decay of 0.01 unless one is set"
    )
    rates: tuple[float, ...] = sweep_over((3e-4, 1e-3, 3e-3), "learning rates; those of sgd are ten times as large")

    scales = {
        "paper": {},
        "quick": {**QUICK, "sigmas": (0.05, 0.2), "optimizers": ("adam", "sgd"), "rates": (2e-3,), "seeds": (0, 1)},
    }

    def plan(self) -> list[Member]:
        """Return the members, sorted by optimizer, then by learning rate, then by sigma, then by seed."""
        members = []
        for optimizer, rate in product(self.optimizers, self.rates):
            fields = {"optimizer": optimizer, "learning_rate": 10 * rate if optimizer == "sgd" else rate}
            if optimizer != "sgd":
                # adamw without decay is adam
                fields["weight_decay"] = self.weight_decay or (0.01 if optimizer == "adamw" else 0.0)
            members += self.over_sigmas(self.sigmas, **fields)
        return members
