"""Accuracy by sigma, noise and condition: what is drawn is compared with an independent computation."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.figure_reading import SPLITS, STEPS, assert_curve, assert_means, made_up, of, points, tables, words

from placecode.reports import figures
from placecode.reports.figures import SIGMA

pytestmark = pytest.mark.filterwarnings("error")


def seeds(members: pd.DataFrame, metrics: pd.DataFrame, split: str, step: int = STEPS[-1], **spec: Any) -> np.ndarray:
    """The values that a mean is over, picked row by row."""
    wanted = {
        row["member"]
        for row in members.to_dict("records")
        if row["state"] == "done" and all(row[name] == value for name, value in spec.items())
    }
    return of(metrics[metrics["member"].isin(wanted)], split=split, condition="all", metric="accuracy", step=step)


def test_means_intervals_and_seeds_are_those_of_the_run() -> None:
    members, metrics = tables()
    axes = figures.accuracy_by_sigma(members, metrics, "demo", chance=0.125).axes[0]
    assert list(points(axes)) == list(SPLITS)
    for split, marks in points(axes).items():
        assert_means(marks, [seeds(members, metrics, split, sigma=sigma) for sigma in (0.2, 1.0, 2.0)])
    dots = [line for line in axes.lines if line.get_linestyle() == "None" and line.get_alpha() is not None]
    drawn = sorted(y for line in dots for y in np.asarray(line.get_ydata(), dtype=float))
    np.testing.assert_allclose(drawn, sorted(y for split in SPLITS for y in seeds(members, metrics, split)))
    (line,) = [line for line in axes.lines if line.get_label() == "chance"]
    assert set(np.asarray(line.get_ydata())) == {0.125}


def test_other_encodings_stand_beside_the_sweep() -> None:
    encodings = [("learned", "{}"), ("sinusoid", '{"axes": 1}'), ("sinusoid", '{"axes": 2}'), ("none", "{}")]
    members, metrics = tables(encodings=encodings)
    sweep, others = figures.accuracy_by_sigma(members, metrics, "demo").axes
    assert len(points(sweep)["test"].y) == 3
    marks = points(others)["test"]
    by_place = dict(zip(np.round(marks.x), marks.y, strict=True))
    assert by_place[2] == pytest.approx(seeds(members, metrics, "test", encoding="none").mean())
    assert by_place[0] == pytest.approx(seeds(members, metrics, "test", options='{"axes": 1}').mean())


def test_members_that_differ_in_more_than_sigma_are_not_averaged_together() -> None:
    members, metrics = tables(seeds=4)
    members["optimizer"] = ["adam", "sgd"] * 6
    _, sgd = figures.accuracy_by_sigma(members, metrics, "demo").axes
    values = seeds(members, metrics, "train", sigma=0.2, optimizer="sgd")
    assert points(sgd)["train"].y[0] == pytest.approx(values.mean())


def test_one_seed_has_a_mean_and_no_interval() -> None:
    figure = figures.accuracy_by_sigma(*tables(seeds=1), "demo")
    for marks in points(figure.axes[0]).values():
        np.testing.assert_allclose(marks.y_bars, np.stack([marks.y, marks.y], axis=1))
    assert "no interval" in words(figure)


def test_diverged_members_are_left_out_and_counted() -> None:
    members, metrics = tables(diverged=[0])
    figure = figures.accuracy_by_sigma(members, metrics, "demo")
    values = seeds(members, metrics, "train", sigma=0.2)
    assert len(values) == 2 and points(figure.axes[0])["train"].y[0] == pytest.approx(values.mean())
    assert "1 of 9 members diverged" in words(figure)
    assert "diverged" not in words(figures.accuracy_by_sigma(*tables(), "demo"))
    lost = figures.accuracy_by_sigma(*tables(diverged=[0, 1, 2]), "demo")
    assert "all members diverged" in words(lost)
    assert [tick.get_text() for tick in lost.axes[0].get_xticklabels()] == ["0.2", "1", "2"]  # it keeps its place


@pytest.mark.parametrize(
    "run",
    [{"sigmas": sigmas} for sigmas in ([0.2], [0.0, 1.0], [0.01, 0.1, 2.0], list(np.arange(1, 21) / 10))]
    + [{"diverged": range(9)}],
)
@pytest.mark.parametrize("draw", [figures.accuracy_by_sigma, figures.learning_curves])
def test_any_set_of_sigmas_can_be_drawn(draw: Any, run: dict[str, Any], tmp_path: Path) -> None:
    figures.save(draw(*tables(**run), "demo"), tmp_path / "figure.png")


def test_curves_are_means_with_bands() -> None:
    members, metrics = tables()
    axes = figures.learning_curves(members, metrics, "demo").axes[1]
    assert axes.get_title().endswith("= 1")
    lines = {line.get_label(): line for line in axes.lines}
    for band, split in zip(axes.collections, SPLITS, strict=True):
        assert_curve(lines[split], band, {s: seeds(members, metrics, split, s, sigma=1.0) for s in STEPS})


def test_crosses_are_the_published_means_of_the_sigmas_of_the_run() -> None:
    rows = [(sigma, seed, 0.9 - sigma + 0.01 * seed) for sigma in (0.1, 0.2, 0.3) for seed in range(3)]
    table = pd.DataFrame(rows, columns=["sigma", "seed", "value"])
    figure = figures.beside_published(table, {0.1: 0.81, 0.3: 0.55, 2.0: 0.3}, "a run")
    (crosses,) = [line for line in figure.axes[0].lines if line.get_label() == "published"]
    assert crosses.get_xdata() == pytest.approx([0.1, 0.3]) and crosses.get_ydata() == pytest.approx([0.81, 0.55])
    assert points(figure.axes[0])["ours"].y == pytest.approx([0.81, 0.71, 0.61])
    figure.draw_without_rendering()
    table.loc[0, "value"] = np.nan
    assert "1 of 9 values are missing" in words(figures.beside_published(table, {}, "a run"))


def test_noise_has_a_panel_per_split_and_a_line_per_sigma() -> None:
    rows = made_up({"split": ("ood", "train"), "sigma": (0.2, 2.0), "level": (0.0, 0.1, 5.0)})
    figure = figures.noise_curves(rows, "demo", chance=0.125)
    assert [axes.get_title() for axes in figure.axes] == ["train", "ood"]  # as splits always stand
    for axes in figure.axes:
        lines = points(axes)
        assert list(lines) == [f"{SIGMA} = 0.2", f"{SIGMA} = 2"]
        for marks, sigma in zip(lines.values(), (0.2, 2.0), strict=True):
            assert np.round(marks.x).tolist() == [0, 1, 2]  # at equal distances, not at 0, 0.1 and 5
            assert_means(marks, [of(rows, split=axes.get_title(), sigma=sigma, level=level) for level in (0, 0.1, 5)])


def test_accuracy_and_confidence_stand_beside_each_other() -> None:
    conditions, sigmas = list("abcdefgh"), (0.5, 1.0, 1.5)  # more conditions than styles
    rows = made_up({"condition": conditions, "sigma": sigmas}, values=("accuracy", "confidence"))
    for axes, value in zip(figures.conditions_by_sigma(rows, "demo").axes, ("accuracy", "confidence"), strict=True):
        lines = points(axes)
        assert list(lines) == conditions and lines["a"].marker != lines["b"].marker
        for condition, marks in lines.items():
            assert_means(marks, [of(rows, value, condition=condition, sigma=sigma) for sigma in sigmas])


def test_measures_are_hollow_before_and_filled_after_each_on_its_own_scale() -> None:
    rows = made_up({"measure": ("norm", "angle"), "moment": ("start", "end"), "sigma": (0.5, 1.0, 1.5)}, 4)
    rows = rows.assign(value=rows["value"] * np.where(rows["measure"] == "norm", 100, -1))
    norm, angle = figures.before_and_after(rows, "demo").axes
    assert norm.get_ylim()[0] > 10 and angle.get_ylim()[1] < 1
    for axes, measure in ((norm, "norm"), (angle, "angle")):
        before, after = points(axes)["before training"], points(axes)["after training"]
        assert before.hollow and not after.hollow
        for moment, marks in (("start", before), ("end", after)):
            values = [of(rows, measure=measure, moment=moment, sigma=sigma) for sigma in marks.x]
            assert_means(marks, values, clip=False)  # a measure is no accuracy
    some = figures.before_and_after(rows[(rows["measure"] == "norm") | (rows["moment"] == "end")], "demo")
    assert set(points(some.axes[1])) == {"after training"}
