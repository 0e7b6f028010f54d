"""Which sigma? Among those that predict as well as the best, the one whose PEs agree most with each other.

Predicting well does not need a PE that shows anything: a frozen random one may do. So of the sigmas whose error on the
validation samples is within one standard error of the lowest, the one is taken whose PEs are most alike between seeds
and between halves of the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placecode.analysis.agreement import channel_confidence

Array = npt.NDArray[np.float64]

BLOCKS = 10
"""Blocks of questions over which the standard error is taken: neighbours in time are alike."""
FEWEST = 4
"""Groups from which on it is taken over them."""


class Choice(NamedTuple):
    """The sigma, why, and what it was chosen by: for each sigma its error, its standard error and its stability."""

    sigma: float
    why: str
    table: list[dict[str, float]]


def choose(
    errors: Mapping[float, Array], pes: Mapping[float, Array], pieces: npt.NDArray[np.int64] | None = None
) -> Choice:
    """One of the sigmas, from the errors of its members in every validation question (m, N) and all its PEs
    (m, l, n, d).

    `pieces` (N,) are the groups or blocks that the questions are from: questions of one are no independent witnesses,
    so that the standard error is one over pieces. Without, or with fewer than FEWEST, over BLOCKS of questions that
    follow each other.
    """
    table = []
    if pieces is not None and len(np.unique(pieces)) < FEWEST:
        pieces = None
    for sigma in sorted(errors):
        each = errors[sigma].mean(axis=0)
        blocks = np.arange(len(each)) * min(BLOCKS, len(each)) // len(each) if pieces is None else pieces
        means = np.array([each[blocks == block].mean() for block in np.unique(blocks)])
        spread = float(means.std(ddof=1) / np.sqrt(len(means))) if len(means) > 1 else 0.0
        row = {"sigma": sigma, "error": float(errors[sigma].mean()), "standard_error": spread}
        table.append({**row, "stability": stability(pes[sigma])})
    best = min(table, key=lambda row: row["error"])
    bar = best["error"] + best["standard_error"]
    as_good = [row for row in table if row["error"] <= bar]
    chosen = max(as_good, key=lambda row: (np.nan_to_num(row["stability"], nan=-1.0), -row["sigma"]))
    if len(table) == 1:
        why = f"sigma {chosen['sigma']:g} is the only one that was tried."
    elif len(as_good) == 1:
        why = (
            f"sigma {chosen['sigma']:g} has the lowest validation error, {chosen['error']:.3f}, and no other is within "
            f"one standard error of it ({best['standard_error']:.3f})."
        )
    else:
        known = np.isfinite(chosen["stability"])
        said = (
            f"its maps agree most with each other (agreement {chosen['stability']:.2f})"
            if known
            else "it is the smallest, since a single fit of each does not tell how far maps agree"
        )
        why = (
            f"sigma {chosen['sigma']:g} was chosen: of the {len(as_good)} of {len(table)} sigmas whose validation "
            f"error is within one standard error of the lowest ({best['error']:.3f} + {best['standard_error']:.3f}), "
            f"{said}."
        )
    return Choice(chosen["sigma"], why, table)


def stability(pes: Array) -> float:
    """How far these PEs agree (m, l, n, d): the mean confidence of the channels, 1 = all in the same places after one
    PE is turned onto the other, 0 = as channels in random order; NaN where there is a single one."""
    return float(np.mean(channel_confidence(pes)))
