"""Cause or trace: lines against size, effects and losses stand where the tables say, controls hollow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.figure_gallery import effects, losses
from helpers.figure_reading import made_up, mean_and_bounds, of, points, words
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from placecode.reports import figures

pytestmark = pytest.mark.filterwarnings("error")
ORDER, SIGMAS = ("random", "learned", "true"), (0.1, 0.2, 2.0)


def table(seeds: int = 4) -> pd.DataFrame:
    return made_up({"line": ("true", "random", "other"), "sigma": SIGMAS}, seeds)


def drawn(**given: Any) -> Figure:
    tables = {"table": table(), "order": ORDER, "effects": effects(), "losses": losses(), "controls": ["itself"]}
    return figures.causes(**{**tables, **given}, run_name="demo", chance=0.25)  # type: ignore[arg-type]


def names_of(axes: Axes) -> list[str]:
    return [" ".join(tick.get_text().split()) for tick in axes.get_yticklabels()]


def test_lines_are_drawn_in_their_order_those_that_are_there() -> None:
    rows = table()
    found = points(drawn(table=rows).axes[0])
    assert list(found) == ["random", "true"]
    for line, marks in found.items():
        assert marks.y_bars is not None
        np.testing.assert_allclose(marks.x, SIGMAS, rtol=0.03)
        for sigma, y, bar in zip(SIGMAS, marks.y, marks.y_bars, strict=True):
            mean, *bounds = mean_and_bounds(of(rows, line=line, sigma=sigma))
            assert y == pytest.approx(mean)
            np.testing.assert_allclose(bar, bounds)


def test_effects_stand_in_rows_under_their_group_and_controls_are_hollow() -> None:
    axes = drawn().axes[1]
    assert names_of(axes) == ["a", "b", "c"]
    ticks = axes.get_yticks().tolist()
    heads = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert heads == {"size": 0, "a": 2} and ticks == [1, 3, 4]  # a head above the rows of its group
    marks = [(each.lines[0], each.lines[2][0]) for each in axes.containers]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line, _ in marks] == [(0.3, 1), (0.01, 3)]  # the third: none
    assert [line.get_markeredgewidth() > 0 for line, _ in marks] == [False, True]
    np.testing.assert_allclose([bar.get_segments()[0][:, 0] for _, bar in marks], [(0.2, 0.4), (-0.1, 0.1)])


def test_losses_are_means_by_sigma_and_controls_are_hollow() -> None:
    rows = losses(seeds=4)
    axes = drawn(losses=rows).axes[2]
    names = names_of(axes)
    assert names == ["a", "itself"]
    seen = []
    for container in axes.containers:
        line, _, (bar,) = container.lines
        ((x, y),) = line.get_xydata()
        name, sigma = names[round(y)], 0.2 if y < round(y) else 2.0
        values = of(rows, name=name, sigma=sigma)
        assert x == pytest.approx(values.mean())
        np.testing.assert_allclose(
            bar.get_segments()[0][:, 0], stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
        )
        assert (line.get_markeredgewidth() > 0) == (name == "itself")
        seen.append((name, sigma))
    assert sorted(seen) == [(name, sigma) for name in names for sigma in (0.2, 2.0)]
    shown = axes.get_legend()
    assert shown is not None and [text.get_text()[-3:] for text in shown.get_texts()] == ["0.2", "= 2"]


def test_an_exchange_that_one_sigma_lacks_keeps_its_row() -> None:
    rows = losses()
    axes = drawn(losses=rows[(rows["name"] != "a") | (rows["sigma"] != 2.0)]).axes[2]
    assert names_of(axes) == ["a", "itself"]
    assert sum(len(each.lines[0].get_xdata()) for each in axes.containers) == 3


def test_panels_without_values_say_so() -> None:
    assert words(drawn()).count("no values") == 0
    nothing = {"table": table().iloc[:0], "losses": losses().iloc[:0], "effects": effects().assign(mean=np.nan)}
    for names in (["table"], ["losses"], ["effects"], list(nothing)):
        figure = drawn(**{name: nothing[name] for name in names})
        figure.draw_without_rendering()
        assert sum(text.get_text() == "no values" for axes in figure.axes for text in axes.texts) == len(names)
    assert names_of(drawn(**nothing).axes[1]) == ["a", "b", "c"]  # names are never lost
