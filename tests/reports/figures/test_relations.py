"""Measures against accuracy: dots are the means of seeds picked one by one, and their look says what they are."""

import numpy as np
import pandas as pd
import pytest
from helpers.figure_gallery import correlations
from helpers.figure_reading import made_up, mean_and_bounds, of, points, rows_of, words
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection

from placecode.reports import figures

SIGMAS = (0.5, 1.0, 1.5, 2.0)
pytestmark = pytest.mark.filterwarnings("error")


def table(measures: tuple[str, ...] = ("b", "a"), sigmas: tuple[float, ...] = SIGMAS) -> pd.DataFrame:
    columns = {"measure": measures, "moment": ("start", "end"), "sigma": sigmas}
    return made_up(columns, seeds=5, values=("value", "accuracy"))


def after_training(axes: Axes) -> PathCollection:
    (dots,) = [dots for dots in axes.collections if dots.get_label() == "after training"]
    return dots


def test_dots_are_means_and_bars_intervals_both_ways() -> None:
    rows = table()
    figure = figures.relation_panels(rows, "demo")
    assert [axes.get_title() for axes in figure.axes if axes.get_title()] == ["b", "a"]  # as they appear
    for measure in ("a", "b"):
        (axes,) = [panel for panel in figure.axes if panel.get_title() == measure]
        for moment, marks in zip(("start", "end"), points(axes).values(), strict=True):
            for i, sigma in enumerate(SIGMAS):
                wanted = {"measure": measure, "moment": moment, "sigma": sigma}
                for value, at, bars in (("value", marks.x, marks.x_bars), ("accuracy", marks.y, marks.y_bars)):
                    assert bars is not None
                    np.testing.assert_allclose([at[i], *bars[i]], mean_and_bounds(of(rows, value, **wanted)))
        np.testing.assert_allclose(after_training(axes).get_offsets(), np.stack([marks.x, marks.y], axis=1))


def test_dots_after_training_are_joined_in_the_order_of_sigma() -> None:
    rows = table(("a",)).sample(frac=1, random_state=0)
    axes = figures.relation_panels(rows, "demo").axes[0]
    (line,) = [line for line in axes.lines if line.get_linestyle() == "-" and line.get_marker() == "None"]
    expected = [of(rows, moment="end", sigma=sigma).mean() for sigma in SIGMAS]
    np.testing.assert_allclose(np.asarray(line.get_xdata(), dtype=float), expected)


def test_an_accuracy_that_is_missing_takes_its_value_along() -> None:
    rows = table(("a",))
    lost = rows.index[(rows["moment"] == "end") & (rows["sigma"] == 1.0)][2]
    rows.loc[lost, "accuracy"] = np.nan
    axes = figures.relation_panels(rows, "demo").axes[0]
    kept = of(rows.drop(index=lost), moment="end", sigma=1.0)
    assert after_training(axes).get_offsets()[1][0] == pytest.approx(kept.mean())
    assert len(kept) == 4


def test_correlations_are_filled_where_they_are_significant_and_hollow_otherwise() -> None:
    panels = figures.forest(correlations(), "demo").axes
    assert [axes.get_title() for axes in panels] == ["over", "within"] and rows_of(panels[0]) == ["a", "b"]
    over, within = (points(axes) for axes in panels)
    sure, other = over["adjusted p < 0.05"], over["otherwise"]
    assert (sure.hollow, other.hollow) == (False, True)
    assert (sure.x.tolist(), sure.y.tolist()) == ([-0.9], [0])
    assert (other.x.tolist(), other.y.tolist()) == ([0.2], [1])
    np.testing.assert_allclose(sure.x_bars, [[-1.0, -0.7]])
    assert within["otherwise"].x.tolist() == [0.1]  # its p is not known
    assert within["adjusted p < 0.05"].x.tolist() == [0.4]


def test_correlations_without_value_or_bounds_are_counted() -> None:
    rows = correlations()
    rows.loc[0, ["low", "high"]] = np.nan
    rows.loc[1, "value"] = np.nan
    figure = figures.forest(rows.drop(index=2), "demo")
    assert "1 of 2 have no interval" in words(figure) and "1 of 3 values are missing" in words(figure)
    assert [text.get_text() for axes in figure.axes for text in axes.texts] == ["no value", "not asked"]
    bars = points(figure.axes[0])["adjusted p < 0.05"].x_bars
    assert bars is not None and np.ptp(bars) == 0


def test_a_forest_without_trees_can_be_drawn() -> None:
    figure = figures.forest(correlations().iloc[:0], "demo")
    figure.draw_without_rendering()
    assert "no values" in words(figure) and "run demo" in words(figure)
