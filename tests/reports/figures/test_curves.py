"""Curves during training are the means of seeds, with bands."""

from __future__ import annotations

import pandas as pd
import pytest
from helpers.figure_reading import assert_curve, made_up, of

from placecode.reports import figures
from placecode.reports.figures.curves import MIN_LOSS

pytestmark = pytest.mark.filterwarnings("error")
SIGMAS = (0.01, 0.2, 1.0)


def epochs(values: dict[str, list[list[float]]]) -> pd.DataFrame:
    rows = [
        (line, 25 * i, seed, value)
        for line, seeds in values.items()
        for seed, curve in enumerate(seeds)
        for i, value in enumerate(curve)
    ]
    return pd.DataFrame(rows, columns=["line", "epoch", "seed", "value"])


def test_slingshots_draw_means_and_a_loss_of_zero_at_the_foot() -> None:
    loss = epochs({"one": [[1.0, 0.0, 0.1], [1.0, 0.0, 0.3]], "two": [[1.0, 0.0, 0.0]]})
    right = epochs({"one": [[0.2, 0.8, 0.9], [0.4, 0.8, 0.9]], "two": [[0.3, 0.8, 0.8]]})
    figure = figures.slingshots({"training loss": loss, "OOD accuracy": right}, "a run")
    first, second = (next(line for line in axes.lines if line.get_label() == "one") for axes in figure.axes)
    assert first.get_xdata() == pytest.approx([0, 25, 50])
    assert first.get_ydata() == pytest.approx([1.0, MIN_LOSS, 0.2])
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
        values = {step: of(rows, name="b", dropout=rate, step=step) for step in (0, 50, 100)}
        assert_curve(lines[label], band, values)


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
