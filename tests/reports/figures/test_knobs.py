"""Accuracy by sigma and something else, and learning curves of each: marks, bars and levels are those of the table."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from helpers.figure_reading import made_up, mean_and_bounds, of, points, words
from matplotlib.axes import Axes
from scipy import stats

from placecode.analysis.stats import Interval
from placecode.reports import figures

pytestmark = pytest.mark.filterwarnings("error")
PANELS, LINES, SIGMAS = ("adam", "sgd"), ("slow", "fast", "own"), (0.01, 0.2, 1.0)


def table(seeds: int = 4) -> pd.DataFrame:
    return made_up({"panel": PANELS, "line": LINES, "sigma": SIGMAS}, seeds)


def worth(seeds: int = 4, large: float = 2.0) -> pd.DataFrame:
    return made_up({"panel": PANELS, "line": LINES}, seeds).assign(large=large)


def names_of(axes: Axes) -> list[str]:
    return [" ".join(tick.get_text().split()) for tick in axes.get_yticklabels()]


def test_a_panel_for_each_panel_and_a_line_for_each_line_in_the_order_of_the_table() -> None:
    rows = table()
    figure = figures.accuracy_by_setting(rows, "demo", "step size")
    assert [axes.get_title() for axes in figure.axes if axes.axison] == list(PANELS)
    for axes, panel in zip(figure.axes, PANELS, strict=False):
        found = points(axes)
        assert list(found) == list(LINES)
        assert len({(each.marker, each.color) for each in found.values()}) == len(LINES)
        for line, marks in found.items():
            assert marks.y_bars is not None
            np.testing.assert_allclose(marks.x, SIGMAS, rtol=0.05)  # a little aside, so that bars can be told apart
            for sigma, y, bar in zip(SIGMAS, marks.y, marks.y_bars, strict=True):
                mean, *bounds = mean_and_bounds(of(rows, panel=panel, line=line, sigma=sigma))
                assert y == pytest.approx(mean)
                np.testing.assert_allclose(bar, bounds)
        x = np.array([marks.x for marks in found.values()])
        assert (np.diff(x, axis=0) > 0).all()
    assert "mean and 95% t interval over 4 seeds" in figure.get_supxlabel()


def test_lines_stand_aside_within_the_axes_at_any_number_of_sigmas() -> None:
    for sigmas in ((0.2,), (0.2, 2.0), SIGMAS):
        rows = made_up({"panel": ("",), "line": tuple("abcdef"), "sigma": sigmas}, 3)
        (axes,) = figures.accuracy_by_setting(rows, "demo", "x").axes
        x = np.array([marks.x for marks in points(axes).values()])
        low, high = axes.get_xlim()
        assert (np.diff(x, axis=0) > 0).all() and low < x.min() and x.max() < high
        assert (np.argmin(abs(x[:, :, None] - np.array(sigmas)), axis=2) == np.arange(len(sigmas))).all()


def test_a_single_panel_names_what_is_turned_above_its_lines() -> None:
    one = table().query("panel == 'adam'").assign(panel="")
    (axes,) = figures.accuracy_by_setting(one, "demo", "attention heads").axes
    shown = axes.get_legend()
    assert shown is not None and shown.get_title().get_text() == "attention heads"
    assert [text.get_text() for text in shown.get_texts() if text.get_text() != "chance"] == list(LINES)
    assert axes.get_title() == ""


def test_what_a_small_sigma_is_worth_is_the_last_panel_a_row_for_each_line() -> None:
    rows = worth()
    figure = figures.accuracy_by_setting(table(), "demo", "step size", worth=rows)
    axes = figure.axes[2]
    assert axes.get_title().endswith("0.2 is worth over 2")
    names = names_of(axes)
    assert names == [f"{panel}, {line}" for panel in PANELS for line in LINES]
    (marks,) = points(axes).values()
    assert marks.x_bars is not None and axes.get_ylim()[0] > axes.get_ylim()[1]
    for x, y, bar in zip(marks.x, marks.y, marks.x_bars, strict=True):
        panel, line = names[int(y)].split(", ")
        values = of(rows, panel=panel, line=line)
        assert x == pytest.approx(values.mean())
        np.testing.assert_allclose(bar, stats.t.interval(0.95, 3, values.mean(), stats.sem(values)))
    one = rows.query("panel == 'adam'").assign(panel="")
    single = figures.accuracy_by_setting(table().query("panel == 'adam'").assign(panel=""), "demo", "x", worth=one)
    assert names_of(single.axes[1]) == list(LINES)
    assert len(figures.accuracy_by_setting(table(), "demo", "x", worth=rows.iloc[:0]).axes) == 2  # no such panel


def test_levels_stand_beside_in_the_panels_that_have_one_with_what_is_possible_of_their_interval() -> None:
    levels = {"2d-fixed": Interval(0.93, 0.8, 1.06), "2d-fixed, no decay": Interval(0.9, math.nan, math.nan)}
    figure = figures.accuracy_by_setting(table(), "demo", "x", beside={"sgd": levels})
    found = [
        {str(line.get_label()): line.get_ydata()[0] for line in axes.lines if "2d-fixed" in str(line.get_label())}
        for axes in figure.axes
    ]
    assert found[:2] == [{}, {"2d-fixed: 0.93 (0.80 to 1.00)": 0.93, "2d-fixed, no decay: 0.90": 0.9}]


def test_a_line_looks_the_same_in_every_panel_and_unlike_its_neighbours() -> None:
    """Whatever the order of a panel; and lines that never meet may look alike."""
    rows = table()
    other = rows[(rows["panel"] == "sgd") & (rows["line"] != "slow")].iloc[::-1]
    third = rows[rows["line"] == "own"].assign(panel="third", line="alone")
    figure = figures.accuracy_by_setting(pd.concat([rows[rows["panel"] == "adam"], other, third]), "demo", "x")
    looks = [
        {line: (each.marker, each.color) for line, each in points(axes).items()}
        for axes in figure.axes
        if axes.get_title()
    ]
    assert [list(each) for each in looks] == [["slow", "fast", "own"], ["fast", "own"], ["alone"]]
    assert looks[1] == {line: look for line, look in looks[0].items() if line != "slow"}
    assert looks[2]["alone"] == looks[0]["slow"]
    assert len(set(looks[0].values())) == 3


def test_chance_is_one_for_all_or_by_panel() -> None:
    def levels(chance: dict[str, float] | float) -> list[float]:
        rows = made_up({"panel": PANELS, "line": LINES, "sigma": SIGMAS, "step": (0, 10)}, 2)
        both = (
            figures.accuracy_by_setting(table(), "demo", "x", chance),
            figures.curves_by_setting(rows, "demo", chance),
        )
        return [
            line.get_ydata()[0]
            for figure in both
            for axes in figure.axes
            for line in axes.lines
            if line.get_label() == "chance"
        ]

    assert levels(0.125) == [0.125] * 8
    assert levels({"adam": 0.25, "sgd": 0.2}) == [0.25, 0.2, *[0.25] * 3, *[0.2] * 3]


def test_curves_are_means_with_bands_a_panel_for_each_line() -> None:
    rows = made_up({"panel": PANELS, "line": LINES[:2], "sigma": SIGMAS, "step": (0, 10, 20)}, 4)
    figure = figures.curves_by_setting(rows, "demo")
    drawn = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in drawn] == ["adam, slow", "adam, fast", "sgd, slow", "sgd, fast"]
    for axes in drawn:
        panel, line = axes.get_title().split(", ")
        curves = [each for each in axes.lines if each.get_label() != "chance"]
        assert len({str(curve.get_color()) for curve in curves}) == len(axes.collections) == len(SIGMAS)
        for sigma, curve, band in zip(SIGMAS, curves, axes.collections, strict=True):
            each = [mean_and_bounds(of(rows, panel=panel, line=line, sigma=sigma, step=s)) for s in (0, 10, 20)]
            np.testing.assert_allclose(
                curve.get_xydata(), [(s, m) for s, (m, *_) in zip((0, 10, 20), each, strict=True)]
            )
            (path,) = band.get_paths()
            assert path.vertices[:, 1].min() == pytest.approx(min(low for _, low, _ in each))
            assert path.vertices[:, 1].max() == pytest.approx(max(high for *_, high in each))


def test_lines_that_were_lost_keep_their_names() -> None:
    rows = table()
    lost = rows.assign(value=rows["value"].where(rows["line"] != "fast"))
    axes = figures.accuracy_by_setting(lost, "demo", "x").axes[0]
    assert list(points(axes)) == list(LINES) and len(points(axes)["fast"].x) == 0
    figure = figures.accuracy_by_setting(rows.assign(value=rows["value"].where(rows["panel"] != "sgd")), "demo", "x")
    assert "no values" in words(figure) and [axes.get_title() for axes in figure.axes[:2]] == list(PANELS)
