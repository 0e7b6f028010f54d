"""Measures against sigma, before and after training."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.figure_reading import made_up, of, points
from scipy import stats

from placecode.reports import figures
from placecode.reports.figures.base import BLUE, MUTED

pytestmark = pytest.mark.filterwarnings("error")


def table(sigmas: tuple[float, ...] = (0.5, 1.0, 1.5), seeds: int = 4) -> pd.DataFrame:
    rows = made_up({"measure": ("norm", "angle"), "moment": ("start", "end"), "sigma": sigmas}, seeds)
    return rows.assign(value=rows["value"] * np.where(rows["measure"] == "norm", 100, -1))


def test_a_panel_per_measure_with_its_label_and_its_own_scale() -> None:
    norm, angle = figures.before_and_after(table(), "demo", {"norm": "length, in units"}).axes
    assert (norm.get_ylabel(), angle.get_ylabel()) == ("length, in units", "angle")
    assert norm.get_ylim()[0] > 10
    assert angle.get_ylim()[1] < 1


def test_means_and_intervals_hollow_before_and_filled_after() -> None:
    rows = table()
    for axes, measure in zip(figures.before_and_after(rows, "demo").axes, ("norm", "angle"), strict=True):
        found = points(axes)
        before, after = found["before training"], found["after training"]
        assert (before.hollow, before.color) == (True, MUTED)
        assert (after.hollow, after.color) == (False, BLUE.lower())
        for moment, marks in (("start", before), ("end", after)):
            assert marks.x.tolist() == [0.5, 1.0, 1.5]
            assert marks.y_bars is not None
            for x, y, bar in zip(marks.x, marks.y, marks.y_bars, strict=True):
                values = of(rows, measure=measure, moment=moment, sigma=x)
                assert y == pytest.approx(values.mean())
                bounds = stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
                np.testing.assert_allclose(bar, bounds)  # not clipped: a measure is no accuracy


def test_a_measure_that_is_taken_after_training_alone_has_no_hollow_dots() -> None:
    rows = table()
    rows = rows[(rows["measure"] == "norm") | (rows["moment"] == "end")]
    norm, angle = figures.before_and_after(rows, "demo").axes
    assert set(points(norm)) == {"before training", "after training"}
    assert set(points(angle)) == {"after training"}


@pytest.mark.parametrize("sigmas", [(0.2,), (0.0, 1.0), (0.01, 0.1, 2.0)])
def test_any_set_of_sigmas_can_be_drawn(sigmas: tuple[float, ...]) -> None:
    figure = figures.before_and_after(table(sigmas), "demo")
    figure.draw_without_rendering()
    assert figure.axes[0].get_xscale() == ("log" if len(sigmas) == 3 else "linear")
