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

import numpy as np

from placecode.errors import BadInput, must_be
from placecode.tasks.masked import Masked, recordings
from placecode.validation import choice, flag, is_whole, real_number, whole_number

NONLINEARITIES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "tanh": np.tanh,
    "relu": lambda drive: np.clip(drive, 0, 1),
    "linear": lambda drive: drive,
}
"""Activation functions of the nodes. relu is clipped at 1, because with positive weights activity would grow without
bound."""
ROUNDING_STEPS = 4096
"""Data are rounded to multiples of 1 / 4096 standard deviations. Results of different processors differ in the last
digits of a float64, but after rounding the data, and their hash in config.json, are practically always equal."""
MAX_DRAWS = 1_000  # maximum number of random graphs that are drawn until one has a cycle, see `unit_block`
SIGNAL_STEPS = 2_000
"""Number of time points at the end of the training data from which the fraction of signal is estimated."""
MIN_DEVIATION, MAX_VALUE = 0.01, 1e4
"""A channel with a standard deviation below the first number is nearly constant. A value above the second means that
the process diverges. Both cause a warning."""
SATURATION_BOUND, MAX_SATURATED_FRACTION = 0.9, 0.5
"""A warning says that the signal is saturated if a larger fraction of its values than the second number exceeds the
first number in absolute value."""
MIN_SIGNAL_FRACTION, MIN_COHESION = 0.05, 0.05
"""A warning is given if the fraction of the variance that is signal is below the first number, or if the mean
correlation within clusters exceeds the one between clusters by less than the second number."""
LEAST_TIMES = 10  # smallest number of time points to train on; with fewer, baselines cannot be fitted


class Network(Masked):
    """Masked prediction of the activity of simulated networks with known clusters. Every world has another graph.

    Data are standardized with the mean and standard deviation of the training time points.

    Parameters
    ----------
    nodes : int
        Number of nodes, n.
    clusters : int
        Number of clusters of nearly equal size.
    sizes : sequence of int, optional
        Numbers of nodes of the clusters, instead of `clusters`.
    density_within, density_between : float
        Fraction of the ordered pairs of nodes that are connected, within and between clusters.
    strength_within : float
        Spectral radius of the weights within a cluster, which are positive.
    strength_between : float
        Standard deviation of the weights between clusters, which are normal.
    gain : float
        Factor by which the weighted sum of the inputs of a node is multiplied.
    noise : float
        Standard deviation of the noise that is added to each node in each time step.
    nonlinearity : {"tanh", "relu", "linear"}
        Activation function of the nodes, see `NONLINEARITIES`.
    lag : int
        Maximum delay of a connection, in time steps. Every connection has a random delay from 1 to `lag`.
    train, test : int
        Number of time points for training and testing.
    burn_in, gap : int
        Number of unused time points before the training data, and between training and test data.
    window : int
        Number of time points of an example.
    ratios : sequence of float
        Fractions of hidden channels at evaluation.
    shuffled : bool
        Whether the order of the channels is random. Otherwise the nodes of a cluster are neighbours, which a fixed
        positional encoding can use.
    worlds : int
        Number of independent networks, g. Seed s of a member uses network s modulo this number.
    seed : int
        Seed of the graphs, the noise, the order of the channels, and the hidden channels at evaluation.

    Attributes
    ----------
    labels : ndarray of int, shape (n,)
        Cluster of each node, equal in all worlds.
    weights : ndarray, shape (g, lag, n, n)
        Connections, see `graph`: from the node of the last axis to the node of the second last.
    """

    name = "network"

    def __init__(
        self,
        nodes: int = 100,
        clusters: int = 5,
        sizes: Sequence[int] | None = None,
        density_within: float = 0.4,
        density_between: float = 0.1,
        strength_within: float = 1.0,
        strength_between: float = 0.05,
        gain: float = 1.0,
        noise: float = 0.3,
        nonlinearity: str = "tanh",
        lag: int = 1,
        train: int = 20_000,
        test: int = 2_000,
        burn_in: int = 500,
        gap: int = 200,
        window: int = 1,
        ratios: Sequence[float] = (0.5, 0.9),
        shuffled: bool = False,
        worlds: int = 1,
        seed: int = 0,
    ) -> None:
        sizes = cluster_sizes(nodes, clusters, sizes)
        whole_number("window", window, 1)
        whole_number("worlds", worlds, 1)
        whole_number("seed", seed, 0)
        self.options = {
            "sizes": [int(size) for size in sizes],
            "density_within": real_number("density_within", density_within, above=0, most=1),
            "density_between": real_number("density_between", density_between, least=0, most=1),
            "strength_within": real_number("strength_within", strength_within, least=0),
            "strength_between": real_number("strength_between", strength_between, least=0),
            "gain": real_number("gain", gain, least=0),
            "noise": real_number("noise", noise, least=0),
            "nonlinearity": choice("nonlinearity", nonlinearity, NONLINEARITIES),
            "lag": whole_number("lag", lag, 1),
            "train": whole_number("train", train, max(LEAST_TIMES, window + lag + 1)),
            "test": whole_number("test", test, window),
            "burn_in": whole_number("burn_in", burn_in, 0),
            "gap": whole_number("gap", gap, 0),
            "shuffled": flag("shuffled", shuffled),
        }

        order, data = np.random.SeedSequence(seed).spawn(2)
        streams = [child.spawn(2) for child in data.spawn(worlds)]  # world k does not depend on the number of worlds
        wiring, driving = ([np.random.default_rng(stream[part]) for stream in streams] for part in (0, 1))
        labels = np.repeat(np.arange(len(sizes)), sizes)
        if shuffled:
            labels = np.random.default_rng(order).permutation(labels)
        density, strength = (density_within, density_between), (strength_within, strength_between)
        weights = graph(wiring, labels, density, strength, lag)
        states = simulate(driving, weights, burn_in + train + gap + test, gain, noise, nonlinearity)
        train_states = states[:, burn_in : burn_in + train]
        drive = signal(weights, train_states[:, -SIGNAL_STEPS - lag :], gain, nonlinearity)
        parts = dict(zip(("train", "test"), standardize(train_states, states[:, -test:]), strict=True))
        for world in range(worlds):
            if not all(np.isfinite(part[world]).all() for part in parts.values()):
                raise BadInput(f"world {world} must stay finite, but diverges; lower gain or the strengths.")
        for sentence in dynamics_warnings(train_states, drive, labels, bounded=nonlinearity != "linear"):
            warnings.warn(sentence, stacklevel=2)
        super().__init__({name: recordings([part], window) for name, part in parts.items()}, window, ratios, seed)

        self.labels, self.weights = labels, weights
        self.token_names = tuple(f"node {node + 1}" for node in range(nodes))


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
    fraction of ordered pairs that are connected, first within and then between clusters. `strength` is the spectral
    radius of the weights within a cluster, summed over delays, and the standard deviation of the weights between
    clusters. Activity within a cluster decays if its spectral radius is below 1, whatever the delays are.
    """
    n = len(labels)
    same = labels[:, None] == labels
    weights = np.zeros((len(rngs), lag, n, n))
    for world, rng in enumerate(rngs):
        edges = strength[1] * rng.standard_normal((n, n)) * (~same & (rng.random((n, n)) < density[1]))
        for cluster in np.unique(labels):
            nodes = np.flatnonzero(labels == cluster)
            edges[np.ix_(nodes, nodes)] = strength[0] * unit_block(rng, len(nodes), density[0])
        delays = rng.integers(lag, size=(n, n))
        weights[world] = edges * (delays == np.arange(lag)[:, None, None])
    return weights


def unit_block(rng: np.random.Generator, size: int, density: float) -> np.ndarray:
    """Draw sparse positive weights between the nodes of a cluster, (size, size), with spectral radius 1.

    `density` is the fraction of pairs that are connected. Graphs without a cycle have spectral radius 0 and are drawn
    again. Raises `BadInput` if `MAX_DRAWS` graphs have no cycle.
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
    `weights`, (g, lag, n, n), are the connections from `graph`. The other parameters are those of `Network`.

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

    It is computed from the previous states. `states` has shape (g, T, n), so the first `lag` states have no signal.
    """
    lag, length = weights.shape[1], states.shape[1]
    with np.errstate(over="ignore", invalid="ignore"):
        parts = [states[:, lag - 1 - d : length - 1 - d] @ weights[:, d].swapaxes(1, 2) for d in range(lag)]
        return NONLINEARITIES[nonlinearity](gain * np.sum(parts, axis=0))


def dynamics_warnings(states: np.ndarray, drive: np.ndarray, labels: np.ndarray, bounded: bool = True) -> list[str]:
    """Check the activity of each world, and return a sentence for each world with a problem.

    `states`, (g, T, n), is the activity, and `drive`, (g, t, n), is the signal of the last t states (see `signal`).
    `labels`, (n,), is the cluster of each node. `bounded` says whether the activation function is bounded.
    """
    problems = [_problem(state, part, labels, bounded) for state, part in zip(states, drive, strict=True)]
    return [f"world {world} {problem}" for world, problem in enumerate(problems) if problem]


def _problem(state: np.ndarray, drive: np.ndarray, labels: np.ndarray, bounded: bool) -> str:
    """Return a description of the first problem of a world with activity `state`, (T, n), or "" if there is none.

    `drive`, (t, n), is the signal of the last t states.
    """
    end = state[-len(drive) :]
    if not np.isfinite(state).all() or np.abs(state).max() > MAX_VALUE:
        return f"blows up: values pass {MAX_VALUE:,.0f}; lower gain or the strengths."
    constant = int((end.std(axis=0) < MIN_DEVIATION).sum())
    if constant:
        channels = f"{constant} of {len(labels)} channels"
        return f"dies: {channels} are nearly constant in the end; raise noise, gain or strength_within."
    share = float((np.abs(drive) > SATURATION_BOUND).mean())
    if bounded and share > MAX_SATURATED_FRACTION:
        beyond = f"{share:.0%} of its signal lies beyond {SATURATION_BOUND} of a bound of 1"
        return f"is saturated: {beyond}; lower gain or the strengths."
    share = float((drive.var(axis=0) / end.var(axis=0)).mean())
    if share < MIN_SIGNAL_FRACTION:
        return f"is little but noise: {share:.1%} of its variance is signal; raise gain or strength_within."
    within, between = cohesion(state, labels)
    if within - between < MIN_COHESION:
        remedy = "bring gain times strength_within near 1, raise density_within or lower strength_between"
        correlations = f"correlations are {within:.2f} within clusters and {between:.2f} between them"
        return f"has lost its modules: {correlations}; {remedy}."
    return ""


def cohesion(state: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Return the mean correlation of two nodes of the same cluster, and of two nodes of different clusters.

    `state`, (T, n), is the activity of the nodes, and `labels`, (n,), is the cluster of each.
    """
    correlation = np.corrcoef(state, rowvar=False)
    same = labels[:, None] == labels
    return float(correlation[same & ~np.eye(len(labels), dtype=bool)].mean()), float(correlation[~same].mean())


def standardize(train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Standardize data with the mean and standard deviation of each channel of the training data, in each world.

    Returns the training data, (g, T, n), and each of the `others`, for example test data, as float32. Values are
    rounded, see `ROUNDING_STEPS`.
    """
    standardized = [np.empty(part.shape, dtype=np.float32) for part in (train, *others)]
    with np.errstate(over="ignore", invalid="ignore"):
        for world, states in enumerate(train):
            mean, deviation = states.mean(axis=0), states.std(axis=0)
            deviation[deviation == 0] = 1  # a constant channel becomes zero
            for target, part in zip(standardized, (train, *others), strict=True):
                target[world] = np.round((part[world] - mean) / deviation * ROUNDING_STEPS) / ROUNDING_STEPS
    return standardized


def cluster_sizes(nodes: int, clusters: int, sizes: Sequence[int] | None = None) -> tuple[int, ...]:
    """Return the number of nodes in each cluster: `sizes` if they are given, otherwise nearly equal numbers.

    Raises `BadInput` if the settings do not fit together.

    >>> cluster_sizes(11, 3)
    (4, 4, 3)
    """
    whole_number("nodes", nodes, 4)
    if sizes is not None:
        valid = isinstance(sizes, Sequence) and len(sizes) > 1 and all(is_whole(size) and size > 1 for size in sizes)
        if not valid or sum(sizes) != nodes:
            raise must_be("sizes", f"two or more whole numbers of at least 2 that add up to nodes ({nodes})", sizes)
        return tuple(sizes)
    if not is_whole(clusters) or not 2 <= clusters <= nodes // 2:
        raise must_be("clusters", f"a whole number from 2 to half of the {nodes} nodes", clusters)
    return tuple(nodes // clusters + (cluster < nodes % clusters) for cluster in range(clusters))
