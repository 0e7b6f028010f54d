"""Studies on channels that only together tell of each other: no pairwise measure can see their groups.

synergy-sigma: learned PEs of many initial scales. What to look for: at a small sigma the members of a group come to lie
together and the error falls to the best that anyone can reach; at a large one nothing is found, and nothing learned.
And every pairwise method stays within what chance gives.

synergy-encodings: every encoding on the same channels. synergy-size: more channels, fewer samples; look for how
many samples and steps it takes until the groups are found, and what helps where they are not: a larger batch, another
step size, a wider model, fewer or more hidden channels, few at first and more later. synergy-optimizer: does another
optimizer or step size move the sigmas at which they are?
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

from placecode.errors import must_be
from placecode.experiments.base import setting
from placecode.experiments.channels import claims as masked_claims
from placecode.experiments.channels.masked import MaskedStudy, OverEncodings, OverSigmas
from placecode.models.member import Member, grid
from placecode.tasks.base import Task
from placecode.tasks.several import Several
from placecode.tasks.synergy import Synergy

QUICK: dict[str, Any] = {
    **{"seeds": (0, 1, 2), "steps": 3000, "evaluations": 6, "groups": 5, "train": 20_000, "test": 500},
    **{"width": 32, "expansion": 2, "learning_rate": 2e-3, "batch": 64, "slow_in": 1},
}


@dataclass(frozen=True)
class SynergyStudy(MaskedStudy):
    """What studies on synergy share: how the channels are drawn."""

    steps: int = setting(12_000, "training steps")
    hidden: float = setting(0.3, "share of the channels that are hidden in training")
    ratios: tuple[float, ...] = setting((0.3, 0.5), "shares of hidden channels at which members are evaluated")
    layers: int = setting(3, "transformer blocks")
    learning_rate: float = setting(1e-3, "step size")
    batch: int = setting(128, "examples per step")
    groups: int = setting(10, "groups of channels, each the product of the others")
    group_size: int = setting(3, "channels of a group, 3 or 4")
    sizes: tuple[int, ...] = setting((), "the sizes of the groups, where they are to differ")
    values: str = setting("sign", "values of a channel: sign (1 or -1) or gaussian")
    noise: float = setting(0.1, "standard deviation of the noise on every channel")
    correlated: int = setting(0, "further groups, of channels that are correlated pair by pair")
    correlation: float = setting(0.5, "correlation of any two channels of such a group")
    distractors: int = setting(0, "further channels that belong nowhere")
    train: int = setting(50_000, "samples to learn from")
    test: int = setting(2_000, "held-out samples")
    shuffled: bool = setting(True, "channels in random order; else group by group, which a fixed encoding could use")

    def task(self) -> Task:
        return self.synergy()

    def synergy(self, **given: Any) -> Synergy:
        """The task with the settings of the study, and these on top."""
        names = (
            *("groups", "group_size", "values", "noise", "correlated", "correlation", "distractors", "train", "test"),
            *("shuffled", "ratios", "worlds"),
        )
        shared = {name: getattr(self, name) for name in names}
        return Synergy(**{**shared, "sizes": self.sizes or None, "seed": self.data_seed, **given})


@dataclass(frozen=True)
class SynergySigma(SynergyStudy, OverSigmas):
    """Learned PEs of many initial scales on channels that only together tell of each other."""

    name = "synergy-sigma"
    about = "structure that no correlation can see: groups found, and error, against the initial scale sigma"
    claims = masked_claims.SYNERGY

    scales = {"paper": {}, "quick": {**QUICK, "sigmas": (0.05, 0.2, 0.5, 2.0)}}


@dataclass(frozen=True)
class SynergyEncodings(SynergyStudy, OverEncodings):
    """Every encoding on channels that only together tell of each other."""

    name = "synergy-encodings"
    about = "structure that no correlation can see: every encoding"

    scales = {
        "paper": {
            "encodings": (
                *("learned:sigma=0.2", "learned:sigma=1", "sinusoid", "random:sigma=0.2", "random:sigma=1", "none"),
                *("relative", "rotary", "alibi", "causal-none"),
            )
        },
        "quick": {**QUICK, "encodings": ("learned:sigma=0.2", "random:sigma=0.2", "none", "rotary")},
    }


@dataclass(frozen=True)
class SynergySize(SynergyStudy):
    """More channels, fewer samples; and what helps."""

    name = "synergy-size"
    about = "structure that no correlation can see: how many channels, how many samples, and what helps"
    instead = {
        "groups": "many",
        "train": "samples",
        "batch": "batches",
        "learning_rate": "rates",
        "width": "widths",
        "hidden": "shares",
    }

    steps: int = setting(20_000, "training steps")
    sigmas: tuple[float, ...] = setting((0.2,), "initial scales of the PE")
    many: tuple[int, ...] = setting((5, 10, 20, 40), "groups of channels")
    samples: tuple[int, ...] = setting((10_000, 50_000, 250_000), "samples to learn from")
    batches: tuple[int, ...] = setting((512,), "examples per step")
    rates: tuple[float, ...] = setting((1e-3,), "step sizes")
    widths: tuple[int, ...] = setting((64,), "features per token")
    shares: tuple[float, ...] = setting((0.3,), "shares of the channels that are hidden in training")
    ramps: tuple[int, ...] = setting((0,), "steps over which the hidden channels grow from one to that share")
    seeds: tuple[int, ...] = setting(tuple(range(5)), "seeds of each setting: a number of them, or a list a,b,c")

    scales = {
        "paper": {},
        "quick": {
            **{**QUICK, "sigmas": (0.2,), "many": (3, 5), "samples": (1_000, 20_000)},
            **{"batches": (64,), "rates": (2e-3,), "widths": (32,)},
        },
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        for ramp in self.ramps:
            if not isinstance(ramp, int) or not 0 <= ramp <= self.steps:
                raise must_be("ramps", f"whole numbers from 0 to the {self.steps} steps of training", ramp)

    def _sets(self) -> dict[str, dict[str, int]]:
        return {
            f"groups={groups} samples={samples}": {"groups": groups, "train": samples}
            for groups in self.many
            for samples in self.samples
        }

    def task(self) -> Task:
        return Several({name: self.synergy(**given) for name, given in self._sets().items()})

    def plan(self) -> list[Member]:
        return [
            member
            for data in self._sets()
            for batch, width in product(self.batches, self.widths)
            for rate, share, ramp in product(self.rates, self.shares, self.ramps)
            for member in self.over_sigmas(
                self.sigmas, data=data, batch=batch, width=width, learning_rate=rate, hidden=share, ramp=ramp
            )
        ]


@dataclass(frozen=True)
class SynergyOptimizer(SynergyStudy):
    """Other optimizers and step sizes."""

    name = "synergy-optimizer"
    about = "structure that no correlation can see: optimizer and step size against sigma"
    instead = {"optimizer": "optimizers", "learning_rate": "rates"}

    sigmas: tuple[float, ...] = setting((0.01, 0.1, 0.2, 0.5, 1.0, 2.0), "initial scales of the PE")
    optimizers: tuple[str, ...] = setting(
        ("adam", "adamw", "sgd"), "the optimizers; adamw with a weight decay of 0.01 unless one is given"
    )
    rates: tuple[float, ...] = setting((3e-4, 1e-3, 3e-3), "step sizes; of sgd ten times that")

    scales = {
        "paper": {},
        "quick": {**QUICK, "sigmas": (0.05, 0.2), "optimizers": ("adam", "sgd"), "rates": (2e-3,), "seeds": (0, 1)},
    }

    def plan(self) -> list[Member]:
        return [
            member
            for optimizer in self.optimizers
            for rate in self.rates
            for member in grid(self._by(optimizer, rate), sigma=self.sigmas, seed=self.seeds)
        ]

    def _by(self, optimizer: str, rate: float) -> Member:
        if optimizer == "sgd":
            return self.spec(optimizer=optimizer, learning_rate=10 * rate)
        decay = self.weight_decay or (0.01 if optimizer == "adamw" else 0.0)  # without, adamw is adam
        return self.spec(optimizer=optimizer, learning_rate=rate, weight_decay=decay)
