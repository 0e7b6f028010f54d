"""Base classes of the experiments on masked prediction: training, hidden channels, measurements and baselines.

A baseline is another method on the same data. A world is one data set: a simulated one, or one split of the people. A
member (model) with seed s uses world s modulo the number of worlds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from placecode.analysis import connectivity
from placecode.errors import must_be
from placecode.experiments.channels import baselines, structure
from placecode.experiments.models import ModelExperiment
from placecode.experiments.specs import DisplaySetting, display_setting, format_setting, parse_encoding
from placecode.experiments.sweeps import data_sets
from placecode.models.encoder import Stack
from placecode.models.member import Member, grid
from placecode.settings import setting, sweep_over
from placecode.tasks.base import Task
from placecode.tasks.masked import Masked

MOST_WORLDS = 100
"""If all seeds are below this, the number of worlds is the largest seed plus 1, so that seed s uses world s."""
WITHOUT_SIGMA = ("none", "relative", "rotary", "alibi", "causal-none")
"""Encodings that are compared at their default sigma or have no sigma."""
BASELINES = (*baselines.PREDICTORS, *baselines.MATRICES, "spectral", "pca of channels", "mds of fc")
"""Names of all baselines, which are other methods on the same data."""
SMALL_MODEL = {"seeds": (0, 1, 2), "width": 32, "expansion": 2}
"""Settings that all experiments on channels share at the scale "quick"."""


@dataclass(frozen=True)
class MaskedExperiment(ModelExperiment):
    """Base class of experiments on masked prediction of channels."""

    steps: int = setting(10_000, "training steps", least=1)
    evaluations: int = 20
    mask_ratio: float = setting(0.5, "fraction of the channels that are hidden in training")
    eval_mask_ratios: tuple[float, ...] = sweep_over((0.5, 0.9), "fractions of hidden channels at evaluation")
    width: int = 64
    learning_rate: float = 3e-4
    batch: int = 32
    slow_baseline_worlds: int = setting(
        3, "number of worlds in which the slow baselines, ridge and trees, are fitted", least=0
    )
    baseline_names: tuple[str, ...] = sweep_over(
        BASELINES, f"the baselines: {', '.join(BASELINES)}", count_at_least=0, choices=BASELINES
    )

    metric = "mse"

    def __post_init__(self) -> None:
        super().__post_init__()
        trained = getattr(self, self.swept_by["mask_ratio"]) if "mask_ratio" in self.swept_by else (self.mask_ratio,)
        if len(self.eval_mask_ratios) < 2 or not set(trained) <= set(self.eval_mask_ratios):
            words = ", ".join(f"{ratio:g}" for ratio in trained)
            rule = f"at least two, with the fraction hidden in training ({words}) among them"
            raise must_be("eval_mask_ratios", rule, list(self.eval_mask_ratios))

    @property
    def worlds(self) -> int:
        """Number of worlds (data sets) to simulate. A member with seed s uses world s modulo this number.

        Each seed has its own world, so that an interval over seeds is also one over worlds. The number is the largest
        seed plus 1 or, if that is above `MOST_WORLDS`, the smallest number with which no two seeds share a world.
        """
        if max(self.seeds) < MOST_WORLDS:
            return max(self.seeds) + 1
        counts = range(len(self.seeds), max(self.seeds) + 2)
        return next(count for count in counts if len({seed % count for seed in self.seeds}) == len(self.seeds))

    def swept(self) -> dict[str, Sequence[Any]]:
        """Return the values of each field that the experiment sweeps, by field, except encoding and sigma."""
        by_field = {field: getattr(self, values) for field, values in self.swept_by.items()}
        return by_field | {axis.name: axis.values for axis in self.axes}

    def parts(self, member: Member) -> tuple[DisplaySetting, ...]:
        """Return the settings of a member that have several values in the experiment, except encoding and sigma, as
        pairs of name and value for figures."""
        settings = self._data_settings(member.data)
        return tuple(
            display_setting(field, settings[field] if field in settings else getattr(member, field))
            for field, values in self.swept().items()
            if len(values) > 1
        )

    def describe_data(self, data: str) -> str:
        settings = self._data_settings(data)
        return ", ".join(format_setting(display_setting(field, value)) for field, value in settings.items()) or data

    def _data_settings(self, data: str) -> Mapping[str, Any]:
        """Return the settings in which the data set `data` differs from others, by name. Empty if there are no
        others."""
        return (self.data_sets() or data_sets(self.axes)).get(data, {})

    def training_steps(self, task: Task) -> int:
        return self.steps

    def evaluate_at(self, task: Task) -> list[int]:
        return self.moments(self.steps)

    def analyse(self, stack: Stack, task: Task) -> list[dict[str, Any]]:
        assert isinstance(task, Masked)
        threads = torch.get_num_threads()  # before libraries are limited to one thread
        with connectivity.one_thread():
            return [*structure.pe_structure(stack, task, threads=threads), *structure.attention_structure(stack, task)]

    def trial_analysis(self, stack: Stack, task: Task) -> None:
        assert isinstance(task, Masked)
        structure.pe_structure(stack, task, null=False)
        structure.attention_structure(stack, task, null=False)

    def compare(
        self, members: pd.DataFrame, arrays: Mapping[str, Tensor], shapes: Mapping[str, Mapping[str, Any]], step: int
    ) -> list[dict[str, Any]]:
        worlds = {data: int(shape["worlds"]) for data, shape in shapes.items()}
        return list(structure.pe_change_and_stability(members, arrays, worlds, step))

    def baselines(self, task: Task, members: Sequence[Member]) -> list[dict[str, Any]]:
        assert isinstance(task, Masked)
        worlds, data = {member.seed % task.worlds for member in members}, {member.data for member in members}
        # of the whole experiment: a run of some of its members (--members i:j) has the same baselines as one of all
        same_data = [member for member in self.members() if member.data in data]
        slow = sorted({member.seed % task.worlds for member in same_data})[: self.slow_baseline_worlds]
        first = [member for member in same_data if member.seed % task.worlds in worlds]
        with connectivity.one_thread():
            return list(baselines.baseline_rows(task, first, self.baseline_names, slow))

    def data_arrays(self, task: Task, members: Sequence[Member]) -> dict[str, Tensor]:
        assert isinstance(task, Masked)
        return baselines.data_arrays(task, members)


@dataclass(frozen=True)
class OverSigmas(MaskedExperiment):
    """Mixin for experiments that compare many initial scales of learned PEs. List it after the class with the task."""

    sigmas: tuple[float, ...] = sweep_over(
        (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0), "initial scales of the PE"
    )

    def plan(self) -> list[Member]:
        """Return the members, sorted by data set, then by sigma, then by seed."""
        return [member for data in self.data_sets() or [""] for member in self.over_sigmas(self.sigmas, data=data)]


@dataclass(frozen=True)
class OverEncodings(MaskedExperiment):
    """Mixin for experiments that compare all encodings. List it after the class with the task."""

    encodings: tuple[str, ...] = sweep_over(
        ("learned:sigma=0.01", "learned:sigma=0.2", "learned:sigma=1", "sinusoid", "random:sigma=1", *WITHOUT_SIGMA),
        "the encodings, NAME or NAME:OPTION=VALUE:..., where sigma is an option too",
    )

    def plan(self) -> list[Member]:
        """Return the members, sorted by encoding, then by seed."""
        specs = [self.spec(**parse_encoding(text)) for text in self.encodings]
        return [member for spec in specs for member in grid(spec, seed=self.seeds)]
