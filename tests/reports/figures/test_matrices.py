"""Similarity maps and maps by two settings: cells are those of the arrays and tables, on one scale."""

import numpy as np
import pytest
from helpers.figure_reading import assert_inside, made_up, mean_and_bounds, of, rows_of, words
from matplotlib.axes import Axes

from placecode.errors import BadInput
from placecode.reports import figures

pytestmark = pytest.mark.filterwarnings("error")

LABELS = np.array([1, -1, 0, 1, 0, 0])
ORDER = [2, 4, 5, 0, 3, 1]


def maps(n: int = 6, count: int = 3, reach: float = 1.0) -> list[np.ndarray]:
    return list(np.random.default_rng(1).uniform(-reach, reach, size=(count, n, n)))


def test_maps_are_sorted_by_cluster_the_loose_last_with_lines_between() -> None:
    a, b, fc = maps()
    figure = figures.similarity_by_sigma({"a": a, "b": b}, LABELS, "demo", fc)
    shown = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title() for axes in shown] == ["a", "b", "correlation of channels"]
    for axes, array in zip(shown, (a, b, fc), strict=True):
        np.testing.assert_array_equal(axes.images[0].get_array(), array[np.ix_(ORDER, ORDER)])
        assert axes.images[0].get_clim() == (-1, 1)
        across = {float(line.get_ydata()[0]) for line in axes.lines if len(set(line.get_ydata())) == 1}
        assert across == {2.5, 4.5}


def test_the_scale_is_symmetric_and_set_by_what_is_off_the_diagonal() -> None:
    weak = maps(reach=0.2)[0]
    np.fill_diagonal(weak, 1.0)
    figure = figures.similarity_by_sigma({"weak": weak}, LABELS, "demo")
    assert figure.axes[0].images[0].get_clim() == pytest.approx((-0.2, 0.2))


def test_maps_that_are_lost_say_so_and_those_with_holes_are_drawn() -> None:
    a, b, _ = maps()
    a[:], b[0] = np.nan, np.nan
    figure = figures.similarity_by_sigma({"a": a, "b": b}, LABELS, "demo")
    assert [text.get_text() for axes in figure.axes[:2] for text in axes.texts] == ["not finite"]
    for empty in (figures.similarity_by_sigma({"a": a}, LABELS, "x"), figures.similarity_by_sigma({}, LABELS, "x")):
        empty.draw_without_rendering()


def test_large_maps_stay_small_files() -> None:
    figure = figures.similarity_by_sigma({"a": maps(600, 1)[0]}, np.arange(600) % 200, "demo")
    assert len(figures.svg_text(figure)) < 700_000


def cells(axes: Axes) -> dict[tuple[int, int], list[str]]:
    texts: dict[tuple[int, int], list[str]] = {}
    for text in axes.texts:
        x, y = text.get_position()
        texts.setdefault((round(y), round(x)), []).append(text.get_text())
    return texts


def test_cells_hold_the_mean_and_half_the_interval() -> None:
    table = made_up({"samples": (5000, 1000), "channels": (15, 30, 60)})
    table.loc[(table["samples"] == 1000) & (table["channels"] == 30), "value"] = np.nan
    table = table[(table["samples"] == 1000) | (table["channels"] < 60)]
    labels = {"samples": "time points", "channels": "channels"}
    figure = figures.heatmap_by_settings(table, "demo", "samples", "channels", "share", labels)
    axes = figure.axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["1,000", "5,000"]
    written, image = cells(axes), axes.images[0].get_array()
    assert (written.pop((0, 1)), written.pop((1, 2))) == (["no values"], ["not run"]) and len(written) == 4
    for (row, column), text in written.items():
        values = of(table, samples=(1000, 5000)[row], channels=(15, 30, 60)[column])
        mean, low, high = mean_and_bounds(values, clip=False)
        assert text == [f"{mean:.2f}", f"± {(high - low) / 2:.2f}"]
        assert image[row, column] == pytest.approx(mean)
    assert "4 of 20 values are missing" in words(figure)


def test_panels_share_a_scale_and_words_keep_their_order() -> None:
    table = made_up({"sigma": (2.0, 0.1), "a": ("z", "b"), "b": (1, 2)})
    settings = (table, "demo", "a", "b", "value", {"a": "a", "b": "b", "sigma": "sigma"})
    first, second = figures.heatmap_by_settings(*settings, panel="sigma").axes[:2]
    assert [axes.get_title() for axes in (first, second)] == ["sigma 0.1", "sigma 2"]
    assert first.images[0].get_clim() == second.images[0].get_clim() and rows_of(first) == ["z", "b"]
    assert cells(second)[0, 1][0] == f"{of(table, sigma=2.0, a='z', b=2).mean():.2f}"
    with pytest.raises(BadInput, match="a single row for each a, b and seed"):
        figures.heatmap_by_settings(*settings)


def test_names_with_symbols_are_not_cut_off_or_read_as_formulas() -> None:
    name = "$x^_{ <b>"
    figure = figures.similarity_by_sigma({name: np.eye(6)}, LABELS, name, np.eye(6), "last", name)
    figures.svg_text(figure)
    assert f"run {name}" in words(figure)
    assert_inside(figure)
