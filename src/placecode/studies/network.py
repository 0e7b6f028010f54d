"""Studies on a network with known clusters.

network-sigma: learned PEs of many initial scales. What to look for: in small ones, nodes of a cluster come to lie
together, though nobody told them of clusters; in large ones they stay where they started. And: the error hardly moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from placecode.members import Member
from placecode.runs import Run
from placecode.studies.base import Shown, setting
from placecode.studies.masked import MaskedStudy
from placecode.tasks.network import Network

QUICK: dict[str, Any] = {
    **{"seeds": (0, 1, 2), "steps": 2000, "evaluations": 5, "nodes": 50, "train": 5000, "test": 500},
    **{"width": 32, "layers": 2, "expansion": 2, "learning_rate": 1e-3, "baselines_in": 1},
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
    shuffled: bool = setting(True, "nodes in random order; else cluster by cluster, which a fixed encoding could use")

    def task(self) -> Network:
        return self.network()

    def network(self, **given: Any) -> Network:
        """The task with the settings of the study, and these on top."""
        names = (
            *("nodes", "clusters", "density_within", "density_between", "strength_within", "strength_between", "gain"),
            *("noise", "nonlinearity", "lag", "window", "train", "test", "shuffled", "ratios", "worlds"),
        )
        shared = {name: getattr(self, name) for name in names}
        return Network(**{**shared, "sizes": self.sizes or None, "seed": self.data_seed, **given})


@dataclass(frozen=True)
class NetworkSigma(NetworkStudy):
    """Learned PEs of many initial scales on a network with known clusters."""

    name = "network-sigma"
    about = "a network with known clusters: structure of the PE, and error, against its initial scale sigma"

    sigmas: tuple[float, ...] = setting(
        (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0), "initial scales of the PE"
    )

    scales = {"paper": {}, "quick": {**QUICK, "sigmas": (0.01, 0.1, 0.5, 2.0)}}

    def members(self) -> list[Member]:
        return self.over_sigmas(self.sigmas)

    def figures(self, run: Run) -> list[Shown]:
        return []

    def words(self, run: Run) -> list[str]:
        return []
