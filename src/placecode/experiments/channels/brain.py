"""Experiments on recordings of human brains (resting-state fMRI). A channel is a brain region.

brain-sigma trains learned PEs with many initial scales sigma. With a small sigma, the PE of a region becomes similar to
that of its mirror region in the other hemisphere, although the model is not told the positions. With a large sigma it
stays near its random start. Does the PE show more than functional connectivity, the correlations of the regions?

brain-encodings compares all encodings. brain-mask hides few or many regions in training and at evaluation. Is a model
best at the fraction it was trained with, and does the PE depend on this fraction?

brain-preprocessing uses the recordings as they are, detrended, band-passed, without the global signal, with all three
of these steps, or without people whose recordings have no autocorrelation. Does this change whether small sigmas show
networks and mirror regions?

brain-transfer gives a PE learned from half of the people to models that are trained on the other half. If this PE is
frozen, is it as good as one that these models learn themselves? Is it better than a random one, or than the same PE
with its regions shuffled? Are PEs from two halves similar?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from placecode.errors import must_be
from placecode.experiments.channels import brain_networks
from placecode.experiments.channels import claims as masked_claims
from placecode.experiments.channels.masked import SMALL_MODEL, MaskedExperiment, OverEncodings, OverSigmas
from placecode.experiments.specs import DisplaySetting, display_setting
from placecode.models.member import Member, grid
from placecode.settings import setting, sweep_over
from placecode.tasks.base import Task
from placecode.tasks.brain import Brain, BrainSettings

QUICK: dict[str, Any] = {
    **SMALL_MODEL,
    "steps": 2000,
    "evaluations": 5,
    "layers": 2,
    "heads": 4,
    "learning_rate": 2e-3,
    "batch": 16,
    "baseline_names": ("linear", "pca", "fc", "partial correlation"),
}
"""Settings of the experiments on brains at the scale "quick"."""


@dataclass(frozen=True)
class BrainExperiment(MaskedExperiment, BrainSettings):
    """Base class of experiments on brains."""

    tested: tuple[str, ...] = setting((), "the people to test on, by name, instead of `heldout`")
    learning_rate: float = 1e-4

    task_class = Brain

    def describe_data(self, data: str) -> str:
        return data if self.data_sets() else super().describe_data(data)

    def make_task(self, **changes: Any) -> Task:
        return super().make_task(**{"heldout": self.tested or self.heldout, **changes})


@dataclass(frozen=True)
class BrainSigma(BrainExperiment, OverSigmas):
    """Train learned PEs with many initial scales sigma on brain recordings (the experiment brain-sigma)."""

    name = "brain-sigma"
    about = "human fMRI: mirror regions and networks in the PE, and error, against its initial scale sigma"
    claims = (*masked_claims.BRAIN, *brain_networks.OVER_SIGMA)

    scales = {"paper": {}, "quick": {**QUICK, "sigmas": (0.01, 0.1, 2.0)}}


VARIANTS = ("as-is", "detrend", "band", "global-signal", "all", "without")
"""Values of the setting `variants`: ways to preprocess the recordings, see `BrainPreprocessing.data_sets`."""


@dataclass(frozen=True)
class BrainPreprocessing(BrainExperiment, OverSigmas):
    """Train on the same recordings, preprocessed in several ways (the experiment brain-preprocessing)."""

    name = "brain-preprocessing"
    about = "human fMRI: does preprocessing change what PEs of small and large sigma show?"
    claims = brain_networks.CLAIMS

    variants: tuple[str, ...] = sweep_over(
        VARIANTS, f"ways to preprocess the recordings: {', '.join(VARIANTS)}", choices=VARIANTS
    )
    band: tuple[float, ...] = setting((0.01, 0.1), "frequencies to keep in the variants band and all, in Hz")
    left_out_people: tuple[str, ...] = setting(("NAP_001", "NAP_013"), "people to leave out in the variant without")
    sigmas: tuple[float, ...] = (0.01, 0.1, 0.5, 2.0)
    baseline_names: tuple[str, ...] = ("linear", "fc")

    scales = {
        "paper": {"seeds": (0, 1, 2, 3, 4)},
        "quick": {**QUICK, "sigmas": (0.01, 2.0), "variants": ("as-is", "all"), "baseline_names": ("linear", "fc")},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.band) != 2:
            raise must_be("band", "two frequencies in Hz, the lower first", list(self.band))

    def swept(self) -> dict[str, Sequence[Any]]:
        return {**super().swept(), "data": self.variants}

    def data_sets(self) -> dict[str, dict[str, Any]]:
        """Return the settings of the preprocessing for each variant, by the name of the variant in figures."""
        low, high = self.band
        band = {"low": low, "high": high}
        excluded = (*self.exclude, *self.left_out_people)
        by_variant: dict[str, tuple[str, dict[str, Any]]] = {
            "as-is": ("no preprocessing", {}),
            "detrend": ("detrending", {"detrend": True}),
            "band": (f"a band of {low:g} to {high:g} Hz", band),
            "global-signal": ("the global signal removed", {"global_signal": True}),
            "all": ("all three", {"detrend": True, **band, "global_signal": True}),
            "without": (f"{' and '.join(self.left_out_people)} left out", {"exclude": excluded}),
        }
        return dict(by_variant[variant] for variant in self.variants)


@dataclass(frozen=True)
class BrainEncodings(BrainExperiment, OverEncodings):
    """Compare all encodings on brain recordings (the experiment brain-encodings)."""

    name = "brain-encodings"
    about = "human fMRI: all encodings"

    scales = {"paper": {}, "quick": {**QUICK, "encodings": ("learned:sigma=0.01", "random:sigma=1", "none", "rotary")}}


@dataclass(frozen=True)
class BrainMask(BrainExperiment):
    """Hide few or many regions in training and at evaluation (the experiment brain-mask)."""

    name = "brain-mask"
    about = "human fMRI: fractions of hidden regions in training and at evaluation"
    swept_by = {"mask_ratio": "mask_ratios"}

    sigmas: tuple[float, ...] = sweep_over((0.01, 0.2, 2.0), "initial scales of the PE")
    mask_ratios: tuple[float, ...] = sweep_over((0.15, 0.5, 0.75, 0.9), "fractions of hidden regions in training")
    eval_mask_ratios: tuple[float, ...] = (0.15, 0.5, 0.75, 0.9)

    scales = {
        "paper": {},
        "quick": {**QUICK, "sigmas": (0.01,), "mask_ratios": (0.15, 0.9), "eval_mask_ratios": (0.15, 0.9)},
    }

    def plan(self) -> list[Member]:
        """Return the members, sorted by fraction of hidden regions in training, then by sigma, then by seed."""
        return grid(self.spec(), mask_ratio=self.mask_ratios, sigma=self.sigmas, seed=self.seeds)


FIRST, SECOND = "first half", "second half"
"""Names of the data sets of brain-transfer: the two halves of the training people."""
PE_NAMES = {
    ("normal", True): "own PE",
    ("donor", False): "another's PE, frozen",
    ("donor", True): "another's PE, trained on",
    ("shuffled", False): "another's PE shuffled, frozen",
    ("normal", False): "random PE, frozen",
}
"""Names in figures of the kinds of PE that brain-transfer compares, by the fields `start` and `learn` of members."""


@dataclass(frozen=True)
class BrainTransfer(BrainExperiment):
    """Give PEs learned from half of the people to models of the other half (the experiment brain-transfer)."""

    name = "brain-transfer"
    about = "human fMRI: a PE learned from some people, frozen, for others"
    claims = masked_claims.TRANSFER

    sigmas: tuple[float, ...] = sweep_over((0.01, 0.1, 0.5, 2.0), "initial scales of the PE")

    scales = {"paper": {}, "quick": {**QUICK, "sigmas": (0.01, 2.0), "folds": 1}}

    def parts(self, member: Member) -> tuple[DisplaySetting, ...]:
        pe = ("", PE_NAMES[str(member.start), member.learn])
        return display_setting("data", member.data), pe, *super().parts(member)

    def data_sets(self) -> dict[str, dict[str, int]]:
        """Return the setting that selects each half of the training people, by data set. Both share the test people."""
        return {FIRST: {"half": 1}, SECOND: {"half": 2}}

    def plan(self) -> list[Member]:
        """Return for each sigma members trained on either half, then further members trained on the second half. Their
        PEs are copied from the first half (and frozen, trained on, or shuffled and frozen), or random and frozen."""
        members: list[Member] = []
        for sigma in self.sigmas:
            first = len(members)
            members += self.over_sigmas([sigma], data=FIRST)
            members += self.over_sigmas([sigma], data=SECOND)
            for start, learn in (("donor", False), ("donor", True), ("shuffled", False)):
                copy = self.spec(sigma=sigma, data=SECOND, start=start, learn=learn, donor=first)
                members += [replace(copy, seed=seed, donor=first + i) for i, seed in enumerate(self.seeds)]
            members += self.over_sigmas([sigma], data=SECOND, learn=False)
        return members
