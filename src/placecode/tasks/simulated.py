"""Functions for tasks with simulated or randomly drawn data: seeds, order of the channels, standardization.

`network`, `synergy` and `pixels` use them. Such a task may have several worlds, which are independent realizations of
its data.
"""

from __future__ import annotations

import numpy as np

from placecode.tasks.masked import Recordings, join_recordings
from placecode.validation import whole_number

MIN_TRAINING_SAMPLES = 10  # smallest number of training samples (or time points); baselines cannot be fitted to fewer
ROUNDING_STEPS = 4096
"""Data are rounded to multiples of 1 / 4096 standard deviations. Results of different processors differ in the last
digits of a float64, but after rounding the data, and their hash in config.json, are practically always equal."""


def split_seed(worlds: int, seed: int) -> tuple[np.random.SeedSequence, list[np.random.SeedSequence]]:
    """Derive from `seed` one seed for the order of the channels, and a list of `worlds` seeds, one per world.

    The seed of a world does not depend on the number of worlds. Raises `BadInput` if `worlds` is less than 1 or `seed`
    is negative.
    """
    whole_number("worlds", worlds, 1)
    whole_number("seed", seed, 0)
    order, data = np.random.SeedSequence(seed).spawn(2)
    return order, data.spawn(worlds)


def channel_order(count: int, shuffled: bool, seed: np.random.SeedSequence) -> np.ndarray:
    """Return the indices of `count` channels, (count,), in random order if `shuffled`, otherwise 0, 1, 2 ..."""
    return np.random.default_rng(seed).permutation(count) if shuffled else np.arange(count)


def standardized_splits(train: np.ndarray, test: np.ndarray, window: int = 1) -> dict[str, Recordings]:
    """Standardize each channel of each world with its mean and standard deviation in the training data.

    `train`, (g, T, n), and `test`, (g, t, n), are T and t time points of n channels in g worlds. Returns the splits
    "train" and "test", in which an example is a window of `window` time points. Values are rounded, see
    `ROUNDING_STEPS`.
    """
    standardized = [np.empty(part.shape, dtype=np.float32) for part in (train, test)]
    with np.errstate(over="ignore", invalid="ignore"):
        for world, states in enumerate(train):
            mean, deviation = states.mean(axis=0), states.std(axis=0)
            deviation[deviation == 0] = 1  # a constant channel becomes zero
            for target, part in zip(standardized, (train, test), strict=True):
                target[world] = np.round((part[world] - mean) / deviation * ROUNDING_STEPS) / ROUNDING_STEPS
    return {name: join_recordings([part], window) for name, part in zip(("train", "test"), standardized, strict=True)}
