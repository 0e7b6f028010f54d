"""How much noise a member bears, from its accuracy at rising levels of noise, the first of which is none.

Every function takes leading axes (members, splits, ...) and gives one result per entry. NaN (a member that diverged, or
one that is no better than chance and has nothing to lose) stays with its entry.

>>> accuracy = [[1.0, 0.75, 0.5], [1.0, 1.0, 0.875]]  # (e, levels)
>>> tolerance(accuracy, [0.0, 0.1, 0.2], chance=0.5)
array([0.1, inf])
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placecode.errors import must_be

Array = npt.NDArray[np.float64]


def retained(accuracy: npt.ArrayLike, chance: float) -> Array:
    """What is left of the accuracy above chance, (..., levels) -> (..., levels): 1 without noise, 0 at chance.

    NaN where the member is no better than chance without noise.
    """
    values = np.asarray(accuracy, dtype=np.float64)
    if values.ndim < 1 or values.shape[-1] < 1:
        raise must_be("accuracy", "an array whose last axis is levels of noise", values.shape)
    most = values[..., :1] - chance
    return np.asarray((values - chance) / np.where(most > 0, most, np.nan))


def tolerance(accuracy: npt.ArrayLike, levels: npt.ArrayLike, chance: float) -> Array:
    """The noise at which half of the accuracy above chance is lost, (..., levels) and (levels,) -> (...).

    Linear between the last level before the first loss of half and the one after; inf where no level takes half. NaN as
    in `retained`, and where the accuracy at any level is NaN.
    """
    left, noise = retained(accuracy, chance), np.asarray(levels, dtype=np.float64)
    if noise.shape != left.shape[-1:] or (np.diff(noise) <= 0).any():
        raise must_be("levels", f"{left.shape[-1]} rising levels of noise", noise.tolist())
    after = (left <= 0.5).argmax(axis=-1)[..., None]  # 0 where no level takes half: the first takes nothing
    before = np.maximum(after - 1, 0)
    high, low = np.take_along_axis(left, before, axis=-1), np.take_along_axis(left, after, axis=-1)
    share = (high - 0.5) / np.where(after > 0, high - low, 1.0)
    found = np.where(after > 0, noise[before] + share * (noise[after] - noise[before]), np.inf)[..., 0]
    return np.where(np.isnan(left).any(axis=-1), np.nan, found)
