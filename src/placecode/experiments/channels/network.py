"""Experiments on simulated networks with known clusters.

network-sigma trains learned PEs with many initial scales sigma. With a small sigma, the PEs of the nodes of a cluster
become similar, although the model is not told the clusters. With a large sigma they stay near their random start. The
error hardly changes.

network-encodings compares all encodings on the same networks. Which of them predict as well as learned PEs? Which of
those with a vector per node show the clusters?

network-size and network-noise use networks with more nodes, or with more noise. At which size or noise are the clusters
no longer found, and does the best sigma change?
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from placecode.experiments.channels import claims as masked_claims
from placecode.experiments.channels.masked import SMALL_MODEL, MaskedExperiment, OverEncodings, OverSigmas
from placecode.experiments.sweeps import data_name
from placecode.settings import sweep_over
from placecode.tasks.network import Network, NetworkSettings

QUICK: dict[str, Any] = {
    **SMALL_MODEL,
    "steps": 2000,
    "evaluations": 5,
    "nodes": 50,
    "train": 5000,
    "test": 500,
    "layers": 2,
    "learning_rate": 1e-3,
    "slow_baseline_worlds": 1,
}
"""Settings of the experiments on networks at the scale "quick"."""


@dataclass(frozen=True)
class NetworkExperiment(MaskedExperiment, NetworkSettings):
    """Base class of experiments on simulated networks."""

    shuffled: bool = True

    task_class = Network


@dataclass(frozen=True)
class NetworkSigma(NetworkExperiment, OverSigmas):
    """Train learned PEs with many initial scales sigma on simulated networks (the experiment network-sigma)."""

    name = "network-sigma"
    about = "a network with known clusters: structure of the PE, and error, against its initial scale sigma"
    claims = masked_claims.NETWORK

    scales = {"paper": {}, "quick": {**QUICK, "sigmas": (0.01, 0.1, 0.5, 2.0)}}


@dataclass(frozen=True)
class NetworkEncodings(NetworkExperiment, OverEncodings):
    """Compare all encodings on simulated networks (the experiment network-encodings)."""

    name = "network-encodings"
    about = "a network with known clusters: all encodings"

    scales = {"paper": {}, "quick": {**QUICK, "encodings": ("learned:sigma=0.01", "random:sigma=1", "none", "rotary")}}


@dataclass(frozen=True)
class NetworkSize(NetworkExperiment, OverSigmas):
    """Train on networks of several sizes, with several sigmas each (the experiment network-size)."""

    name = "network-size"
    about = "networks with more and more nodes: are the clusters still found?"
    swept_by = {"nodes": "node_counts"}

    sigmas: tuple[float, ...] = (0.01, 0.1, 0.5, 2.0)
    node_counts: tuple[int, ...] = sweep_over((25, 50, 100, 200), "nodes of the networks")

    scales = {"paper": {}, "quick": {**QUICK, "sigmas": (0.01, 2.0), "node_counts": (25, 50)}}

    def data_sets(self) -> dict[str, dict[str, Any]]:
        return {data_name({"nodes": nodes}): {"nodes": nodes} for nodes in self.node_counts}


@dataclass(frozen=True)
class NetworkNoise(NetworkExperiment, OverSigmas):
    """Train on networks with several amounts of noise, with several sigmas each (the experiment network-noise)."""

    name = "network-noise"
    about = "networks with more and more noise: are the clusters still found?"
    swept_by = {"noise": "noises"}

    sigmas: tuple[float, ...] = (0.01, 0.1, 0.5, 2.0)
    noises: tuple[float, ...] = sweep_over((0.1, 0.3, 1.0, 3.0), "standard deviations of the noise")

    scales = {"paper": {}, "quick": {**QUICK, "sigmas": (0.01, 2.0), "noises": (0.3, 1.0)}}

    def data_sets(self) -> dict[str, dict[str, Any]]:
        return {data_name({"noise": noise}): {"noise": noise} for noise in self.noises}
