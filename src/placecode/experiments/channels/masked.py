"""What studies of masked prediction share: how long, how much is hidden, what is measured, beside which baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from placecode.analysis import connectivity
from placecode.errors import must_be, one_of
from placecode.experiments.base import setting
from placecode.experiments.channels import baselines, structure
from placecode.experiments.models import ModelStudy
from placecode.experiments.specs import encoding_spec
from placecode.models.encoder import Stack
from placecode.models.member import Member, grid
from placecode.tasks.base import Task
from placecode.tasks.masked import Masked

SEVERAL = (
    *("sigmas", "encodings", "many", "samples", "batches", "rates", "widths", "shares", "ramps", "noises"),
    *("trained_with", "optimizers", "ratios", "against", "variants"),
)
"""Fields of which a study goes through all values: none of them twice."""
MOST_WORLDS = 100
BASELINES = (*baselines.PREDICTORS, *baselines.MATRICES, "spectral", "pca of channels", "mds of fc")


@dataclass(frozen=True)
class MaskedStudy(ModelStudy):
    """Masked prediction of channels."""

    steps: int = setting(10_000, "training steps")
    evaluations: int = setting(20, "how many times all splits are evaluated on the way")
    hidden: float = setting(0.5, "share of the channels that are hidden in training")
    ratios: tuple[float, ...] = setting((0.5, 0.9), "shares of hidden channels at which members are evaluated")
    width: int = setting(64, "features per token")
    learning_rate: float = setting(3e-4, "step size")
    batch: int = setting(32, "examples per step")
    slow_in: int = setting(3, "worlds in which baselines that take long are fitted, the first ones: ridge and trees")
    against: tuple[str, ...] = setting(BASELINES, f"the baselines: {', '.join(BASELINES)}")

    metric = "mse"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._whole("steps", 1)
        self._whole("slow_in", 0)
        for name in self.against:
            if name not in BASELINES:
                raise one_of("against", BASELINES, name)
        for name in SEVERAL:
            if hasattr(self, name):
                self._all_different(name, least=0 if name == "against" else 1)
        trained = next(
            (getattr(self, name) for name in ("trained_with", "shares") if hasattr(self, name)), (self.hidden,)
        )
        if len(self.ratios) < 2 or not set(trained) <= set(self.ratios):
            told = ", ".join(f"{share:g}" for share in trained)
            raise must_be(
                "ratios", f"at least two, the share hidden in training ({told}) among them", list(self.ratios)
            )

    @property
    def worlds(self) -> int:
        """A world for every seed, so that an interval over seeds is one over worlds; if they are large numbers, as few
        as keep them apart."""
        if max(self.seeds) < MOST_WORLDS:
            return max(self.seeds) + 1
        return next(count for count in range(len(self.seeds), max(self.seeds) + 2) if self._apart(count))

    def _apart(self, worlds: int) -> bool:
        return len({seed % worlds for seed in self.seeds}) == len(self.seeds)

    def training_steps(self, task: Task) -> int:
        return self.steps

    def evaluate_at(self, task: Task) -> list[int]:
        """Closer together at the start, where the curves are steep."""
        moments = np.round(self.steps * (np.arange(1, self.evaluations + 1) / self.evaluations) ** 1.5)
        return sorted({int(step) for step in moments if step > 0})

    def analyse(self, stack: Stack, task: Task) -> list[dict[str, Any]]:
        assert isinstance(task, Masked)
        threads = torch.get_num_threads()  # asked before libraries are kept to one each
        with connectivity.one_thread():
            return [*structure.of_pes(stack, task, threads=threads), *structure.of_attention(stack, task)]

    def rehearse(self, stack: Stack, task: Task) -> None:
        assert isinstance(task, Masked)
        structure.of_pes(stack, task, null=False)
        structure.of_attention(stack, task, null=False)

    def compare(
        self, members: pd.DataFrame, arrays: Mapping[str, Tensor], shapes: Mapping[str, Mapping[str, Any]], step: int
    ) -> list[dict[str, Any]]:
        worlds = {data: int(shape["worlds"]) for data, shape in shapes.items()}
        return list(structure.across(members, arrays, worlds, step))

    def baselines(self, task: Task, members: Sequence[Member]) -> list[dict[str, Any]]:
        assert isinstance(task, Masked)
        met, data = {member.seed % task.worlds for member in members}, {member.data for member in members}
        # in the place of the study's own first members of these worlds, whichever piece of the study this is
        alike = [each for each in self.members() if each.data in data]
        slow = sorted({each.seed % task.worlds for each in alike})[: self.slow_in]
        first = [each for each in alike if each.seed % task.worlds in met]
        with connectivity.one_thread():
            return list(baselines.of_data(task, first, self.against, slow))

    def data_arrays(self, task: Task, members: Sequence[Member]) -> dict[str, Tensor]:
        assert isinstance(task, Masked)
        return baselines.data_arrays(task, members)

    def over_sigmas(self, sigmas: Sequence[float], **fields: Any) -> list[Member]:
        """Learned PEs, sigma by sigma, the seeds of each together."""
        return grid(self.spec(encoding="learned", **fields), sigma=sigmas, seed=self.seeds)

    def over_encodings(self, texts: Sequence[str], **fields: Any) -> list[Member]:
        """Encoding by encoding, the seeds of each together."""
        return [
            member for text in texts for member in grid(self.spec(**encoding_spec(text), **fields), seed=self.seeds)
        ]


@dataclass(frozen=True)
class OverSigmas(MaskedStudy):
    """Learned PEs of many initial scales. To be mixed into a study, after the class that has its data: a later base's
    fields give way."""

    sigmas: tuple[float, ...] = setting(
        (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0), "initial scales of the PE"
    )

    def plan(self) -> list[Member]:
        return self.over_sigmas(self.sigmas)


@dataclass(frozen=True)
class OverEncodings(MaskedStudy):
    """Every encoding. To be mixed into a study like `OverSigmas`."""

    encodings: tuple[str, ...] = setting(
        (
            *("learned:sigma=0.01", "learned:sigma=0.2", "learned:sigma=1", "sinusoid", "random:sigma=1", "none"),
            *("relative", "rotary", "alibi", "causal-none"),
        ),
        "the encodings, NAME or NAME:OPTION=VALUE:..., where sigma is an option too",
    )

    def plan(self) -> list[Member]:
        return self.over_encodings(self.encodings)
