"""A network with known clusters: a nonlinear autoregressive process on a modular random graph, simulated.

x(t + 1) = f(gain * W x(t)) + noise, one channel for each node. Nodes of a cluster drive each other, clusters hardly do;
so the activity of a hidden node is told best by nodes of its own cluster, and the clusters are what there is to find.

>>> task = Network(train=2_000, test=500, worlds=2)
>>> {name: tuple(split.inputs.shape) for name, split in task.splits.items()}
{'train': (2, 2000, 100), 'test': (2, 500, 100)}
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from placecode.errors import BadInput, must_be
from placecode.tasks.masked import Masked, recordings
from placecode.validation import choice, flag, is_whole, real_number, whole_number

NONLINEARITIES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "tanh": np.tanh,
    "relu": lambda drive: np.clip(drive, 0, 1),
    "linear": lambda drive: drive,
}
"""What a node makes of its input: tanh within -1 and 1, relu within 0 and 1 (clipped, or positive weights would have it
grow for ever), linear without bounds."""
GRID = 4096
"""Data are rounded to 1/GRID of a standard deviation: the last digits of a float64 differ between processors, those of
the data, and with them the hash in the record, practically never."""
DRAWS = 1_000
"""How many graphs to draw for a cluster before giving up."""
PROBE = 2_000
"""Steps at the end of the training set from which signal is told from noise."""
CONSTANT, LARGEST = 0.01, 1e4
"""A standard deviation below it is nearly constant; values beyond it blow up."""
BOUND, SATURATED = 0.9, 0.5
"""A bounded signal beyond BOUND for more than this share of the time is saturated."""
FAINT, CLEAR = 0.05, 0.05
"""The least share of the variance that is signal, and the least excess of correlations within over between clusters."""
LEAST_TIMES = 10
"""Time points to learn from: with fewer, no baseline can be fitted."""


class Network(Masked):
    """`worlds` networks of `nodes` in `clusters` (as equal as can be, or of these `sizes`), each a graph of its own.

    Of all ordered pairs of nodes a share `density_within` or `density_between` is connected. Weights within a cluster
    are positive and scaled so that its block has the spectral radius `strength_within`; weights between clusters are
    normal with the standard deviation `strength_between`. With a `lag` above 1 every edge has a delay of its own, drawn
    from 1 to lag. After `burn_in` steps come `train` time points, a `gap` that nobody sees, and `test` time points; all
    are standardized by the mean and standard deviation of the training points. Clusters are neighbours in the order of
    the channels, of which a fixed positional encoding can make use, unless they are `shuffled`.

    `labels` (n,) are the clusters, the same in all worlds; `weights` (g, lag, n, n) lead from the last axis to the one
    before.
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
        real_number("density_within", density_within, above=0, most=1)
        real_number("density_between", density_between, least=0, most=1)
        strengths = {"strength_within": strength_within, "strength_between": strength_between}
        for name, value in {**strengths, "gain": gain, "noise": noise}.items():
            real_number(name, value, least=0)
        choice("nonlinearity", nonlinearity, NONLINEARITIES)
        whole_number("lag", lag, 1)
        whole_number("window", window, 1)
        whole_number("train", train, max(LEAST_TIMES, window + lag + 1))
        whole_number("test", test, window)
        for name, value in {"burn_in": burn_in, "gap": gap, "seed": seed}.items():
            whole_number(name, value, 0)
        whole_number("worlds", worlds, 1)
        flag("shuffled", shuffled)

        order, data = np.random.SeedSequence(seed).spawn(2)
        streams = [child.spawn(2) for child in data.spawn(worlds)]  # world k is the same however many there are
        wiring, driving = ([np.random.default_rng(stream[part]) for stream in streams] for part in (0, 1))
        labels = np.repeat(np.arange(len(sizes)), sizes)
        if shuffled:
            labels = np.random.default_rng(order).permutation(labels)
        density, strength = (density_within, density_between), (strength_within, strength_between)
        weights = graph(wiring, labels, density, strength, lag)
        states = simulate(driving, weights, burn_in + train + gap + test, gain, noise, nonlinearity)
        seen = states[:, burn_in : burn_in + train]
        drive = signal(weights, seen[:, -PROBE - lag :], gain, nonlinearity)
        parts = dict(zip(("train", "test"), standardize(seen, states[:, -test:]), strict=True))
        for world in range(worlds):
            if not all(np.isfinite(part[world]).all() for part in parts.values()):
                raise BadInput(f"world {world} must stay finite, and blows up; lower gain or the strengths.")
        for sentence in complaints(seen, drive, labels, bounded=nonlinearity != "linear"):
            warnings.warn(sentence, stacklevel=2)
        super().__init__({name: recordings([part], window) for name, part in parts.items()}, window, ratios, seed)

        self.labels, self.weights = labels, weights
        self.token_names = tuple(f"node {node + 1}" for node in range(nodes))
        self.options: dict[str, Any] = {
            "sizes": [int(size) for size in sizes],
            "density_within": float(density_within),
            "density_between": float(density_between),
            "strength_within": float(strength_within),
            "strength_between": float(strength_between),
            "gain": float(gain),
            "noise": float(noise),
            "nonlinearity": nonlinearity,
            "lag": int(lag),
            "train": int(train),
            "test": int(test),
            "burn_in": int(burn_in),
            "gap": int(gap),
            "shuffled": shuffled,
        }

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), **self.options}


def graph(
    rngs: Sequence[np.random.Generator],
    labels: np.ndarray,
    density: tuple[float, float] = (0.4, 0.1),
    strength: tuple[float, float] = (1.0, 0.05),
    lag: int = 1,
) -> np.ndarray:
    """A modular random graph from each generator: weights (g, lag, n, n), no node connected to itself.

    Pairs are (within, between) clusters. `weights[g, d, i, j]` leads from node j to node i in d + 1 steps; an edge has
    one delay. The spectral radius of a cluster is that of its block summed over delays, which with positive weights
    decides whether activity fades (below 1) whatever the delays.
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
    """Sparse positive weights (size, size) of spectral radius 1; drawn again while no loop of edges gives them any."""
    for _ in range(DRAWS):
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
    """The process on graphs (g, lag, n, n), all at once, from a random start: (g, length, n), not standardized.

    >>> rngs = [np.random.default_rng(0)]
    >>> round(float(simulate(rngs, np.zeros((1, 1, 4, 4)), 1_000, noise=0.5).std()), 2)
    0.5
    """
    g, lag, n, _ = weights.shape
    shape = NONLINEARITIES[nonlinearity]
    states = np.empty((g, lag + length, n))
    for world, rng in enumerate(rngs):
        rng.standard_normal(out=states[world])
    states[:, lag:] *= noise
    flat = gain * weights[:, ::-1].transpose(0, 2, 1, 3).reshape(g, n, lag * n)  # the oldest first, as in `states`
    with np.errstate(over="ignore", invalid="ignore"):
        for now in range(lag, lag + length):
            past = states[:, now - lag : now].reshape(g, lag * n, 1)
            states[:, now] += shape(flat @ past)[..., 0]
    return states[:, lag:]


def signal(weights: np.ndarray, states: np.ndarray, gain: float = 1.0, nonlinearity: str = "tanh") -> np.ndarray:
    """What of each state the earlier ones decide, all but the noise: (g, T - lag, n) from states (g, T, n)."""
    lag, length = weights.shape[1], states.shape[1]
    with np.errstate(over="ignore", invalid="ignore"):
        parts = [states[:, lag - 1 - d : length - 1 - d] @ weights[:, d].swapaxes(1, 2) for d in range(lag)]
        return NONLINEARITIES[nonlinearity](gain * np.sum(parts, axis=0))


def complaints(states: np.ndarray, drive: np.ndarray, labels: np.ndarray, bounded: bool = True) -> list[str]:
    """What is wrong with the dynamics, a sentence for each world that fails: states (g, T, n), their last signals."""
    found = []
    for world, (state, part) in enumerate(zip(states, drive, strict=True)):
        end = state[-len(part) :]
        if not np.isfinite(state).all() or np.abs(state).max() > LARGEST:
            found.append(f"world {world} blows up: values pass {LARGEST:,.0f}; lower gain or the strengths.")
        elif still := int((end.std(axis=0) < CONSTANT).sum()):
            found.append(
                f"world {world} dies: {still} of {len(labels)} channels are nearly constant in the end; "
                "raise noise, gain or strength_within."
            )
        elif bounded and (share := float((np.abs(part) > BOUND).mean())) > SATURATED:
            found.append(
                f"world {world} is saturated: {share:.0%} of its signal lies beyond {BOUND} of a bound of 1; "
                "lower gain or the strengths."
            )
        elif (share := float((part.var(axis=0) / end.var(axis=0)).mean())) < FAINT:
            found.append(
                f"world {world} is little but noise: {share:.1%} of its variance is signal; "
                "raise gain or strength_within."
            )
        elif np.subtract(*(both := cohesion(state, labels))) < CLEAR:
            found.append(
                f"world {world} has lost its modules: correlations are {both[0]:.2f} within clusters and {both[1]:.2f} "
                "between them; bring gain times strength_within near 1, raise density_within or lower strength_between."
            )
    return found


def cohesion(state: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """The mean correlation of two channels of one cluster, and of two clusters, from (T, n)."""
    correlation = np.corrcoef(state, rowvar=False)
    same = labels[:, None] == labels
    return float(correlation[same & ~np.eye(len(labels), dtype=bool)].mean()), float(correlation[~same].mean())


def standardize(train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """These and other data (g, T, n) by the mean and standard deviation of each channel of `train`, as float32."""
    made = [np.empty(part.shape, dtype=np.float32) for part in (train, *others)]
    with np.errstate(over="ignore", invalid="ignore"):
        for world, known in enumerate(train):
            mean, deviation = known.mean(axis=0), known.std(axis=0)
            deviation[deviation == 0] = 1  # a constant channel is zero everywhere
            for target, part in zip(made, (train, *others), strict=True):
                target[world] = np.round((part[world] - mean) / deviation * GRID) / GRID
    return made


def cluster_sizes(nodes: int, clusters: int, sizes: Sequence[int] | None = None) -> tuple[int, ...]:
    """How many nodes each cluster has: as equal as can be, unless given.

    >>> cluster_sizes(11, 3)
    (4, 4, 3)
    """
    whole_number("nodes", nodes, 4)
    if sizes is not None:
        listed = isinstance(sizes, Sequence) and len(sizes) > 1 and all(is_whole(size) and size > 1 for size in sizes)
        if not listed or sum(sizes) != nodes:
            raise must_be("sizes", f"two or more whole numbers of at least 2 that add up to nodes ({nodes})", sizes)
        return tuple(sizes)
    if not is_whole(clusters) or not 2 <= clusters <= nodes // 2:
        raise must_be("clusters", f"a whole number from 2 to half of the {nodes} nodes", clusters)
    return tuple(nodes // clusters + (cluster < nodes % clusters) for cluster in range(clusters))
