"""Choose sigma: among the values that predict as well as the best, take the one whose PEs agree most.

A model can predict well with an uninformative PE, such as a frozen random one. So the validation error alone does not
identify a useful map. Of the sigmas whose validation error is within one standard error of the lowest, the one is
chosen whose PEs agree most between seeds and between halves of the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placecode.analysis.agreement import channel_confidence

Array = npt.NDArray[np.float64]

BLOCKS = 10
"""Number of blocks of consecutive samples for the standard error, since neighbouring samples are correlated."""
MIN_GROUPS = 4
"""Minimum number of groups for a standard error over groups."""


class Choice(NamedTuple):
    """The chosen sigma."""

    sigma: float
    why: str
    """The reason in one sentence."""
    table: list[dict[str, float]]
    """For each sigma: sigma, error, standard_error and stability."""


def choose(
    errors: Mapping[float, Array], pes: Mapping[float, Array], pieces: npt.NDArray[np.int64] | None = None
) -> Choice:
    """Choose a sigma by the errors (m, N) of its models on masked validation samples, and by its PEs (m, l, n, d).

    `pieces` (N,) is the group or block of each sample. Samples of one group are not independent, so the standard error
    is computed over groups. Without groups, or with fewer than MIN_GROUPS, it is computed over BLOCKS blocks of
    consecutive samples.
    """
    table = []
    if pieces is not None and len(np.unique(pieces)) < MIN_GROUPS:
        pieces = None
    for sigma in sorted(errors):
        sample_errors = errors[sigma].mean(axis=0)
        count = len(sample_errors)
        blocks = np.arange(count) * min(BLOCKS, count) // count if pieces is None else pieces
        means = np.array([sample_errors[blocks == block].mean() for block in np.unique(blocks)])
        standard_error = float(means.std(ddof=1) / np.sqrt(len(means))) if len(means) > 1 else 0.0
        row = {"sigma": sigma, "error": float(errors[sigma].mean()), "standard_error": standard_error}
        table.append({**row, "stability": stability(pes[sigma])})
    best = min(table, key=lambda row: row["error"])
    limit = best["error"] + best["standard_error"]
    as_good = [row for row in table if row["error"] <= limit]
    chosen = max(as_good, key=lambda row: (np.nan_to_num(row["stability"], nan=-1.0), -row["sigma"]))
    if len(table) == 1:
        why = f"sigma {chosen['sigma']:g} is the only one that was tried."
    elif len(as_good) == 1:
        why = (
            f"sigma {chosen['sigma']:g} has the lowest validation error, {chosen['error']:.3f}, and no other is within "
            f"one standard error of it ({best['standard_error']:.3f})."
        )
    else:
        reason = (
            f"its maps agree most with each other (agreement {chosen['stability']:.2f})"
            if np.isfinite(chosen["stability"])
            else "it is the smallest, since the agreement of maps cannot be measured with a single fit of each"
        )
        why = (
            f"sigma {chosen['sigma']:g} was chosen: of the {len(as_good)} of {len(table)} sigmas whose validation "
            f"error is within one standard error of the lowest ({best['error']:.3f} + {best['standard_error']:.3f}), "
            f"{reason}."
        )
    return Choice(chosen["sigma"], why, table)


def stability(pes: Array) -> float:
    """Measure how well several PEs (m, l, n, d) agree, by the mean confidence of the channels.

    It is 1 if all PEs are equal up to rotation, 0 if they agree no better than with channels in random order, and NaN
    for a single PE.
    """
    return float(np.mean(channel_confidence(pes)))
