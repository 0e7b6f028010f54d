"""Similarities with and without groups, and random rotations."""

import numpy as np

from placecode.analysis.modules import similarities

GROUPS = np.repeat(np.arange(4), [8, 6, 6, 4])


def noise(rng, *lead: int, n: int = 24) -> np.ndarray:
    """Symmetric matrices of both signs, whose diagonal must not matter."""
    half = rng.normal(size=(*lead, n, n))
    return (half + np.swapaxes(half, -1, -2)) / 2


def planted(rng, strength: float, members: int = 3) -> np.ndarray:
    pe = rng.normal(size=(members, 2, 24, 6))
    pe[..., :4] += strength * np.eye(4)[GROUPS]
    return similarities(pe)[-1]


def rotation(rng, d: int) -> np.ndarray:
    """A random orthogonal matrix, (d, d)."""
    return np.linalg.qr(rng.normal(size=(d, d)))[0]
