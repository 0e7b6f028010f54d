"""The figures of a fit, and what its report can move and search."""

from __future__ import annotations

from typing import Any

import numpy as np

from placecode.analysis.agreement import NEARLY, SURE_MODULES, in_line
from placecode.experiments.channels.own_results import Found, Method
from placecode.reports import figures
from placecode.reports.pages.base import Shown
from placecode.reports.pages.dials import Channels, Listing
from placecode.reports.pages.own_words import SAID, SURE

MOST_EDGES = 2_000
"""Lines on a map: the surest pairs."""
DIAL = (
    "Numbers are means over the seeds that learn from all training samples, with their 95% intervals; matrices and map "
    "are means over them. Validation and test samples are others, and may be easier or harder: compare a sigma with "
    "another, not a curve with the other. Channels are sorted "
)
ROWS = 5
"""Numbers of modules that are listed beyond the chosen one."""


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
            "Does a simpler method show the same? "
            + (
                "Neighbours should have like colours."
                if flat
                else "What is alike in colour and marker belongs together."
            ),
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


def sorting(found: Found) -> dict[str, Any]:
    """How a dial is to sort the channels: by modules, or such that neighbours are alike where fits agree on none."""
    if found.count < 2:
        order = in_line(found.ours.similarity)
        return {"groups": None, "group_names": [], "order": order, "note": f"{DIAL}such that neighbours are alike."}
    names = [f"module {i + 1}" for i in range(found.count)]
    return {"groups": found.ours.labels, "group_names": names, "note": f"{DIAL}by the modules that were found."}


def channels(found: Found) -> Channels:
    """The map that can be searched: every channel with its module, how sure its place is, and its neighbours."""
    sure, pairs = found.surely()
    columns: dict[str, list[object]] = {"confidence": [float(each) for each in sure]}
    if found.labels is not None:
        columns["known group"] = ["" if i < 0 else found.label_names[i] for i in found.labels]
    if found.positions is not None:
        columns |= {f"known {axis}": list(map(float, own)) for axis, own in zip("xyz", found.positions.T, strict=False)}
    near = [[(int(j), float(pairs[i, j])) for j in row] for i, row in enumerate(found.neighbors)]
    joined = edges(found)
    lines = f"; lines join those with {100 * SURE:.0f}% or more" if joined else ""
    return Channels(
        found.names,
        found.ours.maps[2],
        found.ours.maps.get(3),
        found.ours.labels if found.count > 1 or not found.placed.all() else None,
        columns=columns,
        neighbors=near,
        edges=joined,
        note=(
            "Places by the PEs of the chosen sigma. Confidence of a channel: 1 = other seeds and the other half of the "
            "samples put it in the same place, 0 = anywhere. Bars: how surely two channels are neighbours, each among "
            f"the few nearest of the other, which asks for more than that they belong together{lines}."
        ),
    )


def listings(found: Found) -> list[Listing]:
    """Every method by every score, and the sigmas that could have been chosen."""
    words = {
        "heldout_mse": "held-out error",
        "procrustes_r2": "Procrustes R2",
        "neighbor_agreement": "nearest is a true neighbour",
        "neighbor_agreement_p": "p of the neighbours",
        "ari": "ARI of modules",
        "ari_p": "p of the ARI",
    }
    methods = {"placecode": found.ours, **{SAID[name]: method for name, method in found.others.items()}}
    shown = [name for name in words if any(name in method.scores for method in methods.values())]
    rows = [
        [name, *(method.scores.get(score) for score in shown), int(method.labels.max()) + 1]
        for name, method in methods.items()
    ]
    rows += [
        [name, *(value if score == "heldout_mse" else None for score in shown), None]
        for name, value in (("guessing the mean", found.mean_mse),)
    ]
    left = "".join(f" {SAID[name]} was {why}." for name, why in found.left_out.items())
    tables = [
        Listing(
            "Beside other methods",
            "Errors on samples that nobody learned from; a method that predicts nothing has none. p: how often "
            f"channels in random order do as well.{left}",
            ["method", *(words[name] for name in shown), "modules"],
            rows,
        ),
        Listing(
            "The sigmas",
            f"{found.why[0].upper()}{found.why[1:]}",
            ["sigma", "validation error", "standard error", "agreement between fits"],
            [[row[name] for name in ("sigma", "error", "standard_error", "stability")] for row in found.sigmas],
        ),
    ]
    agreed = [[count, value] for count, value in sorted(found.stability.items()) if count <= found.count + ROWS]
    if agreed:
        tables.append(
            Listing(
                "How many modules",
                "With so many groups: how far they agree with those of a fit that had no part in them (adjusted Rand "
                f"index: 0 = chance, 1 = the same). Taken is the largest number at a peak within {NEARLY:g} of the "
                f"highest; one if none comes to {SURE_MODULES:g}.",
                ["modules", "agreement"],
                agreed,
            )
        )
    return tables


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
    digits = {name: 3 if name == "heldout_mse" else 2 for name in words}
    return ", ".join(f"{words[name]} {value:.{digits[name]}f}" for name, value in known.items() if value is not None)
