"""Choose the initialization scale sigma for a table: of those that predict well, the one whose PEs agree most.

A model can predict well with an uninformative PE, such as a random one that is not trained. So a low validation error
does not ensure a useful map. Therefore all sigmas are considered whose validation error is within one standard error of
the lowest, and the one is chosen whose PEs agree most between seeds and between halves of the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placecode.analysis.agreement import channel_confidence

Array = npt.NDArray[np.float64]

BLOCKS = 10
"""Number of blocks of consecutive samples over which the standard error is computed, as neighbours are correlated."""
MIN_GROUPS = 4
"""Minimum number of groups of samples to compute the standard error over groups."""


class Choice(NamedTuple):
    """The chosen sigma, the reason, and the numbers it is based on."""

    sigma: float
    why: str
    """Why this sigma was chosen, in one sentence."""
    table: list[dict[str, float]]
    """One row per sigma, with the keys sigma, error, standard_error and stability."""


def choose(
    errors: Mapping[float, Array], pes: Mapping[float, Array], pieces: npt.NDArray[np.int64] | None = None
) -> Choice:
    """Choose a sigma from the validation errors of its models and the agreement of their PEs.

    `errors` has, for each sigma, the errors (m, N) of m models on N masked validation samples. `pes` has, for each
    sigma, the PEs (m, l, n, d) of all models, including those trained on halves of the data. `pieces` (N,) is the group
    or block of each sample. Samples of one group are not independent, so the standard error is computed over groups.
    Without groups, or with fewer than MIN_GROUPS, it is computed over BLOCKS blocks of consecutive samples.
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
    """Return how well m PEs (m, l, n, d) agree, as the mean of `channel_confidence` over the channels.

    It is 1 if all PEs are equal up to rotation, 0 if they agree no better than PEs with channels in random order, and
    NaN for a single PE.
    """
    return float(np.mean(channel_confidence(pes)))
