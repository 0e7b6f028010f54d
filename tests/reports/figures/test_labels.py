"""Names beside points do not hide one another; and what all figures share."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from placecode.reports.figures import base
from placecode.reports.figures.labels import write_beside


def panel() -> Axes:
    axes = Figure(figsize=(3, 3), dpi=72).add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 1), ylim=(0, 1))
    return axes


def overlaps(axes: Axes) -> int:
    axes.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    return sum(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


@pytest.mark.parametrize("seed", range(5))
def test_names_of_scattered_points_do_not_overlap(seed: int) -> None:
    places = np.random.default_rng(seed).uniform(0.05, 0.95, size=(16, 2))
    axes = panel()
    write_beside(axes, places, [f"r{i // 4}c{i % 4}" for i in range(16)], (216, 216), size=6.3)
    assert overlaps(axes) == 0


def test_names_stay_in_the_panel() -> None:
    axes = panel()
    corners = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    write_beside(axes, corners, ["name"] * 4, (216, 216))
    axes.figure.draw_without_rendering()
    for text in axes.texts:
        box = text.get_window_extent()
        assert box.x0 > -3 and box.y0 > -3 and box.x1 < 219 and box.y1 < 219


def test_names_avoid_dots_and_lines() -> None:
    place = np.array([[0.5, 0.5]])
    free, barred = panel(), panel()
    write_beside(free, place, ["name"], (216, 216))
    assert free.texts[0].get_ha() == "left"
    wall = np.array([[[0.52, 0.0], [0.52, 1.0]]])
    write_beside(barred, place, ["name"], (216, 216), lines=wall)
    assert barred.texts[0].get_ha() == "right"


def test_text_is_wrapped_evenly_and_loses_nothing() -> None:
    text = "over the sigmas -0.98, before training 0.00"
    assert base.wrapped(text, 40) == "over the sigmas -0.98,\nbefore training 0.00"
    assert base.wrapped(text, 40, even=False) == "over the sigmas -0.98, before training\n0.00"
    assert base.wrapped("a b\n\nc", 40) == "a b\n\nc"
    for width in range(3, 50):
        lines = base.wrapped(text, width).split("\n")
        assert max(map(len, lines)) <= width
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_rows_of_panels_are_as_equal_as_can_be() -> None:
    for count, columns in ((0, 1), (1, 1), (4, 4), (5, 3), (7, 4), (9, 3)):
        figure, drawn = base.grid_of(count, 4, (2, 2))
        assert figure.axes[0].get_subplotspec().get_gridspec().ncols == columns
        assert len(drawn) == max(count, 1)
        assert sum(axes.axison for axes in figure.axes) == len(drawn)
