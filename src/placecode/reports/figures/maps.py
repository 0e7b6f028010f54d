"""Draw maps: similarity of tokens, attention, error rates by cell, positions of tokens, and pictures cut by a grid.

>>> figure = similarity_maps(true, (start, end), (start2, end2), names, "lst-quick", titles, rule=4)
>>> figure = attention_maps([("small", small), ("large", large)], "lst-quick", rule=4)  # (blocks, tokens, tokens) each
>>> figure = token_maps([("after training", places, 0.08)], edges, names, "lst-quick")  # places: (tokens, 2)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from placecode.analysis.geometry import align_map
from placecode.arrays import AnyArray
from placecode.reports.figures import base
from placecode.reports.figures.base import BLUE, MUTED, SHADES, Panels
from placecode.reports.figures.labels import write_beside

MAX_PANELS = 5
"""Maximum number of panels in a row of `token_maps`."""
MAX_NAMED = 25
"""Maximum number of tokens for which a similarity map shows their names."""
SIDE = 2.7
"""Side of a similarity map, or of a panel with a picture, in inches."""
DOTS = 24
"""Side of a grid cell in pixels, in `maps_as_pictures`."""
PIECE = 0.92
"""Side of a piece of the picture as a fraction of a grid cell, below 1 so that lines between pieces are visible."""


def similarity_maps(
    true: AnyArray,
    small: tuple[AnyArray, AnyArray],
    large: tuple[AnyArray, AnyArray],
    labels: Sequence[str],
    run_name: str,
    titles: tuple[str, str, str],
    rule: int,
) -> Figure:
    """Draw the cosine similarity of the tokens' centred PEs at a small and a large sigma, and the true similarity.

    All maps are (n, n) for n tokens, as from `alignment.token_similarity`, and share one colour scale. `small` and
    `large` are pairs of maps (before training, after training). `titles` are three texts, for `small`, `large` and
    `true`. `labels` are the names of the tokens, which are written if there are at most 25. A thin line is drawn after
    every `rule` tokens, for example after each row of a grid.
    """
    n = len(true)
    ticks, names = (range(n), list(labels)) if n <= MAX_NAMED else (range(0), [])
    # The layout is computed in inches, so that all maps are square and of one size. The true map is centred vertically.
    gap, room = 0.16, 0.12 + 0.058 * max(map(len, names), default=0)
    left, bottom = room + 0.3, room + 0.35
    width, height = left + 3 * SIDE + gap + room + 0.35 + 0.95, bottom + 2 * SIDE + gap + 0.4
    figure = Figure(figsize=(width, height))

    def panel(array: AnyArray, x: float, y: float, named_x: bool, named_y: bool) -> Axes:
        """Draw a map (n, n) with its lower left corner at (x, y) inches, and name tokens along the chosen axes."""
        axes = base.add_axes_inches(figure, x, y, SIDE, SIDE)
        _heat(axes, array, "RdBu_r", Normalize(-1, 1), rule)
        axes.tick_params(pad=2)
        axes.set_xticks(ticks if named_x else [], names if named_x else [], rotation=90)
        axes.set_yticks(ticks if named_y else [], names if named_y else [])
        for text in (*axes.get_xticklabels(), *axes.get_yticklabels()):
            text.set(fontsize=6.5, parse_math=False)
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
    bar_axes = base.add_axes_inches(figure, width - 0.8, middle, 0.11, SIDE)
    base.colorbar(figure, axes.images[0], "cosine similarity of centred PEs", cax=bar_axes, ticks=[-1, -0.5, 0, 0.5, 1])
    return base.small_print(figure, run_name, f"{n} tokens, in the same order along both sides of every map")


def attention_maps(columns: Sequence[tuple[str, AnyArray]], run_name: str, rule: int) -> Figure:
    """Draw attention maps, with a row of panels per block and a column of panels per entry (title, maps) of `columns`.

    The maps of a column are (blocks, tokens, tokens), with queries in rows and keys in columns. All maps share one
    colour scale from 0 to the 99.5th percentile of all entries, so that a few large entries do not hide the others. A
    thin line is drawn after every `rule` tokens. A map with NaN or infinite entries says "not finite".
    """
    titles, maps = [name for name, _ in columns], np.array([maps for _, maps in columns], dtype=float)
    entries = maps[np.isfinite(maps)]
    most = float(np.percentile(entries, 99.5)) if len(entries) else 0.0
    norm = Normalize(0, most or 1)
    top = 0.32 + _title_height(titles, 21)
    figure, panels = square_panels(maps.shape[1], len(maps), 1.45, (0.1, 0.1), top=top, left=0.42, right=0.85)
    for i, axes in enumerate(panels):
        block, column = divmod(i, len(maps))
        _heat(axes, maps[column, block], SHADES, norm, rule)
        if not np.isfinite(maps[column, block]).all():
            base.write_empty_note(axes, "not finite")
        if block == 0:
            base.title(axes, titles[column], width=27)
        if column == 0:
            base.label(axes, y=f"block {block + 1}")
    more = "max" if entries.max(initial=0) > most else "neither"
    # the bar stands at the right of all panels, centred vertically
    width, height = figure.get_size_inches()
    upper, lower = panels[0].get_position(), panels[-1].get_position()
    tall = min(upper.y1 - lower.y0, 2.4 / height)
    place = (lower.x1 + 0.14 / width, (upper.y1 + lower.y0 - tall) / 2, 0.11 / width, tall)
    base.colorbar(figure, ScalarMappable(norm, SHADES), "attention", cax=figure.add_axes(place), extend=more)
    return base.small_print(figure, run_name, f"each row of a map shows where one of {maps.shape[2]} tokens looks")


def error_maps(panels: Sequence[tuple[str, AnyArray]], run_name: str) -> Figure:
    """Draw, for each cell of a grid, how often a model is wrong when it is asked for the content of this cell.

    There is a map per entry (title, rates) of `panels`. `rates` are error rates of shape (rows, columns). The rate is
    written in every cell, or "none" if it is NaN because the cell was never asked for.
    """
    most = max((float(np.nanmax(rates, initial=0)) for _, rates in panels), default=0.0)
    most = min(max(np.ceil(most * 10) / 10, 0.1), 1.0)
    norm = Normalize(0, most)
    figure, drawn = base.panel_grid(len(panels), 4, (2.4, 2.55), extra=(0.9, 0.5), sharey=False)
    for axes, (name, rates) in zip(drawn, panels, strict=False):
        _heat(axes, rates, SHADES, norm)
        for count, setter in zip(rates.shape, (axes.set_yticks, axes.set_xticks), strict=True):
            setter(range(count), [str(i + 1) for i in range(count)])
        for (row, column), rate in np.ndenumerate(rates):
            text, ink = (f"{rate:.2f}", text_color_on(rate, norm)) if np.isfinite(rate) else ("none", MUTED)
            axes.text(column, row, text, ha="center", va="center", fontsize=8, color=ink)
        base.title(axes, name, width=38)
        base.label_edges(axes, "column", "row")
    if panels:
        place: base.Style = {"ax": drawn, "fraction": 0.04, "aspect": 22, "pad": 0.02}
        base.colorbar(figure, ScalarMappable(norm, SHADES), "share of wrong answers", **place)
    return base.small_print(figure, run_name, 'by the cell asked for; "none": never asked for')


def token_maps(
    panels: Sequence[tuple[str, AnyArray, float]],
    edges: Sequence[tuple[int, int]],
    names: Sequence[str],
    run_name: str,
) -> Figure:
    """Draw the positions of tokens on a plane with their names, and join true neighbours by lines.

    An entry of `panels` is (title, places (n, 2), stress). The stress says how far distances on the plane are from the
    distances of the PEs; it is not written if it is NaN. `edges` are pairs of tokens that are true neighbours. There
    are at most five panels in a row.
    """
    pairs = np.asarray(edges, dtype=int).reshape(-1, 2)
    side = 2.1 if len(panels) > 1 else 3.0
    head = 0.45 + _title_height([name for name, *_ in panels], 30)
    shape = base.grid_shape(len(panels), MAX_PANELS)
    figure, drawn = square_panels(*shape, side, (0.25, head + 0.1), top=head, left=0.15, right=0.15)
    if not panels:
        base.write_empty_note(drawn[0], "no maps")
    for axes, (name, places, stress) in zip(drawn, panels, strict=False):
        base.title(axes, name, f"stress {stress:.2f}" if np.isfinite(stress) else "", width=38)
        if not np.isfinite(places).all():
            base.write_empty_note(axes, "not finite")
            continue
        middle = (places.max(axis=0) + places.min(axis=0)) / 2
        reach = 0.5 * np.ptp(places, axis=0).max() * 1.18 or 1.0
        (x0, y0), (x1, y1) = middle - reach, middle + reach
        axes.set(xlim=(x0, x1), ylim=(y0, y1), aspect="equal")
        axes.add_collection(LineCollection(list(places[pairs]), colors=MUTED, linewidths=0.9, alpha=0.7, zorder=1))
        axes.plot(places[:, 0], places[:, 1], "o", color=BLUE, markersize=4.2, markeredgewidth=0, zorder=2)
        write_beside(axes, places, names, (72 * side, 72 * side), lines=places[pairs], size=6.3, gap=3.0)
    note = "lines join tokens that are neighbours in truth; only distances have a meaning"
    return base.small_print(figure, run_name, note)


def square_panels(
    rows: int, columns: int, side: float, gap: tuple[float, float], top: float, left: float, right: float
) -> Panels:
    """Return a figure with rows x columns square panels without borders and ticks, and its panels, row by row.

    All sizes are in inches: `side` of a panel, `gap` between panels (across, down), and the margins `top`, `left` and
    `right`. The layout is computed here because matplotlib's leaves too little space for the titles of square panels.
    """
    bottom = 0.42
    wide, tall = columns * (side + gap[0]) - gap[0], rows * (side + gap[1]) - gap[1]
    figure = Figure(figsize=(max(left + wide + right, base.MIN_WIDTH), bottom + tall + top))
    panels = []
    for row, column in np.ndindex(rows, columns):
        x, y = left + column * (side + gap[0]), bottom + (rows - 1 - row) * (side + gap[1])
        axes = base.add_axes_inches(figure, x, y, side, side)
        axes.spines[:].set_visible(False)
        axes.set(xticks=[], yticks=[])
        panels.append(axes)
    return figure, panels


def _title_height(titles: Sequence[str], width: int) -> float:
    """Return the height, in inches, of all lines but the first of the longest title, wrapped to `width` letters."""
    return 0.16 * max((base.wrapped(base.short(title, 90), width).count("\n") for title in titles), default=0)


def _heat(axes: Axes, array: AnyArray, shades: str, norm: Normalize, rule: int = 0) -> None:
    """Draw a matrix as colours without a border, with thin lines after every `rule` rows and columns unless it is 0."""
    axes.imshow(array, cmap=shades, norm=norm, interpolation="none")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    for edge in range(rule, len(array), rule) if rule else ():
        axes.axhline(edge - 0.5, color=MUTED, linewidth=0.5)
        axes.axvline(edge - 0.5, color=MUTED, linewidth=0.5)


def text_color_on(value: float, norm: Normalize) -> str:
    """Return the text colour for a cell coloured by `SHADES`: light or dark, and the same on light and dark pages."""
    return "#fefefe" if float(norm(value)) > 0.7 else "#111417"


def maps_as_pictures(
    panels: Sequence[tuple[str, str, AnyArray]],
    positions: AnyArray,
    near: AnyArray,
    picture: AnyArray,
    run_name: str,
    note: str = "",
) -> Figure:
    """Draw maps of the tokens of a grid, with each token drawn as a piece of a picture. The last map is the true grid.

    An entry of `panels` is (title, note, places (n, 2)), where places are the positions of the tokens on a map.
    `positions` (n, 2) are the true row and column of every token, and `near` (n, n) is true for pairs of true
    neighbours, which are joined by lines. The `picture`, a matrix of greys from 0 to 1, is cut into the rows and
    columns of the grid. Maps are shifted, rotated, reflected and scaled onto the grid, since the orientation and size
    of a map are arbitrary.
    """
    true = positions - np.mean(positions, axis=0)
    pieces, pairs = cut_picture(picture, positions), np.argwhere(np.triu(near))
    shape = base.grid_shape(len(panels) + 1, 3)
    figure, drawn = square_panels(*shape, SIDE, (0.2, 0.62), top=0.55, left=0.12, right=0.12)
    aligned = [(title, panel_note, align_to_grid(places, true)) for title, panel_note, places in panels]
    aligned.append(("true grid", "what is to be found", true))
    for axes, (title, panel_note, places) in zip(drawn, aligned, strict=False):
        base.title(axes, title, panel_note, width=50)
        if np.isfinite(places).all():
            _lay_out(axes, places, pieces, pairs)
        else:
            base.write_empty_note(axes, "not finite")
    for axes in drawn[len(aligned) :]:
        axes.set_axis_off()
    first_line = "; ".join(filter(None, (note, "lines join true neighbours")))
    display = "maps are turned, mirrored and scaled onto the true grid, for display only"
    return base.small_print(figure, run_name, first_line, display)


def cut_picture(picture: AnyArray, positions: AnyArray) -> AnyArray:
    """Cut a picture into the cells of a grid and return the cell at each of the `positions` (n, 2): (n, DOTS, DOTS).

    The positions are (row, column) of the cells. Each cell is resampled to DOTS x DOTS pixels by nearest neighbours.
    """
    inside = (np.arange(DOTS) + 0.5) / DOTS
    first, last = positions.min(axis=0), positions.max(axis=0)
    share = (positions[:, :, None] - first[:, None] + inside) / (last - first + 1)[:, None]  # (n, 2, DOTS)
    rows, across = ((share[:, axis] * picture.shape[axis]).astype(int) for axis in (0, 1))
    return np.asarray(picture[rows[:, :, None], across[:, None, :]])


def align_to_grid(places: AnyArray, true: AnyArray) -> AnyArray:
    """Return the map `places` (n, 2), rotated, reflected and scaled onto the centred map `true` (n, 2)."""
    aligned = align_map(places, true)
    size = np.linalg.norm(aligned)
    return np.asarray(aligned * (np.linalg.norm(true) / size)) if size > 0 else aligned


def _lay_out(axes: Axes, places: AnyArray, pieces: AnyArray, pairs: AnyArray) -> None:
    """Draw one small image per token, `pieces` (n, DOTS, DOTS), at its place (n, 2), on top of lines between `pairs`.

    The first coordinate of a place increases downwards, as the rows of a grid do.
    """
    reach = max(float(np.abs(places).max()) + 0.6, 1.0)
    axes.set(xlim=(-reach, reach), ylim=(reach, -reach), aspect="equal")
    segments = [[places[token][::-1] for token in pair] for pair in pairs]
    axes.add_collection(LineCollection(segments, colors=BLUE, linewidths=0.7, alpha=0.55, zorder=1))
    side = round(PIECE * DOTS)
    small = pieces[:, (DOTS - side) // 2 :, (DOTS - side) // 2 :][:, :side, :side]
    opacity = np.pad(np.ones((side - 2, side - 2)), 1)  # edges are transparent, so that pieces can be distinguished
    dots = int(np.ceil(2 * reach * DOTS))
    canvas = np.zeros((dots, dots, 4))
    corner = np.clip(((places + reach) * DOTS - side / 2).round().astype(int), 0, dots - side)
    for (top, left), piece in zip(corner, small, strict=True):
        canvas[top : top + side, left : left + side, :3] = piece[..., None]
        canvas[top : top + side, left : left + side, 3] = opacity
    extent = (-reach, -reach + dots / DOTS, -reach + dots / DOTS, -reach)
    axes.imshow(canvas, extent=extent, interpolation="none", zorder=2)
    axes.set(xlim=(-reach, reach), ylim=(reach, -reach))
