"""Maps show their arrays, on one scale, with their names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.figure_reading import words
from matplotlib.collections import LineCollection

from placecode.errors import BadInput
from placecode.reports import figures

# ------------------------------------------------------------------------------------------------ similarity_maps


def maps(n: int, count: int) -> list[np.ndarray]:
    return list(np.random.default_rng(1).uniform(-1, 1, size=(count, n, n)))


def test_maps_show_their_arrays_on_one_scale() -> None:
    true, a, b, c, d = maps(16, 5)
    names = [f"t{i}" for i in range(16)]
    figure = figures.similarity_maps(true, (a, b), (c, d), names, "demo", ("s", "l", "t"), rule=4)
    shown = [axes.images[0] for axes in figure.axes if axes.images]
    for drawn_map, array in zip(shown, (a, b, c, d, true), strict=True):
        np.testing.assert_array_equal(drawn_map.get_array(), array)
        assert drawn_map.get_clim() == (-1, 1)
    assert [axes.get_title() for axes in figure.axes if axes.get_title()] == ["s", "l", "t"]
    assert {"before training", "after training", "cosine similarity of centred PEs"} <= set(words(figure).split("\n"))
    named = [(len(axes.get_xticklabels()), len(axes.get_yticklabels())) for axes in figure.axes if axes.images]
    assert named == [(0, 16), (16, 16), (0, 0), (16, 0), (16, 16)]  # at the left, below, and all around the true one
    assert [label.get_text() for label in figure.axes[1].get_yticklabels()] == names


def test_maps_without_a_start_have_one_row() -> None:
    true, a, b = maps(16, 3)
    figure = figures.similarity_maps(true, a, b, [""] * 16, "demo")
    assert sum(bool(axes.images) for axes in figure.axes) == 3
    assert "before training" not in words(figure)


@pytest.mark.filterwarnings("error")
def test_a_diverged_map_is_blank(tmp_path: Path) -> None:
    figures.save(
        figures.similarity_maps(np.eye(4), np.full((4, 4), np.nan), np.eye(4), list("abcd"), "demo"), tmp_path / "f"
    )


def test_many_tokens_are_not_named() -> None:
    true, a, b = maps(100, 3)
    figure = figures.similarity_maps(true, a, b, [f"t{i}" for i in range(100)], "demo")
    assert "t3" not in words(figure).split("\n")


def test_maps_of_another_size_are_refused() -> None:
    with pytest.raises(BadInput, match="similarity map must be"):
        figures.similarity_maps(np.eye(4), np.eye(4), np.eye(5), list("abcd"), "demo")


# ------------------------------------------------------------------------------------------------- attention_maps


def attention(blocks: int = 2, n: int = 4) -> np.ndarray:
    found = np.random.default_rng(blocks).uniform(size=(blocks, n, n))
    return np.asarray(found / found.sum(axis=-1, keepdims=True))


@pytest.mark.filterwarnings("error")
def test_attention_is_a_grid_of_blocks_and_columns_on_one_scale() -> None:
    a, b, c = attention(), attention()[::-1], attention() ** 2
    figure = figures.attention_maps([("small", a), ("large", b), ("true", c)], "demo", rule=2)
    shown = [axes for axes in figure.axes if axes.images]
    expected = [array[block] for block in (0, 1) for array in (a, b, c)]
    top = np.percentile(np.concatenate([a, b, c]), 99.5)
    for axes, array in zip(shown, expected, strict=True):
        np.testing.assert_array_equal(axes.images[0].get_array(), array)
        assert axes.images[0].get_clim() == (0, pytest.approx(top))
        assert len(axes.lines) == 2  # a thin line after two of four tokens, each way
    assert [axes.get_title() for axes in shown] == ["small", "large", "true", "", "", ""]
    assert [axes.get_ylabel() for axes in shown] == ["block 1", "", "", "block 2", "", ""]
    assert "attention" in [axes.get_ylabel() for axes in figure.axes if not axes.images]
    figure.draw_without_rendering()


@pytest.mark.filterwarnings("error")
def test_attention_that_diverged_says_so_and_spares_the_others() -> None:
    figure = figures.attention_maps([("a", np.full((2, 4, 4), np.nan)), ("b", attention())], "demo")
    figure.draw_without_rendering()
    assert words(figure).split("\n").count("not finite") == 2
    assert next(axes for axes in figure.axes if axes.get_title() == "b").images[0].get_clim()[1] > 0
    figures.attention_maps([("a", np.full((2, 4, 4), np.nan))], "demo").draw_without_rendering()
    assert "no maps" in words(figures.attention_maps([], "demo"))


def test_attention_of_another_shape_is_refused() -> None:
    for other in (attention(3), attention(2, 5), attention()[0], np.ones((2, 4, 5))):
        with pytest.raises(BadInput, match="attention maps must be"):
            figures.attention_maps([("a", attention()), ("b", other)], "demo")


# ----------------------------------------------------------------------------------------------------- token_maps


GRID = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
EDGES = [(0, 1), (0, 2), (1, 3), (2, 3)]


@pytest.mark.filterwarnings("error")
def test_tokens_lie_at_their_places_with_names_and_edges() -> None:
    moved = GRID * [3, 1] + 5
    figure = figures.token_maps([("true", GRID, 0.0), ("found", moved, 0.123)], EDGES, list("abcd"), "demo")
    for axes, places in zip(figure.axes, (GRID, moved), strict=True):
        np.testing.assert_array_equal(axes.lines[0].get_xydata(), places)
        (edges,) = [found for found in axes.collections if isinstance(found, LineCollection)]
        np.testing.assert_array_equal(edges.get_segments(), places[EDGES])
        named = {text.get_text(): text.xy for text in axes.texts if hasattr(text, "xy")}
        assert named == {name: tuple(place) for name, place in zip("abcd", places, strict=True)}
        assert axes.get_aspect() == 1
        assert np.ptp(axes.get_xlim()) == pytest.approx(np.ptp(axes.get_ylim()))
    assert {"stress 0.00", "stress 0.12"} <= set(words(figure).split("\n"))
    figure.draw_without_rendering()
    for axes in figure.axes:
        box = axes.get_window_extent()
        assert box.width == pytest.approx(box.height)


@pytest.mark.filterwarnings("error")
def test_more_than_five_maps_take_another_row() -> None:
    for count, rows in ((1, 1), (5, 1), (6, 2), (11, 3)):
        figure = figures.token_maps([("t", GRID, 0.1)] * count, EDGES, list("abcd"), "demo")
        assert sum(bool(axes.lines) for axes in figure.axes) == count
        assert len({round(axes.get_position().y0, 6) for axes in figure.axes}) == rows


@pytest.mark.filterwarnings("error")
def test_tokens_without_places_say_so() -> None:
    lost, same = np.full((4, 2), np.nan), np.zeros((4, 2))
    figure = figures.token_maps([("a", lost, np.nan), ("b", same, 0.0)], EDGES, list("abcd"), "demo")
    figure.draw_without_rendering()
    assert words(figure).split("\n").count("not finite") == 1
    assert "nan" not in words(figure)
    assert "no maps" in words(figures.token_maps([], [], list("abcd"), "demo"))


def test_places_that_do_not_fit_the_names_are_refused() -> None:
    with pytest.raises(BadInput, match="places must be"):
        figures.token_maps([("a", GRID[:3], 0.1)], EDGES, list("abcd"), "demo")
