"""Studies by name: the registry."""

from __future__ import annotations

from placecode.errors import BadInput, one_of
from placecode.runs import Run
from placecode.studies.base import SCALES, Shown, Study
from placecode.studies.brain import BrainEncodings, BrainMask, BrainPreprocessing, BrainSigma, BrainTransfer
from placecode.studies.latin_causal import LstCausal
from placecode.studies.latin_data import LstData, LstSize
from placecode.studies.latin_knobs import (
    LstDecay,
    LstDepth,
    LstGain,
    LstHeads,
    LstOptimizer,
    LstPlacement,
    LstWidth,
)
from placecode.studies.latin_squares import LstEncodings, LstSigma
from placecode.studies.latin_training import LstFrozen, LstSlingshot
from placecode.studies.network import NetworkEncodings, NetworkNoise, NetworkSigma, NetworkSize
from placecode.studies.own import OwnData
from placecode.studies.pixels import PixelsSigma
from placecode.studies.synergy import SynergyEncodings, SynergyOptimizer, SynergySigma, SynergySize

__all__ = ["SCALES", "STUDIES", "OwnData", "Shown", "Study", "lookup", "study_of"]

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
