"""Studies (experiments with a name), and how to get one by its name or from a run."""

from __future__ import annotations

from placecode.errors import BadInput, one_of
from placecode.experiments.base import SCALES, Study
from placecode.experiments.channels import brain, network, pixels, synergy
from placecode.experiments.channels.own import OwnData
from placecode.experiments.latin import causal, data, knobs, squares, training
from placecode.runs.read import Run

__all__ = ["SCALES", "STUDIES", "OwnData", "Study", "lookup", "study_of"]

STUDIES: dict[str, type[Study]] = {
    study.name: study
    for study in (
        squares.LstSigma,
        training.LstFrozen,
        training.LstSlingshot,
        squares.LstEncodings,
        causal.LstCausal,
        knobs.LstOptimizer,
        knobs.LstHeads,
        knobs.LstDepth,
        knobs.LstWidth,
        knobs.LstDecay,
        knobs.LstPlacement,
        knobs.LstGain,
        data.LstData,
        data.LstSize,
        network.NetworkSigma,
        network.NetworkEncodings,
        network.NetworkSize,
        network.NetworkNoise,
        synergy.SynergySigma,
        synergy.SynergyEncodings,
        synergy.SynergySize,
        synergy.SynergyOptimizer,
        pixels.PixelsSigma,
        brain.BrainSigma,
        brain.BrainEncodings,
        brain.BrainMask,
        brain.BrainTransfer,
        brain.BrainPreprocessing,
    )
}
"""All studies but `OwnData` by name, in the order in which `placecode studies` lists them."""


def lookup(name: str) -> type[Study]:
    """Return the class of the study with this name. An unknown name is a `BadInput`."""
    if name not in STUDIES:
        raise one_of("study", STUDIES, name)
    return STUDIES[name]


def study_of(run: Run) -> Study:
    """Return the study of a run, with the settings that the run recorded. A setting that is newer than the run gets its
    value in `Study.older`, or else its default."""
    fields = {name: tuple(v) if isinstance(v, list) else v for name, v in run.config["fields"].items()}
    kind = OwnData if run.study == OwnData.name else lookup(run.study)
    if unknown := set(fields) - set(kind.recorded()):
        raise BadInput(
            f"{run.path / 'config.json'} must have no settings but those of {run.study} that this version knows; "
            f"it also has {', '.join(sorted(unknown))}."
        )
    return kind(**{**kind.older, **fields})
