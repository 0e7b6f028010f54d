"""The Latin squares task: which symbol belongs in the target cell of a puzzle?

The tokens are the cells of a grid, so the true arrangement is known: the row and the column of each cell. What makes
"validation" a test of generalization is distance: no training puzzle is like any held-out one.

>>> task = LatinSquares(seed=0)
>>> {name: tuple(split.inputs.shape) for name, split in task.splits.items()}
{'train': (8100, 16, 5), 'test': (900, 16, 5), 'validation': (108, 16, 5)}
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax

from placecode.data.puzzle_files import cached, read_folder
from placecode.data.puzzles import CLASSES, ORDERS, Cells, Puzzles, apart, draw, first_of_each, join, one_hot
from placecode.errors import BadInput, must_be
from placecode.tasks.base import Split, Task
from placecode.validation import is_whole, real_number, whole_number

VERSION = 1
"""Of the recipe below. Raise it with every change of what a seed gives, or old cached puzzles would pass for new."""
TRAIN_GIVENS = (3, 11)
"""The fewest and the most givens of a training puzzle of order 4, as published."""
HELDOUT_GIVENS = ((6, 11), (5, 11), (4, 9))
"""The same of a held-out puzzle, for each class: the ranges of the 108 puzzles that people solved."""
BATCH = 1 << 14
"""Puzzles per draw: small enough to stay in a processor's cache."""
MOST_DRAWS = 1 << 26
"""How many random puzzles to look at before giving up; the defaults need less than a tenth of them."""


class LatinSquares(Task):
    """Puzzles of `order` 4, 5 or 6, one-hot (N, n*n, n+1) with blanks all zeros; the answer is one of n symbols.

    By default the puzzles are drawn from `seed`: `heldout` of them, a third of each class, are the split "validation";
    `per_class` of each class, all further than `distance` (Jaccard) from every held-out one, are split 90/10 by class
    into "train" and "test". With `puzzles`, a folder in the published layout, they are read instead; then `heldout`
    and `per_class` are what the files hold, and `seed` decides only the 90/10 split. `train` is how many training
    puzzles are used, all unless given: as equally many of each class as possible, fewer of them a part of more; the
    other splits stay.

    `log_softmax` is how many times the logits go through log-softmax in the loss. Once is cross-entropy as it is
    written in textbooks. Twice is what the authors' code computes: their model ends in a log-softmax, and their loss
    applies another. Mathematically both are equal. In float32 they are not: once the probability of the right answer
    rounds to 1, its gradient is exactly 0 with one log-softmax while those of the other answers are not, so that the
    logits drift; with two, the gradients still sum to zero. With `logits`, the mean logit of each puzzle is a metric.
    """

    name = "latin-squares"
    readout = "last"
    conditions = CLASSES

    def __init__(
        self,
        order: int = 4,
        seed: int = 0,
        puzzles: str | Path | None = None,
        heldout: int = 108,
        per_class: int = 3000,
        distance: float = 0.8,
        train: int | None = None,
        log_softmax: int = 2,
        logits: bool = False,
    ) -> None:
        _check(order, seed, heldout, per_class, distance)
        if not is_whole(log_softmax) or log_softmax not in (1, 2):
            raise must_be("log_softmax", "1 or 2", log_softmax)
        self.log_softmax, self.logits = int(log_softmax), bool(logits)
        drawing, splitting = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
        if puzzles is None:
            key = f"{self.name}-v{VERSION}-{order}-{seed}-{heldout}-{per_class}-{float(distance)}"
            training, validation = cached(
                key, order, distance, lambda: make_puzzles(drawing, order, heldout, per_class, distance)
            )
        else:
            training, validation = read_folder(puzzles, order, distance)
            for condition, count in zip(CLASSES, np.bincount(training.classes), strict=True):
                if count < 2:
                    raise BadInput(
                        f"{puzzles} must have at least 2 {condition} puzzles to split into train and test; got {count}."
                    )
        learned, test = stratify(splitting, training)
        if train is not None:
            learned = learned[first_puzzles(learned.classes, train)]

        self.outputs = int(order)
        self.splits = {"train": _split(learned), "test": _split(test), "validation": _split(validation)}
        self.train = None if train is None else int(train)
        self.source = "drawn" if puzzles is None else str(puzzles)
        self.seed = int(seed)
        self.distance = float(distance)
        self.positions = np.stack(np.divmod(np.arange(order**2), order), axis=1).astype(np.float64)
        self.token_names = tuple(f"r{r + 1}c{c + 1}" for r in range(order) for c in range(order))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy, the mean over the batch of each member, (e,)."""
        return self._cross_entropy(outputs, targets).mean(dim=1)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """`accuracy` (0 or 1), `loss` and, if asked for, `mean_logit` of each member and puzzle, (e, b)."""
        right = (outputs.argmax(dim=-1) == targets).to(outputs.dtype)
        found = {"accuracy": right, "loss": self._cross_entropy(outputs, targets)}
        return {**found, "mean_logit": outputs.mean(dim=-1)} if self.logits else found

    def describe(self) -> dict[str, Any]:
        """What the data are, for the record: source, options, counts, and one hash of all splits, row by row."""
        digest = hashlib.sha256()
        counts = {}
        for name, split in self.splits.items():
            digest.update(split.inputs.to("cpu", torch.uint8).numpy().tobytes())
            digest.update(split.targets.to("cpu", torch.uint8).numpy().tobytes())
            found = Counter(split.conditions)
            counts[name] = {condition: found[condition] for condition in CLASSES}
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
        logits = outputs.flatten(0, 1)
        if self.log_softmax == 2:
            logits = log_softmax(logits, dim=-1)
        return cross_entropy(logits, targets.flatten(), reduction="none").view(targets.shape)


def _split(puzzles: Puzzles) -> Split:
    return Split(
        inputs=torch.from_numpy(one_hot(puzzles.cells)),
        targets=torch.from_numpy(puzzles.solutions - 1),
        conditions=tuple(CLASSES[index] for index in puzzles.classes),
    )


def first_puzzles(classes: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Which `count` puzzles to keep, in their order: the first of every class, then the second, and so on.

    >>> first_puzzles(np.array([0, 0, 0, 1, 2, 1]), 4)
    array([0, 1, 3, 4])
    """
    whole_number("train", count, len(CLASSES), len(classes))
    ranks = np.empty(len(classes), dtype=np.int64)  # how many of its class come before each
    for each in range(len(CLASSES)):
        ranks[classes == each] = np.arange(np.count_nonzero(classes == each))
    return np.sort(np.lexsort((classes, ranks))[:count])


def _check(order: int, seed: int, heldout: int, per_class: int, distance: float) -> None:
    if not is_whole(order) or order not in ORDERS:
        raise must_be("order", "4, 5 or 6", order)
    whole_number("seed", seed, least=0)
    if not is_whole(heldout) or heldout < 3 or heldout % 3:
        raise must_be("heldout", "a positive multiple of 3, for as many puzzles of each class", heldout)
    whole_number("per_class", per_class, least=2)
    real_number("distance", distance, least=0, below=1)


def make_puzzles(
    rng: np.random.Generator, order: int, heldout: int, per_class: int, distance: float
) -> tuple[Puzzles, Puzzles]:
    """`per_class` training puzzles of each class and `heldout` puzzles, a third of each class; all distinct.

    Held-out puzzles are spread evenly over the numbers of givens in `HELDOUT_GIVENS`; training puzzles take what
    the rule leaves of a uniform draw over `TRAIN_GIVENS`. Around the published held-out puzzles this recipe gives
    nearly the numbers of givens of the published training puzzles.
    """
    parts = []
    for index, givens in enumerate(HELDOUT_GIVENS):
        fewest, most = scale_givens(givens, order)
        numbers = np.resize(np.arange(fewest, most + 1), heldout // 3)
        for number, count in zip(*np.unique(numbers, return_counts=True), strict=True):
            wanted = [0] * len(CLASSES)
            wanted[index] = int(count)
            parts.append(gather(rng, order, wanted, (int(number), int(number))))
    validation = join(parts)
    wanted = [per_class] * len(CLASSES)
    return gather(rng, order, wanted, scale_givens(TRAIN_GIVENS, order), validation.cells, distance), validation


def scale_givens(givens: tuple[int, int], order: int) -> tuple[int, int]:
    """A range of givens for order 4, at another order: the same share of the cells.

    >>> scale_givens((3, 11), 6)
    (7, 25)
    """
    return round(givens[0] * order**2 / 16), round(givens[1] * order**2 / 16)


def gather(
    rng: np.random.Generator,
    order: int,
    wanted: Sequence[int],
    givens: tuple[int, int],
    avoid: Cells | None = None,
    distance: float = 0.0,
) -> Puzzles:
    """The first `wanted` distinct puzzles of each class that are drawn and lie further than `distance` from `avoid`.

    `BadInput` as soon as they would take more than `MOST_DRAWS`, seen from the draws so far.
    """
    pools = [draw(rng, order, 0, givens) for _ in CLASSES]
    draws = 0
    while open_classes := [index for index, pool in enumerate(pools) if len(pool) < wanted[index]]:
        for index in open_classes:
            expected = len(pools[index]) * MOST_DRAWS / max(draws, 1)
            if draws >= MOST_DRAWS or (draws >= MOST_DRAWS // 16 and expected < wanted[index]):
                rule = remedy = ""
                if avoid is not None:
                    rule = f" with a distance above {distance} to each of {len(avoid)} held-out ones"
                    remedy = ", per_class or distance"
                raise BadInput(
                    f"{wanted[index]:,} {CLASSES[index]} puzzles of order {order}{rule} were not to be found "
                    f"({len(pools[index]):,} in {draws:,} draws); lower heldout{remedy}."
                )
        drawn = draw(rng, order, BATCH, givens)
        draws += BATCH
        drawn = drawn[np.isin(drawn.classes, open_classes)]
        if avoid is not None:
            drawn = drawn[apart(drawn.cells, avoid, distance)]
        for index in open_classes:
            pool = join([pools[index], drawn[drawn.classes == index]])
            pools[index] = pool[first_of_each(pool.cells)[: wanted[index]]]
    return join(pools)


def stratify(rng: np.random.Generator, puzzles: Puzzles, share: float = 0.1) -> tuple[Puzzles, Puzzles]:
    """The puzzles in two parts, each in random order: `share` of every class (at least one) is the second part."""
    test = np.zeros(len(puzzles), dtype=bool)
    for index in range(len(CLASSES)):
        rows = rng.permutation(np.flatnonzero(puzzles.classes == index))
        test[rows[: max(1, round(share * len(rows)))]] = True
    return puzzles[rng.permutation(np.flatnonzero(~test))], puzzles[rng.permutation(np.flatnonzero(test))]
