"""Encodings by name and curves during training: order, marks, lines and bands are those of the table."""

import numpy as np
import pandas as pd
import pytest
from helpers.figure_reading import SPLITS, assert_curve, assert_means, chance_lines, made_up, of, points, rows_of

from placecode.reports import figures
from placecode.reports.figures.curves import MIN_LOSS

ORDER, SIGMAS = ("good", "fair", "poor"), (0.01, 0.2, 1.0)
pytestmark = pytest.mark.filterwarnings("error")


def table(rates: tuple[float, ...] = (0.0, 0.1)) -> pd.DataFrame:
    """Without dropout the names are what they say, with it the order is another."""
    rows = made_up({"name": ("poor", "good", "fair"), "dropout": rates, "split": SPLITS}, seeds=4)
    worth = rows["name"].map({"poor": -0.2, "good": 0.2, "fair": 0.0})
    return rows.assign(value=rows["value"] / 5 + 0.4 + worth * np.where(rows["dropout"] > 0, -1, 1))


def test_marks_are_means_the_best_without_dropout_on_top() -> None:
    rows = table()
    ood, test = figures.effect_of_dropout(rows, "demo").axes
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
    figure = figures.effect_of_dropout(table(), "demo", published)
    ood, test = ([line for line in axes.lines if line.get_marker() in ("x", "+")] for axes in figure.axes)
    places = {line.get_label(): (line.get_xdata()[0], line.get_ydata()[0]) for line in ood}
    assert places == {"published, no dropout": (0.95, 0), "published, dropout 0.1": (0.9, 2)} and test == []
    assert [line.get_marker() for line in ood] == ["x", "+"]  # for those who see no colours


def test_a_name_that_was_run_with_dropout_alone_comes_last() -> None:
    rows = table()
    rows = rows[(rows["name"] != "good") | (rows["dropout"] > 0)]
    figure = figures.effect_of_dropout(rows, "demo", {}, 0.125)
    assert rows_of(figure.axes[0]) == ["fair", "poor", "good"]
    assert [set(line.get_xdata()) for line in chance_lines(figure.axes[0])] == [{0.125}]


def test_several_rates_have_marks_of_their_own() -> None:
    marks = points(figures.effect_of_dropout(table((0.0, 0.1, 0.3)), "demo").axes[0]).values()
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


def epochs(values: dict[str, list[list[float]]]) -> pd.DataFrame:
    curves = [(line, seed, curve) for line, seeds in values.items() for seed, curve in enumerate(seeds)]
    rows = [(line, 25 * i, seed, value) for line, seed, curve in curves for i, value in enumerate(curve)]
    return pd.DataFrame(rows, columns=["line", "epoch", "seed", "value"])


def test_slingshots_draw_means_and_a_loss_of_zero_at_the_foot() -> None:
    loss = epochs({"one": [[1.0, 0.0, 0.1], [1.0, 0.0, 0.3]], "two": [[1.0, 0.0, 0.0]]})
    right = epochs({"one": [[0.2, 0.8, 0.9], [0.4, 0.8, 0.9]], "two": [[0.3, 0.8, 0.8]]})
    figure = figures.slingshots([("training loss", "loss", loss), ("OOD accuracy", "accuracy", right)], "a run")
    first, second = (next(line for line in axes.lines if line.get_label() == "one") for axes in figure.axes)
    assert first.get_xdata() == pytest.approx([0, 25, 50]) and first.get_ydata() == pytest.approx([1.0, MIN_LOSS, 0.2])
    assert second.get_ydata() == pytest.approx([0.3, 0.8, 0.9])


def test_curves_by_name_have_a_panel_per_name_and_steps_below_the_lowest_panels() -> None:
    names = list("fbcdea")
    rows = made_up({"name": names, "dropout": (0.0, 0.1), "step": (0, 50, 100)}, seeds=4)
    figure = figures.curves_by_name(rows, "demo")
    assert [axes.get_title() for axes in figure.axes if axes.axison] == names  # as they appear
    assert [axes.get_title() for axes in figure.axes if axes.get_xlabel()] == names[3:]
    axes = figure.axes[1]
    lines = {line.get_label(): line for line in axes.lines}
    assert lines["no dropout"].get_linestyle() != lines["dropout 0.1"].get_linestyle()
    for band, (label, rate) in zip(axes.collections, (("no dropout", 0.0), ("dropout 0.1", 0.1)), strict=True):
        assert_curve(lines[label], band, {at: of(rows, name="b", dropout=rate, step=at) for at in (0, 50, 100)})


def test_curves_by_setting_have_a_panel_per_line_and_a_curve_per_sigma() -> None:
    rows = made_up({"panel": ("adam", "sgd"), "line": ("slow", "fast"), "sigma": SIGMAS, "step": (0, 10, 20)}, 4)
    figure = figures.curves_by_setting(rows, "demo", {"adam": 0.25, "sgd": 0.2})
    drawn = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in drawn] == ["adam, slow", "adam, fast", "sgd, slow", "sgd, fast"]
    for axes in drawn:
        panel, line = axes.get_title().split(", ")
        *curves, chance = axes.lines
        assert chance.get_ydata()[0] == (0.25 if panel == "adam" else 0.2)
        assert len({str(curve.get_color()) for curve in curves}) == len(SIGMAS)
        for sigma, curve, band in zip(SIGMAS, curves, axes.collections, strict=True):
            values = {step: of(rows, panel=panel, line=line, sigma=sigma, step=step) for step in (0, 10, 20)}
            assert_curve(curve, band, values)
