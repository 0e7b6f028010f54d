"""Accuracy of a run's members: what is drawn is compared with an independent computation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.figure_reading import SPLITS, STEPS, tables, words
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.container import ErrorbarContainer
from scipy import stats

from placecode.reports import figures


def final(members: pd.DataFrame, metrics: pd.DataFrame, split: str, **spec: Any) -> np.ndarray:
    """The values that a mean is over, picked row by row."""
    wanted = {
        row["member"]
        for row in members.to_dict("records")
        if row["state"] == "done" and all(row[name] == value for name, value in spec.items())
    }
    kept = [
        row["value"]
        for row in metrics.to_dict("records")
        if (row["split"], row["condition"], row["metric"], row["step"]) == (split, "all", "accuracy", STEPS[-1])
        and row["member"] in wanted
    ]
    return np.array(kept)


def drawn(axes: Axes) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Means (k,) and bars (k, 2) of each split, read from the panel."""
    found = {}
    for container in axes.containers:
        assert isinstance(container, ErrorbarContainer)
        line, _, (bars,) = container.lines
        assert isinstance(bars, LineCollection)
        ends = np.array([segment[:, 1] for segment in bars.get_segments()])
        found[str(container.get_label())] = (np.asarray(line.get_ydata()), ends)
    return found


# ---------------------------------------------------------------------------------------------- accuracy_by_sigma


def test_means_and_intervals_are_those_of_the_seeds() -> None:
    members, metrics = tables()
    axes = figures.accuracy_by_sigma(members, metrics, "demo").axes[0]
    found = drawn(axes)
    assert list(found) == list(SPLITS)
    for split, (means, bars) in found.items():
        for i, sigma in enumerate((0.2, 1.0, 2.0)):
            values = final(members, metrics, split, sigma=sigma)
            low, high = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
            assert means[i] == pytest.approx(values.mean())
            np.testing.assert_allclose(bars[i], np.clip([low, high], 0, 1))


def test_every_seed_is_a_dot() -> None:
    members, metrics = tables()
    axes = figures.accuracy_by_sigma(members, metrics, "demo").axes[0]
    dots = [line for line in axes.lines if line.get_linestyle() == "None" and line.get_alpha() is not None]
    found = sorted(y for line in dots for y in np.asarray(line.get_ydata(), dtype=float))
    expected = sorted(y for split in SPLITS for y in final(members, metrics, split))
    np.testing.assert_allclose(found, expected)


def test_chance_is_drawn_where_it_was_said_to_be() -> None:
    axes = figures.accuracy_by_sigma(*tables(), "demo", chance=0.125).axes[0]
    (line,) = [line for line in axes.lines if line.get_label() == "chance"]
    assert set(np.asarray(line.get_ydata())) == {0.125}


def test_other_encodings_stand_beside_the_sweep() -> None:
    members, metrics = tables(
        encodings=[("learned", "{}"), ("sinusoid", '{"axes": 1}'), ("sinusoid", '{"axes": 2}'), ("none", "{}")]
    )
    sweep, others = figures.accuracy_by_sigma(members, metrics, "demo").axes
    assert len(drawn(sweep)["test"][0]) == 3
    names = [label.get_text() for label in others.get_xticklabels()]
    assert names == ["sinusoid, axes 1", "sinusoid, axes 2", "none"]
    at = dict(zip(np.round(others.containers[1].lines[0].get_xdata()), drawn(others)["test"][0], strict=True))
    assert at[2] == pytest.approx(final(members, metrics, "test", encoding="none").mean())
    assert at[0] == pytest.approx(final(members, metrics, "test", options='{"axes": 1}').mean())


def test_members_that_differ_in_more_than_sigma_are_not_averaged_together() -> None:
    members, metrics = tables(seeds=4)
    members["optimizer"] = ["adam", "sgd"] * 6
    adam, sgd = figures.accuracy_by_sigma(members, metrics, "demo").axes
    assert (adam.get_title(), sgd.get_title()) == ("learned, optimizer adam", "learned, optimizer sgd")
    values = final(members, metrics, "train", sigma=0.2, optimizer="sgd")
    assert drawn(sgd)["train"][0][0] == pytest.approx(values.mean())


def test_one_seed_has_a_mean_and_no_interval() -> None:
    figure = figures.accuracy_by_sigma(*tables(seeds=1), "demo")
    for means, bars in drawn(figure.axes[0]).values():
        np.testing.assert_allclose(bars, np.stack([means, means], axis=1))
    assert "no interval" in words(figure)


def test_diverged_members_are_left_out_and_mentioned() -> None:
    members, metrics = tables(diverged=[0])
    figure = figures.accuracy_by_sigma(members, metrics, "demo")
    values = final(members, metrics, "train", sigma=0.2)
    assert len(values) == 2
    assert drawn(figure.axes[0])["train"][0][0] == pytest.approx(values.mean())
    assert "1 of 9 members diverged" in words(figure)
    assert "diverged" not in words(figures.accuracy_by_sigma(*tables(), "demo"))


def test_a_sigma_that_lost_all_its_members_keeps_its_place() -> None:
    figure = figures.accuracy_by_sigma(*tables(diverged=[0, 1, 2]), "demo")
    assert "all members diverged" in words(figure)
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["0.2", "1", "2"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("sigmas", [[0.2], [0.0, 1.0], [0.01, 0.1, 2.0], list(np.arange(1, 21) / 10)])
@pytest.mark.parametrize("draw", [figures.accuracy_by_sigma, figures.learning_curves])
def test_any_set_of_sigmas_can_be_drawn(draw: Any, sigmas: list[float], tmp_path: Path) -> None:
    figures.save(draw(*tables(sigmas), "demo"), tmp_path / "figure.png")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("draw", [figures.accuracy_by_sigma, figures.learning_curves])
def test_a_run_in_which_everything_diverged_can_be_drawn(draw: Any, tmp_path: Path) -> None:
    figures.save(draw(*tables(diverged=range(9)), "demo"), tmp_path / "figure.png")


# ------------------------------------------------------------------------------------------------ learning_curves


def test_curves_are_means_with_bands() -> None:
    members, metrics = tables()
    axes = figures.learning_curves(members, metrics, "demo").axes[1]
    assert axes.get_title().endswith("= 1")
    lines = {line.get_label(): line for line in axes.lines}
    for band, split in zip(axes.collections, SPLITS, strict=True):
        line = lines[split]
        assert tuple(line.get_xdata()) == STEPS
        values = final(members, metrics, split, sigma=1.0)
        assert line.get_ydata()[-1] == pytest.approx(values.mean())
        low, high = np.clip(stats.t.interval(0.95, 2, values.mean(), stats.sem(values)), 0, 1)
        corners = band.get_paths()[0].vertices
        ends = corners[corners[:, 0] == STEPS[-1], 1]
        assert (ends.min(), ends.max()) == (pytest.approx(low), pytest.approx(high))


def test_many_sigmas_are_thinned_evenly_and_keep_their_ends() -> None:
    figure = figures.learning_curves(*tables(list(np.arange(1, 21) / 10)), "demo")
    shown = [float(axes.get_title().split("= ")[1]) for axes in figure.axes if axes.get_title()]
    assert len(shown) == 6
    assert (shown[0], shown[-1]) == (0.1, 2.0)
    assert max(np.diff(shown)) - min(np.diff(shown)) < 0.11


def test_other_encodings_have_their_own_curves() -> None:
    figure = figures.learning_curves(*tables([0.2, 2.0], encodings=[("learned", "{}"), ("none", "{}")]), "demo")
    assert [axes.get_title() for axes in figure.axes][-1] == "none"
