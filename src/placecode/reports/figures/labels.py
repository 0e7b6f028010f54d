"""Write labels next to the points of a plot, on the side where they overlap least with labels, points and lines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from matplotlib.axes import Axes

from placecode.arrays import AnyArray
from placecode.reports.figures import base

_SIDES = ((1, 1), (1, -1), (-1, 1), (-1, -1), (1, 0), (-1, 0), (0, 1), (0, -1))  # in order of preference
_ACROSS = {1: "left", 0: "center", -1: "right"}
_UP = {1: "bottom", 0: "center", -1: "top"}


def write_beside(
    axes: Axes,
    points: AnyArray,
    texts: Sequence[str],
    room: tuple[float, float],
    dots: AnyArray | None = None,
    lines: AnyArray | None = None,
    size: float = base.SMALL,
    gap: float = 3.5,
) -> None:
    """Write one label next to each of the points (k, 2), on the side where it covers least.

    Labels avoid each other, the `dots` and the `lines`. The axes must be linear, with limits that are already set.

    Parameters
    ----------
    axes : Axes
        The panel.
    points : ndarray, shape (k, 2)
        Points to label, in data coordinates.
    texts : sequence of str
        The k labels.
    room : tuple of float
        Approximate width and height of the panel, in typographic points (1/72 inch).
    dots : ndarray, shape (m, 2), optional
        Dots to avoid; by default the points.
    lines : ndarray, shape (j, 2, 2), optional
        Lines to avoid, each given by its two ends.
    size, gap : float
        Font size, and distance between a point and its label, in typographic points.
    """
    corner = np.array([axes.get_xlim()[0], axes.get_ylim()[0]])
    unit = np.array(room) / [np.ptp(axes.get_xlim()), np.ptp(axes.get_ylim())]
    marks = ((points if dots is None else dots) - corner) * unit
    along = np.linspace(0, 1, 60)[:, None]
    ends = (np.zeros((0, 2, 2)) if lines is None else lines) - corner
    paths = np.concatenate([np.zeros((0, 2)), *((1 - along) * a + along * b for a, b in ends * unit)])
    boxes: list[AnyArray] = []  # of the labels so far: lower left, upper right
    for point, text in zip(points, texts, strict=True):
        extent = np.array([0.62 * len(text), 1.05]) * size
        options = []
        for (side, far), rank in zip(product(_SIDES, (1.0, 2.2)), range(2 * len(_SIDES)), strict=True):
            away = np.array(side) * gap * far * (0.75 if all(side) else 1.3)
            low = (point - corner) * unit + away + (np.array(side) - 1) / 2 * extent
            box = np.array([low, low + extent])
            cost = 0.05 * rank + (far - 1) + 3.0 * _inside(marks, box, 2.0) + 0.15 * _inside(paths, box, 0.5)
            cost += 0.3 * sum(_overlap(box, other) for other in boxes)
            cost += 20.0 * bool((box[0] < -2).any() or (box[1] > np.array(room) + 2).any())
            options.append((cost, rank, side, away, box))
        _, _, side, away, box = min(options, key=lambda option: option[:2])
        boxes.append(box)
        axes.annotate(
            text,
            (point[0], point[1]),
            (away[0], away[1]),
            textcoords="offset points",
            ha=_ACROSS[side[0]],
            va=_UP[side[1]],
            fontsize=size,
            color=base.INK,
            zorder=6,
            parse_math=False,
        )


def _inside(marks: AnyArray, box: AnyArray, margin: float) -> int:
    """Return how many of the points `marks` (m, 2) are inside a box (lower left, upper right) widened by a margin."""
    return int(((marks > box[0] - margin) & (marks < box[1] + margin)).all(axis=1).sum())


def _overlap(a: AnyArray, b: AnyArray) -> float:
    """Return the area that two boxes (lower left, upper right) share; 0 if they do not overlap."""
    return float(np.prod((np.minimum(a[1], b[1]) - np.maximum(a[0], b[0])).clip(min=0)))
