"""Measure the robustness of models (members) to noise, from their accuracy at increasing noise levels.

The first level is zero (no noise). All functions accept any leading axes (members, splits, ...) and return one result
for each index along them. Results are NaN for members that diverged, and for members that are not better than chance
without noise.

>>> accuracy = [[1.0, 0.75, 0.5], [1.0, 1.0, 0.875]]  # (e, levels)
>>> tolerance(accuracy, [0.0, 0.1, 0.2], chance=0.5)
array([0.1, inf])
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placecode.arrays import Array
from placecode.errors import must_be


def retained(accuracy: npt.ArrayLike, chance: float) -> Array:
    """Return the accuracy above chance at each noise level, as a fraction of the accuracy above chance without noise.

    Parameters
    ----------
    accuracy : array-like, shape (..., levels)
        Accuracy at each noise level. The first level is no noise.
    chance : float
        Chance level of the accuracy.

    Returns
    -------
    ndarray, shape (..., levels)
        1 without noise, 0 at chance. NaN if the accuracy without noise is not above chance.
    """
    values = np.asarray(accuracy, dtype=np.float64)
    if values.ndim < 1 or values.shape[-1] < 1:
        raise must_be("accuracy", "an array whose last axis is levels of noise", values.shape)
    without_noise = values[..., :1] - chance
    return np.asarray((values - chance) / np.where(without_noise > 0, without_noise, np.nan))


def tolerance(accuracy: npt.ArrayLike, levels: npt.ArrayLike, chance: float) -> Array:
    """Return the noise level at which the accuracy above chance has fallen by half, by linear interpolation.

    Parameters
    ----------
    accuracy : array-like, shape (..., levels)
        Accuracy at each noise level. The first level is no noise.
    levels : array-like, shape (levels,)
        Increasing noise levels.
    chance : float
        Chance level of the accuracy.

    Returns
    -------
    ndarray, shape (...)
        inf if it falls by less than half at all levels. NaN if the accuracy without noise is not above chance, or if
        an accuracy is NaN.
    """
    fraction, noise = retained(accuracy, chance), np.asarray(levels, dtype=np.float64)
    if noise.shape != fraction.shape[-1:] or (np.diff(noise) <= 0).any():
        raise must_be("levels", f"{fraction.shape[-1]} rising levels of noise", noise.tolist())
    after = (fraction <= 0.5).argmax(axis=-1)[..., None]  # 0 if it never falls to half: the first fraction is 1
    before = np.maximum(after - 1, 0)
    high, low = np.take_along_axis(fraction, before, axis=-1), np.take_along_axis(fraction, after, axis=-1)
    weight = (high - 0.5) / np.where(after > 0, high - low, 1.0)
    level = np.where(after > 0, noise[before] + weight * (noise[after] - noise[before]), np.inf)[..., 0]
    return np.where(np.isnan(fraction).any(axis=-1), np.nan, level)
