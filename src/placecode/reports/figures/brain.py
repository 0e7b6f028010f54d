"""Draw the regions of a brain as dots at their positions in a brain outline, coloured by group (cluster of regions).

>>> rows = {"small": groups, "large": others}  # (n,) each, -1 for a region in no group
>>> figure = regions_on_brain(rows, task.positions, "brain-quick", {"small": nearest}, task.partner)

The outline is the glass brain of nilearn, which is installed with the extra `brain` and imported only when a figure is
drawn. It is drawn without pyplot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.transforms import IdentityTransform
from scipy.optimize import linear_sum_assignment

from placecode.arrays import AnyArray
from placecode.data.packages import import_optional
from placecode.reports.figures import base
from placecode.reports.figures.base import BLUE, GREEN, INK, MUTED, ORANGE, PAPER, PURPLE, SMALL, TEXT, VERMILLION

PALETTE = ((BLUE, "o"), (VERMILLION, "D"), (GREEN, "^"), (ORANGE, "s"), (PURPLE, "v"), ("#56B4E9", "P"))
"""Colours and markers of the six largest groups. All other groups are grey."""
GREY = len(PALETTE)
"""Colour number of all groups beyond the palette, which are drawn in grey."""
AREAS = {"o": 30.0, "D": 23.0, "^": 32.0, "s": 26.0, "v": 32.0, "P": 44.0}
"""Areas of the markers in square points, chosen to look equally large."""
SCALE = 0.0105
"""Scale of the drawing, in inches per millimetre of brain, the same in all views."""

Numbers = npt.NDArray[np.int64]


class View(NamedTuple):
    """A side from which the brain is drawn.

    `letter` is nilearn's name of the view. `across`, `up` and `along` are the numbers of the coordinates (0 to 2) that
    are drawn horizontally, drawn vertically, and along which one looks. `near` is +1 if regions with a large coordinate
    `along` are closest to the viewer, and -1 if they are farthest. `half` is -1 or +1 if only regions whose x has this
    sign are drawn, and 0 if all are. `turned` is whether the horizontal coordinate increases to the left.
    """

    title: str
    letter: str
    across: int
    up: int
    along: int
    near: int
    half: int = 0
    turned: bool = False


VIEWS = (
    View("left side", "l", 1, 2, 0, -1, half=-1, turned=True),
    View("from behind", "y", 0, 2, 1, -1),
    View("from above", "z", 0, 1, 2, 1),
    View("right side", "r", 1, 2, 0, 1, half=1),
)


def regions_on_brain(
    maps: Mapping[str, Numbers],
    coordinates: AnyArray,
    run_name: str,
    neighbors: Mapping[str, Numbers],
    partner: Numbers,
    note: str = "",
) -> Figure:
    """Draw the regions of a brain from four sides, coloured by group, with a row of drawings per entry of `maps`.

    Groups of different rows have the same colour if they consist mostly of the same regions; see `matched`. Regions in
    groups beyond the `PALETTE` are grey, and regions without a group are hollow.

    Parameters
    ----------
    maps : mapping of str to ndarray, shape (n,)
        By the title of a row, the group of each region, -1 for none.
    coordinates : ndarray, shape (n, 3)
        Positions of the regions in mm of MNI space.
    run_name : str
        Name of the run, for the small print.
    neighbors : mapping of str to ndarray, shape (n,)
        By the title of a row, for each region the index of the region with the most similar PE, -1 for none. A line
        joins the two.
    partner : ndarray, shape (n,)
        For each region the index of the mirror region in the other hemisphere, -1 for none. A line between mirror
        regions is dark.
    note : str
        Text that is added to the small print.
    """
    n, colors = len(coordinates), matched([*maps.values()])
    rows = []
    for (title, numbers), row_colors in zip(maps.items(), colors, strict=True):
        near = neighbors[title]
        row_notes = []
        if row_colors is not colors[0]:
            same = int(((row_colors == colors[0]) & (row_colors >= 0) & (row_colors < GREY)).sum())
            row_notes.append(f"{same} of {n} regions have the colour they have in the first row")
        paired = (partner >= 0) & (near >= 0)
        hits = int((near == partner)[paired].sum())
        row_notes.append(f"nearest neighbour is the mirror region: {hits} of {int(paired.sum())}")
        rows.append(_RowText(title, numbers, row_colors, row_notes))
    color_note = "a colour is a group"
    if len(rows) > 1:
        color_note += ", chosen such that as many regions as can be have the colour they have in the rows above"
    notes = [f"{n} regions at their centres in MNI space; {color_note}"]
    if any((row_colors == GREY).any() for row_colors in colors):
        notes.append(f"grey dots are regions of groups that are not among the {GREY} largest of their row")
    lines = "lines join each region with its nearest neighbour in the PE, dark ones a region with its mirror region"
    notes += [f"{lines}; side views show only the lines within a hemisphere", note]
    figure, columns, brains = _sheet(rows, notes)
    for row, column, views in zip(rows, columns, brains, strict=True):
        row.write(column)
        for view, axes in zip(VIEWS, views, strict=True):
            _join(axes, view, coordinates, neighbors[row.title], partner)
            visible = np.flatnonzero(coordinates[:, 0] * view.half >= 0)
            # regions close to the viewer are drawn last, over those behind them
            order = visible[np.argsort(view.near * coordinates[visible, view.along], kind="stable")]
            _markers(axes, coordinates[order][:, [view.across, view.up]], row.colors[order].tolist())
    return base.small_print(figure, run_name, *notes)


def matched(maps: Sequence[Numbers]) -> list[Numbers]:
    """Choose colours of groups such that as many regions as possible keep the colour they have in earlier maps.

    A map has the group number of each region (n,), -1 for no group. The result for a map has the colour number of each
    region (n,): 0 to GREY - 1 in the largest groups, GREY in all other groups, -1 for no group. Colours are chosen by
    Hungarian matching with all earlier maps. Groups without a match get the remaining colours, the largest group first.

    >>> matched([np.array([4, 4, 4, 2, 2]), np.array([0, 0, 1, 1, 1])])
    [array([0, 0, 0, 1, 1]), array([0, 0, 1, 1, 1])]
    """
    done: list[Numbers] = []
    for numbers in maps:
        largest = by_size(numbers)[:GREY]
        shared = np.zeros((len(largest), GREY))
        for before in done:
            for i, group in enumerate(largest):
                shared[i] += np.bincount(before[(numbers == group) & (before >= 0) & (before < GREY)], minlength=GREY)
        pairs = zip(*linear_sum_assignment(shared, maximize=True), strict=True)
        matches = {int(i): int(color) for i, color in pairs if shared[i, color] > 0}
        left = (color for color in range(GREY) if color not in matches.values())
        colors = np.where(numbers >= 0, GREY, -1)
        for i, group in enumerate(largest):
            colors[numbers == group] = matches[i] if i in matches else next(left)
        done.append(colors.astype(np.int64))
    return done


def by_size(numbers: Numbers) -> list[int]:
    """Return the group numbers of a map, the largest group first; of groups of equal size, the lower number first.

    >>> by_size(np.array([7, 7, 2, 2, 2, -1, 5, 5]))
    [2, 5, 7]
    """
    labels, sizes = np.unique(numbers[numbers >= 0], return_counts=True)
    return [int(labels[i]) for i in np.argsort(-sizes, kind="stable")]


class _RowText:
    """The text to the left of a row of brains: title, legend with the number of regions per colour, and notes."""

    wide = 1.6
    """Width in inches. `steps` has the height of a line of each kind of text, also in inches."""
    steps = {"title": 0.175, "key": 0.165, "note": 0.135}

    def __init__(self, title: str, numbers: Numbers, colors: Numbers, notes: Sequence[str]) -> None:
        self.title, self.colors = title, colors
        self.head = base.wrapped(base.short(title, 90), 20)
        self.notes = [base.wrapped(note, 29) for note in notes]
        self.key: list[tuple[int, str]] = []
        for color in [*sorted(range(GREY), key=lambda color: -int((colors == color).sum())), GREY, -1]:
            count = int((colors == color).sum())
            others = len(np.unique(numbers[colors == color]))
            texts = {GREY: f"{count} in {others} smaller group{'s' * (others > 1)}", -1: f"{count} in no group"}
            if count:
                self.key.append((color, texts.get(color, f"{count} region{'s' * (count > 1)}")))

    @property
    def tall(self) -> float:
        """Height of the text in inches."""
        title = self.steps["title"] * (self.head.count("\n") + 1)
        lines = sum(note.count("\n") + 1 for note in self.notes)
        gaps = 0.06 + 0.08 * len(self.notes)
        return title + self.steps["key"] * len(self.key) + self.steps["note"] * lines + gaps

    def write(self, axes: Axes) -> None:
        """Write the text into axes whose data coordinates are inches from the upper left corner."""
        y = (axes.get_ylim()[0] - self.tall) / 2
        words: base.Style = {"ha": "left", "va": "top", "parse_math": False, "linespacing": 1.25}
        axes.text(0, y, self.head, fontsize=TEXT, color=INK, **words)
        y += self.steps["title"] * (self.head.count("\n") + 1) + 0.06
        for color, text in self.key:
            y += self.steps["key"] / 2
            _markers(axes, np.array([[0.07, y]]), [color])
            axes.text(0.19, y, text, fontsize=8, color=INK, ha="left", va="center_baseline")
            y += self.steps["key"] / 2
        for note in self.notes:
            axes.text(0, y + 0.08, note, fontsize=SMALL, color=MUTED, **words)
            y += self.steps["note"] * (note.count("\n") + 1) + 0.08


def _sheet(rows: Sequence[_RowText], notes: Sequence[str]) -> tuple[Figure, list[Axes], list[list[Axes]]]:
    """Make a figure with outlines of brains; return it, the axes for text (one per row), and the axes of views per row.

    Space for the `notes` is left at the bottom. The layout is computed in inches, so that all views have one scale.
    """
    outlines, bounds = zip(*(_outline(view) for view in VIEWS), strict=True)
    sizes = [(SCALE * (x1 - x0), SCALE * (y1 - y0)) for x0, x1, y0, y1 in bounds]
    left, right, gap, top = 0.15, 0.1, 0.16, 0.3
    row = max(*(tall for _, tall in sizes), *(column.tall for column in rows)) + 0.12
    width = left + _RowText.wide + sum(wide + gap for wide, _ in sizes) + right
    lines = sum(len(note) // int(width * 17) + 1 for note in notes if note)  # slightly fewer letters per line than fit
    bottom = 0.2 + 0.125 * lines
    height = bottom + row * len(rows) + top
    figure = Figure(figsize=(width, height))

    columns: list[Axes] = []
    brains: list[list[Axes]] = []
    for floor in (bottom + row * up for up in reversed(range(len(rows)))):
        columns.append(base.add_axes_inches(figure, left, floor, _RowText.wide, row))
        columns[-1].set(xlim=(0, _RowText.wide), ylim=(row, 0))
        brains.append([])
        x = left + _RowText.wide
        for view, outline, bound, (wide, tall) in zip(VIEWS, outlines, bounds, sizes, strict=True):
            x += gap
            axes = base.add_axes_inches(figure, x, floor + (row - tall) / 2, wide, tall)
            look: base.Style = {"facecolor": "none", "edgecolor": MUTED, "linewidth": 0.8, "capstyle": "round"}
            axes.add_patch(PathPatch(outline, alpha=0.45, zorder=1, **look))
            axes.set(xlim=bound[1::-1] if view.turned else bound[:2], ylim=bound[2:])
            for letter, at in (("L", 0.04), ("R", 0.96)) if view.half == 0 else ():
                axes.text(at, 0.97, letter, transform=axes.transAxes, fontsize=TEXT, color=INK, ha="center", va="top")
            if len(brains) == 1:
                place: base.Style = {"ha": "center", "va": "top", "fontsize": 8.5, "color": INK}
                figure.text((x + wide / 2) / width, 1 - 0.1 / height, view.title, **place)
            brains[-1].append(axes)
            x += wide
    for axes in figure.axes:
        axes.set_axis_off()
    # a scale bar of five centimetres at the lower front of a side view
    axes, front, floor = brains[-1][0], bounds[0][1] - 4, bounds[0][2] + 8
    axes.plot([front, front - 50], [floor, floor], color=MUTED, linewidth=1.2, solid_capstyle="butt")
    axes.text(front - 25, floor + 3, "5 cm", fontsize=SMALL, color=MUTED, ha="center", va="bottom")
    return figure, columns, brains


def _outline(view: View) -> tuple[Path, tuple[float, float, float, float]]:
    """Return nilearn's outline of a brain and its bounds (left, right, lower, upper) in mm.

    The hundreds of strokes of the outline are joined into one path, which is a single element in an SVG and is not
    darker where strokes cross. Raises BadInput with the command that installs nilearn if it is missing.
    """
    displays = import_optional("nilearn.plotting.displays", "Drawing regions on a brain")
    axes = Figure().add_subplot()
    bounds = displays.GlassBrainAxes(axes, view.letter, 0.0).get_object_bounds()
    strokes = [stroke.get_path().transformed(stroke.get_data_transform() - axes.transData) for stroke in axes.patches]
    return Path.make_compound_path(*strokes), bounds


def _markers(axes: Axes, at: AnyArray, colors: Sequence[int]) -> None:
    """Draw markers at positions (k, 2) in the styles of their colour numbers (k,). Later markers cover earlier ones."""
    looks = [_style(color) for color in colors]
    marks = [MarkerStyle(look["marker"]) for look in looks]
    drawn = PathCollection(
        [mark.get_path().transformed(mark.get_transform()) for mark in marks],
        sizes=[look["area"] for look in looks],
        offsets=at,
        offset_transform=axes.transData,
        facecolors=[look["face"] for look in looks],
        edgecolors=[look["edge"] for look in looks],
        linewidths=[look["line"] for look in looks],
        zorder=3,
    )
    drawn.set_transform(IdentityTransform())
    axes.add_collection(drawn, autolim=False)


def _join(axes: Axes, view: View, places: AnyArray, nearest: Numbers, mirror: Numbers) -> None:
    """Draw a line from each region to its `nearest` region if the view shows both; dark if they are mirror regions."""
    start = np.flatnonzero(nearest >= 0)
    end = nearest[start]
    both = (places[start, 0] * view.half >= 0) & (places[end, 0] * view.half >= 0)
    hit = end == mirror[start]
    flat = places[:, [view.across, view.up]]
    for chosen, color, width in ((both & ~hit, MUTED, 0.6), (both & hit, INK, 0.9)):
        pairs = np.unique(np.sort(np.stack([start[chosen], end[chosen]], axis=1), axis=1), axis=0)  # each line once
        axes.add_collection(LineCollection(list(flat[pairs]), colors=color, linewidths=width, zorder=2), autolim=False)


def _style(color: int) -> base.Style:
    """Return the marker style of a colour number: hollow for -1 (no group), grey for `GREY`, else from `PALETTE`."""
    if color < 0:
        return {"face": PAPER, "edge": MUTED, "line": 0.8, "marker": "o", "area": 18.0}
    if color >= GREY:
        return {"face": MUTED, "edge": PAPER, "line": 0.5, "marker": "o", "area": 18.0}
    face, marker = PALETTE[color]
    return {"face": face, "edge": PAPER, "line": 0.5, "marker": marker, "area": AREAS[marker]}
