"""Maps show their arrays, on one scale, with their names."""

import io
from pathlib import Path

import numpy as np
import pytest
from helpers.figure_reading import contrasts, words
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from placecode.analysis.places import neighbors_in_space
from placecode.reports import figures
from placecode.reports.figures.maps import DOTS, align_to_grid, cut_picture

pytestmark = pytest.mark.filterwarnings("error")


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
    named = [(len(axes.get_xticklabels()), len(axes.get_yticklabels())) for axes in figure.axes if axes.images]
    assert named == [(0, 16), (16, 16), (0, 0), (16, 0), (16, 16)]  # at the left, below, and all around the true one
    assert [label.get_text() for label in figure.axes[1].get_yticklabels()] == names


def test_diverged_maps_are_blank_and_many_tokens_are_not_named(tmp_path: Path) -> None:
    for n in (4, 100):
        pair = (np.eye(n), np.full((n, n), np.nan))
        names = [f"t{i}" for i in range(n)]
        figure = figures.similarity_maps(np.eye(n), pair, pair, names, "demo", ("s", "l", "t"), rule=2)
        figures.save(figure, tmp_path / "map.png")
        assert ("t3" in words(figure).split("\n")) == (n == 4)


def attention(blocks: int = 2, n: int = 4) -> np.ndarray:
    weights = np.random.default_rng(blocks).uniform(size=(blocks, n, n))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def test_attention_is_a_grid_of_blocks_and_columns_on_one_scale() -> None:
    a, b, c = attention(), attention()[::-1], attention() ** 2
    figure = figures.attention_maps([("small", a), ("large", b), ("true", c)], "demo", rule=2)
    shown = [axes for axes in figure.axes if axes.images]
    expected = [array[block] for block in (0, 1) for array in (a, b, c)]
    top = np.percentile(np.concatenate([a, b, c]), 99.5)
    for axes, array in zip(shown, expected, strict=True):
        np.testing.assert_array_equal(axes.images[0].get_array(), array)
        assert axes.images[0].get_clim() == (0, pytest.approx(top))


def test_attention_that_diverged_says_so_and_spares_the_others() -> None:
    lost = np.full((2, 4, 4), np.nan)
    figure = figures.attention_maps([("a", lost), ("b", attention())], "demo", 2)
    figure.draw_without_rendering()
    assert words(figure).split("\n").count("not finite") == 2
    assert next(axes for axes in figure.axes if axes.get_title() == "b").images[0].get_clim()[1] > 0
    figures.attention_maps([("a", lost)], "demo", 2).draw_without_rendering()


def test_every_cell_says_its_rate_or_none() -> None:
    rates = np.array([[0.0, 0.125, 0.6], [np.nan, 1 / 3, 0.07]])
    first, second = figures.error_maps([("small", rates), ("large", rates / 2)], "demo").axes[:2]
    texts = {text.get_position(): text.get_text() for text in first.texts}
    assert (texts[0, 1], texts[2, 0], texts[1, 1]) == ("none", "0.60", "0.33") and len(texts) == rates.size
    assert [text.get_text() for text in second.texts][2] == "0.30"
    assert first.images[0].get_clim() == second.images[0].get_clim()
    np.testing.assert_array_equal(np.asarray(first.images[0].get_array().filled(np.nan)), rates)


def test_numbers_can_be_read_on_their_cells() -> None:
    axes = figures.error_maps([("a", np.linspace(0, 1, 100).reshape(10, 10))], "demo").axes[0]
    assert min(contrasts(axes)) > 3.5
    for text in axes.texts:  # the negative twin: swapped colours cannot be read
        text.set_color("#111417" if text.get_color() == "#fefefe" else "#fefefe")
    assert min(contrasts(axes)) < 1.5


@pytest.mark.parametrize("panels", [[], [("a", np.full((2, 2), np.nan))]])
def test_nothing_to_show_can_be_drawn(panels: list[tuple[str, np.ndarray]]) -> None:
    figure = figures.error_maps(panels, "demo")
    figure.draw_without_rendering()
    assert "run demo" in words(figure)


GRID = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
EDGES = [(0, 1), (0, 2), (1, 3), (2, 3)]


def test_tokens_lie_at_their_places_with_names_and_edges() -> None:
    moved = GRID * [3, 1] + 5
    figure = figures.token_maps([("true", GRID, 0.0), ("found", moved, 0.123)], EDGES, list("abcd"), "demo")
    for axes, places in zip(figure.axes, (GRID, moved), strict=True):
        np.testing.assert_array_equal(axes.lines[0].get_xydata(), places)
        (edges,) = [lines for lines in axes.collections if isinstance(lines, LineCollection)]
        np.testing.assert_array_equal(edges.get_segments(), places[EDGES])
        named = {text.get_text(): text.xy for text in axes.texts if hasattr(text, "xy")}
        assert named == {name: tuple(place) for name, place in zip("abcd", places, strict=True)}
    figure.draw_without_rendering()
    for axes in figure.axes:
        box = axes.get_window_extent()
        assert box.width == pytest.approx(box.height)


def test_tokens_without_places_say_so() -> None:
    lost, same = np.full((4, 2), np.nan), np.zeros((4, 2))
    figure = figures.token_maps([("a", lost, np.nan), ("b", same, 0.0)], EDGES, list("abcd"), "demo")
    figure.draw_without_rendering()
    assert words(figure).split("\n").count("not finite") == 1 and "nan" not in words(figure)
    assert "no maps" in words(figures.token_maps([], [], list("abcd"), "demo"))


CELLS = np.random.default_rng(0).permutation(np.stack(np.divmod(np.arange(12.0), 4), axis=1))
NEAR = neighbors_in_space(CELLS)
NUMBERED = np.kron(np.arange(12).reshape(3, 4) / 20, np.ones((5, 7)))
"""A picture whose pieces are of a single shade each, another one for each cell."""
TURN = np.array([[0.6, 0.8], [-0.8, 0.6]])


def shade(axes: Axes, place: np.ndarray) -> float:
    """What is seen at a place (row, column)."""
    (image,) = axes.images
    left, right, bottom, top = image.get_extent()
    array = np.asarray(image.get_array())
    row = int((place[0] - top) / (bottom - top) * array.shape[0])
    column = int((place[1] - left) / (right - left) * array.shape[1])
    assert array[row, column, 3] == 1
    return float(array[row, column, 0])


def test_pieces_are_cut_where_tokens_lie_on_the_grid() -> None:
    pieces = cut_picture(NUMBERED, CELLS)
    assert pieces.shape == (12, DOTS, DOTS)
    np.testing.assert_allclose(pieces, np.broadcast_to((CELLS @ [4, 1] / 20)[:, None, None], pieces.shape))
    image = np.random.default_rng(1).random((3 * DOTS, 4 * DOTS))
    for (row, column), piece in zip(CELLS.astype(int), cut_picture(image, CELLS), strict=True):
        np.testing.assert_array_equal(piece, image[row * DOTS :, column * DOTS :][:DOTS, :DOTS])


def test_a_grid_with_holes_takes_the_pieces_of_those_that_are_there() -> None:
    corners = (CELLS % [2, 3] == 0).all(axis=1)  # as large as the whole grid
    assert corners.sum() == 4
    np.testing.assert_array_equal(cut_picture(NUMBERED, CELLS[corners]), cut_picture(NUMBERED, CELLS)[corners])


def test_a_map_is_turned_mirrored_and_scaled_onto_the_grid() -> None:
    true = CELLS - CELLS.mean(axis=0)
    for turn in (TURN, TURN * [1, -1]):
        np.testing.assert_allclose(align_to_grid(7 * CELLS @ turn + 3, true), true, atol=1e-9)
    laid = align_to_grid(np.random.default_rng(2).normal(size=(12, 2)), true)
    assert np.linalg.norm(laid) == pytest.approx(np.linalg.norm(true)) and np.abs(laid - true).max() > 0.5
    assert not align_to_grid(np.zeros((12, 2)), true).any()


def test_every_token_is_drawn_with_its_own_piece_at_its_place() -> None:
    figure = figures.maps_as_pictures([("turned", "R² 1.00", CELLS @ TURN)], CELLS, NEAR, NUMBERED, "a run", "3 seeds")
    ours, true = figure.axes
    for axes in (ours, true):
        assert axes.yaxis_inverted()  # the first row is on top
        for place, cell in zip(CELLS - CELLS.mean(axis=0), CELLS @ [4, 1], strict=True):
            assert shade(axes, place) == pytest.approx(cell / 20)


def test_another_map_has_its_pieces_and_lines_elsewhere() -> None:
    order, true = np.roll(np.arange(12), 5), CELLS - CELLS.mean(axis=0)
    (axes, _) = figures.maps_as_pictures([("other", "", CELLS[order])], CELLS, NEAR, NUMBERED, "a run").axes
    laid = align_to_grid(CELLS[order], true)
    assert [shade(axes, place) for place in laid] == pytest.approx((CELLS @ [4, 1] / 20).tolist())
    assert np.abs(laid - true).max() > 1
    (lines,) = (item for item in axes.collections if isinstance(item, LineCollection))
    drawn = {tuple(np.round(np.sort(segment, axis=0).ravel(), 6)) for segment in lines.get_segments()}
    pairs = np.argwhere(np.triu(NEAR))
    assert len(lines.get_segments()) == len(pairs) == 17
    assert drawn == {tuple(np.round(np.sort(laid[pair][:, ::-1], axis=0).ravel(), 6)) for pair in pairs}


def test_a_map_that_is_not_finite_says_so_and_rows_are_filled() -> None:
    panels = [("lost", "", np.full((12, 2), np.nan)), *([("fine", "", CELLS)] * 4)]
    figure = figures.maps_as_pictures(panels, CELLS, NEAR, NUMBERED, "a run")
    assert len(figure.axes) == 6 and "not finite" in words(figure)
    figure.savefig(io.BytesIO(), format="png", dpi=40)
    assert figures.svg_text(figure).count("<image") == 5  # one for each map, however many tokens
