"""Masked prediction of the activity of a simulated network with known clusters (modules).

The data are a nonlinear autoregressive process on a modular random graph: x(t + 1) = f(gain * W x(t)) + noise, with one
channel per node. Connections within clusters are much stronger than between clusters. The activity of a hidden node is
therefore best predicted from nodes of the same cluster.

>>> task = Network(train=2_000, test=500, worlds=2)
>>> {name: tuple(split.inputs.shape) for name, split in task.splits.items()}
{'train': (2, 2000, 100), 'test': (2, 500, 100)}
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from placecode.errors import BadInput, must_be
from placecode.settings import Settings, setting
from placecode.tasks.masked import Masked
from placecode.tasks.simulated import MIN_TRAINING_SAMPLES, channel_order, split_seed, standardized_splits
from placecode.validation import whole_number

NONLINEARITIES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "tanh": np.tanh,
    "relu": lambda drive: np.clip(drive, 0, 1),
    "linear": lambda drive: drive,
}
"""Activation functions of the nodes. relu is clipped at 1, because with positive weights activity would grow without
bound."""
MAX_DRAWS = 1_000  # maximum number of random graphs that are drawn until one has a cycle, see `draw_cluster_weights`
SIGNAL_STEPS = 2_000
"""Number of time points, at the end of the training data, for which `signal` is computed to check the activity."""
MIN_DEVIATION, MAX_VALUE = 0.01, 1e4
"""Limits for warnings. A channel with a smaller standard deviation counts as nearly constant, and a process with larger
values as diverging."""
SATURATION_BOUND, MAX_SATURATED_FRACTION = 0.9, 0.5
"""There is a warning if more than `MAX_SATURATED_FRACTION` of the values of the signal (see `signal`) are above
`SATURATION_BOUND` in absolute value."""
MIN_SIGNAL_FRACTION = 0.05  # smallest fraction of the variance that is signal, without a warning
MIN_COHESION = 0.05
"""There is a warning if the mean correlation of nodes of the same cluster exceeds that of nodes of different clusters
by less than this."""


@dataclass(frozen=True, kw_only=True)
class NetworkSettings(Settings):
    """Settings of simulated networks."""

    nodes: int = setting(100, "nodes of a network", least=4)
    clusters: int = setting(5, "clusters of nearly equal size", least=2)
    sizes: tuple[int, ...] = setting((), "the sizes of the clusters, if they differ", least=2)
    density_within: float = setting(
        0.4, "fraction of the ordered pairs within a cluster that are connected", above=0, most=1
    )
    density_between: float = setting(
        0.1, "fraction of the ordered pairs between clusters that are connected", least=0, most=1
    )
    strength_within: float = setting(
        1.0, "spectral radius of the weights within a cluster, which are positive", least=0
    )
    strength_between: float = setting(
        0.05, "standard deviation of the weights between clusters, which are normal", least=0
    )
    gain: float = setting(1.0, "factor of the weighted sum of a node's inputs", least=0)
    noise: float = setting(0.3, "standard deviation of the noise that drives every node", least=0)
    nonlinearity: str = setting(
        "tanh", "activation function of a node: tanh, relu (clipped at 1) or linear", choices=NONLINEARITIES
    )
    lag: int = setting(1, "longest delay of a connection, in steps; each connection has a random delay", least=1)
    window: int = setting(1, "time points per token", least=1)
    train: int = setting(20_000, "time points to train on", least=MIN_TRAINING_SAMPLES)
    test: int = setting(2_000, "held-out time points, which are later", least=1)
    burn_in: int = setting(500, "time points before the first that is used", least=0)
    gap: int = setting(200, "unused time points between training and held-out ones", least=0)
    shuffled: bool = setting(False, "nodes in random order; else cluster by cluster, which a fixed encoding could use")

    def __post_init__(self) -> None:
        super().__post_init__()
        cluster_sizes(self.nodes, self.clusters, self.sizes)
        whole_number("train", self.train, self.window + self.lag + 1)
        whole_number("test", self.test, self.window)


class Network(Masked):
    """Masked prediction of the activity of simulated networks with known clusters. Every network has a graph of its
    own.

    Data are standardized with the mean and standard deviation of the training time points.

    Parameters
    ----------
    eval_mask_ratios : sequence of float
        Fractions of hidden channels at evaluation.
    worlds : int
        Number of independent networks, g. Seed s of a member uses network s modulo this number.
    seed : int
        Seed of the graphs, the noise, the order of the channels, and the hidden channels at evaluation.
    **settings
        Fields of `NetworkSettings`.

    Attributes
    ----------
    labels : ndarray of int, shape (n,)
        Cluster of each node, equal in all worlds.
    weights : ndarray, shape (g, lag, n, n)
        Connections: `weights[k, d, i, j]` leads from node j to node i of network k, with a delay of d + 1 steps.
    """

    name = "network"
    settings_class = NetworkSettings

    def __init__(
        self, eval_mask_ratios: Sequence[float] = (0.5, 0.9), worlds: int = 1, seed: int = 0, **settings: Any
    ) -> None:
        chosen = NetworkSettings(**settings)
        sizes = cluster_sizes(chosen.nodes, chosen.clusters, chosen.sizes)
        order_seed, world_seeds = split_seed(worlds, seed)
        self.options = {name: value for name, value in vars(chosen).items() if name not in ("nodes", "clusters")}
        self.options["sizes"] = [int(size) for size in sizes]

        seed_pairs = [world_seed.spawn(2) for world_seed in world_seeds]
        graph_rngs, noise_rngs = ([np.random.default_rng(pair[part]) for pair in seed_pairs] for part in (0, 1))
        labels = np.repeat(np.arange(len(sizes)), sizes)
        labels = labels[channel_order(len(labels), chosen.shuffled, order_seed)]
        density = (chosen.density_within, chosen.density_between)
        weights = graph(graph_rngs, labels, density, (chosen.strength_within, chosen.strength_between), chosen.lag)
        first, last = chosen.burn_in, chosen.burn_in + chosen.train
        function = chosen.nonlinearity
        states = simulate(noise_rngs, weights, last + chosen.gap + chosen.test, chosen.gain, chosen.noise, function)
        train_states = states[:, first:last]
        drive = signal(weights, train_states[:, -SIGNAL_STEPS - chosen.lag :], chosen.gain, function)
        splits = standardized_splits(train_states, states[:, -chosen.test :], chosen.window)
        for world in range(worlds):
            if not all(split.inputs[world].isfinite().all() for split in splits.values()):
                raise BadInput(f"world {world} must stay finite, but diverges; lower gain or the strengths.")
        for sentence in dynamics_warnings(train_states, drive, labels, bounded=function != "linear"):
            warnings.warn(sentence, stacklevel=2)
        super().__init__(splits, chosen.window, eval_mask_ratios, seed)

        self.labels, self.weights = labels, weights
        self.token_names = tuple(f"node {node + 1}" for node in range(len(labels)))


def graph(
    rngs: Sequence[np.random.Generator],
    labels: np.ndarray,
    density: tuple[float, float] = (0.4, 0.1),
    strength: tuple[float, float] = (1.0, 0.05),
    lag: int = 1,
) -> np.ndarray:
    """Draw modular random graphs without self-connections, one for each of g random generators.

    Returns weights, (g, lag, n, n). `weights[k, d, i, j]` is the connection from node j to node i of graph k with a
    delay of d + 1 steps. Each connection has one delay. `labels`, (n,), is the cluster of each node. `density` is the
    fraction of ordered pairs of nodes that are connected, first within and then between clusters. `strength` is a pair:
    first the spectral radius of the weights within a cluster, summed over delays, then the standard deviation of the
    weights between clusters. With a spectral radius below 1, activity within a cluster decays, whatever the delays are.
    """
    n = len(labels)
    same = labels[:, None] == labels
    weights = np.zeros((len(rngs), lag, n, n))
    for world, rng in enumerate(rngs):
        edges = strength[1] * rng.standard_normal((n, n)) * (~same & (rng.random((n, n)) < density[1]))
        for cluster in np.unique(labels):
            nodes = np.flatnonzero(labels == cluster)
            edges[np.ix_(nodes, nodes)] = strength[0] * draw_cluster_weights(rng, len(nodes), density[0])
        delays = rng.integers(lag, size=(n, n))
        weights[world] = edges * (delays == np.arange(lag)[:, None, None])
    return weights


def draw_cluster_weights(rng: np.random.Generator, size: int, density: float) -> np.ndarray:
    """Draw the weights, (size, size), between the nodes of a cluster, with spectral radius 1.

    About a fraction `density` of the ordered pairs of nodes has a positive weight, and the others have 0. Graphs
    without a cycle have spectral radius 0 and are drawn again.
    """
    for _ in range(MAX_DRAWS):
        block: np.ndarray = rng.random((size, size)) * (rng.random((size, size)) < density) * ~np.eye(size, dtype=bool)
        radius = float(np.abs(np.linalg.eigvals(block)).max())
        if radius > 0:
            return block / radius
    raise must_be("density_within", f"large enough for a loop of edges among {size} nodes", density)


def simulate(
    rngs: Sequence[np.random.Generator],
    weights: np.ndarray,
    length: int,
    gain: float = 1.0,
    noise: float = 0.3,
    nonlinearity: str = "tanh",
) -> np.ndarray:
    """Simulate the activity of all networks at once, from random initial states.

    Returns the states of all nodes at T = `length` time points, (g, T, n). `rngs` are g random generators, and
    `weights`, (g, lag, n, n), are the connections from `graph`. The other parameters are fields of `NetworkSettings`.

    >>> rngs = [np.random.default_rng(0)]
    >>> round(float(simulate(rngs, np.zeros((1, 1, 4, 4)), 1_000, noise=0.5).std()), 2)
    0.5
    """
    g, lag, n, _ = weights.shape
    activation = NONLINEARITIES[nonlinearity]
    states = np.empty((g, lag + length, n))
    for world, rng in enumerate(rngs):
        rng.standard_normal(out=states[world])
    states[:, lag:] *= noise
    # weights of the longest delay come first, because `past` begins with the oldest state: (g, n, lag * n)
    flat = gain * weights[:, ::-1].transpose(0, 2, 1, 3).reshape(g, n, lag * n)
    with np.errstate(over="ignore", invalid="ignore"):
        for now in range(lag, lag + length):
            past = states[:, now - lag : now].reshape(g, lag * n, 1)
            states[:, now] += activation(flat @ past)[..., 0]
    return states[:, lag:]


def signal(weights: np.ndarray, states: np.ndarray, gain: float = 1.0, nonlinearity: str = "tanh") -> np.ndarray:
    """Return the signal, (g, T - lag, n): what each state would be if no noise were added in its time step.

    It is computed from the previous states. `states` has shape (g, T, n), and the first `lag` states have no signal.
    The other parameters are as in `simulate`.
    """
    lag, length = weights.shape[1], states.shape[1]
    with np.errstate(over="ignore", invalid="ignore"):
        parts = [states[:, lag - 1 - d : length - 1 - d] @ weights[:, d].swapaxes(1, 2) for d in range(lag)]
        return NONLINEARITIES[nonlinearity](gain * np.sum(parts, axis=0))


def dynamics_warnings(states: np.ndarray, drive: np.ndarray, labels: np.ndarray, bounded: bool = True) -> list[str]:
    """Check the activity of each world (simulated network), and return a sentence for each world with a problem.

    The activity should not diverge, nor be constant, saturated, mostly noise or without clusters. `states`, (g, T, n),
    is the activity, and `drive`, (g, t, n), is the signal of the last t states (see `signal`). `labels`, (n,), is the
    cluster of each node. `bounded` says whether the activation function is bounded.
    """
    problems = [_problem(state, part, labels, bounded) for state, part in zip(states, drive, strict=True)]
    return [f"world {world} {problem}" for world, problem in enumerate(problems) if problem]


def _problem(state: np.ndarray, drive: np.ndarray, labels: np.ndarray, bounded: bool) -> str:
    """Return the first problem of one world as a clause, or "". The arguments are as in `dynamics_warnings`."""
    end = state[-len(drive) :]
    if not np.isfinite(state).all() or np.abs(state).max() > MAX_VALUE:
        return f"blows up: values pass {MAX_VALUE:,.0f}; lower gain or the strengths."
    if constant := int((end.std(axis=0) < MIN_DEVIATION).sum()):
        channels = f"{constant} of {len(labels)} channels"
        return f"dies: {channels} are nearly constant in the end; raise noise, gain or strength_within."
    saturated = float((np.abs(drive) > SATURATION_BOUND).mean())
    if bounded and saturated > MAX_SATURATED_FRACTION:
        beyond = f"{saturated:.0%} of its signal lies beyond {SATURATION_BOUND} of a bound of 1"
        return f"is saturated: {beyond}; lower gain or the strengths."
    signal_fraction = float((drive.var(axis=0) / end.var(axis=0)).mean())
    if signal_fraction < MIN_SIGNAL_FRACTION:
        return f"is little but noise: {signal_fraction:.1%} of its variance is signal; raise gain or strength_within."
    within, between = cohesion(state, labels)
    if within - between < MIN_COHESION:
        remedy = "bring gain times strength_within near 1, raise density_within or lower strength_between"
        correlations = f"correlations are {within:.2f} within clusters and {between:.2f} between them"
        return f"has lost its modules: {correlations}; {remedy}."
    return ""


def cohesion(state: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Return the mean correlation of two nodes of the same cluster, and of two nodes of different clusters.

    `state`, (T, n), is the activity of the nodes, and `labels`, (n,), is the cluster of each node.
    """
    correlation = np.corrcoef(state, rowvar=False)
    same = labels[:, None] == labels
    return float(correlation[same & ~np.eye(len(labels), dtype=bool)].mean()), float(correlation[~same].mean())


def cluster_sizes(nodes: int, clusters: int, sizes: Sequence[int] = ()) -> tuple[int, ...]:
    """Return the number of nodes in each cluster: `sizes` if there are any, otherwise nearly equal numbers.

    >>> cluster_sizes(11, 3)
    (4, 4, 3)
    """
    if sizes:
        if len(sizes) < 2 or sum(sizes) != nodes:
            raise must_be("sizes", f"two or more whole numbers of at least 2 that add up to nodes ({nodes})", sizes)
        return tuple(sizes)
    if clusters > nodes // 2:
        raise must_be("clusters", f"a whole number from 2 to half of the {nodes} nodes", clusters)
    return tuple(nodes // clusters + (cluster < nodes % clusters) for cluster in range(clusters))
