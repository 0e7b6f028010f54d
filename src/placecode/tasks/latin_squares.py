"""The Latin squares task: predict the symbol in the target cell of a puzzle.

The tokens are the cells of a grid, so their true positions are known: row and column. The split "ood" tests
out-of-distribution generalization, because every training puzzle has a minimum distance from all held-out puzzles.

>>> task = LatinSquares(seed=0)
>>> {name: tuple(split.inputs.shape) for name, split in task.splits.items()}
{'train': (8100, 16, 5), 'test': (900, 16, 5), 'ood': (108, 16, 5)}
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
"""Version of the generator below. Increase it whenever a seed gives other puzzles, so that old caches are not used."""
TRAIN_GIVENS = (3, 11)  # minimum and maximum number of givens of a published training puzzle of order 4
HELDOUT_GIVENS = ((6, 11), (5, 11), (4, 9))
"""The same for held-out puzzles of each class: the ranges of the 108 puzzles that people solved."""
TEST_FRACTION = 0.1
BATCH = 1 << 14  # number of puzzles drawn at once, small enough for a processor's cache
MAX_DRAWS = 1 << 26  # maximum number of random puzzles to draw; the default settings need less than a tenth of it


class LatinSquares(Task):
    """Latin square puzzles, with random or published puzzles.

    Inputs are one-hot, (N, order^2, order + 1), with zeros in blank cells. Targets are one of `order` symbols.

    Parameters
    ----------
    order : {4, 5, 6}
        Number of rows, columns and symbols.
    seed : int
        Seed of the puzzles and of the split into train and test.
    puzzles : str or Path, optional
        Folder with puzzles in the published layout. If set, `heldout` and `per_class` have no effect.
    heldout : int
        Number of held-out puzzles, one third of each class. They are the split "ood".
    per_class : int
        Number of other puzzles per class. In each class, 90% are "train" and 10% are "test".
    distance : float
        Every training and test puzzle has a larger Jaccard distance than this from every held-out puzzle.
    train : int, optional
        Number of training puzzles to use, nearly the same number of each class. A smaller set is a subset of a larger
        one. None uses all.
    log_softmax : {1, 2}
        Number of times log-softmax is applied to the logits in the loss. 1 is the usual cross-entropy. 2 is what the
        authors' code computes, because their model ends with a log-softmax and their loss applies another.
    logits : bool
        Whether the mean logit of each puzzle is a metric.

    Notes
    -----
    One and two log-softmax are mathematically equal but differ in float32. Once the probability of the correct symbol
    rounds to 1, its gradient is exactly 0 with one log-softmax. The gradients of the other symbols are not, so the
    logits drift. With two, the gradients still sum to zero.
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
        if not is_whole(order) or order not in ORDERS:
            raise must_be("order", "4, 5 or 6", order)
        whole_number("seed", seed, least=0)
        if not is_whole(heldout) or heldout < 3 or heldout % 3:
            raise must_be("heldout", "a positive multiple of 3, for as many puzzles of each class", heldout)
        whole_number("per_class", per_class, least=2)
        real_number("distance", distance, least=0, below=1)
        if not is_whole(log_softmax) or log_softmax not in (1, 2):
            raise must_be("log_softmax", "1 or 2", log_softmax)
        self.log_softmax, self.logits = int(log_softmax), bool(logits)
        drawing, splitting = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
        if puzzles is None:
            key = f"{self.name}-v{VERSION}-{order}-{seed}-{heldout}-{per_class}-{float(distance)}"
            training, held_out = cached(
                key, order, distance, lambda: make_puzzles(drawing, order, heldout, per_class, distance)
            )
        else:
            training, held_out = read_folder(puzzles, order, distance)
            for condition, count in zip(CLASSES, np.bincount(training.classes), strict=True):
                if count < 2:
                    raise BadInput(
                        f"{puzzles} must have at least 2 {condition} puzzles to split into train and test; got {count}."
                    )
        train_puzzles, test_puzzles = stratify(splitting, training)
        if train is not None:
            train_puzzles = train_puzzles[first_puzzles(train_puzzles.classes, train)]

        self.outputs = int(order)
        self.splits = {
            "train": _split(train_puzzles),
            "test": _split(test_puzzles),
            "ood": _split(held_out),
        }
        self.train = None if train is None else int(train)
        self.source = "drawn" if puzzles is None else str(puzzles)
        self.seed = int(seed)
        self.distance = float(distance)
        self.positions = np.stack(np.divmod(np.arange(order**2), order), axis=1).astype(np.float64)
        self.token_names = tuple(f"r{r + 1}c{c + 1}" for r in range(order) for c in range(order))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Compute the mean cross-entropy over the batch of each member, (e,)."""
        return self._cross_entropy(outputs, targets).mean(dim=1)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Compute `accuracy` (0 or 1), `loss` and, if enabled, `mean_logit` of each member and puzzle, (e, b)."""
        correct = (outputs.argmax(dim=-1) == targets).to(outputs.dtype)
        values = {"accuracy": correct, "loss": self._cross_entropy(outputs, targets)}
        return {**values, "mean_logit": outputs.mean(dim=-1)} if self.logits else values

    def describe(self) -> dict[str, Any]:
        """Return the source, the settings, the number of puzzles per class and a hash of all splits."""
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
    """Convert puzzles to tensors."""
    return Split(
        inputs=torch.from_numpy(one_hot(puzzles.cells)),
        targets=torch.from_numpy(puzzles.solutions - 1),
        conditions=tuple(CLASSES[index] for index in puzzles.classes),
    )


def first_puzzles(classes: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Return sorted indices of `count` puzzles: the first of every class, then the second of every class, and so on.

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
    """Draw distinct puzzles for training and for the held-out split.

    The numbers of givens of held-out puzzles are spread evenly over the ranges in `HELDOUT_GIVENS`. Those of training
    puzzles are uniform over `TRAIN_GIVENS` before puzzles that are too close to held-out ones are rejected. With the
    published held-out puzzles, this gives nearly the numbers of givens of the published training puzzles.

    Parameters
    ----------
    rng : numpy.random.Generator
    order : int
    heldout : int
        Number of held-out puzzles, one third of each class.
    per_class : int
        Number of training puzzles of each class.
    distance : float
        Lower bound of the Jaccard distance between training and held-out puzzles.

    Returns
    -------
    training, heldout : Puzzles
    """
    parts = []
    for index, givens in enumerate(HELDOUT_GIVENS):
        fewest, most = scale_givens(givens, order)
        numbers = np.resize(np.arange(fewest, most + 1), heldout // 3)
        for number, count in zip(*np.unique(numbers, return_counts=True), strict=True):
            wanted = [0] * len(CLASSES)
            wanted[index] = int(count)
            parts.append(gather(rng, order, wanted, (int(number), int(number))))
    held_out = join(parts)
    wanted = [per_class] * len(CLASSES)
    return gather(rng, order, wanted, scale_givens(TRAIN_GIVENS, order), held_out.cells, distance), held_out


def scale_givens(givens: tuple[int, int], order: int) -> tuple[int, int]:
    """Scale a range of numbers of givens from order 4 to another order, in proportion to the number of cells.

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
    """Draw distinct puzzles until there are enough of each class, and return them ordered by class.

    `wanted` are the numbers of puzzles per class, and `givens` the minimum and maximum number of givens. All puzzles
    have a larger Jaccard distance than `distance` from those in `avoid`. Raises `BadInput` as soon as more than
    `MAX_DRAWS` draws are expected to be necessary.
    """
    pools = [draw(rng, order, 0, givens) for _ in CLASSES]
    draws = 0
    while open_classes := [index for index, pool in enumerate(pools) if len(pool) < wanted[index]]:
        for index in open_classes:
            expected = len(pools[index]) * MAX_DRAWS / max(draws, 1)
            if draws >= MAX_DRAWS or (draws >= MAX_DRAWS // 16 and expected < wanted[index]):
                rule = remedy = ""
                if avoid is not None:
                    rule = f" with a distance above {distance} to each of {len(avoid)} held-out ones"
                    remedy = ", per_class or distance"
                raise BadInput(
                    f"{wanted[index]:,} {CLASSES[index]} puzzles of order {order}{rule} could not be found "
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


def stratify(rng: np.random.Generator, puzzles: Puzzles) -> tuple[Puzzles, Puzzles]:
    """Split puzzles at random, with `TEST_FRACTION` of every class, at least one puzzle, in the second part.

    Both parts are in random order.
    """
    test = np.zeros(len(puzzles), dtype=bool)
    for index in range(len(CLASSES)):
        rows = rng.permutation(np.flatnonzero(puzzles.classes == index))
        test[rows[: max(1, round(TEST_FRACTION * len(rows)))]] = True
    return puzzles[rng.permutation(np.flatnonzero(~test))], puzzles[rng.permutation(np.flatnonzero(test))]
