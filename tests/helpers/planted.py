"""Similarities with and without groups, for tests of what finds them."""

import numpy as np
import numpy.typing as npt

from placecode.analysis.modules import similarities

Array = npt.NDArray[np.float64]
GROUPS = np.repeat(np.arange(4), [8, 6, 6, 4])


def noise(rng: np.random.Generator, *lead: int, n: int = 24) -> Array:
    """Symmetric matrices of both signs, whose diagonal must not matter."""
    half = rng.normal(size=(*lead, n, n))
    return (half + np.swapaxes(half, -1, -2)) / 2


def planted(rng: np.random.Generator, strength: float, members: int = 3) -> Array:
    pe = rng.normal(size=(members, 2, 24, 6))
    pe[..., :4] += strength * np.eye(4)[GROUPS]
    return similarities(pe)[-1]
