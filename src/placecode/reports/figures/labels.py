"""Names beside points, where nothing else is.

>>> write_beside(axes, places, names, room=(150, 120), lines=places[edges])
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from matplotlib.axes import Axes

from placecode.reports.figures.base import INK, SMALL, Array, Style

_SIDES = ((1, 1), (1, -1), (-1, 1), (-1, -1), (1, 0), (-1, 0), (0, 1), (0, -1))  # the best first, if all are free
_ACROSS = {1: "left", 0: "center", -1: "right"}
_UP = {1: "bottom", 0: "center", -1: "top"}


def write_beside(
    axes: Axes,
    points: Array,
    texts: Sequence[str],
    room: tuple[float, float],
    dots: Array | None = None,
    lines: Array | None = None,
    size: float = SMALL,
    gap: float = 3.5,
) -> None:
    """Write each text beside its point (k, 2): one after the other, on the side that hides least.

    `dots` (m, 2), the points themselves unless given, and `lines` (j, 2, 2), by their ends, are what should not be
    hidden. `room` is the size of the panel, whose limits must be set, in typographic points: as nearly as it is known
    before the layout. Scales must be linear.
    """
    corner = np.array([axes.get_xlim()[0], axes.get_ylim()[0]])
    unit = np.array(room) / [np.ptp(axes.get_xlim()), np.ptp(axes.get_ylim())]
    marks = ((points if dots is None else dots) - corner) * unit
    along = np.linspace(0, 1, 60)[:, None]
    ends = (np.zeros((0, 2, 2)) if lines is None else lines) - corner
    paths = np.concatenate([np.zeros((0, 2)), *((1 - along) * a + along * b for a, b in ends * unit)])
    taken: list[Array] = []  # boxes: lower left, upper right
    for point, text in zip(points, texts, strict=True):
        extent = np.array([0.62 * len(text), 1.05]) * size
        found = []
        for (side, far), rank in zip(product(_SIDES, (1.0, 2.2)), range(2 * len(_SIDES)), strict=True):
            away = np.array(side) * gap * far * (0.75 if all(side) else 1.3)
            low = (point - corner) * unit + away + (np.array(side) - 1) / 2 * extent
            box = np.array([low, low + extent])
            cost = 0.05 * rank + (far - 1) + 3.0 * _inside(marks, box, 2.0) + 0.15 * _inside(paths, box, 0.5)
            cost += 0.3 * sum(_overlap(box, other) for other in taken)
            cost += 20.0 * bool((box[0] < -2).any() or (box[1] > np.array(room) + 2).any())
            found.append((cost, rank, side, away, box))
        _, _, side, away, box = min(found, key=lambda option: option[:2])
        taken.append(box)
        look: Style = {"fontsize": size, "color": INK, "zorder": 6, "parse_math": False}
        where: Style = {"ha": _ACROSS[side[0]], "va": _UP[side[1]]}
        axes.annotate(text, (point[0], point[1]), (away[0], away[1]), textcoords="offset points", **where, **look)


def _inside(marks: Array, box: Array, margin: float) -> int:
    return int(((marks > box[0] - margin) & (marks < box[1] + margin)).all(axis=1).sum())


def _overlap(a: Array, b: Array) -> float:
    """The area that two boxes share."""
    return float(np.prod((np.minimum(a[1], b[1]) - np.maximum(a[0], b[0])).clip(min=0)))
