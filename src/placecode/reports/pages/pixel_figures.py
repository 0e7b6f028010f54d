"""The figure of pixels-sigma: a learned map, drawn as the picture whose pixels were shuffled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placecode.analysis import modules, places
from placecode.experiments.channels.structure import flat_map
from placecode.experiments.reading import swept
from placecode.reports import figures
from placecode.reports.pages.base import Shown
from placecode.reports.pages.latin_figures import run_name
from placecode.runs.read import Run
from placecode.tasks.pixels import picture

MOST_SIGMAS = 4
"""Maps of PEs that are shown as pictures."""


def as_pictures(run: Run) -> list[Shown]:
    """The learned maps with a picture on them, sigma by sigma from the largest, beside what correlation alone gives."""
    members = swept(run)
    members = members[[run.has_array(f"pe_end/{number}") for number in members["member"]]]
    if members.empty:
        return []
    positions = np.array(run.config["shape"]["positions"], dtype=np.float64)
    shown = figures.thinned(members["sigma"].to_numpy(), MOST_SIGMAS)[::-1]
    maps = {
        f"{figures.SIGMA} = {sigma:g}": _consensus(
            [
                modules.similarities(run.array(f"pe_end/{number}").astype(np.float64))[-1]
                for number in members.loc[members["sigma"] == sigma, "member"]
            ]
        )
        for sigma in shown
    }
    known = [f"fc/{world}" for world in sorted(set(members["seed"] % run.config["shape"]["worlds"]))]
    correlations = [run.array(name).astype(np.float64) for name in known if run.has_array(name)]
    near = places.neighbors_in_space(positions)
    drawn = [(title, similar, places.arrange(similar)) for title, similar in maps.items()]
    if correlations:
        plain = _consensus(correlations)
        drawn.append(("plain correlation", plain, flat_map(plain)))
    panels = [(title, _fits(similar, placed, positions, near), placed) for title, similar, placed in drawn]
    seeds = int(members["seed"].nunique())
    return [
        Shown(
            "picture",
            "The learned map as a picture",
            "Every pixel where the PE has put it, with the piece of a picture that belongs to its true place: does the "
            "picture come together as sigma falls? Lines join pixels that are next to each other in truth. A map has "
            "no top and no size: each is turned, mirrored and scaled onto the true grid, for display only. The picture "
            "marks the places; no model has seen it as a whole.",
            figures.maps_as_pictures(
                panels,
                positions,
                near,
                picture(run.config["fields"]["source"]),
                run_name(run),
                f"similarities are means over {seeds} seeds" if seeds > 1 else f"seed {members['seed'].iloc[0]}",
            ),
        )
    ]


def _consensus(similar: Sequence[np.ndarray]) -> np.ndarray:
    """Mean of similarity matrices (cosines of centred PEs, or correlations), with ones on the diagonal."""
    mean = np.mean(similar, axis=0)
    np.fill_diagonal(mean, 1.0)
    return np.asarray(mean)


def _fits(similar: np.ndarray, placed: np.ndarray, positions: np.ndarray, near: np.ndarray) -> str:
    """What the eye may judge, in numbers."""
    right = 100 * float(places.place_agreement(similar, near))
    return f"nearest is next to it for {right:.0f}% · R² {places.procrustes_r2(placed, positions):.2f}"
