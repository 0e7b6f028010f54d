"""Studies by name: the registry."""

from __future__ import annotations

from placecode.errors import BadInput, one_of
from placecode.experiments.base import SCALES, Study
from placecode.experiments.channels.brain import (
    BrainEncodings,
    BrainMask,
    BrainPreprocessing,
    BrainSigma,
    BrainTransfer,
)
from placecode.experiments.channels.network import NetworkEncodings, NetworkNoise, NetworkSigma, NetworkSize
from placecode.experiments.channels.own import OwnData
from placecode.experiments.channels.pixels import PixelsSigma
from placecode.experiments.channels.synergy import SynergyEncodings, SynergyOptimizer, SynergySigma, SynergySize
from placecode.experiments.latin.causal import LstCausal
from placecode.experiments.latin.data import LstData, LstSize
from placecode.experiments.latin.knobs import (
    LstDecay,
    LstDepth,
    LstGain,
    LstHeads,
    LstOptimizer,
    LstPlacement,
    LstWidth,
)
from placecode.experiments.latin.squares import LstEncodings, LstSigma
from placecode.experiments.latin.training import LstFrozen, LstSlingshot
from placecode.runs.read import Run

__all__ = ["SCALES", "STUDIES", "OwnData", "Study", "lookup", "study_of"]

STUDIES: dict[str, type[Study]] = {
    study.name: study
    for study in (
        *(LstSigma, LstFrozen, LstSlingshot, LstEncodings, LstCausal, LstOptimizer),
        *(LstHeads, LstDepth, LstWidth, LstDecay, LstPlacement, LstGain, LstData, LstSize),
        *(NetworkSigma, NetworkEncodings, NetworkSize, NetworkNoise),
        *(SynergySigma, SynergyEncodings, SynergySize, SynergyOptimizer),
        PixelsSigma,
        *(BrainSigma, BrainEncodings, BrainMask, BrainTransfer, BrainPreprocessing),
    )
}


def lookup(name: str) -> type[Study]:
    """The study behind a name."""
    if name not in STUDIES:
        raise one_of("study", STUDIES, name)
    return STUDIES[name]


def study_of(run: Run) -> Study:
    """The study that made a run, with the settings that it had. Those that came later have the values that mean what
    was done before there was a choice: `Study.older`, or else their defaults."""
    fields = {name: tuple(v) if isinstance(v, list) else v for name, v in run.config["fields"].items()}
    kind = OwnData if run.study == OwnData.name else lookup(run.study)
    if unknown := set(fields) - set(kind.recorded()):
        raise BadInput(
            f"{run.path / 'config.json'} must have no settings but those of {run.study} that this version knows; "
            f"it also has {', '.join(sorted(unknown))}."
        )
    return kind(**{**kind.older, **fields})
