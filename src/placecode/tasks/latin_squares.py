"""The Latin squares task (LST): a model sees a partly filled Latin square and predicts the symbol of one marked cell.

The tokens are the cells of a grid, so their true positions are known: row and column. The split "ood" tests
out-of-distribution generalization, because every training puzzle has a minimum distance from all held-out puzzles.
`LatinSquares.metrics` computes what every evaluation measures: accuracy and loss. Their means are written to
metrics.parquet of a run, with their names in the column `metric`. To measure something else, add it to `metrics`.

>>> task = LatinSquares(seed=0)
>>> {name: tuple(split.inputs.shape) for name, split in task.splits.items()}
{'train': (8100, 16, 5), 'test': (900, 16, 5), 'ood': (108, 16, 5)}
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax

from placecode.data.puzzle_files import load_or_make, read_folder
from placecode.data.puzzles import CLASSES, ORDERS, Cells, Puzzles, are_farther, draw, first_occurrences, join, one_hot
from placecode.errors import BadInput, must_be
from placecode.settings import Settings, setting
from placecode.tasks.base import Split, Task
from placecode.validation import whole_number

VERSION = 1
"""Version of `make_puzzles`. Increase it whenever the same seed gives other puzzles, so that old caches are ignored."""
TRAIN_GIVENS = (3, 11)  # minimum and maximum number of givens of the published training puzzles, which have order 4
HELDOUT_GIVENS = ((6, 11), (5, 11), (4, 9))
"""Minimum and maximum number of givens (given symbols) of held-out puzzles, for each class. The 108 published held-out
puzzles, which human participants solved, have these limits."""
TEST_FRACTION = 0.1  # fraction of the puzzles in "train" and "test" together that are in "test", in each class
PUZZLES_PER_DRAW = 1 << 14  # number of puzzles drawn at once, small enough for the cache of a processor
MAX_DRAWS = 1 << 26  # maximum number of random puzzles to draw; the default settings need less than a tenth of it


@dataclass(frozen=True, kw_only=True)
class PuzzleSettings(Settings):
    """Settings of Latin square puzzles and of the loss."""

    puzzles: str | Path | None = setting(
        None, "folder with puzzle files in the published format; by default puzzles are drawn at random"
    )
    order: int = setting(4, "rows, columns and symbols of a puzzle, 4 to 6", choices=ORDERS)
    per_class: int = setting(3000, "training and test puzzles of each class, if drawn", least=2)
    heldout: int = setting(108, "held-out (ood) puzzles, a third of them from each class, if drawn")
    distance: float = setting(
        0.8, "Jaccard distance that training puzzles must exceed to every held-out puzzle", least=0, below=1
    )
    train: int | None = setting(
        None, "training puzzles to use, about equally many of each class, out of a fixed sequence; default: all"
    )
    log_softmax: int = setting(
        2,
        "times that log-softmax is applied to the logits: 1 as in textbooks; 2 as in the authors' code, where both the "
        "model and the loss apply it, which is equal except for rounding",
        choices=(1, 2),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heldout < 3 or self.heldout % 3:
            raise must_be("heldout", "a positive multiple of 3, for as many puzzles of each class", self.heldout)


class LatinSquares(Task):
    """Prediction of the symbol in the target cell of a Latin square puzzle, with random or published puzzles.

    Inputs are one-hot vectors, (N, order^2, order + 1), see `puzzles.one_hot`. Targets, (N,), are symbols counted from
    0. Metrics are also averaged per condition. The conditions are the classes of difficulty, see `puzzles.classify`.

    Parameters
    ----------
    seed : int
        Seed of the puzzles and of the split into train and test.
    logits : bool
        Whether `metrics` also returns the mean of the logits of each puzzle, "mean_logit".
    **settings
        Fields of `PuzzleSettings`.

    Notes
    -----
    The setting `log_softmax` is the number of times that log-softmax is applied to the logits. One and two
    are mathematically the same, but differ in float32. Once the probability of the correct symbol rounds to 1, the
    gradient of its logit is exactly 0 with one log-softmax. The gradients of the other logits are not 0, so all logits
    drift. With two, the gradients still sum to zero.
    """

    name = "latin-squares"
    settings_class = PuzzleSettings
    readout = "last"
    conditions = CLASSES

    def __init__(self, *, seed: int = 0, logits: bool = False, **settings: Any) -> None:
        chosen = PuzzleSettings(**settings)
        order, distance, puzzles = chosen.order, chosen.distance, chosen.puzzles
        whole_number("seed", seed, least=0)
        self.log_softmax, self.logits = chosen.log_softmax, bool(logits)
        draw_rng, split_rng = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
        if puzzles is None:
            sizes = (chosen.heldout, chosen.per_class)
            key = f"{self.name}-v{VERSION}-{order}-{seed}-{sizes[0]}-{sizes[1]}-{distance}"
            arguments = (draw_rng, order, *sizes, distance)
            training, held_out = load_or_make(key, order, distance, lambda: make_puzzles(*arguments))
        else:
            training, held_out = read_folder(puzzles, order, distance)
            for condition, count in zip(CLASSES, np.bincount(training.classes), strict=True):
                if count < 2:
                    raise BadInput(
                        f"{puzzles} must have at least 2 {condition} puzzles to split into train and test; got {count}."
                    )
        train_puzzles, test_puzzles = split_by_class(split_rng, training)
        if chosen.train is not None:
            train_puzzles = train_puzzles[first_puzzles(train_puzzles.classes, chosen.train)]

        self.outputs = order
        self.splits = {"train": _split(train_puzzles), "test": _split(test_puzzles), "ood": _split(held_out)}
        self.train = None if chosen.train is None else int(chosen.train)
        self.source = "drawn" if puzzles is None else str(puzzles)
        self.seed = int(seed)
        self.distance = distance
        self.positions = np.stack(np.divmod(np.arange(order**2), order), axis=1).astype(np.float64)
        self.token_names = tuple(f"r{r + 1}c{c + 1}" for r in range(order) for c in range(order))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Compute the mean cross-entropy of each member over a batch, (e,)."""
        return self._cross_entropy(outputs, targets).mean(dim=1)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Compute "accuracy" (0 or 1), "loss" and, with `logits`, "mean_logit", for each member and puzzle, (e, b).

        These are recorded in every evaluation.
        """
        correct = (outputs.argmax(dim=-1) == targets).to(outputs.dtype)
        values = {"accuracy": correct, "loss": self._cross_entropy(outputs, targets)}
        return {**values, "mean_logit": outputs.mean(dim=-1)} if self.logits else values

    def describe(self) -> dict[str, Any]:
        """Return the settings, the number of puzzles in each split and class, and a hash of all splits."""
        digest = hashlib.sha256()
        counts = {}
        for name, split in self.splits.items():
            digest.update(split.inputs.to("cpu", torch.uint8).numpy().tobytes())
            digest.update(split.targets.to("cpu", torch.uint8).numpy().tobytes())
            class_counts = Counter(split.conditions)
            counts[name] = {condition: class_counts[condition] for condition in CLASSES}
        return {
            "task": self.name,
            "order": self.outputs,
            "source": self.source,
            "seed": self.seed,
            "distance": self.distance,
            **({} if self.train is None else {"train": self.train}),
            "log_softmax": self.log_softmax,
            "counts": counts,
            "sha256": digest.hexdigest(),
        }

    def _cross_entropy(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy of each member and puzzle, (e, b)."""
        logits = outputs.flatten(0, 1)
        if self.log_softmax == 2:
            logits = log_softmax(logits, dim=-1)
        return cross_entropy(logits, targets.flatten(), reduction="none").view(targets.shape)


def _split(puzzles: Puzzles) -> Split:
    """Convert puzzles to a `Split`: one-hot inputs, solutions counted from 0, and class names as conditions."""
    return Split(
        inputs=torch.from_numpy(one_hot(puzzles.cells)),
        targets=torch.from_numpy(puzzles.solutions - 1),
        conditions=tuple(CLASSES[index] for index in puzzles.classes),
    )


def first_puzzles(classes: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Choose `count` puzzles: the first of every class, then the second of every class, and so on.

    Returns their sorted indices, (count,). `classes`, (N,), is the class of each puzzle.

    >>> first_puzzles(np.array([0, 0, 0, 1, 2, 1]), 4)
    array([0, 1, 3, 4])
    """
    whole_number("train", count, len(CLASSES), len(classes))
    ranks = np.empty(len(classes), dtype=np.int64)  # number of earlier puzzles of the same class
    for index in range(len(CLASSES)):
        ranks[classes == index] = np.arange(np.count_nonzero(classes == index))
    return np.sort(np.lexsort((classes, ranks))[:count])


def make_puzzles(
    rng: np.random.Generator, order: int, heldout: int, per_class: int, distance: float
) -> tuple[Puzzles, Puzzles]:
    """Draw random puzzles for training and for the held-out split, without duplicates.

    The held-out puzzles of a class have all numbers of givens in `HELDOUT_GIVENS` about equally often. Training puzzles
    are drawn with a number of givens that is uniform over `TRAIN_GIVENS`, and those that are too close to held-out
    puzzles are rejected. With the published held-out puzzles, this gives nearly the same distribution of the number of
    givens as in the published training puzzles.

    Parameters
    ----------
    rng : numpy.random.Generator
    order : int
    heldout : int
        Number of held-out puzzles, a third of them from each class.
    per_class : int
        Number of training puzzles of each class.
    distance : float
        Every training puzzle has a larger Jaccard distance than this from every held-out puzzle.

    Returns
    -------
    training, heldout : Puzzles
    """
    parts = []
    for index, givens in enumerate(HELDOUT_GIVENS):
        low, high = scale_givens(givens, order)
        numbers = np.resize(np.arange(low, high + 1), heldout // 3)
        for number, count in zip(*np.unique(numbers, return_counts=True), strict=True):
            class_counts = [0] * len(CLASSES)
            class_counts[index] = int(count)
            parts.append(draw_distinct(rng, order, class_counts, (int(number), int(number))))
    held_out = join(parts)
    class_counts = [per_class] * len(CLASSES)
    train_givens = scale_givens(TRAIN_GIVENS, order)
    return draw_distinct(rng, order, class_counts, train_givens, held_out.cells, distance), held_out


def scale_givens(givens: tuple[int, int], order: int) -> tuple[int, int]:
    """Scale a minimum and maximum number of givens from order 4 to `order`, in proportion to the number of cells.

    >>> scale_givens((3, 11), 6)
    (7, 25)
    """
    return round(givens[0] * order**2 / 16), round(givens[1] * order**2 / 16)


def draw_distinct(
    rng: np.random.Generator,
    order: int,
    class_counts: Sequence[int],
    givens: tuple[int, int],
    avoid: Cells | None = None,
    distance: float = 0.0,
) -> Puzzles:
    """Draw random puzzles without duplicates, and return them in the order of their classes.

    `class_counts` is the number of puzzles to draw for each class in `CLASSES`, `order` the number of rows of a puzzle,
    and `givens` the minimum and maximum number of given symbols. If `avoid`, (M, order**2), has the cells of M other
    puzzles, the Jaccard distance of every drawn puzzle from each of them is larger than `distance`. Raises `BadInput`
    as soon as it is likely that `MAX_DRAWS` draws are not enough.
    """
    pools = [draw(rng, order, 0, givens) for _ in CLASSES]
    draws = 0
    while open_classes := [index for index, pool in enumerate(pools) if len(pool) < class_counts[index]]:
        for index in open_classes:
            expected = len(pools[index]) * MAX_DRAWS / max(draws, 1)
            if draws >= MAX_DRAWS or (draws >= MAX_DRAWS // 16 and expected < class_counts[index]):
                rule = remedy = ""
                if avoid is not None:
                    rule = f" with a distance above {distance} to each of {len(avoid)} held-out ones"
                    remedy = ", per_class or distance"
                raise BadInput(
                    f"{class_counts[index]:,} {CLASSES[index]} puzzles of order {order}{rule} could not be found "
                    f"({len(pools[index]):,} in {draws:,} draws); lower heldout{remedy}."
                )
        puzzles = draw(rng, order, PUZZLES_PER_DRAW, givens)
        draws += PUZZLES_PER_DRAW
        puzzles = puzzles[np.isin(puzzles.classes, open_classes)]
        if avoid is not None:
            puzzles = puzzles[are_farther(puzzles.cells, avoid, distance)]
        for index in open_classes:
            pool = join([pools[index], puzzles[puzzles.classes == index]])
            pools[index] = pool[first_occurrences(pool.cells)[: class_counts[index]]]
    return join(pools)


def split_by_class(rng: np.random.Generator, puzzles: Puzzles) -> tuple[Puzzles, Puzzles]:
    """Split puzzles at random into training and test puzzles, and return both in random order.

    Of every class, `TEST_FRACTION` of the puzzles, but at least one, are test puzzles.
    """
    test = np.zeros(len(puzzles), dtype=bool)
    for index in range(len(CLASSES)):
        rows = rng.permutation(np.flatnonzero(puzzles.classes == index))
        test[rows[: max(1, round(TEST_FRACTION * len(rows)))]] = True
    return puzzles[rng.permutation(np.flatnonzero(~test))], puzzles[rng.permutation(np.flatnonzero(test))]
