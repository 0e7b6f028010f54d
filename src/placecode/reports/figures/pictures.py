"""A learned map with a picture on it: what was shuffled, and comes together or does not.

>>> panels = [("2", "R² 0.03", large), ("0.01", "R² 0.97", small)]  # (n, 2) each, as a method has placed them
>>> figure = maps_as_pictures(panels, positions, near, flower, "pixels-sigma")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from placecode.analysis.geometry import turned
from placecode.errors import must_be
from placecode.reports.figures import base, maps
from placecode.reports.figures.base import BLUE

Array = npt.NDArray[Any]

MOST_IN_A_ROW = 3
SIDE = 2.7
"""Of a panel, in inches."""
DOTS = 24
"""Of a picture, for every cell of the grid."""
PIECE = 0.92
"""Of a cell that the piece of a picture takes: lines between pieces are seen in between."""


def maps_as_pictures(
    panels: Sequence[tuple[str, str, Array]],
    positions: Array,
    near: Array,
    picture: Array,
    run_name: str,
    note: str = "",
) -> Figure:
    """Tokens of a grid where maps have put them, each with its piece of a picture; last, the true grid.

    A panel is (title, note, places (n, 2)). `positions` (n, 2) are the true row and column of every token, a cell
    apart, and `near` (n, n) says which are neighbours in truth: those are joined by lines. The picture, grey from 0 to
    1, is cut into as many rows and columns as the grid has. Maps are shifted, turned and mirrored onto the grid and
    brought to its spread, since they have neither direction nor size of their own.
    """
    n = len(positions)
    if np.shape(positions) != (n, 2) or np.shape(near) != (n, n):
        raise must_be("positions and near", "of shape (n, 2) and (n, n)", (np.shape(positions), np.shape(near)))
    true = np.asarray(positions, dtype=float) - np.mean(positions, axis=0)
    pieces = cut(picture, np.asarray(positions))
    pairs = np.argwhere(np.triu(near))
    count = len(panels) + 1
    rows = -(-count // MOST_IN_A_ROW)
    columns = -(-count // rows)
    figure, drawn = maps.squares(rows, columns, SIDE, (0.2, 0.62), top=0.55, left=0.12, right=0.12)
    laid = [(title, told, onto(given, true)) for title, told, given in panels]
    for axes, (title, told, places) in zip(drawn, [*laid, ("true grid", "what is to be found", true)], strict=False):
        base.title(axes, title, told, width=50)
        if np.isfinite(places).all():
            _lay_out(axes, places, pieces, pairs)
        else:
            base.nothing(axes, "not finite")
    for axes in drawn[count:]:
        axes.set_axis_off()
    how = "maps are turned, mirrored and scaled onto the true grid, for display only"
    lines = "lines join true neighbours"
    base.small_print(figure, run_name, "; ".join(filter(None, (note, lines))), how)
    return figure


def cut(picture: Array, positions: Array) -> Array:
    """The piece of a picture at every position of a grid, (n, DOTS, DOTS), by the nearest pixel."""
    image = np.asarray(picture, dtype=float)
    if image.ndim != 2 or 0 in image.shape:
        raise must_be("picture", "grey, (rows, columns)", image.shape)
    inside = (np.arange(DOTS) + 0.5) / DOTS
    first, last = positions.min(axis=0), positions.max(axis=0)
    share = (positions[:, :, None] - first[:, None] + inside) / (last - first + 1)[:, None]  # (n, 2, DOTS)
    rows, across = ((share[:, axis] * image.shape[axis]).astype(int) for axis in (0, 1))
    return np.asarray(image[rows[:, :, None], across[:, None, :]])


def onto(places: Array, true: Array) -> Array:
    """A map (n, 2) turned and mirrored onto another one that is centred, and of its spread."""
    laid = turned(places, true)
    size = np.linalg.norm(laid)
    return np.asarray(laid * (np.linalg.norm(true) / size)) if size > 0 else laid


def _lay_out(axes: Axes, places: Array, pieces: Array, pairs: Array) -> None:
    """Pieces where their tokens lie, the first row on top, on one image; lines below them."""
    reach = max(float(np.abs(places).max()) + 0.6, 1.0)
    axes.set(xlim=(-reach, reach), ylim=(reach, -reach), aspect="equal")
    segments = [[places[token][::-1] for token in pair] for pair in pairs]
    axes.add_collection(LineCollection(segments, colors=BLUE, linewidths=0.7, alpha=0.55, zorder=1))
    side = round(PIECE * DOTS)
    small = pieces[:, (DOTS - side) // 2 :, (DOTS - side) // 2 :][:, :side, :side]
    seen = np.pad(np.ones((side - 2, side - 2)), 1)  # the page shows at the edge, so that pieces can be told apart
    dots = int(np.ceil(2 * reach * DOTS))
    canvas = np.zeros((dots, dots, 4))
    corner = np.clip(((places + reach) * DOTS - side / 2).round().astype(int), 0, dots - side)
    for (top, left), piece in zip(corner, small, strict=True):
        canvas[top : top + side, left : left + side, :3] = piece[..., None]
        canvas[top : top + side, left : left + side, 3] = seen
    extent = (-reach, -reach + dots / DOTS, -reach + dots / DOTS, -reach)
    axes.imshow(canvas, extent=extent, interpolation="none", zorder=2)
    axes.set(xlim=(-reach, reach), ylim=(reach, -reach))
