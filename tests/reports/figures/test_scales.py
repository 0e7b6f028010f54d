"""How good each sigma is in many settings, and where libraries start."""

import itertools

import numpy as np
import pandas as pd
import pytest

from placecode.reports import figures
from placecode.reports.figures.base import BLUE

pytestmark = pytest.mark.filterwarnings("error")

MARKS = pd.DataFrame(
    [
        ("1", "1: " + "; ".join(f"library {i}" for i in range(12)), 1.0, 1.0),
        ("d^-1/2", "d^-1/2: fairseq; CLIP", 0.03, 0.12),
        ("0.02", "0.02: timm", 0.02, 0.02),
        ("0.0176", "0.0176: BERT", 0.0176, 0.0176),
        ("0", "0: others", 0.0, 0.0),
    ],
    columns=["formula", "names", "low", "high"],
)


def curves(tasks: int = 2, panels: tuple[str, ...] = ("outcome", "map")) -> pd.DataFrame:
    rows = [
        (panel, f"task {i}", f"setting {i}", sigma, share)
        for panel, i in itertools.product(panels, range(tasks))
        for sigma, share in ((0.1, 1.0), (0.01, 0.5 + 0.1 * i), (2.0, -0.4))
    ]
    return pd.DataFrame(rows, columns=["panel", "task", "setting", "sigma", "share"])


def test_a_panel_for_each_outcome_and_a_line_for_each_setting() -> None:
    outcome, maps, names = figures.default_scales(curves(), MARKS, "demo").axes
    assert (outcome.get_ylabel(), maps.get_ylabel(), names.get_ylabel()) == ("outcome", "map", "")
    lines = [line for line in outcome.lines if line.get_label().startswith("task")]
    assert [line.get_label() for line in lines] == ["task 0", "task 1"]
    assert lines[1].get_xdata().tolist() == [0.01, 0.1, 2.0]  # type: ignore[union-attr]
    np.testing.assert_allclose(lines[1].get_ydata(), [0.6, 1.0, -0.1])  # what is worse still is drawn at the edge


def test_libraries_stand_at_their_scales_on_the_same_axis() -> None:
    figure = figures.default_scales(curves(), MARKS, "demo")
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    marks = [line.get_xdata() for line in figure.axes[-1].lines if line.get_color() == BLUE]
    one, width, fixed, cut, zero = (np.asarray(mark).tolist() for mark in marks)
    assert (one, width, fixed, cut) == ([1.0], [0.03, 0.12], [0.02], [0.0176])
    assert 0 < zero[0] < 0.005


def test_names_do_not_meet_and_stay_on_the_figure() -> None:
    figure = figures.default_scales(curves(), MARKS, "demo")
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[-1].texts]
    assert len(boxes) == len(MARKS)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 for box in boxes)


def test_nothing_learned_leaves_the_libraries() -> None:
    figure = figures.default_scales(curves().iloc[:0], MARKS, "demo")
    figure.draw_without_rendering()
    assert len(figure.axes) == 1 and len(figure.axes[0].texts) == len(MARKS)
