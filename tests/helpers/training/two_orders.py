"""A tiny experiment with puzzles of order 4 and 5, and members with every kind of initial PE taken from another
member."""

from dataclasses import dataclass
from typing import Any

from placecode.experiments.latin.squares import LatinExperiment
from placecode.models.encoder import Stack
from placecode.models.member import Member, grid
from placecode.tasks.base import Task
from placecode.tasks.collection import TaskCollection
from placecode.tasks.latin_squares import LatinSquares

FOUR, FIVE = "order 4", "order 5"
HEIRS = (
    *((FOUR, start, 0.7) for start in ("donor-untrained", "rescaled", "resized", "shuffled")),
    *((FIVE, "resized", 0.7), (FIVE, "resized-shuffled", 0.7), (FIVE, "resized", 0.1)),
)
"""Data, start and sigma of the members whose PE comes from member 0 or 1, with the seed of that member."""


SMALL: dict[str, Any] = {"seeds": (0, 1), "epochs": 2, "evaluations": 2, "batch": 16, "learning_rate": 1e-2}
SMALL |= {"per_class": 20, "heldout": 9, "distance": 0.5, "noise": ()}
SMALL |= {"width": 8, "heads": 2, "layers": 2, "expansion": 1}


@dataclass(frozen=True)
class TwoOrders(LatinExperiment):
    """An experiment with learned PEs on order 4, true initial positions on order 5, HEIRS of the learned PEs, and
    2d-fixed PEs."""

    name = "two-orders"
    about = "for tests"
    scales = {"quick": SMALL}

    def task(self) -> Task:
        shared: dict[str, Any] = {"heldout": self.heldout, "per_class": self.per_class, "distance": self.distance}
        return TaskCollection({FOUR: LatinSquares(order=4, **shared), FIVE: LatinSquares(order=5, **shared)})

    def analyse(self, stack: Stack, task: Task) -> list[dict[str, Any]]:
        return []  # slow, and tested elsewhere

    def plan(self) -> list[Member]:
        first = [self.spec(sigma=0.3, seed=seed, data=FOUR) for seed in self.seeds]
        placed = [self.spec(sigma=0.3, start=start, data=FIVE) for start in ("true", "axes")]
        heirs = [
            self.spec(sigma=sigma, seed=seed, start=start, donor=donor, data=data, learn=False)
            for data, start, sigma in HEIRS
            for donor, seed in enumerate(self.seeds)
        ]
        fixed: dict[str, Any] = {"encoding": "sinusoid", "options": {"axes": 2}, "sigma": None}
        return [*first, *placed, *heirs, *grid(self.spec(**fixed), data=(FOUR, FIVE), seed=self.seeds)]
