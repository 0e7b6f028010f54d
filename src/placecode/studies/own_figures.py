"""The figures of a fit, and what its report can move and search."""

from __future__ import annotations

import numpy as np

from placecode import figures
from placecode.studies.base import Shown
from placecode.studies.own_results import Found, Method
from placecode.studies.own_words import SAID, SURE

MOST_EDGES = 2_000
"""Lines on a map: the surest pairs."""


def of_fit(found: Found, run_name: str) -> list[Shown]:
    shown = [
        Shown(
            "map",
            "Map of the channels",
            "Channels that predict each other lie near each other. Pale ones are unsure of their place: other seeds, "
            "or the other half of the samples, put them elsewhere.",
            figures.channel_map(
                found.ours.maps[2], found.names, found.ours.labels, found.confidence, run_name, edges(found)
            ),
        )
    ]
    methods = {"placecode": found.ours, **{SAID[name]: method for name, method in found.others.items()}}
    flat = found.positions is not None and found.positions.shape[1] == 2
    shown.append(
        Shown(
            "methods",
            "The same channels by other methods",
            "Does a simpler method show the same? Where positions are known, neighbours should have like colours.",
            figures.maps_by_method(
                {name: method.maps[2] for name, method in methods.items()},
                {name: method.labels if found.labels is None else found.labels for name, method in methods.items()},
                run_name,
                found.positions if flat else None,
                {name: _scored(method) for name, method in methods.items()},
                "modules that the method found" if found.labels is None else "known groups",
            ),
        )
    )
    if len(found.sigmas) > 1:
        shown.append(
            Shown(
                "sigma",
                "Why this sigma",
                f"{found.why[0].upper()}{found.why[1:]}",
                figures.sigma_choice(found.sigmas, found.sigma, run_name),
            )
        )
    return shown


def edges(found: Found) -> list[tuple[int, int, float]]:
    """The pairs of channels that are surely neighbours, the surest first, at most MOST_EDGES."""
    one, two = np.nonzero(np.triu(found.pairs >= SURE, k=1))
    sure = found.pairs[one, two]
    order = np.argsort(-sure, kind="stable")[:MOST_EDGES]
    return [(int(one[i]), int(two[i]), float(sure[i])) for i in order]


def _scored(method: Method) -> str:
    """The scores of a method in a few words."""
    words = {"heldout_mse": "error", "procrustes_r2": "R2", "neighbor_agreement": "neighbours", "ari": "ARI"}
    known = {name: method.scores.get(name) for name in words}
    return ", ".join(f"{words[name]} {value:.2f}" for name, value in known.items() if value is not None)
