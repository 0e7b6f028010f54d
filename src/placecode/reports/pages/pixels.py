"""The page of experiments on shuffled pixels, which draws learned maps as pictures."""

from __future__ import annotations

import numpy as np

from placecode.analysis import modules, places
from placecode.experiments.channels.pixels import NEXT_TO
from placecode.experiments.channels.structure import flat_map
from placecode.experiments.reading import sweep_members
from placecode.reports import figures
from placecode.reports.pages.base import ReportFigure, report_figure, run_name
from placecode.reports.pages.interactive import mean_similarity, stored_members
from placecode.reports.pages.masked import MaskedPage
from placecode.runs.read import Run
from placecode.tasks.pixels import picture

MAX_SIGMAS = 4
"""Largest number of sigmas whose maps are shown."""


class PixelsPage(MaskedPage):
    """The page of experiments on shuffled pixels, which adds the maps drawn as pictures."""

    measures = (
        NEXT_TO,
        ("procrustes_r2", "positions"),
        ("coordinate_agreement", "positions"),
        ("fc_correlation", "fc"),
        ("moved_relative", "start"),
        ("stability", "other seeds"),
    )

    def figures(self) -> list[ReportFigure]:
        return [*super().figures(), *as_pictures(self.run)]


def as_pictures(run: Run) -> list[ReportFigure]:
    """Draw a picture with its pixels moved to their learned positions, for some sigmas and for plain correlation.

    Return no figure if no PE was stored.
    """
    members = stored_members(run, sweep_members(run))
    if members.empty:
        return []
    positions = np.array(run.config["shape"]["positions"], dtype=np.float64)
    near = places.neighbors_in_space(positions)
    maps = []
    for sigma in figures.thinned(members["sigma"].to_numpy(), MAX_SIGMAS)[::-1]:
        similarity = mean_similarity(run, members[members["sigma"] == sigma])
        assert similarity is not None
        maps.append((f"{figures.SIGMA} = {sigma:g}", similarity, places.isomap_embedding(similarity)))
    worlds = sorted(set(members["seed"] % run.config["shape"]["worlds"]))
    correlations = [run.array(f"fc/{world}").astype(np.float64) for world in worlds if run.has_array(f"fc/{world}")]
    if correlations:
        similarity = np.mean(correlations, axis=0)
        np.fill_diagonal(similarity, 1.0)
        maps.append(("plain correlation", similarity, flat_map(similarity)))
    panels = []
    for title, similarity, layout in maps:
        percent = 100 * float(modules.related_neighbor_agreement(similarity, near))
        fit = places.procrustes_r2(layout, positions)
        panels.append((title, f"nearest is next to it for {percent:.0f}% · R² {fit:.2f}", layout))
    seeds = int(members["seed"].nunique())
    note = f"similarities are means over {seeds} seeds" if seeds > 1 else f"seed {members['seed'].iloc[0]}"
    source = picture(run.config["fields"]["source"])
    return [
        report_figure("masked.picture", figures.maps_as_pictures(panels, positions, near, source, run_name(run), note))
    ]
