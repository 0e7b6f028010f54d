"""The figure of the pixels-sigma report: each learned map of shuffled pixels, drawn as the picture it puts together."""

from __future__ import annotations

import numpy as np

from placecode.analysis import places
from placecode.experiments.channels.structure import flat_map
from placecode.experiments.reading import swept
from placecode.reports import figures
from placecode.reports.pages.base import Shown, run_name, shown
from placecode.reports.pages.dials import mean_similarity, stored_members
from placecode.runs.read import Run
from placecode.tasks.pixels import picture

MOST_SIGMAS = 4
"""Largest number of sigmas whose maps are shown."""


def as_pictures(run: Run) -> list[Shown]:
    """Draw a picture on the learned map of each sigma and on that of plain correlation, if PEs were stored."""
    members = stored_members(run, swept(run))
    if members.empty:
        return []
    positions = np.array(run.config["shape"]["positions"], dtype=np.float64)
    near = places.neighbors_in_space(positions)
    maps = []
    for sigma in figures.thinned(members["sigma"].to_numpy(), MOST_SIGMAS)[::-1]:
        similar = mean_similarity(run, members[members["sigma"] == sigma])
        assert similar is not None
        maps.append((f"{figures.SIGMA} = {sigma:g}", similar, places.arrange(similar)))
    worlds = sorted(set(members["seed"] % run.config["shape"]["worlds"]))
    correlations = [run.array(f"fc/{world}").astype(np.float64) for world in worlds if run.has_array(f"fc/{world}")]
    if correlations:
        similar = np.mean(correlations, axis=0)
        np.fill_diagonal(similar, 1.0)
        maps.append(("plain correlation", similar, flat_map(similar)))
    panels = []
    for title, similar, placed in maps:
        right = 100 * float(places.place_agreement(similar, near))
        fit = places.procrustes_r2(placed, positions)
        panels.append((title, f"nearest is next to it for {right:.0f}% · R² {fit:.2f}", placed))
    seeds = int(members["seed"].nunique())
    note = f"similarities are means over {seeds} seeds" if seeds > 1 else f"seed {members['seed'].iloc[0]}"
    source = picture(run.config["fields"]["source"])
    return [shown("masked.picture", figures.maps_as_pictures(panels, positions, near, source, run_name(run), note))]
