"""Accuracy by sigma and something else, and the figure of lst-causal: marks, bars and levels are those of the table."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.figure_gallery import effects, losses
from helpers.figure_reading import assert_means, chance_lines, made_up, mean_and_bounds, of, points, rows_of
from matplotlib.figure import Figure

from placecode.analysis.stats import Interval
from placecode.reports import figures

pytestmark = pytest.mark.filterwarnings("error")
PANELS, LINES, SIGMAS = ("adam", "sgd"), ("slow", "fast", "own"), (0.01, 0.2, 1.0)


def table(seeds: int = 4) -> pd.DataFrame:
    return made_up({"panel": PANELS, "line": LINES, "sigma": SIGMAS}, seeds)


def one_panel(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.query("panel == 'adam'").assign(panel="")


def test_every_setting_has_a_panel_and_every_line_its_look_in_the_order_of_the_table() -> None:
    rows = table()
    figure = figures.accuracy_by_setting(rows, "demo", "step size", {"adam": 0.25, "sgd": 0.2})
    assert [axes.get_title() for axes in figure.axes if axes.axison] == list(PANELS)
    for axes, panel in zip(figure.axes, PANELS, strict=False):
        lines = points(axes)
        assert list(lines) == list(LINES)
        for line, marks in lines.items():
            np.testing.assert_allclose(marks.x, SIGMAS, rtol=0.05)
            assert_means(marks, [of(rows, panel=panel, line=line, sigma=sigma) for sigma in SIGMAS])
    assert [line.get_ydata()[0] for axes in figure.axes for line in chance_lines(axes)] == [0.25, 0.2]


def test_the_effect_of_sigma_is_the_last_panel_with_a_row_for_each_line() -> None:
    rows = made_up({"panel": PANELS, "line": LINES}, 4).assign(large=2.0)
    axes = figures.accuracy_by_setting(table(), "demo", "step size", sigma_effects=rows).axes[2]
    assert axes.get_title().endswith("0.2 minus that at 2") and axes.get_ylim()[0] > axes.get_ylim()[1]
    names = rows_of(axes)
    assert names == [f"{panel}, {line}" for panel in PANELS for line in LINES]
    (marks,) = points(axes).values()
    kinds = [names[int(y)].split(", ") for y in marks.y]
    assert_means(marks, [of(rows, panel=panel, line=line) for panel, line in kinds], clip=False)
    single = figures.accuracy_by_setting(one_panel(table()), "demo", "x", sigma_effects=one_panel(rows))
    assert rows_of(single.axes[1]) == list(LINES)
    without = figures.accuracy_by_setting(table(), "demo", "x", sigma_effects=rows.iloc[:0])
    assert len(without.axes) == 2  # no such panel


def test_levels_stand_in_the_panels_that_have_one_with_their_clipped_interval() -> None:
    levels = {"2d-fixed": Interval(0.93, 0.8, 1.06), "2d-fixed, no decay": Interval(0.9, math.nan, math.nan)}
    figure = figures.accuracy_by_setting(table(), "demo", "x", references={"sgd": levels})
    heights = [{str(line.get_label()): line.get_ydata()[0] for line in axes.lines} for axes in figure.axes[:2]]
    drawn_levels = [{label: y for label, y in panel.items() if "2d-fixed" in label} for panel in heights]
    assert drawn_levels == [{}, {"2d-fixed: 0.93 (0.80 to 1.00)": 0.93, "2d-fixed, no decay: 0.90": 0.9}]


def test_a_line_looks_the_same_in_every_panel_and_unlike_its_neighbours() -> None:
    """Whatever the order of a panel."""
    rows = table()
    other = rows[(rows["panel"] == "sgd") & (rows["line"] != "slow")].iloc[::-1]
    figure = figures.accuracy_by_setting(pd.concat([rows[rows["panel"] == "adam"], other]), "demo", "x")
    lines = [points(axes) for axes in figure.axes if axes.get_title()]
    first, second = ({line: (marks.marker, marks.color) for line, marks in panel.items()} for panel in lines)
    assert list(second) == ["fast", "own"] and len(set(first.values())) == 3
    assert second == {line: look for line, look in first.items() if line != "slow"}


def kinds() -> pd.DataFrame:
    return made_up({"line": ("true", "random", "other"), "sigma": SIGMAS}, 4)


def drawn(**changed: Any) -> Figure:
    tables = {"table": kinds(), "order": ("random", "learned", "true"), "effects": effects(), "losses": losses()}
    return figures.causes(**{**tables, **changed}, controls=["itself"], run_name="demo")  # type: ignore[arg-type]


def test_lines_against_size_are_drawn_in_their_order_if_they_are_in_the_table() -> None:
    rows = kinds()
    lines = points(drawn(table=rows).axes[0])
    assert list(lines) == ["random", "true"]
    for line, marks in lines.items():
        np.testing.assert_allclose(marks.x, SIGMAS, rtol=0.03)
        assert_means(marks, [of(rows, line=line, sigma=sigma) for sigma in SIGMAS])


def test_effects_stand_in_rows_under_their_group_and_controls_are_hollow() -> None:
    axes = drawn().axes[1]
    assert rows_of(axes) == ["a", "b", "c"] and axes.get_yticks().tolist() == [1, 3, 4]  # a head above its rows
    marks = [(container.lines[0], container.lines[2][0]) for container in axes.containers]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line, _ in marks] == [(0.3, 1), (0.01, 3)]  # the third: none
    assert [line.get_markeredgewidth() > 0 for line, _ in marks] == [False, True]
    np.testing.assert_allclose([bar.get_segments()[0][:, 0] for _, bar in marks], [(0.2, 0.4), (-0.1, 0.1)])


def test_losses_are_means_by_sigma_and_controls_are_hollow() -> None:
    rows = losses(seeds=4)
    axes = drawn(losses=rows).axes[2]
    names = rows_of(axes)
    assert names == ["a", "itself"] and len(axes.containers) == 4
    for container in axes.containers:
        line, _, (bar,) = container.lines
        ((x, y),) = line.get_xydata()
        name, sigma = names[round(y)], 0.2 if y < round(y) else 2.0
        expected = mean_and_bounds(of(rows, name=name, sigma=sigma), clip=False)
        np.testing.assert_allclose([x, *bar.get_segments()[0][:, 0]], expected)
        assert (line.get_markeredgewidth() > 0) == (name == "itself")
    some = drawn(losses=rows[(rows["name"] != "a") | (rows["sigma"] != 2.0)]).axes[2]
    assert rows_of(some) == names  # an exchange that one sigma lacks keeps its row
    assert sum(len(container.lines[0].get_xdata()) for container in some.containers) == 3


def test_panels_without_values_say_so_and_keep_their_names() -> None:
    nothing = {"table": kinds().iloc[:0], "losses": losses().iloc[:0], "effects": effects().assign(mean=np.nan)}
    for names in ([], ["table"], ["losses"], ["effects"], list(nothing)):
        figure = drawn(**{name: nothing[name] for name in names})
        assert sum(text.get_text() == "no values" for axes in figure.axes for text in axes.texts) == len(names)
        assert rows_of(figure.axes[1]) == ["a", "b", "c"]
