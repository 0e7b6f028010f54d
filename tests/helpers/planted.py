"""Make up similarity matrices with and without groups, and random rotations."""

import numpy as np

from placecode.analysis.alignment import token_similarity

GROUPS = np.repeat(np.arange(4), [8, 6, 6, 4])


def noise(rng, *lead: int, n: int = 24) -> np.ndarray:
    """Return random symmetric matrices (..., n, n) of both signs. Their diagonal is random too, and must not matter."""
    half = rng.normal(size=(*lead, n, n))
    return (half + np.swapaxes(half, -1, -2)) / 2


def planted(rng, strength: float, members: int = 3) -> np.ndarray:
    """Return the similarity of PEs (members, n, n) in which GROUPS have been planted with this strength."""
    pe = rng.normal(size=(members, 2, 24, 6))
    pe[..., :4] += strength * np.eye(4)[GROUPS]
    return token_similarity(pe)


def rotation(rng, d: int) -> np.ndarray:
    """Return a random orthogonal matrix (d, d)."""
    return np.linalg.qr(rng.normal(size=(d, d)))[0]
