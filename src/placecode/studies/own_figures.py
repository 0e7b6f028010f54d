"""The figures of a fit, and what its report can move and search."""

from __future__ import annotations

import numpy as np

from placecode import figures
from placecode.analysis.agreement import SURE_MODULES
from placecode.studies.base import Channels, Listing, Shown
from placecode.studies.own_results import Found, Method
from placecode.studies.own_words import SAID, SURE

MOST_EDGES = 2_000
"""Lines on a map: the surest pairs."""
DIAL = (
    "Numbers are means over seeds that learn from all training samples, with their 95% intervals; matrices and map are "
    "means over them, sorted by the modules that were found."
)


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


def channels(found: Found) -> Channels:
    """The map that can be searched: every channel with its module, how sure its place is, and its neighbours."""
    columns: dict[str, list[object]] = {"confidence": [float(each) for each in found.confidence]}
    if found.labels is not None:
        columns["known group"] = ["" if i < 0 else found.label_names[i] for i in found.labels]
    if found.positions is not None:
        columns |= {f"known {axis}": list(map(float, own)) for axis, own in zip("xyz", found.positions.T, strict=False)}
    near = [[(int(j), float(found.pairs[i, j])) for j in row] for i, row in enumerate(found.neighbors)]
    return Channels(
        found.names,
        found.ours.maps[2],
        found.ours.maps.get(3),
        found.ours.labels,
        columns=columns,
        neighbors=near,
        edges=edges(found),
        note=(
            "Places by the PEs of the chosen sigma. Confidence of a channel: 1 = other seeds and the other half of the "
            "samples put it in the same place, 0 = anywhere. Bars: how surely two channels are neighbours, each among "
            f"the nearest of the other; lines join those with {100 * SURE:.0f}% or more."
        ),
    )


def listings(found: Found) -> list[Listing]:
    """Every method by every score, and the sigmas that could have been chosen."""
    words = {
        "heldout_mse": "held-out error",
        "procrustes_r2": "Procrustes R2",
        "neighbor_agreement": "nearest is a true neighbour",
        "neighbor_agreement_p": "p of that",
        "ari": "ARI of modules",
        "ari_p": "p of that ",
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
            ["method", *(words[name].strip() for name in shown), "modules"],
            rows,
        ),
        Listing(
            "The sigmas",
            f"{found.why[0].upper()}{found.why[1:]}",
            ["sigma", "validation error", "standard error", "agreement between fits"],
            [[row[name] for name in ("sigma", "error", "standard_error", "stability")] for row in found.sigmas],
        ),
    ]
    agreed = [[count, value] for count, value in sorted(found.stability.items())]
    if agreed:
        tables.append(
            Listing(
                "How many modules",
                "With so many groups: how often two channels of one are together in a fit that had no part in it, in "
                f"the weakest group. The largest number with {SURE_MODULES:g} or more is taken; one if there is none.",
                ["modules", "found again"],
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
    return ", ".join(f"{words[name]} {value:.2f}" for name, value in known.items() if value is not None)
