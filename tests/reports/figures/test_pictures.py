"""Maps as pictures: every token has its own piece of the picture, at its place, on whatever side the map came."""

from __future__ import annotations

import io

import numpy as np
import pytest
from helpers.figure_reading import words
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from placecode.analysis.places import neighbors_in_space
from placecode.errors import BadInput
from placecode.reports.figures import maps_as_pictures, svg_text
from placecode.reports.figures.maps import DOTS, cut, onto

pytestmark = pytest.mark.filterwarnings("error")

GRID = np.random.default_rng(0).permutation(np.stack(np.divmod(np.arange(12.0), 4), axis=1))
NEAR = neighbors_in_space(GRID)
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
    pieces = cut(NUMBERED, GRID)
    assert pieces.shape == (12, DOTS, DOTS)
    np.testing.assert_allclose(pieces, np.broadcast_to((GRID @ [4, 1] / 20)[:, None, None], pieces.shape))
    image = np.random.default_rng(1).random((3 * DOTS, 4 * DOTS))
    for (row, column), piece in zip(GRID.astype(int), cut(image, GRID), strict=True):
        np.testing.assert_array_equal(piece, image[row * DOTS :, column * DOTS :][:DOTS, :DOTS])


def test_a_grid_with_holes_takes_the_pieces_of_those_that_are_there() -> None:
    corners = (GRID % [2, 3] == 0).all(axis=1)  # as large as the whole grid
    assert corners.sum() == 4
    np.testing.assert_array_equal(cut(NUMBERED, GRID[corners]), cut(NUMBERED, GRID)[corners])


def test_a_map_is_turned_mirrored_and_scaled_onto_the_grid() -> None:
    true = GRID - GRID.mean(axis=0)
    for turn in (TURN, TURN * [1, -1]):
        np.testing.assert_allclose(onto(7 * GRID @ turn + 3, true), true, atol=1e-9)
    other = np.random.default_rng(2).normal(size=(12, 2))
    laid = onto(other, true)
    assert np.linalg.norm(laid) == pytest.approx(np.linalg.norm(true)) and np.abs(laid - true).max() > 0.5
    assert not onto(np.zeros((12, 2)), true).any()


def test_every_token_is_drawn_with_its_own_piece_at_its_place() -> None:
    figure = maps_as_pictures([("turned", "R² 1.00", GRID @ TURN)], GRID, NEAR, NUMBERED, "a run", "3 seeds")
    ours, true = figure.axes
    assert (ours.get_title(), true.get_title()) == ("turned", "true grid")
    for axes in (ours, true):
        assert axes.yaxis_inverted()  # the first row is on top
        for place, cell in zip(GRID - GRID.mean(axis=0), GRID @ [4, 1], strict=True):
            assert shade(axes, place) == pytest.approx(cell / 20)
    assert "run a run" in words(figure) and "3 seeds" in words(figure) and "for display only" in words(figure)


def test_another_map_has_pieces_elsewhere() -> None:
    order = np.roll(np.arange(12), 5)
    (axes, _) = maps_as_pictures([("other", "", GRID[order])], GRID, NEAR, NUMBERED, "a run").axes
    true = GRID - GRID.mean(axis=0)
    own = [shade(axes, place) for place in onto(GRID[order], true)]
    assert own == pytest.approx((GRID @ [4, 1] / 20).tolist())
    assert np.abs(onto(GRID[order], true) - true).max() > 1


def test_lines_join_true_neighbours_wherever_they_lie() -> None:
    places = np.random.default_rng(3).normal(size=(12, 2))
    figure = maps_as_pictures([("", "", places)], GRID, NEAR, NUMBERED, "a run")
    for axes, laid in zip(figure.axes, (onto(places, GRID - GRID.mean(axis=0)), GRID - GRID.mean(axis=0)), strict=True):
        (lines,) = (each for each in axes.collections if isinstance(each, LineCollection))
        found = {tuple(np.round(np.sort(segment, axis=0).ravel(), 6)) for segment in lines.get_segments()}
        pairs = np.argwhere(np.triu(NEAR))
        assert len(lines.get_segments()) == len(pairs) == 17
        assert found == {tuple(np.round(np.sort(laid[pair][:, ::-1], axis=0).ravel(), 6)) for pair in pairs}


def test_a_map_that_is_not_finite_says_so_and_rows_are_filled() -> None:
    panels = [("lost", "", np.full((12, 2), np.nan)), *([("fine", "", GRID)] * 4)]
    figure = maps_as_pictures(panels, GRID, NEAR, NUMBERED, "a run")
    assert len(figure.axes) == 6 and "not finite" in words(figure)
    figure.savefig(io.BytesIO(), format="png", dpi=40)
    assert svg_text(figure).count("<image") == 5  # one for each map, however many tokens


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^positions and near must be of shape \(n, 2\) and \(n, n\); got"):
        maps_as_pictures([], GRID, NEAR[:5], NUMBERED, "a run")
    with pytest.raises(BadInput, match=r"^picture must be grey, \(rows, columns\); got \(3, 4, 3\)"):
        maps_as_pictures([], GRID, NEAR, np.zeros((3, 4, 3)), "a run")
    with pytest.raises(BadInput, match=r"^places and onto must be two maps of one shape"):
        maps_as_pictures([("", "", GRID[:5])], GRID, NEAR, NUMBERED, "a run")
