"""Puzzles beside independent solvers, classes and distances."""

import operator
from collections.abc import Iterator
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest

from placecode.data import puzzles

GIVENS = {4: (3, 11), 5: (5, 17), 6: (7, 25)}


def symbols_by_rows(puzzle: puzzles.Cells) -> set[int]:
    """Return the target's symbols in all completions, found by a search over whole rows."""
    n = round(len(puzzle) ** 0.5)
    at_row, at_column = divmod(int(np.flatnonzero(puzzle == n + 1)[0]), n)
    row_fits = []
    for row in puzzle.reshape(n, n):
        open_to = [range(1, n + 1) if cell in (0, n + 1) else (cell,) for cell in row]
        row_fits.append([p for p in permutations(range(1, n + 1)) if all(map(operator.contains, open_to, p))])

    def complete(candidates: dict[int, list[tuple[int, ...]]]) -> Iterator[tuple[int, ...]]:
        if not candidates:
            yield ()
            return
        number = min(candidates, key=lambda k: len(candidates[k]))
        for chosen in candidates[number]:
            others = {k: rows for k, rows in candidates.items() if k != number}
            remaining = {k: [p for p in rows if not any(map(operator.eq, p, chosen))] for k, rows in others.items()}
            if all(remaining.values()):
                yield from complete(remaining)

    result = set()
    for symbol in range(1, n + 1):
        candidates = {k: [p for p in rows if k != at_row or p[at_column] == symbol] for k, rows in enumerate(row_fits)}
        if all(candidates.values()) and next(complete(candidates), None) is not None:
            result.add(symbol)
    return result


def class_by_sets(puzzle: puzzles.Cells) -> tuple[int, int]:
    """Return class and solution of a puzzle, computed from the definition cell by cell."""
    n = round(len(puzzle) ** 0.5)
    square = puzzle.reshape(n, n).tolist()
    row, column = divmod(int(np.flatnonzero(puzzle == n + 1)[0]), n)
    symbols = set(range(1, n + 1))
    across = symbols & set(square[row])
    down = symbols & {line[column] for line in square}
    for kind, excluded in ((0, across), (0, down), (1, across | down)):
        if len(excluded) == n - 1:
            return kind, (symbols - excluded).pop()
    for grid_, r, excluded in ((square, row, across), ([list(c) for c in zip(*square, strict=True)], column, down)):
        blanks = [k for k in range(n) if grid_[r][k] == 0]
        for symbol in symbols - excluded:
            if all(any(line[k] == symbol for line in grid_) for k in blanks):
                return 2, symbol
    return puzzles.UNSOLVED, 0


def random_grids(rng: np.random.Generator, order: int, count: int) -> puzzles.Cells:
    """Return random grids with one target and a few symbols, with no, one or several completions."""
    cells = np.zeros((count, order**2), dtype=np.uint8)
    for row in cells:
        order_of_cells = rng.permutation(order**2)
        row[order_of_cells[0]] = order + 1
        givens = order_of_cells[1 : 1 + rng.integers(0, order + 3)]
        row[givens] = rng.integers(1, order + 1, size=len(givens))
    return cells


def masked_squares(rng: np.random.Generator, order: int, count: int) -> puzzles.Cells:
    """Return puzzles with a completion, of every class and without a class."""
    cells = puzzles.random_squares(rng, order, count).reshape(count, -1)
    for row in cells:
        order_of_cells = rng.permutation(order**2)
        row[order_of_cells[1 + rng.integers(0, order**2) :]] = 0
        row[order_of_cells[0]] = order + 1
    return cells


@pytest.mark.parametrize(("order", "count"), [(4, 150), (5, 30), (6, 6)])
def test_solve_equals_a_search_by_rows(order, count) -> None:
    rng = np.random.default_rng(order)
    grids = np.concatenate([random_grids(rng, order, count), masked_squares(rng, order, count)])
    result = [puzzles.solve(puzzle) for puzzle in grids]
    assert result == [symbols_by_rows(puzzle) for puzzle in grids]
    assert {min(len(symbols), 2) for symbols in result} == {0, 1, 2}  # the three cases were all met


@pytest.mark.parametrize("order", [4, 5, 6])
def test_classify_equals_the_definition_and_the_solver(order) -> None:
    cells = masked_squares(np.random.default_rng(order), order, 300)
    classes, solutions = puzzles.classify(cells)
    assert list(zip(classes, solutions, strict=True)) == [class_by_sets(puzzle) for puzzle in cells]
    assert set(classes) == {puzzles.UNSOLVED, 0, 1, 2}
    solved = classes != puzzles.UNSOLVED
    for puzzle, solution in zip(cells[solved], solutions[solved], strict=True):
        assert puzzles.solve(puzzle) == {solution}


@pytest.mark.parametrize(("order", "count"), [(4, 4), (5, 56), (6, 9408)])
def test_reduced_squares_are_as_many_as_known(order, count) -> None:
    squares = puzzles.reduced_squares(order)
    assert len({square.tobytes() for square in squares}) == len(squares) == count
    in_order = np.arange(1, order + 1)
    assert (squares[:, 0] == in_order).all() and (squares[:, :, 0] == in_order).all()
    for drawn in (squares, puzzles.random_squares(np.random.default_rng(0), order, 500)):
        assert (np.sort(drawn, axis=1) == in_order[:, None]).all() and (np.sort(drawn, axis=2) == in_order).all()


def test_random_squares_are_uniform() -> None:
    def chi_square(squares: puzzles.Cells) -> float:
        counts = np.unique(squares.reshape(len(squares), -1), axis=0, return_counts=True)[1]
        assert len(counts) == 576
        return float(((counts - 100) ** 2 / 100).sum())

    squares = puzzles.random_squares(np.random.default_rng(0), 4, 57_600)
    # 575 degrees of freedom: mean 575, standard deviation 34.
    assert chi_square(squares) < 575 + 4 * 34
    uneven = np.concatenate([squares[:48_000], squares[:9_600]])  # the twin: a sixth of the draws counted twice
    assert chi_square(uneven) > 575 + 4 * 34


@pytest.mark.parametrize("order", [4, 5, 6])
def test_draw_gives_valid_puzzles_of_every_class(order) -> None:
    drawn = puzzles.draw(np.random.default_rng(0), order, 1_000, GIVENS[order])
    givens = np.count_nonzero(drawn.cells, axis=1) - 1  # without the target
    assert drawn.cells.shape[1] == order**2 and ((drawn.cells == order + 1).sum(axis=1) == 1).all()
    assert set(drawn.classes) == {0, 1, 2}
    assert givens.min() >= GIVENS[order][0] and givens.max() == GIVENS[order][1]
    fixed = puzzles.draw(np.random.default_rng(0), order, 500, (9, 9)).cells
    assert (np.count_nonzero(fixed, axis=1) == 9 + 1).all()
    few = drawn[:30]
    for puzzle, kind, solution in zip(few.cells, few.classes, few.solutions, strict=True):
        assert class_by_sets(puzzle) == (kind, solution) and symbols_by_rows(puzzle) == {solution}


def test_one_hot_has_zeros_for_blanks_and_a_value_for_the_target() -> None:
    code = puzzles.one_hot(np.array([[1, 2, 3, 5, *[0] * 11, 4]], dtype=np.uint8))
    assert code.shape == (1, 16, 5) and code.dtype == np.float32
    assert code[0, [0, 1, 2, 3, 15]].argmax(axis=1).tolist() == [0, 1, 2, 4, 3]
    assert (code[0, 4:15] == 0).all() and code.sum() == 5


def distance_by_sets(first: puzzles.Cells, second: puzzles.Cells) -> Fraction:
    a, b = ({(at, int(cell)) for at, cell in enumerate(puzzle) if cell} for puzzle in (first, second))
    return 1 - Fraction(len(a & b), len(a | b))


def test_jaccard_distance_equals_that_of_sets() -> None:
    rng = np.random.default_rng(0)
    first, second = masked_squares(rng, 4, 40), masked_squares(rng, 4, 30)
    expected = [[float(distance_by_sets(a, b)) for b in second] for a in first]
    np.testing.assert_allclose(puzzles.jaccard_distances(first, second), expected, atol=1e-12)
    assert (np.diag(puzzles.jaccard_distances(first, first)) == 0).all()


@pytest.mark.parametrize("distance", [Fraction(3, 4), Fraction(4, 5)])
def test_apart_excludes_the_distance_itself(distance) -> None:
    rng = np.random.default_rng(1)
    cells, others = masked_squares(rng, 4, 400), masked_squares(rng, 4, 40)
    nearest = [min(distance_by_sets(a, b) for b in others) for a in cells]
    assert puzzles.are_farther(cells, others, float(distance)).tolist() == [least > distance for least in nearest]
    assert distance in nearest  # so that "above" and "at least" differ here


def test_first_occurrences_keep_the_order() -> None:
    cells = np.array([[3, 1], [0, 2], [3, 1], [0, 1], [0, 2]], dtype=np.uint8)
    assert puzzles.first_occurrences(cells).tolist() == [0, 1, 3]
    assert puzzles.first_occurrences(cells[:0]).tolist() == []
