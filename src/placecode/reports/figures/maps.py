"""Draw maps: similarity of tokens, attention, error rates by cell, positions of tokens, and pictures cut by a grid.

>>> figure = similarity_maps(true, (start, end), (start2, end2), names, "lst-quick", titles, rule=4)
>>> figure = attention_maps([("small", small), ("large", large)], "lst-quick", rule=4)  # (l, n, n) each
>>> figure = token_maps([("after training", places, 0.08)], edges, names, "lst-quick")  # (n, 2)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from placecode.analysis.geometry import turned
from placecode.errors import must_be
from placecode.reports.figures import base
from placecode.reports.figures.base import BLUE, MUTED
from placecode.reports.figures.labels import write_beside

MAX_PANELS = 5
"""Maximum number of panels in a row of `token_maps`."""
SHADES = "Blues"
"""Sequential colour map, monotonic in greyscale."""
MAX_NAMED = 25
"""Maximum number of tokens for which a similarity map shows their names."""
SIDE = 2.7
"""Side of a similarity map, or of a panel with a picture, in inches."""
DOTS = 24
"""Side of a grid cell in pixels, in `maps_as_pictures`."""
PIECE = 0.92
"""Side of a piece of the picture relative to a grid cell, below 1 so that lines between pieces are visible."""

Array = base.Array


def similarity_maps(
    true: Array,
    small: tuple[Array, Array],
    large: tuple[Array, Array],
    labels: Sequence[str],
    run_name: str,
    titles: tuple[str, str, str],
    rule: int,
) -> Figure:
    """Draw the cosine similarity of the tokens' centred PEs at a small and a large sigma, and the true similarity.

    All maps are (n, n), as from `analysis.alignment.similarity`, and share one colour scale. `small` and `large` are
    pairs of maps (before training, after training). `titles` are those of the small, the large and the true similarity.
    `labels` are the names of the tokens, which are written if there are at most 25. A thin line is drawn after every
    `rule` tokens, for example after each row of a grid.

    >>> similarity_maps(true, (start, end), (start2, end2), names, "lst-quick", ("0.2", "2.0", "2-D sinusoid"), rule=4)
    """
    n = len(true)
    for array in (true, *small, *large):
        if array.shape != (n, n):
            raise must_be("a similarity map", f"an array of shape ({n}, {n}), as the true one", array.shape)
    ticks, names = (range(n), list(labels)) if n <= MAX_NAMED else (range(0), [])
    # The layout is computed in inches, so that all maps are square and of one size. The true map is centred vertically.
    gap, room = 0.16, 0.12 + 0.058 * max(map(len, names), default=0)
    left, bottom = room + 0.3, room + 0.35
    width, height = left + 3 * SIDE + gap + room + 0.35 + 0.95, bottom + 2 * SIDE + gap + 0.4
    figure = Figure(figsize=(width, height))

    def panel(array: Array, x: float, y: float, named_x: bool, named_y: bool) -> Axes:
        """Draw a similarity map, (n, n), with its lower left corner at (x, y) inches, and return its axes. Tokens are
        named along the x axis if `named_x`, and along the y axis if `named_y`."""
        axes = figure.add_axes((x / width, y / height, SIDE / width, SIDE / height))
        axes.imshow(array, cmap="RdBu_r", vmin=-1, vmax=1, interpolation="none")
        base.plain(axes)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, pad=2)
        axes.set_xticks(ticks if named_x else [], names if named_x else [], rotation=90)
        axes.set_yticks(ticks if named_y else [], names if named_y else [])
        for text in (*axes.get_xticklabels(), *axes.get_yticklabels()):
            text.set(fontsize=6.5, parse_math=False)
        _rules(axes, n, rule)
        return axes

    for column, pair in enumerate((small, large)):
        for row, array in enumerate(pair):
            x, y = left + column * (SIDE + gap), bottom + (1 - row) * (SIDE + gap)
            axes = panel(array, x, y, row == 1, column == 0)
            if row == 0:
                base.title(axes, titles[column])
            if column == 0:
                base.label(axes, y=("before training", "after training")[row])
    middle = bottom + (SIDE + gap) / 2
    axes = panel(true, left + 2 * SIDE + gap + room + 0.35, middle, True, True)
    base.title(axes, titles[2])
    bar_axes = figure.add_axes(((width - 0.8) / width, middle / height, 0.11 / width, SIDE / height))
    base.key(figure, axes.images[0], "cosine similarity of centred PEs", cax=bar_axes, ticks=[-1, -0.5, 0, 0.5, 1])
    return base.small_print(figure, run_name, f"{n} tokens, in the same order along both sides of every map")


def attention_maps(columns: Sequence[tuple[str, Array]], run_name: str, rule: int) -> Figure:
    """Draw attention maps, with a row of panels per block and a column of panels per entry (title, maps) of `columns`.

    The maps of a column are (l, n, n), with queries in rows and keys in columns. All maps share one colour scale from 0
    to the 99.5th percentile of all entries, so that a few large entries do not hide the others. A thin line is drawn
    after every `rule` tokens. "not finite" is written on maps with entries that are not.
    """
    arrays = [np.asarray(array, dtype=float) for _, array in columns]
    for array in arrays:
        if array.ndim != 3 or array.shape != (*arrays[0].shape[:2], array.shape[1]):
            raise must_be("attention maps", "arrays of shape (blocks, tokens, tokens), all the same", array.shape)
    blocks, n = arrays[0].shape[:2]
    entries = np.concatenate([array[np.isfinite(array)] for array in arrays])
    most = float(np.percentile(entries, 99.5)) if len(entries) else 0.0
    norm = Normalize(0, most or 1)
    lines = max(base.wrapped(base.short(str(name), 90), 21).count("\n") for name, _ in columns)
    top = 0.32 + 0.16 * lines
    figure, panels = squares(blocks, len(arrays), 1.45, (0.1, 0.1), top=top, left=0.42, right=0.85)
    for i, axes in enumerate(panels):
        block, column = divmod(i, len(arrays))
        axes.imshow(arrays[column][block], cmap=SHADES, norm=norm, interpolation="none")
        _rules(axes, n, rule)
        if not np.isfinite(arrays[column][block]).all():
            base.nothing(axes, "not finite")
        if block == 0:
            base.title(axes, str(columns[column][0]), width=27)
        if column == 0:
            base.label(axes, y=f"block {block + 1}")
    more = "max" if entries.max(initial=0) > most else "neither"
    base.key(figure, ScalarMappable(norm, SHADES), "attention", cax=_bar_beside(figure, panels), extend=more)
    return base.small_print(figure, run_name, f"each row of a map shows where one of {n} tokens looks")


def error_maps(panels: Sequence[tuple[str, Array]], run_name: str) -> Figure:
    """Draw how often answers are wrong by the queried cell of a grid, with a map per entry (title, rates) of `panels`.

    `rates` are error rates of shape (rows, columns). The rate is written in every cell, or "none" if it is NaN because
    the cell was never queried.
    """
    arrays = [np.asarray(array, dtype=float) for _, array in panels]
    for array in arrays:
        if array.ndim != 2:
            raise must_be("error rates", "an array of shape (rows, columns)", array.shape)
    most = max((float(np.nanmax(array, initial=0)) for array in arrays), default=0.0)
    most = min(max(np.ceil(most * 10) / 10, 0.1), 1.0)
    norm = Normalize(0, most)
    figure, drawn = base.grid_of(len(arrays), 4, (2.4, 2.55), extra=(0.9, 0.5), sharey=False)
    for axes, (name, _), array in zip(drawn, panels, arrays, strict=False):
        axes.imshow(array, cmap=SHADES, norm=norm, interpolation="none")
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        axes.set_xticks(range(array.shape[1]), [str(i + 1) for i in range(array.shape[1])])
        axes.set_yticks(range(array.shape[0]), [str(i + 1) for i in range(array.shape[0])])
        for (row, column), rate in np.ndenumerate(array):
            text, ink = "none", MUTED
            if np.isfinite(rate):  # the colour of the text depends on the cell, not on the page
                text, ink = f"{rate:.2f}", "#fefefe" if rate > 0.7 * most else "#111417"
            axes.text(column, row, text, ha="center", va="center", fontsize=8, color=ink)
        base.title(axes, str(name), width=38)
        base.label_edges(axes, "column", "row")
    if arrays:
        place: base.Style = {"ax": drawn, "fraction": 0.04, "aspect": 22, "pad": 0.02}
        base.key(figure, ScalarMappable(norm, SHADES), "share of wrong answers", **place)
    return base.small_print(figure, run_name, 'by the cell asked for; "none": never asked for')


def token_maps(
    panels: Sequence[tuple[str, Array, float]],
    edges: Sequence[tuple[int, int]] | Array,
    names: Sequence[str],
    run_name: str,
) -> Figure:
    """Draw the positions of tokens on a plane with their names, and join true neighbours by lines.

    An entry of `panels` is (title, places (n, 2), stress), where stress is the error of the plane in showing the
    distances of the PEs; it is not written if it is NaN. `edges` are pairs of tokens (k, 2) that are true neighbours.
    There are at most five panels in a row.
    """
    pairs = np.asarray(edges, dtype=int).reshape(-1, 2)
    rows = max(1, -(-len(panels) // MAX_PANELS))
    columns = max(1, -(-len(panels) // rows))
    side = 2.1 if len(panels) > 1 else 3.0
    lines = max((base.wrapped(base.short(str(name), 90), 30).count("\n") for name, _, _ in panels), default=0)
    head = 0.45 + 0.16 * lines
    figure, drawn = squares(rows, columns, side, (0.25, head + 0.1), top=head, left=0.15, right=0.15)
    if not panels:
        base.nothing(drawn[0], "no maps")
    for axes, (name, positions, stress) in zip(drawn, panels, strict=False):
        places = np.asarray(positions, dtype=float)
        if places.shape != (len(names), 2):
            raise must_be("places", f"an array of shape ({len(names)}, 2), a row per name", places.shape)
        base.title(axes, str(name), f"stress {stress:.2f}" if np.isfinite(stress) else "", width=38)
        if not np.isfinite(places).all():
            base.nothing(axes, "not finite")
            continue
        middle = (places.max(axis=0) + places.min(axis=0)) / 2
        reach = 0.5 * np.ptp(places, axis=0).max() * 1.18 or 1.0
        (x0, y0), (x1, y1) = middle - reach, middle + reach
        axes.set(xlim=(x0, x1), ylim=(y0, y1), aspect="equal")
        axes.add_collection(LineCollection(list(places[pairs]), colors=MUTED, linewidths=0.9, alpha=0.7, zorder=1))
        axes.plot(places[:, 0], places[:, 1], "o", color=BLUE, markersize=4.2, markeredgewidth=0, zorder=2)
        room = (72 * side, 72 * side)
        write_beside(axes, places, [str(name) for name in names], room, lines=places[pairs], size=6.3, gap=3.0)
    how = "lines join tokens that are neighbours in truth; only distances have a meaning"
    return base.small_print(figure, run_name, how)


def squares(
    rows: int, columns: int, side: float, gap: tuple[float, float], top: float, left: float, right: float
) -> tuple[Figure, list[Axes]]:
    """Return a figure with rows x columns square panels without borders and ticks, and its panels, row by row.

    All sizes are in inches: `side` of a panel, `gap` between panels (across, down), and the margins `top`, `left` and
    `right`. The layout is computed here because matplotlib's leaves too little space for the titles of square panels.
    """
    bottom = 0.42
    wide, tall = columns * (side + gap[0]) - gap[0], rows * (side + gap[1]) - gap[1]
    width, height = max(left + wide + right, base.MIN_WIDTH), bottom + tall + top
    figure = Figure(figsize=(width, height))
    panels = []
    for row in range(rows):
        for column in range(columns):
            x, y = left + column * (side + gap[0]), bottom + (rows - 1 - row) * (side + gap[1])
            axes = figure.add_axes((x / width, y / height, side / width, side / height))
            base.plain(axes)
            axes.spines[:].set_visible(False)
            axes.set(xticks=[], yticks=[])
            panels.append(axes)
    return figure, panels


def _bar_beside(figure: Figure, panels: Sequence[Axes]) -> Axes:
    """Return axes for a colour bar to the right of the panels, centred vertically."""
    width, height = figure.get_size_inches()
    first, last = panels[0].get_position(), panels[-1].get_position()
    tall = min(first.y1 - last.y0, 2.4 / height)
    return figure.add_axes((last.x1 + 0.14 / width, (first.y1 + last.y0 - tall) / 2, 0.11 / width, tall))


def _rules(axes: Axes, n: int, rule: int) -> None:
    """Draw thin horizontal and vertical lines after every `rule` of the `n` tokens of a map."""
    for edge in range(rule, n, rule):
        axes.axhline(edge - 0.5, color=MUTED, linewidth=0.5)
        axes.axvline(edge - 0.5, color=MUTED, linewidth=0.5)


def maps_as_pictures(
    panels: Sequence[tuple[str, str, Array]],
    positions: Array,
    near: Array,
    picture: Array,
    run_name: str,
    note: str = "",
) -> Figure:
    """Draw maps of the tokens of a grid, each token as its piece of a picture, with the true grid last.

    An entry of `panels` is (title, note, places (n, 2)), where places are the positions of the tokens on a map.
    `positions` (n, 2) are the true row and column of every token, and `near` (n, n) is true for pairs of true
    neighbours, which are joined by lines. The `picture`, a matrix of greys from 0 to 1, is cut into the rows and
    columns of the grid. Maps are shifted, rotated, reflected and scaled onto the grid, since their orientation and
    size are arbitrary.
    """
    n = len(positions)
    if np.shape(positions) != (n, 2) or np.shape(near) != (n, n):
        raise must_be("positions and near", "of shape (n, 2) and (n, n)", (np.shape(positions), np.shape(near)))
    true = np.asarray(positions, dtype=float) - np.mean(positions, axis=0)
    pieces = cut(picture, np.asarray(positions))
    pairs = np.argwhere(np.triu(near))
    count = len(panels) + 1
    rows = -(-count // 3)  # at most three in a row
    columns = -(-count // rows)
    figure, drawn = squares(rows, columns, SIDE, (0.2, 0.62), top=0.55, left=0.12, right=0.12)
    laid = [(title, panel_note, onto(places, true)) for title, panel_note, places in panels]
    laid.append(("true grid", "what is to be found", true))
    for axes, (title, panel_note, places) in zip(drawn, laid, strict=False):
        base.title(axes, title, panel_note, width=50)
        if np.isfinite(places).all():
            _lay_out(axes, places, pieces, pairs)
        else:
            base.nothing(axes, "not finite")
    for axes in drawn[count:]:
        axes.set_axis_off()
    how = "maps are turned, mirrored and scaled onto the true grid, for display only"
    return base.small_print(figure, run_name, "; ".join(filter(None, (note, "lines join true neighbours"))), how)


def cut(picture: Array, positions: Array) -> Array:
    """Cut a picture into the cells of a grid and return the cell at each of the `positions` (n, 2): (n, DOTS, DOTS).

    A pixel of a cell is the nearest pixel of the picture.
    """
    image = np.asarray(picture, dtype=float)
    if image.ndim != 2 or 0 in image.shape:
        raise must_be("picture", "grey, (rows, columns)", image.shape)
    inside = (np.arange(DOTS) + 0.5) / DOTS
    first, last = positions.min(axis=0), positions.max(axis=0)
    share = (positions[:, :, None] - first[:, None] + inside) / (last - first + 1)[:, None]  # (n, 2, DOTS)
    rows, across = ((share[:, axis] * image.shape[axis]).astype(int) for axis in (0, 1))
    return np.asarray(image[rows[:, :, None], across[:, None, :]])


def onto(places: Array, true: Array) -> Array:
    """Return a map (n, 2) rotated and reflected onto the centred map `true` (n, 2), and scaled to its spread."""
    laid = turned(places, true)
    size = np.linalg.norm(laid)
    return np.asarray(laid * (np.linalg.norm(true) / size)) if size > 0 else laid


def _lay_out(axes: Axes, places: Array, pieces: Array, pairs: Array) -> None:
    """Draw one small image per token, `pieces` (n, DOTS, DOTS), at its place (n, 2), on top of lines between `pairs`.

    The first coordinate of a place increases downwards, as the rows of a grid do.
    """
    reach = max(float(np.abs(places).max()) + 0.6, 1.0)
    axes.set(xlim=(-reach, reach), ylim=(reach, -reach), aspect="equal")
    segments = [[places[token][::-1] for token in pair] for pair in pairs]
    axes.add_collection(LineCollection(segments, colors=BLUE, linewidths=0.7, alpha=0.55, zorder=1))
    side = round(PIECE * DOTS)
    small = pieces[:, (DOTS - side) // 2 :, (DOTS - side) // 2 :][:, :side, :side]
    seen = np.pad(np.ones((side - 2, side - 2)), 1)  # edges are transparent, so that pieces can be distinguished
    dots = int(np.ceil(2 * reach * DOTS))
    canvas = np.zeros((dots, dots, 4))
    corner = np.clip(((places + reach) * DOTS - side / 2).round().astype(int), 0, dots - side)
    for (top, left), piece in zip(corner, small, strict=True):
        canvas[top : top + side, left : left + side, :3] = piece[..., None]
        canvas[top : top + side, left : left + side, 3] = seen
    extent = (-reach, -reach + dots / DOTS, -reach + dots / DOTS, -reach)
    axes.imshow(canvas, extent=extent, interpolation="none", zorder=2)
    axes.set(xlim=(-reach, reach), ylim=(reach, -reach))
