"""Studies on a network with known clusters.

network-sigma: learned PEs of many initial scales. What to look for: in small ones, nodes of a cluster come to lie
together, though nobody told them of clusters; in large ones they stay where they started. And: the error hardly moves.

network-encodings: every encoding on the same networks. What to look for: which of them predicts as well, and which of
those that learn anything about nodes show it.

network-size, network-noise: the same for networks of more nodes, and of more noise. What to look for: from where on the
clusters are no longer found, and whether the best sigma moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from placecode.experiments.base import setting
from placecode.experiments.channels import claims as masked_claims
from placecode.experiments.channels.masked import MaskedStudy, OverEncodings, OverSigmas
from placecode.models.member import Member
from placecode.tasks.base import Task
from placecode.tasks.network import Network
from placecode.tasks.several import Several

QUICK: dict[str, Any] = {
    **{"seeds": (0, 1, 2), "steps": 2000, "evaluations": 5, "nodes": 50, "train": 5000, "test": 500},
    **{"width": 32, "layers": 2, "expansion": 2, "learning_rate": 1e-3, "slow_in": 1},
}


@dataclass(frozen=True)
class NetworkStudy(MaskedStudy):
    """What studies on networks share: how they are simulated."""

    nodes: int = setting(100, "nodes of a network")
    clusters: int = setting(5, "clusters of nodes")
    sizes: tuple[int, ...] = setting((), "the sizes of the clusters, where they are to differ")
    density_within: float = setting(0.4, "share of the pairs of a cluster that are connected")
    density_between: float = setting(0.1, "share of the pairs of other clusters that are connected")
    strength_within: float = setting(1.0, "spectral radius of the weights within a cluster")
    strength_between: float = setting(0.05, "standard deviation of the weights between clusters")
    gain: float = setting(1.0, "what the input of a node is multiplied by")
    noise: float = setting(0.3, "standard deviation of the noise that drives every node")
    nonlinearity: str = setting("tanh", "what a node makes of its input: tanh, relu (clipped at 1) or linear")
    lag: int = setting(1, "the longest delay of a connection, in steps")
    window: int = setting(1, "time points to a token")
    train: int = setting(20_000, "time points to learn from")
    test: int = setting(2_000, "held-out time points, later ones")
    burn_in: int = setting(500, "time points before the first that is seen")
    gap: int = setting(200, "time points between those to learn from and those held out, which nobody sees")
    shuffled: bool = setting(True, "nodes in random order; else cluster by cluster, which a fixed encoding could use")

    def task(self) -> Task:
        return self.network()

    def network(self, **given: Any) -> Network:
        """The task with the settings of the study, and these on top."""
        names = (
            *("nodes", "clusters", "density_within", "density_between", "strength_within", "strength_between", "gain"),
            *(
                "noise",
                "nonlinearity",
                "lag",
                "window",
                "train",
                "test",
                "burn_in",
                "gap",
                "shuffled",
                "ratios",
                "worlds",
            ),
        )
        shared = {name: getattr(self, name) for name in names}
        return Network(**{**shared, "sizes": self.sizes or None, "seed": self.data_seed, **given})


@dataclass(frozen=True)
class NetworkSigma(NetworkStudy, OverSigmas):
    """Learned PEs of many initial scales on a network with known clusters."""

    name = "network-sigma"
    about = "a network with known clusters: structure of the PE, and error, against its initial scale sigma"
    claims = masked_claims.NETWORK

    scales = {"paper": {}, "quick": {**QUICK, "sigmas": (0.01, 0.1, 0.5, 2.0)}}


@dataclass(frozen=True)
class NetworkEncodings(NetworkStudy, OverEncodings):
    """Every encoding on a network with known clusters."""

    name = "network-encodings"
    about = "a network with known clusters: every encoding"

    scales = {"paper": {}, "quick": {**QUICK, "encodings": ("learned:sigma=0.01", "random:sigma=1", "none", "rotary")}}


@dataclass(frozen=True)
class NetworkSize(NetworkStudy):
    """Networks of more and more nodes."""

    name = "network-size"
    about = "networks of more and more nodes: are the clusters still found?"
    instead = {"nodes": "many"}

    sigmas: tuple[float, ...] = setting((0.01, 0.1, 0.5, 2.0), "initial scales of the PE")
    many: tuple[int, ...] = setting((25, 50, 100, 200), "nodes of the networks")

    scales = {"paper": {}, "quick": {**QUICK, "sigmas": (0.01, 2.0), "many": (25, 50)}}

    def task(self) -> Task:
        return Several({f"nodes={nodes}": self.network(nodes=nodes) for nodes in self.many})

    def plan(self) -> list[Member]:
        return [member for nodes in self.many for member in self.over_sigmas(self.sigmas, data=f"nodes={nodes}")]


@dataclass(frozen=True)
class NetworkNoise(NetworkStudy):
    """Networks that are driven by more and more noise."""

    name = "network-noise"
    about = "networks with more and more noise: are the clusters still found?"
    instead = {"noise": "noises"}

    sigmas: tuple[float, ...] = setting((0.01, 0.1, 0.5, 2.0), "initial scales of the PE")
    noises: tuple[float, ...] = setting((0.1, 0.3, 1.0, 3.0), "standard deviations of the noise")

    scales = {"paper": {}, "quick": {**QUICK, "sigmas": (0.01, 2.0), "noises": (0.3, 1.0)}}

    def task(self) -> Task:
        return Several({f"noise={noise:g}": self.network(noise=noise) for noise in self.noises})

    def plan(self) -> list[Member]:
        return [member for noise in self.noises for member in self.over_sigmas(self.sigmas, data=f"noise={noise:g}")]
