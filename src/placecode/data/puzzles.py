"""Latin square puzzles as arrays: solving, classification by difficulty, random puzzles and distances between puzzles.

In a Latin square of order n, each of n symbols occurs once in every row and every column. A puzzle has n*n cells in row
order: 0 is a blank, 1 to n are given symbols ("givens"), and n+1 is the target, the cell whose symbol is to be
predicted. `solve` returns the symbols that are possible in the target. All functions are pure.

>>> solve([1, 2, 3, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
{4}
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations

import numpy as np
import numpy.typing as npt

Cells = npt.NDArray[np.uint8]

ORDERS = (4, 5, 6)  # supported orders of squares
CLASSES = ("Binary", "Ternary", "Quaternary")  # classes of difficulty, see `classify`
UNSOLVED = -1
"""Class of puzzles whose target cannot be found in one reasoning step, see `classify`."""


@dataclass(frozen=True)
class Puzzles:
    """N puzzles of order n, with their classes of difficulty and solutions."""

    cells: Cells
    """Cells in row order, (N, n*n)."""
    classes: npt.NDArray[np.int64]
    """Class of difficulty of each puzzle, (N,), as an index into `CLASSES`."""
    solutions: npt.NDArray[np.int64]
    """Correct symbol of the target of each puzzle, (N,), from 1 to n."""

    def __len__(self) -> int:
        return len(self.cells)

    def __getitem__(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_] | slice) -> Puzzles:
        """Return a subset of the puzzles, selected by indices, a mask or a slice."""
        return Puzzles(self.cells[rows], self.classes[rows], self.solutions[rows])


def order_of(cells: Cells) -> int:
    """Return the order n of puzzles with cells (N, n*n)."""
    return math.isqrt(cells.shape[1])


def join(parts: Sequence[Puzzles]) -> Puzzles:
    """Concatenate several sets of puzzles to one."""
    return Puzzles(
        np.concatenate([part.cells for part in parts]),
        np.concatenate([part.classes for part in parts]),
        np.concatenate([part.solutions for part in parts]),
    )


def solve(puzzle: Sequence[int] | Cells) -> set[int]:
    """Return the symbols that the target has in at least one completion of the puzzle to a Latin square.

    For each symbol that is not in the row or column of the target, a backtracking search looks for one completion. The
    search continues at the blank with the fewest possible symbols. It is therefore fast even for order 6, for which
    812,851,200 Latin squares exist.

    Parameters
    ----------
    puzzle : sequence of int, length n*n

    Returns
    -------
    set of int
        Symbols from 1 to n. The set is empty if there is no completion, and has one element if the puzzle has a unique
        solution.
    """
    cells = [int(cell) for cell in puzzle]
    n = math.isqrt(len(cells))
    rows = [(1 << n) - 1] * n  # symbols that each row does not contain yet, as bits
    columns = list(rows)
    blanks = []
    target = (0, 0)
    for index, cell in enumerate(cells):
        row, column = divmod(index, n)
        if cell == n + 1:
            target = (row, column)
        elif cell == 0:
            blanks.append((row, column))
        else:
            bit = 1 << (cell - 1)
            if not rows[row] & columns[column] & bit:
                return set()
            rows[row] ^= bit
            columns[column] ^= bit
    row, column = target
    symbols = set()
    for symbol in range(1, n + 1):
        bit = 1 << (symbol - 1)
        if rows[row] & columns[column] & bit:
            rows[row] ^= bit
            columns[column] ^= bit
            if _completable(rows, columns, blanks):
                symbols.add(symbol)
            rows[row] |= bit
            columns[column] |= bit
    return symbols


def _completable(rows: list[int], columns: list[int], blanks: list[tuple[int, int]]) -> bool:
    """Return whether all blanks can be filled so that no symbol is repeated in a row or column.

    `rows` and `columns` are the symbols that each row and column does not contain yet, as bits. `blanks` are pairs of
    row and column. The arguments are changed during the search and restored at its end.
    """
    if not blanks:
        return True
    best, fewest = 0, len(rows) + 1
    for i, (row, column) in enumerate(blanks):
        count = (rows[row] & columns[column]).bit_count()
        if count < fewest:
            best, fewest = i, count
            if count < 2:
                break
    row, column = blanks[best]
    options = rows[row] & columns[column]
    remaining = blanks[:best] + blanks[best + 1 :]
    while options:
        bit = options & -options
        options ^= bit
        rows[row] ^= bit
        columns[column] ^= bit
        done = _completable(rows, columns, remaining)
        rows[row] |= bit
        columns[column] |= bit
        if done:
            return True
    return False


def classify(cells: Cells) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Classify puzzles by the kind of reasoning step that finds the symbol of the target.

    - Binary: the row or the column of the target contains n-1 symbols, so one remains.
    - Ternary: the row and the column of the target together contain n-1 symbols.
    - Quaternary: a symbol is missing in the row of the target, and every other blank of the row has it in its column,
      so the symbol must be in the target. A puzzle also counts if this holds with row and column exchanged.

    If several classes apply, the first one counts.

    Parameters
    ----------
    cells : ndarray of uint8, shape (N, n*n)
        Puzzles with a completion (see `solve`).

    Returns
    -------
    classes : ndarray of int64, shape (N,)
        Index into `CLASSES`, or `UNSOLVED` if no single step is sufficient.
    solutions : ndarray of int64, shape (N,)
        Symbol of the target, or 0 if no single step is sufficient.

    Examples
    --------
    >>> classify(np.array([[1, 2, 3, 5] + 12 * [0], [1, 2, 0, 5] + 11 * [0] + [3]], dtype=np.uint8))
    (array([0, 1]), array([4, 4]))
    """
    n = order_of(cells)
    indices = np.arange(len(cells))
    row, column = np.divmod((cells == n + 1).argmax(axis=1), n)
    grids = np.ascontiguousarray(cells.T).reshape(n, n, len(cells))  # puzzles last, for vectorized operations
    bits = np.array([0, *(1 << np.arange(n)), 0], dtype=np.uint8)[grids]
    rows, columns = np.bitwise_or.reduce(bits, axis=1), np.bitwise_or.reduce(bits, axis=0)  # (n, N) symbols present
    in_row, in_column = rows[row, indices], columns[column, indices]

    full = np.uint8((1 << n) - 1)
    # symbols that are excluded from all other cells of the target's row (or column); a filled cell excludes all symbols
    row_only = np.bitwise_and.reduce(np.where(grids[row, :, indices].T == 0, columns, full)) & ~in_row
    column_only = np.bitwise_and.reduce(np.where(grids[:, column, indices] == 0, rows, full)) & ~in_column

    single = np.zeros(1 << n, dtype=np.int64)  # the symbol of a mask with one bit, otherwise 0
    single[1 << np.arange(n)] = np.arange(1, n + 1)
    steps = (
        np.maximum(single[full & ~in_row], single[full & ~in_column]),
        single[full & ~(in_row | in_column)],
        np.maximum(single[row_only], single[column_only]),
    )
    classes = np.full(len(cells), UNSOLVED, dtype=np.int64)
    solutions = np.zeros(len(cells), dtype=np.int64)
    for index, symbol in reversed(list(enumerate(steps))):
        classes[symbol > 0] = index
        solutions[symbol > 0] = symbol[symbol > 0]
    return classes, solutions


@cache
def reduced_squares(order: int) -> Cells:
    """Return all reduced Latin squares, which have 1 to n in order in the first row and in the first column.

    The shape is (4, 4, 4), (56, 5, 5) or (9408, 6, 6) for order 4, 5 or 6.
    """
    rows = list(permutations(range(1, order + 1)))
    starting = {first: [row for row in rows if row[0] == first] for first in range(1, order + 1)}

    def extend(square: list[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
        if len(square) == order:
            yield square
            return
        columns = list(zip(*square, strict=True))
        for row in starting[len(square) + 1]:
            if not any(map(operator.contains, columns, row)):
                yield from extend([*square, row])

    return np.array(list(extend([rows[0]])), dtype=np.uint8)


@cache
def _permutations(size: int) -> npt.NDArray[np.int64]:
    """Return all permutations of 0, ..., size - 1, one per row, (size!, size)."""
    return np.array(list(permutations(range(size))))


def random_squares(rng: np.random.Generator, order: int, count: int) -> Cells:
    """Draw random Latin squares, (count, n, n), all squares of this order with equal probability.

    Every Latin square corresponds to exactly one reduced square, one permutation of its columns and one of the rows
    below the first. Three uniform draws therefore give a uniform square.
    """
    reduced, columns, below = reduced_squares(order), _permutations(order), _permutations(order - 1) + 1
    squares = reduced[rng.integers(len(reduced), size=count)]
    columns = columns[rng.integers(len(columns), size=count)]
    below = below[rng.integers(len(below), size=count)]
    rows = np.concatenate([np.zeros((count, 1), dtype=np.int64), below], axis=1)
    shuffled: Cells = squares[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
    return shuffled


def draw(rng: np.random.Generator, order: int, count: int, givens: tuple[int, int]) -> Puzzles:
    """Draw random puzzles, and return those that can be solved in one step (see `classify`).

    The square, the target, the number of givens and the cells of the givens are all drawn uniformly. The same puzzle
    may be drawn more than once.

    Parameters
    ----------
    rng : numpy.random.Generator
    order : int
    count : int
        Number of puzzles drawn.
    givens : tuple of int
        Minimum and maximum number of givens.

    Returns
    -------
    Puzzles
        At most `count` puzzles, because those that need several steps are dropped.
    """
    cells = random_squares(rng, order, count).reshape(count, order**2)
    target = rng.integers(order**2, size=(count, 1))
    number = rng.integers(givens[0], givens[1] + 1, size=(count, 1))
    keys = rng.random(cells.shape)
    np.put_along_axis(keys, target, 2.0, axis=1)  # the largest key, so the target is never a given
    cells *= keys < np.take_along_axis(np.sort(keys, axis=1), number, axis=1)
    np.put_along_axis(cells, target, np.uint8(order + 1), axis=1)
    classes, solutions = classify(cells)
    return Puzzles(cells, classes, solutions)[classes != UNSOLVED]


def one_hot(cells: Cells) -> npt.NDArray[np.float32]:
    """Encode puzzles (N, n*n) as one-hot vectors (N, n*n, n+1), one per cell.

    The first n features stand for the symbols and the last for the target. All features of a blank are zero.
    """
    codes = np.eye(order_of(cells) + 2, dtype=np.float32)[:, 1:]
    return codes[cells]


def jaccard_distances(one: Cells, other: Cells) -> npt.NDArray[np.float64]:
    """Compute the Jaccard distance between the filled cells of each puzzle in `one` and each in `other`.

    A filled cell is a pair of position and content (a symbol or the target). The distance is 1 - s / a, where s is the
    number of pairs that both puzzles have, and a the number of pairs that at least one of them has.

    Parameters
    ----------
    one : ndarray of uint8, shape (N, n*n)
    other : ndarray of uint8, shape (M, n*n)

    Returns
    -------
    ndarray, shape (N, M)

    Examples
    --------
    >>> first = np.array([[1, 2, 3, 5] + 12 * [0]], dtype=np.uint8)
    >>> jaccard_distances(first, np.array([[1, 2, 5, 0] + 12 * [0]], dtype=np.uint8))
    array([[0.6]])
    """
    features = one.shape[1] * (order_of(one) + 1)
    a, b = one_hot(one).reshape(len(one), features), one_hot(other).reshape(len(other), features)
    shared = (a @ b.T).astype(np.float64)
    union: npt.NDArray[np.float64] = a.sum(axis=1)[:, None] + b.sum(axis=1)[None, :] - shared
    return 1.0 - shared / union


def are_farther(cells: Cells, others: Cells, distance: float) -> npt.NDArray[np.bool_]:
    """Return which puzzles have a Jaccard distance above `distance` from all `others`, as a mask, (N,).

    `cells` are N puzzles, (N, n*n), and `others` are M puzzles, (M, n*n).
    """
    is_apart = np.ones(len(cells), dtype=bool)
    for start in range(0, len(others), 32):  # puzzles that are too close are not compared with further ones
        rows = np.flatnonzero(is_apart)
        distances = jaccard_distances(cells[rows], others[start : start + 32])
        # distances are ratios of integers below 100, so the margin absorbs rounding and changes no other case
        is_apart[rows] = distances.min(axis=1) > distance + 1e-9
    return is_apart


def first_occurrences(cells: Cells) -> npt.NDArray[np.int64]:
    """Return the sorted indices of the first occurrence of each distinct puzzle in `cells`, (N, n*n)."""
    keys = np.ascontiguousarray(cells).view(np.dtype((np.void, cells.shape[1]))).ravel()
    return np.sort(np.unique(keys, return_index=True)[1])
