"""Checks of brain recordings: too short, constant regions, time points out of order, the same recording twice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placecode.data.recording_files import Recording
from placecode.errors import BadInput, must_be

LEAST_TIMES = 50  # smallest number of time points of a recording
FLAT = 0.2
"""A recording with a lower lag-1 autocorrelation (median over regions) causes a warning. The limit was chosen with
knowledge of the data set gw, whose recordings have 0.01, 0.13, 0.28, 0.44 and 0.64. It is not a statistical test."""
SAME = 0.95  # two recordings with a higher correlation count as the same recording


def check(persons: Sequence[Recording], names: Sequence[str]) -> list[str]:
    """Return a list of warnings about the recordings of all `persons`, empty if nothing is questionable.

    A warning is due to low autocorrelation or to more regions than time points. Raises `BadInput` if a recording cannot
    be used: too few time points or regions, constant regions, values that are not finite, or the same recording twice.
    `names` are the names of the regions.
    """
    doubts = []
    for person in persons:
        times, regions = person.values.shape
        if times < LEAST_TIMES:
            hint = "; is it time x region?" if regions > times else "."
            raise BadInput(f"{person.person} must have at least {LEAST_TIMES} time points; got {times}{hint}")
        if regions < 2:
            raise must_be(f"The number of regions of {person.person}", "at least 2", regions)
        check_regions(person.person, person.values, names)
        steps = autocorrelation(person.values)
        if steps < FLAT:
            doubts.append(
                f"{person.person} has little autocorrelation, {steps:.2f} from one time point to the next (median over "
                f"regions), below {FLAT}: are its time points in order?"
            )
    times, regions = persons[0].values.shape
    if regions > times:
        more = f"more regions ({regions}) than time points ({times})"
        doubts.append(f"{persons[0].person} has {more}: is it time x region?")
    for first, second, alike in equal_recordings(persons):
        why = f"{first} and {second} hold the same recording (correlation {alike:.3f})"
        raise BadInput(f"Every person must be there once, or the test would be no test; {why}.")
    return doubts


def check_regions(
    whose: str, values: np.ndarray, names: Sequence[str], when: str = "", size: np.ndarray | None = None
) -> None:
    """Raise `BadInput` if a region has values that are not finite, or is constant.

    A region is constant if its standard deviation is at most 1e-9 of `size`, (n,), by default its largest absolute
    value. In the message, `whose` is the name of the person, `names` are those of the regions, and `when` says after
    which step of processing the values, (T, n), were checked.
    """
    finite = np.isfinite(values).all(axis=0)
    filled = np.where(finite, values, 0.0)
    size = np.abs(filled).max(axis=0) if size is None else size
    constant = finite & ~(filled.std(axis=0) > 1e-9 * size)
    for what, bad in (("values that are no numbers", ~finite), ("the same value at all times", constant)):
        if bad.any():
            which = [names[int(i)] for i in np.flatnonzero(bad)]
            more = f" and {len(which) - 5} more" if len(which) > 5 else ""
            raise BadInput(f"{whose} has {what}{when} in {', '.join(which[:5])}{more}; mend or leave out the region.")


def autocorrelation(values: np.ndarray) -> float:
    """Return the lag-1 autocorrelation of a recording, (T, n), as the median over its n regions.

    >>> round(autocorrelation(np.sin(np.arange(400)[:, None] / 5)), 2)
    0.98
    """
    centred = values - values.mean(axis=0)
    return float(np.median((centred[1:] * centred[:-1]).sum(axis=0) / (centred**2).sum(axis=0)))


def equal_recordings(persons: Sequence[Recording], places: int = 4096) -> list[tuple[str, str, float]]:
    """Return all pairs of people whose recordings are the same: two names and the correlation of the recordings.

    Recordings count as the same even if they differ in the scale and offset of regions, in rounding, or in time points
    that are missing at the beginning or at the end. The correlation is computed from up to `places` standardized
    values, with the recordings aligned at the beginning or at the end, whichever gives the higher one.
    """
    shortest = min(len(person.values) for person in persons)
    sample = np.unique(np.linspace(0, shortest * persons[0].values.shape[1] - 1, places).astype(int))
    similar = np.full((len(persons), len(persons)), -1.0)
    for cut in ([person.values[:shortest] for person in persons], [person.values[-shortest:] for person in persons]):
        flat = np.stack([((part - part.mean(0)) / part.std(0).clip(1e-300)).ravel()[sample] for part in cut])
        similar = np.maximum(similar, np.corrcoef(flat))
    pairs = np.argwhere(np.triu(similar > SAME, 1))
    return [(persons[i].person, persons[j].person, float(similar[i, j])) for i, j in pairs]
