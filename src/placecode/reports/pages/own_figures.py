"""Figures, tables, map and slider settings in the report of `placecode fit` on a user's table."""

from __future__ import annotations

from typing import Any

import numpy as np

from placecode.analysis.agreement import MAX_DROP, MIN_AGREEMENT, similarity_order
from placecode.experiments.channels.own_results import Found, Method
from placecode.reports import figures, wording
from placecode.reports.pages.base import Shown, shown
from placecode.reports.pages.dials import Channels, Listing
from placecode.reports.pages.own_words import SAID, SURE, by_name

MOST_EDGES = 2_000
"""Largest number of lines between channels on a map."""
MORE_MODULES = 5
"""The table of modules lists numbers of modules up to this many beyond the chosen one."""
COLUMNS = {
    "heldout_mse": "held-out error",
    "procrustes_r2": "Procrustes R2",
    "neighbor_agreement": "nearest is a true neighbour",
    "neighbor_agreement_p": "p of the neighbours",
    "ari": "ARI of modules",
    "ari_p": "p of the ARI",
}
"""Column names of the scores in the table of methods."""
IN_TITLES = {"heldout_mse": "error", "procrustes_r2": "R2", "neighbor_agreement": "neighbours", "ari": "ARI"}
"""Short names of the scores in the titles of panels."""


def of_fit(found: Found, run_name: str) -> list[Shown]:
    """Return the figures of a fit: its map, the maps of other methods and, if it tried several sigmas, their errors."""
    ours = figures.channel_map(
        found.ours.maps[2], found.names, found.ours.labels, found.confidence, run_name, edges(found)
    )
    methods = by_name(found)
    flat = found.positions is not None and found.positions.shape[1] == 2
    by_method = figures.maps_by_method(
        {name: method.maps[2] for name, method in methods.items()},
        {name: method.labels if found.labels is None else found.labels for name, method in methods.items()},
        run_name,
        found.positions if flat else None,
        {name: _scored(method) for name, method in methods.items()},
        "modules that the method found" if found.labels is None else "known groups",
    )
    drawn = [shown("fit.map", ours), shown("fit.methods", by_method, coloured_by_position=flat)]
    if len(found.sigmas) > 1:
        drawn.append(shown("fit.sigma", figures.sigma_choice(found.sigmas, found.sigma, run_name), why=found.why))
    return drawn


def sorting(found: Found) -> dict[str, Any]:
    """Return the fields of the `Dial` that sort and colour the channels, and its caption.

    Channels are sorted by module. If the fits agree on no modules, similar channels are put next to each other.
    """
    modules = found.count > 1
    _, note = wording.caption("fit.dial", modules=modules)
    if not modules:
        return {"groups": None, "group_names": [], "order": similarity_order(found.ours.similarity), "note": note}
    names = [f"module {i + 1}" for i in range(found.count)]
    return {"groups": found.ours.labels, "group_names": names, "note": note}


def channels(found: Found) -> Channels:
    """Return the searchable map: every channel with its module, the confidence of its position, and its neighbours."""
    sure, pairs = found.confidences()
    columns: dict[str, list[object]] = {"confidence": [float(value) for value in sure]}
    if found.labels is not None:
        columns["known group"] = ["" if i < 0 else found.label_names[i] for i in found.labels]
    if found.positions is not None:
        axes = zip("xyz", found.positions.T, strict=False)
        columns |= {f"known {axis}": list(map(float, values)) for axis, values in axes}
    joined = edges(found)
    return Channels(
        found.names,
        found.ours.maps[2],
        found.ours.maps.get(3),
        found.ours.labels if found.count > 1 or not found.placed.all() else None,
        columns=columns,
        neighbors=[[(int(j), float(pairs[i, j])) for j in row] for i, row in enumerate(found.neighbors)],
        edges=joined,
        note=wording.caption("fit.channels", edges=bool(joined), sure=SURE)[1],
    )


def listings(found: Found) -> list[Listing]:
    """Return the tables of the report: scores of every method, sigmas that were tried, and numbers of modules."""
    methods = by_name(found)
    scores = [name for name in COLUMNS if any(name in method.scores for method in methods.values())]
    rows = [
        [name, *(method.scores.get(score) for score in scores), int(method.labels.max()) + 1]
        for name, method in methods.items()
    ]
    rows.append(["guessing the mean", *(found.mean_mse if score == "heldout_mse" else None for score in scores), None])
    left_out = {SAID[name]: why for name, why in found.left_out.items()}
    of_sigmas = [[row[name] for name in ("sigma", "error", "standard_error", "stability")] for row in found.sigmas]
    tables = [
        Listing(
            *wording.caption("fit.methods-table", left_out=left_out),
            ["method", *(COLUMNS[score] for score in scores), "modules"],
            rows,
        ),
        Listing(
            *wording.caption("fit.sigma-table", why=found.why),
            ["sigma", "validation error", "standard error", "agreement between fits"],
            of_sigmas,
        ),
    ]
    agreed = [[count, value] for count, value in sorted(found.stability.items()) if count <= found.count + MORE_MODULES]
    if agreed:
        text = wording.caption("fit.modules-table", nearly=MAX_DROP, sure=MIN_AGREEMENT)
        tables.append(Listing(*text, ["modules", "agreement"], agreed))
    return tables


def edges(found: Found) -> list[tuple[int, int, float]]:
    """Return the pairs of channels with a confidence of at least SURE, the highest first; at most MOST_EDGES."""
    one, two = np.nonzero(np.triu(found.pairs >= SURE, k=1))
    sure = found.pairs[one, two]
    order = np.argsort(-sure, kind="stable")[:MOST_EDGES]
    return [(int(one[i]), int(two[i]), float(sure[i])) for i in order]


def _scored(method: Method) -> str:
    """Return the scores of a method as text for the title of its panel."""
    known = {name: value for name in IN_TITLES if (value := method.scores.get(name)) is not None}
    return ", ".join(
        f"{IN_TITLES[name]} {value:.{3 if name == 'heldout_mse' else 2}f}" for name, value in known.items()
    )
