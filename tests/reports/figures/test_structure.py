"""Figures of masked prediction: what is drawn is compared with the tables, and every gap says what it is."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.figure_reading import assert_curve, assert_inside, assert_means, levels, of, points, rows_of, words
from matplotlib.figure import Figure

from placecode.errors import BadInput
from placecode.reports import figures
from placecode.reports.figures import SIGMA

pytestmark = pytest.mark.filterwarnings("error")

AGREEMENT, MODULARITY = ("neighbor_agreement", "labels"), ("modularity", "labels")
MEASURES = (AGREEMENT, MODULARITY)
SHARES = ("hidden 0.5", "hidden 0.9")
STEPS = (0, 10, 100)
Tables = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]


def run_of(
    kinds: Sequence[Any] = (0.01, 0.1, 2.0),
    seeds: int = 4,
    gone: Sequence[Any] = (),
    by: str = "sigma",
    without: Sequence[Any] = (),
) -> Tables:
    """Members, analysis and metrics of a made-up run; kinds that are `gone` diverged, those `without` have no PE."""
    rng = np.random.default_rng(0)
    members, analysis, metrics = [], [], []
    for kind, seed in itertools.product(kinds, range(seeds)):
        number, lost = len(members), kind in gone
        state = "diverged" if lost else "done"
        spec = {"sigma": np.nan, by: kind, "seed": seed, "mask_ratio": 0.5, "data": "", "state": state}
        members.append({"member": number, **spec})
        for step, (name, target), block in itertools.product((0, 100), MEASURES, (-1, 0)):
            value = np.nan if lost and step else rng.uniform(0.3, 0.6) + 7 * (block == 0)
            if kind not in without:
                analysis.append((number, step, block, name, target, value))
        for step, share, split in itertools.product(STEPS, SHARES, ("train", "test")):
            metrics.append((number, step, split, share, "mse", np.nan if lost and step else rng.uniform(0.5, 0.9)))
            metrics.append((number, step, split, share, "loss", 99.0))
    return (
        pd.DataFrame(members),
        pd.DataFrame(analysis, columns=["member", "step", "block", "analysis", "target", "value"]),
        pd.DataFrame(metrics, columns=["member", "step", "split", "condition", "metric", "value"]),
    )


def baselines(worlds: int = 2, names: Sequence[str] = ("fc", "mutual information")) -> pd.DataFrame:
    """Matrices with their structure, predictors with their errors; and the same on data that nobody was trained on."""
    rows = []
    for data, world, (i, name) in itertools.product(("", "other"), range(worlds), enumerate(names)):
        far = 5.0 * (data == "other") + 0.1 * world
        rows += [(data, world, name, "analysis", target, measure, 0.9 - 0.1 * i + far) for measure, target in MEASURES]
    for data, world, (i, share) in itertools.product(("", "other"), range(worlds), enumerate(SHARES)):
        rows += [(data, world, "linear", "test", share, "mse", 0.7 + 0.2 * i + 0.1 * world + 5.0 * (data == "other"))]
        rows += [(data, world, "linear", "train", share, "mse", 77.0)]
    return pd.DataFrame(rows, columns=["data", "world", "baseline", "split", "condition", "metric", "value"])


def values_of(members: pd.DataFrame, rows: pd.DataFrame, kind: Any, by: str = "sigma", **wanted: Any) -> np.ndarray:
    """Picked one by one: of the members of a kind, the rows as wanted."""
    return of(rows[rows["member"].isin(members.loc[members[by] == kind, "member"])], **wanted)


def test_measures_are_means_over_seeds_hollow_before_and_filled_after() -> None:
    members, analysis, _ = run_of()
    figure = figures.structure_by_sigma(members, analysis, None, "demo", MEASURES, labels={AGREEMENT: "same cluster"})
    assert [axes.get_ylabel() for axes in figure.axes] == ["same cluster", "modularity"]
    for axes, (name, target) in zip(figure.axes, MEASURES, strict=True):
        before, after = points(axes)["before training"], points(axes)["after training"]
        assert before.hollow and not after.hollow
        for marks, step in ((before, 0), (after, 100)):
            assert marks.x.tolist() == [0.01, 0.1, 2.0]
            wanted = {"analysis": name, "target": target, "step": step, "block": -1}
            assert_means(marks, [values_of(members, analysis, s, **wanted) for s in marks.x], clip=False)
        (seeds,) = [line for line in axes.lines if line.get_alpha() == 0.3]
        np.testing.assert_array_equal(np.sort(seeds.get_ydata()), np.sort(of(analysis, **wanted)))


def test_an_interval_is_clipped_to_what_a_measure_can_be() -> None:
    members, analysis, _ = run_of(seeds=2)
    analysis["value"] = np.where(analysis["member"] % 2, 1.0, 0.5)
    marks = points(figures.structure_by_sigma(members, analysis, None, "demo", [AGREEMENT]).axes[0])
    assert marks["after training"].y_bars is not None
    np.testing.assert_allclose(marks["after training"].y_bars, [[0, 1]] * 3)


def test_baselines_are_lines_at_their_mean_over_worlds() -> None:
    members, analysis, _ = run_of()
    names = ("fc", "mutual information", "partial correlation", "spectral")
    for axes in figures.structure_by_sigma(members, analysis, baselines(2, names), "demo", MEASURES).axes:
        assert levels(axes) == pytest.approx({name: 0.95 - 0.1 * i for i, name in enumerate(names)})
        assert all(axes.get_ylim()[0] < level < axes.get_ylim()[1] for level in levels(axes).values())
    single = figures.structure_by_sigma(members.assign(data="other"), analysis, baselines(1), "demo", [AGREEMENT])
    assert levels(single.axes[0]) == pytest.approx({"fc": 5.9, "mutual information": 5.8})  # those on the same data


def test_a_sigma_that_is_lost_keeps_its_place_and_says_so() -> None:
    members, analysis, metrics = run_of(gone=(0.1,))
    for figure in (
        figures.structure_by_sigma(members, analysis, None, "demo", [AGREEMENT]),
        figures.error_by_sigma(members, metrics, None, "demo"),
    ):
        axes = figure.axes[0]
        (text,) = [text for text in axes.texts if "diverged" in text.get_text()]
        assert (text.get_text(), text.get_position()[0]) == (f"{SIGMA} = 0.1: all members diverged", 0.1)
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.01", "0.1", "2"]
        for marks in points(axes).values():
            assert marks.x.tolist() == [0.01, 2.0]
        joined = [line for line in axes.lines if len(line.get_xdata()) == 3]
        assert len(joined) == len(points(axes))
        for line in joined:
            assert np.isfinite(line.get_ydata()).tolist() == [True, False, True]  # the line is broken there
        assert "4 of 12 members diverged and are left out" in words(figure)


def test_errors_are_those_of_the_final_step_a_panel_per_share() -> None:
    members, _, metrics = run_of()
    figure = figures.error_by_sigma(members, metrics, baselines(), "demo", best={"hidden 0.5": 0.4})
    assert [axes.get_title() for axes in figure.axes] == ["50% hidden", "90% hidden"]
    for axes, share in zip(figure.axes, SHARES, strict=True):
        marks = points(axes)["members"]
        wanted = {"split": "test", "condition": share, "metric": "mse", "step": 100}
        assert_means(marks, [values_of(members, metrics, sigma, **wanted) for sigma in marks.x], clip=False)
    assert levels(figure.axes[0]) == pytest.approx({"linear": 0.75, "best possible": 0.4})
    assert levels(figure.axes[1]) == pytest.approx({"linear": 0.95})  # whose best is not known


def test_curves_are_means_with_bands_a_line_per_sigma() -> None:
    members, _, metrics = run_of()
    for axes, share in zip(figures.error_curves(members, metrics, "demo").axes, SHARES, strict=True):
        assert [line.get_label() for line in axes.lines] == [f"{SIGMA} = {sigma}" for sigma in ("0.01", "0.1", "2")]
        for line, band, sigma in zip(axes.lines, axes.collections, (0.01, 0.1, 2.0), strict=True):
            wanted = {"split": "test", "condition": share, "metric": "mse"}
            values = {step: values_of(members, metrics, sigma, step=step, **wanted) for step in STEPS}
            assert_curve(line, band, values, clip=False)


def test_many_sigmas_of_curves_are_thinned_and_lost_ones_are_named() -> None:
    members, _, metrics = run_of(tuple(np.arange(1, 12) / 10), gone=(1.1,))
    figure = figures.error_curves(members, metrics, "demo")
    for axes in figure.axes:
        assert [list(line.get_xdata()) for line in axes.lines] == [list(STEPS)] * 5 + [[]]
    assert "6 of 11 sigmas" in words(figure) and f"{SIGMA} = 1.1 (diverged)" in words(figure)


def test_names_are_rows_with_errors_and_measures_the_smallest_error_on_top() -> None:
    names = ("poor", "none", "gone", "good")
    members, analysis, metrics = run_of(names, gone=("gone",), by="name", without=("none",))
    metrics["value"] += metrics["member"].map(members["name"].map({"poor": 2, "none": 1, "gone": 0, "good": 0}))
    figure = figures.measure_by_name(members, analysis, metrics, "demo", MEASURES, chance={AGREEMENT: 0.2})
    order = ["good", "none", "poor", "gone"]
    assert rows_of(figure.axes[0]) == order
    wanted: list[tuple[pd.DataFrame, dict[str, Any]]] = [
        *((metrics, {"split": "test", "condition": share, "metric": "mse", "step": 100}) for share in SHARES),
        *((analysis, {"analysis": name, "block": -1, "step": 100}) for name, _ in MEASURES),
    ]
    for axes, (rows, which) in zip(figure.axes, wanted, strict=True):
        marks = points(axes)["after training"]
        texts = {order[round(text.get_position()[1])]: text.get_text() for text in axes.texts}
        lost = {"gone": "all members diverged"} | ({"none": "no PE to measure"} if rows is analysis else {})
        assert texts == lost
        assert sorted(order[int(y)] for y in marks.y) == sorted(set(order) - set(lost))
        assert_means(marks, [values_of(members, rows, order[int(y)], "name", **which) for y in marks.y], clip=False)
        assert ("before training" in points(axes)) == (rows is analysis)
    before = points(figure.axes[2])["before training"]
    which = {"analysis": "neighbor_agreement", "block": -1, "step": 0}
    assert before.hollow
    assert_means(before, [values_of(members, analysis, order[int(y)], "name", **which) for y in before.y], clip=False)


def test_baselines_have_rows_of_their_own_below_the_encodings() -> None:
    members, analysis, metrics = run_of(("a", "b"), by="name")
    figure = figures.measure_by_name(members, analysis, metrics, "demo", [AGREEMENT], baselines())
    rows = rows_of(figure.axes[0])
    assert rows[2:] == ["linear", "fc", "mutual information"]
    by_panel = [points(axes)["baseline"] for axes in figure.axes]
    levels_by_panel = [dict(zip((rows[int(y)] for y in marks.y), marks.x, strict=True)) for marks in by_panel]
    assert levels_by_panel[0] == pytest.approx({"linear": 0.75})
    assert levels_by_panel[1] == pytest.approx({"linear": 0.95})
    assert levels_by_panel[2] == pytest.approx({"fc": 0.95, "mutual information": 0.85})
    assert_means(by_panel[0], [np.array([0.7, 0.8])], clip=False)
    members["name"] = members["name"].replace({"a": "fc"})  # an encoding of the same name stays in its own row
    figure = figures.measure_by_name(members, analysis, metrics, "demo", [AGREEMENT], baselines())
    assert points(figure.axes[2])["baseline"].y.tolist() == [3, 4]


def drawn(tables: Tables, by_name: Tables, others: pd.DataFrame | None, name: str) -> list[Figure]:
    """Every figure that is drawn from members."""
    members, analysis, metrics = tables
    labels = {AGREEMENT: name}
    return [
        figures.structure_by_sigma(members, analysis, others, name, MEASURES, {AGREEMENT: 0.2}, labels),
        figures.error_by_sigma(members, metrics, others, name, best={"hidden 0.5": 0.1}),
        figures.error_curves(members, metrics, name),
        figures.measure_by_name(by_name[0], by_name[1], by_name[2], name, MEASURES, others, labels=labels),
    ]


@pytest.mark.parametrize("name", ["$x^_{ <b>", "a rather long name, option 0.5, of which there is another"])
def test_whatever_the_names_nothing_is_cut_off(name: str) -> None:
    eleven = tuple(np.geomspace(0.01, 2, 11).round(3))
    known = baselines(2, (name, "fc", "mutual information", "partial correlation"))
    for figure in drawn(run_of(eleven, 3, gone=(2.0,)), run_of((name, "b"), by="name"), known, name):
        figures.svg_text(figure)  # names are not read as mathematics, which would fail here
        assert f"run {name[:28]}" in words(figure)
        assert_inside(figure)
        for axes in (axes for axes in figure.axes if axes.get_title() or axes.get_ylabel()):
            assert axes.get_window_extent().height / figure.dpi > 0.9, words(figure)  # a long legend leaves room


@pytest.mark.parametrize("gone", [(), (0.2, "a")])
def test_one_sigma_and_one_seed_have_no_interval(gone: tuple[Any, ...]) -> None:
    for figure in drawn(run_of((0.2,), 1, gone), run_of(("a",), 1, gone, by="name"), None, "demo"):
        figure.draw_without_rendering()
        if gone:
            assert "diverged" in words(figure)
        else:
            assert "single seed, so no interval" in words(figure)


def test_tables_without_any_row_can_be_drawn() -> None:
    empty = (run_of()[0].iloc[:0], run_of()[1].iloc[:0], run_of()[2].iloc[:0])
    named = tuple(table.iloc[:0] for table in run_of(("a",), by="name"))
    for figure in drawn(empty, (named[0], named[1], named[2]), baselines().iloc[:0], "demo"):
        figure.draw_without_rendering()
        assert "no values" in words(figure)


SWEEPS: list[Callable[..., Figure]] = [
    lambda members, analysis, metrics: figures.structure_by_sigma(members, analysis, None, "demo", MEASURES),
    lambda members, analysis, metrics: figures.error_by_sigma(members, metrics, None, "demo"),
    lambda members, analysis, metrics: figures.error_curves(members, metrics, "demo"),
]


@pytest.mark.parametrize("draw", SWEEPS)
def test_members_without_a_sigma_are_left_out_and_several_of_one_sigma_and_seed_are_refused(draw: Any) -> None:
    """Several would count as seeds, and make an interval narrower than it is."""
    members, analysis, metrics = run_of()
    more = members.assign(sigma=np.nan, member=members["member"] + 100)
    one, other = draw(members, analysis, metrics), draw(pd.concat([members, more]), analysis, metrics)
    for axes, same in zip(one.axes, other.axes, strict=True):
        assert [str(line.get_ydata()) for line in axes.lines] == [str(line.get_ydata()) for line in same.lines]
    with pytest.raises(BadInput, match="one for each sigma and seed"):
        draw(members.assign(seed=members["seed"] // 2), analysis, metrics)
