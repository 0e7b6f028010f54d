"""What the answers of docs/beyond.md share: means over seeds by sigma, and whether training has settled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from wording import grid

from placecode.experiments.reading import STILL, late_change, where
from placecode.runs.read import Run

SIGMAS = (0.1, 0.2, 0.5, 1.0, 2.0)
Kinds = Mapping[str, Mapping[str, Any]]


def means_table(run: Run, head: str, kinds: Kinds, values: pd.Series, digits: int = 3) -> str:
    """Means over seeds, a row for each kind of member, a column for each sigma."""
    rows = [
        (name, *(f"{where(run, values, [sigma], **columns).mean():.{digits}f}" for sigma in SIGMAS))
        for name, columns in kinds.items()
    ]
    return grid((head, *(f"sigma {sigma:g}" for sigma in SIGMAS)), rows)


def unsettled(run: Run, sigmas: Sequence[float], **columns: Any) -> bool:
    """Whether the mean accuracy of these has changed over the last quarter of training, at each sigma."""
    changes = late_change(run)
    return all(abs(where(run, changes, [sigma], **columns).mean()) > STILL for sigma in sigmas)
