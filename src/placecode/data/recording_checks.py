"""Are recordings what they seem? Constant regions, little autocorrelation, one person twice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placecode.data.recording_files import Recording
from placecode.errors import BadInput, must_be

LEAST_TIMES = 50
"""Time points that a person must have."""
FLAT = 0.2
"""Autocorrelation from one time point to the next, median over regions, below which a recording is doubted. Set with
the people of gw in sight, who have 0.01, 0.13, 0.28, 0.44 and 0.64: a hint where to look, not a test."""
SAME = 0.95
"""Correlation of two recordings above which they are taken for one."""


def check(persons: Sequence[Recording], names: Sequence[str]) -> list[str]:
    """Refuse recordings that cannot be used; what is doubtful is returned, a sentence for each doubt."""
    doubts = []
    for person in persons:
        times, regions = person.values.shape
        if times < LEAST_TIMES:
            hint = "; is it time x region?" if regions > times else "."
            raise BadInput(f"{person.person} must have at least {LEAST_TIMES} time points; got {times}{hint}")
        if regions < 2:
            raise must_be(f"The number of regions of {person.person}", "at least 2", regions)
        _sound(person.person, person.values, names)
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
    for first, second, alike in twins(persons):
        why = f"{first} and {second} hold the same recording (correlation {alike:.3f})"
        raise BadInput(f"Every person must be there once, or the test would be no test; {why}.")
    return doubts


def _sound(
    whose: str, values: np.ndarray, names: Sequence[str], when: str = "", size: np.ndarray | None = None
) -> None:
    """Refuse values that are no finite numbers, or the same at all times but for rounding, as told by their `size`."""
    finite = np.isfinite(values).all(axis=0)
    kept = np.where(finite, values, 0.0)
    size = np.abs(kept).max(axis=0) if size is None else size
    same = finite & ~(kept.std(axis=0) > 1e-9 * size)
    for what, bad in (("values that are no numbers", ~finite), ("the same value at all times", same)):
        if bad.any():
            which = [names[int(i)] for i in np.flatnonzero(bad)]
            more = f" and {len(which) - 5} more" if len(which) > 5 else ""
            raise BadInput(f"{whose} has {what}{when} in {', '.join(which[:5])}{more}; mend or leave out the region.")


def autocorrelation(values: np.ndarray) -> float:
    """Correlation of a time point with the next, the median over regions (T, n).

    >>> round(autocorrelation(np.sin(np.arange(400)[:, None] / 5)), 2)
    0.98
    """
    centred = values - values.mean(axis=0)
    return float(np.median((centred[1:] * centred[:-1]).sum(axis=0) / (centred**2).sum(axis=0)))


def twins(persons: Sequence[Recording], places: int = 4096) -> list[tuple[str, str, float]]:
    """Pairs of people whose recordings are the same but for scale, offset, rounding, or a cut at either end.

    Compared at up to `places` places spread over as much time as all have, from the beginning and from the end: two
    people at rest are alike at none.
    """
    least = min(len(person.values) for person in persons)
    spread = np.unique(np.linspace(0, least * persons[0].values.shape[1] - 1, places).astype(int))
    alike = np.full((len(persons), len(persons)), -1.0)
    for cut in ([person.values[:least] for person in persons], [person.values[-least:] for person in persons]):
        flat = np.stack([((part - part.mean(0)) / part.std(0).clip(1e-300)).ravel()[spread] for part in cut])
        alike = np.maximum(alike, np.corrcoef(flat))
    pairs = np.argwhere(np.triu(alike > SAME, 1))
    return [(persons[i].person, persons[j].person, float(alike[i, j])) for i, j in pairs]
