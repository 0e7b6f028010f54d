"""All experiments, and how to get one by its name or from a run (the folder with its results)."""

from __future__ import annotations

from placecode.errors import BadInput, one_of
from placecode.experiments.base import SCALES, Experiment
from placecode.experiments.channels import brain, network, pixels, synergy
from placecode.experiments.channels.table import TableExperiment
from placecode.experiments.latin import causal, data, knobs, squares, training
from placecode.runs.read import Run
from placecode.settings import settings_of

__all__ = ["EXPERIMENTS", "SCALES", "Experiment", "TableExperiment", "experiment_of", "lookup"]

EXPERIMENTS: dict[str, type[Experiment]] = {
    experiment.name: experiment
    for experiment in (
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
"""All experiments by name, in the order in which `placecode experiments` lists them. `TableExperiment` is not among
them: `placecode fit` runs it."""


def lookup(name: str) -> type[Experiment]:
    """Return the class of the experiment with this name. Raise `BadInput` if there is none."""
    if name not in EXPERIMENTS:
        raise one_of("experiment", EXPERIMENTS, name)
    return EXPERIMENTS[name]


def experiment_of(run: Run) -> Experiment:
    """Return the experiment of a run, with the settings in config.json of the run. A setting that did not exist when
    the run was made gets its value in `Experiment.legacy_defaults`, or else its default. Raise `BadInput` if
    config.json has a setting that this version does not know."""
    fields = {name: tuple(v) if isinstance(v, list) else v for name, v in run.config["fields"].items()}
    experiment = TableExperiment if run.experiment == TableExperiment.name else lookup(run.experiment)
    if unknown := set(fields) - set(settings_of(experiment)):
        raise BadInput(
            f"{run.path / 'config.json'} must have no settings but those of {run.experiment} that this version knows; "
            f"it also has {', '.join(sorted(unknown))}."
        )
    return experiment(**{**experiment.legacy_defaults, **fields})
