"""Encodings by name: order, marks and lines are those of the table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.figure_reading import SPLITS, made_up, mean_and_bounds, of, points, words
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from placecode.reports import figures
from placecode.reports.figures.encodings import DROPOUT_STYLES, NO_DROPOUT

NAMES = ("poor", "good", "fair")
pytestmark = pytest.mark.filterwarnings("error")


def table(rates: tuple[float, ...] = (0.0, 0.1)) -> pd.DataFrame:
    """Without dropout the names are what they say, with it the order is another."""
    rows = made_up({"name": NAMES, "dropout": rates, "split": SPLITS}, seeds=4)
    worth = rows["name"].map({"poor": -0.2, "good": 0.2, "fair": 0.0})
    return rows.assign(value=rows["value"] / 5 + 0.4 + worth * np.where(rows["dropout"] > 0, -1, 1))


def names_of(axes: Axes) -> list[str]:
    return [tick.get_text() for tick in axes.get_yticklabels()]


def test_the_best_without_dropout_is_on_top() -> None:
    ood, test = figures.worth_of_dropout(table(), "demo").axes
    assert names_of(ood) == ["good", "fair", "poor"]
    assert ood.get_ylim()[0] > ood.get_ylim()[1]
    assert (ood.get_title(), test.get_title()) == ("ood", "test")


def test_marks_are_means_hollow_without_dropout_and_filled_with() -> None:
    rows = table()
    for axes in figures.worth_of_dropout(rows, "demo").axes:
        found = points(axes)
        assert found["no dropout"].hollow
        assert not found["dropout 0.1"].hollow
        assert found["no dropout"].marker != found["dropout 0.1"].marker
        for label, rate in (("no dropout", 0.0), ("dropout 0.1", 0.1)):
            marks = found[label]
            assert marks.x_bars is not None
            for x, y, bar in zip(marks.x, marks.y, marks.x_bars, strict=True):
                name = ("good", "fair", "poor")[int(y)]
                values = of(rows, name=name, dropout=rate, split=axes.get_title())
                mean, *bounds = mean_and_bounds(values)
                assert x == pytest.approx(mean)
                np.testing.assert_allclose(bar, bounds)


def test_the_two_marks_of_a_row_are_joined() -> None:
    rows = table()
    axes = figures.worth_of_dropout(rows, "demo").axes[0]
    joined = {line.get_ydata()[0]: sorted(line.get_xdata()) for line in axes.lines if line.get_linewidth() == 2}
    ends = sorted(of(rows, name="good", dropout=rate, split="ood").mean() for rate in (0.0, 0.1))
    np.testing.assert_allclose(joined[0], ends)
    assert len(joined) == 3


def test_published_values_are_crosses_in_the_validation_panel_alone() -> None:
    published = {"good": (0.95, 0.0), "poor": (0.9, 0.1), "unknown": (0.1, 0.0)}
    figure = figures.worth_of_dropout(table(), "demo", published)
    ood, test = ([line for line in axes.lines if line.get_marker() in ("x", "+")] for axes in figure.axes)
    assert test == []
    found = {line.get_label(): (line.get_xdata()[0], line.get_ydata()[0]) for line in ood}
    assert found == {"published, no dropout": (0.95, 0), "published, dropout 0.1": (0.9, 2)}
    assert [to_hex(line.get_color()) for line in ood] == [
        to_hex(NO_DROPOUT["color"]),
        to_hex(DROPOUT_STYLES[0]["color"]),
    ]
    assert [line.get_marker() for line in ood] == ["x", "+"]  # for those who see no colours
    assert "crosses: published" in words(figure)
    assert "published" not in words(figures.worth_of_dropout(table(), "demo"))


def test_a_name_that_was_run_with_dropout_alone_comes_last() -> None:
    rows = table()
    rows = rows[(rows["name"] != "good") | (rows["dropout"] > 0)]
    figure = figures.worth_of_dropout(rows, "demo", {}, 0.125)
    figure.draw_without_rendering()
    assert names_of(figure.axes[0]) == ["fair", "poor", "good"]
    (chance,) = [line for line in figure.axes[0].lines if line.get_label() == "chance"]
    assert set(chance.get_xdata()) == {0.125}


def test_several_rates_have_marks_of_their_own() -> None:
    found = points(figures.worth_of_dropout(table((0.0, 0.1, 0.3)), "demo").axes[0])
    assert [mark.hollow for mark in found.values()] == [True, False, False]
    assert len({mark.marker for mark in found.values()}) == 3


# -------------------------------------------------------------------------------------------------- accuracy_by_name


def test_splits_stand_one_below_another_in_the_row_of_their_name() -> None:
    rows = table((0.0,))
    (axes,) = figures.accuracy_by_name(rows, "demo").axes
    assert names_of(axes) == ["good", "fair", "poor"]
    found = points(axes)
    assert list(found) == list(SPLITS)
    for split, marks in found.items():
        style = figures.SPLITS[split]
        assert (marks.marker, marks.color) == (style["marker"], to_hex(style["color"]))
        for x, y in zip(marks.x, marks.y, strict=True):
            name = ("good", "fair", "poor")[round(y)]
            assert x == pytest.approx(of(rows, name=name, split=split).mean())
    assert all(found["train"].y < found["test"].y)
    assert all(found["test"].y < found["ood"].y)


# ---------------------------------------------------------------------------------------------------- curves_by_name


def test_curves_are_means_with_bands_a_panel_per_name() -> None:
    rows = made_up({"name": NAMES, "dropout": (0.0, 0.1), "step": (0, 50, 100)}, seeds=4)
    figure = figures.curves_by_name(rows, "demo")
    assert [axes.get_title() for axes in figure.axes] == list(NAMES)  # as they appear
    axes = figure.axes[1]
    lines = {line.get_label(): line for line in axes.lines}
    assert lines["no dropout"].get_linestyle() != lines["dropout 0.1"].get_linestyle()
    for band, (label, rate) in zip(axes.collections, (("no dropout", 0.0), ("dropout 0.1", 0.1)), strict=True):
        line = lines[label]
        assert list(line.get_xdata()) == [0, 50, 100]
        mean, low, high = mean_and_bounds(of(rows, name="good", dropout=rate, step=100))
        assert line.get_ydata()[-1] == pytest.approx(mean)
        corners = band.get_paths()[0].vertices
        ends = corners[corners[:, 0] == 100, 1]
        assert (ends.min(), ends.max()) == (pytest.approx(low), pytest.approx(high))


def test_steps_are_counted_below_the_lowest_panels_only() -> None:
    rows = made_up({"name": list("abcdef"), "dropout": (0.0,), "step": (0, 50)}, seeds=2)
    figure = figures.curves_by_name(rows, "demo")
    assert len([axes for axes in figure.axes if axes.axison]) == 6
    labelled = [axes.get_title() for axes in figure.axes if axes.get_xlabel()]
    assert labelled == ["d", "e", "f"]
