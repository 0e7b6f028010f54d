"""Figures of the curve beside published means, and of slingshots: what is drawn is what the tables hold."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from placecode.errors import BadInput
from placecode.reports.figures import beside_published, slingshots
from placecode.reports.figures.accuracy import LEAST_LOSS

SIGMAS = (0.1, 0.2, 0.3)


def table(seeds: int = 3) -> pd.DataFrame:
    rows = [(sigma, seed, 0.9 - sigma + 0.01 * seed) for sigma in SIGMAS for seed in range(seeds)]
    return pd.DataFrame(rows, columns=["sigma", "seed", "value"])


def lines_of(figure, name: str) -> list:
    return [line for axes in figure.axes for line in axes.lines if line.get_label() == name]


def test_crosses_are_the_published_means_of_the_sigmas_of_the_run() -> None:
    figure = beside_published(table(), {0.1: 0.81, 0.3: 0.55, 2.0: 0.3}, "a run")
    (crosses,) = lines_of(figure, "published")
    assert crosses.get_xdata() == pytest.approx([0.1, 0.3])
    assert crosses.get_ydata() == pytest.approx([0.81, 0.55])
    (container,) = figure.axes[0].containers
    assert container.lines[0].get_ydata() == pytest.approx([0.81, 0.71, 0.61])
    assert "a run" in figure.get_supxlabel() and "over 3 seeds" in figure.get_supxlabel()
    figure.draw_without_rendering()


def test_missing_values_are_left_out_and_said() -> None:
    some = table()
    some.loc[0, "value"] = np.nan
    figure = beside_published(some, {}, "a run")
    assert "1 of 9 values are missing" in " ".join(figure.get_supxlabel().split())
    with pytest.raises(BadInput):
        beside_published(some.drop(columns="seed"), {}, "a run")


def curves(values: dict[str, list[list[float]]]) -> pd.DataFrame:
    rows = [
        (line, 25 * i, seed, value)
        for line, seeds in values.items()
        for seed, own in enumerate(seeds)
        for i, value in enumerate(own)
    ]
    return pd.DataFrame(rows, columns=["line", "epoch", "seed", "value"])


def test_slingshots_draw_means_and_a_loss_of_zero_at_the_foot() -> None:
    loss = curves({"one log-softmax": [[1.0, 0.0, 0.1], [1.0, 0.0, 0.3]], "two log-softmax": [[1.0, 0.0, 0.0]]})
    right = curves({"one log-softmax": [[0.2, 0.8, 0.9], [0.4, 0.8, 0.9]], "two log-softmax": [[0.3, 0.8, 0.8]]})
    figure = slingshots({"training loss": loss, "OOD accuracy": right}, "a run")
    first, second = lines_of(figure, "one log-softmax")
    assert first.get_xdata() == pytest.approx([0, 25, 50])
    assert first.get_ydata() == pytest.approx([1.0, LEAST_LOSS, 0.2])
    assert second.get_ydata() == pytest.approx([0.3, 0.8, 0.9])
    assert [axes.get_yscale() for axes in figure.axes] == ["log", "linear"]
    ticks = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert ticks[0] == "0"
    figure.draw_without_rendering()
