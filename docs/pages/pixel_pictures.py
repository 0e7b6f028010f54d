"""Draw docs/images/fit-photo.png and pixels-sigma.png: python docs/pages/pixel_pictures.py

The first shows results/fits/photo: pixels of two photographs in random order, put together again. That fit was made by
`python examples/shuffled_photo.py`, then `placecode fit shuffled.csv --groups strip --positions positions.csv`. The
second is the figure "picture" of results/pixels-sigma. Every pixel is drawn where a method has put it, with the piece
of a picture that belongs to its true place.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from templating import ROOT

from placecode.analysis import places
from placecode.experiments.channels import fit_result
from placecode.reports import figures
from placecode.reports.pages.fit_text import METHOD_NAMES
from placecode.reports.pages.pixels import as_pictures
from placecode.runs.read import Run
from placecode.tasks.pixels import picture

FIT = ROOT / "results" / "fits" / "photo"
SWEEP = ROOT / "results" / "pixels-sigma"


def fit_photo() -> Figure:
    """Draw the maps of placecode and two other methods as pictures."""
    fit = fit_result.read(FIT)
    assert fit.positions is not None
    grid = np.stack([-fit.positions[:, 1], fit.positions[:, 0]], axis=1)  # row and column
    methods = {f"placecode, {figures.SIGMA} = {fit.sigma:g}": fit.ours}
    methods |= {METHOD_NAMES[name]: fit.others[name] for name in ("correlation", "pca")}
    panels = []
    for title, method in methods.items():
        share, r2 = (method.scores[name] for name in ("neighbor_agreement", "procrustes_r2"))
        panels.append((title, f"nearest is next to it for {100 * share:.0f}% · R² {r2:.2f}", method.maps[2]))
    near = places.neighbors_in_space(grid)
    return figures.maps_as_pictures(panels, grid, near, picture("photos"), "fits/photo")


if __name__ == "__main__":
    images = ROOT / "docs" / "images"
    figures.save(fit_photo(), images / "fit-photo.png")
    (sweep,) = as_pictures(Run(SWEEP))
    figures.save(sweep.figure, images / "pixels-sigma.png")
