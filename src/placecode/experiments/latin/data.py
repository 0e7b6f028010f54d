"""Beyond the paper on Latin squares: other puzzles, at every sigma.

lst-data: fewer training puzzles, always as many steps. lst-size: larger grids; and the PEs that were learned on smaller
ones, resized, as their start (can a learned PE be carried over to another number of tokens?).

What to look for: does a small sigma replace puzzles? And is a resized PE a better start than a random one of the same
size, or than the same PE with its cells shuffled before?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from placecode.data.puzzles import CLASSES
from placecode.errors import must_be
from placecode.experiments.base import setting
from placecode.experiments.latin import knob_claims
from placecode.experiments.latin.causal_effects import DONORS
from placecode.experiments.latin.knobs import SMALLER, KnobStudy, Place, Variant
from placecode.models.member import Member, grid
from placecode.tasks.base import Task
from placecode.tasks.latin_squares import LatinSquares
from placecode.tasks.several import Several
from placecode.training.trainer import steps_per_epoch


@dataclass(frozen=True)
class LstData(KnobStudy):
    """Fewer training puzzles against sigma; always as many steps."""

    name = "lst-data"
    about = "Latin squares: number of training puzzles against sigma"
    claims = knob_claims.DATA
    knob = "training puzzles"
    turned = ("samples",)

    samples: tuple[int, ...] = setting((500, 1000, 2000, 4000, 8100), "training puzzles")
    epochs: int = setting(200, "passes over the largest set of training puzzles; smaller ones are passed more often")

    scales = {"paper": {}, "quick": {**SMALLER, "samples": (500, 1500, 5400)}}

    def task(self) -> Task:
        most = len(self.latin_squares().splits["train"])
        if not len(CLASSES) <= min(self.samples) <= max(self.samples) <= most:
            raise must_be("samples", f"whole numbers from {len(CLASSES)} to {most}", list(self.samples))
        return Several({_puzzles(count): self.latin_squares(train=count) for count in self.samples})

    def per_epoch(self, task: Task) -> int:
        return steps_per_epoch(max(self.samples), self.batch)

    def variants(self) -> list[Variant]:
        return [Variant(f"{count:,} puzzles", {"data": _puzzles(count)}) for count in self.samples]


def _puzzles(count: int) -> str:
    return f"puzzles={count}"


@dataclass(frozen=True)
class LstSize(KnobStudy):
    """Larger grids; and PEs learned on smaller ones, resized, as a start."""

    name = "lst-size"
    about = "Latin squares: larger grids, and a PE learned on 4 x 4, resized, as a start for 5 x 5"
    claims = knob_claims.SIZE
    instead = {"order": "from_order and to_order"}
    knob = "how the PE starts"

    puzzles: str | None = setting(None, "folder with the puzzles of the smaller grids; drawn when not given")
    from_order: int = setting(4, "rows and columns of the smaller grids")
    to_order: int = setting(5, "rows and columns of the larger grids")
    donor_sigma: float = setting(0.05, "initial scale of the PEs that are learned on smaller grids and resized")
    donor_rate: float = setting(0.03, "step size of sgd, by which these are learned")
    seeds: tuple[int, ...] = setting(
        tuple(range(5)), f"seeds of the models, below {DONORS}; the donor of each has {DONORS} more"
    )

    scales = {"paper": {}, "quick": SMALLER}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.from_order < self.to_order:
            raise must_be("to_order", f"above from_order, which is {self.from_order}", self.to_order)
        if max(self.seeds) >= DONORS:
            raise must_be("seeds", f"below {DONORS}: those above are the donors'", list(self.seeds))

    def task(self) -> Task:
        small, large = (self.latin_squares(order=order) for order in (self.from_order, self.to_order))
        return Several({_order(self.from_order): small, _order(self.to_order): large})

    def latin_squares(self, **given: Any) -> LatinSquares:
        drawn = {} if given["order"] == self.from_order else {"puzzles": None}
        return super().latin_squares(**given, **drawn)

    def per_epoch(self, task: Task) -> int:
        """Grids of both sizes are trained for as many steps: as if all were drawn."""
        return steps_per_epoch(len(CLASSES) * (self.per_class - max(1, round(0.1 * self.per_class))), self.batch)

    def plan(self) -> list[Member]:
        """Both grids from random starts; donors, trained on the smaller grids so that their PEs learn the arrangement
        (by SGD, from a tiny start), with other seeds; the larger grids from the PEs of these, as they are and
        shuffled; then 2d-fixed models on both."""
        small, large = (_order(order) for order in (self.from_order, self.to_order))
        members = [
            member
            for data in (small, large)
            for member in grid(
                self.spec(data=data, label=self._label(data, RANDOM)), sigma=self.sigmas, seed=self.seeds
            )
        ]
        first = len(members)
        by_sgd = {"optimizer": "sgd", "learning_rate": self.donor_rate, "sigma": self.donor_sigma}
        donor = self.spec(data=small, role="donor", label=f"donor on {self._grids(small)}", **by_sgd)
        members += [replace(donor, seed=seed + DONORS) for seed in self.seeds]
        members += [
            self.spec(data=large, sigma=sigma, seed=seed, start=start, origin=first + place, label=label)
            for start, label in ((start, self._label(large, line)) for start, line in self._transplants().items())
            for sigma in self.sigmas
            for place, seed in enumerate(self.seeds)
        ]
        fixed = {"encoding": "sinusoid", "options": {"axes": 2}, "sigma": None, "role": "reference"}
        return [
            *members,
            *(
                member
                for data in (small, large)
                for member in grid(self.spec(**fixed, data=data, label=self._label(data, FIXED)), seed=self.seeds)
            ),
        ]

    def places(self) -> dict[str, Sequence[Place]]:
        """A panel for each size of the grids."""
        lines = {
            _order(self.from_order): (RANDOM, FIXED),
            _order(self.to_order): (RANDOM, *self._transplants().values(), FIXED),
        }
        return {self._label(data, line): [(self._grids(data), line)] for data, own in lines.items() for line in own}

    def _transplants(self) -> dict[str, str]:
        """Starts from a donor's PE, and the line of each."""
        small = f"{self.from_order} x {self.from_order}"
        return {"resized": f"learned on {small}, resized", "resized-shuffled": f"learned on {small}, shuffled, resized"}

    def _grids(self, data: str) -> str:
        order = {_order(each): each for each in (self.from_order, self.to_order)}[data]
        return f"{order} x {order} grids"

    def _label(self, data: str, line: str) -> str:
        return f"{line}, {self._grids(data)}"


RANDOM, FIXED = "random start", "2d-fixed"


def _order(order: int) -> str:
    return f"order={order}"
