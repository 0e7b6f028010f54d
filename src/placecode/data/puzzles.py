"""Latin-square puzzles as arrays: solve, classify, draw, compare. Pure functions; nothing here knows of tasks or files.

A puzzle of order n is n*n cells, row by row: 0 a blank, 1..n a symbol, n+1 the target, whose symbol is asked for.

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

ORDERS = (4, 5, 6)
CLASSES = ("Binary", "Ternary", "Quaternary")
UNSOLVED = -1
"""The class of a puzzle that one step does not solve."""


@dataclass(frozen=True)
class Puzzles:
    """N puzzles: `cells` (N, n*n), `classes` (N,) as indices into `CLASSES`, `solutions` (N,) from 1 to n."""

    cells: Cells
    classes: npt.NDArray[np.int64]
    solutions: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.cells)

    def __getitem__(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_] | slice) -> Puzzles:
        return Puzzles(self.cells[rows], self.classes[rows], self.solutions[rows])

    @property
    def order(self) -> int:
        return order_of(self.cells)

    @property
    def givens(self) -> npt.NDArray[np.int64]:
        """How many symbols each puzzle shows, (N,)."""
        shown: npt.NDArray[np.int64] = np.count_nonzero(self.cells, axis=1)
        return shown - 1  # the target is no given


def order_of(cells: Cells) -> int:
    """The n of puzzles (N, n*n)."""
    return math.isqrt(cells.shape[1])


def join(parts: Sequence[Puzzles]) -> Puzzles:
    """Several sets of puzzles as one, in the order given."""
    return Puzzles(
        np.concatenate([part.cells for part in parts]),
        np.concatenate([part.classes for part in parts]),
        np.concatenate([part.solutions for part in parts]),
    )


def solve(puzzle: Sequence[int] | Cells) -> set[int]:
    """The symbols that the target takes over all completions to a Latin square; empty if there is no completion.

    Exact: for each symbol that row and column leave to the target, a search for one completion, always at the blank
    with the fewest symbols left, so that it stays quick where enumeration would not (order 6 has 812,851,200 squares).
    """
    cells = [int(cell) for cell in puzzle]
    n = math.isqrt(len(cells))
    rows = [(1 << n) - 1] * n  # the symbols that are still free, as bits
    columns = list(rows)
    blanks = []
    target = (0, 0)
    for at, cell in enumerate(cells):
        row, column = divmod(at, n)
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
    found = set()
    for symbol in range(1, n + 1):
        bit = 1 << (symbol - 1)
        if rows[row] & columns[column] & bit:
            rows[row] ^= bit
            columns[column] ^= bit
            if _completable(rows, columns, blanks):
                found.add(symbol)
            rows[row] |= bit
            columns[column] |= bit
    return found


def _completable(rows: list[int], columns: list[int], blanks: list[tuple[int, int]]) -> bool:
    """Whether the free symbols of rows and columns can fill the blanks. Leaves its arguments as it found them."""
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
    rest = blanks[:best] + blanks[best + 1 :]
    while options:
        bit = options & -options
        options ^= bit
        rows[row] ^= bit
        columns[column] ^= bit
        done = _completable(rows, columns, rest)
        rows[row] |= bit
        columns[column] |= bit
        if done:
            return True
    return False


def classify(cells: Cells) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The class (index into `CLASSES`, or `UNSOLVED`) and the solution (or 0) that one step gives to puzzles (N, n*n).

    Binary: the target's row alone, or its column alone, shows n-1 symbols. Ternary: the two together do. Quaternary: a
    symbol that the row lacks is shut out of each other blank of the row by that blank's column; or the same for the
    column. The first that holds counts. Every puzzle must have a completion (see `solve`); then one step is a proof.

    >>> classify(np.array([[1, 2, 3, 5] + 12 * [0], [1, 2, 0, 5] + 11 * [0] + [3]], dtype=np.uint8))
    (array([0, 1]), array([4, 4]))
    """
    n = order_of(cells)
    every = np.arange(len(cells))
    row, column = np.divmod((cells == n + 1).argmax(axis=1), n)
    grids = np.ascontiguousarray(cells.T).reshape(n, n, len(cells))  # puzzles last: each step runs along all of them
    bits = np.array([0, *(1 << np.arange(n)), 0], dtype=np.uint8)[grids]
    rows, columns = np.bitwise_or.reduce(bits, axis=1), np.bitwise_or.reduce(bits, axis=0)  # (n, N) symbols shown
    in_row, in_column = rows[row, every], columns[column, every]

    full = np.uint8((1 << n) - 1)
    # A cell that is not blank shuts out every symbol: it has no room for any of them.
    row_only = np.bitwise_and.reduce(np.where(grids[row, :, every].T == 0, columns, full)) & ~in_row
    column_only = np.bitwise_and.reduce(np.where(grids[:, column, every] == 0, rows, full)) & ~in_column

    single = np.zeros(1 << n, dtype=np.int64)  # the symbol of a mask with one bit, else 0
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
    """All Latin squares whose first row and first column are 1..n in order, (4 | 56 | 9,408, n, n)."""
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
    return np.array(list(permutations(range(size))))


def random_squares(rng: np.random.Generator, order: int, count: int) -> Cells:
    """Latin squares drawn uniformly, (count, n, n).

    Every Latin square comes from exactly one reduced square by one order of its columns and one of the rows below the
    first, so that three uniform draws make one uniform square.
    """
    reduced, columns, below = reduced_squares(order), _permutations(order), _permutations(order - 1) + 1
    squares = reduced[rng.integers(len(reduced), size=count)]
    columns = columns[rng.integers(len(columns), size=count)]
    below = below[rng.integers(len(below), size=count)]
    rows = np.concatenate([np.zeros((count, 1), dtype=np.int64), below], axis=1)
    shuffled: Cells = squares[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
    return shuffled


def draw(rng: np.random.Generator, order: int, count: int, givens: tuple[int, int]) -> Puzzles:
    """The one-step puzzles among `count` random ones, at most `count` of them, repeats included.

    A random one: a uniform square, a uniform target, a number of givens uniform from the first to the second of
    `givens`, and uniform cells for them.
    """
    cells = random_squares(rng, order, count).reshape(count, order**2)
    target = rng.integers(order**2, size=(count, 1))
    number = rng.integers(givens[0], givens[1] + 1, size=(count, 1))
    keys = rng.random(cells.shape)
    np.put_along_axis(keys, target, 2.0, axis=1)  # above all others, so that the target is never a given
    cells *= keys < np.take_along_axis(np.sort(keys, axis=1), number, axis=1)
    np.put_along_axis(cells, target, np.uint8(order + 1), axis=1)
    classes, solutions = classify(cells)
    return Puzzles(cells, classes, solutions)[classes != UNSOLVED]


def one_hot(cells: Cells) -> npt.NDArray[np.float32]:
    """Puzzles (N, n*n) as (N, n*n, n+1): a blank is all zeros, the target has a value of its own."""
    codes = np.eye(order_of(cells) + 2, dtype=np.float32)[:, 1:]
    return codes[cells]


def jaccard_distances(one: Cells, other: Cells) -> npt.NDArray[np.float64]:
    """1 - shared / (shared + unshared) of the non-blank cells of puzzles (N, n*n) and (M, n*n), as (N, M).

    A cell is shared if both puzzles show the same symbol there, or both the target.

    >>> first = np.array([[1, 2, 3, 5] + 12 * [0]], dtype=np.uint8)
    >>> jaccard_distances(first, np.array([[1, 2, 5, 0] + 12 * [0]], dtype=np.uint8))
    array([[0.6]])
    """
    features = one.shape[1] * (order_of(one) + 1)
    a, b = one_hot(one).reshape(len(one), features), one_hot(other).reshape(len(other), features)
    shared = (a @ b.T).astype(np.float64)
    union: npt.NDArray[np.float64] = a.sum(axis=1)[:, None] + b.sum(axis=1)[None, :] - shared
    return 1.0 - shared / union


def apart(cells: Cells, others: Cells, distance: float) -> npt.NDArray[np.bool_]:
    """Which puzzles (N, n*n) have a Jaccard distance strictly above `distance` to every one of `others`, (N,)."""
    far = np.ones(len(cells), dtype=bool)
    for start in range(0, len(others), 32):  # few puzzles pass, so only those that did so far meet the next few
        rows = np.flatnonzero(far)
        distances = jaccard_distances(cells[rows], others[start : start + 32])
        # Distances are ratios of whole numbers below 100: the margin outlasts rounding and decides no other case.
        far[rows] = distances.min(axis=1) > distance + 1e-9
    return far


def first_of_each(cells: Cells) -> npt.NDArray[np.int64]:
    """The rows at which each distinct puzzle first appears, in order."""
    keys = np.ascontiguousarray(cells).view(np.dtype((np.void, cells.shape[1]))).ravel()
    return np.sort(np.unique(keys, return_index=True)[1])
