"""Choose the initial scale sigma of the PE for a table: of the sigmas that predict well, the one whose PEs agree most.

A model can predict well with an uninformative PE, such as a random one that is not trained. A low validation error is
therefore not enough for a useful map. First, the sigmas are selected whose validation error is within one standard
error of the lowest. Of these, the one is chosen whose PEs agree most between seeds and between halves of the data. The
sentence that gives the reason is in choice.j2.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placecode.analysis.agreement import channel_confidence
from placecode.arrays import Array
from placecode.reports import wording

BLOCKS = 10
"""Number of blocks of consecutive samples for the standard error, since neighbouring samples are correlated."""
MIN_BLOCKS = 4
"""If `choose` gets fewer `exchange_blocks` than this, it uses `BLOCKS` blocks of consecutive samples instead."""


class Choice(NamedTuple):
    """The chosen sigma, the reason for it, and the numbers that the choice is based on."""

    sigma: float
    why: str
    """Why this sigma was chosen, as text."""
    table: list[dict[str, float]]
    """One row per sigma, with the keys sigma, error and standard_error (on the validation samples), and stability (how
    well PEs agree, see `stability`)."""


def choose(
    errors: Mapping[float, Array], pes: Mapping[float, Array], exchange_blocks: npt.NDArray[np.int64] | None = None
) -> Choice:
    """Choose a sigma: its models should have small validation errors, and their PEs should be similar to each other.

    `errors` has, for each sigma, the errors (m, N) of m models on N masked validation samples. `pes` has, for each
    sigma, the PEs (models, layers, channels, features) of all its models, including those trained on halves of the
    data. `exchange_blocks` (N,) says which samples depend on each other: those with the same number, such as the
    samples of one person. The standard error is computed from the mean error of each such block. Without
    `exchange_blocks`, or with fewer than `MIN_BLOCKS` different numbers, consecutive samples form `BLOCKS` blocks.
    """
    table = []
    if exchange_blocks is not None and len(np.unique(exchange_blocks)) < MIN_BLOCKS:
        exchange_blocks = None
    for sigma in sorted(errors):
        sample_errors = errors[sigma].mean(axis=0)
        count = len(sample_errors)
        blocks = np.arange(count) * min(BLOCKS, count) // count if exchange_blocks is None else exchange_blocks
        means = np.array([sample_errors[blocks == block].mean() for block in np.unique(blocks)])
        standard_error = float(means.std(ddof=1) / np.sqrt(len(means))) if len(means) > 1 else 0.0
        row = {"sigma": sigma, "error": float(errors[sigma].mean()), "standard_error": standard_error}
        table.append({**row, "stability": stability(pes[sigma])})
    best = min(table, key=lambda row: row["error"])
    limit = best["error"] + best["standard_error"]
    as_good = [row for row in table if row["error"] <= limit]
    chosen = max(as_good, key=lambda row: (np.nan_to_num(row["stability"], nan=-1.0), -row["sigma"]))
    template = wording.environment(Path(__file__).parent).get_template("choice.j2")
    why = wording.one_line(template.render(chosen=chosen, best=best, as_good=as_good, table=table))
    return Choice(chosen["sigma"], why, table)


def stability(pes: Array) -> float:
    """Return how well PEs, (models, blocks, channels, features), agree: the mean `channel_confidence` of the channels.

    It is 1 if all PEs are equal up to rotation, 0 if they agree no better than PEs with channels in random order, and
    NaN for a single PE.
    """
    return float(np.mean(channel_confidence(pes)))
