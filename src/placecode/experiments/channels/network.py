"""Studies on simulated networks with known clusters.

network-sigma: learned PEs with many initial scales. With a small sigma, the PEs of the nodes of a cluster become
similar, although the model is not told the clusters. With a large sigma they stay near their random start. The error
hardly changes.

network-encodings: all encodings on the same networks. Which of them predict as well? Which of those with a vector per
node show the clusters?

network-size, network-noise: networks with more nodes, or with more noise. At which size or noise are the clusters no
longer found, and does the best sigma change?
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from placecode.experiments.base import setting, sweep_over
from placecode.experiments.channels import claims as masked_claims
from placecode.experiments.channels.masked import SMALL_MODEL, MaskedStudy, OverEncodings, OverSigmas
from placecode.experiments.sweeps import data_name
from placecode.tasks.base import Task
from placecode.tasks.network import Network

QUICK: dict[str, Any] = {
    **SMALL_MODEL,
    "steps": 2000,
    "evaluations": 5,
    "nodes": 50,
    "train": 5000,
    "test": 500,
    "layers": 2,
    "learning_rate": 1e-3,
    "slow_in": 1,
}
"""Settings of the studies on networks at the scale "quick"."""


@dataclass(frozen=True)
class NetworkStudy(MaskedStudy):
    """Base class of studies on simulated networks, with the settings of the simulation."""

    nodes: int = setting(100, "nodes of a network")
    clusters: int = setting(5, "clusters of nodes")
    sizes: tuple[int, ...] = setting((), "the sizes of the clusters, if they differ")
    density_within: float = setting(0.4, "fraction of the pairs within a cluster that are connected")
    density_between: float = setting(0.1, "fraction of the pairs between clusters that are connected")
    strength_within: float = setting(1.0, "spectral radius of the weights within a cluster")
    strength_between: float = setting(0.05, "standard deviation of the weights between clusters")
    gain: float = setting(1.0, "factor of the input of a node")
    noise: float = setting(0.3, "standard deviation of the noise that drives every node")
    nonlinearity: str = setting("tanh", "activation function of a node: tanh, relu (clipped at 1) or linear")
    lag: int = setting(1, "longest delay of a connection, in steps")
    window: int = setting(1, "time points per token")
    train: int = setting(20_000, "time points to train on")
    test: int = setting(2_000, "held-out time points, which are later")
    burn_in: int = setting(500, "time points before the first that is used")
    gap: int = setting(200, "unused time points between training and held-out ones")
    shuffled: bool = setting(True, "nodes in random order; else cluster by cluster, which a fixed encoding could use")

    task_class = Network

    def make_task(self, **changes: Any) -> Task:
        return super().make_task(sizes=self.sizes or None, **changes)


@dataclass(frozen=True)
class NetworkSigma(NetworkStudy, OverSigmas):
    """Study on simulated networks: learned PEs with many initial scales (network-sigma)."""

    name = "network-sigma"
    about = "a network with known clusters: structure of the PE, and error, against its initial scale sigma"
    claims = masked_claims.NETWORK

    scales = {"paper": {}, "quick": {**QUICK, "sigmas": (0.01, 0.1, 0.5, 2.0)}}


@dataclass(frozen=True)
class NetworkEncodings(NetworkStudy, OverEncodings):
    """Study on simulated networks: all encodings (network-encodings)."""

    name = "network-encodings"
    about = "a network with known clusters: all encodings"

    scales = {"paper": {}, "quick": {**QUICK, "encodings": ("learned:sigma=0.01", "random:sigma=1", "none", "rotary")}}


@dataclass(frozen=True)
class NetworkSize(NetworkStudy, OverSigmas):
    """Study on simulated networks: more and more nodes (network-size)."""

    name = "network-size"
    about = "networks with more and more nodes: are the clusters still found?"
    swept_by = {"nodes": "many"}

    sigmas: tuple[float, ...] = sweep_over((0.01, 0.1, 0.5, 2.0), "initial scales of the PE")
    many: tuple[int, ...] = sweep_over((25, 50, 100, 200), "nodes of the networks")

    scales = {"paper": {}, "quick": {**QUICK, "sigmas": (0.01, 2.0), "many": (25, 50)}}

    def data_sets(self) -> dict[str, dict[str, Any]]:
        return {data_name({"nodes": nodes}): {"nodes": nodes} for nodes in self.many}


@dataclass(frozen=True)
class NetworkNoise(NetworkStudy, OverSigmas):
    """Study on simulated networks: more and more noise (network-noise)."""

    name = "network-noise"
    about = "networks with more and more noise: are the clusters still found?"
    swept_by = {"noise": "noises"}

    sigmas: tuple[float, ...] = sweep_over((0.01, 0.1, 0.5, 2.0), "initial scales of the PE")
    noises: tuple[float, ...] = sweep_over((0.1, 0.3, 1.0, 3.0), "standard deviations of the noise")

    scales = {"paper": {}, "quick": {**QUICK, "sigmas": (0.01, 2.0), "noises": (0.3, 1.0)}}

    def data_sets(self) -> dict[str, dict[str, Any]]:
        return {data_name({"noise": noise}): {"noise": noise} for noise in self.noises}
