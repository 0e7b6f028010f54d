"""Measures against accuracy: dots are the means of seeds picked one by one, and their look says what they are."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.figure_gallery import correlations
from helpers.figure_reading import made_up, mean_and_bounds, of, points, rows_of, words
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from placecode.reports import figures
from placecode.reports.figures.base import MUTED, SIGMA

SIGMAS = (0.5, 1.0, 1.5, 2.0)
pytestmark = pytest.mark.filterwarnings("error")


def table(measures: tuple[str, ...] = ("b", "a"), sigmas: tuple[float, ...] = SIGMAS) -> pd.DataFrame:
    columns = {"measure": measures, "moment": ("start", "end"), "sigma": sigmas}
    return made_up(columns, seeds=5, values=("value", "accuracy"))


def named(figure: Figure, title: str) -> Axes:
    (found,) = [axes for axes in figure.axes if axes.get_title() == title]
    return found


def after_training(axes: Axes) -> PathCollection:
    (dots,) = [found for found in axes.collections if found.get_label() == "after training"]
    return dots


def test_dots_are_means_and_bars_intervals_both_ways() -> None:
    rows = table()
    figure = figures.relation_panels(rows, "demo")
    assert [axes.get_title() for axes in figure.axes if axes.get_title()] == ["b", "a"]  # as they appear
    for measure in ("a", "b"):
        axes = named(figure, measure)
        for moment, marks in zip(("start", "end"), points(axes).values(), strict=True):
            for i, sigma in enumerate(SIGMAS):
                wanted = {"measure": measure, "moment": moment, "sigma": sigma}
                for value, at, bars in (("value", marks.x, marks.x_bars), ("accuracy", marks.y, marks.y_bars)):
                    assert bars is not None
                    np.testing.assert_allclose([at[i], *bars[i]], mean_and_bounds(of(rows, value, **wanted)))
        np.testing.assert_allclose(after_training(axes).get_offsets(), np.stack([marks.x, marks.y], axis=1))


def test_before_is_hollow_and_grey_after_is_filled_from_dark_to_light() -> None:
    axes = figures.relation_panels(table(("a",)), "demo").axes[0]
    before = points(axes)["before training"]
    assert before.hollow and before.color == MUTED
    scale = [to_hex(colormaps["cividis"](place)) for place in np.linspace(0, 1, len(SIGMAS))]
    assert [to_hex(color) for color in after_training(axes).get_facecolors()] == scale


def test_dots_after_training_are_joined_in_the_order_of_sigma() -> None:
    rows = table(("a",)).sample(frac=1, random_state=0)
    axes = figures.relation_panels(rows, "demo").axes[0]
    (line,) = [line for line in axes.lines if line.get_linestyle() == "-" and line.get_marker() == "None"]
    expected = [of(rows, moment="end", sigma=sigma).mean() for sigma in SIGMAS]
    np.testing.assert_allclose(np.asarray(line.get_xdata(), dtype=float), expected)


def test_the_smallest_and_the_largest_sigma_are_written_beside_their_dots() -> None:
    rows = table(("a",))
    axes = figures.relation_panels(rows, "demo").axes[0]
    written = {text.get_text(): text.xy for text in axes.texts if hasattr(text, "xy")}
    assert set(written) == {f"{SIGMA} = 0.5", f"{SIGMA} = 2"}
    assert written[f"{SIGMA} = 2"][0] == pytest.approx(of(rows, moment="end", sigma=2.0).mean())
    (alone,) = figures.relation_panels(table(("a",), (0.2,)), "demo").axes[0].texts
    assert alone.get_text() == f"{SIGMA} = 0.2"


def test_notes_stand_in_their_panels_and_the_key_names_sigma() -> None:
    figure = figures.relation_panels(table(), "demo", notes={"a": "rank correlation $-0.98"})
    assert "rank correlation $-0.98" in [text.get_text() for text in named(figure, "a").texts]
    assert not any("rank" in text.get_text() for text in named(figure, "b").texts)
    assert any(f"initial scale {SIGMA}" in axes.get_ylabel() for axes in figure.axes)
    assert "before training" in words(figure)


def test_an_accuracy_that_is_missing_takes_its_value_along() -> None:
    rows = table(("a",))
    lost = rows.index[(rows["moment"] == "end") & (rows["sigma"] == 1.0)][2]
    rows.loc[lost, "accuracy"] = np.nan
    axes = figures.relation_panels(rows, "demo").axes[0]
    kept = of(rows.drop(index=lost), moment="end", sigma=1.0)
    assert after_training(axes).get_offsets()[1][0] == pytest.approx(kept.mean())
    assert len(kept) == 4


@pytest.mark.parametrize(("moment", "label"), [("start", "before training"), ("end", "after training")])
def test_only_one_moment_can_be_drawn(moment: str, label: str) -> None:
    figure = figures.relation_panels(table().query(f"moment == '{moment}'"), "demo")
    figure.draw_without_rendering()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [label]


def test_a_panel_per_question_and_a_row_per_measure() -> None:
    figure = figures.forest(correlations(), "demo")
    over, within = figure.axes
    assert (over.get_title(), within.get_title()) == ("over", "within")
    assert rows_of(over) == ["a", "b"]
    assert over.get_ylim()[0] > over.get_ylim()[1]  # the first on top
    for axes in figure.axes:
        assert axes.get_xlim()[0] <= -1
        assert axes.get_xlim()[1] >= 1
        assert axes.get_xlabel() == "rank correlation\nwith held-out accuracy"
        assert any(set(np.asarray(line.get_xdata())) == {0} for line in axes.lines)


def test_filled_where_sure_hollow_otherwise() -> None:
    over, within = (points(axes) for axes in figures.forest(correlations(), "demo").axes)
    sure, other = over["adjusted p < 0.05"], over["otherwise"]
    assert (sure.hollow, other.hollow) == (False, True)
    assert (sure.x.tolist(), sure.y.tolist()) == ([-0.9], [0])
    assert (other.x.tolist(), other.y.tolist()) == ([0.2], [1])
    np.testing.assert_allclose(sure.x_bars, [[-1.0, -0.7]])
    assert within["otherwise"].x.tolist() == [0.1]  # its p is not known
    assert within["adjusted p < 0.05"].x.tolist() == [0.4]


def test_correlations_without_value_or_bounds_are_told() -> None:
    rows = correlations()
    rows.loc[0, ["low", "high"]] = np.nan
    rows.loc[1, "value"] = np.nan
    figure = figures.forest(rows.drop(index=2), "demo")
    figure.draw_without_rendering()
    assert "1 of 2 have no interval" in words(figure)
    assert "1 of 3 values are missing" in words(figure)
    assert [text.get_text() for text in figure.axes[0].texts] == ["no value"]
    assert [text.get_text() for text in figure.axes[1].texts] == ["not asked"]
    found = points(figure.axes[0])["adjusted p < 0.05"].x_bars
    assert found is not None
    assert np.ptp(found) == 0
    whole = words(figures.forest(correlations(), "demo"))
    assert not {"no value", "not asked"} & set(whole.split("\n"))


def test_a_forest_without_trees_can_be_drawn() -> None:
    figure = figures.forest(correlations().iloc[:0], "demo")
    figure.draw_without_rendering()
    assert "no values" in words(figure)
    assert "run demo" in words(figure)
