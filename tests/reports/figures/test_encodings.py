"""Encodings by name: order, marks and lines are those of the table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.figure_reading import SPLITS, assert_means, made_up, of, points, rows_of

from placecode.reports import figures

ORDER = ("good", "fair", "poor")
pytestmark = pytest.mark.filterwarnings("error")


def table(rates: tuple[float, ...] = (0.0, 0.1)) -> pd.DataFrame:
    """Without dropout the names are what they say, with it the order is another."""
    rows = made_up({"name": ("poor", "good", "fair"), "dropout": rates, "split": SPLITS}, seeds=4)
    worth = rows["name"].map({"poor": -0.2, "good": 0.2, "fair": 0.0})
    return rows.assign(value=rows["value"] / 5 + 0.4 + worth * np.where(rows["dropout"] > 0, -1, 1))


def test_marks_are_means_the_best_without_dropout_on_top() -> None:
    rows = table()
    ood, test = figures.worth_of_dropout(rows, "demo").axes
    assert rows_of(ood) == list(ORDER) and ood.get_ylim()[0] > ood.get_ylim()[1]
    for axes, split in ((ood, "ood"), (test, "test")):
        assert axes.get_title() == split
        without, with_dropout = points(axes)["no dropout"], points(axes)["dropout 0.1"]
        assert without.hollow and not with_dropout.hollow and without.marker != with_dropout.marker
        for marks, rate in ((without, 0.0), (with_dropout, 0.1)):
            assert_means(marks, [of(rows, name=ORDER[int(y)], dropout=rate, split=split) for y in marks.y])
    joined = {line.get_ydata()[0]: sorted(line.get_xdata()) for line in ood.lines if line.get_linewidth() == 2}
    ends = sorted(of(rows, name="good", dropout=rate, split="ood").mean() for rate in (0.0, 0.1))
    np.testing.assert_allclose(joined[0], ends)
    assert len(joined) == 3


def test_published_values_are_crosses_in_the_ood_panel_alone() -> None:
    published = {"good": (0.95, 0.0), "poor": (0.9, 0.1), "unknown": (0.1, 0.0)}
    figure = figures.worth_of_dropout(table(), "demo", published)
    ood, test = ([line for line in axes.lines if line.get_marker() in ("x", "+")] for axes in figure.axes)
    places = {line.get_label(): (line.get_xdata()[0], line.get_ydata()[0]) for line in ood}
    assert places == {"published, no dropout": (0.95, 0), "published, dropout 0.1": (0.9, 2)} and test == []
    assert [line.get_marker() for line in ood] == ["x", "+"]  # for those who see no colours


def test_a_name_that_was_run_with_dropout_alone_comes_last() -> None:
    rows = table()
    rows = rows[(rows["name"] != "good") | (rows["dropout"] > 0)]
    figure = figures.worth_of_dropout(rows, "demo", {}, 0.125)
    assert rows_of(figure.axes[0]) == ["fair", "poor", "good"]
    (chance,) = [line for line in figure.axes[0].lines if line.get_label() == "chance"]
    assert set(chance.get_xdata()) == {0.125}


def test_several_rates_have_marks_of_their_own() -> None:
    marks = points(figures.worth_of_dropout(table((0.0, 0.1, 0.3)), "demo").axes[0]).values()
    assert [mark.hollow for mark in marks] == [True, False, False] and len({mark.marker for mark in marks}) == 3


def test_splits_stand_one_below_another_in_the_row_of_their_name() -> None:
    rows = table((0.0,))
    (axes,) = figures.accuracy_by_name(rows, "demo").axes
    by_split = points(axes)
    assert rows_of(axes) == list(ORDER) and list(by_split) == list(SPLITS)
    for split, marks in by_split.items():
        assert marks.marker == figures.SPLITS[split]["marker"]
        assert_means(marks, [of(rows, name=ORDER[round(y)], split=split) for y in marks.y])
    assert all(by_split["train"].y < by_split["test"].y) and all(by_split["test"].y < by_split["ood"].y)
