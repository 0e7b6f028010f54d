"""Accuracy by sigma, noise and condition: what is drawn is compared with an independent computation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.figure_reading import SPLITS, STEPS, assert_curve, assert_means, made_up, of, points, tables, words

from placecode.reports import figures
from placecode.reports.figures import SIGMA
from placecode.reports.figures.base import BLUE, MUTED

pytestmark = pytest.mark.filterwarnings("error")


def seeds(members: pd.DataFrame, metrics: pd.DataFrame, split: str, step: int = STEPS[-1], **spec: Any) -> np.ndarray:
    """The values that a mean is over, picked row by row."""
    wanted = {
        row["member"]
        for row in members.to_dict("records")
        if row["state"] == "done" and all(row[name] == value for name, value in spec.items())
    }
    rows = metrics[metrics["member"].isin(wanted)]
    return of(rows, split=split, condition="all", metric="accuracy", step=step)


def test_means_intervals_and_seeds_are_those_of_the_run() -> None:
    members, metrics = tables()
    axes = figures.accuracy_by_sigma(members, metrics, "demo", chance=0.125).axes[0]
    assert list(points(axes)) == list(SPLITS)
    for split, marks in points(axes).items():
        assert_means(marks, [seeds(members, metrics, split, sigma=sigma) for sigma in (0.2, 1.0, 2.0)])
    dots = [line for line in axes.lines if line.get_linestyle() == "None" and line.get_alpha() is not None]
    found = sorted(y for line in dots for y in np.asarray(line.get_ydata(), dtype=float))
    np.testing.assert_allclose(found, sorted(y for split in SPLITS for y in seeds(members, metrics, split)))
    (line,) = [line for line in axes.lines if line.get_label() == "chance"]
    assert set(np.asarray(line.get_ydata())) == {0.125}


def test_other_encodings_stand_beside_the_sweep() -> None:
    encodings = [("learned", "{}"), ("sinusoid", '{"axes": 1}'), ("sinusoid", '{"axes": 2}'), ("none", "{}")]
    members, metrics = tables(encodings=encodings)
    sweep, others = figures.accuracy_by_sigma(members, metrics, "demo").axes
    assert len(points(sweep)["test"].y) == 3
    names = [label.get_text() for label in others.get_xticklabels()]
    assert names == ["sinusoid, axes 1", "sinusoid, axes 2", "none"]
    marks = points(others)["test"]
    at = dict(zip(np.round(marks.x), marks.y, strict=True))
    assert at[2] == pytest.approx(seeds(members, metrics, "test", encoding="none").mean())
    assert at[0] == pytest.approx(seeds(members, metrics, "test", options='{"axes": 1}').mean())


def test_members_that_differ_in_more_than_sigma_are_not_averaged_together() -> None:
    members, metrics = tables(seeds=4)
    members["optimizer"] = ["adam", "sgd"] * 6
    adam, sgd = figures.accuracy_by_sigma(members, metrics, "demo").axes
    assert (adam.get_title(), sgd.get_title()) == ("learned, optimizer adam", "learned, optimizer sgd")
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
    assert len(values) == 2
    assert points(figure.axes[0])["train"].y[0] == pytest.approx(values.mean())
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


def test_many_sigmas_are_thinned_evenly_and_other_encodings_have_their_own_curves() -> None:
    encodings = [("learned", "{}"), ("none", "{}")]
    figure = figures.learning_curves(*tables(list(np.arange(1, 21) / 10), encodings=encodings), "demo")
    *shown, last = [axes.get_title() for axes in figure.axes if axes.get_title()]
    sigmas = [float(title.split("= ")[1]) for title in shown]
    assert last == "none" and len(sigmas) == 6
    assert (sigmas[0], sigmas[-1]) == (0.1, 2.0)
    assert max(np.diff(sigmas)) - min(np.diff(sigmas)) < 0.11


def test_crosses_are_the_published_means_of_the_sigmas_of_the_run() -> None:
    rows = [(sigma, seed, 0.9 - sigma + 0.01 * seed) for sigma in (0.1, 0.2, 0.3) for seed in range(3)]
    table = pd.DataFrame(rows, columns=["sigma", "seed", "value"])
    figure = figures.beside_published(table, {0.1: 0.81, 0.3: 0.55, 2.0: 0.3}, "a run")
    (crosses,) = [line for line in figure.axes[0].lines if line.get_label() == "published"]
    assert crosses.get_xdata() == pytest.approx([0.1, 0.3])
    assert crosses.get_ydata() == pytest.approx([0.81, 0.55])
    assert points(figure.axes[0])["ours"].y == pytest.approx([0.81, 0.71, 0.61])
    assert "a run" in figure.get_supxlabel() and "over 3 seeds" in figure.get_supxlabel()
    figure.draw_without_rendering()
    table.loc[0, "value"] = np.nan
    assert "1 of 9 values are missing" in words(figures.beside_published(table, {}, "a run"))


def test_noise_has_a_panel_per_split_and_a_line_per_sigma() -> None:
    rows = made_up({"split": ("ood", "train"), "sigma": (0.2, 2.0), "level": (0.0, 0.1, 5.0)})
    figure = figures.noise_curves(rows, "demo", chance=0.125)
    assert [axes.get_title() for axes in figure.axes] == ["train", "ood"]  # as splits always stand
    for axes in figure.axes:
        found = points(axes)
        assert list(found) == [f"{SIGMA} = 0.2", f"{SIGMA} = 2"]
        assert len({marks.marker for marks in found.values()}) == 2
        for marks, sigma in zip(found.values(), (0.2, 2.0), strict=True):
            assert np.round(marks.x).tolist() == [0, 1, 2]  # at equal distances, not at 0, 0.1 and 5
            assert_means(marks, [of(rows, split=axes.get_title(), sigma=sigma, level=level) for level in (0, 0.1, 5)])
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", "0.1", "5"]


def test_many_sigmas_of_noise_are_thinned_and_counted() -> None:
    sigmas = np.arange(1, 21) / 10
    figure = figures.noise_curves(made_up({"split": ("train",), "sigma": sigmas, "level": (0.0, 1.0)}, 2), "demo")
    shown = [float(label.split("= ")[1]) for label in points(figure.axes[0])]
    assert (len(shown), shown[0], shown[-1]) == (5, 0.1, 2.0)
    assert "5 of 20 sigmas" in words(figure)
    few = made_up({"split": ("train",), "sigma": sigmas[:5], "level": (0.0, 1.0)}, 2)
    assert "sigmas" not in words(figures.noise_curves(few, "demo"))


def test_accuracy_and_confidence_stand_beside_each_other() -> None:
    conditions, sigmas = list("abcdefgh"), (0.5, 1.0, 1.5)  # more conditions than styles
    rows = made_up({"condition": conditions, "sigma": sigmas}, values=("accuracy", "confidence"))
    figure = figures.conditions_by_sigma(rows, "demo")
    assert [axes.get_ylabel().split()[0] for axes in figure.axes] == ["accuracy", "confidence"]
    for axes, value in zip(figure.axes, ("accuracy", "confidence"), strict=True):
        found = points(axes)
        assert list(found) == conditions and found["a"].marker != found["b"].marker
        for condition, marks in found.items():
            assert_means(marks, [of(rows, value, condition=condition, sigma=sigma) for sigma in sigmas])


def moments(sigmas: tuple[float, ...] = (0.5, 1.0, 1.5)) -> pd.DataFrame:
    rows = made_up({"measure": ("norm", "angle"), "moment": ("start", "end"), "sigma": sigmas}, 4)
    return rows.assign(value=rows["value"] * np.where(rows["measure"] == "norm", 100, -1))


def test_measures_are_hollow_before_and_filled_after_each_on_its_own_scale() -> None:
    rows = moments()
    norm, angle = figures.before_and_after(rows, "demo", {"norm": "length, in units"}).axes
    assert (norm.get_ylabel(), angle.get_ylabel()) == ("length, in units", "angle")
    assert norm.get_ylim()[0] > 10 and angle.get_ylim()[1] < 1
    for axes, measure in ((norm, "norm"), (angle, "angle")):
        before, after = points(axes)["before training"], points(axes)["after training"]
        assert (before.hollow, before.color) == (True, MUTED)
        assert (after.hollow, after.color) == (False, BLUE.lower())
        for moment, marks in (("start", before), ("end", after)):
            values = [of(rows, measure=measure, moment=moment, sigma=sigma) for sigma in marks.x]
            assert_means(marks, values, clip=False)  # a measure is no accuracy
    some = figures.before_and_after(rows[(rows["measure"] == "norm") | (rows["moment"] == "end")], "demo")
    assert set(points(some.axes[1])) == {"after training"}


@pytest.mark.parametrize("sigmas", [(0.2,), (0.0, 1.0), (0.01, 0.1, 2.0)])
def test_measures_at_any_set_of_sigmas_can_be_drawn(sigmas: tuple[float, ...]) -> None:
    figure = figures.before_and_after(moments(sigmas), "demo")
    figure.draw_without_rendering()
    assert figure.axes[0].get_xscale() == ("log" if len(sigmas) == 3 else "linear")
